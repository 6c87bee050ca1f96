//! The table against the compiler and the disassembler: what `ptxas` writes is read and written
//! again bit for bit, and what we write of random operands is printed as what it was meant to be.

use std::collections::BTreeMap;
use std::process::Command;

use crate::common::{corpus, nvdisasm, output, ptxas, scratch};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use warpbpf_sass::Arch;
use warpbpf_sass::elf::Image;
use warpbpf_sass::table::{Op, ROWS, Row, Slot, base};
use warpbpf_sass::word::{BYTES, Control, Insn, Predicate, Word};

/// All instructions of a cubin.
fn words(cubin: &[u8]) -> Vec<(u64, Word)> {
    let image = Image::parse(cubin).expect("a cubin");
    let text = |name: &str| name.starts_with(".text.");
    let mut all = Vec::new();
    for (index, _) in (image.sections.iter().enumerate()).filter(|(_, s)| text(&s.name)) {
        let code = image.data(index);
        all.extend((0..code.len()).step_by(BYTES).map(|at| {
            let word = Word::at(code, at).expect("whole instructions");
            (at as u64, word)
        }));
    }
    all
}

/// Every instruction of the table's operations is one of its rows, but for forms that we know and
/// leave alone.
fn is_left_alone(word: Word) -> bool {
    match word.base() {
        // Branches that ask whether lanes are together, and calls through registers.
        base::BRA => word.bits(24, 10) != 0 || word.bits(84, 3) != 0 || word.bits(91, 1) != 0,
        base::CALL_REL => word.is_indirect(),
        // Calls code in which the lanes are together.
        base::WARPSYNC => word.bits(16, 8) != 0,
        // Other ways to move and load.
        0x002 | 0x024 | 0x182 => true,
        // Other votes, sums of other operands, parts of the predicates, the stack at other
        // registers and in other sizes.
        0x006 | 0x010 | 0x003 | 0x004 | 0x183 | 0x187 => true,
        _ => false,
    }
}

fn reads_back(arch: Arch, cubins: impl Iterator<Item = Vec<u8>>) -> BTreeMap<Op, usize> {
    let mut seen = BTreeMap::new();
    for cubin in cubins {
        for (at, word) in words(&cubin) {
            let known = ROWS.iter().any(|row| {
                row.archs.contains(&arch) && row.fixed & 0xfff == u128::from(word.opcode())
            });
            if !known {
                continue;
            }
            match Insn::decode(word, arch) {
                Some(insn) => {
                    assert_eq!(insn.encode(arch), Some(word), "at {at:#x}");
                    *seen.entry(insn.op).or_insert(0) += 1;
                }
                None => assert!(is_left_alone(word), "{:#034x} at {at:#x}", word.0),
            }
        }
    }
    seen
}

#[test]
fn what_the_compiler_writes_is_read_back() {
    for (number, arch, least) in [(80, Arch::Sm80, 7), (90, Arch::Sm90, 7)] {
        let seen = reads_back(arch, corpus(number).into_iter().map(|(_, cubin)| cubin));
        for op in [
            Op::Bra,
            Op::CallRel,
            Op::RetRel,
            Op::Bssy,
            Op::Bsync,
            Op::Exit,
            Op::Nop,
            Op::MovImm,
        ] {
            assert!(
                seen.contains_key(&op),
                "{op:?} is in no kernel of ours: {seen:?}"
            );
        }
        assert!(seen.len() > least, "{seen:?}");
    }
}

/// Numbers and distances that we choose stand where the table says.
#[test]
fn the_compilers_operands_are_ours() {
    let mut runner = TestRunner::new(Config::with_cases(6));
    let case = (any::<[u32; 8]>(), prop::collection::vec(1usize..120, 6));
    runner
        .run(&case, |(numbers, gaps)| {
            for (sm, arch) in [("sm_80", Arch::Sm80), ("sm_90", Arch::Sm90)] {
                check_chosen(sm, arch, &numbers, &gaps);
            }
            Ok(())
        })
        .unwrap();
}

