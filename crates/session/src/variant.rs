//! An instrumented kernel on a device: loaded, its slots filled, ready to be launched in the original's place.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use warpbpf_abi::layout::launch;
use warpbpf_abi::names::SLOTS;
use warpbpf_driver::{Driver, DriverError, Function, Module, Stream, sys};
use warpbpf_patch::{HiddenParam, ParamLayout, Variant};

use crate::prepare::{Code, PreparedKernel};

/// Bytes of launch records of one context. They are allocated with the first variant that needs them, never by a launch.
const LAUNCH_POOL: u64 = 64 << 20;

/// What a kernel needs of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory of a block, bytes.
    pub shared: u32,
    /// Local memory of a thread, bytes: stack frame and spills.
    pub local: u32,
    /// Blocks of 256 threads that one SM runs at once.
    pub blocks_per_sm: u32,
}

/// A variant that can be launched.
#[derive(Debug)]
pub struct LoadedVariant {
    /// The instrumented kernel.
    pub function: Function,
    /// The original.
    pub original: Function,
    /// The original's name.
    pub mangled: String,
    /// Its number.
    pub kernel_id: u64,
    /// The original's parameters.
    pub params: Vec<ParamLayout>,
    /// The parameter that a launch appends.
    pub hidden: Option<HiddenParam>,
    /// Registers before and after.
    pub registers: (u32, u32),
    /// All resources before and after.
    pub resources: (Resources, Resources),
    /// Launches that ran the variant.
    pub launches: AtomicU64,
    /// Launches that ran the original although the variant was wanted.
    pub missed: AtomicU64,
    records: Option<Arc<LaunchRecords>>,
}

impl LoadedVariant {
    /// The launch record for a launch on `stream`, if the variant takes one: `Some(None)` when the pool has no room, and
    /// the original must run. Launches of one stream run one after the other and leave the record zeroed, so they share it.
    pub fn launch_record(&self, stream: Stream, grid: [u32; 3], block: [u32; 3]) -> Option<u64> {
        let hidden = self.hidden?;
        let records = self.records.as_ref()?;
        let blocks = grid.iter().map(|n| u64::from(*n)).product();
        let warps = block
            .iter()
            .map(|n| u64::from(*n))
            .product::<u64>()
            .div_ceil(32);
        records.get(
            self.kernel_id,
            stream,
            launch::size(blocks, warps, hidden.block_counters, hidden.warp_counters),
        )
    }
}

/// Zeroed device memory that is handed out piece by piece and reused per kernel and stream.
#[derive(Debug)]
pub(crate) struct LaunchRecords {
    base: u64,
    state: Mutex<RecordState>,
}

#[derive(Debug, Default)]
struct RecordState {
    used: u64,
    pieces: HashMap<(u64, Stream), (u64, u64)>,
}

impl LaunchRecords {
    pub(crate) fn new(driver: &Driver, stream: Stream) -> Result<LaunchRecords, DriverError> {
        Ok(LaunchRecords {
            base: driver.alloc_zeroed(LAUNCH_POOL, stream)?,
            state: Mutex::default(),
        })
    }

    fn get(&self, kernel: u64, stream: Stream, bytes: u64) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((address, size)) = state.pieces.get(&(kernel, stream))
            && *size >= bytes
        {
            return Some(*address);
        }
        let size = bytes.next_multiple_of(256);
        if state.used + size > LAUNCH_POOL {
            return None;
        }
        let address = self.base + state.used;
        state.used += size;
        state.pieces.insert((kernel, stream), (address, size));
        Some(address)
    }
}

/// Addresses of a session on a device, by slot: the environment, then the maps.
pub(crate) struct Addresses<'a> {
    pub(crate) fixed: &'a [u64],
}

