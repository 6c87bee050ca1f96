//! Several tools on one application: each counts what it would count alone, whoever comes and goes.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use warpbpf_tool::{AttachError, Choice, Control, Object, Options, Process, Tool};

use crate::attach::{Application, Attached, kernel, number, value};
use crate::library::{PATIENCE, failed};
use crate::process::{Owned, Signal};
use crate::replace::start;
use crate::run::{Bench, Case, Told, same, says};

mod load;

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("clients: three tools on one application", three),
        case("clients: one object three times", again),
        case("clients: a tool that is killed", killed),
        case("clients: the first tool ends first", first_ends),
        case("clients: the first tool is killed", first_killed),
        case("clients: the application ends first", application_ends),
        case("clients: other launches for each tool", choices),
        case(
            "clients: the first tool replaces its programs",
            replacements,
        ),
        case("clients: graphs keep what they were made with", graphs),
        case("clients: graphs that nobody can be in", graphs_without),
        case("clients: one goes while something is captured", captures),
        case(
            "clients: launches in the stream of a thread",
            thread_streams,
        ),
        case("clients: a tool of the library beside another", library),
        case("clients: they come and go under full load", load::stress),
        case("clients: the same on two GPUs", load::stress_of_two),
        case("clients: refused by name", refused),
        case("clients: the first tool stands still", stands),
    ]
}

/// A first tool that others may join, and its application, which is ended first: a tool that ends
/// hears the last words of its applications.
struct First {
    application: Application,
    tool: Tool,
    process: Process,
}

impl First {
    /// With version 1 of `replace.bpf.c` in it, and three launches of each kernel.
    fn begin(bench: &Bench, options: Options) -> Result<First, String> {
        First::with(bench, "replace", options)
    }

    /// The same with another object.
    fn with(bench: &Bench, object: &str, options: Options) -> Result<First, String> {
        let object = Object::open(bench.object(object)).map_err(failed)?;
        let tool = Tool::attach(object, options).map_err(failed)?;
        tool.serve().map_err(failed)?;
        let mut application = start(bench, &tool, &["live"])?;
        application.launch(3)?;
        let process = tool.wait_ready(PATIENCE).map_err(failed)?;
        Ok(First {
            tool,
            application,
            process,
        })
    }

    fn counted(&self, version: u32) -> Result<[u64; 2], String> {
        counted(&self.process, version)
    }

    /// Of each kernel: its name, launches with its programs, uninstrumented, skipped and unwanted.
    fn launches(&self) -> Result<Vec<(String, [u64; 4])>, String> {
        self.process.snapshot().map_err(failed)?;
        let kernels = self.process.kernels().into_iter().map(|kernel| {
            let counts = [
                kernel.launches,
                kernel.uninstrumented,
                kernel.skipped,
                kernel.unwanted,
            ];
            (kernel.kernel.demangled, counts)
        });
        let mut kernels: Vec<_> = kernels.collect();
        kernels.sort();
        Ok(kernels)
    }

    /// Everything is as if it were alone, after so many launches of each kernel.
    fn is_undisturbed(&self, launches: u64) -> Result<(), String> {
        same("first tool's counts", self.counted(1)?, [2 * launches; 2])?;
        let all = [launches, 0, 0, 0];
        let expected = ["scaled", "step"].map(|name| (name.to_owned(), all));
        same("first tool's launches", self.launches()?, expected.to_vec())?;
        let programs = self.process.programs().into_iter().map(|p| p.name);
        let programs: Vec<String> = programs.collect();
        same(
            "first tool's programs",
            programs,
            names(&["enter", "leave"]),
        )?;
        let maps = self.process.maps();
        let maps = maps.iter().map(|map| map.name().to_owned()).collect();
        let expected = names(&["entered", "left", ".rodata"]);
        same("first tool's maps", sorted(maps), sorted(expected))
    }

    /// A client: `warpbpf attach` with an object, under a name of its own.
    fn client(&self, bench: &Bench, object: &str, flags: &[&str]) -> Result<Attached, String> {
        client(bench, &self.application.pid(), object, flags)
    }