fn check_chosen(sm: &str, arch: Arch, numbers: &[u32], gaps: &[usize]) {
    let mut body = String::new();
    for (i, number) in numbers.iter().enumerate() {
        body += &format!("\tst.volatile.global.u32 [%rd1+{}], {number};\n", 4 * i);
    }
    // Loops of chosen lengths: their branches lead back over as many stores.
    for (i, gap) in gaps.iter().enumerate() {
        body += &format!("L{i}:\n");
        for j in 0..*gap {
            body += &format!("\tst.volatile.global.u32 [%rd1+{}], %r1;\n", 64 + 4 * j);
        }
        body += "\tld.volatile.global.u32 %r1, [%rd1+4];\n\tsetp.ne.u32 %p1, %r1, 0;\n";
        body += &format!("\t@%p1 bra L{i};\n");
    }
    let text = format!(
        ".version 7.8\n.target {sm}\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\t.reg .b64 %rd<2>;\n\t.reg .b32 %r<3>;\n\t.reg .pred %p<2>;\n\tld.param.u64 %rd1, [p];\n\tmov.u32 %r1, 1;\n{body}\tret;\n}}\n"
    );
    let cubin = ptxas("chosen", &text, sm, &["-O1"]);
    let all = words(&cubin);
    let decoded: Vec<(u64, Insn)> = all
        .iter()
        .filter_map(|(at, word)| Some((*at, Insn::decode(*word, arch)?)))
        .collect();
    for number in numbers {
        let is_it = |(_, i): &&(u64, Insn)| i.op == Op::MovImm && i.number == *number;
        // Zero is a register, and small numbers may come from an adder.
        let found = decoded.iter().any(|i| is_it(&i));
        let other = all
            .iter()
            .any(|(_, w)| w.bits(32, 32) == u128::from(*number));
        assert!(found || *number == 0 || other, "{number:#x} is in no MOV");
    }
    // Where each loop's branch leads: to a place in the code from which it comes again.
    let back: Vec<i64> = decoded
        .iter()
        .filter(|(_, i)| i.op == Op::Bra && i.guard != Predicate::ALWAYS)
        .map(|(_, i)| i.distance)
        .collect();
    assert_eq!(back.len(), gaps.len());
    for (distance, gap) in back.iter().zip(gaps) {
        let words = -distance / BYTES as i64;
        assert!(
            (*gap as i64 + 2..*gap as i64 + 8).contains(&words),
            "a loop over {gap} stores leads back {words} instructions"
        );
    }
}

/// Slots of the stack and numbers that we choose, as the compiler loads, stores and adds them.
#[test]
fn what_saves_and_adds_is_what_the_compiler_writes() {
    let mut runner = TestRunner::new(Config::with_cases(6));
    let case = (0u32..990, 0u32..990, 0x0100_0000i64..0x7fff_ffff);
    runner
        .run(&case, |(stored, loaded, number)| {
            check_saving(4 * stored, 4 * loaded, number);
            Ok(())
        })
        .unwrap();
}

fn check_saving(stored: u32, loaded: u32, number: i64) {
    let text = format!(
        ".version 7.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p) {{
    .reg .b64 %rd<9>; .reg .b32 %r<9>; .local .align 8 .b8 own[4000];
    ld.param.u64 %rd1, [p];
    ld.volatile.global.u64 %rd2, [%rd1];
    add.s64 %rd3, %rd2, {number};
    st.volatile.global.u64 [%rd1+8], %rd3;
    ld.volatile.global.u64 %rd4, [%rd1];
    add.s64 %rd5, %rd4, -{number};
    st.volatile.global.u64 [%rd1+16], %rd5;
    ld.volatile.global.u32 %r1, [%rd1+32];
    mov.u64 %rd6, own;
    ld.volatile.global.u64 %rd7, [%rd1];
    and.b64 %rd7, %rd7, 3996;
    add.u64 %rd8, %rd6, %rd7;
    st.local.u32 [own+{stored}], %r1;
    st.local.u32 [%rd8], %r1;
    ld.local.u32 %r2, [own+{loaded}];
    ld.local.u32 %r3, [%rd8+4];
    add.s32 %r4, %r2, %r3;
    st.volatile.global.u32 [%rd1+64], %r4;
    ret;
}}
"
    );
    let cubin = ptxas("saving", &text, "sm_90", &["-O1"]);
    let all = words(&cubin);
    let insns = all
        .iter()
        .filter_map(|(_, word)| Insn::decode(*word, Arch::Sm90));
    let seen: Vec<(Op, u32)> = insns.map(|insn| (insn.op, insn.number)).collect();
    for one in [
        (Op::Stl, stored),
        (Op::Ldl, loaded),
        (Op::AddCarry, number as u32),
        (Op::AddCarry, number.wrapping_neg() as u32),
        // The high half of a number below zero.
        (Op::AddWithCarry, u32::MAX),
    ] {
        assert!(seen.contains(&one), "{one:x?} is not in {seen:x?}");
    }
}

/// Parameters at places that we choose, two words at once and one by one.
#[test]
fn parameters_are_loaded_as_the_compiler_does() {
    let mut runner = TestRunner::new(Config::with_cases(4));
    let case = prop::collection::btree_set(0u32..480, 5);
    runner
        .run(&case, |places| {
            for (sm, arch) in [("sm_80", Arch::Sm80), ("sm_90", Arch::Sm90)] {
                check_parameters(sm, arch, &places.iter().copied().collect::<Vec<_>>());
            }
            Ok(())
        })
        .unwrap();
}

