//! From an object file to a session: every program proved, every map laid out, before anything touches an application.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use warpbpf_abi::attach::Site;
use warpbpf_abi::choice::Choice;
use warpbpf_abi::layout::{HostedLayout, MapLayout, RingLayout, slot};
use warpbpf_abi::maps::{MapType, PLACE, Placement};
use warpbpf_abi::names::PRINTK_RING;
use warpbpf_abi::options::Options;
use warpbpf_codegen::{MapBinding, map_uses};
use warpbpf_driver::{DeviceInfo, DriverError};
use warpbpf_ebpf::Pc;
use warpbpf_maps::{Hardware, MapError, MapPlan, SumUse, inner, stops};
use warpbpf_object::{Btf, LoadOptions, MapDef, Object, ObjectError, Program};
use warpbpf_patch::TensorLayout;
pub use warpbpf_verify::LogStep;
use warpbpf_verify::{
    Bounded, Platform, Rejection, SourceLine, Subject, Verified, prove_apart, prove_bounded,
    prove_padded, verify, verify_logged,
};

use crate::code_cache::CodeCache;
use crate::cpu::{self, CpuError, HostProgram};
use crate::means::Means;
use crate::names;
use crate::process::{self, ProcessFields};
use crate::replace::Lineage;
use crate::section::{self, AttachSpec, Form, SectionError};
use crate::sites::Sites;

/// Bytes of the printk ring, as `max_entries` of a ring buffer would say.
const PRINTK_BYTES: u32 = 256 << 10;

/// Why an object cannot become a session. `Display` is the whole message for the user.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum SessionError {
    #[error("the object cannot be loaded: {source}")]
    Object { source: ObjectError },
    #[error(
        "the object has no programs; a program is a function with `SEC(\"gpu/entry/KERNEL\")` or the like"
    )]
    Empty,
    #[error("{0}")]
    Section(Box<SectionError>),
    #[error("{0}")]
    Map(MapError),
    #[error("map `{map}` cannot be placed: the object has none of this name; it has {there}")]
    Place { map: String, there: String },
    #[error("program `{}` was refused\n{}", rejection.program, rejection.render())]
    Rejected { rejection: Box<Rejection> },
    /// One for each program, or each map, that is refused.
    #[error("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n"))]
    Several { errors: Vec<SessionError> },
    #[error(
        "program `{program}` calls `bpf_{helper}`, which counts all threads of a block, and a gate (`--gate`, `--slots`) may keep some of them from it: do without the gate, or add to a value of a map"
    )]
    Gated {
        program: String,
        helper: &'static str,
    },
    #[error(
        "program `{program}` calls `bpf_{helper}`, which counts all threads of a block in a launch record, and a kernel of its own (`gpu/run`) has none: use it in a program at `gpu/entry` or `gpu/exit`, or add to a value of a map"
    )]
    Uncounted {
        program: String,
        helper: &'static str,
    },
    #[error("{0}")]
    Cpu(CpuError),
    #[error("{0}")]
    Driver(DriverError),
}

/// A proved program and where it wants to be.
#[derive(Debug, Clone)]
pub struct PlannedProgram {
    /// Where.
    pub spec: AttachSpec,
    /// What.
    pub verified: Verified<Program>,
    /// Heads of its loops that are ended when they run ([`Options::bound_loops`]).
    pub bounded: Vec<Pc>,
    /// Which launches it is in.
    pub choice: Arc<Choice>,
    /// Whose it is ([`crate::client`]).
    pub client: u32,
}

impl PlannedProgram {
    /// The C function's name.
    pub fn name(&self) -> &str {
        &self.verified.program().name
    }
    /// Where the loops begin that are ended when they run, as far as the object says.
    pub fn bounded_lines(&self) -> Vec<Option<SourceLine>> {
        let program = self.verified.program();
        let heads = self.bounded.iter();
        heads.map(|head| Subject::line_of(program, *head)).collect()
    }
    /// It is at sites in the middle of kernels, of which there may be any number; at a kernel's start and end there always
    /// is one.
    pub(crate) fn has_sites(&self) -> bool {
        !matches!(self.spec.site, Site::Entry | Site::Exit)
    }
    /// The section name.
    pub fn section(&self) -> &str {
        &self.verified.program().section
    }
}

/// Programs on one kind of device: proved, with map layouts, and the numbers given to kernels. Of one object, or of what an
/// object became when programs were replaced ([`crate::replace`]).
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
    /// What programs can ask about the process. Files are read for it, so it is known before there is a context.
    pub(crate) process: ProcessFields,
}

