//! What is to be done, computed without a driver: from what is asked for (`section`, `proof`,
//! `replace`, `slots`) and what is there (`executable`, `image`, `listing`) to the code of each
//! kernel (`prepare`, `own`, `splice`).

pub mod names;
pub mod section;
pub mod short_name;

mod planned;
pub(crate) mod session;
mod session_error;

pub mod choices;
mod proof;
pub mod replace;

mod embedded_ptx;
pub mod executable;
pub mod image;
pub mod in_ptx;

pub(crate) mod assembled;
pub mod backends;
mod kernel_error;
pub mod listing;
mod machine;
mod means;
pub mod own;
mod patched;
mod prepare;
pub(crate) mod prepared;
mod probe;
pub(crate) mod ptx_version;
mod sites;
pub mod splice;
mod texts;
mod without_ptx;

pub mod client;
pub(crate) mod footprint;
mod gate;
pub mod slots;

#[cfg(test)]
mod fuzz;

pub use assembled::Assembled;
pub use footprint::LAUNCH_POOL;
pub use gate::GateError;
pub use kernel_error::{ChoiceError, KernelError, ProgramError};
pub use means::Means;
pub use planned::PlannedProgram;
pub use prepared::{Prepared, PreparedKernel};
pub use probe::probe_text;
pub use proof::{LogStep, prove, prove_logged};
pub use session::{Filling, Session};
pub use session_error::SessionError;
