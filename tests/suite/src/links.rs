//! Programs at one kernel that are in different launches: how often each ran, exactly, and what is
//! said of it.

use serde_json::Value;

use warpbpf_tool::{ChoiceRequest, Object, Options, Process, Tool};

use crate::library::{PATIENCE, failed};
use crate::process::Owned;
use crate::replace::start;
use crate::run::{Bench, Case, Run, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("launches are chosen program by program", by_number),
        case(
            "launches are chosen program by program in functions",
            inside,
        ),
        case(
            "launches are chosen program by program: ranges and streams",
            by_range,
        ),
        case(
            "launches are chosen program by program on two GPUs",
            by_device,
        ),
        case(
            "launches are chosen program by program in graphs",
            in_graphs,
        ),
        case(
            "launches are chosen program by program in a replacement",
            replaced,
        ),
        case("what is said of launches of a program is checked", refused),
    ]
}

/// Of `vectoradd 100000 10`: threads, blocks, warps and elements of each launch.
const THREADS: u64 = 391 * 256;
const BLOCKS: u64 = 391;
const WARPS: u64 = BLOCKS * 8;
const ELEMENTS: u64 = 100_000;

/// What programs counted, by number.
fn counts<const N: usize>(run: &Run) -> Result<[u64; N], String> {
    let mut counts = [0; N];
    for (key, count) in counts.iter_mut().enumerate() {
        *count = run.value("counts", key as u64)?;
    }
    Ok(counts)
}

/// Launches of a kernel.
fn launches(kernel: &Value) -> InAll {
    let number = |name: &str| kernel[name].as_u64().unwrap_or(0);
    (
        number("launches"),
        number("skipped"),
        number("uninstrumented"),
    )
}

/// Launches that each program was in, by name.
fn of_programs(kernel: &Value) -> Vec<(String, u64)> {
    let all = kernel["programs"].as_array().into_iter().flatten();
    let pair = |pair: &Value| Some((pair[0].as_str()?.to_owned(), pair[1].as_u64()?));
    all.filter_map(pair).collect()
}

/// The same as it is expected.
fn expected(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    let mut all: Vec<_> = all
        .iter()
        .map(|(name, n)| ((*name).to_owned(), *n))
        .collect();
    all.sort();
    all
}

/// Launches of the programs of `links`, in the order of their numbers.
type InLaunches = [u64; 7];
/// Those of the kernel: with probes, skipped and uninstrumented.
type InAll = (u64, u64, u64);
const NAMES: [&str; 7] = [
    "all", "third", "blocks", "warps", "stores", "never", "loads",
];

fn by_number(bench: &Bench) -> Told {
    let own = [10, 4, 5, 3, 2, 0, 3];
    // Programs of which nothing is said have what is said of all.
    let halved = [5, 4, 5, 3, 2, 0, 3];
    let cases: [(&[&str], InLaunches, InAll); 9] = [
        (&[], own, (10, 0, 0)),
        (&["--out-of-line"], own, (10, 0, 0)),
        (&["--gate"], own, (10, 0, 0)),
        (&["--live-sums"], own, (10, 0, 0)),
        (&["--every", "2"], halved, (10, 0, 0)),
        (
            &["--choose", "all:every=5"],
            [2, 4, 5, 3, 2, 0, 3],
            (10, 0, 0),
        ),
        (
            &[
                "--choose",
                "all:after=9,at-most=1",
                "--choose",
                "loads:at-most=0",
                "--choose",
                "blocks:min_blocks=392",
            ],
            [1, 4, 0, 3, 2, 0, 0],
            (6, 4, 0),
        ),
        (
            &[
                "--choose",
                "never:min-blocks=391,max-blocks=391,every=10",
                "--after",
                "2",
            ],
            [8, 3, 5, 3, 2, 1, 2],
            (9, 1, 0),
        ),
        (
            // In all the same, so that nothing is asked on the device.
            &[
                "--at-most",
                "4",
                "--choose",
                "third:every=1",
                "--choose",
                "blocks:every=1,after=0",
                "--choose",
                "warps:at-most=4",
                "--choose",
                "stores:at-most=4",
                "--choose",
                "never:min-blocks=0",
                "--choose",
                "loads:every=1",
            ],
            [4; 7],
            (4, 6, 0),
        ),
    ];
    for (flags, own, in_all) in cases {
        let what = flags.join(" ");
        let run = bench.both_with(flags, "links", "vectoradd", &["100000", "10"])?;
        let kernel = run.kernel("vectorAdd")?;
        same(&format!("{what}: launches"), launches(kernel), in_all)?;
        let each = [
            THREADS,
            THREADS,
            BLOCKS,
            WARPS,
            ELEMENTS,
            THREADS,
            2 * ELEMENTS,
        ];
        let mut counted = [0; 7];
        for (count, (launches, each)) in counted.iter_mut().zip(own.iter().zip(each)) {
            *count = launches * each;
        }
        same(&format!("{what}: counts"), counts(&run)?, counted)?;
        let alike = own.iter().all(|n| *n == own[0]);
        let names: Vec<_> = NAMES.into_iter().zip(own).collect();
        let told = if alike { Vec::new() } else { expected(&names) };
        same(&format!("{what}: by program"), of_programs(kernel), told)?;
    }
    Ok(format!("{} choices", cases.len()))
}

