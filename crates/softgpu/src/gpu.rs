//! An emulated device as a driver sees it.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use crate::children::{Child, Children};
use crate::device::Device;
use crate::image::object::{Image, ImageKind, Object, Registry, Texture};
use crate::launch::{Launch, LaunchError, Outcome, Print, check_geometry};
use crate::limits::{
    MAX_BLOCKS_PER_SM, MAX_SHARED_PER_BLOCK, MAX_THREADS_PER_BLOCK, MAX_THREADS_PER_SM,
    RESERVED_SHARED, SHARED_PER_SM,
};
use crate::load_error::LoadError;
use crate::memory::{ARENA_BASE, MemError, Memory};
use crate::module::{Kernel, Module};
use crate::sched;
use crate::worker::Run;

/// Registers that a warp gets at a time.
const REGISTERS_AT_ONCE: u32 = 256;

/// How a [`Gpu`] is made.
#[derive(Debug, Clone)]
pub struct Config {
    /// Emulated SMs.
    pub sms: u32,
    /// Host threads that run them. With 1, everything is reproducible, races in the guest included.
    pub threads: usize,
    /// Schedule stress: warps are split at random places and warps and blocks are run in random
    /// order.
    pub seed: Option<u64>,
    /// Bytes of device memory. Host memory is taken as it is used.
    pub memory: u64,
    /// Address of the first byte of it as the guest sees it: devices of one process need ranges of
    /// their own.
    pub start: u64,
    /// Warp instructions per host thread after which a launch is given up.
    pub step_limit: Option<u64>,
    /// `%globaltimer`, in nanoseconds.
    pub clock: fn() -> u64,
    /// Registers of a multiprocessor that its blocks share, so that how many fit depends on what a
    /// kernel is estimated to need; `None` for as many as they like.
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

/// Nanoseconds since the first call. The device's clock is part of the emulation, hence not from
/// outside by default.
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

/// An emulated device: memory, allocator, modules, launches. All methods take `&self`: it may be
/// shared among threads, and launches may run at the same time.
pub struct Gpu {
    config: Config,
    device: Arc<Device>,
}

impl Gpu {
    /// A device with empty memory. If the host cannot reserve `config.memory`, the device has none
    /// and [`Gpu::alloc`] returns `None`.
    pub fn new(config: Config) -> Gpu {
        let device = Device {
            memory: Arc::new(Memory::new(config.start, config.memory)),
            heap: Mutex::new(HashSet::new()),
            modules: AtomicU32::new(1),
            images: Registry::behind(config.start.saturating_sub(ARENA_BASE)),
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

    /// From now on kernels, reads and writes of this device reach the memory of these devices, and
    /// of no others.
    pub fn set_peers<'g>(&self, peers: impl IntoIterator<Item = &'g Gpu>) {
        let peers: Vec<&Arc<Memory>> = peers.into_iter().map(|peer| &peer.device.memory).collect();
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
    /// `host` must stay valid for reads and writes of `len` bytes, by atomics and from any thread,
    /// until [`Gpu::unmap_host`] has returned and every launch that began before has ended.
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

    /// Loads a PTX module: allocates and initialises its variables. Bodies are decoded when a
    /// kernel is first used.
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
        // A grid-wide barrier needs all blocks to be resident; then its workspace is there,
        // cooperative launch or not.
        let resident = blocks <= u64::from(sms) * u64::from(blocks_per_sm);
        let workspace = match program.environment && resident {
            true => self.workspace(),
            false => 0,
        };
        let run = Run {
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

    /// The object behind `cooperative_groups::this_grid`: its size and the barrier's count, 0 if
    /// there is no room.
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

impl Gpu {
    /// A texture object: the number that kernels name it by, never 0 and never used again. Its
    /// memory stays the caller's.
    pub fn add_texture(&self, texture: Texture) -> u64 {
        self.device.images.add(Object::Texture(Arc::new(texture)))
    }

    /// A surface object, as [`Gpu::add_texture`](Gpu::add_texture) makes a texture object.
    pub fn add_surface(&self, image: Image) -> u64 {
        self.device.images.add(Object::Surface(Arc::new(image)))
    }

    /// Forgets an object; false if there is none of that number and kind.
    pub fn remove_image(&self, object: u64, kind: ImageKind) -> bool {
        self.device.images.remove(object, kind)
    }
}
