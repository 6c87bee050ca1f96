//! The main job in one command: a program counts every thread of an unmodified CUDA application,
//! and the count is right.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::artifacts::{self, Artifacts, Extent, Profile};
use crate::jobs::Plan;
use crate::shell::{Failure, failure, output, run as run_command};

/// Elements and launches of the application's run.
const ARGUMENTS: [&str; 2] = ["1048576", "5"];

/// Sets up, builds, runs plain and instrumented, compares.
pub fn run() -> Result<(), Failure> {
    let tools = OnceLock::new();
    let mut plan = Plan::new();
    artifacts::add_steps(&mut plan, &tools, Profile::Release, Extent::Demo);
    plan.run()?;
    let artifacts = Artifacts::of(Profile::Release);
    let has_gpu = has_gpu(&artifacts)?;
    let app = artifacts.apps.join(if has_gpu {
        "vectoradd"
    } else {
        "vectoradd-shared"
    });

    let mut plain = Command::new(&app);
    plain.args(ARGUMENTS);
    if !has_gpu {
        plain.env("LD_LIBRARY_PATH", &artifacts.soft);
    }
    let expected_output = output(&mut plain)?;

    let report_path: PathBuf = artifacts::target_dir().join("demo-report.json");
    let mut probed = Command::new(&artifacts.warpbpf);
    probed.arg("run").arg("--json").arg("-o").arg(&report_path);
    probed
        .arg(artifacts.objects.join("threadhist.bpf.o"))
        .arg("--")
        .arg(&app)
        .args(ARGUMENTS);
    let probed_output = output(&mut probed)?;

    run_command(
        Command::new(&artifacts.warpbpf)
            .args(["report", "--rows", "5"])
            .arg(&report_path),
    )?;
    let text =
        std::fs::read_to_string(&report_path).map_err(|e| Failure(format!("no report: {e}")))?;
    let report: Value =
        serde_json::from_str(&text).map_err(|e| Failure(format!("the report is not JSON: {e}")))?;
    let process = &report["processes"][0];
    let device = process["device"]
        .as_str()
        .unwrap_or("no device")
        .to_string();
    let events = sum_of(process, "threads")?;
    let expected = threads_of(&String::from_utf8_lossy(&expected_output))?;
    let identical = probed_output == expected_output;
    say!(
        "\nran on {device}{}",
        if has_gpu { "" } else { " (no GPU was found)" }
    );
    let same = if identical { "identical" } else { "DIFFERENT" };
    say!("demo: {events} events, {expected} expected, application output {same}");
    if events == expected && sum_of(process, "blocks")? == expected && identical {
        Ok(())
    } else {
        failure("the demo's numbers are wrong")
    }
}

fn has_gpu(artifacts: &Artifacts) -> Result<bool, Failure> {
    let text = output(Command::new(&artifacts.warpbpf).args(["doctor", "--json"]))?;
    let report: Value = serde_json::from_slice(&text)
        .map_err(|e| Failure(format!("`warpbpf doctor --json`: {e}")))?;
    Ok(report["checks"][0]["ok"] == Value::Bool(true))
}

fn sum_of(process: &Value, map: &str) -> Result<u64, Failure> {
    let maps = process["maps"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let found = maps
        .iter()
        .find(|m| m["name"] == map)
        .and_then(|m| m["sum"].as_u64());
    found.map_or_else(
        || failure(format!("the report has no sum of map `{map}`")),
        Ok,
    )
}

/// `… 4096 blocks of 256 threads, 5 launches, …` → threads in all, from what the application itself
/// says it launched.
fn threads_of(line: &str) -> Result<u64, Failure> {
    let words: Vec<&str> = line.split([' ', ',']).collect();
    let before = |name: &str| {
        words
            .iter()
            .position(|w| *w == name)
            .and_then(|at| words[at - 1].parse::<u64>().ok())
    };
    match (before("blocks"), before("threads"), before("launches")) {
        (Some(blocks), Some(threads), Some(launches)) => Ok(blocks * threads * launches),
        _ => failure(format!(
            "the application's output has no launch geometry: {line}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometry_is_read_from_the_applications_words() {
        let line = "vectoradd: 1000 elements, 4 blocks of 256 threads, 3 launches, checksum 00";
        assert_eq!(threads_of(line).unwrap(), 3072);
        assert!(threads_of("hello").is_err());
    }
}
