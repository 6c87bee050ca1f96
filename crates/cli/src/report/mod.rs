//! What is told of a run: its data, and the same as text and JSON.

pub mod contents;
pub mod kernel_table;
pub mod map_text;
pub mod model;
pub mod news;
pub mod notes;
pub mod nowhere;
pub mod outlet;
pub mod pretty;
pub mod read_back;
pub mod render;
pub mod table;
pub mod values;

#[cfg(test)]
mod fuzz;
