//! How fast events get from the device to the host: a burst that fits into the rings, then home
//! into the shared memory, against a bare copy of as many bytes into page-locked memory in the same
//! run; and what a consumer takes for each event from there. No event may be lost, and the
//! application's result is checked; the rates are told, and stand in docs/measurements.md.
//!
//! And what becomes of events when the tool does not keep up: each of them is received or counted.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpbpf_driver::{Driver, DriverError, JitOptions, Stream};
use warpbpf_session::{Chunk, Landing, Live, LoadedVariant, Options, Part, Session, inspect};
use warpbpf_tool::{Object, Tool};
use warpbpf_wire::{Chunks, SharedError, SharedReader, SharedWriter, Span};

use crate::library::{PATIENCE, failed, launch, started};
use crate::run::{Bench, Case, Told, enough, same};

/// Programs that send an event, and what it takes with its header, as in
/// `benches/probes/ring.bpf.c`: 24 bytes and 32, at multiples of 16.
const RECORDS: [(&str, u64); 2] = [("bench-ring", 32), ("bench-ring-whole", 48)];
/// Bursts that are timed; the median counts.
const ROUNDS: usize = 9;
/// Threads of a block.
const BLOCK: u32 = 256;
/// Bytes that a bare copy moves at once.
const PIECE: u64 = 4 << 20;

/// Each thread writes its number plus one.
const KERNEL: &str = "\
.version 7.0
.target sm_75
.address_size 64
.visible .entry vadd(.param .u64 out)
{
	.reg .b32 %r<5>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [out];
	cvta.to.global.u64 %rd1, %rd1;
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %ntid.x;
	mov.u32 %r3, %tid.x;
	mad.lo.u32 %r4, %r1, %r2, %r3;
	mul.wide.u32 %rd2, %r4, 4;
	add.u64 %rd3, %rd1, %rd2;
	add.u32 %r4, %r4, 1;
	st.global.u32 [%rd3], %r4;
	ret;
}
";

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("events: burst and drain against a bare copy", rates),
        case("events: a tool that reads them at the end", |bench| {
            behind(bench, "events", Reader::AtTheEnd)
        }),
        case("events: a tool that reads them slowly", |bench| {
            behind(bench, "events", Reader::Slow)
        }),
        case("events: writers that wait for a tool that reads", patient),
        case("events: writers that wait and nobody reads", |bench| {
            behind(bench, "events_hasty", Reader::AtTheEnd)
        }),
    ]
}

/// When a tool reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// When the application has ended.
    AtTheEnd,
    /// All the time, with pauses.
    Slow,
    /// All the time.
    Eager,
}

/// A wait ends after a second, and a machine that lets the reader stand still for so long loses
/// events as it should: not three times, though.
fn patient(bench: &Bench) -> Told {
    let once = || behind(bench, "events_patient", Reader::Eager);
    let late = |told: &Told| matches!(told, Err(why) if why.starts_with(WAITED));
    let told = once();
    match late(&told) {
        true => Some(once()).filter(|told| !late(told)).unwrap_or_else(once),
        false => told,
    }
}

/// What is wrong where a writer's wait was in vain.
const WAITED: &str = "events lost while writers wait";

