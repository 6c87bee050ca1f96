//! What nvcc makes of C++ of every kind we meet is read without an error, and read exactly.

use crate::tools::lossless::check;
use crate::tools::nvcc::compile;
use warpbpf_ptx::ast::{Module, Operand, StatementKind};
use warpbpf_ptx::parse_body;

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
