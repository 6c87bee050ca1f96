//! Counts that follow from a kernel's source and geometry.
//!
//! Accesses to `.param` are left out: how often a kernel reads a parameter is the compiler's
//! choice.

use warpbpf_abi::access::Barrier;
use warpbpf_abi::access::Kind::{self, AsyncCopy, Atomic, BulkCopy, Load, Reduction, Store};
use warpbpf_abi::access::Space::{self, Const, Generic, Global, Local, Shared};

use crate::probes::{Counts, access_key};

/// How many accesses of a kind to a space.
type Accesses = (Kind, Space, u64);

/// Accesses of a kernel: all that it makes.
pub const ACCESSES: &[(&str, &[Accesses])] = &[
    // 150 elements by 3 blocks of 64.
    ("countCopy", &[(Load, Global, 150), (Store, Global, 150)]),
    // One of 16 bytes by each of 96 threads.
    ("countVector", &[(Load, Global, 96), (Store, Global, 96)]),
    // Thread t of each of 2 blocks reads t + 1 elements.
    (
        "countLoop",
        &[(Load, Global, 2 * 32 * 33 / 2), (Store, Global, 64)],
    ),
    (
        "countShared",
        &[
            (Store, Shared, 128),
            (Load, Shared, 256),
            (Store, Global, 128),
        ],
    ),
    // The store behind the atomic is never reached.
    (
        "countAtomic",
        &[(Reduction, Global, 96), (Atomic, Global, 96)],
    ),
    // Of 64 threads 22 are 0 modulo 3 and 21 are 1, of which 5 are below 16; 4 blocks.
    ("countDiverged", &[(Store, Global, 4 * (22 + 21 + 5))]),
    ("countConstant", &[(Load, Const, 128), (Store, Global, 128)]),
    // 16 stores and 3 loads of a thread's own array.
    (
        "countLocal",
        &[
            (Store, Local, 64 * 16),
            (Load, Local, 64 * 3),
            (Store, Global, 64),
        ],
    ),
    // The function knows no space.
    (
        "countGeneric",
        &[
            (Store, Shared, 64),
            (Load, Generic, 128),
            (Store, Generic, 128),
            (Load, Shared, 64),
            (Store, Global, 64),
        ],
    ),
    (
        "countAsync",
        &[
            (AsyncCopy, Global, 32),
            (Load, Shared, 32),
            (Store, Global, 32),
        ],
    ),
    // 96 threads, of which 70 pass.
    (
        "countPredicated",
        &[(Load, Global, 70), (Store, Global, 26 + 70)],
    ),
    (
        "countBulk",
        &[
            (BulkCopy, Global, 3),
            (Load, Shared, 192),
            (Store, Global, 192),
        ],
    ),
];

/// Barriers of a kernel: all that it meets.
pub const BARRIERS: &[(&str, &[(Barrier, u64)])] = &[
    ("transposeTiled", &[(Barrier::Sync, 9 * 256)]),
    // Two in each of 4 rounds.
    ("matmulTiled", &[(Barrier::Sync, 1024 * 8)]),
    // One and then one in each of 7 rounds.
    ("scanShared", &[(Barrier::Sync, 384 * 8)]),
    // One, three that reduce, and one that 32 threads wait at and 32 only arrive at.
    (
        "barrierForms",
        &[(Barrier::Sync, 96 * 4 + 32), (Barrier::Arrive, 32)],
    ),
    // In each of 4 rounds one half arrives where the other waits, twice.
    (
        "pingPong",
        &[(Barrier::Sync, 4 * 256), (Barrier::Arrive, 4 * 256)],
    ),
];

/// Conditional branches of a kernel: threads that do not take one, and threads that do.
pub const BRANCHES: &[(&str, u64, u64)] = &[
    // 144 threads, 44 of them beyond the end.
    ("predicatedAccess", 100, 44),
    // A loop of 6 rounds in one block of 32 threads and of 7 in the other.
    ("loopInside", 64, 32 * 5 + 32 * 6),
];

/// What a probe's counts of a kernel must be, without those of `.param`; `None` if it is not known.
pub fn expected(probe: &str, kernel: &str) -> Option<Counts> {
    match probe {
        "mem" => {
            let (_, accesses) = ACCESSES.iter().find(|(name, _)| *name == kernel)?;
            let counts = accesses
                .iter()
                .map(|(kind, space, n)| (access_key(*kind, *space), *n));
            Some(counts.collect())
        }
        "barrier" => {
            let (_, barriers) = BARRIERS.iter().find(|(name, _)| *name == kernel)?;
            Some(
                barriers
                    .iter()
                    .map(|(kind, n)| (*kind as u64, *n))
                    .collect(),
            )
        }
        // All threads come to the line that the object names.
        "code" => (kernel == "countCopy").then(|| Counts::from([(0, 192)])),
        "branch" => {
            let (_, not_taken, taken) = BRANCHES.iter().find(|(name, ..)| *name == kernel)?;
            Some(Counts::from([(0, *not_taken), (1, *taken)]))
        }
        _ => None,
    }
}

/// Accesses to `.param` taken out of what `mem` counted.
pub fn without_params(probe: &str, mut counts: Counts) -> Counts {
    if probe == "mem" {
        counts.retain(|what, _| what % 8 != u64::from(Space::Param as u32));
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_become_counts() {
        let branches = expected("branch", "loopInside").expect("it is known");
        assert_eq!(branches, Counts::from([(0, 64), (1, 352)]));
        let copy = expected("mem", "countCopy").expect("it is known");
        assert_eq!(copy, Counts::from([(8 + 1, 150), (16 + 1, 150)]));
        assert_eq!(expected("mem", "transposeTiled"), None);
        assert_eq!(expected("code", "countLoop"), None);
    }

    #[test]
    fn parameters_are_not_counted() {
        let load_param = access_key(Load, Space::Param);
        let counts = Counts::from([(load_param, 7), (9, 1)]);
        assert_eq!(
            without_params("mem", counts.clone()),
            Counts::from([(9, 1)])
        );
        assert_eq!(without_params("barrier", counts.clone()), counts);
    }
}
