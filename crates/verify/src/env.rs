//! What is fixed while one program is verified: its code, its maps, the platform; and how to speak
//! of them.

use warpbpf_abi::layout::{RingLayout, UserRingLayout};
use warpbpf_abi::maps::{BPF_F_RDONLY_PROG, BPF_F_WRONLY_PROG, MAP_TYPES, MapType, unserved};
use warpbpf_ebpf::{Code, Width};
use warpbpf_object::{MapDef, MapKind};

use crate::domain::pointer::{Memory, Pointer, Target, Value, Why};
use crate::domain::scalar::Scalar;
use crate::facts::{INNER, Place, Region, map_def, word_at};
use crate::platform::Platform;
use crate::rule::Rule;

/// Keys are copied through the stack, which has 512 bytes.
const MAX_KEY_BYTES: u32 = 512;

/// The fixed surroundings.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// The instructions.
    pub code: &'a Code,
    /// The object's maps.
    pub maps: &'a [MapDef],
    /// What the environment offers.
    pub platform: &'a Platform,
}

impl<'a> Env<'a> {
    /// A map that the program uses, with its type, if it can be served.
    ///
    /// # Errors
    /// [`Rule::NoSuchMap`], [`Rule::UnknownMapType`], [`Rule::LinuxMapType`], [`Rule::Lock`] or
    /// [`Rule::MapShape`].
    pub fn map(&self, index: u32) -> Result<(&'a MapDef, MapType), Rule> {
        let def = map_def(self.maps, index).ok_or(Rule::NoSuchMap {
            index,
            count: self.maps.len(),
        })?;
        let map_type = MapType::from_number(def.map_type).ok_or_else(|| unknown_type(def))?;
        if let Some(rule) = crate::locks::lock_in(def) {
            return Err(rule);
        }
        match shape_problem(def, map_type) {
            Some(problem) => Err(Rule::MapShape {
                map: def.name.clone(),
                map_type: map_type.name(),
                problem,
            }),
            None => Ok((def, map_type)),
        }
    }

