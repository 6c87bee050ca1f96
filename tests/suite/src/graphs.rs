//! Kernels in graphs, however they came there: what programs count is what the application says that it ran.

use crate::run::{Bench, Case, Run, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("graphs: every scope, every way to build one", scopes),
        case("graphs: launches in the report", launches),
    ]
}

/// Threads of every block that tests/apps/graphs.cu launches.
const THREADS: u64 = 64;

/// What the application ran of a kernel: launches and blocks.
fn ran(run: &Run, kernel: &str) -> Result<(u64, u64), String> {
    let text = String::from_utf8_lossy(&run.output.stdout).into_owned();
    let line = format!("ran {kernel}: ");
    let rest = text.lines().find_map(|l| l.strip_prefix(&line));
    let mut words = rest.into_iter().flat_map(|rest| rest.split(' '));
    let mut number = || words.find_map(|word| word.parse().ok());
    let both = number().zip(number());
    both.ok_or_else(|| format!("`{line}` is not in `{text}`"))
}

/// Kernels that are instrumented, and what the application is known to run of each.
const KERNELS: &[(&str, u64, u64)] = &[("grow", 46, 97), ("mix", 7, 21), ("add", 192, 7680)];

fn scopes(bench: &Bench) -> Told {
    let run = bench.both("scopes", "graphs", &[])?;
    for (name, launches, blocks) in KERNELS {
        same(
            &format!("{name} ran"),
            ran(&run, name)?,
            (*launches, *blocks),
        )?;
        let id = run.kernel(name)?["id"].as_u64();
        let base = id.ok_or(format!("{name} has no id"))? * 8;
        let threads = blocks * THREADS;
        for (offset, expected, what) in [
            (0, threads, "entry"),
            (1, threads / 32, "entry.warp"),
            (2, *blocks, "entry.block"),
            (4, threads, "exit"),
            (5, threads / 32, "exit.warp"),
            (6, *blocks, "exit.block"),
        ] {
            let found = run.value("counts", base + offset)?;
            // The lanes of a warp may arrive in more than one group.
            let groups = offset == 1 && found > expected && found <= threads;
            if !groups {
                same(&format!("{name}: {what}"), found, expected)?;
            }
        }
    }
    counted(&run)?;
    Ok(format!("{} kernels × 6 scopes", KERNELS.len()))
}

/// Launches in the report are those of graphs and of streams together.
fn counted(run: &Run) -> Result<(), String> {
    for (name, launches, _) in KERNELS {
        let kernel = run.kernel(name)?;
        let told = (kernel["launches"].as_u64(), kernel["missed"].as_u64());
        same(
            &format!("{name}: launches"),
            told,
            (Some(*launches), Some(0)),
        )?;
    }
    // A kernel that cannot be instrumented runs as it was, in a graph too.
    let kernel = run.kernel("sealed")?;
    says(
        kernel["way"].as_str().unwrap_or_default(),
        "warpbpf's own code",
    )?;
    Ok(())
}

fn launches(bench: &Bench) -> Told {
    let run = bench.both("threadhist", "graphs", &[])?;
    counted(&run)?;
    let all: u64 = KERNELS.iter().map(|(_, _, blocks)| blocks * THREADS).sum();
    same("threads", run.map("threads")?["sum"].as_u64(), Some(all))?;
    Ok(format!("{all} threads"))
}