/// Each program in turn is in no launch, and the others count what they count when all are in all
/// of them.
fn inside(bench: &Bench) -> Told {
    let names = [
        "called", "returned", "stored", "threads", "blocks", "branches",
    ];
    for app in ["variants", "places"] {
        for more in [&[][..], &["--out-of-line"]] {
            let whole: [u64; 6] = counts(&bench.both_with(more, "links_inside", app, &[])?)?;
            same(&format!("{app}: all count"), whole.contains(&0), false)?;
            for (at, name) in names.iter().enumerate() {
                let choose = format!("{name}:min-blocks=1000000000");
                let flags = [more, &["--choose", &choose]].concat();
                let run = bench.both_with(&flags, "links_inside", app, &[])?;
                let mut without = whole;
                without[at] = 0;
                same(&format!("{app} without {name}"), counts(&run)?, without)?;
            }
        }
    }
    Ok("six programs in two applications".to_owned())
}

fn by_range(bench: &Bench) -> Told {
    let run = bench.both_with(&[], "links_ranges", "ranges", &[])?;
    let tick = run.kernel("tick")?;
    same("tick", launches(tick), (12, 0, 0))?;
    // Its launches are in the default stream, but one in the second that is made.
    let told = expected(&[
        ("each", 12),
        ("forward", 2),
        ("by_default", 11),
        ("copies", 1),
    ]);
    same("programs in tick", of_programs(tick), told)?;
    let tock = run.kernel("tock")?;
    same("tock", launches(tock), (4, 0, 0))?;
    let told = expected(&[
        ("each", 4),
        ("forward", 2),
        ("by_default", 0),
        ("copies", 0),
    ]);
    same("programs in tock", of_programs(tock), told)?;
    same("counts", counts(&run)?, [32 * 16, 32 * 4, 32 * 11, 32])?;
    says(
        &run.notes(),
        "its program `by_default` (stream=default) does not run there",
    )?;
    // Two programs with ranges of their own, of threads and of the process.
    let flags = ["--choose", "each:nvtx=epoch+deep/deep*+step"];
    let run = bench.both_with(&flags, "links_ranges", "ranges", &[])?;
    let told = expected(&[
        ("each", 7),
        ("forward", 2),
        ("by_default", 11),
        ("copies", 1),
    ]);
    let tick = run.kernel("tick")?;
    same("two by ranges", of_programs(tick), told)?;
    same(
        "counts by two",
        counts(&run)?,
        [32 * 7, 32 * 4, 32 * 11, 32],
    )?;

    let run = bench.both_with(&[], "links_ranges", "ranges", &["streams"])?;
    let tick = run.kernel("tick")?;
    same("streams", launches(tick), (10, 0, 0))?;
    let told = expected(&[
        ("each", 10),
        ("forward", 0),
        ("by_default", 3),
        ("copies", 2),
    ]);
    same("programs in streams", of_programs(tick), told)?;
    same("counts in streams", counts(&run)?, [320, 0, 96, 64])?;
    Ok("by ranges and streams".to_owned())
}

