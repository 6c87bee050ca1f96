//! The kernel under the tool: programs that only it can run are given to it, with real maps in
//! place of ours ([`crate::linux::shadow_maps`]).

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use rustix::io::Errno;
use warpbpf_linux::sys::{Fields, Place};

use crate::kernel::Kernel;
use crate::objects::handle::Handle;
use crate::objects::prog::Prog;
use crate::tool::attr::Attr;
use crate::tool::user::User;
use crate::uapi::{Command, attr, prog_type, pseudo};

/// Why Linux does not run a program at a place.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// It does not let us.
    #[error("`bpf()` is not permitted (root or CAP_BPF and CAP_PERFMON)")]
    NotPermitted,
    /// The program is not there.
    #[error("it is gone")]
    Gone {
        /// Its place in the kernel's table.
        program: usize,
    },
    /// It does not take the program.
    #[error("Linux does not load it: {error}")]
    Load {
        /// What it says.
        error: Errno,
    },
    /// It lets us no more.
    #[error("Linux is gone")]
    LinuxGone,
    /// It has no such place.
    #[error("Linux has no such probe: {error}")]
    Place {
        /// The place.
        place: Place,
        /// What it says.
        error: Errno,
    },
}

impl Kernel {
    pub(crate) fn ask_linux(&self, command: Command, fields: Fields) -> Result<i64, Errno> {
        fields.ask(self.linux.as_deref().ok_or(Errno::PERM)?, command)
    }

    /// A command about an object of Linux; `None` if it is for us.
    pub(crate) fn forwarded(
        &self,
        command: Command,
        a: &Attr,
        user: &dyn User,
    ) -> Option<Result<i64, Errno>> {
        let linux = self.linux()?;
        let prog = |at: usize| matches!(self.handle(a.fd(at)), Some(Handle::Prog(p)) if self.is_in_linux(p));
        let unknown = |at: usize| self.handle(a.fd(at)).is_none();
        let theirs = match command {
            Command::LinkCreate => {
                let event = self.handle(a.fd(attr::link::TARGET_FD));
                prog(attr::link::PROG_FD) && !matches!(event, Some(Handle::Perf(_)))
            }
            Command::RawTracepointOpen => prog(attr::raw_tracepoint::PROG_FD),
            Command::ProgAttach | Command::ProgDetach => prog(attr::prog_attach::PROG_FD),
            Command::ProgTestRun => prog(attr::test::PROG_FD),
            Command::ObjGetInfoByFd => prog(attr::info::FD) || unknown(attr::info::FD),
            Command::ObjPin => prog(attr::obj::FD) || unknown(attr::obj::FD),
            Command::LinkUpdate | Command::LinkDetach | Command::IterCreate => unknown(0),
            Command::ProgQuery | Command::TaskFdQuery => true,
            _ => false,
        };
        theirs.then(|| a.pass(user, |bytes| linux.bpf(command, bytes)))
    }

