//! Dense sets of ids: one bit each, because analyses join them far more often than they list them.

use std::fmt;
use std::marker::PhantomData;

use crate::entity::Entity;

/// A set of ids. It grows on insertion; two sets with the same members are equal whatever their
/// capacity.
#[derive(Clone)]
pub struct BitSet<E = usize> {
    words: Vec<u64>,
    entity: PhantomData<E>,
}

impl<E: Entity> BitSet<E> {
    /// The empty set.
    pub const fn new() -> Self {
        BitSet {
            words: Vec::new(),
            entity: PhantomData,
        }
    }
    /// The empty set with room for ids below `len`.
    pub fn with_capacity(len: usize) -> Self {
        BitSet {
            words: vec![0; len.div_ceil(64)],
            entity: PhantomData,
        }
    }
    /// All ids below `len`.
    pub fn full(len: usize) -> Self {
        let mut set = Self::with_capacity(len);
        for (i, word) in set.words.iter_mut().enumerate() {
            let bits = (len - i * 64).min(64);
            *word = u64::MAX >> (64 - bits);
        }
        set
    }
    /// Adds an id; true if it was not there.
    pub fn insert(&mut self, e: E) -> bool {
        let (word, bit) = (e.index() / 64, 1u64 << (e.index() % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        new
    }
    /// Takes an id out; true if it was there.
    pub fn remove(&mut self, e: E) -> bool {
        let bit = 1u64 << (e.index() % 64);
        match self.words.get_mut(e.index() / 64) {
            Some(word) => {
                let was = *word & bit != 0;
                *word &= !bit;
                was
            }
            None => false,
        }
    }
    /// Whether the id is a member.
    pub fn contains(&self, e: E) -> bool {
        self.words
            .get(e.index() / 64)
            .is_some_and(|w| w >> (e.index() % 64) & 1 != 0)
    }
    /// No members.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }
    /// How many members.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }
    /// Removes all members and keeps the memory.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }
    /// Adds all members of `other`; true if that changed anything.
    pub fn union_with(&mut self, other: &Self) -> bool {
        if other.words.len() > self.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        let mut changed = false;
        for (a, &b) in self.words.iter_mut().zip(&other.words) {
            changed |= b & !*a != 0;
            *a |= b;
        }
        changed
    }
    /// Keeps only members of `other`; true if that changed anything.
    pub fn intersect_with(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for (i, a) in self.words.iter_mut().enumerate() {
            let b = other.words.get(i).copied().unwrap_or(0);
            changed |= *a & !b != 0;
            *a &= b;
        }
        changed
    }
    /// Removes all members of `other`; true if that changed anything.
    pub fn subtract(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for (a, &b) in self.words.iter_mut().zip(&other.words) {
            changed |= *a & b != 0;
            *a &= !b;
        }
        changed
    }
    /// All members are in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words
            .iter()
            .enumerate()
            .all(|(i, &a)| a & !other.words.get(i).copied().unwrap_or(0) == 0)
    }
    /// The members in order.
    pub fn iter(&self) -> impl Iterator<Item = E> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                Some(E::new(i * 64 + bit))
            })
        })
    }
}

impl<E: Entity> Default for BitSet<E> {
    fn default() -> Self {
        BitSet::new()
    }
}

impl<E: Entity> PartialEq for BitSet<E> {
    fn eq(&self, other: &Self) -> bool {
        self.is_subset(other) && other.is_subset(self)
    }
}

impl<E: Entity> Eq for BitSet<E> {}

impl<E: Entity> Extend<E> for BitSet<E> {
    fn extend<I: IntoIterator<Item = E>>(&mut self, members: I) {
        for e in members {
            self.insert(e);
        }
    }
}

impl<E: Entity> FromIterator<E> for BitSet<E> {
    fn from_iter<I: IntoIterator<Item = E>>(members: I) -> Self {
        let mut set = BitSet::new();
        set.extend(members);
        set
    }
}

impl<E: Entity> fmt::Debug for BitSet<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
