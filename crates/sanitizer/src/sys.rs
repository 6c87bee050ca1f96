//! What is used of the API, named as its documentation names it, and the table of its functions.

pub(crate) mod declared;
mod table;

pub use declared::*;
pub use table::Table;
