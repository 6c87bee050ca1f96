//! The applications: what each is given, what comes back from its maps and rings, and what it is
//! asked for while it runs.

pub mod launches;
pub mod mapped;
pub mod shadow_sync;

pub mod feed;
pub mod offer;

mod agent;
pub mod ends;
mod running;

mod copies;
mod events;
mod final_copy;
pub mod live;
pub mod replace;
