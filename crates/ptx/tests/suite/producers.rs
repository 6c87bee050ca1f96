//! Text of every producer we can get is read without an error and without a loss: nvcc for each
//! architecture, with line information and for debugging, NVRTC of every release from 11.7 to 13.5,
//! clang for every PTX version, Triton, and people.

use std::process::Command;

use crate::tools::lossless::check;
use crate::tools::{clang, home, nvcc, ptxas};
use warpbpf_abi::access::Space;
use warpbpf_ptx::access::access;
use warpbpf_ptx::arguments;
use warpbpf_ptx::ast::{Linkage, Operand, StatementKind};
use warpbpf_ptx::lines::{Lines, Sources};
use warpbpf_ptx::{Target, parse_body};

#[test]
fn nvcc_for_every_architecture() {
    let nvcc = home::cuda_home().join("bin/nvcc");
    let list = Command::new(nvcc)
        .arg("--list-gpu-arch")
        .output()
        .expect("nvcc starts");
    let list = String::from_utf8(list.stdout).expect("the list is text");
    let architectures: Vec<_> = list.lines().collect();
    assert!(architectures.len() >= 8, "{architectures:?}");
    for architecture in architectures {
        let text = nvcc::compile(
            "control.cu",
            &[&format!("-arch={architecture}"), "-lineinfo"],
        );
        let module = check(&text);
        assert_eq!(module.target(), Target::parse(architecture));
        assert_eq!(module.functions.iter().filter(|f| f.is_entry).count(), 3);
    }
}

#[test]
fn nvcc_for_the_oldest_and_the_newest() {
    for flags in [
        ["-arch=compute_75", "-lineinfo"],
        ["-arch=compute_121", "-G"],
    ] {
        for name in ["memory.cu", "numbers.cu", "calls.cu"] {
            check(&nvcc::compile(name, &flags));
        }
    }
}

#[test]
fn clang_writes_comments_of_its_own() {
    for flags in [
        ["-g0", "--cuda-gpu-arch=sm_70"],
        ["-g", "--cuda-gpu-arch=sm_90"],
    ] {
        let Some(text) = clang::compile("clang.cu", &flags) else {
            continue;
        };
        let module = check(&text);
        let kernel = module.functions.iter().find(|f| f.is_entry).unwrap();
        assert_eq!(kernel.directives, [".maxntid 256, 1, 1", ".minnctapersm 2"]);
        assert_eq!(kernel.params[2].size(), Some(56));
        assert_eq!(module.variable("dynamic").unwrap().linkage, Linkage::Extern);
        assert_eq!(module.variable("table").unwrap().size(), Some(16));
        assert!(module.function("vprintf").unwrap().body.is_none());
        let statements = parse_body(&module, kernel).unwrap();
        let sources = Sources::new(&module);
        let lines = Lines::new(&sources, &statements);
        let barrier = statements
            .iter()
            .position(|s| matches!(&s.kind, StatementKind::Instruction(i) if i.opcode == "bar"))
            .unwrap();
        let place = lines.place(barrier).map(|place| place.line);
        assert_eq!(place, flags.contains(&"-g").then_some(29));
    }
}

