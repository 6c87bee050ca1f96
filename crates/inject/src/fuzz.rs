//! What a process says of itself: it may be hostile, and its memory and its lists of mappings are
//! what it made them.

use warpbpf_fuzz::Target;

use crate::elf::Library;
use crate::error::InjectError;
use crate::memory::Bytes;
use crate::proc::{parse_maps, status_field};
use crate::process::Subject;

/// Where the memory of the tests begins; all else is not mapped.
const BASE: u64 = 0x7fff_ffff_f000;

/// Memory from an address on: at the end of all addresses, too.
#[derive(Debug)]
struct Piece<'b> {
    base: u64,
    bytes: &'b [u8],
}

impl Bytes for Piece<'_> {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), InjectError> {
        let there = at
            .checked_sub(self.base)
            .and_then(|at| self.bytes.get(at as usize..)?.get(..into.len()));
        into.copy_from_slice(there.ok_or(InjectError::Ended { pid: 0 })?);
        Ok(())
    }
    fn read_some(&self, at: u64, bytes: usize) -> Vec<u8> {
        let there = at
            .checked_sub(self.base)
            .and_then(|at| self.bytes.get(at as usize..));
        let there = there.unwrap_or_default();
        there[..there.len().min(bytes)].to_vec()
    }
}

/// A library in memory with one function, `f`, found by either kind of table.
fn library(gnu: bool) -> Vec<u8> {
    let word = |bytes: &mut Vec<u8>, value: u64| bytes.extend(value.to_le_bytes());
    let mut bytes = vec![0u8; 64];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
    bytes[56..58].copy_from_slice(&2u16.to_le_bytes());
    let dynamic = 64 + 2 * 56;
    let table = dynamic + 4 * 16;
    for (kind, at, size) in [(1u32, 0u64, 0x1000u64), (2, dynamic, 64)] {
        let mut row = kind.to_le_bytes().to_vec();
        row.resize(16, 0);
        for value in [at, at, size, size, 8] {
            word(&mut row, value);
        }
        bytes.extend(row);
    }
    let hash = b"f".iter().fold(5381u32, |h, b| {
        h.wrapping_mul(33).wrapping_add(u32::from(*b))
    });
    let hashes: Vec<u32> = match gnu {
        true => vec![1, 1, 1, 0, 0, 0, 1, hash | 1],
        false => vec![1, 2, 0, 0, 0, 0, 0, 0],
    };
    let symbols = table + 32;
    let strings = symbols + 48;
    let kind = if gnu { 0x6fff_fef5 } else { 4 };
    for (tag, value) in [(5, strings), (6, symbols), (kind, table), (0, 0)] {
        word(&mut bytes, tag);
        word(&mut bytes, value);
    }
    for half in hashes {
        bytes.extend(half.to_le_bytes());
    }
    bytes.extend([0; 24]);
    bytes.extend(1u32.to_le_bytes());
    bytes.extend([0x12, 0, 1, 0]);
    word(&mut bytes, 0x500);
    word(&mut bytes, 0x20);
    bytes.extend(b"\0f\0");
    bytes
}

#[test]
fn process_elf() {
    let seeds = [true, false].map(|gnu| {
        let bytes = library(gnu);
        let memory = Piece {
            base: BASE,
            bytes: &bytes,
        };
        let found = Library::at(&memory, BASE).expect("a library").function("f");
        assert_eq!(found.expect("tables"), Some(BASE + 0x500..BASE + 0x520));
        bytes
    });
    Target::new("process-elf", seeds.to_vec()).run(|bytes| {
        for base in [BASE, 0, u64::MAX - bytes.len() as u64] {
            let memory = Piece { base, bytes };
            if let Some(library) = Library::at(&memory, base) {
                for name in ["f", "pthread_create"] {
                    if let Ok(Some(range)) = library.function(name) {
                        assert!(range.start <= range.end);
                    }
                }
            }
        }
    });
}

