//! Scripts: what a person types on one line is compiled, runs in kernels and beside them, and
//! prints exact numbers.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::attach::{Application, BLOCKS};
use crate::run::{Bench, Case, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("trace: counts, sums and keys", counts),
        case("trace: every aggregate under many lanes", aggregates),
        case("trace: accesses by kind, file and line", accesses),
        case("trace: loops, branches and printf", flow),
        case("trace: from the call to the kernel", calls),
        case("trace: blocks of the tool", blocks),
        case("trace: expressions in kernels and in the tool", expressions),
        case("trace: keys that find no room", no_room),
        case("trace: several processes as one", processes),
        case("trace: attach, and out by exit()", attach),
        case("trace: what is wrong", wrong),
    ]
}

/// Two launches with 20 blocks of 256 threads.
const ARGUMENTS: &[&str] = &["5000", "2"];
const LAUNCHES: u64 = 2;
const GRID: u64 = 20;
const THREADS: u64 = GRID * 256;

fn command(bench: &Bench, flags: &[&str], script: &str) -> Command {
    let mut command = bench.warpbpf("trace");
    command.args(flags).args(["-e", script]);
    command
}

/// What a script in an application prints.
pub struct Traced {
    /// Lines of JSON.
    pub lines: Vec<Value>,
    output: Output,
}

