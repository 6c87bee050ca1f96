//! An instrumented kernel on a device: loaded, its slots filled, ready to be launched in the
//! original's place.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use warpbpf_abi::layout::launch;
use warpbpf_abi::names::SLOTS;
use warpbpf_driver::{Driver, DriverError, Function, JitOptions, Module, Stream, jit, sys};
use warpbpf_patch::{HiddenParam, ParamLayout, Variant};

use crate::code_cache::CodeCache;
use crate::plan::assembled::Unmade;
use crate::plan::choices::Choices;
use crate::plan::footprint::LAUNCH_POOL;
use crate::plan::prepared::{CloneTexts, Code, PreparedKernel};
use crate::runtime::duplicate::{Duplicate, Once, table_of};
use crate::runtime::launch_args::Tables;
use crate::runtime::launch_records::LaunchRecords;
use crate::runtime::load_error::LoadError;
use crate::runtime::resources::{Change, Room, Rooms};
use crate::runtime::standing::Standing;
use crate::runtime::warnings;

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
    /// Which launches its programs are in.
    pub choices: Choices,
    /// The parameter that a launch appends.
    pub hidden: Option<HiddenParam>,
    /// Launch arguments of functions that Compute Sanitizer calls: each launch has a table of its
    /// own, in place of a parameter.
    pub tables: Option<Tables>,
    /// Resources before and after.
    pub resources: Change,
    /// What the compiler warns of with probes and not without: `C75xx`, wgmma or register
    /// allocation gone serial.
    pub compiler_warnings: Vec<String>,
    /// Its code was in the cache of compiled code; `None` for a clone, and without a cache.
    pub cached: Option<bool>,
    /// Time that it took to make it machine code and load it; `None` for a clone.
    pub loaded_in: Option<Duration>,
    /// Its launch arguments are set at each launch. In a graph a node was seen to get those of
    /// another node, so it may not go into one.
    pub args_at_launch: bool,
    rooms: Rooms,
    /// What was loaded for it; `None` for a clone, which goes with the original's.
    module: Mutex<Option<Own>>,
    records: Option<Arc<LaunchRecords>>,
}

/// What a variant is in.
#[derive(Debug)]
enum Own {
    /// A module of its own.
    Alone(Module),
    /// A copy of its image, with others.
    Duplicate(Arc<Duplicate>),
}

impl LoadedVariant {
    /// Blocks of `threads` threads and `shared` dynamic bytes that one SM runs at once, of the
    /// original and of this. The driver is asked once per shape.
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

