//! Programs on every engine that each machine has: the published suite, generated programs, and what the fuzzer found.

mod cases;
mod engines;
mod found;
mod fuzz;
mod interpreter;
mod operands;
