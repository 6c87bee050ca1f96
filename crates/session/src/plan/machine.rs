//! Kernels of which there is only machine code: the functions that programs become for them, and
//! the kernel with calls to those.
//!
//! Such a function is assembled by `ptxas`, which does not run in an application. It reads the
//! addresses of maps and the kernel's number where its argument points, so it depends on programs
//! and architecture alone: whoever has the object has the text, the tool has it assembled, and the
//! agent takes for a text what was assembled of just that.
//!
//! What runs is a second copy of the kernel's file, loaded beside the first one: so kernels that
//! share variables with others of their file are left alone ([`File::shared_data`]), unless the
//! user wants the copy to have the addresses of the first one's ([`File::variables`]). The calls
//! are put into the file before it is loaded, or into the loaded copy by Compute Sanitizer
//! ([`crate::plan::patched`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use warpbpf_abi::access::Kind;
use warpbpf_abi::attach::{Scope, Site};
use warpbpf_codegen::{Env, Input, SlotSpace, Target, compile};
use warpbpf_patch::{
    Attachment, Caller, ParamLayout, Select, launch_arg_words, launch_args_of_kernel,
    tools_function,
};
use warpbpf_sass::{Access, Arch, Edit, File, Hook, Launch, Probe, SharedData, Variable};

use crate::plan::assembled::{Assembled, Unmade};
use crate::plan::image::ImageInfo;
use crate::plan::kernel_error::{KernelError, ProgramError};
use crate::plan::planned::PlannedProgram;
use crate::plan::prepared::{Code, PreparedKernel, Spliced};
use crate::plan::session::Session;
use crate::plan::without_ptx::{Made, served};

/// `.version` of the functions: what the kernels are of is not known.
const PTX_VERSION: (u32, u32) = (8, 0);
/// Globs of one kind of place of which each combination gets a function; of more, each alone and
/// all together.
const MOST_COMBINED: usize = 3;
/// Who can call a function.
const CALLERS: [Caller; 3] = [
    Caller::Splice(Site::Entry),
    Caller::Splice(Site::Exit),
    Caller::SpliceAccess,
];
/// Name of the function in its text.
const FUNCTION: &str = "wbpf_probe";

/// A function, and the launch arguments that it reads.
#[derive(Debug, Clone)]
struct Function {
    probe: Arc<Probe>,
    words: u8,
}

/// What each of the callers calls.
type Probes = [Option<Function>; CALLERS.len()];

impl Session {
    /// Machine code without PTX gets probes.
    pub fn splices(&self) -> bool {
        self.means.assembled.is_some()
    }

    /// It gets them by Compute Sanitizer, or what cannot have them otherwise does.
    pub fn sanitizes(&self) -> bool {
        self.means.sanitizer.is_some()
    }

    /// It gets them by edits of files, where that is possible.
    pub(crate) fn edits(&self) -> bool {
        self.splices() && (!self.sanitizes() || self.options.splice_first)
    }

    /// The same with the functions that were assembled for its programs, if machine code gets any.
    /// If there are none, those of the session before stay, which serve sets of programs that were
    /// there.
    pub fn with_functions(mut self, assembled: Assembled) -> Session {
        if self.splices() && !assembled.is_empty() {
            self.means.assembled = Some(Arc::new(assembled));
        }
        self
    }

    /// The texts that have to be assembled for kernels of which there is only machine code for
    /// `arch`, each once. Programs that cannot stand in such a kernel have none.
    pub fn probe_texts(&self, arch: Arch) -> Vec<String> {
        let texts = self.splicers().flat_map(|caller| {
            let sets = self.combinations(|index, program| {
                program.spec.site == caller.site() && self.splice_refusal(index, arch).is_none()
            });
            let differ = self.common_choice().is_none();
            let texts = move |set: Vec<usize>| {
                // Of programs that choose the same launches some kernels may have no others.
                let alike = !self.choices_of(&set).differ();
                let kinds = [(true, differ), (false, alike)].into_iter();
                let kinds = kinds.filter(|(_, wanted)| *wanted);
                let text = move |(bits, _)| self.splice_text(caller, &set, arch, bits).ok();
                kinds.filter_map(text).map(|(text, _)| text)
            };
            sets.into_iter().flat_map(texts)
        });
        let texts: BTreeSet<String> = texts.collect();
        texts.into_iter().collect()
    }

