//! ptxas accepts every variant of every sample, for every architecture.

use std::path::Path;
use std::process::Command;

use crate::common::{ALL, OPTIONS, attach, counters, cuda, is_deep, nvcc, ptxas, root, scratch};
use crate::words::{attached, wanted};
use warpbpf_abi::attach::{Scope, Site};
use warpbpf_patch::{Method, Options, clone_in_module, method, slice};

const SOURCES: [&str; 6] = [
    "vecadd.cu",
    "globals.cu",
    "exits.cu",
    "barriers.cu",
    "closures.cu",
    "features.cu",
];

/// Instruments every kernel of every sample for `arch`, in every way that it allows.
fn check(arch: &str, nvcc_options: &[&str], ptxas_options: &[&str], name: &str) {
    let dir = scratch(name);
    let fragments = counters();
    assert_eq!(fragments.len(), ALL.len());
    let (mut slices, mut clones) = (0, 0);
    for source in SOURCES {
        let text = nvcc(&dir, source, arch, nvcc_options);
        let module = warpbpf_ptx::index(&text).unwrap();
        let mut requests = Vec::new();
        for kernel in module.functions.iter().filter(|f| f.is_entry) {
            // Where a device function ends threads, only thread scope is possible at exit.
            let inner = kernel.name == "in_function"
                && text.contains(".func  (.param .b32 func_retval0) _Z5leavei");
            let attachments = attach(&fragments, |site, scope| {
                !inner || site == Site::Entry || scope == Scope::Thread
            });
            match method(&module, kernel.name).unwrap() {
                Method::Slice => {
                    let (ptx, variant) =
                        slice(&module, kernel.name, &attachments, &OPTIONS).unwrap();
                    assert_eq!(variant.entry, kernel.name);
                    assert_eq!(variant.slot_count, 2 + variant.globals.len() as u32);
                    ptxas(&dir, &format!("{source}.{}", kernel.name), &ptx, arch, &[]);
                    slices += 1;
                }
                Method::Clone { .. } => {}
                Method::Refused { reason, .. } => panic!("{}: {reason}", kernel.name),
            }
            requests.push((kernel.name, attachments));
            clones += 1;
        }
        let (ptx, _) = clone_in_module(&module, &requests, &OPTIONS).unwrap();
        ptxas(&dir, &format!("{source}.clones"), &ptx, arch, ptxas_options);
    }
    assert_eq!(clones, 20);
    assert!(slices >= 16, "{slices}");
}

/// Every kind of place, with all that can be captured there.
const EVERYWHERE: [&str; 12] = [
    "mem.thread:address,bytes,kind,space,cache,value0,value1,value2,value3,valuebytes,target,targetspace,line,site",
    "mem.warp:address,bytes,value0,value1,value2,value3,arg0,arg1,arg2,argc|after",
    "barrier.thread:barkind,barid,barthreads,address,space",
    "barrier.warp:waited,barid,address|after",
    "branch.warp:takenmask,taken",
    "line.block:line",
    "func.thread:site",
    "funcret.warp:site",
    "insn.thread:op0,op1,op2,op3,op4,op5,op6,op7,opcount|op=m*",
    "insn.warp:op0,op1,op2|op=*.f32|after",
    "insn.thread:op0,op1|op=s*",
    "insn.thread|op=c*|after",
];

/// Code at every place of every kernel of a module, inline and as functions: ptxas has nothing to
/// say about it.
fn everywhere(
    dir: &Path,
    name: &str,
    text: &str,
    arch: &str,
    slices: bool,
    ptxas_options: &[&str],
) {
    let module = warpbpf_ptx::index(text).unwrap();
    let words: Vec<_> = EVERYWHERE.iter().map(|word| wanted(word, 0)).collect();
    let mut requests = Vec::new();
    for kernel in module.functions.iter().filter(|f| f.is_entry) {
        match method(&module, kernel.name).unwrap() {
            Method::Slice if slices => {
                let (ptx, variant) =
                    slice(&module, kernel.name, &attached(&words), &OPTIONS).unwrap();
                assert!(!variant.sites.is_empty(), "{}", kernel.name);
                ptxas(dir, &format!("{name}.{}", kernel.name), &ptx, arch, &[]);
            }
            Method::Slice | Method::Clone { .. } => {}
            Method::Refused { reason, .. } => panic!("{}: {reason}", kernel.name),
        }
        requests.push((kernel.name, attached(&words)));
    }
    for out_of_line in [false, true] {
        let options = Options {
            out_of_line,
            ..OPTIONS
        };
        let (ptx, _) = clone_in_module(&module, &requests, &options).unwrap();
        let name = format!("{name}.clones.{out_of_line}");
        ptxas(dir, &name, &ptx, arch, ptxas_options);
    }
}

#[test]
#[ignore = "cargo xtask test --deep"]
fn everywhere_sm_75() {
    let dir = scratch("everywhere_75");
    for source in ["closures.cu", "features.cu"] {
        let text = nvcc(&dir, source, "75", &[]);
        everywhere(&dir, source, &text, "75", false, &[]);
    }
}

