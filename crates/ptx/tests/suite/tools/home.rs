//! The CUDA toolkit that `cargo xtask setup` puts under the workspace.

use std::path::{Path, PathBuf};

/// Where the CUDA toolkit is.
pub fn cuda_home() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let home = std::env::var_os("WARPBPF_CUDA_HOME")
        .map_or_else(|| root.join(".toolchain/cuda/nvidia/cu13"), PathBuf::from);
    assert!(
        home.join("bin/ptxas").exists(),
        "no ptxas under `{}`: run `cargo xtask setup`",
        home.display()
    );
    home
}
