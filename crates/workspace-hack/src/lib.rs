//! Code of ours is compiled once: this crate has none, and its manifest fixes the features of
//! packages from outside, so that every selection of crates, `cargo xtask` among them, asks for the
//! same.
