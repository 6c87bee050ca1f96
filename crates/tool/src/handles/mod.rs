//! Processes and their maps, as whoever uses the library has them.

pub(crate) mod assemble;
pub(crate) mod last_words;
pub(crate) mod map;
pub(crate) mod process;
pub(crate) mod replace;
pub(crate) mod typed;