    /// Something was loaded for this variant alone, and [`LoadedVariant::unload`] has not been
    /// called.
    pub fn has_own_module(&self) -> bool {
        let module = self.module.lock();
        module.unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Unloads what was loaded for this variant alone; a second call does nothing. The driver waits
    /// for its launches, as it does for the original's. Its context must be current, and nobody may
    /// launch it any more.
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
            Some(Own::Alone(module)) => driver.relaxed(|| driver.unload(module)),
            Some(Own::Duplicate(copy)) => match Arc::into_inner(copy) {
                Some(copy) => driver.relaxed(|| copy.unload(driver)),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// The launch record for a launch on `stream`: 0 if the variant counts no arrivals, `None` when
    /// the pool has no room, and the original must run. Launches of one stream run one after the
    /// other and leave the record zeroed, so they share it.
    pub fn launch_record(&self, stream: Stream, grid: [u32; 3], block: [u32; 3]) -> Option<u64> {
        match self.record_bytes(grid, block)? {
            0 => Some(0),
            bytes => {
                let of_stream = Some((self.kernel_id, stream));
                self.records.as_ref()?.get(of_stream, bytes)
            }
        }
    }

    /// The launch record for a node that does not run: whoever makes an executable graph of it
    /// replaces it, so all kernels have the same. As of [`LoadedVariant::launch_record`].
    pub fn record_to_replace(&self, grid: [u32; 3], block: [u32; 3]) -> Option<u64> {
        match self.record_bytes(grid, block)? {
            0 => Some(0),
            bytes => self.records.as_ref()?.get(None, bytes),
        }
    }

    /// A launch record that no other launch gets, for a node of an executable graph. It stays
    /// taken.
    pub fn own_record(&self, bytes: u64) -> Option<u64> {
        self.records.as_ref()?.take(bytes)
    }

    /// Bytes of the launch record for such a grid: 0 if the variant counts no arrivals, `None` if
    /// no record is so large.
    pub fn record_bytes(&self, grid: [u32; 3], block: [u32; 3]) -> Option<u64> {
        let needs = self
            .hidden
            .or(self.tables.as_ref().map(|tables| tables.needs));
        let Some(hidden) = needs.filter(HiddenParam::counts) else {
            return Some(0);
        };
        if warpbpf_faults::strikes("session/record-size") {
            return None;
        }
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
        let (of_block, of_warp) = (hidden.block_counters, hidden.warp_counters);
        let cells = u64::from(hidden.block_cells);
        Some(launch::size(blocks, warps, cells, of_block, of_warp))
    }
}

/// Addresses of a session on a device, by slot: the environment, then the maps.
pub(crate) struct Addresses<'a> {
    pub(crate) fixed: &'a [u64],
}

/// What loading a variant depends on besides its kernel.
pub(crate) struct Loading<'a> {
    pub(crate) driver: &'a Driver,
    /// The module that the application loaded.
    pub(crate) original: Module,
    /// Whether it still is.
    pub(crate) standing: &'a Standing,
    pub(crate) addresses: Addresses<'a>,
    /// What the application chose for the image's PTX.
    pub(crate) jit: &'a JitOptions,
    /// What the user allows variants.
    pub(crate) max_registers: Option<u32>,
    pub(crate) stream: Stream,
    /// All kernels that are loaded together with this one.
    pub(crate) kernels: &'a [&'a PreparedKernel],
    /// The copy of the image with calls in it.
    pub(crate) duplicate: &'a Once,
    /// Why there is none.
    pub(crate) unmade: &'a Unmade,
    /// Compiled code of earlier processes.
    pub(crate) cache: Option<&'a CodeCache>,
    /// Texts of clones that the compiler may have something to say of.
    pub(crate) clones: Option<&'a CloneTexts>,
    /// What it says of the module with clones.
    pub(crate) clone_log: OnceLock<String>,
    /// The same of the module as it was.
    pub(crate) plain_log: OnceLock<String>,
}

