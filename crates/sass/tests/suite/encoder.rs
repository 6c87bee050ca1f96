//! The encoder against what `ptxas` itself writes: of random operands, and of all our kernels.
//! Which operands an instruction has, the disassembler says; what we make of those must be the
//! compiler's word, bit for bit.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{corpus, disassemble, is_deep, ptxas};
use crate::encodings::printed;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use warpbpf_sass::Arch;
use warpbpf_sass::elf::Image;
use warpbpf_sass::table::Op;
use warpbpf_sass::word::{Insn, Word};

/// By operation, the words that were compared.
type Seen = BTreeMap<Op, BTreeSet<u128>>;

/// Compares all instructions of a cubin that are in the table.
fn compare(name: &str, cubin: &[u8], arch: Arch, seen: &mut Seen) {
    let image = Image::parse(cubin).expect("a cubin");
    let symbol = |name: &str| {
        let mut symbols = image.symbols.iter();
        symbols.find(|s| s.name == name).map(|s| s.value)
    };
    for (section, lines) in disassemble(name, cubin) {
        for line in lines {
            let Some(insn) = Insn::decode(Word(line.word), arch) else {
                continue;
            };
            // What stays in a cache of operands is part of the control word, and is printed all the
            // same.
            let mut text = line.text.replace(".reuse", "");
            // Of another function only the name is printed; the file says where it is.
            if let Some((before, rest)) = text.split_once("`(") {
                let (label, after) = rest.split_once(')').expect("a label ends");
                let at = symbol(label).unwrap_or_else(|| panic!("{section}: no `{label}`"));
                text = format!("{before}{at:#x}{after}");
            }
            assert_eq!(
                text,
                printed(&insn, line.at, arch),
                "{section} at {:#x}",
                line.at
            );
            let word = insn.encode(arch).expect("in the table");
            assert_eq!(word.0, line.word, "{section} at {:#x}: {text}", line.at);
            seen.entry(insn.op).or_default().insert(word.0);
        }
    }
}

#[test]
fn of_all_our_kernels_the_compilers_words_are_ours() {
    for (number, arch) in [(80, Arch::Sm80), (90, Arch::Sm90)] {
        let mut seen = Seen::new();
        for (name, cubin) in corpus(number) {
            compare(
                &format!("{name}.{number}.original"),
                &cubin,
                arch,
                &mut seen,
            );
        }
        let words: usize = seen.values().map(BTreeSet::len).sum();
        let (ops, least) = match number {
            80 if !is_deep() => (7, 250),
            90 if !is_deep() => (12, 800),
            _ => (12, 1000),
        };
        assert!(
            seen.len() > ops && words > least,
            "{words} of {}",
            seen.len()
        );
        // What no text of random operands below is made to.
        for op in [Op::MovReg, Op::Add] {
            assert_eq!(seen.contains_key(&op), number == 90, "{op:?}");
        }
    }
}

/// Numbers that a text is made of.
#[derive(Debug, Clone)]
struct Operands {
    /// Stored as they are.
    numbers: Vec<u32>,
    /// Offsets of words in the parameters.
    parameters: Vec<u32>,
    /// Offsets of words in the thread's own memory.
    own: Vec<u32>,
    /// Added to addresses.
    added: Vec<i64>,
    /// How much stands in branches and loops.
    lengths: Vec<usize>,
}

fn operands() -> impl Strategy<Value = Operands> {
    (
        prop::collection::vec(1u32.., 6),
        prop::collection::vec(0u32..250, 6),
        prop::collection::vec(0u32..990, 6),
        prop::collection::vec(0x0100_0000i64..0x7fff_ffff, 4),
        prop::collection::vec(1usize..90, 4),
    )
        .prop_map(|(numbers, parameters, own, added, lengths)| Operands {
            numbers,
            parameters,
            own,
            added,
            lengths,
        })
}

