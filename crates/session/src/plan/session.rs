//! A session, and what sessions that follow one another share: numbers, gates, slots. What is in
//! slots is of a session, so all of this is in one file.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use warpbpf_abi::choice::ChoiceRequest;
use warpbpf_abi::layout::{MapLayout, gate, slot, slots};
use warpbpf_abi::options::Options;
use warpbpf_codegen::MapBinding;
use warpbpf_codegen::interpreter::Form as Code;
use warpbpf_maps::{Hardware, MapPlan};
use warpbpf_object::{Btf, MapDef, MapKind, Type};
use warpbpf_patch::TensorLayout;

use crate::code_cache::CodeCache;
use crate::cpu::HostProgram;
use crate::plan::means::Means;
use crate::plan::names;
use crate::plan::planned::{OWN, PlannedProgram};
use crate::plan::section::{AttachSpec, Form};
use crate::plan::sites::Sites;
use crate::process::ProcessFields;

/// A variable of a data section: name, offset, bytes.
pub(crate) type Variable = (String, u32, u32);

/// Programs on one kind of device: proved, with map layouts, and the numbers given to kernels. Of
/// one object, or of what an object became when programs were replaced ([`crate::plan::replace`]).
#[derive(Debug)]
pub struct Session {
    pub(crate) programs: Vec<PlannedProgram>,
    pub(crate) host_programs: Vec<HostProgram>,
    pub(crate) maps: Vec<MapPlan>,
    /// Of maps of maps, the layout of those that are in it.
    pub(crate) inner: Vec<Option<MapLayout>>,
    pub(crate) defs: Vec<MapDef>,
    pub(crate) printk: Option<MapPlan>,
    /// Numbers of kernels and of sites stay what they are when programs are replaced.
    pub(crate) kernels: Arc<Mutex<Vec<String>>>,
    pub(crate) sites: Arc<Mutex<Sites>>,
    pub(crate) options: Options,
    pub(crate) means: Means,
    /// How tensor maps hold their boxes, once the driver was asked; `None` if it is not understood.
    pub(crate) tensors: OnceLock<Option<TensorLayout>>,
    pub(crate) hardware: Hardware,
    pub(crate) lineage: Lineage,
    /// What programs can ask about the process. Files are read for it, so it is known before there
    /// is a context.
    pub(crate) process: ProcessFields,
}

impl Session {
    /// The programs, in the object's order.
    pub fn programs(&self) -> &[PlannedProgram] {
        &self.programs
    }

    /// Programs for functions of the application, on the CPU.
    pub fn host_programs(&self) -> &[HostProgram] {
        &self.host_programs
    }

    /// Where compiled code is kept from one process to the next.
    pub fn cache(&self) -> Option<&Arc<CodeCache>> {
        self.means.cache.as_ref()
    }

    /// See [`Options::timeline`].
    pub fn timeline(&self) -> bool {
        self.options.timeline
    }

    /// The maps, in the object's order.
    pub fn maps(&self) -> &[MapPlan] {
        &self.maps
    }

    pub(crate) fn maps_mut(&mut self) -> &mut [MapPlan] {
        &mut self.maps
    }

    /// The maps' definitions, parallel to [`Session::maps`].
    pub fn map_defs(&self) -> &[MapDef] {
        &self.defs
    }

    /// Number of maps, the printk ring not counted.
    pub fn map_count(&self) -> usize {
        self.maps.len()
    }

    /// The printk ring, if a program prints.
    pub fn printk(&self) -> Option<&MapPlan> {
        self.printk.as_ref()
    }

