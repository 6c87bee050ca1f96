//! The ranges that a thread is in. Only the thread itself looks at them, so there is no lock; depth
//! is bounded, and what lies deeper is counted, so that each end finds its beginning.

use std::cell::RefCell;

use super::asked::{Answers, Askers};

/// Ranges of a thread that are known by name.
pub(super) const DEPTH: usize = 64;

thread_local! {
    static STACK: RefCell<Stack> = const { RefCell::new(Stack::new()) };
}

/// One range.
#[derive(Debug)]
struct Frame {
    /// Handle of its domain; ends are for a domain.
    domain: usize,
    /// Its part of the path, with the slash in front of it.
    begin: usize,
    end: usize,
    /// Number of its record, if there is one.
    record: Option<u64>,
    /// Whether it or one around it was chosen, once that was asked.
    chosen: Answers,
}

/// What an end is the end of.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Of a range with this record.
    Range(Option<u64>),
    /// Of one that was too deep to be known.
    Deep,
    /// Of none: its beginning was not seen.
    Nothing,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Stack {
    /// Names from the outermost in, with slashes between.
    path: String,
    frames: Vec<Frame>,
    /// Domains with ranges that are too deep, and how many.
    deep: Vec<(usize, u64)>,
    /// For whom `chosen` was found out.
    askers: Askers,
}

impl Stack {
    const fn new() -> Stack {
        Stack {
            path: String::new(),
            frames: Vec::new(),
            deep: Vec::new(),
            askers: Askers::new(),
        }
    }

    /// A range begins. False: too deep.
    pub(super) fn push(&mut self, domain: usize, name: &str, record: Option<u64>) -> bool {
        if self.is_full() {
            match self.deep.iter_mut().find(|(of, _)| *of == domain) {
                Some((_, count)) => *count += 1,
                None => self.deep.push((domain, 1)),
            }
            return false;
        }
        let begin = self.path.len();
        if !self.frames.is_empty() {
            self.path.push('/');
        }
        self.path.push_str(name);
        self.frames.push(Frame {
            domain,
            begin,
            end: self.path.len(),
            record,
            chosen: Answers::default(),
        });
        true
    }

    pub(super) fn is_full(&self) -> bool {
        self.frames.len() == DEPTH
    }

    /// The innermost range of a domain ends.
    pub(super) fn pop(&mut self, domain: usize) -> Ended {
        let deep = self
            .deep
            .iter_mut()
            .find(|(of, count)| *of == domain && *count > 0);
        if let Some((_, count)) = deep {
            *count -= 1;
            return Ended::Deep;
        }
        let Some(at) = self.frames.iter().rposition(|frame| frame.domain == domain) else {
            return Ended::Nothing;
        };
        let frame = self.frames.remove(at);
        let mut gone = frame.begin..frame.end;
        // The first one has no slash in front of it.
        if at == 0 && !self.frames.is_empty() {
            gone.end += 1;
        }
        let length = gone.len();
        self.path.replace_range(gone, "");
        // Ranges of other domains may be within.
        for inner in &mut self.frames[at..] {
            inner.begin = inner.begin.saturating_sub(length);
            inner.end -= length;
            inner.chosen = Answers::default();
        }
        Ended::Range(frame.record)
    }

    /// `outer/inner`; nothing outside of all ranges.
    pub(super) fn path(&self) -> Option<&str> {
        (!self.frames.is_empty()).then_some(&*self.path)
    }

    /// The path of one of these ranges is what `who` wants. Asked once for each range.
    pub(super) fn is_in(&mut self, who: usize, wants: impl Fn(&str) -> bool) -> bool {
        // A thread outside of all ranges has nothing to remember.
        if self.frames.is_empty() {
            return false;
        }
        let (bit, is_anothers) = self.askers.bit(who);
        let mut chosen = false;
        for frame in &mut self.frames {
            if is_anothers {
                frame.chosen.forget(bit);
            }
            let path = &self.path[..frame.end];
            chosen = frame.chosen.get(bit, || chosen || wants(path));
        }
        chosen
    }
}