/// A kernel with them, in which threads part, meet, loop, call and leave.
fn text(sm: &str, operands: &Operands) -> String {
    let mut body = String::new();
    for (i, number) in operands.numbers.iter().enumerate() {
        body += &format!("\tst.volatile.global.u32 [%rd1+{}], {number};\n", 4 * i);
    }
    for offset in &operands.parameters {
        body += &format!("\tld.param.u32 %r1, [big+{}];\n", 4 * offset);
        body += "\tst.volatile.global.u32 [%rd1+64], %r1;\n";
    }
    for number in &operands.added {
        body += "\tld.volatile.global.u64 %rd2, [%rd1];\n";
        body +=
            &format!("\tadd.s64 %rd3, %rd2, {number};\n\tst.volatile.global.u64 [%rd1+8], %rd3;\n");
        body += &format!(
            "\tadd.s64 %rd3, %rd2, -{number};\n\tst.volatile.global.u64 [%rd1+8], %rd3;\n"
        );
    }
    for offset in &operands.own {
        body += "\tld.volatile.global.u32 %r3, [%rd1+32];\n";
        body += &format!("\tst.local.u32 [own+{}], %r3;\n", 4 * offset);
        body += &format!(
            "\tst.local.u32 [%rd8], %r3;\n\tld.local.u32 %r4, [own+{}];\n",
            4 * offset
        );
        body += "\tst.volatile.global.u32 [%rd1+64], %r4;\n";
    }
    for (i, length) in operands.lengths.iter().enumerate() {
        let stores = "\tst.volatile.global.u32 [%rd1+72], %r2;\n".repeat(*length);
        // Threads that leave, threads that part and meet again, and those that loop or call
        // meanwhile.
        body += &format!("\tsetp.eq.u32 %p1, %r2, {};\n\t@%p1 exit;\n", 300 + i);
        body += &format!(
            "\tsetp.gt.u32 %p2, %r2, {};\n\t@%p2 bra ELSE{i};\n",
            10 * i + 3
        );
        body += "\t{\n\t.param .b64 x;\n\t.param .b64 y;\n\tst.param.b64 [x], %rd1;\n\tcall (y), helper, (x);\n\tld.param.b64 %rd4, [y];\n\t}\n";
        body += &format!("\tst.volatile.global.u64 [%rd1+8], %rd4;\n{stores}\tbra.uni MEET{i};\n");
        body += &format!("ELSE{i}:\n{stores}\tld.volatile.global.u32 %r1, [%rd1+4];\n");
        body += &format!("\tsetp.ne.u32 %p1, %r1, 0;\n\t@%p1 bra ELSE{i};\nMEET{i}:\n");
        body += "\tactivemask.b32 %r1;\n\tst.volatile.global.u32 [%rd1+76], %r1;\n";
    }
    format!(
        ".version 7.8
.target {sm}
.address_size 64
.func (.param .b64 r) helper(.param .b64 a)
{{
	.reg .b64 %rd<3>;
	.reg .pred %p1;
	ld.param.u64 %rd1, [a];
AGAIN:
	ld.volatile.global.u64 %rd2, [%rd1];
	add.u64 %rd1, %rd1, %rd2;
	setp.ne.u64 %p1, %rd2, 0;
	@%p1 bra AGAIN;
	st.param.b64 [r], %rd1;
	ret;
}}
.visible .entry k(.param .u64 p, .param .align 8 .b8 big[1000])
{{
	.reg .b64 %rd<9>;
	.reg .b32 %r<5>;
	.reg .pred %p<3>;
	.local .align 8 .b8 own[4000];
	ld.param.u64 %rd1, [p];
	mov.u32 %r2, %tid.x;
	mov.u64 %rd6, own;
	ld.volatile.global.u64 %rd7, [%rd1];
	and.b64 %rd7, %rd7, 3996;
	add.u64 %rd8, %rd6, %rd7;
{body}	ret;
}}
"
    )
}

#[test]
fn of_random_operands_the_compilers_words_are_ours() {
    let both = [
        Op::Bra,
        Op::CallRel,
        Op::RetRel,
        Op::Bssy,
        Op::Bsync,
        Op::Exit,
        Op::Nop,
        Op::MovImm,
    ];
    let of_80 = [Op::MovConst, Op::ImadMovConst];
    let of_90 = [
        Op::Ldc,
        Op::Stl,
        Op::Ldl,
        Op::AddCarry,
        Op::AddWithCarry,
        Op::VoteAny,
    ];
    for (sm, arch, more) in [
        ("sm_80", Arch::Sm80, &of_80[..]),
        ("sm_90", Arch::Sm90, &of_90[..]),
    ] {
        let mut seen = Seen::new();
        let mut runner = TestRunner::new(Config::with_cases(if is_deep() { 12 } else { 4 }));
        let collected = std::cell::RefCell::new(&mut seen);
        runner
            .run(&operands(), |operands| {
                for level in ["-O1", "-O3"] {
                    let cubin = ptxas("encoder", &text(sm, &operands), sm, &[level]);
                    let name = format!("encoder.{sm}");
                    compare(&name, &cubin, arch, &mut collected.borrow_mut());
                }
                Ok(())
            })
            .unwrap();
        for op in both.iter().chain(more) {
            assert!(
                seen.contains_key(op),
                "{op:?} is in none: {:?}",
                seen.keys()
            );
        }
        // Those with an operand of ours have it in many forms.
        for op in [Op::Bra, Op::CallRel, Op::Bssy, Op::MovImm] {
            assert!(seen[&op].len() > 20, "{} of {op:?}", seen[&op].len());
        }
    }
}