fn by_device(bench: &Bench) -> Told {
    let bench = bench.with(&[("WARPBPF_SOFT_DEVICES", "2")]);
    if bench.plain("twogpus", &["2"])? == b"one GPU\n" {
        return Ok("one GPU".to_owned());
    }
    let flags = [
        "--choose",
        "all:gpus=1",
        "--choose",
        "third:gpus=0,every=1",
        "--choose",
        "never:gpus=0+1,min-blocks=0",
    ];
    let run = bench.both_with(&flags, "links", "twogpus", &["2"])?;
    let kernel = run.kernel("fill")?;
    // Three launches on the first device, and four and two on the second, which is reset between.
    same("fill", launches(kernel), (9, 0, 0))?;
    let programs = of_programs(kernel);
    let of = |name: &str| {
        programs
            .iter()
            .find(|(program, _)| program == name)
            .map(|p| p.1)
    };
    same(
        "by device",
        (of("all"), of("third"), of("never")),
        (Some(6), Some(3), Some(9)),
    )?;
    let apart = kernel["context_programs"].as_array().into_iter().flatten();
    let apart: Vec<_> = apart
        .map(|part| {
            let programs = of_programs(&serde_json::json!({ "programs": part[1] }));
            let all = programs.iter().find(|(program, _)| program == "all");
            let third = programs.iter().find(|(program, _)| program == "third");
            (part[0].as_u64(), all.map(|p| p.1), third.map(|p| p.1))
        })
        .collect();
    let expected = [(0, 0, 3), (1, 4, 0), (2, 2, 0)];
    let expected = expected.map(|(n, all, third)| (Some(n), Some(all), Some(third)));
    same("by context", apart, expected.to_vec())?;
    let mut command = bench.warpbpf("run");
    command
        .arg("--per-device")
        .args(flags)
        .arg(bench.object("links"));
    command.arg("--").arg(bench.app("twogpus")).arg("2");
    let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    for (n, all, third) in [(0, 0, 3), (1, 4, 0), (2, 2, 0)] {
        let device = n.min(1);
        let line = text.lines().find(|line| {
            let name = format!("launches of `fill on device {device} (context {n})` by program: ");
            line.trim_start().starts_with(&name)
        });
        let line = line.ok_or_else(|| format!("nothing of context {n} in: {text}"))?;
        says(line, &format!("`all` in {all}, "))?;
        says(line, &format!("`third` in {third}"))?;
    }
    Ok("of two".to_owned())
}

fn in_graphs(bench: &Bench) -> Told {
    let flags = ["--choose", "all:min-blocks=2"];
    let run = bench.both_with(&flags, "links", "graphs", &[])?;
    let add = run.kernel("add")?;
    same("add", launches(add), (192, 0, 0))?;
    let told = [
        ("all", 192),
        ("third", 0),
        ("blocks", 0),
        ("warps", 0),
        ("stores", 0),
        ("never", 0),
        ("loads", 0),
    ];
    same("programs in add", of_programs(add), expected(&told))?;
    says(
        &run.notes(),
        "kernel `_Z3addPyj` is in a graph, whose launches all run the same: its program `third` (every=3) does not run there",
    )?;
    // Arrivals are counted in the records of graphs, whoever is chosen.
    let run = bench.both_with(
        &["--choose", "blocks:every=1,after=0"],
        "links",
        "graphs",
        &[],
    )?;
    let with_blocks: [u64; 7] = counts(&run)?;
    let whole = bench.both_with(&[], "links_inside", "graphs", &[])?;
    same("blocks", with_blocks[2], whole.value("counts", 4)?)?;
    same("threads", with_blocks[0], whole.value("counts", 3)?)?;
    Ok("192 launches".to_owned())
}

