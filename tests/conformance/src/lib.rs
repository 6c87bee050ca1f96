//! One meaning on every engine: programs run on the reference interpreter, on the soft GPU and on a
//! real one, and everything that a program can leave behind is compared: `r0`, its memory, its
//! maps.
//!
//! Two sources of programs: the cases of bpf_conformance ([`suite`]), whose results others have
//! written down, and generated ones ([`fuzz`]), whose result is what the interpreter says. Both go
//! the way that user programs go: they are verified, compiled and launched, and nothing here gets
//! around the verifier.
//!
//! It is a library with a small program on top, because a machine with a GPU has no Rust: the
//! program travels in the bundle.

pub mod case;
pub mod refused;
pub mod suite;

pub mod test;
pub mod world;

pub mod build;
pub mod device;

pub mod fuzz;
pub mod generate;
pub mod minimise;
pub mod mutate;
pub mod rng;

pub mod lines;
pub mod reduce;

pub mod operands;
