//! JIT outputs: machine code that NVRTC or the driver's linker made in this process, and the PTX
//! that it was made from. It is handed out as bytes, and nobody knows then which module will be
//! loaded from them. So what is known of them is kept under a hash of the bytes.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex};

use warpbpf_driver::JitOptions;
use warpbpf_session::CompiledFrom;

use crate::sys::lock::lock;

/// Bytes of text that are kept; the oldest go.
pub(crate) const MOST_BYTES: usize = 64 << 20;
/// What one takes besides its text.
const EACH: usize = 256;

/// What is known of machine code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JitOutput {
    /// By whom it was made: what `source` says.
    pub(crate) by: &'static str,
    /// What it was assembled from, or why that is not known.
    pub(crate) text: Result<Arc<str>, String>,
    /// What the assembler was told, where that is known: a load of machine code is told nothing
    /// that matters.
    pub(crate) jit: Option<JitOptions>,
    /// Why the text must not be loaded in its place.
    pub(crate) not_instead: Option<&'static str>,
}

impl JitOutput {
    pub(crate) fn compiled_from(&self) -> CompiledFrom<'_> {
        CompiledFrom {
            by: self.by,
            text: self.text.as_deref().map_err(String::as_str),
            not_instead: self.not_instead,
        }
    }

    fn bytes(&self) -> usize {
        EACH + self.text.as_ref().map_or(0, |text| text.len())
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct JitOutputs(Mutex<Store>);

#[derive(Debug, Default)]
struct Store {
    known: HashMap<Key, Arc<JitOutput>>,
    /// In the order in which they came.
    order: VecDeque<Key>,
    bytes: usize,
}

/// What tells images apart: a hash, and how long they are. That a text has the kernels of the image
/// is looked at besides.
type Key = (u64, usize);

fn key(image: &[u8]) -> Key {
    let mut hasher = DefaultHasher::new();
    image.hash(&mut hasher);
    (hasher.finish(), image.len())
}

impl JitOutputs {
    /// NVRTC or the linker made this image.
    pub(crate) fn add(&self, image: &[u8], known: JitOutput) {
        let (key, known) = (key(image), Arc::new(known));
        let mut store = lock(&self.0);
        store.bytes += known.bytes();
        match store.known.insert(key, known) {
            Some(old) => store.bytes -= old.bytes(),
            None => store.order.push_back(key),
        }
        while store.bytes > MOST_BYTES
            && let Some(oldest) = store.order.pop_front()
        {
            store.bytes -= store.known.remove(&oldest).map_or(0, |old| old.bytes());
        }
    }

    /// What is known of an image.
    pub(crate) fn of(&self, image: &[u8]) -> Option<Arc<JitOutput>> {
        if lock(&self.0).known.is_empty() {
            return None;
        }
        // Nobody waits meanwhile: images are large.
        let key = key(image);
        lock(&self.0).known.get(&key).cloned()
    }

    /// Nobody asks any more.
    pub(crate) fn forget(&self) {
        *lock(&self.0) = Store::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(text: &str) -> JitOutput {
        JitOutput {
            by: "NVRTC",
            text: Ok(text.into()),
            jit: None,
            not_instead: None,
        }
    }

    fn size(outputs: &JitOutputs) -> (usize, usize) {
        let store = outputs.0.lock().unwrap();
        assert_eq!(store.known.len(), store.order.len());
        (store.bytes, store.order.len())
    }

    #[test]
    fn what_is_known_belongs_to_its_bytes_and_the_oldest_goes() {
        let outputs = JitOutputs::default();
        assert_eq!(outputs.of(b"first"), None);
        outputs.add(b"first", known(&"a".repeat(10)));
        outputs.add(b"first", known(&"b".repeat(20)));
        assert_eq!(size(&outputs), (EACH + 20, 1));
        assert_eq!(*outputs.of(b"first").unwrap(), known(&"b".repeat(20)));
        assert_eq!(outputs.of(b"firsu"), None);
        let large = MOST_BYTES - EACH - 10;
        outputs.add(b"second", known(&"c".repeat(large)));
        assert_eq!(outputs.of(b"first"), None);
        assert_eq!(size(&outputs), (MOST_BYTES - 10, 1));
        // What has no text takes room, too.
        let why = JitOutput {
            text: Err("two".to_owned()),
            ..known("")
        };
        outputs.add(b"third", why);
        assert_eq!((outputs.of(b"second"), size(&outputs)), (None, (EACH, 1)));
        outputs.forget();
        assert_eq!((outputs.of(b"third"), size(&outputs)), (None, (0, 0)));
    }
}
