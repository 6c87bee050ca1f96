//! Preloaded kernels that wait, and what the driver says of them.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_uint};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use warpbpf_driver::sys::{
    self, CUfunction, CUkernel, CUlibrary, CUmodule, CUresult, FUNC_REGISTERS,
};
use warpbpf_driver::{Context, Driver};
use warpbpf_session::ImageInfo;

use crate::kernels::entry::Entry;
use crate::sources::images::Handle;
use crate::sys::lock::lock;
use crate::sys::symbols::Symbols;
use crate::sys::table::Table;

/// How often it is looked whether the tool is still there.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// Between two looks whether what is worked on is done.
pub(crate) const PAUSE: Duration = Duration::from_millis(2);

/// What to do about a kernel that cannot be had this way.
pub(crate) const ADVICE: &str = "start the application under `warpbpf run`";

/// See the module.
#[derive(Debug)]
pub(crate) struct Preloaded {
    /// Handles are asked for.
    pub(crate) open: AtomicBool,
    /// Kernels are looked for in compilers' caches, too.
    pub(crate) caches: AtomicBool,
    /// Handles that were asked for, whatever came of it.
    pub(crate) seen: Table<()>,
    pub(crate) driver: OnceLock<Questions>,
    pub(crate) waiting: Mutex<Waiting>,
    pub(crate) more: Condvar,
    /// Held while one is worked on: its image must not be unloaded meanwhile.
    pub(crate) working: Mutex<()>,
    /// Kernels that the tool was told of, by image and name; true if that was as the session ended,
    /// before anything came of them.
    pub(crate) told: Mutex<HashMap<(Handle, String), bool>>,
}

impl Default for Preloaded {
    fn default() -> Preloaded {
        Preloaded {
            open: AtomicBool::new(false),
            caches: AtomicBool::new(false),
            seen: Table::new(),
            driver: OnceLock::new(),
            waiting: Mutex::default(),
            more: Condvar::new(),
            working: Mutex::default(),
            told: Mutex::default(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) jobs: Vec<Job>,
    /// What is worked on.
    pub(crate) at: Option<Job>,
    /// Entries that only count, by image: with the handles that they stand for.
    pub(crate) counting: HashMap<Handle, Vec<usize>>,
}

/// A preloaded kernel that was launched.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) image: Handle,
    pub(crate) function: usize,
    pub(crate) context: Context,
    pub(crate) name: String,
    /// No program wants it: its context alone is to have maps.
    pub(crate) only_watched: bool,
}

// SAFETY: handles, which are the driver's affair.
unsafe impl Send for Job {}

/// What the driver is asked about a handle; not every driver can be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Questions {
    pub(crate) func_name: Ask<*mut *const c_char>,
    pub(crate) func_module: Ask<*mut CUmodule>,
    pub(crate) kernel_name: Option<Ask<*mut *const c_char>>,
    pub(crate) kernel_library: Option<Ask<*mut CUlibrary>>,
    pub(crate) func_param: Option<AskParam>,
    pub(crate) kernel_param: Option<AskParam>,
}

/// Of a parameter by its index: where it is to say its offset, and its bytes.
pub(crate) type AskParam =
    unsafe extern "C" fn(CUfunction, usize, *mut usize, *mut usize) -> CUresult;

pub(crate) type Ask<T> = unsafe extern "C" fn(T, CUfunction) -> CUresult;

impl Questions {
    pub(crate) fn new(symbols: &Symbols) -> Option<Questions> {
        warpbpf_faults::check("late/questions", || ()).ok()?;
        // SAFETY: the driver's functions of these names have these signatures.
        unsafe {
            let name = |symbol| -> Option<Ask<*mut *const c_char>> {
                Some(std::mem::transmute::<usize, Ask<*mut *const c_char>>(
                    symbols.address(symbol)?,
                ))
            };
            let param = |symbol| -> Option<AskParam> {
                Some(std::mem::transmute::<usize, AskParam>(
                    symbols.address(symbol)?,
                ))
            };
            Some(Questions {
                func_name: name("cuFuncGetName")?,
                func_module: std::mem::transmute::<usize, Ask<*mut CUmodule>>(
                    symbols.address("cuFuncGetModule")?,
                ),
                kernel_name: name("cuKernelGetName"),
                kernel_library: symbols
                    .address("cuKernelGetLibrary")
                    .map(|address| std::mem::transmute::<usize, Ask<*mut CUlibrary>>(address)),
                func_param: param("cuFuncGetParamInfo"),
                kernel_param: param("cuKernelGetParamInfo"),
            })
        }
    }

