//! What holds of every text that is read.

use warpbpf_abi::access::Kind;
use warpbpf_ptx::access::access;
use warpbpf_ptx::ast::{Function, Instruction, Module, Operand, StatementKind};
use warpbpf_ptx::sync::barrier;
use warpbpf_ptx::{Splices, index, parse_body};

/// Reads all of a text and checks what holds of every text: names stand where their spans say,
/// items do not overlap, between statements stand only blanks and comments, and re-slicing all of
/// it gives the text again.
pub fn check(text: &str) -> Module<'_> {
    let module = index(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    for function in &module.functions {
        assert_eq!(&text[function.name_span.clone()], function.name);
        assert!(
            text[function.span.clone()].ends_with(if function.body.is_some() { '}' } else { ';' })
        );
        check_body(&module, function);
    }
    let mut spans: Vec<_> = module.functions.iter().map(|f| f.span.clone()).collect();
    spans.extend(module.others.iter().cloned());
    spans.extend(module.variables.iter().map(|v| v.span.clone()));
    spans.sort_by_key(|span| span.start);
    spans.dedup();
    assert!(
        spans.windows(2).all(|pair| pair[0].end <= pair[1].start),
        "items overlap"
    );
    assert_eq!(Splices::new().apply(text).as_deref(), Ok(text));
    module
}

fn check_body(module: &Module<'_>, function: &Function<'_>) {
    let statements =
        parse_body(module, function).unwrap_or_else(|error| panic!("{error}\n{}", module.text));
    let Some(body) = function.body.clone() else {
        assert_eq!(statements, []);
        return;
    };
    let mut rebuilt = String::new();
    let mut at = body.start;
    let mut depth = 0i32;
    for statement in &statements {
        assert!(at <= statement.span.start, "statements overlap");
        assert_blank(&module.text[at..statement.span.start]);
        rebuilt.push_str(&module.text[at..statement.span.end]);
        at = statement.span.end;
        match &statement.kind {
            StatementKind::Open => depth += 1,
            StatementKind::Close => depth -= 1,
            StatementKind::Instruction(instruction) => {
                assert_known(instruction);
                assert_eq!(instruction.operands.len(), instruction.operand_spans.len());
                assert_eq!(instruction.name.split('.').next(), Some(instruction.opcode));
                for (operand, span) in instruction.operands.iter().zip(&instruction.operand_spans) {
                    let written = &module.text[span.clone()];
                    assert_eq!(written, written.trim(), "blank in an operand's span");
                    match operand {
                        Operand::Name(name) => assert_eq!(*name, written),
                        Operand::Address { .. } => {
                            assert!(written.starts_with('[') && written.ends_with(']'));
                        }
                        Operand::Other(other) => panic!("`{other}` in what a compiler wrote"),
                        _ => {}
                    }
                }
            }
            StatementKind::Directive(other) => panic!("unknown directive `{other}`"),
            _ => {}
        }
    }
    assert_blank(&module.text[at..body.end]);
    rebuilt.push_str(&module.text[at..body.end]);
    assert_eq!(depth, 0);
    assert_eq!(rebuilt, module.text[body]);
}

/// What a reader may skip: blanks, comments and lone `;`.
fn assert_blank(between: &str) {
    let mut rest = between.trim_start();
    while !rest.is_empty() {
        let end = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").expect("comments end") + 2
        } else {
            assert!(rest.starts_with(';'), "`{rest}` belongs to no statement");
            1
        };
        rest = rest[end..].trim_start();
    }
}

/// Nothing with an address is missed, and nothing that a compiler writes is new to us.
fn assert_known(instruction: &Instruction<'_>) {
    let has_address = instruction
        .operands
        .iter()
        .any(|operand| matches!(operand, Operand::Address { .. }));
    let access = access(instruction);
    if has_address
        && barrier(instruction).is_none()
        && !matches!(instruction.opcode, "mbarrier" | "fence")
    {
        let access = access.as_ref();
        assert!(
            access.is_some_and(|access| access.kind != Kind::Other
                || matches!(instruction.opcode, "tensormap" | "tcgen05")),
            "`{}` touches memory",
            instruction.name
        );
    }
    if let Some(access) = access {
        let last = access
            .values
            .iter()
            .chain(&access.result)
            .chain(&access.target.map(|t| t.0))
            .max()
            .copied();
        assert!(access.address.max(last.unwrap_or(0)) < instruction.operands.len());
    }
}