    /// Loads a program into Linux; `given` is the tool's command, if there is more to it than
    /// `prog` knows.
    ///
    /// # Errors
    /// The kernel's, and of maps that it cannot have.
    pub(crate) fn load_in_linux(
        &mut self,
        prog: &Prog,
        given: Option<(&Attr, &dyn User)>,
    ) -> Result<RawFd, Errno> {
        let mut code = prog.code.clone();
        for reference in &prog.references {
            let fd = self.ensure_shadow(reference.map)?;
            let at = reference.slot as usize * warpbpf_ebpf::Slot::BYTES;
            let what = match reference.offset {
                Some(_) => pseudo::MAP_VALUE,
                None => pseudo::MAP_FD,
            };
            code[at + 1] = code[at + 1] & 0xf | what << 4;
            code[at + 4..at + 8].copy_from_slice(&fd.to_ne_bytes());
        }
        let license: Vec<u8> = prog.license.bytes().chain([0]).collect();
        let words = |words: &[u32]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_ne_bytes()).collect()
        };
        let functions: Vec<u8> = (prog.functions.iter())
            .flat_map(|(slot, ty)| words(&[*slot, ty.0]))
            .collect();
        let lines: Vec<u8> = (prog.lines.iter())
            .flat_map(|line| words(&[line.slot, line.file, line.text, line.position]))
            .collect();
        // Types that this kernel does not take are not worth the program, which may do without.
        let types = prog.btf.and_then(|at| self.real_types(at).ok());
        let mut fields = match given {
            Some((a, _)) => Fields::of(*a.bytes()),
            None => Fields::new()
                .u32(attr::prog::TYPE, prog.kind)
                .name(attr::prog::NAME, &prog.short_name),
        };
        fields = fields
            .u32(
                attr::prog::INSN_COUNT,
                (code.len() / warpbpf_ebpf::Slot::BYTES) as u32,
            )
            .address(attr::prog::INSNS, &code)
            .address(attr::prog::LICENSE, &license)
            // Maps are named by descriptors now.
            .u32(attr::prog::FD_ARRAY_COUNT, 0);
        let (functions, lines) = match types {
            Some(_) => (functions, lines),
            None => Default::default(),
        };
        let count = |records: &[u8], size: u32| records.len() as u32 / size;
        fields = fields
            .u32(attr::prog::BTF_FD, types.unwrap_or(0) as u32)
            .u32(
                attr::prog::FUNC_INFO_SIZE,
                if functions.is_empty() { 0 } else { 8 },
            )
            .u32(attr::prog::FUNC_INFO_COUNT, count(&functions, 8))
            .address(attr::prog::FUNC_INFO, &functions)
            .u32(
                attr::prog::LINE_INFO_SIZE,
                if lines.is_empty() { 0 } else { 16 },
            )
            .u32(attr::prog::LINE_INFO_COUNT, count(&lines, 16))
            .address(attr::prog::LINE_INFO, &lines);
        let mut bytes = *fields.bytes();
        let linux = self.linux.as_deref().ok_or(Errno::PERM)?;
        let loaded = linux.bpf(Command::ProgLoad, &mut bytes);
        if let Some((a, user)) = given {
            let mut size = [0; 4];
            size.copy_from_slice(&bytes[attr::prog::LOG_TRUE_SIZE..][..4]);
            a.answer(user, attr::prog::LOG_TRUE_SIZE, u32::from_ne_bytes(size))?;
        }
        Ok(loaded? as RawFd)
    }

    /// A program of Linux holds a map.
    pub(crate) fn bind_in_linux(&mut self, prog: RawFd, map: usize) -> Result<(), Errno> {
        let map = self.ensure_shadow(map)?;
        let fields = Fields::new()
            .u32(attr::bind::PROG_FD, prog as u32)
            .u32(attr::bind::MAP_FD, map as u32);
        self.ask_linux(Command::ProgBindMap, fields).map(|_| ())
    }

    /// A program at a place, run by Linux from now on; says why not.
    pub(crate) fn probe_linux(
        &mut self,
        prog: usize,
        place: &Place,
    ) -> Result<OwnedFd, ProbeError> {
        if self.linux().is_none() {
            return Err(ProbeError::NotPermitted);
        }
        let gone = ProbeError::Gone { program: prog };
        let mut prog = self.progs.get(prog).cloned().ok_or(gone)?;
        prog.kind = prog_type::KPROBE;
        let fd = self.load_in_linux(&prog, None);
        let fd = fd.map_err(|error| ProbeError::Load { error })?;
        // SAFETY: the kernel has just given it to us, and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let linux = self.linux().ok_or(ProbeError::LinuxGone)?;
        let placed = linux.probe(fd.as_raw_fd(), place);
        placed.map_err(|error| ProbeError::Place {
            place: place.clone(),
            error,
        })
    }

    pub(crate) fn real_types(&mut self, at: usize) -> Result<RawFd, Errno> {
        let btf = self.btfs.get(at).ok_or(Errno::BADF)?;
        if let Some(fd) = &btf.in_linux {
            return Ok(fd.as_raw_fd());
        }
        let fields = Fields::new()
            .address(attr::btf::BTF, &btf.bytes)
            .u32(attr::btf::SIZE, btf.bytes.len() as u32);
        let linux = self.linux.as_deref().ok_or(Errno::PERM)?;
        let fd = fields.open(linux, Command::BtfLoad)?;
        let number = fd.as_raw_fd();
        self.btfs.get_mut(at).ok_or(Errno::BADF)?.in_linux = Some(fd);
        Ok(number)
    }
}
