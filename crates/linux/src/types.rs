//! Types: those of the running kernel, by which functions and typed tracepoints are found, and those of an object as Linux takes
//! them, with lines of its source for the verifier's text.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;

use rustix::io::Errno;
use warpbpf_object::{Btf, Object, Program, Type};

use crate::sys::{Fields, Linux};
use crate::uapi::{Command, attr};

/// Where Linux shows its types.
const FOLDER: &str = "/sys/kernel/btf";
/// Bytes of `struct bpf_btf_info`.
const INFO_BYTES: usize = 32;
/// Offsets in it: its number, where its name goes, and how much room there is.
const INFO_ID: usize = 12;
const INFO_NAME: usize = 16;
const INFO_NAME_ROOM: usize = 24;
/// Bytes of a module's name with its end.
const NAME: usize = 64;

/// Types of the running kernel.
#[derive(Debug)]
pub struct KernelTypes {
    folder: PathBuf,
    types: Btf,
}

/// A function or a type of Linux, as programs are loaded for it.
#[derive(Debug)]
pub struct Target {
    /// Its number.
    pub id: u32,
    /// The module's types; the kernel's own if none.
    pub module: Option<OwnedFd>,
}

impl KernelTypes {
    /// Those of this machine's kernel; `None` if it shows none.
    pub fn read() -> Option<KernelTypes> {
        KernelTypes::of(FOLDER.into())
    }

    fn of(folder: PathBuf) -> Option<KernelTypes> {
        let bytes = std::fs::read(folder.join("vmlinux")).ok()?;
        let types = Btf::parse(&bytes).ok()?;
        Some(KernelTypes { folder, types })
    }

    /// The types.
    pub fn types(&self) -> &Btf {
        &self.types
    }

    /// A function of the kernel or of a module.
    ///
    /// # Errors
    /// Text for the program's author.
    pub fn function(
        &self,
        linux: &dyn Linux,
        module: Option<&str>,
        name: &str,
    ) -> Result<Target, String> {
        let Some(module) = module else {
            let found = find(&self.types, name, |ty| matches!(ty, Type::Func { .. }));
            let id = found.ok_or_else(|| {
                format!(
                    "Linux has no function `{name}` that programs can be attached to; one of a module is named `MODULE:{name}`"
                )
            })?;
            return Ok(Target { id, module: None });
        };
        let path = self.folder.join(module);
        let bytes = std::fs::read(&path).map_err(|error| {
            format!(
                "the types of module `{module}` cannot be read from `{}`: {error}",
                path.display()
            )
        })?;
        let types = self.types.followed_by(&bytes);
        let types = types.map_err(|error| format!("the types of module `{module}`: {error}"))?;
        let found = find(&types, name, |ty| matches!(ty, Type::Func { .. }));
        let id = found.ok_or_else(|| {
            format!("module `{module}` has no function `{name}` that programs can be attached to")
        })?;
        let fd = module_types(linux, module).map_err(|errno| {
            format!("Linux does not give the types of module `{module}`: {errno}")
        })?;
        Ok(Target {
            id,
            module: Some(fd),
        })
    }

    /// The type of a tracepoint's program.
    ///
    /// # Errors
    /// Text for the program's author.
    pub fn tracepoint(&self, name: &str) -> Result<Target, String> {
        let found = find(&self.types, &format!("btf_trace_{name}"), |ty| {
            matches!(ty, Type::Typedef { .. })
        });
        let id = found.ok_or_else(|| format!("Linux has no tracepoint `{name}` with types"))?;
        Ok(Target { id, module: None })
    }
}

fn find(types: &Btf, name: &str, wanted: impl Fn(&Type) -> bool) -> Option<u32> {
    let mut found = types.find(name).filter(|(_, ty)| wanted(ty));
    found.next().map(|(id, _)| id.0)
}