/// Texts of `corpus/nvrtc.py`: what was asked for and what must be found in it.
struct Release {
    text: &'static str,
    version: (u32, u32),
    target: &'static str,
    /// A function, its parameters as debug information has them, and how many instructions it has.
    function: (&'static str, &'static [&'static str], usize),
    /// Where the first access that is not to parameters comes from, with all calls around it.
    place: &'static str,
}

#[test]
fn nvrtc_of_every_release() {
    let releases = [
        Release {
            text: include_str!("../corpus/nvrtc-11.7-calls.ptx"),
            version: (7, 7),
            target: "sm_35",
            function: ("_Z5callsPfii", &[], 110),
            place: "calls.cu:10 _ZN6SquareC1Ef < calls.cu:28 -",
        },
        Release {
            text: include_str!("../corpus/nvrtc-11.8-memory.ptx"),
            version: (7, 8),
            target: "sm_70",
            function: ("reduce", &["const float * in", "float * out", "int n"], 186),
            place: "memory.cu:14 -",
        },
        Release {
            text: include_str!("../corpus/nvrtc-12.0-memory.ptx"),
            version: (8, 0),
            target: "sm_50",
            function: ("reduce", &[], 105),
            place: "",
        },
        Release {
            text: include_str!("../corpus/nvrtc-12.4-async.ptx"),
            version: (8, 4),
            target: "sm_90a",
            function: ("_Z6matrixPK6__halfS1_Pf", &[], 13),
            place: "mma.hpp:91 _ZN38_INTERNAL_00000000_8_async_cu_1f8c4d096nvcuda4wmma16load_matrix_syncERNS1_8fragmentINS1_8matrix_aELi16ELi16ELi16E6__halfNS1_9row_majorEEEPKS4_j < async.cu:24 -",
        },
        Release {
            text: include_str!("../corpus/nvrtc-12.9-control.ptx"),
            version: (8, 8),
            target: "sm_120",
            function: ("_Z8assemblyPjPyf", &[], 22),
            place: "control.cu:35 -",
        },
        Release {
            text: include_str!("../corpus/nvrtc-13.5-memory.ptx"),
            version: (9, 5),
            target: "sm_121",
            function: ("_Z8by_value3BigPS_", &[], 35),
            place: "memory.cu:33 -",
        },
        Release {
            text: include_str!("../corpus/nvrtc-13.5-inline.ptx"),
            version: (9, 5),
            target: "sm_100a",
            function: ("_Z6kernelPfi", &["float * p", "int n"], 57),
            place: "inline.cu:21 -",
        },
    ];
    for release in releases {
        let module = check(release.text);
        assert_eq!(module.version, release.version);
        assert_eq!(module.target(), Target::parse(release.target));
        let (name, arguments, count) = release.function;
        let found = arguments::of(&module, name);
        let found: Vec<_> = found
            .iter()
            .map(|a| format!("{} {}", a.ty, a.name))
            .collect();
        assert_eq!(found, arguments);
        let statements = parse_body(&module, module.function(name).unwrap()).unwrap();
        let sources = Sources::new(&module);
        let lines = Lines::new(&sources, &statements);
        let mut instructions = 0;
        let mut place = None;
        for (at, statement) in statements.iter().enumerate() {
            let StatementKind::Instruction(instruction) = &statement.kind else {
                continue;
            };
            instructions += 1;
            if access(instruction).is_some_and(|access| access.space != Space::Param) {
                place.get_or_insert(at);
            }
        }
        let chain = lines.chain(place.unwrap()).map(|place| {
            let file = place.file.rsplit('/').next().unwrap_or_default();
            format!("{file}:{} {}", place.line, place.function.unwrap_or("-"))
        });
        assert_eq!(
            chain.collect::<Vec<_>>().join(" < "),
            release.place,
            "{name}"
        );
        assert_eq!(instructions, count, "{name}");
    }
}

#[test]
fn clang_for_every_version_of_ptx() {
    let versions: [(u32, u32); 12] = [
        (6, 0),
        (6, 3),
        (6, 5),
        (7, 0),
        (7, 2),
        (7, 5),
        (7, 8),
        (8, 0),
        (8, 2),
        (8, 3),
        (8, 4),
        (8, 5),
    ];
    for (major, minor) in versions {
        let feature = format!("--cuda-feature=+ptx{major}{minor}");
        let flags = ["-g", "--cuda-gpu-arch=sm_60", &feature];
        let Some(text) = clang::compile("clang.cu", &flags) else {
            continue;
        };
        let module = check(&text);
        assert_eq!(module.version, (major, minor));
        assert_eq!(module.target(), Target::parse("sm_60"));
    }
}

#[test]
fn triton_names_its_kernels_in_the_source() {
    let matmul = check(include_str!("../corpus/triton-matmul.ptx"));
    assert_eq!(matmul.target(), Target::parse("sm_90a"));
    let softmax = check(include_str!("../corpus/triton-softmax.ptx"));
    assert_eq!(
        softmax.functions.last().unwrap().directives,
        [".reqntid 128"]
    );
    let tma = check(include_str!("../corpus/triton-tma.ptx"));
    let kernel = tma.function("tma").unwrap();
    let statements = parse_body(&tma, kernel).unwrap();
    let sources = Sources::new(&tma);
    let lines = Lines::new(&sources, &statements);
    let copies: Vec<_> = statements
        .iter()
        .enumerate()
        .filter_map(|(at, statement)| match &statement.kind {
            StatementKind::Instruction(i) if i.has("tensor") => {
                let place = lines.place(at).unwrap();
                Some((
                    i.guard.is_some(),
                    i.has("shared::cluster"),
                    place.file.ends_with("/kernels.py"),
                    place.line,
                ))
            }
            _ => None,
        })
        .collect();
    assert_eq!(copies, [(true, true, true, 44), (true, false, true, 44)]);
}

#[test]
fn by_hand() {
    let text = include_str!("../corpus/hand.ptx");
    assert_eq!(ptxas::ptxas("hand", "sm_75", text), Ok(()));
    let module = check(text);
    assert_eq!((module.version, module.address_size), ((6, 0), 64));
    assert_eq!(module.targets, ["sm_35", "texmode_independent"]);
    let names: Vec<_> = module
        .variables
        .iter()
        .map(|v| (v.name, v.size()))
        .collect();
    assert_eq!(
        names,
        [
            ("lut", Some(32)),
            ("corner", Some(16)),
            ("at", Some(8)),
            ("there", Some(8)),
            ("image", Some(8)),
            ("nearest", Some(8)),
            ("plane", Some(8)),
            ("tile", Some(1024)),
        ]
    );
    let kernel = module.function("hand").unwrap();
    let statements = parse_body(&module, kernel).unwrap();
    let load = statements.iter().find_map(|s| match &s.kind {
        StatementKind::Instruction(i) if i.has("volatile") => Some(i.operands.clone()),
        _ => None,
    });
    let address = Operand::Address {
        base: Some("q"),
        offset: 16,
        rest: vec![],
    };
    assert_eq!(load, Some(vec![Operand::Name("v"), address]));
}
