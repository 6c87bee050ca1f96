//! Programs put into slots of a kernel that never ends: rounds that the host asks for say exactly
//! how often each of them ran.

use warpbpf_tool::{Object, Options, Process, Tool};

use crate::attach::{Application, until_known};
use crate::library::{PATIENCE, failed};
use crate::replace::start;
use crate::run::{Bench, Case, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case(
            "slots: programs that come into a kernel that never ends",
            replaced,
        ),
        case("slots: the commands", commands),
        case("slots: none were asked for", none),
    ]
}

/// Blocks of `persistent.cu`, and threads of each.
const BLOCKS: u64 = 3;
const THREADS: u64 = 40;
const ALL: u64 = BLOCKS * THREADS;

fn object(bench: &Bench, name: &str) -> Result<Object, String> {
    Object::open(bench.object(name)).map_err(failed)
}

fn begin(bench: &Bench, slots: bool) -> Result<Tool, String> {
    let options = Options {
        slots,
        budget: Some(4096),
        ..Options::default()
    };
    Tool::attach(object(bench, "slots")?, options).map_err(failed)
}

/// The application, and what it has done.
struct Rounds {
    application: Application,
    done: u64,
}

impl Rounds {
    /// So many more. What the kernel stored is what it would have stored without us.
    fn go(&mut self, rounds: u64) -> Result<(), String> {
        let said = self.application.ask(&rounds.to_string())?;
        self.done += rounds;
        let of_rounds = self.done * (self.done + 1) / 2;
        let expected = of_rounds * (ALL * (ALL - 1) / 2);
        same("stored", said, expected.to_string())
    }
}

/// The first sums, in rounds of all threads.
fn counted(process: &Process) -> Result<[u64; 7], String> {
    let sums = process.map("sums").and_then(|map| map.typed::<u32, u64>());
    let sums = sums.map_err(failed)?;
    let mut all = [0; 7];
    for (key, sum) in (0..).zip(&mut all) {
        *sum = sums.get(&key).map_err(failed)?.unwrap_or(0);
    }
    Ok(all)
}

fn replaced(bench: &Bench) -> Told {
    let tool = begin(bench, true)?;
    let application = start(bench, &tool, &["persistent"])?;
    let mut rounds = Rounds {
        application,
        done: 0,
    };
    rounds.go(3)?;
    let process = tool.wait_ready(PATIENCE).map_err(failed)?;
    same("compiled", counted(&process)?, [3 * ALL, 0, 0, 0, 0, 0, 0])?;

    let first = object(bench, "slots_first")?;
    let put = process.put_in_slots(&first).map_err(failed)?;
    same("in slots", put.slots, vec!["first".to_owned()])?;
    same("generation", put.generation, 1)?;
    rounds.go(4)?;
    let threads = BLOCKS * (THREADS * (THREADS - 1) / 2);
    let mut expected = [7 * ALL, 4 * ALL, 4 * ALL * 8, 4 * threads, 4 * ALL, 0, 0];
    same("with the first", counted(&process)?, expected)?;

    let second = object(bench, "slots_second")?;
    let put = process.put_in_slots(&second).map_err(failed)?;
    same(
        "in slots",
        put.slots,
        ["second", "third"].map(String::from).to_vec(),
    )?;
    rounds.go(2)?;
    expected[0] += 2 * ALL;
    expected[5] = 2 * ALL * 10;
    expected[6] = 2 * ALL;
    same("with others", counted(&process)?, expected)?;
    let blocks = process
        .map("blocks")
        .and_then(|map| map.typed::<u32, u64>());
    let blocks = blocks.map_err(failed)?;
    for block in 0..BLOCKS as u32 {
        let count = blocks.get(&block).map_err(failed)?;
        same("of a block", count, Some(2 * THREADS))?;
    }

    wrong(bench, &process)?;
    process.gate(false, &[]).map_err(failed)?;
    rounds.go(1)?;
    same("all stopped", counted(&process)?, expected)?;
    process.gate(true, &[]).map_err(failed)?;
    process.gate(false, &["compiled"]).map_err(failed)?;
    rounds.go(1)?;
    expected[5] += ALL * 10;
    expected[6] += ALL;
    same("one stopped", counted(&process)?, expected)?;
    process.gate(true, &[]).map_err(failed)?;

    process.clear_slots().map_err(failed)?;
    rounds.go(2)?;
    expected[0] += 2 * ALL;
    same("without", counted(&process)?, expected)?;
    // Many times, so that each half is filled again and again.
    for round in 0..8 {
        let (object, sums) = match round % 2 {
            0 => (&first, [0, ALL, 8 * ALL, threads, ALL, 0, 0]),
            _ => (&second, [0, 0, 0, 0, 0, 10 * ALL, ALL]),
        };
        process.put_in_slots(object).map_err(failed)?;
        rounds.go(1)?;
        expected[0] += ALL;
        for (expected, more) in expected.iter_mut().zip(sums) {
            *expected += more;
        }
        same("in turn", counted(&process)?, expected)?;
    }
    // The compiled one is taken out; what is in its slot stays.
    process.put_in_slots(&first).map_err(failed)?;
    process.remove(&["compiled"]).map_err(failed)?;
    rounds.go(1)?;
    for (expected, more) in expected
        .iter_mut()
        .zip([0, ALL, 8 * ALL, threads, ALL, 0, 0])
    {
        *expected += more;
    }
    same("beside nothing", counted(&process)?, expected)?;
    let made = rounds.done;
    same(
        "last words",
        rounds.application.end()?,
        "ended\n".to_owned(),
    )?;
    same("the tool hears", tool.wait_last_words(PATIENCE), true)?;
    let launches: Vec<(u64, u64)> = process
        .kernels()
        .iter()
        .map(|k| (k.launches, k.uninstrumented))
        .collect();
    same("launches", launches, vec![(1, 0)])?;
    Ok(format!("{made} rounds of one launch"))
}

