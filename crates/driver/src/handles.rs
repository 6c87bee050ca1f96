//! What the driver gives out names for: contexts, modules, kernels, streams.

use crate::sys;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident = $raw:ty;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(transparent)]
        pub struct $name(pub $raw);
        // SAFETY: a driver handle is an opaque token that the driver allows on any thread.
        unsafe impl Send for $name {}
        // SAFETY: as above; the driver does its own locking.
        unsafe impl Sync for $name {}
    )* };
}

handles! {
    /// A context.
    Context = sys::CUcontext;
    /// A loaded module.
    Module = sys::CUmodule;
    /// A loaded library.
    Library = sys::CUlibrary;
    /// A kernel, as `CUfunction`.
    Function = sys::CUfunction;
    /// A stream; null is the legacy default stream.
    Stream = sys::CUstream;
}
