//! `bpf()` for programs.
//!
//! Whether a probe is one of a GPU's kernel is known only when it is attached. A program that can
//! only be one (its C name starts with `cuda__`, or its section is `gpu/…`) is proved when it is
//! loaded, so that the tool gets the verifier's text where it expects it; any other is proved when
//! it is attached to a kernel.

use rustix::io::Errno;
use warpbpf_ebpf::Slot;
use warpbpf_object::{Btf, LoadedLine, Type, TypeId};

use crate::kernel::Kernel;
use crate::objects::handle::Handle;
use crate::objects::prog::{Prog, Reference};
use crate::tool::attr::Attr;
use crate::tool::log::Log;
use crate::tool::user::User;
use crate::uapi::{attr, prog_type, pseudo};

/// Most instructions that Linux takes.
const MAX_INSNS: u32 = 1_000_000;
/// Most records of functions or lines.
const MAX_RECORDS: u32 = 1 << 20;
impl Kernel {
    pub(crate) fn prog_load(&mut self, a: &Attr, user: &dyn User) -> Result<i64, Errno> {
        let kind = a.u32(attr::prog::TYPE);
        let count = a.u32(attr::prog::INSN_COUNT);
        if kind == 0 || kind > prog_type::LAST {
            return Err(Errno::INVAL);
        }
        if count == 0 || count > MAX_INSNS {
            return Err(Errno::TOOBIG);
        }
        let code = user.bytes(a.u64(attr::prog::INSNS), count as usize * Slot::BYTES)?;
        let license = match a.u64(attr::prog::LICENSE) {
            0 => return Err(Errno::INVAL),
            address => user.text(address, 4096)?,
        };
        let btf = match a.u32(attr::prog::BTF_FD) {
            0 => None,
            fd => Some(self.btf_at(fd as i32)?),
        };
        let short_name = a.name(attr::prog::NAME);
        let section = crate::tool::announced_section::section_of(&short_name);
        let functions: Vec<(u32, TypeId)> = records(
            user,
            a.u64(attr::prog::FUNC_INFO),
            a.u32(attr::prog::FUNC_INFO_COUNT),
            a.u32(attr::prog::FUNC_INFO_SIZE),
        )?
        .into_iter()
        .map(|[slot, ty, ..]| (slot, TypeId(ty)))
        .collect();
        let lines = records(
            user,
            a.u64(attr::prog::LINE_INFO),
            a.u32(attr::prog::LINE_INFO_COUNT),
            a.u32(attr::prog::LINE_INFO_SIZE),
        )?
        .into_iter()
        .map(|[slot, file, text, position]| LoadedLine {
            slot,
            file,
            text,
            position,
        })
        .collect();
        let references = self.references(&code, a.u64(attr::prog::FD_ARRAY), user)?;
        let types = btf.and_then(|at| Btf::parse(&self.btfs.get(at)?.bytes).ok());
        let full = functions.first().and_then(|(_, ty)| {
            match types.as_ref().and_then(|types| types.type_by_id(*ty)) {
                Some(Type::Func { name, .. }) => Some(name.clone()),
                _ => None,
            }
        });
        let prog = Prog {
            kind,
            name: full.unwrap_or_else(|| short_name.clone()),
            short_name,
            license,
            code,
            references,
            bound: Vec::new(),
            btf,
            functions,
            lines,
            section,
            in_linux: false,
            tried: None,
        };
        let log = Log {
            address: a.u64(attr::prog::LOG),
            size: a.u32(attr::prog::LOG_SIZE),
            level: a.u32(attr::prog::LOG_LEVEL),
        };
        if kind != prog_type::KPROBE {
            if self.linux().is_some() {
                return self.prog_load_in_linux(prog, a, user);
            }
            if prog_type::OF_LINUX.contains(&kind) {
                let why = "programs of this type run in Linux, and `bpf()` is not permitted here: run the tool as root, \
                    or with CAP_BPF and CAP_PERFMON, or leave the program out (bpf_program__set_autoload)\n";
                let wrote = log.write(user, why)?;
                a.answer(user, attr::prog::LOG_TRUE_SIZE, wrote)?;
                return Err(Errno::PERM);
            }
        }
        let for_gpu = prog.is_for_gpu();
        let at = self.progs.add(prog);
        if for_gpu && let Err(error) = self.prove(at, None) {
            self.collect();
            let wrote = log.write(user, &error.log())?;
            a.answer(user, attr::prog::LOG_TRUE_SIZE, wrote)?;
            return Err(Errno::ACCESS);
        }
        log.write(user, "")?;
        self.open(Some(Handle::Prog(at)))
    }

