//! The host and lanes at once, beside a kernel that runs until it is told to end: on the same keys
//! and the same queue, where nothing may be lost or doubled; copies of maps that change all the
//! time, which have what docs/maps.md says of each type; and events that come all the time and no
//! faster than they can be taken, of which none may be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use warpbpf_tool::{Entry, Map, MapOp, Object, OpCode, Options, Process, Tool, Value};

use crate::library::{PATIENCE, failed, launch, started};
use crate::run::{Bench, Case, Told, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("host and lanes on the same keys and the same queue", shared),
        case("snapshots of maps that change", snapshots),
        case("events: a kernel that sends them all the time", sustained),
    ]
}

/// As in `together.bpf.c`.
const KEYS: u32 = 8;
const STEADY: u32 = 64;
/// Of `did`: lanes that saw a value of the host, and that popped one.
const SAW_HOST: u32 = 2;
const POPPED_OF_HOST: u32 = 7;
/// What the host puts below all else.
const BELOW: u64 = 8;
/// Marks what the host wrote.
const OF_HOST: u64 = 1 << 63;

/// Linux's numbers for what may be refused.
const REFUSALS: [i32; 4] = [-2, -7, -16, -17];

/// Runs `work` beside the kernel, ends it, and gives its process.
fn beside<T>(
    bench: &Bench,
    object: &str,
    work: impl FnOnce(&Process) -> Result<T, String>,
) -> Result<(Process, T), String> {
    let object = Object::open(bench.object(object)).map_err(failed)?;
    let options = Options {
        allow_modify: true,
        budget: Some(40_000),
        host_ops: true,
        live_sums: true,
        ..Options::default()
    };
    let tool = Tool::attach(object, options).map_err(failed)?;
    let blocks = if bench.soft { "2" } else { "16" };
    let mut app = started(&tool, &launch(bench, &["longrun", "120000", blocks]))?;
    let process = app.wait_ready(PATIENCE).map_err(failed)?;
    let done = work(&process)?;
    let control = process
        .map("control")
        .and_then(|map| map.typed::<u32, u32>());
    control.and_then(|map| map.insert(&0, &1)).map_err(failed)?;
    same("exit status", app.wait().map_err(failed)?, 0)?;
    Ok((process, done))
}

/// How long host and lanes meet.
fn during(bench: &Bench) -> Duration {
    Duration::from_millis(if bench.soft { 1500 } else { 3000 })
}

/// What the host did.
#[derive(Debug, Default)]
struct Host {
    came: u64,
    went: u64,
    saw_lanes: u64,
    pushed: u64,
    pushed_sum: u64,
    popped: u64,
    popped_sum: u64,
    popped_of_lanes: u64,
    rounds: u64,
}

fn shared(bench: &Bench) -> Told {
    let (process, host) = beside(bench, "together", |process| meet(process, during(bench)))?;
    let map = |name: &str| process.map(name).map_err(failed);
    let did = map("did")?.typed::<u32, u64>().map_err(failed)?;
    let count = |what: u32| {
        did.get(&what)
            .map(Option::unwrap_or_default)
            .map_err(failed)
    };
    let [
        came,
        went,
        saw_host,
        pushed,
        pushed_sum,
        popped,
        popped_sum,
        popped_of_host,
        strange,
    ] = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(count);
    same("results that cannot be", strange?, 0)?;
    let keys = map("common")?.typed::<u32, u64>().map_err(failed)?;
    let left = keys.entries().map_err(failed)?;
    let (came, went) = (came? + host.came, went? + host.went);
    same(
        "keys that came and did not go",
        left.len() as u64,
        came - went,
    )?;
    let names: BTreeSet<u32> = left.iter().map(|(key, _)| *key).collect();
    same("keys, each once", names.len(), left.len())?;
    same("keys of ours", names.iter().all(|key| *key < KEYS), true)?;
    let line = map("line")?.entries().map_err(failed)?;
    let line: Vec<u64> = line.iter().filter_map(one).collect();
    let (pushed, popped) = (pushed? + host.pushed, popped? + host.popped);
    same(
        "values that were pushed and not popped",
        line.len() as u64,
        pushed - popped,
    )?;
    let sum = line
        .iter()
        .fold(0u64, |sum, value| sum.wrapping_add(*value));
    same(
        "sum of the values",
        popped_sum?.wrapping_add(host.popped_sum).wrapping_add(sum),
        pushed_sum?.wrapping_add(host.pushed_sum),
    )?;
    // They have met.
    for (what, times) in [
        ("lanes that saw a value of the host", saw_host?),
        ("values of lanes that the host saw", host.saw_lanes),
        ("lanes that popped a value of the host", popped_of_host?),
        ("values of lanes that the host popped", host.popped_of_lanes),
        ("keys that the host deleted", host.went),
    ] {
        if times == 0 {
            return Err(format!("there were no {what}: {host:?}"));
        }
    }
    Ok(format!(
        "{came} keys came and {went} went, {} and {} of them by the host; {pushed} pushes, {} by the host; {} rounds of the host",
        host.came, host.went, host.pushed, host.rounds
    ))
}

