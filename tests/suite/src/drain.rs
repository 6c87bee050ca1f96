//! How fast events get from the device to the host: a burst that fits into the rings, then a drain, against a bare copy of
//! as many bytes into page-locked memory in the same run. No event may be lost, and the application's result is checked; the rates
//! are told, and stand in docs/measurements.md.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpbpf_driver::{Driver, DriverError, JitOptions};
use warpbpf_session::{Live, Options, Session, inspect};

use crate::run::{Bench, Case, Told};

/// Bytes of a record with its header, as in `benches/probes/ring.bpf.c`.
const RECORD: u64 = 32;
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
    vec![Case {
        name: "events: burst and drain against a bare copy",
        check: rates,
    }]
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
    measure(&driver, bench).map_err(|e| e.to_string())?
}

/// What one burst and its drain took, and the bare copies.
struct Round {
    plain: Duration,
    probed: Duration,
    drain: Duration,
    bare: Duration,
}

fn measure(driver: &Driver, bench: &Bench) -> Result<Told, DriverError> {
    driver.init()?;
    driver.set_current(driver.retain_primary(0)?)?;
    let info = driver.device_info(0)?;
    let object = match std::fs::read(bench.object("bench-ring")) {
        Ok(object) => object,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let session = match Session::new(&object, &Options::default(), &info) {
        Ok(session) => Arc::new(session),
        Err(error) => return Ok(Err(error.to_string())),
    };
    let live = match Live::new(driver, Arc::clone(&session)) {
        Ok(live) => live,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let image = match inspect(KERNEL.as_bytes(), info.capability) {
        Ok(image) => image,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let original = driver.load_ptx(KERNEL)?;
    let made = live.instrument(&session.prepare(&image), original, &JitOptions::default());
    let variant = match made.into_iter().next() {
        Some((_, Ok(variant))) => variant,
        Some((_, Err(error))) => return Ok(Err(error)),
        None => return Ok(Err("the kernel was not instrumented".into())),
    };
    // Half of what the rings hold, so that a burst fits however the blocks are spread.
    let blocks = if bench.soft { 64 } else { info.sms * 512 };
    let threads = u64::from(blocks) * u64::from(BLOCK);
    let stream = driver.stream()?;
    let out = driver.alloc_zeroed(threads * 4, stream)?;
    let source = driver.alloc_zeroed(threads * RECORD, stream)?;
    let (landing, _) = driver.host_alloc(PIECE as usize * 2)?;
    let launch = |function| -> Result<Duration, DriverError> {
        let begun = Instant::now();
        // SAFETY: it takes one address of `threads` words.
        unsafe { driver.launch(function, [blocks, 1, 1], [BLOCK, 1, 1], stream, &mut [out])? };
        driver.wait(stream)?;
        Ok(begun.elapsed())
    };
    let mut rounds = Vec::new();
    for round in 0..=ROUNDS {
        let plain = launch(variant.original)?;
        driver.write(out, &vec![0; threads as usize * 4], stream)?;
        let probed = launch(variant.function)?;
        let mut result = vec![0; threads as usize * 4];
        driver.read(out, &mut result, stream)?;
        let (words, _) = result.as_chunks::<4>();
        if !words
            .iter()
            .zip(1u32..)
            .all(|(word, n)| u32::from_le_bytes(*word) == n)
        {
            return Ok(Err("the application's result is wrong".into()));
        }
        let (mut events, mut sum) = (0u64, 0u64);
        let begun = Instant::now();
        loop {
            let stats = live.drain(&mut |event| {
                events += 1;
                sum += u64::from(event.payload[8]);
            })?;
            if stats.pending == 0 {
                break;
            }
        }
        let drain = begun.elapsed();
        let lost: u64 = live
            .losses()
            .iter()
            .map(|(_, lost)| lost.full + lost.busy)
            .sum();
        if (events, lost) != (threads, 0) {
            return Ok(Err(format!("{events} events of {threads}, {lost} lost")));
        }
        std::hint::black_box(sum);
        let begun = Instant::now();
        let mut at = 0;
        while at < threads * RECORD {
            let bytes = PIECE.min(threads * RECORD - at);
            // SAFETY: two pieces of page-locked memory, which nobody reads.
            unsafe {
                let into = landing.add((at / PIECE % 2 * PIECE) as usize);
                driver.start_read(source + at, into, bytes, stream)?;
            }
            at += bytes;
        }
        driver.wait(stream)?;
        // The first one warms everything up.
        if round > 0 {
            rounds.push(Round {
                plain,
                probed,
                drain,
                bare: begun.elapsed(),
            });
        }
    }
    Ok(Ok(told(threads, &rounds)))
}

fn told(threads: u64, rounds: &[Round]) -> String {
    let median = |of: fn(&Round) -> Duration| {
        let mut sorted: BTreeMap<(Duration, usize), ()> = BTreeMap::new();
        for (i, round) in rounds.iter().enumerate() {
            sorted.insert((of(round), i), ());
        }
        let middle = sorted.keys().nth(rounds.len() / 2);
        middle.map_or(0.0, |(time, _)| time.as_secs_f64())
    };
    let (plain, probed) = (median(|r| r.plain), median(|r| r.probed));
    let (drain, bare) = (median(|r| r.drain), median(|r| r.bare));
    let bytes = (threads * RECORD) as f64;
    let burst = threads as f64 / probed;
    format!(
        "{threads} events each time, none lost, results right; burst {:.1} G/s (kernel {:.0} us, without {:.0} us), \
         drain {:.2} GB/s, bare copy {:.2} GB/s: {:.2} of it",
        burst / 1e9,
        probed * 1e6,
        plain * 1e6,
        bytes / drain / 1e9,
        bytes / bare / 1e9,
        bare / drain
    )
}
