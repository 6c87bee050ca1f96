//! A cubin of an application's that is not what a compiler makes: it is refused, or edited so that
//! the check passes.

use std::path::PathBuf;
use std::process::Command;

use warpbpf_fuzz::{Bounds, Target};

use crate::bank::Addresses;
use crate::file::File;
use crate::probe::{Hook, Probe};

const KERNEL: &str = ".visible .entry k(.param .u64 out, .param .u32 n) {
    .reg .b64 %rd<5>; .reg .b32 %r<6>; .reg .pred %p<3>; .shared .align 4 .b8 tile[64];
    ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x;
    setp.ge.u32 %p1, %r2, %r1; @%p1 ret;
    mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r3, [%rd3]; bar.sync 0; add.u32 %r3, %r3, %r2; st.global.u32 [%rd3], %r3; ret;
}";
const PROBE: &str = ".visible .func (.param .b32 r) probe(.param .b64 ud, .param .b64 pc) {
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [ud];
    red.global.add.u64 [%rd1], 1;
    st.param.b32 [r], 0;
    ret;
}";

/// Assembles PTX, as the crate's other tests do.
fn ptxas(name: &str, arch: &str, body: &str, options: &[&str]) -> Vec<u8> {
    let home = std::env::var_os("WARPBPF_CUDA_HOME").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.toolchain/cuda/nvidia/cu13"),
        PathBuf::from,
    );
    let folder = std::env::temp_dir().join(format!("warpbpf-sass-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    let (source, cubin) = (folder.join(format!("{name}.ptx")), folder.join(name));
    let text = format!(".version 8.0\n.target {arch}\n.address_size 64\n{body}\n");
    std::fs::write(&source, text).expect("a scratch file");
    let mut command = Command::new(home.join("bin/ptxas"));
    command
        .arg(format!("-arch={arch}"))
        .args(options)
        .arg(&source);
    let done = command
        .arg("-o")
        .arg(&cubin)
        .output()
        .expect("ptxas, see `cargo xtask setup`");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let bytes = std::fs::read(&cubin).expect("what ptxas made");
    let _ = std::fs::remove_dir_all(folder);
    bytes
}

#[test]
fn splice() {
    let archs = ["sm_80", "sm_90"];
    let tools = &["--compile-as-tools-patch"];
    let probes = archs.map(|arch| {
        let cubin = ptxas(&format!("probe-{arch}"), arch, PROBE, tools);
        Probe::parse(&cubin, "probe").expect("a probe")
    });
    let mut seeds: Vec<Vec<u8>> = archs
        .iter()
        .map(|arch| ptxas(&format!("kernel-{arch}"), arch, KERNEL, &[]))
        .collect();
    seeds.push(ptxas("one-more-probe", "sm_90", PROBE, tools));
    let hooks = probes.each_ref().map(|probe| Hook {
        probe,
        userdata: 0x1234_5678_9abc,
    });
    for seed in &seeds[..2] {
        let edited = hooks.iter().any(|hook| {
            let file = File::parse(seed).expect("a cubin");
            file.edit("k", Some(*hook), Some(*hook)).is_ok()
        });
        assert!(edited, "the seed can have a probe");
    }
    let words: &[&[u8]] = &[
        b".nv.info.k",
        b".text.k",
        b".nv.constant0.k",
        &[4, 0x1c, 4, 0],
    ];
    // The instructions of both processors are tables that are made once.
    let bounds = Bounds {
        bytes: 64 << 20,
        ..Bounds::default()
    };
    Target::new("splice", seeds)
        .words(words)
        .bounds(bounds)
        .run(|bytes| {
            let _ = Probe::parse(bytes, "probe");
            let Ok(file) = File::parse(bytes) else { return };
            for hook in hooks {
                let _ = file.can_have("k", true, true);
                // An edit is checked from its bytes alone where it is made.
                if let Ok(edit) = file.edit("k", Some(hook), Some(hook)) {
                    let _ = file.write(std::slice::from_ref(&edit), &Addresses::new());
                }
                let _ = crate::memory::splice_accesses(bytes, "k", hook);
            }
        });
}
