//! What nvcc makes of C++ of every kind we meet is read without an error, and read exactly.

use std::path::{Path, PathBuf};
use std::process::Command;

use warpbpf_ptx::ast::{Function, Module, Operand, StatementKind};
use warpbpf_ptx::{Splices, index, parse_body};

fn cuda_home() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let home = std::env::var_os("WARPBPF_CUDA_HOME")
        .map_or_else(|| root.join(".toolchain/cuda/nvidia/cu13"), PathBuf::from);
    assert!(
        home.join("bin/nvcc").exists(),
        "no nvcc under `{}`: run `cargo xtask setup`",
        home.display()
    );
    home
}

fn compile(name: &str, flags: &[&str]) -> String {
    let home = cuda_home();
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(name);
    let out = std::env::temp_dir().join(format!(
        "warpbpf-ptx-{}-{name}-{}.ptx",
        std::process::id(),
        flags.join("")
    ));
    let run = Command::new(home.join("bin/nvcc"))
        .args(["-ptx", "-std=c++17", "-I"])
        .arg(home.join("include"))
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&out)
        .output()
        .expect("nvcc starts");
    assert!(
        run.status.success(),
        "nvcc refuses `{name}`: {}",
        String::from_utf8_lossy(&run.stderr)
    );
    let text = std::fs::read_to_string(&out).expect("nvcc writes its output");
    std::fs::remove_file(&out).expect("the output can be removed");
    text
}

