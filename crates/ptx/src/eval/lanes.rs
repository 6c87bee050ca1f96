//! One closure per operation, run for one lane or for a warp: the decision which operation it is
//! stands outside the loop over lanes, and both ways have the same meaning by construction.

/// The raw bits of a value.
pub type Bits = u64;

/// Lanes of a warp.
pub const LANES: usize = 32;

/// Most sources an operation has: `lop3` with a predicate.
pub const SOURCES: usize = 5;

/// Where an operation's sources come from and its results go.
pub(super) trait Lanes {
    /// Computes the only result.
    fn map(self, f: impl Fn([Bits; SOURCES]) -> Bits);
    /// Computes two results.
    fn map2(self, f: impl Fn([Bits; SOURCES]) -> [Bits; 2]);
}

/// One lane.
pub(super) struct One {
    pub(super) sources: [Bits; SOURCES],
    pub(super) results: [Bits; 2],
}

impl Lanes for &mut One {
    fn map(self, f: impl Fn([Bits; SOURCES]) -> Bits) {
        self.results[0] = f(self.sources);
    }

    fn map2(self, f: impl Fn([Bits; SOURCES]) -> [Bits; 2]) {
        self.results = f(self.sources);
    }
}

/// The lanes in `mask` of a warp.
pub(super) struct Warp<'a> {
    pub(super) dst: &'a mut [Bits; LANES],
    pub(super) second: Option<&'a mut [Bits; LANES]>,
    pub(super) sources: [&'a [Bits; LANES]; SOURCES],
    pub(super) mask: u32,
}

impl Warp<'_> {
    #[inline(always)]
    fn lane(&self, lane: usize) -> [Bits; SOURCES] {
        self.sources.map(|source| source[lane])
    }
}

/// The lanes in a mask, lowest first.
fn active(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros() as usize;
        (mask != 0).then(|| {
            mask &= mask - 1;
            lane
        })
    })
}

impl Lanes for Warp<'_> {
    #[inline]
    fn map(self, f: impl Fn([Bits; SOURCES]) -> Bits) {
        if self.mask == u32::MAX {
            // No condition in this loop: it becomes vector code where the operation allows.
            for lane in 0..LANES {
                self.dst[lane] = f(self.lane(lane));
            }
        } else {
            for lane in active(self.mask) {
                self.dst[lane] = f(self.lane(lane));
            }
        }
    }

    #[inline]
    fn map2(mut self, f: impl Fn([Bits; SOURCES]) -> [Bits; 2]) {
        match (&mut self.second, self.mask) {
            (None, _) => self.map(|sources| f(sources)[0]),
            (Some(seconds), u32::MAX) => {
                for lane in 0..LANES {
                    [self.dst[lane], seconds[lane]] = f(self.sources.map(|source| source[lane]));
                }
            }
            (Some(seconds), mask) => {
                for lane in active(mask) {
                    [self.dst[lane], seconds[lane]] = f(self.sources.map(|source| source[lane]));
                }
            }
        }
    }
}