/// Loads the code of a prepared kernel and fills its slots. `original` is the module that the application loaded.
///
/// # Errors
/// What failed, for the user; the original is not touched.
pub(crate) fn load(
    driver: &Driver,
    kernel: &PreparedKernel,
    original: Module,
    addresses: &Addresses<'_>,
    records: Option<Arc<LaunchRecords>>,
    stream: Stream,
) -> Result<LoadedVariant, String> {
    let text = |e: DriverError| e.to_string();
    let before = driver.function(original, &kernel.mangled).map_err(text)?;
    match &kernel.code {
        Some(Code::Slice { ptx, variant }) => {
            let slots = slots(driver, original, variant, addresses).map_err(text)?;
            let ptx = warpbpf_patch::bake(ptx, &slots).map_err(|e| e.to_string())?;
            let module = driver.load_ptx(&ptx).map_err(text)?;
            let loaded = bind(driver, kernel, before, module, variant, records);
            if loaded.is_err() {
                // The error that matters is already on its way; a module that cannot be unloaded only costs memory.
                let _ = driver.unload(module);
            }
            loaded.map_err(text)
        }
        Some(Code::Clone { variant }) => {
            let slots = slots(driver, original, variant, addresses).map_err(text)?;
            fill_slots(driver, original, &slots, stream).map_err(text)?;
            bind(driver, kernel, before, original, variant, records).map_err(text)
        }
        None => Err("no code was made for it".into()),
    }
}

fn bind(
    driver: &Driver,
    kernel: &PreparedKernel,
    before: Function,
    module: Module,
    variant: &Variant,
    records: Option<Arc<LaunchRecords>>,
) -> Result<LoadedVariant, DriverError> {
    let function = driver.function(module, &variant.entry)?;
    let resources = (resources(driver, before)?, resources(driver, function)?);
    mirror_attributes(driver, before, function);
    Ok(LoadedVariant {
        function,
        original: before,
        mangled: kernel.mangled.clone(),
        kernel_id: kernel.kernel_id.unwrap_or(0),
        params: variant.params.clone(),
        hidden: variant.hidden,
        registers: (resources.0.registers, resources.1.registers),
        resources,
        launches: AtomicU64::new(0),
        missed: AtomicU64::new(0),
        records: variant.hidden.and(records),
    })
}

/// The addresses that the variant's slots stand for.
fn slots(
    driver: &Driver,
    original: Module,
    variant: &Variant,
    addresses: &Addresses<'_>,
) -> Result<Vec<u64>, DriverError> {
    let mut slots = vec![0u64; variant.slot_count as usize];
    for (slot, address) in slots.iter_mut().zip(addresses.fixed) {
        *slot = *address;
    }
    for (slot, name) in &variant.globals {
        slots[*slot as usize] = driver.global(original, name)?.0;
    }
    Ok(slots)
}

/// Writes the slot table of a module.
fn fill_slots(
    driver: &Driver,
    module: Module,
    slots: &[u64],
    stream: Stream,
) -> Result<(), DriverError> {
    let (table, _) = driver.global(module, SLOTS)?;
    let bytes: Vec<u8> = slots.iter().flat_map(|s| s.to_le_bytes()).collect();
    driver.write(table, &bytes, stream)
}

fn resources(driver: &Driver, function: Function) -> Result<Resources, DriverError> {
    let attribute = |which| driver.attribute(function, which).map(|v| v as u32);
    Ok(Resources {
        registers: attribute(sys::FUNC_REGISTERS)?,
        shared: attribute(sys::FUNC_SHARED)?,
        local: attribute(sys::FUNC_LOCAL)?,
        blocks_per_sm: driver.occupancy(function, 256, 0)?,
    })
}

/// Attributes that the application set before the variant existed. Not fatal: a launch that needs them falls back.
fn mirror_attributes(driver: &Driver, from: Function, to: Function) {
    if let Ok(bytes) = driver.attribute(from, sys::FUNC_MAX_DYNAMIC_SHARED) {
        // SAFETY: a live function and a plain integer attribute.
        let _ =
            unsafe { (driver.api.func_set_attribute)(to.0, sys::FUNC_MAX_DYNAMIC_SHARED, bytes) };
    }
}
