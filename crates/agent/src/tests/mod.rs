//! The agent's parts against a driver of a few functions; the whole of it against the soft GPU is in `tests/`.

mod fake;
mod handshake;
mod loads;