/// What is refused changes nothing.
fn wrong(bench: &Bench, process: &Process) -> Result<(), String> {
    let refused = |name: &str| {
        let done = process.put_in_slots(&object(bench, name)?);
        Ok::<String, String>(done.err().map(failed).unwrap_or_default())
    };
    says(
        &refused("slots_refused")?,
        "calls `bpf_get_prandom_u32`, which programs in a slot cannot; they can call `bpf_map_lookup_elem`, ",
    )?;
    says(
        &refused("memcount")?,
        "is new, and programs in slots use maps that are there",
    )
}

fn commands(bench: &Bench) -> Told {
    let saved = bench.scratch("slots.json");
    let mut run = bench.warpbpf("run");
    run.args(["--slots", "--budget", "4096", "--json", "-o"]);
    run.arg(&saved).arg(bench.object("slots"));
    run.arg("--").arg(bench.app("persistent"));
    let application = Application::start(run)?;
    let pid = application.pid();
    let mut rounds = Rounds {
        application,
        done: 0,
    };
    let slots = |words: &[&str], object: Option<&str>| {
        let mut command = bench.warpbpf("slots");
        command.args(words).args(["--pid", &pid]);
        command.args(object.map(|name| bench.object(name)));
        let output = command
            .output()
            .map_err(|e| format!("warpbpf slots: {e}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok::<String, String>(text(&output.stdout) + &text(&output.stderr))
    };
    rounds.go(1)?;
    until_known(bench, &pid)?;
    says(
        &slots(&["load"], Some("slots_first"))?,
        ": `first` in slots\n",
    )?;
    rounds.go(2)?;
    says(
        &slots(&["load"], Some("slots_refused"))?,
        "program `draws` cannot run in a slot: instruction `",
    )?;
    rounds.go(1)?;
    says(&slots(&["clear"], None)?, ": nothing is in slots\n")?;
    rounds.go(1)?;
    says(
        &slots(&["load", "--json"], Some("slots_second"))?,
        "\"slots\":[\"second\",\"third\"]",
    )?;
    same(
        "last words",
        rounds.application.end()?,
        "ended\n".to_owned(),
    )?;
    let text = std::fs::read(&saved).map_err(|e| e.to_string())?;
    let report: serde_json::Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    let maps = report["processes"][0]["maps"].as_array();
    let sums = maps.into_iter().flatten().find(|map| map["name"] == "sums");
    let entries = sums.and_then(|map| map["entries"].as_array());
    let values = entries.into_iter().flatten().take(3);
    let values: Vec<Option<u64>> = values.map(|entry| entry["value"].as_u64()).collect();
    let expected = [5 * ALL, 3 * ALL, 3 * ALL * 8].map(Some).to_vec();
    same("sums", values, expected)?;
    Ok("put, refused, cleared".into())
}

fn none(bench: &Bench) -> Told {
    let tool = begin(bench, false)?;
    let application = start(bench, &tool, &["persistent"])?;
    let mut rounds = Rounds {
        application,
        done: 0,
    };
    rounds.go(1)?;
    let process = tool.wait_ready(PATIENCE).map_err(failed)?;
    let put = process.put_in_slots(&object(bench, "slots_first")?);
    let asked = "programs of this session have no slots: begin it with `--slots`";
    says(&put.err().map(failed).unwrap_or_default(), asked)?;
    let cleared = process.clear_slots();
    says(&cleared.err().map(failed).unwrap_or_default(), asked)?;
    rounds.go(1)?;
    same(
        "last words",
        rounds.application.end()?,
        "ended\n".to_owned(),
    )?;
    Ok("refused".into())
}
