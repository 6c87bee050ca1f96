//! A slice's machine code: from the cache, from the driver's linker, or by a load that compiles.
//!
//! The linker is the only way to code as bytes, and compiles without holding up launches. But it
//! compiles a text as one that others are joined to: functions are called and never inlined, and
//! `setmaxnreg` is ignored. So it gets texts of one kernel and no functions, for which ptxas makes
//! the same arithmetic either way, and the rest is compiled by the load. Where nothing is kept the
//! driver has a cache of its own, of loads, so there the linker is asked only where launches would
//! be held up.

use warpbpf_cache::Entry;
use warpbpf_driver::{DriverError, JitOptions, Module, sys};

use crate::runtime::variant::Loading;
use crate::runtime::warnings;

/// A slice that is loaded.
pub(crate) struct Compiled {
    pub(crate) module: Module,
    /// What the compiler warns of with probes and not without.
    pub(crate) warnings: Vec<String>,
    /// Its code was in the cache; `None` without one.
    pub(crate) cached: Option<bool>,
}

impl Loading<'_> {
    /// Loads a slice. `without` is what the compiler says of the same without programs.
    pub(crate) fn compile(
        &self,
        ptx: &str,
        jit: &JitOptions,
        name: &str,
        without: impl FnOnce() -> String,
    ) -> Result<Compiled, DriverError> {
        let (driver, device) = (self.driver, || {
            self.driver.device_info(self.driver.current_device()?)
        });
        let known = self.cache.and_then(|cache| Some((cache, device().ok()?)));
        let Some((cache, device)) = known else {
            if driver.works_in_background() && is_linkable(ptx) {
                let linked = driver.link_ptx(ptx, jit);
                let loaded = linked.and_then(|(code, log)| Ok((driver.load_image(&code)?, log)));
                match loaded {
                    Ok((module, log)) => {
                        return Ok(Compiled {
                            module,
                            warnings: warnings::of_slice(&log, without),
                            cached: None,
                        });
                    }
                    Err(error) if error.code == sys::NOT_READY => return Err(error),
                    // What is wrong with the text is said by the load below.
                    Err(_) => {}
                }
            }
            let (module, log) = driver.load_ptx_logged(ptx, jit)?;
            return Ok(Compiled {
                module,
                warnings: warnings::of_slice(&log, without),
                cached: None,
            });
        };
        let key = cache.key(ptx, device.capability, jit);
        let compiled = |module, warnings, cached| {
            let cached = Some(cached);
            Ok(Compiled {
                module,
                warnings,
                cached,
            })
        };
        let (major, minor) = device.capability;
        let entry = |warnings: &[String], code| Entry {
            label: format!("{name}\nsm_{major}{minor}"),
            warnings: warnings.to_vec(),
            code,
        };
        match cache.get(&key) {
            Some(found) if found.code.is_empty() => {
                let module = driver.load_ptx_with(ptx, jit)?;
                return compiled(module, found.warnings, false);
            }
            Some(found) => match driver.load_image(&found.code) {
                Ok(module) => return compiled(module, found.warnings, true),
                Err(error) if error.code == sys::NOT_READY => return Err(error),
                Err(error) => cache.refused(&key, &error),
            },
            None => {}
        }
        if is_linkable(ptx) {
            let linked = driver.link_ptx(ptx, jit);
            let loaded = linked
                .and_then(|(code, log)| Ok((driver.load_image(&code)?, code, log)))
                // What is wrong with the text is said by the load below.
                .inspect_err(|error| cache.not_linked(error));
            match loaded {
                Ok((module, code, log)) => {
                    let warnings = warnings::of_slice(&log, without);
                    cache.put(&key, &entry(&warnings, code));
                    return compiled(module, warnings, false);
                }
                Err(error) if error.code == sys::NOT_READY => return Err(error),
                Err(_) => {}
            }
        }
        if !warnings::may_be_said_of(ptx) {
            return compiled(driver.load_ptx_with(ptx, jit)?, Vec::new(), false);
        }
        let (module, log) = driver.load_ptx_logged(&warnings::fresh(ptx), jit)?;
        let warnings = warnings::of_slice(&log, without);
        cache.put(&key, &entry(&warnings, Vec::new()));
        compiled(module, warnings, false)
    }
}

/// The linker makes the code of this text that a load would make.
fn is_linkable(ptx: &str) -> bool {
    !ptx.contains(".func") && !warnings::may_be_said_of(ptx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_linked_if_the_linker_makes_the_same_of_it() {
        assert!(is_linkable(".visible .entry k() { ret; }"));
        for other in [
            ".func f() { ret; } .entry k() { call f; }",
            ".extern .func (.param .b32 r) vprintf();",
            "setmaxnreg.inc.sync.aligned.u32 64;",
            "wgmma.fence.sync.aligned;",
        ] {
            assert!(!is_linkable(other), "{other}");
        }
    }
}
