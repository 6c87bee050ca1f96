//! The Rust library as a tool would use it, on the same applications.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use warpbpf_tool::{
    App, DeviceChoice, Error, Launch, MapOp, Object, OpCode, Options, Process, Tool, Value,
};

use crate::process::Owned;
use crate::run::{Bench, Case, Told, same, says};

/// How long an application may take to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("library: maps of a kernel that runs and ended", live),
        case("library: an application that others start", others),
        case("library: events as they come", events),
        case("library: every entry of a large hash", million),
        case("library: the example `counter`", counter),
        case("library: the example `events`", event_counter),
    ]
}

/// What the library says instead of doing it.
pub(crate) fn failed(error: Error) -> String {
    error.to_string()
}

pub(crate) fn launch(bench: &Bench, words: &[&str]) -> Launch {
    let command = std::iter::once(bench.app(words[0]).into_os_string())
        .chain(words[1..].iter().map(Into::into));
    let device = if bench.soft {
        DeviceChoice::Soft
    } else {
        DeviceChoice::Gpu
    };
    Launch::new(command).device(device)
}

/// An application that a tool has started: it does not stay behind, whatever goes wrong.
pub(crate) struct Started<'t>(App<'t>);

pub(crate) fn started<'t>(tool: &'t Tool, launch: &Launch) -> Result<Started<'t>, String> {
    tool.start(launch).map(Started).map_err(failed)
}

impl<'t> Deref for Started<'t> {
    type Target = App<'t>;

    fn deref(&self) -> &App<'t> {
        &self.0
    }
}

impl<'t> DerefMut for Started<'t> {
    fn deref_mut(&mut self) -> &mut App<'t> {
        &mut self.0
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        // One that was waited for is left alone by both.
        let _ = self.child().kill();
        let _ = self.child().wait();
    }
}

fn options() -> Options {
    Options {
        allow_modify: true,
        budget: Some(20_000),
        host_ops: true,
        live_sums: true,
        ..Options::default()
    }
}

/// As in `longrun.bpf.c`, in words: what, times, value.
type Order = [u32; 4];

fn live(bench: &Bench) -> Told {
    let object = Object::open(bench.object("longrun")).map_err(failed)?;
    let tool = Tool::attach(object, options()).map_err(failed)?;
    // A map has contents before the kernel runs.
    let (key, order): ([u8; 4], Order) = (7u32.to_le_bytes(), [0, 2, 21, 0]);
    let order: Vec<u8> = order.iter().flat_map(|word| word.to_le_bytes()).collect();
    tool.preset(
        "orders",
        &[MapOp {
            code: OpCode::Update,
            flags: 0,
            key: &key,
            value: &order,
        }],
    );
    let mut app = started(&tool, &launch(bench, &["longrun", "120000"]))?;
    let process = app.wait_ready(PATIENCE).map_err(failed)?;
    steer(&process)?;
    same("exit status", app.wait().map_err(failed)?, 0)?;
    // It has ended: reads go on, changes do not.
    let seen = process.map("seen").and_then(|map| map.typed::<u32, u64>());
    let seen = seen.map_err(failed)?;
    same("seen at the end", seen.get(&0).map_err(failed)?, Some(42))?;
    same("its keys", seen.keys().map_err(failed)?, vec![0, 1, 2, 3])?;
    let orders = process
        .map("orders")
        .and_then(|map| map.typed::<u32, Order>());
    let orders = orders.map_err(failed)?;
    same(
        "orders at the end",
        orders.entries().map_err(failed)?,
        vec![(8, [9, 9, 9, 9])],
    )?;
    same("a key that is gone", orders.get(&7).map_err(failed)?, None)?;
    let refused = orders
        .insert(&1, &[0; 4])
        .err()
        .map(failed)
        .unwrap_or_default();
    says(&refused, "has ended: its maps can be read, not changed")?;
    let kernels = process.kernels();
    let launches: Vec<(u64, u64)> = kernels
        .iter()
        .map(|k| (k.launches, k.uninstrumented))
        .collect();
    same("launches", launches, vec![(1, 0)])?;
    Ok("steered, ended and read".into())
}

