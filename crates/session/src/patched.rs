//! Kernels of which there is only machine code, with calls that Compute Sanitizer puts into them.
//!
//! What it patches is a second copy of the kernel's file, loaded for that: so the application's own module stays as it was loaded, and which one runs is
//! chosen at each launch, as for every other variant. Nothing of the machine code is read here; of a library whose code is to be left alone
//! only tables of the file are.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use warpbpf_abi::access::Space;
use warpbpf_abi::attach::Site;
use warpbpf_driver::{Driver, DriverError, Module};
use warpbpf_patch::{Caller, SPACES};
use warpbpf_sanitizer::sys::Instruction;
use warpbpf_sanitizer::{Patch, Sanitizer, SanitizerError};
use warpbpf_sass::{File, elf};

use crate::assembled::Unmade;
use crate::image::ImageInfo;
use crate::own::ptx_version;
use crate::plan::{PlannedProgram, Session};
use crate::prepare::{Code, PreparedKernel};

/// Who calls our functions.
const CALLERS: [Caller; 5] = [
    Caller::Sanitizer(Site::Entry),
    Caller::Sanitizer(Site::Exit),
    Caller::Access(SPACES[0]),
    Caller::Access(SPACES[1]),
    Caller::Access(SPACES[2]),
];
const _: () = assert!(SPACES.len() == 3);

/// Functions by the places that they are called at.
pub(crate) type Calls = Vec<(u32, String)>;

/// What runs in a kernel's place.
#[derive(Debug, Clone)]
pub(crate) struct Patched {
    sanitizer: &'static Sanitizer,
    /// The file that holds it.
    file: Arc<[u8]>,
    functions: Vec<Function>,
    /// The slot of the kernel's number, in the session that the functions were made for.
    pub(crate) number_at: u32,
}

/// A function that is called at places of one kind.
#[derive(Debug, Clone)]
struct Function {
    instruction: Instruction,
    name: String,
    cubin: Arc<[u8]>,
}

impl Patched {
    /// What is called where, by which copies are told apart.
    pub(crate) fn calls(&self) -> Calls {
        let calls = self.functions.iter();
        let calls = calls.map(|function| (function.instruction as u32, function.name.clone()));
        calls.collect()
    }
}

impl Session {
    /// The texts that have to be assembled for kernels without PTX on `sm_NN` that Compute Sanitizer patches, each once.
    pub fn patch_texts(&self, sm: u32) -> Vec<String> {
        let texts = CALLERS.iter().flat_map(|caller| {
            let sets = self.combinations(|program| is_for(program, *caller));
            let text = |set: Vec<usize>| Some(self.patch_text(*caller, &set, sm).ok()?.1);
            sets.into_iter().filter_map(text)
        });
        let texts: std::collections::BTreeSet<String> = texts.collect();
        texts.into_iter().collect()
    }

    /// The name and the text of a function. In a context no two functions may have one name, so it is of what they are.
    fn patch_text(
        &self,
        caller: Caller,
        programs: &[usize],
        sm: u32,
    ) -> Result<(String, String), String> {
        let make = |name: &str| self.probe_text(name, caller, programs, (sm, ptx_version(sm)));
        let mut hasher = DefaultHasher::new();
        make("wbpf")?.hash(&mut hasher);
        let name = format!("wbpf_{:016x}", hasher.finish());
        let text = make(&name)?;
        Ok((name, text))
    }
}

/// A program has places that this one calls from.
fn is_for(program: &PlannedProgram, caller: Caller) -> bool {
    let spaces = &program.spec.select.spaces;
    program.spec.site == caller.site()
        && match caller {
            Caller::Access(space) => spaces.is_empty() || spaces.contains(&space),
            Caller::Splice(_) | Caller::SpliceAccess | Caller::Sanitizer(_) => true,
        }
}

fn instruction(caller: Caller) -> Instruction {
    match caller {
        Caller::Splice(Site::Exit) | Caller::Sanitizer(Site::Exit) => Instruction::BlockExit,
        Caller::Splice(_) | Caller::Sanitizer(_) => Instruction::BlockEnter,
        Caller::Access(Space::Shared) => Instruction::SharedMemoryAccess,
        Caller::Access(Space::Local) => Instruction::LocalMemoryAccess,
        Caller::Access(_) | Caller::SpliceAccess => Instruction::GlobalMemoryAccess,
    }
}

/// All that a cubin's tables tell of is in it: Compute Sanitizer is not told how long it is, and what the tool sends may be anything.
fn is_whole(cubin: &[u8]) -> Result<(), String> {
    let image = elf::Image::parse(cubin).map_err(|error| error.to_string())?;
    let inside = |segment: &elf::Segment| {
        let end = segment.offset.checked_add(segment.file_bytes);
        end.is_some_and(|end| end <= cubin.len() as u64)
    };
    match image.segments.iter().all(inside) {
        true => Ok(()),
        false => Err("a segment of the cubin ends behind it".to_owned()),
    }
}

/// Finds the functions for kernels of one file.
pub(crate) struct Chooser<'s> {
    session: &'s Session,
    sanitizer: &'static Sanitizer,
    bytes: &'s Arc<[u8]>,
    file: File<'s>,
    /// Its code is not to be read.
    unread: bool,
    unmade: &'s Unmade,
}

