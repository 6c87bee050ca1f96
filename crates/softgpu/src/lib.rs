//! A deterministic SIMT emulator: runs the PTX that nvcc makes of ordinary C++, and our probes in it, without a GPU.
//!
//! Threads run in warps of 32 lanes. An instruction is decoded once and executed for all lanes of a group that stand
//! at it; groups that diverge are run in turn (so a spin that the ISA lets finish does finish) and merge where they
//! meet. Blocks are dealt to emulated SMs and these to host threads.
//!
//! What it is an oracle for: results, traps, memory bounds. What not: ptxas, the last bit of `.approx` instructions, the
//! rounding of tensor cores, time.
//!
//! A guest's mistake is a value, [`Outcome::Trapped`]; a wrong use of this crate is an error.
//!
//! Reading order: [`Gpu`] and [`Launch`] here, `module` (symbols and initialisers), `decode` (PTX to ops), `sched`
//! (grid to warps), `step` (the dispatch loop), then the instructions by family.

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
mod exec_mem;
mod image;
mod initialiser;
mod joins;
mod matrix;
mod memory;
mod module;
mod op;
mod patience;
mod printf;
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

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use children::{Child, Children};
pub use image::{AddressMode, Channels, Image, ImageKind, ImageSource, Texture};
pub use memory::{ARENA_BASE, MemError};
pub use module::{Kernel, KernelInfo, LoadError, Module, ParamInfo};
pub use tensor_map::{TENSOR_MAP_BYTES, TensorBox, TensorElement, TensorMap, TensorSwizzle};
pub use trap::{Trap, TrapKind};

/// Threads per block that a kernel can have at most.
pub const MAX_THREADS_PER_BLOCK: u32 = 1024;
/// Threads that can be resident on an SM.
pub const MAX_THREADS_PER_SM: u32 = 2048;
/// Blocks that can be resident on an SM.
pub const MAX_BLOCKS_PER_SM: u32 = 32;
/// Bytes of shared memory per SM; a block can have 1 KiB less.
pub const SHARED_PER_SM: u32 = 228 << 10;
/// Registers that a warp gets at a time.
const REGISTERS_AT_ONCE: u32 = 256;
/// Bytes of shared memory per block, static and dynamic together.
pub const MAX_SHARED_PER_BLOCK: u32 = 227 << 10;
/// Bytes that system software has at the start of each block's shared memory, before what the kernel declares (PTX ISA,
/// "%reserved_smem_offset_begin"). Cooperative groups keep barriers there.
pub const RESERVED_SHARED: u32 = 1 << 10;
/// Bytes of parameters that a kernel can have.
pub const MAX_PARAM_BYTES: usize = 32_764;

/// How a [`Gpu`] is made.
#[derive(Debug, Clone)]
pub struct Config {
    /// Emulated SMs.
    pub sms: u32,
    /// Host threads that run them. With 1, everything is reproducible, races in the guest included.
    pub threads: usize,
    /// Schedule stress: warps are split at random places and warps and blocks are run in random order.
    pub seed: Option<u64>,
    /// Bytes of device memory. Host memory is taken as it is used.
    pub memory: u64,
    /// Address of the first byte of it as the guest sees it: devices of one process need ranges of their own.
    pub start: u64,
    /// Warp instructions per host thread after which a launch is given up.
    pub step_limit: Option<u64>,
    /// `%globaltimer`, in nanoseconds.
    pub clock: fn() -> u64,
    /// Registers of a multiprocessor that its blocks share, so that how many fit depends on what a kernel is estimated to need; `None` for as many as they like.
    pub registers: Option<u32>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            sms: 4,
            threads: 2,
            seed: None,
            memory: 1 << 30,
            start: ARENA_BASE,
            step_limit: None,
            clock: monotonic,
            registers: None,
        }
    }
}

/// Nanoseconds since the first call. The device's clock is part of the emulation, hence not from outside by default.
fn monotonic() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    u64::try_from(
        START
            .get_or_init(std::time::Instant::now)
            .elapsed()
            .as_nanos(),
    )
    .unwrap_or(u64::MAX)
}