    /// Readable names by kernel id.
    pub fn kernel_names(&self) -> Vec<String> {
        self.kernels
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Readable names by site number, as the context's field `site` gives it; that of 0 is empty.
    /// It only grows.
    pub fn site_names(&self) -> Vec<String> {
        self.sites
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .names()
    }

    /// Programs that want to be in this kernel, in order.
    pub fn matching(&self, mangled: &str) -> Vec<usize> {
        let wanted = |p: &PlannedProgram| {
            p.spec.form != Form::Run && names::matches(&p.spec.kernels, mangled)
        };
        self.programs
            .iter()
            .enumerate()
            .filter(|(_, p)| wanted(p))
            .map(|(i, _)| i)
            .collect()
    }

    /// The number of a kernel, the same for the same name.
    pub(crate) fn kernel_id(&self, demangled: &str) -> u64 {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kernels.iter().position(|k| k == demangled);
        known.unwrap_or_else(|| {
            kernels.push(demangled.to_string());
            kernels.len() - 1
        }) as u64
    }

    /// The number of a kernel that was seen, by its name in its image.
    pub fn known_kernel(&self, mangled: &str) -> Option<u64> {
        let name = names::demangle(mangled);
        let kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kernels.iter().position(|k| *k == name)?;
        Some(at as u64)
    }

    /// Slots of the maps, for the code generator.
    pub fn bindings(&self) -> Vec<MapBinding> {
        self.bindings_of(&self.maps)
    }

    /// The same of maps of which its own are the first.
    pub(crate) fn bindings_of(&self, maps: &[MapPlan]) -> Vec<MapBinding> {
        let bind = |(index, map): (usize, &MapPlan)| MapBinding {
            slot: self.map_slot(index),
            session_index: index as u32,
            layout: map.layout,
            inner: self.inner.get(index).copied().flatten(),
        };
        maps.iter().enumerate().map(bind).collect()
    }

    /// Slot of a map. Slots stay what they are when programs are replaced, because text of an
    /// earlier session may be loaded in a context that comes later: so maps that came since stand
    /// behind the printk ring.
    pub(crate) fn map_slot(&self, map: usize) -> u32 {
        let behind = self.printk.is_some() && map >= self.first_maps();
        slot::FIRST_MAP + map as u32 + u32::from(behind)
    }

    /// What stands in the slots: the environment, the maps, and the printk ring where it belongs.
    pub fn in_slots(&self, env: u64, maps: &[u64], printk: Option<u64>) -> Vec<u64> {
        let (first, since) = maps.split_at(self.first_maps().min(maps.len()));
        let mut slots = vec![env];
        slots.extend(first);
        slots.extend(printk);
        slots.extend(since);
        slots
    }

    /// Slot of the printk ring: behind the maps of the first session.
    pub fn printk_binding(&self) -> Option<MapBinding> {
        let ring = self.printk.as_ref()?;
        Some(MapBinding {
            slot: slot::FIRST_MAP + self.first_maps() as u32,
            session_index: self.maps.len() as u32,
            layout: ring.layout,
            inner: None,
        })
    }

    /// First slot that is free for a module's own variables. Text keeps the one that it was made
    /// with: what stands from there on is the module's own.
    pub(crate) fn first_free_slot(&self) -> u32 {
        slot::FIRST_MAP + self.maps.len() as u32 + u32::from(self.printk.is_some())
    }
}

/// What sessions that follow one another have in common.
#[derive(Debug, Clone)]
pub(crate) struct Lineage {
    /// From 1.
    pub(crate) generation: u64,
    /// Maps of the first session.
    pub(crate) first_maps: usize,
    /// Identities of maps and of programs, parallel to the session's: a number is an index, and an
    /// attempt that failed may have had another map by the same one.
    pub(crate) map_ids: Vec<u64>,
    pub(crate) program_ids: Vec<u64>,
    pub(crate) next_id: Arc<AtomicU64>,
    /// Programs are numbered by themselves, so that as many as possible have a bit of their own in
    /// the gate.
    pub(crate) next_program: Arc<AtomicU64>,
    pub(crate) gates: Arc<Gates>,
    pub(crate) slots: Arc<Slots>,
    pub(crate) founders: Arc<Founders>,
    /// Parallel to the maps: whose they are.
    pub(crate) clients: Vec<u32>,
    /// Parallel to the maps: variables of data sections, where the object's types tell them.
    pub(crate) variables: Vec<Option<Vec<Variable>>>,
    /// A program reads the application's memory, or did.
    pub(crate) reads: bool,
    /// What NVTX tells is known: a program chooses launches by it, or did, or it was seen to that
    /// such may come.
    pub(crate) ranges: bool,
}

impl Lineage {
    /// Of a session that follows none.
    pub(crate) fn first(
        defs: &[MapDef],
        programs: &[PlannedProgram],
        ranges: bool,
        types: Option<&Btf>,
    ) -> Lineage {
        let reads = |program: &PlannedProgram| program.verified.facts().reads_application();
        let mut lineage = Lineage {
            generation: 1,
            first_maps: defs.len(),
            map_ids: Vec::new(),
            program_ids: Vec::new(),
            next_id: Arc::default(),
            next_program: Arc::default(),
            gates: Arc::default(),
            slots: Arc::default(),
            founders: Arc::default(),
            clients: vec![OWN; defs.len()],
            variables: defs.iter().map(|def| variables(def, types)).collect(),
            reads: programs.iter().any(reads),
            ranges,
        };
        lineage.map_ids = defs.iter().map(|_| lineage.id()).collect();
        lineage.program_ids = programs.iter().map(|_| lineage.program_id()).collect();
        lineage
    }

    pub(crate) fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn program_id(&self) -> u64 {
        self.next_program.fetch_add(1, Ordering::Relaxed)
    }
}

/// The variables of a data section. `None` without types, or if it is none.
pub(crate) fn variables(def: &MapDef, types: Option<&Btf>) -> Option<Vec<Variable>> {
    let MapKind::Data { section, .. } = &def.kind else {
        return None;
    };
    let types = types?;
    let variable = |var: &warpbpf_object::SectionVar| match types.type_by_id(var.ty) {
        Some(Type::Var { name, .. }) => Some((name.clone(), var.offset, var.size)),
        _ => None,
    };
    types.data_section(section)?.iter().map(variable).collect()
}

/// What is closed, and what is in slots.
#[derive(Debug, Default)]
pub(crate) struct Gates(pub(crate) Mutex<State>);

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Bits of programs that somebody stopped.
    pub(crate) stopped: u64,
    /// Bits of programs that were taken out.
    pub(crate) out: u64,
    pub(crate) filling: Option<Arc<Filling>>,
}

