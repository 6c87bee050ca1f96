//! The running kernel's own verifier as a second oracle, where `bpf(2)` is allowed: it is newer or
//! older than the tests, and it can be asked about programs whose test does not say what happens to
//! users without privileges.
//!
//! Programs are only loaded, never attached or run.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use warpbpf_ebpf::{Code, Imm64, Insn, Slot, encode};
use warpbpf_object::{MapDef, MapKind};

use crate::platform::Kind;

const BPF_MAP_CREATE: i64 = 0;
const BPF_MAP_UPDATE_ELEM: i64 = 2;
const BPF_PROG_LOAD: i64 = 5;
const BPF_MAP_FREEZE: i64 = 22;
const BPF_F_STRICT_ALIGNMENT: u32 = 1;

const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_PERFMON: u64 = 1 << 38;
const CAP_BPF: u64 = 1 << 39;

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum User {
    /// May learn addresses and what was on the stack before: as the selftests do, all rights but
    /// `CAP_SYS_ADMIN`.
    Privileged,
    /// May not: `CAP_PERFMON` is missing too. Programs of the network only, others need it to be
    /// loaded at all.
    Protected,
}

/// What the running kernel says to both. `None`: it cannot be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Said {
    /// It accepts it from the privileged.
    pub privileged: Option<bool>,
    /// It accepts it from the others.
    pub protected: Option<bool>,
}

/// The oracle.
#[derive(Debug)]
pub struct Kernel {
    permitted: u64,
}

impl Kernel {
    /// Loads the smallest program there is.
    ///
    /// # Errors
    /// Why the kernel cannot be asked.
    pub fn new() -> Result<Kernel, String> {
        let permitted = capabilities().map_err(|e| format!("capget: {e}"))?;
        let kernel = Kernel { permitted };
        let smallest = warpbpf_ebpf::assemble("r0 = 0\nexit").map_err(|_| "no program")?;
        kernel
            .load(&smallest, &[], Kind::SocketFilter, false, User::Privileged)
            .map_err(|e| format!("bpf(BPF_PROG_LOAD): {e}"))?;
        Ok(kernel)
    }

    /// What the kernel says about a program whose maps are `maps`.
    pub fn ask(&self, code: &Code, maps: &[MapDef], kind: Kind, strict: bool) -> Said {
        let ask = |user| match self.load(code, maps, kind, strict, user) {
            Ok(()) => Some(true),
            // EACCES and EINVAL are the verifier's words, E2BIG that it gave up; the rest is about
            // the machine.
            Err(e) => matches!(
                e.raw_os_error(),
                Some(libc::EACCES | libc::EINVAL | libc::E2BIG)
            )
            .then_some(false),
        };
        Said {
            privileged: ask(User::Privileged),
            protected: kind.of_network().then(|| ask(User::Protected)).flatten(),
        }
    }

    fn load(
        &self,
        code: &Code,
        maps: &[MapDef],
        kind: Kind,
        strict: bool,
        user: User,
    ) -> std::io::Result<()> {
        let unfit = || std::io::Error::from_raw_os_error(libc::ENOSYS);
        let number = kind.number().ok_or_else(unfit)?;
        let mut bytes = encode(code).map_err(|_| unfit())?;
        let mut fds = BTreeMap::new();
        let mut slot = 0;
        while let Some(insn) = bytes.get_mut(slot * Slot::BYTES..(slot + 1) * Slot::BYTES) {
            let wide = insn[0] == Slot::LDDW;
            // Source register 1: a map; 2: its first value.
            if wide && matches!(insn[1] >> 4, 1 | 2) {
                let index = u32::from_le_bytes([insn[4], insn[5], insn[6], insn[7]]);
                if let Entry::Vacant(entry) = fds.entry(index) {
                    let map = maps.get(index as usize).ok_or_else(unfit)?;
                    // What is wrong with a map says nothing about the program.
                    entry.insert(create(map).map_err(|_| unfit())?);
                }
                insn[4..8].copy_from_slice(&fds[&index].as_raw_fd().to_le_bytes());
            }
            slot += if wide { 2 } else { 1 };
        }
        let rights = match user {
            User::Privileged => CAP_BPF | CAP_NET_ADMIN | CAP_PERFMON,
            User::Protected => CAP_BPF | CAP_NET_ADMIN,
        };
        let license = c"GPL";
        if code.insns().iter().any(needs_types) {
            return Err(unfit());
        }
        let mut attributes = Attributes::default();
        attributes.u32(0, number);
        attributes.u32(4, (bytes.len() / Slot::BYTES) as u32);
        attributes.u64(8, bytes.as_ptr() as u64);
        attributes.u64(16, license.as_ptr() as u64);
        attributes.u32(44, if strict { BPF_F_STRICT_ALIGNMENT } else { 0 });
        set_capabilities(self.permitted & rights, self.permitted)?;
        let loaded = bpf(BPF_PROG_LOAD, &attributes);
        set_capabilities(self.permitted, self.permitted)?;
        loaded.map(|_| ())
    }
}

