//! Which bytes of the eBPF stack become values, and where the others lie in local memory.
//!
//! A byte becomes part of a value when every access to it, by the program or by a helper on its
//! behalf, is at a known offset. A frame that is touched at an unknown offset stays in memory as a
//! whole. Functions at one call depth share a frame, as they do in Linux.

use std::collections::BTreeMap;

use warpbpf_abi::costs::DYNPTR_BYTES;
use warpbpf_abi::helpers::{self, Arg, HelperId};
use warpbpf_abi::layout::MapLayout;
use warpbpf_ebpf::{Callee, Code, Insn, Pc, Width};
use warpbpf_verify::{ArgFact, Facts, INNER, InsnFact, Place, Region};

use crate::fragment::MapBinding;

/// A part of a promoted variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Index of the variable.
    pub var: usize,
    /// Bits above the variable's lowest.
    pub shift: u32,
    /// Bits of the variable: 8, 16, 32 or 64.
    pub bits: u32,
}

#[derive(Debug, Default)]
struct Frame {
    /// Where the frame's end (`r10`) is in the local array.
    end: u32,
    /// Touched at an unknown offset.
    in_memory: bool,
    /// Index of the counter of `may_goto`.
    counter: Option<usize>,
    /// Variables by the offset of their first byte: length in bytes and index.
    vars: BTreeMap<i64, (u32, usize)>,
}

/// The plan for all frames.
#[derive(Debug, Default)]
pub struct StackPlan {
    frames: Vec<Frame>,
    /// Number of variables.
    pub vars: usize,
    /// Number of counters of `may_goto`, which are variables behind those of the stack.
    pub counters: usize,
    /// Bytes of the local array.
    pub bytes: u32,
}

/// Naturally aligned accesses that cover `size` bytes from `offset`.
pub fn chunks(offset: i64, size: u64) -> impl Iterator<Item = (i64, Width)> {
    let end = offset.saturating_add_unsigned(size);
    let mut at = offset;
    std::iter::from_fn(move || {
        let left = end - at;
        let width = [Width::W64, Width::W32, Width::W16, Width::W8]
            .into_iter()
            .find(|w| left >= i64::from(w.bytes()) && at % i64::from(w.bytes()) == 0)?;
        let piece = (at, width);
        at += i64::from(width.bytes());
        Some(piece)
    })
}

/// Bytes of a key as programs pass it.
pub fn key_size(layout: &MapLayout) -> u64 {
    match layout {
        MapLayout::Array(_) | MapLayout::PerThread(_) => 4,
        MapLayout::Hash(l) => u64::from(l.key_size),
        MapLayout::Lru(l) => u64::from(l.key_size),
        MapLayout::Hosted(l) => u64::from(l.key_size),
        MapLayout::Ring(_) | MapLayout::Queue(_) | MapLayout::Bloom(_) | MapLayout::UserRing(_) => {
            0
        }
    }
}

/// Bytes of a value as programs pass it.
pub fn value_size(layout: &MapLayout) -> u64 {
    match layout {
        MapLayout::Array(l) => u64::from(l.value_size),
        MapLayout::PerThread(l) => u64::from(l.value_size),
        MapLayout::Hash(l) => u64::from(l.value_size),
        MapLayout::Lru(l) => u64::from(l.value_size),
        MapLayout::Hosted(l) => u64::from(l.value_size),
        MapLayout::Queue(l) => u64::from(l.value_size),
        MapLayout::Bloom(l) => u64::from(l.value_size),
        MapLayout::Ring(_) | MapLayout::UserRing(_) => 0,
    }
}

impl StackPlan {
    /// Looks at every access.
    pub fn new(code: &Code, facts: &Facts, maps: &[MapBinding]) -> StackPlan {
        let depth = facts
            .instances
            .iter()
            .map(|i| i.frame as usize + 1)
            .max()
            .unwrap_or(0);
        let mut plan = StackPlan {
            frames: (0..depth).map(|_| Frame::default()).collect(),
            ..StackPlan::default()
        };
        let live = || {
            facts.instances.iter().flat_map(|instance| {
                let pcs = (instance.start.0..).map(Pc);
                let reached = pcs
                    .zip(&instance.insns)
                    .filter(|(_, fact)| **fact != InsnFact::Dead);
                reached.map(|(pc, fact)| (instance.frame as usize, code.at(pc), fact))
            })
        };
        for (frame, data) in plan.frames.iter_mut().enumerate() {
            let size = facts
                .instances
                .iter()
                .filter(|i| i.frame as usize == frame)
                .map(|i| i.stack_bytes)
                .max();
            plan.bytes += size.unwrap_or(0).next_multiple_of(8);
            data.end = plan.bytes;
        }
        // A program may have the address of a stack that it does not use: that needs an array too.
        plan.bytes = plan.bytes.max(8);
        let mut touches = Touches {
            frames: (0..depth).map(|_| Some(Vec::new())).collect(),
        };
        for (_, insn, fact) in live() {
            touches.insn(insn, fact, maps);
        }
        for (frame, touched) in touches.frames.into_iter().enumerate() {
            match touched {
                None => plan.frames[frame].in_memory = true,
                Some(ranges) => plan.promote(frame, ranges),
            }
        }
        for (frame, insn, _) in live() {
            let counter = &mut plan.frames[frame].counter;
            if matches!(insn, Insn::MayGoto { .. }) && counter.is_none() {
                *counter = Some(plan.vars + plan.counters);
                plan.counters += 1;
            }
        }
        plan
    }