    /// A map's name.
    pub fn map_name(&self, index: u32) -> &'a str {
        map_def(self.maps, index).map_or("?", |m| m.name.as_str())
    }

    /// Programs may only read the map.
    pub fn read_only(&self, index: u32) -> bool {
        self.constant_bytes(index).is_some() || self.has_flag(index, BPF_F_RDONLY_PROG)
    }

    /// Programs may only write the map.
    pub fn write_only(&self, index: u32) -> bool {
        self.has_flag(index, BPF_F_WRONLY_PROG)
    }

    fn has_flag(&self, index: u32, flag: u32) -> bool {
        let def = map_def(self.maps, index);
        def.is_some_and(|def| def.flags & flag != 0)
    }

    /// The bytes of a map whose contents never change: its data section is read-only.
    pub fn constant_bytes(&self, index: u32) -> Option<&'a [u8]> {
        match &map_def(self.maps, index)?.kind {
            MapKind::Data {
                image,
                read_only: true,
                ..
            } => Some(image),
            MapKind::Data { .. } | MapKind::User => None,
        }
    }

    /// Bytes of the region that a pointer points into, and the offset of its first one.
    pub fn bounds(&self, target: Target) -> (i64, u64) {
        match target {
            Target::Stack(_) => (
                -crate::domain::stack::FRAME_BYTES,
                crate::domain::stack::FRAME_BYTES as u64,
            ),
            Target::Context => (0, u64::from(self.platform.context.size)),
            Target::Map(_) | Target::Function(_) | Target::Dynptr { .. } => (0, 0),
            Target::Number { .. } => (0, 4),
            Target::Memory(bytes) => (0, u64::from(bytes)),
            Target::MapKey(map) => (
                0,
                map_def(self.maps, map).map_or(0, |m| u64::from(m.key_size)),
            ),
            Target::MapValue(map) => (
                0,
                map_def(self.maps, map).map_or(0, |m| u64::from(m.value_size)),
            ),
            Target::Record { size, .. }
            | Target::Sample { size, .. }
            | Target::Slice { size, .. } => (0, u64::from(size)),
        }
    }

    /// `a value of map …`.
    pub fn target(&self, target: Target) -> String {
        match target {
            Target::Stack(_) => "the stack".to_owned(),
            Target::Context => "the context".to_owned(),
            Target::Map(map) if map & INNER != 0 => {
                format!("a map in `{}`", self.map_name(map & !INNER))
            }
            Target::Map(map) => format!("map `{}`", self.map_name(map)),
            Target::MapValue(map) => format!("a value of map `{}`", self.map_name(map)),
            Target::MapKey(map) => format!("a key of map `{}`", self.map_name(map)),
            Target::Memory(_) => "the program's memory".to_owned(),
            Target::Number { .. } => "the number that an iterator gave".to_owned(),
            Target::Function(start) => match self.code.insns().get(start.index()) {
                Some(_) => format!("the function at instruction {}", self.code.slot(start)),
                None => "a function that does not exist".to_owned(),
            },
            Target::Record { map, .. } => format!("a record of map `{}`", self.map_name(map)),
            Target::Dynptr { map, .. } => {
                format!("the dynptr of a sample of map `{}`", self.map_name(map))
            }
            Target::Sample { map, .. } => format!("a sample of map `{}`", self.map_name(map)),
            Target::Slice { memory, .. } => match memory {
                Memory::Value(map) => {
                    format!("a dynptr's part of a value of map `{}`", self.map_name(map))
                }
                Memory::Record(map) => {
                    format!("a dynptr's record of map `{}`", self.map_name(map))
                }
            },
        }
    }

    /// Where a pointer points, as `offset 8 of a value of map …` or `r10-8 of the stack`.
    pub fn place(&self, pointer: &Pointer) -> String {
        let at = match (pointer.target, pointer.fixed()) {
            (Target::Stack(_), Some(offset)) => format!("r10{offset:+}"),
            (_, Some(offset)) => format!("offset {offset}"),
            (Target::Stack(_), None) => format!("r10 plus {}", pointer.offset),
            (_, None) => format!("offset {}", pointer.offset),
        };
        format!("{at} of {}", self.target(pointer.target))
    }

    /// What a value is, to stand after "is".
    pub fn value(&self, value: &Value) -> String {
        match value {
            Value::Nothing(why) => format!("nothing: {}", self.why(*why)),
            Value::Number { scalar, .. } => {
                format!("the number {scalar}").replace("the number any number", "any number")
            }
            Value::Pointer(p) => self.pointer(p),
        }
    }

    /// What a pointer is, to stand after "is".
    pub fn pointer(&self, p: &Pointer) -> String {
        let null = if p.nullable { ", or null" } else { "" };
        match (p.target, p.fixed()) {
            (
                Target::Map(_) | Target::Context | Target::Function(_) | Target::Dynptr { .. },
                Some(0),
            ) => {
                format!("{}{null}", self.target(p.target))
            }
            (
                Target::MapValue(_)
                | Target::MapKey(_)
                | Target::Memory(_)
                | Target::Number { .. }
                | Target::Record { .. }
                | Target::Sample { .. }
                | Target::Slice { .. },
                Some(0),
            ) => {
                format!("a pointer to {}{null}", self.target(p.target))
            }
            _ => format!("a pointer to {}{null}", self.place(p)),
        }
    }

    /// Why a register holds nothing.
    pub fn why(&self, why: Why) -> String {
        match why {
            Why::NeverWritten => "nothing was written to it".to_owned(),
            Why::Call(pc) => format!(
                "the call at instruction {} overwrote it",
                self.code.slot(pc)
            ),
            Why::Released(pc) => format!("instruction {} gave its record back", self.code.slot(pc)),
            Why::DynptrGone => "the dynptr that it came from is no more".to_owned(),
            Why::FrameGone => {
                "it pointed into the stack of a function that has returned".to_owned()
            }
            Why::Destroyed(pc) => {
                format!("instruction {} destroyed its iterator", self.code.slot(pc))
            }
            Why::Unread => "it was dropped".to_owned(),
        }
    }

    /// The largest record that a ring buffer takes, whatever the number of SMs: more of them only
    /// make rings smaller, down to a bound that does not depend on it.
    pub fn max_record(&self, def: &MapDef) -> u64 {
        match MapType::from_number(def.map_type) {
            Some(MapType::PerfEventArray | MapType::GpuRingbuf) => {
                RingLayout::events(u32::MAX).max_payload()
            }
            Some(MapType::UserRingbuf) => {
                UserRingLayout::new(def.max_entries).map_or(0, |ring| ring.max_payload())
            }
            _ => RingLayout::new(def.max_entries, u32::MAX).max_payload(),
        }
    }
}

