//! What a release build has of sites: nothing. The compiler is called as cargo calls it there, on
//! this crate alone, so that the gate needs no release build of everything; `cargo xtask build`
//! looks into the real agent, too.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Code with sites of each kind. Their names are in no other file.
const SITES: &str = r#"
#[unsafe(no_mangle)]
pub extern "C" fn steps(n: u32) -> u32 {
    warpbpf_faults::arm();
    warpbpf_faults::bug("release-test/bug");
    let failed = warpbpf_faults::check("release-test/check", || n).is_err();
    let struck = warpbpf_faults::strikes("release-test/strikes");
    n + u32::from(failed) + u32::from(struck) + u32::from(warpbpf_faults::armed())
}
"#;

/// Everything that a build with sites has in its bytes.
const TRACES: [&str; 3] = ["WARPBPF_FAULT", "release-test/", "the fault `"];

fn compile(folder: &Path, options: &[&str]) -> Vec<u8> {
    let rustc = |arguments: &[&str]| {
        let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
        command.args(["--edition", "2024", "--out-dir"]).arg(folder);
        let output = command.args(options).args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
    };
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs");
    rustc(&["--crate-type=rlib", "--crate-name=warpbpf_faults", source]);
    let user = folder.join("user.rs");
    std::fs::write(&user, SITES).unwrap();
    let search = format!("-L{}", folder.display());
    let user = user.display().to_string();
    rustc(&[
        "--crate-type=cdylib",
        "-Cstrip=debuginfo",
        &search,
        "--extern=warpbpf_faults",
        &user,
    ]);
    std::fs::read(folder.join("libuser.so")).unwrap()
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

#[test]
fn a_release_build_has_no_sites() {
    let name = format!("warpbpf-release-{}", std::process::id());
    let folder: PathBuf = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let bytes = compile(&folder, &["-Copt-level=3"]);
    for trace in TRACES {
        assert!(!has(&bytes, trace), "`{trace}` is in a release build");
    }
    // Where the names of sites would be seen if they were there: this test itself is a build with
    // sites.
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    warpbpf_faults::arm();
    assert_eq!(has(&own, "WARPBPF_FAULT_LOG"), cfg!(debug_assertions));
    std::fs::remove_dir_all(&folder).unwrap();
}
