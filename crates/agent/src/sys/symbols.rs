//! The driver library in this process: is it there, where are its functions, how long are they.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use warpbpf_driver::front::is_driver_name;
use warpbpf_driver::loaded::loaded;

const DRIVER: &CStr = c"libcuda.so.1";
/// Bytes that are read of a function whose size the symbol table does not say: enough for any
/// prologue.
const UNKNOWN_SIZE: usize = 32;

/// Where the driver's functions are.
#[derive(Clone)]
pub(crate) struct Symbols(Arc<Find>);

type Find = dyn Fn(&str) -> Option<usize> + Send + Sync;

impl std::fmt::Debug for Symbols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Symbols")
    }
}

impl Symbols {
    /// Functions as `find` knows them; `None` for those that the driver lacks.
    pub(crate) fn new(find: impl Fn(&str) -> Option<usize> + Send + Sync + 'static) -> Symbols {
        Symbols(Arc::new(find))
    }

    /// Address of a function, if the driver has it.
    pub(crate) fn address(&self, symbol: &str) -> Option<usize> {
        (self.0)(symbol).filter(|address| *address != 0)
    }
}

/// An open library that stays loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Library(*mut c_void);

// SAFETY: a handle of the dynamic linker, which does its own locking.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// The driver, if this process has loaded it already. Never loads anything.
    pub(crate) fn driver() -> Option<Library> {
        open_loaded(DRIVER).or_else(|| {
            // A driver without a SONAME that was opened by its path is only known by that path.
            let all = loaded()?;
            let driver = all.iter().find(|file| is_driver_name(&file.path))?;
            open_loaded(&driver.path)
        })
    }

    /// A library that is loaded by this path, and is from now on as long as the process lives. Who
    /// has the loader's lock is waited for.
    pub(crate) fn kept(path: &CStr) -> Option<Library> {
        let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY | libc::RTLD_NODELETE;
        // SAFETY: as in `open_loaded`.
        let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
        (!handle.is_null()).then_some(Library(handle))
    }

    /// Address of a function, if the library has it.
    pub(crate) fn address(self, symbol: &str) -> Option<usize> {
        let symbol = CString::new(symbol).ok()?;
        // SAFETY: a live handle and a NUL-terminated name.
        let address = unsafe { libc::dlsym(self.0, symbol.as_ptr()) } as usize;
        (address != 0).then_some(address)
    }
}

/// An exported symbol.
struct Symbol {
    start: usize,
    size: usize,
}

/// The exported symbol that the dynamic linker finds for an address: the last one that does not lie
/// behind it.
fn symbol_before(address: usize) -> Option<Symbol> {
    // SAFETY: zeroes are a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let mut symbol: *mut c_void = ptr::null_mut();
    const RTLD_DL_SYMENT: c_int = 1;
    // SAFETY: both pointers are to locals.
    let found = unsafe {
        libc::dladdr1(
            address as *const c_void,
            &mut info,
            &mut symbol,
            RTLD_DL_SYMENT,
        )
    };
    if found == 0 || symbol.is_null() || info.dli_sname.is_null() {
        return None;
    }
    // SAFETY: with RTLD_DL_SYMENT the extra result is the symbol's table entry.
    let entry = unsafe { &*symbol.cast::<libc::Elf64_Sym>() };
    Some(Symbol {
        start: info.dli_saddr as usize,
        size: entry.st_size as usize,
    })
}

/// The bytes of the function at `address`, as many as its symbol says.
///
/// # Safety
/// `address` is a function of a loaded library.
pub(crate) unsafe fn code_of(address: usize) -> Vec<u8> {
    let own = symbol_before(address).filter(|s| s.start == address && s.size != 0);
    let size = own.map_or(UNKNOWN_SIZE, |symbol| symbol.size);
    // SAFETY: a function's bytes are mapped and readable.
    unsafe { std::slice::from_raw_parts(address as *const u8, size) }.to_vec()
}

fn open_loaded(path: &CStr) -> Option<Library> {
    // SAFETY: RTLD_NOLOAD opens only what is loaded, so no initialiser runs.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    (!handle.is_null()).then_some(Library(handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_function_comes_from_its_symbol() {
        let libc = open_loaded(c"libc.so.6").unwrap();
        assert!(libc.address("no_such_function").is_none());
        let address = libc.address("getppid").unwrap();
        // SAFETY: a function of libc.
        let code = unsafe { code_of(address) };
        assert!(!code.is_empty() && code.len() < 4096);
        assert!(open_loaded(c"libcuda-is-not-here.so.1").is_none());
        assert_eq!(
            Library::kept(c"libc.so.6").unwrap().address("getppid"),
            Some(address)
        );
        assert!(Library::kept(c"libcuda-is-not-here.so.1").is_none());
    }
}