    /// Who calls functions in this session.
    fn splicers(&self) -> impl Iterator<Item = Caller> {
        let at_accesses = self.options.splice_memory;
        let all = CALLERS.into_iter();
        all.filter(move |caller| at_accesses || *caller != Caller::SpliceAccess)
    }

    /// Why a program cannot stand in machine code for `arch`, whatever else is there.
    fn splice_refusal(&self, index: usize, arch: Arch) -> Option<KernelError> {
        let program = &self.programs()[index];
        let site = program.spec.site;
        match self.splicers().find(|caller| caller.site() == site) {
            Some(caller) => self.splice_text(caller, &[index], arch, false).err(),
            None => Some(KernelError::PtxOnly {
                program: program.name().to_owned(),
                site: site.word(),
            }),
        }
    }

    fn splice_text(
        &self,
        caller: Caller,
        programs: &[usize],
        arch: Arch,
        bits: bool,
    ) -> Result<(String, u8), KernelError> {
        let target = (arch.number(), PTX_VERSION);
        self.probe_text(FUNCTION, caller, programs, target, bits)
    }

    /// Of programs that `here` says yes to, those that may meet at the entry, the exits or the like
    /// of one kernel.
    pub(crate) fn combinations(
        &self,
        here: impl Fn(usize, &PlannedProgram) -> bool,
    ) -> BTreeSet<Vec<usize>> {
        let mut globs: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, program) in self.programs().iter().enumerate() {
            if here(index, program) {
                globs.entry(&program.spec.kernels).or_default().push(index);
            }
        }
        let of = |chosen: &dyn Fn(usize) -> bool| {
            let all = globs.values().enumerate().filter(|(at, _)| chosen(*at));
            let mut set: Vec<usize> = all.flat_map(|(_, programs)| programs.clone()).collect();
            set.sort_unstable();
            set
        };
        let count = globs.len();
        let mut sets: BTreeSet<Vec<usize>> = match count <= MOST_COMBINED {
            true => (1..1usize << count)
                .map(|bits| of(&|at| bits >> at & 1 == 1))
                .collect(),
            false => (0..count).map(|one| of(&|at| at == one)).collect(),
        };
        sets.insert(of(&|_| true));
        sets.remove(&Vec::new());
        sets
    }

    /// The text of a function that runs these programs, and the launch arguments that it reads;
    /// `target` is the architecture's number and the version of PTX. With `bits` programs are told
    /// apart by the launches that they choose.
    pub(crate) fn probe_text(
        &self,
        name: &str,
        caller: Caller,
        programs: &[usize],
        (sm, ptx): (u32, (u32, u32)),
        bits: bool,
    ) -> Result<(String, u8), KernelError> {
        let site = caller.site();
        let fragments = programs.iter().map(|index| {
            let program = &self.programs()[*index];
            let named = |source| KernelError::Program {
                program: program.name().to_owned(),
                source,
            };
            if !program.spec.arguments.is_empty() {
                return Err(named(ProgramError::NoParameters));
            }
            let env = Env {
                target: Target { ptx, sm },
                site,
                scope: program.spec.scope,
                kernel_id: 0,
                maps: self.bindings(),
                printk: self.printk_binding(),
                slots: SlotSpace::Table {
                    kernel: self.first_free_slot(),
                },
                input: Input::Context,
                // A function for machine code cannot reach a kernel's registers.
                keep_sums: false,
                meets: caller.meets(),
                args: Vec::new(),
            };
            let fragment = compile(&program.verified, &env);
            let fragment = fragment.map_err(|error| named(ProgramError::Compile(error)))?;
            let select = Select {
                // No function is told by its name.
                functions: program.spec.functions.as_ref().map(|_| BTreeSet::new()),
                ..program.spec.select.clone()
            };
            let bit = bits.then(|| self.bit_in_machine_code(*index)).transpose()?;
            Ok((program.spec.scope, select, fragment, bit))
        });
        let fragments: Vec<_> = fragments.collect::<Result<_, KernelError>>()?;
        let attachments = fragments
            .iter()
            .map(|(scope, select, fragment, bit)| Attachment {
                site,
                scope: *scope,
                select,
                fragment,
                gate: None,
                choice: *bit,
            });
        let attachments: Vec<_> = attachments.collect();
        let target = format!("sm_{sm}");
        let target = (target.as_str(), sm);
        // Behind the kernel's number, which is the last slot.
        let args_at = u64::from(self.first_free_slot() + 1) * 8;
        let text = tools_function(name, target, ptx, (caller, args_at), &attachments)?;
        Ok((text, launch_arg_words(site, &attachments)))
    }
}

