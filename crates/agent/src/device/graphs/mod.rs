//! What has to be remembered of graphs (see [`crate::hooks::graphs`]).

pub(crate) mod bodies;
pub(crate) mod captures;
pub(crate) mod exec;
pub(crate) mod older;
pub(crate) mod order;
pub(crate) mod records;
pub(crate) mod state;
pub(crate) mod tell;
