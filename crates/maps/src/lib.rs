//! The host's half of every map: is a definition sound, how does it lie in device memory, what do
//! the bytes mean.
//!
//! Nothing here touches a device. [`plan`] turns a definition into sizes and initial writes,
//! [`MapView`] reads a snapshot of the device's bytes, [`update`] and [`delete`] answer with the
//! bytes to write, and [`ring::Reader`] says which ranges to copy next. All offsets come from
//! `warpbpf_abi::layout`, which the code generator uses too.
//!
//! What a reader may see while a kernel runs, and what holds once it has ended and the snapshot was
//! taken after it:
//!
//! | type | while it runs | after its end |
//! |---|---|---|
//! | array, `.data` | each aligned 4- or 8-byte field is a value that was there; fields of one value may differ in age | exact |
//! | summed array | a sum of counts, each at most as old as the snapshot; never more than was added | exact |
//! | percpu_array | as array, per multiprocessor | exact |
//! | per_thread_array | as array, per thread | exact |
//! | hash, gpu_hash | a published key is whole; a value of at most 8 bytes is one that was there, and so is a larger one unless programs write into it; keys inserted during the copy may be missing | exact |
//! | percpu_hash | as hash, but each value as array, per multiprocessor | exact |
//! | lru_hash, lru_percpu_hash | a key may be missing, or have a value that another key or another update put there since | exact |
//! | a hash on the host | as hash; an entry that is replaced during the copy may have the key or the value of another | exact |
//! | queue, stack | values that are in it, whole; what is pushed or popped during the copy may be missing | exact |
//! | bloom_filter | no bit is lost | exact |
//! | user_ringbuf | nothing: the host writes it | nothing |
//! | ringbuf | whole records only, in order per multiprocessor | every submitted record, every loss counted |
#![forbid(unsafe_code)]

mod plan;
mod view;

mod map_plan;
mod value;

mod change;
mod part;

pub mod array;
mod bloom;
mod dense;
pub mod hash;
pub mod hosted;
pub mod inner;
pub mod left;
pub mod lru;
pub mod merge;
pub mod per_thread;
pub mod percpu;
pub mod printk;
mod queue;
pub mod ring;
pub mod stops;
pub mod user_ring;
pub mod words;

mod bytes;
mod checks;
mod error;
mod probe;

pub use change::pop;
pub use error::{AccessError, MapError};
pub use map_plan::{Hardware, MAX_BYTES, MAX_SHARDED_BYTES, MapPlan, SumUse, Write};
pub use plan::{Placement, placement, plan, plan_on};
pub use value::{Counters, Entry, Value};
pub use view::{MapView, delete, look_up, update};
