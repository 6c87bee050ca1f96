//! What the compiler makes of programs, from outside: ptxas takes it, and on the soft GPU it does
//! what the reference says.

mod accept;
mod c_programs;
mod common;
mod counts;
mod device;
mod differential;
mod dynptr;
mod errors;
mod exits;
mod fence;
mod golden;
mod hash;
mod helpers;
mod history;
mod inner;
mod interpreter;
mod loops;
mod null;
mod perf;
mod placed;
mod places;
mod queue;
mod ring_query;
mod ring_wait;
mod sizes;
mod strings;
mod tallies;
mod touched;
mod user_ring;
