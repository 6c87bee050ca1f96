//! Programs stopped and let go on in a kernel that never ends: what they count says which of them
//! run.

use std::process::Command;
use std::time::{Duration, Instant};

use warpbpf_tool::{Map, Object, Options, Process, Tool};

use crate::host_ops::Running;
use crate::library::{PATIENCE, failed, launch, started};
use crate::process::{Signal, signal};
use crate::run::{Bench, Case, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("gate: programs of a kernel that never ends", programs),
        case(
            "gate: programs that are taken out of a kernel that runs",
            taken,
        ),
        case("gate: the commands", commands),
        case("gate: none was asked for", none),
    ]
}

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// Threads of `longrun`.
const THREADS: u64 = 2 * 32;

fn begin(bench: &Bench, gate: bool) -> Result<Tool, String> {
    let object = Object::open(bench.object("gate")).map_err(failed)?;
    let options = Options {
        allow_modify: true,
        host_ops: true,
        gate,
        ..Options::default()
    };
    Tool::attach(object, options).map_err(failed)
}

/// Counts of the two programs.
struct Counts(Map);

impl Counts {
    fn of(process: &Process) -> Result<Counts, String> {
        process.map("passes").map(Counts).map_err(failed)
    }

    fn now(&self) -> Result<[u64; 2], String> {
        let typed = self.0.clone().typed::<u32, u64>().map_err(failed)?;
        let of = |key: u32| Ok::<u64, String>(typed.get(&key).map_err(failed)?.unwrap_or(0));
        Ok([of(0)?, of(1)?])
    }

    /// Waits until these count, and those that are not to count have stopped: who was in a program
    /// comes to its end.
    fn until(&self, counting: [bool; 2]) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        let mut before = self.now()?;
        let mut stopped: Option<[u64; 2]> = None;
        while Instant::now() < end {
            std::thread::sleep(PAUSE);
            let now = self.now()?;
            let counts = [now[0] > before[0], now[1] > before[1]];
            before = now;
            if counts != counting {
                continue;
            }
            let stopped = stopped.get_or_insert(now);
            // What has stopped stays so, but for threads that were past the gate and get to run
            // only now.
            std::thread::sleep(5 * PAUSE);
            let later = self.now()?;
            let closed = || [0, 1].into_iter().filter(|program| !counting[*program]);
            for program in closed() {
                let late = later[program] - stopped[program];
                if late > THREADS {
                    return Err(format!("a closed program counted {late} times"));
                }
            }
            if closed().all(|program| later[program] == now[program]) {
                return Ok(());
            }
            before = later;
        }
        Err(format!("they never were {counting:?}: {:?}", self.now()))
    }
}

fn programs(bench: &Bench) -> Told {
    let tool = begin(bench, true)?;
    let mut app = started(&tool, &launch(bench, &["longrun", "120000"]))?;
    let process = app.wait_ready(PATIENCE).map_err(failed)?;
    toggle(&process)?;
    same("exit status", app.wait().map_err(failed)?, 0)?;
    let launches: Vec<(u64, u64)> = process
        .kernels()
        .iter()
        .map(|k| (k.launches, k.uninstrumented))
        .collect();
    same("launches", launches, vec![(1, 0)])?;
    Ok("one launch, stopped and let go on".into())
}

fn toggle(process: &Process) -> Result<(), String> {
    let counts = Counts::of(process)?;
    counts.until([true, true])?;
    process.gate(false, &[]).map_err(failed)?;
    counts.until([false, false])?;
    process.gate(true, &["second"]).map_err(failed)?;
    counts.until([false, true])?;
    process.gate(true, &[]).map_err(failed)?;
    counts.until([true, true])?;
    process.gate(false, &["second"]).map_err(failed)?;
    counts.until([true, false])?;
    let unknown = process.gate(false, &["first", "nobody"]);
    says(
        &unknown.err().map(failed).unwrap_or_default(),
        "there is no program `nobody`; there are `first`, `second`, `ender`",
    )?;
    // Nothing was changed.
    counts.until([true, false])?;
    same("generation", process.generation(), 1)?;
    let control = process
        .map("control")
        .and_then(|map| map.typed::<u32, u32>());
    control.and_then(|map| map.insert(&0, &1)).map_err(failed)
}

fn taken(bench: &Bench) -> Told {
    let tool = begin(bench, true)?;
    let mut app = started(&tool, &launch(bench, &["longrun", "60000"]))?;
    let process = app.wait_ready(PATIENCE).map_err(failed)?;
    let counts = Counts::of(&process)?;
    counts.until([true, true])?;
    let removed = process
        .remove(&["first", "second", "ender"])
        .map_err(failed)?;
    same("programs", removed.programs, Vec::<String>::new())?;
    counts.until([false, false])?;
    let still = app.child().try_wait().map_err(|e| e.to_string())?;
    same("it runs", still.is_none(), true)?;
    let stopped = counts.now()?;
    signal(app.child().id(), Signal::Question)?;
    same("exit status", app.wait().map_err(failed)?, 0)?;
    same("counts at the end", counts.now()?, stopped)?;
    Ok(format!("{} passes before", stopped[0]))
}

fn commands(bench: &Bench) -> Told {
    let run = Running::start(bench, "gate", &["--host-ops", "--gate"], 120_000)?;
    run.spins(bench)?;
    let pid = run.child.id().to_string();
    let gate = |words: &[&str]| {
        let mut command = Command::new(bench.folder.join("warpbpf"));
        command.arg("gate").args(words).args(["--pid", &pid]);
        let output = command.output().map_err(|e| format!("warpbpf gate: {e}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok::<String, String>(text(&output.stdout) + &text(&output.stderr))
    };
    says(&gate(&["off"])?, ": no program runs\n")?;
    // A word that only the program writes stays what it was made.
    let stays = || {
        run.change(bench, &["update", "seen", "3", "99"])?;
        std::thread::sleep(5 * PAUSE);
        let seen = run.ask(bench, &["lookup", "seen", "3"])?;
        same("what nobody writes", seen.as_u64(), Some(99))
    };
    // A lane that was past the gate may write once more, whenever it gets to run.
    stays().or_else(|_| stays())?;
    says(&gate(&["on", "spinning"])?, ": `spinning` run\n")?;
    run.until(bench, &["lookup", "seen", "3"], |value| {
        value.as_u64() == Some(0)
    })?;
    says(
        &gate(&["off", "nobody"])?,
        "there is no program `nobody`; there is `spinning`",
    )?;
    says(&gate(&["on", "--json"])?, "\"ok\":true")?;
    let (_, output) = run.end(bench)?;
    same(
        "output",
        String::from_utf8_lossy(&output.stdout).into_owned(),
        "ended\n".to_owned(),
    )?;
    Ok("off and on".into())
}

fn none(bench: &Bench) -> Told {
    let tool = begin(bench, false)?;
    let mut app = started(&tool, &launch(bench, &["longrun", "200"]))?;
    let process = app.wait_ready(PATIENCE).map_err(failed)?;
    let refused = process.gate(false, &[]).err().map(failed);
    says(
        &refused.unwrap_or_default(),
        "programs of this session have no gate: begin it with `--gate`",
    )?;
    same("exit status", app.wait().map_err(failed)?, 0)?;
    Ok("refused".into())
}
