//! What objects say of themselves: `BPF_OBJ_GET_INFO_BY_FD`, ids, and pins.

use rustix::io::Errno;

use crate::kernel::Kernel;
use crate::objects::handle::Handle;
use crate::tool::attr::Attr;
use crate::tool::user::User;
use crate::uapi::{Command, LINK_TYPE_PERF_EVENT, attr};

/// Bytes of Linux's `struct bpf_map_info`, `bpf_prog_info`, `bpf_btf_info` and `bpf_link_info`.
const MAP_INFO: usize = 88;
const PROG_INFO: usize = 232;
const BTF_INFO: usize = 32;
const LINK_INFO: usize = 48;

/// A structure that is being filled.
struct Info(Vec<u8>);

impl Info {
    fn u32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    fn get32(&self, at: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.0[at..at + 4]);
        u32::from_ne_bytes(word)
    }
    fn get64(&self, at: usize) -> u64 {
        u64::from(self.get32(at)) | u64::from(self.get32(at + 4)) << 32
    }
    fn u64(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }
    fn name(&mut self, at: usize, name: &str) {
        let name = &name.as_bytes()[..name.len().min(15)];
        self.0[at..at + name.len()].copy_from_slice(name);
    }
}

/// Objects have ids from 1 on.
fn id(at: usize) -> u32 {
    at as u32 + 1
}

impl Kernel {
    pub(crate) fn info(&mut self, a: &Attr, user: &dyn User) -> Result<i64, Errno> {
        let handle = self.handle(a.fd(attr::info::FD)).ok_or(Errno::BADF)?;
        let length = a.u32(attr::info::LENGTH) as usize;
        let address = a.u64(attr::info::INFO);
        let known = match handle {
            Handle::Map(_) => MAP_INFO,
            Handle::Prog(_) => PROG_INFO,
            Handle::Btf(_) => BTF_INFO,
            Handle::Link(_) => LINK_INFO,
            Handle::Perf(_) => return Err(Errno::INVAL),
        };
        // The tool's structure is read too: it says where lists go.
        let given = length.min(known);
        let mut info = Info(user.bytes(address, given)?);
        info.0.resize(known, 0);
        match handle {
            Handle::Map(at) => self.map_info(at, &mut info)?,
            Handle::Prog(at) => self.prog_info(at, &mut info, user)?,
            Handle::Btf(at) => self.btf_info(at, &mut info, user)?,
            Handle::Link(at) => {
                let link = self.links.get(at).ok_or(Errno::BADF)?;
                info.0.fill(0);
                info.u32(0, LINK_TYPE_PERF_EVENT);
                info.u32(4, id(at));
                info.u32(8, id(link.prog));
            }
            Handle::Perf(_) => return Err(Errno::INVAL),
        }
        user.write(address, &info.0[..given])?;
        a.answer(user, attr::info::LENGTH, given as u32)?;
        Ok(0)
    }

    fn map_info(&self, at: usize, info: &mut Info) -> Result<(), Errno> {
        let map = self.maps.get(at).ok_or(Errno::BADF)?;
        info.0.fill(0);
        let spec = &map.spec;
        for (at, value) in [
            (0, spec.map_type),
            (4, id(at)),
            (8, spec.key_size),
            (12, spec.value_size),
            (16, spec.max_entries),
            (20, spec.flags),
            (64, map.btf.map_or(0, id)),
            (68, map.key_type.0),
            (72, map.value_type.0),
        ] {
            info.u32(at, value);
        }
        info.name(24, &map.name);
        info.u64(80, spec.extra);
        Ok(())
    }

    fn prog_info(&self, at: usize, info: &mut Info, user: &dyn User) -> Result<(), Errno> {
        let prog = self.progs.get(at).ok_or(Errno::BADF)?;
        let (room, list) = (info.get32(52) as usize, info.get64(56));
        let (code_room, code) = (info.get32(20) as usize, info.get64(32));
        info.0.fill(0);
        let mut maps: Vec<u32> = prog.all_maps().map(id).collect();
        maps.sort_unstable();
        maps.dedup();
        for (map, place) in maps.iter().zip(0..room as u64) {
            user.write(list + place * 4, &map.to_ne_bytes())?;
        }
        let part = &prog.code[..prog.code.len().min(code_room)];
        if code != 0 {
            user.write(code, part)?;
        }
        info.u32(0, prog.kind);
        info.u32(4, id(at));
        info.u64(8, tag(&prog.code));
        info.u32(20, prog.code.len() as u32);
        info.u64(32, code);
        info.u32(52, maps.len() as u32);
        info.u64(56, list);
        info.name(64, &prog.short_name);
        info.u32(84, u32::from(is_gpl(&prog.license)));
        info.u32(128, prog.btf.map_or(0, id));
        info.u32(132, 8);
        info.u32(216, (prog.code.len() / 8) as u32);
        Ok(())
    }

