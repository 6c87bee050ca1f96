//! A launch's parameters, and one more behind them, for variants that take it: launch record,
//! number, and which node of a graph it is.
//!
//! The driver takes parameters in two ways, as a list of pointers or as one buffer; the application
//! chooses.

use std::ffi::c_void;
use std::ptr;

use warpbpf_abi::layout::launch;
use warpbpf_driver::sys::CUresult;
use warpbpf_patch::HiddenParam;

/// `CU_LAUNCH_PARAM_END`, `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE`
const EXTRA_END: usize = 0;
const EXTRA_POINTER: usize = 1;
const EXTRA_SIZE: usize = 2;
/// The hidden parameter: [`launch::PARAM_RECORD`], [`launch::PARAM_NUMBER`],
/// [`launch::PARAM_NODE`], [`launch::PARAM_CHOSEN`]. A variant takes as much of it as it has room
/// for.
pub(crate) type Hidden = [u64; launch::param_size(true) as usize / 8];
const _: () = assert!(launch::PARAM_RECORD == 0 && launch::PARAM_NUMBER == 8);
const _: () = assert!(launch::PARAM_NODE == 16 && launch::PARAM_CHOSEN == 24);
/// Pairs of `extra` that are read before we give up finding its end.
const EXTRA_PAIRS: usize = 8;
/// Parameters that fit on the stack.
const INLINE_PARAMS: usize = 48;

