//! LLVM as the second oracle: what we print, clang assembles to the same bytes.

use std::io::Write as _;
use std::process::{Command, Stdio};

use warpbpf_ebpf::table::{FORMS, Shape};
use warpbpf_ebpf::{Pc, Slot, decode, disassemble};

use crate::{bytes, canonical, slots};

#[path = "../../../../tests/clang.rs"]
mod clang;

use clang::clang;

/// Forms whose text is ours, because LLVM writes a relocation or a plain number there, or does not
/// know them yet.
fn ours(shape: Shape) -> bool {
    match shape {
        Shape::LoadImm64(kind) => kind != warpbpf_ebpf::table::ImmKind::Value,
        Shape::CallLocal | Shape::CallKfunc | Shape::LegacyPacket { .. } => true,
        // Since LLVM 20.
        Shape::LoadAcquire { .. } | Shape::StoreRelease { .. } => true,
        _ => false,
    }
}

/// Size of an ELF header in bytes.
const ELF_HEADER: usize = 64;

#[test]
fn clang_reads_what_we_print() {
    let operands = Slot {
        opcode: 0,
        dst: 3,
        src: 7,
        off: -24,
        imm: 0x1234,
    };
    let mut text = String::new();
    let mut expected = Vec::new();
    let mut insns = Vec::new();
    let mut count = 0;
    for form in FORMS
        .iter()
        .filter(|form| canonical(form) && !ours(form.shape))
    {
        let slots = slots(form, operands, -2);
        let mut program = bytes(&slots);
        // Targets are the next instruction, so that one more instruction makes the program
        // complete.
        program.extend(
            Slot {
                opcode: 0x95,
                ..Slot::default()
            }
            .to_bytes(),
        );
        let code = decode(&program).expect("a form decodes");
        text.push_str(&disassemble(&code, Pc(0)));
        text.push('\n');
        expected.extend(bytes(&slots));
        insns.push(bytes(&slots));
        count += 1;
    }
    assert_eq!(count, 158);
    let mut child = Command::new(clang())
        .args([
            "-target",
            "bpf",
            "-mcpu=v4",
            "-x",
            "assembler",
            "-c",
            "-",
            "-o",
            "-",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("clang starts");
    child
        .stdin
        .take()
        .expect("it is piped")
        .write_all(text.as_bytes())
        .expect("clang reads its input");
    let output = child.wait_with_output().expect("clang ends");
    assert!(
        output.status.success(),
        "clang refuses:\n{}\n{text}",
        String::from_utf8_lossy(&output.stderr)
    );
    // LLVM puts `.text` right behind the ELF header.
    let code = output
        .stdout
        .get(ELF_HEADER..ELF_HEADER + expected.len())
        .expect("an object with code");
    let mut at = 0;
    for (line, insn) in text.lines().zip(insns) {
        assert_eq!(
            code[at..at + insn.len()],
            insn,
            "clang's bytes on the left for `{line}`"
        );
        at += insn.len();
    }
}