/// Does what the lanes do, for a while.
fn meet(process: &Process, during: Duration) -> Result<Host, String> {
    let map = |name: &str| process.map(name).map_err(failed);
    let (common, line) = (map("common")?, map("line")?);
    let did = map("did")?.typed::<u32, u64>().map_err(failed)?;
    let lanes = |what: u32| did.get(&what).is_ok_and(|times| times > Some(0));
    let (mut host, begun) = (Host::default(), Instant::now());
    // Until all has happened that must happen, and for so long at least.
    let met = |host: &Host| {
        let here = host.went > 0 && host.saw_lanes > 0 && host.popped_of_lanes > 0;
        here && lanes(SAW_HOST) && lanes(POPPED_OF_HOST)
    };
    while begun.elapsed() < during || (!met(&host) && begun.elapsed() < PATIENCE) {
        host.rounds += 1;
        let keys: Vec<[u8; 4]> = (0..KEYS).map(u32::to_le_bytes).collect();
        let value = (host.rounds << 32).to_le_bytes();
        // Every other round its keys stay until the next one, so that lanes can see them.
        let codes = match host.rounds % 2 {
            0 => [OpCode::Lookup, OpCode::Delete],
            _ => [OpCode::Delete, OpCode::Update],
        };
        let ops: Vec<MapOp<'_>> = keys
            .iter()
            .flat_map(|key| {
                codes.map(|code| MapOp {
                    code,
                    // BPF_NOEXIST
                    flags: u64::from(code == OpCode::Update),
                    key,
                    value: if code == OpCode::Update { &value } else { &[] },
                })
            })
            .collect();
        for (op, outcome) in ops.iter().zip(common.batch(&ops).map_err(failed)?) {
            match (op.code, outcome.errno) {
                (OpCode::Update, 0) => host.came += 1,
                (OpCode::Delete, 0) => host.went += 1,
                (_, 0) => {
                    let value = outcome.bytes.try_into().map_or(0, u64::from_le_bytes);
                    host.saw_lanes += u64::from(value != 0 && value >> 32 == 0);
                }
                (_, errno) if REFUSALS.contains(&errno) => {}
                (code, errno) => return Err(format!("{code:?} on `common`: {errno}")),
            }
        }
        let value = OF_HOST | host.rounds;
        let bytes = value.to_le_bytes();
        let op = |code, value| MapOp {
            code,
            flags: 0,
            key: &[],
            value,
        };
        let ops = [op(OpCode::Push, &bytes[..]), op(OpCode::Pop, &[])];
        for (op, outcome) in ops.iter().zip(line.batch(&ops).map_err(failed)?) {
            match (op.code, outcome.errno) {
                (OpCode::Push, 0) => {
                    host.pushed += 1;
                    host.pushed_sum = host.pushed_sum.wrapping_add(value);
                }
                (_, 0) => {
                    let value = outcome.bytes.try_into().map_or(0, u64::from_le_bytes);
                    host.popped += 1;
                    host.popped_sum = host.popped_sum.wrapping_add(value);
                    host.popped_of_lanes += u64::from(value & OF_HOST == 0);
                }
                (_, errno) if REFUSALS.contains(&errno) => {}
                (code, errno) => return Err(format!("{code:?} on `line`: {errno}")),
            }
        }
    }
    Ok(host)
}

/// The number of an entry that has one value.
fn one(entry: &Entry) -> Option<u64> {
    match &entry.value {
        Value::One(bytes) => bytes.as_slice().try_into().ok().map(u64::from_le_bytes),
        Value::PerSm(_) | Value::PerThread(_) => None,
    }
}

