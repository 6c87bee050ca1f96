//! The helper table: numbers, signatures, effects and worst-case costs. Linux's numbers where Linux has the helper,
//! bpftime's 501 to 511 with their bugs fixed.
//!
//! None needs the lanes of a warp together today: code generation takes the lanes that are there. The column exists
//! because the verifier's rule does, and a helper that exchanges values between lanes will need it.

use crate::layout::{HashLayout, RingLayout};
use crate::maps::MapType;

/// What an argument must be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arg {
    /// Not used.
    None,
    /// Any initialised scalar.
    Scalar,
    /// A map of the program.
    Map,
    /// Readable memory of the map's key size.
    MapKey,
    /// Readable memory of the map's value size.
    MapValue,
    /// Readable memory; its size in bytes is the next argument.
    MemRead,
    /// Size of the previous memory argument: a scalar with a known upper bound, at least 1.
    Size,
    /// Size of a ring buffer record: a known constant.
    ConstSize,
    /// Eight writable bytes; need not be initialised before, are after.
    U64Out,
    /// A record from `ringbuf_reserve`, given back.
    Record,
    /// A format string: constant bytes of a read-only map (`.rodata`), NUL-terminated within the next argument's size.
    Format,
    /// A NUL-terminated constant string of `.rodata` without a size argument.
    ConstString,
    /// A local function that the helper calls.
    Callback,
    /// What the callback gets as its last argument: a pointer into the stack, or 0.
    CallbackContext,
    /// Writable memory; its size in bytes is the next argument. Need not be initialised before, is after.
    MemWrite,
    /// As [`Arg::MemRead`]; null too, if its size is 0.
    MemReadOrNull,
    /// As [`Arg::Size`], but it may be 0.
    SizeOrZero,
    /// The context, as it was in `r1` at the start.
    Context,
}

/// What is in `r0` after the call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ret {
    /// A scalar.
    Scalar,
    /// A value of the map in argument 1, or null.
    MapValueOrNull,
    /// A record of the size in argument 2, or null: must be submitted or discarded on every path.
    RecordOrNull,
    /// The helper does not return.
    Never,
}

/// What a helper may do to the application.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Reads the machine; touches nothing.
    Observe,
    /// Changes our own maps only.
    Map,
    /// Orders this thread's memory accesses; changes no value.
    Order,
    /// Can change what the application computes: needs `--allow-modify`.
    Modify,
}

/// Which lanes must make a call. A *group* is the lanes of a warp that arrived at the site together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Warp {
    /// Any: each lane is served by itself, or the code takes those that `activemask` finds. Allowed under every branch.
    AnyLanes,
    /// Every lane of the group, because lanes wait for each other in it: a call that only some lanes reach would wait
    /// for lanes that never come.
    Together,
    /// As [`Warp::Together`], and with the same arguments in each.
    TogetherAlike,
}

/// When what a helper gives (its result and the memory that it writes) is the same in all lanes of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Uniform {
    /// Not known to be: it depends on the lane, on the instant of the call, or on memory that other threads write.
    /// Lanes of a group may make "the same" call at different instants, so `%smid` and `%warpid` are here: a warp that
    /// is moved in between answers differently (PTX ISA, "Special Registers").
    Varies,
    /// If the arguments are, with the memory that they point to.
    ByArguments,
}

/// One helper.
#[derive(Clone, Copy, Debug)]
pub struct Helper {
    /// Call number.
    pub id: u32,
    /// Name without `bpf_`, as in messages and documentation.
    pub name: &'static str,
    /// The enum constant.
    pub kind: HelperId,
    /// Arguments.
    pub args: [Arg; 5],
    /// Result.
    pub ret: Ret,
    /// Effect.
    pub effect: Effect,
    /// Which lanes must make the call.
    pub warp: Warp,
    /// When all lanes of a group get the same. [`MAP_OPS`] may know better.
    pub uniform: Uniform,
    /// What a call counts for in the budget, in executed PTX instructions; for maps see [`MAP_OPS`].
    pub cost: u32,
    /// C prototype for the header.
    pub prototype: &'static str,
    /// One paragraph for header and documentation.
    pub doc: &'static str,
}

