//! The driver as nearly all functions need it: with a context, and the registered code loaded.

use std::ffi::c_int;

use crate::error::CuError;
use crate::runtime::link::{Driver, driver, is_retained, retain_primary, unretained};
use crate::runtime::registered;

/// The driver, with a context current on this thread (the first device's primary one, if the
/// program has set none) and the registered code loaded.
pub(crate) fn ready() -> Result<&'static Driver, CuError> {
    let driver = driver()?;
    let mut context = 0;
    // SAFETY: a valid pointer.
    unsafe { driver.cuCtxGetCurrent(&raw mut context) }?;
    if context == 0 {
        return enter(0);
    }
    registered::load_all(driver);
    registered::place_managed(driver);
    Ok(driver)
}

/// The driver, with a device's primary context current on this thread, alive, and the registered
/// code loaded.
pub(crate) fn enter(device: c_int) -> Result<&'static Driver, CuError> {
    let driver = driver()?;
    if is_retained(device) {
        // SAFETY: the context is held.
        unsafe { driver.cuCtxSetCurrent(retain_primary(driver, device)?) }?;
    } else {
        // NVIDIA's runtime loads the registered code while the primary context is current but not
        // retained yet, so that it is not alive: tools that watch the loading must cope, and here
        // they can learn to. SAFETY: the handle is the driver's own.
        unsafe { driver.cuCtxSetCurrent(unretained(driver, device)?) }?;
        registered::load_all(driver);
        retain_primary(driver, device)?;
    }
    registered::load_all(driver);
    registered::place_managed(driver);
    Ok(driver)
}