/// The words of an entry's values: of one, of each multiprocessor, or of each thread up to the last
/// that has any.
fn words(entry: &Entry) -> Vec<u64> {
    let split = |bytes: &[u8]| -> Vec<u64> {
        let (words, _) = bytes.as_chunks::<8>();
        words.iter().map(|word| u64::from_le_bytes(*word)).collect()
    };
    match &entry.value {
        Value::One(bytes) => split(bytes),
        Value::PerSm(all) => all.iter().flat_map(|bytes| split(bytes)).collect(),
        Value::PerThread(all) => {
            let mut words = vec![0; all.last().map_or(0, |(thread, _)| *thread as usize + 1)];
            for (thread, bytes) in all {
                words[*thread as usize] = split(bytes).iter().sum();
            }
            words
        }
    }
}

fn key(entry: &Entry) -> u32 {
    entry
        .key
        .as_slice()
        .try_into()
        .map_or(0, u32::from_le_bytes)
}

/// What was seen of maps that only grow, in the copy before.
type Seen = BTreeMap<&'static str, Vec<u64>>;

fn snapshots(bench: &Bench) -> Told {
    let (process, (rounds, missing)) = beside(bench, "together", |process| {
        fill(process)?;
        let (begun, mut rounds, mut missing) = (Instant::now(), 0u64, 0u64);
        let mut seen = Seen::new();
        while begun.elapsed() < during(bench) || (rounds < 5 && begun.elapsed() < PATIENCE) {
            look(process, &mut seen, &mut missing)?;
            rounds += 1;
        }
        let turned = seen.get("sum").and_then(|all| all.first().copied());
        same("something changed", turned > Some(0), true)?;
        Ok((rounds, missing))
    })?;
    // At rest everything is whole, and what only grew has not gone back.
    let mut none = 0;
    look(&process, &mut Seen::new(), &mut none)?;
    same("values below a stack at rest that are missing", none, 0)?;
    let map = |name: &str| process.map(name).map_err(failed);
    let turns = map("host_threads")?.entries().map_err(failed)?;
    let each: u64 = turns.iter().flat_map(words).sum();
    let sum = map("sum")?.entries().map_err(failed)?;
    same("sum", sum.iter().filter_map(one).sum::<u64>(), each)?;
    for name in ["percpu", "percpu_hash"] {
        let all = map(name)?.entries().map_err(failed)?;
        same(name, all.iter().flat_map(words).sum::<u64>(), each)?;
    }
    Ok(format!(
        "{rounds} copies of 13 maps, {each} turns of lanes meanwhile; {missing} times values below a stack's were missing with them"
    ))
}

/// Puts in what stays, and says so.
fn fill(process: &Process) -> Result<(), String> {
    let map = |name: &str| process.map(name).map_err(failed);
    let update = |map: &Map, n: u32, value: &[u8]| map.update(&n.to_le_bytes(), value, 1);
    let (small, large, percpu) = (map("small")?, map("large")?, map("percpu_hash")?);
    for n in 0..STEADY {
        let value = u64::from(n).to_le_bytes();
        update(&small, n, &value).map_err(failed)?;
        update(&large, n, &[value; 3].concat()).map_err(failed)?;
    }
    for n in 0..8 {
        update(&percpu, n, &[0; 8]).map_err(failed)?;
    }
    for name in ["stack", "kept", "queue"] {
        let list = map(name)?;
        for n in 0..BELOW {
            list.push(&below(n).to_le_bytes(), 0).map_err(failed)?;
        }
    }
    let control = map("control")?.typed::<u32, u32>().map_err(failed)?;
    control.insert(&1, &1).map_err(failed)
}

/// What the host puts into lists; of the form of all values there.
fn below(n: u64) -> u64 {
    (1 << 40) * 13 + n * 13 + 4
}

