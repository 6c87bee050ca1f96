//! How much an agent may say. A tool keeps what it is told until its report, and an agent is in
//! somebody else's process: so all that is kept of it is counted, and one that says too much is not
//! listened to any more.

use std::collections::HashMap;

use warpbpf_wire::{ContextInfo, Counts, KernelCount, Program, ToTool};

/// Most bytes that are kept of what one agent says, without what a timeline brings where one was
/// asked for.
const MOST: usize = 256 << 20;
/// Most notes, each of which it says once.
pub(crate) const MOST_NOTES: usize = if cfg!(test) { 100 } else { 10_000 };
/// Most kernels, sites and contexts of a process.
pub(crate) const MOST_KERNELS: usize = 1 << 20;
pub(crate) const MOST_SITES: usize = 1 << 22;
pub(crate) const MOST_CONTEXTS: usize = 256;
/// Most programs at once.
const MOST_PROGRAMS: usize = 1 << 14;
/// What an element of a list takes besides its text.
pub(crate) const ELEMENT: usize = 200;
/// The same of a short one: a name or a pair of numbers, of which a few characters can be one.
const SHORT: usize = 40;

/// What was kept so far.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Of what stays.
    bytes: usize,
    /// Of what others take the place of: launches of the tool's own, those of several tools, and
    /// lists of programs.
    counts: usize,
    clients: usize,
    lists: usize,
    notes: usize,
    /// Nobody asked for a timeline, so that no more than a little of it comes.
    pub(crate) untimed: bool,
}

impl Kept {
    /// Counts a message whose text has so many bytes; `known` are launches that are counted
    /// already, by the kernel's name.
    ///
    /// # Errors
    /// Text: it is too much.
    pub(crate) fn count<'k>(
        &mut self,
        message: &ToTool,
        bytes: usize,
        known: impl Fn(&str) -> Option<&'k KernelCount>,
    ) -> Result<(), String> {
        let kept = match message {
            // Others take the place of what was told before, or are an answer.
            ToTool::Attached
            | ToTool::Failed
            | ToTool::Snapshotted { .. }
            | ToTool::MapOps { .. }
            | ToTool::Leaving { .. }
            | ToTool::Bye { .. } => 0,
            ToTool::Hello(_) | ToTool::Launches | ToTool::Refused { .. } | ToTool::Maps(_) => {
                bytes / 16
            }
            ToTool::Ready(ready) => {
                check_programs(&ready.programs)?;
                bytes / 16 + of_context(&ready.context)
            }
            ToTool::Changed(changed) => {
                check_programs(&changed.programs)?;
                bytes / 16
            }
            ToTool::Context(context) => of_context(context),
            ToTool::Kernel(kernel) => {
                if kernel
                    .kernel_id
                    .is_some_and(|id| id as usize >= MOST_KERNELS)
                {
                    return Err("it told of a kernel with a number that no session gives".into());
                }
                let lists = kernel.compiler_warnings.len()
                    + kernel.left_out.len()
                    + kernel.placed.len()
                    + kernel.programs.len();
                bytes + ELEMENT + lists * SHORT
            }
            ToTool::Sites(sites) => {
                if sites.first as usize + sites.names.len() > MOST_SITES {
                    return Err("it told of sites with numbers that no session gives".into());
                }
                bytes + sites.names.len() * ELEMENT / 8
            }
            ToTool::Note { text, clients, .. } => {
                self.notes += 1;
                match self.notes <= MOST_NOTES {
                    true => text.len() + clients.len() * SHORT + ELEMENT,
                    false => 0,
                }
            }
            ToTool::Counts(counts) => {
                self.launches(counts, known);
                0
            }
            ToTool::Operations(_) | ToTool::Stacks(_) | ToTool::Ranges(_) => match self.untimed {
                true => bytes,
                false => 0,
            },
        };
        self.keep(kept)
    }

    /// So many bytes more are kept.
    ///
    /// # Errors
    /// Text: it is too much.
    pub(crate) fn keep(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.check()
    }

    /// Launches take the place of those that were told before, kernel by kernel.
    fn launches<'k>(&mut self, counts: &Counts, known: impl Fn(&str) -> Option<&'k KernelCount>) {
        for count in &counts.kernels {
            let before = known(&count.mangled).map_or(0, of_count);
            self.counts = (self.counts + of_count(count)).saturating_sub(before);
        }
    }

    /// So much is kept of the launches of several tools, and of lists of programs.
    ///
    /// # Errors
    /// Text: it is too much.
    pub(crate) fn stays(&mut self, clients: usize, lists: usize) -> Result<(), String> {
        (self.clients, self.lists) = (clients, lists);
        self.check()
    }

    fn check(&self) -> Result<(), String> {
        let parts = [self.bytes, self.counts, self.clients, self.lists];
        match parts.into_iter().fold(0, usize::saturating_add) <= MOST {
            true => Ok(()),
            false => Err(format!("it has told more than {} MiB", MOST >> 20)),
        }
    }

    /// The note that was counted last is one too many; the first of those is told of.
    pub(crate) fn notes_are_full(&self) -> Option<bool> {
        (self.notes > MOST_NOTES).then_some(self.notes == MOST_NOTES + 1)
    }
}

