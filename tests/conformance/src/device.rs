//! The engines that run PTX, behind one trait: the soft GPU in this process, and whatever driver a
//! library is.

use warpbpf_abi::names::SLOTS;
use warpbpf_codegen::Target;
use warpbpf_codegen::kernel::{Kernel, module, slot_count};
use warpbpf_driver::{Driver, Function, Stream};
use warpbpf_maps::{MapPlan, MapView, Value};
use warpbpf_softgpu as soft;

use crate::build::{Built, CODE_SLOT, MAP_SLOTS, MEMORY_SLOT};
use crate::test::{Contents, Input, Output};
use crate::world::BLOCK;

/// What every byte between the threads' memories holds: a store outside would change it.
const GUARD: u8 = 0xa5;
/// Bytes of the environment block; zeros serve programs that do not look at the time.
const ENVIRONMENT: u64 = warpbpf_abi::layout::env::SIZE;
/// What the interpreter on the device runs, among the areas.
const CODE_AREA: usize = (CODE_SLOT - MEMORY_SLOT) as usize;
/// Warp instructions after which the soft GPU gives a launch up. The verifier's budget is far
/// below.
const STEPS: u64 = 1 << 28;

/// Why a run has no output.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// The module is not accepted.
    #[error("the module does not load: {reason}")]
    Load {
        /// The loader's message.
        reason: String,
    },
    /// The program did what it must not.
    #[error("trap: {reason}")]
    Trap {
        /// What.
        reason: String,
    },
    /// The program wrote where it must not, without a trap.
    #[error("thread {thread} wrote outside its memory")]
    Outside {
        /// Linear index.
        thread: usize,
    },
    /// The machinery around it failed.
    #[error("{what}: {reason}")]
    Machinery {
        /// What was tried.
        what: &'static str,
        /// The message.
        reason: String,
    },
}

fn machinery(what: &'static str) -> impl FnOnce(String) -> RunError {
    move |reason| RunError::Machinery { what, reason }
}

/// Something that runs PTX. One module is loaded at a time.
pub trait Device {
    /// Its name.
    fn name(&self) -> String;
    /// The newest target of modules that it takes.
    fn target(&self) -> Target;
    /// It can go on after a trap. A CUDA context cannot.
    fn survives(&self) -> bool;
    /// Loading a module takes long.
    fn is_slow(&self) -> bool;
    /// Replaces the module.
    ///
    /// # Errors
    /// [`RunError::Load`].
    fn load(&mut self, ptx: &str) -> Result<(), RunError>;
    /// Address of the module's slot table.
    ///
    /// # Errors
    /// [`RunError::Machinery`].
    fn slots(&mut self) -> Result<u64, RunError>;
    /// Device memory, 256-byte aligned.
    ///
    /// # Errors
    /// [`RunError::Machinery`].
    fn alloc(&mut self, bytes: u64) -> Result<u64, RunError>;
    /// Gives memory back.
    ///
    /// # Errors
    /// [`RunError::Machinery`].
    fn free(&mut self, address: u64) -> Result<(), RunError>;
    /// Writes memory.
    ///
    /// # Errors
    /// [`RunError::Machinery`].
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), RunError>;
    /// Reads memory.
    ///
    /// # Errors
    /// [`RunError::Machinery`].
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), RunError>;
    /// Runs a kernel of the module to its end.
    ///
    /// # Errors
    /// [`RunError::Trap`].
    fn launch(&mut self, kernel: &str, blocks: u32, threads: u32) -> Result<(), RunError>;
}

/// A device with room for the programs' memory and maps, which is kept from batch to batch.
pub struct Bench<D> {
    device: D,
    /// The environment block; zeros.
    environment: Option<u64>,
    /// Memory of the threads, of the code for the interpreter on the device, then of the maps:
    /// address and size.
    areas: Vec<(u64, u64)>,
}

