//! The functions that NVTX is given, and where in its tables they go. Numbers and layouts are those
//! of NVTX 3.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::ranges::{
    DOMAINS, STRINGS, end, mark, name_stream, name_thread, pop, push, register, start, state,
};
use super::texts::{Text, narrow, wide};
use crate::sys::guard::quietly;

/// What NVTX gives to whom it initialises: a function that knows tables by their number.
pub type FindTable = unsafe extern "C" fn(c_uint) -> *const c_void;

/// The table of functions by which functions are set.
const CALLBACKS: c_uint = 1;

#[repr(C)]
struct Callbacks {
    bytes: usize,
    /// The addresses of a module's functions, and how many there are.
    module: Option<unsafe extern "C" fn(c_uint, *mut *mut *mut usize, *mut c_uint) -> c_int>,
}

/// What a depth is without a tool: not known. Nobody can rely on more.
const NO_DEPTH: c_int = -2;

/// `nvtxEventAttributes_t`
#[repr(C)]
struct Attributes {
    version: u16,
    bytes: u16,
    category: u32,
    color_type: c_int,
    color: u32,
    payload_type: c_int,
    reserved: c_int,
    payload: u64,
    message_type: c_int,
    message: usize,
}

/// The name in an event's attributes: text, wide text, or a registered string.
///
/// # Safety
/// Null, or attributes as the application gives them to NVTX.
unsafe fn named(attributes: *const Attributes) -> Text {
    // SAFETY: the caller's promise.
    let Some(attributes) = (unsafe { attributes.as_ref() }) else {
        return Text::default();
    };
    if usize::from(attributes.bytes) < size_of::<Attributes>() {
        return Text::default();
    }
    let message = attributes.message;
    match attributes.message_type {
        // SAFETY: text of this kind.
        1 => unsafe { narrow(message as *const c_char) },
        // SAFETY: as above.
        2 => unsafe { wide(message as *const u32) },
        3 => (STRINGS.get(message).unwrap_or_default().to_owned(), false),
        _ => Text::default(),
    }
}

/// Runs what a call has us do, unless it comes from ourselves.
fn do_so<T: Default>(work: impl FnOnce() -> T) -> T {
    quietly(work).unwrap_or_default()
}

/// One function for each row: `reads` follows what the application points to, `knows` takes
/// numbers.
macro_rules! callbacks {
    ($( $module:literal: { $( $id:literal = $how:ident $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? $(= $answer:expr)? ; $work:expr; )* } )*) => {
        $($(
            unsafe extern "C" fn $name($($arg: $type),*) $(-> $result)? {
                callbacks!(@answer $($answer)?; do_so(|| callbacks!(@work $how $work)))
            }
        )*)*

        /// Numbers of modules and functions, and the functions.
        fn rows() -> Vec<(c_uint, usize, usize)> {
            vec![ $($( ($module, $id, $name as *const () as usize) ),*),* ]
        }
    };
    // SAFETY: arguments as NVTX documents them.
    (@work reads $work:expr) => { unsafe { $work } };
    (@work knows $work:expr) => { $work };
    (@answer ; $work:expr) => { $work };
    (@answer $answer:expr; $work:expr) => {{ $work; $answer }};
}