impl Traced {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    fn errors(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// A map as the last line that has it shows it.
    pub fn map(&self, name: &str) -> Result<Value, String> {
        let mut lines = self.lines.iter().rev();
        let found = lines.find_map(|line| line["data"].get(name).cloned());
        found.ok_or_else(|| format!("no `{name}` in {:?}: {}", self.lines, self.errors()))
    }

    /// It shows this.
    pub fn is(&self, name: &str, expected: Value) -> Result<(), String> {
        same(name, self.map(name)?, expected)
    }
}

/// Runs vectoradd, whose output stays what it is.
fn traced(bench: &Bench, flags: &[&str], script: &str) -> Result<Traced, String> {
    traced_in(bench, ("vectoradd", ARGUMENTS), flags, script)
}

/// Runs an application, whose output stays what it is.
pub fn traced_in(
    bench: &Bench,
    (app, arguments): (&str, &[&str]),
    flags: &[&str],
    script: &str,
) -> Result<Traced, String> {
    let saved = bench.scratch("trace");
    let path = saved.display().to_string();
    let mut all = vec!["-f", "json", "-o", path.as_str()];
    all.extend(flags);
    let mut command = command(bench, &all, script);
    command.arg("--").arg(bench.app(app)).args(arguments);
    let output = command.output().map_err(|e| e.to_string())?;
    let text = std::fs::read_to_string(&saved).unwrap_or_default();
    let lines = text.lines().map(serde_json::from_str);
    let lines: Result<Vec<Value>, _> = lines.collect();
    let run = Traced {
        lines: lines.map_err(|e| format!("{e}: {text}"))?,
        output,
    };
    if run.output.status.code() != Some(0) {
        return Err(format!("{}: {}", run.output.status, run.errors()));
    }
    let alone = bench.plain(app, arguments)?;
    same(
        "output",
        run.text(),
        String::from_utf8_lossy(&alone).into_owned(),
    )?;
    Ok(run)
}

fn counts(bench: &Bench) -> Told {
    let script = "
        gpu:entry:* { @ = count(); @sum[block % 7] = sum(thread); @kernels[kernel, launch] = count() }
        gpu:entry.warp:* { @lanes = sum(active) }
        gpu:exit.block:vectorAdd* { @blocks = count() }";
    let run = traced(bench, &[], script)?;
    run.is("@", json!(LAUNCHES * THREADS))?;
    run.is("@lanes", json!(LAUNCHES * THREADS))?;
    run.is("@blocks", json!(LAUNCHES * GRID))?;
    run.is(
        "@kernels",
        json!({ "vectorAdd,1": THREADS, "vectorAdd,2": THREADS }),
    )?;
    let mut sums = BTreeMap::new();
    for thread in 0..THREADS {
        *sums.entry((thread / 256 % 7).to_string()).or_insert(0) += LAUNCHES * thread;
    }
    same(
        "@sum",
        run.map("@sum")?,
        serde_json::to_value(sums).unwrap_or_default(),
    )?;
    Ok(format!("{} threads", LAUNCHES * THREADS))
}

fn aggregates(bench: &Bench) -> Told {
    let script = "
        gpu:exit:* {
            $t = thread - 100;
            @min = min($t); @max = max($t); @avg = avg($t); @stats[kernel] = stats($t);
            @low[lane % 2] = min($t); @high[lane % 2] = max(-$t);
            @h = hist($t); @hk[warp] = hist(lane); @l[warp % 2] = lhist(lane, 8, 24, 8);
            @v += 2; @v -= 1; @n[lane]++; @bits[warp] |= 1 << lane; @last = kernel;
        }";
    let run = traced(bench, &[], script)?;
    let (most, all) = (THREADS as i64 - 101, (LAUNCHES * THREADS) as i64);
    let sum: i64 = (-100..=most).sum::<i64>() * LAUNCHES as i64;
    run.is("@min", json!(-100))?;
    run.is("@max", json!(most))?;
    run.is("@avg", json!(sum / all))?;
    let stats = json!({ "count": all, "average": sum / all, "total": sum });
    run.is("@stats", json!({ "vectorAdd": stats }))?;
    // Sorted by value.
    run.is("@low", json!({ "0": -100, "1": -99 }))?;
    run.is("@high", json!({ "1": 99, "0": 100 }))?;
    run.is("@v", json!(all))?;
    run.is("@last", json!("vectorAdd"))?;
    let lanes: BTreeMap<String, i64> = (0..32).map(|lane| (lane.to_string(), all / 32)).collect();
    same(
        "@n",
        run.map("@n")?,
        serde_json::to_value(lanes).unwrap_or_default(),
    )?;
    let warps = |value: Value| -> BTreeMap<String, Value> {
        (0..8)
            .map(|warp| (warp.to_string(), value.clone()))
            .collect()
    };
    let bits = serde_json::to_value(warps(json!(0xffff_ffffu32))).unwrap_or_default();
    same("@bits", run.map("@bits")?, bits)?;
    let mut rows = vec![json!({ "max": -1, "count": 100 * LAUNCHES })];
    let mut from = 0;
    while from <= most {
        let to = if from == 0 { 1 } else { 2 * from };
        let count = (to.min(most + 1) - from) * LAUNCHES as i64;
        rows.push(json!({ "min": from, "max": to - 1, "count": count }));
        from = to;
    }
    run.is("@h", Value::Array(rows))?;
    let per_warp = all / 8 / 32;
    let hk: Vec<Value> = [
        (0, 0, 1),
        (1, 1, 1),
        (2, 3, 2),
        (4, 7, 4),
        (8, 15, 8),
        (16, 31, 16),
    ]
    .iter()
    .map(|(min, max, lanes)| json!({ "min": min, "max": max, "count": lanes * per_warp }))
    .collect();
    let hk = serde_json::to_value(warps(Value::Array(hk))).unwrap_or_default();
    same("@hk", run.map("@hk")?, hk)?;
    let row = json!([
        { "max": 7, "count": all / 8 },
        { "min": 8, "max": 15, "count": all / 8 },
        { "min": 16, "max": 23, "count": all / 8 },
        { "min": 24, "count": all / 8 },
    ]);
    run.is("@l", json!({ "0": row, "1": row }))?;
    Ok(format!("{all} threads"))
}

fn accesses(bench: &Bench) -> Told {
    let script = "
        gpu:mem:*|space=global { @bytes[kernel, kind] = sum(size); @at[file, space] = count() }
        gpu:mem:* /kind == \"store\" && space == \"global\"/ { @stores[site] = count() }";
    let run = traced(bench, &[], script)?;
    let each = 5000 * LAUNCHES;
    run.is(
        "@bytes",
        json!({ "vectorAdd,store": 4 * each, "vectorAdd,load": 8 * each }),
    )?;
    run.is("@at", json!({ "vectoradd.cu,global": 3 * each }))?;
    let stores = run.map("@stores")?.to_string();
    says(&stores, "vectorAdd at vectoradd.cu:")?;
    says(&stores, &format!("st.global.f32\":{each}"))?;
    Ok(format!("{} accesses", 3 * each))
}

fn flow(bench: &Bench) -> Told {
    let script = "
        gpu:entry:* /lane == 3 && threadIdx.x < 32/ {
            $i = 0; $sum = 0;
            while (1) { $i++; if ($i > 4) { break } if ($i == 2) { continue } $sum += $i }
            for ($j : 0..3) { $sum += 100 }
            unroll (2) { $sum -= 1000 }
            @sum = sum($sum);
            if (block == 7) { printf(\"%s %d %05d %s\\n\", kernel, block, -$sum, $sum < 0 ? \"less\" : \"more\") }
            else if (block > 7) { @more = count(); return }
            @few[block > 3 || !block ? \"outer\" : \"inner\"] = count();
        }";
    let run = traced(bench, &[], script)?;
    // 1 + 3 + 4 + 300 - 2,000
    run.is("@sum", json!((LAUNCHES * GRID) as i64 * -1692))?;
    run.is("@more", json!(LAUNCHES * (GRID - 8)))?;
    run.is(
        "@few",
        json!({ "inner": LAUNCHES * 3, "outer": LAUNCHES * 5 }),
    )?;
    let printed = json!({ "type": "printf", "data": "vectorAdd 7 01692 less\n" });
    let lines = run.lines.iter().filter(|line| line["type"] == "printf");
    same(
        "lines",
        lines.cloned().collect(),
        vec![printed; LAUNCHES as usize],
    )?;
    Ok("exact".into())
}

fn calls(bench: &Bench) -> Told {
    let script = "
        cuda:cuLaunchKernel { @calls[kernel] = count(); @made[launch, \"called\"] = count() }
        gpu:entry.block:* { @made[launch, \"began\"] = count() }
        cudaret:cuMemcpy* /retval == 0/ { @bytes = sum(arg2); @time = hist(duration) }";
    let run = traced(bench, &[], script)?;
    run.is("@calls", json!({ "vectorAdd": LAUNCHES }))?;
    run.is(
        "@made",
        json!({ "1,called": 1, "2,called": 1, "1,began": GRID, "2,began": GRID }),
    )?;
    // Two vectors there and one back. NVIDIA's runtime loads the kernel behind the first two, and
    // programs at calls come in with the first kernel.
    let seen = if bench.soft { 3 } else { 1 };
    run.is("@bytes", json!(seen * 5000 * 4))?;
    let times = run.map("@time")?;
    let rows = times.as_array().cloned().unwrap_or_default();
    let copies: u64 = rows.iter().filter_map(|row| row["count"].as_u64()).sum();
    same("copies", copies, seen)?;
    Ok("exact".into())
}

fn blocks(bench: &Bench) -> Told {
    let script = "
        BEGIN { printf(\"begin %d\\n\", elapsed < 1m) }
        gpu:entry.block:* { @ = count(); @k[block] = count(); @a[kernel] = avg(block) }
        END { $sum = 0; for ($i : 0..100) { $sum += @k[$i] } printf(\"%d %d\\n\", @, $sum); print(@k, 2); clear(@k); zero(@a) }";
    let run = traced(bench, &[], script)?;
    let all = LAUNCHES * GRID;
    same("first", &run.lines[0]["data"], &json!("begin 1\n"))?;
    same(
        "last",
        &run.lines[1]["data"],
        &json!(format!("{all} {all}\n")),
    )?;
    let top = run.lines[2]["data"]["@k"]
        .as_object()
        .map_or(0, |keys| keys.len());
    same("the largest", top, 2)?;
    // What was cleared and has nothing since is not shown, and what begins anew with its keys is
    // empty.
    same("maps", run.lines.len(), 5)?;
    run.is("@", json!(all))?;
    let mut tool = command(
        bench,
        &[],
        "BEGIN { printf(\"%d %s\\n\", 6 * 7, \"ok\"); exit() } END { printf(\"end\\n\") }",
    );
    let output = tool.output().map_err(|e| e.to_string())?;
    same(
        "alone",
        String::from_utf8_lossy(&output.stdout).into_owned(),
        "42 ok\nend\n".into(),
    )?;
    Ok("exact".into())
}

/// Expressions by chance, the same for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        // Knuth's constants of MMIX.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn of<'w>(&mut self, words: &[&'w str]) -> &'w str {
        words[self.below(words.len() as u64) as usize]
    }

    fn expression(&mut self, depth: u32) -> String {
        const LEAVES: &[&str] = &[
            "$a",
            "$b",
            "$c",
            "$d",
            "7",
            "-3",
            "1e6",
            "0x7fffffffffff",
            "5000000000",
            "0",
        ];
        const OPS: &[&str] = &[
            "+", "-", "*", "&", "|", "^", "==", "!=", "<", "<=", ">", ">=", "&&", "||",
        ];
        if depth == 0 {
            return self.of(LEAVES).to_owned();
        }
        let left = self.expression(depth - 1);
        match self.below(12) {
            0 => format!("({} {left})", self.of(&["-", "!", "~"])),
            1 => {
                let (then, otherwise) = (self.expression(depth - 1), self.expression(depth - 1));
                format!("({left} ? {then} : {otherwise})")
            }
            2 => {
                let by = self.expression(depth - 1);
                format!("({left} {} ({by} & 63))", self.of(&["<<", ">>"]))
            }
            3 => self.of(&["$i++", "--$i", "$i--", "++$i"]).to_owned(),
            4 => {
                let divisor = self.of(&["$b", "$c", "$d", "7", "-3"]);
                format!("({left} {} {divisor})", self.of(&["/", "%"]))
            }
            _ => {
                let right = self.expression(depth - 1);
                format!("({left} {} {right})", self.of(OPS))
            }
        }
    }
}

fn expressions(bench: &Bench) -> Told {
    const EACH: usize = 20;
    let seeds = if crate::run::is_deep() { 200 } else { 6 };
    for seed in 0..seeds {
        let mut chance = Chance(seed);
        let mut prints = String::new();
        for number in 0..EACH {
            let depth = 1 + chance.below(4) as u32;
            let expression = chance.expression(depth);
            prints += &format!("printf(\"{number} %d\\n\", {expression}); ");
        }
        let large = chance.below(1 << 31) * 1000;
        let small = chance.below(100);
        // The first thread's lane is 0, which no proof knows.
        let body = |zero: &str| {
            format!(
                "$i = 3 + {zero}; $a = {large} + {zero}; $b = -{small} + {zero}; $c = {zero}; $d = 5 - {zero}; {prints}"
            )
        };
        let script = format!(
            "BEGIN {{ {} }} gpu:entry.block:* /block == 0 && launch == 1/ {{ {} }}",
            body("0"),
            body("lane")
        );
        let run = traced(bench, &[], &script)?;
        let lines: Vec<&Value> = run.lines.iter().map(|line| &line["data"]).collect();
        let (tool, kernel) = lines.split_at(lines.len() / 2);
        same("lines", lines.len(), 2 * EACH)?;
        same(&script, kernel, tool)?;
    }
    Ok(format!("{} expressions", seeds as usize * EACH))
}

fn no_room(bench: &Bench) -> Told {
    let keys = 100;
    let flag = keys.to_string();
    let run = traced(
        bench,
        &["--keys", &flag],
        "gpu:entry.block:* { @few[block] = count() } gpu:entry:* { @many[thread] = count() }",
    )?;
    let blocks: BTreeMap<String, u64> = (0..GRID).map(|b| (b.to_string(), LAUNCHES)).collect();
    same(
        "@few",
        run.map("@few")?,
        serde_json::to_value(blocks).unwrap_or_default(),
    )?;
    let many = run.map("@many")?;
    let many = many.as_object().cloned().unwrap_or_default();
    let counted: u64 = many.values().filter_map(Value::as_u64).sum();
    if many.len() > keys {
        return Err(format!("{} keys in {keys}", many.len()));
    }
    // What is not counted is told.
    let lost = LAUNCHES * THREADS - counted;
    says(
        &run.errors(),
        &format!("warpbpf: {lost} updates of `@many` were lost"),
    )?;
    Ok(format!("{lost} updates lost and told"))
}

fn processes(bench: &Bench) -> Told {
    let mut command = command(
        bench,
        &[],
        "gpu:entry.block:* { @[kernel] = count(); @max = max(block); @pids[pid] = count() }",
    );
    let app = bench.app("vectoradd").display().to_string();
    command.args(["--", "sh", "-c"]);
    command.arg(format!(
        "{app} 5000 2 > /dev/null; {app} 1000 3 > /dev/null"
    ));
    let output = command.output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let blocks = LAUNCHES * GRID + 3 * 4;
    says(&text, &format!("@[vectorAdd]: {blocks}\n"))?;
    says(&text, &format!("@max: {}\n", GRID - 1))?;
    let pids = text.lines().filter(|line| line.starts_with("@pids["));
    same("processes", pids.count(), 2)?;
    Ok(format!("{blocks} blocks"))
}

fn attach(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    let pid = application.pid();
    let script = "
        gpu:entry.block:step* { @blocks = count(); printf(\"block %d\\n\", block) }
        interval:ms:20 { if (@blocks >= 20) { exit() } }
        END { printf(\"end\\n\") }";
    let mut command = command(bench, &["-p", &pid], script);
    command.stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    let mut child = crate::process::Owned::spawn(&mut command).map_err(|e| e.to_string())?;
    // Launches go on until the script has had enough.
    let mut launches = 0;
    while child.try_wait().map_err(|e| e.to_string())?.is_none() {
        application.launch(1)?;
        launches += 1;
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let output = child.output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    same("status", output.status.code(), Some(0)).map_err(|e| format!("{e}: {errors}"))?;
    let blocks = text.lines().find_map(|line| line.strip_prefix("@blocks: "));
    let blocks: u64 = blocks
        .and_then(|b| b.parse().ok())
        .ok_or_else(|| format!("{text}{errors}"))?;
    if blocks < 20 || !blocks.is_multiple_of(BLOCKS) || blocks > launches * BLOCKS {
        return Err(format!(
            "{blocks} blocks of {launches} launches: {text}{errors}"
        ));
    }
    says(&text, "block 0\n")?;
    says(&text, "end\n@blocks: ")?;
    says(&errors, &format!("attached to process {pid}"))?;
    says(&errors, &format!("detached from process {pid}"))?;
    // It goes on as it was.
    application.launch(2)?;
    application.end()?;
    Ok(format!("{blocks} blocks of {launches} launches"))
}

fn wrong(bench: &Bench) -> Told {
    let end = |flags: &[&str], script: &str| -> Result<(Option<i32>, String), String> {
        let mut command = command(bench, flags, script);
        // It is never started.
        command.args(["--", "/nonexistent/app"]);
        let output = command.output().map_err(|e| e.to_string())?;
        same("output", output.stdout.len(), 0)?;
        Ok((
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ))
    };
    let shown = "\
error: there is no function `cuont`
 --> script:1:19
  |
1 | gpu:entry:* { @ = cuont() }
  |                   ^^^^^ did you mean `count`?
";
    same(
        "a wrong script",
        end(&[], "gpu:entry:* { @ = cuont() }")?,
        (Some(1), shown.into()),
    )?;
    let (status, error) = end(&[], "gpu:mem:*|knd=load { @ = count() }")?;
    same("status", status, Some(1))?;
    says(&error, "`gpu/mem` has no key `knd`")?;
    let (status, error) = end(&["--budget", "100"], "gpu:entry:* { @[lane] = count() }")?;
    same("status", status, Some(1))?;
    says(&error, "gpu:entry:* { @[lane] = count() }")?;
    let mut nothing = command(bench, &[], "gpu:entry:* { @ = count() }");
    let output = nothing.output().map_err(|e| e.to_string())?;
    same("status", output.status.code(), Some(125))?;
    says(
        &String::from_utf8_lossy(&output.stderr),
        "name an application (`-- APP`) or a process (`-p PID`)",
    )?;
    let mut dump = command(bench, &["-d"], "gpu:entry:* { @ = count() }");
    let output = dump.output().map_err(|e| e.to_string())?;
    says(
        &String::from_utf8_lossy(&output.stdout),
        "gpu:entry:*:\n    0: r6 = r1\n",
    )?;
    Ok("each is told".into())
}