/// Reads all of a text and checks what holds of every text: names stand where their spans say, items do not overlap,
/// between statements stand only blanks and comments, and re-slicing all of it gives the text again.
fn check(text: &str) -> Module<'_> {
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
                assert_eq!(instruction.operands.len(), instruction.operand_spans.len());
                assert_eq!(instruction.name.split('.').next(), Some(instruction.opcode));
                for (operand, span) in instruction.operands.iter().zip(&instruction.operand_spans) {
                    let written = &module.text[span.clone()];
                    assert_eq!(written, written.trim(), "blank in an operand's span");
                    match operand {
                        Operand::Name(name) => assert_eq!(*name, written),
                        Operand::Address { .. } => {
                            assert!(written.starts_with('[') && written.ends_with(']'))
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

fn instructions<'a>(module: &Module<'a>, function: &str) -> Vec<(&'a str, Vec<Operand<'a>>)> {
    let function = module.function(function).expect("the function is there");
    let statements = parse_body(module, function).expect("the body is read");
    let instructions = statements
        .into_iter()
        .filter_map(|statement| match statement.kind {
            StatementKind::Instruction(instruction) => {
                Some((instruction.name, instruction.operands))
            }
            _ => None,
        });
    instructions.collect()
}

fn count(module: &Module<'_>, function: &str, opcode: &str) -> usize {
    instructions(module, function)
        .iter()
        .filter(|(name, _)| name.split('.').next() == Some(opcode))
        .count()
}

#[test]
fn memory() {
    let text = compile("memory.cu", &["-arch=sm_90", "-lineinfo"]);
    let module = check(&text);
    assert_eq!(module.version, (9, 0));
    assert_eq!(
        (module.targets.as_slice(), module.address_size),
        (["sm_90"].as_slice(), 64)
    );
    assert!(text[..module.header_end].ends_with(".address_size 64"));
    assert!(
        module
            .files
            .iter()
            .any(|(_, path)| path.ends_with("memory.cu"))
    );
    let kernel = module.function("reduce").unwrap();
    assert!(kernel.is_entry);
    assert_eq!(kernel.directives, [".maxntid 256, 1, 1", ".minnctapersm 2"]);
    assert_eq!(
        kernel
            .params
            .iter()
            .map(|p| (p.ty, p.array, p.align))
            .collect::<Vec<_>>(),
        [("u64", None, 8), ("u64", None, 8), ("u32", None, 4)]
    );
    let by_value = module.function("_Z8by_value3BigPS_").unwrap();
    assert_eq!(
        (
            by_value.params[0].ty,
            by_value.params[0].array,
            by_value.params[0].align
        ),
        ("b8", Some(48), 8)
    );
    let weights = module.variable("weights").unwrap();
    assert_eq!(
        (
            weights.space,
            weights.ty,
            weights.dims.as_slice(),
            weights.size()
        ),
        ("const", "b8", [64].as_slice(), Some(64))
    );
    assert!(weights.init.unwrap().starts_with("{0, 0, 128, 63"));
    assert_eq!(
        module.variable("managed_counter").unwrap().attribute,
        Some(".managed")
    );
    assert_eq!(
        module.variable("pointer_to_counter").unwrap().init,
        Some("generic(plain_counter)")
    );
    let dynamic = module.variable("dynamic").unwrap();
    assert_eq!(
        (dynamic.dims.as_slice(), dynamic.align),
        ([0].as_slice(), 16)
    );
    assert_eq!(count(&module, "reduce", "shfl"), 5);
    assert_eq!(count(&module, "reduce", "ret"), 1);
}

#[test]
fn numbers() {
    let text = compile("numbers.cu", &["-arch=sm_90a"]);
    let module = check(&text);
    assert_eq!(module.targets, ["sm_90a"]);
    assert_eq!(module.functions.iter().filter(|f| f.is_entry).count(), 8);
}

#[test]
fn calls() {
    let text = compile("calls.cu", &["-arch=sm_80"]);
    let module = check(&text);
    let prototype = module.function("vprintf").unwrap();
    assert_eq!(
        (
            prototype.body.clone(),
            prototype.params.len(),
            prototype.returns.len()
        ),
        (None, 2, 1)
    );
    let kernel = module.functions.iter().find(|f| f.is_entry).unwrap().name;
    let prototypes = parse_body(&module, module.function(kernel).unwrap()).unwrap();
    let prototypes = prototypes
        .iter()
        .filter(|s| matches!(s.kind, StatementKind::CallPrototype { .. }))
        .count();
    // One each for the virtual call, the destructor and the function table.
    assert_eq!(prototypes, 3);
    let calls = instructions(&module, kernel);
    let call = calls
        .iter()
        .find(|(_, operands)| operands.contains(&Operand::Name("vprintf")))
        .unwrap();
    assert!(
        matches!(call.1.as_slice(), [Operand::List(r), Operand::Name(_), Operand::List(a)] if (r.len(), a.len()) == (1, 2))
    );
}

#[test]
fn control() {
    let text = compile("control.cu", &["-arch=sm_100"]);
    let module = check(&text);
    assert_eq!(count(&module, "_Z6routesPjj", "brx"), 1);
    let statements = parse_body(&module, module.function("_Z6routesPjj").unwrap()).unwrap();
    let targets = statements.iter().find_map(|s| match &s.kind {
        StatementKind::BranchTargets { name, targets } => Some((*name, targets.len())),
        _ => None,
    });
    let (table, entries) = targets.expect("the switch has a table");
    assert_eq!((table, entries), ("ROUTES", 2));
    assert!(
        instructions(&module, "_Z6routesPjj")
            .iter()
            .any(|(name, operands)| *name == "brx.idx" && operands[1] == Operand::Name(table))
    );
    let kernel = module.function("_Z8dispatchPiPKii").unwrap();
    let statements = parse_body(&module, kernel).unwrap();
    assert!(
        statements
            .iter()
            .any(|s| s.kind == StatementKind::Pragma("nounroll"))
    );
    let assembly = instructions(&module, "_Z8assemblyPjPyf");
    let lop3 = assembly
        .iter()
        .find(|(name, _)| *name == "lop3.b32")
        .unwrap();
    assert_eq!(
        lop3.1[2..],
        [Operand::Int(-7), Operand::Int(5), Operand::Int(0x96)]
    );
    let load = assembly
        .iter()
        .find(|(name, _)| name.starts_with("ld.global.L1"))
        .unwrap();
    assert!(matches!(
        load.1[1],
        Operand::Address {
            base: Some(_),
            offset: -8,
            ..
        }
    ));
    let setp = assembly
        .iter()
        .find(|(name, _)| *name == "setp.lt.and.u32")
        .unwrap();
    assert_eq!(
        setp.1[0],
        Operand::Pair(Operand::Name("p").into(), Operand::Name("q").into())
    );
    assert_eq!(setp.1[3], Operand::Not("q"));
}

#[test]
fn asynchronous() {
    let text = compile("async.cu", &["-arch=sm_90a"]);
    let module = check(&text);
    let bulk = instructions(&module, "_Z4bulkPKfPf");
    let tensor = bulk
        .iter()
        .find(|(name, _)| name.contains("tensor"))
        .unwrap();
    assert!(
        matches!(&tensor.1[1], Operand::Address { rest, .. } if matches!(rest.as_slice(), [Operand::Vector(v)] if v.len() == 2))
    );
    let kernel = module.function("_Z4bulkPKfPf").unwrap();
    assert_eq!(
        kernel.directives,
        [".explicitcluster", ".reqnctapercluster 2, 1, 1"]
    );
    assert_eq!(count(&module, "_Z6matrixPK6__halfS1_Pf", "wmma"), 4);
}

#[test]
fn full_debug_information() {
    let text = compile("debug.cu", &["-arch=sm_90", "-G"]);
    let module = check(&text);
    assert!(module.targets.contains(&"debug"));
    assert!(
        module
            .others
            .iter()
            .filter(|span| text[(*span).clone()].starts_with(".section"))
            .count()
            >= 3
    );
}

#[test]
fn every_corpus_file_for_every_architecture_family() {
    for arch in ["-arch=sm_75", "-arch=sm_120"] {
        for name in ["memory.cu", "numbers.cu", "calls.cu", "control.cu"] {
            check(&compile(name, &[arch, "-lineinfo"]));
        }
    }
}
