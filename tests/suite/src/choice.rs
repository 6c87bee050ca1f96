//! Fewer launches, by the user's choice: what is left out runs as it is, and is counted.

use crate::run::{Bench, Case, Run, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("launches are chosen by number and grid", by_number),
        case("launches are chosen by device", by_device),
        case("launches in graphs are not chosen by number", in_graphs),
    ]
}

/// Launches of `vectoradd 100000 10`, and threads of each.
const LAUNCHES: u64 = 10;
const THREADS: u64 = 391 * 256;

/// Launches with probes and without, and what a program counted.
fn chosen(bench: &Bench, flags: &[&str]) -> Result<(u64, u64, u64), String> {
    let run = bench.both_with(flags, "launchcount", "vectoradd", &["100000", "10"])?;
    let entries = run.entries("kernels")?;
    let threads = entries.first().map_or(Some(0), |e| e.1["threads"].as_u64());
    let kernel = run.kernel("vectorAdd")?;
    let number = |name: &str| kernel[name].as_u64().unwrap_or(0);
    same("uninstrumented", number("uninstrumented"), 0)?;
    Ok((number("launches"), number("skipped"), threads.unwrap_or(0)))
}

fn by_number(bench: &Bench) -> Told {
    let cases: [(&[&str], u64); 8] = [
        (&[], 10),
        (&["--every", "3"], 4),
        (&["--after", "4"], 6),
        (&["--every", "2", "--after", "3", "--at-most", "3"], 3),
        (&["--at-most", "0"], 0),
        (&["--min-blocks", "391"], 10),
        (&["--min-blocks", "392"], 0),
        (&["--max-blocks", "390"], 0),
    ];
    for (flags, launches) in cases {
        let expected = (launches, LAUNCHES - launches, launches * THREADS);
        same(&flags.join(" "), chosen(bench, flags)?, expected)?;
    }
    let refused = bench
        .warpbpf("run")
        .args(["--every", "0", "x.o", "--", "x"])
        .output();
    let refused = refused.map_err(|e| format!("warpbpf: {e}"))?;
    says(&String::from_utf8_lossy(&refused.stderr), "--every <N>")?;
    Ok(format!("{} choices", cases.len()))
}

/// With one device, that it is chosen or not; with two, only one has launches.
fn by_device(bench: &Bench) -> Told {
    for (gpus, launches) in [("0", LAUNCHES), ("1,2", 0)] {
        let expected = (launches, LAUNCHES - launches, launches * THREADS);
        same(gpus, chosen(bench, &["--gpus", gpus])?, expected)?;
    }
    let bench = bench.with(&[("WARPBPF_SOFT_DEVICES", "2")]);
    if bench.plain("twogpus", &["2"])? == b"one GPU\n" {
        return Ok("one GPU".to_owned());
    }
    let run = bench.both_with(&["--gpus", "1"], "twogpus", "twogpus", &["2"])?;
    let kernel = run.kernel("fill")?;
    let number = |name: &str| kernel[name].as_u64().unwrap_or(0);
    // Three launches on the first device, and four and two on the second, which is reset between.
    let counts = (
        number("launches"),
        number("skipped"),
        number("uninstrumented"),
    );
    same("launches on the second device", counts, (6, 3, 0))?;
    Ok("of two".to_owned())
}

fn in_graphs(bench: &Bench) -> Told {
    let skipped = |run: &Run, name: &str| -> Result<(u64, u64), String> {
        let kernel = run.kernel(name)?;
        let number = |what: &str| kernel[what].as_u64().unwrap_or(0);
        Ok((number("launches"), number("skipped")))
    };
    let run = bench.both_with(&["--every", "2"], "scopes", "graphs", &[])?;
    let text = String::from_utf8_lossy(&run.output.stderr).into_owned();
    let note = "is in a graph, whose launches all run the same: chosen by number or stream (every=2) it runs without probes there";
    says(&format!("{text}{}", run.report), note)?;
    // All of its launches are in graphs.
    same("add", skipped(&run, "add")?, (0, 192))?;
    // By grid they are chosen.
    let run = bench.both_with(&["--min-blocks", "1000"], "scopes", "graphs", &[])?;
    same("add", skipped(&run, "add")?, (0, 192))?;
    let run = bench.both_with(&["--min-blocks", "2"], "scopes", "graphs", &[])?;
    same("add", skipped(&run, "add")?, (192, 0))?;
    Ok("192 launches".to_owned())
}
