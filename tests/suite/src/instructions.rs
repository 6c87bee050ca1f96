//! Barriers, asynchronous copies, rows of matrices, other blocks' shared memory, and calls: how
//! often each is, in PTX and as Compute Sanitizer tells of it in machine code, against what the
//! application's source says.

use crate::run::{Bench, Case, Run, Told, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("instructions: in PTX", in_ptx),
        case(
            "sanitizer: barriers, copies, matrices and calls",
            in_machine_code,
        ),
    ]
}

const LAUNCHES: u64 = 2;
/// Of each kernel.
const THREADS: u64 = 6 * 128;

/// Keys of the program's map, as in tests/programs/instructions.bpf.c.
const KEYS: u64 = 64;
const COPIES: u64 = 5;
const MATRIX_LOADS: u64 = 8;
const MATRIX_STORES: u64 = 9;
const BYTES: u64 = 16;
const SYNC: u64 = 33;
const ARRIVE: u64 = 34;
const WARP: u64 = 35;
const CLUSTER_ARRIVE: u64 = 36;
const CLUSTER_WAIT: u64 = 37;
const MBARRIER_ARRIVE: u64 = 38;
const MBARRIER_WAIT: u64 = 39;
const GROUP_WAIT: u64 = 40;
const FAR_LOADED: u64 = 42;
const FAR_STORED: u64 = 43;
const FAR_ADDED: u64 = 44;
const IDS: u64 = 46;
const EXPECTED: u64 = 47;
const LANES: u64 = 48;
const CALLS: u64 = 49;
const RETURNS: u64 = 50;
const TARGETS: u64 = 51;
const ADDRESSES: u64 = 52;

/// What one launch of a kernel executes; what is not there is 0.
type Counts = &'static [(u64, u64)];

const IN_PTX: &[(&str, Counts)] = &[
    (
        "barriers",
        &[
            // All twice, and half of them three times more at barrier 1, which is for 64.
            (SYNC, 2 * THREADS + 3 * THREADS / 2),
            (LANES, 2 * THREADS + 3 * THREADS / 2),
            (IDS, 3 * THREADS / 2),
            (EXPECTED, 64 * 3 * THREADS / 2),
        ],
    ),
    (
        "halves",
        &[
            (SYNC, THREADS / 2),
            (LANES, THREADS / 2),
            (ARRIVE, THREADS / 2),
            (IDS, 2 * THREADS / 2),
            (EXPECTED, 128 * THREADS / 2),
        ],
    ),
    // A quarter five times, and all.
    ("lanes", &[(WARP, 5 * THREADS / 4 + THREADS)]),
    (
        "copies",
        &[
            (COPIES, 3 * THREADS + THREADS / 2),
            // Of the last ones a quarter reads nothing.
            (
                BYTES + COPIES,
                (16 + 8) * THREADS + 4 * THREADS / 2 + 16 * THREADS * 3 / 4,
            ),
            (TARGETS, THREADS),
            (GROUP_WAIT, 2 * THREADS),
        ],
    ),
    (
        "matrices",
        &[
            (MATRIX_LOADS, 4 * THREADS),
            // One, two and twice four matrices by each warp, of eight rows.
            (ADDRESSES, 8 * 11 * THREADS / 32),
            (BYTES + MATRIX_LOADS, 16 * 8 * 11 * THREADS / 32),
            (MATRIX_STORES, THREADS),
            (BYTES + MATRIX_STORES, 16 * 8 * 2 * THREADS / 32),
            (SYNC, 2 * THREADS),
            (LANES, 2 * THREADS),
        ],
    ),
    (
        "neighbours",
        &[
            (FAR_LOADED, 4 * THREADS),
            (FAR_STORED, 4 * THREADS),
            (FAR_ADDED, 4 * THREADS / 4),
            (CLUSTER_ARRIVE, 2 * THREADS),
            (CLUSTER_WAIT, 2 * THREADS),
        ],
    ),
    (
        "phases",
        &[
            (SYNC, 2 * THREADS),
            (LANES, 2 * THREADS),
            (MBARRIER_ARRIVE, 2 * THREADS),
            (MBARRIER_WAIT, 2 * THREADS),
            (COPIES, THREADS),
            (BYTES + COPIES, 16 * THREADS),
            (GROUP_WAIT, THREADS),
        ],
    ),
    (
        "calls",
        &[
            (CALLS, 3 * THREADS + THREADS / 2),
            (RETURNS, 3 * THREADS + THREADS / 2),
        ],
    ),
    (
        "products",
        // Between its fence and its wait nothing can be put into the text of a product.
        &[(SYNC, THREADS), (LANES, THREADS)],
    ),
];

fn in_ptx(bench: &Bench) -> Told {
    let launches = LAUNCHES.to_string();
    let run = bench.both("instructions", "instructions", &[&launches])?;
    compare(&run, |method| method.starts_with("slice"), |_, _| None)
}

/// The same of the same source, where it is only machine code.
fn in_machine_code(bench: &Bench) -> Told {
    if bench.soft {
        return Ok("skipped: no GPU, and the soft one runs no machine code".to_owned());
    }
    let launches = LAUNCHES.to_string();
    let flags = ["--backend", "sanitizer"];
    let app = "machine_instructions";
    let run = bench.both_with(&flags, "instructions", app, &[&launches])?;
    compare(&run, |method| method == "sanitizer", instead)
}

/// Where machine code, or what is told of it, is something else.
fn instead(kernel: &str, key: u64) -> Option<u64> {
    match (kernel, key) {
        // A barrier that not all lanes of a warp need reach at once has one of the warp in front of
        // it.
        ("barriers", WARP) => Some(3 * THREADS / 2 + THREADS),
        ("halves", WARP) => Some(THREADS),
        // Of who only arrives nothing is told.
        ("halves", ARRIVE) => Some(0),
        // An address that does not say where it is leads there.
        ("neighbours", FAR_ADDED) => Some(2 * 4 * THREADS / 4),
        ("products", GROUP_WAIT) => Some(THREADS),
        _ => None,
    }
}

fn compare(
    run: &Run,
    is_method: impl Fn(&str) -> bool,
    instead: impl Fn(&str, u64) -> Option<u64>,
) -> Told {
    let mut counted = 0;
    for (name, counts) in IN_PTX {
        let kernel = run.kernel(name)?;
        let method = kernel["method"].as_str().unwrap_or_default();
        if !is_method(method) {
            return Err(format!("the method of `{name}` is `{method}`"));
        }
        same("launches", kernel["launches"].as_u64(), Some(LAUNCHES))?;
        let id = kernel["id"].as_u64().ok_or("no number")?;
        for key in 0..KEYS {
            let of = counts.iter().find(|(of, _)| *of == key);
            let expected = instead(name, key).or_else(|| of.map(|(_, count)| *count));
            let expected = expected.unwrap_or(0) * LAUNCHES;
            let what = format!("key {key} of `{name}`");
            same(&what, run.value("counts", id * KEYS + key)?, expected)?;
            counted += expected;
        }
    }
    Ok(format!("{counted} in {} kernels", IN_PTX.len()))
}
