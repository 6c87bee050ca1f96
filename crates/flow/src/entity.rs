//! Ids: a number with a type and a print prefix, so that a block is never taken for a value and a
//! dump can be read.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A dense id. [`entity!`](crate::entity!) makes one.
pub trait Entity: Copy + Eq + Ord + std::hash::Hash + fmt::Debug {
    /// The id with number `index`.
    ///
    /// # Panics
    /// If `index` does not fit into 32 bits: the tables that ids index would not fit into memory
    /// either.
    fn new(index: usize) -> Self;
    /// Its number.
    fn index(self) -> usize;
}

/// Declares an id type: `entity! { /// A basic block. pub struct Block, "block" }` prints as
/// `block3`.
#[macro_export]
macro_rules! entity {
    ($(#[$meta:meta])* $vis:vis struct $name:ident, $prefix:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis struct $name(u32);

        impl $crate::Entity for $name {
            fn new(index: usize) -> Self {
                match u32::try_from(index) {
                    Ok(n) => $name(n),
                    Err(_) => panic!("{} {index} does not fit into 32 bits", stringify!($name)),
                }
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}

/// A plain number is an id too: for graphs that have no id type of their own.
impl Entity for usize {
    fn new(index: usize) -> Self {
        index
    }
    fn index(self) -> usize {
        self
    }
}

/// A table with one value per id, in id order.
#[derive(Clone, PartialEq, Eq)]
pub struct EntityMap<K, V> {
    values: Vec<V>,
    key: PhantomData<K>,
}

impl<K: Entity, V> EntityMap<K, V> {
    /// An empty table.
    pub const fn new() -> Self {
        EntityMap {
            values: Vec::new(),
            key: PhantomData,
        }
    }
    /// `len` copies of `value`.
    pub fn filled(len: usize, value: V) -> Self
    where
        V: Clone,
    {
        EntityMap {
            values: vec![value; len],
            key: PhantomData,
        }
    }
    /// Appends a value and gives its id.
    pub fn push(&mut self, value: V) -> K {
        self.values.push(value);
        K::new(self.values.len() - 1)
    }
    /// How many ids there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }
    /// No ids.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
    /// The id that the next [`push`](Self::push) gives.
    pub fn next_key(&self) -> K {
        K::new(self.values.len())
    }
    /// The value of an id, if the table has it.
    pub fn get(&self, key: K) -> Option<&V> {
        self.values.get(key.index())
    }
    /// The same, to change.
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.values.get_mut(key.index())
    }
    /// All ids.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = K> + ExactSizeIterator + use<K, V> {
        (0..self.values.len()).map(K::new)
    }
    /// All values.
    pub fn values(&self) -> std::slice::Iter<'_, V> {
        self.values.iter()
    }
    /// All values, to change.
    pub fn values_mut(&mut self) -> std::slice::IterMut<'_, V> {
        self.values.iter_mut()
    }
    /// Ids with their values.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &V)> + ExactSizeIterator {
        self.values.iter().enumerate().map(|(i, v)| (K::new(i), v))
    }
    /// Ids with their values, to change.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (K, &mut V)> + ExactSizeIterator {
        self.values
            .iter_mut()
            .enumerate()
            .map(|(i, v)| (K::new(i), v))
    }
}

impl<K: Entity, V> Default for EntityMap<K, V> {
    fn default() -> Self {
        EntityMap::new()
    }
}

impl<K: Entity, V> FromIterator<V> for EntityMap<K, V> {
    fn from_iter<I: IntoIterator<Item = V>>(values: I) -> Self {
        EntityMap {
            values: values.into_iter().collect(),
            key: PhantomData,
        }
    }
}

impl<K: Entity, V> Index<K> for EntityMap<K, V> {
    type Output = V;
    fn index(&self, key: K) -> &V {
        &self.values[key.index()]
    }
}

impl<K: Entity, V> IndexMut<K> for EntityMap<K, V> {
    fn index_mut(&mut self, key: K) -> &mut V {
        &mut self.values[key.index()]
    }
}

impl<K: Entity, V: fmt::Debug> fmt::Debug for EntityMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    entity! {
        /// A test id.
        struct Block, "block"
    }

    #[test]
    fn an_id_prints_its_prefix_and_indexes_its_table() {
        let mut names: EntityMap<Block, &str> = EntityMap::new();
        let a = names.push("a");
        let b = names.push("b");
        assert_eq!(format!("{a} {b:?}"), "block0 block1");
        assert_eq!(names[b], "b");
        assert_eq!(names.next_key(), Block::new(2));
        assert_eq!(names.get(Block::new(2)), None);
        assert_eq!(names.keys().collect::<Vec<_>>(), [a, b]);
        assert_eq!(format!("{names:?}"), r#"{block0: "a", block1: "b"}"#);
    }
}
