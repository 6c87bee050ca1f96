//! Text in the style of `llvm-objdump`, from the templates of the table.

use std::fmt::Write as _;

use crate::encode::encode_one;
use crate::insn::{Code, Pc};
use crate::template::render;

/// The instruction at `pc` as text: `r1 = *(u64 *)(r10 - 8)`. Jump targets are distances in slots
/// from the next instruction. What has no encoding, which decoded code never contains, prints as
/// its debug form.
pub fn disassemble(code: &Code, pc: Pc) -> String {
    match encode_one(code, pc) {
        Ok((form, slot, high)) => render(form, slot, high),
        Err(_) => format!("{:?}", code.at(pc)),
    }
}

/// The whole program, one line an instruction, each with its slot number. The assembler reads it
/// back.
pub fn listing(code: &Code) -> String {
    let mut out = String::new();
    for pc in (0..code.insns().len() as u32).map(Pc) {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{:>5}: {}", code.slot(pc), disassemble(code, pc));
    }
    out
}
