//! Bytes of tensor copies, which only the tensor maps know: against the bytes that the copies'
//! barriers waited for.

use crate::places::traffic;
use crate::run::{Bench, Case, Told, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![case("bytes of tensor copies", tensors)]
}

/// Kinds and spaces as `sites_mem.bpf.c` makes keys of them.
const TENSOR_COPY: u64 = 7 << 3;
const GLOBAL: u64 = 1;
const SHARED: u64 = 2;
const PREFETCH: u64 = 12 << 3;
/// Bytes of the box that is stored, added and prefetched.
const STORED: u64 = 32 * 8 * 4;

fn tensors(bench: &Bench) -> Told {
    let run = bench.both("sites_mem", "tensors", &[])?;
    let said = String::from_utf8_lossy(&run.output.stdout).into_owned();
    let sum = said.lines().find_map(|line| {
        let (copies, bytes) = line.split_once(" copies of ")?;
        let bytes = bytes.strip_suffix(" bytes")?;
        Some((copies.parse().ok()?, bytes.parse().ok()?))
    });
    let (copies, bytes): (u64, u64) = sum.ok_or(format!("no sum in {said}"))?;
    let spaces = traffic(&run, "spaces")?;
    for (what, key, copies, bytes) in [
        ("loads", TENSOR_COPY + GLOBAL, copies, bytes),
        (
            "a store and an addition",
            TENSOR_COPY + SHARED,
            2,
            2 * STORED,
        ),
        ("a prefetch", PREFETCH + GLOBAL, 1, STORED),
    ] {
        let found = spaces.get(&key.to_string()).copied();
        same(what, found, Some((copies, bytes)))?;
    }
    Ok(format!("{copies} copies of {bytes} bytes"))
}
