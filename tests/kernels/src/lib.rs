//! The corpus: small CUDA programs of every kind that PTX is used for, which must compute the same
//! with programs in them as without, on the soft GPU and on a real one, and whose sites must be
//! counted exactly where their number is known.
//!
//! Results are compared byte for byte: each kernel prints a checksum over the exact bits of its
//! output, and most compare it with what the host computes before they print it; `results.txt` has
//! what an H200 printed. What the soft GPU cannot run stands by name in `not-on-soft.txt`, which is
//! checked in both directions: nothing is skipped that is not listed, and nothing is listed that
//! runs.
//!
//! It is a library with a small program on top, because a machine with a GPU has no Rust: the
//! program travels in the bundle.
//!
//! Reading order: what there is ([`groups`], [`ledger`]), what is put in and what it must count
//! ([`probes`], [`known`]), running it ([`bench`], [`corpus`]), what needs no device at all
//! ([`texts`]), and kernels that a fuzzer changed ([`mutants`]).

pub mod groups;
pub mod ledger;

pub mod known;
pub mod probes;

pub mod bench;
pub mod corpus;

pub mod texts;

pub mod mutants;
