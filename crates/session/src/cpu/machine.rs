//! The machine of a program on the CPU: its stack, its context, and copies of the values that it
//! has looked up.

use warpbpf_ebpf::interp::stack_regions;
use warpbpf_ebpf::{AtomicOp, Callback, FlatMemory, Machine, Memory, Region, TrapKind, Width};
use warpbpf_object::MapDef;

use super::surroundings::Surroundings;

/// Where the context is.
pub(super) const CONTEXT: u64 = 0x1000_0000_0000;
/// Where values begin, each in room of its own with a gap behind it.
const VALUES: u64 = 0x2000_0000_0000;
/// The largest map that has such a value is smaller.
const VALUE_STRIDE: u64 = 1 << 32;
/// What a pointer to map 0 is; that of map 1 is one more. No memory is there.
const MAPS: u64 = 0x3000_0000_0000;

/// A value that was looked up, or a record that was reserved.
pub(super) struct Held {
    pub(super) map: u32,
    /// `None` of a record.
    key: Option<Vec<u8>>,
    base: u64,
    /// As it was when it was read or written last.
    before: Vec<u8>,
}

/// See the module.
pub(super) struct Cpu<'a> {
    pub(super) memory: FlatMemory,
    pub(super) maps: &'a [MapDef],
    pub(super) world: &'a mut dyn Surroundings,
    held: Vec<Held>,
    /// The program has ended its thread.
    pub(super) exited: bool,
}

impl<'a> Cpu<'a> {
    pub(super) fn new(
        maps: &'a [MapDef],
        context: &[u8],
        world: &'a mut dyn Surroundings,
    ) -> Cpu<'a> {
        let mut memory = FlatMemory::new();
        for region in stack_regions() {
            memory.add(region);
        }
        memory.add(Region {
            base: CONTEXT,
            bytes: context.to_vec(),
            writable: false,
        });
        Cpu {
            memory,
            maps,
            world,
            held: Vec::new(),
            exited: false,
        }
    }

    /// The map that a pointer is to.
    pub(super) fn map(&self, pointer: u64) -> Result<(u32, &'a MapDef), TrapKind> {
        let index = pointer.wrapping_sub(MAPS);
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let def = self.maps.get(number as usize);
        def.map(|def| (number, def))
            .ok_or(TrapKind::NoMap { map: number })
    }

    /// Bytes that a program points to.
    pub(super) fn bytes(&self, address: u64, size: u64) -> Result<Vec<u8>, TrapKind> {
        let bytes = usize::try_from(size).ok();
        let found = bytes.and_then(|size| self.memory.bytes(address, size));
        found.map(<[u8]>::to_vec).ok_or(TrapKind::OutOfBounds {
            address,
            width: Width::W8,
            write: false,
        })
    }

    /// Writes where a program points to.
    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), TrapKind> {
        let bad = TrapKind::OutOfBounds {
            address,
            width: Width::W8,
            write: true,
        };
        if !self.memory.region(address).is_some_and(|r| r.writable) {
            return Err(bad);
        }
        let place = self.memory.bytes_mut(address, bytes.len()).ok_or(bad)?;
        place.copy_from_slice(bytes);
        Ok(())
    }

    /// Puts a value where the program can reach it. The same key has the same place each time.
    pub(super) fn hold(&mut self, map: u32, key: Option<&[u8]>, value: Vec<u8>) -> u64 {
        let known = key.and_then(|key| {
            let same = |held: &&mut Held| held.map == map && held.key.as_deref() == Some(key);
            self.held.iter_mut().find(same)
        });
        if let Some(held) = known {
            if let Some(place) = self.memory.bytes_mut(held.base, value.len()) {
                place.copy_from_slice(&value);
            }
            held.before = value;
            return held.base;
        }
        let base = VALUES + self.held.len() as u64 * VALUE_STRIDE;
        let read_only = self.maps.get(map as usize).is_some_and(MapDef::is_constant);
        self.memory.add(Region {
            base,
            bytes: value.clone(),
            writable: !read_only,
        });
        self.held.push(Held {
            map,
            key: key.map(<[u8]>::to_vec),
            base,
            before: value,
        });
        base
    }

    /// A reserved record leaves: its map and bytes.
    pub(super) fn release(&mut self, address: u64) -> Result<(u32, Vec<u8>), TrapKind> {
        let record = |held: &Held| held.base == address && held.key.is_none();
        let Some(held) = self.held.iter_mut().find(|held| record(held)) else {
            return Err(TrapKind::Helper {
                id: 132,
                reason: "this is no record that was reserved",
            });
        };
        let (map, size) = (held.map, held.before.len() as u64);
        // Its place stays, so that the next has another one, but it is no record any more.
        held.key = Some(Vec::new());
        held.map = u32::MAX;
        held.before = Vec::new();
        let record = match size {
            0 => Vec::new(),
            _ => self.bytes(address, size)?,
        };
        Ok((map, record))
    }

    /// What was stored into values goes to their maps: the words that the program has changed, over
    /// what is there now.
    pub(super) fn write_back(&mut self) {
        for held in &mut self.held {
            let (Some(key), size) = (&held.key, held.before.len()) else {
                continue;
            };
            let Some(now) = self.memory.bytes(held.base, size) else {
                continue;
            };
            if now == held.before {
                continue;
            }
            let now = now.to_vec();
            let words = now.chunks(8).zip(held.before.chunks(8)).enumerate();
            let changed = words.filter(|(_, (now, before))| now != before);
            let changed: Vec<usize> = changed.map(|(word, _)| word).collect();
            // One whose key is gone by now has no place to be written to, as in Linux, and a map
            // that takes no value any more keeps what it has.
            let _ = self.world.store(held.map, key, &now, &changed);
            held.before = now;
        }
    }

    fn in_time(&mut self) -> Result<(), TrapKind> {
        match self.world.out_of_time() {
            true => Err(TrapKind::OutOfTime),
            false => Ok(()),
        }
    }

    /// Values are as their maps have them now.
    fn refresh(&mut self, address: u64) {
        self.write_back();
        for held in &mut self.held {
            let inside = address.wrapping_sub(held.base) < held.before.len() as u64;
            let (true, Some(key)) = (inside, &held.key) else {
                continue;
            };
            if let Ok(value) = self.world.lookup(held.map, key)
                && let Some(place) = self.memory.bytes_mut(held.base, value.len())
            {
                place.copy_from_slice(&value);
                held.before = value;
            }
        }
    }
}