/// Calls `run` with the hidden parameter behind the application's `count` parameters. `None` if the
/// parameters are not passed as documented.
///
/// # Safety
/// `params` and `extra` are what CUDA asks for, for a kernel with `count` parameters.
pub(crate) unsafe fn with_hidden(
    count: usize,
    param: &HiddenParam,
    mut hidden: Hidden,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    run: &dyn Fn(*mut *mut c_void, *mut *mut c_void) -> CUresult,
) -> Option<CUresult> {
    if !extra.is_null() && (params.is_null() || count == 0) {
        // SAFETY: the caller's promise.
        let (given, size) = unsafe { parse_extra(extra)? };
        let offset = param.offset as usize;
        let mut buffer = vec![0u8; offset + param.size() as usize];
        let keep = size.min(offset);
        // SAFETY: `extra` says that `size` bytes are there.
        unsafe { ptr::copy_nonoverlapping(given, buffer.as_mut_ptr(), keep) };
        for (bytes, word) in buffer[offset..].chunks_exact_mut(8).zip(hidden) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
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
    all[count] = ptr::from_mut(&mut hidden).cast();
    Some(run(all.as_mut_ptr(), ptr::null_mut()))
}

/// The hidden parameter behind `count` parameters, where [`with_hidden`] put it. `None` if it is
/// not there.
///
/// # Safety
/// `params` and `extra` are what [`with_hidden`] gave, for the same kernel.
pub(crate) unsafe fn hidden_of(
    count: usize,
    param: &HiddenParam,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Option<Hidden> {
    let words = param.size() as usize / 8;
    let at = if params.is_null() {
        if extra.is_null() {
            return None;
        }
        // SAFETY: the caller's promise.
        let (buffer, size) = unsafe { parse_extra(extra)? };
        let offset = param.offset as usize;
        if size < offset + words * 8 {
            return None;
        }
        // SAFETY: so many bytes are there.
        unsafe { buffer.add(offset) }
    } else {
        // SAFETY: one pointer more than the kernel's own parameters.
        unsafe { *params.add(count) }.cast::<u8>().cast_const()
    };
    if at.is_null() {
        return None;
    }
    // What says nothing of programs is for all of them.
    let mut hidden = [0, 0, 0, u64::MAX];
    for (index, word) in hidden.iter_mut().enumerate().take(words) {
        // SAFETY: the hidden parameter is there with all of its words, perhaps not aligned.
        *word = unsafe { at.cast::<u64>().add(index).read_unaligned() };
    }
    Some(hidden)
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const HIDDEN: Hidden = [0x1122_3344_5566_7788, 41, 7, 5];

    fn at(offset: u64, chosen: bool) -> HiddenParam {
        HiddenParam {
            offset,
            block_cells: 0,
            block_counters: false,
            warp_counters: false,
            node: false,
            chosen,
        }
    }

    #[test]
    fn the_hidden_parameter_goes_behind_the_applications_parameters() {
        let (mut a, mut b) = (1u64, 2u32);
        let mut params = [ptr::from_mut(&mut a).cast(), ptr::from_mut(&mut b).cast()];
        let expected = params;
        let run = |got: *mut *mut c_void, extra: *mut *mut c_void| {
            assert!(extra.is_null());
            // SAFETY: three parameters were promised.
            let got = unsafe { std::slice::from_raw_parts(got, 3) };
            assert_eq!(got[..2], expected);
            // SAFETY: the third is the hidden one.
            assert_eq!(unsafe { *got[2].cast::<Hidden>() }, HIDDEN);
            let list = got.as_ptr().cast_mut();
            // SAFETY: as above.
            let found = unsafe { hidden_of(2, &at(16, true), list, ptr::null_mut()) };
            assert_eq!(found, Some(HIDDEN));
            5
        };
        // SAFETY: two parameters.
        let code = unsafe {
            with_hidden(
                2,
                &at(16, true),
                HIDDEN,
                params.as_mut_ptr(),
                ptr::null_mut(),
                &run,
            )
        };
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
                // SAFETY: the hidden parameter.
                assert_eq!(unsafe { *got[count].cast::<Hidden>() }, HIDDEN);
                0
            };
            let given = if count == 0 {
                ptr::null_mut()
            } else {
                params.as_mut_ptr()
            };
            // SAFETY: `count` parameters.
            let code =
                unsafe { with_hidden(count, &at(0, true), HIDDEN, given, ptr::null_mut(), &run) };
            assert_eq!(code, Some(0), "{count}");
        }
    }

    fn with_buffer(buffer: &mut [u8], param: HiddenParam) -> Option<Vec<u8>> {
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
            let told = unsafe { hidden_of(2, &param, params, extra) };
            let [record, number, node, chosen] = HIDDEN;
            let chosen = if param.chosen { chosen } else { u64::MAX };
            assert_eq!(told, Some([record, number, node, chosen]));
            // SAFETY: as above.
            let (start, bytes) = unsafe { parse_extra(extra) }.unwrap();
            // SAFETY: the list says that they are there.
            *got.lock().unwrap() = unsafe { std::slice::from_raw_parts(start, bytes) }.to_vec();
            0
        };
        // SAFETY: a buffer of the size given.
        unsafe { with_hidden(2, &param, HIDDEN, ptr::null_mut(), extra.as_mut_ptr(), &run)? };
        Some(got.into_inner().unwrap())
    }

    #[test]
    fn a_parameter_buffer_is_extended() {
        let hidden = HIDDEN.map(u64::to_le_bytes).concat();
        // 12 bytes of parameters, padded to the hidden one's offset.
        let got = with_buffer(&mut [7; 12], at(16, true)).unwrap();
        assert_eq!(got[..16], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0]);
        assert_eq!(got[16..], hidden);
        // A buffer with slack behind the parameters.
        let got = with_buffer(&mut [9; 64], at(16, true)).unwrap();
        assert_eq!(got[..16], [9; 16]);
        assert_eq!(got[16..], hidden);
        // A variant whose programs are in all launches takes no more than it has room for.
        let got = with_buffer(&mut [7; 12], at(16, false)).unwrap();
        assert_eq!(got[16..], hidden[..24]);
    }

    #[test]
    fn parameters_that_are_not_as_documented_are_left_to_the_driver() {
        let run = |_: *mut *mut c_void, _: *mut *mut c_void| panic!("must not run");
        let null = ptr::null_mut();
        // SAFETY: as below.
        assert_eq!(unsafe { hidden_of(2, &at(16, true), null, null) }, None);
        // SAFETY: nothing is dereferenced: parameters are missing.
        let code = unsafe { with_hidden(2, &at(16, true), HIDDEN, null, null, &run) };
        assert_eq!(code, None);
        let mut strange = [9 as *mut c_void, ptr::null_mut(), EXTRA_END as *mut c_void];
        // SAFETY: a list with an unknown key.
        let code =
            unsafe { with_hidden(2, &at(16, true), HIDDEN, null, strange.as_mut_ptr(), &run) };
        assert_eq!(code, None);
        let mut empty = [EXTRA_END as *mut c_void];
        // SAFETY: an empty list.
        let code = unsafe { with_hidden(2, &at(16, true), HIDDEN, null, empty.as_mut_ptr(), &run) };
        assert_eq!(code, None);
    }
}
