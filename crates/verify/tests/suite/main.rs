//! Tests of the verifier from outside: rules and their messages, facts, and soundness against the
//! interpreter.

mod apart;
mod bounded;
mod common;
mod compiled;
mod corpus;
mod dynptr;
mod facts;
mod foreign;
mod keyless;
mod large;
mod loops;
mod memory;
mod messages;
mod once;
mod padded;
mod robust;
mod rules;
mod sizes;
mod sound;
mod user_ring;
mod walks;
mod warp;
mod warp_sound;
