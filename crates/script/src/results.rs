//! What maps hold, put together from all devices and processes, with keys as people read them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use warpbpf_abi::access::{Barrier, Kind as Access, Space};
use warpbpf_abi::cuda;

use crate::layout::{Layout, is_array, offset};
use crate::typed::{Checked, Kind, Map, Type};
use crate::types::text;

/// A value as people read it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A number.
    Number(i64),
    /// A name.
    Name(String),
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Part::Number(number) => write!(f, "{number}"),
            Part::Name(name) => f.write_str(name),
        }
    }
}

/// A key; empty if the map has none.
pub type Key = Vec<Part>;

/// What a key has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cell {
    /// How often.
    pub count: u64,
    /// A sum, or what was assigned.
    pub number: i64,
    /// The largest of the numbers by which minima and maxima are kept.
    pub ordered: u64,
    /// The name of what was assigned, if it has one.
    pub name: Option<String>,
    /// Counts by bucket.
    pub buckets: BTreeMap<u32, u64>,
}

/// What all maps hold at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Results {
    /// For each map of the script its keys.
    pub maps: Vec<BTreeMap<Key, Cell>>,
    /// For each map of the script the updates that were lost, then loops that were ended.
    pub lost: Vec<u64>,
}

/// What numbers of kernels, places and the like are called.
pub type Names<'n> = &'n dyn Fn(Type, u64) -> Part;

