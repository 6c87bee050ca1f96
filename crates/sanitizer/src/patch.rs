//! A subscription, and what was patched under it.
//!
//! The argument of our functions is set twice: for a function of the application, which serves its
//! single launches, and at each launch, without which nodes of graphs have none. A launch for which
//! nothing was set would get whatever stands where the library looks.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ffi::{CString, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use crate::result::SanitizerError;
use crate::sys::{
    self, CONTEXT_DESTROY_STARTING, DOMAIN_GRAPHS, DOMAIN_LAUNCH, DOMAIN_RESOURCE,
    GraphNodeLaunchData, Instruction, LAUNCH_BEGIN, LaunchData, NODE_KERNEL, NODE_LAUNCH_BEGIN,
    Table,
};

thread_local! {
    /// The function that this thread is launching, and what ours are given. The library calls back
    /// on the thread that launches.
    static LAUNCH_ARGUMENT: Cell<Option<(usize, u64)>> = const { Cell::new(None) };
}

/// A function that is called at all places of one kind.
#[derive(Debug, Clone)]
pub struct Patch<'a> {
    /// Where.
    pub instruction: Instruction,
    /// The function's name, the same for the same cubin and for no other.
    pub name: &'a str,
    /// The cubin that it is in. All that its header and tables tell of must be in it: the API is
    /// not told its length.
    pub cubin: &'a [u8],
}

/// See the module.
#[derive(Debug)]
pub struct Sanitizer {
    table: Table,
    /// Calls that the API wants one after the other.
    turn: Mutex<()>,
    /// Functions that were added, with their contexts.
    added: Mutex<HashSet<(usize, String)>>,
    /// By function of the application, its context and the argument of ours.
    data: RwLock<HashMap<usize, (usize, u64)>>,
    /// What the library said when it refused the argument of a launch; 0 if it never did.
    refused: AtomicU32,
}

impl Sanitizer {
    /// Loads the library and subscribes. The driver must not have made a context yet.
    ///
    /// # Errors
    /// [`SanitizerError`]; nothing is subscribed then.
    pub fn subscribe(path: &Path) -> Result<&'static Sanitizer, SanitizerError> {
        Sanitizer::with(Table::open(path)?)
    }

    /// Subscribes by a table of functions.
    ///
    /// # Errors
    /// [`SanitizerError`]; nothing is subscribed then.
    pub fn with(table: Table) -> Result<&'static Sanitizer, SanitizerError> {
        let made: &'static Sanitizer = Box::leak(Box::new(Sanitizer {
            table,
            turn: Mutex::default(),
            added: Mutex::default(),
            data: RwLock::default(),
            refused: AtomicU32::new(0),
        }));
        let mut subscriber = ptr::null_mut();
        let own = ptr::from_ref(made).cast_mut().cast();
        // SAFETY: a writable local, a function with the API's signature, and what is never freed.
        let code = unsafe { (table.subscribe)(&mut subscriber, callback, own) };
        SanitizerError::check("sanitizerSubscribe", code)?;
        for (domain, id) in [
            (DOMAIN_RESOURCE, CONTEXT_DESTROY_STARTING),
            (DOMAIN_LAUNCH, LAUNCH_BEGIN),
            (DOMAIN_GRAPHS, NODE_LAUNCH_BEGIN),
        ] {
            // SAFETY: the subscriber that was just made.
            let code = unsafe { (table.enable_callback)(1, subscriber, domain, id) };
            if let Err(error) = SanitizerError::check("sanitizerEnableCallback", code) {
                // SAFETY: as above. The error that matters is the other one.
                let _ = unsafe { (table.unsubscribe)(subscriber) };
                return Err(error);
            }
        }
        Ok(made)
    }

    /// Has functions called at places of a module, in a context that must be current. The module
    /// must be one that no kernel runs of.
    ///
    /// # Errors
    /// [`SanitizerError`]; no kernel of the module may be launched then.
    pub fn patch(
        &self,
        context: usize,
        module: usize,
        patches: &[Patch<'_>],
    ) -> Result<(), SanitizerError> {
        let _turn = lock(&self.turn);
        let module = module as *mut c_void;
        let unknown = |patch: &&Patch<'_>| patch.instruction.came_later() && !self.table.later;
        if let Some(patch) = patches.iter().find(unknown) {
            return Err(SanitizerError::Unknown {
                place: patch.instruction,
            });
        }
        for patch in patches {
            let name = CString::new(patch.name).map_err(|_| SanitizerError::Name)?;
            let known = (context, patch.name.to_owned());
            if !lock(&self.added).contains(&known) {
                // SAFETY: a cubin, which whoever made the patch has seen to be whole, and a live
                // context.
                let code = unsafe {
                    (self.table.add_patches)(patch.cubin.as_ptr().cast(), context as *mut c_void)
                };
                SanitizerError::check("sanitizerAddPatches", code)?;
                lock(&self.added).insert(known);
            }
            // SAFETY: a live module and a NUL-terminated name.
            let code = unsafe {
                (self.table.patch_instructions)(patch.instruction as u32, module, name.as_ptr())
            };
            SanitizerError::check("sanitizerPatchInstructions", code)?;
        }
        // SAFETY: a live module.
        let code = unsafe { (self.table.patch_module)(module) };
        SanitizerError::check("sanitizerPatchModule", code)
    }

    /// Launches of a function of a patched module in this context give ours this argument.
    ///
    /// # Errors
    /// [`SanitizerError`]; the function may not be launched then.
    pub fn set_data(
        &self,
        context: usize,
        function: usize,
        data: u64,
    ) -> Result<(), SanitizerError> {
        // SAFETY: a live function; the address is of the device, and nobody here reads there.
        let code = unsafe {
            (self.table.set_callback_data)(function as *mut c_void, data as *const c_void)
        };
        SanitizerError::check("sanitizerSetCallbackData", code)?;
        let mut all = self.data.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(function, (context, data));
        Ok(())
    }

    /// A launch of this function, which `run` makes, gives ours this argument in place of the one
    /// that was set.
    pub fn telling<R>(&self, function: usize, data: u64, run: impl FnOnce() -> R) -> R {
        /// Whatever happens, the next launch of this thread gets its own argument.
        struct Before(Option<(usize, u64)>);
        impl Drop for Before {
            fn drop(&mut self) {
                LAUNCH_ARGUMENT.set(self.0);
            }
        }
        let _before = Before(LAUNCH_ARGUMENT.replace(Some((function, data))));
        run()
    }

    /// A function is no more.
    pub fn forget(&self, function: usize) {
        let mut all = self.data.write().unwrap_or_else(PoisonError::into_inner);
        all.remove(&function);
    }

    /// A context is about to end, and with it its functions, whose addresses may become those of
    /// others.
    fn context_ends(&self, context: usize) {
        let mut all = self.data.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (of, _)| *of != context);
        drop(all);
        lock(&self.added).retain(|(of, _)| *of != context);
    }

    /// Something is about to be launched.
    fn launch(&self, launch: &LaunchData) {
        let all = self.data.read().unwrap_or_else(PoisonError::into_inner);
        let function = launch.function as usize;
        let Some((_, data)) = all.get(&function).copied() else {
            return;
        };
        drop(all);
        let own = LAUNCH_ARGUMENT.get().filter(|(of, _)| *of == function);
        let data = own.map_or(data, |(_, data)| data);
        // SAFETY: what the library just handed out.
        let code = unsafe {
            (self.table.set_launch_callback_data)(
                launch.launch,
                launch.function,
                launch.stream_handle,
                data as *const c_void,
            )
        };
        if code != sys::SUCCESS {
            self.refused.store(code, Ordering::Relaxed);
        }
    }

    /// Why launches did not get their argument, if some were not. Those of graphs do not count
    /// then.
    pub fn refused(&self) -> Option<SanitizerError> {
        let code = self.refused.load(Ordering::Relaxed);
        SanitizerError::check("sanitizerSetLaunchCallbackData", code).err()
    }
}

