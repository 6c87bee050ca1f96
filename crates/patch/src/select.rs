//! Which sites of a kind an attachment wants: everything that is known when the kernel is patched.
//! What a filter leaves out costs nothing, because nothing is put there.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use warpbpf_abi::access::{Barrier, Cache, Kind, Space};
use warpbpf_abi::attach::When;
use warpbpf_ptx::access::{Access, Bytes};

/// A filter over sites. Empty lists and `None` let everything through; a site must pass all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Select {
    /// On which side of the instruction the program runs.
    pub when: When,
    /// Kinds of access (`gpu/mem`).
    pub kinds: Vec<Kind>,
    /// State spaces (`gpu/mem`).
    pub spaces: Vec<Space>,
    /// Cache operators and orderings (`gpu/mem`).
    pub caches: Vec<Cache>,
    /// Bytes of an access; sites whose size is in a register pass (`gpu/mem`).
    pub bytes: Option<RangeInclusive<u32>>,
    /// Kinds of barrier (`gpu/barrier`).
    pub barriers: Vec<Barrier>,
    /// A glob (`*`, `?`) over the opcode with its modifiers as written: `ld.global.*`, `mma.*` (any
    /// place in the middle of a kernel).
    pub op: Option<String>,
    /// Source file, its path or an end of it that begins behind a `/`, and line (any place in the
    /// middle of a kernel).
    pub at: Option<(String, u32)>,
    /// Functions as the module names them, the kernel itself among them; `None`: all that the
    /// kernel reaches.
    pub functions: Option<BTreeSet<String>>,
}

impl Select {
    /// The opcode with its modifiers passes.
    pub(crate) fn allows_op(&self, name: &str) -> bool {
        self.op
            .as_deref()
            .is_none_or(|pattern| matches(pattern, name))
    }

    /// The function passes.
    pub(crate) fn allows_function(&self, name: &str) -> bool {
        self.functions
            .as_ref()
            .is_none_or(|names| names.contains(name))
    }

    /// The access passes.
    pub(crate) fn allows_access(&self, access: &Access) -> bool {
        let bytes = match (&self.bytes, access.bytes) {
            (None, _) | (_, Bytes::Operand(_) | Bytes::Box(..)) => true,
            (Some(range), Bytes::Fixed(bytes)) => range.contains(&bytes),
            // The context says 0.
            (Some(range), Bytes::Unknown) => range.contains(&0),
        };
        let any = |empty: bool, contains: bool| empty || contains;
        bytes
            && any(self.kinds.is_empty(), self.kinds.contains(&access.kind))
            && any(self.spaces.is_empty(), self.spaces.contains(&access.space))
            && any(self.caches.is_empty(), self.caches.contains(&access.cache))
    }

    /// The kind of barrier passes.
    pub(crate) fn allows_barrier(&self, kind: Barrier) -> bool {
        self.barriers.is_empty() || self.barriers.contains(&kind)
    }
}

/// `text` is of the form `pattern`, in which `*` stands for any characters and `?` for one.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to go on if what follows the last `*` does not fit: one character further.
    let mut retry = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p + 1, t + 1));
            p += 1;
        } else if pattern.get(p).is_some_and(|c| *c == b'?' || *c == text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((from, at)) = retry {
            (p, t) = (from, at);
            retry = Some((from, at + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses() {
        let access = |bytes| Access {
            kind: Kind::Load,
            space: Space::Global,
            cache: Cache::Nc,
            bytes,
            address: 1,
            target: None,
            values: Vec::new(),
            result: Some(0),
            element: 4,
        };
        let load = access(Bytes::Fixed(16));
        let all = Select::default();
        assert!(all.allows_access(&load));
        let with = |change: fn(&mut Select)| {
            let mut select = Select::default();
            change(&mut select);
            select.allows_access(&load)
        };
        assert!(with(|s| s.kinds = vec![Kind::Store, Kind::Load]));
        assert!(!with(|s| s.kinds = vec![Kind::Store]));
        assert!(with(|s| s.spaces = vec![Space::Global]));
        assert!(!with(|s| s.spaces = vec![Space::Generic]));
        assert!(with(|s| s.caches = vec![Cache::Nc]));
        assert!(!with(|s| s.caches = vec![Cache::Default]));
        assert!(with(|s| s.bytes = Some(16..=16)));
        assert!(!with(|s| s.bytes = Some(17..=u32::MAX)));
        let large = Select {
            bytes: Some(16..=u32::MAX),
            ..Select::default()
        };
        assert!(large.allows_access(&access(Bytes::Operand(2))));
        assert!(!large.allows_access(&access(Bytes::Unknown)));
    }

    #[test]
    fn globs() {
        for (pattern, text) in [
            ("mma.*", "mma.sync.aligned.m16n8k16"),
            ("ld.global.*f32", "ld.global.v4.f32"),
            ("*", ""),
            ("", ""),
            ("a?c", "abc"),
            ("*b*b", "abab"),
            ("ret", "ret"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("mma.*", "wmma.load"),
            ("mma", "mma.sync"),
            ("a?", "a"),
            ("", "a"),
            ("*b", "abc"),
            ("a*b*c", "acb"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