impl Loading<'_> {
    /// Loads the code of a prepared kernel and fills its slots.
    ///
    /// # Errors
    /// What failed; the original is not touched.
    pub(crate) fn load(
        &self,
        kernel: &PreparedKernel,
        records: Option<Arc<LaunchRecords>>,
    ) -> Result<LoadedVariant, LoadError> {
        let (driver, original) = (self.driver, self.original);
        let looked_up = self.standing.while_loaded(|| -> Result<_, DriverError> {
            let before = driver.function(original, &kernel.mangled)?;
            let variant = match &kernel.code {
                Some(Code::Slice { variant, .. } | Code::Clone { variant }) => variant,
                Some(Code::Splice(_) | Code::Patched(_)) | None => return Ok((before, Vec::new())),
            };
            let slots = slots(driver, original, variant, &self.addresses)?;
            Ok((before, slots))
        });
        let (before, slots) = looked_up.ok_or(LoadError::Unloading)??;
        match &kernel.code {
            Some(Code::Slice {
                ptx,
                plain,
                variant,
            }) => {
                let baked = |ptx| {
                    warpbpf_faults::check("session/bake", || LoadError::Fault)?;
                    warpbpf_patch::bake(ptx, &slots).map_err(|why| LoadError::Bake(Box::new(why)))
                };
                let jit = self.slice_options(kernel);
                let ptx = baked(ptx)?;
                // Takes long, and needs nothing of the image.
                let without = || {
                    let plain = plain.as_deref().and_then(|plain| baked(plain).ok());
                    plain.map_or_else(String::new, |plain| self.log_of(&plain, &jit))
                };
                let begun = Instant::now();
                let compiled = self.compile(&ptx, &jit, &kernel.demangled, without);
                let compiled = compiled.map_err(LoadError::Driver)?;
                let module = compiled.module;
                let bound = self.standing.while_loaded(|| {
                    bind(driver, kernel, before, module, variant, records)
                        .map_err(LoadError::Driver)
                });
                match bound.unwrap_or(Err(LoadError::Unloading)) {
                    Ok(mut loaded) => {
                        loaded.module = Mutex::new(Some(Own::Alone(module)));
                        loaded.compiler_warnings = compiled.warnings;
                        loaded.cached = compiled.cached;
                        loaded.loaded_in = Some(begun.elapsed());
                        Ok(loaded)
                    }
                    Err(error) => {
                        // The error that matters is this one; a module that cannot be unloaded only
                        // costs memory.
                        let _ = driver.unload(module);
                        Err(error)
                    }
                }
            }
            Some(Code::Splice(_) | Code::Patched(_)) => {
                let (on, fixed) = ((driver, self.stream), self.addresses.fixed);
                let find = |name: &str| {
                    let found = self
                        .standing
                        .while_loaded(|| driver.global(original, name).map_err(LoadError::Driver));
                    found.unwrap_or(Err(LoadError::Unloading))
                };
                let kernels = (kernel, self.kernels);
                let copy = self
                    .duplicate
                    .get(on, kernels, fixed, (&find, self.unmade))?;
                let (hidden, params) = match &kernel.code {
                    Some(Code::Splice(spliced)) => (spliced.hidden, spliced.params.clone()),
                    _ => (None, Vec::new()),
                };
                let variant = Variant {
                    entry: kernel.mangled.clone(),
                    hidden,
                    params,
                    ..Variant::default()
                };
                let tables_in = records.clone();
                let bound = self.standing.while_loaded(|| {
                    bind(driver, kernel, before, copy.module, &variant, records)
                        .map_err(LoadError::Driver)
                });
                let mut loaded = bound.unwrap_or(Err(LoadError::Unloading))?;
                if let Some(Code::Patched(patched)) = &kernel.code
                    && let Some((needs, records)) = patched.launch_args.zip(tables_in)
                {
                    let mut common = table_of(kernel, patched.number_at, fixed);
                    common.truncate(patched.number_at as usize + 1);
                    let whose = (patched.sanitizer, loaded.function.0 as usize);
                    loaded.tables = Some(Tables::new(whose, needs, common, records));
                }
                loaded.module = Mutex::new(Some(Own::Duplicate(copy)));
                Ok(loaded)
            }
            Some(Code::Clone { variant }) => {
                fill_slots(driver, original, &slots, self.stream).map_err(LoadError::Driver)?;
                let loaded = bind(driver, kernel, before, original, variant, records);
                let mut loaded = loaded.map_err(LoadError::Driver)?;
                loaded.compiler_warnings = self.clone_warnings(kernel, variant);
                Ok(loaded)
            }
            None => Err(LoadError::NoCode),
        }
    }

    fn slice_options(&self, kernel: &PreparedKernel) -> JitOptions {
        // Machine code that was shipped was not made with the application's options.
        let chosen = if kernel.machine_code {
            JitOptions::default()
        } else {
            self.jit.clone()
        };
        match self.max_registers {
            Some(limit) => chosen.with(jit::MAX_REGISTERS, limit),
            None => chosen,
        }
    }

    /// What the compiler says of a clone and not of its original. The application's own call loaded
    /// both, with options of its own, so the texts are compiled once more for what the compiler
    /// says.
    fn clone_warnings(&self, kernel: &PreparedKernel, variant: &Variant) -> Vec<String> {
        let Some(texts) = self.clones else {
            return Vec::new();
        };
        // This one was just compiled.
        let fresh = |text: &str| self.log_of(&warnings::fresh(text), self.jit);
        let log = self.clone_log.get_or_init(|| fresh(&texts.rewritten));
        let plain = || self.plain_log.get_or_init(|| fresh(&texts.plain)).clone();
        warnings::of_clone(
            log,
            (&variant.entry, &kernel.mangled),
            &texts.entries,
            plain,
        )
    }

    /// What the compiler says of a text that nobody will run.
    fn log_of(&self, ptx: &str, jit: &JitOptions) -> String {
        match self.driver.load_ptx_logged(ptx, jit) {
            Ok((module, log)) => {
                // It costs memory if it stays.
                let _ = self.driver.unload(module);
                log
            }
            Err(_) => String::new(),
        }
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
        choices: kernel.choices.clone(),
        hidden: variant.hidden,
        tables: None,
        resources,
        compiler_warnings: Vec::new(),
        cached: None,
        loaded_in: None,
        args_at_launch: matches!(kernel.code, Some(Code::Patched(_))),
        rooms: Rooms::default(),
        module: Mutex::new(None),
        records,
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

/// Attributes that the application set before the variant existed. Not fatal: a launch that needs
/// them falls back.
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

#[cfg(test)]
mod tests {
    use crate::runtime::launch_records::RecordState;
    use std::ffi::c_void;

    use super::*;

    const BASE: u64 = 1 << 32;

    fn whose(kernel: u64) -> Option<(u64, Stream)> {
        Some((
            kernel,
            Stream(std::ptr::without_provenance_mut::<c_void>(8)),
        ))
    }

    #[test]
    fn a_piece_that_grows_leaves_no_more_behind_than_it_has() {
        let mut state = RecordState::default();
        // What does not grow takes what it needs.
        assert_eq!(state.get(BASE, whose(1), 3000), Some(BASE));
        assert_eq!(state.used, 3072);
        assert_eq!(state.get(BASE, whose(1), 10), Some(BASE));
        assert_eq!(state.get(BASE, whose(1), 3072), Some(BASE));
        assert_eq!(state.get(BASE, whose(1), 3073), Some(BASE + 3072));
        assert_eq!(state.used, 3072 + 4096);
        assert_eq!(state.get(BASE, whose(1), 4096), Some(BASE + 3072));
        for bytes in (4096..1_000_000).step_by(100) {
            state.get(BASE, whose(1), bytes).expect("room");
            let (_, last) = state.pieces[&whose(1)];
            assert!(last >= bytes && last < 2 * bytes.next_multiple_of(256));
            assert!(state.used <= 2 * last, "{bytes}: {} of {last}", state.used);
        }
        assert_eq!(state.pieces[&whose(1)].1, 1 << 20);
    }

    #[test]
    fn a_piece_that_fits_as_it_is_need_not_fit_rounded_up() {
        let mut state = RecordState::default();
        assert_eq!(state.get(BASE, whose(1), 256), Some(BASE));
        let rest = LAUNCH_POOL - 256;
        assert_eq!(state.get(BASE, whose(1), rest), Some(BASE + 256));
        assert_eq!(state.used, LAUNCH_POOL);
        // What is there serves on; there is nothing for anybody else.
        assert_eq!(state.get(BASE, whose(1), 100), Some(BASE + 256));
        assert_eq!(state.get(BASE, whose(2), 1), None);
        for bytes in [LAUNCH_POOL + 1, u64::MAX] {
            assert_eq!(RecordState::default().get(BASE, whose(1), bytes), None);
        }
    }

    #[test]
    fn nodes_that_do_not_run_have_one_piece() {
        let mut state = RecordState::default();
        assert_eq!(state.get(BASE, None, 512), Some(BASE));
        assert_eq!(state.get(BASE, whose(1), 512), Some(BASE + 512));
        assert_eq!(state.get(BASE, None, 256), Some(BASE));
        assert_eq!(state.used, 1024);
    }
}
