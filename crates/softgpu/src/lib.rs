//! A deterministic SIMT emulator: runs the PTX that nvcc makes of ordinary C++, and our probes in
//! it, without a GPU.
//!
//! Threads run in warps of 32 lanes. An instruction is decoded once and executed for all lanes of a
//! group that stand at it; groups that diverge are run in turn (so a spin that the ISA lets finish
//! does finish) and merge where they meet. Blocks are dealt to emulated SMs and these to host
//! threads.
//!
//! What it is an oracle for: results, traps, memory bounds. What not: ptxas, the last bit of
//! `.approx` instructions, the rounding of tensor cores, time.
//!
//! A guest's mistake is a value, [`Outcome::Trapped`]; a wrong use of this crate is an error.
//!
//! Reading order, from the top down: `gpu` and `launch`, `sched` (grid to warps), `step` (the
//! dispatch loop), the instructions by family, each of which adds to `worker`, what they work on
//! (`block`, `warp`, `memory`), `module` (symbols and initialisers), `decode` (PTX to ops), `op`.

mod alu;
mod async_copy;
mod async_store;
mod atomics;
mod block;
mod bulk;
mod call;
mod children;
mod collective;
mod control;
mod decode;
mod device;
mod device_runtime;
mod exec_mem;
mod gpu;
mod image;
mod initialiser;
mod joins;
mod launch;
mod limits;
mod load_error;
mod loaded;
mod matrix;
mod memory;
mod module;
mod op;
mod params;
mod patience;
mod position;
mod printf;
mod program;
mod references;
mod rng;
mod sched;
mod special;
mod stack;
mod step;
mod tensor_map;
mod trap;
mod variables;
mod video;
mod warp;
mod wide;
mod windows;
mod worker;

pub use gpu::{Config, Gpu};
pub use image::object::{AddressMode, Channels, Image, ImageKind, ImageSource, Texture};
pub use launch::{Launch, LaunchError, Outcome, Print};
pub use limits::{
    MAX_BLOCKS_PER_SM, MAX_PARAM_BYTES, MAX_SHARED_PER_BLOCK, MAX_THREADS_PER_BLOCK,
    MAX_THREADS_PER_SM, RESERVED_SHARED, SHARED_PER_SM,
};
pub use load_error::{InitialiserError, LoadError};
pub use memory::{ARENA_BASE, MemError};
pub use module::{Kernel, KernelInfo, Module};
pub use params::ParamInfo;
pub use tensor_map::{TENSOR_MAP_BYTES, TensorBox, TensorElement, TensorMap, TensorSwizzle};
pub use trap::{Trap, TrapKind};
