//! `warpbpf sites` and `warpbpf compile --show-splice` over the fixtures in `golden/`;
//! `WARPBPF_BLESS=1` rewrites what they are expected to print.

use crate::common::{Folder, fixture, golden};
use serde_json::{Value, json};

const PROBES: &str = "struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 2);
        __type(key, __u32); __type(value, __u64); } counts SEC(\".maps\");
    static inline int add(__u32 key) {
        __u64 *value = bpf_map_lookup_elem(&counts, &key);
        if (value) *value += 1;
        return 0;
    }
    SEC(\"gpu/mem/*|kind=load,space=global,size>=16\") int wide(void *ctx) { return add(0); }
    SEC(\"gpu/barrier.warp/*|when=after\") int waited(void *ctx) { return add(1); }
    char LICENSE[] SEC(\"license\") = \"GPL\";";

fn refusal(message: &str) -> Value {
    json!({ "ok": false, "error": message })
}

#[test]
fn kernels_and_their_places() {
    let folder = Folder::new("sites");
    folder.write("tile.ptx", &fixture("tile.ptx"));
    golden("tile.sites", &folder.said("sites tile.ptx"));
    golden(
        "tile.lines",
        &folder.said("sites tile.ptx --lines --kernel tile"),
    );
    golden(
        "tile.insns",
        &folder.said("sites tile.ptx --insns --kernel *tile*"),
    );
    let (status, listed) = folder.json("sites --json tile.ptx");
    let kernel = &listed["kernels"][0];
    assert_eq!((status, &listed["ok"]), (Some(0), &json!(true)));
    assert_eq!(kernel["name"], "tile");
    assert_eq!(kernel["mangled"], "_Z4tilePK6float4Pfi");
    assert_eq!(
        kernel["places"][0],
        json!({ "place": "mem", "kind": "load", "space": "global", "bytes": 16, "function": null, "count": 1, "barred": {} })
    );
    assert_eq!(
        kernel["lines"][6],
        json!({ "file": "src/tile.cu", "line": 10, "pieces": 1, "places": { "barrier": 1 } })
    );
    assert_eq!(kernel["opcodes"][0], json!({ "op": "mov.u32", "count": 5 }));
}

#[test]
fn files_without_kernels_say_what_is_in_them() {
    let folder = Folder::new("nosites");
    folder.write("tile.ptx", &fixture("tile.ptx"));
    folder.write("note.txt", b"hello");
    folder.write(
        "none.ptx",
        b".version 8.0\n.target sm_90\n.address_size 64\n",
    );
    folder.write(
        "bad.ptx",
        b".version 8.0\n.target sm_90\n.address_size 64\n.entry k( {\n",
    );
    for (line, expect) in [
        (
            "tile.ptx --kernel gemm",
            "tile.ptx: `gemm` names no kernel; there are tile",
        ),
        (
            "note.txt",
            "note.txt: it is neither PTX, nor a fatbin, nor a cubin, nor an ELF file",
        ),
        ("none.ptx", "none.ptx: it has no kernel"),
    ] {
        assert_eq!(
            folder.json(&format!("sites --json {line}")),
            (Some(1), refusal(expect)),
            "{line}"
        );
    }
    let (status, said) = folder.text("sites bad.ptx");
    assert_eq!(status, Some(1));
    assert!(
        said.starts_with("warpbpf: bad.ptx: it has no kernel: its PTX cannot be read: "),
        "{said}"
    );
    let ourselves = env!("CARGO_BIN_EXE_warpbpf");
    let (status, said) = folder.text(&format!("sites {ourselves}"));
    assert_eq!(status, Some(1));
    assert!(
        said.contains("it holds no CUDA code: no section `.nv_fatbin`"),
        "{said}"
    );
    assert_eq!(
        folder.json("sites --json tile.ptx --target 90"),
        (
            Some(125),
            refusal("`90` is not a target; write `sm_90` or the like")
        )
    );
}

#[test]
fn a_kernel_before_and_after() {
    let folder = Folder::new("splice");
    folder.write("tile.ptx", &fixture("tile.ptx"));
    folder.compile("probes.o", PROBES);
    golden(
        "tile.splice.diff",
        &folder.said("compile --show-splice tile tile.ptx probes.o"),
    );
    golden(
        "tile.called.diff",
        &folder.said("compile --show-splice *tile* tile.ptx probes.o --out-of-line"),
    );
    let (status, spliced) = folder.json("compile --json --show-splice tile tile.ptx probes.o");
    assert_eq!((status, &spliced["method"]), (Some(0), &json!("slice")));
    assert_eq!(
        spliced["sites"],
        json!([
            "tile at tile.cu:7 ld.global.v4.f32",
            "tile at tile.cu:10 bar.sync"
        ])
    );
    let functions = &spliced["functions"];
    assert_eq!(functions[0]["name"], "_Z4tilePK6float4Pfi");
    let text = String::from_utf8(fixture("tile.ptx")).expect("a text");
    let before = functions[0]["before"].as_str().expect("a text");
    assert!(text.contains(before), "{before}");
}

#[test]
fn splices_that_cannot_be_shown_say_why() {
    let folder = Folder::new("nosplice");
    folder.write("tile.ptx", &fixture("tile.ptx"));
    folder.write(
        "plain.ptx",
        b".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { ret; }\n.entry k2() { ret; }\n",
    );
    folder.compile("probes.o", PROBES);
    folder.compile(
        "other.o",
        "SEC(\"gpu/entry/gemm\") int enter(void *ctx) { return 0; } char LICENSE[] SEC(\"license\") = \"GPL\";",
    );
    for (line, expect) in [
        (
            "gemm tile.ptx probes.o",
            "tile.ptx: `gemm` names no kernel; there are tile",
        ),
        (
            "k* plain.ptx probes.o",
            "plain.ptx: `k*` names several kernels: k, k2; write the mangled name of one",
        ),
        (
            "k plain.ptx probes.o",
            "plain.ptx: kernel `k`: no site that a program wants is in it",
        ),
        (
            "tile tile.ptx other.o",
            "tile.ptx: no program is for kernel `tile`; the sections are `gpu/entry/gemm`",
        ),
    ] {
        assert_eq!(
            folder.json(&format!("compile --json --show-splice {line}")),
            (Some(1), refusal(expect)),
            "{line}"
        );
    }
    for line in [
        "compile --out-of-line probes.o",
        "compile --show-splice tile tile.ptx --emit ir probes.o",
        "compile --show-splice tile",
    ] {
        assert_eq!(folder.text(line).0, Some(2), "{line}");
    }
}
