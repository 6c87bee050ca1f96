//! Why a program does not run on the CPU.

use warpbpf_ebpf::interp::RunError;

/// Why a program does not run on the CPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum CpuError {
    #[error(
        "program `{program}` calls `bpf_{helper}`, which programs on the CPU are not served{}", line.as_ref().map_or(String::new(), |l| format!(" ({l})"))
    )]
    Helper {
        program: String,
        helper: String,
        line: Option<String>,
    },
    #[error(
        "program `{program}` uses map `{map}` of type {map_type}, which programs on the CPU are not served"
    )]
    Map {
        program: String,
        map: String,
        map_type: u32,
    },
    #[error(
        "program `{program}` on the CPU uses map `{map}`, which has a value per multiprocessor, and so do programs in kernels: give each side a map of its own"
    )]
    Shared { program: String, map: String },
    #[error("program `{program}` ended: {reason}{}", line.as_ref().map_or(String::new(), |l| format!(" ({l})")))]
    Trap {
        program: String,
        reason: String,
        line: Option<String>,
    },
    #[error("program `{program}` was stopped: {reason}{}", line.as_ref().map_or(String::new(), |l| format!(" ({l})")))]
    Limit {
        program: String,
        reason: String,
        line: Option<String>,
    },
    #[error("program `{program}` cannot be started: {error}")]
    Start { program: String, error: RunError },
    #[error(
        "`{program}`: the driver API has no function that section `{section}` names{}", nearest_text(.nearest)
    )]
    Api {
        program: String,
        section: String,
        nearest: Vec<&'static str>,
    },
}

pub(super) fn nearest_text(nearest: &[&str]) -> String {
    match nearest {
        [] => {
            "; write a name of `cuda.h` without its version, or a glob such as `cuMemcpy*`".into()
        }
        [one] => format!("; it has `{one}`"),
        [all @ .., last] => {
            let all: Vec<String> = all.iter().map(|name| format!("`{name}`")).collect();
            format!("; it has {} and `{last}`", all.join(", "))
        }
    }
}
