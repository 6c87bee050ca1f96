//! The eBPF instruction set: one table, and everything that follows from it.
//!
//! [`table`] says once what exists; [`decode()`] and [`encode()`] translate between bytes and
//! [`Code`], [`assemble`] and [`disassemble`] between text and [`Code`], and [`interp`] is what it
//! means: the oracle for every other engine.
//!
//! Absent on purpose: what maps and helpers do. An engine brings those; here they are numbers.

pub mod insn;
pub mod raw;
pub mod table;

pub mod decode;
pub mod encode;

mod template;

pub mod asm;
pub mod asm_ubpf;
pub mod disasm;

pub mod alu;
pub mod interp;
mod iterators;
mod loops;
pub mod memory;
mod trap;

pub use asm::{AsmError, AsmErrorKind, assemble};
pub use asm_ubpf::assemble_ubpf;
pub use decode::{DecodeError, DecodeErrorKind, decode};
pub use disasm::{disassemble, listing};
pub use encode::{EncodeError, encode};
pub use insn::*;
pub use interp::{Callback, Limits, Machine, Outcome, run};
pub use loops::bpf_loop;
pub use memory::{FlatMemory, Memory, Region};
pub use raw::Slot;
pub use trap::{Trap, TrapKind};