impl<D: Device> Bench<D> {
    /// A bench on a device.
    pub fn new(device: D) -> Bench<D> {
        Bench {
            device,
            environment: None,
            areas: Vec::new(),
        }
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Runs programs of one module, each on its input. A program's own failure is its own; the
    /// error is the module's.
    ///
    /// # Errors
    /// [`RunError::Load`] and [`RunError::Machinery`].
    pub fn run(
        &mut self,
        batch: &[(&Built, &Input)],
        target: Target,
    ) -> Result<Vec<Result<Output, RunError>>, RunError> {
        let Some((first, _)) = batch.first() else {
            return Ok(Vec::new());
        };
        // One module, many kernels: loading one costs a driver far more than a small kernel does.
        let names: Vec<String> = (0..batch.len()).map(kernel_name).collect();
        let kernels = kernels(&names, batch)?;
        let text = module(&format!("sm_{}", target.sm), &first.env, &kernels);
        self.run_text(&text, batch)
    }

    /// The same with a text for the module, whose kernels are named and use slots as those of the
    /// batch.
    ///
    /// # Errors
    /// [`RunError::Load`] and [`RunError::Machinery`].
    pub fn run_text(
        &mut self,
        text: &str,
        batch: &[(&Built, &Input)],
    ) -> Result<Vec<Result<Output, RunError>>, RunError> {
        let Some((first, _)) = batch.first() else {
            return Ok(Vec::new());
        };
        self.device.load(text)?;
        let environment = match self.environment {
            Some(address) => address,
            None => {
                let address = self.device.alloc(ENVIRONMENT)?;
                self.device.write(address, &[0; ENVIRONMENT as usize])?;
                *self.environment.insert(address)
            }
        };
        let sizes = sizes(batch);
        for (index, size) in sizes.iter().enumerate() {
            self.reserve(index, *size)?;
        }
        let names: Vec<String> = (0..batch.len()).map(kernel_name).collect();
        let kernels = kernels(&names, batch)?;
        let mut slots = vec![0u64; slot_count(&first.env, &kernels) as usize];
        slots[0] = environment;
        for ((address, _), slot) in self.areas.iter().zip(&mut slots[MEMORY_SLOT as usize..]) {
            *slot = *address;
        }
        let bytes: Vec<u8> = slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
        let table = self.device.slots()?;
        self.device.write(table, &bytes)?;
        let mut outputs = Vec::with_capacity(batch.len());
        for (index, (program, input)) in batch.iter().enumerate() {
            outputs.push(self.one(index, program, input));
        }
        Ok(outputs)
    }

    /// The same, but where the module does not load, in two halves, so that one bad kernel costs
    /// only itself.
    ///
    /// # Errors
    /// [`RunError::Machinery`].
    pub fn run_all(
        &mut self,
        batch: &[(&Built, &Input)],
        target: Target,
    ) -> Result<Vec<Result<Output, RunError>>, RunError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        match self.run(batch, target) {
            Err(error @ RunError::Load { .. }) if batch.len() == 1 => Ok(vec![Err(error)]),
            Err(RunError::Load { .. }) => {
                let (left, right) = batch.split_at(batch.len() / 2);
                let mut outputs = self.run_all(left, target)?;
                outputs.extend(self.run_all(right, target)?);
                Ok(outputs)
            }
            done => done,
        }
    }

    fn reserve(&mut self, index: usize, size: u64) -> Result<(), RunError> {
        if let Some(&(address, have)) = self.areas.get(index) {
            if have >= size {
                return Ok(());
            }
            self.device.free(address)?;
            self.areas[index] = (self.device.alloc(size * 2)?, size * 2);
        } else {
            let address = self.device.alloc(size)?;
            self.areas.push((address, size));
        }
        Ok(())
    }