/// Sees the kernel react to what is changed.
fn steer(process: &Process) -> Result<(), String> {
    let seen = process.map("seen").and_then(|map| map.typed::<u32, u64>());
    let orders = process
        .map("orders")
        .and_then(|map| map.typed::<u32, Order>());
    let control = process
        .map("control")
        .and_then(|map| map.typed::<u32, u32>());
    let (seen, orders, control) = (
        seen.map_err(failed)?,
        orders.map_err(failed)?,
        control.map_err(failed)?,
    );
    let until = |key: u32, expected: u64| -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = seen.get(&key).map_err(failed)?;
            if found == Some(expected) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("seen[{key}] is {found:?}, expected {expected}"));
            }
        }
    };
    // The preset.
    until(0, 42)?;
    control.insert(&1, &5).map_err(failed)?;
    until(3, 5)?;
    same(
        "a lookup",
        orders.get(&7).map_err(failed)?,
        Some([0, 2, 21, 0]),
    )?;
    same("a delete", orders.remove(&7).map_err(failed)?, true)?;
    same("another", orders.remove(&7).map_err(failed)?, false)?;
    until(1, 1)?;
    orders.insert(&8, &[9; 4]).map_err(failed)?;
    same(
        "entries",
        orders.entries().map_err(failed)?,
        vec![(8, [9; 4])],
    )?;
    let wrong = process.map("seen").and_then(|map| map.typed::<u64, u64>());
    let wrong = wrong.err().map(failed).unwrap_or_default();
    same(
        "a key of another size",
        wrong.as_str(),
        "map `seen`: the key has 8 bytes but 4 are needed",
    )?;
    let none = process.map("none").err().map(failed).unwrap_or_default();
    says(&none, "there is no map `none`; there are `")?;
    control.insert(&0, &1).map_err(failed)
}

/// Started by somebody else, with the variables that the tool names.
fn others(bench: &Bench) -> Told {
    let object = Object::open(bench.object("longrun")).map_err(failed)?;
    let tool = Tool::attach(object, options()).map_err(failed)?;
    let device = if bench.soft {
        DeviceChoice::Soft
    } else {
        DeviceChoice::Gpu
    };
    let variables = tool
        .environment(device, warpbpf_tool::Inject::Auto)
        .map_err(failed)?;
    let mut command = std::process::Command::new(bench.app("longrun"));
    command.arg("120000").envs(variables);
    command.stdout(std::process::Stdio::null());
    let mut child = Owned::spawn(&mut command).map_err(|e| e.to_string())?;
    let ended = tool.wait_ready(PATIENCE).and_then(|process| {
        same("process", process.pid(), child.id()).map_err(|message| Error::Map {
            map: "none".into(),
            message,
        })?;
        process.map("control")?.typed::<u32, u32>()?.insert(&0, &1)
    });
    ended.map_err(failed)?;
    let status = child.wait().map_err(|e| e.to_string())?;
    same("exit status", status.code(), Some(0))?;
    Ok("it came, and ended as it was told".into())
}

/// How often the hash is read whole; the median counts.
const ROUNDS: usize = 9;

/// Lookups of a batch: answers may take 32 MiB.
const BATCH: usize = 65_536;

