//! Files and descriptors in a process that is not ours, which may close every descriptor that it
//! does not know, and whose own files get the numbers then. Each descriptor of ours is compared
//! with what was opened before it is used or closed ([`OwnDescriptor`]), and files are read and
//! folders listed through that ([`open`], [`read_file`], [`open_folder`]). The standard library's
//! `File` and `ReadDir` close by number alone, and `ReadDir` panics where the number is closed.

mod file;
mod own;

pub use file::{open, open_folder, read_file};
pub use own::{Identity, OwnDescriptor};
