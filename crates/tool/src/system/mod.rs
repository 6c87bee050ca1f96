//! Folders and numbers of processes of this system.

pub(crate) mod folders;
pub(crate) mod number;
