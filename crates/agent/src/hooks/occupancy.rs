//! Occupancy: an application asks the driver how many blocks of a kernel fit, and sizes its
//! launches by the answer. With `--occupancy instrumented` the answer is that for the variant.
//!
//! The original can always run instead. So of two numbers the application gets the smaller one: no
//! answer is larger than what the original has room for. Wherever something is in doubt, it gets
//! the original's number, as it would without the agent. An attribute that it has set itself is
//! answered as it was set.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use warpbpf_driver::Context;
use warpbpf_driver::sys::{
    self, CUcontext, CUdevice, CUfunction, CUkernel, CUlaunchConfig, CUresult,
};
use warpbpf_session::LoadedVariant;

use crate::instrument::modules::place_at_launch;
use crate::kernels::entry::{Entry, Place};
use crate::runtime::agent::Agent;
use crate::sys::guard::Outcome;
use crate::sys::original;

impl Agent {
    /// A question about this kernel is answered for its variant, if it has one.
    #[inline]
    pub(crate) fn answers_for_variant(&self, handle: usize) -> bool {
        self.occupancy_of_variants.load(Ordering::Relaxed)
            && self.is_on()
            && self.table.get(handle).is_some()
    }
}

/// Calls `tell` with the variant that a launch of a kernel in this context would run now, if there
/// is one.
fn with_variant(
    agent: &'static Agent,
    entry: &Entry,
    context: usize,
    tell: impl FnOnce(&LoadedVariant),
) {
    // While this lives nobody takes the variant away.
    let flight = agent.generations.enter();
    let generation = flight.generation.number;
    if !agent.is_on() || entry.is_too_dear(generation) {
        return;
    }
    let known = entry.place(context, generation);
    // Where the driver loads a kernel at its first launch, it does so for such a question, too.
    let place = known.or_else(|| place_at_launch(agent, entry, (context, generation)));
    let Some(place) = place.filter(|place| place.is_wanted()) else {
        return;
    };
    let variant = |place: &'static Place| place.variant.as_deref();
    if let Some(variant) = variant(place).or_else(|| variant(place.alone?)) {
        tell(variant);
    }
}

/// The same in the current context, by a handle of the kernel.
fn with_variant_of(agent: &'static Agent, handle: CUfunction, tell: impl FnOnce(&LoadedVariant)) {
    let entry = agent.table.get(handle as usize);
    if let Some((entry, context)) = entry.zip(agent.driver.current()) {
        with_variant(agent, entry, context.0 as usize, tell);
    }
}

/// A number of what fits: of the variant where that is less. One that fits not at all is never
/// launched.
///
/// # Safety
/// `ask` writes to what it is given, which is `to` or a local.
unsafe fn fewer<T: Copy + PartialOrd + Default>(
    agent: &'static Agent,
    outcome: &Outcome,
    function: CUfunction,
    to: *mut T,
    ask: impl Fn(CUfunction, *mut T) -> CUresult,
) -> CUresult {
    let code = outcome.keep(ask(function, to));
    if code != sys::SUCCESS || to.is_null() {
        return code;
    }
    with_variant_of(agent, function, |variant| {
        let mut own = T::default();
        let asked = ask(variant.function.0, &mut own);
        // SAFETY: the driver has just written there.
        let told = unsafe { &mut *to };
        if asked == sys::SUCCESS && own > T::default() && own < *told {
            *told = own;
        }
    });
    code
}