    /// Makes a variable of each group of overlapping accesses. They are naturally aligned, so one
    /// contains the others.
    fn promote(&mut self, frame: usize, mut ranges: Vec<(i64, u32)>) {
        ranges.sort_by_key(|&(offset, size)| (offset, std::cmp::Reverse(size)));
        let mut end = i64::MIN;
        for (offset, size) in ranges {
            if offset >= end {
                self.frames[frame].vars.insert(offset, (size, self.vars));
                self.vars += 1;
                end = offset + i64::from(size);
            }
        }
    }

    /// The variable that holds a naturally aligned access, or `None` if it is in memory.
    pub fn part(&self, frame: u32, offset: i64, width: Width) -> Option<Part> {
        let frame = self.frames.get(frame as usize).filter(|f| !f.in_memory)?;
        let (&start, &(size, var)) = frame.vars.range(..=offset).next_back()?;
        let skip = offset - start;
        (skip + i64::from(width.bytes()) <= i64::from(size)).then_some(Part {
            var,
            shift: skip as u32 * 8,
            bits: size * 8,
        })
    }

    /// The variable that counts the rounds of a frame's `may_goto`s, if it has any.
    pub fn counter(&self, frame: u32) -> Option<usize> {
        self.frames.get(frame as usize).and_then(|f| f.counter)
    }

    /// Where `r10` of a frame points in the local array.
    pub fn frame_end(&self, frame: u32) -> u32 {
        self.frames.get(frame as usize).map_or(0, |f| f.end)
    }
}

/// The helper writes a text, byte by byte.
fn is_text(helper: HelperId) -> bool {
    helper.reads_string() || helper == HelperId::Snprintf
}

fn is_kfunc(insn: &Insn) -> bool {
    matches!(
        insn,
        Insn::Call {
            callee: Callee::Kfunc(_)
        }
    )
}

/// Ranges touched per frame; `None` once a frame was touched at an unknown offset.
struct Touches {
    frames: Vec<Option<Vec<(i64, u32)>>>,
}

impl Touches {
    fn insn(&mut self, insn: &Insn, fact: &InsnFact, maps: &[MapBinding]) {
        match fact {
            InsnFact::Dead | InsnFact::Plain | InsnFact::Branch { .. } => {}
            InsnFact::Access(place) => {
                let width = match insn {
                    // An iterator: two numbers of 4 bytes.
                    insn if is_kfunc(insn) => {
                        self.place(*place, Some(4));
                        let end = place.offset.map(|o| o + 4);
                        self.place(
                            Place {
                                offset: end,
                                ..*place
                            },
                            Some(4),
                        );
                        return;
                    }
                    Insn::Load { width, .. }
                    | Insn::Store { width, .. }
                    | Insn::Atomic { width, .. }
                    | Insn::LoadAcquire { width, .. }
                    | Insn::StoreRelease { width, .. } => *width,
                    _ => return,
                };
                self.place(*place, Some(u64::from(width.bytes())));
            }
            InsnFact::Call(call) => {
                let layout = call
                    .map
                    .and_then(|m| Some((m, maps.get((m & !INNER) as usize)?)))
                    .and_then(|(m, b)| {
                        if m & INNER == 0 {
                            Some(&b.layout)
                        } else {
                            b.inner.as_ref()
                        }
                    });
                let signature = helpers::of(call.helper);
                for (i, (kind, arg)) in signature.args.iter().zip(&call.args).enumerate() {
                    let ArgFact::Pointer(place) = arg else {
                        continue;
                    };
                    let size = match kind {
                        Arg::MapKey => layout.map(key_size),
                        Arg::MapValue | Arg::MapValueOut => layout.map(value_size),
                        Arg::U64Out => Some(8),
                        Arg::Dynptr | Arg::DynptrOut | Arg::DynptrRecord => Some(DYNPTR_BYTES),
                        // Texts are made in memory.
                        Arg::MemWrite if is_text(call.helper) && call.own_source().is_none() => {
                            None
                        }
                        Arg::MemRead | Arg::MemReadOrNull | Arg::MemWrite | Arg::Values => {
                            match call.args.get(i + 1) {
                                Some(ArgFact::Scalar { value, .. }) => *value,
                                _ => None,
                            }
                        }
                        // What `bpf_probe_read` copies, where that is the program's own.
                        Arg::Scalar => match i.checked_sub(1).map(|size| call.args[size]) {
                            Some(ArgFact::Scalar { value, .. }) => value,
                            _ => None,
                        },
                        Arg::None
                        | Arg::Map
                        | Arg::Size
                        | Arg::ConstSize
                        | Arg::Record
                        | Arg::Format
                        | Arg::ConstString
                        | Arg::Callback
                        | Arg::CallbackContext
                        | Arg::SizeOrZero
                        | Arg::FormatString
                        | Arg::Context
                        | Arg::DynptrMemory => continue,
                    };
                    self.place(*place, size);
                }
            }
        }
    }

    /// Notes an access of `size` bytes, or of an unknown number.
    fn place(&mut self, place: Place, size: Option<u64>) {
        let Region::Stack { frame } = place.region else {
            return;
        };
        let Some(entry) = self.frames.get_mut(frame as usize) else {
            return;
        };
        match (place.offset, size, entry.as_mut()) {
            (_, _, None) => {}
            (Some(offset), Some(size), Some(ranges)) => {
                ranges.extend(chunks(offset, size).map(|(at, width)| (at, width.bytes())));
            }
            (None, _, _) | (_, None, _) => *entry = None,
        }
    }
}
