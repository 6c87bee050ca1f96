//! What the maps of a tool's script hold, read by row.

use std::collections::{BTreeMap, BTreeSet};

use warpbpf_script::results::{Cell, Key, Part};
use warpbpf_script::typed::{Kind, Map};

/// Of a power of two there are eight buckets: `exponent * 16 + digits`, where a number is
/// `digits << exponent` and `digits` is below 16.
const DIGITS: i64 = 16;

/// Maps by name, and what else tables need.
#[derive(Debug, Default)]
pub struct Found<'f> {
    maps: BTreeMap<&'f str, (Kind, &'f BTreeMap<Key, Cell>)>,
    /// Multiprocessors of the device.
    pub sms: u32,
}

impl<'f> Found<'f> {
    /// Of these maps.
    pub fn new(maps: &[(&'f Map, &'f BTreeMap<Key, Cell>)], sms: u32) -> Found<'f> {
        let maps = maps.iter();
        Found {
            maps: maps
                .map(|(map, cells)| (map.name.as_str(), (map.kind, *cells)))
                .collect(),
            sms,
        }
    }

    /// The beginnings of so many parts that keys of a map have.
    pub fn keys(&self, map: &str, parts: usize) -> BTreeSet<Key> {
        let Some((kind, cells)) = self.maps.get(map) else {
            return BTreeSet::new();
        };
        let used = cells.iter().filter(|(_, cell)| !cell.is_empty(*kind));
        used.map(|(key, _)| key.iter().take(parts).cloned().collect())
            .collect()
    }

    /// Entries whose keys begin so.
    fn entries<'e>(
        &'e self,
        map: &str,
        key: &'e [Part],
    ) -> impl Iterator<Item = (Kind, &'f Key, &'f Cell)> + use<'e, 'f> {
        let found = self.maps.get(map);
        found.into_iter().flat_map(move |(kind, cells)| {
            let from = cells.range(key.to_vec()..);
            let same = from.take_while(move |(entry, _)| entry.starts_with(key));
            same.filter(|(_, cell)| !cell.is_empty(*kind))
                .map(|(entry, cell)| (*kind, entry, cell))
        })
    }

    /// The number of a map: a sum, a count, or the smallest or largest one. None if there is no map
    /// of this name, or no number to be the smallest or largest one.
    pub fn number(&self, map: &str, key: &[Part]) -> Option<i64> {
        let (kind, _) = *self.maps.get(map)?;
        let mut all = self.entries(map, key);
        let Some((_, _, first)) = all.next() else {
            return (!matches!(kind, Kind::Min | Kind::Max)).then_some(0);
        };
        let of = |cell: &Cell| match kind {
            Kind::Min | Kind::Max => cell.extreme(kind),
            Kind::Count => cell.count as i64,
            _ => cell.number,
        };
        Some(all.fold(of(first), |before, (_, _, cell)| match kind {
            Kind::Min => before.min(of(cell)),
            Kind::Max => before.max(of(cell)),
            _ => before.saturating_add(of(cell)),
        }))
    }

    /// The sum of entries whose keys go on with one of these words.
    pub fn words(&self, map: &str, key: &[Part], words: &[&str]) -> i64 {
        let wanted = |entry: &Key| match entry.last() {
            Some(Part::Name(name)) => words.contains(&name.as_str()),
            _ => false,
        };
        let all = self.entries(map, key);
        all.filter(|(_, entry, _)| wanted(entry))
            .map(|(kind, _, cell)| match kind {
                Kind::Count => cell.count as i64,
                _ => cell.number,
            })
            .sum()
    }

    /// How often something was added.
    pub fn count(&self, map: &str, key: &[Part]) -> u64 {
        self.entries(map, key).map(|(_, _, cell)| cell.count).sum()
    }

    /// The number below which this part of all counts in a map of buckets is: the middle of its
    /// bucket, so it is right within 6 %. Below 16 it is exact.
    pub fn below(&self, map: &str, key: &[Part], part: f64) -> Option<i64> {
        let mut buckets: BTreeMap<i64, u64> = BTreeMap::new();
        for (_, entry, cell) in self.entries(map, key) {
            if let Some(Part::Number(bucket)) = entry.last() {
                *buckets.entry(*bucket).or_default() += cell.count;
            }
        }
        let all: u64 = buckets.values().sum();
        let rank = ((all as f64 * part).ceil() as u64).max(1);
        let mut before = 0;
        for (bucket, count) in buckets {
            before += count;
            if before >= rank {
                let (exponent, digits) = (bucket / DIGITS, bucket % DIGITS);
                let exponent = u32::try_from(exponent).unwrap_or(0).min(58);
                return Some((digits << exponent) + ((1 << exponent) >> 1));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbpf_script::typed::Type;

    fn map(name: &str, kind: Kind) -> Map {
        Map {
            name: name.into(),
            kind,
            key: vec![Type::Kernel, Type::Number],
            only_added: true,
        }
    }

    fn key(kernel: &str, number: i64) -> Key {
        vec![Part::Name(kernel.into()), Part::Number(number)]
    }

    fn counts(all: &[(Key, u64)]) -> BTreeMap<Key, Cell> {
        let cell = |count| Cell {
            count,
            ..Cell::default()
        };
        let all = all.iter();
        all.map(|(key, count)| (key.clone(), cell(*count)))
            .collect()
    }

    #[test]
    fn entries_of_a_row_are_put_together() {
        let cells = counts(&[(key("a", 1), 3), (key("a", 2), 4), (key("ab", 1), 8)]);
        let count = map("@n", Kind::Count);
        let found = Found::new(&[(&count, &cells)], 4);
        let row = [Part::Name("a".into())];
        assert_eq!(found.number("@n", &row), Some(7));
        assert_eq!(found.number("@n", &[]), Some(15));
        assert_eq!(found.number("@n", &key("ab", 2)), Some(0));
        assert_eq!(found.number("@other", &row), None);
        assert_eq!(found.keys("@n", 1).len(), 2);
        assert_eq!(found.keys("@n", 2).len(), 3);
    }

    #[test]
    fn parts_of_counts_are_in_the_middle_of_buckets() {
        // 99 times 7, once 1,000 to 1,023: 15 << 6 and a half.
        let cells = counts(&[(key("a", 7), 99), (key("a", 6 * 16 + 15), 1)]);
        let count = map("@times", Kind::Count);
        let found = Found::new(&[(&count, &cells)], 4);
        let row = [Part::Name("a".into())];
        assert_eq!(found.below("@times", &row, 0.5), Some(7));
        assert_eq!(found.below("@times", &row, 0.99), Some(7));
        assert_eq!(found.below("@times", &row, 1.0), Some(960 + 32));
        assert_eq!(found.below("@times", &[Part::Number(1)], 0.5), None);
    }
}
