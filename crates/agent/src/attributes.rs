//! Attributes that the application sets follow to the variant.

use std::ffi::c_int;

use warpbpf_driver::sys::{self, CUdevice, CUfunction, CUkernel, CUresult};
use warpbpf_wire::NoteLevel;

use crate::agent::Agent;
use crate::exports::original;
use crate::guard::Outcome;

/// Calls `set` for the variant of a kernel and tells the user if the driver refuses what it took for the original.
fn mirror(
    agent: &Agent,
    code: CUresult,
    handle: CUfunction,
    set: impl FnOnce(CUfunction) -> CUresult,
) {
    if code != sys::SUCCESS {
        return;
    }
    let Some(entry) = agent.table.get(handle as usize) else {
        return;
    };
    if let Some(variant) = entry.usable() {
        variant.attributes_changed();
        let code = set(variant.function.0);
        if code != sys::SUCCESS {
            agent.note(
                NoteLevel::Warning,
                format!(
                    "kernel `{}`: the driver refuses an attribute of the original for the instrumented kernel ({})",
                    entry.mangled,
                    agent.driver.error_name(code)
                ),
            );
        }
    }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn func_set_attribute(
    agent: &Agent,
    outcome: &Outcome,
    function: CUfunction,
    attribute: c_int,
    value: c_int,
) -> CUresult {
    // SAFETY: the application's own arguments, and then those for our kernel.
    let set = |f| unsafe { original::func_set_attribute(f, attribute, value) };
    let code = outcome.keep(set(function));
    mirror(agent, code, function, set);
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn kernel_set_attribute(
    agent: &Agent,
    outcome: &Outcome,
    attribute: c_int,
    value: c_int,
    kernel: CUkernel,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code =
        outcome.keep(unsafe { original::kernel_set_attribute(attribute, value, kernel, device) });
    // SAFETY: our kernel is a function of a module.
    mirror(agent, code, kernel, |f| unsafe {
        (agent.driver.api.func_set_attribute)(f, attribute, value)
    });
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn func_set_cache(
    agent: &Agent,
    outcome: &Outcome,
    function: CUfunction,
    config: c_int,
) -> CUresult {
    // SAFETY: the application's own arguments, and then those for our kernel.
    let set = |f| unsafe { original::func_set_cache(f, config) };
    let code = outcome.keep(set(function));
    mirror(agent, code, function, set);
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn kernel_set_cache(
    agent: &Agent,
    outcome: &Outcome,
    kernel: CUkernel,
    config: c_int,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::kernel_set_cache(kernel, config, device) });
    // SAFETY: our kernel is a function of a module.
    mirror(agent, code, kernel, |f| unsafe {
        original::func_set_cache(f, config)
    });
    code
}
