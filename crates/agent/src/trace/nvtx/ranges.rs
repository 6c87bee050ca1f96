//! The ranges and names that the application has told, and who wants them.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use warpbpf_session::clock::monotonic_ns;
use warpbpf_session::names::is_like;
use warpbpf_wire::{Choice, NoteLevel, Range, RangeKind, Ranges, RangesLost, ToTool};

use super::asked::{Answers, Askers};
use super::stack::{self, Ended};
use super::texts::{self, Registry, Text};
use crate::kernels::stream_name::LEGACY_STREAM;
use crate::runtime::agent::Agent;
use crate::runtime::published::agent;
use crate::sys::lock::lock;
use crate::sys::wanted::is_named_by;

/// Beginnings and ends that wait for the agent's thread.
pub(crate) const MOST: usize = 1 << 15;
/// Ranges of the process that are open at once.
pub(crate) const STARTED: usize = 1024;
/// Ranges in one message.
pub(crate) const BATCH: usize = 256;

/// Beginnings and ends are kept for a timeline.
pub(crate) const RECORDS: u8 = 1;
/// Each thread's ranges are known.
pub(crate) const STACKS: u8 = 2;

pub(crate) static WANTED: AtomicU8 = AtomicU8::new(RECORDS | STACKS);
/// NVTX came to us in this process or one that it was forked from.
pub(crate) static CAME: AtomicBool = AtomicBool::new(false);
pub(crate) static STATE: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());
pub(crate) static STRINGS: Registry<65536> = Registry::new();
pub(crate) static DOMAINS: Registry<4096> = Registry::new();

/// What threads have in common. A forked child gets a new one: any of these locks may be held by a
/// thread that it does not have.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) records: Mutex<Vec<Record>>,
    /// Of those that were taken, what has not ended. Only the agent's thread looks.
    pub(crate) open: Mutex<HashMap<u64, Range>>,
    pub(crate) started: Mutex<Vec<Started>>,
    /// For whom `Started::chosen` was found out. Locked with `started` held.
    pub(crate) askers: Mutex<Askers>,
    pub(crate) started_count: AtomicUsize,
    pub(crate) strings: Mutex<HashMap<String, usize>>,
    pub(crate) domains: Mutex<HashMap<String, usize>>,
    pub(crate) names: Mutex<Names>,
    pub(crate) next: AtomicU64,
    pub(crate) deep: AtomicU64,
    pub(crate) cut: AtomicU64,
    pub(crate) crowded: AtomicU64,
}

/// Names that were given to threads and streams.
#[derive(Default)]
pub(crate) struct Names {
    threads: HashMap<u32, String>,
    streams: HashMap<u64, String>,
    news: bool,
}

/// For a timeline.
pub(crate) enum Record {
    Begin { number: u64, range: Range },
    End { number: u64, at: u64 },
}

/// A range of the process that is open.
pub(crate) struct Started {
    number: u64,
    path: String,
    recorded: bool,
    chosen: Answers,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn state() -> &'static State {
    let there = STATE.load(Ordering::Acquire);
    // SAFETY: null, or leaked below.
    if let Some(state) = unsafe { there.as_ref() } {
        return state;
    }
    let new = Box::into_raw(Box::<State>::default());
    let none = std::ptr::null_mut();
    let first = STATE.compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire);
    if let Err(other) = first {
        // SAFETY: nobody has seen ours, and that of the other thread is leaked.
        unsafe {
            drop(Box::from_raw(new));
            return &*other;
        }
    }
    // SAFETY: leaked just now.
    unsafe { &*new }
}

/// In a forked child. What its parent's threads were in is not its own; what this thread is in it
/// goes on to be in. There may never be a tool for it, so nothing is recorded before there is.
pub(crate) unsafe extern "C" fn forked() {
    STATE.store(std::ptr::null_mut(), Ordering::Release);
    WANTED.store(STACKS, Ordering::Relaxed);
}

/// The application's calls of NVTX come to us, or will with the first one. One that was `started`
/// with the agent has not asked before; any other has asked when we were not there, if it has not
/// come.
pub(crate) fn comes_to_us(started: bool) -> bool {
    CAME.load(Ordering::Relaxed) || started && is_named_by("NVTX_INJECTION64_PATH")
}

/// What a tool wants is known.
pub(crate) fn decide(timeline: bool, choice: bool) {
    let wanted = match (timeline, choice) {
        (true, _) => RECORDS | STACKS,
        (false, true) => STACKS,
        (false, false) => 0,
    };
    WANTED.store(wanted, Ordering::Relaxed);
    if wanted & RECORDS == 0 && CAME.load(Ordering::Relaxed) {
        lock(&state().records).clear();
    }
}

/// Somebody wants it, or may.
pub(crate) fn wants(what: u8) -> bool {
    WANTED.load(Ordering::Relaxed) & what != 0
        && agent().is_none_or(|agent| agent.is_on() || agent.is_forked())
}

