//! Rounds over rings in host memory, with a driver of a few functions that fails where it is told
//! to.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use warpbpf_driver::sys::{Api, CUresult};

use super::*;

/// What the driver of this thread was asked.
#[derive(Default)]
struct Asked {
    /// Streams of copies to the host, with their bytes.
    copies: Vec<(usize, usize)>,
    waits: usize,
    /// Copies to the host until one fails.
    fails_in: Option<usize>,
}

thread_local! {
    static ASKED: RefCell<Asked> = RefCell::default();
}

unsafe extern "C" fn copy_to_host(to: *mut u8, from: u64, bytes: usize, stream: usize) -> CUresult {
    let fails = ASKED.with_borrow_mut(|asked| {
        asked.copies.push((stream, bytes));
        let left = asked.fails_in?.checked_sub(1);
        asked.fails_in = left;
        left.is_none().then_some(700)
    });
    if let Some(code) = fails {
        return code;
    }
    // SAFETY: addresses of the device are pointers here.
    unsafe { std::ptr::copy(from as *const u8, to, bytes) };
    0
}

unsafe extern "C" fn copy_to_device(to: u64, from: *const u8, bytes: usize) -> CUresult {
    // SAFETY: as above.
    unsafe { std::ptr::copy(from, to as *mut u8, bytes) };
    0
}

unsafe extern "C" fn wait(_stream: usize) -> CUresult {
    ASKED.with_borrow_mut(|asked| asked.waits += 1);
    0
}

unsafe extern "C" fn host_alloc(pointer: *mut *mut u8, bytes: usize, _flags: c_uint) -> CUresult {
    let memory = vec![0u64; bytes.div_ceil(8)].leak();
    // SAFETY: callers pass a local.
    unsafe { *pointer = memory.as_mut_ptr().cast() };
    0
}

unsafe extern "C" fn stream_create(stream: *mut usize, _flags: c_uint) -> CUresult {
    // SAFETY: callers pass a local.
    unsafe { *stream = 2 };
    0
}

unsafe extern "C" fn works(_first: *mut c_void, _second: c_int) -> CUresult {
    0
}

fn driver() -> Driver {
    let address = |symbol: &'static str| match symbol {
        "cuMemcpyDtoHAsync_v2" => copy_to_host as *const c_void,
        "cuMemcpyHtoDAsync_v2" => copy_to_device as *const c_void,
        "cuStreamSynchronize" => wait as *const c_void,
        "cuMemHostAlloc" => host_alloc as *const c_void,
        "cuStreamCreate" => stream_create as *const c_void,
        _ => works as *const c_void,
    };
    // SAFETY: the functions have the signatures of their symbols, or ignore arguments.
    Driver::new(unsafe { Api::resolve(address) }.unwrap())
}

/// Rings of 64 KiB in memory that stays, and their writers.
struct Device {
    base: u64,
    layout: RingLayout,
}

impl Device {
    fn new(shards: u32) -> Device {
        let layout = RingLayout::new(1, shards);
        let memory = vec![0u64; layout.size() as usize / 8].leak();
        Device {
            base: memory.as_ptr() as u64,
            layout,
        }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at + 8 <= self.layout.size());
        // SAFETY: inside of leaked memory, which only this thread uses.
        unsafe { AtomicU64::from_ptr((self.base + at) as *mut u64) }
    }

    fn add(&self, at: u64, bytes: u64) -> u64 {
        self.word(at).fetch_add(bytes, Ordering::Relaxed)
    }

    /// Fills a sub-buffer of a ring with one record; it begins with `number`.
    fn fill(&self, shard: u32, number: u64) {
        let (sub, line) = (self.layout.sub_bytes(), u64::from(shard));
        let reserved = self.add(
            line * RingLayout::CONTROL_STRIDE + RingLayout::RESERVED,
            sub,
        );
        let at = reserved % self.layout.shard_bytes;
        let record = self.layout.data_at() + line * self.layout.shard_bytes + at;
        let header = self.layout.max_payload();
        self.word(record).store(header, Ordering::Relaxed);
        let payload = self.word(record + RingLayout::HEADER);
        payload.store(number, Ordering::Relaxed);
        self.add(
            self.layout.commits_at() + (line * RingLayout::SUBS + at / sub) * 8,
            sub,
        );
    }

    fn consumed(&self, shard: u32) -> u64 {
        self.word(self.layout.consumed_at() + u64::from(shard) * 8)
            .load(Ordering::Relaxed)
    }
}

