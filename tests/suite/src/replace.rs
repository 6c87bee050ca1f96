//! Programs replaced while an application runs: which launch had which is told by counters,
//! exactly.

use std::process::Command;
use std::time::{Duration, Instant};

use warpbpf_tool::{DeviceChoice, Object, Options, Process, Replaced, Replacement, Tool};

use crate::attach::{Application, until_known};
use crate::devices;
use crate::library::{PATIENCE, failed};
use crate::run::{Bench, Case, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case(
            "replace: programs replaced, added and taken out between launches",
            between,
        ),
        case("replace: versions replaced under full load", stress),
        case(
            "replace: versions replaced under full load on two GPUs",
            stress_of_two,
        ),
        case("replace: maps that come with programs", brought),
        case("replace: maps that come while launches go on", under_way),
        case("replace: maps that `warpbpf add` brings", from_outside),
    ]
}

/// An application that is told what to do by its input, with the tool's agent in it.
pub(crate) fn start(bench: &Bench, tool: &Tool, command: &[&str]) -> Result<Application, String> {
    let device = match bench.soft {
        true => DeviceChoice::Soft,
        false => DeviceChoice::Gpu,
    };
    let variables = tool.environment(device, warpbpf_tool::Inject::Auto);
    let mut application = Command::new(bench.app(command[0]));
    application
        .args(&command[1..])
        .envs(variables.map_err(failed)?)
        .envs(bench.variables.iter().cloned());
    Application::start(application)
}