fn unknown_type(def: &MapDef) -> Rule {
    let (map, number) = (def.name.clone(), def.map_type);
    match unserved(number) {
        Some((name, advice)) => Rule::LinuxMapType {
            map,
            number,
            name,
            advice,
        },
        None => Rule::UnknownMapType {
            map,
            number,
            served: MAP_TYPES
                .iter()
                .map(|(t, name)| format!("{name} ({})", *t as u32))
                .collect::<Vec<_>>()
                .join(", "),
        },
    }
}

/// What is wrong with a map's definition.
fn shape_problem(def: &MapDef, map_type: MapType) -> Option<String> {
    let key = |want: u32| {
        (def.key_size != want)
            .then(|| format!("must have a key of {want} bytes, not {}", def.key_size))
    };
    let value = || (def.value_size == 0).then(|| "must have a value of at least 1 byte".to_owned());
    let entries = || (def.max_entries == 0).then(|| "needs `max_entries`".to_owned());
    match map_type {
        MapType::Array | MapType::PercpuArray | MapType::PerThreadArray => {
            key(4).or_else(value).or_else(entries)
        }
        MapType::Hash
        | MapType::GpuHash
        | MapType::PercpuHash
        | MapType::LruHash
        | MapType::LruPercpuHash => {
            let bad_key = !(1..=MAX_KEY_BYTES).contains(&def.key_size);
            bad_key
                .then(|| {
                    format!(
                        "must have a key of 1 to {MAX_KEY_BYTES} bytes, not {}",
                        def.key_size
                    )
                })
                .or_else(value)
                .or_else(entries)
        }
        MapType::Ringbuf => {
            // A value type tells the tools what its records are; Linux's own rings have none.
            (def.key_size != 0)
                .then(|| "must have no key".to_owned())
                .or_else(entries)
        }
        MapType::GpuArray
        | MapType::GpuKernelArray
        | MapType::PerThreadHostArray
        | MapType::GpuHostArray => key(4).or_else(value).or_else(entries),
        MapType::Queue | MapType::Stack | MapType::BloomFilter => (def.key_size != 0)
            .then(|| "must have no key".to_owned())
            .or_else(value)
            .or_else(entries),
        MapType::ArrayOfMaps | MapType::HashOfMaps => (def.inner.is_none())
            .then(|| {
                "must declare the maps that are in it: `__array(values, struct { … })`".to_owned()
            })
            .or_else(|| (map_type == MapType::ArrayOfMaps).then(|| key(4)).flatten())
            .or_else(entries),
        // `max_entries` is the number of CPUs there, and often left out.
        MapType::PerfEventArray | MapType::GpuRingbuf => None,
        MapType::UserRingbuf => (def.key_size != 0)
            .then(|| "must have no key".to_owned())
            .or_else(entries)
            .or_else(|| {
                UserRingLayout::new(def.max_entries).is_none().then(|| {
                    format!(
                        "may have `max_entries` of {} bytes at most",
                        UserRingLayout::MOST
                    )
                })
            }),
    }
}

/// What a dynptr stands for a part of.
pub fn memory_region(memory: Memory) -> Region {
    match memory {
        Memory::Value(map) => Region::MapValue { map },
        Memory::Record(map) => Region::Record { map },
    }
}

/// The fact about an access through this pointer.
pub fn place_of(pointer: &Pointer) -> Option<Place> {
    let region = match pointer.target {
        Target::Stack(frame) => Region::Stack { frame },
        Target::Context => Region::Context,
        Target::MapValue(map) => Region::MapValue { map },
        Target::Record { map, .. } | Target::Sample { map, .. } => Region::Record { map },
        Target::Slice { memory, .. } => {
            // Where in it a dynptr begins, nobody knows.
            return Some(Place {
                region: memory_region(memory),
                offset: None,
                align: pointer.align(),
            });
        }
        Target::MapKey(map) => Region::MapKey { map },
        Target::Memory(_) => Region::Memory,
        Target::Number { frame, slot } => {
            return Some(Place {
                region: Region::Stack { frame },
                offset: pointer.fixed().map(|at| at + i64::from(slot)),
                align: pointer.align(),
            });
        }
        Target::Map(_) | Target::Function(_) | Target::Dynptr { .. } => return None,
    };
    Some(Place {
        region,
        offset: pointer.fixed(),
        align: pointer.align(),
    })
}

/// A number read from constant bytes, if all of it is inside them.
pub fn constant_at(bytes: &[u8], offset: i64, width: Width) -> Option<Scalar> {
    word_at(bytes, offset, width).map(Scalar::constant)
}
