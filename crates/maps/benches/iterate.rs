//! How long the host takes to read every entry of a large hash out of a snapshot: milliseconds, and
//! how often the time of one pass over the same bytes; with slots of 32 bytes, then with dense
//! ones. The target is 50 ms for a million entries, copy and all.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::collections::BTreeMap;
use std::time::Instant;

use warpbpf_maps::{Hardware, MapPlan, MapView, plan_on, update};
use warpbpf_object::{MapDef, MapKind};

const ENTRIES: u32 = 1_000_000;

fn main() {
    let def = MapDef {
        name: "keys".into(),
        map_type: 1,
        key_size: 8,
        value_size: 8,
        max_entries: ENTRIES,
        flags: 0,
        kind: MapKind::User,
        extra: BTreeMap::new(),
        key_type: None,
        value_type: None,
        inner: None,
        initial: Vec::new(),
    };
    for wide_atomics in [false, true] {
        let hardware = Hardware {
            sms: 132,
            wide_atomics,
        };
        match plan_on(&def, hardware, &[]) {
            Ok(plan) => read(&plan),
            Err(error) => println!("{error}"),
        }
    }
}

/// Fills a map of this plan and reads it.
fn read(plan: &MapPlan) {
    let mut bytes = vec![0u8; plan.bytes() as usize];
    for n in 0..u64::from(ENTRIES) {
        let key = (n * 0x9e37_79b9_7f4a_7c15).to_le_bytes();
        match update(plan, &bytes, &key, &n.to_le_bytes(), 0) {
            Ok(writes) => {
                for write in writes {
                    let at = write.offset as usize;
                    bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
                }
            }
            Err(error) => return println!("{error}"),
        }
    }
    let best = |work: &mut dyn FnMut() -> u64| {
        let times = (0..5).map(|_| {
            let start = Instant::now();
            std::hint::black_box(work());
            start.elapsed().as_secs_f64() * 1e3
        });
        times.fold(f64::INFINITY, f64::min)
    };
    let pass = best(&mut || {
        let (words, _) = bytes.as_chunks::<8>();
        words
            .iter()
            .fold(0, |sum, word| sum ^ u64::from_le_bytes(*word))
    });
    let (mut entries, mut sum) = (0u64, 0u64);
    let each = best(&mut || {
        (entries, sum) = (0, 0);
        if let Ok(view) = MapView::new(plan, &bytes) {
            view.each(|_, value| {
                entries += 1;
                sum += value
                    .first_chunk()
                    .map_or(0, |word| u64::from_le_bytes(*word));
            });
        }
        sum
    });
    let expected = u64::from(ENTRIES) * (u64::from(ENTRIES) - 1) / 2;
    assert_eq!(
        (entries, sum),
        (u64::from(ENTRIES), expected),
        "every entry once"
    );
    let owned =
        best(&mut || MapView::new(plan, &bytes).map_or(0, |view| view.entries().count() as u64));
    println!(
        "{ENTRIES} entries in {} MB: each {each:.1} ms, entries {owned:.1} ms, one pass {pass:.1} ms: {:.1}x and {:.1}x",
        bytes.len() >> 20,
        each / pass,
        owned / pass
    );
}
