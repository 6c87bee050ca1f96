//! The application of the tests that is made of CUTLASS. Its headers are fetched and not kept here, and it takes longer than any other to
//! compile: some ten seconds of a core for each form.

use std::path::Path;
use std::process::Command;

use crate::artifacts::is_newer;
use crate::setup::{self, Tools};
use crate::shell::{Failure, root, run};

/// Builds it with the shared and with the static runtime.
pub fn app(tools: &Tools, into: &Path) -> Result<(), Failure> {
    let headers = setup::cutlass()?;
    let source = root().join("tests/apps/cutlass.cu");
    let check = root().join("tests/apps/check.h");
    // Other headers are another program; all of them come at once, and this one says their version.
    let version = headers.join("cutlass/version.h");
    for (runtime, suffix) in [("shared", "-shared"), ("static", "")] {
        let program = into.join(format!("cutlass{suffix}"));
        if is_newer(&program, &[&source, &check, &version]) {
            continue;
        }
        let mut nvcc = Command::new(tools.cuda.join("bin/nvcc"));
        nvcc.args(["-lineinfo", "-O2", "-std=c++17", "-cudart", runtime]);
        // Its headers call functions of the host's library in the device's code.
        nvcc.arg("--expt-relaxed-constexpr");
        nvcc.args(["-gencode", "arch=compute_75,code=compute_75"]);
        nvcc.args(["-gencode", "arch=compute_90,code=[sm_90,compute_90]"]);
        nvcc.arg("-isystem").arg(&headers);
        nvcc.arg("-L").arg(tools.cuda.join("lib"));
        run(nvcc.arg("-o").arg(&program).arg(&source))?;
    }
    Ok(())
}
