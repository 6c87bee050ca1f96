//! Ready-made tools: a script each, and a description of the table that its maps become.

pub mod tool;

pub mod found;
pub mod rows;

pub mod json;
pub mod text;

pub mod list;
