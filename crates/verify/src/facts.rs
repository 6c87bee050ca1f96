//! What the proof learned about each instruction, for the code generator: it never guesses a
//! region, a map or a stack offset, it reads them here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use warpbpf_abi::format;
use warpbpf_abi::helpers::{HELPERS, Helper, HelperId, Warp};
use warpbpf_ebpf::{Code, Insn, Pc, Width};
use warpbpf_object::MapDef;

/// Facts about a whole program. A local function is proved once per place it is called from,
/// because the regions its pointers point to differ from caller to caller; each such proof is an
/// [`Instance`], and the code generator inlines instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The first is the entry function; a callee comes after its caller.
    pub instances: Vec<Instance>,
    /// Deepest stack use of a path through the calls, in bytes.
    pub stack_bytes: u32,
    /// Upper bound of executed instructions, helpers counted at their cost in the `abi` table.
    pub cost: u64,
    /// The program can change what the application computes.
    pub modifies: bool,
    /// How often the `may_goto`s of one call of one function together fall through before they
    /// jump: each call frame starts a counter with this value, a `may_goto` jumps if it is 0, else
    /// takes 1 away and falls through.
    ///
    /// The proof chooses it: as in Linux (8,388,608) where `cost` keeps within the budget all the
    /// same, for instance because the loops end by themselves, else the largest number for which it
    /// does. 0 if there is no `may_goto`. Any smaller number is as safe.
    pub may_goto_rounds: u32,
    /// What is in the maps whose contents never change and from which the program loads: the proof
    /// has taken these bytes for granted.
    pub constants: BTreeMap<u32, Arc<[u8]>>,
}

impl Facts {
    /// What a load of `width` at this place gives each time, without its sign: the place is in a
    /// map whose contents never change.
    pub fn constant(&self, place: &Place, width: Width) -> Option<u64> {
        let bytes = self.constants.get(&place.map_value()?)?;
        word_at(bytes, place.offset?, width)
    }

    /// Some reachable call queues a message for the host.
    pub fn uses_printk(&self) -> bool {
        let printing =
            |fact: &InsnFact| matches!(fact, InsnFact::Call(call) if call.helper.prints());
        self.instances.iter().flat_map(|i| &i.insns).any(printing)
    }

    /// Some reachable call reads the application's memory.
    pub fn reads_application(&self) -> bool {
        let reading =
            |fact: &InsnFact| matches!(fact, InsnFact::Call(call) if call.reads_application());
        self.instances.iter().flat_map(|i| &i.insns).any(reading)
    }

    /// A helper by which the program aggregates over the threads of a block: all of them must run
    /// it.
    pub fn aggregates_over_block(&self) -> Option<&'static Helper> {
        let mut facts = self.instances.iter().flat_map(|i| &i.insns);
        facts.find_map(|fact| match fact {
            InsnFact::Call(call) => HELPERS
                .iter()
                .find(|h| h.kind == call.helper && h.warp == Warp::WholeBlock),
            _ => None,
        })
    }

    /// Maps whose values the program may change: it stores to one, or a helper may, to which it
    /// gives the map or a pointer into a value. `code` is what was proved.
    pub fn written_maps(&self, code: &Code) -> BTreeSet<u32> {
        let mut written = BTreeSet::new();
        for instance in &self.instances {
            let insns = &code.insns()[instance.start.index()..];
            for (fact, insn) in instance.insns.iter().zip(insns) {
                match fact {
                    InsnFact::Dead | InsnFact::Plain | InsnFact::Branch { .. } => {}
                    InsnFact::Access(place) => {
                        let loads = matches!(insn, Insn::Load { .. } | Insn::LoadAcquire { .. });
                        written.extend(place.map_value().filter(|_| !loads));
                    }
                    InsnFact::Call(call) => {
                        written.extend(call.map.filter(|_| !call.helper.only_looks()));
                        for arg in &call.args {
                            if let ArgFact::Pointer(place) = arg {
                                written.extend(place.map_value());
                            }
                        }
                    }
                }
            }
        }
        written
    }
}

/// One function as called from one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// First instruction of the function.
    pub start: Pc,
    /// One past its last instruction.
    pub end: Pc,
    /// Call depth: 0 for the entry function. Its stack is `Region::Stack { frame }`.
    pub frame: u32,
    /// One fact per instruction of `start..end`.
    pub insns: Vec<InsnFact>,
    /// For each call instruction of this instance that calls a local function, or a helper that
    /// calls one back: the index of the callee's instance. A callback's frame is one deeper than
    /// the caller's. A call that no path reaches has one of which everything is dead (and which has
    /// no callees of its own), except that a helper call has none then: which function it would
    /// call is not known.
    ///
    /// `bpf_loop` calls back at most as often as its first argument says, and at most 8,388,608
    /// times; `bpf_for_each_map_elem` at most `max_entries` times, `bpf_user_ringbuf_drain` at most
    /// [`UserRingLayout::SAMPLES`](warpbpf_abi::layout::UserRingLayout::SAMPLES) times: `cost`
    /// counts that.
    pub calls: BTreeMap<Pc, usize>,
    /// Bytes of stack that this function uses, below its frame pointer: a multiple of 8, at
    /// most 512.
    pub stack_bytes: u32,
}

impl Instance {
    /// The fact about `pc`, which lies in `start..end`.
    pub fn at(&self, pc: Pc) -> &InsnFact {
        &self.insns[pc.index() - self.start.index()]
    }
}