/// Reads a hash whole while the application lives, as `benches/probes/hash.bpf.c` fills it: in one
/// copy, as a list, key by key in batches, and by the command. What each takes is told.
fn million(bench: &Bench) -> Told {
    let keys: u64 = if bench.soft { 40_000 } else { 1_000_000 };
    let end = bench.scratch("million-ends");
    let object = Object::open(bench.object("bench-hash")).map_err(failed)?;
    let options = Options {
        host_ops: true,
        ..Options::default()
    };
    let tool = Tool::attach(object, options).map_err(failed)?;
    tool.serve().map_err(failed)?;
    let words = ["million", &keys.to_string(), &end.to_string_lossy()];
    let mut app = started(&tool, &launch(bench, &words))?;
    let process = app.wait_ready(PATIENCE).map_err(failed)?;
    let read = (|| {
        let table = process.map("table").map_err(failed)?;
        let deadline = Instant::now() + PATIENCE;
        let mut rounds = Vec::new();
        // The kernel may still be at it at first.
        while rounds.len() < ROUNDS {
            let (begun, mut sum) = (Instant::now(), 0u64);
            let each = |key: &[u8], value: &[u8]| {
                sum = sum.wrapping_add(word(key)).wrapping_add(word(value));
            };
            let found = table.each(each).map_err(failed)? as u64;
            if found == keys {
                rounds.push(begun.elapsed());
                let expected = (0..keys).fold(0u64, |sum, n| {
                    let key = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    sum.wrapping_add(key).wrapping_add(n)
                });
                same("sum of keys and values", sum, expected)?;
            } else if Instant::now() > deadline {
                return Err(format!("{found} keys of {keys}"));
            }
        }
        rounds.sort_unstable();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let begun = Instant::now();
        drop(table.snapshot().map_err(failed)?);
        let copy = begun.elapsed();
        let begun = Instant::now();
        let listed = table.entries().map_err(failed)?;
        let list = begun.elapsed();
        same("entries", listed.len() as u64, keys)?;
        let begun = Instant::now();
        for some in listed.chunks(BATCH) {
            let ops: Vec<MapOp<'_>> = some
                .iter()
                .map(|entry| MapOp {
                    code: OpCode::Lookup,
                    flags: 0,
                    key: &entry.key,
                    value: &[],
                })
                .collect();
            let found = table.batch(&ops).map_err(failed)?;
            let right = found.iter().zip(some).all(|(outcome, entry)| {
                outcome.errno == 0 && Value::One(outcome.bytes.clone()) == entry.value
            });
            same("what a batch found", right, true)?;
        }
        let batches = begun.elapsed();
        let begun = Instant::now();
        let mut command = std::process::Command::new(bench.folder.join("warpbpf"));
        command.args([
            "maps",
            "dump",
            "table",
            "--json",
            "--pid",
            &process.pid().to_string(),
        ]);
        let said = command.output().map_err(|e| format!("warpbpf maps: {e}"))?;
        let dump = begun.elapsed();
        let text = String::from_utf8_lossy(&said.stdout);
        same(
            "entries that are dumped",
            text.matches("\"key\":").count() as u64,
            keys,
        )?;
        Ok(format!(
            "{keys} in {:.1} ms (median of {ROUNDS}, the best {:.1}), copies and all (a copy alone {:.1} ms); as a list {:.1} ms, by lookups in batches of {BATCH} {:.1} ms, by `maps dump --json` {:.1} ms",
            ms(rounds[ROUNDS / 2]),
            ms(rounds[0]),
            ms(copy),
            ms(list),
            ms(batches),
            ms(dump)
        ))
    })();
    std::fs::write(&end, "").map_err(|e| e.to_string())?;
    same("exit status", app.wait().map_err(failed)?, 0)?;
    read
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

fn events(bench: &Bench) -> Told {
    const THREADS: u64 = 391 * 256;
    const LAUNCHES: u8 = 3;
    let object = Object::open(bench.object("kernelretsnoop")).map_err(failed)?;
    let rings: Vec<String> = object
        .parsed()
        .maps
        .iter()
        .filter(|map| map.map_type == 27)
        .map(|map| map.name.clone())
        .collect();
    let [ring] = rings.as_slice() else {
        return Err(format!("the object has the rings {rings:?}"));
    };
    let tool = Tool::attach(object, Options::default()).map_err(failed)?;
    let words = ["vectoradd", "100000", "3"];
    let mut app = started(&tool, &launch(bench, &words))?;
    let process = app.wait_ready(PATIENCE).map_err(failed)?;
    let ring = process.map(ring).map_err(failed)?;
    let mut times = vec![0u8; THREADS as usize];
    let (mut events, mut strange) = (0, 0);
    loop {
        let connected = process.is_connected();
        // The process may be used while its events are looked at.
        events += ring.poll(Duration::from_millis(50), |event| {
            let at = thread_of(event.payload, 256).and_then(|n| times.get_mut(n as usize));
            match at.filter(|_| process.pid() != 0) {
                Some(times) => *times += 1,
                None => strange += 1,
            }
        });
        if !connected {
            break;
        }
    }
    same("exit status", app.wait().map_err(failed)?, 0)?;
    same("events of no thread", strange, 0)?;
    same("lost", ring.lost(), 0)?;
    let all = vec![LAUNCHES; THREADS as usize];
    same("events of each thread", times == all, true)?;
    Ok(format!(
        "{events} events, of each thread as many as launches"
    ))
}

/// The thread of an event of `kernelretsnoop`: behind 8 bytes of time the block and the thread in
/// it, then SM and lane.
fn thread_of(payload: &[u8], block: u64) -> Option<u64> {
    let word = |at: usize| {
        Some(u64::from(u32::from_le_bytes(
            payload.get(at..at + 4)?.try_into().ok()?,
        )))
    };
    let (number, thread, lane) = (word(8)?, word(12)?, word(20)?);
    let right = payload.len() == 24 && thread < block && lane == thread % 32;
    right.then_some(number * block + thread)
}

/// What an example of the library says.
fn example(bench: &Bench, name: &str, words: &[&str]) -> Result<String, String> {
    let path = bench.folder.join("examples").join(name);
    let (object, rest) = words.split_first().unwrap_or((&"", &[]));
    let (map, rest) = rest.split_first().unwrap_or((&"", &[]));
    let (app, arguments) = rest.split_first().unwrap_or((&"", &[]));
    let mut command = std::process::Command::new(&path);
    command
        .arg(bench.object(object))
        .arg(map)
        .arg(bench.app(app))
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .env("WARPBPF_AGENT", bench.folder.join("libwarpbpf_agent.so"))
        .env("WARPBPF_SOFT_DIR", bench.folder.join("soft"));
    let output = command
        .output()
        .map_err(|e| format!("{}: {e}", path.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    same("what it complains of", errors.trim_end(), "")?;
    same("exit status", output.status.code(), Some(0))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn counter(bench: &Bench) -> Told {
    let said = example(
        bench,
        "counter",
        &["bpftime", "exits", "vectoradd", "3000", "1"],
    );
    let (first, rest) = said?
        .split_once('\n')
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap_or_default();
    // The first line is a look at a map that changes, or not yet: up to as many threads as there
    // will be.
    let app = bench.app("vectoradd");
    let calls = first
        .strip_prefix(&format!("{}: key 0 is Some(", app.display()))
        .and_then(|text| text.strip_suffix(')')?.parse::<u64>().ok());
    same("a count on the way", calls.is_some_and(|n| n <= 3072), true)
        .map_err(|_| format!("`{first}`"))?;
    let output =
        String::from_utf8(bench.plain("vectoradd", &["3000", "1"])?).map_err(|e| e.to_string())?;
    // What the application says comes by the same pipe, when it ends.
    let expected = "0: 3072\n1: 0\nexit status 0\n";
    same("lines", rest.replacen(&output, "", 1), expected.to_owned())?;
    Ok("as it is written down".into())
}

fn event_counter(bench: &Bench) -> Told {
    let said = example(
        bench,
        "events",
        &["kernelretsnoop", "events", "vectoradd", "3000", "1"],
    )?;
    // What the application says comes by the same pipe, when it ends.
    let told = said.lines().filter(|line| *line == "3072 events, 0 lost");
    same(&said, told.count(), 1)?;
    let records = said.lines().filter(|line| line.starts_with("SM ")).count();
    same("records", records, 3072)?;
    Ok("3072 events, 0 lost".to_owned())
}
