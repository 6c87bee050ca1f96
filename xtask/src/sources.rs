//! What there is to be compiled: programs, applications, and the corpus of kernels, each with its
//! source.

/// BPF programs: name and source.
pub const PROGRAMS: &[(&str, &str)] = &[
    ("threadhist", "examples/threadhist/threadhist.bpf.c"),
    (
        "kernelretsnoop",
        "examples/kernelretsnoop/kernelretsnoop.bpf.c",
    ),
    ("launchcount", "examples/launchcount/launchcount.bpf.c"),
    ("launchlate", "examples/launchlate/launchlate.bpf.c"),
    ("memtraffic", "examples/memtraffic/memtraffic.bpf.c"),
    ("divergence", "examples/divergence/divergence.bpf.c"),
    ("torch_blocktimes", "examples/torch/blocktimes.bpf.c"),
    ("torch_traffic", "examples/torch/traffic.bpf.c"),
    ("scopes", "tests/programs/scopes.bpf.c"),
    ("blocks", "tests/programs/blocks.bpf.c"),
    ("blocks_run", "tests/programs/blocks_run.bpf.c"),
    ("blockspan", "tests/programs/blockspan.bpf.c"),
    ("graphnodes", "tests/programs/graphnodes.bpf.c"),
    ("graphnodes_exit", "tests/programs/graphnodes_exit.bpf.c"),
    ("ways", "tests/programs/ways.bpf.c"),
    ("ways_begin", "tests/programs/ways_begin.bpf.c"),
    ("machine", "tests/programs/machine.bpf.c"),
    ("machine_access", "tests/programs/machine_access.bpf.c"),
    ("machine_loads", "tests/programs/machine_loads.bpf.c"),
    ("machine_maps", "tests/programs/machine_maps.bpf.c"),
    ("locals", "tests/programs/locals.bpf.c"),
    ("machine_other", "tests/programs/machine_other.bpf.c"),
    ("machine_scopes", "tests/programs/machine_scopes.bpf.c"),
    ("splice_memory", "tests/programs/splice_memory.bpf.c"),
    ("instructions", "tests/programs/instructions.bpf.c"),
    ("links", "tests/programs/links.bpf.c"),
    ("links_inside", "tests/programs/links_inside.bpf.c"),
    ("links_ranges", "tests/programs/links_ranges.bpf.c"),
    ("replace", "tests/programs/replace.bpf.c"),
    ("replace_other", "tests/programs/replace_other.bpf.c"),
    ("replace_brings", "tests/programs/replace_brings.bpf.c"),
    ("replace_large", "tests/programs/replace_large.bpf.c"),
    ("replace_ring", "tests/programs/replace_ring.bpf.c"),
    ("hashstress", "tests/programs/hashstress.bpf.c"),
    ("maps_hash", "tests/programs/maps_hash.bpf.c"),
    ("soak_hash", "tests/programs/soak_hash.bpf.c"),
    ("churn", "tests/programs/churn.bpf.c"),
    ("maps_more", "tests/programs/maps_more.bpf.c"),
    ("maps_arrays", "tests/programs/maps_arrays.bpf.c"),
    ("maps_host", "tests/programs/maps_host.bpf.c"),
    ("maps_inner", "tests/programs/maps_inner.bpf.c"),
    ("helpers", "tests/programs/helpers.bpf.c"),
    ("helpers_more", "tests/programs/helpers_more.bpf.c"),
    ("dynptr", "tests/programs/dynptr.bpf.c"),
    ("helpers_memory", "tests/programs/helpers_memory.bpf.c"),
    ("clock", "tests/programs/clock.bpf.c"),
    ("driverapi", "tests/programs/driverapi.bpf.c"),
    ("everyapi", "tests/programs/everyapi.bpf.c"),
    ("noapi", "tests/programs/noapi.bpf.c"),
    ("refused", "tests/programs/refused.bpf.c"),
    ("nomatch", "tests/programs/nomatch.bpf.c"),
    ("bpftime", "tests/programs/bpftime.bpf.c"),
    ("loops", "tests/programs/loops.bpf.c"),
    ("atomizer", "tests/programs/atomizer.bpf.c"),
    ("fenced", "tests/programs/fenced.bpf.c"),
    ("fencerace", "tests/programs/fencerace.bpf.c"),
    ("longrun", "tests/programs/longrun.bpf.c"),
    ("together", "tests/programs/together.bpf.c"),
    ("gate", "tests/programs/gate.bpf.c"),
    ("bounded", "tests/programs/bounded.bpf.c"),
    ("slots", "tests/programs/slots.bpf.c"),
    ("slots_first", "tests/programs/slots_first.bpf.c"),
    ("slots_second", "tests/programs/slots_second.bpf.c"),
    ("slots_refused", "tests/programs/slots_refused.bpf.c"),
    ("slots_spin", "tests/programs/slots_spin.bpf.c"),
    ("steady", "tests/programs/steady.bpf.c"),
    ("threads", "tests/programs/threads.bpf.c"),
    ("crowded", "tests/programs/crowded.bpf.c"),
    ("events", "tests/programs/events.bpf.c"),
    ("events_patient", "tests/programs/events_patient.bpf.c"),
    ("events_hasty", "tests/programs/events_hasty.bpf.c"),
    ("userring", "tests/programs/userring.bpf.c"),
    ("userring_large", "tests/programs/userring_large.bpf.c"),
    ("twogpus", "tests/programs/twogpus.bpf.c"),
    ("ended", "tests/programs/ended.bpf.c"),
    ("everywhere", "tests/programs/everywhere.bpf.c"),
    ("everywhere_mem", "tests/programs/everywhere_mem.bpf.c"),
    (
        "everywhere_barrier",
        "tests/programs/everywhere_barrier.bpf.c",
    ),
    (
        "everywhere_branch",
        "tests/programs/everywhere_branch.bpf.c",
    ),
    ("everywhere_code", "tests/programs/everywhere_code.bpf.c"),
    ("everywhere_all", "tests/programs/everywhere_all.bpf.c"),
    ("memcount", "tests/programs/memcount.bpf.c"),
    ("sites_mem", "tests/programs/sites_mem.bpf.c"),
    ("sums", "tests/programs/sums.bpf.c"),
    ("sites_size", "tests/programs/sites_size.bpf.c"),
    ("sites_code", "tests/programs/sites_code.bpf.c"),
    ("sites_args", "tests/programs/sites_args.bpf.c"),
    ("sites_order", "tests/programs/sites_order.bpf.c"),
    ("sites_none", "tests/programs/sites_none.bpf.c"),
    ("sites_launch", "tests/programs/sites_launch.bpf.c"),
    ("sites_named", "tests/programs/sites_named.bpf.c"),
    ("waits", "tests/programs/waits.bpf.c"),
    ("linuxside", "tests/programs/linuxside.bpf.c"),
    ("linux_tracepoint", "tests/programs/linux_tracepoint.bpf.c"),
    ("linux_typed", "tests/programs/linux_typed.bpf.c"),
    ("linux_fentry", "tests/programs/linux_fentry.bpf.c"),
    ("linux_kprobe", "tests/programs/linux_kprobe.bpf.c"),
    ("linux_processes", "tests/programs/linux_processes.bpf.c"),
    ("linux_uprobe", "tests/programs/linux_uprobe.bpf.c"),
    ("linux_refused", "tests/programs/linux_refused.bpf.c"),
    ("sites_capture", "tests/programs/sites_capture.bpf.c"),
    ("bench-empty", "benches/probes/empty.bpf.c"),
    ("bench-counter", "benches/probes/counter.bpf.c"),
    ("bench-slot", "benches/probes/slot.bpf.c"),
    ("bench-lookup", "benches/probes/lookup.bpf.c"),
    ("bench-update", "benches/probes/update.bpf.c"),
    ("bench-ring", "benches/probes/ring.bpf.c"),
    ("bench-ring-whole", "benches/probes/ring_whole.bpf.c"),
    ("bench-launch", "benches/probes/launch.bpf.c"),
    ("bench-links-1", "benches/probes/links_1.bpf.c"),
    ("bench-links-4", "benches/probes/links_4.bpf.c"),
    ("bench-links-16", "benches/probes/links.bpf.c"),
    ("bench-all-empty", "benches/probes/all_empty.bpf.c"),
    ("bench-all-entry", "benches/probes/all_entry.bpf.c"),
    ("bench-all-blocks", "benches/probes/all_blocks.bpf.c"),
    ("bench-all-count", "benches/probes/all_count.bpf.c"),
    ("bench-all-bytes", "benches/probes/all_bytes.bpf.c"),
    ("bench-all-mem-empty", "benches/probes/all_mem_empty.bpf.c"),
    ("bench-memcount", "benches/probes/memcount.bpf.c"),
    ("bench-memcount-warp", "benches/probes/memcount_warp.bpf.c"),
    ("bench-hash", "benches/probes/hash.bpf.c"),
    ("bench-lru", "benches/probes/lru.bpf.c"),
    ("bench-percpu", "benches/probes/percpu.bpf.c"),
    ("bench-call", "benches/probes/call.bpf.c"),
];