    fn one(&mut self, index: usize, program: &Built, input: &Input) -> Result<Output, RunError> {
        let threads = input.threads.len();
        let stride = program.stride as usize;
        let mut memory = vec![GUARD; stride * threads];
        for (area, bytes) in memory.chunks_mut(stride).zip(&input.threads) {
            area[..bytes.len()].copy_from_slice(bytes);
        }
        let (base, _) = self.areas[0];
        self.device.write(base, &memory)?;
        let map_area = MAP_SLOTS as usize - MEMORY_SLOT as usize;
        if let Some(form) = &program.form {
            let maps = self.areas.get(map_area..).unwrap_or_default();
            let maps: Vec<u64> = maps.iter().map(|(address, _)| *address).collect();
            let code = form.encode(self.environment.unwrap_or(0), &maps);
            let code = code.ok_or_else(|| machinery("encoding")("a map is missing".to_owned()))?;
            self.device.write(self.areas[CODE_AREA].0, &code)?;
        }
        for (map, plan) in program.maps.iter().enumerate() {
            let bytes = image(plan, input.maps.get(map))?;
            self.device.write(self.areas[map_area + map].0, &bytes)?;
        }
        let threads = threads as u32;
        if threads > BLOCK && !threads.is_multiple_of(BLOCK) {
            let reason = format!("{threads} threads are no whole blocks of {BLOCK}");
            return Err(machinery("launching")(reason));
        }
        self.device.launch(
            &kernel_name(index),
            threads.div_ceil(BLOCK),
            threads.min(BLOCK),
        )?;
        self.device.read(base, &mut memory)?;
        let result_at = program.result_at() as usize;
        let mut out = Output {
            threads: Vec::with_capacity(input.threads.len()),
            maps: Vec::new(),
        };
        for (thread, area) in memory.chunks(stride).enumerate() {
            let (bytes, rest) = area.split_at(program.memory as usize);
            let result = result_at - bytes.len();
            let mut outside = rest[..result].iter().chain(&rest[result + 8..]);
            if outside.any(|byte| *byte != GUARD) {
                return Err(RunError::Outside { thread });
            }
            let mut r0 = [0; 8];
            r0.copy_from_slice(&rest[result..result + 8]);
            out.threads.push((u64::from_le_bytes(r0), bytes.to_vec()));
        }
        for (map, plan) in program.maps.iter().enumerate() {
            let mut bytes = vec![0; plan.bytes() as usize];
            self.device.read(self.areas[map_area + map].0, &mut bytes)?;
            out.maps.push(contents(plan, &bytes)?);
        }
        Ok(out)
    }
}

/// The kernels of a batch, by these names.
fn kernels<'a>(
    names: &'a [String],
    batch: &[(&'a Built, &Input)],
) -> Result<Vec<Kernel<'a>>, RunError> {
    let all = names.iter().zip(batch);
    all.map(|(name, (program, _))| Kernel::new(name, &program.fragment))
        .collect::<Result<_, _>>()
        .map_err(|error| RunError::Machinery {
            what: "making the module",
            reason: error.to_string(),
        })
}

fn kernel_name(index: usize) -> String {
    format!("program_{index}")
}

/// Bytes of each area that a batch needs. Some more than the threads use, so that no area is empty.
fn sizes(batch: &[(&Built, &Input)]) -> Vec<u64> {
    let mut sizes = vec![256, 256];
    for (program, input) in batch {
        let memory = u64::from(program.stride) * input.threads.len() as u64;
        sizes[0] = sizes[0].max(memory);
        let code = program.form.as_ref().map_or(0, |form| form.size() as u64);
        sizes[CODE_AREA] = sizes[CODE_AREA].max(code);
        for (area, plan) in (CODE_AREA + 1..).zip(&program.maps) {
            if sizes.len() <= area {
                sizes.push(0);
            }
            sizes[area] = sizes[area].max(plan.bytes());
        }
    }
    sizes
}

