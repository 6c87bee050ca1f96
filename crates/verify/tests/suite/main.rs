//! Tests of the verifier from outside: rules and their messages, facts, and soundness against the interpreter.

mod common;

mod rules;
mod facts;
mod messages;
mod sound;
mod robust;
