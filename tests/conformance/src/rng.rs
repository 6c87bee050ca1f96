//! Reproducible random numbers: the same seed makes the same programs on every machine, today and
//! later.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The numbers of program `index` of a run with `seed`.
    pub fn new(seed: u64, index: u64) -> Rng {
        let mut rng = Rng(seed);
        let mixed = rng
            .bits()
            .wrapping_add(index.wrapping_mul(0xd1b5_4a32_d192_ed03));
        Rng(mixed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        // The bias of the remainder is far below what a test would notice.
        (self.bits() >> 11) as usize % n.max(1)
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1).max(1) as usize) as i64
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// A number that arithmetic has its corners at, or any.
    pub fn number(&mut self) -> u64 {
        match self.below(12) {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => 1 << 63,
            4 => 0x8000_0000,
            5 => 0xffff_ffff,
            6 => 0xffff_ffff_8000_0000,
            7 => 0x7fff_ffff_ffff_ffff,
            8 => self.bits() & 0x7f,
            9 => u64::from(self.bits() as u32),
            10 => 1u64 << self.below(64),
            _ => self.bits(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_seed_and_index_only() {
        let first = |seed, index| Rng::new(seed, index).bits();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(1, 2), first(2, 2));
        let mut rng = Rng::new(0, 0);
        assert!((0..1000).all(|_| (-3..=3).contains(&rng.between(-3, 3))));
        assert_eq!(rng.below(0), 0);
    }
}
