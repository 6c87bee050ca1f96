//! The helper table: numbers, signatures, effects and worst-case costs. Linux's numbers where Linux
//! has the helper, bpftime's 501 to 511 with their bugs fixed.
//!
//! Most take the lanes that are there. Those that exchange values between lanes (`gpu_warp_sum` and
//! its like) need all lanes of the group, and the verifier sees to it that they come. Those that
//! aggregate over a block (`gpu_block_sum` and its like) let nobody wait: each thread adds its
//! value to the block's, and the last one to come gets the result.

use crate::layout::{HashLayout, LruLayout, QueueLayout, RingLayout, UserRingLayout};
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
    /// A format string: constant bytes of a read-only map (`.rodata`), NUL-terminated within the
    /// next argument's size.
    Format,
    /// A NUL-terminated constant string of `.rodata` without a size argument.
    ConstString,
    /// A local function that the helper calls.
    Callback,
    /// What the callback gets as its last argument: a pointer into the stack, or 0.
    CallbackContext,
    /// Writable memory; its size in bytes is the next argument. Need not be initialised before, is
    /// after.
    MemWrite,
    /// As [`Arg::MemRead`]; null too, if its size is 0.
    MemReadOrNull,
    /// As [`Arg::Size`], but it may be 0.
    SizeOrZero,
    /// As [`Arg::ConstString`], and a format.
    FormatString,
    /// Readable memory with the values of the format before, eight bytes each; its size in bytes is
    /// the next argument: a known multiple of 8. Null too, if that is 0.
    Values,
    /// The context, as it was in `r1` at the start.
    Context,
    /// Writable memory of the map's value size; need not be initialised before, is after. Of a
    /// bloom filter, as [`Arg::MapValue`].
    MapValueOut,
    /// What the callback of `user_ringbuf_drain` is given, or a dynptr on the stack.
    Dynptr,
    /// 16 bytes of the stack, at a multiple of 8, that become a dynptr.
    DynptrOut,
    /// A dynptr from `ringbuf_reserve_dynptr`, whose record is given back.
    DynptrRecord,
    /// Writable memory of a map's value, which a dynptr is to stand for; its size in bytes is the
    /// next argument.
    DynptrMemory,
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
    /// Memory of the dynptr in argument 1, of the size in argument 3, from the offset in argument 2
    /// on; or null.
    SliceOrNull,
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

/// Which lanes must make a call. A *group* is the lanes of a warp that arrived at the site
/// together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Warp {
    /// Any: each lane is served by itself, or the code takes those that `activemask` finds. Allowed
    /// under every branch.
    AnyLanes,
    /// Every lane of the group, because lanes wait for each other in it: a call that only some
    /// lanes reach would wait for lanes that never come.
    Together,
    /// As [`Warp::Together`], and with the same arguments in each.
    TogetherAlike,
    /// As [`Warp::Together`], and every thread of the block exactly once, because threads are
    /// counted: at a kernel's start or end, in scope `thread`, on each path through the program.
    WholeBlock,
}