/// Copies each map, and checks the copies.
fn look(process: &Process, seen: &mut Seen, missing: &mut u64) -> Result<(), String> {
    let entries = |name: &'static str| {
        process
            .map(name)
            .and_then(|map| map.entries())
            .map_err(failed)
    };
    let wrong = |name: &str, what: &dyn std::fmt::Debug| Err(format!("{name}: {what:?}"));
    // Keys that stay, with one of their values.
    let small: BTreeMap<u32, u64> = entries("small")?
        .iter()
        .filter_map(|e| Some((key(e), one(e)?)))
        .collect();
    if !small.keys().copied().eq(0..STEADY)
        || small
            .iter()
            .any(|(key, value)| value % u64::from(STEADY) != u64::from(*key))
    {
        return wrong("small", &small);
    }
    // Keys that stay as they are, among others that come and go.
    let large: Vec<(u32, Vec<u64>)> = entries("large")?
        .iter()
        .map(|e| (key(e), words(e)))
        .collect();
    let mut stay: Vec<_> = large.iter().filter(|(key, _)| *key < STEADY).collect();
    stay.sort_unstable();
    if stay.len() != STEADY as usize
        || stay
            .iter()
            .zip(0..)
            .any(|((key, value), n)| (*key, value) != (n, &vec![u64::from(n); 3]))
    {
        return wrong("large", &stay);
    }
    for name in ["words", "gpu_words"] {
        let all: Vec<u64> = entries(name)?.iter().flat_map(words).collect();
        if all.len() != 8 || all.iter().any(|word| *word != 0 && word % 7 != 3) {
            return wrong(name, &all);
        }
    }
    for name in ["sum", "percpu", "percpu_hash", "host_threads", "turns"] {
        let mut all = entries(name)?;
        all.sort_by_key(key);
        let now: Vec<u64> = all.iter().flat_map(words).collect();
        let before = seen.entry(name).or_default();
        if now.len() < before.len()
            || now
                .iter()
                .zip(before.iter())
                .any(|(now, before)| now < before)
        {
            return wrong(name, &(before, now));
        }
        *before = now;
    }
    for entry in entries("lru")? {
        let value = one(&entry).unwrap_or(0);
        if key(&entry) >= 1024 || value % 11 != 5 || value / 11 >= 1024 {
            return wrong("lru", &entry);
        }
    }
    let list = |name| Ok::<Vec<u64>, String>(entries(name)?.iter().filter_map(one).collect());
    for name in ["queue", "kept", "stack"] {
        let all = list(name)?;
        if all.len() > 256 || all.iter().any(|value| value % 13 != 4) {
            return wrong(name, &all);
        }
    }
    // Nobody takes anything out of this one, and of a stack only what was pushed later.
    let stays: Vec<u64> = (0..BELOW).map(below).collect();
    let kept = list("kept")?;
    if !kept.starts_with(&stays) {
        return wrong("kept", &kept);
    }
    let stack: BTreeSet<u64> = list("stack")?.into_iter().collect();
    *missing += u64::from(!stays.iter().all(|value| stack.contains(value)));
    // Bits of a filter stay.
    let filter = process
        .map("filter")
        .and_then(|map| map.snapshot())
        .map_err(failed)?;
    let now: Vec<u64> = filter.bytes().iter().map(|byte| u64::from(*byte)).collect();
    let before = seen.entry("filter").or_default();
    if before
        .iter()
        .zip(&now)
        .any(|(before, now)| before & !now != 0)
    {
        return wrong("filter", &"a bit was taken back");
    }
    *before = now;
    Ok(())
}

/// Each block's events have numbers of their own, so one that is missing, comes twice or overtakes
/// another is seen.
fn sustained(bench: &Bench) -> Told {
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut take = |process: &Process, wait: Duration| -> Result<usize, String> {
        let ring = process.map("events").map_err(failed)?;
        Ok(ring.poll(wait, |event| {
            let (words, _) = event.payload.as_chunks::<8>();
            if let [number, block] = words {
                let (number, block) = (u64::from_le_bytes(*number), u64::from_le_bytes(*block));
                let before = last.insert(block, number).unwrap_or(0);
                if number != before + 1 {
                    wrong.push((block, before, number));
                }
            }
        }))
    };
    let mut rounds = 0;
    let (process, ()) = beside(bench, "steady", |process| {
        let begun = Instant::now();
        while begun.elapsed() < 2 * during(bench) || (rounds <= 2 && begun.elapsed() < PATIENCE) {
            rounds += usize::from(take(process, Duration::from_millis(10))? > 0);
        }
        Ok(())
    })?;
    while take(&process, Duration::ZERO)? > 0 {}
    wrong.truncate(8);
    same("block, number and the next", wrong, vec![])?;
    same("lost", process.map("events").map_err(failed)?.lost(), 0)?;
    let sent = process
        .map("sent")
        .and_then(|map| map.entries())
        .map_err(failed)?;
    let sent: u64 = sent.iter().flat_map(words).sum();
    same("events", last.values().sum::<u64>(), sent)?;
    // They came while the kernel ran.
    if rounds <= 2 {
        return Err(format!(
            "of {sent} events some came in only {rounds} rounds while the kernel ran"
        ));
    }
    Ok(format!(
        "{sent} events of {} blocks in {rounds} rounds, none lost",
        last.len()
    ))
}
