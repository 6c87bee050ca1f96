//! A script in applications: what programs ask for is done, blocks of the tool run when they are
//! due, and results are printed.

use std::cell::Cell as Flag;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use warpbpf_script::host::{World, execute};
use warpbpf_script::results::{Cell, Key, Part, record};
use warpbpf_script::typed::{HostBlock, Moment, Request, Type};
use warpbpf_script::{Compiled, layout};
use warpbpf_tool::Process;

use crate::collect::collector::{Collector, Reader};
use crate::report::news::News;
use crate::term::output::tell;
use crate::trace::gather::{Called, gather};
use crate::trace::output::Shows;

/// How long agents have to say their last words after `exit()`.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// How long a message may take.
const TICK: Duration = Duration::from_millis(20);

/// A script that runs.
pub struct Session<'s> {
    compiled: &'s Compiled,
    printer: Box<dyn Shows>,
    /// When it began, on the host's monotonic clock.
    start: u64,
    /// What maps held when they were cleared, and whether their keys stay.
    before: Vec<Option<(BTreeMap<Key, Cell>, bool)>>,
    /// Blocks with when they are due next; time begins when applications are watched.
    timers: Vec<(&'s HostBlock, Option<Instant>, Duration)>,
    /// `exit()` was asked for.
    exits: bool,
    /// Nothing is taken in any more.
    over: &'s Flag<bool>,
    /// Blocks whose loops were ended.
    stopped: u64,
}

/// Nanoseconds of the host's monotonic clock.
pub fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl<'s> Session<'s> {
    /// Ready to begin. `over` tells when it has ended itself.
    pub fn new(
        compiled: &'s Compiled,
        printer: Box<dyn Shows>,
        start: u64,
        over: &'s Flag<bool>,
    ) -> Session<'s> {
        Session {
            compiled,
            printer,
            start,
            before: vec![None; compiled.script.maps.len()],
            timers: Vec::new(),
            exits: false,
            over,
            stopped: 0,
        }
    }

    /// Runs the blocks that come first. False if they end the script.
    pub fn begin(&mut self) -> bool {
        self.blocks(Moment::Begin, &[]);
        for block in &self.compiled.script.blocks {
            if let Moment::Every { ms } = block.when {
                let every = Duration::from_millis(ms);
                self.timers.push((block, None, every));
            }
        }
        !self.exits
    }

    fn blocks(&mut self, when: Moment, processes: &[Process]) {
        let compiled = self.compiled;
        for block in compiled.script.blocks.iter().filter(|b| b.when == when) {
            self.block(block, processes);
        }
    }

    fn block(&mut self, block: &HostBlock, processes: &[Process]) {
        let live = block.when != Moment::End;
        let mut world = Here {
            session: self,
            processes,
            live,
        };
        if !execute(&block.code, &mut world) {
            self.stopped += 1;
        }
    }

    /// What a map holds since it was cleared.
    fn cells(&self, map: usize, processes: &[Process], live: bool) -> BTreeMap<Key, Cell> {
        let (results, _) = gather(self.compiled, processes, live);
        match &self.before[map] {
            Some((before, stay)) => results.since(map, before, *stay),
            None => results.maps[map].clone(),
        }
    }

    /// Does what a program or a block asks for.
    fn request(
        &mut self,
        request: usize,
        values: &[u64],
        (processes, live): (&[Process], bool),
        from: Option<&Process>,
    ) {
        let compiled = self.compiled;
        match compiled.script.requests.get(request) {
            Some(Request::Print(format)) => {
                let called = Called::new(&compiled.script, from);
                let text = format.fill(values, &|ty, number| called.text(ty, number));
                self.printer.printed(&text);
            }
            Some(Request::Show { map, top }) => {
                let cells = self.cells(*map, processes, live);
                self.printer.map(&compiled.script.maps[*map], &cells, *top);
            }
            Some(Request::Clear(map)) => self.anew(*map, false, processes, live),
            Some(Request::Zero(map)) => self.anew(*map, true, processes, live),
            Some(Request::Exit) => self.exits = true,
            None => {}
        }
    }

    fn anew(&mut self, map: usize, stay: bool, processes: &[Process], live: bool) {
        let (mut results, _) = gather(self.compiled, processes, live);
        self.before[map] = Some((std::mem::take(&mut results.maps[map]), stay));
    }

    fn take_in(&mut self, news: &News, processes: &[Process]) {
        if news.map.as_deref() != Some(layout::RECORDS) {
            return;
        }
        let Some((request, values)) = record(&bytes(&news.value)) else {
            return;
        };
        let from = processes.iter().find(|p| Some(p.pid()) == news.process);
        self.request(request, &values, (processes, true), from);
    }

    /// Takes programs out of all processes, and prints what they found.
    fn leave(&mut self, collector: &mut Collector<'_>) {
        for process in collector.live() {
            // It may have ended just now.
            let _ = process.detach();
        }
        let end = Instant::now() + LAST_WORDS;
        while collector.connected() && Instant::now() < end {
            collector.poll(TICK);
        }
        let processes = collector.live();
        // What was sent behind `exit()` is not printed any more.
        drop(collector.news());
        self.end(&processes);
    }

    /// Runs the blocks that come last, and prints all maps, once.
    pub fn end(&mut self, processes: &[Process]) {
        if self.over.replace(true) {
            return;
        }
        self.blocks(Moment::End, processes);
        let (results, lost) = gather(self.compiled, processes, false);
        let script = &self.compiled.script;
        let mut shown = Vec::new();
        for (index, map) in script.maps.iter().enumerate() {
            let cells = match &self.before[index] {
                Some((before, stay)) => results.since(index, before, *stay),
                None => results.maps[index].clone(),
            };
            // One that was cleared and has nothing since.
            if self.before[index].is_none() || !cells.is_empty() {
                shown.push((map, cells));
            }
        }
        let shown: Vec<_> = shown.iter().map(|(map, cells)| (*map, cells)).collect();
        self.printer.end(&shown, processes);
        for (map, lost) in script.maps.iter().zip(&results.lost) {
            if *lost > 0 {
                tell!(
                    "warpbpf: {lost} updates of `{}` were lost: there was no room for their keys (`--keys`), or too many lanes changed one value at once",
                    map.name
                );
            }
        }
        let stopped = results.lost.last().copied().unwrap_or(0) + self.stopped;
        if stopped > 0 {
            tell!(
                "warpbpf: loops were ended {stopped} times before they ended themselves, and what stands behind them went on; `--budget` gives programs more instructions"
            );
        }
        if lost > 0 {
            tell!("warpbpf: {lost} lines of `printf` and the like were lost: send fewer");
        }
    }
}

