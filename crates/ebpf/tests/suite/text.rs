//! The two assembly syntaxes and the disassembler.

use proptest::prelude::*;
use warpbpf_ebpf::table::FORMS;
use warpbpf_ebpf::*;

use crate::{any_program, bytes, canonical, slots};

fn errors(text: &str) -> Vec<String> {
    assemble(text)
        .expect_err("it is refused")
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn ubpf_errors(text: &str) -> Vec<String> {
    assemble_ubpf(text)
        .expect_err("it is refused")
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn each_form_prints_as_documented() {
    let mut text = String::new();
    for form in FORMS.iter().filter(|form| canonical(form)) {
        let mut program = slots(
            form,
            Slot {
                opcode: 0,
                dst: 1,
                src: 2,
                off: 8,
                imm: -3,
            },
            4,
        );
        program.push(Slot {
            opcode: 0x95,
            ..Slot::default()
        });
        let code = decode(&bytes(&program)).expect("a form decodes");
        text.push_str(&disassemble(&code, Pc(0)));
        text.push('\n');
    }
    for line in [
        "r1 += -3",
        "w1 s/= w2",
        "r1 s>>= r2",
        "w1 = (s16)w2",
        "r1 = -r1",
        "r1 = be32 r1",
        "r1 = bswap16 r1",
        "r1 = 0x4fffffffd ll",
        "r1 = map[4294967293]",
        "r1 = map[4294967293][0] + 4",
        "r1 = btf_id[4294967293]",
        "r1 = subprog[+1]",
        "r1 = *(u32 *)(r2 + 8)",
        "r1 = *(s8 *)(r2 + 8)",
        "*(u16 *)(r1 + 8) = -3",
        "*(u64 *)(r1 + 8) = r2",
        "lock *(u64 *)(r1 + 8) += r2",
        "w2 = atomic_fetch_or((u32 *)(r1 + 8), w2)",
        "r2 = xchg_64(r1 + 8, r2)",
        "r0 = cmpxchg_64(r1 + 8, r0, r2)",
        "r1 = load_acquire((u64 *)(r2 + 8))",
        "store_release((u8 *)(r1 + 8), r2)",
        "goto +0",
        "gotol +0",
        "if w1 s<= w2 goto +0",
        "if r1 & -3 goto +0",
        "may_goto +0",
        "call 4294967293",
        "call pc+0",
        "call kfunc[4294967293]",
        "callx r1",
        "r0 = *(u16 *)skb[-3]",
        "r0 = *(u8 *)skb[r2 + -3]",
        "exit",
    ] {
        assert!(
            text.lines().any(|have| have == line),
            "`{line}` is not in:\n{text}"
        );
    }
}

#[test]
fn labels_comments_and_listings() {
    let code = assemble(
        "   r0 = 0
            r1 = subprog[square]   // a callback
        again:
            r0 += 1                ; three ways
            if r0 s< 0xa goto again
            call square            # to say it
            goto end
        square: r0 *= r0
        end: exit",
    )
    .expect("it assembles");
    let listed = "    0: r0 = 0
    1: r1 = subprog[+5]
    3: r0 += 1
    4: if r0 s< 10 goto -2
    5: call pc+1
    6: goto +1
    7: r0 *= r0
    8: exit
";
    assert_eq!(listing(&code), listed);
    assert_eq!(assemble(listed), Ok(code));
}

#[test]
fn spellings() {
    let same = |a: &str, b: &str| {
        assert_eq!(
            assemble(a),
            assemble(b).map_err(|e| panic!("{b}: {e:?}")),
            "{a}"
        )
    };
    same("r1=*(u64*)(r10-8)\nexit", "r1 = *(u64 *)(r10 - 8)\nexit");
    same("r1 = *(u32 *)(r2)\nexit", "r1 = *(u32 *)(r2 + 0)\nexit");
    same("w1 = *(u8 *)(r2 + 1)\nexit", "r1 = *(u8 *)(r2 + 1)\nexit");
    same("*(u32 *)(r2 +4) = w3\nexit", "*(u32 *)(r2 + 4) = r3\nexit");
    same(
        "lock *(u32 *)(r2 + 4) |= r3\nexit",
        "lock *(u32 *)(r2 + 4) |= w3\nexit",
    );
    same("w1 = 0xffffffff\nexit", "w1 = -1\nexit");
    same("r1 = -1 ll\nexit", "r1 = 0xffffffffffffffff ll\nexit");
    same("goto +0x1\nexit\nexit", "goto +1\nexit\nexit");
}

#[test]
fn faults_name_the_line() {
    assert_eq!(
        errors("r0 = 0\nr1 = nonsense\n\nr0 = @\nr0 += \nexit"),
        [
            "line 2: `r1 = nonsense` is not an instruction",
            "line 4: cannot read `@`",
            "line 5: `r0 +=` is not an instruction",
        ]
    );
    assert_eq!(
        errors("r11 = 0\nexit"),
        ["line 1: register `r11` does not exist (r0 to r10 do)"]
    );
    assert_eq!(
        errors("r1 = 0xffffffff\nexit"),
        ["line 1: `4294967295` does not fit, the operand goes from -2147483648 to 2147483647"]
    );
    assert_eq!(
        errors("r1 = *(u8 *)(r2 + 32768)\nexit"),
        ["line 1: `32768` does not fit, the operand goes from -32768 to 32767"]
    );
    assert_eq!(
        errors("r1 = -r2\nexit"),
        ["line 1: `r1 = -r2` is not an instruction"]
    );
    assert_eq!(
        errors("goto nowhere\nexit"),
        ["line 1: there is no label `nowhere`"]
    );
    assert_eq!(
        errors("a: exit\na: exit"),
        ["line 2: label `a` is already on line 1"]
    );
    assert_eq!(
        errors("exit\ngoto +1"),
        ["line 2: the target, slot 3, is outside the program (2 slots)"]
    );
    assert_eq!(
        errors("r1 = 1 ll\ngoto -2\nexit"),
        ["line 2: the target, slot 1, is the second half of an `lddw`"]
    );
    assert_eq!(errors("; nothing"), ["line 0: the program is empty"]);
    let far = format!("goto end\n{}end: exit", "exit\n".repeat(40_000));
    assert_eq!(
        errors(&far),
        ["line 1: label `end` is 40000 slots away, too far for this jump (use `gotol`)"]
    );
}

#[test]
fn the_conformance_syntax() {
    let code = assemble_ubpf(
        "mov32 %r1, 0xffffffff # comment
         lddw %r2, -1
         ldxsw %r3, [%r10-0x4]
         stxdw [%r10], %r3
         sth [%r10+2], -7
         lock fetch add32 [%r10-8], %r1
         lock cmpxchg [%r10-8], %r2
         be16 %r1
         swap64 %r1
         movsx3264 %r1, %r2
         jsge32 %r1, -1, exit
         jeq %r1, %r2, +1
         ja32 over
         call local over
         call %r3
         call 7
         over: neg32 %r1
         exit",
    )
    .expect("it assembles");
    assert_eq!(
        listing(&code),
        "    0: w1 = -1
    1: r2 = 0xffffffffffffffff ll
    3: r3 = *(s32 *)(r10 - 4)
    4: *(u64 *)(r10 + 0) = r3
    5: *(u16 *)(r10 + 2) = -7
    6: w1 = atomic_fetch_add((u32 *)(r10 - 8), w1)
    7: r0 = cmpxchg_64(r10 - 8, r0, r2)
    8: r1 = be16 r1
    9: r1 = bswap64 r1
   10: r1 = (s32)r2
   11: if w1 s>= -1 goto +6
   12: if r1 == r2 goto +1
   13: gotol +3
   14: call pc+2
   15: callx r3
   16: call 7
   17: w1 = -w1
   18: exit
"
    );
}

#[test]
fn faults_in_the_conformance_syntax() {
    assert_eq!(
        ubpf_errors(
            "frob %r1\nmov %r1\nmov %r11, 1\nldxw %r1, [%r2+40000]\nstxw [%r1], 5\nmov %r1, 1 2\nbe17 %r1\nmov %r1, ?"
        ),
        [
            "line 1: `frob %r1` is not an instruction",
            "line 2: `mov %r1` is not an instruction",
            "line 3: register `%r11` does not exist (%r0 to %r10 do)",
            "line 4: `40000` does not fit, the operand goes from 0 to 32767",
            "line 5: `stxw [%r1], 5` is not an instruction",
            "line 6: `mov %r1, 1 2` is not an instruction",
            "line 7: `be17 %r1` is not an instruction",
            "line 8: cannot read `?`",
        ]
    );
    assert_eq!(ubpf_errors("ja exit"), ["line 1: there is no label `exit`"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn listings_assemble_back(program in any_program()) {
        let code = decode(&program).expect("it is well formed");
        let text = listing(&code);
        prop_assert_eq!(assemble(&text), Ok(code), "{}", text);
    }

    #[test]
    fn noise_never_panics(text in "([rw]1?[0-9]|[-+*/%&|^=<>s()\\[\\],:{} ]|lock|goto|call|exit|0x|[0-9]{1,12}|\n|u8|mov|%r1|lddw){0,30}") {
        let _ = (assemble(&text), assemble_ubpf(&text));
    }
}