/// The object `replace.bpf.c` in a version.
pub(crate) fn version(bench: &Bench, number: u32) -> Result<Object, String> {
    let object = Object::open(bench.object("replace")).map_err(failed)?;
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

/// Of each kernel with counts: its name, launches with probes, uninstrumented and unwanted.
fn launches(process: &Process) -> Result<Vec<(String, [u64; 3])>, String> {
    process.snapshot().map_err(failed)?;
    let kernels = process.kernels().into_iter().map(|kernel| {
        let counts = [kernel.launches, kernel.uninstrumented, kernel.unwanted];
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

    let other = Object::open(bench.object("replace_other")).map_err(failed)?;
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

    let none: Replaced = process.remove(&["enter", "leave"]).map_err(failed)?;
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
    Ok("28 launches of each kernel, and five replacements".into())
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
    says(&refused("refused")?, "program `forgets` was refused")?;
    says(
        &refused("replace_ring")?,
        "map `records` is new, and what goes by rings",
    )?;
    let unknown = process.remove(&["nobody"]).err().map(failed);
    says(
        &unknown.unwrap_or_default(),
        "there is no program `nobody`; there are `enter`, `leave`",
    )?;
    // No code is compiled in no time.
    let version = Replacement::Replace(version(bench, 3)?);
    let late = process.replace_within(&version, Duration::ZERO);
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

/// What `replace_brings.bpf.c` has counted: in its hash, in its array with a value for each
/// multiprocessor, in its variable, and in its array.
fn came(process: &Process) -> Result<[u64; 4], String> {
    let map = |name: &str| {
        let map = process.map(name).and_then(|map| map.typed::<u32, u64>());
        map.map_err(failed)
    };
    let value = |name: &str, key| {
        let value = map(name)?.get(&key).map_err(failed)?;
        Ok::<u64, String>(value.unwrap_or(0))
    };
    let by_sm = map("came_by_sm")?.get_all(&0).map_err(failed)?;
    let by_sm = by_sm.unwrap_or_default().iter().sum();
    Ok([
        value("came", 7)?,
        by_sm,
        value(".data", 0)?,
        value("went", 1)?,
    ])
}

/// A hash, arrays and a variable come with programs, are read and written from outside, and outlive
/// the programs.
fn brought(bench: &Bench) -> Told {
    let options = Options {
        host_ops: true,
        max_device_memory: Some(64 << 20),
        ..Options::default()
    };
    let tool = Tool::attach(version(bench, 1)?, options).map_err(failed)?;
    let mut application = start(bench, &tool, &["live"])?;
    application.launch(3)?;
    let process = tool.wait_ready(PATIENCE).map_err(failed)?;
    let missing = process.map("came").err().map(failed).unwrap_or_default();
    says(&missing, "came")?;
    let taken = process.contexts()[0].device_bytes;
    let object = Object::open(bench.object("replace_brings")).map_err(failed)?;
    let added = process.add(&object).map_err(failed)?;
    same("generation", added.generation, 2)?;
    // A constant of the application keeps one kernel from having them, as any code that comes
    // later.
    let without: Vec<&str> = added
        .without
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    same("runs without", without, vec!["scaled"])?;
    let names: Vec<String> = process.maps().iter().map(|m| m.name().to_owned()).collect();
    let expected = [
        "entered",
        "left",
        ".rodata",
        "came",
        "came_by_sm",
        "went",
        ".data",
        ".rodata@2",
    ];
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let expected = sorted(expected.map(String::from).to_vec());
    same("maps", sorted(names), expected)?;
    let more = process.contexts()[0].device_bytes;
    if more <= taken {
        return Err(format!("{taken} bytes before, and {more} with the maps"));
    }
    same("before a launch", came(&process)?, [0, 0, 100, 0])?;
    application.launch(4)?;
    same("of the old ones", counted(&process, &[1])?, vec![(10, 10)])?;
    same("of the new ones", came(&process)?, [4, 4, 104, 4])?;

    // From outside they are as any map.
    let hash = process.map("came").and_then(|map| map.typed::<u32, u64>());
    let hash = hash.map_err(failed)?;
    hash.insert(&7, &1000).map_err(failed)?;
    hash.insert(&8, &50).map_err(failed)?;
    application.launch(1)?;
    same("written", came(&process)?, [1001, 5, 105, 5])?;
    same("removed", hash.remove(&8).map_err(failed)?, true)?;
    let mut entries = hash.entries().map_err(failed)?;
    entries.sort_unstable();
    same("entries", entries, vec![(7, 1001)])?;
    // One that needs too much leaves all as it is.
    let refused = process.replace(&Object::open(bench.object("replace_large")).map_err(failed)?);
    let refused = refused.err().map(failed).unwrap_or_default();
    says(&refused, "`--max-device-memory` allows 67108864")?;
    same("generation", process.generation(), 2)?;
    same("kept", process.contexts()[0].device_bytes, more)?;
    application.launch(1)?;
    same("after it", came(&process)?, [1002, 6, 106, 6])?;

    let programs = ["brought_in", "brought_out"];
    process.remove(&programs).map_err(failed)?;
    application.launch(3)?;
    same("without them", came(&process)?, [1002, 6, 106, 6])?;
    same(
        "those of the start",
        counted(&process, &[1])?,
        vec![(15, 15)],
    )?;
    // With the programs come their variables, and the maps are those that there are.
    process.add(&object).map_err(failed)?;
    application.launch(2)?;
    same("with them again", came(&process)?, [1004, 8, 106, 8])?;
    let again = process
        .map(".data@4")
        .and_then(|map| map.typed::<u32, u64>());
    let again = again.and_then(|map| map.get(&0)).map_err(failed)?;
    same("their variable", again, Some(102))?;
    application.end()?;
    // What they held is there when the application is gone.
    tool.wait_last_words(PATIENCE);
    same("at the end", came(&process)?, [1004, 8, 106, 8])?;
    Ok("a hash, two arrays and a variable, 14 launches".into())
}

/// A second command brings the programs, a third reads and writes their maps, and the report of the
/// first shows them.
fn from_outside(bench: &Bench) -> Told {
    let saved = bench.scratch("brought.json");
    let mut command = bench.warpbpf("run");
    command.args(["--json", "--host-ops", "-o"]).arg(&saved);
    command.arg(bench.object("replace")).arg("--");
    command.arg(bench.app("live"));
    let mut application = Application::start(command)?;
    application.launch(2)?;
    let pid = application.pid();
    until_known(bench, &pid)?;
    let say = |verb: &str, words: &[&str]| {
        let mut command = bench.warpbpf(verb);
        command.args(words).args(["--json", "--pid", &pid]);
        let output = command.output().map_err(|e| e.to_string())?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok::<_, String>((output.status.success(), said + &errors))
    };
    let path = |name: &str| bench.object(name).display().to_string();
    let (refused, why) = say("add", &[&path("replace_ring")])?;
    same("a ring is taken", refused, false)?;
    says(&why, "map `records` is new, and what goes by rings")?;
    let (done, said) = say("add", &[&path("replace_brings")])?;
    if !done {
        return Err(said);
    }
    application.launch(3)?;
    let (_, came) = say("maps", &["lookup", "came", "7"])?;
    same("in the hash", came.trim(), "3")?;
    let (done, said) = say("maps", &["update", "came", "9", "77"])?;
    if !done {
        return Err(said);
    }
    let (_, dumped) = say("maps", &["dump", "came"])?;
    let dumped: serde_json::Value =
        serde_json::from_str(&dumped).map_err(|e| format!("{e}: {dumped}"))?;
    let entries = |map: &serde_json::Value| {
        let all = map["entries"].as_array().into_iter().flatten();
        let all = all.map(|e| (e["key"].as_u64(), e["value"].as_u64()));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        all
    };
    let expected = vec![(Some(7), Some(3)), (Some(9), Some(77))];
    same("a dump", entries(&dumped["map"]), expected.clone())?;
    application.end()?;
    let report = std::fs::read(&saved).map_err(|e| e.to_string())?;
    let report: serde_json::Value = serde_json::from_slice(&report).map_err(|e| e.to_string())?;
    let maps = report["processes"][0]["maps"].as_array();
    let map = |name: &str| {
        let found = maps.into_iter().flatten().find(|map| map["name"] == name);
        found.ok_or_else(|| format!("`{name}` is not in the report"))
    };
    same("in the report", entries(map("came")?), expected)?;
    let went = entries(map("went")?);
    same("an array in the report", went, vec![(Some(1), Some(3))])?;
    Ok("2 launches without the maps, and 3 with them".into())
}

/// Maps come and their programs go while `replacestress.cu` launches from all its threads: each
/// launch had the programs or had not, in all maps alike.
fn under_way(bench: &Bench) -> Told {
    let (threads, rounds) = match bench.soft {
        true => ("4", 8),
        false => ("32", 100),
    };
    let tool = Tool::attach(version(bench, 1)?, Options::default()).map_err(failed)?;
    let application = start(bench, &tool, &["replacestress", threads])?;
    let process = tool.wait_ready(PATIENCE).map_err(failed)?;
    let object = Object::open(bench.object("replace_brings")).map_err(failed)?;
    // Launches that had them are those of each set of programs with them.
    let mut with = std::collections::BTreeSet::new();
    let mut probed = 0;
    for round in 0..rounds {
        let added = process.add(&object).map_err(failed)?;
        same("runs without", added.without, Vec::new())?;
        with.insert(added.generation);
        let before = came(&process)?[3];
        let end = Instant::now() + PATIENCE;
        while came(&process)?[3] == before {
            if Instant::now() > end {
                return Err(format!("no launch had the programs in round {round}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let taken = process.remove(&["brought_in", "brought_out"]);
        taken.map_err(failed)?;
    }
    application.end()?;
    same("last words", tool.wait_last_words(PATIENCE), true)?;
    let mut kernels = std::collections::BTreeMap::new();
    for kernel in process.kernels() {
        kernels.insert(kernel.kernel.demangled.clone(), kernel);
    }
    let mut lately = 0;
    for kernel in kernels.values() {
        probed += kernel.launches;
        let of_sets = kernel.generations.iter();
        lately += of_sets
            .filter(|(set, _)| with.contains(set))
            .map(|(_, launches)| launches)
            .sum::<u64>();
    }
    let [in_hash, by_sm, _, in_array] = came(&process)?;
    let variables = process
        .maps()
        .into_iter()
        .filter(|map| map.name().starts_with(".data"));
    let mut in_variables = 0;
    for variable in variables {
        let value = variable.typed::<u32, u64>().and_then(|map| map.get(&0));
        in_variables += value.map_err(failed)?.unwrap_or(0) - 100;
    }
    same(
        "launches that counted in each map",
        [by_sm, in_array, in_variables],
        [in_hash; 3],
    )?;
    let (entered, left) = counted(&process, &[1])?[0];
    same(
        "launches of the programs of the start",
        (entered, left),
        (probed, probed),
    )?;
    if in_hash < rounds || in_hash >= probed || lately > in_hash {
        return Err(format!(
            "{in_hash} launches of {probed} had them, {lately} of the last sets"
        ));
    }
    Ok(format!(
        "{probed} launches, {in_hash} of them with maps that came, {rounds} times"
    ))
}

/// Versions are replaced while `replacestress.cu` launches from all its threads. What the
/// application made, what the agent counted and what the programs counted is one and the same, and
/// no launch had parts of two versions.
fn stress(bench: &Bench) -> Told {
    stressed(bench, &[])
}

/// The same from threads on two GPUs: all kernels of both change at one moment.
fn stress_of_two(bench: &Bench) -> Told {
    // With so many multiprocessors the copies of a value are too far apart for one copy of all
    // between them, and are read by rows.
    let bench = devices::bench_of_two(bench, "12");
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
    let versions = match std::env::var("WARPBPF_REPLACE_VERSIONS") {
        Ok(wanted) => wanted
            .parse()
            .map_err(|_| format!("WARPBPF_REPLACE_VERSIONS={wanted}"))?,
        Err(_) => versions,
    };
    let tool = Tool::attach(version(bench, 1)?, Options::default()).map_err(failed)?;
    // Two kernels that wait for each other: a load of ours between their launches would hold up the
    // second one for ever.
    let mut command = vec!["replacestress", threads, "meet"];
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
            kernel.uninstrumented + kernel.skipped + kernel.unwanted,
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