/// CUDA applications: name and source.
pub const APPS: &[(&str, &str)] = &[
    (CUTLASS, "tests/apps/cutlass.cu"),
    ("vectoradd", "examples/apps/vectoradd.cu"),
    ("matmul", "examples/apps/matmul.cu"),
    ("reduction", "examples/apps/reduction.cu"),
    ("variants", "tests/apps/variants.cu"),
    ("crash", "tests/apps/crash.cu"),
    (DRIVER_API, "tests/apps/driverapi.cu"),
    (LOADING, "tests/apps/loading.cu"),
    ("hostorder", "tests/apps/hostorder.cu"),
    ("symbols", "tests/apps/symbols.cu"),
    ("managed", "tests/apps/managed.cu"),
    ("overlap", "tests/apps/overlap.cu"),
    ("queries", "tests/apps/queries.cu"),
    ("pipeline", "tests/apps/pipeline.cu"),
    ("meeting", "tests/apps/meeting.cu"),
    ("fenced", "tests/apps/fenced.cu"),
    ("places", "tests/apps/places.cu"),
    ("tensors", "tests/apps/tensors.cu"),
    (NAMED, "tests/apps/named.cu"),
    ("waits", "tests/apps/waits.cu"),
    ("linuxcalls", "tests/apps/linuxcalls.cu"),
    ("million", "tests/apps/million.cu"),
    ("fencerace", "tests/apps/fencerace.cu"),
    ("longrun", "tests/apps/longrun.cu"),
    ("persistent", "tests/apps/persistent.cu"),
    ("rounds", "tests/apps/rounds.cu"),
    ("live", "tests/apps/live.cu"),
    ("cached", "tests/apps/cached.cu"),
    ("addlines", "tests/apps/addlines.cu"),
    ("ranges", "tests/apps/ranges.cu"),
    ("forks", "tests/apps/forks.cu"),
    ("jit", "tests/apps/jit.cu"),
    ("libraries", "tests/apps/libraries.cu"),
    ("odd", "tests/apps/odd.cu"),
    ("strange", "tests/apps/strange.cu"),
    ("linked", "tests/apps/linked.cu"),
    ("replacestress", "tests/apps/replacestress.cu"),
    ("soak", "tests/apps/soak.cu"),
    ("graphs", "tests/apps/graphs.cu"),
    (CONDITIONAL, "tests/apps/conditional.cu"),
    ("blocks", "tests/apps/blocks.cu"),
    ("cudagraph", "tests/apps/cudagraph.cu"),
    ("templates", "tests/apps/templates.cu"),
    ("twogpus", "tests/apps/twogpus.cu"),
    ("stub", "tests/apps/stub.cu"),
    (UNOPTIMISED, "tests/apps/vec_add.cu"),
    ("machine", "tests/apps/machine.cu"),
    (EMBEDDED_PTX, "tests/apps/machine.cu"),
    ("locals", "tests/apps/locals.cu"),
    ("machine_locals", "tests/apps/locals.cu"),
    (INSTRUCTIONS, "tests/apps/instructions.cu"),
    (MACHINE_INSTRUCTIONS, "tests/apps/instructions.cu"),
    ("vecadd-bench", "benches/vecadd.cu"),
    ("launch-bench", "benches/launch.cu"),
    ("launch-machine", "benches/launch.cu"),
    ("accesses-machine", "benches/accesses.cu"),
    ("modules-bench", "benches/modules.cu"),
    ("hash-bench", "benches/hash.cu"),
];