/// A map's device memory before a run.
fn image(plan: &MapPlan, contents: Option<&Contents>) -> Result<Vec<u8>, RunError> {
    let mut bytes = vec![0; plan.bytes() as usize];
    let put = |bytes: &mut Vec<u8>, writes: &[warpbpf_maps::Write]| {
        for write in writes {
            let at = write.offset as usize;
            bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
    };
    put(&mut bytes, &plan.image);
    for (key, value) in contents.into_iter().flatten() {
        let writes = warpbpf_maps::update(plan, &bytes, key, value, 0)
            .map_err(|error| machinery("filling a map")(error.to_string()))?;
        put(&mut bytes, &writes);
    }
    Ok(bytes)
}

fn contents(plan: &MapPlan, bytes: &[u8]) -> Result<Contents, RunError> {
    let view =
        MapView::new(plan, bytes).map_err(|error| machinery("reading a map")(error.to_string()))?;
    let entries = view.entries().filter_map(|entry| match entry.value {
        Value::One(value) => Some((entry.key, value)),
        Value::PerSm(_) | Value::PerThread(_) => None,
    });
    Ok(entries.collect())
}

/// The soft GPU in this process.
pub struct SoftDevice {
    gpu: soft::Gpu,
    module: Option<soft::Module>,
    target: Target,
}

impl SoftDevice {
    /// A device; with a `seed` it splits warps and orders them at random.
    pub fn new(seed: Option<u64>) -> SoftDevice {
        let config = soft::Config {
            sms: 2,
            threads: 1,
            seed,
            memory: 1 << 26,
            step_limit: Some(STEPS),
            ..soft::Config::default()
        };
        SoftDevice {
            gpu: soft::Gpu::new(config),
            module: None,
            target: Target {
                ptx: (7, 8),
                sm: 90,
            },
        }
    }
}

impl Device for SoftDevice {
    fn name(&self) -> String {
        "soft GPU".to_owned()
    }

    fn target(&self) -> Target {
        self.target
    }

    fn survives(&self) -> bool {
        true
    }

    fn is_slow(&self) -> bool {
        false
    }

    fn load(&mut self, ptx: &str) -> Result<(), RunError> {
        self.module = None;
        let module = self.gpu.load(ptx).map_err(|error| RunError::Load {
            reason: error.to_string(),
        })?;
        self.module = Some(module);
        Ok(())
    }

    fn slots(&mut self) -> Result<u64, RunError> {
        let module = self.module.as_ref();
        let found = module.and_then(|module| module.global(SLOTS));
        found
            .map(|(address, _)| address)
            .ok_or_else(|| machinery("finding the slot table")("there is none".to_owned()))
    }

    fn alloc(&mut self, bytes: u64) -> Result<u64, RunError> {
        self.gpu
            .alloc(bytes)
            .ok_or_else(|| machinery("allocating")("the soft GPU's memory is full".to_owned()))
    }

    fn free(&mut self, address: u64) -> Result<(), RunError> {
        let done = self.gpu.free(address);
        done.map_err(|error| machinery("freeing")(error.to_string()))
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), RunError> {
        let done = self.gpu.write(address, bytes);
        done.map_err(|error| machinery("writing device memory")(error.to_string()))
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), RunError> {
        let done = self.gpu.read(address, into);
        done.map_err(|error| machinery("reading device memory")(error.to_string()))
    }

    fn launch(&mut self, kernel: &str, blocks: u32, threads: u32) -> Result<(), RunError> {
        let found = self
            .module
            .as_ref()
            .and_then(|module| module.kernel(kernel));
        let Some(kernel) = found else {
            return Err(machinery("finding a kernel")(kernel.to_owned()));
        };
        let launch = soft::Launch {
            kernel: &kernel,
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            cluster: [1, 1, 1],
            dynamic_shared: 0,
            params: &[],
            grid_id: 1,
            stdout: None,
        };
        match self.gpu.launch(launch) {
            Ok(soft::Outcome::Done { .. }) => Ok(()),
            Ok(soft::Outcome::Trapped(trap)) => Err(RunError::Trap {
                reason: trap.to_string(),
            }),
            Err(error @ soft::LaunchError::StepLimit { .. }) => Err(RunError::Trap {
                reason: error.to_string(),
            }),
            Err(error) => Err(machinery("launching")(error.to_string())),
        }
    }
}

/// A device behind a CUDA driver, real or soft.
pub struct DriverDevice {
    driver: Driver,
    stream: Stream,
    name: String,
    target: Target,
    module: Option<warpbpf_driver::Module>,
}

impl DriverDevice {
    /// Opens a driver library and its first device, in the calling thread.
    ///
    /// # Errors
    /// [`RunError::Machinery`].
    pub fn open(library: &str) -> Result<DriverDevice, RunError> {
        let driver = warpbpf_driver::open(library)
            .map_err(|error| machinery("opening the driver")(error.to_string()))?;
        let start = || {
            driver.init()?;
            let info = driver.device_info(0)?;
            driver.set_current(driver.retain_primary(0)?)?;
            Ok((info, driver.stream()?))
        };
        let (info, stream) = start().map_err(|error: warpbpf_driver::DriverError| {
            machinery("starting the driver")(error.to_string())
        })?;
        let (major, minor) = info.capability;
        // PTX for an older target runs everywhere; `sm_90` is the newest that programs differ for.
        let target = match major * 10 + minor {
            90.. => Target {
                ptx: (7, 8),
                sm: 90,
            },
            80..90 => Target {
                ptx: (7, 0),
                sm: 80,
            },
            _ => Target {
                ptx: (6, 3),
                sm: 75,
            },
        };
        Ok(DriverDevice {
            driver,
            stream,
            name: info.name,
            target,
            module: None,
        })
    }

    fn function(&self, name: &str) -> Result<Function, RunError> {
        let module = self
            .module
            .ok_or_else(|| machinery("finding a kernel")("no module is loaded".to_owned()))?;
        self.driver
            .function(module, name)
            .map_err(|error| machinery("finding a kernel")(error.to_string()))
    }
}

impl Device for DriverDevice {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn target(&self) -> Target {
        self.target
    }

    fn survives(&self) -> bool {
        false
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn load(&mut self, ptx: &str) -> Result<(), RunError> {
        if let Some(module) = self.module.take() {
            let done = self.driver.unload(module);
            done.map_err(|error| machinery("unloading a module")(error.to_string()))?;
        }
        let module = self.driver.load_ptx(ptx).map_err(|error| RunError::Load {
            reason: error.to_string(),
        })?;
        self.module = Some(module);
        Ok(())
    }

    fn slots(&mut self) -> Result<u64, RunError> {
        let no_module = || machinery("finding the slot table")("no module is loaded".to_owned());
        let module = self.module.ok_or_else(no_module)?;
        let found = self.driver.global(module, SLOTS);
        found
            .map(|(address, _)| address)
            .map_err(|error| machinery("finding the slot table")(error.to_string()))
    }

    fn alloc(&mut self, bytes: u64) -> Result<u64, RunError> {
        let found = self.driver.alloc_zeroed(bytes, self.stream);
        found.map_err(|error| machinery("allocating")(error.to_string()))
    }

    fn free(&mut self, address: u64) -> Result<(), RunError> {
        let done = self.driver.free(address);
        done.map_err(|error| machinery("freeing")(error.to_string()))
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), RunError> {
        let done = self.driver.write(address, bytes, self.stream);
        done.map_err(|error| machinery("writing device memory")(error.to_string()))
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), RunError> {
        let done = self.driver.read(address, into, self.stream);
        done.map_err(|error| machinery("reading device memory")(error.to_string()))
    }

    fn launch(&mut self, kernel: &str, blocks: u32, threads: u32) -> Result<(), RunError> {
        let function = self.function(kernel)?;
        let (grid, block) = ([blocks, 1, 1], [threads, 1, 1]);
        // SAFETY: the kernel takes no arguments, and the verifier proved what it touches: the areas
        // in the slot table.
        let done = unsafe {
            self.driver
                .launch(function, grid, block, self.stream, &mut [])
        };
        let done = done.and_then(|()| self.driver.wait(self.stream));
        done.map_err(|error| RunError::Trap {
            reason: error.to_string(),
        })
    }
}