fn rings(devices: &[Device]) -> (Driver, Rings) {
    let driver = driver();
    let maps: Vec<_> = (10..)
        .zip(devices)
        .map(|(map, device)| (map, device.base, device.layout))
        .collect();
    let mut held = Held::new(&driver);
    let rings = Rings::new(
        &maps,
        Stream(std::ptr::without_provenance_mut(1)),
        &mut held,
    )
    .unwrap();
    let _kept = held.keep();
    (driver, rings)
}

/// Room for so many sub-buffers; what landed: maps, shards and numbers.
struct Few {
    subs: u64,
    pile: Pile,
    landed: Vec<(u32, u32, u64)>,
}

// SAFETY: as the pile's.
unsafe impl Landing for Few {
    fn room(&self) -> u64 {
        (self.subs * SUB).saturating_sub(self.pile.used as u64)
    }
    fn place(&mut self, map: u32, chunk: &Chunk) -> Option<[Part; 2]> {
        self.pile.place(map, chunk)
    }
    fn landed(&mut self) {
        let landed = &mut self.landed;
        self.pile.hand_out(&mut |event| {
            let number = event.payload[..8].try_into().unwrap();
            landed.push((event.map, event.shard, u64::from_le_bytes(number)));
        });
    }
}

const SUB: u64 = 8 << 10;

fn few(subs: u64) -> Few {
    Few {
        subs,
        pile: Pile::new(1 << 20),
        landed: Vec::new(),
    }
}

#[test]
fn a_round_is_one_look_and_copies_side_by_side() {
    let devices = [Device::new(3), Device::new(2)];
    for (device, shard, number) in [(0, 0, 1), (0, 2, 2), (0, 2, 3), (1, 1, 4)] {
        devices[device].fill(shard, number);
    }
    let (driver, mut rings) = rings(&devices);
    assert_eq!(rings.largest(), SUB);
    let mut home = few(100);
    let stats = rings.bring(&driver, &mut home).unwrap();
    let whole = DrainStats {
        bytes: 4 * SUB,
        waiting: 0,
        pending: 0,
    };
    assert_eq!(stats, whole);
    assert_eq!(
        home.landed,
        [(10, 0, 1), (10, 2, 2), (10, 2, 3), (11, 1, 4)]
    );
    // Two looks at two rings, in the first stream; then each copy in the stream that has less to
    // do.
    let (copies, waits) = ASKED.with_borrow(|a| (a.copies[4..].to_vec(), a.waits));
    let sub = SUB as usize;
    assert_eq!(copies, [(1, sub), (2, 2 * sub), (1, sub)]);
    // For the looks, for both streams, for what is given back.
    assert_eq!(waits, 4);
    assert_eq!([0, 1, 2].map(|s| devices[0].consumed(s)), [SUB, 0, 2 * SUB]);
    assert_eq!(devices[1].consumed(1), SUB);
    // Nothing there: only a look.
    assert_eq!(
        rings.bring(&driver, &mut home).unwrap(),
        DrainStats::default()
    );
    assert_eq!(ASKED.with_borrow(|a| (a.copies.len(), a.waits)), (11, 5));
}

