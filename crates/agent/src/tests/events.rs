//! Events on their way from rings to the tool, in a world where nothing runs: what programs would
//! have written is written here.

use std::os::fd::OwnedFd;
use std::time::Duration;

use warpbpf_abi::layout::{MapLayout, RingLayout};
use warpbpf_wire::{SharedReader, ToTool};

use super::attached::{Application, notes};
use crate::device::context_registry::ContextState;

/// The ring of the program.
const EVENTS: u32 = 1;

/// The ring of an application that has loaded its kernel and launched it.
struct Ring {
    layout: RingLayout,
    base: usize,
}

impl Ring {
    fn of(app: &mut Application) -> Ring {
        let module = app.load();
        let function = app.function(module);
        app.launch(function, 2, 64);
        let shard = app.agent.context_registry.all().remove(0);
        let state = shard.read();
        let ContextState::Here(live) = &*state else {
            panic!("there are no maps");
        };
        let MapLayout::Ring(layout) = live.layouts()[EVENTS as usize].layout else {
            panic!("the map is no ring");
        };
        let base = app.world.allocation(layout.size() as usize);
        Ring { layout, base }
    }

    /// A word of it, which programs change at any time.
    fn add(&self, at: u64, n: u64) -> u64 {
        assert!(at + 8 <= self.layout.size());
        let word = (self.base + at as usize) as *mut u64;
        // SAFETY: inside of an allocation of the world, which lives as long as that.
        let word = unsafe { std::sync::atomic::AtomicU64::from_ptr(word) };
        word.fetch_add(n, std::sync::atomic::Ordering::SeqCst)
    }

    /// Claims a whole sub-buffer of a multiprocessor's ring for one record. Gives its number and
    /// where it lies.
    fn claim(&self, shard: u64) -> (u64, u64) {
        let reserved = self.add(
            shard * RingLayout::CONTROL_STRIDE + RingLayout::RESERVED,
            self.layout.sub_bytes(),
        );
        let at = reserved % self.layout.shard_bytes;
        let sub = at / self.layout.sub_bytes();
        let place = self.layout.data_at() + shard * self.layout.shard_bytes + at;
        (sub, place)
    }

    /// Fills a sub-buffer of a ring, which was never used, with one record that begins with
    /// `number`.
    fn fill(&self, shard: u64, number: u64) {
        let (sub, place) = self.claim(shard);
        self.add(place, self.layout.max_payload());
        self.add(place + RingLayout::HEADER, number);
        let count = self.layout.commits_at() + (shard * RingLayout::SUBS + sub) * 8;
        self.add(count, self.layout.sub_bytes());
    }
}

/// The shared memory, when it has been sent.
fn memory(app: &mut Application) -> OwnedFd {
    let tool = app.tool.as_mut().unwrap();
    loop {
        let frame = tool.recv(Duration::from_secs(5)).unwrap().unwrap();
        if let ToTool::Ready(_) = frame.message {
            return frame.fd.unwrap();
        }
    }
}

/// Numbers of the events that are there, at most so many.
fn read(reader: &mut SharedReader, most: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    let told = reader.events_while(|event| {
        assert_eq!(event.map, EVENTS);
        let number = event.payload[..8].try_into().unwrap();
        numbers.push(u64::from_le_bytes(number));
        numbers.len() < most
    });
    assert_eq!(told.unwrap(), numbers.len() as u64);
    numbers
}

#[test]
fn the_memory_of_events_is_locked_while_probes_are_on() {
    let mut app = Application::new();
    let module = app.load();
    let function = app.function(module);
    app.launch(function, 2, 64);
    let calls = |app: &Application, symbol| app.world.calls().get(symbol).copied();
    assert_eq!(calls(&app, "cuMemHostRegister_v2"), Some(1));
    assert_eq!(calls(&app, "cuMemHostUnregister"), None);
    let said = app.said();
    assert!(!notes(&said)[0].contains("locked"), "{said:?}");
    assert_eq!(calls(&app, "cuMemHostUnregister"), Some(1));
    // A tool that dies takes nothing of the application's with it either.
    let mut app = Application::new();
    let _ = Ring::of(&mut app);
    drop(app.tool.take());
    app.agent.finish("exit", Duration::from_secs(5));
    assert_eq!(calls(&app, "cuMemHostUnregister"), Some(1));
}

#[test]
fn without_locked_memory_events_are_slower_and_that_is_told() {
    let mut app = Application::new();
    app.world.fail("cuMemHostRegister_v2", 1);
    let module = app.load();
    let function = app.function(module);
    app.launch(function, 2, 64);
    // The chunk that cannot be cut has 8 KiB; there is room for two of them.
    let told = "events come home more slowly: their memory cannot be locked \
                (`cuMemHostRegister` failed with CUDA_ERROR_FAKE (999): 32768 bytes)";
    assert_eq!(notes(&app.said())[0], told);
    assert_eq!(app.world.with_probes(), 1);
    assert_eq!(app.world.calls().get("cuMemHostUnregister"), None);
}

#[test]
fn what_a_tool_does_not_read_is_counted_at_the_end() {
    let mut app = Application::new();
    let ring = Ring::of(&mut app);
    let memory = memory(&mut app);
    for number in 0..RingLayout::SUBS {
        ring.fill(0, number);
    }
    // The control line says what programs lost by themselves.
    ring.add(RingLayout::LOST_FULL, 9);
    app.said();
    let mut reader = SharedReader::open(&memory).unwrap();
    // There is room for three sub-buffers.
    assert_eq!(read(&mut reader, usize::MAX), [0, 1, 2]);
    assert_eq!(reader.lost(EVENTS), 5);
    assert_eq!(reader.device_losses(EVENTS).full, 9);
}

#[test]
fn who_reads_slowly_gets_everything() {
    let mut app = Application::new();
    let ring = Ring::of(&mut app);
    let memory = memory(&mut app);
    for number in 0..RingLayout::SUBS {
        ring.fill(0, number);
        ring.fill(1, 100 + number);
    }
    let reader = std::thread::spawn(move || {
        let mut reader = SharedReader::open(&memory).unwrap();
        let mut numbers = Vec::new();
        while numbers.len() < 2 * RingLayout::SUBS as usize {
            numbers.extend(read(&mut reader, 1));
            std::thread::sleep(Duration::from_millis(5));
        }
        (numbers, reader.lost(EVENTS))
    });
    app.said();
    let (mut numbers, lost) = reader.join().unwrap();
    assert_eq!(lost, 0);
    for shard in [0, 100] {
        let of_shard: Vec<u64> = (numbers.iter().copied())
            .filter(|n| (shard..shard + 100).contains(n))
            .collect();
        assert!(of_shard.is_sorted(), "{of_shard:?}");
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 2 * RingLayout::SUBS as usize);
}

#[test]
fn room_that_was_claimed_and_never_written_is_told() {
    let mut app = Application::new();
    let ring = Ring::of(&mut app);
    let memory = memory(&mut app);
    ring.fill(0, 1);
    // Its thread was killed here.
    ring.claim(0);
    ring.fill(0, 2);
    ring.fill(1, 3);
    let said = app.said();
    let mut reader = SharedReader::open(&memory).unwrap();
    assert_eq!(read(&mut reader, usize::MAX), [1, 3]);
    let told = "16384 bytes of rings are lost: threads claimed room and ended before they wrote it, \
                and what came behind it on their multiprocessors could not be read";
    assert!(notes(&said).contains(&told), "{said:?}");
}
