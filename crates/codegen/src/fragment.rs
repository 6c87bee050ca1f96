//! What the code generator makes and what it needs to know: the contract with the splicer and the
//! session.

use std::collections::{BTreeMap, BTreeSet};

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::context::Capture;
use warpbpf_abi::layout::{MapLayout, SumField};

/// The module that the code will stand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// `.version` of the module: never raised or lowered by us.
    pub ptx: (u32, u32),
    /// Number in `.target sm_NN`.
    pub sm: u32,
}

/// Where the slot table lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlotSpace {
    /// `.const`: an operand of the instruction, free.
    #[default]
    Const,
    /// `.global`: for modules whose constant bank is full.
    Global,
    /// In memory whose address is in [`warpbpf_abi::names::TABLE`]: for functions that stand in
    /// kernels without PTX, of which one text serves all.
    Table {
        /// The slot that holds the kernel's number.
        kernel: u32,
    },
}

impl SlotSpace {
    /// The state space as PTX names it.
    pub fn word(self) -> &'static str {
        match self {
            SlotSpace::Const => "const",
            SlotSpace::Global | SlotSpace::Table { .. } => "global",
        }
    }
}

/// Where a map of the object lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapBinding {
    /// Index in the slot table of its base address.
    pub slot: u32,
    /// Its index in the session, as written into printk records.
    pub session_index: u32,
    /// Its layout.
    pub layout: MapLayout,
    /// Of a map of maps: the layout of those that are in it.
    pub inner: Option<MapLayout>,
}

/// Everything outside the program that its code depends on.
#[derive(Debug, Clone)]
pub struct Env {
    /// The module.
    pub target: Target,
    /// Kind of site.
    pub site: Site,
    /// Scope. The splicer elects the lane; the code only needs to know whether several lanes run it
    /// together.
    pub scope: Scope,
    /// Value of the context field `kernel_id`.
    pub kernel_id: u64,
    /// One per map of the object, in its order.
    pub maps: Vec<MapBinding>,
    /// The ring that carries printk records.
    pub printk: Option<MapBinding>,
    /// Where the slot table lies.
    pub slots: SlotSpace,
    /// What the program gets.
    pub input: Input,
    /// Sums that only the host reads may be kept in registers and added to their map when the
    /// thread leaves ([`Fragment::tallies`]), instead of at each pass.
    pub keep_sums: bool,
    /// Lanes that are here together may wait for each other, to do for all what each would do. Not
    /// at places in machine code: which lanes come there is known to the kernel's own barriers
    /// only.
    pub meets: bool,
    /// The kernel's parameters, by position, that the context's `args` are; what follows them is 0.
    /// Empty: all in their order.
    pub args: Vec<u8>,
}

/// What a program gets in its argument registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Input {
    /// The context of its site in `r1`; what it returns is not kept.
    #[default]
    Context,
    /// For programs that run by themselves: each thread has `stride` bytes of memory of its own,
    /// from `slots[slot] + linear global thread index * stride` on. `r1` points to its first byte,
    /// `r2` holds `size`, and `r0` is written as 8 bytes at `size` rounded up to 8 when the program
    /// returns (not if helper 507 ends the thread).
    Memory {
        /// Index in the slot table of the base address, which is a multiple of 16.
        slot: u32,
        /// Bytes that the program was verified for.
        size: u32,
        /// A multiple of 16, at least `size` rounded up to 8, and 8 more.
        stride: u32,
    },
}

/// Code for one site: PTX statements in a `{ … }` scope of their own, which declare all registers
/// and labels they use, refer to nothing of the surrounding function but what the splicer sets up
/// (mask and captures), and always fall out at the end (or `exit`, for helper 507).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fragment {
    /// The block, braces included, newline at the end. It can be put at several sites of one
    /// function.
    pub body: String,
    /// Functions it calls: name → text of the whole `.func`. The same name always has the same
    /// text.
    pub functions: BTreeMap<String, String>,
    /// It reads the register [`warpbpf_abi::names::GROUP_MASK`], which the splicer must declare and
    /// set.
    pub uses_group_mask: bool,
    /// Registers it reads ([`Capture::register`]), which the splicer must declare and set.
    pub captures: BTreeSet<Capture>,
    /// Slots of the table it reads.
    pub slots: BTreeSet<u32>,
    /// Bytes of `.local` memory it declares.
    pub local_bytes: u32,
    /// Cells of the launch record that it has for each block: the splicer must declare
    /// [`warpbpf_abi::names::BLOCK_CELLS`] and set it to the address of the first, and every thread
    /// of the block must come exactly once.
    pub block_cells: u32,
    /// Registers it adds to ([`Tally::register`]), which the splicer must declare, start at 0, and
    /// see added to their places in the map when the thread leaves, by [`crate::tally::flush`].
    pub tallies: BTreeSet<Tally>,
}

/// A sum in a register: part of the field at `at` of a summed array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tally {
    /// Slot of the map's base address.
    pub slot: u32,
    /// Copies of the array, one per multiprocessor; at least 2.
    pub shards: u32,
    /// Distance of the copies in bytes.
    pub stride: u64,
    /// Byte offset of the field in a copy.
    pub at: u64,
    /// Bits of the field: 32 or 64.
    pub bits: u32,
}

impl Tally {
    /// Name of the register. Fields of 4 and of 8 bytes may begin at the same place.
    pub fn register(&self) -> String {
        format!("%wbpf_sum_{}_{}_{}", self.slot, self.at, self.bits)
    }
}

/// How one program uses one map, so that the session can choose its layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MapUse {
    /// Fields that are only ever added to, with results unused.
    pub adds: BTreeSet<SumField>,
    /// Why the map cannot be sharded and summed, if it cannot: a plain read or write, an escaping
    /// value pointer, an add at an unknown offset, a helper update.
    pub not_summable: Option<String>,
    /// What the program does to values in it is more than adding; keys may come and go by helpers.
    pub more_than_adds: bool,
}
