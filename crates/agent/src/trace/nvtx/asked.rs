//! Who was answered whether a range is what it wants, so that each range is compared once for each
//! choice: a kernel's programs may have several, and every launch asks for all of them.

/// Choices whose answers are kept: as many as a kernel's programs can have.
const MOST: usize = u64::BITS as usize;

/// Whose answers are kept, by bit.
#[derive(Debug)]
pub(super) struct Askers {
    known: Vec<usize>,
    /// The bit that goes to the next one when all are given.
    next: usize,
}

/// What one range was found to be, a bit for each asker.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Answers {
    known: u64,
    yes: u64,
}

impl Askers {
    pub(super) const fn new() -> Askers {
        Askers {
            known: Vec::new(),
            next: 0,
        }
    }

    /// The bit of an asker. True: it was another's until now, whose answers are to be forgotten.
    pub(super) fn bit(&mut self, who: usize) -> (usize, bool) {
        if let Some(bit) = self.known.iter().position(|known| *known == who) {
            return (bit, false);
        }
        if self.known.len() < MOST {
            self.known.push(who);
            return (self.known.len() - 1, false);
        }
        let bit = self.next;
        self.next = (bit + 1) % MOST;
        self.known[bit] = who;
        (bit, true)
    }
}

impl Default for Askers {
    fn default() -> Askers {
        Askers::new()
    }
}

impl Answers {
    /// The answer to the asker with this bit, which `ask` finds out the first time.
    pub(super) fn get(&mut self, bit: usize, ask: impl FnOnce() -> bool) -> bool {
        let mask = 1 << bit;
        if self.known & mask == 0 {
            self.known |= mask;
            self.yes = self.yes & !mask | u64::from(ask()) << bit;
        }
        self.yes & mask != 0
    }

    /// What the asker with this bit was told does not hold.
    pub(super) fn forget(&mut self, bit: usize) {
        self.known &= !(1 << bit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_asker_is_told_once_until_there_are_too_many() {
        let mut askers = Askers::new();
        let mut answers = Answers::default();
        let mut ask = |who: usize, answer: bool| {
            let (bit, is_anothers) = askers.bit(who);
            if is_anothers {
                answers.forget(bit);
            }
            let mut asked = false;
            let told = answers.get(bit, || {
                asked = true;
                answer
            });
            (told, asked)
        };
        for who in 1..=MOST {
            assert_eq!(ask(who, who % 2 == 1), (who % 2 == 1, true));
        }
        for who in 1..=MOST {
            assert_eq!(ask(who, who % 2 == 0), (who % 2 == 1, false), "as before");
        }
        // The first one's place is another's now, and then the second's is the first one's.
        assert_eq!(ask(100, false), (false, true));
        assert_eq!(ask(1, false), (false, true));
        assert_eq!(ask(3, false), (true, false));
        assert_eq!(ask(2, true), (true, true));
    }
}
