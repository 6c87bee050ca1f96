//! How much an agent may say. A tool keeps what it is told until its report, and an agent is in
//! somebody else's process: so all that is kept of it is counted, and one that says too much is not
//! listened to any more.

use warpbpf_wire::ToTool;

/// Most bytes that are kept of what one agent says, without what a timeline brings where one was asked for.
const MOST: usize = 256 << 20;
/// Most notes, each of which it says once.
pub(crate) const MOST_NOTES: usize = if cfg!(test) { 100 } else { 10_000 };
/// Most kernels, sites and contexts of a process.
pub(crate) const MOST_KERNELS: usize = 1 << 20;
pub(crate) const MOST_SITES: usize = 1 << 22;
pub(crate) const MOST_CONTEXTS: usize = 256;
/// What an element of a list takes besides its text.
pub(crate) const ELEMENT: usize = 200;

/// What was kept so far.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    bytes: usize,
    notes: usize,
    /// Nobody asked for a timeline, so that no more than a little of it comes.
    pub(crate) untimed: bool,
}

impl Kept {
    /// Counts a message whose text has so many bytes; `is_known` of a kernel's launches that are
    /// counted already, by its name.
    ///
    /// # Errors
    /// Text: it is too much.
    pub(crate) fn count(
        &mut self,
        message: &ToTool,
        bytes: usize,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<(), String> {
        let kept = match message {
            // Others take the place of what was told before, or are an answer.
            ToTool::Attached
            | ToTool::Failed
            | ToTool::Snapshotted { .. }
            | ToTool::MapOps { .. }
            | ToTool::Bye { .. } => 0,
            ToTool::Hello(_)
            | ToTool::Launches
            | ToTool::Refused { .. }
            | ToTool::Ready(_)
            | ToTool::Context(_)
            | ToTool::Maps(_)
            | ToTool::Changed(_) => bytes / 16,
            ToTool::Kernel(kernel) => {
                if kernel
                    .kernel_id
                    .is_some_and(|id| id as usize >= MOST_KERNELS)
                {
                    return Err("it told of a kernel with a number that no session gives".into());
                }
                bytes + ELEMENT
            }
            ToTool::Sites(sites) => {
                if sites.first as usize + sites.names.len() > MOST_SITES {
                    return Err("it told of sites with numbers that no session gives".into());
                }
                bytes + sites.names.len() * ELEMENT / 8
            }
            ToTool::Note { text, .. } => {
                self.notes += 1;
                match self.notes <= MOST_NOTES {
                    true => text.len() + ELEMENT,
                    false => 0,
                }
            }
            ToTool::Counts(counts) => {
                let new = counts
                    .kernels
                    .iter()
                    .filter(|kernel| !is_known(&kernel.mangled));
                let new = new
                    .map(|kernel| kernel.mangled.len() + ELEMENT)
                    .sum::<usize>();
                new + counts.parties.len() * ELEMENT / 16
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
        match self.bytes <= MOST {
            true => Ok(()),
            false => Err(format!("it has told more than {} MiB", MOST >> 20)),
        }
    }

    /// The note that was counted last is one too many; the first of those is told of.
    pub(crate) fn notes_are_full(&self) -> Option<bool> {
        (self.notes > MOST_NOTES).then_some(self.notes == MOST_NOTES + 1)
    }
}

#[cfg(test)]
mod tests {
    use warpbpf_wire::{Counts, Kernel, KernelCount, NoteLevel, Sites};

    use super::*;

    #[test]
    fn what_is_kept_is_counted_and_bounded() {
        let mut kept = Kept::default();
        let nobody = |_: &str| false;
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
        // Launches of kernels that are known cost nothing, however often they are told.
        let count = KernelCount {
            mangled: "k".into(),
            launches: 1,
            ..KernelCount::default()
        };
        let counts = ToTool::Counts(Counts {
            kernels: vec![count],
            ..Counts::default()
        });
        for _ in 0..1000 {
            kept.count(&counts, MOST, |name| name == "k").unwrap();
        }
        let before = kept.bytes;
        kept.count(&counts, 100, nobody).unwrap();
        assert!(kept.bytes > before);
        let error = (0..3).find_map(|n| kept.count(&kernel(n), MOST / 2, nobody).err());
        assert_eq!(error.as_deref(), Some("it has told more than 256 MiB"));
    }

    #[test]
    fn a_note_too_many_is_told_of_once() {
        let mut kept = Kept::default();
        let note = ToTool::Note {
            level: NoteLevel::Info,
            text: "a".into(),
            guests: Vec::new(),
        };
        let mut full = || {
            kept.count(&note, 10, |_| false).unwrap();
            kept.notes_are_full()
        };
        assert!((0..MOST_NOTES).all(|_| full().is_none()));
        assert_eq!([full(), full()], [Some(true), Some(false)]);
    }
}
