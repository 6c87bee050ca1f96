//! Instructions of the processor that this is compiled for.

// Words in, words out: tests run it anywhere.
#[cfg(any(target_arch = "aarch64", test))]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{
    FILL, REACHES, breakpoint, build, flush, jump_of, numbered, plan, plan_entry, plan_few, word_in,
};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{
    FILL, REACHES, breakpoint, build, flush, jump_of, numbered, plan, plan_entry, plan_few, word_in,
};