impl Gates {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The word as it is to be on the device.
    pub(crate) fn word(&self) -> u64 {
        let state = self.lock();
        state.stopped | state.out
    }

    /// The word, and what is in slots: where nothing is to run, those are empty too.
    pub(crate) fn wanted(&self) -> (u64, Option<Arc<Filling>>) {
        let word = self.word();
        (word, self.filling().filter(|_| word != gate::CLOSED))
    }

    /// What is in slots from now on.
    pub(crate) fn fill(&self, filling: Option<Arc<Filling>>) {
        self.lock().filling = filling;
    }

    pub(crate) fn filling(&self) -> Option<Arc<Filling>> {
        self.lock().filling.clone()
    }
}

/// The bit of a slot in the word of open ones.
pub(crate) fn bit(slot: u32) -> u32 {
    slot.min(slots::SHARED)
}

/// The places that have a slot, by number. They only come to be more, because kernels with them may
/// run for ever.
#[derive(Debug, Default)]
pub(crate) struct Slots(pub(crate) Mutex<Vec<Place>>);

#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) spec: AttachSpec,
    pub(crate) section: String,
}

/// What places are told apart by: what a program calls the kernel's parameters is no part of it,
/// nor in which launches it is.
pub(crate) fn place(program: &PlannedProgram) -> AttachSpec {
    AttachSpec {
        arguments: Vec::new(),
        launches: ChoiceRequest::default(),
        ..program.spec.clone()
    }
}

impl Slots {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Slots where these programs are, as long as there is room.
    pub(crate) fn make(&self, programs: &[PlannedProgram]) {
        let mut places = self.lock();
        for program in programs {
            let spec = place(program);
            let known = places.iter().any(|place| place.spec == spec);
            if !known && spec.form != Form::Run && (places.len() as u64) < slots::MOST {
                let section = program.section().to_owned();
                places.push(Place { spec, section });
            }
        }
    }

    pub(crate) fn of(&self, program: &PlannedProgram) -> Option<u32> {
        let spec = place(program);
        let found = self.lock().iter().position(|place| place.spec == spec);
        found.and_then(|at| u32::try_from(at).ok())
    }

    /// What there is, as the end of a sentence.
    pub(crate) fn there(&self) -> String {
        let places = self.lock();
        let there: Vec<String> = places
            .iter()
            .map(|place| format!("`{}`", place.section))
            .collect();
        match there.len() {
            0 => "is none".to_owned(),
            1 => format!("is one for {}", there[0]),
            _ => format!("are those for {}", there.join(", ")),
        }
    }
}

/// Programs for slots, ready for any context of their session.
#[derive(Debug)]
pub struct Filling {
    /// Told apart by this, on a device.
    pub(crate) id: u64,
    /// Whose maps they use.
    pub(crate) base: Arc<Session>,
    /// By slot.
    pub(crate) code: Vec<(u32, Code)>,
    /// Maps that they bring, behind those of the session.
    pub(crate) constants: Vec<MapPlan>,
    pub(crate) programs: Vec<String>,
}

impl Filling {
    /// The session that it was made for.
    pub(crate) fn base(&self) -> &Session {
        &self.base
    }

    /// Names of the programs.
    pub fn programs(&self) -> &[String] {
        &self.programs
    }

    /// A bit for each slot in which something runs.
    pub(crate) fn open(&self) -> u64 {
        let bits = self.code.iter().map(|(slot, _)| 1u64 << bit(*slot));
        bits.fold(0, |open, bit| open | bit)
    }

    pub(crate) fn bytes(&self) -> u64 {
        let code = self.code.iter().map(|(_, code)| code.size() as u64);
        let constants = self.constants.iter().map(|plan| rounded(plan.bytes()));
        slots::PROGRAMS + code.chain(constants).sum::<u64>()
    }

    /// What a half holds that lies at `at`. `None` if a program names a map that there is not.
    pub(crate) fn encode(&self, at: u64, env: u64, maps: &[u64]) -> Option<Vec<u8>> {
        let mut bytes = vec![0; slots::PROGRAMS as usize];
        let mut maps = maps.to_vec();
        for plan in &self.constants {
            let start = bytes.len();
            maps.push(at + start as u64);
            bytes.resize(start + rounded(plan.bytes()) as usize, 0);
            for write in &plan.image {
                let from = start + write.offset as usize;
                let to = bytes.get_mut(from..from + write.bytes.len())?;
                to.copy_from_slice(&write.bytes);
            }
        }
        for (slot, code) in &self.code {
            let address = at + bytes.len() as u64;
            let entry = *slot as usize * 8;
            bytes[entry..entry + 8].copy_from_slice(&address.to_le_bytes());
            bytes.extend(code.encode(env, &maps)?);
        }
        Some(bytes)
    }
}

pub(crate) fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(16)
}

/// Which contexts began with what: what is added up over contexts begins in one of them. Of maps
/// that came since, in the first that gets them.
#[derive(Debug, Default)]
pub(crate) struct Founders(pub(crate) Mutex<BTreeSet<u64>>);