/// A record as it was shown: a number, or bytes in hexadecimal digits.
fn bytes(value: &Json) -> Vec<u8> {
    match value {
        Json::Number(number) => number.as_u64().unwrap_or(0).to_le_bytes().to_vec(),
        Json::String(digits) => {
            let pairs = (0..digits.len() / 2).filter_map(|at| digits.get(2 * at..2 * at + 2));
            pairs
                .filter_map(|pair| u8::from_str_radix(pair, 16).ok())
                .collect()
        }
        _ => Vec::new(),
    }
}

impl Reader for Session<'_> {
    fn turn(&mut self, collector: &mut Collector<'_>) {
        let news = collector.news();
        if self.over.get() {
            return;
        }
        let processes = collector.live();
        for news in news {
            self.take_in(&news, &processes);
            if self.exits {
                return self.leave(collector);
            }
        }
        let moment = Instant::now();
        for at in 0..self.timers.len() {
            let (block, due, every) = self.timers[at];
            let due = due.unwrap_or(moment + every);
            self.timers[at].1 = Some(due);
            if moment >= due {
                self.timers[at].1 = Some((due + every).max(moment));
                self.block(block, &processes);
            }
            if self.exits {
                return self.leave(collector);
            }
        }
    }
}

/// What a block of the tool sees.
struct Here<'h, 's> {
    session: &'h mut Session<'s>,
    processes: &'h [Process],
    /// Processes are asked; else their last copies are taken.
    live: bool,
}

impl World for Here<'_, '_> {
    fn now(&mut self) -> u64 {
        now()
    }

    fn start(&mut self) -> u64 {
        self.session.start
    }

    fn read(&mut self, map: usize, key: &[u64]) -> i64 {
        let script = &self.session.compiled.script;
        let called = Called::new(script, None);
        let types = &script.maps[map].key;
        let parts = types.iter().zip(key);
        let key: Vec<Part> = parts
            .map(|(ty, number)| match ty {
                Type::Number => Part::Number(*number as i64),
                ty => called.part(*ty, *number, 0),
            })
            .collect();
        let cells = self.session.cells(map, self.processes, self.live);
        let kind = script.maps[map].kind;
        let found = cells.get(&key).map_or(0, |cell| cell.rank(kind));
        i64::try_from(found).unwrap_or(i64::MAX)
    }

    fn request(&mut self, request: usize, values: &[u64]) {
        let here = (self.processes, self.live);
        self.session.request(request, values, here, None);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::bytes;

    #[test]
    fn records_come_as_numbers_or_digits() {
        assert_eq!(bytes(&json!(258)), [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes(&json!("0102ff")), [1, 2, 255]);
    }
}
