//! Programs on every engine that each machine has: the published suite, generated programs, and
//! what the fuzzer found.

mod cases;
mod engines;
mod found;
mod fuzz;
mod interpreter;
mod operands;

/// Searches by chance are to be as long as they can be of use (`cargo xtask test --deep`), and not
/// as short as a gate needs.
fn is_deep() -> bool {
    std::env::var_os("WARPBPF_DEEP").is_some()
}
