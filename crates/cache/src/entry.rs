//! An entry as bytes. Pure: nothing here knows of files.
//!
//! A header of fixed size, then three texts or byte strings. The header has the key, so that a file
//! under another's name is noticed, and a digest of all other bytes.

use crate::recipe::{FORMAT, Key};

const MAGIC: [u8; 8] = *b"warpcode";

mod at {
    //! Places in the header.
    pub(super) const VERSION: usize = 8;
    pub(super) const LABEL: usize = 12;
    pub(super) const NOTES: usize = 16;
    pub(super) const CODE: usize = 20;
    pub(super) const KEY: usize = 24;
    pub(super) const DIGEST: usize = 56;
    pub(super) const END: usize = 88;
}

/// What is kept of a compilation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// For people: what it is of.
    pub label: String,
    /// What the compiler said that a user should know, a line each.
    pub warnings: Vec<String>,
    /// What the driver loads. Empty if the code could not be had, and only what was said is kept.
    pub code: Vec<u8>,
}

/// Why bytes are no entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum Damage {
    #[error("it has {found} bytes where {expected} were written")]
    Length { found: u64, expected: u64 },
    #[error("it does not begin as an entry does")]
    Magic,
    #[error("it is of format {found}, and this is {FORMAT}")]
    Version { found: u32 },
    #[error("its bytes are not those that were written")]
    Digest,
    #[error("it is the entry of another text, `{found}`")]
    Key { found: Key },
    #[error("its text is no UTF-8")]
    Text,
}

impl Entry {
    /// As it is written.
    pub fn encode(&self, key: &Key) -> Vec<u8> {
        let notes = self.warnings.join("\n");
        let mut bytes = Vec::with_capacity(at::END + self.code.len() + 256);
        bytes.extend(MAGIC);
        bytes.extend(FORMAT.to_le_bytes());
        for length in [self.label.len(), notes.len(), self.code.len()] {
            bytes.extend((length as u32).to_le_bytes());
        }
        bytes.extend(key.0);
        bytes.extend([0; 32]);
        bytes.extend(self.label.as_bytes());
        bytes.extend(notes.as_bytes());
        bytes.extend(&self.code);
        seal(&mut bytes);
        bytes
    }

    /// The entry of a key.
    ///
    /// # Errors
    /// [`Damage`], the first that is found.
    pub fn decode(bytes: &[u8], key: &Key) -> Result<Entry, Damage> {
        let found = bytes.len() as u64;
        let word = |place: usize| {
            let word = bytes.get(place..place + 4);
            let word = word.and_then(|word| word.try_into().ok());
            word.map(u32::from_le_bytes).ok_or(Damage::Length {
                found,
                expected: at::END as u64,
            })
        };
        if bytes.len() >= MAGIC.len() && !bytes.starts_with(&MAGIC) {
            return Err(Damage::Magic);
        }
        let version = word(at::VERSION)?;
        if version != FORMAT {
            return Err(Damage::Version { found: version });
        }
        let (label, notes, code) = (word(at::LABEL)?, word(at::NOTES)?, word(at::CODE)?);
        let expected = at::END as u64 + u64::from(label) + u64::from(notes) + u64::from(code);
        if found != expected {
            return Err(Damage::Length { found, expected });
        }
        if digest(bytes) != bytes[at::DIGEST..at::END] {
            return Err(Damage::Digest);
        }
        if bytes[at::KEY..at::DIGEST] != key.0 {
            let mut other = [0; 32];
            other.copy_from_slice(&bytes[at::KEY..at::DIGEST]);
            return Err(Damage::Key { found: Key(other) });
        }
        let (label, rest) = bytes[at::END..].split_at(label as usize);
        let (notes, code) = rest.split_at(notes as usize);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| Damage::Text);
        Ok(Entry {
            label: text(label)?,
            warnings: text(notes)?.lines().map(str::to_owned).collect(),
            code: code.to_vec(),
        })
    }
}

/// Writes the digest of an entry where there is room for it.
pub(crate) fn seal(bytes: &mut [u8]) {
    if bytes.len() >= at::END {
        let digest = digest(bytes);
        bytes[at::DIGEST..at::END].copy_from_slice(&digest);
    }
}

/// Of all bytes but the digest's own.
fn digest(bytes: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes[..at::DIGEST]);
    hasher.update(&bytes[at::END..]);
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recipe;

    fn key(text: &str) -> Key {
        let recipe = Recipe {
            text,
            capability: (9, 0),
            options: &[],
            driver: "1",
        };
        recipe.key()
    }

    fn entry() -> Entry {
        Entry {
            label: "vec_add".into(),
            warnings: vec!["(C7510) serialized".into(), "(C7508) ignored".into()],
            code: vec![0x7f, b'E', b'L', b'F', 0, 1, 2, 3],
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let key = key("a");
        let bytes = entry().encode(&key);
        assert_eq!(bytes.len(), at::END + 7 + 34 + 8);
        assert_eq!(Entry::decode(&bytes, &key), Ok(entry()));
        let bare = Entry {
            label: String::new(),
            warnings: Vec::new(),
            code: Vec::new(),
        };
        assert_eq!(Entry::decode(&bare.encode(&key), &key), Ok(bare));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let key = key("a");
        let bytes = entry().encode(&key);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let damage = Entry::decode(&flipped, &key).unwrap_err();
                let expected = match at {
                    0..at::VERSION => matches!(damage, Damage::Magic),
                    at::VERSION..at::LABEL => matches!(damage, Damage::Version { .. }),
                    at::LABEL..at::KEY => matches!(damage, Damage::Length { .. }),
                    _ => damage == Damage::Digest,
                };
                assert!(expected, "byte {at}, bit {bit}: {damage}");
            }
        }
    }

    #[test]
    fn every_other_length_is_noticed() {
        let key = key("a");
        let mut bytes = entry().encode(&key);
        for length in 0..bytes.len() {
            let cut = Entry::decode(&bytes[..length], &key).unwrap_err();
            assert!(matches!(cut, Damage::Length { .. }), "{length}: {cut}");
        }
        bytes.push(0);
        assert_eq!(
            Entry::decode(&bytes, &key).unwrap_err().to_string(),
            "it has 138 bytes where 137 were written"
        );
    }

    #[test]
    fn an_entry_under_another_name_is_noticed() {
        let bytes = entry().encode(&key("a"));
        let damage = Entry::decode(&bytes, &key("b")).unwrap_err();
        assert_eq!(
            damage.to_string(),
            format!("it is the entry of another text, `{}`", key("a"))
        );
    }
}