/// Reads the programs of an object and proves each one. This is the part of [`Session::new`] that needs no device.
///
/// # Errors
/// Each program or section that is refused.
pub fn prove(
    object: Object,
    options: &Options,
) -> Result<(Vec<PlannedProgram>, Vec<MapDef>), SessionError> {
    let (_, programs, maps) = prove_plainly(object, options)?;
    Ok((programs, maps))
}

fn prove_plainly(object: Object, options: &Options) -> Result<Proved, SessionError> {
    prove_each(object, options, &mut |program, maps, platform| {
        verify(program, maps, platform)
    })
}

/// As [`prove`], and tells `log` what the proof does, step by step, with each program's name.
///
/// # Errors
/// As [`prove`].
pub fn prove_logged(
    object: Object,
    options: &Options,
    log: &mut dyn FnMut(&str, &LogStep),
) -> Result<(Vec<PlannedProgram>, Vec<MapDef>), SessionError> {
    let (_, programs, maps) = prove_each(object, options, &mut |program, maps, platform| {
        let name = program.name.clone();
        verify_logged(program, maps, platform, &mut |step| log(&name, step))
    })?;
    Ok((programs, maps))
}

pub(crate) type Prove<'p> =
    dyn FnMut(Program, &[MapDef], &Platform) -> Result<Verified<Program>, Box<Rejection>> + 'p;

/// Programs on the CPU, programs in kernels, and maps.
type Proved = (Vec<HostProgram>, Vec<PlannedProgram>, Vec<MapDef>);

fn prove_each(
    mut object: Object,
    options: &Options,
    prove: &mut Prove<'_>,
) -> Result<Proved, SessionError> {
    // They are not proved: each of their accesses is checked as it is made.
    let host_programs = cpu::take(&mut object).map_err(SessionError::Cpu)?;
    let mut maps = object.maps;
    complete(&mut maps, object.btf.as_ref(), options);
    if object.programs.is_empty() && host_programs.is_empty() {
        return Err(SessionError::Empty);
    }
    place(&mut maps, &options.map_memory)?;
    let programs = prove_programs(object.programs, &mut maps, options, prove)?;
    let in_kernels = programs.iter().map(|p| p.verified.program());
    cpu::check_shared(&host_programs, in_kernels, &maps).map_err(SessionError::Cpu)?;
    Ok((host_programs, programs, maps))
}

/// Notes in definitions what the object's types and the user's options say of them.
pub(crate) fn complete(maps: &mut [MapDef], types: Option<&Btf>, options: &Options) {
    if let Some(types) = types {
        warpbpf_verify::note_locks(maps, types);
    }
    if let Some(threads) = options.threads {
        for map in maps.iter_mut().filter(|m| {
            m.map_type == MapType::PerThreadArray as u32
                || m.map_type == MapType::PerThreadHostArray as u32
        }) {
            let extra = map.extra.entry("map_extra".into()).or_insert(0);
            if *extra == 0 {
                *extra = threads;
            }
        }
    }
}

/// Proves programs that name maps by their index in `maps`. Counts of loops that are ended come behind these.
pub(crate) fn prove_programs(
    programs: Vec<Program>,
    maps: &mut Vec<MapDef>,
    options: &Options,
    prove: &mut Prove<'_>,
) -> Result<Vec<PlannedProgram>, SessionError> {
    let mut proved = Vec::with_capacity(programs.len());
    let mut errors = Vec::new();
    for program in programs {
        match prove_program(program, maps, options, prove) {
            Ok(program) => proved.push(program),
            Err(error) => errors.push(error),
        }
    }
    all_of(errors).map(|()| proved)
}

/// All errors as one, if there are any.
fn all_of(errors: Vec<SessionError>) -> Result<(), SessionError> {
    match errors.is_empty() {
        true => Ok(()),
        false => Err(one_of(errors)),
    }
}

fn one_of(mut errors: Vec<SessionError>) -> SessionError {
    match errors.len() {
        1 => errors.remove(0),
        _ => SessionError::Several { errors },
    }
}

