//! Joins the parts: an object becomes a session, an image becomes instrumented kernels, device memory becomes maps
//! that a person can read.
//!
//! Reading order: what is asked for ([`section`], [`plan`]), what is there ([`image`], [`names`]), what is made of both
//! ([`prepare`]), and its life on a device ([`live`], [`variant`], [`resources`], [`clock`]). Only the last four touch a
//! driver.

pub mod names;
pub mod section;

pub mod plan;

pub mod image;

pub mod prepare;

mod held;

pub mod clock;
pub mod live;
pub mod resources;
pub mod variant;

pub use image::{ImageError, ImageInfo, KernelSummary, inspect};
pub use live::{DrainStats, Live, MapLayoutInfo, RingEvent};
pub use plan::{Options, PlannedProgram, Session, SessionError};
pub use prepare::{Prepared, PreparedKernel};
pub use resources::{Change, Resources, Room};
pub use variant::LoadedVariant;
pub use warpbpf_verify::{HelperUse, SourceLine, helpers_used};
