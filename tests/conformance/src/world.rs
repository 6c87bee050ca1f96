//! The reference: the interpreter with memory, maps and helpers that mean what `abi` says they
//! mean.
//!
//! Threads run one after the other over the same maps. So what several threads do to a map must not
//! depend on their order, or one thread must be alone; the generator sees to that.

use std::collections::BTreeMap;

use warpbpf_abi::helpers::HelperId;
use warpbpf_abi::maps::{BPF_EXIST, BPF_NOEXIST, E2BIG, EEXIST, EINVAL, ENOENT};
use warpbpf_ebpf::interp::stack_regions;
use warpbpf_ebpf::{
    Callback, FlatMemory, Limits, Machine, Memory, Outcome, Pc, Region, Trap, TrapKind, Width,
    bpf_loop, run,
};

use crate::test::{Contents, Input, MapSpec, Output, Test};

/// Where a thread's memory is. Aligned as on a device.
const MEMORY: u64 = 0x1000_0000;
/// Where values of maps are.
const VALUES: u64 = 0x2_0000_0000;
/// Bytes between values: what lies between them traps.
const VALUE_STRIDE: u64 = 0x1_0000;
/// What a program has in a register for a map: no memory is there.
const HANDLES: u64 = 0x6000_0000_0000;
/// Where the key is that `bpf_for_each_map_elem` shows, by nesting.
const KEYS: u64 = 0x6800_0000_0000;

/// Threads per block of a launch.
pub const BLOCK: u32 = 64;

/// How the interpreter was stopped.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WorldError {
    /// The program did what it must not.
    #[error("thread {thread}: {trap}")]
    Trap {
        /// Linear index.
        thread: usize,
        /// What.
        trap: Trap,
    },
    /// The interpreter could not start.
    #[error("the interpreter cannot start: {reason}")]
    Start {
        /// Why.
        reason: String,
    },
}

/// Runs a program in every thread of `input`. `rounds` is how often `may_goto` falls through.
///
/// # Errors
/// The first thread's trap.
pub fn interpret(test: &Test, input: &Input, rounds: u32) -> Result<Output, WorldError> {
    let mut world = World::new(test, input);
    let limits = Limits {
        may_goto: u64::from(rounds),
        ..Limits::default()
    };
    let mut threads = Vec::new();
    for (thread, memory) in input.threads.iter().enumerate() {
        let start = |reason: String| WorldError::Start { reason };
        let pointer = world
            .enter(thread, input.threads.len(), memory)
            .ok_or_else(|| start("regions overlap".to_owned()))?;
        let args = [pointer, u64::from(test.memory)];
        match run(&test.code, Pc(0), &args, &mut world, limits) {
            Ok(Outcome::Return(r0)) => {
                let len = memory.len();
                let left = world.memory.bytes(MEMORY, len).unwrap_or_default();
                threads.push((r0, left.to_vec()));
            }
            Ok(Outcome::Trap(trap)) => return Err(WorldError::Trap { thread, trap }),
            Err(error) => return Err(start(error.to_string())),
        }
    }
    let maps = world
        .maps
        .iter()
        .map(|map| map.contents(&world.memory))
        .collect();
    Ok(Output { threads, maps })
}

/// A map and where its values are.
struct Map {
    spec: MapSpec,
    /// Address of each key's value.
    values: BTreeMap<Vec<u8>, u64>,
}

impl Map {
    fn contents(&self, memory: &FlatMemory) -> Contents {
        let size = self.spec.value_size() as usize;
        let value = |at: &u64| memory.bytes(*at, size).unwrap_or_default().to_vec();
        self.values
            .iter()
            .map(|(key, at)| (key.clone(), value(at)))
            .collect()
    }
}

struct World {
    /// What stays from thread to thread: the maps. A thread's own regions are put in by
    /// [`World::enter`].
    memory: FlatMemory,
    maps: Vec<Map>,
    /// Values that were ever made: a deleted one keeps its place, as on the device until a
    /// compaction.
    made: u64,
    /// Linear index of the running thread, and how many there are.
    thread: u32,
    threads: u32,
    /// Nesting of `bpf_for_each_map_elem`.
    depth: u64,
}

