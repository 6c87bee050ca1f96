//! Programs on the CPU: the reference interpreter over maps that lie elsewhere.
//!
//! Two kinds of programs run so: probes of the application's own functions, in the agent, against
//! maps on the device; and a GPU's program that a tool wants to try once (`BPF_PROG_TEST_RUN`),
//! against the tool's maps. Neither is compiled. Every access is checked as it is made, so a
//! program needs no proof to be harmless; one that errs ends there, and who runs it says so.
//!
//! A value that a program looks up is a copy. What the program stores goes back before its next
//! helper and at its end, word by word over what the map holds by then; an atomic is done on what
//! the map holds at once. So programs on the CPU must run one after the other, which is up to who
//! runs them, and a word that others change in that moment can be lost.

use std::collections::BTreeSet;

use warpbpf_abi::helpers::by_id;
use warpbpf_abi::maps::MapType;
use warpbpf_ebpf::{Callee, Insn, Limits, Outcome, Pc, TrapKind, run};
use warpbpf_object::{MapDef, Object, Program};
use warpbpf_verify::Verified;

pub(crate) mod clock;
mod dynptr;
pub(crate) mod error;
mod helpers;
mod machine;
mod place;
pub(crate) mod surroundings;

pub use clock::Clock;
pub use error::CpuError;
use machine::Cpu;
pub use place::{HostPlace, is_on_cpu, section};
pub use surroundings::{Coordinates, Surroundings, store_by_update};

/// Most instructions of one run of a program without a proof: about ten milliseconds.
pub const FUEL: u64 = 1 << 20;

fn line(program: &Program, pc: Pc) -> Option<String> {
    let line = program.line_of(pc)?;
    Some(format!("{}:{}", line.file, line.line))
}

/// Looks whether all that a program asks for is there. `gpu`: it is a GPU's, and has coordinates.
///
/// # Errors
/// What is not, and where.
pub fn check(program: &Program, maps: &[MapDef], gpu: bool) -> Result<(), CpuError> {
    for (at, insn) in program.code.insns().iter().enumerate() {
        let Insn::Call {
            callee: Callee::Helper(id),
        } = insn
        else {
            continue;
        };
        if helpers::is_served(*id, gpu) {
            continue;
        }
        let name = by_id(*id).map(|helper| helper.name);
        let name = name.or_else(|| warpbpf_abi::linux::name(*id));
        return Err(CpuError::Helper {
            program: program.name.clone(),
            helper: name.map_or_else(|| format!("helper {id}"), str::to_owned),
            line: line(program, Pc(at as u32)),
        });
    }
    for map in program.maps() {
        let Some(def) = maps.get(map as usize).filter(|def| !is_served(def)) else {
            continue;
        };
        return Err(CpuError::Map {
            program: program.name.clone(),
            map: def.name.clone(),
            map_type: def.map_type,
        });
    }
    Ok(())
}

fn is_served(def: &MapDef) -> bool {
    const SERVED: &[MapType] = &[
        MapType::Hash,
        MapType::Array,
        MapType::PerfEventArray,
        MapType::PercpuHash,
        MapType::PercpuArray,
        MapType::LruHash,
        MapType::LruPercpuHash,
        MapType::Queue,
        MapType::Stack,
        MapType::Ringbuf,
        MapType::BloomFilter,
        MapType::GpuHash,
        MapType::GpuArray,
        MapType::GpuKernelArray,
        MapType::GpuHostArray,
        MapType::GpuRingbuf,
    ];
    SERVED.iter().any(|t| *t as u32 == def.map_type)
}

/// Runs a program that [`check`] accepts, with a read-only context. Its `r0`.
///
/// # Errors
/// What it did wrong. What it had stored before that stays.
pub fn execute(
    program: &Program,
    maps: &[MapDef],
    context: &[u8],
    world: &mut dyn Surroundings,
) -> Result<u64, CpuError> {
    let limits = Limits {
        fuel: FUEL,
        ..Limits::default()
    };
    execute_within(program, maps, context, world, limits)
}

