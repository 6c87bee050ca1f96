//! Hashes are made anew while the application pauses, and only then.

use std::ptr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use warpbpf_abi::layout::{HashLayout, hash};
use warpbpf_wire::{Options, ToTool};

use super::attached::{Application, compile};
use crate::hooks::stream_hooks;
use crate::sys::guard::Outcome;

const PROGRAM: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1000);
    __type(key, __u64);
    __type(value, __u64);
} table SEC(".maps");
SEC("gpu/entry/inc")
int enter(struct wbpf_kernel_ctx *ctx)
{
    __u64 key = ctx->thread_idx[0], one = 1;
    bpf_map_update_elem(&table, &key, &one, BPF_ANY);
    return 0;
}
char LICENSE[] SEC("license") = "GPL";
"#;

const LAYOUT: HashLayout = HashLayout {
    max_entries: 1000,
    key_size: 8,
    value_size: 8,
    copies: 1,
    dense: true,
};

fn object() -> &'static [u8] {
    static OBJECT: OnceLock<Vec<u8>> = OnceLock::new();
    OBJECT.get_or_init(|| compile("compaction", PROGRAM))
}

/// An application with its map, in which half of the slots are used up by keys that are gone, and
/// one key is there.
struct Worn {
    app: Application,
    function: usize,
    map: *mut u8,
    before: Vec<u8>,
}

const KEY: u64 = 77;

