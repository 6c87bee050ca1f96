//! Kernels of which there is only machine code, with calls that Compute Sanitizer puts into them.
//!
//! What it patches is a second copy of the kernel's file, loaded for that: so the application's own
//! module stays as it was loaded, and which one runs is chosen at each launch, as for every other
//! variant. Nothing of the machine code is read here; of a library whose code is to be left alone
//! only tables of the file are.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use warpbpf_abi::access::Space;
use warpbpf_abi::attach::{Scope, Site};
use warpbpf_patch::{Caller, Event, launch_args_of_kernel};
use warpbpf_sanitizer::Sanitizer;
use warpbpf_sanitizer::sys::Instruction;
use warpbpf_sass::{File, elf};

use crate::plan::assembled::Unmade;
use crate::plan::image::ImageInfo;
use crate::plan::kernel_error::KernelError;
use crate::plan::planned::PlannedProgram;
use crate::plan::prepared::{CalledFunction, Code, Patched, PreparedKernel};
use crate::plan::ptx_version::ptx_version;
use crate::plan::session::Session;
use crate::plan::without_ptx::{Made, served};

impl Session {
    /// The texts that have to be assembled for kernels without PTX on `sm_NN` that Compute
    /// Sanitizer patches, each once.
    pub fn patch_texts(&self, sm: u32) -> Vec<String> {
        let texts = Event::ALL.iter().flat_map(|event| {
            let sets = self.combinations(|index, program| {
                is_for(program, *event) && self.patch_refusal(index, sm).is_none()
            });
            let differ = self.common_choice().is_none();
            let texts = move |set: Vec<usize>| {
                let kinds = [(true, differ), (false, !self.choices_of(&set).differ())];
                let kinds = kinds.into_iter().filter(|(_, wanted)| *wanted);
                let text =
                    move |(bits, _)| Some(self.patch_text(*event, &set, sm, bits).ok()?.text);
                kinds.filter_map(text)
            };
            sets.into_iter().flat_map(texts)
        });
        let mut texts: std::collections::BTreeSet<String> = texts.collect();
        if let Some(empty) = BESIDE.first()
            && self.programs().iter().any(needs_others)
            && let Ok(made) = self.patch_text(*empty, &[], sm, false)
        {
            texts.insert(made.text);
        }
        texts.into_iter().collect()
    }

    /// Why Compute Sanitizer does not call a program on `sm_NN`. One that no event calls would be
    /// counted as placed and never run, if another one has places in the kernel.
    fn patch_refusal(&self, index: usize, sm: u32) -> Option<KernelError> {
        let program = &self.programs()[index];
        let name = || program.name().to_owned();
        let site = program.spec.site.word();
        let mut events = Event::ALL.into_iter();
        let Some(event) = events.find(|event| event.site() == program.spec.site) else {
            return Some(KernelError::NoEvent {
                program: name(),
                site,
            });
        };
        let mut own = Event::ALL
            .iter()
            .filter(|event| is_for(program, **event))
            .peekable();
        if own.peek().is_some() {
            return own.find_map(|event| self.patch_text(*event, &[index], sm, false).err());
        }
        // What it asks for may be there nowhere.
        let why = self.patch_text(event, &[index], sm, false).err();
        Some(why.unwrap_or_else(|| KernelError::NoSuchEvent {
            program: name(),
            site,
        }))
    }

    /// The name and the text of a function. In a context no two functions may have one name, so it
    /// is of what they are.
    fn patch_text(
        &self,
        event: Event,
        programs: &[usize],
        sm: u32,
        bits: bool,
    ) -> Result<Text, KernelError> {
        let caller = Caller::Sanitizer(event);
        let make = |name: &str| {
            let target = (sm, ptx_version(sm));
            self.probe_text(name, caller, programs, target, bits)
        };
        let mut hasher = DefaultHasher::new();
        make("wbpf")?.0.hash(&mut hasher);
        let name = format!("wbpf_{:016x}", hasher.finish());
        let (text, words) = make(&name)?;
        Ok(Text { name, text, words })
    }
}

/// A program may want to be told of such an event.
fn is_for(program: &PlannedProgram, event: Event) -> bool {
    program.spec.site == event.site() && event.may_pass(&program.spec.select)
}

/// Accesses that must be told of, if to nobody, where those of other blocks' shared memory are: an
/// H200 ended a kernel whose atomics of a generic address were told of in that one space.
const BESIDE: [Event; 3] = [
    Event::Access(Space::Global),
    Event::Access(Space::Shared),
    Event::Access(Space::Local),
];

/// A program makes accesses of all spaces to be told of.
fn needs_others(program: &PlannedProgram) -> bool {
    is_for(program, Event::Access(Space::Cluster))
}

fn instruction(event: Event) -> Instruction {
    match event {
        Event::Entry => Instruction::BlockEnter,
        Event::Exit => Instruction::BlockExit,
        Event::Access(Space::Shared) => Instruction::SharedMemoryAccess,
        Event::Access(Space::Local) => Instruction::LocalMemoryAccess,
        Event::Access(Space::Cluster) => Instruction::RemoteSharedMemoryAccess,
        Event::Access(_) => Instruction::GlobalMemoryAccess,
        Event::Prefetch => Instruction::CacheControl,
        Event::AsyncCopy => Instruction::MemcpyAsync,
        Event::Matrix => Instruction::MatrixMemoryAccess,
        Event::Barrier => Instruction::Barrier,
        Event::WarpBarrier => Instruction::Syncwarp,
        Event::ClusterArrive => Instruction::ClusterBarrierArrive,
        Event::ClusterWait => Instruction::ClusterBarrierWait,
        Event::Mbarrier => Instruction::CudaBarrier,
        Event::CopiesWait => Instruction::PipelineWait,
        Event::ProductsWait => Instruction::WarpgroupWaitGroup,
        Event::Call => Instruction::Call,
        Event::Return => Instruction::Ret,
    }
}

