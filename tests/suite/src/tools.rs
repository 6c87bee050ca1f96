//! Ready-made tools: exact tables of known kernels, and what is wrong with a command line.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::attach::{Application, BLOCKS};
use crate::run::{Bench, Case, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("tools: traffic by line and by kernel", traffic),
        case("tools: coalescing and bank conflicts", patterns),
        case("tools: atomics", atomics),
        case("tools: calls of the driver", api),
        case("tools: divergence", divergence),
        case("tools: barriers", barriers),
        case("tools: lines", lines),
        case("tools: blocks", blocks),
        case("tools: launches and how late they are", launches),
        case("tools: attach", attach),
        case("tools: what is wrong", wrong),
    ]
}

/// Launches, blocks and warps of each kernel of `places.cu`.
const LAUNCHES: u64 = 2;
const GRID: u64 = 6;
const WARPS: u64 = LAUNCHES * GRID * 2;
const THREADS: u64 = WARPS * 32;

/// Elements of `reduction`, which has three launches of 64 blocks.
const SMALL: &[&str] = &["100000"];

fn command(bench: &Bench, tool: &str, flags: &[&str]) -> Command {
    let mut command = bench.warpbpf(tool);
    command.args(["--device", if bench.soft { "soft" } else { "gpu" }]);
    command.args(flags);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The rows of a tool in an application, whose output stays what it is.
struct Table {
    rows: Vec<Value>,
    errors: String,
}

impl Table {
    /// The row whose fields are these.
    fn row(&self, fields: &[(&str, Value)]) -> Result<&Value, String> {
        let is = |row: &&Value| fields.iter().all(|(name, value)| row[*name] == *value);
        let found = self.rows.iter().find(is);
        found.ok_or_else(|| format!("no row with {fields:?} in {:?}: {}", self.rows, self.errors))
    }

    /// The row of a kernel.
    fn kernel(&self, kernel: &str) -> Result<&Value, String> {
        self.row(&[("kernel", json!(kernel))])
    }

    fn is_about(&self, kernel: &str) -> bool {
        self.rows.iter().any(|row| row["kernel"] == kernel)
    }
}

fn table(
    bench: &Bench,
    (tool, flags): (&str, &[&str]),
    (app, arguments): (&str, &[&str]),
) -> Result<Table, String> {
    let saved = bench.scratch("table.json");
    let path = saved.display().to_string();
    let mut command = command(bench, tool, flags);
    command.args(["--json", "-o", &path, "--"]);
    command.arg(bench.app(app)).args(arguments);
    let output = command.output().map_err(|e| e.to_string())?;
    let errors = text(&output.stderr);
    same("status", output.status.code(), Some(0)).map_err(|e| format!("{e}: {errors}"))?;
    same(
        "output",
        text(&output.stdout),
        text(&bench.plain(app, arguments)?),
    )?;
    let found = std::fs::read_to_string(&saved).map_err(|e| e.to_string())?;
    let found: Value = serde_json::from_str(&found).map_err(|e| format!("{e}: {found}"))?;
    same("tool", &found["tool"], &json!(tool))?;
    let rows = found["rows"].as_array().cloned().ok_or("no rows")?;
    Ok(Table { rows, errors })
}

/// The fields of a row that are counted are these.
fn has(row: &Value, fields: &[(&str, u64)]) -> Result<(), String> {
    for (name, expected) in fields {
        same(&format!("{name} of {row}"), &row[*name], &json!(expected))?;
    }
    Ok(())
}

fn number(row: &Value, name: &str) -> Result<f64, String> {
    let number = row[name].as_f64();
    number.ok_or_else(|| format!("no number `{name}` in {row}"))
}

fn traffic(bench: &Bench) -> Told {
    let found = table(bench, ("traffic", &["--by", "kernel"]), ("places", &[]))?;
    // Two loads of 16 bytes and one of 4, a store of 16.
    let (load, store) = (36 * THREADS, 16 * THREADS);
    let counted = [
        ("load_bytes", load),
        ("store_bytes", store),
        ("atomic_bytes", 0),
        ("total_bytes", load + store),
    ];
    has(found.kernel("vectors")?, &counted)?;
    // The largest comes first.
    same("first", &found.rows[0]["kernel"], &json!("vectors"))?;
    let words = [("load_bytes", 0), ("store_bytes", 4 * THREADS)];
    has(found.kernel("products")?, &words)?;
    let shares = found.rows.iter().map(|row| number(row, "share"));
    let all: f64 = shares.sum::<Result<f64, String>>()?;
    if (all - 1.0).abs() > 1e-9 {
        return Err(format!("shares are {all} together"));
    }
    // By line, of one kernel.
    let found = table(
        bench,
        ("traffic", &["--kernel", "reduce*"]),
        ("reduction", SMALL),
    )?;
    same("rows", found.rows.len(), 2)?;
    let loads = found.row(&[("file", json!("reduction.cu")), ("line", json!(23))])?;
    has(
        loads,
        &[("load_bytes", 4 * 100_000 * 3), ("store_bytes", 0)],
    )?;
    // An atomic of 8 bytes of each block.
    let atomics = found.row(&[("line", json!(35))])?;
    has(atomics, &[("atomic_bytes", 8 * 64 * 3), ("load_bytes", 0)])?;
    if found.errors.contains("stands nowhere") {
        return Err(found.errors);
    }
    Ok(format!("{} bytes", load + store))
}

/// Each kernel of `patterns.cu` has 32 warps.
fn patterns(bench: &Bench) -> Told {
    const WARPS: u64 = 32;
    let found = table(bench, ("coalescing", &[]), ("patterns", &[]))?;
    for (kernel, sectors, best) in [
        ("sideBySide", 4, 4),
        ("everyOther", 8, 4),
        ("inColumns", 32, 4),
        ("oneTooFar", 5, 4),
        ("transposeTile", 4, 4),
    ] {
        let row = [("kernel", json!(kernel)), ("access", json!("load"))];
        let row = found.row(&row)?;
        let (moved, extra) = (32 * WARPS * sectors, 32 * WARPS * (sectors - best));
        let fields = [
            ("accesses", WARPS),
            ("moved_bytes", moved),
            ("extra_bytes", extra),
        ];
        has(row, &fields)?;
        same("sectors", number(row, "sectors")?, sectors as f64)?;
        same("best", number(row, "best")?, best as f64)?;
    }
    // Stores are side by side in all of them.
    for row in found.rows.iter().filter(|row| row["access"] == "store") {
        has(row, &[("extra_bytes", 0)])?;
    }
    same("worst", &found.rows[0]["kernel"], &json!("inColumns"))?;
    let found = table(bench, ("bankconflicts", &[]), ("patterns", &[]))?;
    same("rows", found.rows.len(), 4)?;
    for (kernel, access, turns) in [
        ("transposeTile", "load", 32),
        ("transposeTile", "store", 1),
        ("transposePadded", "load", 1),
        ("transposePadded", "store", 1),
    ] {
        let row = found.row(&[("kernel", json!(kernel)), ("access", json!(access))])?;
        let extra = WARPS * (turns - 1);
        has(
            row,
            &[("accesses", WARPS), ("worst", turns), ("extra", extra)],
        )?;
        same("turns", number(row, "turns")?, turns as f64)?;
        let share = if turns > 1 { 1.0 } else { 0.0 };
        same("conflicts", number(row, "conflicts")?, share)?;
    }
    Ok("exact".into())
}

fn atomics(bench: &Bench) -> Told {
    let found = table(bench, ("atomics", &[]), ("reduction", SMALL))?;
    same("rows", found.rows.len(), 1)?;
    let fields = [
        ("warps", 192),
        ("operations", 192),
        ("global", 192),
        ("shared", 0),
    ];
    has(found.kernel("reduceSum")?, &fields)?;
    // Of a line in shared memory: each thread of `waits` in each round.
    let found = table(bench, ("atomics", &["--kernel", "waits"]), ("places", &[]))?;
    let operations = found.rows.iter().map(|row| number(row, "operations"));
    let operations = operations.sum::<Result<f64, String>>()?;
    same("operations", operations, (5 * THREADS) as f64)?;
    let none = table(bench, ("atomics", &[]), ("vectoradd", &["5000"]))?;
    same("rows without any", none.rows.len(), 0)?;
    Ok("exact".into())
}

fn api(bench: &Bench) -> Told {
    let found = table(bench, ("api", &[]), ("vectoradd", &["5000", "7"]))?;
    let launches = found.row(&[("function", json!("cuLaunchKernel"))])?;
    has(launches, &[("calls", 7), ("errors", 0)])?;
    let (longest, total) = (
        number(launches, "longest_ns")?,
        number(launches, "total_ns")?,
    );
    if longest > total || longest <= 0.0 {
        return Err(format!("{launches}"));
    }
    for row in &found.rows {
        has(row, &[("errors", 0)])?;
    }
    Ok(format!("{} functions", found.rows.len()))
}

fn divergence(bench: &Bench) -> Told {
    let found = table(bench, ("divergence", &[]), ("places", &[]))?;
    // Lanes 0 to 4 take it.
    let over = found.row(&[("kernel", json!("diverges")), ("line", json!(1007))])?;
    has(over, &[("branches", WARPS), ("splits", WARPS)])?;
    if bench.soft {
        // Of each warp one lane after the other leaves the loop; the last one is alone.
        let again = found.row(&[("kernel", json!("diverges")), ("line", json!(1016))])?;
        has(again, &[("branches", 32 * WARPS), ("splits", 31 * WARPS)])?;
        same("lanes", number(again, "lanes")?, 16.5)?;
    }
    // The loop of half of the warps is left by all of their lanes at once.
    let together = found.row(&[("kernel", json!("waits")), ("line", json!(39))])?;
    has(together, &[("splits", 0)])?;
    if found.is_about("vectors") {
        return Err("`vectors` has no branch".into());
    }
    Ok("exact".into())
}

fn barriers(bench: &Bench) -> Told {
    let found = table(bench, ("barriers", &[]), ("places", &[]))?;
    let mut lines: Vec<&Value> = found.rows.iter().collect();
    lines.retain(|row| row["kernel"] == "waits");
    same("barriers", lines.len(), 2)?;
    for row in &lines {
        has(row, &[("waits", 5 * WARPS)])?;
        let (average, cycles) = (number(row, "average")?, number(row, "cycles")?);
        let rounded = (average * (5 * WARPS) as f64).round();
        same("average", rounded, cycles)?;
        if number(row, "longest")? < average {
            return Err(format!("{row}"));
        }
    }
    has(found.kernel("given")?, &[("waits", WARPS)])?;
    if found.is_about("vectors") {
        return Err("`vectors` has no barrier".into());
    }
    Ok(format!("{} waits", 11 * WARPS))
}

fn lines(bench: &Bench) -> Told {
    let found = table(bench, ("lines", &[]), ("vectoradd", &["5000", "2"]))?;
    let add = found.row(&[("file", json!("vectoradd.cu")), ("line", json!(21))])?;
    // The end of the kernel: one instruction of each of 20 blocks' 8 warps in two launches.
    has(add, &[("instructions", 2 * 20 * 8)])?;
    let by_kernel = table(
        bench,
        ("lines", &["--by", "kernel"]),
        ("vectoradd", &["5000", "2"]),
    )?;
    let all: f64 =
        (found.rows.iter().map(|row| number(row, "instructions"))).sum::<Result<f64, String>>()?;
    let whole = by_kernel.kernel("vectorAdd")?;
    same("all", number(whole, "instructions")?, all)?;
    same("share", number(whole, "share")?, 1.0)?;
    Ok(format!("{all} instructions"))
}

fn blocks(bench: &Bench) -> Told {
    const ALL: u64 = 3 * 64;
    let found = table(bench, ("blocks", &[]), ("reduction", SMALL))?;
    same("rows", found.rows.len(), 1)?;
    let row = found.kernel("reduceSum")?;
    has(row, &[("blocks", ALL)])?;
    let of = |name: &str| number(row, name);
    let (half, most, longest) = (of("p50_ns")?, of("p99_ns")?, of("longest_ns")?);
    let (total, empty, block) = (of("total_ns")?, of("empty")?, of("block")?);
    let ordered = half <= most && most <= longest && longest <= total;
    if !ordered || !(0.0..=1.0).contains(&empty) || block >= 64.0 {
        return Err(format!("{row}"));
    }
    let found = table(bench, ("blocks", &["--by", "sm"]), ("reduction", SMALL))?;
    let counts = found.rows.iter().map(|row| number(row, "blocks"));
    same("blocks", counts.sum::<Result<f64, String>>()?, ALL as f64)?;
    let sms: Vec<&Value> = found.rows.iter().map(|row| &row["sm"]).collect();
    if bench.soft {
        same("SMs", sms.len(), 4)?;
    }
    // Sorted by time.
    let totals = found.rows.iter().map(|row| number(row, "total_ns"));
    let totals = totals.collect::<Result<Vec<f64>, String>>()?;
    same("sorted", totals.is_sorted_by(|a, b| a >= b), true)?;
    Ok(format!("{ALL} blocks on {} SMs", sms.len()))
}

fn launches(bench: &Bench) -> Told {
    let found = table(bench, ("launches", &[]), ("places", &[]))?;
    same("kernels", found.rows.len(), 7)?;
    for row in &found.rows {
        let fields = [
            ("launches", LAUNCHES),
            ("blocks", LAUNCHES * GRID),
            ("threads", 64),
        ];
        has(row, &fields)?;
        number(row, "time_ns")?;
    }
    let found = table(bench, ("launchlate", &[]), ("places", &[]))?;
    same("kernels", found.rows.len(), 7)?;
    for row in &found.rows {
        has(row, &[("launches", LAUNCHES)])?;
        if number(row, "longest_ns")? > number(row, "total_ns")? {
            return Err(format!("{row}"));
        }
    }
    let one = table(
        bench,
        ("launches", &["--kernel", "waits", "--sort", "blocks"]),
        ("places", &[]),
    )?;
    same("kernels", one.rows.len(), 1)?;
    Ok("exact".into())
}

fn attach(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    let pid = application.pid();
    let mut tool = bench.warpbpf("blocks");
    tool.args(["--json", "--kernel", "step*", "--duration", "2", "-p", &pid]);
    tool.stdout(std::process::Stdio::piped());
    tool.stderr(std::process::Stdio::piped());
    let mut child = crate::process::Owned::spawn(&mut tool).map_err(|e| e.to_string())?;
    let mut launches = 0;
    while child.try_wait().map_err(|e| e.to_string())?.is_none() {
        application.launch(1)?;
        launches += 1;
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let output = child.output().map_err(|e| e.to_string())?;
    let (found, errors) = (text(&output.stdout), text(&output.stderr));
    same("status", output.status.code(), Some(0)).map_err(|e| format!("{e}: {errors}"))?;
    let found: Value = serde_json::from_str(&found).map_err(|e| format!("{e}: {found}"))?;
    let blocks = found["rows"][0]["blocks"].as_u64();
    let blocks = blocks.ok_or_else(|| format!("{found}{errors}"))?;
    if blocks == 0 || !blocks.is_multiple_of(BLOCKS) || blocks > launches * BLOCKS {
        return Err(format!("{blocks} blocks of {launches} launches: {errors}"));
    }
    application.launch(2)?;
    application.end()?;
    Ok(format!("{blocks} blocks of {launches} launches"))
}

fn wrong(bench: &Bench) -> Told {
    let end = |tool: &str, flags: &[&str]| -> Result<(Option<i32>, String, String), String> {
        let mut command = command(bench, tool, flags);
        let Output {
            status,
            stdout,
            stderr,
        } = command.output().map_err(|e| e.to_string())?;
        Ok((status.code(), text(&stdout), text(&stderr)))
    };
    // It is never started.
    let app: &[&str] = &["--", "/nonexistent/app"];
    let refused = |tool: &str, flags: &[&str], message: &str| -> Result<(), String> {
        let expected = (Some(2), String::new(), format!("warpbpf: {message}\n"));
        same(message, end(tool, &[flags, app].concat())?, expected)
    };
    refused(
        "traffic",
        &["--sort", "size"],
        "traffic: there is no column `size`; the columns are kernel, line, load, store, atomic, total, share",
    )?;
    refused(
        "blocks",
        &["--by", "line"],
        "blocks: there is no row by `line`; there are kernel, sm",
    )?;
    refused(
        "lines",
        &["--kernel", "a|b"],
        "lines: `a|b` is no glob over kernels",
    )?;
    refused("api", &["--kernel", "k"], "api: it looks at no kernels")?;
    let nothing = "warpbpf: blocks: name an application (`-- APP`) or a process (`-p PID`)\n";
    let expected = (Some(2), String::new(), nothing.to_owned());
    same("nothing", end("blocks", &[])?, expected)?;
    // The script that it runs, with the kernel in its probes.
    let flags = ["--script", "--kernel", "void gemm<float, 4>*"];
    let (status, script, _) = end("traffic", &flags)?;
    same("status", status, Some(0))?;
    says(
        &script,
        "\ngpu:mem.warp:\"void gemm<float, 4>*\"|space=global,kind=load+store",
    )?;
    // Where there is nothing to show.
    let saved = bench.scratch("nothing.txt");
    let path = saved.display().to_string();
    let mut barriers = command(bench, "barriers", &["-o", &path]);
    barriers.arg("--").arg(bench.app("vectoradd"));
    let output = barriers.arg("5000").output().map_err(|e| e.to_string())?;
    same("status", output.status.code(), Some(0))?;
    let found = std::fs::read_to_string(&saved).map_err(|e| e.to_string())?;
    same(
        "nothing",
        found,
        "No kernel with programs came to a barrier.\n".into(),
    )?;
    Ok("each is told".into())
}
