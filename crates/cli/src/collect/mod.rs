//! Everything that agents say and show while an application runs.

pub mod collector;
pub mod together;
