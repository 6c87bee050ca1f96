//! Does on a driver what [`crate::plan`] says: maps and rings in a context (`live`, `growth`,
//! `drain`), variants (`variant`, `duplicate`), and operations of the host on maps (`host_ops`).

mod compile;
mod warnings;

mod ground;
mod grown;
mod growth;
mod held;
mod host_memory;
mod standing;

pub mod allocations;

pub mod calls;
pub mod clock;
pub mod compaction;
mod device_gate;
mod device_slots;
pub mod drain;
mod duplicate;
pub mod host_ops;
pub mod launch_args;
mod launch_records;
pub mod live;
mod live_gate;
mod load_error;
mod patched_functions;
pub mod preset;
mod readers;
pub mod resources;
mod tensor_maps;
pub mod user_ring;
pub mod variant;

pub use allocations::{Allocation, Allocations, Fence, Kind, Readable, Taken};
pub use calls::{Calls, Pause};
pub use device_slots::Unwritten;
pub use drain::{Chunk, DrainStats, Landing, Part, RingEvent};
pub use growth::Growth;
pub use host_ops::error::HostOpsError;
pub use host_ops::{Action, Answer, HostOp, Progress};
pub use live::{Live, MapLayoutInfo};
pub use load_error::LoadError;
pub use preset::PresetError;
pub use resources::{Change, Resources, Room};
pub use standing::Standing;
pub use user_ring::{UserRing, UserRingError};
pub use variant::LoadedVariant;
