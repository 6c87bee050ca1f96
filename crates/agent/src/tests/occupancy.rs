//! What an application is told of its kernels where it is to be told of variants.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::Ordering;

use warpbpf_driver::sys::{self, CUresult};

use super::attached::Application;
use super::world;
use crate::hooks::occupancy;
use crate::sys::guard::Outcome;
use crate::sys::original::trampolines;

/// Blocks that fit, as the application is told.
fn blocks(app: &Application, function: usize) -> (CUresult, c_int) {
    let asked = world::address("cuOccupancyMaxActiveBlocksPerMultiprocessor").unwrap();
    trampolines::active_blocks.store(asked, Ordering::Relaxed);
    let mut told = -1;
    let outcome = Outcome::default();
    let function = ptr::with_exposed_provenance_mut(function);
    // SAFETY: a local.
    let code = unsafe { occupancy::active_blocks(app.agent, &outcome, &mut told, function, 64, 0) };
    (code, told)
}

/// An attribute, as the application is told.
fn attribute(app: &Application, which: c_int, function: usize) -> (CUresult, c_int) {
    let asked = world::address("cuFuncGetAttribute").unwrap();
    trampolines::func_get_attribute.store(asked, Ordering::Relaxed);
    let mut told = -1;
    let outcome = Outcome::default();
    let function = ptr::with_exposed_provenance_mut(function);
    // SAFETY: a local.
    let code =
        unsafe { occupancy::func_get_attribute(app.agent, &outcome, &mut told, which, function) };
    (code, told)
}

#[test]
fn answers_are_of_what_runs_and_never_more_than_the_original_has() {
    let mut app = Application::new();
    let module = app.load();
    let function = app.function(module);
    assert_eq!(blocks(&app, function), (0, 6));
    assert_eq!(attribute(&app, sys::FUNC_REGISTERS, function), (0, 40));
    // The original runs, too, where the variant cannot.
    app.world.set_room(function, 4);
    assert_eq!(blocks(&app, function), (0, 4));
    // What the application sets is told as it is set.
    assert_eq!(attribute(&app, sys::FUNC_CARVEOUT, function), (0, 50));
    // A handle that nobody knows is the driver's affair.
    assert_eq!(blocks(&app, function + 8), (0, 8));
    assert_eq!(attribute(&app, sys::FUNC_REGISTERS, function + 8), (0, 12));
    // So is an application without its tool.
    app.agent.turn_off();
    assert_eq!(blocks(&app, function), (0, 4));
    assert_eq!(attribute(&app, sys::FUNC_REGISTERS, function), (0, 12));
}

#[test]
fn what_the_driver_refuses_is_refused() {
    let mut app = Application::new();
    let module = app.load();
    let function = app.function(module);
    app.world
        .refuse("cuOccupancyMaxActiveBlocksPerMultiprocessor", world::FAULT);
    assert_eq!(blocks(&app, function), (world::FAULT, -1));
}