fn check_programs(programs: &[Program]) -> Result<(), String> {
    match programs.len() <= MOST_PROGRAMS {
        true => Ok(()),
        false => Err(format!("it has more than {MOST_PROGRAMS} programs")),
    }
}

fn of_context(context: &ContextInfo) -> usize {
    context.name.len() + ELEMENT
}

/// What the launches of a kernel take.
pub(crate) fn of_count(count: &KernelCount) -> usize {
    let named = |programs: &[(String, u64)]| -> usize {
        programs.iter().map(|(name, _)| name.len() + SHORT).sum()
    };
    let by_context = count.context_programs.iter();
    count.mangled.len()
        + ELEMENT
        + (count.contexts.len() + count.generations.len()) * SHORT
        + named(&count.programs)
        + by_context
            .map(|(_, programs)| SHORT + named(programs))
            .sum::<usize>()
}

/// What the launches of a tool take.
pub(crate) fn of_counts(counts: &HashMap<String, KernelCount>) -> usize {
    ELEMENT + counts.values().map(of_count).sum::<usize>()
}

/// What a list of programs takes.
pub(crate) fn of_programs(programs: &[Program]) -> usize {
    let of = |program: &Program| {
        program.name.len() + program.section.len() + program.glob.len() + 2 * SHORT
    };
    ELEMENT + programs.iter().map(of).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use warpbpf_wire::{Kernel, NoteLevel, Sites};

    use super::*;

    #[test]
    fn what_is_kept_is_counted_and_bounded() {
        let mut kept = Kept::default();
        let nobody = |_: &str| None;
        let kernel = |id| {
            ToTool::Kernel(Kernel {
                kernel_id: Some(id),
                ..Kernel::default()
            })
        };
        kept.count(&kernel(7), 100, nobody).unwrap();
        let error = kept.count(&kernel(u32::MAX), 100, nobody).unwrap_err();
        assert_eq!(
            error,
            "it told of a kernel with a number that no session gives"
        );
        let sites = ToTool::Sites(Sites {
            first: u32::MAX,
            names: vec!["a".into()],
        });
        assert!(kept.count(&sites, 100, nobody).is_err());
        // Launches take the place of those before, and cost what they are more than these.
        let count = |contexts: usize| KernelCount {
            mangled: "k".into(),
            contexts: vec![(0, 1); contexts],
            ..KernelCount::default()
        };
        let counts = |contexts| {
            ToTool::Counts(Counts {
                kernels: vec![count(contexts)],
                ..Counts::default()
            })
        };
        kept.count(&counts(7), 100, nobody).unwrap();
        let (before, seven) = (kept.counts, count(7));
        assert_eq!(before, of_count(&seven));
        for _ in 0..1000 {
            kept.count(&counts(7), MOST, |name| (name == "k").then_some(&seven))
                .unwrap();
        }
        assert_eq!(kept.counts, before);
        kept.count(&counts(9), 100, |_| Some(&seven)).unwrap();
        assert_eq!(kept.counts, of_count(&count(9)));
        let error = (0..3).find_map(|n| kept.count(&kernel(n), MOST / 2, nobody).err());
        assert_eq!(error.as_deref(), Some("it has told more than 256 MiB"));
    }

    #[test]
    fn a_note_too_many_is_told_of_once() {
        let mut kept = Kept::default();
        let note = ToTool::Note {
            level: NoteLevel::Info,
            text: "a".into(),
            clients: Vec::new(),
        };
        let mut full = || {
            kept.count(&note, 10, |_| None).unwrap();
            kept.notes_are_full()
        };
        assert!((0..MOST_NOTES).all(|_| full().is_none()));
        assert_eq!([full(), full()], [Some(true), Some(false)]);
    }

    /// A few characters of a message can be an element of a list, which takes ten times as much.
    #[test]
    fn lists_in_messages_are_counted() {
        const MANY: usize = MOST / SHORT / 2;
        let most = |message: &ToTool| -> Vec<Result<(), String>> {
            let mut kept = Kept::default();
            (0..3).map(|_| kept.count(message, 10, |_| None)).collect()
        };
        let too_much = || Err("it has told more than 256 MiB".to_owned());
        let expected = vec![Ok(()), too_much(), too_much()];
        let note = ToTool::Note {
            level: NoteLevel::Info,
            text: String::new(),
            clients: vec![1; MANY],
        };
        assert_eq!(most(&note), expected);
        let kernel = Kernel {
            placed: vec![(0, 0); MANY],
            ..Kernel::default()
        };
        assert_eq!(most(&ToTool::Kernel(kernel)), expected);
        let count = KernelCount {
            generations: vec![(0, 0); MANY],
            ..KernelCount::default()
        };
        let counts = Counts {
            kernels: vec![count],
            ..Counts::default()
        };
        assert_eq!(most(&ToTool::Counts(counts)), expected);
        let mut kept = Kept::default();
        kept.stays(MOST / 2, MOST / 2).unwrap();
        assert_eq!(kept.stays(MOST / 2, MOST / 2 + 1), too_much());
        kept.stays(0, 0).unwrap();
    }
}
