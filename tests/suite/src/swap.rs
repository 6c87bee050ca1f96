//! Programs exchanged while an application runs: which launch had which is told by counters, exactly.

use std::process::Command;
use std::time::{Duration, Instant};

use warpbpf::{DeviceChoice, Exchange, Exchanged, Object, Options, Process, Tool};

use crate::attach::Application;
use crate::devices;
use crate::library::{PATIENCE, failed};
use crate::run::{Bench, Case, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case(
            "swap: programs replaced, added and taken out between launches",
            between,
        ),
        case("swap: versions replaced under full load", stress),
        case(
            "swap: versions replaced under full load on two GPUs",
            stress_of_two,
        ),
    ]
}

/// An application that is told what to do by its input, with the tool's agent in it.
pub(crate) fn start(bench: &Bench, tool: &Tool, command: &[&str]) -> Result<Application, String> {
    let device = match bench.soft {
        true => DeviceChoice::Soft,
        false => DeviceChoice::Gpu,
    };
    let variables = tool.environment(device, warpbpf::Inject::Auto);
    let mut application = Command::new(bench.app(command[0]));
    application
        .args(&command[1..])
        .envs(variables.map_err(failed)?)
        .envs(bench.variables.iter().cloned());
    Application::start(application)
}

/// The object `swap.bpf.c` in a version.
fn version(bench: &Bench, number: u32) -> Result<Object, String> {
    let object = Object::open(bench.object("swap")).map_err(failed)?;
    let number = number.to_string();
    object
        .with_variables(&[("version", &number)])
        .map_err(failed)
}

/// What launches counted under these numbers, at the start and at the end.
fn counted(process: &Process, versions: &[u32]) -> Result<Vec<(u64, u64)>, String> {
    let [entered, left] = ["entered", "left"].map(|name| {
        let map = process.map(name).and_then(|map| map.typed::<u32, u64>());
        map.map_err(failed)
    });
    let (entered, left) = (entered?, left?);
    let of = |version: &u32| {
        let [entered, left] = [&entered, &left].map(|map| map.get(version).map_err(failed));
        Ok((entered?.unwrap_or(0), left?.unwrap_or(0)))
    };
    versions.iter().map(of).collect()
}

/// Of each kernel with counts: its name, launches with probes, missed and unwanted.
fn launches(process: &Process) -> Result<Vec<(String, [u64; 3])>, String> {
    process.snapshot().map_err(failed)?;
    let kernels = process.kernels().into_iter().map(|kernel| {
        let counts = [kernel.launches, kernel.missed, kernel.unwanted];
        (kernel.kernel.demangled, counts)
    });
    let mut kernels: Vec<_> = kernels.collect();
    kernels.sort();
    Ok(kernels)
}

fn between(bench: &Bench) -> Told {
    let tool = Tool::attach(version(bench, 1)?, Options::default()).map_err(failed)?;
    let mut application = start(bench, &tool, &["live"])?;
    application.launch(3)?;
    let process = tool.wait_ready(PATIENCE).map_err(failed)?;
    same(
        "of the first version",
        counted(&process, &[1])?,
        vec![(6, 6)],
    )?;

    let replaced = process.replace(&version(bench, 2)?).map_err(failed)?;
    same(
        "generation",
        (replaced.generation, process.generation()),
        (2, 2),
    )?;
    same(
        "programs",
        replaced.programs.as_slice(),
        &["enter", "leave"].map(String::from),
    )?;
    // A constant is in the module itself, so code beside it would have to be, too.
    let [(name, reason)] = replaced.without.as_slice() else {
        return Err(format!("{:?} run without", replaced.without));
    };
    same("runs without", name.as_str(), "scaled")?;
    says(reason, "its image is loaded already")?;
    application.launch(4)?;
    same("of both", counted(&process, &[1, 2])?, vec![(6, 6), (4, 4)])?;

    let other = Object::open(bench.object("swap_other")).map_err(failed)?;
    let added = process.add(&other).map_err(failed)?;
    same(
        "programs with one more",
        added.programs,
        ["enter", "leave", "other"].map(String::from).to_vec(),
    )?;
    application.launch(5)?;
    same(
        "with one more",
        counted(&process, &[2, 1000])?,
        vec![(9, 9), (5, 0)],
    )?;
    let again = process.add(&other).err().map(failed).unwrap_or_default();
    says(&again, "program `other` is there already")?;

    process.remove(&["other"]).map_err(failed)?;
    application.launch(2)?;
    same(
        "with one less",
        counted(&process, &[2, 1000])?,
        vec![(11, 11), (5, 0)],
    )?;

    wrong(bench, &process)?;
    application.launch(1)?;
    same(
        "after refusals",
        counted(&process, &[2, 1000])?,
        vec![(12, 12), (5, 0)],
    )?;

    let none: Exchanged = process.remove(&["enter", "leave"]).map_err(failed)?;
    same("no programs", none.programs, Vec::new())?;
    application.launch(6)?;
    same(
        "without programs",
        counted(&process, &[1, 2])?,
        vec![(6, 6), (12, 12)],
    )?;

    let first = process.replace(&version(bench, 1)?).map_err(failed)?;
    same("generations", first.generation, 6)?;
    application.launch(7)?;
    same(
        "of the first again",
        counted(&process, &[1, 2])?,
        vec![(13, 13), (12, 12)],
    )?;

    // Every launch is counted once.
    let expected = [
        ("scaled", [3, 4 + 5 + 2 + 1 + 7, 6]),
        ("step", [3 + 4 + 5 + 2 + 1 + 7, 0, 6]),
    ];
    let expected = expected.map(|(name, counts)| (name.to_owned(), counts));
    same("launches", launches(&process)?, expected.to_vec())?;
    application.end()?;
    Ok("28 launches of each kernel, and five exchanges".into())
}