/// An application of which each thread sends its number, the even ones through one ring and the odd
/// ones through another, and a tool that does not keep up. What does not come is counted, for the
/// right ring, wherever it was lost; what comes, comes once. Where the program has its lanes wait
/// and the tool reads, everything comes.
fn behind(bench: &Bench, object: &str, reader: Reader) -> Told {
    let reads = reader != Reader::AtTheEnd;
    let (threads, launches): (u64, u64) = match (bench.soft, reader) {
        // There a launch returns when its kernel has ended, and the agent learns of the first one
        // only then: that one fits.
        (true, Reader::Eager) => (24 << 10, 8),
        (true, _) => (1 << 17, 1),
        // A hundred million events and some, all of which must come.
        (false, Reader::Eager) => (1 << 22, 24),
        (false, _) => (1 << 22, 1),
    };
    let object = Object::open(bench.object(object)).map_err(failed)?;
    let options = warpbpf_tool::Options {
        // The agent makes it as large as it must be.
        ring_bytes: Some(1),
        ..warpbpf_tool::Options::default()
    };
    let tool = Tool::attach(object, options).map_err(failed)?;
    let (elements, times) = (threads.to_string(), launches.to_string());
    let words = ["vectoradd", elements.as_str(), times.as_str()];
    let mut app = started(&tool, &launch(bench, &words))?;
    let process = app.wait_ready(PATIENCE).map_err(failed)?;
    let mut seen = vec![0u8; threads as usize];
    let mut strange = 0;
    let mut take = |rings: &[&str; 2]| -> Result<usize, String> {
        let mut count = 0;
        for (parity, ring) in (0..).zip(rings) {
            let ring = process.map(ring).map_err(failed)?;
            count += ring.poll(Duration::ZERO, |event| {
                let number = event.payload.try_into().map(u64::from_le_bytes);
                let number = number.ok().filter(|n| n % 2 == parity);
                match number.and_then(|n| seen.get_mut(n as usize)) {
                    Some(times) => *times = times.saturating_add(1),
                    None => strange += 1,
                }
            });
        }
        Ok(count)
    };
    let rings = ["even", "odd"];
    let mut rounds = 0;
    while reads && process.is_connected() {
        take(&rings)?;
        rounds += 1;
        match reader {
            Reader::Eager => std::thread::yield_now(),
            Reader::Slow | Reader::AtTheEnd => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    same("exit status", app.wait().map_err(failed)?, 0)?;
    // At the end everything that is there.
    while take(&rings)? > 0 {}
    same("events that nobody sent", strange, 0)?;
    let often = seen.iter().filter(|times| u64::from(**times) > launches);
    same("events that came twice", often.count(), 0)?;
    // Where nobody reads, what comes first may take all the room.
    same("whether something came", seen.iter().any(|n| *n > 0), true)?;
    let (mut told, mut all) = (Vec::new(), 0);
    for (parity, name) in rings.iter().enumerate() {
        let received: u64 = seen
            .iter()
            .skip(parity)
            .step_by(2)
            .map(|n| u64::from(*n))
            .sum();
        let losses = process.map(name).map_err(failed)?.losses();
        let lost = losses.sum();
        same(
            "received and lost events",
            received + lost,
            launches * threads / 2,
        )?;
        let refused = process
            .map("refused")
            .and_then(|map| map.typed::<u32, u64>());
        let refused = refused.and_then(|map| map.get(&(parity as u32)));
        let refused = refused.map_err(failed)?.unwrap_or_default();
        let device = losses.full + losses.busy;
        same("events lost on the device", device, refused)?;
        if reader == Reader::Eager {
            same(WAITED, (lost, refused), (0, 0))?;
        } else if refused == 0 || lost < refused || (reads && received == 0) {
            return Err(format!(
                "{received} received, {lost} lost, {refused} of them on the device"
            ));
        }
        if reads {
            // While the application runs nothing is lost but on the device, and a tool that reads
            // gets the rest at the end.
            same("events lost here", losses.unread, 0)?;
        }
        all += received;
        told.push(format!(
            "{received} received, {lost} lost ({refused} on the device)"
        ));
    }
    if reader == Reader::Eager {
        enough(bench, "RINGBUF", all)?;
    }
    Ok(format!("{} after {rounds} rounds", told.join(", ")))
}

fn rates(bench: &Bench) -> Told {
    if bench.soft && std::env::var_os("WARPBPF_SOFT_MEMORY").is_none() {
        return Ok("skipped: its rings have 2 GiB; set WARPBPF_SOFT_MEMORY=6G".into());
    }
    let library = if bench.soft {
        bench.folder.join("soft").join("libcuda.so.1")
    } else {
        "libcuda.so.1".into()
    };
    let driver = warpbpf_driver::open(&library.to_string_lossy()).map_err(|e| e.to_string())?;
    let mut told = Vec::new();
    for (object, record) in RECORDS {
        let object = std::fs::read(bench.object(object)).map_err(|e| e.to_string())?;
        let text = measure(&driver, bench, &object, record).map_err(|error| match error {
            Failed::Driver(error) => error.to_string(),
            Failed::Shared(error) => error.to_string(),
            Failed::Told(text) => text,
        })?;
        told.push(format!("{record} bytes: {text}"));
    }
    Ok(told.join("; "))
}

/// What may go wrong.
enum Failed {
    Driver(DriverError),
    Shared(SharedError),
    Told(String),
}

impl From<DriverError> for Failed {
    fn from(error: DriverError) -> Failed {
        Failed::Driver(error)
    }
}
impl From<SharedError> for Failed {
    fn from(error: SharedError) -> Failed {
        Failed::Shared(error)
    }
}
impl From<String> for Failed {
    fn from(text: String) -> Failed {
        Failed::Told(text)
    }
}

/// What one burst and its way home took, and the bare copies.
struct Round {
    plain: Duration,
    probed: Duration,
    home: Duration,
    consumer: Duration,
    bare: Duration,
}

/// As in the agent: chunks land in the shared memory.
struct Home<'w>(Chunks<'w>);

// SAFETY: room that is reserved is nobody else's before it is published.
unsafe impl Landing for Home<'_> {
    fn room(&self) -> u64 {
        self.0.room()
    }
    fn place(&mut self, map: u32, chunk: &Chunk) -> Option<[Part; 2]> {
        let spans = self.0.reserve(map, chunk.shard, chunk.len())?;
        Some(spans.map(|Span { start, bytes }| Part { start, bytes }))
    }
    fn landed(&mut self) {
        self.0.publish();
    }
}