/// What the modules of a device share.
pub(crate) struct Device {
    pub memory: memory::Memory,
    /// Addresses that device `malloc` returned.
    pub heap: Mutex<HashSet<u64>>,
    pub modules: AtomicU32,
    pub images: image::Registry,
}

/// An emulated device: memory, allocator, modules, launches. All methods take `&self`: it may be shared among threads,
/// and launches may run at the same time.
pub struct Gpu {
    config: Config,
    device: Arc<Device>,
}

/// Takes what a kernel printed.
pub type Print<'a> = &'a mut (dyn FnMut(&[u8]) + 'a);

/// A kernel launch.
pub struct Launch<'a> {
    /// What to run; of a module of the same [`Gpu`].
    pub kernel: &'a Kernel,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads per block.
    pub block: [u32; 3],
    /// Blocks per cluster, `[1, 1, 1]` for what the kernel requires, if anything.
    pub cluster: [u32; 3],
    /// Bytes of dynamic shared memory per block.
    pub dynamic_shared: u32,
    /// Parameters, laid out as [`KernelInfo::params`] says.
    pub params: &'a [u8],
    /// `%gridid`.
    pub grid_id: u64,
    /// Gets what the kernel printed, block by block, after the last block is done.
    pub stdout: Option<Print<'a>>,
}

/// How a launch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Every thread exited.
    Done {
        /// Warp instructions executed.
        steps: u64,
    },
    /// A thread did what it must not. With several host threads, the trap of the lowest block that was seen.
    Trapped(Box<Trap>),
}

/// A launch that could not be started or was given up. The caller's fault, not the guest's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// Grid, block or cluster size out of range.
    #[error("kernel `{kernel}` cannot be launched: {reason}")]
    Geometry {
        /// Mangled kernel name.
        kernel: String,
        /// Which size is wrong and why.
        reason: String,
    },
    /// More shared memory than a block can have.
    #[error(
        "kernel `{kernel}` needs `{bytes}` bytes of shared memory per block, the device has `{available}`"
    )]
    SharedMemory {
        /// Mangled kernel name.
        kernel: String,
        /// Static and dynamic bytes.
        bytes: u64,
        /// What a block can have.
        available: u32,
    },
    /// The parameter block is shorter than the kernel's parameters.
    #[error("kernel `{kernel}` takes `{expected}` bytes of parameters, `{found}` were given")]
    Params {
        /// Mangled kernel name.
        kernel: String,
        /// Bytes it takes.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// The kernel's body cannot be decoded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// `Config::step_limit` was reached.
    #[error(
        "kernel `{kernel}` ran for more than `{limit}` warp instructions on one host thread and was given up"
    )]
    StepLimit {
        /// Mangled kernel name.
        kernel: String,
        /// The limit.
        limit: u64,
    },
    /// Kernel and device do not belong together.
    #[error("kernel `{kernel}` belongs to another device")]
    OtherDevice {
        /// Mangled kernel name.
        kernel: String,
    },
}

impl Gpu {
    /// A device with empty memory. If the host cannot reserve `config.memory`, the device has none and [`Gpu::alloc`]
    /// returns `None`.
    pub fn new(config: Config) -> Gpu {
        let device = Device {
            memory: memory::Memory::new(config.start, config.memory),
            heap: Mutex::new(HashSet::new()),
            modules: AtomicU32::new(1),
            images: image::Registry::behind(config.start.saturating_sub(ARENA_BASE)),
        };
        Gpu {
            config,
            device: Arc::new(device),
        }
    }

    /// How the device was made.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes of device memory in all and in use (with alignment and red zones).
    pub fn memory_info(&self) -> (u64, u64) {
        (self.device.memory.capacity(), self.device.memory.used())
    }

    /// Addresses of its own memory, allocated or not.
    pub fn addresses(&self) -> std::ops::Range<u64> {
        let start = self.device.memory.start();
        start..start + self.device.memory.capacity()
    }

