//! `warpbpf doctor`: what this machine has, what it lacks, and what follows from it.

use std::process::Command;

use serde_json::json;
use warpbpf_driver::DeviceInfo;

use crate::application::machine;
use crate::backend::assemble;
use crate::backend::available::{BackEnds, Kind, Means};
use crate::backend::ptxas::Ptxas;
use crate::backend::sanitizer;
use crate::flags::DoctorFlags;
use crate::term::error::CliError;
use crate::term::output::say;

struct Check {
    name: &'static str,
    ok: bool,
    found: String,
    advice: &'static str,
}

/// Looks and explains. Exit status 0 if kernels can be instrumented somewhere, on a GPU or the soft
/// GPU.
pub fn run(flags: &DoctorFlags) -> Result<u8, CliError> {
    let gpus = machine::gpus();
    let checks = [
        gpu(&gpus),
        soft(),
        agent(),
        injection(),
        kernel_bpf(),
        clang(),
        ptxas(),
        sanitizer(),
        cache(),
    ];
    let usable = (checks[0].ok || checks[1].ok) && checks[2].ok;
    let mut kinds = gpus.map_or_else(|_| Vec::new(), |all| Kind::of(&all));
    kinds.extend(checks[1].ok.then_some(Kind::Soft));
    let means = Means::found();
    let back_ends: Vec<BackEnds> = kinds.iter().map(|kind| kind.back_ends(&means)).collect();
    if flags.json {
        let rows: Vec<_> = checks
            .iter()
            .map(|c| json!({ "check": c.name, "ok": c.ok, "found": c.found, "advice": if c.ok { "" } else { c.advice } }))
            .collect();
        say(&format!(
            "{}\n",
            json!({
                "usable": usable,
                "checks": rows,
                "devices": back_ends.iter().map(BackEnds::json).collect::<Vec<_>>(),
            })
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
        for device in &back_ends {
            say(&device.text());
        }
    }
    Ok(u8::from(!usable))
}

fn gpu(all: &Result<Vec<DeviceInfo>, String>) -> Check {
    let found = all.as_ref().map(|all| gpus(all));
    Check {
        name: "GPU",
        ok: found.is_ok(),
        found: found.unwrap_or_else(Clone::clone),
        advice: "the soft GPU serves instead: `--device soft`",
    }
}

/// All devices in a line; several of a kind are told once.
fn gpus(all: &[DeviceInfo]) -> String {
    let kinds = Kind::of(all);
    let told: Vec<String> = kinds
        .iter()
        .filter_map(|kind| match kind {
            Kind::Gpu(info, count) => Some((info, *count)),
            Kind::Soft => None,
        })
        .map(|(info, count)| {
            let (major, minor) = info.capability;
            let times = match count {
                1 => String::new(),
                count => format!("{count} × "),
            };
            format!("{times}{}, sm_{major}{minor}, {} SMs", info.name, info.sms)
        })
        .collect();
    let version = all.first().map_or(0, |info| info.driver_version);
    format!(
        "{}, driver for CUDA {}.{}",
        told.join("; "),
        version / 1000,
        version % 1000 / 10
    )
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

fn ptxas() -> Check {
    let result = assemble::ptxas().and_then(Ptxas::new);
    Check {
        name: "ptxas",
        ok: result.is_ok(),
        found: result.map_or_else(|reason| reason, |ptxas| ptxas.file.display().to_string()),
        advice: "without it `--backend splice` and `sanitizer` are not to be had; all else is",
    }
}

fn sanitizer() -> Check {
    let result = sanitizer::library();
    Check {
        name: "sanitizer",
        ok: result.is_ok(),
        found: result.map_or_else(|reason| reason, |path| path.display().to_string()),
        advice: "without it `--backend sanitizer` is not to be had; all else is",
    }
}

fn found(
    name: &'static str,
    result: Result<String, warpbpf_tool::Error>,
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
        advice: "GPU programs do not need it; programs for Linux in the same object do (`tracepoint/`, `fentry/`, …)",
    }
}

fn cache() -> Check {
    let advice = "kernels are compiled anew each time; see `--cache`";
    let (ok, found) = match super::cache::summary() {
        Ok(found) => (true, found),
        Err(reason) => (false, reason),
    };
    Check {
        name: "code cache",
        ok,
        found,
        advice,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_a_kind_are_told_once() {
        let device = |name: &str, sms| DeviceInfo {
            name: name.into(),
            capability: (9, 0),
            sms,
            driver_version: 13_020,
        };
        let one = [device("H200", 132)];
        assert_eq!(gpus(&one), "H200, sm_90, 132 SMs, driver for CUDA 13.2");
        let several = [device("H200", 132), device("L4", 58), device("H200", 132)];
        assert_eq!(
            gpus(&several),
            "2 × H200, sm_90, 132 SMs; L4, sm_90, 58 SMs, driver for CUDA 13.2"
        );
    }
}
