//! The agent's parts against a driver of a few functions; the whole of it against the soft GPU is
//! in `tests/`.

mod attached;
mod captures;
mod choices;
mod clients;
mod compaction;
mod events;
mod fake;
pub(crate) mod faults;
mod gate;
mod graphs;
mod handshake;
mod host_ops;
mod late;
mod launch_barrier;
mod launches;
mod links;
mod loads;
mod machine;
mod memory;
mod occupancy;
mod replace;
mod retired;
mod slots;
mod waiting;
mod world;