/// Of each kernel: launches with probes, and those of each program.
fn told(process: &Process, name: &str) -> Result<(u64, Vec<(String, u64)>), String> {
    process.snapshot().map_err(failed)?;
    let kernels = process.kernels();
    let kernel = kernels
        .iter()
        .find(|kernel| kernel.kernel.demangled.starts_with(name));
    let kernel = kernel.ok_or_else(|| format!("there is no kernel `{name}`"))?;
    Ok((kernel.launches, kernel.programs.clone()))
}

/// Numbers of launches go on, and what was said of a program holds for the one that comes under its
/// name.
fn replaced(bench: &Bench) -> Told {
    let object = Object::open(bench.object("replace")).map_err(failed)?;
    let request: ChoiceRequest = "every=2"
        .parse()
        .map_err(|e: warpbpf_tool::ChoiceError| e.to_string())?;
    let options = Options {
        choose: vec![("enter".to_owned(), request)],
        ..Options::default()
    };
    let tool = Tool::attach(object.clone(), options).map_err(failed)?;
    let mut application = start(bench, &tool, &["live"])?;
    application.launch(3)?;
    let process = tool.wait_ready(PATIENCE).map_err(failed)?;
    let two = |enter, leave| expected(&[("enter", enter), ("leave", leave)]);
    same("at first", told(&process, "step")?, (3, two(2, 3)))?;
    let next = object.with_variables(&[("version", "2")]).map_err(failed)?;
    process.replace(&next).map_err(failed)?;
    application.launch(4)?;
    // The fifth and the seventh.
    same("replaced", told(&process, "step")?, (7, two(4, 7)))?;
    let entered = process
        .map("entered")
        .and_then(|map| map.typed::<u32, u64>());
    let entered = entered.map_err(failed)?;
    let of = |version: u32| entered.get(&version).map_err(failed);
    // With those of the other kernel, whose code cannot be replaced.
    same("counted", (of(1)?, of(2)?), (Some(4), Some(2)))?;
    let more = Object::open(bench.object("links")).map_err(failed)?;
    process.add(&more).map_err(failed)?;
    application.launch(5)?;
    // Launches 8 to 12: of `enter` 9 and 11, of `third` 10, of `blocks` all even ones, of `loads`
    // the ninth.
    let expected = expected(&[
        ("enter", 6),
        ("leave", 12),
        ("all", 5),
        ("third", 1),
        ("blocks", 3),
        ("warps", 0),
        ("stores", 0),
        ("never", 0),
        ("loads", 1),
    ]);
    same("added", told(&process, "step")?, (12, expected))?;
    let ranges = Object::open(bench.object("links_ranges")).map_err(failed)?;
    let refused = process
        .replace(&ranges)
        .err()
        .map(failed)
        .unwrap_or_default();
    says(
        &refused,
        "program `forward` is for launches that NVTX tells of (nvtx=step/forward+captured), and the application's calls of NVTX do not come to us",
    )?;
    application.launch(1)?;
    same("after a refusal", told(&process, "step")?.0, 13)?;
    Ok("13 launches".to_owned())
}

