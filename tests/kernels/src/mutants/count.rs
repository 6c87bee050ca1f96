//! The same kernel, counting its own accesses and branches: what programs in it must count.
//!
//! It shares nothing with the splicer: it goes by the words of opcodes, adds one to global memory
//! in front of each statement that it knows, under the same predicate, and is run on the soft GPU
//! only.

use std::collections::BTreeMap;

use warpbpf_abi::access::{Kind, Space};

use crate::probes::{Counts, access_key};
use warpbpf_conformance::lines::{Line, Parts, Piece, Text};

/// Variable that holds the counts.
pub const COUNTERS: &str = "counted_here";
/// Counts that there is room for.
const ROOM: usize = 64;

/// What a counter is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// Accesses: the key of the probe `mem`.
    Access(u64),
    /// Lanes that stay at a conditional branch.
    NotTaken,
    /// Lanes that go.
    Taken,
}

/// A text that counts, and what its counters are.
#[derive(Debug, Clone)]
pub struct Counting {
    /// The module.
    pub text: String,
    counters: BTreeMap<Counter, usize>,
}

impl Counting {
    /// Of a text.
    pub fn of(text: &Text) -> Counting {
        let mut counters = BTreeMap::new();
        let mut counting = text.clone();
        for lines in counting.bodies() {
            let old = std::mem::take(lines);
            for line in old {
                let added = line.parts().map(|parts| added(&parts, &mut counters));
                // Nothing may come between a label and what declares its targets, but that is one
                // line.
                lines.extend(added.into_iter().flatten());
                lines.push(line);
            }
        }
        let variable = format!("\n.visible .global .align 8 .b64 {COUNTERS}[{ROOM}];\n");
        if let Some(Piece::Verbatim(header)) = counting.pieces.first_mut() {
            let end = header
                .find(".address_size")
                .and_then(|at| Some(at + header[at..].find('\n')?));
            header.insert_str(end.unwrap_or(header.len()), &variable);
        }
        Counting {
            text: counting.plain(),
            counters,
        }
    }

    /// Bytes of [`COUNTERS`].
    pub fn bytes() -> usize {
        ROOM * 8
    }

    /// What the counters say: accesses, and branches as the probe `branch` counts them.
    pub fn read(&self, bytes: &[u8]) -> (Counts, Counts) {
        let (mut accesses, mut branches) = (Counts::new(), Counts::new());
        for (counter, index) in &self.counters {
            let word = bytes.get(index * 8..index * 8 + 8);
            let count = word
                .and_then(|w| w.try_into().ok())
                .map_or(0, u64::from_le_bytes);
            if count == 0 {
                continue;
            }
            match counter {
                Counter::Access(key) => accesses.insert(*key, count),
                Counter::NotTaken => branches.insert(0, count),
                Counter::Taken => branches.insert(1, count),
            };
        }
        (accesses, branches)
    }
}

fn added(parts: &Parts<'_>, counters: &mut BTreeMap<Counter, usize>) -> Vec<Line> {
    let mut count = |guard: Option<(&str, bool)>, counter: Counter| {
        let next = counters.len();
        let index = *counters.entry(counter).or_insert(next);
        let guard = match guard {
            Some((register, true)) => format!("@!{register} "),
            Some((register, false)) => format!("@{register} "),
            None => String::new(),
        };
        let at = index * 8;
        Line(format!("{guard}red.global.add.u64 [{COUNTERS}+{at}], 1;"))
    };
    match (parts.opcode(), parts.guard) {
        // A jump through a table has no predicate, and the probe that counts asks for it.
        ("bra", Some((register, negated))) => vec![
            count(Some((register, negated)), Counter::Taken),
            count(Some((register, !negated)), Counter::NotTaken),
        ],
        _ => match access(parts) {
            Some(key) => vec![count(parts.guard, Counter::Access(key))],
            None => Vec::new(),
        },
    }
}

/// The key of an access, if the statement is one that is counted here.
pub fn access(parts: &Parts<'_>) -> Option<u64> {
    let kind = match parts.opcode() {
        "ld" | "ldu" => Kind::Load,
        "st" => Kind::Store,
        "atom" => Kind::Atomic,
        "red" => Kind::Reduction,
        _ => return None,
    };
    let mut space = Space::Generic;
    for word in parts.modifiers() {
        space = match word {
            "global" => Space::Global,
            "shared" | "shared::cta" => Space::Shared,
            "shared::cluster" => Space::Cluster,
            "local" => Space::Local,
            "const" => Space::Const,
            // `ld.param::entry`, too.
            _ if word.starts_with("param") => return None,
            _ => continue,
        };
    }
    Some(access_key(kind, space))
}

/// Only what is counted here, of what a program counted.
pub fn only_known(counts: &Counts) -> Counts {
    let known = |what: u64| {
        what / 8 <= u64::from(Kind::Reduction as u32)
            && !matches!(what % 8, space if space == u64::from(Space::Param as u32) || space == u64::from(Space::Texture as u32))
    };
    let kept = counts.iter().filter(|(what, _)| known(**what));
    kept.map(|(what, n)| (*what, *n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_told_by_their_words() {
        let key = |text: &str| Line(text.into()).parts().and_then(|parts| access(&parts));
        let load = |space| Some(access_key(Kind::Load, space));
        assert_eq!(
            key("ld.volatile.shared.u32 %r1, [%r2];"),
            load(Space::Shared)
        );
        assert_eq!(key("@%p1 ld.u32 %r1, [%rd2];"), load(Space::Generic));
        assert_eq!(key("ld.param.u32 %r1, [p];"), None);
        assert_eq!(
            key("red.relaxed.gpu.global.add.u32 [%rd1], 1;"),
            Some(access_key(Kind::Reduction, Space::Global))
        );
        assert_eq!(key("mov.u32 %r1, 0;"), None);
    }

    #[test]
    fn a_guarded_branch_is_counted_both_ways() {
        let mut counters = BTreeMap::new();
        let branch = Line("@!%p1 bra L;".into());
        let lines = added(&branch.parts().expect("an instruction"), &mut counters);
        assert_eq!(
            lines,
            [
                Line("@!%p1 red.global.add.u64 [counted_here+0], 1;".into()),
                Line("@%p1 red.global.add.u64 [counted_here+8], 1;".into())
            ]
        );
    }

    #[test]
    fn params_and_copies_are_left_to_others() {
        let param = access_key(Kind::Load, Space::Param);
        let copy = access_key(Kind::AsyncCopy, Space::Global);
        let load = access_key(Kind::Load, Space::Global);
        assert_eq!(
            only_known(&Counts::from([(param, 3), (copy, 4), (load, 5)])),
            Counts::from([(load, 5)])
        );
    }
}
