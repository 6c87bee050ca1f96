//! Types: those of the running kernel, by which functions and typed tracepoints are found, and
//! those of an object as Linux takes them, with lines of its source for the verifier's text.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;

use rustix::io::Errno;
use warpbpf_object::{Btf, Object, Program, Type};

use crate::error::PlaceError;
use crate::sys::{Fields, Linux};
use crate::uapi::{Command, attr};

/// Where Linux shows its types.
const FOLDER: &str = "/sys/kernel/btf";
/// Bytes of `struct bpf_btf_info`.
const INFO_BYTES: usize = 32;
/// Offsets in it: where the name goes, and how much room there is.
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
    /// Those of this machine's kernel.
    ///
    /// # Errors
    /// It shows none, or they cannot be read.
    pub fn read() -> Result<KernelTypes, PlaceError> {
        KernelTypes::of(FOLDER.into())
    }

    fn of(folder: PathBuf) -> Result<KernelTypes, PlaceError> {
        let file = folder.join("vmlinux");
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(PlaceError::NoTypes { file });
            }
            Err(source) => return Err(PlaceError::UnreadTypes { file, source }),
        };
        let types = Btf::parse(&bytes).map_err(|source| PlaceError::BadTypes { file, source })?;
        Ok(KernelTypes { folder, types })
    }

    /// The types.
    pub fn types(&self) -> &Btf {
        &self.types
    }

    /// A function of the kernel or of a module.
    ///
    /// # Errors
    /// There is none that programs can be attached to, or its types cannot be had.
    pub fn function(
        &self,
        linux: &dyn Linux,
        module: Option<&str>,
        name: &str,
    ) -> Result<Target, PlaceError> {
        let named = || name.to_owned();
        let Some(module) = module else {
            let found = find(&self.types, name, |ty| matches!(ty, Type::Func { .. }));
            let id = found.ok_or_else(|| PlaceError::NoFunction { name: named() })?;
            return Ok(Target { id, module: None });
        };
        let of_module = || module.to_owned();
        let file = self.folder.join(module);
        let bytes = std::fs::read(&file).map_err(|source| PlaceError::UnreadModule {
            module: of_module(),
            file,
            source,
        })?;
        let types = self.types.followed_by(&bytes);
        let types = types.map_err(|source| PlaceError::BadModule {
            module: of_module(),
            source,
        })?;
        // The kernel's stand before the module's own, which may have the same names.
        let last = self.types.types().last().map_or(0, |(id, _)| id.0);
        let mut own = types.find(name);
        let found = own.find(|(id, ty)| id.0 > last && matches!(ty, Type::Func { .. }));
        let id = found.map(|(id, _)| id.0);
        let id = id.ok_or_else(|| PlaceError::NoFunctionInModule {
            module: of_module(),
            name: named(),
        })?;
        let fd = module_types(linux, module).map_err(|errno| PlaceError::HeldBack {
            module: of_module(),
            errno,
        })?;
        Ok(Target {
            id,
            module: Some(fd),
        })
    }

    /// The type of a tracepoint's program.
    ///
    /// # Errors
    /// There is none.
    pub fn tracepoint(&self, name: &str) -> Result<Target, PlaceError> {
        let found = find(&self.types, &format!("btf_trace_{name}"), |ty| {
            matches!(ty, Type::Typedef { .. })
        });
        let id = found.ok_or_else(|| PlaceError::NoTypedTracepoint {
            name: name.to_owned(),
        })?;
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
    /// Gives them to Linux; `None` if there are none, or it does not take them: programs can do
    /// without.
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rustix::fs::{MemfdFlags, memfd_create};
    use std::os::fd::IntoRawFd as _;

    use super::*;
    use crate::sys::Place;

    /// Types with their names behind each other: kind, name, and what it refers to. Strings begin
    /// behind `before` bytes of others.
    fn section(before: u32, types: &[(u32, &str, u32)]) -> Vec<u8> {
        let (mut body, mut strings) = (Vec::new(), vec![0u8]);
        for (kind, name, refers) in types {
            let at = match name.is_empty() {
                true => 0,
                false => before + strings.len() as u32,
            };
            strings.extend(name.bytes().chain([0]));
            for word in [at, kind << 24, *refers] {
                body.extend(word.to_le_bytes());
            }
        }
        let mut out = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, body.len(), body.len(), strings.len()] {
            out.extend((word as u32).to_le_bytes());
        }
        [out, body, strings].concat()
    }

    const FUNC_PROTO: u32 = 13;
    const FUNC: u32 = 12;
    const TYPEDEF: u32 = 8;

    /// A Linux whose types have these names, by number from 1; the second is gone when it is asked
    /// for.
    struct Named(&'static [&'static str], Mutex<Vec<(RawFd, usize)>>);

    impl Linux for Named {
        fn bpf(&self, command: Command, fields: &mut [u8]) -> Result<i64, Errno> {
            let at = |at: usize| word(fields, at) as usize;
            match command {
                Command::BtfGetNextId => {
                    let next = at(attr::id::START) + 1;
                    if next > self.0.len() {
                        return Err(Errno::NOENT);
                    }
                    fields[4..8].copy_from_slice(&(next as u32).to_ne_bytes());
                    Ok(0)
                }
                Command::BtfGetFdById if at(0) == 2 => Err(Errno::NOENT),
                Command::BtfGetFdById => {
                    let fd = memfd_create(c"types", MemfdFlags::CLOEXEC).unwrap();
                    let fd = fd.into_raw_fd();
                    self.1.lock().unwrap().push((fd, at(0)));
                    Ok(i64::from(fd))
                }
                Command::ObjGetInfoByFd => {
                    let fd = at(attr::info::FD) as RawFd;
                    let known = self.1.lock().unwrap();
                    // Numbers of descriptors are used again.
                    let (_, id) = known.iter().rev().find(|(known, _)| *known == fd).unwrap();
                    let address = u64::from_ne_bytes(fields[8..16].try_into().unwrap());
                    // SAFETY: the code under test names its own structure, and in it room for a
                    // name.
                    unsafe {
                        let name = *((address as usize + INFO_NAME) as *const u64) as *mut u8;
                        let text = self.0[id - 1].as_bytes();
                        std::ptr::copy(text.as_ptr(), name, text.len());
                    }
                    Ok(0)
                }
                _ => Err(Errno::INVAL),
            }
        }

        fn cpus(&self) -> u32 {
            1
        }

        fn duplicate(&self, _: RawFd) -> Result<RawFd, Errno> {
            Err(Errno::INVAL)
        }

        fn probe(&self, _: RawFd, _: &Place) -> Result<OwnedFd, Errno> {
            Err(Errno::INVAL)
        }

        fn output(&self, _: u32) -> Result<OwnedFd, Errno> {
            Err(Errno::INVAL)
        }

        fn enable(&self, _: &OwnedFd, _: bool) {}
    }

    #[test]
    fn types_that_are_not_there_are_told_from_those_that_cannot_be_read() {
        let folder = std::env::temp_dir().join(format!("warpbpf-no-types-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let why = || KernelTypes::of(folder.clone()).unwrap_err().to_string();
        let missing = why();
        std::fs::write(folder.join("vmlinux"), [0x9f, 0xeb, 9, 0]).unwrap();
        let wrong = why();
        std::fs::remove_dir_all(&folder).unwrap();
        let path = folder.join("vmlinux");
        let path = path.display();
        assert_eq!(
            missing,
            format!("this Linux shows no types of its own ({path}, CONFIG_DEBUG_INFO_BTF)")
        );
        let begin = format!("the types of Linux cannot be read from `{path}`: ");
        assert!(
            wrong.starts_with(&begin) && wrong.contains("version is 9"),
            "{wrong}"
        );
    }

    #[test]
    fn functions_of_the_kernel_and_of_modules_are_found_by_name() {
        let folder = std::env::temp_dir().join(format!("warpbpf-types-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let kernel = section(
            0,
            &[
                (FUNC_PROTO, "", 0),
                (FUNC, "do_it", 1),
                (TYPEDEF, "btf_trace_it", 0),
            ],
        );
        let strings = u32::from_le_bytes(kernel[20..24].try_into().unwrap());
        let module = section(strings, &[(FUNC, "of_module", 1), (FUNC, "do_it", 1)]);
        std::fs::write(folder.join("vmlinux"), kernel).unwrap();
        std::fs::write(folder.join("gpu"), &module).unwrap();
        std::fs::write(folder.join("unloaded"), module).unwrap();
        let types = KernelTypes::of(folder.clone()).unwrap();
        let linux = Named(&["vmlinux", "gone", "gpu"], Mutex::default());
        let function = |module, name| types.function(&linux, module, name);
        let told = |found: Result<Target, PlaceError>| {
            let found = found.map_err(|error| error.to_string());
            found.map(|target| (target.id, target.module.map(|fd| fd.as_raw_fd())))
        };
        let own = told(function(None, "do_it"));
        let other = function(Some("gpu"), "of_module").unwrap();
        let fd = other.module.as_ref().unwrap().as_raw_fd();
        let known = linux.1.lock().unwrap().last().copied();
        let namesake = function(Some("gpu"), "do_it").map(|target| target.id);
        let errors = [
            function(None, "of_module"),
            function(Some("gpu"), "nothing"),
            function(Some("missing"), "f"),
            function(Some("unloaded"), "of_module"),
            function(Some("gpu"), "btf_trace_it"),
            types.tracepoint("nothing"),
        ];
        let trace = told(types.tracepoint("it"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((own, trace), (Ok((2, None)), Ok((3, None))));
        // Behind the three of the kernel, in the types of that name.
        assert_eq!((other.id, known), (4, Some((fd, 3))));
        let errors = errors.map(|found| found.expect_err("there is none").to_string());
        assert_eq!(
            errors[0],
            "Linux has no function `of_module` that programs can be attached to; one of a module is named `MODULE:of_module`"
        );
        assert_eq!(
            errors[1],
            "module `gpu` has no function `nothing` that programs can be attached to"
        );
        assert!(errors[2].starts_with("the types of module `missing` cannot be read from `"));
        assert_eq!(
            errors[3],
            "Linux does not give the types of module `unloaded`: No such file or directory (os error 2)"
        );
        assert_eq!(
            errors[4],
            "module `gpu` has no function `btf_trace_it` that programs can be attached to"
        );
        assert_eq!(errors[5], "Linux has no tracepoint `nothing` with types");
        // Not the kernel's function of that name.
        assert_eq!(namesake.ok(), Some(5));
    }
}