fn measure(driver: &Driver, bench: &Bench, object: &[u8], record: u64) -> Result<String, Failed> {
    driver.init()?;
    driver.set_current(driver.retain_primary(0)?)?;
    let info = driver.device_info(0)?;
    let told = |error: &dyn std::fmt::Display| Failed::Told(error.to_string());
    let session = Session::new(object, &Options::default(), &info).map_err(|e| told(&e))?;
    let session = Arc::new(session);
    let live = Live::new(driver, Arc::clone(&session)).map_err(|e| told(&e))?;
    let image = inspect(KERNEL.as_bytes(), info.capability).map_err(|e| told(&e))?;
    let original = driver.load_ptx(KERNEL)?;
    let made = live.instrument(&session.prepare(&image), original, &JitOptions::default());
    let (_, variant) = made
        .into_iter()
        .next()
        .ok_or_else(|| "the kernel was not instrumented".to_owned())?;
    // Half of what the rings hold, so that a burst fits however the blocks are spread.
    let blocks = if bench.soft { 64 } else { info.sms * 512 };
    let threads = u64::from(blocks) * u64::from(BLOCK);
    let bytes = threads * record;
    // As much room again as a burst takes: chunks begin at multiples of some bytes.
    let (mut writer, fd): (SharedWriter, OwnedFd) = SharedWriter::create(&[0], bytes * 2)?;
    let mut reader = SharedReader::open(&fd)?;
    let pages = writer.ring_pages();
    // SAFETY: the writer lives until they are unlocked below.
    unsafe { driver.host_register(pages.start, pages.bytes)? };
    let stream = driver.stream()?;
    let burst = Burst {
        driver,
        variant: &*variant.map_err(|e| told(&e))?,
        blocks,
        stream,
        out: driver.alloc_zeroed(threads * 4, stream)?,
    };
    let source = driver.alloc_zeroed(bytes, stream)?;
    let (landing, _) = driver.host_alloc(bytes as usize)?;
    let mut rounds = Vec::new();
    for round in 0..=ROUNDS {
        let (plain, probed) = burst.fire()?;
        let begun = Instant::now();
        let stats = live.bring(&mut Home(writer.chunks()))?;
        let home = begun.elapsed();
        // Filler at the ends of sub-buffers comes with them.
        if stats.pending > 0 || stats.bytes < bytes {
            let text = format!("{stats:?} of a burst of {bytes} bytes");
            return Err(text.into());
        }
        let losses = live.losses();
        let lost: u64 = losses.iter().map(|(_, lost)| lost.full + lost.busy).sum();
        // The first round warms everything up, and looks at each event.
        let (events, consumer) = match round {
            0 => (once(&mut reader, blocks)?, Duration::ZERO),
            _ => consume(&mut reader, blocks)?,
        };
        if (events, lost) != (threads, 0) {
            return Err(format!("{events} events of {threads}, {lost} lost").into());
        }
        let begun = Instant::now();
        let mut at = 0;
        while at < bytes {
            let piece = PIECE.min(bytes - at);
            // SAFETY: page-locked memory of so many bytes, which nobody reads.
            unsafe {
                driver.start_read(source + at, landing.add(at as usize), piece, stream)?;
            }
            at += piece;
        }
        driver.wait(stream)?;
        if round > 0 {
            rounds.push(Round {
                plain,
                probed,
                home,
                consumer,
                bare: begun.elapsed(),
            });
        }
    }
    driver.host_unregister(pages.start)?;
    Ok(summary(threads, record, &rounds))
}

