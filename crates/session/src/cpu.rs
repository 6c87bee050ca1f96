//! Programs on the CPU: the reference interpreter over maps that lie elsewhere.
//!
//! Two kinds of programs run so: probes of the application's own functions, in the agent, against maps on the device; and a
//! GPU's program that a tool wants to try once (`BPF_PROG_TEST_RUN`), against the tool's maps. Neither is compiled. Every
//! access is checked as it is made, so a program needs no proof to be harmless; one that errs ends there, and who runs it
//! says so.
//!
//! A value that a program looks up is a copy. What the program stores goes back before its next helper and at its end, word
//! by word over what the map holds by then; an atomic is done on what the map holds at once. So programs on the CPU must run
//! one after the other, which is up to who runs them, and a word that others change in that moment can be lost.

use std::collections::BTreeSet;

use warpbpf_abi::helpers::by_id;
use warpbpf_abi::maps::{BPF_ANY, MapType};
use warpbpf_ebpf::interp::RunError;
use warpbpf_ebpf::{Callee, Insn, Limits, Outcome, Pc, TrapKind, run};
use warpbpf_maps::words;
use warpbpf_object::{MapDef, Object, Program};
use warpbpf_verify::Verified;

mod dynptr;
mod helpers;
mod machine;
mod place;

use machine::Cpu;
pub use place::{HostPlace, is_on_cpu, section};

/// Most instructions of one run of a program without a proof: about ten milliseconds.
pub const FUEL: u64 = 1 << 20;

/// Where a GPU's thread would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coordinates {
    /// `blockIdx`
    pub block: [u32; 3],
    /// `blockDim`
    pub block_dim: [u32; 3],
    /// `threadIdx`
    pub thread: [u32; 3],
    /// `gridDim`
    pub grid_dim: [u32; 3],
    /// Lane in the warp.
    pub lane: u32,
    /// Warp in the block.
    pub warp: u32,
    /// Multiprocessor.
    pub sm: u32,
}

/// Fields of a context that say where a thread is, with their offsets; every context begins with them.
fn places(at: &mut Coordinates) -> Vec<(usize, &mut u32)> {
    use warpbpf_abi::context::{FieldSource, KERNEL};
    let offset = |source: FieldSource| {
        let field = KERNEL.fields.iter().find(|field| field.source == source);
        field.map_or(usize::MAX, |field| field.offset as usize)
    };
    type Component = fn(u8) -> FieldSource;
    let threes = [
        (&mut at.block, FieldSource::BlockIdx as Component),
        (&mut at.block_dim, FieldSource::BlockDim),
        (&mut at.thread, FieldSource::ThreadIdx),
        (&mut at.grid_dim, FieldSource::GridDim),
    ];
    let mut places = vec![
        (offset(FieldSource::Lane), &mut at.lane),
        (offset(FieldSource::Warp), &mut at.warp),
        (offset(FieldSource::Sm), &mut at.sm),
    ];
    for (values, source) in threes {
        places.extend(
            (0..)
                .zip(values)
                .map(|(i, value)| (offset(source(i)), value)),
        );
    }
    places
}

impl Coordinates {
    /// Those that a context says.
    pub fn of_context(context: &[u8]) -> Coordinates {
        let mut at = Coordinates::default();
        for (offset, value) in places(&mut at) {
            if let Some(bytes) = context.get(offset..).and_then(|rest| rest.first_chunk()) {
                *value = u32::from_le_bytes(*bytes);
            }
        }
        at
    }

    /// A context that says them and nothing else.
    pub fn context(mut self, bytes: usize) -> Vec<u8> {
        let mut context = vec![0; bytes];
        for (offset, value) in places(&mut self) {
            if let Some(place) = context.get_mut(offset..).and_then(|rest| rest.get_mut(..4)) {
                place.copy_from_slice(&value.to_le_bytes());
            }
        }
        context
    }
}

/// [`Surroundings::store`] where a value can only be given as a whole.
///
/// # Errors
/// As there.
pub fn store_by_update<W: Surroundings + ?Sized>(
    world: &mut W,
    map: u32,
    key: &[u8],
    value: &[u8],
    meant: &[usize],
) -> Result<(), i64> {
    let mut there = world.lookup(map, key)?;
    there.resize(value.len(), 0);
    let packed = words::pack(value, meant.iter().copied());
    if let Some((words, marks)) = words::unpack(&packed, value.len()) {
        words::apply(words, marks, &mut there);
    }
    world.update(map, key, &there, BPF_ANY)
}