/// Finds out which kernels of one file can get calls. The file is read once, and so is each
/// function; of the code only each kernel's own is looked at.
pub(crate) struct Splicer<'s> {
    session: &'s Session,
    assembled: &'s Assembled,
    bytes: &'s Arc<[u8]>,
    file: File<'s>,
    functions: BTreeMap<(usize, Vec<usize>, bool), Result<Function, KernelError>>,
    /// Why programs cannot stand in this file's kernels, by their numbers.
    refusals: BTreeMap<usize, Option<KernelError>>,
    unmade: &'s Unmade,
}

impl<'s> Splicer<'s> {
    /// # Errors
    /// Why no kernel of the file gets calls.
    pub(crate) fn new(
        session: &'s Session,
        image: &'s ImageInfo,
        unmade: &'s Unmade,
    ) -> Result<Splicer<'s>, KernelError> {
        if let Some(reason) = image.untouchable.clone().or(image.unread.clone()) {
            return Err(KernelError::Untouchable { reason });
        }
        let bytes = image.machine_code.as_ref();
        let bytes = bytes.ok_or(KernelError::NoMachineCode)?;
        let assembled = session.means.assembled.as_deref();
        let assembled = assembled.ok_or(KernelError::NoSplice)?;
        if session.has_gate() {
            return Err(KernelError::Gate);
        }
        Ok(Splicer {
            session,
            assembled,
            bytes,
            file: File::parse(bytes)?,
            functions: BTreeMap::new(),
            refusals: BTreeMap::new(),
            unmade,
        })
    }

    /// A kernel with calls to its programs, but for those that cannot stand in machine code.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn splice(&mut self, kernel: &PreparedKernel) -> Result<Made, KernelError> {
        let (session, arch) = (self.session, self.file.arch());
        let refusals = &mut self.refusals;
        let refusal = |index: usize| {
            let known = refusals.entry(index);
            known
                .or_insert_with(|| session.splice_refusal(index, arch))
                .clone()
        };
        let (served, left_out) = served(&kernel.programs, refusal)?;
        let of = |index: &usize| &session.programs()[*index];
        let variables = self.shared(&kernel.mangled).map_err(KernelError::Shared)?;
        let bits = kernel.choices.differ();
        let mut probes: Probes = [const { None }; CALLERS.len()];
        for (at, probe) in probes.iter_mut().enumerate() {
            let here = |index: &&usize| of(index).spec.site == CALLERS[at].site();
            let programs: Vec<usize> = served.iter().filter(here).copied().collect();
            if !programs.is_empty() {
                *probe = Some(self.function(at, programs, bits)?);
            }
        }
        let edit = edit(&self.file, &kernel.mangled, &probes)?;
        let change = &edit.change;
        let placed = kernel.programs.iter().map(|index| {
            let spec = &of(index).spec;
            let count = match spec.site {
                Site::Exit => change.exits.len(),
                Site::Mem => {
                    let all = change.accesses.iter();
                    all.filter(|access| wants(&spec.select, access)).count()
                }
                _ => 1,
            };
            let count = count as u32;
            (*index, if served.contains(index) { count } else { 0 })
        });
        let placed = placed.collect();
        let params = self.file.parameters(&kernel.mangled)?;
        let params = params.into_iter().map(|(offset, size)| ParamLayout {
            offset: offset.into(),
            size: size.into(),
        });
        let words = probes.iter().flatten().fold(0, |all, f| all | f.words);
        let exits = served.iter().map(|index| &of(index).spec);
        let exits = exits.filter(|spec| spec.site == Site::Exit);
        let exits: Vec<Scope> = exits.map(|spec| spec.scope).collect();
        let offset = change.hidden.map_or(0, |hidden| hidden.offset);
        let spliced = Spliced {
            hidden: launch_args_of_kernel(offset.into(), words, &exits),
            params: params.collect(),
            file: Arc::clone(self.bytes),
            edit: Arc::new(edit),
            variables,
            number_at: self.session.first_free_slot(),
        };
        Ok(Made {
            code: Code::Splice(spliced),
            placed,
            left_out,
        })
    }

    /// The variables that a kernel shares with its file and is to get from there.
    fn shared(&self, kernel: &str) -> Result<Vec<Variable>, SharedData> {
        match self.file.shared_data(kernel) {
            Some(_) if self.session.options.splice_variables => self.file.variables(kernel),
            Some(shared) => Err(shared),
            None => Ok(Vec::new()),
        }
    }

    /// What was assembled of these programs at one kind of place.
    fn function(
        &mut self,
        at: usize,
        programs: Vec<usize>,
        bits: bool,
    ) -> Result<Function, KernelError> {
        let (session, assembled, arch) = (self.session, self.assembled, self.file.arch());
        let key = (at, programs, bits);
        if let Some(known) = self.functions.get(&key) {
            return known.clone();
        }
        let text = session.splice_text(CALLERS[at], &key.1, arch, bits);
        let made = text.and_then(|(text, words)| {
            let cubin = assembled.get(&text, self.unmade)?;
            let probe = Arc::new(Probe::parse(cubin, FUNCTION)?);
            Ok(Function { probe, words })
        });
        self.functions.insert(key, made.clone());
        made
    }
}