impl Worn {
    fn new() -> Worn {
        let mut app = Application::with(Options::default(), object(), &[]);
        let module = app.load();
        let function = app.function(module);
        let bytes = LAYOUT.size() as usize;
        let map = app.world.memory_of(bytes);
        let mut image = vec![0u8; bytes];
        let mut put = |at: u64, word: u64| {
            image[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
        };
        let mut taken = vec![false; LAYOUT.slots() as usize];
        let mut insert = |key: u64, state: u64| {
            let h = hash(&key.to_le_bytes());
            let (mut distance, mut slot) = (0, h & (LAYOUT.slots() - 1));
            while std::mem::replace(&mut taken[slot as usize], true) {
                (distance, slot) = (distance + 1, (slot + 1) & (LAYOUT.slots() - 1));
            }
            put(LAYOUT.slot(slot), LAYOUT.dense_word(h, distance) | state);
            put(LAYOUT.slot(slot) + HashLayout::DENSE_VALUE, key * 3);
        };
        insert(KEY, 0);
        for key in 1000..1000 + LAYOUT.slots() / 2 {
            insert(key, HashLayout::GONE);
        }
        put(HashLayout::control(0) + HashLayout::USED, 1);
        put(HashLayout::COUNT_BUSY, 5);
        // SAFETY: all of the allocation, which nobody else touches: nothing was launched.
        unsafe { ptr::copy_nonoverlapping(image.as_ptr(), map, bytes) };
        Worn {
            app,
            function,
            map,
            before: image,
        }
    }

    fn launch(&mut self) {
        self.app.launch(self.function, 1, 32);
    }

    fn now(&self) -> Vec<u8> {
        // SAFETY: the allocation lives as long as its world; words that change meanwhile are looked
        // at again.
        unsafe { std::slice::from_raw_parts(self.map, self.before.len()) }.to_vec()
    }

    fn word(bytes: &[u8], at: u64) -> u64 {
        u64::from_le_bytes(bytes[at as usize..at as usize + 8].try_into().unwrap())
    }

    /// Keys with their values, and slots that are used.
    fn contents(bytes: &[u8]) -> (Vec<(u64, u64)>, usize) {
        let (mut keys, mut used) = (Vec::new(), 0);
        for slot in 0..LAYOUT.slots() {
            let word = Worn::word(bytes, LAYOUT.slot(slot));
            used += usize::from(word != 0);
            let key = LAYOUT.dense_key(slot, word);
            if let Some(key) = key.filter(|_| word & HashLayout::GONE == 0) {
                let at = LAYOUT.slot(slot) + HashLayout::DENSE_VALUE;
                keys.push((key, Worn::word(bytes, at)));
            }
        }
        (keys, used)
    }

    fn becomes(&self, wanted: impl Fn(&Worn) -> bool) -> bool {
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            if wanted(self) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    fn is_compacted(&self) -> bool {
        Worn::contents(&self.now()) == (vec![(KEY, KEY * 3)], 1)
    }

    /// Nothing was done to it in a time in which it would have been done.
    fn stays(&self) -> bool {
        std::thread::sleep(Duration::from_millis(150));
        self.now() == self.before
    }

    /// What was said of the map.
    fn notes(mut self) -> Vec<String> {
        let said = self.app.said();
        let notes = said.into_iter().filter_map(|message| match message {
            ToTool::Note { text, .. } if text.starts_with("map ") => Some(text),
            _ => None,
        });
        notes.collect()
    }
}

#[test]
fn a_pause_is_used() {
    let mut worn = Worn::new();
    assert_eq!(Worn::contents(&worn.before), (vec![(KEY, KEY * 3)], 1025));
    worn.launch();
    assert!(worn.becomes(Worn::is_compacted));
    let now = worn.now();
    assert_eq!(
        Worn::word(&now, HashLayout::COUNT_BUSY),
        5,
        "what was counted stays"
    );
    let used = (0..HashLayout::SHARDS)
        .map(|shard| Worn::word(&now, HashLayout::control(shard) + HashLayout::USED));
    assert_eq!(used.sum::<u64>(), 1);
    worn.launch();
    assert_eq!(worn.app.world.with_probes(), 2);
    assert_eq!(
        worn.notes(),
        [
            "map `table` was compacted while no kernel with programs ran: slots of deleted keys are free again"
        ]
    );
}

#[test]
fn a_stream_that_is_not_done_is_no_pause() {
    let mut worn = Worn::new();
    worn.app.world.set_busy(true);
    worn.launch();
    assert!(worn.stays());
    worn.app.world.set_busy(false);
    assert!(worn.becomes(Worn::is_compacted));
}

#[test]
fn where_graphs_may_be_launched_nothing_is_known() {
    let mut worn = Worn::new();
    let outcome = Outcome::default();
    // SAFETY: the driver of the tests has no captures and says so.
    let code = unsafe {
        crate::hooks::graphs::begin_capture(worn.app.agent, &outcome, ptr::null_mut(), 0)
    };
    assert_eq!(code, 801);
    worn.launch();
    assert!(worn.stays());
}

#[test]
fn a_stream_that_goes_is_asked_before() {
    for busy in [false, true] {
        let mut worn = Worn::new();
        let agent = worn.app.agent;
        let stream = 0x5550usize;
        worn.app.world.set_busy(true);
        worn.launch();
        drop(agent.quiet.enter(warpbpf_driver::Stream(stream as *mut _)));
        worn.app.world.set_busy(busy);
        let outcome = Outcome::default();
        // SAFETY: the driver of the tests has no such function behind the hook and says so.
        let code = unsafe { stream_hooks::stream_destroy(agent, &outcome, stream as *mut _) };
        assert_eq!(code, 801);
        worn.app.world.set_busy(false);
        if busy {
            assert!(worn.stays(), "what was in it may still run");
        } else {
            assert!(worn.becomes(Worn::is_compacted));
        }
    }
}

#[test]
fn a_copy_that_fails_halfway_leaves_the_map_whole() {
    let mut worn = Worn::new();
    worn.app.world.tear(worn.before.len(), 1);
    worn.launch();
    assert!(worn.becomes(|worn| worn.app.world.torn_left() == 0));
    assert!(worn.becomes(|worn| worn.now() == worn.before));
    // It is not tried again, and probes go on.
    worn.launch();
    assert!(worn.stays());
    assert_eq!(worn.app.world.with_probes(), 2);
    assert_eq!(worn.notes(), [""; 0]);
}

#[test]
fn a_map_that_cannot_be_made_whole_is_seen_by_nobody() {
    let mut worn = Worn::new();
    worn.app.world.tear(worn.before.len(), 2);
    worn.launch();
    assert!(worn.becomes(|worn| worn.app.world.torn_left() == 0));
    assert!(worn.becomes(|worn| worn.app.agent.table.get(worn.function).is_none()));
    worn.launch();
    assert_eq!(worn.app.world.with_probes(), 1);
    let notes = worn.notes();
    assert!(
        notes[0].starts_with("map `table` could not be written: ")
            && notes[0].ends_with("; kernels run without probes from now on"),
        "{notes:?}"
    );
}