/// All that a cubin's tables tell of is in it: Compute Sanitizer is not told how long it is, and
/// what the tool sends may be anything.
fn check_whole(cubin: &[u8]) -> Result<(), KernelError> {
    let image = elf::Image::parse(cubin).map_err(KernelError::Sent)?;
    let inside = |segment: &elf::Segment| {
        let end = segment.offset.checked_add(segment.file_bytes);
        end.is_some_and(|end| end <= cubin.len() as u64)
    };
    match image.segments.iter().all(inside) {
        true => Ok(()),
        false => Err(KernelError::SentShort),
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
    /// Why programs are not called, by their numbers.
    refusals: RefCell<HashMap<usize, Option<KernelError>>>,
    /// Names and texts that were made, for kernels that have the same programs.
    texts: RefCell<HashMap<Key, MadeText>>,
}

/// Where a function is called, its programs, and whether they are told apart by launches.
type Key = (Event, Vec<usize>, bool);

/// A function before it is assembled.
#[derive(Debug, Clone)]
struct Text {
    name: String,
    text: String,
    /// Words of a launch that it reads.
    words: u8,
}

/// A function, or why there is none.
type MadeText = Result<Text, KernelError>;

impl<'s> Chooser<'s> {
    /// # Errors
    /// Why no kernel of the file gets calls.
    pub(crate) fn new(
        session: &'s Session,
        sanitizer: &'static Sanitizer,
        image: &'s ImageInfo,
        unmade: &'s Unmade,
    ) -> Result<Chooser<'s>, KernelError> {
        if let Some(reason) = image.untouchable.clone() {
            return Err(KernelError::Untouchable { reason });
        }
        if session.has_gate() {
            return Err(KernelError::Gate);
        }
        let bytes = image.machine_code.as_ref();
        let bytes = bytes.ok_or(KernelError::NoMachineCode)?;
        let file = File::parse(bytes)?;
        if let Some(name) = file.launches() {
            return Err(KernelError::DeviceLaunches {
                function: name.to_owned(),
            });
        }
        Ok(Chooser {
            session,
            sanitizer,
            bytes,
            file,
            unread: image.unread.is_some(),
            unmade,
            texts: RefCell::default(),
            refusals: RefCell::default(),
        })
    }

    /// A kernel with calls to its programs, but for those that no event calls.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn choose(&self, kernel: &PreparedKernel) -> Result<Made, KernelError> {
        let of = |index: &usize| &self.session.programs()[*index];
        let bits = kernel.choices.differ();
        let sm = self.file.arch().number();
        let refusal = |index: usize| {
            let mut known = self.refusals.borrow_mut();
            let known = known.entry(index);
            known
                .or_insert_with(|| self.session.patch_refusal(index, sm))
                .clone()
        };
        let (served, left_out) = served(&kernel.programs, refusal)?;
        let shared = match self.unread {
            true => self.file.shared_tables(&kernel.mangled),
            false => self.file.shared_data(&kernel.mangled),
        };
        if let Some(shared) = shared {
            return Err(KernelError::Shared(shared));
        }
        let assembled = self.session.means.assembled.as_deref();
        let assembled = assembled.ok_or(KernelError::NoFunctions)?;
        let mut functions = Vec::new();
        let mut words = 0;
        let others = served.iter().any(|index| needs_others(of(index)));
        for event in Event::ALL {
            let here = |index: &&usize| is_for(of(index), event);
            let set: Vec<usize> = served.iter().filter(here).copied().collect();
            if set.is_empty() && !(others && BESIDE.contains(&event)) {
                continue;
            }
            let mut texts = self.texts.borrow_mut();
            let made = texts
                .entry((event, set, bits))
                .or_insert_with_key(|(event, set, bits)| {
                    self.session.patch_text(*event, set, sm, *bits)
                });
            let made = made.clone()?;
            words |= made.words;
            let (name, text) = (made.name, made.text);
            let cubin = assembled.get(&text, self.unmade)?;
            check_whole(cubin)?;
            functions.push(CalledFunction {
                instruction: instruction(event),
                name,
                cubin: Arc::clone(cubin),
            });
        }
        let placed = kernel
            .programs
            .iter()
            .map(|index| (*index, u32::from(served.contains(index))));
        let exits = served.iter().map(|index| &of(index).spec);
        let exits = exits.filter(|spec| spec.site == Site::Exit);
        let exits: Vec<Scope> = exits.map(|spec| spec.scope).collect();
        let code = Code::Patched(Patched {
            sanitizer: self.sanitizer,
            file: Arc::clone(self.bytes),
            functions,
            number_at: self.session.first_free_slot(),
            launch_args: launch_args_of_kernel(0, words, &exits),
        });
        Ok(Made {
            code,
            placed: placed.collect(),
            left_out,
        })
    }
}