/// The types of a module that Linux has loaded, among all types that it has.
fn module_types(linux: &dyn Linux, module: &str) -> Result<OwnedFd, Errno> {
    let mut id = 0;
    loop {
        let mut next = *Fields::new().u32(attr::id::START, id).bytes();
        linux.bpf(Command::BtfGetNextId, &mut next)?;
        id = word(&next, attr::id::NEXT);
        let by_id = Fields::new().u32(attr::id::START, id);
        let fd = match by_id.open(linux, Command::BtfGetFdById) {
            // It has gone since.
            Err(Errno::NOENT) => continue,
            fd => fd?,
        };
        let mut name = [0u8; NAME];
        let mut info = [0u8; INFO_BYTES];
        info[INFO_NAME..INFO_NAME + 8].copy_from_slice(&(name.as_mut_ptr() as u64).to_ne_bytes());
        info[INFO_NAME_ROOM..INFO_NAME_ROOM + 4].copy_from_slice(&(NAME as u32).to_ne_bytes());
        let ask = Fields::new()
            .u32(attr::info::FD, fd.as_raw_fd() as u32)
            .u32(attr::info::LENGTH, INFO_BYTES as u32)
            .u64(attr::info::INFO, info.as_mut_ptr() as u64);
        ask.ask(linux, Command::ObjGetInfoByFd)?;
        debug_assert_eq!(word(&info, INFO_ID), id);
        if name.split(|byte| *byte == 0).next() == Some(module.as_bytes()) {
            return Ok(fd);
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u32::from_ne_bytes(*word))
}

/// The types of an object, which Linux has taken, with the texts of its programs' lines.
#[derive(Debug)]
pub struct ObjectTypes {
    fd: OwnedFd,
    texts: BTreeMap<String, u32>,
}

/// Functions and lines of a program as `bpf()` takes them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Slot and type of each function: 8 bytes.
    pub functions: Vec<u8>,
    /// Slot, file, text, line and column: 16 bytes.
    pub lines: Vec<u8>,
}

impl ObjectTypes {
    /// Gives them to Linux; `None` if there are none, or it does not take them: programs can do without.
    pub fn load(linux: &dyn Linux, object: &Object) -> Option<ObjectTypes> {
        let lines = object.programs.iter().flat_map(|program| &program.lines);
        let mut texts: Vec<&str> = lines.flat_map(|line| [&*line.file, &*line.text]).collect();
        texts.sort_unstable();
        texts.dedup();
        let (bytes, places) = object.btf.as_ref()?.to_bytes(&texts)?;
        let fields = Fields::new()
            .address(attr::btf::BTF, &bytes)
            .u32(attr::btf::SIZE, bytes.len() as u32);
        let fd = fields.open(linux, Command::BtfLoad).ok()?;
        let texts = texts.into_iter().map(str::to_owned).zip(places).collect();
        Some(ObjectTypes { fd, texts })
    }

    /// Their descriptor.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Of a program; `None` if a function of it has no type.
    pub fn records(&self, program: &Program) -> Option<Records> {
        let mut records = Records::default();
        let put = |out: &mut Vec<u8>, words: &[u32]| {
            words.iter().for_each(|word| out.extend(word.to_ne_bytes()));
        };
        for function in &program.functions {
            let slot = program.code.slot(function.start);
            put(&mut records.functions, &[slot, function.btf?.0]);
        }
        let text = |text: &str| self.texts.get(text).copied().unwrap_or(0);
        let mut last = None;
        for line in &program.lines {
            // Linux takes one line for an instruction.
            if last.replace(line.pc) != Some(line.pc) {
                let slot = program.code.slot(line.pc);
                let position = line.line << 10 | line.column.min(0x3ff);
                put(
                    &mut records.lines,
                    &[slot, text(&line.file), text(&line.text), position],
                );
            }
        }
        // Each function's first instruction must have one.
        let told = |function: &warpbpf_object::FunctionInfo| {
            program.lines.iter().any(|line| line.pc == function.start)
        };
        if !program.functions.iter().all(told) {
            records.lines.clear();
        }
        Some(records)
    }
}
