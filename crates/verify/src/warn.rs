//! Warnings: what is safe but probably wrong. Today one: a read-modify-write of a map value that other threads share,
//! in a form that the code generator does not turn into one atomic operation, loses updates.

use std::fmt;

use warpbpf_abi::maps::MapType;
use warpbpf_ebpf::{AluOp, Code, Insn, Pc, Reg, Source, Width};

use crate::env::Env;
use crate::facts::{Facts, InsnFact, Instance, Place, Region};
use crate::liveness::successors;
use crate::subject::{SourceLine, Subject};

/// Something that is allowed but looks wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// The instruction.
    pub pc: Pc,
    /// The same as a slot number.
    pub slot: u32,
    /// The C line it comes from.
    pub line: Option<SourceLine>,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction {}", self.slot)?;
        if let Some(line) = &self.line {
            write!(f, " ({}:{}:{})", line.file, line.line, line.column)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// All warnings about a proved program, by instruction.
pub(crate) fn warnings(env: &Env<'_>, subject: &impl Subject, facts: &Facts) -> Vec<Warning> {
    let mut found: Vec<(Pc, String)> = Vec::new();
    for instance in &facts.instances {
        scan(env, instance, &mut found);
    }
    found.sort();
    found.dedup();
    found
        .into_iter()
        .map(|(pc, message)| Warning {
            pc,
            slot: env.code.slot(pc),
            line: subject.line_of(pc),
            message,
        })
        .collect()
}

/// A register's value comes from a load of shared memory.
#[derive(Clone, Copy)]
struct Loaded {
    place: Place,
    width: Width,
    base: Reg,
    off: i16,
    /// Nothing was done to it, or one number was added or subtracted.
    changes: u32,
    only_added: bool,
}

/// Straight-line code only: where paths meet, everything is forgotten.
fn scan(env: &Env<'_>, instance: &Instance, found: &mut Vec<(Pc, String)>) {
    let mut loaded: [Option<Loaded>; Reg::COUNT] = [None; Reg::COUNT];
    let leaders = leaders(env.code, instance);
    for pc in (instance.start.0..instance.end.0).map(Pc) {
        if leaders[(pc.0 - instance.start.0) as usize] {
            loaded = [None; Reg::COUNT];
        }
        let fact = instance.at(pc);
        if matches!(fact, InsnFact::Dead) {
            continue;
        }
        match (*env.code.at(pc), fact) {
            (
                Insn::Load {
                    width,
                    dst,
                    base,
                    off,
                    ..
                },
                InsnFact::Access(place),
            ) => {
                write(&mut loaded, dst);
                if dst != base && shared_map(env, place).is_some() {
                    loaded[dst.index()] = Some(Loaded {
                        place: *place,
                        width,
                        base,
                        off,
                        changes: 0,
                        only_added: true,
                    });
                }
            }
            (
                Insn::Store {
                    width,
                    base,
                    off,
                    src: Source::Reg(src),
                },
                InsnFact::Access(place),
            ) => {
                if let (Some(from), Some(map)) = (loaded[src.index()], shared_map(env, place)) {
                    let same_place = from.place.region == place.region
                        && (from.base == base && from.off == off
                            || from.place.offset.is_some() && from.place.offset == place.offset);
                    let becomes_atomic = from.width == width
                        && from.changes == 1
                        && from.only_added
                        && matches!(width, Width::W32 | Width::W64);
                    if same_place && from.changes > 0 && !becomes_atomic {
                        found.push((pc, lost_update(env.map_name(map), width)));
                    }
                }
            }
            (Insn::Alu { op, dst, src, .. }, _) => match (op, src) {
                (AluOp::Mov, Source::Reg(src)) => {
                    let copied = loaded[src.index()];
                    write(&mut loaded, dst);
                    loaded[dst.index()] = copied;
                }
                (AluOp::Mov, Source::Imm(_)) => write(&mut loaded, dst),
                _ => {
                    let right = match src {
                        Source::Reg(src) if src != dst => loaded[src.index()],
                        Source::Reg(_) | Source::Imm(_) => None,
                    };
                    let left = loaded[dst.index()];
                    write(&mut loaded, dst);
                    let adds = op == AluOp::Add || op == AluOp::Sub && right.is_none();
                    loaded[dst.index()] = left.or(right).map(|l| Loaded {
                        changes: l.changes + 1,
                        only_added: l.only_added && adds && !(left.is_some() && right.is_some()),
                        ..l
                    });
                }
            },
            (Insn::Neg { dst, .. } | Insn::End { dst, .. }, _) => {
                if let Some(l) = &mut loaded[dst.index()] {
                    (l.changes, l.only_added) = (l.changes + 1, false);
                }
            }
            (
                Insn::MovSx { dst, .. }
                | Insn::LoadImm64 { dst, .. }
                | Insn::LoadAcquire { dst, .. },
                _,
            ) => {
                write(&mut loaded, dst);
            }
            (Insn::Call { .. } | Insn::CallReg { .. }, _) => {
                Reg::all().take(6).for_each(|reg| write(&mut loaded, reg));
            }
            (Insn::Atomic { src, .. }, _) => {
                write(&mut loaded, src);
                write(&mut loaded, Reg::R0);
            }
            (
                Insn::Load { .. }
                | Insn::Store { .. }
                | Insn::StoreRelease { .. }
                | Insn::Jump { .. }
                | Insn::Goto { .. }
                | Insn::MayGoto { .. }
                | Insn::Exit
                | Insn::LegacyPacket { .. },
                _,
            ) => {}
        }
    }
}

/// `reg` gets a new value: it is no loaded one, and addresses made with it mean something else now.
fn write(loaded: &mut [Option<Loaded>; Reg::COUNT], reg: Reg) {
    loaded[reg.index()] = None;
    for l in loaded.iter_mut() {
        if matches!(l, Some(l) if l.base == reg && l.place.offset.is_none()) {
            *l = None;
        }
    }
}

fn leaders(code: &Code, instance: &Instance) -> Vec<bool> {
    let start = instance.start.0;
    let mut leaders = vec![false; instance.insns.len()];
    for pc in (start..instance.end.0).map(Pc) {
        for target in successors(code, pc) {
            if target != pc.next() && (start..instance.end.0).contains(&target.0) {
                leaders[(target.0 - start) as usize] = true;
            }
        }
    }
    leaders
}

/// The map, if other threads see the same bytes. A per-SM copy is shared by the threads of its SM.
fn shared_map(env: &Env<'_>, place: &Place) -> Option<u32> {
    let Region::MapValue { map } = place.region else {
        return None;
    };
    let (_, map_type) = env.map(map).ok()?;
    match map_type {
        MapType::PerThreadArray => None,
        MapType::Hash | MapType::Array | MapType::PercpuArray | MapType::Ringbuf => Some(map),
    }
}

fn lost_update(map: &str, width: Width) -> String {
    let narrow = matches!(width, Width::W8 | Width::W16);
    let advice = if narrow {
        "use a 4- or 8-byte field with `+=`, or a map of type 1502 (one value per thread)"
    } else {
        "use `+=`, `__sync_fetch_and_or` and its like, or a map of type 1502 (one value per thread)"
    };
    format!(
        "this changes a value of map `{map}`, which other threads change too, in separate steps: updates can be lost; {advice}"
    )
}
