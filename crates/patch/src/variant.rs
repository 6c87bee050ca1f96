//! What the splicer makes: the contract with the session and the launch path.

use warpbpf_abi::attach::Site;
use warpbpf_abi::layout::launch;

/// An instrumented kernel, as PTX text plus all that loading and launching it needs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Variant {
    /// Name of the instrumented `.entry`.
    pub entry: String,
    /// Slots beyond the session's own that must hold addresses of the original module's variables:
    /// `(slot, variable name)`.
    pub globals: Vec<(u32, String)>,
    /// Length of the slot table.
    pub slot_count: u32,
    /// The hidden trailing parameter, if a scope or an aggregate over a block needs the launch
    /// record, a program reads the launch's number or its node of a graph, or programs are in
    /// different launches.
    pub hidden: Option<HiddenParam>,
    /// Offsets and sizes of the original's parameters.
    pub params: Vec<ParamLayout>,
    /// The sites in the middle of the kernel and its functions that got code, in the order of their
    /// numbers.
    pub sites: Vec<SiteInfo>,
    /// Sites that a program wanted and did not get, with the reason.
    pub left_out: Vec<(SiteInfo, String)>,
    /// By attachment: at how many places its program stands. One at a kernel's start, and one at
    /// its end.
    pub placed: Vec<u32>,
}

/// A place in the middle of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteInfo {
    /// Its number, as the context's field `site` gives it; 0 if it was left out.
    pub number: u32,
    /// Kind of place.
    pub site: Site,
    /// Function as the module names it: the kernel, or one that it reaches.
    pub function: String,
    /// Opcode with modifiers as written; empty for a function's start.
    pub op: String,
    /// Source file and line by `.loc`, that of the outermost call where code was inlined.
    pub at: Option<(String, u32)>,
    /// Line of the module's text.
    pub text_line: usize,
}

/// A parameter in the kernel's parameter buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamLayout {
    /// Byte offset.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// The parameter that the launch path appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HiddenParam {
    /// Its byte offset, 8-aligned, after the original's parameters.
    pub offset: u64,
    /// Cells that the launch record has for each block, of calls that aggregate over it.
    pub block_cells: u32,
    /// The launch record has a counter per block.
    pub block_counters: bool,
    /// The launch record has a counter per warp.
    pub warp_counters: bool,
    /// A program asks which node of a graph it is.
    pub node: bool,
    /// It says which programs are in the launch.
    pub chosen: bool,
}

impl HiddenParam {
    /// Its launch record counts arrivals; else there is none.
    pub fn counts(&self) -> bool {
        self.block_counters || self.warp_counters || self.block_cells > 0
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        launch::param_size(self.chosen)
    }
}