/// The same for a program that was proved: its loops end after as many rounds as everywhere else,
/// and it runs as long as its proof allows.
///
/// # Errors
/// As [`execute`].
pub fn execute_proved(
    proved: &Verified<Program>,
    maps: &[MapDef],
    context: &[u8],
    world: &mut dyn Surroundings,
) -> Result<u64, CpuError> {
    let limits = Limits {
        fuel: FUEL.max(proved.facts().cost),
        may_goto: proved.facts().may_goto_rounds.into(),
    };
    execute_within(proved.program(), maps, context, world, limits)
}

fn execute_within(
    program: &Program,
    maps: &[MapDef],
    context: &[u8],
    world: &mut dyn Surroundings,
    limits: Limits,
) -> Result<u64, CpuError> {
    let mut cpu = Cpu::new(maps, context, world);
    let ended = run(&program.code, Pc(0), &[machine::CONTEXT], &mut cpu, limits);
    let ended = ended.map_err(|error| CpuError::Start {
        program: program.name.clone(),
        error,
    })?;
    cpu.write_back();
    match ended {
        Outcome::Return(value) => Ok(value),
        // `bpf_gpu_exit` ends the thread.
        Outcome::Trap(_) if cpu.exited => Ok(0),
        Outcome::Trap(trap) => {
            let (program, reason, line) = (
                program.name.clone(),
                trap.kind.to_string(),
                line(program, trap.pc),
            );
            Err(match trap.kind {
                TrapKind::OutOfFuel | TrapKind::OutOfTime => CpuError::Limit {
                    program,
                    reason,
                    line,
                },
                _ => CpuError::Trap {
                    program,
                    reason,
                    line,
                },
            })
        }
    }
}

/// A program on the CPU, for the start or the end of functions.
#[derive(Debug, Clone)]
pub struct HostProgram {
    /// Whose.
    pub place: HostPlace,
    /// It runs when the function returns.
    pub at_end: bool,
    /// The program.
    pub program: Program,
}

/// Takes the programs for functions of the application and of the driver out of an object.
///
/// # Errors
/// One asks for what is not there.
pub fn take(object: &mut Object) -> Result<Vec<HostProgram>, CpuError> {
    let mut taken = Vec::new();
    for program in std::mem::take(&mut object.programs) {
        let Some((place, at_end)) = place::parse(&program.name, &program.section)? else {
            object.programs.push(program);
            continue;
        };
        check(&program, &object.maps, false)?;
        taken.push(HostProgram {
            place,
            at_end,
            program,
        });
    }
    Ok(taken)
}

/// Each CPU or multiprocessor has a value of its own. Programs on the CPU have that of the first.
pub fn is_percpu(def: &MapDef) -> bool {
    [
        MapType::PercpuHash,
        MapType::PercpuArray,
        MapType::LruPercpuHash,
    ]
    .iter()
    .any(|t| *t as u32 == def.map_type)
}

/// Refuses maps with a value per multiprocessor that programs in kernels use too: to set one of the
/// values, all are written.
pub(crate) fn check_shared<'p>(
    host: &[HostProgram],
    gpu: impl Iterator<Item = &'p Program>,
    maps: &[MapDef],
) -> Result<(), CpuError> {
    let theirs: BTreeSet<u32> = gpu.flat_map(Program::maps).collect();
    for host in host {
        for map in host.program.maps().filter(|map| theirs.contains(map)) {
            if let Some(def) = maps.get(map as usize).filter(|def| is_percpu(def)) {
                return Err(CpuError::Shared {
                    program: host.program.name.clone(),
                    map: def.name.clone(),
                });
            }
        }
    }
    Ok(())
}

/// Whether what programs on the CPU do with these maps is done by kernels: values of arrays are
/// copied, and events go to the tool.
pub(crate) fn needs_kernels(used: &BTreeSet<u32>, maps: &[MapDef]) -> bool {
    const WITHOUT: &[MapType] = &[
        MapType::Array,
        MapType::PercpuArray,
        MapType::GpuArray,
        MapType::GpuKernelArray,
        MapType::GpuHostArray,
        MapType::Ringbuf,
        MapType::PerfEventArray,
        MapType::GpuRingbuf,
    ];
    let copied = |def: &MapDef| WITHOUT.iter().any(|t| *t as u32 == def.map_type);
    used.iter()
        .filter_map(|map| maps.get(*map as usize))
        .any(|def| !copied(def))
}

#[cfg(test)]
mod tests;
