//! Attributes that the application sets follow to the variant.

use std::ffi::c_int;

use warpbpf_driver::Context;
use warpbpf_driver::sys::{self, CUcontext, CUdevice, CUfunction, CUkernel, CUresult};
use warpbpf_wire::NoteLevel;

use crate::runtime::agent::Agent;
use crate::sys::guard::Outcome;
use crate::sys::original;

/// Calls `set` for the variants of a kernel that `of` says yes to, and tells the user if the driver
/// refuses what it took for the original.
fn mirror(
    agent: &Agent,
    code: CUresult,
    handle: CUfunction,
    of: impl Fn(Context) -> bool,
    set: impl Fn(CUfunction) -> CUresult,
) {
    if code != sys::SUCCESS {
        return;
    }
    let Some(entry) = agent.table.get(handle as usize) else {
        return;
    };
    for place in entry.places() {
        let Some((context, variant)) = place.context().zip(place.variant.as_ref()) else {
            continue;
        };
        let context = Context(context as CUcontext);
        if !of(context) {
            continue;
        }
        variant.attributes_changed();
        let code = agent
            .driver
            .within(context, || set(variant.function.0))
            .unwrap_or(sys::SUCCESS);
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
    // A function is of one context, and a library's kernel given for one means that of the current.
    let current = agent.driver.current();
    mirror(
        agent,
        code,
        function,
        |context| Some(context) == current,
        set,
    );
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
    mirror(
        agent,
        code,
        kernel,
        |c| agent.is_on_device(c, device),
        |f| unsafe { (agent.driver.api.func_set_attribute)(f, attribute, value) },
    );
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
    // A function is of one context, and a library's kernel given for one means that of the current.
    let current = agent.driver.current();
    mirror(
        agent,
        code,
        function,
        |context| Some(context) == current,
        set,
    );
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
    mirror(
        agent,
        code,
        kernel,
        |c| agent.is_on_device(c, device),
        |f| unsafe { original::func_set_cache(f, config) },
    );
    code
}