    fn prog_load_in_linux(
        &mut self,
        mut prog: Prog,
        a: &Attr,
        user: &dyn User,
    ) -> Result<i64, Errno> {
        // What the tool has for Linux is in a queue or in a filter for one side only.
        for at in prog.all_maps() {
            let map = self.map(at)?;
            if map.spec.is_row() && self.is_used_here(at) {
                (self.config.tell)(&format!(
                    "map `{}`: programs of the GPU and of Linux cannot share a queue, a stack or a bloom filter",
                    map.name
                ));
                return Err(Errno::INVAL);
            }
        }
        let fd = self.load_in_linux(&prog, Some((a, user)))?;
        prog.in_linux = true;
        let at = self.progs.add(prog);
        self.fds.insert(fd, Handle::Prog(at));
        Ok(i64::from(fd))
    }

    /// Where instructions name maps.
    fn references(
        &self,
        code: &[u8],
        fd_array: u64,
        user: &dyn User,
    ) -> Result<Vec<Reference>, Errno> {
        let slots: Vec<Slot> = Slot::all(code).collect();
        let mut references = Vec::new();
        let mut at = 0;
        while let Some(insn) = slots.get(at) {
            if insn.opcode != Slot::LDDW {
                at += 1;
                continue;
            }
            let second = slots.get(at + 1).ok_or(Errno::INVAL)?;
            let fd = match insn.src {
                pseudo::MAP_FD | pseudo::MAP_VALUE => Some(insn.imm),
                pseudo::MAP_INDEX | pseudo::MAP_INDEX_VALUE => {
                    let mut fd = [0; 4];
                    let index = u64::try_from(insn.imm).map_err(|_| Errno::INVAL)?;
                    user.read(fd_array + index * 4, &mut fd)?;
                    Some(i32::from_ne_bytes(fd))
                }
                _ => None,
            };
            if let Some(fd) = fd {
                let value = matches!(insn.src, pseudo::MAP_VALUE | pseudo::MAP_INDEX_VALUE);
                references.push(Reference {
                    slot: at as u32,
                    map: self.map_at(fd)?,
                    offset: value.then_some(second.imm as u32),
                });
            }
            at += 2;
        }
        Ok(references)
    }

    pub(crate) fn prog_bind_map(&mut self, a: &Attr) -> Result<i64, Errno> {
        let prog = self.prog_at(a.fd(attr::bind::PROG_FD))?;
        let map = self.map_at(a.fd(attr::bind::MAP_FD))?;
        if self.is_in_linux(prog) {
            self.bind_in_linux(a.fd(attr::bind::PROG_FD), map)?;
        }
        let prog = self.progs.get_mut(prog).ok_or(Errno::BADF)?;
        prog.bound.push(map);
        Ok(0)
    }
}

/// Records of at least their first words, which are 8 bytes of functions and 16 of lines.
fn records(user: &dyn User, address: u64, count: u32, size: u32) -> Result<Vec<[u32; 4]>, Errno> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if count > MAX_RECORDS || !(8..=252).contains(&size) || !size.is_multiple_of(4) {
        return Err(Errno::INVAL);
    }
    let bytes = user.bytes(address, count as usize * size as usize)?;
    Ok(bytes
        .chunks_exact(size as usize)
        .map(|record| {
            let (words, _) = record.as_chunks::<4>();
            std::array::from_fn(|i| words.get(i).map_or(0, |word| u32::from_ne_bytes(*word)))
        })
        .collect())
}