/// When what a helper gives (its result and the memory that it writes) is the same in all lanes of
/// a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Uniform {
    /// Not known to be: it depends on the lane, on the instant of the call, or on memory that other
    /// threads write. Lanes of a group may make "the same" call at different instants, so `%smid`
    /// and `%warpid` are here: a warp that is moved in between answers differently (PTX ISA,
    /// "Special Registers").
    Varies,
    /// If the arguments are, with the memory that they point to.
    ByArguments,
    /// Always: the lanes make it together.
    Group,
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
    /// What a call counts for in the budget, in executed PTX instructions; for maps see
    /// [`MAP_OPS`].
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
            /// The kind of a row of another environment, which is none of ours: that row says all
            /// there is to know of the helper, and no code generator knows it. Its number is
            /// Linux's for no helper, `BPF_FUNC_unspec`.
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
        "Reads the application's memory at a generic address: any allocation that CUDA made or knows of and that lives now, and this block's shared memory. Or copies what the program points to itself: its stack, a value of a map, a record. 0; or -EFAULT if not all of it is there, and `dst` is zeroed.";
    KtimeGetNs = 5, "ktime_get_ns", () -> Scalar, Observe, AnyLanes, Varies, 24,
        "static __u64 (*bpf_ktime_get_ns)(void)",
        "Nanoseconds of the host's CLOCK_MONOTONIC, from %globaltimer and a calibration that the host renews.";
    TracePrintk = 6, "trace_printk", (Format, Size, Scalar, Scalar, Scalar) -> Scalar, Map, AnyLanes, Varies, 260,
        "static long (*bpf_trace_printk)(const char *fmt, __u32 fmt_size, ...)",
        "Queues a message; the host formats it. Never waits; the number of lost messages is reported. Returns the record size or -EAGAIN.";
    GetPrandomU32 = 7, "get_prandom_u32", () -> Scalar, Observe, AnyLanes, Varies, 60,
        "static __u32 (*bpf_get_prandom_u32)(void)",
        "A pseudo-random number: a mixed function of thread, launch, multiprocessor and the clock at the call. It keeps no state, so no two calls share one; not for cryptography.";
    GetSmpProcessorId = 8, "get_smp_processor_id", () -> Scalar, Observe, AnyLanes, Varies, 1,
        "static __u32 (*bpf_get_smp_processor_id)(void)",
        "The multiprocessor (%smid).";
    GetCurrentPidTgid = 14, "get_current_pid_tgid", () -> Scalar, Observe, AnyLanes, ByArguments, 4,
        "static __u64 (*bpf_get_current_pid_tgid)(void)",
        "Process id of the application in both halves: a kernel has no host thread.";
    GetCurrentUidGid = 15, "get_current_uid_gid", () -> Scalar, Observe, AnyLanes, ByArguments, 4,
        "static __u64 (*bpf_get_current_uid_gid)(void)",
        "Group id of the application in the upper half, user id in the lower.";
    GetCurrentComm = 16, "get_current_comm", (MemWrite, ConstSize) -> Scalar, Observe, AnyLanes, ByArguments, 40,
        "static long (*bpf_get_current_comm)(void *buf, __u32 size_of_buf)",
        "Name of the application's main thread when it was instrumented: at most 15 bytes, a NUL, zeroes. 0.";
    PerfEventOutput = 25, "perf_event_output", (Context, Map, Scalar, MemRead, SizeOrZero) -> Scalar, Map, AnyLanes, Varies, 700,
        "static long (*bpf_perf_event_output)(void *ctx, void *map, __u64 flags, void *data, __u64 size)",
        "Queues an event. The index in `flags` (BPF_F_CURRENT_CPU, or any) is not looked at: an event is of the multiprocessor that wrote it. 0, or -ENOSPC when there is no room (counted), -EINVAL for other flags.";
    GetNumaNodeId = 42, "get_numa_node_id", () -> Scalar, Observe, AnyLanes, ByArguments, 1,
        "static long (*bpf_get_numa_node_id)(void)",
        "0: the multiprocessors of a GPU are one node.";
    ProbeReadStr = 45, "probe_read_str", (MemWrite, SizeOrZero, Scalar) -> Scalar, Observe, AnyLanes, Varies, 340,
        "static long (*bpf_probe_read_str)(void *dst, __u32 size, const void *unsafe_ptr)",
        "Reads a string of the application's memory, at most `size` bytes of it with the NUL, which is always there; zeroes follow. Its length with the NUL; 0 if `size` is 0; -EFAULT if it goes on where nothing lives, and `dst` is zeroed. Where may be read, the program's own memory too (`size` bytes of it must be there): see bpf_probe_read.";
    MapPushElem = 87, "map_push_elem", (Map, MapValue, Scalar) -> Scalar, Map, AnyLanes, Varies, 400,
        "static long (*bpf_map_push_elem)(void *map, const void *value, __u64 flags)",
        "Adds a value to a queue, stack or bloom filter. BPF_EXIST drops the oldest value of a full queue. 0, or -E2BIG when full, -EBUSY (retry bound reached, counted), -EINVAL for other flags.";
    MapPopElem = 88, "map_pop_elem", (Map, MapValueOut) -> Scalar, Map, AnyLanes, Varies, 400,
        "static long (*bpf_map_pop_elem)(void *map, void *value)",
        "Takes the next value out of a queue or stack. 0; or -ENOENT when it is empty, -EBUSY (retry bound reached, counted), and `value` is zeroed.";
    MapPeekElem = 89, "map_peek_elem", (Map, MapValueOut) -> Scalar, Map, AnyLanes, Varies, 200,
        "static long (*bpf_map_peek_elem)(void *map, void *value)",
        "The next value of a queue or stack, which stays: as bpf_map_pop_elem. Of a bloom filter: whether `value` was pushed (0; it may be wrong) or not (-ENOENT; that is certain).";
    ProbeReadUser = 112, "probe_read_user", (MemWrite, SizeOrZero, Scalar) -> Scalar, Observe, AnyLanes, Varies, 320,
        "static long (*bpf_probe_read_user)(void *dst, __u32 size, const void *unsafe_ptr)",
        "As bpf_probe_read: a kernel's addresses are of one kind.";
    ProbeReadKernel = 113, "probe_read_kernel", (MemWrite, SizeOrZero, Scalar) -> Scalar, Observe, AnyLanes, Varies, 320,
        "static long (*bpf_probe_read_kernel)(void *dst, __u32 size, const void *unsafe_ptr)",
        "As bpf_probe_read: a kernel's addresses are of one kind.";
    ProbeReadUserStr = 114, "probe_read_user_str", (MemWrite, SizeOrZero, Scalar) -> Scalar, Observe, AnyLanes, Varies, 340,
        "static long (*bpf_probe_read_user_str)(void *dst, __u32 size, const void *unsafe_ptr)",
        "As bpf_probe_read_str: a kernel's addresses are of one kind.";
    ProbeReadKernelStr = 115, "probe_read_kernel_str", (MemWrite, SizeOrZero, Scalar) -> Scalar, Observe, AnyLanes, Varies, 340,
        "static long (*bpf_probe_read_kernel_str)(void *dst, __u32 size, const void *unsafe_ptr)",
        "As bpf_probe_read_str: a kernel's addresses are of one kind.";
    KtimeGetBootNs = 125, "ktime_get_boot_ns", () -> Scalar, Observe, AnyLanes, Varies, 26,
        "static __u64 (*bpf_ktime_get_boot_ns)(void)",
        "Nanoseconds of the host's CLOCK_BOOTTIME: bpf_ktime_get_ns and the time that the host was suspended.";
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
    RingbufQuery = 134, "ringbuf_query", (Map, Scalar) -> Scalar, Observe, AnyLanes, Varies, 24,
        "static __u64 (*bpf_ringbuf_query)(void *ringbuf, __u64 flags)",
        "Tells of the ring of the multiprocessor that the lane is on, at a moment of the call. BPF_RB_AVAIL_DATA: bytes reserved and not yet taken by the host. BPF_RB_RING_SIZE: bytes of that ring. BPF_RB_CONS_POS and BPF_RB_PROD_POS: bytes that the host has taken, and that were reserved, since the ring was made. 0 for other flags.";
    KtimeGetCoarseNs = 160, "ktime_get_coarse_ns", () -> Scalar, Observe, AnyLanes, Varies, 24,
        "static __u64 (*bpf_ktime_get_coarse_ns)(void)",
        "As bpf_ktime_get_ns: nothing coarser would be cheaper.";
    ForEachMapElem = 164, "for_each_map_elem", (Map, Callback, CallbackContext, Scalar) -> Scalar, Map, AnyLanes, Varies, 20,
        "static long (*bpf_for_each_map_elem)(void *map, void *callback_fn, void *callback_ctx, __u64 flags)",
        "Calls `long callback(map, const void *key, void *value, void *ctx)` for each element until it returns 1. The number of calls, or -EINVAL if `flags` is not 0.";
    Snprintf = 165, "snprintf", (MemWrite, SizeOrZero, FormatString, Values, SizeOrZero) -> Scalar, Observe, AnyLanes, Varies, 40,
        "static long (*bpf_snprintf)(char *str, __u32 str_size, const char *fmt, __u64 *data, __u32 data_len)",
        "Formats into memory, on the device. The format is a constant string with at most 12 conversions: %d %i %u %x %X %o with hh h l ll z, %p, %c, and %s, which reads the application's memory at that address (nothing where it cannot be read); flags 0 - + # and space, a width, no precision. The length of the whole text with its NUL, which may be more than `str_size`: then the text was cut. `%s` looks at `str_size` bytes at most.";
    TraceVprintk = 177, "trace_vprintk", (Format, Size, Values, SizeOrZero) -> Scalar, Map, AnyLanes, Varies, 300,
        "static long (*bpf_trace_vprintk)(const char *fmt, __u32 fmt_size, const void *data, __u32 data_len)",
        "As bpf_trace_printk, with at most 12 values from an array. `%s` prints a constant string: then the array is on the stack.";
    Loop = 181, "loop", (Scalar, Callback, CallbackContext, Scalar) -> Scalar, Map, AnyLanes, Varies, 10,
        "static long (*bpf_loop)(__u32 nr_loops, void *callback_fn, void *callback_ctx, __u64 flags)",
        "Calls `long callback(__u64 index, void *ctx)` up to `nr_loops` times until it returns 1. The number of calls; -EINVAL if `flags` is not 0, -E2BIG above 8,388,608 loops.";
    Strncmp = 182, "strncmp", (MemRead, Size, ConstString) -> Scalar, Observe, AnyLanes, ByArguments, 8,
        "static long (*bpf_strncmp)(const char *s1, __u32 s1_sz, const char *s2)",
        "Compares at most `s1_sz` bytes of a string with a constant one: -1, 0 or 1.";
    MapLookupPercpuElem = 195, "map_lookup_percpu_elem", (Map, MapKey, Scalar) -> MapValueOrNull, Observe, AnyLanes, Varies, 40,
        "static void *(*bpf_map_lookup_percpu_elem)(void *map, const void *key, __u32 cpu)",
        "Pointer to the value of `key` in the copy of multiprocessor `cpu`, or NULL if there is no such key or copy.";
    DynptrFromMem = 197, "dynptr_from_mem", (DynptrMemory, SizeOrZero, Scalar, DynptrOut) -> Scalar, Observe, AnyLanes, Varies, 12,
        "static long (*bpf_dynptr_from_mem)(void *data, __u32 size, __u64 flags, struct bpf_dynptr *ptr)",
        "Makes a dynptr of `size` bytes of a map's value. 0; or -E2BIG above 16 MiB - 1, -EINVAL if `flags` is not 0, and the dynptr is empty.";
    RingbufReserveDynptr = 198, "ringbuf_reserve_dynptr", (Map, Scalar, Scalar, DynptrOut) -> Scalar, Map, AnyLanes, Varies, 720,
        "static long (*bpf_ringbuf_reserve_dynptr)(void *ringbuf, __u32 size, __u64 flags, struct bpf_dynptr *ptr)",
        "Room for a record of any size, as a dynptr. 0; or -E2BIG above 16 MiB - 1, -EINVAL if `flags` is not 0 or there is no room (counted), and the dynptr is empty. It must be submitted or discarded on every path, also if it is empty.";
    RingbufSubmitDynptr = 199, "ringbuf_submit_dynptr", (DynptrRecord, Scalar) -> Scalar, Map, AnyLanes, Varies, 64,
        "static void (*bpf_ringbuf_submit_dynptr)(struct bpf_dynptr *ptr, __u64 flags)",
        "Publishes a record that was reserved as a dynptr. An empty one does nothing.";
    RingbufDiscardDynptr = 200, "ringbuf_discard_dynptr", (DynptrRecord, Scalar) -> Scalar, Map, AnyLanes, Varies, 64,
        "static void (*bpf_ringbuf_discard_dynptr)(struct bpf_dynptr *ptr, __u64 flags)",
        "Gives a record that was reserved as a dynptr back unseen. An empty one does nothing.";
    DynptrRead = 201, "dynptr_read", (MemWrite, ConstSize, Dynptr, Scalar, Scalar) -> Scalar, Observe, AnyLanes, Varies, 16,
        "static long (*bpf_dynptr_read)(void *dst, __u32 len, const struct bpf_dynptr *src, __u32 offset, __u64 flags)",
        "Copies `len` bytes, a constant number, out of a dynptr or a sample. 0; or -E2BIG if they are not inside it, -EINVAL if `flags` is not 0 or the dynptr is empty, and `dst` is zeroed.";
    DynptrWrite = 202, "dynptr_write", (Dynptr, Scalar, MemRead, ConstSize, Scalar) -> Scalar, Map, AnyLanes, Varies, 16,
        "static long (*bpf_dynptr_write)(const struct bpf_dynptr *dst, __u32 offset, void *src, __u32 len, __u64 flags)",
        "Copies `len` bytes, a constant number, into a dynptr or a sample. 0; or -E2BIG if there is no room for all of them, -EINVAL if `flags` is not 0 or the dynptr is empty.";
    DynptrData = 203, "dynptr_data", (Dynptr, Scalar, ConstSize) -> SliceOrNull, Observe, AnyLanes, Varies, 10,
        "static void *(*bpf_dynptr_data)(const struct bpf_dynptr *ptr, __u32 offset, __u32 len)",
        "Pointer to `len` bytes, a constant number, of a dynptr or a sample from `offset` on, or NULL if they are not inside it. Of a sample `offset` is a constant multiple of 8.";
    KtimeGetTaiNs = 208, "ktime_get_tai_ns", () -> Scalar, Observe, AnyLanes, Varies, 26,
        "static __u64 (*bpf_ktime_get_tai_ns)(void)",
        "Nanoseconds of the host's CLOCK_TAI.";
    UserRingbufDrain = 209, "user_ringbuf_drain", (Map, Callback, CallbackContext, Scalar) -> Scalar, Map, AnyLanes, Varies, 120,
        "static long (*bpf_user_ringbuf_drain)(void *map, void *callback_fn, void *ctx, __u64 flags)",
        "Calls `long callback(struct bpf_dynptr *sample, void *ctx)` for records of the host, oldest first, until it returns 1, at most 16 times. The number of calls; or -EBUSY at once if another thread drains, -EINVAL for other flags than BPF_RB_NO_WAKEUP and BPF_RB_FORCE_WAKEUP or if the ring holds what no producer writes.";
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
    GpuActiveMask = 521, "gpu_active_mask", () -> Scalar, Observe, AnyLanes, Varies, 1,
        "static __u32 (*bpf_gpu_active_mask)(void)",
        "The lanes that are together at this call, one bit each. Which of the lanes that could be here are together is up to the hardware; `ctx->active_mask` is the group that arrived at the site.";
    GpuWarpLanes = 522, "gpu_warp_lanes", () -> Scalar, Observe, AnyLanes, ByArguments, 3,
        "static __u32 (*bpf_gpu_warp_lanes)(void)",
        "How many lanes the group has: those of `ctx->active_mask`; 1 in scopes warp and block, where one lane runs.";
    GpuWarpRank = 523, "gpu_warp_rank", () -> Scalar, Observe, AnyLanes, Varies, 5,
        "static __u32 (*bpf_gpu_warp_rank)(void)",
        "How many lanes of the group are below this one.";
    GpuWarpLeader = 524, "gpu_warp_leader", () -> Scalar, Observe, AnyLanes, Varies, 8,
        "static __u32 (*bpf_gpu_warp_leader)(void)",
        "1 in the group's lowest lane, else 0.";
    GpuWarpBallot = 525, "gpu_warp_ballot", (Scalar) -> Scalar, Observe, Together, Group, 4,
        "static __u32 (*bpf_gpu_warp_ballot)(__u64 value)",
        "The lanes of the group whose value is not 0, one bit each.";
    GpuWarpMatch = 526, "gpu_warp_match", (Scalar) -> Scalar, Observe, Together, Varies, 40,
        "static __u32 (*bpf_gpu_warp_match)(__u64 value)",
        "The lanes of the group with the same value as this one, one bit each.";
    GpuWarpFirst = 527, "gpu_warp_first", (Scalar) -> Scalar, Observe, Together, Group, 8,
        "static __u64 (*bpf_gpu_warp_first)(__u64 value)",
        "The value of the group's lowest lane.";
    GpuWarpSum = 528, "gpu_warp_sum", (Scalar) -> Scalar, Observe, Together, Group, 360,
        "static __u64 (*bpf_gpu_warp_sum)(__u64 value)",
        "The sum over the lanes of the group, modulo 2^64.";
    GpuWarpMin = 529, "gpu_warp_min", (Scalar) -> Scalar, Observe, Together, Group, 360,
        "static __u64 (*bpf_gpu_warp_min)(__u64 value)",
        "The smallest value of the group, unsigned.";
    GpuWarpMax = 530, "gpu_warp_max", (Scalar) -> Scalar, Observe, Together, Group, 360,
        "static __u64 (*bpf_gpu_warp_max)(__u64 value)",
        "The largest value of the group, unsigned.";
    GpuWarpAnd = 531, "gpu_warp_and", (Scalar) -> Scalar, Observe, Together, Group, 360,
        "static __u64 (*bpf_gpu_warp_and)(__u64 value)",
        "The bits that all values of the group have.";
    GpuWarpOr = 532, "gpu_warp_or", (Scalar) -> Scalar, Observe, Together, Group, 360,
        "static __u64 (*bpf_gpu_warp_or)(__u64 value)",
        "The bits that some value of the group has.";
    GpuClusterIdx = 533, "gpu_cluster_idx", (U64Out, U64Out, U64Out) -> Scalar, Observe, AnyLanes, ByArguments, 6,
        "static long (*bpf_gpu_cluster_idx)(__u64 *x, __u64 *y, __u64 *z)",
        "Which cluster of the grid the block is in. A block without a cluster, as all before sm_90, is a cluster of one.";
    GpuClusterCount = 534, "gpu_cluster_count", (U64Out, U64Out, U64Out) -> Scalar, Observe, AnyLanes, ByArguments, 6,
        "static long (*bpf_gpu_cluster_count)(__u64 *x, __u64 *y, __u64 *z)",
        "Clusters of the grid.";
    GpuClusterBlock = 535, "gpu_cluster_block", (U64Out, U64Out, U64Out) -> Scalar, Observe, AnyLanes, ByArguments, 6,
        "static long (*bpf_gpu_cluster_block)(__u64 *x, __u64 *y, __u64 *z)",
        "Where in its cluster the block is.";
    GpuClusterDim = 536, "gpu_cluster_dim", (U64Out, U64Out, U64Out) -> Scalar, Observe, AnyLanes, ByArguments, 6,
        "static long (*bpf_gpu_cluster_dim)(__u64 *x, __u64 *y, __u64 *z)",
        "Blocks of the cluster.";
    GpuClusterRank = 537, "gpu_cluster_rank", () -> Scalar, Observe, AnyLanes, ByArguments, 1,
        "static __u32 (*bpf_gpu_cluster_rank)(void)",
        "Linear index of the block in its cluster.";
    GpuBlockId = 538, "gpu_block_id", () -> Scalar, Observe, AnyLanes, ByArguments, 13,
        "static __u64 (*bpf_gpu_block_id)(void)",
        "Linear index of the block in the grid.";
    GpuThreadId = 539, "gpu_thread_id", () -> Scalar, Observe, AnyLanes, Varies, 30,
        "static __u64 (*bpf_gpu_thread_id)(void)",
        "Linear index of the thread in the grid: its key in a map of type 1502.";
    GpuKernelId = 540, "gpu_kernel_id", () -> Scalar, Observe, AnyLanes, ByArguments, 1,
        "static __u64 (*bpf_gpu_kernel_id)(void)",
        "Number of the kernel, as `ctx->kernel_id`.";
    GpuGridId = 541, "gpu_grid_id", () -> Scalar, Observe, AnyLanes, ByArguments, 1,
        "static __u64 (*bpf_gpu_grid_id)(void)",
        "%gridid: the same in all threads of a launch, different for each launch of a context, but the same each time for a kernel in a graph that is launched again. The context's `launch_id` is the number that the host counts.";
    GpuClock = 542, "gpu_clock", () -> Scalar, Observe, AnyLanes, Varies, 1,
        "static __u64 (*bpf_gpu_clock)(void)",
        "%clock64: cycles of this multiprocessor.";
    GpuPrefetchL2 = 543, "gpu_prefetch_l2", (Scalar) -> Scalar, Observe, AnyLanes, Varies, 322,
        "static long (*bpf_gpu_prefetch_l2)(const void *address)",
        "Asks for the line of L2 with this generic address. 0, or -EFAULT if nothing of global memory lives there.";
    GpuSmCount = 544, "gpu_sm_count", () -> Scalar, Observe, AnyLanes, ByArguments, 4,
        "static __u32 (*bpf_gpu_sm_count)(void)",
        "Multiprocessors of the device.";
    GpuWarpSize = 545, "gpu_warp_size", () -> Scalar, Observe, AnyLanes, ByArguments, 1,
        "static __u32 (*bpf_gpu_warp_size)(void)",
        "Lanes of a warp: 32.";
    GpuBlockSum = 546, "gpu_block_sum", (Scalar, U64Out) -> Scalar, Map, WholeBlock, Varies, 400,
        "static long (*bpf_gpu_block_sum)(__u64 value, __u64 *total)",
        "1 in the one thread that is the last of its block to come, and `*total` is the sum of the values of all threads of the block, modulo 2^64; 0 in all others, and `*total` is 0. Nobody waits. Each thread of the block calls it exactly once: only at gpu/entry and gpu/exit, in scope thread, on every path through the program, not in a loop. `total` is on the stack. Each call in a program is one of its own.";
    GpuBlockMin = 547, "gpu_block_min", (Scalar, U64Out) -> Scalar, Map, WholeBlock, Varies, 400,
        "static long (*bpf_gpu_block_min)(__u64 value, __u64 *total)",
        "1 in the one thread that is the last of its block to come, and `*total` is the smallest value of all threads of the block, unsigned; 0 in all others, and `*total` is 0. Nobody waits. See bpf_gpu_block_sum.";
    GpuBlockMax = 548, "gpu_block_max", (Scalar, U64Out) -> Scalar, Map, WholeBlock, Varies, 400,
        "static long (*bpf_gpu_block_max)(__u64 value, __u64 *total)",
        "1 in the one thread that is the last of its block to come, and `*total` is the largest value of all threads of the block, unsigned; 0 in all others, and `*total` is 0. Nobody waits. See bpf_gpu_block_sum.";
    GpuBlockAnd = 549, "gpu_block_and", (Scalar, U64Out) -> Scalar, Map, WholeBlock, Varies, 400,
        "static long (*bpf_gpu_block_and)(__u64 value, __u64 *total)",
        "1 in the one thread that is the last of its block to come, and `*total` is the bits that the values of all threads of the block have; 0 in all others, and `*total` is 0. Nobody waits. See bpf_gpu_block_sum.";
    GpuBlockOr = 550, "gpu_block_or", (Scalar, U64Out) -> Scalar, Map, WholeBlock, Varies, 400,
        "static long (*bpf_gpu_block_or)(__u64 value, __u64 *total)",
        "1 in the one thread that is the last of its block to come, and `*total` is the bits that the value of some thread of the block has; 0 in all others, and `*total` is 0. Nobody waits. See bpf_gpu_block_sum.";
    GpuGraphNode = 551, "gpu_graph_node", () -> Scalar, Observe, AnyLanes, ByArguments, 1,
        "static __u64 (*bpf_gpu_graph_node)(void)",
        "Which node of a graph this launch is of: in the upper 32 bits the graph, counted from 1 as the process instantiates graphs, in the lower ones its node, counted from 0 among the graph's kernels. The same at each launch of the graph; 0 outside of graphs and in device functions.";
    GpuWarpSectors = 552, "gpu_warp_sectors", (Scalar, Scalar) -> Scalar, Observe, Together, Group, 900,
        "static __u32 (*bpf_gpu_warp_sectors)(__u64 address, __u32 size)",
        "How many different sectors of 32 bytes the lanes of the group touch, each with `size` bytes from its `address` on: what an access of global memory moves. A lane with size 0 touches none. What one lane touches beyond its first 32 sectors counts whole, whether others touch it or not.";
    GpuWarpConflicts = 553, "gpu_warp_conflicts", (Scalar, Scalar) -> Scalar, Observe, Together, Group, 900,
        "static __u32 (*bpf_gpu_warp_conflicts)(__u64 address, __u32 size)",
        "How many different words of 4 bytes the lanes of the group ask of one of the 32 banks of shared memory, where it is most: 1 is free of conflicts, lanes that ask for the same word do not conflict. Each asks for `size` bytes from its `address` on, of which the first 32 words count; with size 0 for nothing. Lanes that are full of 8 or 16 bytes have at least 2 or 4.";
}