    fn btf_info(&self, at: usize, info: &mut Info, user: &dyn User) -> Result<(), Errno> {
        let btf = self.btfs.get(at).ok_or(Errno::BADF)?;
        let (into, room) = (info.get64(0), info.get32(8) as usize);
        if into != 0 {
            user.write(into, &btf.bytes[..btf.bytes.len().min(room)])?;
        }
        info.u32(8, btf.bytes.len() as u32);
        info.u32(12, id(at));
        // No name, not the kernel's own.
        let (name, name_room) = (info.get64(16), info.get32(24));
        if name != 0 && name_room != 0 {
            user.write(name, &[0])?;
        }
        info.u32(24, 0);
        info.u32(28, 0);
        Ok(())
    }

    /// The place of an object by the id that a command for it means.
    fn by_id(&self, command: Command, id: u32) -> Option<Handle> {
        let at = (id as usize).checked_sub(1)?;
        match command {
            Command::MapGetNextId | Command::MapGetFdById => {
                self.maps.get(at).map(|_| Handle::Map(at))
            }
            Command::ProgGetNextId | Command::ProgGetFdById => {
                self.progs.get(at).map(|_| Handle::Prog(at))
            }
            Command::BtfGetNextId | Command::BtfGetFdById => {
                self.btfs.get(at).map(|_| Handle::Btf(at))
            }
            Command::LinkGetNextId | Command::LinkGetFdById => {
                self.links.get(at).map(|_| Handle::Link(at))
            }
            _ => None,
        }
    }

    pub(crate) fn next_id(
        &mut self,
        command: Command,
        a: &Attr,
        user: &dyn User,
    ) -> Result<i64, Errno> {
        let last = match command {
            Command::MapGetNextId => self.maps.iter().last().map(|(at, _)| at),
            Command::ProgGetNextId => self.progs.iter().last().map(|(at, _)| at),
            Command::BtfGetNextId => self.btfs.iter().last().map(|(at, _)| at),
            _ => self.links.iter().last().map(|(at, _)| at),
        };
        let next = last.and_then(|last| {
            (a.u32(attr::id::START).saturating_add(1)..=id(last))
                .find(|next| self.by_id(command, *next).is_some())
        });
        a.answer(user, attr::id::NEXT, next.ok_or(Errno::NOENT)?)?;
        Ok(0)
    }

    pub(crate) fn fd_by_id(&mut self, command: Command, a: &Attr) -> Result<i64, Errno> {
        let handle = self.by_id(command, a.u32(attr::id::START));
        self.open(Some(handle.ok_or(Errno::NOENT)?))
    }

    pub(crate) fn pin(&mut self, a: &Attr, user: &dyn User) -> Result<i64, Errno> {
        let path = user.text(a.u64(attr::obj::PATH), 4096)?;
        let handle = self.handle(a.fd(attr::obj::FD)).ok_or(Errno::BADF)?;
        if matches!(handle, Handle::Perf(_) | Handle::Btf(_)) {
            return Err(Errno::INVAL);
        }
        if self.pins.contains_key(&path) {
            return Err(Errno::EXIST);
        }
        self.pins.insert(path, handle);
        Ok(0)
    }

    pub(crate) fn get_pinned(&mut self, a: &Attr, user: &dyn User) -> Result<i64, Errno> {
        let path = user.text(a.u64(attr::obj::PATH), 4096)?;
        let handle = self.pins.get(&path).copied().ok_or(Errno::NOENT)?;
        self.open(Some(handle))
    }

    /// The tool removes a file; true if it was a pin.
    pub fn unpin(&mut self, path: &str) -> bool {
        let pinned = self.pins.remove(path).is_some();
        if pinned {
            self.collect();
        }
        pinned
    }
}

/// Linux hashes the code by SHA-1; any number that is the same for the same code serves those who
/// compare.
fn tag(code: &[u8]) -> u64 {
    code.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Licences that Linux counts as the GPL (`license_is_gpl_compatible`).
fn is_gpl(license: &str) -> bool {
    matches!(
        license,
        "GPL"
            | "GPL v2"
            | "GPL and additional rights"
            | "Dual BSD/GPL"
            | "Dual MIT/GPL"
            | "Dual MPL/GPL"
    )
}
