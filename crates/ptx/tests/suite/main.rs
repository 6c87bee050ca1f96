//! The reader of PTX against texts of every producer, against texts that are broken, and against
//! ptxas.

mod arguments;
mod common;
mod constants;
mod corpus;
mod eval_float;
mod eval_int;
mod eval_ptxas;
mod forms;
mod headers;
mod lines;
mod linking;
mod malformed;
mod ops;
mod producers;
mod robust;
mod splices;
mod statements;
mod tools;