/// The application that is made of CUTLASS. Its headers are fetched and not kept here, and it takes
/// longer than any other to compile, so it is the first.
pub const CUTLASS: &str = "cutlass";
/// The application with debug information, which has the names of parameters.
pub const NAMED: &str = "named";
/// The application that calls the driver by symbols, too; the soft GPU's library says which there
/// are.
pub const DRIVER_API: &str = "driverapi";
/// Another one that does.
pub const LOADING: &str = "loading";
/// The application with conditional nodes, and what decides there, which needs the device linker.
pub const CONDITIONAL: &str = "conditional";
pub const DECIDER: &str = "tests/apps/conditional_decide.cu";
/// Applications without PTX, which the soft GPU cannot run.
pub const MACHINE_CODE: &[&str] = &[
    "machine",
    "machine_locals",
    "launch-machine",
    "accesses-machine",
];
/// The first of them with line information, which holds the PTX.
pub const EMBEDDED_PTX: &str = "lineinfo";
/// Applications that have PTX for older GPUs, too, and run there.
pub const FOR_OLDER: &[&str] = &["vectoradd", "matmul", "reduction", "variants"];
/// The application that has wgmma, which no other architecture has.
pub const INSTRUCTIONS: &str = "instructions";
/// The same without PTX.
pub const MACHINE_INSTRUCTIONS: &str = "machine_instructions";
/// The application whose host code is not optimised, so that functions of headers are functions of
/// it.
pub const UNOPTIMISED: &str = "vec_add";

/// Programs of the corpus, `tests/kernels/sources/NAME.cu`, and how each is compiled.
pub const KERNELS: &[(&str, Code)] = &[
    ("tiling", Code::Plain),
    ("warps", Code::Plain),
    ("cooperative", Code::Plain),
    ("inline_ptx", Code::Plain),
    ("tensor", Code::Plain),
    ("wgmma", Code::Specific),
    ("async", Code::Plain),
    ("clusters", Code::Plain),
    ("specialised", Code::Specific),
    ("recursion", Code::Plain),
    ("indirect", Code::Plain),
    ("speak", Code::Plain),
    ("heap", Code::Plain),
    ("textures", Code::Plain),
    ("params", Code::Plain),
    ("doubles", Code::Plain),
    ("halves", Code::Plain),
    ("limits", Code::Plain),
    ("counted", Code::Plain),
    ("device_launch", Code::Relocatable),
    ("captured", Code::Plain),
];

/// What code nvcc makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// For `sm_90` and later.
    Plain,
    /// For `sm_90a` alone: wgmma and setmaxnreg are not in later ones.
    Specific,
    /// For the device linker, with CUDA's device runtime; the PTX does not come with it.
    Relocatable,
}
