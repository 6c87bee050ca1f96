//! Kernels of the host's operations on their way to a context: those of the maps that it begins
//! with, and those of maps that come.

use warpbpf_driver::{Driver, DriverError, Stream};

use super::error::HostOpsError;
use super::op::{BLOCK, Loaded, Memory, RECORDS};
use super::program::{Kernel, Kernels};
use crate::plan::session::Session;
use crate::runtime::held::Held;

/// Loads a kernel for each map from number `first` on whose operations need one: by map, or why
/// there is none. `addresses` are those of all slots.
pub(crate) fn load(
    driver: &Driver,
    held: &mut Held<'_>,
    session: &Session,
    addresses: &[u64],
    stream: Stream,
    first: usize,
) -> Result<Vec<Result<Loaded, HostOpsError>>, DriverError> {
    warpbpf_faults::check("session/host-ops", || DriverError {
        call: "cuMemHostAlloc",
        code: 2,
        name: "CUDA_ERROR_OUT_OF_MEMORY".into(),
        detail: String::new(),
    })?;
    let info = driver.device_info(driver.current_device()?)?;
    let made = session.host_kernels(info.capability, first);
    let Kernels {
        text,
        slots,
        memory_slot,
        kernels,
    } = made;
    if kernels.iter().all(Result::is_err) {
        let reasons = kernels.into_iter().filter_map(Result::err);
        return Ok(reasons.map(Err).collect());
    }
    let module = held.load_ptx(&text)?;
    // At least a block of the largest ones.
    let largest = kernels
        .iter()
        .flatten()
        .map(|kernel| kernel.record.stride());
    let bytes = largest.fold(RECORDS, |most, stride| most.max(stride * u64::from(BLOCK)));
    let host = Memory::new(held, bytes)?;
    let records = held.alloc_zeroed(bytes, stream)?;
    let mut table = vec![0u64; slots as usize];
    for (slot, address) in table.iter_mut().zip(addresses) {
        *slot = *address;
    }
    table[memory_slot as usize] = records;
    let bytes: Vec<u8> = table.iter().flat_map(|slot| slot.to_le_bytes()).collect();
    let (address, _) = driver.global(module, warpbpf_abi::names::SLOTS)?;
    driver.write(address, &bytes, stream)?;
    let load = |kernel: Result<Kernel, HostOpsError>| -> Result<_, DriverError> {
        Ok(match kernel {
            Ok(Kernel { name, record, .. }) => Ok(Loaded {
                function: driver.function(module, &name)?,
                record,
                host,
                records,
            }),
            Err(error) => Err(error),
        })
    };
    kernels.into_iter().map(load).collect()
}