/// What the command says, and that it ends with 125.
fn said(bench: &Bench, arguments: &[&str]) -> Result<String, String> {
    let output = bench.warpbpf(arguments[0]).args(&arguments[1..]).output();
    let output = output.map_err(|e| format!("warpbpf: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    same(&said, output.status.success(), false)?;
    Ok(said)
}

fn refused(bench: &Bench) -> Told {
    let links = bench.object("links").display().to_string();
    let ranges = bench.object("links_ranges").display().to_string();
    let app = bench.app("vectoradd").display().to_string();
    let choose =
        |request: &'static str| said(bench, &["run", "--choose", request, &links, "--", &app]);
    for (request, part) in [
        (
            "nobody:every=2",
            "`--choose` names program `nobody`, and no program in kernels has that name; there is `all`, `third`, ",
        ),
        (
            "all:often=2",
            "there is no key `often`; keys are `every`, `after`, `at_most`, ",
        ),
        (
            "all:every=0",
            "`every` cannot be `0`; it is a number from 1",
        ),
        (
            "all",
            "write a program's name, `:` and what launches it is in, as `count:every=10`",
        ),
        (
            "all:gpus=all+1",
            "`gpus` cannot be `all+1`; it is numbers of GPUs, joined by `+`, for example `0+2`, or `all` alone",
        ),
    ] {
        says(&choose(request)?, part)?;
    }
    let twice = [
        "--choose",
        "all:every=2",
        "--choose",
        "third:after=1",
        "--choose",
        "all:after=1,every=3",
    ];
    let arguments = [&["run"], &twice[..], &[&links, "--", &app]].concat();
    let text = "`--choose` says `every` of program `all` twice; say it once";
    says(&said(bench, &arguments)?, text)?;
    let late = |flags: &[&str], object: &str, who: &str| {
        let arguments = [&["attach", "--pid", "1"], flags, &[object]].concat();
        let told = said(bench, &arguments)?;
        says(
            &told,
            &format!("{who} needs an application that is started with it"),
        )
    };
    late(
        &[],
        &ranges,
        "program `forward` (nvtx=step/forward+captured)",
    )?;
    late(
        &["--choose", "all:nvtx=step"],
        &links,
        "program `all` (nvtx=step)",
    )?;
    late(&["--stream", "copies"], &links, "`--stream` with a name")?;
    late(&["--ranges"], &links, "`--ranges`")?;
    // What sections say is lifted, so the process is what is wrong.
    let lifted = [
        "--choose",
        "forward:nvtx=all",
        "--choose",
        "copies:stream=all",
    ];
    let idle = Owned::spawn(std::process::Command::new("sleep").arg("60"));
    let idle = idle.map_err(|e| format!("sleep: {e}"))?;
    let pid = idle.id().to_string();
    let arguments = [&["attach", "--pid", &pid], &lifted[..], &[&ranges]].concat();
    says(
        &said(bench, &arguments)?,
        &format!("process {pid} has not loaded the CUDA driver"),
    )?;
    drop(idle);
    let object = Object::open(&links).map_err(failed)?;
    let options = Options {
        choose: vec![("nobody".to_owned(), ChoiceRequest::default())],
        ..Options::default()
    };
    let error = Tool::attach(object, options).err().map(failed);
    says(
        &error.unwrap_or_default(),
        "launches are chosen for program `nobody`: no program has that name; there is `all`, `third`, ",
    )?;
    // What has no place for bits.
    let run = bench.both_with(&["--slots"], "links", "vectoradd", &["1000", "2"])?;
    let kernel = run.kernel("vectorAdd")?;
    same("with slots", launches(kernel), (0, 0, 2))?;
    says(
        kernel["method"].as_str().unwrap_or_default(),
        "refused: its programs choose different launches (`all`: all launches; `third`: every=3), and what is in slots cannot be told apart; choose the same for all of them",
    )?;
    // Its launches are the original's; those that no program is in are so by choice.
    let chosen = [
        "all:after=9",
        "third:after=7",
        "blocks:every=10",
        "loads:at-most=0",
    ];
    let chosen: Vec<&str> = chosen
        .iter()
        .flat_map(|request| ["--choose", request])
        .collect();
    let app = ("vectoradd", &["100000", "10"]);
    let run = bench.both_with(&chosen, "links", app.0, app.1)?;
    let (with, skipped, uninstrumented) = launches(run.kernel("vectorAdd")?);
    same(
        "some are",
        (with > 0, skipped > 0, uninstrumented),
        (true, true, 0),
    )?;
    let slots = [&["--slots"], &chosen[..]].concat();
    let run = bench.both_with(&slots, "links", app.0, app.1)?;
    let refused = launches(run.kernel("vectorAdd")?);
    same("refused and skipped", refused, (0, skipped, with))?;
    Ok("with reasons".to_owned())
}