/// What is known of one instruction, on every path that reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InsnFact {
    /// No path reaches it.
    Dead,
    /// Nothing to know: arithmetic, exit, local calls.
    Plain,
    /// A load, store or atomic. For a call of an iterator's function, the 8 bytes of the iterator:
    /// on the stack, at a known multiple of 8.
    Access(Place),
    /// A helper call.
    Call(CallFact),
    /// A conditional jump and which of its sides can be taken. For `may_goto`, both can.
    Branch {
        /// The jump can be taken.
        taken: bool,
        /// The jump can fall through.
        falls: bool,
        /// The comparison is a null check: the register compared with zero holds a pointer or null.
        null_check: bool,
    },
}

/// A region of memory and an offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// Which memory.
    pub region: Region,
    /// Byte offset from the region's start, when it is the same on every path; for the stack it is
    /// negative, from the frame's end (what `r10` holds). `None` when it varies.
    pub offset: Option<i64>,
    /// The address is a multiple of this on every path: 1, 2, 4 or 8.
    pub align: u32,
}

impl Place {
    /// The address is a multiple of this, at most 8: a known offset tells it, because every region
    /// begins 8-aligned.
    pub fn alignment(&self) -> u64 {
        match self.offset {
            Some(offset) => 1 << (offset | 8).trailing_zeros(),
            None => self.align.into(),
        }
    }

    /// The map in a value of which it is.
    pub(crate) fn map_value(&self) -> Option<u32> {
        match self.region {
            Region::MapValue { map } => Some(map),
            Region::Stack { .. }
            | Region::Context
            | Region::Record { .. }
            | Region::MapKey { .. }
            | Region::Memory => None,
        }
    }
}

/// Marks the index of a map of maps: together they stand for the maps that are in it, of which
/// programs know only what the map of maps declares. The base address of such a map is what the
/// pointer to it holds.
pub const INNER: u32 = 1 << 31;

/// The definition of a map of the object, or of those in a map of maps ([`INNER`]).
pub fn map_def(maps: &[MapDef], index: u32) -> Option<&MapDef> {
    let def = maps.get((index & !INNER) as usize)?;
    if index & INNER != 0 {
        def.inner.as_deref()
    } else {
        Some(def)
    }
}

/// The kinds of memory a pointer can point to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Region {
    /// The stack of the function at call depth `frame` (0 is the entry function).
    Stack {
        /// Call depth.
        frame: u32,
    },
    /// The context in `r1`.
    Context,
    /// A value of map `map` (index into the object's maps), global data included.
    MapValue {
        /// Index of the map.
        map: u32,
    },
    /// A reserved ring buffer record of map `map`, or a sample of a user ring buffer.
    Record {
        /// Index of the map.
        map: u32,
    },
    /// The key that `bpf_for_each_map_elem` gives its callback; read only.
    MapKey {
        /// Index of the map.
        map: u32,
    },
    /// The memory in `r1` of a program that runs by itself:
    /// [`Platform::memory`](crate::Platform::memory) bytes.
    Memory,
}

/// A checked helper call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFact {
    /// The helper.
    pub helper: HelperId,
    /// The map argument, if the helper has one, or the map of the record, sample or dynptr among
    /// the arguments.
    pub map: Option<u32>,
    /// What is known of `r1` to `r5`.
    pub args: [ArgFact; 5],
    /// What the dynptr among the arguments stands for, if it is one on the stack: a value or a
    /// record of the map, from an address on that is a multiple of so many bytes, 1, 2, 4 or 8.
    pub memory: Option<(Region, u32)>,
    /// The maps of the constant strings among the values that a format is given in memory, in the
    /// order of its `%s`.
    pub strings: Option<Arc<[u32]>>,
    /// The constant string among the arguments, without its NUL.
    pub text: Option<Arc<[u8]>>,
}

impl CallFact {
    /// The call reads the application's memory.
    pub fn reads_application(&self) -> bool {
        let strings = || self.text.as_deref().map_or(0, format::strings);
        self.helper.reads_application() && self.own_source().is_none()
            || self.helper == HelperId::Snprintf && strings() > 0
    }

    /// What the call copies, if it is the program's own memory that a helper for the application's
    /// is given.
    pub fn own_source(&self) -> Option<Place> {
        match self.args[2] {
            ArgFact::Pointer(place) if self.helper.copies_memory() => Some(place),
            _ => None,
        }
    }

    /// The call sends a message whose text was made on the stack: no map has it, so the message
    /// must.
    pub fn carries_text(&self) -> bool {
        self.helper.prints()
            && matches!(self.args[0], ArgFact::Pointer(place) if matches!(place.region, Region::Stack { .. }))
    }
}

/// What is known of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgFact {
    /// The helper does not look at it.
    Unused,
    /// A map, by index.
    Map(u32),
    /// A scalar; `value` if it is the same on every path.
    Scalar {
        /// Its constant value.
        value: Option<u64>,
        /// Largest value it can have, unsigned.
        max: u64,
    },
    /// A pointer to memory that the helper may read or write as its table row says. Only for
    /// [`Arg::U64Out`](warpbpf_abi::helpers::Arg::U64Out) and records is it proved to be a multiple
    /// of 8; keys, values and buffers may be anywhere that `Place::offset` does not rule out. Or to
    /// a dynptr on the stack, at a multiple of 8: [`CallFact::memory`] has what that stands for.
    Pointer(Place),
    /// A local function that the helper calls back: [`Instance::calls`] has its instance.
    Callback,
    /// A sample of the call's map.
    Sample,
}

/// A number read from constant bytes, with zeros above its bits, if all of it is inside them.
pub(crate) fn word_at(bytes: &[u8], offset: i64, width: Width) -> Option<u64> {
    let start = usize::try_from(offset).ok()?;
    let bytes = bytes.get(start..start.checked_add(width.bytes() as usize)?)?;
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    Some(u64::from_le_bytes(word))
}
