//! What a lookup of the host costs while a kernel runs, against a bare copy of 64 bytes from the
//! device in the same run.
//!
//! The bare copy waits for whatever the kernel makes a lookup wait for: on an H200 both took 1.1 ms
//! beside a kernel all of whose warps poll host memory, and next to that no work of ours can be
//! seen. So the ratio there says that a lookup is one copy and no more; what it costs beyond one,
//! the ratio beside a kernel of one thread says, and that on the idle device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use warpbpf_driver::{Driver, DriverError};
use warpbpf_session::{Action, HostOp, Live, Options, Progress, Session};

use crate::run::{Bench, Case, Told};

/// A lookup may cost so many bare copies.
const MOST: f64 = 1.5;
/// Lookups and copies that are timed, in turns.
const ROUNDS: usize = 2000;

/// Spins until the word says so.
const KERNEL: &str = "\
.version 7.0
.target sm_75
.address_size 64
.visible .entry wait(.param .u64 stop)
{
	.reg .pred %p<2>;
	.reg .b32 %r<2>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [stop];
AGAIN:
	ld.relaxed.sys.u32 %r1, [%rd1];
	setp.eq.u32 %p1, %r1, 0;
	@%p1 bra AGAIN;
	ret;
}
";

/// All cases.
pub fn cases() -> Vec<Case> {
    vec![Case {
        name: "host lookup of one value while a kernel runs",
        check: ratio,
    }]
}

fn ratio(bench: &Bench) -> Told {
    if bench.soft {
        // Its driver runs a kernel on the thread that launches it.
        return Ok("skipped: the soft GPU's copies cost nothing".into());
    }
    let driver = warpbpf_driver::open("libcuda.so.1").map_err(|e| e.to_string())?;
    measure(&driver, bench).map_err(|e| e.to_string())?
}

fn measure(driver: &Driver, bench: &Bench) -> Result<Told, DriverError> {
    driver.init()?;
    driver.set_current(driver.retain_primary(0)?)?;
    let info = driver.device_info(0)?;
    let options = Options {
        allow_modify: true,
        budget: Some(20_000),
        host_ops: true,
        ..Options::default()
    };
    let made = |object: &str| -> Result<Live, String> {
        let object = std::fs::read(bench.object(object)).map_err(|e| e.to_string())?;
        let session = Session::new(&object, &options, &info).map_err(|e| e.to_string())?;
        Live::new(driver, Arc::new(session)).map_err(|e| e.to_string())
    };
    let (live, other) = match (made("longrun"), made("replace")) {
        (Ok(live), Ok(other)) => (live, other),
        (live, other) => return Ok(Err(live.err().or(other.err()).unwrap_or_default())),
    };
    let of = |live: &Live, name: &str| {
        let mut maps = live.session().maps().iter();
        maps.position(|map| map.name == name).unwrap_or(0)
    };
    let (array_map, hash_map) = (of(&live, "control"), of(&live, "orders"));
    // The copies of a value in it, one for each multiprocessor, are too far apart for one copy of
    // all between them.
    let summed_map = of(&other, "entered");
    let stream = driver.stream()?;
    let source = driver.alloc_zeroed(64, stream)?;
    let (landing, _) = driver.host_alloc(64)?;
    let (word, word_on_device) = driver.host_alloc(8)?;
    // SAFETY: page-locked memory of 8 bytes that stays; the kernel reads it.
    let stop = unsafe { AtomicU32::from_ptr(word.cast()) };
    stop.store(0, Ordering::Relaxed);
    let kernel = driver.function(driver.load_ptx(KERNEL)?, "wait")?;
    let running = driver.stream()?;
    let lookup_in = |live: &Live, map: usize| -> Duration {
        let op = HostOp {
            action: Action::Lookup,
            flags: 0,
            key: vec![0; 4],
            value: Vec::new(),
        };
        let begun = Instant::now();
        let mut progress = live.host_ops(map, vec![op]);
        while progress == Progress::Waiting {
            progress = live.host_progress();
        }
        begun.elapsed()
    };
    let lookup = |map: usize| lookup_in(&live, map);
    let update = || -> Duration {
        let op = HostOp {
            action: Action::Update,
            flags: 0,
            key: vec![0; 4],
            value: vec![1; 16],
        };
        let begun = Instant::now();
        let mut progress = live.host_ops(hash_map, vec![op]);
        while progress == Progress::Waiting {
            progress = live.host_progress();
        }
        begun.elapsed()
    };
    let bare = || -> Result<Duration, DriverError> {
        let begun = Instant::now();
        // SAFETY: 64 bytes of ours, which are waited for.
        unsafe { driver.start_read(source, landing, 64, stream)? };
        driver.wait(stream)?;
        Ok(begun.elapsed())
    };
    let (mut copies_before, mut arrays_before) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        copies_before.push(bare()?);
        arrays_before.push(lookup(array_map));
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e6
    };
    let (copy, array) = (median(&mut copies_before), median(&mut arrays_before));
    let mut right = true;
    let mut told = format!(
        "idle: copy {copy:.1} us, array {array:.1} us ({:.2}x)",
        array / copy
    );
    // One thread that polls leaves the bus alone, so there the cost of a lookup itself would be
    // seen.
    for (name, blocks, threads) in [("a kernel", info.sms / 2, 128), ("one thread", 1, 1)] {
        stop.store(0, Ordering::Release);
        // SAFETY: it takes one address, which is valid until it has ended.
        unsafe {
            let (grid, block) = ([blocks, 1, 1], [threads, 1, 1]);
            driver.launch(kernel, grid, block, running, &mut [word_on_device])?;
        }
        let (mut copies, mut arrays, mut hashes, mut updates) = (vec![], vec![], vec![], vec![]);
        let mut sums = vec![];
        for _ in 0..ROUNDS {
            copies.push(bare()?);
            arrays.push(lookup(array_map));
            sums.push(lookup_in(&other, summed_map));
            hashes.push(lookup(hash_map));
            updates.push(update());
        }
        // It was there all the time.
        right &= !driver.is_idle(running)?;
        stop.store(1, Ordering::Release);
        driver.wait(running)?;
        let (copy, array) = (median(&mut copies), median(&mut arrays));
        let (hash, update) = (median(&mut hashes), median(&mut updates));
        let sum = median(&mut sums);
        right &= array <= MOST * copy && sum <= MOST * copy;
        told += &format!(
            "; beside {name} that polls host memory: copy {copy:.1} us, array {array:.1} us ({:.2}x), of copies for each multiprocessor {sum:.1} us ({:.2}x), hash {hash:.1} us ({:.2}x), hash update {update:.1} us ({:.2}x)",
            array / copy,
            sum / copy,
            hash / copy,
            update / copy
        );
    }
    Ok(if right { Ok(told) } else { Err(told) })
}
