//! The time waited at every kind of barrier, by threads that are known to wait for others.

use std::collections::BTreeMap;

use crate::run::{Bench, Case, Told, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![case("time waited, by kind of barrier", waits)]
}

/// Of tests/apps/waits.cu: a step is a multiplication that needs the one before it, so it takes a
/// cycle at least.
const STEPS: u64 = 20_000;
const BLOCK: u64 = 128;
const THREADS: u64 = 4 * BLOCK;

/// Whether a thread comes late.
type IsLate = fn(u64) -> bool;

/// The kernels in the order of `waits.bpf.c`, and which of their threads come late.
const KERNELS: [(&str, IsLate); 5] = [
    ("barrier.sync", |thread| thread % BLOCK < 32),
    ("barrier.red", |thread| thread % BLOCK < 32),
    ("bar.warp.sync", |thread| thread % 32 < 8),
    ("barrier.cluster.wait", |thread| {
        (thread / BLOCK).is_multiple_of(2)
    }),
    ("mbarrier.try_wait", |thread| thread % BLOCK < 32),
];

fn waits(bench: &Bench) -> Told {
    let run = bench.both("waits", "waits", &[])?;
    let mut waits = BTreeMap::new();
    for (key, value) in run.entries("waits")? {
        let field = |name: &str| value[name].as_u64();
        let pair = (field("times"), field("cycles"));
        let (Some(key), (Some(times), Some(cycles))) = (key.as_u64(), pair) else {
            return Err(format!("not an entry: {key}: {value}"));
        };
        waits.insert(key, (times, cycles));
    }
    let mut told = Vec::new();
    for (kernel, (name, is_late)) in KERNELS.iter().enumerate() {
        let (mut late, mut waiting) = (Vec::new(), Vec::new());
        for thread in 0..THREADS {
            let key = kernel as u64 * THREADS + thread;
            let (times, cycles) = waits.get(&key).copied().unwrap_or_default();
            match is_late(thread) {
                true => late.push((times, cycles)),
                false => waiting.push((times, cycles)),
            }
        }
        // Who comes late arrives at an mbarrier and does not wait. A try may come back before its
        // time.
        let tries = name.starts_with("mbarrier");
        let once = |waits: &[(u64, u64)]| waits.iter().all(|(times, _)| *times == 1);
        let tried = waiting.iter().all(|(times, _)| *times >= 1);
        let never = late.iter().all(|(times, _)| *times == 0);
        let counted = if tries {
            tried && never
        } else {
            once(&waiting) && once(&late)
        };
        same(
            &format!("{name}: each thread's waits are seen"),
            counted,
            true,
        )?;
        let least = waiting.iter().map(|(_, cycles)| *cycles).min();
        let least = least.unwrap_or_default();
        // Lanes of one warp do not run at once: those that wait may not have come before the late
        // ones are there.
        if least < STEPS && !name.starts_with("bar.warp") {
            return Err(format!(
                "{name}: a thread that waited for {STEPS} steps of others was told {least} cycles"
            ));
        }
        let average = late.iter().map(|(_, cycles)| cycles).sum::<u64>() / late.len() as u64;
        told.push(format!("{name} {least} (late {average})"));
    }
    Ok(told.join(", "))
}
