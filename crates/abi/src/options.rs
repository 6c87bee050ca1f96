//! What a user chose, as it travels from the command line to the agent and the session there.
//!
//! It is one type on the whole way: a new choice is a field here, a flag of the command line that
//! sets the field, and the place that reads it.

use alloc::string::String;
use alloc::vec::Vec;

use crate::choice::{Choice, ChoiceRequest};
use crate::maps::Placement;

/// What a user chose. Agent and tool are of one protocol version, so both know all fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Options {
    /// Accept programs that can change what the application computes.
    pub allow_modify: bool,
    /// Instructions that one invocation may execute, instead of the site's default.
    pub budget: Option<u64>,
    /// Loops for which the proof finds no bound, or a higher one than the budget, are ended when
    /// they run. Each time counts, in an array behind the object's maps
    /// ([`STOPS`](crate::names::STOPS)).
    pub bound_loops: bool,
    /// Refuse programs of which lanes of a warp go different ways, or work on different keys or
    /// places.
    pub strict_uniform: bool,
    /// Threads of per-thread arrays (1502) that do not say `map_extra`, instead of the default.
    pub threads: Option<u64>,
    /// Bytes of the event ring in the shared area: 64 MiB when absent, more if two sub-buffers of a
    /// ring need more; locked where there are rings.
    pub ring_bytes: Option<u64>,
    /// Registers per thread that the compiler may give to instrumented kernels. It then spills what
    /// it has no register for. Clones, which are compiled together with the application's own
    /// kernels, are not bound by it.
    pub max_registers: Option<u32>,
    /// Put each program into a kernel once, as a function that its sites call.
    pub out_of_line: bool,
    /// Load, with the maps, the kernels that change hashes and the like for the host while the
    /// application's kernels run.
    pub host_ops: bool,
    /// Sums reach their map at each pass of a place in the middle of a kernel, and not when the
    /// thread leaves.
    pub live_sums: bool,
    /// A gate stands in front of each program in a kernel, by which kernels that run are told not
    /// to run it.
    pub gate: bool,
    /// Beside each program in a kernel there is a slot for programs that come while kernels run.
    /// Then there is a gate.
    pub slots: bool,
    /// Whose memory maps lie in, by name, where it is not to be what their type says.
    pub map_memory: Vec<(String, Placement)>,
    /// Microseconds that a program waits for the host when it asks for a key of a hash that lies
    /// there; a second when absent.
    pub hostcall_timeout_us: Option<u64>,
    /// Which launches programs are in that say nothing else.
    pub choice: Choice,
    /// The same of programs, by name, each thing once: what is said here goes before what their
    /// sections say, and that before [`Options::choice`]. A program that there is not, or not yet,
    /// is none's.
    pub choose: Vec<(String, ChoiceRequest)>,
    /// The application's calls of NVTX are to come to the agent, though no program needs them yet:
    /// a replacement may bring one that does.
    pub ranges: bool,
    /// Parts per million that launches of a kernel may take longer with programs than without;
    /// kernels that pass it run without.
    pub max_overhead_ppm: Option<u32>,
    /// Bytes that maps, rings and launch records may take of each device's memory.
    pub max_device_memory: Option<u64>,
    /// Tell when the device began and ended each operation of the application. Then there need be
    /// no object.
    pub timeline: bool,
    /// With a timeline: tell from where on the CPU each operation was asked for.
    pub stacks: bool,
    /// Kernels of which there is only machine code get programs at their entry and exits, by the
    /// functions that the tool assembled.
    pub splice: bool,
    /// Where Compute Sanitizer is there: kernels that can have all of their programs by `splice`
    /// have them so, and it serves the others.
    pub splice_first: bool,
    /// Kernels of machine code get programs, too, that use variables of their module, by the
    /// addresses of those; with `splice` alone.
    pub splice_variables: bool,
    /// Kernels of machine code for sm_90 get programs at their loads and stores of global memory,
    /// too: an experiment; with `splice` alone.
    pub splice_memory: bool,
    /// Kernels that were loaded before the attach and are in no file that is mapped are looked for
    /// among what Triton keeps on disk.
    pub caches: bool,
    /// What the application asks about a kernel (attributes, blocks and clusters that fit) is
    /// answered of the instrumented one, where that has less room.
    pub occupancy_instrumented: bool,
}