    /// From now on kernels, reads and writes of this device reach the memory of these devices, and of no others.
    pub fn set_peers<'g>(&self, peers: impl IntoIterator<Item = &'g Gpu>) {
        let peers: Vec<&Arc<Device>> = peers.into_iter().map(|peer| &peer.device).collect();
        self.device.memory.set_peers(&peers);
    }

    /// Allocates device memory, aligned to 256 bytes; `None` if there is not enough.
    pub fn alloc(&self, bytes: u64) -> Option<u64> {
        self.device.memory.alloc(bytes)
    }

    /// Frees what [`Gpu::alloc`] returned.
    ///
    /// # Errors
    /// [`MemError::NotAllocated`] for any other address.
    pub fn free(&self, address: u64) -> Result<(), MemError> {
        self.device.memory.free(address)
    }

    /// Start and size of the live allocation or host mapping that holds `address`.
    pub fn range_of(&self, address: u64) -> Option<(u64, u64)> {
        self.device
            .memory
            .find(address)
            .map(|region| (region.base, region.size))
    }

    /// Writes device memory.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`] unless the range lies in one live allocation.
    pub fn write(&self, address: u64, data: &[u8]) -> Result<(), MemError> {
        self.device.memory.write(address, data)
    }

    /// Reads device memory.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`] unless the range lies in one live allocation.
    pub fn read(&self, address: u64, out: &mut [u8]) -> Result<(), MemError> {
        self.device.memory.read(address, out)
    }

    /// Sets `bytes` bytes of device memory to `byte`.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`] unless the range lies in one live allocation.
    pub fn fill(&self, address: u64, byte: u8, bytes: u64) -> Result<(), MemError> {
        self.device.memory.fill(address, byte, bytes)
    }

    /// Makes host memory visible to the device at the same address and returns that address.
    ///
    /// # Safety
    /// `host` must stay valid for reads and writes of `len` bytes, by atomics and from any thread, until
    /// [`Gpu::unmap_host`] has returned and every launch that began before has ended.
    pub unsafe fn map_host(&self, host: *mut u8, len: u64) -> u64 {
        // SAFETY: the caller's promise is the same.
        unsafe { self.device.memory.map_host(host, len) }
    }

    /// Ends a mapping made by [`Gpu::map_host`].
    ///
    /// # Errors
    /// [`MemError::NotAllocated`] if `address` is not the start of a mapping.
    pub fn unmap_host(&self, address: u64) -> Result<(), MemError> {
        self.device.memory.unmap_host(address)
    }

    /// Loads a PTX module: allocates and initialises its variables. Bodies are decoded when a kernel is first used.
    ///
    /// # Errors
    /// A text that is not PTX, an initialiser that cannot be evaluated, too little memory.
    pub fn load(&self, ptx: &str) -> Result<Module, LoadError> {
        Module::load(Arc::clone(&self.device), ptx)
    }

    /// Blocks of that size that can be resident at once on one SM, as the occupancy API says it.
    ///
    /// # Errors
    /// The kernel's body cannot be decoded.
    pub fn blocks_per_sm(
        &self,
        kernel: &Kernel,
        threads: u32,
        dynamic_shared: u32,
    ) -> Result<u32, LoadError> {
        let program = kernel.program()?;
        let shared = program.shared_bytes(dynamic_shared);
        if threads == 0 || threads > MAX_THREADS_PER_BLOCK || shared > MAX_SHARED_PER_BLOCK {
            return Ok(0);
        }
        let warps = threads.div_ceil(32);
        let by_threads = MAX_THREADS_PER_SM / 32 / warps;
        let by_registers = self.config.registers.map_or(u32::MAX, |all| {
            let of_warp = (program.registers * 32).next_multiple_of(REGISTERS_AT_ONCE);
            all / of_warp.max(REGISTERS_AT_ONCE) / warps
        });
        let by_shared = SHARED_PER_SM / (shared + RESERVED_SHARED);
        let most = by_threads.min(by_shared).min(by_registers);
        Ok(most.min(MAX_BLOCKS_PER_SM))
    }

    /// Runs a kernel to its end, and all that it launches.
    ///
    /// # Errors
    /// A launch that cannot be started or reached the step limit; never something the guest did.
    pub fn launch(&self, launch: Launch<'_>) -> Result<Outcome, LaunchError> {
        let (kernel, grid_id) = (launch.kernel, launch.grid_id);
        let mut nothing = |_: &[u8]| ();
        let Launch { stdout, .. } = launch;
        let stdout: Print<'_> = match stdout {
            Some(stdout) => stdout,
            None => &mut nothing,
        };
        let (mut outcome, children) = self.launch_one(
            Launch {
                stdout: None,
                ..launch
            },
            stdout,
        )?;
        let mut pending: VecDeque<Child> = children.into();
        while let Some(child) = pending.pop_front() {
            let mut params = Vec::new();
            let kernel = kernel.sibling(child.function);
            if let Some(kernel) = &kernel {
                params.resize(kernel.param_bytes(), 0);
                // The guest may have freed it: then the kernel has zeroes.
                let _ = self.read(child.params, &mut params);
            }
            let _ = self.free(child.params);
            let (Some(kernel), Outcome::Done { steps }) = (kernel, &outcome) else {
                continue;
            };
            let launched = Launch {
                kernel: &kernel,
                grid: child.grid,
                block: child.block,
                cluster: [1; 3],
                dynamic_shared: child.shared,
                params: &params,
                grid_id,
                stdout: None,
            };
            let (ended, children) = self.launch_one(launched, stdout)?;
            outcome = match ended {
                Outcome::Done { steps: more } => Outcome::Done {
                    steps: steps + more,
                },
                trapped @ Outcome::Trapped(_) => trapped,
            };
            pending.extend(children);
        }
        Ok(outcome)
    }

    /// Runs a kernel to its end, and gives what it launched.
    fn launch_one(
        &self,
        launch: Launch<'_>,
        stdout: &mut dyn FnMut(&[u8]),
    ) -> Result<(Outcome, Vec<Child>), LaunchError> {
        let Launch {
            kernel,
            grid,
            block,
            cluster,
            dynamic_shared,
            params,
            grid_id,
            stdout: _,
        } = launch;
        let name = || kernel.name().to_owned();
        if !Arc::ptr_eq(kernel.device(), &self.device) {
            return Err(LaunchError::OtherDevice { kernel: name() });
        }
        let cluster = if cluster == [1, 1, 1] {
            kernel.required_cluster().unwrap_or(cluster)
        } else {
            cluster
        };
        check_geometry(kernel, grid, block, cluster)?;
        let program = kernel.program()?;
        let bytes = program.shared_bytes(dynamic_shared);
        if bytes > MAX_SHARED_PER_BLOCK {
            return Err(LaunchError::SharedMemory {
                kernel: name(),
                bytes: u64::from(bytes),
                available: MAX_SHARED_PER_BLOCK,
            });
        }
        let expected = kernel.param_bytes();
        if params.len() < expected {
            return Err(LaunchError::Params {
                kernel: name(),
                expected,
                found: params.len(),
            });
        }
        let threads = block.iter().product::<u32>();
        let words = params[..expected].chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        });
        let sms = self.config.sms.max(1);
        let blocks_per_sm = self.blocks_per_sm(kernel, threads, dynamic_shared)?;
        let blocks = grid
            .iter()
            .fold(1u64, |n, &m| n.saturating_mul(u64::from(m)));
        // A grid-wide barrier needs all blocks to be resident; then its workspace is there, cooperative launch or not.
        let resident = blocks <= u64::from(sms) * u64::from(blocks_per_sm);
        let workspace = match program.environment && resident {
            true => self.workspace(),
            false => 0,
        };
        let run = sched::Run {
            program: &program,
            module_id: kernel.module_id(),
            kernel,
            children: Children::default(),
            memory: &self.device.memory,
            heap: &self.device.heap,
            images: &self.device.images,
            clock: self.config.clock,
            grid,
            block,
            cluster,
            dynamic_shared,
            grid_id,
            params: words.collect(),
            params_len: expected,
            sms,
            host_threads: (self.config.threads as u32).clamp(1, sms),
            blocks_per_sm,
            workspace,
            seed: self.config.seed,
            step_limit: self.config.step_limit,
            stop: AtomicU64::new(u64::MAX),
        };
        let mut harvests = sched::run_grid(&run);
        if workspace != 0 {
            // The guest can free it, being an address like any other; then it is gone already.
            let _ = self.free(workspace);
        }
        let mut printed: Vec<(u64, Vec<u8>)> = harvests
            .iter_mut()
            .flat_map(|h| std::mem::take(&mut h.printed))
            .collect();
        printed.sort_by_key(|&(block, _)| block);
        printed.iter().for_each(|(_, text)| stdout(text));
        let (children, unused) = run.children.take();
        for room in unused {
            // As above.
            let _ = self.free(room);
        }
        let exhausted = harvests.iter().any(|h| h.exhausted);
        let steps = harvests.iter().map(|h| h.steps).sum();
        match harvests
            .into_iter()
            .filter_map(|h| h.trap)
            .min_by_key(|&(block, _)| block)
        {
            Some((_, trap)) => Ok((Outcome::Trapped(Box::new(trap)), children)),
            None if exhausted => Err(LaunchError::StepLimit {
                kernel: name(),
                limit: self.config.step_limit.unwrap_or(0),
            }),
            None => Ok((Outcome::Done { steps }, children)),
        }
    }

    /// The object behind `cooperative_groups::this_grid`: its size and the barrier's count, 0 if there is no room.
    fn workspace(&self) -> u64 {
        const BYTES: u32 = 8;
        let address = self.alloc(u64::from(BYTES)).unwrap_or(0);
        let initial = u64::from(BYTES).to_le_bytes();
        if self.write(address, &initial).is_ok() {
            address
        } else {
            0
        }
    }

    /// Addresses that device `malloc` gave out and `free` has not taken back.
    pub fn device_heap(&self) -> Vec<u64> {
        let mut list: Vec<u64> = self
            .device
            .heap
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .copied()
            .collect();
        list.sort_unstable();
        list
    }
}

