//! warpbpf inside the target process: hooks the CUDA driver, puts programs into kernels as they are loaded, chooses the
//! kernel at each launch, and carries maps and events out.
//!
//! Rules, and where they are kept: a hook that fails inside calls the original and returns its result (`guard`); no
//! panic leaves, nothing is printed, no process is started; the application never waits for the tool, except for one
//! bounded handshake and the last data at its end (`agent`, `control`); a launch loads and compiles nothing, but with the first
//! in a context, where the driver itself loads the kernel only then (`launch`); without a tool in the environment nothing happens at all (`install`), unless somebody who may trace
//! this process asks for it (`late`).
//!
//! Reading order: the ways in (`preload`, `install`, `late`, `child`), the hooks (`exports`,
//! `guard`; `warpbpf-hook`), what they do (`loads`, `modules`, `launch`, `graphs`, `contexts`), and how
//! it gets out (`agent`, `context_registry`, `control`, `pump`).

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "the agent hooks code of x86-64 and AArch64; other processors need their own code in `warpbpf-hook`"
);

mod preload;

mod child;
mod install;
mod symbols;

mod anchor;
mod exports;
mod guard;
mod hook_rows;
mod hook_table;

mod arena;
mod artefacts;
mod attributes;
mod background;
mod bound;
mod choice;
mod clients;
mod context_ends;
mod context_life;
mod contexts;
mod drain;
mod drain_wait;
mod drivers;
mod end_requests;
mod ends;
mod entry;
mod exclusive;
mod fallback;
mod gate;
mod generation;
mod graphs;
mod image;
mod images;
mod jit_outputs;
mod kernel_registry;
mod launch;
mod launch_barrier;
mod launch_memory;
mod launch_notes;
mod launches;
mod link_hooks;
mod links;
mod list;
mod loads;
mod memory;
mod memory_hooks;
mod memory_table;
mod modules;
mod negotiate;
mod nvrtc;
mod nvtx;
mod observe;
mod occupancy;
mod original;
mod outbox;
mod params;
mod preloaded;
mod published;
mod quiet;
mod replacement;
mod retains;
mod retired;
mod sanitizer;
mod shape;
mod signs;
mod slots;
mod stacks;
mod start;
mod stream_hooks;
mod stream_name;
mod streams;
mod table;
mod timeline;
mod vendor_check;
mod version;
mod wanted;
mod watch;
mod watchdog;

mod agent;
mod calls;
mod code_cache;
mod compaction;
mod context_registry;
mod control;
mod descriptors;
mod growth;
mod handshake;
mod host_ops;
mod late;
mod left;
mod lock;
mod notes;
mod poll_interval;
mod pump;
mod replace;
mod spread;
mod stack;
mod thread;

mod uprobe;

pub use install::install_into;
pub use late::warpbpf_live;
pub use nvtx::InitializeInjectionNvtx2;
pub use preload::InitializeInjection;

#[cfg(test)]
mod tests;
