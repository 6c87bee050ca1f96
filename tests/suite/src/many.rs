//! Many applications that come and go: what a tool keeps of each is what its report needs.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::faults::agent_has_sites;
use crate::process::Owned;
use crate::run::{Bench, Case, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("many: ended applications have no mapping", mappings),
        case("many: a failure of ours is told, and not printed", failure),
    ]
}

/// Applications, and one launch of each with 1,000 elements in blocks of 256.
const COUNT: usize = 5;
const THREADS: u64 = 1024;

/// Runs them one after the other, and waits with the last one's end until somebody says so.
const ALL: &str = r#"
i=0; while [ $i -lt $0 ]; do "$@"; i=$((i+1)); done
echo ready; read -r line
"#;

fn mappings(bench: &Bench) -> Told {
    let report = bench.scratch("report.json");
    let mut command = bench.warpbpf("run");
    command.args(["--json", "-o"]).arg(&report);
    command.arg(bench.object("threadhist"));
    command.args(["--", "sh", "-c", ALL, &COUNT.to_string()]);
    command.arg(bench.app("vectoradd")).args(["1000", "1"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Owned::spawn(&mut command).map_err(|e| e.to_string())?;
    let output = BufReader::new(child.stdout.take().ok_or("no output")?);
    if !output.lines().any(|line| line.is_ok_and(|l| l == "ready")) {
        return Err("the applications have not ended".into());
    }
    // The last one's end may be heard a moment later.
    let maps = format!("/proc/{}/maps", child.id());
    let mut mapped = COUNT;
    for _ in 0..500 {
        let text = std::fs::read_to_string(&maps).map_err(|e| format!("{maps}: {e}"))?;
        mapped = text.matches("/memfd:warpbpf ").count();
        if mapped == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    same("mappings of shared memory", mapped, 0)?;
    drop(child.stdin.take());
    let status = child.wait().map_err(|e| e.to_string())?;
    // `read` met the end.
    same("status", status.code(), Some(1))?;
    let bytes = std::fs::read(&report).map_err(|e| e.to_string())?;
    let report: Value = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
    let processes = report["processes"].as_array().ok_or("no processes")?;
    same("processes", processes.len(), COUNT)?;
    for process in processes {
        same("complete", &process["complete"], &Value::Bool(true))?;
        let threads = process["maps"][0]["threads"]["count"].as_u64();
        same("threads", threads, Some(THREADS))?;
    }
    Ok(format!("{COUNT} one after the other"))
}

/// The agent's thread panics: the application has its own output alone, and the report says what
/// happened.
fn failure(bench: &Bench) -> Told {
    if !agent_has_sites(bench) {
        return Ok("skipped: a release build has no fault sites".into());
    }
    let plain = bench.plain("vectoradd", &["1000", "1"])?;
    let report = bench.scratch("report.json");
    let mut command = bench.warpbpf("run");
    command.args(["--json", "-o"]).arg(&report);
    command.arg(bench.object("threadhist"));
    command.arg("--").arg(bench.app("vectoradd"));
    command.args(["1000", "1"]);
    command.env("WARPBPF_FAULT", "agent/control-panics:1");
    let output = command.output().map_err(|e| e.to_string())?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    same("status", output.status.code(), Some(0))?;
    same("its output", output.stdout == plain, true)?;
    same(&errors, errors.contains("panic"), false)?;
    let bytes = std::fs::read(&report).map_err(|e| e.to_string())?;
    let report: Value = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
    let complete = &report["processes"][0]["complete"];
    same("complete", complete, &Value::Bool(false))?;
    says(
        &report["notes"].to_string(),
        "warpbpf failed internally in its thread `warpbpf`: ",
    )?;
    Ok("a note, and not complete".to_owned())
}