fn word(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Results {
    /// Nothing yet.
    pub fn new(script: &Checked) -> Results {
        Results {
            maps: vec![BTreeMap::new(); script.maps.len()],
            lost: vec![0; script.maps.len() + 1],
        }
    }

    /// Takes in what one device has for a key of a map of the object.
    pub fn add(
        &mut self,
        script: &Checked,
        layout: &Layout,
        map: usize,
        (key, value): (&[u8], &[u8]),
        names: Names<'_>,
    ) {
        let index = key.first_chunk().map_or(0, |key| u32::from_le_bytes(*key));
        if map == layout.lost {
            if let Some(lost) = self.lost.get_mut(index as usize) {
                *lost += word(value, 0);
            }
            return;
        }
        let (Some(definition), Some(cells)) = (script.maps.get(map), self.maps.get_mut(map)) else {
            return;
        };
        let mut at = 0;
        let mut shown = Key::new();
        for ty in &definition.key {
            let behind = at + 8 * ty.words();
            shown.push(match ty {
                Type::Str(_) => Part::Name(text(key.get(at..behind).unwrap_or_default())),
                ty => names(*ty, word(key, at)),
            });
            at = behind;
        }
        let bucket = match is_array(definition) {
            true => index,
            false => word(key, at) as u32,
        };
        if definition.kind.buckets().is_some() && word(value, 0) == 0 {
            return;
        }
        cells
            .entry(shown)
            .or_default()
            .add(definition, bucket, value, names);
    }

    /// What came since another moment. Keys without anything new are left out, unless they are to
    /// stay.
    pub fn since(
        &self,
        map: usize,
        before: &BTreeMap<Key, Cell>,
        stay: bool,
    ) -> BTreeMap<Key, Cell> {
        let cells = self.maps.get(map).into_iter().flatten();
        let fresh = cells.filter_map(|(key, cell)| {
            let mut cell = cell.clone();
            if let Some(old) = before.get(key) {
                let same = cell == *old;
                cell.count = cell.count.wrapping_sub(old.count);
                cell.number = cell.number.wrapping_sub(old.number);
                for (bucket, count) in &old.buckets {
                    if let Some(now) = cell.buckets.get_mut(bucket) {
                        *now = now.saturating_sub(*count);
                    }
                }
                if same && !stay {
                    return None;
                }
            }
            Some((key.clone(), cell))
        });
        fresh.collect()
    }
}

impl Cell {
    fn add(&mut self, map: &Map, bucket: u32, value: &[u8], names: Names<'_>) {
        let at = offset(map) as usize;
        let number = word(value, at) as i64;
        match map.kind {
            Kind::Count => self.count = self.count.wrapping_add(number as u64),
            Kind::Sum => self.number = self.number.wrapping_add(number),
            Kind::Avg | Kind::Stats => {
                self.count = self.count.wrapping_add(word(value, 0));
                self.number = self.number.wrapping_add(number);
            }
            Kind::Min | Kind::Max => {
                self.count += match is_array(map) {
                    true => word(value, 0),
                    false => 1,
                };
                self.ordered = self.ordered.max(number as u64);
            }
            Kind::Hist | Kind::Lhist { .. } => {
                *self.buckets.entry(bucket).or_default() += number as u64;
            }
            Kind::Value(Type::Number) if map.only_added => {
                self.number = self.number.wrapping_add(number);
            }
            Kind::Value(ty) => {
                // Of several devices the first one that has something.
                if self.number == 0 {
                    self.number = number;
                    if let Part::Name(name) = names(ty, number as u64)
                        && ty != Type::Number
                    {
                        self.name = Some(name);
                    }
                }
            }
        }
    }

    /// The smallest or the largest number.
    pub fn extreme(&self, kind: Kind) -> i64 {
        let ordered = match kind {
            Kind::Min => !self.ordered,
            _ => self.ordered,
        };
        (ordered ^ (1 << 63)) as i64
    }

    /// The average, rounded to zero.
    pub fn average(&self) -> i64 {
        let count = i64::try_from(self.count).unwrap_or(i64::MAX);
        self.number.checked_div(count).unwrap_or(0)
    }

    /// Nothing was ever written.
    pub fn is_empty(&self, kind: Kind) -> bool {
        match kind {
            Kind::Avg | Kind::Stats | Kind::Min | Kind::Max => self.count == 0,
            Kind::Hist | Kind::Lhist { .. } => self.buckets.values().all(|count| *count == 0),
            Kind::Value(_) | Kind::Count | Kind::Sum => false,
        }
    }

    /// What keys are sorted by.
    pub fn rank(&self, kind: Kind) -> i128 {
        match kind {
            Kind::Count => self.count.into(),
            Kind::Sum | Kind::Value(_) => self.number.into(),
            Kind::Avg | Kind::Stats => self.average().into(),
            Kind::Min | Kind::Max => self.extreme(kind).into(),
            Kind::Hist | Kind::Lhist { .. } => self.buckets.values().map(|n| i128::from(*n)).sum(),
        }
    }
}

/// What programs sent: which request, and its values.
pub fn record(bytes: &[u8]) -> Option<(usize, Vec<u64>)> {
    let words: Vec<u64> = (0..bytes.len() / 8).map(|at| word(bytes, 8 * at)).collect();
    let (request, values) = words.split_first()?;
    Some((usize::try_from(*request).ok()?, values.to_vec()))
}

/// The bounds of a bucket: from the first number up to, not including, the second; none where there
/// is no bound.
pub fn bounds(kind: Kind, bucket: u32) -> (Option<i64>, Option<i64>) {
    match (kind, bucket) {
        (Kind::Lhist { min, .. }, 0) => (None, Some(min)),
        (Kind::Lhist { min, max, step }, bucket) => {
            let from = min + (i64::from(bucket) - 1) * step;
            (Some(from), (from < max).then_some(from + step))
        }
        (_, 0) => (None, Some(0)),
        (_, 1) => (Some(0), Some(1)),
        (_, bucket) => {
            let from = 1i64.checked_shl(bucket - 2);
            (from, from.and_then(|from| from.checked_mul(2)))
        }
    }
}

/// What a number is called whose meaning the script itself tells.
pub fn word_of(script: &Checked, ty: Type, number: u64) -> Option<String> {
    let number32 = u32::try_from(number).ok()?;
    match ty {
        Type::Access => {
            let mut all = Access::ALL.iter();
            let found = all.find(|kind| **kind as u32 == number32)?;
            Some(found.word().to_owned())
        }
        Type::Space => {
            let mut all = Space::ALL.iter();
            let found = all.find(|space| **space as u32 == number32)?;
            Some(found.word().to_owned())
        }
        Type::Barrier => {
            let mut all = Barrier::ALL.iter();
            let found = all.find(|barrier| **barrier as u32 == number32)?;
            Some(found.word().to_owned())
        }
        Type::Text => script.texts.get(number32 as usize).cloned(),
        Type::Api => {
            static NAMES: LazyLock<Vec<&str>> =
                LazyLock::new(|| cuda::apis().iter().map(|api| api.name).collect());
            NAMES.get(number32 as usize).map(|name| (*name).to_owned())
        }
        Type::Number | Type::Kernel | Type::Site | Type::File | Type::Str(_) | Type::Device => None,
    }
}
