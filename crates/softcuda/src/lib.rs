//! CUDA without a GPU: `libcuda.so.1` over the emulator in `warpbpf-softgpu`, and a
//! `libcudart.so.13` over whatever `libcuda.so.1` the process has. A program built by `nvcc -cudart
//! shared`, one that uses the driver API, and our own agent, injected as into NVIDIA's driver, run
//! on it unchanged.
//!
//! # Two libraries from one crate
//!
//! The static library holds the exports of both. The C compiler links it twice, each time with the
//! version script that leaves one family of names visible:
//!
//! ```text
//! cargo build --release -p warpbpf-softcuda
//! crates/softcuda/link/assemble.sh target/release/libwarpbpf_softcuda.a soft/
//! LD_LIBRARY_PATH=soft/ ./program
//! ```
//!
//! Two libraries, because the runtime has to find the driver by name like any other program (an
//! injected agent then sees what it sees in front of a real driver) and must not carry a second
//! copy of its symbols; by a version script, because programs ask for `cudaMalloc@libcudart.so.13`
//! and glibc complains on their stderr where the version is missing, and rustc's own script for a
//! `cdylib` cannot name versions.
//!
//! # Environment
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `WARPBPF_SOFT_DEVICES` | devices, at most 16; each has memory of its own | 1 |
//! | `WARPBPF_SOFT_SMS` | multiprocessors; `4,6` for devices that differ | 4 |
//! | `WARPBPF_SOFT_REGISTERS` | registers of a multiprocessor, by which fewer blocks may fit at once; 64K on an H200 | no bound |
//! | `WARPBPF_SOFT_MEMORY` | bytes of device memory, `K`, `M`, `G` allowed | 2G |
//! | `WARPBPF_SOFT_SEED` | a number: schedules that split warps and mix blocks at random, by that seed | off |
//! | `WARPBPF_SOFT_THREADS` | host threads that run kernels; 1 makes guest races reproducible | cores |
//! | `WARPBPF_SOFT_ASYNC` | 1: work runs on a thread per stream | 0 |
//! | `WARPBPF_SOFT_PTX` | newest PTX text that is compiled, as `8.0`: an old driver, tried out | 9.0 |
//! | `WARPBPF_SOFT_DRIVER` | version that the driver says to be, as `13010`: another one, tried out | 13000 |
//! | `CUDA_INJECTION64_PATH` | a library whose `InitializeInjection` is called inside the first `cuInit` | none |
//!
//! # What differs from a GPU
//!
//! - Work runs where it is submitted, on the caller's thread, except behind a host function and
//!   with `WARPBPF_SOFT_ASYNC=1`. A program whose kernel waits for the host needs the latter.
//!   Results are the same.
//! - A trap makes the context's error sticky, with CUDA's number, and always prints one line on
//!   stderr that names kernel, block, thread and PTX line. So does a load that fails, if the
//!   program gave no log buffer.
//! - A load of a module and a free wait for all work of the context and let nobody launch
//!   meanwhile, as a driver does (docs/measurements.md).
//! - `%globaltimer` is the host's time of day (`CLOCK_REALTIME`) itself: it is as fine as that
//!   clock, and moves when somebody sets it.
//! - Only PTX runs. From a fatbin the PTX is taken that belongs to the machine code a driver would
//!   run, else the best.
//! - Of textures: no mipmaps, cubemaps, sRGB, resource views, texture references, nor sparse or
//!   planar arrays. Arrays lie in plain rows. Using what is no texture, surface or tensor map is a
//!   trap, where a GPU may read zeroes.
//! - Of tensor maps: no interleaved layouts, packed elements of 4 or 6 bits, swizzles in atoms of
//!   more than 16 bytes, nor im2col wide mode; a kernel cannot change one (`tensormap.replace`).
//!   The 128 bytes are the emulator's own.
//! - A kernel that is launched by a kernel begins when the launching grid has ended, in whatever
//!   stream. Of the device runtime there are launches, no streams, events and memory functions; a
//!   module that uses others is refused (218).
//! - Nodes of a graph run one after the other, in an order that its edges allow: branches that wait
//!   for each other hang. Of graphs: no memory, semaphore and batch nodes, updates and launches by
//!   kernels, nor capture in the per-thread default stream. Programmatic edges are ordinary ones.
//! - A `__managed__` variable is one for each context, the program's own being that of the first,
//!   and questions about pointers do not know it.
//! - Not there: IPC, NVIDIA's private export tables (which NVIDIA's own runtime library needs).
//!
//! Layers, each uses only those to its right: `runtime → driver → work → state → objects`.
//! [`runtime`] is the other library. Of `driver` it has the structures that cross the API, and it
//! calls the driver by its exported functions alone.
//!
//! Reading order: `stub` and [`driver::table`] (how functions are exported), [`objects`] (above all
//! `work`: what streams run and graphs hold), `state` (the tables of all objects), `work` (graphs
//! are built, operations run), then `driver` by subject.

pub mod driver;
pub mod error;
pub mod objects;
pub mod runtime;

mod config;
mod missing;
mod per_thread;
mod say;
mod state;
mod stub;
mod work;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("the soft CUDA libraries imitate those of x86-64 Linux");

pub use objects::handle::Handle;
