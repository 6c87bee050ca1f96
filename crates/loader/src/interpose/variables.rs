//! What variables of the environment ask for.

use std::sync::OnceLock;

use crate::kernel::{Config, Tell};

/// CPUs that the tool believes in. No GPU has as many multiprocessors; those that are missing have
/// zeros.
const CPUS: u32 = 256;
/// Threads whose values a lookup in a per-thread array gives, as bpftime does.
const THREADS: u64 = 1024;
/// Environment: how many CPUs instead of [`CPUS`].
const CPUS_VARIABLE: &str = "WARPBPF_LOADER_CPUS";
/// Environment of bpftime: how many threads instead of [`THREADS`].
const THREADS_VARIABLE: &str = "BPFTIME_MAP_GPU_THREAD_COUNT";
/// Environment: programs may change the application.
const ALLOW_MODIFY: &str = "WARPBPF_LOADER_ALLOW_MODIFY";
/// Environment: instructions that one invocation may execute.
const BUDGET: &str = "WARPBPF_LOADER_BUDGET";
/// Environment: loops that nothing bounds are ended when they run.
const BOUND_LOOPS: &str = "WARPBPF_LOADER_BOUND_LOOPS";

/// A number that a variable has.
pub fn number<T: std::str::FromStr>(variable: &str) -> Option<T> {
    std::env::var(variable).ok()?.trim().parse().ok()
}

/// CPUs that the tool believes in.
pub fn cpus() -> u32 {
    static NUMBER: OnceLock<u32> = OnceLock::new();
    *NUMBER.get_or_init(|| number(CPUS_VARIABLE).filter(|n| *n > 0).unwrap_or(CPUS))
}

/// How the kernel behaves.
pub fn config(is_kernel_symbol: fn(&str) -> bool, tell: Tell) -> Config {
    Config {
        cpus: cpus(),
        threads: number(THREADS_VARIABLE)
            .filter(|n| *n > 0)
            .unwrap_or(THREADS),
        options: warpbpf_session::Options {
            allow_modify: std::env::var_os(ALLOW_MODIFY).is_some(),
            budget: number(BUDGET),
            bound_loops: std::env::var_os(BOUND_LOOPS).is_some(),
            ..warpbpf_session::Options::default()
        },
        is_kernel_symbol,
        tell,
    }
}

/// Variables of bpftime's that ask for something that is not done here. Those that only say how it
/// works there mean nothing.
const NOT_SERVED: &[(&str, &str)] = &[
    (
        "BPFTIME_PTXPASS_LIBRARIES",
        "no other passes over PTX are run; places inside kernels are `gpu/` sections",
    ),
    (
        "BPFTIME_CUDA_LATE_PTX_DIR",
        "PTX is taken from the application alone",
    ),
    (
        "BPFTIME_CUDA_DEVICE",
        "kernels are traced on every device on which the application runs them",
    ),
    ("BPFTIME_VERIFIER_LEVEL", "every program is proved"),
];

/// A text for each variable that is set and not served.
pub fn not_served(is_set: impl Fn(&str) -> bool) -> Vec<String> {
    let set = NOT_SERVED.iter().filter(|(name, _)| is_set(name));
    set.map(|(name, why)| format!("`{name}` is set, which is not served: {why}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::not_served;

    #[test]
    fn what_is_not_served_is_said() {
        assert_eq!(
            not_served(|name| name == "BPFTIME_VERIFIER_LEVEL"),
            ["`BPFTIME_VERIFIER_LEVEL` is set, which is not served: every program is proved"]
        );
        assert_eq!(not_served(|_| false), [""; 0]);
    }
}