/// What is refused changes nothing, and says why.
fn wrong(bench: &Bench, process: &Process) -> Result<(), String> {
    let refused = |name: &str| -> Result<String, String> {
        let object = Object::open(bench.object(name)).map_err(failed)?;
        match process.replace(&object) {
            Ok(done) => Err(format!("`{name}` was taken: {done:?}")),
            Err(error) => Ok(error.to_string()),
        }
    };
    says(&refused("refused")?, "map `hits` is new, and maps of type")?;
    let unknown = process.remove(&["nobody"]).err().map(failed);
    says(
        &unknown.unwrap_or_default(),
        "there is no program `nobody`; there are `enter`, `leave`",
    )?;
    // No code is compiled in no time.
    let version = Exchange::Replace(version(bench, 3)?);
    let late = process.exchange(&version, Duration::ZERO);
    let late = late.err().ok_or("it was made in no time")?;
    same("what is told", late.errno(), -110)?;
    says(&late.to_string(), "the old ones go on")?;
    // What was made of it is taken back first.
    let end = Instant::now() + PATIENCE;
    loop {
        match process.remove(&["nobody"]).err().map(|error| error.errno()) {
            Some(-16) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
            other => break same("afterwards", other, Some(-22))?,
        }
    }
    same("generation", process.generation(), 4)
}

/// Versions are replaced while `swapstress.cu` launches from all its threads. What the application made, what the agent counted and
/// what the programs counted is one and the same, and no launch had parts of two versions.
fn stress(bench: &Bench) -> Told {
    stressed(bench, &[])
}

/// The same from threads on two GPUs: all kernels of both change at one moment.
fn stress_of_two(bench: &Bench) -> Told {
    let bench = devices::bench_of_two(bench, "4");
    match devices::are_two(&bench)? {
        true => stressed(&bench, &["everywhere"]),
        false => devices::skipped(),
    }
}

fn stressed(bench: &Bench, words: &[&str]) -> Told {
    let (threads, versions) = match bench.soft {
        true => ("4", 50),
        false => ("32", 1000),
    };
    let tool = Tool::attach(version(bench, 1)?, Options::default()).map_err(failed)?;
    let mut command = vec!["swapstress", threads];
    // While a module loads, a real driver lets nobody launch and waits for what runs: a kernel that waits for one that is
    // launched later then waits for ever, whoever loads (docs/live.md).
    if bench.soft {
        command.push("meet");
    }
    command.extend(words);
    let application = start(bench, &tool, &command)?;
    let process = tool.wait_ready(PATIENCE).map_err(failed)?;
    for number in 2..=versions {
        let done = process.replace(&version(bench, number)?).map_err(failed)?;
        same("generation", done.generation, u64::from(number))?;
        same("runs without", done.without, Vec::new())?;
        // The next launch has it; and there is always a next one.
        let end = Instant::now() + PATIENCE;
        while counted(&process, &[number])?[0].1 == 0 {
            if Instant::now() > end {
                return Err(format!("no launch had version {number}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let said = application.end()?;
    same("last words", tool.wait_last_words(PATIENCE), true)?;
    let mut of_agent = std::collections::BTreeMap::new();
    for kernel in process.kernels() {
        // A kernel whose image was loaded again is there again, with the counts of all.
        let counts = [
            kernel.launches,
            kernel.missed + kernel.skipped + kernel.unwanted,
        ];
        of_agent.insert(kernel.kernel.demangled, counts);
    }
    let (mut all, mut probed) = (0, 0);
    for line in said.lines().filter(|line| *line != "running") {
        let (name, made) = line.split_once(' ').ok_or("an odd line")?;
        let made: u64 = made
            .parse()
            .map_err(|_| format!("an odd number of {name}"))?;
        let mut counts = of_agent
            .iter()
            .filter(|(kernel, _)| kernel.split('(').next() == Some(name));
        let [with, without] = counts.next().map(|(_, c)| *c).unwrap_or_default();
        same(&format!("launches of `{name}`"), with + without, made)?;
        all += made;
        probed += with;
    }
    let numbers: Vec<u32> = (1..=versions).collect();
    let counted = counted(&process, &numbers)?;
    let halves = counted
        .iter()
        .filter(|(entered, left)| entered != left)
        .count();
    same("versions with a part of a launch", halves, 0)?;
    let entered: u64 = counted.iter().map(|(entered, _)| entered).sum();
    same("launches that counted", entered, probed)?;
    Ok(format!(
        "{all} launches, {probed} of them with one of {versions} versions each"
    ))
}
