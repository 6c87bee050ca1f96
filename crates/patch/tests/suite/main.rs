//! Tests of the splicer, from the inside out: what is refused, what text comes out, what ptxas says
//! to it, and what it does on the soft GPU.

mod blocks;
mod common;
mod device;
mod events;
mod gate;
mod golden;
mod launch_bits;
mod middle;
mod ptxas;
mod random;
mod refusals;
mod rejoin;
mod soft;
mod tools;
mod words;