fn check_parameters(sm: &str, arch: Arch, places: &[u32]) {
    let mut body = String::new();
    for (index, place) in places.iter().enumerate() {
        body += &format!(
            "    ld.param.u64 %rd2, [p+{}];\n    st.volatile.global.u64 [%rd1+{}], %rd2;\n",
            8 * place,
            8 * index
        );
    }
    let text = format!(
        ".version 7.8\n.target {sm}\n.address_size 64\n.visible .entry k(.param .align 8 .b8 p[3840], .param .u64 q) {{\n    .reg .b64 %rd<3>;\n    ld.param.u64 %rd1, [q];\n{body}    ret;\n}}\n"
    );
    let cubin = ptxas("parameters", &text, sm, &["-O1"]);
    let all = words(&cubin);
    let insns = all.iter().filter_map(|(_, word)| Insn::decode(*word, arch));
    let loads = insns.filter(|i| matches!(i.op, Op::LdcPair | Op::MovConst | Op::ImadMovConst));
    let seen: Vec<(Op, u32)> = loads.map(|insn| (insn.op, insn.number)).collect();
    let is_there = |number: u32, wanted: &[Op]| {
        let mut ops = wanted.iter();
        assert!(
            ops.any(|op| seen.contains(&(*op, number))),
            "{number:#x} is not in {seen:x?}"
        );
    };
    for place in places {
        match arch {
            Arch::Sm80 => {
                let moves = [Op::MovConst, Op::ImadMovConst];
                is_there(0x160 + 8 * place, &moves);
                is_there(0x164 + 8 * place, &moves);
            }
            Arch::Sm90 => is_there(0x210 + 8 * place, &[Op::LdcPair]),
        }
    }
}

/// The compiler saves and restores some predicates; we do so with all of them.
#[test]
fn predicates_are_saved_as_the_compiler_does() {
    let all: Vec<Word> = (corpus(90).into_iter())
        .flat_map(|(_, cubin)| words(&cubin))
        .map(|(_, word)| word)
        .collect();
    for (op, opcode) in [(Op::P2r, 0x803), (Op::R2p, 0x804)] {
        let some = all.iter().filter(|word| word.opcode() == opcode);
        let masks: Vec<u128> = some.clone().map(|word| word.bits(32, 8)).collect();
        assert!(!masks.is_empty(), "{op:?} is in no kernel of ours");
        for (word, mask) in some.zip(masks) {
            assert!(mask != 0 && mask <= 0x7f, "{mask:#x}");
            let insn = Insn::decode(word.with(32, 8, 0x7f), Arch::Sm90);
            assert_eq!(insn.map(|insn| insn.op), Some(op));
        }
    }
}

fn predicate() -> impl Strategy<Value = Predicate> {
    (0u8..8, any::<bool>()).prop_map(|(register, negated)| Predicate { register, negated })
}

/// An instruction with random operands of the row's kinds.
fn insn(arch: Arch) -> impl Strategy<Value = Insn> {
    let rows: Vec<&'static warpbpf_sass::table::Row> =
        ROWS.iter().filter(|r| r.archs.contains(&arch)).collect();
    let operands = (
        prop::sample::select(rows),
        predicate(),
        predicate(),
        any::<(u8, u8)>(),
        0u8..16,
        any::<u32>(),
        -0x7000i64..0x7000,
    );
    operands.prop_map(
        |(row, guard, second, (target, source), barrier, number, distance)| {
            let mut insn = Insn::new(row.op, Control::stall(5).staying());
            insn.guard = guard;
            for slot in row.slots {
                match slot {
                    Slot::Second => insn.second = second,
                    Slot::Target => insn.target = target,
                    Slot::Source | Slot::Mask => insn.source = source,
                    Slot::Barrier => insn.barrier = barrier,
                    Slot::Number => insn.number = number,
                    Slot::Offset => insn.number = ((number as i32) >> 8) as u32,
                    Slot::Constant => insn.number = number % 0x2000 * 4,
                    Slot::Distance { .. } => insn.distance = distance * 16,
                }
            }
            // Two words go to an even register and the next one, from where both lie as one.
            if row.op == Op::LdcPair {
                insn.target &= !1;
                insn.number &= !7;
            }
            insn
        },
    )
}

fn printed_predicate(p: Predicate) -> String {
    let not = if p.negated { "!" } else { "" };
    match p.register {
        7 => format!("{not}PT"),
        n => format!("{not}P{n}"),
    }
}

fn printed_register(n: u8) -> String {
    if n == 255 {
        "RZ".to_owned()
    } else {
        format!("R{n}")
    }
}