/// Called by the library.
///
/// # Safety
/// `own` is what was subscribed with, `data` what the API documents for the domain and the number.
unsafe extern "C" fn callback(own: *mut c_void, domain: u32, id: u32, data: *const c_void) {
    if own.is_null() || data.is_null() {
        return;
    }
    // SAFETY: never freed, and all of it is shared by locks.
    let own = unsafe { &*own.cast_const().cast::<Sanitizer>() };
    // No panic crosses into the driver; a launch for which nothing was set has its function's
    // argument.
    let _ = catch_unwind(AssertUnwindSafe(|| match (domain, id) {
        (DOMAIN_LAUNCH, LAUNCH_BEGIN) => {
            // SAFETY: the API's promise.
            own.launch(unsafe { &*data.cast::<LaunchData>() });
        }
        (DOMAIN_GRAPHS, NODE_LAUNCH_BEGIN) => {
            // SAFETY: the type stands in front of the union, whose other members may be shorter
            // than a launch.
            let kind = unsafe {
                let node = data.cast::<GraphNodeLaunchData>();
                (&raw const (*node).node_type).read()
            };
            if kind == NODE_KERNEL {
                // SAFETY: so the union holds a launch.
                own.launch(unsafe { &(*data.cast::<GraphNodeLaunchData>()).launch });
            }
        }
        (DOMAIN_RESOURCE, CONTEXT_DESTROY_STARTING) => {
            // SAFETY: the structure begins with the context.
            own.context_ends(unsafe { data.cast::<usize>().read() });
        }
        _ => {}
    }));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const _: () = {
    assert!(std::mem::offset_of!(LaunchData, function) == 32);
    assert!(std::mem::offset_of!(LaunchData, grid_id) == 88);
    assert!(std::mem::offset_of!(LaunchData, launch) == 96);
    assert!(std::mem::offset_of!(GraphNodeLaunchData, node_type) == 24);
    assert!(std::mem::offset_of!(GraphNodeLaunchData, launch) == 32);
    assert!(sys::SUCCESS == 0);
};
