//! Numbers by chance from a seed, the same everywhere, so that a seed and an index name a mutant.

/// SplitMix64: <https://prng.di.unimi.it/splitmix64.c>.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// From a seed and an index.
    pub fn new(seed: u64, index: u64) -> Rng {
        let mut rng = Rng(seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        rng.next();
        rng
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One below `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        match end {
            0 => 0,
            _ => (self.next() % end as u64) as usize,
        }
    }

    /// One of these, if there is one.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }
}
