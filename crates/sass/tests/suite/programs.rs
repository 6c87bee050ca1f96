//! Programs as the code generator writes them become probes: the goldens of its tests, each as a
//! function, in a kernel.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{ptxas, workspace};
use warpbpf_sass::{Hook, Probe, Refusal, splice, splice_accesses};

/// Where the cells of a block are, which a launch record has.
const BLOCK_CELLS: &str = "%wbpf_cells";

const KERNEL: &str = ".version 8.0
.target ARCH
.address_size 64
.visible .entry k(.param .u64 p)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    setp.gt.u32 %p1, %r1, 40;
    @%p1 ret;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd2, %rd2, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}
";

/// A golden as a module: its functions, then one around its block, with whatever the block reads.
/// `more` are parameters behind the two that all have.
fn module(golden: &str, arch: &str, more: &str) -> String {
    let mut at = 0;
    let mut depth = 0;
    let mut block = 0;
    for line in golden.split_inclusive('\n') {
        // The block stands at the top, and is headed by nothing.
        let headed = golden[..at].trim_end().ends_with(')');
        if depth == 0 && line == "{\n" && !headed {
            block = at;
        }
        depth += line.matches('{').count() as i32 - line.matches('}').count() as i32;
        at += line.len();
    }
    let (functions, block) = golden.split_at(block);
    let mut text = String::new();
    for line in block.lines() {
        // As `bake` does.
        let address = line.trim().strip_prefix("ld.const.u64 ");
        match address.and_then(|l| l.split_once(", [wbpf_slots")) {
            Some((register, _)) => text += &format!("\tmov.b64 {register}, 0x7f0012340000;\n"),
            None => text += &format!("{line}\n"),
        }
    }
    let mut own = String::new();
    if text.contains("%wbpf_mask") {
        own += "\t.reg .b32 %wbpf_mask;\n\tactivemask.b32 %wbpf_mask;\n";
    }
    let functions: String = functions
        .lines()
        .map(|line| {
            let address = line.trim().strip_prefix("ld.const.u64 ");
            match address.and_then(|l| l.split_once(", [wbpf_slots")) {
                Some((register, _)) => format!("\tmov.b64 {register}, 0x7f0012340000;\n"),
                None => format!("{line}\n"),
            }
        })
        .collect();
    format!(
        ".version 8.3\n.target {arch}\n.address_size 64\n{functions}\n.visible .func (.param .b32 r) probe(.param .b64 ud, .param .b64 pc{more})\n{{\n{own}{text}\tst.param.b32 [r], 0;\n\tret;\n}}\n"
    )
}

fn goldens() -> BTreeMap<String, String> {
    let folder = workspace().join("filetests/codegen");
    let entries = std::fs::read_dir(&folder).expect("the goldens");
    let paths = entries.map(|e| e.expect("an entry").path());
    let ptx = paths.filter(|path| path.extension().is_some_and(|e| e == "ptx"));
    let read = |path: &Path| std::fs::read_to_string(path).expect("a golden");
    let named = ptx.map(|path| {
        let name = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        (name, read(&path))
    });
    named
        // What is read there is what only a kernel's PTX has, or registers of the kernel.
        .filter(|(_, text)| !text.contains("%wbpf_v_") && !text.contains("%wbpf_sum_"))
        .collect()
}

/// The same program stands at the kernel's access, as a function with the parameters that are given
/// there.
fn at_access(name: &str, text: &str, kernel: &[u8]) -> bool {
    let more = ", .param .b64 ptr, .param .b32 size, .param .b32 flags, .param .b64 data";
    let module = module(text, "sm_90", more);
    let options = ["--compile-as-tools-patch"];
    let cubin = ptxas(&format!("{name}.access"), &module, "sm_90", &options);
    let probe = Probe::parse(&cubin, "probe").unwrap_or_else(|e| panic!("{name}: {e}"));
    let hook = Hook {
        probe: &probe,
        userdata: 0,
    };
    match splice_accesses(kernel, "k", hook) {
        Ok(spliced) => {
            assert_eq!(spliced.change.accesses.len(), 1, "{name}");
            true
        }
        Err(refusal) => {
            let meets = refusal.to_string().ends_with("it waits for other lanes");
            assert!(meets, "{name}: {refusal}");
            false
        }
    }
}

#[test]
fn programs_become_probes() {
    let goldens = goldens();
    assert!(goldens.len() > 35, "only {}", goldens.len());
    for (arch, number) in [("sm_80", 80), ("sm_90", 90)] {
        let kernel = ptxas("programs", &KERNEL.replace("ARCH", arch), arch, &[]);
        let (mut entries, mut exits, mut accesses) = (0, 0, 0);
        let mut refused = BTreeMap::new();
        // 128-bit exchanges are for sm_90 on, and machine code has no launch record for aggregates
        // over a block.
        let of_arch =
            |text: &str| (number >= 90 || !text.contains(".b128")) && !text.contains(BLOCK_CELLS);
        for (name, text) in goldens.iter().filter(|(_, text)| of_arch(text)) {
            let of_ends = module(text, arch, "");
            let cubin = ptxas(name, &of_ends, arch, &["--compile-as-tools-patch"]);
            let probe = match Probe::parse(&cubin, "probe") {
                Ok(probe) => probe,
                Err(refusal) => {
                    refused.insert(name.as_str(), refusal.to_string());
                    continue;
                }
            };
            let hook = Some(Hook {
                probe: &probe,
                userdata: 0,
            });
            splice(&kernel, "k", hook, None).unwrap_or_else(|e| panic!("{name}: {e}"));
            entries += 1;
            match splice(&kernel, "k", None, hook) {
                Ok(_) => exits += 1,
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::ProbeMeets, "{name}");
                    assert!(!name.ends_with("_apart"), "{name} for {arch}: {refusal}");
                }
            }
            if number == 90 {
                let served = at_access(name, text, &kernel);
                assert!(served || !name.ends_with("_apart"), "{name} at an access");
                accesses += usize::from(served);
            }
        }
        let ends = refused.remove("exit_dead").expect("it ends threads");
        assert!(ends.ends_with("it ends the thread"), "{ends}");
        // Calls in which lanes are brought together; calls within a function, which ptxas makes of
        // them and of long loops for sm_80.
        let known = [
            "it waits for other lanes",
            "(opcode `0x944`) that a probe may not have: its control flow is not known",
        ];
        assert!(number == 80 || refused.keys().all(|name| !name.ends_with("_apart")));
        for (name, refusal) in &refused {
            // Where no lane waits for another, only what a compiler makes of long loops is left.
            let known = &known[usize::from(name.ends_with("_apart"))..];
            let expected = known.iter().any(|reason| refusal.ends_with(reason));
            assert!(expected, "{name} for {arch}: {refusal}");
        }
        let told = format!(
            "{entries} at the entry, {exits} at exits of {}: {refused:#?}",
            goldens.len()
        );
        assert!(entries >= 34 && exits >= 34, "{told}");
        assert!(
            accesses >= 34 || number == 80,
            "{accesses} at accesses, {told}"
        );
    }
}
