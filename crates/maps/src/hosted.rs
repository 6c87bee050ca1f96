//! A hash that the user forced to the host (`HostedLayout`): how the host answers the lanes that
//! ask for its keys, and how its entries are read from a copy.

use std::collections::{HashMap, VecDeque};

use warpbpf_abi::layout::{HostedLayout, MapLayout};
use warpbpf_abi::maps::{BPF_EXIST, BPF_NOEXIST, E2BIG, EEXIST, EINVAL, ENOENT, MapType};
use warpbpf_object::MapDef;

use crate::bytes::{slice, u64_at};
use crate::checks::{check_bytes, stride};
use crate::error::{AccessError, MapError};
use crate::hash::{check_flags, check_key, given};
use crate::map_plan::{MapPlan, Write};

pub(crate) fn plan(def: &MapDef, map_type: MapType, plan: &mut MapPlan) -> Result<(), MapError> {
    check_key(def, map_type)?;
    let layout = HostedLayout {
        max_entries: def.max_entries,
        key_size: def.key_size,
        value_size: def.value_size,
    };
    // The layout's own sums are of 64 bits, and an entry may be too large for them.
    let words = stride(def.key_size) + stride(def.value_size);
    let slots = u128::from(HostedLayout::SLOTS);
    let bytes = u128::from(layout.entries()) * (8 + words)
        + slots * (u128::from(HostedLayout::KEY) + words);
    check_bytes(
        def,
        || format!("`max_entries` {} entries on the host", def.max_entries),
        bytes,
        "lower `max_entries` or `value_size`",
    )?;
    plan.layout = MapLayout::Hosted(layout);
    Ok(())
}

/// The host block, word by word. Loads acquire and stores release.
pub trait Words {
    /// The word at `at`, a multiple of 8.
    fn load(&self, at: u64) -> u64;
    /// Sets the word at `at`, a multiple of 8.
    fn store(&self, at: u64, word: u64);
}

/// The host's side of one map: which entry each key has, and what was answered.
#[derive(Debug)]
pub struct Hosted {
    layout: HostedLayout,
    index: HashMap<Box<[u8]>, u32>,
    /// Entries without a key; the one that was given up last comes last.
    free: VecDeque<u32>,
    /// By slot: the last ticket that was answered.
    answered: Vec<u64>,
    rounds: u64,
    full: u64,
}

impl Hosted {
    /// Takes over what is in the map. Nothing may be under way.
    pub fn new(layout: HostedLayout, words: &impl Words) -> Hosted {
        let mut hosted = Hosted {
            layout,
            index: HashMap::new(),
            free: VecDeque::new(),
            answered: vec![0; HostedLayout::SLOTS as usize],
            rounds: 0,
            full: 0,
        };
        for entry in 0..layout.entries() {
            let at = layout.entry(entry);
            if words.load(at) == 1 {
                let key = bytes_of(words, at + HostedLayout::ENTRY_KEY, layout.key_size);
                hosted.index.insert(key.into(), entry as u32);
            } else {
                hosted.free.push_back(entry as u32);
            }
        }
        hosted
    }

    /// Answers every request that is there, and says how many.
    pub fn serve(&mut self, words: &impl Words) -> usize {
        self.rounds += 1;
        words.store(HostedLayout::ALIVE, self.rounds);
        let mut served = 0;
        for slot in 0..HostedLayout::SLOTS {
            let ticket = words.load(HostedLayout::REQUESTS + 8 * slot);
            if ticket == self.answered[slot as usize] {
                continue;
            }
            let result = self.answer(words, slot);
            self.answered[slot as usize] = ticket;
            let answer = ticket << 32 | u64::from(result as u32);
            words.store(HostedLayout::ANSWERS + 8 * slot, answer);
            served += 1;
        }
        served
    }

    fn answer(&mut self, words: &impl Words, slot: u64) -> i32 {
        let layout = self.layout;
        let at = HostedLayout::FIRST_SLOT + slot * layout.slot_stride();
        let key = bytes_of(words, at + HostedLayout::KEY, layout.key_size);
        let flags = words.load(at + HostedLayout::FLAGS);
        let result = match words.load(at + HostedLayout::OP) {
            HostedLayout::LOOKUP => match self.index.get(key.as_slice()) {
                Some(entry) => Ok(*entry as i64),
                None => Err(ENOENT),
            },
            HostedLayout::UPDATE => {
                let from = at + HostedLayout::KEY + layout.key_stride();
                let value = bytes_of(words, from, layout.value_size);
                self.update(words, &key, &value, flags).map(|()| 0)
            }
            HostedLayout::DELETE => self.delete(words, &key).map(|()| 0),
            // Somebody else wrote into the slot.
            _ => Err(EINVAL),
        };
        result.unwrap_or_else(|errno| errno) as i32
    }

    /// The value of a key.
    pub fn lookup(&self, words: &impl Words, key: &[u8]) -> Option<Vec<u8>> {
        let entry = *self.index.get(key)?;
        let at = self.value_of(entry);
        Some(bytes_of(words, at, self.layout.value_size))
    }