fn prove_program(
    program: Program,
    maps: &mut Vec<MapDef>,
    options: &Options,
    prove: &mut Prove<'_>,
) -> Result<PlannedProgram, SessionError> {
    let spec = section::parse(&program.name, &program.section)
        .map_err(|e| SessionError::Section(Box::new(e)))?;
    let (all, said) = (&options.choice, &options.choose);
    let choice = Arc::new(all.of_program(&program.name, &spec.launches, said));
    let platform = Platform {
        context: spec.context(),
        ..Platform::new(spec.site)
    }
    .with_scope(spec.scope)
    .with_strict_uniform(options.strict_uniform)
    .with_allow_modify(options.allow_modify);
    let platform = match options.budget {
        Some(budget) => platform.with_budget(budget),
        None => platform,
    };
    let proof = if options.bound_loops {
        prove_ending(&program, maps, &platform, prove)
    } else {
        let mut proved =
            |program| prove_padded(program, &mut |program| prove(program, maps, &platform));
        prove_apart(program, &mut proved).map(|verified| Bounded {
            verified,
            heads: Vec::new(),
        })
    };
    let Bounded { verified, heads } =
        proof.map_err(|rejection| SessionError::Rejected { rejection })?;
    if let Some(helper) = verified.facts().aggregates_over_block() {
        let (program, helper) = (verified.program().name.clone(), helper.name);
        if spec.form == section::Form::Run {
            return Err(SessionError::Uncounted { program, helper });
        }
        if options.gate || options.slots {
            return Err(SessionError::Gated { program, helper });
        }
    }
    Ok(PlannedProgram {
        client: crate::client::OWN,
        choice,
        spec,
        verified,
        bounded: heads,
    })
}

/// Proves a program, with loops ended when they run where that is needed; then its count is among the maps.
fn prove_ending(
    program: &Program,
    maps: &mut Vec<MapDef>,
    platform: &Platform,
    prove: &mut Prove<'_>,
) -> Result<Bounded, Box<Rejection>> {
    let counter = stops::counter(&program.name);
    let there = maps.iter().position(|map| map.name == counter.name);
    let index = there.unwrap_or(maps.len());
    if there.is_none() {
        maps.push(counter);
    }
    let mut proved = |program| prove_padded(program, &mut |program| prove(program, maps, platform));
    let proof = prove_bounded(program, index as u32, |program| {
        prove_apart(program, &mut proved)
    });
    let counts = matches!(&proof, Ok(bounded) if !bounded.heads.is_empty());
    if there.is_none() && !counts {
        maps.pop();
    }
    proof
}

/// Notes the user's requests in the definitions, which everything that depends on them is made
/// from.
pub(crate) fn place(
    maps: &mut [MapDef],
    requests: &[(String, Placement)],
) -> Result<(), SessionError> {
    for (name, request) in requests {
        let Some(map) = maps.iter_mut().find(|map| map.name == *name) else {
            let names: Vec<String> = maps.iter().map(|m| format!("`{}`", m.name)).collect();
            return Err(SessionError::Place {
                map: name.clone(),
                there: match names.is_empty() {
                    true => "no map".to_owned(),
                    false => names.join(", "),
                },
            });
        };
        map.extra.insert(PLACE.to_owned(), request.number());
        warpbpf_maps::placement(map).map_err(SessionError::Map)?;
    }
    Ok(())
}

impl Session {
    /// Loads, proves and lays out an object for a device, or for several, of which `info` says how many multiprocessors the
    /// largest has: all then have the same layouts.
    ///
    /// # Errors
    /// [`SessionError`]: the object, a section name, a map or a program is refused; nothing was done to anything.
    pub fn new(
        object: &[u8],
        options: &Options,
        info: &DeviceInfo,
    ) -> Result<Session, SessionError> {
        Session::with(object, options, Means::default(), info)
    }