/// What a program on the CPU sees of the world. Errors are Linux's numbers, negative.
pub trait Surroundings {
    /// The value of a key, of one CPU where each has one.
    ///
    /// # Errors
    /// `-ENOENT` if there is no such key.
    fn lookup(&mut self, map: u32, key: &[u8]) -> Result<Vec<u8>, i64>;
    /// Gives a key a value.
    ///
    /// # Errors
    /// As the helper's.
    fn update(&mut self, map: u32, key: &[u8], value: &[u8], flags: u64) -> Result<(), i64>;
    /// Stores some words of a value, by number, over what stands there now, and leaves the others.
    ///
    /// # Errors
    /// `-ENOENT` if there is no such key any more, else as for an update.
    fn store(&mut self, map: u32, key: &[u8], value: &[u8], meant: &[usize]) -> Result<(), i64> {
        store_by_update(self, map, key, value, meant)
    }
    /// Removes a key.
    ///
    /// # Errors
    /// As the helper's.
    fn delete(&mut self, map: u32, key: &[u8]) -> Result<(), i64>;
    /// Adds a value to a queue, stack or bloom filter.
    ///
    /// # Errors
    /// As the helper's.
    fn push(&mut self, map: u32, value: &[u8], flags: u64) -> Result<(), i64>;
    /// Takes the next value out.
    ///
    /// # Errors
    /// As the helper's.
    fn pop(&mut self, map: u32) -> Result<Vec<u8>, i64>;
    /// Hands over an event.
    ///
    /// # Errors
    /// `-EAGAIN` if there is no room.
    fn output(&mut self, map: u32, record: &[u8]) -> Result<(), i64>;
    /// Takes a message, formatted.
    fn print(&mut self, text: &str);
    /// Copies memory of the process; false, and what is in `into` does not matter, if not all of it can be read.
    fn read(&mut self, address: u64, into: &mut [u8]) -> bool;
    /// Process in the upper half, thread in the lower.
    fn pid_tgid(&mut self) -> u64 {
        let pid = u64::from(std::process::id());
        pid << 32
            | u64::from(
                rustix::thread::gettid()
                    .as_raw_nonzero()
                    .get()
                    .cast_unsigned(),
            )
    }
    /// Group in the upper half, user in the lower.
    fn uid_gid(&mut self) -> u64 {
        let (gid, uid) = (rustix::process::getgid(), rustix::process::getuid());
        u64::from(gid.as_raw()) << 32 | u64::from(uid.as_raw())
    }
    /// Name of the thread, with a NUL and zeroes.
    fn comm(&mut self) -> [u8; 16] {
        let mut name = [0; 16];
        let text = rustix::thread::name().unwrap_or_default();
        let text = text.as_bytes();
        let bytes = text.len().min(15);
        name[..bytes].copy_from_slice(&text[..bytes]);
        name
    }
    /// Number of the CPU.
    fn cpu(&mut self) -> u32;
    /// Nanoseconds of a clock.
    fn clock(&mut self, clock: Clock) -> u64 {
        crate::clock::host_ns(clock)
    }
    /// A random number.
    fn random(&mut self) -> u32 {
        use std::hash::{BuildHasher as _, RandomState};
        // Each state has random keys.
        RandomState::new().hash_one(0) as u32
    }
    /// The run has taken as long as it may. Asked before each helper and atomic, for instructions alone are bounded by [`FUEL`].
    fn out_of_time(&mut self) -> bool {
        false
    }
    /// Address of the function whose start or end the program is at; 0 if it is at none.
    fn function(&self) -> u64 {
        0
    }
    /// Where the thread is, if the program is a GPU's.
    fn coordinates(&self) -> Option<Coordinates>;
}

/// A clock of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Linux's")]
pub enum Clock {
    Monotonic,
    Boot,
    Tai,
}

/// Why a program does not run on the CPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum CpuError {
    #[error(
        "program `{program}` calls `bpf_{helper}`, which programs on the CPU are not served{}", line.as_ref().map_or(String::new(), |l| format!(" ({l})"))
    )]
    Helper {
        program: String,
        helper: String,
        line: Option<String>,
    },
    #[error(
        "program `{program}` uses map `{map}` of type {map_type}, which programs on the CPU are not served"
    )]
    Map {
        program: String,
        map: String,
        map_type: u32,
    },
    #[error(
        "program `{program}` on the CPU uses map `{map}`, which has a value per multiprocessor, and so do programs in kernels: give each side a map of its own"
    )]
    Shared { program: String, map: String },
    #[error("program `{program}` ended: {reason}{}", line.as_ref().map_or(String::new(), |l| format!(" ({l})")))]
    Trap {
        program: String,
        reason: String,
        line: Option<String>,
    },
    #[error("program `{program}` was stopped: {reason}{}", line.as_ref().map_or(String::new(), |l| format!(" ({l})")))]
    Limit {
        program: String,
        reason: String,
        line: Option<String>,
    },
    #[error("program `{program}` cannot be started: {error}")]
    Start { program: String, error: RunError },
    #[error(
        "`{program}`: the driver API has no function that section `{section}` names{}", nearest_text(.nearest)
    )]
    Api {
        program: String,
        section: String,
        nearest: Vec<&'static str>,
    },
}

fn nearest_text(nearest: &[&str]) -> String {
    match nearest {
        [] => {
            "; write a name of `cuda.h` without its version, or a glob such as `cuMemcpy*`".into()
        }
        [one] => format!("; it has `{one}`"),
        [all @ .., last] => {
            let all: Vec<String> = all.iter().map(|name| format!("`{name}`")).collect();
            format!("; it has {} and `{last}`", all.join(", "))
        }
    }
}

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

/// The same for a program that was proved: its loops end after as many rounds as everywhere else, and it runs as long as its
/// proof allows.
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

/// Refuses maps with a value per multiprocessor that programs in kernels use too: to set one of the values, all are written.
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

/// Whether what programs on the CPU do with these maps is done by kernels: values of arrays are copied, and events go to the tool.
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
