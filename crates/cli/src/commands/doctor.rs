//! `warpbpf doctor`: what this machine has, what it lacks, and what follows from it.

use std::process::Command;

use serde_json::json;

use crate::error::CliError;
use crate::flags::DoctorFlags;
use crate::machine;
use crate::output::say;

struct Check {
    name: &'static str,
    ok: bool,
    found: String,
    advice: &'static str,
}

/// Looks and explains. Exit status 0 if kernels can be instrumented somewhere, on a GPU or the soft GPU.
pub fn run(flags: &DoctorFlags) -> Result<u8, CliError> {
    let checks = [gpu(), soft(), agent(), injection(), kernel_bpf(), clang()];
    let usable = (checks[0].ok || checks[1].ok) && checks[2].ok;
    if flags.json {
        let rows: Vec<_> = checks
            .iter()
            .map(|c| json!({ "check": c.name, "ok": c.ok, "found": c.found, "advice": if c.ok { "" } else { c.advice } }))
            .collect();
        say(&format!(
            "{}\n",
            json!({ "usable": usable, "checks": rows })
        ));
    } else {
        for check in &checks {
            say(&format!(
                "{} {:<10} {}\n",
                if check.ok { "✓" } else { "✗" },
                check.name,
                check.found
            ));
            if !check.ok && !check.advice.is_empty() {
                say(&format!("  {:<10} {}\n", "", check.advice));
            }
        }
    }
    Ok(u8::from(!usable))
}

fn gpu() -> Check {
    let advice = "the soft GPU serves instead: `--device soft`";
    match machine::gpu() {
        Ok(info) => {
            let (major, minor) = info.capability;
            let found = format!(
                "{}, sm_{major}{minor}, {} SMs, driver for CUDA {}.{}",
                info.name,
                info.sms,
                info.driver_version / 1000,
                info.driver_version % 1000 / 10
            );
            Check {
                name: "GPU",
                ok: true,
                found,
                advice,
            }
        }
        Err(reason) => Check {
            name: "GPU",
            ok: false,
            found: reason,
            advice,
        },
    }
}

fn soft() -> Check {
    found(
        "soft GPU",
        machine::soft_folder().map(|p| p.display().to_string()),
        "build it: `cargo xtask build`",
    )
}

fn agent() -> Check {
    found(
        "agent",
        machine::agent().map(|p| p.display().to_string()),
        "build it: `cargo xtask build`",
    )
}

fn found(
    name: &'static str,
    result: Result<String, warpbpf::Error>,
    advice: &'static str,
) -> Check {
    match result {
        Ok(found) => Check {
            name,
            ok: true,
            found,
            advice,
        },
        Err(error) => Check {
            name,
            ok: false,
            found: error.to_string(),
            advice,
        },
    }
}

fn injection() -> Check {
    let advice = "another tool holds the slot; warpbpf comes in by LD_PRELOAD instead";
    match std::env::var("CUDA_INJECTION64_PATH")
        .ok()
        .filter(|v| !v.is_empty())
    {
        None => Check {
            name: "injection",
            ok: true,
            found: "CUDA_INJECTION64_PATH is free".into(),
            advice,
        },
        Some(path) => Check {
            name: "injection",
            ok: false,
            found: format!("CUDA_INJECTION64_PATH={path}"),
            advice,
        },
    }
}

fn kernel_bpf() -> Check {
    let disabled =
        std::fs::read_to_string("/proc/sys/kernel/unprivileged_bpf_disabled").unwrap_or_default();
    let root = rustix::process::geteuid().is_root();
    let found = match (root, disabled.trim()) {
        (true, _) => "bpf() as root".to_string(),
        (false, "0") => "bpf() for everyone".to_string(),
        (false, "") => "this kernel has no bpf()".to_string(),
        (false, _) => "bpf() for root only".to_string(),
    };
    let ok = root || disabled.trim() == "0";
    Check {
        name: "kernel BPF",
        ok,
        found,
        advice: "GPU programs do not need it; host-side kernel probes will",
    }
}

fn clang() -> Check {
    let advice =
        "needed to compile .bpf.c files: `cargo xtask setup` or `apt-get install clang libbpf-dev`";
    for name in ["clang-19", "clang-22", "clang"] {
        if let Ok(output) = Command::new(name).arg("--version").output()
            && output.status.success()
        {
            let text = String::from_utf8_lossy(&output.stdout);
            let first = text.lines().next().unwrap_or(name).to_string();
            return Check {
                name: "clang",
                ok: true,
                found: first,
                advice,
            };
        }
    }
    Check {
        name: "clang",
        ok: false,
        found: "not found".into(),
        advice,
    }
}