    /// Gives a key a value, both of the map's sizes.
    ///
    /// # Errors
    /// Linux's error number, negative.
    pub fn update(
        &mut self,
        words: &impl Words,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<(), i64> {
        if flags > BPF_EXIST {
            return Err(EINVAL);
        }
        let old = self.index.get(key).copied();
        match old {
            Some(_) if flags == BPF_NOEXIST => return Err(EEXIST),
            None if flags == BPF_EXIST => return Err(ENOENT),
            None if self.index.len() >= self.layout.max_entries as usize => {
                self.full += 1;
                words.store(HostedLayout::COUNT_FULL, self.full);
                return Err(E2BIG);
            }
            // One word changes at once.
            Some(entry) if self.layout.value_size <= 8 => {
                put(words, self.value_of(entry), value);
                return Ok(());
            }
            Some(_) | None => {}
        }
        // There are more entries than keys.
        let entry = self.free.pop_front().ok_or(E2BIG)?;
        let at = self.layout.entry(entry.into());
        put(words, at + HostedLayout::ENTRY_KEY, key);
        put(words, self.value_of(entry), value);
        words.store(at, 1);
        self.index.insert(key.into(), entry);
        if let Some(old) = old {
            self.give_up(words, old);
        }
        Ok(())
    }

    /// Removes a key.
    ///
    /// # Errors
    /// `-ENOENT` if it is not there.
    pub fn delete(&mut self, words: &impl Words, key: &[u8]) -> Result<(), i64> {
        let entry = self.index.remove(key).ok_or(ENOENT)?;
        self.give_up(words, entry);
        Ok(())
    }

    fn give_up(&mut self, words: &impl Words, entry: u32) {
        words.store(self.layout.entry(entry.into()), 0);
        self.free.push_back(entry);
    }

    fn value_of(&self, entry: u32) -> u64 {
        self.layout.entry(entry.into()) + HostedLayout::ENTRY_KEY + self.layout.key_stride()
    }
}

fn bytes_of(words: &impl Words, at: u64, bytes: u32) -> Vec<u8> {
    let count = u64::from(bytes.div_ceil(8));
    let mut all: Vec<u8> = (0..count)
        .flat_map(|i| words.load(at + 8 * i).to_le_bytes())
        .collect();
    all.truncate(bytes as usize);
    all
}

fn put(words: &impl Words, at: u64, bytes: &[u8]) {
    for (at, piece) in (at..).step_by(8).zip(bytes.chunks(8)) {
        let mut word = [0; 8];
        word[..piece.len()].copy_from_slice(piece);
        words.store(at, u64::from_le_bytes(word));
    }
}

/// A key and its value in a snapshot.
pub(crate) struct Found<'a> {
    number: u64,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// All keys of the snapshot.
pub(crate) fn entries<'a>(
    layout: &HostedLayout,
    bytes: &'a [u8],
) -> impl Iterator<Item = Found<'a>> + use<'a> {
    let layout = *layout;
    (0..layout.entries()).filter_map(move |number| {
        let at = layout.entry(number);
        let key = at + HostedLayout::ENTRY_KEY;
        (u64_at(bytes, at) == 1).then(|| Found {
            number,
            key: slice(bytes, key, layout.key_size.into()),
            value: slice(bytes, key + layout.key_stride(), layout.value_size.into()),
        })
    })
}

/// Updates refused because the map was full, and calls that ran out of time.
pub(crate) fn counters(bytes: &[u8]) -> (u64, u64) {
    (
        u64_at(bytes, HostedLayout::COUNT_FULL),
        u64_at(bytes, HostedLayout::TIMED_OUT),
    )
}

/// The writes that give `key` its value in a map that nobody uses. Looks at all entries.
pub(crate) fn store(
    name: &str,
    layout: &HostedLayout,
    bytes: &[u8],
    key: &[u8],
    value: &[u8],
    flags: u64,
) -> Result<Vec<Write>, AccessError> {
    let found = entries(layout, bytes).find(|found| found.key == key);
    check_flags(name, MapType::Hash, flags, found.is_some())?;
    let number = match found {
        Some(found) => found.number,
        None if entries(layout, bytes).count() as u64 >= u64::from(layout.max_entries) => {
            return Err(AccessError::Full {
                map: name.to_owned(),
                why: format!("there are {} other keys", layout.max_entries),
            });
        }
        // There are more entries than keys.
        None => (0..layout.entries())
            .find(|number| u64_at(bytes, layout.entry(*number)) != 1)
            .unwrap_or(0),
    };
    let value = given(name, layout.value_size, 1, value)?;
    let mut entry = vec![0; layout.entry_stride() as usize];
    entry[0] = 1;
    let at = HostedLayout::ENTRY_KEY as usize;
    entry[at..at + key.len()].copy_from_slice(key);
    let at = at + layout.key_stride() as usize;
    entry[at..at + value.len()].copy_from_slice(&value);
    Ok(vec![Write {
        offset: layout.entry(number),
        bytes: entry,
    }])
}

/// The writes that remove `key` from a map that nobody uses. Looks at all entries.
pub(crate) fn remove(
    name: &str,
    layout: &HostedLayout,
    bytes: &[u8],
    key: &[u8],
) -> Result<Vec<Write>, AccessError> {
    let found = entries(layout, bytes).find(|found| found.key == key);
    let Some(found) = found else {
        return Err(AccessError::Missing {
            map: name.to_owned(),
        });
    };
    Ok(vec![Write {
        offset: layout.entry(found.number),
        bytes: vec![0; 8],
    }])
}