fn check_geometry(
    kernel: &Kernel,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: [u32; 3],
) -> Result<(), LaunchError> {
    let bad = |reason: String| {
        Err(LaunchError::Geometry {
            kernel: kernel.name().to_owned(),
            reason,
        })
    };
    let say = |[x, y, z]: [u32; 3]| format!("({x},{y},{z})");
    if grid.contains(&0) || grid[0] > i32::MAX as u32 || grid[1] > 65_535 || grid[2] > 65_535 {
        return bad(format!(
            "grid {} is outside of (1..2147483647, 1..65535, 1..65535)",
            say(grid)
        ));
    }
    if block.contains(&0) || block[0] > 1024 || block[1] > 1024 || block[2] > 64 {
        return bad(format!(
            "block {} is outside of (1..1024, 1..1024, 1..64)",
            say(block)
        ));
    }
    let threads = block.iter().product::<u32>();
    if threads > MAX_THREADS_PER_BLOCK {
        return bad(format!(
            "block {} has {threads} threads, the device allows {MAX_THREADS_PER_BLOCK}",
            say(block)
        ));
    }
    if let Some(max) = kernel.max_threads().filter(|&max| threads > max) {
        return bad(format!(
            "block {} has {threads} threads, the kernel's `.maxntid` allows {max}",
            say(block)
        ));
    }
    let blocks = cluster
        .iter()
        .fold(1u64, |n, &m| n.saturating_mul(u64::from(m)));
    if blocks == 0 || blocks > 16 || (0..3).any(|i| !grid[i].is_multiple_of(cluster[i])) {
        let text = format!(
            "cluster {} must divide grid {} and have at most 16 blocks",
            say(cluster),
            say(grid)
        );
        return bad(text);
    }
    Ok(())
}

/// The next module's number: part of its functions' addresses.
fn next_module_id(device: &Device) -> u32 {
    device.modules.fetch_add(1, Ordering::Relaxed)
}
