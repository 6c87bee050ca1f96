//! Maps whose keys and values are Rust types: plain old data, whose bytes are theirs.

use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::Error;
use crate::handles::map::Map;

/// Types that are their bytes: numbers, arrays of them, and structs that derive zerocopy's
/// `FromBytes`, `IntoBytes` and `Immutable`. Such a struct has no padding: where C has some, write
/// a field.
pub trait Plain: FromBytes + IntoBytes + Immutable {}
impl<T: FromBytes + IntoBytes + Immutable> Plain for T {}

impl Map {
    /// Keys of type `K`, values of type `V`.
    ///
    /// # Errors
    /// [`Error::Size`] if one of them has another size than the map's.
    pub fn typed<K: Plain, V: Plain>(&self) -> Result<TypedMap<K, V>, Error> {
        TypedMap::new(self.clone())
    }

    /// A queue, stack or bloom filter with values of type `V`.
    ///
    /// # Errors
    /// [`Error::Size`] if `V` has another size than the map's values.
    pub fn queue<V: Plain>(&self) -> Result<Queue<V>, Error> {
        Queue::new(self.clone())
    }
}

/// A map with keys of type `K` and values of type `V`.
#[derive(Debug)]
pub struct TypedMap<K, V> {
    map: Map,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> Clone for TypedMap<K, V> {
    fn clone(&self) -> TypedMap<K, V> {
        TypedMap {
            map: self.map.clone(),
            types: PhantomData,
        }
    }
}

impl<K: Plain, V: Plain> TypedMap<K, V> {
    pub(crate) fn new(map: Map) -> Result<TypedMap<K, V>, Error> {
        check::<K>(&map, "key", map.info().key_size)?;
        check::<V>(&map, "value", map.info().value_size)?;
        Ok(TypedMap {
            map,
            types: PhantomData,
        })
    }

    /// The map in bytes.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// As [`Map::lookup`]; [`Error::Size`] for a map with several values per key.
    pub fn get(&self, key: &K) -> Result<Option<V>, Error> {
        let value = self.map.lookup(key.as_bytes())?;
        value.map(|bytes| read(&self.map, &bytes)).transpose()
    }

    /// The values of `key` on each multiprocessor (or in each thread), in their order.
    ///
    /// # Errors
    /// As [`Map::lookup`].
    pub fn get_all(&self, key: &K) -> Result<Option<Vec<V>>, Error> {
        let Some(bytes) = self.map.lookup(key.as_bytes())? else {
            return Ok(None);
        };
        let (size, stride) = (size_of::<V>(), size_of::<V>().next_multiple_of(8));
        if bytes.len() == size {
            return read(&self.map, &bytes).map(|value| Some(vec![value]));
        }
        let values = bytes.chunks_exact(stride.max(1));
        values
            .map(|value| read(&self.map, &value[..size]))
            .collect::<Result<Vec<V>, Error>>()
            .map(Some)
    }

    /// Gives `key` a value, whether it had one or not.
    ///
    /// # Errors
    /// As [`Map::update`].
    pub fn insert(&self, key: &K, value: &V) -> Result<(), Error> {
        self.map.update(key.as_bytes(), value.as_bytes(), 0)
    }

    /// Removes `key`; false if it was not there.
    ///
    /// # Errors
    /// As [`Map::delete`].
    pub fn remove(&self, key: &K) -> Result<bool, Error> {
        self.map.delete(key.as_bytes())
    }

    /// Everything in it now, one value per key. Values per multiprocessor or thread are left out.
    ///
    /// # Errors
    /// As [`Map::snapshot`].
    pub fn entries(&self) -> Result<Vec<(K, V)>, Error> {
        let mut entries = Vec::new();
        let mut failed = None;
        self.map.each(|key, value| {
            let pair = read(&self.map, key).and_then(|key| Ok((key, read(&self.map, value)?)));
            match pair {
                Ok(pair) => entries.push(pair),
                Err(error) => failed = Some(error),
            }
        })?;
        match failed {
            None => Ok(entries),
            Some(error) => Err(error),
        }
    }

    /// Its keys now.
    ///
    /// # Errors
    /// As [`Map::snapshot`].
    pub fn keys(&self) -> Result<Vec<K>, Error> {
        let entries = self.map.entries()?;
        let keys = entries.iter().map(|entry| read(&self.map, &entry.key));
        keys.collect()
    }
}

/// A queue, stack or bloom filter with values of type `V`.
#[derive(Debug)]
pub struct Queue<V> {
    map: Map,
    types: PhantomData<fn() -> V>,
}

impl<V: Plain> Queue<V> {
    pub(crate) fn new(map: Map) -> Result<Queue<V>, Error> {
        check::<V>(&map, "value", map.info().value_size)?;
        Ok(Queue {
            map,
            types: PhantomData,
        })
    }

    /// Adds a value.
    ///
    /// # Errors
    /// As [`Map::push`]: a full one is `-E2BIG`.
    pub fn push(&self, value: &V) -> Result<(), Error> {
        self.map.push(value.as_bytes(), 0)
    }

    /// Takes the next value out: a queue's oldest, a stack's newest.
    ///
    /// # Errors
    /// As [`Map::pop`].
    pub fn pop(&self) -> Result<Option<V>, Error> {
        let value = self.map.pop()?;
        value.map(|bytes| read(&self.map, &bytes)).transpose()
    }

    /// The next value, which stays.
    ///
    /// # Errors
    /// As [`Map::peek`].
    pub fn peek(&self) -> Result<Option<V>, Error> {
        let value = self.map.peek()?;
        value.map(|bytes| read(&self.map, &bytes)).transpose()
    }

    /// Of a bloom filter: `value` may be in it; if not, it never was put in.
    ///
    /// # Errors
    /// As [`Map::contains`].
    pub fn contains(&self, value: &V) -> Result<bool, Error> {
        self.map.contains(value.as_bytes())
    }
}

fn check<T>(map: &Map, what: &'static str, size: u32) -> Result<(), Error> {
    if size_of::<T>() == size as usize {
        return Ok(());
    }
    Err(Error::Size {
        map: map.name().to_owned(),
        what,
        expected: size as usize,
        found: size_of::<T>(),
    })
}

fn read<T: Plain>(map: &Map, bytes: &[u8]) -> Result<T, Error> {
    T::read_from_bytes(bytes).map_err(|_| Error::Size {
        map: map.name().to_owned(),
        what: "value",
        expected: size_of::<T>(),
        found: bytes.len(),
    })
}