macro_rules! helpers {
    ($( $kind:ident = $id:literal, $name:literal, ($($arg:ident),*) -> $ret:ident, $effect:ident, $warp:ident, $uniform:ident, $cost:literal,
        $proto:literal, $doc:literal; )*) => {
        /// Helpers by name.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u32)]
        pub enum HelperId {
            $( #[doc = $doc] $kind = $id, )*
            /// The kind of a row of another environment, which is none of ours: that row says all there is to know of
            /// the helper, and no code generator knows it. Its number is Linux's for no helper, `BPF_FUNC_unspec`.
            Foreign = 0,
        }

        /// The table, by number.
        pub static HELPERS: &[Helper] = &[ $( Helper {
            id: $id, name: $name, kind: HelperId::$kind,
            args: pad(&[$(Arg::$arg),*]), ret: Ret::$ret, effect: Effect::$effect,
            warp: Warp::$warp, uniform: Uniform::$uniform, cost: $cost,
            prototype: $proto, doc: $doc,
        } ),* ];
    };
}

const fn pad(args: &[Arg]) -> [Arg; 5] {
    let mut all = [Arg::None; 5];
    let mut i = 0;
    while i < args.len() {
        all[i] = args[i];
        i += 1;
    }
    all
}

helpers! {
    MapLookupElem = 1, "map_lookup_elem", (Map, MapKey) -> MapValueOrNull, Observe, AnyLanes, Varies, 400,
        "static void *(*bpf_map_lookup_elem)(void *map, const void *key)",
        "Pointer to the value of `key`, or NULL. Per-SM and per-thread maps give the caller's own copy.";
    MapUpdateElem = 2, "map_update_elem", (Map, MapKey, MapValue, Scalar) -> Scalar, Map, AnyLanes, Varies, 900,
        "static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags)",
        "Writes a value. 0, or -EEXIST, -ENOENT, -E2BIG (full, or outside an array), -EBUSY (retry bound reached, counted), -EINVAL.";
    MapDeleteElem = 3, "map_delete_elem", (Map, MapKey) -> Scalar, Map, AnyLanes, Varies, 500,
        "static long (*bpf_map_delete_elem)(void *map, const void *key)",
        "Removes a key from a hash. 0 or -ENOENT; -EINVAL for arrays.";
    ProbeRead = 4, "probe_read", (MemWrite, SizeOrZero, Scalar) -> Scalar, Observe, AnyLanes, Varies, 320,
        "static long (*bpf_probe_read)(void *dst, __u32 size, const void *unsafe_ptr)",
        "Reads the application's memory at a generic address: any allocation that CUDA made or knows of and that lives now, and this block's shared memory. 0; or -EFAULT if not all of it is there, and `dst` is zeroed.";
    KtimeGetNs = 5, "ktime_get_ns", () -> Scalar, Observe, AnyLanes, Varies, 24,
        "static __u64 (*bpf_ktime_get_ns)(void)",
        "Nanoseconds of the host's CLOCK_MONOTONIC, from %globaltimer and a calibration that the host renews.";
    TracePrintk = 6, "trace_printk", (Format, Size, Scalar, Scalar, Scalar) -> Scalar, Map, AnyLanes, Varies, 260,
        "static long (*bpf_trace_printk)(const char *fmt, __u32 fmt_size, ...)",
        "Queues a message; the host formats it. Never waits; the number of lost messages is reported. Returns the record size or -EAGAIN.";
    GetSmpProcessorId = 8, "get_smp_processor_id", () -> Scalar, Observe, AnyLanes, Varies, 1,
        "static __u32 (*bpf_get_smp_processor_id)(void)",
        "The multiprocessor (%smid).";
    GetCurrentPidTgid = 14, "get_current_pid_tgid", () -> Scalar, Observe, AnyLanes, ByArguments, 4,
        "static __u64 (*bpf_get_current_pid_tgid)(void)",
        "Process id of the application in both halves: a kernel has no host thread.";
    ProbeReadUser = 112, "probe_read_user", (MemWrite, SizeOrZero, Scalar) -> Scalar, Observe, AnyLanes, Varies, 320,
        "static long (*bpf_probe_read_user)(void *dst, __u32 size, const void *unsafe_ptr)",
        "As bpf_probe_read: a kernel's addresses are of one kind.";
    ProbeReadKernel = 113, "probe_read_kernel", (MemWrite, SizeOrZero, Scalar) -> Scalar, Observe, AnyLanes, Varies, 320,
        "static long (*bpf_probe_read_kernel)(void *dst, __u32 size, const void *unsafe_ptr)",
        "As bpf_probe_read: a kernel's addresses are of one kind.";
    RingbufOutput = 130, "ringbuf_output", (Map, MemRead, Size, Scalar) -> Scalar, Map, AnyLanes, Varies, 700,
        "static long (*bpf_ringbuf_output)(void *ringbuf, void *data, __u64 size, __u64 flags)",
        "Copies a record into the ring. 0, or -EAGAIN when there is no room (counted).";
    RingbufReserve = 131, "ringbuf_reserve", (Map, ConstSize, Scalar) -> RecordOrNull, Map, AnyLanes, Varies, 400,
        "static void *(*bpf_ringbuf_reserve)(void *ringbuf, __u64 size, __u64 flags)",
        "Room for a record of constant size, or NULL when there is none (counted).";
    RingbufSubmit = 132, "ringbuf_submit", (Record, Scalar) -> Scalar, Map, AnyLanes, Varies, 60,
        "static void (*bpf_ringbuf_submit)(void *data, __u64 flags)",
        "Publishes a reserved record.";
    RingbufDiscard = 133, "ringbuf_discard", (Record, Scalar) -> Scalar, Map, AnyLanes, Varies, 60,
        "static void (*bpf_ringbuf_discard)(void *data, __u64 flags)",
        "Gives a reserved record back unseen.";
    ForEachMapElem = 164, "for_each_map_elem", (Map, Callback, CallbackContext, Scalar) -> Scalar, Map, AnyLanes, Varies, 20,
        "static long (*bpf_for_each_map_elem)(void *map, void *callback_fn, void *callback_ctx, __u64 flags)",
        "Calls `long callback(map, const void *key, void *value, void *ctx)` for each element until it returns 1. The number of calls, or -EINVAL if `flags` is not 0.";
    Loop = 181, "loop", (Scalar, Callback, CallbackContext, Scalar) -> Scalar, Map, AnyLanes, Varies, 10,
        "static long (*bpf_loop)(__u32 nr_loops, void *callback_fn, void *callback_ctx, __u64 flags)",
        "Calls `long callback(__u64 index, void *ctx)` up to `nr_loops` times until it returns 1. The number of calls; -EINVAL if `flags` is not 0, -E2BIG above 8,388,608 loops.";
    GpuPuts = 501, "gpu_puts", (ConstString) -> Scalar, Map, AnyLanes, Varies, 260,
        "static long (*bpf_gpu_puts)(const char *text)",
        "Queues a constant string, as trace_printk does.";
    GpuGlobaltimer = 502, "gpu_globaltimer", () -> Scalar, Observe, AnyLanes, Varies, 1,
        "static __u64 (*bpf_gpu_globaltimer)(void)",
        "%globaltimer in nanoseconds, on the device's own clock.";
    GpuBlockIdx = 503, "gpu_block_idx", (U64Out, U64Out, U64Out) -> Scalar, Observe, AnyLanes, ByArguments, 6,
        "static long (*bpf_gpu_block_idx)(__u64 *x, __u64 *y, __u64 *z)",
        "blockIdx.";
    GpuBlockDim = 504, "gpu_block_dim", (U64Out, U64Out, U64Out) -> Scalar, Observe, AnyLanes, ByArguments, 6,
        "static long (*bpf_gpu_block_dim)(__u64 *x, __u64 *y, __u64 *z)",
        "blockDim.";
    GpuThreadIdx = 505, "gpu_thread_idx", (U64Out, U64Out, U64Out) -> Scalar, Observe, AnyLanes, Varies, 6,
        "static long (*bpf_gpu_thread_idx)(__u64 *x, __u64 *y, __u64 *z)",
        "threadIdx.";
    GpuMembar = 506, "gpu_membar", () -> Scalar, Order, AnyLanes, ByArguments, 40,
        "static long (*bpf_gpu_membar)(void)",
        "membar.sys: this thread's earlier writes are seen before its later ones, by the host too.";
    GpuExit = 507, "gpu_exit", () -> Never, Modify, AnyLanes, ByArguments, 1,
        "static void (*bpf_gpu_exit)(void)",
        "Ends the thread. Changes what the application computes.";
    GpuGridDim = 508, "gpu_grid_dim", (U64Out, U64Out, U64Out) -> Scalar, Observe, AnyLanes, ByArguments, 6,
        "static long (*bpf_gpu_grid_dim)(__u64 *x, __u64 *y, __u64 *z)",
        "gridDim.";
    GpuSmId = 509, "gpu_sm_id", () -> Scalar, Observe, AnyLanes, Varies, 1,
        "static __u64 (*bpf_gpu_sm_id)(void)",
        "%smid.";
    GpuWarpId = 510, "gpu_warp_id", () -> Scalar, Observe, AnyLanes, Varies, 1,
        "static __u64 (*bpf_gpu_warp_id)(void)",
        "%warpid: the warp's place on its SM; may change while a thread runs (PTX ISA).";
    GpuLaneId = 511, "gpu_lane_id", () -> Scalar, Observe, AnyLanes, Varies, 1,
        "static __u64 (*bpf_gpu_lane_id)(void)",
        "%laneid.";
    GpuRead = 520, "gpu_read", (MemWrite, SizeOrZero, Scalar, Scalar) -> Scalar, Observe, AnyLanes, Varies, 320,
        "static long (*bpf_gpu_read)(void *dst, __u32 size, __u64 address, __u32 space)",
        "As bpf_probe_read, at an address in the state space `space` (WBPF_SPACE_*), as the context of gpu/mem has it: generic, global, or this block's shared memory. -EFAULT for any other space.";
}

impl HelperId {
    /// It reads the application's memory: size in argument 2, [`READ_WORD_COST`] for each 8 bytes beyond the row's cost.
    pub const fn reads_application(self) -> bool {
        matches!(
            self,
            HelperId::ProbeRead
                | HelperId::ProbeReadUser
                | HelperId::ProbeReadKernel
                | HelperId::GpuRead
        )
    }
}

/// Instructions for each 8 bytes that a helper reads of the application's memory, byte by byte as it may have to. The rest
/// (counting in and out, at most [`crate::layout::fence::STEPS`] steps of a search) is in the helper's own row.
pub const READ_WORD_COST: u64 = 72;

/// A map operation on one type of map: what replaces the columns of the helper's own row.
#[derive(Clone, Copy, Debug)]
pub struct MapOp {
    /// The helper.
    pub helper: HelperId,
    /// The type of its map.
    pub map_type: MapType,
    /// When all lanes of a group get the same; what a callback gets, if there is one.
    pub uniform: Uniform,
    /// What a call counts for in the budget, in executed PTX instructions,
    pub cost: u32,
    /// and for each 8 bytes that it hashes, compares or copies: key and value, or record.
    pub per_word: u32,
    /// Most times that its loop goes round, by the code's own bound: what a call can cost beyond `cost`, when the map
    /// is crowded, is so many rounds of `round` instructions.
    pub rounds: u32,
    /// Instructions of a round.
    pub round: u32,
}

macro_rules! map_ops {
    ($( $helper:ident on $map:ident: $uniform:ident, $cost:literal + $per_word:literal, $rounds:expr, $round:literal; )*) => {
        /// Map operations by helper and map type: a helper that is here works on the types of map that are here with it.
        /// What is looked up in an array has a fixed place that all lanes share; what is looked up in a hash may come
        /// and go between two lanes' calls.
        pub static MAP_OPS: &[MapOp] = &[ $( MapOp {
            helper: HelperId::$helper, map_type: MapType::$map, uniform: Uniform::$uniform,
            cost: $cost, per_word: $per_word, rounds: $rounds, round: $round,
        } ),* ];
    };
}

map_ops! {
    MapLookupElem on Array: ByArguments, 12 + 0, 0, 0;
    MapLookupElem on PercpuArray: Varies, 24 + 0, 0, 0;
    MapLookupElem on PerThreadArray: Varies, 48 + 0, 0, 0;
    MapLookupElem on Hash: Varies, 400 + 16, HashLayout::PROBES, 24;
    MapUpdateElem on Array: ByArguments, 24 + 16, 0, 0;
    MapUpdateElem on PercpuArray: Varies, 36 + 16, 0, 0;
    MapUpdateElem on PerThreadArray: Varies, 60 + 16, 0, 0;
    MapUpdateElem on Hash: Varies, 900 + 16, HashLayout::PROBES, 48;
    MapDeleteElem on Array: ByArguments, 4 + 0, 0, 0;
    MapDeleteElem on PercpuArray: ByArguments, 4 + 0, 0, 0;
    MapDeleteElem on PerThreadArray: ByArguments, 4 + 0, 0, 0;
    MapDeleteElem on Hash: Varies, 500 + 16, HashLayout::PROBES, 24;
    RingbufOutput on Ringbuf: Varies, 400 + 16, RingLayout::RETRIES, 16;
    RingbufReserve on Ringbuf: Varies, 400 + 0, RingLayout::RETRIES, 16;
    ForEachMapElem on Array: ByArguments, 20 + 0, 0, 0;
    ForEachMapElem on PercpuArray: Varies, 20 + 0, 0, 0;
    ForEachMapElem on PerThreadArray: Varies, 20 + 0, 0, 0;
    ForEachMapElem on Hash: Varies, 20 + 0, 0, 0;
}

/// The helper works on maps of this type. One without rows in [`MAP_OPS`] works on any: it takes no map of ours, or it is
/// [`HelperId::Foreign`].
pub fn takes(helper: HelperId, map_type: MapType) -> bool {
    map_op(helper, map_type).is_some() || MAP_OPS.iter().all(|op| op.helper != helper)
}

/// The row of a helper on this type of map, if the type matters.
pub fn map_op(helper: HelperId, map_type: MapType) -> Option<&'static MapOp> {
    MAP_OPS
        .iter()
        .find(|op| op.helper == helper && op.map_type == map_type)
}

/// The helper with this number.
pub fn by_id(id: u32) -> Option<&'static Helper> {
    HELPERS.iter().find(|h| h.id == id)
}

/// The table's row of a helper; of [`HelperId::Foreign`] one that claims nothing, as the table has none.
pub fn of(kind: HelperId) -> &'static Helper {
    // The macro makes enum and table from the same rows, so every other kind has its row.
    HELPERS.iter().find(|h| h.kind == kind).unwrap_or(&FOREIGN)
}

static FOREIGN: Helper = Helper {
    id: HelperId::Foreign as u32,
    name: "foreign",
    kind: HelperId::Foreign,
    args: [Arg::None; 5],
    ret: Ret::Scalar,
    effect: Effect::Modify,
    warp: Warp::AnyLanes,
    uniform: Uniform::Varies,
    cost: 1,
    prototype: "",
    doc: "",
};