/// The kernel takes callbacks only from programs that come with their types.
fn needs_types(insn: &Insn) -> bool {
    matches!(
        insn,
        Insn::LoadImm64 {
            value: Imm64::Func(_),
            ..
        }
    )
}

/// `union bpf_attr`, as bytes.
#[derive(Default)]
struct Attributes([u64; 18]);

impl Attributes {
    fn u32(&mut self, offset: usize, value: u32) {
        let shift = offset % 8 * 8;
        self.0[offset / 8] |= u64::from(value) << shift;
    }

    fn u64(&mut self, offset: usize, value: u64) {
        self.0[offset / 8] = value;
    }
}

fn create(map: &MapDef) -> std::io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    attributes.u32(0, map.map_type);
    attributes.u32(4, map.key_size);
    attributes.u32(8, map.value_size);
    attributes.u32(12, map.max_entries);
    attributes.u32(16, map.flags);
    let fd = bpf(BPF_MAP_CREATE, &attributes)?;
    // SAFETY: the kernel has just made this descriptor and nothing else knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    if let MapKind::Data {
        image, read_only, ..
    } = &map.kind
    {
        let key = 0u32;
        let mut update = Attributes::default();
        update.u32(0, fd.as_raw_fd() as u32);
        update.u64(8, (&raw const key) as u64);
        update.u64(16, image.as_ptr() as u64);
        bpf(BPF_MAP_UPDATE_ELEM, &update)?;
        if *read_only {
            let mut freeze = Attributes::default();
            freeze.u32(0, fd.as_raw_fd() as u32);
            bpf(BPF_MAP_FREEZE, &freeze)?;
        }
    }
    Ok(fd)
}

/// The result, if it is a descriptor, is the caller's to close.
fn bpf(command: i64, attributes: &Attributes) -> std::io::Result<i32> {
    // SAFETY: the attributes are as large as is said, and what they point to is alive and of the
    // size that they say.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            (&raw const attributes.0).cast::<libc::c_void>(),
            size_of_val(&attributes.0),
        )
    };
    if result < 0 {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(result as i32)
    }
}

/// `struct __user_cap_header_struct` of version 3, for this thread.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

const VERSION_3: u32 = 0x2008_0522;

/// `struct __user_cap_data_struct`, twice: the low and the high half of each set.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn capabilities() -> std::io::Result<u64> {
    let header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let mut sets = [Sets::default(); 2];
    // SAFETY: version 3 reads one header and writes two sets, and both are there.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()) };
    if result < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(u64::from(sets[0].permitted) | u64::from(sets[1].permitted) << 32)
}

/// Changes what this thread may do; what is permitted stays, so it can be taken back.
fn set_capabilities(effective: u64, permitted: u64) -> std::io::Result<()> {
    let header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let half = |shift: u32| Sets {
        effective: (effective >> shift) as u32,
        permitted: (permitted >> shift) as u32,
        inheritable: 0,
    };
    let sets = [half(0), half(32)];
    // SAFETY: version 3 reads one header and two sets, and both are there.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) };
    if result < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}