impl HelperId {
    /// It reads the application's memory, or asks whether it lives: it needs the table of what does
    /// ([`crate::layout::fence`]). `bpf_snprintf` does so only where its format has a `%s`.
    pub const fn reads_application(self) -> bool {
        matches!(
            self,
            HelperId::ProbeRead
                | HelperId::ProbeReadUser
                | HelperId::ProbeReadKernel
                | HelperId::GpuRead
                | HelperId::GpuPrefetchL2
        ) || self.reads_string()
    }

    /// It copies memory from an address in argument 3, as many bytes as argument 2 says, or a
    /// string of at most so many. A program may pass what it points to itself as well: its stack, a
    /// value of a map, a record.
    pub const fn copies_memory(self) -> bool {
        matches!(
            self,
            HelperId::ProbeRead | HelperId::ProbeReadUser | HelperId::ProbeReadKernel
        ) || self.reads_string()
    }

    /// It reads a string of the application's memory: size in argument 2.
    pub const fn reads_string(self) -> bool {
        matches!(
            self,
            HelperId::ProbeReadStr | HelperId::ProbeReadUserStr | HelperId::ProbeReadKernelStr
        )
    }

    /// It leaves the map that it is given as it is; where it gives a pointer into it, the program
    /// may store there.
    pub const fn only_looks(self) -> bool {
        matches!(
            self,
            HelperId::MapLookupElem
                | HelperId::MapLookupPercpuElem
                | HelperId::MapPeekElem
                | HelperId::ForEachMapElem
                | HelperId::RingbufQuery
        )
    }