impl World {
    fn new(test: &Test, input: &Input) -> World {
        let mut world = World {
            memory: FlatMemory::new(),
            maps: Vec::new(),
            made: 0,
            thread: 0,
            threads: 0,
            depth: 0,
        };
        for (index, spec) in test.maps.iter().enumerate() {
            world.maps.push(Map {
                spec: *spec,
                values: BTreeMap::new(),
            });
            if let MapSpec::Array { max_entries, .. } = spec {
                for key in 0..*max_entries {
                    world.make(index, &key.to_le_bytes(), &[]);
                }
            }
            for (key, value) in input.maps.get(index).into_iter().flatten() {
                match world.maps[index].values.get(key) {
                    Some(&at) => world.put(at, value),
                    None => world.make(index, key, value),
                }
            }
        }
        world
    }

    /// Fresh stack and memory for a thread; what `r1` holds.
    fn enter(&mut self, thread: usize, threads: usize, memory: &[u8]) -> Option<u64> {
        (self.thread, self.threads) = (thread as u32, threads as u32);
        if thread == 0 {
            let added = stack_regions().all(|region| self.memory.add(region));
            let own = Region {
                base: MEMORY,
                bytes: memory.to_vec(),
                writable: true,
            };
            if !added || !self.memory.add(own) {
                return None;
            }
        } else {
            for region in stack_regions() {
                self.put(region.base, &region.bytes);
            }
            self.put(MEMORY, memory);
        }
        // The suite's own runners hand over a null pointer when a case has no memory.
        Some(if memory.is_empty() { 0 } else { MEMORY })
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        if let Some(to) = self.memory.bytes_mut(at, bytes.len()) {
            to.copy_from_slice(bytes);
        }
    }

    fn make(&mut self, map: usize, key: &[u8], value: &[u8]) {
        let base = VALUES + self.made * VALUE_STRIDE;
        self.made += 1;
        let mut bytes = value.to_vec();
        bytes.resize(self.maps[map].spec.value_size() as usize, 0);
        // Places are handed out in order, so they never overlap.
        let _ = self.memory.add(Region {
            base,
            bytes,
            writable: true,
        });
        self.maps[map].values.insert(key.to_vec(), base);
    }

    fn map_of(&self, id: u32, handle: u64) -> Result<usize, TrapKind> {
        let index = handle.wrapping_sub(HANDLES) as usize;
        if handle >= HANDLES && index < self.maps.len() {
            Ok(index)
        } else {
            Err(TrapKind::Helper {
                id,
                reason: "argument 1 is no map",
            })
        }
    }

    fn copy(&self, at: u64, len: u32) -> Result<Vec<u8>, TrapKind> {
        let bytes = self.memory.bytes(at, len as usize);
        Ok(bytes
            .ok_or(TrapKind::OutOfBounds {
                address: at,
                width: Width::W8,
                write: false,
            })?
            .to_vec())
    }

    fn lookup(&mut self, id: u32, args: [u64; 5]) -> Result<u64, TrapKind> {
        let map = self.map_of(id, args[0])?;
        let key = self.copy(args[1], self.maps[map].spec.key_size())?;
        Ok(self.maps[map].values.get(&key).copied().unwrap_or(0))
    }

    fn update(&mut self, id: u32, args: [u64; 5]) -> Result<i64, TrapKind> {
        let map = self.map_of(id, args[0])?;
        let spec = self.maps[map].spec;
        let key = self.copy(args[1], spec.key_size())?;
        let value = self.copy(args[2], spec.value_size())?;
        let flags = args[3];
        if flags > BPF_EXIST {
            return Ok(EINVAL);
        }
        match self.maps[map].values.get(&key).copied() {
            Some(_) if flags == BPF_NOEXIST => Ok(EEXIST),
            Some(at) => {
                self.put(at, &value);
                Ok(0)
            }
            None if matches!(spec, MapSpec::Array { .. }) => Ok(E2BIG),
            None if flags == BPF_EXIST => Ok(ENOENT),
            None if self.maps[map].values.len() >= spec.max_entries() as usize => Ok(E2BIG),
            None => {
                self.make(map, &key, &value);
                Ok(0)
            }
        }
    }

    fn delete(&mut self, id: u32, args: [u64; 5]) -> Result<i64, TrapKind> {
        let map = self.map_of(id, args[0])?;
        let spec = self.maps[map].spec;
        let key = self.copy(args[1], spec.key_size())?;
        Ok(match spec {
            MapSpec::Array { .. } => EINVAL,
            MapSpec::Hash { .. } => match self.maps[map].values.remove(&key) {
                Some(_) => 0,
                None => ENOENT,
            },
        })
    }

