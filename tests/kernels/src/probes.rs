//! What is put into the kernels: BPF objects that count, and what must hold for the counts of any
//! kernel.

use std::collections::BTreeMap;

use warpbpf_abi::access::{Barrier, Kind, Space};

/// Counts of one kernel by what was counted.
pub type Counts = BTreeMap<u64, u64>;

/// An object of `tests/programs`. Its map `counts` has the key `kernel_id * stride + what`.
#[derive(Clone, Copy)]
pub struct Probe {
    /// Name in tables.
    pub name: &'static str,
    /// Object.
    pub object: &'static str,
    /// More flags for `warpbpf run`.
    pub flags: &'static [&'static str],
    /// Keys of a kernel.
    pub stride: u64,
    /// What a count is of.
    pub label: fn(u64) -> String,
    /// Why it may not get all the sites that it wants: parts of the reasons.
    pub may_miss: &'static [&'static str],
    /// What must hold in every kernel that ran to its end. The second map, of lanes, is empty where
    /// the object has none.
    pub holds: fn(&Counts, &Counts) -> Result<(), String>,
}

/// Registers of a group belong to the tensor cores.
const WGMMA: &str = "inside a wgmma group";

/// What is called is not known before it is called.
const POINTER: &str = "a call through a pointer";

/// A program at every instruction, and behind every access.
const MISSED_BY_ALL: &[&str] = &[
    WGMMA,
    POINTER,
    "sets the carry",
    "belongs to a call",
    "between a product and a sum",
    "in a loop whose rounds the compiler joins",
    "the copy is not done when control passes behind it",
];

/// All of them.
pub const PROBES: &[Probe] = &[
    Probe {
        name: "entry+exit",
        object: "everywhere",
        flags: &[],
        stride: 2,
        label: |what| ["entry", "exit"][what as usize % 2].into(),
        may_miss: &[],
        holds: as_many_exits,
    },
    Probe {
        name: "mem",
        object: "everywhere_mem",
        flags: &[],
        stride: 256,
        label: access_label,
        may_miss: &[WGMMA, POINTER],
        holds: |counts, _| some(counts, "access"),
    },
    Probe {
        name: "barrier",
        object: "everywhere_barrier",
        flags: &[],
        stride: 16,
        label: |what| {
            let kind = Barrier::ALL.iter().find(|k| **k as u64 == what);
            kind.map_or_else(|| format!("barrier {what}"), |k| k.word().into())
        },
        // Most kernels have none.
        may_miss: &[WGMMA, POINTER],
        holds: |_, _| Ok(()),
    },
    Probe {
        name: "branch",
        object: "everywhere_branch",
        flags: &[],
        stride: 4,
        label: |what| ["not taken", "taken", "", ""][what as usize % 4].into(),
        may_miss: &[WGMMA, POINTER],
        holds: |counts, lanes| {
            if counts == lanes {
                Ok(())
            } else {
                Err(format!(
                    "threads at branches: {counts:?}, lanes in masks: {lanes:?}"
                ))
            }
        },
    },
    Probe {
        name: "code",
        object: "everywhere_code",
        flags: &[],
        stride: 4,
        label: |what| ["line", "func", "funcret", ""][what as usize % 4].into(),
        may_miss: &[POINTER],
        holds: |counts, _| {
            let (calls, returns) = (of(counts, 1), of(counts, 2));
            if calls == returns {
                Ok(())
            } else {
                Err(format!("{calls} calls of functions, {returns} returns"))
            }
        },
    },
    Probe {
        name: "all",
        object: "everywhere_all",
        flags: &[],
        stride: 16,
        label: place_label,
        may_miss: MISSED_BY_ALL,
        holds: as_many_exits,
    },
    Probe {
        name: "out-of-line",
        object: "everywhere_all",
        flags: &["--out-of-line"],
        stride: 16,
        label: place_label,
        may_miss: MISSED_BY_ALL,
        holds: as_many_exits,
    },
];

/// Of programs that also count entries and exits.
fn as_many_exits(counts: &Counts, _: &Counts) -> Result<(), String> {
    let (entries, exits) = (of(counts, 0), of(counts, 1));
    if entries > 0 && entries == exits {
        Ok(())
    } else {
        Err(format!("{entries} entries, {exits} exits"))
    }
}

fn of(counts: &Counts, what: u64) -> u64 {
    counts.get(&what).copied().unwrap_or(0)
}

fn some(counts: &Counts, what: &str) -> Result<(), String> {
    if counts.values().any(|n| *n > 0) {
        Ok(())
    } else {
        Err(format!("not one {what} was counted"))
    }
}

fn place_label(what: u64) -> String {
    let names = [
        "entry",
        "exit",
        "mem",
        "mem after",
        "barrier",
        "barrier after",
        "branch",
        "insn",
        "func",
        "funcret",
        "mma",
        "shfl",
        "fma",
    ];
    names.get(what as usize).copied().unwrap_or_default().into()
}

/// Key of an access in the object `everywhere_mem`.
pub fn access_key(kind: Kind, space: Space) -> u64 {
    u64::from(kind as u32) * 8 + u64::from(space as u32)
}

fn access_label(what: u64) -> String {
    let kind = Kind::ALL.iter().find(|k| **k as u64 == what / 8);
    let space = Space::ALL.iter().find(|s| **s as u64 == what % 8);
    match (kind, space) {
        (Some(kind), Some(space)) => format!("{} {}", kind.word(), space.word()),
        _ => format!("access {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(name: &str) -> &'static Probe {
        PROBES
            .iter()
            .find(|p| p.name == name)
            .expect("a probe of that name")
    }

    #[test]
    fn labels() {
        assert_eq!((probe("entry+exit").label)(1), "exit");
        let key = access_key(Kind::AsyncCopy, Space::Global);
        assert_eq!((probe("mem").label)(key), "async_copy global");
        assert_eq!((probe("mem").label)(7), "access 7");
        assert_eq!((probe("barrier").label)(2), "arrive");
        assert_eq!((probe("barrier").label)(15), "barrier 15");
    }

    #[test]
    fn what_must_hold() {
        let counts = |pairs: &[(u64, u64)]| pairs.iter().copied().collect::<Counts>();
        let none = Counts::new();
        let ends = probe("entry+exit").holds;
        assert_eq!(ends(&counts(&[(0, 64), (1, 64)]), &none), Ok(()));
        assert_eq!(
            ends(&counts(&[(0, 64), (1, 63)]), &none),
            Err("64 entries, 63 exits".into())
        );
        assert_eq!(
            (probe("mem").holds)(&none, &none),
            Err("not one access was counted".into())
        );
        let branch = probe("branch").holds;
        assert_eq!(branch(&counts(&[(1, 5)]), &counts(&[(1, 5)])), Ok(()));
        assert_eq!(
            branch(&counts(&[(1, 5)]), &counts(&[(0, 5)])),
            Err("threads at branches: {1: 5}, lanes in masks: {0: 5}".into())
        );
        assert_eq!(
            (probe("code").holds)(&counts(&[(0, 9), (1, 2), (2, 1)]), &none),
            Err("2 calls of functions, 1 returns".into())
        );
    }
}