impl Memory for Cpu<'_> {
    fn load(&mut self, address: u64, width: Width) -> Result<u64, TrapKind> {
        self.memory.load(address, width)
    }

    fn store(&mut self, address: u64, width: Width, value: u64) -> Result<(), TrapKind> {
        self.memory.store(address, width, value)
    }

    fn atomic(
        &mut self,
        address: u64,
        width: Width,
        op: AtomicOp,
        operand: u64,
        expected: u64,
    ) -> Result<u64, TrapKind> {
        self.in_time()?;
        self.refresh(address);
        let old = self.memory.atomic(address, width, op, operand, expected)?;
        self.write_back();
        Ok(old)
    }
}

impl Machine for Cpu<'_> {
    fn call_helper(
        &mut self,
        id: u32,
        args: [u64; 5],
        callback: &mut Callback<'_>,
    ) -> Result<u64, TrapKind> {
        self.in_time()?;
        self.write_back();
        self.helper(id, args, callback)
    }

    fn map_address(&mut self, map: u32) -> Result<u64, TrapKind> {
        Ok(MAPS + u64::from(map))
    }

    fn map_value_address(&mut self, map: u32, offset: u32) -> Result<u64, TrapKind> {
        let key = [0; 4];
        let known = |held: &&Held| held.map == map && held.key.as_deref() == Some(&key);
        if let Some(held) = self.held.iter().find(known) {
            return Ok(held.base + u64::from(offset));
        }
        let value = self.world.lookup(map, &key);
        let value = value.map_err(|_| TrapKind::NoMap { map })?;
        Ok(self.hold(map, Some(&key), value) + u64::from(offset))
    }
}