    /// It queues a message for the host.
    pub const fn prints(self) -> bool {
        matches!(
            self,
            HelperId::TracePrintk | HelperId::TraceVprintk | HelperId::GpuPuts
        )
    }
}

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
    /// Most times that its loop goes round, by the code's own bound: what a call can cost beyond
    /// `cost`, when the map is crowded, is so many rounds of `round` instructions.
    pub rounds: u32,
    /// Instructions of a round.
    pub round: u32,
}

macro_rules! map_ops {
    ($( $helper:ident on $map:ident: $uniform:ident, $cost:literal + $per_word:literal, $rounds:expr, $round:literal; )*) => {
        /// Map operations by helper and map type: a helper that is here works on the types of map
        /// that are here with it. What is looked up in an array has a fixed place that all lanes
        /// share; what is looked up in a hash may come and go between two lanes' calls.
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
    MapLookupElem on GpuHash: Varies, 400 + 16, HashLayout::PROBES, 24;
    MapLookupElem on PercpuHash: Varies, 400 + 16, HashLayout::PROBES, 24;
    MapLookupElem on LruHash: Varies, 400 + 16, LruLayout::TRIES, 120;
    MapLookupElem on LruPercpuHash: Varies, 400 + 16, LruLayout::TRIES, 120;
    MapLookupPercpuElem on PercpuArray: Varies, 24 + 0, 0, 0;
    MapLookupPercpuElem on PercpuHash: Varies, 416 + 16, HashLayout::PROBES, 24;
    MapLookupPercpuElem on LruPercpuHash: Varies, 416 + 16, LruLayout::TRIES, 120;
    MapLookupElem on GpuArray: ByArguments, 12 + 0, 0, 0;
    MapLookupElem on GpuKernelArray: ByArguments, 12 + 0, 0, 0;
    MapLookupElem on GpuHostArray: ByArguments, 12 + 0, 0, 0;
    MapLookupElem on PerThreadHostArray: Varies, 48 + 0, 0, 0;
    MapLookupElem on ArrayOfMaps: Varies, 24 + 0, 0, 0;
    MapLookupElem on HashOfMaps: Varies, 420 + 16, HashLayout::PROBES, 24;
    MapUpdateElem on Array: ByArguments, 24 + 16, 0, 0;
    MapUpdateElem on GpuArray: ByArguments, 24 + 16, 0, 0;
    MapUpdateElem on GpuKernelArray: ByArguments, 24 + 16, 0, 0;
    MapUpdateElem on GpuHostArray: ByArguments, 24 + 16, 0, 0;
    MapUpdateElem on PerThreadHostArray: Varies, 60 + 16, 0, 0;
    MapUpdateElem on PercpuArray: Varies, 36 + 16, 0, 0;
    MapUpdateElem on PerThreadArray: Varies, 60 + 16, 0, 0;
    MapUpdateElem on Hash: Varies, 900 + 16, HashLayout::PROBES, 48;
    MapUpdateElem on GpuHash: Varies, 900 + 16, HashLayout::PROBES, 48;
    MapUpdateElem on PercpuHash: Varies, 900 + 16, HashLayout::PROBES, 48;
    MapUpdateElem on LruHash: Varies, 1600 + 16, LruLayout::TRIES, 240;
    MapUpdateElem on LruPercpuHash: Varies, 1600 + 16, LruLayout::TRIES, 240;
    MapDeleteElem on Array: ByArguments, 4 + 0, 0, 0;
    MapDeleteElem on GpuArray: ByArguments, 4 + 0, 0, 0;
    MapDeleteElem on GpuKernelArray: ByArguments, 4 + 0, 0, 0;
    MapDeleteElem on GpuHostArray: ByArguments, 4 + 0, 0, 0;
    MapDeleteElem on PerThreadHostArray: ByArguments, 4 + 0, 0, 0;
    MapPushElem on Queue: Varies, 160 + 2, QueueLayout::TRIES * 3, 60;
    MapPushElem on Stack: Varies, 160 + 2, QueueLayout::TRIES * 2 + QueueLayout::TURNS, 60;
    MapPushElem on BloomFilter: ByArguments, 160 + 4, 0, 0;
    MapPopElem on Queue: Varies, 160 + 3, QueueLayout::TRIES * 2, 60;
    MapPopElem on Stack: Varies, 200 + 3, QueueLayout::TRIES + QueueLayout::TURNS, 60;
    MapPeekElem on Queue: Varies, 80 + 3, QueueLayout::TRIES * 2, 60;
    MapPeekElem on Stack: Varies, 40 + 3, QueueLayout::TURNS, 60;
    MapPeekElem on BloomFilter: Varies, 200 + 4, 0, 0;
    PerfEventOutput on PerfEventArray: Varies, 400 + 16, RingLayout::RETRIES, 16;
    PerfEventOutput on GpuRingbuf: Varies, 400 + 16, RingLayout::RETRIES, 16;
    MapDeleteElem on PercpuArray: ByArguments, 4 + 0, 0, 0;
    MapDeleteElem on PerThreadArray: ByArguments, 4 + 0, 0, 0;
    MapDeleteElem on Hash: Varies, 500 + 16, HashLayout::PROBES, 24;
    MapDeleteElem on GpuHash: Varies, 500 + 16, HashLayout::PROBES, 24;
    MapDeleteElem on PercpuHash: Varies, 500 + 16, HashLayout::PROBES, 24;
    MapDeleteElem on LruHash: Varies, 500 + 16, LruLayout::TRIES, 140;
    MapDeleteElem on LruPercpuHash: Varies, 500 + 16, LruLayout::TRIES, 140;
    RingbufOutput on Ringbuf: Varies, 400 + 16, RingLayout::RETRIES, 16;
    RingbufReserve on Ringbuf: Varies, 400 + 0, RingLayout::RETRIES, 16;
    RingbufReserveDynptr on Ringbuf: Varies, 720 + 0, RingLayout::RETRIES, 16;
    RingbufQuery on Ringbuf: Varies, 24 + 0, 0, 0;
    UserRingbufDrain on UserRingbuf: Varies, 120 + 0, UserRingLayout::SKIPPED, 48;
    ForEachMapElem on Array: ByArguments, 20 + 0, 0, 0;
    ForEachMapElem on GpuArray: ByArguments, 20 + 0, 0, 0;
    ForEachMapElem on GpuKernelArray: ByArguments, 20 + 0, 0, 0;
    ForEachMapElem on GpuHostArray: ByArguments, 20 + 0, 0, 0;
    ForEachMapElem on PercpuArray: Varies, 20 + 0, 0, 0;
    ForEachMapElem on PerThreadArray: Varies, 20 + 0, 0, 0;
    ForEachMapElem on PerThreadHostArray: Varies, 20 + 0, 0, 0;
    ForEachMapElem on Hash: Varies, 20 + 0, 0, 0;
    ForEachMapElem on GpuHash: Varies, 20 + 0, 0, 0;
    ForEachMapElem on PercpuHash: Varies, 20 + 0, 0, 0;
    ForEachMapElem on LruHash: Varies, 20 + 0, 0, 0;
    ForEachMapElem on LruPercpuHash: Varies, 20 + 0, 0, 0;
}

/// The helper works on maps of this type. One without rows in [`MAP_OPS`] works on any: it takes no
/// map of ours, or it is [`HelperId::Foreign`].
pub fn takes(helper: HelperId, map_type: MapType) -> bool {
    map_op(helper, map_type).is_some() || MAP_OPS.iter().all(|op| op.helper != helper)
}

/// A walk over a map of this type makes the same number of rounds in all lanes of a group: the map
/// has each of its elements always, and for every thread. A hash has what is in it at the instant
/// of each lane's walk; of a per-thread array, threads beyond its last one see nothing.
pub fn walks_alike(map_type: MapType) -> bool {
    match map_type {
        MapType::Array
        | MapType::PercpuArray
        | MapType::GpuArray
        | MapType::GpuKernelArray
        | MapType::GpuHostArray => true,
        MapType::Hash
        | MapType::PercpuHash
        | MapType::LruHash
        | MapType::LruPercpuHash
        | MapType::GpuHash
        | MapType::PerThreadArray
        | MapType::PerThreadHostArray
        | MapType::PerfEventArray
        | MapType::ArrayOfMaps
        | MapType::HashOfMaps
        | MapType::Queue
        | MapType::Stack
        | MapType::Ringbuf
        | MapType::BloomFilter
        | MapType::UserRingbuf
        | MapType::GpuRingbuf => false,
    }
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

/// The table's row of a helper; of [`HelperId::Foreign`] one that claims nothing, as the table has
/// none.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux;

    #[test]
    fn rows_ascend_and_are_linux_own() {
        assert!(HELPERS.windows(2).all(|two| two[0].id < two[1].id));
        for helper in HELPERS {
            assert_eq!(by_id(helper.id).map(|h| h.kind), Some(helper.kind));
            if helper.id < 500 {
                assert_eq!(linux::name(helper.id), Some(helper.name));
            }
            let name = alloc::format!("(*bpf_{})(", helper.name);
            assert!(helper.prototype.contains(&name), "{}", helper.name);
        }
    }

    #[test]
    fn who_reads_the_application() {
        let reads = HELPERS.iter().filter(|h| h.kind.reads_application());
        let ids: alloc::vec::Vec<u32> = reads.map(|h| h.id).collect();
        assert_eq!(ids, [4, 45, 112, 113, 114, 115, 520, 543]);
    }
}
