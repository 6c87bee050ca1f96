//! A script while it runs: what it prints, and what its own blocks do.

mod gather;
mod output;
mod session;

pub use output::{Printer, Shows, columns};
pub use session::{Session, now};