/// `name@domain`, or only the name in NVTX's own domain.
pub(crate) fn in_domain(name: &str, domain: usize) -> String {
    match DOMAINS.get(domain) {
        Some(of) => format!("{name}@{of}"),
        None => name.to_owned(),
    }
}

/// Names of threads, and of streams, that are kept; those beyond count among names that were cut.
pub(crate) const MOST_NAMES: usize = 4096;

pub(crate) fn kept((name, cut): Text) -> String {
    if cut {
        count(&state().cut);
    }
    name
}

/// Records a beginning; the number of the record if there was room.
pub(crate) fn record(
    state: &State,
    name: &str,
    domain: usize,
    kind: RangeKind,
    number: u64,
) -> bool {
    if !wants(RECORDS) {
        return false;
    }
    let at = monotonic_ns();
    let range = Range {
        name: name.to_owned(),
        domain: DOMAINS.get(domain).map(str::to_owned),
        // SAFETY: no preconditions.
        thread: unsafe { libc::gettid() }.cast_unsigned(),
        kind,
        begin: at,
        end: (kind == RangeKind::Mark).then_some(at),
    };
    let mut records = lock(&state.records);
    if records.len() >= MOST {
        drop(records);
        count(&state.crowded);
        return false;
    }
    records.push(Record::Begin { number, range });
    let half = records.len() == MOST / 2;
    drop(records);
    if half && let Some(agent) = agent() {
        agent.wake();
    }
    true
}

/// Records the end of what was recorded, for which there is always room: nothing ends twice.
pub(crate) fn record_end(state: &State, number: u64) {
    let at = monotonic_ns();
    lock(&state.records).push(Record::End { number, at });
}

pub(crate) fn number(state: &State) -> u64 {
    state.next.fetch_add(1, Ordering::Relaxed) + 1
}

/// This thread enters a range.
pub(crate) fn push(domain: usize, name: Text) {
    if !wants(STACKS) {
        return;
    }
    let (state, name) = (state(), kept(name));
    let known = stack::with(|stack| {
        let own = number(state);
        let recorded = !stack.is_full() && record(state, &name, domain, RangeKind::Thread, own);
        stack.push(domain, &in_domain(&name, domain), recorded.then_some(own))
    });
    if known == Some(false) {
        count(&state.deep);
    }
}

/// This thread leaves the innermost range of a domain.
pub(crate) fn pop(domain: usize) {
    // Beginnings that were seen have ends, whoever wants to know.
    if !CAME.load(Ordering::Relaxed) {
        return;
    }
    if let Some(Ended::Range(Some(number))) = stack::with(|stack| stack.pop(domain)) {
        record_end(state(), number);
    }
}

/// A range of the process begins. Its number; 0 is what the application gets without a tool.
pub(crate) fn start(domain: usize, name: Text) -> u64 {
    if !wants(STACKS) {
        return 0;
    }
    let (state, name) = (state(), kept(name));
    let mut started = lock(&state.started);
    if started.len() >= STARTED {
        count(&state.deep);
        return 0;
    }
    let own = number(state);
    let recorded = record(state, &name, domain, RangeKind::Process, own);
    started.push(Started {
        number: own,
        path: in_domain(&name, domain),
        recorded,
        chosen: Answers::default(),
    });
    state.started_count.store(started.len(), Ordering::Relaxed);
    own
}

pub(crate) fn end(number: u64) {
    if number == 0 {
        return;
    }
    let state = state();
    let mut started = lock(&state.started);
    // The last one most often.
    let Some(at) = started.iter().rposition(|open| open.number == number) else {
        return;
    };
    let ended = started.remove(at);
    state.started_count.store(started.len(), Ordering::Relaxed);
    drop(started);
    if ended.recorded {
        record_end(state, number);
    }
}

pub(crate) fn mark(domain: usize, name: Text) {
    if wants(RECORDS) {
        let (state, name) = (state(), kept(name));
        record(state, &name, domain, RangeKind::Mark, number(state));
    }
}

/// A handle for a name; 0, as without a tool, if there are too many.
pub(crate) fn register<const SLOTS: usize>(
    known: &Mutex<HashMap<String, usize>>,
    registry: &Registry<SLOTS>,
    name: Text,
) -> usize {
    let name = kept(name);
    let mut known = lock(known);
    if let Some(handle) = known.get(&name) {
        return *handle;
    }
    let Some(handle) = registry.add(name.clone()) else {
        count(&state().cut);
        return 0;
    };
    known.insert(name, handle);
    handle
}

pub(crate) fn name_thread(thread: u32, name: Text) {
    let name = kept(name);
    let mut names = lock(&state().names);
    if names.threads.len() >= MOST_NAMES && !names.threads.contains_key(&thread) {
        return count(&state().cut);
    }
    names.news = true;
    names.threads.insert(thread, name);
}

pub(crate) fn name_stream(stream: u64, name: Text) {
    let name = kept(name);
    let mut names = lock(&state().names);
    // The default stream has two names of its own.
    let stream = stream.max(LEGACY_STREAM as u64);
    if names.streams.len() >= MOST_NAMES && !names.streams.contains_key(&stream) {
        return count(&state().cut);
    }
    names.news = true;
    names.streams.insert(stream, name);
}

