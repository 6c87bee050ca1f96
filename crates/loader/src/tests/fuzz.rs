//! `bpf()` as a tool may call it that is wrong or hostile: any command, any attributes, pointers to
//! anything.

use warpbpf_fuzz::{Bounds, Target};

use crate::tests::Tool;
use crate::uapi::{Command, attr};

/// Bytes of a call: the command, its size, then its attributes.
const CALL: usize = 2 + 144;
/// Most calls of an input.
const MOST: usize = 24;

/// A call with these fields. A pointer is an offset in the memory that the tool has, which begins
/// at 4096.
fn call(command: Command, fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![command as u8, 144];
    bytes.resize(CALL, 0);
    for (at, value) in fields {
        bytes[2 + at..2 + at + value.len()].copy_from_slice(value);
    }
    bytes
}

fn map(kind: u32, key: u32, value: u32, entries: u32) -> Vec<u8> {
    let fields: [(usize, &[u8]); 4] = [
        (attr::map::TYPE, &kind.to_ne_bytes()),
        (attr::map::KEY_SIZE, &key.to_ne_bytes()),
        (attr::map::VALUE_SIZE, &value.to_ne_bytes()),
        (attr::map::MAX_ENTRIES, &entries.to_ne_bytes()),
    ];
    call(Command::MapCreate, &fields)
}

fn element(command: Command) -> Vec<u8> {
    // The first descriptor that there is.
    let fields: [(usize, &[u8]); 3] = [
        (attr::elem::MAP_FD, &1001u32.to_ne_bytes()),
        (attr::elem::KEY, &4096u64.to_ne_bytes()),
        (attr::elem::VALUE, &4160u64.to_ne_bytes()),
    ];
    call(command, &fields)
}

fn batch(command: Command) -> Vec<u8> {
    let fields: [(usize, &[u8]); 5] = [
        (attr::batch::OUT, &4300u64.to_ne_bytes()),
        (attr::batch::KEYS, &4096u64.to_ne_bytes()),
        (attr::batch::VALUES, &4160u64.to_ne_bytes()),
        (attr::batch::COUNT, &4u32.to_ne_bytes()),
        (attr::batch::MAP_FD, &1001u32.to_ne_bytes()),
    ];
    call(command, &fields)
}

#[test]
fn loader_bpf() {
    let mut seeds = Vec::new();
    // Hash, array, both per CPU, ring, user ring, trie, queue, bloom filter, prog array, perf
    // events.
    for (kind, key, value, entries) in [
        (1, 4, 8, 16),
        (2, 4, 8, 4),
        (5, 4, 8, 4),
        (6, 4, 8, 4),
        (27, 0, 0, 4096),
        (31, 0, 0, 4096),
        (11, 8, 8, 4),
        (22, 0, 8, 4),
        (30, 0, 8, 4),
        (3, 4, 4, 4),
        (4, 4, 4, 4),
        (13, 4, 4, 2),
    ] {
        let mut seed = map(kind, key, value, entries);
        for command in [
            Command::MapUpdateElem,
            Command::MapLookupElem,
            Command::MapGetNextKey,
            Command::MapLookupAndDeleteElem,
            Command::MapDeleteElem,
            Command::MapFreeze,
        ] {
            seed.extend(element(command));
        }
        for command in [Command::MapUpdateBatch, Command::MapLookupBatch] {
            seed.extend(batch(command));
        }
        seeds.push(seed);
    }
    let mut others = Vec::new();
    for number in 0..=35u8 {
        let mut one = vec![number, 144];
        one.resize(CALL, 0);
        one[2..6].copy_from_slice(&1001u32.to_ne_bytes());
        others.extend(one);
    }
    seeds.extend(others.chunks(CALL * 12).map(<[u8]>::to_vec));
    // A program of two instructions, at 4096, and its licence: `r0 = 0; exit`.
    let fields: [(usize, &[u8]); 4] = [
        (attr::prog::TYPE, &2u32.to_ne_bytes()),
        (attr::prog::INSN_COUNT, &2u32.to_ne_bytes()),
        (attr::prog::INSNS, &(4096u64 + CALL as u64).to_ne_bytes()),
        (attr::prog::LICENSE, &4096u64.to_ne_bytes()),
    ];
    let mut program = call(Command::ProgLoad, &fields);
    program.extend([0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0]);
    seeds.push(program);
    let words: &[&[u8]] = &[
        &1001u32.to_ne_bytes(),
        &1002u32.to_ne_bytes(),
        &4096u64.to_ne_bytes(),
        &[0x9f, 0xeb, 1, 0, 24, 0, 0, 0],
    ];
    // Maps without an application are the tool's own, and Linux lets a tool have gigabytes of them;
    // what an array takes is by its attributes.
    let bounds = Bounds {
        bytes: 64 << 20,
        per_byte: 1 << 16,
        ..Bounds::default()
    };
    Target::new("loader-bpf", seeds)
        .words(words)
        .bounds(bounds)
        .run(|bytes| {
            let mut tool = Tool::new();
            // The tool's memory is the input, so that pointers lead to bytes that mutants change.
            let base = tool.memory.put(bytes);
            tool.memory.put(&[0; 4096]);
            for at in (0..bytes.len()).step_by(CALL).take(MOST) {
                let (number, size) = (bytes[at], bytes.get(at + 1).copied().unwrap_or(0));
                // Commands that there are more often than others.
                let number = u32::from(number) % 40;
                let address = base + at as u64 + 2;
                let _ = tool
                    .kernel
                    .bpf(number, address, u32::from(size), &tool.memory);
            }
        });
}
