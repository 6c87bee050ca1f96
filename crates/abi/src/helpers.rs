//! The helper table: numbers, signatures, effects and worst-case costs. Linux's numbers where Linux has the helper,
//! bpftime's 501 to 511 with their bugs fixed.

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
    /// Can change what the application computes: needs `--allow-modify`.
    Modify,
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
    /// The result is the same in all lanes of a group if the arguments are.
    pub uniform: bool,
    /// Worst case in executed PTX instructions, loops included.
    pub cost: u32,
    /// C prototype for the header.
    pub prototype: &'static str,
    /// One paragraph for header and documentation.
    pub doc: &'static str,
}

macro_rules! helpers {
    ($( $kind:ident = $id:literal, $name:literal, ($($arg:ident),*) -> $ret:ident, $effect:ident, $uniform:literal, $cost:literal,
        $proto:literal, $doc:literal; )*) => {
        /// Helpers by name.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u32)]
        pub enum HelperId { $( #[doc = $doc] $kind = $id, )* }

        /// The table, by number.
        pub static HELPERS: &[Helper] = &[ $( Helper {
            id: $id, name: $name, kind: HelperId::$kind,
            args: pad(&[$(Arg::$arg),*]), ret: Ret::$ret, effect: Effect::$effect, uniform: $uniform, cost: $cost,
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
    MapLookupElem = 1, "map_lookup_elem", (Map, MapKey) -> MapValueOrNull, Observe, false, 400,
        "static void *(*bpf_map_lookup_elem)(void *map, const void *key)",
        "Pointer to the value of `key`, or NULL. Per-SM and per-thread maps give the caller's own copy.";
    MapUpdateElem = 2, "map_update_elem", (Map, MapKey, MapValue, Scalar) -> Scalar, Map, false, 900,
        "static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags)",
        "Writes a value. 0, or -EEXIST, -ENOENT, -E2BIG (full, or outside an array), -EBUSY (retry bound reached, counted), -EINVAL.";
    MapDeleteElem = 3, "map_delete_elem", (Map, MapKey) -> Scalar, Map, false, 500,
        "static long (*bpf_map_delete_elem)(void *map, const void *key)",
        "Removes a key from a hash. 0 or -ENOENT; -EINVAL for arrays.";
    KtimeGetNs = 5, "ktime_get_ns", () -> Scalar, Observe, false, 24,
        "static __u64 (*bpf_ktime_get_ns)(void)",
        "Nanoseconds of the host's CLOCK_MONOTONIC, from %globaltimer and a calibration that the host renews.";
    TracePrintk = 6, "trace_printk", (Format, Size, Scalar, Scalar, Scalar) -> Scalar, Map, false, 260,
        "static long (*bpf_trace_printk)(const char *fmt, __u32 fmt_size, ...)",
        "Queues a message; the host formats it. Never waits; the number of lost messages is reported. Returns the record size or -EAGAIN.";
    GetSmpProcessorId = 8, "get_smp_processor_id", () -> Scalar, Observe, true, 1,
        "static __u32 (*bpf_get_smp_processor_id)(void)",
        "The multiprocessor (%smid).";
    GetCurrentPidTgid = 14, "get_current_pid_tgid", () -> Scalar, Observe, true, 4,
        "static __u64 (*bpf_get_current_pid_tgid)(void)",
        "Process id of the application in both halves: a kernel has no host thread.";
    RingbufOutput = 130, "ringbuf_output", (Map, MemRead, Size, Scalar) -> Scalar, Map, false, 700,
        "static long (*bpf_ringbuf_output)(void *ringbuf, void *data, __u64 size, __u64 flags)",
        "Copies a record into the ring. 0, or -EAGAIN when there is no room (counted).";
    RingbufReserve = 131, "ringbuf_reserve", (Map, ConstSize, Scalar) -> RecordOrNull, Map, false, 400,
        "static void *(*bpf_ringbuf_reserve)(void *ringbuf, __u64 size, __u64 flags)",
        "Room for a record of constant size, or NULL when there is none (counted).";
    RingbufSubmit = 132, "ringbuf_submit", (Record, Scalar) -> Scalar, Map, false, 60,
        "static void (*bpf_ringbuf_submit)(void *data, __u64 flags)",
        "Publishes a reserved record.";
    RingbufDiscard = 133, "ringbuf_discard", (Record, Scalar) -> Scalar, Map, false, 60,
        "static void (*bpf_ringbuf_discard)(void *data, __u64 flags)",
        "Gives a reserved record back unseen.";
    ForEachMapElem = 164, "for_each_map_elem", (Map, Callback, CallbackContext, Scalar) -> Scalar, Map, false, 20,
        "static long (*bpf_for_each_map_elem)(void *map, void *callback_fn, void *callback_ctx, __u64 flags)",
        "Calls `long callback(map, const void *key, void *value, void *ctx)` for each element until it returns 1. The number of calls, or -EINVAL if `flags` is not 0.";
    Loop = 181, "loop", (Scalar, Callback, CallbackContext, Scalar) -> Scalar, Map, false, 10,
        "static long (*bpf_loop)(__u32 nr_loops, void *callback_fn, void *callback_ctx, __u64 flags)",
        "Calls `long callback(__u64 index, void *ctx)` up to `nr_loops` times until it returns 1. The number of calls; -EINVAL if `flags` is not 0, -E2BIG above 8,388,608 loops.";
    GpuPuts = 501, "gpu_puts", (ConstString) -> Scalar, Map, false, 260,
        "static long (*bpf_gpu_puts)(const char *text)",
        "Queues a constant string, as trace_printk does.";
    GpuGlobaltimer = 502, "gpu_globaltimer", () -> Scalar, Observe, false, 1,
        "static __u64 (*bpf_gpu_globaltimer)(void)",
        "%globaltimer in nanoseconds, on the device's own clock.";
    GpuBlockIdx = 503, "gpu_block_idx", (U64Out, U64Out, U64Out) -> Scalar, Observe, true, 6,
        "static long (*bpf_gpu_block_idx)(__u64 *x, __u64 *y, __u64 *z)",
        "blockIdx.";
    GpuBlockDim = 504, "gpu_block_dim", (U64Out, U64Out, U64Out) -> Scalar, Observe, true, 6,
        "static long (*bpf_gpu_block_dim)(__u64 *x, __u64 *y, __u64 *z)",
        "blockDim.";
    GpuThreadIdx = 505, "gpu_thread_idx", (U64Out, U64Out, U64Out) -> Scalar, Observe, true, 6,
        "static long (*bpf_gpu_thread_idx)(__u64 *x, __u64 *y, __u64 *z)",
        "threadIdx.";
    GpuMembar = 506, "gpu_membar", () -> Scalar, Observe, true, 40,
        "static long (*bpf_gpu_membar)(void)",
        "membar.sys: this thread's earlier writes are seen before its later ones, by the host too.";
    GpuExit = 507, "gpu_exit", () -> Never, Modify, true, 1,
        "static void (*bpf_gpu_exit)(void)",
        "Ends the thread. Changes what the application computes.";
    GpuGridDim = 508, "gpu_grid_dim", (U64Out, U64Out, U64Out) -> Scalar, Observe, true, 6,
        "static long (*bpf_gpu_grid_dim)(__u64 *x, __u64 *y, __u64 *z)",
        "gridDim.";
    GpuSmId = 509, "gpu_sm_id", () -> Scalar, Observe, true, 1,
        "static __u64 (*bpf_gpu_sm_id)(void)",
        "%smid.";
    GpuWarpId = 510, "gpu_warp_id", () -> Scalar, Observe, true, 1,
        "static __u64 (*bpf_gpu_warp_id)(void)",
        "%warpid: the warp's place on its SM; may change while a thread runs (PTX ISA).";
    GpuLaneId = 511, "gpu_lane_id", () -> Scalar, Observe, false, 1,
        "static __u64 (*bpf_gpu_lane_id)(void)",
        "%laneid.";
}

/// The helper with this number.
pub fn by_id(id: u32) -> Option<&'static Helper> {
    HELPERS.iter().find(|h| h.id == id)
}

/// The table's row of a helper.
pub fn of(kind: HelperId) -> &'static Helper {
    // The macro makes enum and table from the same rows, so the row exists.
    HELPERS
        .iter()
        .find(|h| h.kind == kind)
        .unwrap_or(&HELPERS[0])
}