fn printed_number(number: u32) -> String {
    let number = number as i32;
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{:#x}", number.unsigned_abs())
}

/// As the disassembler has it, at offset `at`.
pub(crate) fn printed(insn: &Insn, at: u64, arch: Arch) -> String {
    let is_it = |r: &&Row| r.op == insn.op && r.archs.contains(&arch);
    let row = ROWS.iter().find(is_it).expect("a row");
    let mut operands = Vec::new();
    let target = (at + BYTES as u64).wrapping_add_signed(insn.distance);
    for slot in row.slots {
        match slot {
            Slot::Second if insn.second == Predicate::ALWAYS => {}
            Slot::Second => operands.push(printed_predicate(insn.second)),
            Slot::Target => operands.push(printed_register(insn.target)),
            Slot::Source | Slot::Mask => operands.push(printed_register(insn.source)),
            Slot::Barrier => operands.push(format!("B{}", insn.barrier)),
            Slot::Number => operands.push(match insn.op {
                // Numbers that are added have a sign.
                Op::Add | Op::AddCarry | Op::AddWithCarry => printed_number(insn.number),
                _ => format!("{:#x}", insn.number),
            }),
            Slot::Offset => operands.push(match insn.number {
                0 => "[R1]".to_owned(),
                number => format!("[R1+{}]", printed_number(number)),
            }),
            Slot::Constant => operands.push(match (insn.op, insn.number) {
                // No offset, added to no register.
                (Op::Ldc, 0) => "c[0x0][RZ]".to_owned(),
                (_, number) => format!("c[0x0][{number:#x}]"),
            }),
            Slot::Distance { .. } => operands.push(format!("{target:#x}")),
        }
    }
    if insn.op == Op::ImadMovConst {
        operands.splice(1..1, ["RZ".to_owned(), "RZ".to_owned()]);
    }
    match insn.op {
        Op::Add => operands.push("RZ".to_owned()),
        Op::AddCarry => {
            operands.insert(1, "P0".to_owned());
            operands.push("RZ".to_owned());
        }
        Op::AddWithCarry => {
            operands.extend(["RZ", "P0", "!PT"].map(str::to_owned));
        }
        Op::VoteAny => operands.extend(["PT", "PT"].map(str::to_owned)),
        Op::P2r => operands.extend(["PR", "RZ", "0x7f"].map(str::to_owned)),
        Op::R2p => {
            operands.insert(0, "PR".to_owned());
            operands.push("0x7f".to_owned());
        }
        _ => {}
    }
    if insn.op == Op::RetAbs {
        operands.push("0x0".to_owned());
    }
    // What a return is relative to stands without a comma.
    if matches!(insn.op, Op::RetAbs | Op::RetRel) {
        let to = operands.pop().unwrap_or_default();
        if let Some(last) = operands.last_mut() {
            *last += &format!(" {to}");
        }
    }
    let guard = match insn.guard {
        Predicate::ALWAYS => String::new(),
        other => format!("@{} ", printed_predicate(other)),
    };
    format!("{guard}{} {}", row.name, operands.join(", "))
        .trim()
        .to_owned()
}

#[test]
fn what_we_write_is_what_was_meant() {
    for (arch, binary) in [(Arch::Sm80, "SM80"), (Arch::Sm90, "SM90")] {
        let mut runner = TestRunner::deterministic();
        let strategy = insn(arch);
        let mut insns = Vec::new();
        for _ in 0..600 {
            insns.push(strategy.new_tree(&mut runner).expect("a case").current());
        }
        // Distances are shown as targets, which must not be negative.
        const START: u64 = 0x0010_0000;
        let mut code = vec![0u8; 0];
        let nop = Insn::new(Op::Nop, Control::stall(0))
            .encode(arch)
            .expect("in the table");
        for _ in 0..START / BYTES as u64 {
            code.extend(nop.bytes());
        }
        for insn in &insns {
            let word = insn.encode(arch).expect("in the table");
            assert_eq!(Insn::decode(word, arch).map(|i| i.op), Some(insn.op));
            code.extend(word.bytes());
        }
        let file = scratch(&format!("random.{binary}.bin"));
        std::fs::write(&file, &code).expect("a scratch file");
        let text = output(Command::new(nvdisasm()).args(["-b", binary]).arg(&file));
        let mut shown = BTreeMap::new();
        for line in text.lines() {
            let rest = line
                .trim()
                .strip_prefix("/*")
                .and_then(|l| l.split_once("*/"));
            if let Some((at, rest)) = rest
                && let Ok(at) = u64::from_str_radix(at, 16)
            {
                let bare = rest.split("/*").next().unwrap_or_default().replace(';', "");
                shown.insert(at, bare.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
        for (insn, index) in insns.iter().zip(0u64..) {
            let at = START + index * BYTES as u64;
            assert_eq!(shown.get(&at), Some(&printed(insn, at, arch)), "{insn:?}");
        }
    }
}