#[rustfmt::skip]
callbacks! {
    // NVTX_CB_MODULE_CORE
    1: {
        1 = reads mark_ex(attributes: *const Attributes); mark(0, named(attributes));
        2 = reads mark_a(text: *const c_char); mark(0, narrow(text));
        3 = reads mark_w(text: *const u32); mark(0, wide(text));
        4 = reads start_ex(attributes: *const Attributes) -> u64; start(0, named(attributes));
        5 = reads start_a(text: *const c_char) -> u64; start(0, narrow(text));
        6 = reads start_w(text: *const u32) -> u64; start(0, wide(text));
        7 = knows end_any(number: u64); end(number);
        8 = reads push_ex(attributes: *const Attributes) -> c_int = NO_DEPTH; push(0, named(attributes));
        9 = reads push_a(text: *const c_char) -> c_int = NO_DEPTH; push(0, narrow(text));
        10 = reads push_w(text: *const u32) -> c_int = NO_DEPTH; push(0, wide(text));
        11 = knows pop_any() -> c_int = NO_DEPTH; pop(0);
        14 = reads thread_a(thread: u32, text: *const c_char); name_thread(thread, narrow(text));
        15 = reads thread_w(thread: u32, text: *const u32); name_thread(thread, wide(text));
    }
    // NVTX_CB_MODULE_CUDA
    2: {
        5 = reads stream_a(stream: u64, text: *const c_char); name_stream(stream, narrow(text));
        6 = reads stream_w(stream: u64, text: *const u32); name_stream(stream, wide(text));
    }
    // NVTX_CB_MODULE_CUDART
    4: {
        3 = reads rt_stream_a(stream: u64, text: *const c_char); name_stream(stream, narrow(text));
        4 = reads rt_stream_w(stream: u64, text: *const u32); name_stream(stream, wide(text));
    }
    // NVTX_CB_MODULE_CORE2
    5: {
        1 = reads domain_mark(domain: usize, attributes: *const Attributes); mark(domain, named(attributes));
        2 = reads domain_start(domain: usize, attributes: *const Attributes) -> u64; start(domain, named(attributes));
        3 = knows domain_end(_domain: usize, number: u64); end(number);
        4 = reads domain_push(domain: usize, attributes: *const Attributes) -> c_int = NO_DEPTH; push(domain, named(attributes));
        5 = knows domain_pop(domain: usize) -> c_int = NO_DEPTH; pop(domain);
        10 = reads string_a(_domain: usize, text: *const c_char) -> usize; register(&state().strings, &STRINGS, narrow(text));
        11 = reads string_w(_domain: usize, text: *const u32) -> usize; register(&state().strings, &STRINGS, wide(text));
        12 = reads domain_a(text: *const c_char) -> usize; register(&state().domains, &DOMAINS, narrow(text));
        13 = reads domain_w(text: *const u32) -> usize; register(&state().domains, &DOMAINS, wide(text));
    }
}

/// Fills our functions into the tables of one of NVTX's users. False: its tables are not what we
/// know.
///
/// # Safety
/// `find` is what NVTX gives to `InitializeInjectionNvtx2`.
pub(super) unsafe fn fill(find: FindTable) -> bool {
    // SAFETY: the caller's promise.
    let table = unsafe { find(CALLBACKS).cast::<Callbacks>().as_ref() };
    let table = table.filter(|table| table.bytes >= size_of::<Callbacks>());
    let Some(module) = table.and_then(|table| table.module) else {
        return false;
    };
    let mut filled = false;
    for (number, at, function) in rows() {
        let (mut functions, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY: writable locals.
        let there = unsafe { module(number, &mut functions, &mut count) } != 0;
        if !there || functions.is_null() || at >= count as usize {
            continue;
        }
        // SAFETY: there are so many places, each null or the address of a pointer to a function.
        if let Some(place) = unsafe { functions.add(at).read().as_mut() } {
            *place = function;
            filled = true;
        }
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_place_is_filled_twice() {
        let mut places: Vec<_> = rows()
            .iter()
            .map(|(module, at, _)| (*module, *at))
            .collect();
        places.sort_unstable();
        let count = places.len();
        places.dedup();
        assert_eq!((places.len(), count), (26, 26));
        assert_eq!(size_of::<Attributes>(), 48);
    }

    #[test]
    fn tables_that_are_not_known_stay_as_they_are() {
        static SHORT: Callbacks = Callbacks {
            bytes: 8,
            module: None,
        };
        unsafe extern "C" fn none(_: c_uint) -> *const c_void {
            std::ptr::null()
        }
        unsafe extern "C" fn short(_: c_uint) -> *const c_void {
            (&raw const SHORT).cast()
        }
        // SAFETY: functions that answer as NVTX may.
        unsafe {
            assert!(!fill(none));
            assert!(!fill(short));
        }
    }

    #[test]
    fn a_name_is_text_wide_text_or_a_registered_string() {
        let attributes = |message_type, message, bytes| Attributes {
            version: 3,
            bytes,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: 0,
            reserved: 0,
            payload: 0,
            message_type,
            message,
        };
        let of = |attributes: &Attributes| {
            // SAFETY: attributes with what they say.
            unsafe { named(attributes) }.0
        };
        let wide = [0x61u32, 0x62, 0];
        assert_eq!(of(&attributes(1, c"ab".as_ptr() as usize, 48)), "ab");
        assert_eq!(of(&attributes(2, wide.as_ptr() as usize, 48)), "ab");
        assert_eq!(of(&attributes(3, usize::MAX, 48)), "");
        assert_eq!(of(&attributes(0, 1, 48)), "");
        assert_eq!(of(&attributes(1, 1, 40)), "", "older than we know");
        // SAFETY: null is allowed.
        assert_eq!(unsafe { named(std::ptr::null()) }, Text::default());
    }
}
