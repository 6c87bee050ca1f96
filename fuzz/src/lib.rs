//! A fuzzer for what reads bytes of others: a target is a test of the crate that reads them, so
//! that it can reach what is private there.
//!
//! A target has a name, seeds and a function. In a plain run of the tests it gets its seeds, the
//! inputs of `fuzz/corpus/NAME` and some hundred mutants of them by one fixed seed. `cargo xtask
//! fuzz` sets [`SECONDS`] and [`FOLDER`]: then it runs for so long, and what it found out is kept
//! in the folder, so that the next run goes on where this one ended. `cargo xtask fuzz` also builds
//! with counters at each edge, and mutants that come to new code are kept.
//!
//! What must hold of each input: no panic, no more time and memory than [`Bounds`] says. An input
//! that breaks this is written to a file, made as small as it can be, and the test fails with the
//! file's name.
//!
//! Reading order: [`Target`], `run` (what is done in which order), `mutate`, `bounds`, `coverage`,
//! `folder`.

mod bounds;
mod coverage;
mod folder;
mod mutate;
mod rng;
mod run;

pub use bounds::{Bounds, Counting};
pub use rng::Rng;

/// CPU seconds that each target gets; without it a target gets [`QUICK`] mutants.
pub const SECONDS: &str = "WARPBPF_FUZZ_SECONDS";
/// Where corpora and states are kept between runs.
pub const FOLDER: &str = "WARPBPF_FUZZ_FOLDER";
/// Mutants of a plain run of the tests.
pub const QUICK: u64 = 300;

/// Counts what each test allocates. A test program with targets has this allocator because it is
/// linked with this crate.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What is fuzzed.
pub struct Target<'t> {
    /// Its name: that of its folder, and of its test behind `fuzz::`.
    pub name: &'static str,
    /// Good inputs, made by the code under test where it can.
    pub seeds: Vec<Vec<u8>>,
    /// Words that a mutant may have anywhere: magic numbers, names of fields.
    pub words: &'t [&'t [u8]],
    /// What an input may cost.
    pub bounds: Bounds,
}

impl<'t> Target<'t> {
    /// With usual bounds.
    pub fn new(name: &'static str, seeds: Vec<Vec<u8>>) -> Target<'t> {
        Target {
            name,
            seeds,
            words: &[],
            bounds: Bounds::default(),
        }
    }

    /// With words.
    pub fn words(self, words: &'t [&'t [u8]]) -> Target<'t> {
        Target { words, ..self }
    }

    /// With other bounds.
    pub fn bounds(self, bounds: Bounds) -> Target<'t> {
        Target { bounds, ..self }
    }

    /// Gives inputs to `work`, in a plain run or in one that goes on for long.
    ///
    /// # Panics
    /// An input breaks what must hold: the message has its file.
    pub fn run(&self, work: impl Fn(&[u8])) {
        run::run(self, &work);
    }
}