    /// As [`Session::new`], with what the process and its tool have brought.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn with(
        object: &[u8],
        options: &Options,
        means: Means,
        info: &DeviceInfo,
    ) -> Result<Session, SessionError> {
        let (host_programs, programs, defs, types) = if object.is_empty() && options.timeline {
            Default::default()
        } else {
            let object = warpbpf_object::load_all(object, &LoadOptions::default());
            let object = match object {
                Ok(object) => object,
                Err(errors) => {
                    let errors = errors.all().into_iter();
                    let errors = errors.map(|source| SessionError::Object { source });
                    return Err(one_of(errors.collect()));
                }
            };
            let types = object.btf.clone();
            let (host_programs, programs, defs) = prove_plainly(object, options)?;
            (host_programs, programs, defs, types)
        };
        let hardware = Hardware::new(info.sms, info.capability);
        let uses = sum_uses(&programs, &host_programs, &defs);
        let (mut maps, mut errors) = (Vec::with_capacity(defs.len()), Vec::new());
        for (def, uses) in defs.iter().zip(&uses) {
            match warpbpf_maps::plan_on(def, hardware, uses) {
                Ok(map) => maps.push(map),
                Err(error) => errors.push(SessionError::Map(error)),
            }
        }
        all_of(errors)?;
        inner::check_all(&defs).map_err(SessionError::Map)?;
        let inner = defs
            .iter()
            .map(|def| inner_layout(def, hardware))
            .collect::<Result<_, _>>()
            .map_err(SessionError::Map)?;
        let printk = programs
            .iter()
            .any(|p| p.verified.facts().uses_printk())
            .then(|| printk_plan(info.sms));
        let by_the_host: BTreeSet<u32> = (host_programs.iter())
            .flat_map(|host| host.program.maps())
            .collect();
        let kernels_for_host = cpu::needs_kernels(&by_the_host, &defs);
        let ranges = means.nvtx_comes_to_us;
        let lineage = Lineage::first(&defs, &programs, ranges, types.as_ref());
        if options.slots {
            lineage.slots.make(&programs);
        }
        Ok(Session {
            programs,
            host_programs,
            maps,
            inner,
            defs,
            printk,
            kernels: Arc::default(),
            sites: Arc::default(),
            options: Options {
                host_ops: options.host_ops || kernels_for_host,
                gate: options.gate || options.slots,
                ..options.clone()
            },
            means,
            tensors: OnceLock::new(),
            hardware,
            lineage,
            process: process::of_process(),
        })
    }

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
    /// Nanoseconds that a call to the host may take.
    pub(crate) fn call_limit_ns(&self) -> u64 {
        let chosen = self.options.hostcall_timeout_us;
        chosen.map_or(HostedLayout::DEFAULT_LIMIT, |us| {
            us.saturating_mul(1000).min(HostedLayout::LONGEST)
        })
    }
    /// Sums at this kind of site stay in registers until a thread leaves. A tool that changes maps
    /// while kernels run wants to see them while they run, too; so does one that asks for a gate,
    /// which is for kernels that never end.
    pub fn keeps_sums(&self, site: Site) -> bool {
        let Options {
            live_sums,
            host_ops,
            gate,
            ..
        } = self.options;
        site.is_in_middle() && !live_sums && !host_ops && !gate
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

    /// Readable names by site number, as the context's field `site` gives it; that of 0 is empty. It only grows.
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
    fn map_slot(&self, map: usize) -> u32 {
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

    /// First slot that is free for a module's own variables. Text keeps the one that it was made with: what stands from there on
    /// is the module's own.
    pub(crate) fn first_free_slot(&self) -> u32 {
        slot::FIRST_MAP + self.maps.len() as u32 + u32::from(self.printk.is_some())
    }
}

/// How programs use each map, of which depends whether it is summed.
pub(crate) fn sum_uses(
    programs: &[PlannedProgram],
    host_programs: &[HostProgram],
    defs: &[MapDef],
) -> Vec<Vec<SumUse>> {
    let by_the_host: BTreeSet<u32> = (host_programs.iter())
        .flat_map(|host| host.program.maps())
        .collect();
    let of_programs: Vec<_> = programs
        .iter()
        .map(|p| map_uses(&p.verified, p.spec.site, defs.len()))
        .collect();
    let of_map = |index: usize| {
        if let Some(outer) = inner::outer_of(defs, index) {
            return vec![SumUse {
                not_summable: Some(format!("programs also find it in `{outer}`")),
                more_than_adds: true,
                ..SumUse::default()
            }];
        }
        let uses = of_programs.iter().filter_map(|of| of.get(index));
        let mut uses: Vec<SumUse> = uses
            .map(|u| SumUse {
                adds: u.adds.clone(),
                not_summable: u.not_summable.clone(),
                more_than_adds: u.more_than_adds,
                on_cpu: false,
            })
            .collect();
        if by_the_host.contains(&(index as u32)) {
            uses.push(SumUse {
                on_cpu: true,
                ..SumUse::default()
            });
        }
        uses
    };
    (0..defs.len()).map(of_map).collect()
}

/// How the maps in a map of maps lie in memory.
fn inner_layout(def: &MapDef, hardware: Hardware) -> Result<Option<MapLayout>, MapError> {
    let Some(template) = &def.inner else {
        return Ok(None);
    };
    let one_copy = SumUse {
        not_summable: Some("it is in a map of maps".to_owned()),
        ..SumUse::default()
    };
    warpbpf_maps::plan_on(template, hardware, &[one_copy]).map(|plan| Some(plan.layout))
}

fn printk_plan(sms: u32) -> MapPlan {
    MapPlan {
        name: PRINTK_RING.into(),
        map_type: MapType::Ringbuf,
        key_size: 0,
        value_size: 0,
        max_entries: PRINTK_BYTES,
        read_only: false,
        layout: MapLayout::Ring(RingLayout::new(PRINTK_BYTES, sms.max(1))),
        sum_fields: Vec::new(),
        added: Vec::new(),
        not_summed: None,
        placement: Placement::Device,
        image: Vec::new(),
        further: Vec::new(),
    }
}