impl<'s> Chooser<'s> {
    /// # Errors
    /// Why no kernel of the file gets calls, for the user.
    pub(crate) fn new(
        session: &'s Session,
        sanitizer: &'static Sanitizer,
        image: &'s ImageInfo,
        unmade: &'s Unmade,
    ) -> Result<Chooser<'s>, String> {
        if let Some(why) = &image.untouchable {
            return Err(why.clone());
        }
        if session.has_gate() {
            return Err(
                "programs behind a gate (`--gate`, `--slots`) are put into PTX only".to_owned(),
            );
        }
        let bytes = image.machine_code.as_ref();
        let bytes = bytes.ok_or("its machine code is not there")?;
        let file = File::parse(bytes).map_err(|error| error.to_string())?;
        if let Some(name) = file.launches() {
            return Err(format!(
                "its file uses `{name}`: kernels and graphs that the device launches would give our functions a wrong argument"
            ));
        }
        Ok(Chooser {
            session,
            sanitizer,
            bytes,
            file,
            unread: image.unread,
            unmade,
        })
    }

    /// A kernel with calls to its programs, and how often each is known to stand in it.
    ///
    /// # Errors
    /// Why not, for the user.
    pub(crate) fn choose(
        &self,
        kernel: &PreparedKernel,
    ) -> Result<(Code, Vec<(usize, u32)>), String> {
        let of = |index: &usize| &self.session.programs()[*index];
        let sites = [Site::Entry, Site::Exit, Site::Mem];
        let mut programs = kernel.programs.iter().map(of);
        if let Some(program) = programs.find(|program| !sites.contains(&program.spec.site)) {
            return Err(format!(
                "program `{}` is at places of kind `{}`, which Compute Sanitizer does not tell of; use `entry`, `exit` or `mem`",
                program.name(),
                program.spec.site.word()
            ));
        }
        // It would be counted as placed and never run, if only another one has places there.
        let called = |program: &PlannedProgram| CALLERS.iter().any(|c| is_for(program, *c));
        let mut programs = kernel.programs.iter().map(of);
        if let Some(program) = programs.find(|program| !called(program)) {
            return Err(format!(
                "program `{}` wants no access that Compute Sanitizer tells of; use `global`, `shared` or `local`",
                program.name()
            ));
        }
        let shared = match self.unread {
            true => self.file.shared_tables(&kernel.mangled),
            false => self.file.shared_data(&kernel.mangled),
        };
        if let Some(shared) = shared {
            return Err(format!(
                "{shared}, and would have its own ones in the copy that is loaded beside it"
            ));
        }
        let assembled = self.session.options.assembled.as_deref();
        let assembled = assembled.ok_or("no functions were assembled")?;
        let sm = self.file.arch().number();
        let mut functions = Vec::new();
        for caller in CALLERS {
            let here = |index: &&usize| is_for(of(index), caller);
            let set: Vec<usize> = kernel.programs.iter().filter(here).copied().collect();
            if set.is_empty() {
                continue;
            }
            let (name, text) = self.session.patch_text(caller, &set, sm)?;
            let cubin = assembled.get(&text, self.unmade)?;
            is_whole(cubin).map_err(|why| format!("the function that the tool sent: {why}"))?;
            functions.push(Function {
                instruction: instruction(caller),
                name,
                cubin: Arc::clone(cubin),
            });
        }
        let placed = kernel.programs.iter().map(|index| (*index, 1));
        let code = Code::Patched(Patched {
            sanitizer: self.sanitizer,
            file: Arc::clone(self.bytes),
            functions,
            number_at: self.session.first_free_slot(),
        });
        Ok((code, placed.collect()))
    }
}

/// What was told of the functions of a patched module.
#[derive(Debug)]
pub(crate) struct Told {
    sanitizer: &'static Sanitizer,
    functions: Vec<usize>,
}

impl Told {
    /// The module is about to go.
    pub(crate) fn forget(&self) {
        for function in &self.functions {
            self.sanitizer.forget(*function);
        }
    }
}

/// Loads a copy of a file and has it patched; `kernels` are those that get launched out of it, with their tables.
pub(crate) fn load(
    driver: &Driver,
    patched: &Patched,
    kernels: &[(&PreparedKernel, &Patched, u64)],
) -> Result<(Module, Told), String> {
    let say = |error: DriverError| error.to_string();
    let context = driver.current().ok_or("no context is current")?;
    let module = driver.load_image(&patched.file).map_err(say)?;
    let mut told = Told {
        sanitizer: patched.sanitizer,
        functions: Vec::new(),
    };
    let mut tell = || {
        let functions = patched.functions.iter();
        let patches: Vec<Patch<'_>> = functions
            .map(|function| Patch {
                instruction: function.instruction,
                name: &function.name,
                cubin: &function.cubin,
            })
            .collect();
        let say = |error: SanitizerError| format!("Compute Sanitizer: {error}");
        patched
            .sanitizer
            .patch(context.0 as usize, module.0 as usize, &patches)
            .map_err(say)?;
        for (kernel, _, table) in kernels {
            let function = driver.function(module, &kernel.mangled);
            let function = function.map_err(|error| error.to_string())?.0 as usize;
            let sanitizer = patched.sanitizer;
            sanitizer
                .set_data(context.0 as usize, function, *table)
                .map_err(say)?;
            told.functions.push(function);
        }
        Ok(())
    };
    match tell() {
        Ok(()) => Ok((module, told)),
        Err(error) => {
            told.forget();
            // The error that matters is the other one.
            let _ = driver.unload(module);
            Err(error)
        }
    }
}