    /// All programs, as another command sees them.
    fn seen(&self) -> Result<Vec<String>, String> {
        let mut control = Control::connect(&self.tool.socket().with_file_name("maps"));
        let control = control.as_mut().map_err(|error| error.to_string())?;
        let (session, _) = control.session().map_err(failed)?;
        let programs = session.processes[0].programs.iter();
        Ok(programs.map(|program| program.name.clone()).collect())
    }

    /// Waits until only programs of these names are there.
    fn until_alone(&self, expected: &[&str]) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = self.seen()?;
            if seen == expected {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("programs are still there: {seen:?}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Launches that the first tool's programs counted in both kernels, at their starts and ends, of a
/// version.
fn counted(process: &Process, version: u32) -> Result<[u64; 2], String> {
    let [entered, left] = ["entered", "left"].map(|name| {
        let map = process.map(name)?.typed::<u32, u64>()?;
        Ok(map.get(&version)?.unwrap_or(0))
    });
    Ok([entered.map_err(failed)?, left.map_err(failed)?])
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

fn client(bench: &Bench, pid: &str, object: &str, flags: &[&str]) -> Result<Attached, String> {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let saved: PathBuf = bench.scratch(&format!("client-{number}.json"));
    let mut command = bench.warpbpf("attach");
    command.args(["-p", pid, "--json", "-o"]).arg(&saved);
    command.args(flags).arg(bench.object(object));
    Attached::by(command, saved)
}

/// Launches with a client's programs, uninstrumented, skipped and unwanted.
fn counts(report: &Value, name: &str) -> Result<[u64; 4], String> {
    let kernel = kernel(report, name)?;
    let count = |what: &str| number(&kernel[what]);
    Ok(["launches", "uninstrumented", "skipped", "unwanted"].map(count))
}

fn list(report: &Value, what: &str) -> Vec<String> {
    let all = report["processes"][0][what].as_array();
    let names = all.into_iter().flatten().map(|each| &each["name"]);
    names
        .filter_map(|name| Some(name.as_str()?.to_owned()))
        .collect()
}

fn complete(report: &Value) -> Option<bool> {
    report["processes"][0]["complete"].as_bool()
}

/// What two others count, who come and go in the order in which they came.
fn three(bench: &Bench) -> Told {
    let mut first = First::begin(bench, Options::default())?;
    let other = first.client(bench, "replace_other", &[])?;
    first.application.launch(4)?;
    let scopes = first.client(bench, "scopes", &[])?;
    first.application.launch(5)?;
    let there = first.seen()?;
    same(
        "the client's program is there",
        there.contains(&"other@c1".to_owned()),
        true,
    )?;
    same("programs of all", there.len(), 2 + 1 + 6)?;
    // One map of the name is the first tool's, the other the client's.
    let pid = first.application.pid();
    let mut command = bench.warpbpf("maps");
    let output = command.args(["--pid", &pid, "--json", "lookup", "entered@c1", "1000"]);
    let output = output.output().map_err(|e| e.to_string())?;
    let looked_up = String::from_utf8_lossy(&output.stdout).into_owned();
    same("from outside", looked_up.trim(), "9")?;

    let report = other.interrupt()?;
    same(
        "launches of the second",
        counts(&report, "step")?,
        [9, 0, 0, 0],
    )?;
    same("what it counted", value(&report, "entered", 1000), 9)?;
    same("what it did not", value(&report, "entered", 1), 0)?;
    same("its maps", list(&report, "maps"), names(&["entered"]))?;
    let programs = report["programs"].as_array().map_or(0, Vec::len);
    same("its programs", programs, 1)?;
    let scaled = kernel(&report, "scaled")?;
    same(
        "its other kernel",
        scaled["method"].as_str(),
        Some("not matched"),
    )?;
    same("launches of that", counts(&report, "scaled")?, [0; 4])?;
    let step = kernel(&report, "step")?;
    same("its kernel", step["instrumented"].as_bool(), Some(true))?;
    let kernels = sorted(list(&report, "kernels"));
    same("kernels", kernels, names(&["scaled", "step"]))?;
    same("complete", complete(&report), Some(true))?;
    first.application.launch(2)?;

    let report = scopes.interrupt()?;
    same(
        "launches of the third",
        counts(&report, "step")?,
        [7, 0, 0, 0],
    )?;
    let step = number(&kernel(&report, "step")?["id"]) * 8;
    let (threads, blocks) = (7 * 4 * 64, 7 * 4);
    for (what, expected) in [(0, threads), (2, blocks), (4, threads), (6, blocks)] {
        same(
            "threads and blocks",
            value(&report, "counts", step + what),
            expected,
        )?;
    }
    // Code beside a constant would have to be in the module from the start; what the first tool has
    // there stays.
    let scaled = kernel(&report, "scaled")?;
    same(
        "not in the clone",
        scaled["instrumented"].as_bool(),
        Some(false),
    )?;
    says(
        scaled["method"].as_str().unwrap_or(""),
        "its image is loaded already",
    )?;
    same(
        "uninstrumented there",
        counts(&report, "scaled")?,
        [0, 7, 0, 0],
    )?;
    let kernels = sorted(list(&report, "kernels"));
    same("kernels", kernels, names(&["scaled", "step"]))?;

    first.application.launch(1)?;
    first.until_alone(&["enter", "leave"])?;
    first.is_undisturbed(15)?;
    same("nobody else's count", first.counted(1000)?, [0; 2])?;
    first.application.end()?;
    Ok("15 launches of each kernel, two clients".into())
}

/// The very same object, names and all, of which each is another.
fn again(bench: &Bench) -> Told {
    let mut first = First::begin(bench, Options::default())?;
    let second = first.client(bench, "replace", &[])?;
    first.application.launch(2)?;
    let third = first.client(bench, "replace", &["--set", "version=5"])?;
    first.application.launch(4)?;
    // In another order than they came.
    let of_second = second.interrupt()?;
    first.application.launch(1)?;
    let of_third = third.interrupt()?;
    first.application.launch(2)?;
    for (report, version, launches) in [(&of_second, 1, 6), (&of_third, 5, 5)] {
        same("launches", counts(report, "step")?, [launches, 0, 0, 0])?;
        same("entered", value(report, "entered", version), launches)?;
        same("left", value(report, "left", version), launches)?;
        same(
            "a version of another",
            value(report, "left", 6 - version),
            0,
        )?;
        let maps = sorted(list(report, "maps"));
        same("maps", maps, names(&["entered", "left"]))?;
        let kernels = sorted(list(report, "kernels"));
        same("kernels", kernels, names(&["scaled", "step"]))?;
        let method = |name: &str| Ok::<_, String>(kernel(report, name)?["method"].to_string());
        says(&method("step")?, "slice")?;
        says(&method("scaled")?, "it needs a clone")?;
    }
    first.is_undisturbed(12)?;
    first.application.end()?;
    Ok("each its own counts".into())
}

/// Nobody has to say that it goes.
fn killed(bench: &Bench) -> Told {
    let mut first = First::begin(bench, Options::default())?;
    let doomed = first.client(bench, "replace_other", &[])?;
    let other = first.client(bench, "replace_other", &[])?;
    first.application.launch(2)?;
    // It is ended with SIGKILL.
    drop(doomed);
    first.until_alone(&["enter", "leave", "other@c2"])?;
    first.application.launch(3)?;
    let third = first.client(bench, "replace_other", &[])?;
    first.application.launch(4)?;
    let of_third = third.interrupt()?;
    let of_other = other.interrupt()?;
    for (report, launches) in [(&of_other, 9), (&of_third, 4)] {
        same("launches", counts(report, "step")?, [launches, 0, 0, 0])?;
        same("counted", value(report, "entered", 1000), launches)?;
    }
    first.is_undisturbed(12)?;
    first.application.end()?;
    Ok("its programs went, and others came".into())
}

/// Whoever is left has what there was, and may come again by itself.
fn first_ends(bench: &Bench) -> Told {
    let mut first = First::begin(bench, Options::default())?;
    let second = first.client(bench, "replace_other", &[])?;
    first.application.launch(4)?;
    first.process.snapshot().map_err(failed)?;
    let First {
        tool,
        mut application,
        process,
    } = first;
    drop(tool);
    drop(process);
    let report = second.report()?;
    same("counted", value(&report, "entered", 1000), 4)?;
    same("launches", counts(&report, "step")?, [4, 0, 0, 0])?;
    let notes = report["notes"].to_string();
    says(
        &notes,
        "beside whose programs these were has ended, and they are out of process",
    )?;
    // Launches are of originals, and another tool can come as to any application.
    application.launch(3)?;
    let pid = application.pid();
    let later = match client(bench, &pid, "replace_other", &[]) {
        Err(reason) if reason.starts_with("skipped: ") => {
            application.end()?;
            return Ok("the client has its report; ptrace is not permitted".into());
        }
        later => later?,
    };
    crate::attach::until_seen(bench, (&pid, "entered"), || application.launch(1))?;
    let report = later.interrupt()?;
    let step = counts(&report, "step")?[0];
    same("counted", value(&report, "entered", 1000), step)?;
    application.end()?;
    Ok("the client has its report, and another came".into())
}

fn first_killed(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    let first = match client(bench, &application.pid(), "replace", &[]) {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        first => first?,
    };
    let pid = application.pid();
    crate::attach::until_seen(bench, (&pid, "entered"), || application.launch(1))?;
    let second = client(bench, &pid, "replace_other", &[])?;
    crate::attach::until_seen(bench, (&pid, "entered@c1"), || application.launch(1))?;
    drop(first);
    let report = second.report()?;
    same("counted", value(&report, "entered", 1000) > 0, true)?;
    says(&report["notes"].to_string(), "has ended without a word")?;
    application.launch(2)?;
    application.end()?;
    Ok("the client has what was copied".into())
}

/// Its last data come to all.
fn application_ends(bench: &Bench) -> Told {
    let mut first = First::begin(bench, Options::default())?;
    let second = first.client(bench, "replace_other", &[])?;
    let third = first.client(bench, "replace", &[])?;
    first.application.launch(6)?;
    let First {
        tool,
        application,
        process,
    } = first;
    application.end()?;
    let (of_second, of_third) = (second.report()?, third.report()?);
    for (report, key) in [(&of_second, 1000), (&of_third, 1)] {
        same("complete", complete(report), Some(true))?;
        same("launches", counts(report, "step")?, [6, 0, 0, 0])?;
        same("counted", value(report, "entered", key), 6)?;
    }
    same("last words", tool.wait_last_words(PATIENCE), true)?;
    same("the first", counted(&process, 1)?, [18, 18])?;
    Ok("all have all".into())
}

/// Each is in launches that it chose, and told of no others.
fn choices(bench: &Bench) -> Told {
    let every = |every| Choice {
        every,
        ..Choice::default()
    };
    let options = Options {
        choice: every(2),
        ..Options::default()
    };
    let mut first = First::begin(bench, options)?;
    let all = first.client(bench, "replace", &[])?;
    let third = first.client(bench, "replace", &["--every", "3"])?;
    // Numbers 4 to 15 of each kernel.
    first.application.launch(12)?;
    let of_third = third.interrupt()?;
    let of_all = all.interrupt()?;
    // 4, 7, 10 and 13.
    same("one in three", counts(&of_third, "step")?, [4, 0, 8, 0])?;
    same("counted", value(&of_third, "entered", 1), 4)?;
    same("all", counts(&of_all, "step")?, [12, 0, 0, 0])?;
    same("counted", value(&of_all, "entered", 1), 12)?;
    first.application.launch(1)?;
    // Odd numbers up to 15, of 16.
    let expected = ["scaled", "step"].map(|name| (name.to_owned(), [8, 0, 8, 0]));
    same(
        "launches of the first",
        first.launches()?,
        expected.to_vec(),
    )?;
    same("counted", first.counted(1)?, [16; 2])?;
    let programs = first.process.kernels().into_iter().flat_map(|k| k.programs);
    same("by program", programs.count(), 0)?;
    first.application.end()?;
    Ok("16 launches: 8, 12 and 4 of them".into())
}

/// What the first tool does with its own programs does not touch others'.
fn replacements(bench: &Bench) -> Told {
    let mut first = First::begin(bench, Options::default())?;
    let second = first.client(bench, "replace", &["--set", "version=9"])?;
    first.application.launch(1)?;
    let object = Object::open(bench.object("replace")).map_err(failed)?;
    let object = object.with_variables(&[("version", "2")]).map_err(failed)?;
    first.process.replace(&object).map_err(failed)?;
    first.application.launch(2)?;
    let other = Object::open(bench.object("replace_other")).map_err(failed)?;
    first.process.add(&other).map_err(failed)?;
    first.application.launch(3)?;
    // Its names are not the client's.
    let unknown = first.process.remove(&["enter@c1"]).err().map(failed);
    says(
        &unknown.unwrap_or_default(),
        "there is no program `enter@c1`; there are `enter`, `leave`, `other`",
    )?;
    let programs = ["enter", "leave", "other"];
    first.process.remove(&programs).map_err(failed)?;
    first.application.launch(4)?;
    let report = second.interrupt()?;
    same(
        "launches of the second",
        counts(&report, "step")?,
        [10, 0, 0, 0],
    )?;
    same("counted", value(&report, "left", 9), 10)?;
    first.application.launch(1)?;
    // `scaled` is a clone, which no replacement makes.
    same("of the first version", first.counted(1)?, [8, 8])?;
    same("of the second", first.counted(2)?, [5, 5])?;
    same("of the one that was added", first.counted(1000)?, [3, 0])?;
    let expected = [("scaled", [4, 5, 0, 5]), ("step", [9, 0, 0, 5])];
    let expected = expected.map(|(name, counts)| (name.to_owned(), counts));
    same("launches", first.launches()?, expected.to_vec())?;
    first.application.end()?;
    Ok("14 launches, three replacements".into())
}

fn graphs(bench: &Bench) -> Told {
    let mut first = First::begin(bench, Options::default())?;
    first.application.launch_as("g", 2)?;
    let second = first.client(bench, "replace_other", &[])?;
    // As it was captured.
    first.application.launch_as("g", 3)?;
    first.application.launch_as("G", 4)?;
    let report = second.interrupt()?;
    same("launches", counts(&report, "step")?, [4, 0, 0, 0])?;
    same("counted", value(&report, "entered", 1000), 4)?;
    // A graph keeps its nodes, and the first tool counts in them.
    first.application.launch_as("g", 1)?;
    first.application.launch_as("G", 2)?;
    first.is_undisturbed(15)?;
    first.application.end()?;
    Ok("12 launches of graphs".into())
}

/// The first tool's program asks for parameters that no kernel has, so no code can be made: what a
/// tool chose is a fallback for it.
fn graphs_without(bench: &Bench) -> Told {
    let mut first = First::with(bench, "sites_named", Options::default())?;
    let all = first.client(bench, "replace_other", &[])?;
    let large = first.client(bench, "replace_other", &["--min-blocks", "5"])?;
    first.application.launch_as("g", 7)?;
    first.application.launch(2)?;
    for (client, expected) in [(large, [0, 0, 9, 0]), (all, [0, 9, 0, 0])] {
        let report = client.interrupt()?;
        same("launches", counts(&report, "step")?, expected)?;
        same("counted", value(&report, "entered", 1000), 0)?;
    }
    let expected = ["scaled", "step"].map(|name| (name.to_owned(), [0, 12, 0, 0]));
    same("first tool's", first.launches()?, expected.to_vec())?;
    first.application.end()?;
    Ok("12 launches, 7 of them of the graph".into())
}

/// Whether the end of a client's last kernels was known.
fn is_known(report: &Value) -> bool {
    !report["notes"].to_string().contains("were not waited for")
}

/// Its last kernels are waited for when nothing is captured any more, and the capture never hears
/// of it.
fn captures(bench: &Bench) -> Told {
    let mut first = First::begin(bench, Options::default())?;
    let second = first.client(bench, "replace_other", &[])?;
    first.application.launch(2)?;
    same(
        "a capture",
        first.application.ask("(")?.as_str(),
        "capturing",
    )?;
    second.signal(Signal::Interrupt)?;
    first.until_alone(&["enter", "leave"])?;
    let third = first.client(bench, "replace_other", &[])?;
    same("its end", first.application.ask(")")?.as_str(), "captured")?;
    let report = second.report()?;
    same("launches", counts(&report, "step")?, [2, 0, 0, 0])?;
    same("counted", value(&report, "entered", 1000), 2)?;
    same("complete", complete(&report), Some(true))?;
    same("its end is known", is_known(&report), true)?;
    // What was captured keeps what it was captured with, which is neither client's any more.
    first.application.launch_as("g", 4)?;
    first.application.launch(1)?;
    let report = third.interrupt()?;
    same("launches", counts(&report, "step")?, [1, 0, 0, 0])?;
    same("counted", value(&report, "entered", 1000), 1)?;
    same("its end is known", is_known(&report), true)?;
    first.is_undisturbed(10)?;
    first.application.end()?;
    Ok("10 launches, 4 of them of the graph".into())
}

/// Nobody else can ask such a stream, and the end of what is in it is known nevertheless, for each
/// client.
fn thread_streams(bench: &Bench) -> Told {
    let mut first = First::begin(bench, Options::default())?;
    let stays = first.client(bench, "replace", &["--set", "version=7"])?;
    for launches in [4, 5] {
        let goes = first.client(bench, "replace_other", &[])?;
        first.application.launch_as("p", launches)?;
        let report = goes.interrupt()?;
        same("launches", counts(&report, "step")?, [launches, 0, 0, 0])?;
        same("counted", value(&report, "entered", 1000), launches)?;
        same("its end is known", is_known(&report), true)?;
    }
    first.application.launch_as("p", 1)?;
    let report = stays.interrupt()?;
    same("launches", counts(&report, "step")?, [10, 0, 0, 0])?;
    same("counted", value(&report, "left", 7), 10)?;
    same("its end is known", is_known(&report), true)?;
    first.is_undisturbed(13)?;
    first.application.end()?;
    Ok("13 launches, 10 of them in the thread's stream".into())
}

fn told(error: &AttachError) -> String {
    error.to_string()
}

/// A tool in another program, which reads and writes its maps while both are there.
fn library(bench: &Bench) -> Told {
    let mut first = First::begin(bench, Options::default())?;
    let object = Object::open(bench.object("replace_other")).map_err(failed)?;
    let tool = Tool::attach(object.clone(), Options::default()).map_err(failed)?;
    let pid: u32 = first.application.pid().parse().map_err(|_| "no number")?;
    let change = tool.attach_to(pid).map_err(|error| told(&error))?;
    same("whose client", change.host, Some(std::process::id()))?;
    let process = tool.wait_ready(PATIENCE).map_err(failed)?;
    same("whose client", process.host(), Some(std::process::id()))?;
    first.application.launch(5)?;
    let entered = process
        .map("entered")
        .and_then(|map| map.typed::<u32, u64>());
    let entered = entered.map_err(failed)?;
    same("a lookup", entered.get(&1000).map_err(failed)?, Some(5))?;
    entered.insert(&1000, &70).map_err(failed)?;
    entered.insert(&1, &1).map_err(failed)?;
    first.application.launch(1)?;
    same("written", entered.get(&1000).map_err(failed)?, Some(71))?;
    same("a snapshot", process.snapshot().map_err(failed), Ok(()))?;
    let step = process
        .kernels()
        .into_iter()
        .find(|k| k.kernel.demangled == "step");
    same("launches", step.map(|k| k.launches), Some(6))?;
    let missing = process.map("left").err().map(failed).unwrap_or_default();
    says(&missing, "there is no map `left`; there are `entered`")?;
    let refused = process.add(&object).err().map(failed).unwrap_or_default();
    says(
        &refused,
        "programs beside those of another tool are not replaced",
    )?;
    let again = first.tool.attach_to(pid).err().map(|error| told(&error));
    says(
        &again.unwrap_or_default(),
        "has the programs of this tool already",
    )?;
    process.detach().map_err(failed)?;
    same("last words", tool.wait_last_words(PATIENCE), true)?;
    same("complete", process.is_complete(), true)?;
    first.application.launch(1)?;
    same("at the end", entered.get(&1000).map_err(failed)?, Some(71))?;
    drop(tool);
    first.until_alone(&["enter", "leave"])?;
    first.is_undisturbed(10)?;
    first.application.end()?;
    Ok("read and written beside the other".into())
}

/// What a client cannot have is named, and nothing changes. A first tool that does not answer is
/// waited for as long as is said, is named, and holds up neither Ctrl-C nor `ps`.
fn stands(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    let pid = application.pid();
    let first = match Attached::start(bench, &application, "replace") {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        first => first?,
    };
    first.signal(Signal::Stop)?;
    let flags = ["--tool-timeout", "1"];
    let said = match client(bench, &pid, "replace_other", &flags) {
        Ok(_) => return Err("a tool that stands still has let another one in".into()),
        Err(said) => said,
    };
    says(&said, &format!("process {pid} "))?;
    says(
        &said,
        &format!(
            "the tool of process {} may have its programs there, and did not answer within 1 s",
            first.pid()
        ),
    )?;
    let mut command = bench.warpbpf("attach");
    command.args(["-p", &pid, "--tool-timeout", "3600"]);
    let child = Owned::spawn(
        command
            .arg(bench.object("replace_other"))
            .stderr(Stdio::piped()),
    );
    let child = child.map_err(|e| e.to_string())?;
    let inside = format!("/proc/{}/status", child.id());
    // SIGINT is caught once it is noted.
    let caught = || {
        let status = std::fs::read_to_string(&inside).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.is_some_and(|mask| mask & 2 != 0)
    };
    let end = Instant::now() + PATIENCE;
    while !caught() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    crate::process::signal(child.id(), Signal::Interrupt)?;
    let output = child.output().map_err(|e| e.to_string())?;
    same("status after Ctrl-C", output.status.code(), Some(125))?;
    first.signal(Signal::GoOn)?;
    application.launch(2)?;
    first.interrupt()?;
    application.end()?;
    Ok("named after a second, and by Ctrl-C at once".into())
}

fn refused(bench: &Bench) -> Told {
    let mut first = First::begin(bench, Options::default())?;
    let trial = |object: &str, flags: &[&str], why: &str| -> Result<(), String> {
        let said = match first.client(bench, object, flags) {
            Ok(_) => return Err(format!("`{object}` {flags:?} was taken")),
            Err(said) => said,
        };
        says(&said, "has programs of another tool (process ")?;
        says(&said, why)
    };
    trial(
        "replace_ring",
        &[],
        "map `records` cannot come with a second tool: what goes by rings goes by memory that is made when a session begins",
    )?;
    trial(
        "helpers",
        &[],
        "prints, and what is printed goes to the first tool",
    )?;
    trial(
        "replace_other",
        &["--gate"],
        "`--gate` cannot be had beside those",
    )?;
    trial(
        "replace_other",
        &["--max-registers", "32"],
        "`--max-registers` cannot be had",
    )?;
    trial(
        "replace_other",
        &["--max-overhead", "5%"],
        "`--max-overhead` cannot be had",
    )?;
    trial("driverapi", &[], "is for the CPU")?;
    same("generation", first.process.generation(), 1)?;
    first.application.launch(2)?;
    first.is_undisturbed(5)?;
    first.application.end()?;
    Ok("six refusals".into())
}
