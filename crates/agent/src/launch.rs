//! One launch: the variant if it can run here and now, else the original, and each is counted.
//!
//! Nothing is loaded, compiled or waited for here. A variant that takes a launch record gets it as one more parameter at
//! the end, by whichever of the two ways the application passes parameters.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use warpbpf_driver::sys::{self, CUfunction, CUlaunchConfig, CUresult, CUstream};
use warpbpf_driver::{Function, Stream};
use warpbpf_session::LoadedVariant;
use warpbpf_wire::NoteLevel;

use crate::agent::Agent;
use crate::exports::original;
use crate::guard::Outcome;

/// `CU_LAUNCH_PARAM_END`, `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE`
const EXTRA_END: usize = 0;
const EXTRA_POINTER: usize = 1;
const EXTRA_SIZE: usize = 2;
/// Pairs of `extra` that are read before we give up finding its end.
const EXTRA_PAIRS: usize = 8;
/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`
const ATTRIBUTE_COOPERATIVE: u32 = 2;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`
const ATTRIBUTE_OVERLAP: u32 = 6;
/// `sizeof(CUlaunchAttribute)`
const ATTRIBUTE_BYTES: usize = 72;
/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`
const LEGACY_STREAM: usize = 1;
const PER_THREAD_STREAM: usize = 2;
/// Parameters that fit on the stack.
const INLINE_PARAMS: usize = 48;

/// A kernel that programs want, in one image.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Name in the image.
    pub(crate) mangled: String,
    /// What runs in its place; `None` if that could not be made.
    pub(crate) variant: Option<Arc<LoadedVariant>>,
    /// Context that the variant lives in.
    pub(crate) context: usize,
    /// Launches of the original.
    pub(crate) missed: AtomicU64,
    /// Launches of the variant.
    pub(crate) launches: AtomicU64,
    /// Handles under which it is in the table.
    pub(crate) handles: Mutex<Vec<usize>>,
    told_failed: AtomicBool,
    told_residency: AtomicBool,
    told_context: AtomicBool,
    told_overlap: AtomicBool,
}

impl Entry {
    pub(crate) fn new(
        mangled: String,
        variant: Option<Arc<LoadedVariant>>,
        context: usize,
    ) -> Entry {
        Entry {
            mangled,
            variant,
            context,
            missed: AtomicU64::new(0),
            launches: AtomicU64::new(0),
            handles: Mutex::default(),
            told_failed: AtomicBool::new(false),
            told_residency: AtomicBool::new(false),
            told_context: AtomicBool::new(false),
            told_overlap: AtomicBool::new(false),
        }
    }
}

/// What a launch looks like, whichever function it came by.
#[derive(Debug, Clone, Copy)]
struct Shape {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    /// Names the stream: launches with the same one run one after the other. Not for the driver, see [`stream_key`].
    stream: Stream,
    cooperative: bool,
    /// It may begin before the launch before it in its stream has ended.
    overlaps: bool,
}

/// Why the original runs.
enum Miss {
    /// There is no variant; the user knows.
    None,
    /// The variant is in another context.
    Context,
    /// The grid must be resident as a whole and the variant's would not be.
    Residency,
    /// Launches of one stream overlap, so they cannot share a launch record.
    Overlap,
    /// No launch record was free, or the parameters cannot be extended.
    Params,
    /// The driver refused the variant and took the original.
    Refused(CUresult),
}

/// Launches `function`'s variant or `function`. `run` calls the driver's function by which the launch came.
///
/// # Safety
/// `params` and `extra` are what CUDA asks for, for this function.
unsafe fn dispatch(
    agent: &Agent,
    outcome: &Outcome,
    function: CUfunction,
    shape: &Shape,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    run: &dyn Fn(CUfunction, *mut *mut c_void, *mut *mut c_void) -> CUresult,
) -> CUresult {
    let plain = || outcome.keep(run(function, params, extra));
    let Some(entry) = agent.table.get(function as usize) else {
        return plain();
    };
    // SAFETY: the caller's promise.
    let miss = match unsafe { try_variant(agent, entry, function, shape, params, extra, run) } {
        Ok(()) => {
            entry.launches.fetch_add(1, Ordering::Relaxed);
            agent.launch_happened();
            return outcome.keep(sys::SUCCESS);
        }
        Err(miss) => miss,
    };
    let code = plain();
    if code == sys::SUCCESS {
        entry.missed.fetch_add(1, Ordering::Relaxed);
        tell(agent, entry, miss);
    }
    code
}

/// # Safety
/// As [`dispatch`].
unsafe fn try_variant(
    agent: &Agent,
    entry: &Entry,
    function: CUfunction,
    shape: &Shape,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    run: &dyn Fn(CUfunction, *mut *mut c_void, *mut *mut c_void) -> CUresult,
) -> Result<(), Miss> {
    let variant = entry.variant.as_deref().ok_or(Miss::None)?;
    if agent.driver.current().map(|c| c.0 as usize) != Some(entry.context) {
        return Err(Miss::Context);
    }
    if shape.cooperative && !stays_resident(agent, function, variant, shape) {
        return Err(Miss::Residency);
    }
    let code = match variant.hidden {
        None => run(variant.function.0, params, extra),
        Some(_) if shape.overlaps => return Err(Miss::Overlap),
        Some(hidden) => {
            let record = variant
                .launch_record(shape.stream, shape.grid, shape.block)
                .ok_or(Miss::Params)?;
            let count = variant.params.len();
            let call = |params, extra| run(variant.function.0, params, extra);
            // SAFETY: the caller's promise.
            unsafe { with_record(count, hidden.offset, record, params, extra, &call) }
                .ok_or(Miss::Params)?
        }
    };
    if code == sys::SUCCESS {
        Ok(())
    } else {
        Err(Miss::Refused(code))
    }
}

/// Calls `run` with the launch record's address behind the application's `count` parameters, at byte `offset` of the
/// parameter buffer. `None` if the parameters are not passed as documented.
///
/// # Safety
/// As [`dispatch`].
unsafe fn with_record(
    count: usize,
    offset: u64,
    mut record: u64,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    run: &dyn Fn(*mut *mut c_void, *mut *mut c_void) -> CUresult,
) -> Option<CUresult> {
    if !extra.is_null() && (params.is_null() || count == 0) {
        // SAFETY: the caller's promise.
        let (given, size) = unsafe { parse_extra(extra)? };
        let offset = offset as usize;
        let mut buffer = vec![0u8; offset + 8];
        let keep = size.min(offset);
        // SAFETY: `extra` says that `size` bytes are there.
        unsafe { ptr::copy_nonoverlapping(given, buffer.as_mut_ptr(), keep) };
        buffer[offset..].copy_from_slice(&record.to_le_bytes());
        let mut bytes = buffer.len();
        let mut extended = [
            EXTRA_POINTER as *mut c_void,
            buffer.as_mut_ptr().cast(),
            EXTRA_SIZE as *mut c_void,
            ptr::from_mut(&mut bytes).cast(),
            EXTRA_END as *mut c_void,
        ];
        return Some(run(ptr::null_mut(), extended.as_mut_ptr()));
    }
    if params.is_null() && count != 0 {
        return None;
    }
    let mut inline = [ptr::null_mut::<c_void>(); INLINE_PARAMS + 1];
    let mut heap;
    let all: &mut [*mut c_void] = if count <= INLINE_PARAMS {
        &mut inline[..count + 1]
    } else {
        heap = vec![ptr::null_mut(); count + 1];
        &mut heap
    };
    if count != 0 {
        // SAFETY: `params` has a pointer for each of the kernel's parameters.
        unsafe { ptr::copy_nonoverlapping(params, all.as_mut_ptr(), count) };
    }
    all[count] = ptr::from_mut(&mut record).cast();
    Some(run(all.as_mut_ptr(), ptr::null_mut()))
}

/// Buffer and size out of `extra`.
///
/// # Safety
/// `extra` is a list of pairs that ends with `CU_LAUNCH_PARAM_END`.
unsafe fn parse_extra(extra: *mut *mut c_void) -> Option<(*const u8, usize)> {
    let (mut buffer, mut size) = (None, None);
    for pair in 0..EXTRA_PAIRS {
        // SAFETY: the caller's promise; we stop at the end.
        let (key, value) = unsafe {
            let key = *extra.add(pair * 2) as usize;
            if key == EXTRA_END {
                break;
            }
            (key, *extra.add(pair * 2 + 1))
        };
        match key {
            EXTRA_POINTER => buffer = Some(value.cast::<u8>().cast_const()),
            // SAFETY: the value of this key is a pointer to a size.
            EXTRA_SIZE if !value.is_null() => size = Some(unsafe { *value.cast::<usize>() }),
            _ => return None,
        }
    }
    buffer.zip(size).filter(|(buffer, _)| !buffer.is_null())
}

/// A cooperative grid that fits on the device with the original also fits with the variant.
fn stays_resident(
    agent: &Agent,
    function: CUfunction,
    variant: &LoadedVariant,
    shape: &Shape,
) -> bool {
    let threads = shape.block.iter().product();
    let blocks: u64 = shape.grid.iter().map(|n| u64::from(*n)).product();
    let room = |f| {
        let per_sm = agent.driver.occupancy(f, threads, u64::from(shape.shared));
        per_sm.map_or(0, |n| u64::from(n) * u64::from(agent.sms()))
    };
    // Where the original does not fit either, the driver's refusal is the application's affair.
    room(variant.function) >= blocks || room(Function(function)) < blocks
}

fn tell(agent: &Agent, entry: &Entry, miss: Miss) {
    let once = |told: &AtomicBool| !told.swap(true, Ordering::Relaxed);
    let name = &entry.mangled;
    match miss {
        Miss::None => {}
        Miss::Context if once(&entry.told_context) => agent.note(
            NoteLevel::Warning,
            format!("kernel `{name}` was launched in another context than its maps live in; those launches run without probes"),
        ),
        Miss::Residency if once(&entry.told_residency) => agent.note(
            NoteLevel::Warning,
            format!("kernel `{name}` was launched cooperatively with a grid that only fits on the device without probes; those launches run without them"),
        ),
        Miss::Overlap if once(&entry.told_overlap) => agent.note(
            NoteLevel::Warning,
            format!("kernel `{name}` was launched to overlap with the kernel before it; block and warp probes cannot follow that, those launches run without probes"),
        ),
        Miss::Params if once(&entry.told_failed) => agent.note(
            NoteLevel::Warning,
            format!("kernel `{name}`: there is no launch record for a grid of this size; those launches run without probes"),
        ),
        Miss::Refused(code) if once(&entry.told_failed) => agent.note(
            NoteLevel::Warning,
            format!(
                "kernel `{name}`: the driver refuses to launch it with probes ({}); those launches run without them",
                agent.driver.error_name(code)
            ),
        ),
        Miss::Context | Miss::Residency | Miss::Overlap | Miss::Params | Miss::Refused(_) => {}
    }
}

/// A value that is the same for launches that run one after the other. The driver's own names are not: the stream of
/// each thread has the same handle on all of them, and the legacy stream has two.
fn stream_key(stream: CUstream, null_is_per_thread: bool) -> Stream {
    thread_local! {
        static OWN: usize = {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            // Odd, so that it is never a handle's address.
            (NEXT.fetch_add(1, Ordering::Relaxed) << 1) | 0x8000_0000_0000_0001
        };
    }
    match stream as usize {
        0 if !null_is_per_thread => Stream(ptr::null_mut()),
        LEGACY_STREAM => Stream(ptr::null_mut()),
        0 | PER_THREAD_STREAM => Stream(OWN.with(|own| *own) as CUstream),
        _ => Stream(stream),
    }
}

macro_rules! launches {
    ($($name:ident = $original:ident, $per_thread:literal;)*) => { $(
        /// # Safety
        /// As the driver's function.
        #[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
        pub(crate) unsafe fn $name(
            agent: &Agent, outcome: &Outcome, function: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint,
            bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void,
            extra: *mut *mut c_void,
        ) -> CUresult {
            let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared, stream: stream_key(stream, $per_thread), cooperative: false, overlaps: false };
            // SAFETY: the application's own arguments, with another function of the same parameters.
            let run = |f, params, extra| unsafe { original::$original(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra) };
            // SAFETY: as above.
            unsafe { dispatch(agent, outcome, function, &shape, params, extra, &run) }
        }
    )* };
}

macro_rules! launches_ex {
    ($($name:ident = $original:ident, $per_thread:literal;)*) => { $(
        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $name(
            agent: &Agent, outcome: &Outcome, config: *const CUlaunchConfig, function: CUfunction,
            params: *mut *mut c_void, extra: *mut *mut c_void,
        ) -> CUresult {
            // SAFETY: the application's own arguments, with another function of the same parameters.
            let run = |f, params, extra| unsafe { original::$original(config, f, params, extra) };
            // SAFETY: null or a configuration.
            let Some(given) = (unsafe { config.as_ref() }) else {
                return outcome.keep(run(function, params, extra));
            };
            let shape = Shape {
                grid: [given.grid_dim_x, given.grid_dim_y, given.grid_dim_z],
                block: [given.block_dim_x, given.block_dim_y, given.block_dim_z],
                shared: given.shared_mem_bytes,
                stream: stream_key(given.stream, $per_thread),
                // SAFETY: a configuration has as many attributes as it says.
                cooperative: unsafe { has_attribute(given, ATTRIBUTE_COOPERATIVE) },
                // SAFETY: as above.
                overlaps: unsafe { has_attribute(given, ATTRIBUTE_OVERLAP) },
            };
            // SAFETY: as above.
            unsafe { dispatch(agent, outcome, function, &shape, params, extra, &run) }
        }
    )* };
}

macro_rules! launches_cooperative {
    ($($name:ident = $original:ident, $per_thread:literal;)*) => { $(
        /// # Safety
        /// As the driver's function.
        #[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
        pub(crate) unsafe fn $name(
            agent: &Agent, outcome: &Outcome, function: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint,
            bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void,
        ) -> CUresult {
            let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared, stream: stream_key(stream, $per_thread), cooperative: true, overlaps: false };
            // SAFETY: the application's own arguments, with another function of the same parameters.
            let run = |f, params, _extra: *mut *mut c_void| unsafe { original::$original(f, gx, gy, gz, bx, by, bz, shared, stream, params) };
            // SAFETY: as above.
            unsafe { dispatch(agent, outcome, function, &shape, params, ptr::null_mut(), &run) }
        }
    )* };
}

launches! {
    kernel = launch_kernel, false;
    kernel_ptsz = launch_kernel_ptsz, true;
}
launches_ex! {
    kernel_ex = launch_kernel_ex, false;
    kernel_ex_ptsz = launch_kernel_ex_ptsz, true;
}
launches_cooperative! {
    cooperative = launch_cooperative, false;
    cooperative_ptsz = launch_cooperative_ptsz, true;
}

/// The configuration sets the attribute `id`, whose value begins with an int, to something other than 0.
///
/// # Safety
/// `config.attrs` points to `config.num_attrs` attributes.
unsafe fn has_attribute(config: &CUlaunchConfig, id: u32) -> bool {
    if config.attrs.is_null() {
        return false;
    }
    (0..config.num_attrs as usize).any(|i| {
        // SAFETY: the caller's promise: an attribute is a u32 id, padding to 8, and a union of 64 bytes.
        unsafe {
            let attribute = config.attrs.cast::<u8>().add(i * ATTRIBUTE_BYTES);
            attribute.cast::<u32>().read_unaligned() == id
                && attribute.add(8).cast::<c_int>().read_unaligned() != 0
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: u64 = 0x1122_3344_5566_7788;

    #[test]
    fn the_record_goes_behind_the_applications_parameters() {
        let (mut a, mut b) = (1u64, 2u32);
        let mut params = [ptr::from_mut(&mut a).cast(), ptr::from_mut(&mut b).cast()];
        let expected = params;
        let run = |got: *mut *mut c_void, extra: *mut *mut c_void| {
            assert!(extra.is_null());
            // SAFETY: three parameters were promised.
            let got = unsafe { std::slice::from_raw_parts(got, 3) };
            assert_eq!(got[..2], expected);
            // SAFETY: the third is the record.
            assert_eq!(unsafe { *got[2].cast::<u64>() }, RECORD);
            5
        };
        // SAFETY: two parameters.
        let code =
            unsafe { with_record(2, 16, RECORD, params.as_mut_ptr(), ptr::null_mut(), &run) };
        assert_eq!(code, Some(5));
    }

    #[test]
    fn kernels_without_and_with_very_many_parameters() {
        for count in [0, 1, INLINE_PARAMS, INLINE_PARAMS + 1, 500] {
            let mut values: Vec<u64> = (0..count as u64).collect();
            let mut params: Vec<*mut c_void> =
                values.iter_mut().map(|v| ptr::from_mut(v).cast()).collect();
            let run = |got: *mut *mut c_void, _: *mut *mut c_void| {
                // SAFETY: one more than the application gave.
                let got = unsafe { std::slice::from_raw_parts(got, count + 1) };
                for (i, value) in got[..count].iter().enumerate() {
                    // SAFETY: the application's values.
                    assert_eq!(unsafe { *value.cast::<u64>() }, i as u64);
                }
                // SAFETY: the record.
                assert_eq!(unsafe { *got[count].cast::<u64>() }, RECORD);
                0
            };
            let given = if count == 0 {
                ptr::null_mut()
            } else {
                params.as_mut_ptr()
            };
            // SAFETY: `count` parameters.
            let code = unsafe { with_record(count, 0, RECORD, given, ptr::null_mut(), &run) };
            assert_eq!(code, Some(0), "{count}");
        }
    }

    fn with_buffer(buffer: &mut [u8], offset: u64) -> Option<Vec<u8>> {
        let mut size = buffer.len();
        let mut extra = [
            EXTRA_SIZE as *mut c_void,
            ptr::from_mut(&mut size).cast(),
            EXTRA_POINTER as *mut c_void,
            buffer.as_mut_ptr().cast(),
            EXTRA_END as *mut c_void,
        ];
        let got = Mutex::new(Vec::new());
        let run = |params: *mut *mut c_void, extra: *mut *mut c_void| {
            assert!(params.is_null());
            // SAFETY: a list as we made it.
            let (start, bytes) = unsafe { parse_extra(extra) }.unwrap();
            // SAFETY: the list says that they are there.
            *got.lock().unwrap() = unsafe { std::slice::from_raw_parts(start, bytes) }.to_vec();
            0
        };
        // SAFETY: a buffer of the size given.
        unsafe { with_record(2, offset, RECORD, ptr::null_mut(), extra.as_mut_ptr(), &run)? };
        Some(got.into_inner().unwrap())
    }

    #[test]
    fn a_parameter_buffer_is_extended() {
        let record = RECORD.to_le_bytes();
        // 12 bytes of parameters, padded to the record's offset.
        let got = with_buffer(&mut [7; 12], 16).unwrap();
        assert_eq!(got[..16], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0]);
        assert_eq!(got[16..], record);
        // A buffer with slack behind the parameters.
        let got = with_buffer(&mut [9; 64], 16).unwrap();
        assert_eq!(got[..16], [9; 16]);
        assert_eq!(got[16..], record);
    }

    #[test]
    fn parameters_that_are_not_as_documented_are_left_to_the_driver() {
        let run = |_: *mut *mut c_void, _: *mut *mut c_void| panic!("must not run");
        let null = ptr::null_mut();
        // SAFETY: nothing is dereferenced: parameters are missing.
        let code = unsafe { with_record(2, 16, RECORD, null, null, &run) };
        assert_eq!(code, None);
        let mut strange = [9 as *mut c_void, ptr::null_mut(), EXTRA_END as *mut c_void];
        // SAFETY: a list with an unknown key.
        let code = unsafe { with_record(2, 16, RECORD, null, strange.as_mut_ptr(), &run) };
        assert_eq!(code, None);
        let mut empty = [EXTRA_END as *mut c_void];
        // SAFETY: an empty list.
        let code = unsafe { with_record(2, 16, RECORD, null, empty.as_mut_ptr(), &run) };
        assert_eq!(code, None);
    }

    #[test]
    fn streams_that_run_in_order_have_one_key() {
        let legacy = stream_key(ptr::null_mut(), false);
        assert_eq!(legacy, stream_key(LEGACY_STREAM as CUstream, true));
        let own = stream_key(ptr::null_mut(), true);
        assert_ne!(own, legacy);
        assert_eq!(own, stream_key(PER_THREAD_STREAM as CUstream, false));
        let other = std::thread::spawn(|| stream_key(ptr::null_mut(), true));
        assert_ne!(own, other.join().unwrap());
        let made = 0x40 as CUstream;
        assert_eq!(stream_key(made, true), Stream(made));
        assert_eq!(stream_key(made, false), Stream(made));
    }

    #[test]
    fn attributes_of_a_configuration_are_found() {
        let mut attributes = [0u8; ATTRIBUTE_BYTES * 2];
        let mut config = CUlaunchConfig {
            grid_dim_x: 1,
            grid_dim_y: 1,
            grid_dim_z: 1,
            block_dim_x: 1,
            block_dim_y: 1,
            block_dim_z: 1,
            shared_mem_bytes: 0,
            stream: ptr::null_mut(),
            attrs: attributes.as_mut_ptr().cast(),
            num_attrs: 2,
        };
        // SAFETY: two attributes.
        assert!(!unsafe { has_attribute(&config, ATTRIBUTE_COOPERATIVE) });
        attributes[ATTRIBUTE_BYTES] = 2;
        // SAFETY: as above.
        assert!(!unsafe { has_attribute(&config, ATTRIBUTE_COOPERATIVE) });
        attributes[ATTRIBUTE_BYTES + 8] = 1;
        config.attrs = attributes.as_mut_ptr().cast();
        // SAFETY: as above.
        assert!(unsafe { has_attribute(&config, ATTRIBUTE_COOPERATIVE) });
        // SAFETY: as above.
        assert!(!unsafe { has_attribute(&config, ATTRIBUTE_OVERLAP) });
        config.attrs = ptr::null_mut();
        // SAFETY: no attributes are read.
        assert!(!unsafe { has_attribute(&config, ATTRIBUTE_COOPERATIVE) });
    }
}
