//! Nothing: cargo wants a target in each package (see `Cargo.toml` beside).