/// A kernel with and without the program, over and over.
struct Burst<'d> {
    driver: &'d Driver,
    variant: &'d LoadedVariant,
    blocks: u32,
    stream: Stream,
    out: u64,
}

impl Burst<'_> {
    /// How long it takes without and with it; its result must be right.
    fn fire(&self) -> Result<(Duration, Duration), Failed> {
        let launch = |function| -> Result<Duration, DriverError> {
            let begun = Instant::now();
            let (grid, block) = ([self.blocks, 1, 1], [BLOCK, 1, 1]);
            // SAFETY: it takes one address of as many words as there are threads.
            unsafe {
                self.driver
                    .launch(function, grid, block, self.stream, &mut [self.out])?;
            }
            self.driver.wait(self.stream)?;
            Ok(begun.elapsed())
        };
        let plain = launch(self.variant.original)?;
        let mut result = vec![0; self.blocks as usize * BLOCK as usize * 4];
        self.driver.write(self.out, &result, self.stream)?;
        let probed = launch(self.variant.function)?;
        self.driver.read(self.out, &mut result, self.stream)?;
        let (words, _) = result.as_chunks::<4>();
        let right = |(word, n): (&[u8; 4], u32)| u32::from_le_bytes(*word) == n;
        if !words.iter().zip(1..).all(right) {
            return Err("the application's result is wrong".to_owned().into());
        }
        Ok((plain, probed))
    }
}

/// Block and thread of an event, as one number.
fn number(payload: &[u8]) -> u64 {
    let word = |at: usize| {
        let bytes = payload.get(at..at + 4).and_then(|b| b.try_into().ok());
        u64::from(bytes.map_or(u32::MAX, u32::from_le_bytes))
    };
    word(8) * u64::from(BLOCK) + word(12)
}

/// Takes all events and checks that each thread has sent one.
fn once(reader: &mut SharedReader, blocks: u32) -> Result<u64, Failed> {
    let mut seen = vec![false; blocks as usize * BLOCK as usize];
    let mut wrong = 0;
    let events = reader.events(|event| match seen.get_mut(number(event.payload) as usize) {
        Some(seen) if !*seen => *seen = true,
        Some(_) | None => wrong += 1,
    })?;
    if wrong > 0 {
        return Err(format!("{wrong} events are of no thread, or came twice").into());
    }
    Ok(events)
}

/// Takes all events, with no more than a sum over each, and says how long that took.
fn consume(reader: &mut SharedReader, blocks: u32) -> Result<(u64, Duration), Failed> {
    let begun = Instant::now();
    let mut sum = 0;
    let events = reader.events(|event| sum += number(event.payload))?;
    let took = begun.elapsed();
    let threads = u64::from(blocks) * u64::from(BLOCK);
    if sum != threads * (threads - 1) / 2 {
        return Err(format!("the events' numbers make {sum}").into());
    }
    Ok((events, took))
}

fn summary(threads: u64, record: u64, rounds: &[Round]) -> String {
    let median = |of: fn(&Round) -> Duration| {
        let mut sorted: BTreeMap<(Duration, usize), ()> = BTreeMap::new();
        for (i, round) in rounds.iter().enumerate() {
            sorted.insert((of(round), i), ());
        }
        let middle = sorted.keys().nth(rounds.len() / 2);
        middle.map_or(0.0, |(time, _)| time.as_secs_f64())
    };
    let (plain, probed) = (median(|r| r.plain), median(|r| r.probed));
    let (home, bare) = (median(|r| r.home), median(|r| r.bare));
    let consumer = median(|r| r.consumer);
    let bytes = (threads * record) as f64;
    let burst = threads as f64 / probed;
    format!(
        "{threads} events each time, none lost, results right; burst {:.1} G/s (kernel {:.0} us, without {:.0} us), \
         home {:.2} GB/s, bare copy {:.2} GB/s: {:.2} of it; consumer {:.1} ns an event",
        burst / 1e9,
        probed * 1e6,
        plain * 1e6,
        bytes / home / 1e9,
        bytes / bare / 1e9,
        bare / home,
        consumer * 1e9 / threads as f64
    )
}