#[test]
fn who_found_no_room_comes_first_the_next_time() {
    let devices = [Device::new(3), Device::new(1)];
    for number in 0..4 {
        for shard in 0..3 {
            devices[0].fill(shard, number);
        }
        devices[1].fill(0, number);
    }
    let (driver, mut rings) = rings(&devices);
    let mut told = Vec::new();
    for round in 0..4 {
        // More is written meanwhile.
        devices[0].fill(0, 4 + round);
        let mut home = few(5);
        let stats = rings.bring(&driver, &mut home).unwrap();
        assert_eq!(stats.bytes, 5 * SUB);
        assert_eq!(stats.waiting, (16 + round + 1 - 5 * (round + 1)) * SUB);
        assert_eq!(stats.pending, stats.waiting);
        told.push(home.landed);
    }
    let (a, b, c, d) = ((10, 0), (10, 1), (10, 2), (11, 0));
    let expected: [&[((u32, u32), u64)]; 4] = [
        &[(a, 0), (a, 1), (a, 2), (a, 3), (a, 4)],
        &[(b, 0), (b, 1), (b, 2), (b, 3), (c, 0)],
        &[(c, 1), (c, 2), (c, 3), (d, 0), (d, 1)],
        &[(d, 2), (d, 3), (a, 5), (a, 6), (a, 7)],
    ];
    for (told, expected) in told.iter().zip(expected) {
        let told: Vec<_> = told.iter().map(|(m, s, n)| ((*m, *s), *n)).collect();
        assert_eq!(told, expected);
    }
    // A landing without any room takes nothing, and nothing is given back.
    let before = devices[0].consumed(0);
    devices[0].fill(0, 9);
    let stats = rings.bring(&driver, &mut few(0)).unwrap();
    assert_eq!((stats.bytes, stats.waiting), (0, SUB));
    assert_eq!(devices[0].consumed(0), before);
}

#[test]
fn after_a_copy_that_failed_everything_is_still_there() {
    let devices = [Device::new(2)];
    devices[0].fill(0, 1);
    devices[0].fill(1, 2);
    let (driver, mut rings) = rings(&devices);
    // Of the commit counts, the control lines, and the two chunks.
    for copy in 0..4 {
        let mut home = few(100);
        ASKED.with_borrow_mut(|asked| asked.fails_in = Some(copy));
        let waits = ASKED.with_borrow(|a| a.waits);
        let error = rings.bring(&driver, &mut home).unwrap_err();
        assert_eq!((error.call, error.code), ("cuMemcpyDtoHAsync", 700));
        assert_eq!(home.landed, []);
        assert_eq!([0, 1].map(|shard| devices[0].consumed(shard)), [0, 0]);
        // Whatever was started is waited for: the memory is about to be somebody else's.
        assert!(ASKED.with_borrow(|a| a.waits) > waits, "copy {copy}");
    }
    let mut all = Vec::new();
    let stats = rings.drain(&driver, &mut |event| {
        all.push((event.map, event.shard, event.payload[0]));
    });
    assert_eq!(
        (stats.unwrap().bytes, all),
        (2 * SUB, vec![(10, 0, 1), (10, 1, 2)])
    );
}

#[test]
fn records_that_are_wanted_one_by_one_come_in_several_rounds() {
    let devices = [Device::new(200)];
    let (driver, mut rings) = rings(&devices);
    let mut expected = Vec::new();
    for shard in 0..200 {
        for turn in 0..RingLayout::SUBS {
            devices[0].fill(shard, u64::from(shard) * 10 + turn);
            expected.push(u64::from(shard) * 10 + turn);
        }
    }
    let mut all = Vec::new();
    let mut first = true;
    let stats = rings.drain(&driver, &mut |event| {
        // Who writes on does not keep the reader for ever.
        if std::mem::take(&mut first) {
            devices[0].fill(0, 7777);
        }
        all.push(u64::from_le_bytes(event.payload[..8].try_into().unwrap()));
    });
    let stats = stats.unwrap();
    assert!(stats.bytes >= 200 * (64 << 10), "{stats:?}");
    all.retain(|number| *number != 7777);
    all.sort_unstable();
    assert_eq!(all, expected);
}