#[test]
fn everywhere_sm_90() {
    let dir = scratch("everywhere_90");
    for source in SOURCES {
        let text = nvcc(&dir, source, "90", &["-lineinfo"]);
        everywhere(&dir, source, &text, "90", true, &["-lineinfo"]);
    }
}

#[test]
fn everywhere_sm_100_debug() {
    let dir = scratch("everywhere_100");
    for source in ["exits.cu", "closures.cu"] {
        let text = nvcc(&dir, source, "100", &["-G"]);
        everywhere(&dir, source, &text, "100", false, &["-g"]);
    }
}

#[test]
fn everywhere_in_what_triton_makes() {
    let dir = scratch("triton");
    let all = ["triton-softmax", "triton-tma", "triton-matmul"];
    for name in &all[..if is_deep() { 3 } else { 2 }] {
        let file = root().join(format!("crates/ptx/tests/corpus/{name}.ptx"));
        let text = std::fs::read_to_string(file).unwrap();
        everywhere(&dir, name, &text, "90a", true, &[]);
    }
}

/// How many instructions of a cubin's kernel `k` are multiply-adds, sums and products of f32. The
/// low 9 bits of an instruction of 16 bytes are its opcode.
fn arithmetic(dir: &Path, name: &str, text: &str) -> [usize; 3] {
    let file = dir.join(name);
    std::fs::write(&file, text).unwrap();
    let cubin = dir.join(format!("{name}.cubin"));
    let run = Command::new(cuda().join("bin/ptxas"))
        .arg("-arch=sm_90")
        .arg(&file)
        .arg("-o")
        .arg(&cubin)
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let elf = std::fs::read(cubin).unwrap();
    let number = |at: usize, bytes: usize| {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&elf[at..at + bytes]);
        u64::from_le_bytes(word) as usize
    };
    let section = |index: usize| number(0x28, 8) + index * 64;
    let names = number(section(number(0x3e, 2)) + 24, 8);
    let code = (0..number(0x3c, 2))
        .map(section)
        .find(|at| elf[names + number(*at, 4)..].starts_with(b".text.k\0"))
        .unwrap();
    let (start, size) = (number(code + 24, 8), number(code + 32, 8));
    let opcodes: Vec<usize> = (start..start + size)
        .step_by(16)
        .map(|at| number(at, 2) & 0x1ff)
        .collect();
    [0x23, 0x21, 0x20].map(|opcode| opcodes.iter().filter(|o| **o == opcode).count())
}

#[test]
fn products_and_sums_stay_fused() {
    let dir = scratch("fused");
    let text = ".version 8.3\n.target sm_90\n.address_size 64\n.entry k(.param .u64 p)\n{\n\t.reg .f32 %f<9>;\n\
        \t.reg .b64 %rd<3>;\n\tld.param.u64 %rd1, [p];\n\tld.global.f32 %f1, [%rd1];\n\tmul.f32 %f2, %f1, %f1;\n\
        \tld.global.f32 %f3, [%rd1+4];\n\tneg.f32 %f4, %f2;\n\tadd.f32 %f5, %f4, %f3;\n\tmul.rn.f32 %f6, %f5, %f1;\n\
        \tld.global.f32 %f7, [%rd1+8];\n\tadd.f32 %f8, %f6, %f7;\n\tst.global.f32 [%rd1], %f8;\n\tret;\n}\n";
    let expected = [1, 1, 1];
    assert_eq!(arithmetic(&dir, "plain.ptx", text), expected);
    let module = warpbpf_ptx::index(text).unwrap();
    for word in [
        "mem.thread:value0|after",
        "mem.warp:value0",
        "insn.warp:op0,op1|op=*",
        "insn.warp:op0,op1|op=*|after",
    ] {
        let wanted = [wanted(word, 0)];
        for out_of_line in [false, true] {
            let options = Options {
                out_of_line,
                ..OPTIONS
            };
            let (ptx, variant) = slice(&module, "k", &attached(&wanted), &options).unwrap();
            assert_eq!(
                arithmetic(&dir, "probed.ptx", &ptx),
                expected,
                "{word}\n{ptx}"
            );
            assert!(
                !variant.left_out.is_empty() && variant.sites.len() > 3,
                "{word}"
            );
        }
    }
}

macro_rules! architectures {
    ($($(#[$attribute:meta])* $name:ident $arch:literal)*) => {$(
        #[test]
        $(#[$attribute])*
        fn $name() {
            check($arch, &[], &[], stringify!($name));
        }
    )*};
}

architectures! {
    sm_75 "75"
    #[ignore = "cargo xtask test --deep"]
    sm_80 "80"
    #[ignore = "cargo xtask test --deep"]
    sm_86 "86"
    #[ignore = "cargo xtask test --deep"]
    sm_89 "89"
    sm_90 "90"
    #[ignore = "cargo xtask test --deep"]
    sm_90a "90a"
    #[ignore = "cargo xtask test --deep"]
    sm_100 "100"
    sm_120 "120"
}

#[test]
fn line_information() {
    check("90", &["-lineinfo"], &["-lineinfo"], "line_information");
}

#[test]
fn debug_information() {
    check("90", &["-G"], &["-g"], "debug_information");
}
