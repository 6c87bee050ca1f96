//! What this process shares with whoever started it: standard streams, files that it writes,
//! signals, and how it says what went wrong.

pub mod destination;
pub mod digits;
pub mod error;
pub mod explain;
pub mod inherited;
pub mod output;
pub mod plain;
pub mod signals;
