//! A library with kernels of its own that Python calls, as extensions of PyTorch are, attached to
//! while its kernels are launched. PyTorch itself needs a GPU (`tests/gpu/torch.sh`).

use std::process::Command;

use serde_json::Value;

use crate::attach::{Application, Attached, kernel, number, until_seen, value};
use crate::run::{Bench, Case, Told, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    vec![Case {
        name: "torch: an extension that is attached to",
        check: attached,
    }]
}

/// Elements, one in each thread of whole blocks.
const THREADS: u64 = 256;

/// So many launches of both kernels for each line that comes, and the sums of what they wrote.
const SCRIPT: &str = r#"
import ctypes, sys
runtime = ctypes.CDLL(sys.argv[1])
extension = ctypes.CDLL(sys.argv[2])
N = 256
def check(code, what):
    if code: sys.exit(f"{what}: {code}")
def buffer(values):
    host, device = (ctypes.c_float * N)(*values), ctypes.c_void_p()
    check(runtime.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(4 * N)), "cudaMalloc")
    check(runtime.cudaMemcpy(device, host, ctypes.c_size_t(4 * N), 1), "cudaMemcpy")
    return device
def total(device):
    host = (ctypes.c_float * N)()
    check(runtime.cudaMemcpy(host, device, ctypes.c_size_t(4 * N), 2), "cudaMemcpy")
    return sum(host).hex()
given, grad, to, out = buffer(range(N)), buffer(range(1, N + 1)), buffer([0] * N), buffer([0] * N)
for line in sys.stdin:
    for _ in range(int(line)):
        check(extension.launch_warpbpf_squash(to, given, ctypes.c_uint(N), None), "squash")
        check(extension.launch_warpbpf_slope(out, grad, given, ctypes.c_uint(N), None), "slope")
    check(runtime.cudaDeviceSynchronize(), "cudaDeviceSynchronize")
    print(total(to), total(out), flush=True)
"#;

fn attached(bench: &Bench) -> Told {
    const MORE: u64 = 7;
    if !bench.soft {
        return Ok("skipped: tests/gpu/torch.sh does this with PyTorch".into());
    }
    let soft = bench.folder().join("soft");
    let mut command = Command::new("python3");
    command.env("LD_LIBRARY_PATH", &soft).args(["-c", SCRIPT]);
    command.arg(soft.join("libcudart.so.13"));
    command.arg(bench.folder().join("apps/libtorch_squash-shared.so"));
    let mut application = match Application::start(command) {
        Ok(application) => application,
        Err(reason) => return Ok(format!("skipped: no python3: {reason}")),
    };
    let results = application.ask("3")?;
    same("results", results.split(' ').count(), 2)?;
    let mut told = Vec::new();
    for round in 1..=3 {
        let tool = match Attached::start(bench, &application, "threads") {
            Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
            tool => tool?,
        };
        let pid = application.pid();
        let mut launched = 0;
        let mut launch = |application: &mut Application, count: u64| {
            launched += count;
            let now = application.ask(&count.to_string())?;
            same("results", &now, &results)
        };
        until_seen(bench, (&pid, "ended"), || launch(&mut application, 1))?;
        launch(&mut application, MORE)?;
        let report = tool.interrupt()?;
        for name in ["warpbpf_squash", "warpbpf_slope"] {
            told.push(exact(&report, name, launched, MORE)?);
        }
        same("results", &application.ask("1")?, &results)?;
        told.push(format!("round {round}"));
    }
    application.end()?;
    Ok(told.join(", "))
}

/// The launches with programs of one kernel, of which each thread is counted at its begin and its
/// end.
fn exact(report: &Value, name: &str, launched: u64, least: u64) -> Told {
    let kernel = kernel(report, name)?;
    same("its method", kernel["method"].as_str(), Some("slice"))?;
    let (launches, uninstrumented) = (
        number(&kernel["launches"]),
        number(&kernel["uninstrumented"]),
    );
    same("launches", launches + uninstrumented, launched)?;
    same("the last ones had programs", launches >= least, true)?;
    let id = number(&kernel["id"]);
    let counted = ["began", "ended"].map(|map| value(report, map, id));
    same("threads", counted, [launches * THREADS; 2])?;
    Ok(format!("{launches} of {launched} launches of {name}"))
}
