//! The bpf_conformance suite on the reference interpreter.
//!
//! The same cases run on every other engine; here they also go through the encoder, the decoder and both text forms,
//! so that a fault in any of them shows.

use std::collections::BTreeMap;
use std::path::Path;

use warpbpf_ebpf::interp::{STACK_TOP, stack_regions};
use warpbpf_ebpf::*;

/// Cases of the suite.
const CASES: usize = 313;
/// Cases that the interpreter cannot run, with the reason. There is none.
const CANNOT_RUN: &[(&str, &str)] = &[];

const INPUT: u64 = 0x1000_0000;

struct Case {
    asm: String,
    memory: Vec<u8>,
    result: u64,
}

fn parse(text: &str) -> Case {
    let mut sections: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        match line.strip_prefix("-- ") {
            Some(name) => current = Some(name.trim()),
            None => {
                if let Some(name) = current {
                    sections.entry(name).or_default().push(line);
                }
            }
        }
    }
    let words = |name: &str| {
        let lines = sections.get(name).into_iter().flatten();
        lines
            .flat_map(|line| {
                line.split('#')
                    .next()
                    .unwrap_or_default()
                    .split_whitespace()
            })
            .collect::<Vec<_>>()
    };
    let hex = |text: &str| {
        u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a hexadecimal number")
    };
    let result = words("result");
    let [result] = result.as_slice() else {
        panic!("one result, not {result:?}")
    };
    Case {
        asm: sections["asm"].join("\n"),
        memory: words("mem").iter().map(|byte| hex(byte) as u8).collect(),
        result: hex(result),
    }
}

/// The helpers that the suite's own runner has.
struct Suite(FlatMemory);

impl Memory for Suite {
    fn load(&mut self, address: u64, width: Width) -> Result<u64, TrapKind> {
        self.0.load(address, width)
    }
    fn store(&mut self, address: u64, width: Width, value: u64) -> Result<(), TrapKind> {
        self.0.store(address, width, value)
    }
}

impl Machine for Suite {
    fn call_helper(
        &mut self,
        id: u32,
        args: [u64; 5],
        _callback: &mut Callback<'_>,
    ) -> Result<u64, TrapKind> {
        match id {
            // "unwind": hands its argument back; -1 in the suite, which means "go on".
            5 => Ok(args[0]),
            id => Err(TrapKind::NoHelper { id }),
        }
    }
    fn call_register(
        &mut self,
        value: u64,
        args: [u64; 5],
        callback: &mut Callback<'_>,
    ) -> Result<u64, TrapKind> {
        self.call_helper(value as u32, args, callback)
    }
}

fn check(name: &str, text: &str) -> Result<(), String> {
    let case = parse(text);
    let code = assemble_ubpf(&case.asm).map_err(|errors| format!("{name}: {errors:?}"))?;
    let bytes = encode(&code).map_err(|error| format!("{name}: {error}"))?;
    if decode(&bytes).as_ref() != Ok(&code) {
        return Err(format!("{name}: decode(encode(code)) differs"));
    }
    if assemble(&listing(&code)).as_ref() != Ok(&code) {
        return Err(format!(
            "{name}: assemble(listing(code)) differs:\n{}",
            listing(&code)
        ));
    }
    let mut memory = FlatMemory::new();
    stack_regions().for_each(|region| assert!(memory.add(region)));
    let len = case.memory.len() as u64;
    let input = if len == 0 { 0 } else { INPUT };
    assert!(memory.add(Region {
        base: INPUT,
        bytes: case.memory,
        writable: true
    }));
    match run(
        &code,
        Pc(0),
        &[input, len],
        &mut Suite(memory),
        Limits::default(),
    ) {
        Ok(Outcome::Return(value)) if value == case.result => Ok(()),
        other => Err(format!(
            "{name}: {other:x?}, expected {:#x}\n{}",
            case.result,
            listing(&code)
        )),
    }
}

#[test]
fn every_case_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/bpf_conformance");
    let mut passed = 0;
    let mut failed = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the suite is in the repository") {
        let path = entry.expect("a readable folder").path();
        let name = path
            .file_stem()
            .and_then(|name| name.to_str())
            .expect("a plain name")
            .to_owned();
        if path.extension().is_none_or(|extension| extension != "data")
            || CANNOT_RUN.iter().any(|(n, _)| *n == name)
        {
            continue;
        }
        match check(
            &name,
            &std::fs::read_to_string(&path).expect("a readable file"),
        ) {
            Ok(()) => passed += 1,
            Err(error) => failed.push(error),
        }
    }
    assert!(
        failed.is_empty(),
        "{passed} passed, {} failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
    assert_eq!(passed, CASES - CANNOT_RUN.len());
}

#[test]
fn a_wrong_result_is_noticed() {
    let wrong = "-- asm\nmov %r0, 1\nexit\n-- result\n0x2\n";
    let error = check("wrong", wrong).expect_err("1 is not 2");
    assert!(
        error.starts_with("wrong: Ok(Return(1)), expected 0x2"),
        "{error}"
    );
    assert_eq!(STACK_TOP % 16, 0);
}
