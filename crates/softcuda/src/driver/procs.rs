//! Finding entry points by name: `cuGetProcAddress` over the one table that also makes the exports.

use std::ffi::{c_char, c_int, c_void};

use crate::driver::missing;
use crate::error::{CuError, CuResult};
use crate::state::{name, put, put_if};
use crate::stub::Row;

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
const PER_THREAD: u64 = 2;
/// `CU_GET_PROC_ADDRESS_SUCCESS`, `…_SYMBOL_NOT_FOUND`, `…_VERSION_NOT_SUFFICIENT`
const FOUND: c_int = 0;
const NO_SUCH_SYMBOL: c_int = 1;
const TOO_OLD: c_int = 2;

/// The entry, of these, that `symbol` means to a program written for `version`: the newest one that
/// is not newer.
fn find(rows: &[Row], symbol: &str, version: u32, flags: u64) -> Result<*const (), c_int> {
    let named = || rows.iter().filter(|row| row.base == symbol);
    let newest = named()
        .filter(|row| row.since <= version)
        .max_by_key(|row| row.since);
    if let Some(row) = newest {
        let per_thread = row.per_thread.filter(|_| flags & PER_THREAD != 0);
        return Ok(per_thread.map_or(row.address, |(_, address)| address));
    }
    // A versioned name (`cuMemAlloc_v2`, `cuLaunchKernel_ptsz`) means that export and nothing else.
    let exact = rows.iter().find_map(|row| match row.per_thread {
        Some((name, address)) if name == symbol => Some(address),
        _ => (row.export == symbol).then_some(row.address),
    });
    let missing = || {
        let mut names = missing::NAMES.0.iter();
        names.find_map(|&(name, address)| (name == symbol).then_some(address))
    };
    match exact.or_else(missing) {
        Some(address) => Ok(address),
        None if named().next().is_some() => Err(TOO_OLD),
        None => Err(NO_SUCH_SYMBOL),
    }
}

pub(crate) unsafe fn get_proc_address_v2(
    rows: &[Row],
    symbol: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> CuResult {
    // SAFETY: the caller's pointers, as CUDA asks for them.
    unsafe {
        let symbol = name(symbol)?.to_str().map_err(|_| CuError::INVALID_VALUE)?;
        match find(rows, symbol, u32::try_from(version).unwrap_or(0), flags) {
            Ok(address) => {
                put_if(status, FOUND);
                put(to, address.cast_mut().cast())
            }
            Err(why) => {
                put_if(status, why);
                put(to, std::ptr::null_mut())?;
                // Asked for the status, the call itself succeeds.
                if status.is_null() {
                    Err(CuError::NOT_FOUND)
                } else {
                    Ok(())
                }
            }
        }
    }
}

pub(crate) unsafe fn get_proc_address(
    rows: &[Row],
    symbol: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CuResult {
    // SAFETY: as above.
    unsafe { get_proc_address_v2(rows, symbol, to, version, flags, std::ptr::null_mut()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::table::ENTRIES;

    #[test]
    fn names_are_unique_and_resolve_to_themselves() {
        let mut exports: Vec<&str> = ENTRIES.iter().map(|row| row.export).collect();
        exports.extend(
            ENTRIES
                .iter()
                .filter_map(|row| row.per_thread)
                .map(|(name, _)| name),
        );
        let count = exports.len();
        exports.sort_unstable();
        exports.dedup();
        assert_eq!(exports.len(), count);
        for row in ENTRIES {
            assert!(
                row.export.starts_with(row.base),
                "{} {}",
                row.base,
                row.export
            );
        }
    }

    #[test]
    fn a_name_means_what_its_version_says() {
        let address = |export: &str| {
            ENTRIES
                .iter()
                .find(|row| row.export == export)
                .map(|row| row.address)
                .ok_or(-1)
        };
        assert_eq!(
            find(ENTRIES, "cuCtxCreate", 11_000, 0),
            address("cuCtxCreate_v2")
        );
        assert_eq!(
            find(ENTRIES, "cuCtxCreate", 13_000, 0),
            address("cuCtxCreate_v4")
        );
        assert_eq!(
            find(ENTRIES, "cuMemAlloc", 13_000, 0),
            address("cuMemAlloc_v2")
        );
        assert_eq!(
            find(ENTRIES, "cuMemAlloc_v2", 13_000, 0),
            address("cuMemAlloc_v2")
        );
        assert_eq!(find(ENTRIES, "cuMemAlloc", 2_000, 0), Err(TOO_OLD));
        assert_eq!(
            find(ENTRIES, "cuNoSuchThing", 13_000, 0),
            Err(NO_SUCH_SYMBOL)
        );
        let launch = ENTRIES
            .iter()
            .find(|row| row.export == "cuLaunchKernel")
            .expect("a row");
        assert_eq!(
            find(ENTRIES, "cuLaunchKernel", 13_000, PER_THREAD),
            Ok(launch.per_thread.expect("a variant").1)
        );
        assert_ne!(
            find(ENTRIES, "cuLaunchKernel", 13_000, 0),
            find(ENTRIES, "cuLaunchKernel", 13_000, PER_THREAD)
        );
        assert_eq!(
            find(ENTRIES, "cuLaunchKernel_ptsz", 13_000, 0),
            find(ENTRIES, "cuLaunchKernel", 13_000, PER_THREAD)
        );
    }

    #[test]
    fn every_entry_begins_as_a_driver_does() {
        for row in ENTRIES {
            for address in [
                Some(row.address),
                row.per_thread.map(|(_, address)| address),
            ]
            .into_iter()
            .flatten()
            {
                // SAFETY: the first bytes of a function of this library.
                let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), 6) };
                assert_eq!(
                    bytes,
                    [0x55, 0x48, 0x89, 0xe5, 0x41, 0x54],
                    "{}",
                    row.export
                );
            }
        }
    }
}