/// The name that the application gave to a stream.
pub(crate) fn stream_name(stream: usize) -> Option<String> {
    if !CAME.load(Ordering::Relaxed) {
        return None;
    }
    let stream = stream.max(LEGACY_STREAM) as u64;
    lock(&state().names).streams.get(&stream).cloned()
}

/// There is a new stream by this handle.
pub(crate) fn forget_stream(stream: usize) {
    if CAME.load(Ordering::Relaxed) {
        lock(&state().names).streams.remove(&(stream as u64));
    }
}

/// The ranges that this thread is in, as `outer/inner`.
pub(crate) fn path() -> Option<String> {
    if !CAME.load(Ordering::Relaxed) {
        return None;
    }
    stack::with(|stack| stack.path().map(str::to_owned)).flatten()
}

/// This thread is in a range, or a range of the process is open, whose path one of the globs names.
/// Each range is compared once for `who`.
pub(crate) fn is_inside(who: usize, globs: &[String]) -> bool {
    if !CAME.load(Ordering::Relaxed) {
        return false;
    }
    let named = |path: &str| globs.iter().any(|glob| is_like(glob, path));
    if stack::with(|stack| stack.is_in(who, named)) == Some(true) {
        return true;
    }
    let state = state();
    if state.started_count.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let mut started = lock(&state.started);
    let (bit, is_anothers) = lock(&state.askers).bit(who);
    let mut chosen = false;
    for open in started.iter_mut() {
        if is_anothers {
            open.chosen.forget(bit);
        }
        chosen = chosen || open.chosen.get(bit, || named(&open.path));
    }
    chosen
}

/// Tells of ranges that have ended; of all if `last`.
pub(crate) fn turn(agent: &Agent, last: bool) {
    if !CAME.load(Ordering::Relaxed) || WANTED.load(Ordering::Relaxed) & RECORDS == 0 {
        return;
    }
    let state = state();
    let taken = std::mem::take(&mut *lock(&state.records));
    let mut open = lock(&state.open);
    let mut ended = Vec::new();
    for record in taken {
        match record {
            Record::Begin { range, .. } if range.end.is_some() => ended.push(range),
            Record::Begin { number, range } => {
                open.insert(number, range);
            }
            Record::End { number, at } => {
                let range = open.remove(&number);
                ended.extend(range.map(|range| Range {
                    end: Some(at),
                    ..range
                }));
            }
        }
    }
    if last {
        ended.extend(open.drain().map(|(_, range)| range));
    }
    let mut message = state.message(agent);
    let news = !message.threads.is_empty() || !message.streams.is_empty();
    if ended.is_empty() && (news || last) {
        agent.send(ToTool::Ranges(std::mem::take(&mut message)), None);
    }
    for part in ended.chunks(BATCH) {
        let ranges = part.to_vec();
        let told = std::mem::replace(&mut message, state.message(agent));
        agent.send(ToTool::Ranges(Ranges { ranges, ..told }), None);
    }
}

impl State {
    /// A message without ranges, with names that were not told yet.
    fn message(&self, agent: &Agent) -> Ranges {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut names = lock(&self.names);
        let news = std::mem::take(&mut names.news);
        let (mut threads, mut streams) = (Vec::new(), Vec::new());
        if news {
            threads.extend(names.threads.clone());
            let made = names.streams.iter().map(|(handle, name)| {
                let number = agent.streams.number(*handle as usize);
                (number, name.clone())
            });
            streams.extend(made.filter(|(number, _)| *number != 0));
        }
        Ranges {
            ranges: Vec::new(),
            threads,
            streams,
            lost: RangesLost {
                deep: load(&self.deep),
                cut: load(&self.cut),
                crowded: load(&self.crowded),
            },
        }
    }
}

/// Tells the user, at the end, why a choice by ranges may not be what was meant.
pub(crate) fn report(agent: &Agent) {
    let came = CAME.load(Ordering::Relaxed);
    let session = agent.generations.now().session.get();
    let any = |what: fn(&Choice) -> bool| session.is_some_and(|s| s.choices().any(what));
    if !came && any(Choice::needs_nvtx) {
        let text = "no range and no stream has a name by which launches could be chosen: nothing in the application has called NVTX, or another tool has its calls";
        return agent.note(NoteLevel::Warning, text.into());
    }
    if !came || !any(|choice| !choice.nvtx.is_empty()) {
        return;
    }
    let state = state();
    let deep = state.deep.load(Ordering::Relaxed);
    if deep > 0 {
        let text = format!(
            "launches are not chosen by {deep} ranges: a thread was in more than {} at once, or {STARTED} of the process were open",
            stack::DEPTH
        );
        agent.note(NoteLevel::Warning, text);
    }
    let cut = state.cut.load(Ordering::Relaxed);
    if cut > 0 {
        let text = format!(
            "launches are chosen by {cut} names of ranges only by their first {} bytes, or not at all",
            texts::LONGEST
        );
        agent.note(NoteLevel::Warning, text);
    }
}
