//! From an object file to a session: every program proved, every map laid out, before anything
//! touches an application.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use warpbpf_abi::attach::Site;
use warpbpf_abi::layout::{HostedLayout, MapLayout, RingLayout};
use warpbpf_abi::maps::{MapType, PLACE, Placement};
use warpbpf_abi::names::PRINTK_RING;
use warpbpf_abi::options::Options;
use warpbpf_codegen::map_uses;
use warpbpf_driver::DeviceInfo;
use warpbpf_maps::{Hardware, MapError, MapPlan, SumUse, inner, stops};
use warpbpf_object::{Btf, LoadOptions, MapDef, Object, Program};

use crate::plan::planned::PlannedProgram;
use crate::plan::session::{Lineage, Session};
use crate::plan::session_error::SessionError;

pub use warpbpf_verify::LogStep;
use warpbpf_verify::{
    Bounded, Platform, Rejection, Verified, prove_apart, prove_bounded, prove_padded, verify,
    verify_logged,
};

use crate::cpu::{self, HostProgram};
use crate::plan::means::Means;
use crate::plan::section::{self};
use crate::process::{self};

/// Bytes of the printk ring, as `max_entries` of a ring buffer would say.
const PRINTK_BYTES: u32 = 256 << 10;

/// Reads the programs of an object and proves each one. This is the part of [`Session::new`] that
/// needs no device.
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

/// Proves programs that name maps by their index in `maps`. Counts of loops that are ended come
/// behind these.
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
        client: crate::plan::planned::OWN,
        choice,
        spec,
        verified,
        bounded: heads,
    })
}

/// Proves a program, with loops ended when they run where that is needed; then its count is among
/// the maps.
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
    /// Loads, proves and lays out an object for a device, or for several, of which `info` says how
    /// many multiprocessors the largest has: all then have the same layouts.
    ///
    /// # Errors
    /// [`SessionError`]: the object, a section name, a map or a program is refused; nothing was
    /// done to anything.
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
