//! No text, however broken, makes the readers panic or run away.

use proptest::prelude::*;
use warpbpf_ptx::{index, parse_body};

const SEED: &str = r#".version 8.3
.target sm_90a, debug
.address_size 64
.file 1 "a.cu"
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.visible .const .align 4 .b8 t[4] = {1, 2, generic(x)+3, 4}, u;
.section .debug_abbrev { .b8 1 }
.visible .entry k(.param .u64 .ptr .align 1 p, .param .align 8 .b8 q[16]) .maxntid 256, 1, 1
{
	.reg .pred %p<3>; .reg .v2 .f32 v;
	.shared .align 16 .b8 s[64];
	.loc 1 23 5, function_name $L, inlined_at 1 2 3
	@!%p1 bra $L__BB0_2; // comment }
	ld.global.L1::evict_last.v2.f32 {%f1, _}, [%rd1+-8];
	mov.b64 %rd2, 0d3FF0000000000000; mov.f32 %f2, 0f3F800000; add.u32 %r1, %r1, -0x10U;
	setp.lt.and.u32 %p1|%p2, %r1, 1.5e-3, !%p2; /* { */
	{ call.uni (r), vprintf, (a, 1), proto; }
	proto: .callprototype (.param .b32 _) _ (.param .b64 _);
	ts: .branchtargets A, B; brx.idx %r1, ts;
	cp.async.bulk.tensor.2d.shared::cluster [%r1], [%rd1, {%r1, %r2}], [%r3];
	.pragma "nounroll";
$L__BB0_2: ret;
}
"#;

fn read(text: &str) {
    let Ok(module) = index(text) else { return };
    for function in &module.functions {
        if let Ok(statements) = parse_body(&module, function) {
            // Every span can be sliced.
            assert!(
                statements
                    .iter()
                    .all(|s| text.get(s.span.clone()).is_some())
            );
        }
    }
    assert!(
        module
            .others
            .iter()
            .all(|span| text.get(span.clone()).is_some())
    );
}

#[test]
fn the_seed_is_right() {
    let module = index(SEED).unwrap();
    assert_eq!(
        parse_body(&module, module.function("k").unwrap())
            .unwrap()
            .len(),
        20
    );
}

/// Each prefix, in the module and in the body.
#[test]
fn truncated_anywhere() {
    for end in 0..SEED.len() {
        read(&SEED[..end]);
        read(&format!("{}\n}}", &SEED[..end]));
    }
}

#[test]
fn deep_nesting_does_not_exhaust_the_stack() {
    for bracket in ["(", "[a,", "{"] {
        let body = bracket.repeat(100_000);
        read(&format!(
            ".version 8.3\n.target sm_90\n.entry k() {{ t {body} }}"
        ));
        read(&format!(
            ".version 8.3\n.target sm_90\n.entry k() {{ t {body} ;"
        ));
        read(&format!(
            ".version 8.3\n.target sm_90\n.global .u32 x = {body};"
        ));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn mutated_text(
        edits in prop::collection::vec((0usize..SEED.len(), 0usize..12, "[\\[\\](){}<>.,;:\"'/*@!|+\\-_%$0-9a-zé\\n]{0,4}"), 1..6)
    ) {
        let mut text = SEED.to_owned();
        for (at, length, new) in edits {
            let floor = |at: usize| (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            let span = floor(at)..floor(at + length);
            text.replace_range(span, &new);
        }
        read(&text);
    }

    #[test]
    fn tokens_in_any_order(words in prop::collection::vec(0usize..200, 1..60)) {
        let tokens: Vec<&str> = SEED.split_inclusive([' ', '\n', '\t', ',', ';', '(', ')', '[', ']', '{', '}']).collect();
        let body: String = words.iter().map(|&word| tokens[word % tokens.len()]).collect();
        read(&format!(".version 8.3\n.target sm_90\n{body}"));
        read(&format!(".version 8.3\n.target sm_90\n.entry k() {{ {body} }}"));
    }

    #[test]
    fn any_text(text in "\\PC{0,200}") {
        read(&text);
        read(&format!(".version 8.3 .target sm_90 .entry k() {{ {text} }}"));
    }
}
