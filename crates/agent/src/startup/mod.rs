//! The ways in and out.

pub(crate) mod install;
pub(crate) mod late;
pub(crate) mod preload;
pub(crate) mod retired;
pub(crate) mod start;
