//! What is decoded is PTX: ptxas accepts every operation as its modifiers and operands stand here.
//! And our own reader reads each back to the same operation.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ops;
use warpbpf_ptx::ast::StatementKind;
use warpbpf_ptx::eval::Op;
use warpbpf_ptx::{index, parse_body};

fn ptxas() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let home = std::env::var_os("WARPBPF_CUDA_HOME")
        .map_or_else(|| root.join(".toolchain/cuda/nvidia/cu13"), PathBuf::from);
    let ptxas = home.join("bin/ptxas");
    assert!(
        ptxas.exists(),
        "no ptxas under `{}`: run `cargo xtask setup`",
        home.display()
    );
    ptxas
}

fn accept(name: &str, target: &str, text: &str) {
    let path = std::env::temp_dir().join(format!(
        "warpbpf-ptx-eval-{}-{name}.ptx",
        std::process::id()
    ));
    std::fs::write(&path, text).expect("the text can be written");
    let run = Command::new(ptxas())
        .args(["-O0", "-arch", target, "-o", "/dev/null"])
        .arg(&path)
        .output()
        .expect("ptxas starts");
    std::fs::remove_file(&path).expect("the text can be removed");
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

#[test]
fn ptxas_accepts_every_operation() {
    let cases = ops::all();
    accept("all", "sm_90", &ops::module("8.8", "sm_90", &cases));
}

#[test]
fn ptxas_accepts_three_source_extrema() {
    let cases: Vec<_> = ["min.f32", "max.ftz.NaN.f32"]
        .map(|name| ops::Case {
            name: name.to_owned(),
            dst: "r",
            src: "rrr",
            immediate: None,
        })
        .into();
    accept("three", "sm_100", &ops::module("8.8", "sm_100", &cases));
}

#[test]
fn every_operation_is_read_back() {
    let cases = ops::all();
    let text = ops::module("8.8", "sm_90", &cases);
    let module = index(&text).unwrap();
    assert_eq!(module.functions.len(), cases.len());
    for (case, function) in cases.iter().zip(&module.functions) {
        // Each takes the sources that it is given, the carry included.
        let mut words = case.name.split('.');
        let op = Op::decode(words.next().unwrap(), &words.collect::<Vec<_>>());
        let op = op.unwrap_or_else(|| panic!("`{}` is not decoded", case.name));
        assert_eq!(op.sources(), case.src.len(), "`{}`", case.name);
        let statements = parse_body(&module, function).unwrap();
        let found = statements.iter().any(|statement| match &statement.kind {
            StatementKind::Instruction(i) => {
                i.name == case.name && Op::decode(i.opcode, &i.modifiers) == Some(op)
            }
            _ => false,
        });
        assert!(found, "`{}`", case.name);
    }
}
