//! What decides the machine code of a text, as one number: two recipes with one key have the same
//! code.

use std::fmt;

use blake3::Hasher;

/// Raised when entries of before mean something else, or code for a recipe is made in another way.
/// It is part of each key.
pub const FORMAT: u32 = 1;

/// Everything that decides what code is made.
#[derive(Debug, Clone, Copy)]
pub struct Recipe<'a> {
    /// The text that is compiled, with addresses.
    pub text: &'a str,
    /// Compute capability of the device.
    pub capability: (u32, u32),
    /// Options of the compiler and their values, in order.
    pub options: &'a [(i32, u32)],
    /// The driver, to its build: it holds the compiler.
    pub driver: &'a str,
}

impl Recipe<'_> {
    /// Its key. Each part has its length before it, so that no two lists of parts look alike.
    pub fn key(&self) -> Key {
        let mut hasher = Hasher::new();
        let mut add = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        add(&FORMAT.to_le_bytes());
        add(self.driver.as_bytes());
        add(&self.capability.0.to_le_bytes());
        add(&self.capability.1.to_le_bytes());
        for (option, value) in self.options {
            add(&option.to_le_bytes());
            add(&value.to_le_bytes());
        }
        add(self.text.as_bytes());
        Key(hasher.finalize().into())
    }
}

/// The name of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(pub(crate) [u8; 32]);

/// What the files of entries end with.
const SUFFIX: &str = ".code";

impl Key {
    /// The file's name.
    pub(crate) fn file(&self) -> String {
        format!("{self}{SUFFIX}")
    }

    /// The key that a file is named after; `None` for any other name.
    pub(crate) fn of_file(name: &str) -> Option<Key> {
        let digits = name.strip_suffix(SUFFIX)?.as_bytes();
        let digit = |byte: &u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        if digits.len() != 64 {
            return None;
        }
        let mut key = [0; 32];
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(&pair[0])? << 4 | digit(&pair[1])?;
        }
        Some(Key(key))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Recipe<'_> = Recipe {
        text: ".entry k() { ret; }",
        capability: (9, 0),
        options: &[(0, 32), (7, 3)],
        driver: "13000 580.95",
    };

    #[test]
    fn every_part_decides() {
        let others = [
            Recipe {
                text: ".entry k() { ret;}",
                ..ONE
            },
            Recipe {
                capability: (0, 9),
                ..ONE
            },
            Recipe {
                capability: (9, 1),
                ..ONE
            },
            Recipe {
                options: &[(7, 3), (0, 32)],
                ..ONE
            },
            Recipe {
                options: &[(0, 32)],
                ..ONE
            },
            Recipe {
                options: &[],
                ..ONE
            },
            Recipe {
                driver: "13000 580.96",
                ..ONE
            },
        ];
        let mut keys: Vec<Key> = others.iter().map(Recipe::key).collect();
        keys.push(ONE.key());
        let all = keys.len();
        keys.sort_by_key(|key| key.0);
        keys.dedup();
        assert_eq!((keys.len(), ONE.key()), (all, ONE.key()));
    }

    #[test]
    fn a_file_is_named_after_its_key() {
        let key = ONE.key();
        assert_eq!(key.file().len(), 64 + SUFFIX.len());
        assert_eq!(Key::of_file(&key.file()), Some(key));
        let upper = key.file().to_uppercase();
        for other in ["", ".lock", ".code", &upper, &key.file()[1..]] {
            assert_eq!(Key::of_file(other), None, "{other}");
        }
    }
}
