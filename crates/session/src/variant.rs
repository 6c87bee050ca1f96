//! An instrumented kernel on a device: loaded, its slots filled, ready to be launched in the original's place.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use warpbpf_abi::layout::launch;
use warpbpf_abi::names::SLOTS;
use warpbpf_driver::{Driver, DriverError, Function, JitOptions, Module, Stream, sys};
use warpbpf_patch::{HiddenParam, ParamLayout, Variant};

use crate::prepare::{Code, PreparedKernel};
use crate::resources::{Change, Room, Rooms};

/// Bytes of launch records of one context. They are allocated with the first variant that needs them, never by a launch.
const LAUNCH_POOL: u64 = 64 << 20;

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
    /// Resources before and after.
    pub resources: Change,
    rooms: Rooms,
    /// The module that was loaded for it alone; `None` for a clone, which goes with the original's.
    module: Mutex<Option<Module>>,
    records: Option<Arc<LaunchRecords>>,
}

impl LoadedVariant {
    /// Blocks of `threads` threads and `shared` dynamic bytes that one SM runs at once, of the original and of this.
    /// The driver is asked once per shape.
    ///
    /// # Errors
    /// [`DriverError`] of an occupancy query.
    pub fn room(&self, driver: &Driver, threads: u32, shared: u32) -> Result<Room, DriverError> {
        self.rooms.get((threads, shared), || {
            let ask = |function| driver.occupancy(function, threads, u64::from(shared));
            Ok(Room {
                before: ask(self.original)?,
                after: ask(self.function)?,
            })
        })
    }

    /// An attribute of the original or of this changed: [`LoadedVariant::room`] asks anew.
    pub fn attributes_changed(&self) {
        self.rooms.clear();
    }

    /// Unloads what was loaded for this variant alone; a second call does nothing. The driver waits for its launches, as
    /// it does for the original's. Its context must be current, and nobody may launch it any more.
    ///
    /// # Errors
    /// [`DriverError`]; the memory is then lost until the context ends.
    pub fn unload(&self, driver: &Driver) -> Result<(), DriverError> {
        let module = self
            .module
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match module {
            Some(module) => driver.relaxed(|| driver.unload(module)),
            None => Ok(()),
        }
    }

    /// The launch record for a launch on `stream`, if the variant takes one: `Some(None)` when the pool has no room, and
    /// the original must run. Launches of one stream run one after the other and leave the record zeroed, so they share it.
    pub fn launch_record(&self, stream: Stream, grid: [u32; 3], block: [u32; 3]) -> Option<u64> {
        let hidden = self.hidden?;
        let records = self.records.as_ref()?;
        // Numbers that no driver accepts must not wrap around to ones that fit.
        let count = |all: [u32; 3]| {
            all.iter()
                .fold(1u64, |n, m| n.saturating_mul(u64::from(*m)))
        };
        let (blocks, threads) = (count(grid), count(block));
        if blocks > LAUNCH_POOL || threads > LAUNCH_POOL {
            return None;
        }
        let warps = threads.div_ceil(32);
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
    jit: &JitOptions,
    stream: Stream,
) -> Result<LoadedVariant, String> {
    let text = |e: DriverError| e.to_string();
    let before = driver.function(original, &kernel.mangled).map_err(text)?;
    match &kernel.code {
        Some(Code::Slice { ptx, variant }) => {
            let slots = slots(driver, original, variant, addresses).map_err(text)?;
            let ptx = warpbpf_patch::bake(ptx, &slots).map_err(|e| e.to_string())?;
            // Machine code that was shipped was not made with these options.
            let none = JitOptions::default();
            let jit = if kernel.machine_code { &none } else { jit };
            let module = driver.load_ptx_with(&ptx, jit).map_err(text)?;
            match bind(driver, kernel, before, module, variant, records) {
                Ok(mut loaded) => {
                    loaded.module = Mutex::new(Some(module));
                    Ok(loaded)
                }
                Err(error) => {
                    // The error that matters is this one; a module that cannot be unloaded only costs memory.
                    let _ = driver.unload(module);
                    Err(text(error))
                }
            }
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
    mirror_attributes(driver, before, function);
    let resources = Change::measure(driver, before, function)?;
    Ok(LoadedVariant {
        function,
        original: before,
        mangled: kernel.mangled.clone(),
        kernel_id: kernel.kernel_id.unwrap_or(0),
        params: variant.params.clone(),
        hidden: variant.hidden,
        resources,
        rooms: Rooms::default(),
        module: Mutex::new(None),
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

/// Attributes that the application set before the variant existed. Not fatal: a launch that needs them falls back.
fn mirror_attributes(driver: &Driver, from: Function, to: Function) {
    for which in [
        sys::FUNC_MAX_DYNAMIC_SHARED,
        sys::FUNC_CARVEOUT,
        sys::FUNC_NON_PORTABLE_CLUSTER,
        sys::FUNC_CLUSTER_POLICY,
    ] {
        let (Ok(wanted), Ok(there)) = (driver.attribute(from, which), driver.attribute(to, which))
        else {
            continue;
        };
        if wanted != there {
            // SAFETY: a live function and a plain integer attribute.
            let _ = unsafe { (driver.api.func_set_attribute)(to.0, which, wanted) };
        }
    }
}
