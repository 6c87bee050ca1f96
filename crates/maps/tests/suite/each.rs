//! Reading a map without copies gives what reading it with copies does.

use crate::common::def;
use warpbpf_maps::{Hardware, MapView, Value, delete, plan, plan_on, update};

/// Small keys and values have homes or dense slots, large ones have nodes; arrays have neither.
#[test]
fn with_copies_and_without() {
    for (map_type, key_size, value_size, wide_atomics) in [
        (1, 4, 8, false),
        (1, 4, 8, true),
        (1, 7, 5, true),
        (1, 13, 5, false),
        (1, 40, 100, true),
        (9, 8, 8, true),
        (2, 4, 24, false),
    ] {
        let hardware = Hardware {
            sms: 4,
            wide_atomics,
        };
        let plan = plan_on(&def(map_type, key_size, value_size, 300), hardware, &[]).unwrap();
        let mut bytes = vec![0; plan.bytes() as usize];
        for n in 0..300u32 {
            let mut key = n.to_le_bytes().to_vec();
            key.resize(key_size as usize, 7);
            let value: Vec<u8> = (0..value_size).map(|i| (n + i) as u8).collect();
            let mut writes = update(&plan, &bytes, &key, &value, 0).unwrap();
            if n % 3 == 0 && map_type != 2 {
                for write in &writes {
                    let at = write.offset as usize;
                    bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
                }
                writes = delete(&plan, &bytes, &key).unwrap();
            }
            for write in writes {
                let at = write.offset as usize;
                bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
            }
        }
        let view = MapView::new(&plan, &bytes).unwrap();
        let mut without = Vec::new();
        view.each(|key, value| without.push((key.to_vec(), Value::One(value.to_vec()))));
        let with: Vec<_> = view.entries().map(|e| (e.key, e.value)).collect();
        let expected = if map_type == 2 { 300 } else { 200 };
        assert_eq!((with.len(), &with), (expected, &without), "type {map_type}");
    }
    // Several values per key are not read so.
    let plan = plan(&def(5, 4, 8, 300), 4, &[]).unwrap();
    let bytes = vec![0; plan.bytes() as usize];
    let view = MapView::new(&plan, &bytes).unwrap();
    view.each(|_, _| panic!("there is nothing"));
}

/// Of an array only what is not zeros: wherever it lies, first and last among them, in arrays of
/// one value for all and of one for each multiprocessor, with values smaller and larger than what
/// is looked at at once.
#[test]
fn what_is_not_zero() {
    for (map_type, value_size, entries) in [(2, 8, 2000), (2, 5, 1), (2, 6000, 7), (6, 16, 900)] {
        let plan = plan(&def(map_type, 4, value_size, entries), 3, &[]).unwrap();
        let mut bytes = vec![0; plan.bytes() as usize];
        let expected: Vec<u32> = (0..entries)
            .filter(|key| *key == 0 || key % 611 == 5 || key + 1 == entries)
            .collect();
        for key in &expected {
            let values = if map_type == 6 { 3 } else { 1 };
            // The last byte of the last copy, or the first.
            let mut value = vec![0; (value_size as usize).next_multiple_of(8) * values];
            match key % 2 {
                0 => value[0] = 1,
                _ => value[(value_size as usize).next_multiple_of(8) * (values - 1)] = 1,
            }
            value.truncate(if map_type == 6 {
                value.len()
            } else {
                value_size as usize
            });
            for write in update(&plan, &bytes, &key.to_le_bytes(), &value, 0).unwrap() {
                let at = write.offset as usize;
                bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
            }
        }
        let view = MapView::new(&plan, &bytes).unwrap();
        let set: Vec<_> = view.entries_set().map(|e| (e.key, e.value)).collect();
        let all = view.entries().filter(|entry| match &entry.value {
            Value::One(value) => value.iter().any(|byte| *byte != 0),
            Value::PerSm(values) => values.iter().flatten().any(|byte| *byte != 0),
            Value::PerThread(_) => panic!("these are arrays"),
        });
        let all: Vec<_> = all.map(|e| (e.key, e.value)).collect();
        assert_eq!(set, all, "type {map_type}");
        let keys: Vec<_> = expected
            .iter()
            .map(|key| key.to_le_bytes().to_vec())
            .collect();
        assert_eq!(
            set.into_iter().map(|(key, _)| key).collect::<Vec<_>>(),
            keys
        );
    }
}
