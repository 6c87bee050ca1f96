//! What is run: a program with what it needs around it, what goes in, and what comes out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use warpbpf_abi::maps::MapType;
use warpbpf_ebpf::{Code, listing};
use warpbpf_object::{MapDef, MapKind};

/// A program and its surroundings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Test {
    /// The program.
    pub code: Code,
    /// Bytes that `r1` points to, one area per thread; `r2` holds their number.
    pub memory: u32,
    /// Its maps.
    pub maps: Vec<MapSpec>,
}

/// A map, small enough to be compared whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapSpec {
    /// ARRAY.
    Array {
        /// Bytes of a value.
        value_size: u32,
        /// Number of values.
        max_entries: u32,
    },
    /// HASH.
    Hash {
        /// Bytes of a key.
        key_size: u32,
        /// Bytes of a value.
        value_size: u32,
        /// Most keys.
        max_entries: u32,
    },
}

impl MapSpec {
    /// Bytes of a key.
    pub fn key_size(&self) -> u32 {
        match self {
            MapSpec::Array { .. } => 4,
            MapSpec::Hash { key_size, .. } => *key_size,
        }
    }

    /// Bytes of a value.
    pub fn value_size(&self) -> u32 {
        match self {
            MapSpec::Array { value_size, .. } | MapSpec::Hash { value_size, .. } => *value_size,
        }
    }

    /// Most keys.
    pub fn max_entries(&self) -> u32 {
        match self {
            MapSpec::Array { max_entries, .. } | MapSpec::Hash { max_entries, .. } => *max_entries,
        }
    }

    /// As an object would define it.
    pub fn definition(&self, index: usize) -> MapDef {
        let map_type = match self {
            MapSpec::Array { .. } => MapType::Array,
            MapSpec::Hash { .. } => MapType::Hash,
        };
        MapDef {
            name: format!("map{index}"),
            map_type: map_type as u32,
            key_size: self.key_size(),
            value_size: self.value_size(),
            max_entries: self.max_entries(),
            flags: 0,
            kind: MapKind::User,
            extra: BTreeMap::new(),
            key_type: None,
            value_type: None,
            inner: None,
            initial: Vec::new(),
        }
    }
}

/// Keys with their values.
pub type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// What goes into a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Input {
    /// Memory of each thread.
    pub threads: Vec<Vec<u8>>,
    /// Keys that each map begins with; an array's others are zero.
    pub maps: Vec<Contents>,
}

/// What a run leaves behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// `r0` and memory of each thread.
    pub threads: Vec<(u64, Vec<u8>)>,
    /// Contents of each map.
    pub maps: Vec<Contents>,
}

impl Output {
    /// The first difference in words, with what `self` has called `ours` and the other one
    /// `theirs`.
    pub fn difference(&self, other: &Output, ours: &str, theirs: &str) -> Option<String> {
        for (thread, (a, b)) in self.threads.iter().zip(&other.threads).enumerate() {
            if a.0 != b.0 {
                return Some(format!(
                    "thread {thread}: r0 is {:#x} on the {ours}, {:#x} on the {theirs}",
                    a.0, b.0
                ));
            }
            if let Some(at) = a.1.iter().zip(&b.1).position(|(a, b)| a != b) {
                return Some(format!(
                    "thread {thread}: byte {at} of its memory is {:#04x} on the {ours}, {:#04x} on the {theirs}",
                    a.1[at], b.1[at]
                ));
            }
        }
        for (map, (a, b)) in self.maps.iter().zip(&other.maps).enumerate() {
            for key in a.keys().chain(b.keys()) {
                let (a, b) = (a.get(key), b.get(key));
                if a != b {
                    return Some(format!(
                        "map {map}: key {} has {} on the {ours}, {} on the {theirs}",
                        hex(key),
                        a.map_or("no value".to_owned(), |v| hex(v)),
                        b.map_or("no value".to_owned(), |v| hex(v))
                    ));
                }
            }
        }
        (self != other).then(|| format!("{ours} and {theirs} differ in shape"))
    }
}

/// Bytes as people read them.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Test {
    /// The program and its surroundings as text, with the input of one thread.
    pub fn describe(&self, input: &Input, thread: usize) -> String {
        let mut text = listing(&self.code);
        for (index, map) in self.maps.iter().enumerate() {
            let _ = writeln!(text, "map {index}: {map:?}");
            for (key, value) in input.maps.get(index).into_iter().flatten() {
                let _ = writeln!(text, "  {} = {}", hex(key), hex(value));
            }
        }
        let _ = writeln!(
            text,
            "memory: {} bytes; {} threads; that of thread {thread}: {}",
            self.memory,
            input.threads.len(),
            input.threads.get(thread).map_or(String::new(), |m| hex(m))
        );
        text
    }
}