#[test]
fn process_lists() {
    let maps = b"7f0000000000-7f0000001000 r--p 00000000 08:01 77                         /lib/libc.so.6\n\
        7f0000001000-7f0000100000 r-xp 00001000 08:01 77                         /lib/libc.so.6\n\
        7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0                          [stack]\n";
    let status =
        b"Name:\tapp\nState:\tS (sleeping)\nTracerPid:\t0\nUid:\t0\t0\t0\t0\nNSpid:\t12\t3\n";
    let words: &[&[u8]] = &[
        b"-",
        b" ",
        b"\n",
        b"ffffffffffffffff",
        b"r-xp",
        b" (deleted)",
        b":",
        b"\t",
    ];
    let seeds = vec![maps.to_vec(), status.to_vec()];
    Target::new("process-lists", seeds)
        .words(words)
        .run(|bytes| {
            let text = String::from_utf8_lossy(bytes);
            let maps = parse_maps(&text);
            for mapping in &maps {
                let _ = mapping.file_name();
            }
            let subject = Subject {
                pid: 0,
                seccomp: false,
                maps,
            };
            for base in subject.bases() {
                let _ = subject.code_of(base);
            }
            let _ = (subject.base_of(|name| name == "libc.so.6"), subject.agent());
            let _ = (subject.has_driver(), status_field(&text, "State"));
        });
}

/// Memory that has something everywhere: the same byte where the piece is not.
#[derive(Debug)]
struct Everywhere<'b> {
    piece: Piece<'b>,
    other: u8,
    reads: std::cell::Cell<u32>,
}

impl Bytes for Everywhere<'_> {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), InjectError> {
        self.reads.set(self.reads.get() + 1);
        if self.piece.read(at, into).is_err() {
            into.fill(self.other);
        }
        Ok(())
    }
    fn read_some(&self, _: u64, bytes: usize) -> Vec<u8> {
        self.reads.set(self.reads.get() + 1);
        vec![self.other; bytes]
    }
}

/// `bytes` with a number of eight bytes somewhere.
fn with(bytes: &[u8], at: usize, number: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Where [`library`] has things.
const HEADERS_AT: usize = 32;
const DYNAMIC: usize = 64 + 2 * 56;

#[test]
fn tables_beyond_the_last_address_are_refused() {
    let good = library(true);
    let at = |bytes: &[u8]| Library::at(&Piece { base: BASE, bytes }, BASE).is_some();
    assert!(at(&good));
    assert!(!at(&with(&good, HEADERS_AT, u64::MAX)));
    // The dynamic section's address.
    assert!(!at(&with(&good, 64 + 56 + 16, u64::MAX - BASE - 7)));
    for entry in 0..3 {
        let bytes = with(&good, DYNAMIC + entry * 16 + 8, u64::MAX - 2);
        let memory = Piece {
            base: BASE,
            bytes: &bytes,
        };
        let library = Library::at(&memory, BASE).expect("its headers are good");
        let found = library.function("f");
        assert!(!matches!(found, Ok(Some(_))), "{entry}: {found:?}");
    }
    // A function that goes beyond all addresses.
    let bytes = with(&good, good.len() - 3 - 8, u64::MAX);
    let memory = Piece {
        base: BASE,
        bytes: &bytes,
    };
    let library = Library::at(&memory, BASE).expect("its headers are good");
    assert_eq!(library.function("f").expect("tables"), None);
}

#[test]
fn tables_without_an_end_are_left() {
    let reads = |bytes: &[u8], other| {
        let piece = Piece { base: BASE, bytes };
        let reads = std::cell::Cell::new(0);
        let memory = Everywhere {
            piece,
            other,
            reads,
        };
        let found = Library::at(&memory, BASE).map(|library| library.function("other"));
        assert!(!matches!(found, Some(Ok(Some(_)))));
        memory.reads.get()
    };
    // A dynamic section of all memory, in which no entry is the last one.
    let endless = with(&library(true), 64 + 56 + 40, u64::MAX);
    let endless = with(&endless, 64 + 56 + 16, 0x5000);
    assert!((4000..5000).contains(&reads(&endless, 1)));
    // A chain of hashes whose last one never comes.
    let mut endless = library(true);
    let bucket = DYNAMIC + 64 + 6 * 4;
    endless[bucket..bucket + 4].copy_from_slice(&0x10_0000u32.to_le_bytes());
    assert!((4000..20_000).contains(&reads(&endless, 0)));
    // All symbols that a number of 32 bits can count.
    let sysv = library(false);
    let endless = with(&sysv, DYNAMIC + 64, u64::MAX);
    assert!((60_000..300_000).contains(&reads(&endless, 0)));
}
