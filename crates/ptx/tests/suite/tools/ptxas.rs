//! NVIDIA's assembler as a second opinion.

use std::process::Command;

/// What ptxas says against `text`; `name` is the test's own.
pub fn ptxas(name: &str, target: &str, text: &str) -> Result<(), String> {
    let stem = std::env::temp_dir().join(format!("warpbpf-ptx-{}-{name}", std::process::id()));
    let (input, output) = (stem.with_extension("ptx"), stem.with_extension("cubin"));
    std::fs::write(&input, text).expect("the temporary folder can be written");
    let run = Command::new(super::home::cuda_home().join("bin/ptxas"))
        .arg(format!("-arch={target}"))
        .arg(&input)
        .arg("-o")
        .arg(&output)
        .output()
        .expect("ptxas starts");
    std::fs::remove_file(&input).expect("the input can be removed");
    if run.status.success() {
        std::fs::remove_file(&output).expect("the output can be removed");
        return Ok(());
    }
    Err(String::from_utf8_lossy(&run.stderr).into_owned())
}
