//! Machine code of instrumented kernels on disk, so that a program that was attached once is
//! attached fast the next time.
//!
//! Many processes use one folder at once and none waits for another: an entry is a file that is
//! written beside its place and renamed into it, and whoever reads it checks all of it. Machine
//! code runs with the rights of the application, so nothing is read that somebody else could have
//! written.
//!
//! Reading order: what decides the code ([`Recipe`]), what is kept ([`Entry`]), where ([`Place`],
//! [`Store`]), and what a person does with it ([`tend`]).

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "the test's own files, which nobody closes"
    )
)]

mod entry;
mod evict;
mod folder;
mod place;
mod recipe;
mod store;
pub mod tend;

#[cfg(test)]
mod fuzz;

pub use entry::{Damage, Entry};
pub use folder::{FolderError, Unsafe, is_trusted};
pub use place::{DEFAULT_BYTES, Place, PlaceError, VARIABLE};
pub use recipe::{FORMAT, Key, Recipe};
pub use store::{Found, PutError, Store};
