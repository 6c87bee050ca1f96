//! Words that stand in section names, as messages list them.

use warpbpf_abi::attach::SITES;

/// The place of programs that are kernels themselves.
pub(super) const RUN: &str = "run";

/// `a`, `b` JOINER `c`, in backticks.
pub(super) fn listed<'w>(words: impl IntoIterator<Item = &'w str>, joiner: &str) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{} {joiner} {last}", before.join(", ")),
    }
}

pub(super) fn places() -> String {
    listed(SITES.iter().map(|site| site.word()).chain([RUN]), "or")
}
