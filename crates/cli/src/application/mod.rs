//! Applications and the devices that they use: how they are found, started and watched.

pub mod coming;
pub mod machine;
pub mod start;
pub mod tree;
pub mod users;