    fn for_each(
        &mut self,
        id: u32,
        args: [u64; 5],
        callback: &mut Callback<'_>,
    ) -> Result<i64, TrapKind> {
        let map = self.map_of(id, args[0])?;
        if args[3] != 0 {
            return Ok(EINVAL);
        }
        let keys: Vec<(Vec<u8>, u64)> = self.maps[map]
            .values
            .iter()
            .map(|(key, at)| (key.clone(), *at))
            .collect();
        let base = KEYS + self.depth * VALUE_STRIDE;
        self.depth += 1;
        let mut calls = 0;
        let mut result = Ok(());
        for (key, value) in keys {
            if !self.memory.add(Region {
                base,
                bytes: key.clone(),
                writable: false,
            }) {
                self.put(base, &key);
            }
            calls += 1;
            let stop = callback.call(self, args[1], [args[0], base, value, args[2], 0]);
            match stop {
                Ok(0) => {}
                Ok(_) => break,
                Err(trap) => {
                    result = Err(trap);
                    break;
                }
            }
        }
        self.depth -= 1;
        result.map(|()| calls)
    }

    /// Writes three numbers through three pointers.
    fn three(&mut self, args: [u64; 5], numbers: [u32; 3]) -> Result<u64, TrapKind> {
        for (at, number) in args.into_iter().zip(numbers) {
            self.memory.store(at, Width::W64, u64::from(number))?;
        }
        Ok(0)
    }
}

impl Memory for World {
    fn load(&mut self, address: u64, width: Width) -> Result<u64, TrapKind> {
        self.memory.load(address, width)
    }
    fn store(&mut self, address: u64, width: Width, value: u64) -> Result<(), TrapKind> {
        self.memory.store(address, width, value)
    }
}

impl Machine for World {
    fn call_helper(
        &mut self,
        id: u32,
        args: [u64; 5],
        callback: &mut Callback<'_>,
    ) -> Result<u64, TrapKind> {
        const LOOKUP: u32 = HelperId::MapLookupElem as u32;
        const UPDATE: u32 = HelperId::MapUpdateElem as u32;
        const DELETE: u32 = HelperId::MapDeleteElem as u32;
        const EACH: u32 = HelperId::ForEachMapElem as u32;
        const LOOP: u32 = HelperId::Loop as u32;
        const TIME: u32 = HelperId::KtimeGetNs as u32;
        const BLOCK_IDX: u32 = HelperId::GpuBlockIdx as u32;
        const BLOCK_DIM: u32 = HelperId::GpuBlockDim as u32;
        const THREAD_IDX: u32 = HelperId::GpuThreadIdx as u32;
        const GRID_DIM: u32 = HelperId::GpuGridDim as u32;
        const MEMBAR: u32 = HelperId::GpuMembar as u32;
        const LANE: u32 = HelperId::GpuLaneId as u32;
        match id {
            LOOKUP => self.lookup(id, args),
            UPDATE => self.update(id, args).map(|n| n as u64),
            DELETE => self.delete(id, args).map(|n| n as u64),
            EACH => self.for_each(id, args, callback).map(|n| n as u64),
            LOOP => bpf_loop(self, args, callback),
            // The clock, and in the suite the function that a program may unwind from: a case that
            // calls it does not look at what comes back.
            TIME => Ok(args[0]),
            BLOCK_IDX => self.three(args, [self.thread / BLOCK, 0, 0]),
            BLOCK_DIM => self.three(args, [BLOCK.min(self.threads), 1, 1]),
            THREAD_IDX => self.three(args, [self.thread % BLOCK, 0, 0]),
            GRID_DIM => self.three(args, [self.threads.div_ceil(BLOCK), 1, 1]),
            MEMBAR => Ok(0),
            LANE => Ok(u64::from(self.thread % 32)),
            id => Err(TrapKind::NoHelper { id }),
        }
    }

    fn call_register(
        &mut self,
        value: u64,
        args: [u64; 5],
        callback: &mut Callback<'_>,
    ) -> Result<u64, TrapKind> {
        self.call_helper(value as u32, args, callback)
    }

    fn map_address(&mut self, map: u32) -> Result<u64, TrapKind> {
        if (map as usize) < self.maps.len() {
            Ok(HANDLES + u64::from(map))
        } else {
            Err(TrapKind::NoMap { map })
        }
    }

    fn map_value_address(&mut self, map: u32, offset: u32) -> Result<u64, TrapKind> {
        let first = self
            .maps
            .get(map as usize)
            .and_then(|map| map.values.get(&0u32.to_le_bytes()[..]));
        let first = first.ok_or(TrapKind::NoMap { map })?;
        Ok(first + u64::from(offset))
    }
}
