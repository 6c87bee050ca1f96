//! Streams as the application names them, and as launches are told apart by them.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use warpbpf_driver::Stream;
use warpbpf_driver::sys::CUstream;

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`
pub(crate) const LEGACY_STREAM: usize = 1;
pub(crate) const PER_THREAD_STREAM: usize = 2;

/// Set in the name of a stream that belongs to a thread, and in no handle: handles are addresses.
const PER_THREAD: usize = 1 << 63;

/// The name is that of a thread's own stream.
pub(crate) fn is_per_thread(stream: Stream) -> bool {
    stream.0 as usize & PER_THREAD != 0
}

/// A stream as the application names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamName {
    pub(crate) stream: CUstream,
    /// What a null handle means in the function that it was given to.
    pub(crate) null_is_per_thread: bool,
}

impl StreamName {
    /// The handle that means this stream in every function.
    pub(crate) fn handle(self) -> CUstream {
        match self.stream as usize {
            0 if self.null_is_per_thread => PER_THREAD_STREAM as CUstream,
            _ => self.stream,
        }
    }

    pub(crate) fn key(self) -> Stream {
        stream_key(self.stream, self.null_is_per_thread)
    }
}

/// A value that is the same for launches that run one after the other. The driver's own names are
/// not: the stream of each thread has the same handle on all of them, and the legacy stream has
/// two.
pub(crate) fn stream_key(stream: CUstream, null_is_per_thread: bool) -> Stream {
    thread_local! {
        static OWN: usize = {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            // Odd, so that it is never a handle's address.
            (NEXT.fetch_add(1, Ordering::Relaxed) << 1) | PER_THREAD | 1
        };
    }
    match stream as usize {
        0 if !null_is_per_thread => Stream(ptr::null_mut()),
        LEGACY_STREAM => Stream(ptr::null_mut()),
        0 | PER_THREAD_STREAM => Stream(OWN.with(|own| *own) as CUstream),
        _ => Stream(stream),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
