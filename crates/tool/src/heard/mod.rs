//! What agents say, checked and kept.

pub(crate) mod agreed;
pub(crate) mod bounds;
pub(crate) mod client_views;
pub(crate) mod events;
pub(crate) mod functions;
pub(crate) mod kept;
pub(crate) mod launches;
pub(crate) mod note;
pub(crate) mod plan;
pub(crate) mod replacement;
pub(crate) mod rows;
pub(crate) mod seen;
pub(crate) mod silence;
pub(crate) mod state;