    /// The kernel's parameters, each with its offset and bytes, if the driver says them (CUDA
    /// 12.4).
    pub(crate) fn params(&self, job: &Job) -> Option<Vec<(usize, usize)>> {
        let ask = match job.image {
            Handle::Module(_) => self.func_param?,
            Handle::Library(_) => self.kernel_param?,
        };
        let mut all = Vec::new();
        loop {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: a handle that the application launches by, and writable locals.
            let code = unsafe {
                ask(
                    job.function as CUfunction,
                    all.len(),
                    &mut offset,
                    &mut bytes,
                )
            };
            match code {
                sys::SUCCESS => all.push((offset, bytes)),
                // There are no more.
                sys::INVALID_VALUE => return Some(all),
                _ => return None,
            }
        }
    }

    /// The kernel's name, and what it is of. A handle may be a function of a context, or a
    /// library's kernel.
    pub(crate) fn ask(&self, handle: CUfunction) -> Option<(String, Handle)> {
        warpbpf_faults::check("late/name", || ()).ok()?;
        if let (Some(of), Some(name)) = (self.kernel_library, self.kernel_name) {
            let mut library: CUlibrary = ptr::null_mut();
            // SAFETY: a handle that the application launches by, and writable locals. The driver
            // knows handles of each kind.
            if unsafe { of(&mut library, handle as CUkernel) } == sys::SUCCESS && !library.is_null()
            {
                // SAFETY: as above.
                let name = text(|to| unsafe { name(to, handle) })?;
                return Some((name, Handle::Library(library as usize)));
            }
        }
        let mut module: CUmodule = ptr::null_mut();
        // SAFETY: as above.
        if unsafe { (self.func_module)(&mut module, handle) } != sys::SUCCESS {
            return None;
        }
        // SAFETY: as above.
        let name = text(|to| unsafe { (self.func_name)(to, handle) })?;
        Some((name, Handle::Module(module as usize)))
    }
}

impl Preloaded {
    /// This handle has not been asked for, and shall be.
    #[inline]
    pub(crate) fn is_new(&self, handle: usize) -> bool {
        self.open.load(Ordering::Relaxed) && self.seen.get(handle).is_none()
    }

    /// Other programs are in force: what was not wanted before may be now.
    pub(crate) fn ask_again(&self) {
        self.seen.clear();
    }

    /// What the user said of compilers' caches.
    pub(crate) fn look_into_caches(&self, yes: bool) {
        self.caches.store(yes, Ordering::Relaxed);
    }

    /// Nothing is asked any more.
    pub(crate) fn close(&self) {
        self.open.store(false, Ordering::Relaxed);
    }

    /// The tool is about to be told what came of a kernel. False if it was told as the session
    /// ended that nothing had.
    pub(crate) fn may_tell(&self, image: Handle, name: &str) -> bool {
        // Only those that nobody saw coming are told as waiting.
        if self.driver.get().is_none() {
            return true;
        }
        let mut told = lock(&self.told);
        !*told.entry((image, name.to_owned())).or_insert(false)
    }

    /// Nothing comes of a kernel any more. False if the tool was told of it already.
    pub(crate) fn gives_up(&self, image: Handle, name: &str) -> bool {
        let mut first = false;
        let mut told = lock(&self.told);
        told.entry((image, name.to_owned())).or_insert_with(|| {
            first = true;
            true
        });
        first
    }