/// The edit of a kernel, with a table at 0.
fn edit(file: &File<'_>, kernel: &str, probes: &Probes) -> Result<Edit, KernelError> {
    let [entry, exit, access] = [0, 1, 2].map(|at: usize| {
        let function = probes[at].as_ref();
        function.map(|function| Hook {
            probe: &function.probe,
            userdata: 0,
        })
    });
    let Some(access) = access else {
        let words = |at: usize| probes[at].as_ref().map_or(0, |function| function.words);
        let (entry_words, exit_words) = (words(0), words(1));
        let all = entry_words | exit_words;
        let hidden = launch_args_of_kernel(0, all, &[]);
        let launch = Launch {
            bytes: hidden.map_or(0, |hidden| hidden.size() as u32),
            entry: entry_words,
            exit: exit_words,
        };
        return Ok(file.edit_with_launch_args(kernel, entry, exit, launch)?);
    };
    if entry.or(exit).is_some() {
        return Err(KernelError::AccessesAlone);
    }
    let edit = file.edit_accesses(kernel, access)?;
    match edit.change.other_accesses {
        0 => Ok(edit),
        count => Err(KernelError::OtherAccesses { count }),
    }
}

/// A program that selects so is told of an access.
fn wants(select: &Select, access: &Access) -> bool {
    let kind = match access.is_store {
        true => Kind::Store,
        false => Kind::Load,
    };
    let bytes = select.bytes.as_ref();
    select.kinds.contains(&kind) && bytes.is_none_or(|bytes| bytes.contains(&access.bytes))
}
