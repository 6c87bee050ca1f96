//! Images that were loaded before the agent came (see [`crate::instrument::preloaded`]).

pub(crate) mod files;
pub(crate) mod jobs;