/// An attribute of a kernel as it is told: `told` is the original's, `ask` gives the variant's.
fn attribute(which: c_int, told: c_int, ask: impl FnOnce() -> Option<c_int>) -> c_int {
    let choose: fn(c_int, c_int) -> c_int = match which {
        sys::FUNC_MAX_THREADS => |told, own| if own > 0 { own.min(told) } else { told },
        sys::FUNC_SHARED => c_int::max,
        sys::FUNC_REGISTERS | sys::FUNC_LOCAL => |_, own| own,
        // The application's own settings, and what no launch is sized by.
        _ => return told,
    };
    ask().map_or(told, |own| choose(told, own))
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn func_get_attribute(
    agent: &'static Agent,
    outcome: &Outcome,
    to: *mut c_int,
    which: c_int,
    function: CUfunction,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::func_get_attribute(to, which, function) });
    if code != sys::SUCCESS || to.is_null() {
        return code;
    }
    with_variant_of(agent, function, |variant| {
        // SAFETY: the driver has just written there.
        let told = unsafe { &mut *to };
        *told = attribute(which, *told, || {
            agent.driver.attribute(variant.function, which).ok()
        });
    });
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn kernel_get_attribute(
    agent: &'static Agent,
    outcome: &Outcome,
    to: *mut c_int,
    which: c_int,
    kernel: CUkernel,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::kernel_get_attribute(to, which, kernel, device) });
    if code != sys::SUCCESS || to.is_null() {
        return code;
    }
    let Some(entry) = agent.table.get(kernel as usize) else {
        return code;
    };
    // Of the contexts on that device the current one, if it is one.
    let others = entry.places().filter_map(Place::context);
    let others = others.map(|context| Context(context as CUcontext));
    let mut contexts = agent.driver.current().into_iter().chain(others);
    if let Some(context) = contexts.find(|context| agent.is_on_device(*context, device)) {
        with_variant(agent, entry, context.0 as usize, |variant| {
            let asked = || agent.driver.attribute(variant.function, which).ok();
            // SAFETY: the driver has just written there.
            let told = unsafe { &mut *to };
            *told = attribute(which, *told, || {
                agent.driver.within(context, asked).flatten()
            });
        });
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn active_blocks(
    agent: &'static Agent,
    outcome: &Outcome,
    to: *mut c_int,
    function: CUfunction,
    threads: c_int,
    shared: usize,
) -> CUresult {
    // SAFETY: the application's own arguments, and then our kernel and a local.
    let ask = |f, to| unsafe { original::active_blocks(to, f, threads, shared) };
    // SAFETY: as above.
    unsafe { fewer(agent, outcome, function, to, ask) }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn active_blocks_flags(
    agent: &'static Agent,
    outcome: &Outcome,
    to: *mut c_int,
    function: CUfunction,
    threads: c_int,
    shared: usize,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the application's own arguments, and then our kernel and a local.
    let ask = |f, to| unsafe { original::active_blocks_flags(to, f, threads, shared, flags) };
    // SAFETY: as above.
    unsafe { fewer(agent, outcome, function, to, ask) }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn available_shared(
    agent: &'static Agent,
    outcome: &Outcome,
    to: *mut usize,
    function: CUfunction,
    blocks: c_int,
    threads: c_int,
) -> CUresult {
    // SAFETY: the application's own arguments, and then our kernel and a local.
    let ask = |f, to| unsafe { original::available_shared(to, f, blocks, threads) };
    // SAFETY: as above.
    unsafe { fewer(agent, outcome, function, to, ask) }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn cluster_size(
    agent: &'static Agent,
    outcome: &Outcome,
    to: *mut c_int,
    function: CUfunction,
    config: *const CUlaunchConfig,
) -> CUresult {
    // SAFETY: the application's own arguments, and then our kernel and a local.
    let ask = |f, to| unsafe { original::cluster_size(to, f, config) };
    // SAFETY: as above.
    unsafe { fewer(agent, outcome, function, to, ask) }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn active_clusters(
    agent: &'static Agent,
    outcome: &Outcome,
    to: *mut c_int,
    function: CUfunction,
    config: *const CUlaunchConfig,
) -> CUresult {
    // SAFETY: the application's own arguments, and then our kernel and a local.
    let ask = |f, to| unsafe { original::active_clusters(to, f, config) };
    // SAFETY: as above.
    unsafe { fewer(agent, outcome, function, to, ask) }
}

/// # Safety
/// As the driver's function.
#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) unsafe fn block_size(
    agent: &'static Agent,
    outcome: &Outcome,
    grid: *mut c_int,
    block: *mut c_int,
    function: CUfunction,
    shared_of: *mut c_void,
    shared: usize,
    limit: c_int,
) -> CUresult {
    // SAFETY: the application's own arguments, and then our kernel and locals.
    let ask =
        |f, grid, block| unsafe { original::block_size(grid, block, f, shared_of, shared, limit) };
    // SAFETY: as above.
    unsafe { sized(agent, outcome, function, (grid, block), ask) }
}

/// # Safety
/// As the driver's function.
#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) unsafe fn block_size_flags(
    agent: &'static Agent,
    outcome: &Outcome,
    grid: *mut c_int,
    block: *mut c_int,
    function: CUfunction,
    shared_of: *mut c_void,
    shared: usize,
    limit: c_int,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the application's own arguments, and then our kernel and locals.
    let ask = |f, grid, block| unsafe {
        original::block_size_flags(grid, block, f, shared_of, shared, limit, flags)
    };
    // SAFETY: as above.
    unsafe { sized(agent, outcome, function, (grid, block), ask) }
}

/// A size of blocks and the grid of them that fills the device: the variant's, if whatever it has
/// room for fits the original, too.
///
/// # Safety
/// `ask` writes to what it is given, which is `grid` and `block` or locals.
unsafe fn sized(
    agent: &'static Agent,
    outcome: &Outcome,
    function: CUfunction,
    (grid, block): (*mut c_int, *mut c_int),
    ask: impl Fn(CUfunction, *mut c_int, *mut c_int) -> CUresult,
) -> CUresult {
    let code = outcome.keep(ask(function, grid, block));
    if code != sys::SUCCESS || grid.is_null() || block.is_null() {
        return code;
    }
    with_variant_of(agent, function, |variant| {
        if variant.resources.has_more_room() {
            return;
        }
        let (mut own_grid, mut own_block) = (0, 0);
        let asked = ask(variant.function.0, &mut own_grid, &mut own_block);
        if asked == sys::SUCCESS && own_grid > 0 && own_block > 0 {
            // SAFETY: the driver has just written there.
            unsafe { (*grid, *block) = (own_grid, own_block) };
        }
    });
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_those_that_a_launch_needs() {
        let told = |which, told, own| attribute(which, told, || own);
        assert_eq!(told(sys::FUNC_REGISTERS, 20, Some(32)), 32);
        assert_eq!(told(sys::FUNC_REGISTERS, 32, Some(20)), 20);
        assert_eq!(told(sys::FUNC_LOCAL, 0, Some(16)), 16);
        // A block that has room in both.
        assert_eq!(told(sys::FUNC_MAX_THREADS, 1024, Some(640)), 640);
        assert_eq!(told(sys::FUNC_MAX_THREADS, 640, Some(1024)), 640);
        assert_eq!(told(sys::FUNC_MAX_THREADS, 640, Some(0)), 640);
        assert_eq!(told(sys::FUNC_SHARED, 64, Some(96)), 96);
        assert_eq!(told(sys::FUNC_SHARED, 96, Some(64)), 96);
        // What it set itself, and whatever the driver does not say.
        assert_eq!(
            told(sys::FUNC_MAX_DYNAMIC_SHARED, 48 << 10, Some(1)),
            48 << 10
        );
        assert_eq!(told(sys::FUNC_CARVEOUT, -1, Some(50)), -1);
        assert_eq!(told(sys::FUNC_REGISTERS, 20, None), 20);
    }
}