    /// An image is about to be unloaded: nothing of it is worked on from here on.
    pub(crate) fn leaves(&self, table: &Table<Entry>, image: Handle) {
        // Open or not any more: something may still be worked on.
        if self.driver.get().is_none() {
            return;
        }
        let mut waiting = lock(&self.waiting);
        waiting.jobs.retain(|job| job.image != image);
        for handle in waiting.counting.remove(&image).unwrap_or_default() {
            table.remove(handle);
        }
        let is_at = waiting.at.as_ref().is_some_and(|job| job.image == image);
        drop(waiting);
        if is_at {
            drop(lock(&self.working));
        }
        // The next image may have its handle.
        lock(&self.told).retain(|(of, _), _| *of != image);
    }

    /// Waits until nothing is worked on, at most so long; nothing is begun once the agent is off.
    pub(crate) fn wait_until_idle(&self, limit: Duration) {
        let end = Instant::now() + limit;
        while let Err(TryLockError::WouldBlock) = self.working.try_lock() {
            if Instant::now() >= end {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// A kernel waits whose image nobody looks for.
    #[cfg(test)]
    pub(crate) fn waits(&self, name: &str, context: Context) {
        lock(&self.waiting).jobs.push(Job {
            image: Handle::Module(7),
            function: 7,
            context,
            name: name.to_owned(),
            only_watched: false,
        });
    }

    pub(crate) fn next(&self, is_on: impl Fn() -> bool) -> Option<Job> {
        let mut waiting = lock(&self.waiting);
        waiting.at = None;
        loop {
            if !is_on() {
                return None;
            }
            if !waiting.jobs.is_empty() {
                let job = waiting.jobs.remove(0);
                waiting.at = Some(job.clone());
                return Some(job);
            }
            let woken = self.more.wait_timeout(waiting, LOOK);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// They cannot be told apart by what is known of them.
pub(crate) fn are_same(one: &ImageInfo, other: &ImageInfo) -> bool {
    let known = |info: &ImageInfo| info.kernels.iter().map(|k| k.registers).collect::<Vec<_>>();
    one.ptx == other.ptx && known(one) == known(other)
}

/// Registers of the kernel, as the driver says.
pub(crate) fn registers(driver: &Driver, job: &Job) -> Option<u32> {
    let mut value = 0;
    // SAFETY: a handle that the application launches by, and a writable local.
    let code = unsafe {
        (driver.api.func_attribute)(&mut value, FUNC_REGISTERS, job.function as CUfunction)
    };
    (code == sys::SUCCESS).then_some(value as c_uint)
}

/// The name by which a handle's kernel goes, if `ask` gets it.
pub(crate) fn text(ask: impl FnOnce(*mut *const std::ffi::c_char) -> i32) -> Option<String> {
    let mut name = std::ptr::null();
    if ask(&mut name) != warpbpf_driver::sys::SUCCESS || name.is_null() {
        return None;
    }
    // SAFETY: the driver's own text, which lives as long as the kernel.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn no_text(_to: *mut *const c_char, _of: CUfunction) -> CUresult {
        sys::NOT_READY
    }

    unsafe extern "C" fn no_module(_to: *mut CUmodule, _of: CUfunction) -> CUresult {
        sys::NOT_READY
    }

    #[test]
    fn a_kernel_is_told_as_waiting_or_with_what_came_of_it() {
        let preloaded = Preloaded::default();
        let (one, other) = (Handle::Module(1), Handle::Library(1));
        assert!(preloaded.may_tell(one, "k"), "nobody came late");
        preloaded.driver.get_or_init(|| Questions {
            func_name: no_text,
            func_module: no_module,
            kernel_name: None,
            kernel_library: None,
            func_param: None,
            kernel_param: None,
        });
        assert!(preloaded.gives_up(one, "k") && !preloaded.gives_up(one, "k"));
        assert!(
            !preloaded.may_tell(one, "k"),
            "its programs are made too late"
        );
        assert!(preloaded.may_tell(one, "other"));
        // One of the same name in another image is another one.
        assert!(preloaded.may_tell(other, "k") && preloaded.may_tell(other, "k"));
        assert!(!preloaded.gives_up(other, "k"));
    }
}
