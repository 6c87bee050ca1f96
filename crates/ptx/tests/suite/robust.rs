//! No text, however broken, makes the readers panic or run away; and what one reader skips the
//! other reads.

use proptest::prelude::*;
use warpbpf_ptx::access::{access, row_lanes};
use warpbpf_ptx::ast::StatementKind;
use warpbpf_ptx::lines::{Lines, Sources};
use warpbpf_ptx::sync::barrier;
use warpbpf_ptx::{PtxError, Splices, index, parse_body};

/// What compilers and people wrote; mutations begin here.
const REAL: [&str; 4] = [
    include_str!("../corpus/hand.ptx"),
    include_str!("../corpus/triton-matmul.ptx"),
    include_str!("../corpus/triton-softmax.ptx"),
    include_str!("../corpus/triton-tma.ptx"),
];

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

/// Looks at everything there is to look at.
fn read(text: &str) {
    let module = match index(text) {
        Ok(module) => module,
        Err(error) => return assert_placed(text, &error),
    };
    let sources = Sources::new(&module);
    let mut splices = Splices::new();
    for function in &module.functions {
        let statements = match parse_body(&module, function) {
            Ok(statements) => statements,
            Err(error) => {
                assert_placed(text, &error);
                continue;
            }
        };
        let lines = Lines::new(&sources, &statements);
        for (at, statement) in statements.iter().enumerate() {
            let written = &text[statement.span.clone()];
            splices.replace(statement.span.clone(), written);
            assert_eq!(lines.place(at).is_some(), lines.outermost(at).is_some());
            if let StatementKind::Instruction(instruction) = &statement.kind {
                row_lanes(instruction);
                let operands = instruction.operands.len();
                if let Some(access) = access(instruction) {
                    assert!(access.address < operands);
                    assert!(
                        access
                            .values
                            .iter()
                            .chain(&access.result)
                            .all(|&at| at < operands)
                    );
                    assert!(access.target.is_none_or(|(at, _)| at < operands));
                }
                if let Some(site) = barrier(instruction) {
                    assert!(site.id.iter().chain(&site.threads).all(|&at| at < operands));
                    assert!(site.address.is_none_or(|(at, _)| at < operands));
                }
            }
        }
    }
    assert!(
        module
            .others
            .iter()
            .all(|span| text.get(span.clone()).is_some())
    );
    // Statements do not overlap, and each put in its own place gives the text.
    assert_eq!(splices.apply(text).as_deref(), Ok(text));
}

/// The line and column of an error are those of its offset.
fn assert_placed(text: &str, error: &PtxError) {
    let (line, column, offset) = match error {
        PtxError::Unexpected {
            line,
            column,
            offset,
            ..
        }
        | PtxError::Unclosed {
            line,
            column,
            offset,
            ..
        }
        | PtxError::BadNumber {
            line,
            column,
            offset,
            ..
        } => (*line, *column, *offset),
        PtxError::MissingDirective { .. } => return,
    };
    let before = &text.as_bytes()[..offset];
    let start = before
        .iter()
        .rposition(|&b| b == b'\n')
        .map_or(0, |at| at + 1);
    assert_eq!(line, before.iter().filter(|&&b| b == b'\n').count() + 1);
    assert_eq!(column, offset - start + 1);
}

/// Where the body ends that begins behind `text`'s first brace, a byte at a time.
fn closing_brace(text: &[u8]) -> Option<usize> {
    let mut depth = 0usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with(b"//") {
            at += rest.iter().position(|&b| b == b'\n')?;
        } else if rest.starts_with(b"/*") {
            at += rest[2..].windows(2).position(|two| two == b"*/")? + 4;
            continue;
        } else if rest[0] == b'"' {
            at += 1;
            loop {
                match text.get(at)? {
                    b'"' => break,
                    b'\n' => return None,
                    b'\\' => at += 2,
                    _ => at += 1,
                }
            }
        } else if rest[0] == b'{' {
            depth += 1;
        } else if rest[0] == b'}' {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
        at += 1;
    }
    None
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

#[test]
fn real_text_truncated_at_every_line() {
    for text in REAL {
        read(text);
        for (at, _) in text.match_indices('\n').step_by(7) {
            read(&text[..at]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn mutated_real_text(
        which in 0..REAL.len(),
        edits in prop::collection::vec((0usize..1 << 20, 0usize..40, "[\\[\\](){}<>.,;:\"'/*@!|+\\-_%$0-9a-zé\\n]{0,4}"), 1..6)
    ) {
        let mut text = REAL[which].to_owned();
        for (at, length, new) in edits {
            let floor = |at: usize| (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            let at = at % text.len();
            let span = floor(at)..floor(at + length);
            text.replace_range(span, &new);
        }
        read(&text);
    }

    #[test]
    fn lines_of_real_text_in_any_order(picks in prop::collection::vec((0..REAL.len(), 0usize..1000), 1..40)) {
        let body: String = picks
            .iter()
            .filter_map(|&(which, line)| REAL[which].lines().nth(line))
            .flat_map(|line| [line, "\n"])
            .collect();
        read(&format!(".version 8.3\n.target sm_90\n{body}"));
        read(&format!(".version 8.3\n.target sm_90\n.entry k() {{ {body} }}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_body_ends_at_its_brace(pieces in prop::collection::vec(0usize..11, 0..90)) {
        const PIECES: [&str; 11] = ["{", "}", "\"", "\\", "/", "//", "/*", "*/", "\n", "é", "0123456789abcdefghijklmnopqrstuvwxyz"];
        let head = ".version 8.3\n.target sm_90\n.func f() ";
        let body: String = pieces.iter().map(|&at| PIECES[at]).collect();
        let text = format!("{head}{{{body}");
        let expected = closing_brace(&text.as_bytes()[head.len()..]).map(|end| head.len() + end);
        // Behind the body stands whatever stands there: only the body is compared.
        let cut = expected.map_or(text.as_str(), |end| &text[..=end]);
        let found = index(cut).ok().map(|module| module.functions[0].body.clone().unwrap().end);
        prop_assert_eq!(found, expected);
    }

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