/// Does something with the thread's own stack; `None` when the thread is so near to its end that
/// there is none, or in a signal's handler that came in between.
pub(super) fn with<T>(work: impl FnOnce(&mut Stack) -> T) -> Option<T> {
    let done = STACK.try_with(|stack| Some(work(&mut *stack.try_borrow_mut().ok()?)));
    done.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_of_names_from_the_outermost_in() {
        let mut stack = Stack::new();
        assert_eq!(stack.path(), None);
        assert_eq!(stack.pop(0), Ended::Nothing);
        assert!(stack.push(0, "outer", Some(1)));
        assert!(stack.push(0, "", None));
        assert!(stack.push(0, "inner", Some(3)));
        assert_eq!(stack.path(), Some("outer//inner"));
        assert_eq!(stack.pop(0), Ended::Range(Some(3)));
        assert_eq!(stack.pop(0), Ended::Range(None));
        assert_eq!(stack.path(), Some("outer"));
        assert_eq!(stack.pop(0), Ended::Range(Some(1)));
        assert_eq!(stack.path(), None);
        assert_eq!(stack.pop(0), Ended::Nothing);
    }

    #[test]
    fn domains_end_their_own_ranges() {
        let mut stack = Stack::new();
        for (domain, name, record) in [(0, "a", 1), (7, "b@x", 2), (0, "c", 3), (7, "d@x", 4)] {
            stack.push(domain, name, Some(record));
        }
        let wanted = |path: &str| path == "a/b@x";
        assert!(stack.is_in(1, wanted));
        assert_eq!(stack.pop(0), Ended::Range(Some(3)));
        assert_eq!(stack.path(), Some("a/b@x/d@x"));
        assert!(stack.is_in(1, wanted), "still within");
        assert_eq!(stack.pop(0), Ended::Range(Some(1)));
        assert_eq!(stack.path(), Some("b@x/d@x"));
        assert!(!stack.is_in(1, wanted), "its path is another one now");
        assert_eq!(stack.pop(0), Ended::Nothing);
        assert_eq!(stack.pop(7), Ended::Range(Some(4)));
        assert_eq!(stack.path(), Some("b@x"));
        assert_eq!(stack.pop(7), Ended::Range(Some(2)));
        assert_eq!(stack.path(), None);
    }

    #[test]
    fn what_is_too_deep_is_counted_and_ends_first() {
        let mut stack = Stack::new();
        for at in 0..DEPTH {
            assert!(stack.push(0, "x", Some(at as u64)));
        }
        assert!(!stack.push(0, "y", None));
        assert!(!stack.push(9, "z", None));
        assert_eq!(stack.path().unwrap().len(), 2 * DEPTH - 1);
        assert_eq!((stack.pop(9), stack.pop(9)), (Ended::Deep, Ended::Nothing));
        assert_eq!(stack.pop(0), Ended::Deep);
        assert_eq!(stack.pop(0), Ended::Range(Some(DEPTH as u64 - 1)));
    }

    #[test]
    fn each_range_is_asked_for_once_by_each() {
        let asked = std::cell::Cell::new(0);
        let wants = |path: &str| {
            asked.set(asked.get() + 1);
            path == "a/b"
        };
        let mut stack = Stack::new();
        assert!(!stack.is_in(1, wants));
        stack.push(0, "a", None);
        assert!(!stack.is_in(1, wants));
        stack.push(0, "b", None);
        stack.push(0, "c", None);
        assert!(stack.is_in(1, wants));
        assert!(stack.is_in(1, wants));
        assert_eq!(asked.get(), 2, "what is within a chosen range is chosen");
        assert!(stack.is_in(2, wants));
        assert_eq!(asked.get(), 4);
        // Two programs with ranges of their own are asked for at each launch.
        for who in [1, 2, 1, 2] {
            assert!(stack.is_in(who, wants));
        }
        assert_eq!(asked.get(), 4, "both were told already");
        stack.pop(0);
        stack.pop(0);
        assert!(!stack.is_in(2, wants));
    }
}
