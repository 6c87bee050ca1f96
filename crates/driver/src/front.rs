//! Standing in front of `dlopen`, for libraries that are preloaded into programs which load the
//! driver later.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What `dlopen` is.
pub type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// Versions of `dlopen` in the C library, the newest first.
const VERSIONS: [&CStr; 2] = match cfg!(target_arch = "aarch64") {
    true => [c"GLIBC_2.34", c"GLIBC_2.17"],
    false => [c"GLIBC_2.34", c"GLIBC_2.2.5"],
};

/// The `dlopen` behind the one of this library; 0 if there is none. Looked for once, and by a
/// version: others stand in front of `dlsym`, and one that calls `dlopen` there would come back
/// here.
pub fn next_dlopen() -> usize {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let found = FOUND.load(Ordering::Relaxed);
    if found != 0 {
        return found;
    }
    let name = c"dlopen".as_ptr();
    // SAFETY: NUL-terminated names.
    let by_version = VERSIONS
        .iter()
        .map(|version| unsafe { libc::dlvsym(libc::RTLD_NEXT, name, version.as_ptr()) as usize });
    let found = by_version.into_iter().find(|address| *address != 0);
    // SAFETY: as above.
    let found = found.unwrap_or_else(|| unsafe { libc::dlsym(libc::RTLD_NEXT, name) as usize });
    FOUND.store(found, Ordering::Relaxed);
    found
}

/// Is this the name of a driver library, with or without directories?
pub fn is_driver_name(path: &CStr) -> bool {
    let name = without_directories(path.to_bytes());
    name == b"libcuda.so" || name.starts_with(b"libcuda.so.")
}

/// Is it a driver library, or one that comes with it and that it loads itself
/// (`libnvidia-ptxjitcompiler`, …)? NVML, which programs call, is not.
pub fn is_of_driver(path: &CStr) -> bool {
    let name = without_directories(path.to_bytes());
    let comes_with_it = name.starts_with(b"libnvidia-") && !name.starts_with(b"libnvidia-ml.");
    is_driver_name(path) || comes_with_it
}

fn without_directories(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// Defines a `dlopen` that calls `$before` with the same arguments and goes on at the address that
/// it gives, which is [`next_dlopen`]'s. The loader looks at who called to find the caller's search
/// path, so this neither calls nor wraps it: it jumps, and `dlopen` sees the caller's own frame.
#[macro_export]
macro_rules! in_front_of_dlopen {
    ($before:path) => {
        /// Stands in front of the loader's.
        ///
        /// # Safety
        /// As `dlopen`.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn dlopen(
            path: *const ::std::ffi::c_char,
            flags: ::std::ffi::c_int,
        ) -> *mut ::std::ffi::c_void {
            #[cfg(target_arch = "x86_64")]
            ::core::arch::naked_asm!(
                "push rdi",
                "push rsi",
                "sub rsp, 8",
                "call {before}",
                "add rsp, 8",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                before = sym $before,
            );
            #[cfg(target_arch = "aarch64")]
            ::core::arch::naked_asm!(
                // `bti c`
                "hint #34",
                "stp x0, x1, [sp, #-32]!",
                "str x30, [sp, #16]",
                "bl {before}",
                "mov x16, x0",
                "ldr x30, [sp, #16]",
                "ldp x0, x1, [sp], #32",
                "br x16",
                before = sym $before,
            );
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_dlopen_is_the_loaders() {
        let next = next_dlopen();
        assert_ne!(next, 0);
        assert_eq!(next, next_dlopen());
        // SAFETY: the loader's own function.
        let dlopen: Dlopen = unsafe { std::mem::transmute(next) };
        // SAFETY: a NUL-terminated name of a library that is loaded.
        let handle = unsafe { dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY) };
        assert!(!handle.is_null());
    }

    #[test]
    fn driver_names() {
        for name in [
            c"libcuda.so.1",
            c"libcuda.so",
            c"/usr/lib/x/libcuda.so.1",
            c"libcuda.so.580.95",
        ] {
            assert!(is_driver_name(name) && is_of_driver(name), "{name:?}");
        }
        assert!(is_of_driver(c"/usr/lib/libnvidia-ptxjitcompiler.so.1"));
        for name in [
            c"libcudart.so.13",
            c"libcuda",
            c"/libcuda.so.1/x",
            c"",
            c"mylibcuda.so.1",
            c"/libnvidia-x/libc.so.6",
            c"/usr/lib/libnvidia-ml.so.1",
        ] {
            assert!(!is_driver_name(name) && !is_of_driver(name), "{name:?}");
        }
    }
}
