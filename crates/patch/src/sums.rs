//! Sums that programs keep in registers of a kernel: when that works, and the code that adds them
//! to their maps at each way out.
//!
//! The registers are the kernel's own. A device function cannot reach them: programs in functions
//! add at each pass, and where a function may end the thread they do so everywhere, because what
//! the kernel has kept would be lost.

use std::collections::BTreeSet;

use warpbpf_codegen::tally::{Adding, declare, flush};
use warpbpf_codegen::{Fragment, Tally};

use crate::attachment::{Attachment, Options};
use crate::body::Symbols;
use crate::closure::{Closure, exit_behind_pointer};
use crate::error::PatchError;
use crate::scope::ends_thread;

/// The sums of one kernel.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    all: BTreeSet<Tally>,
    /// Adds them to their maps.
    pub(crate) flush: Fragment,
}

impl Sums {
    /// Those that `attachments` keep in `kernel`.
    pub(crate) fn of<'a>(
        symbols: &Symbols<'_, 'a>,
        closure: &Closure<'_, 'a>,
        kernel: &str,
        attachments: &[Attachment<'_>],
        options: &Options,
    ) -> Result<Sums, PatchError> {
        let all: BTreeSet<Tally> = attachments
            .iter()
            .flat_map(|a| a.fragment.tallies.iter().copied())
            .collect();
        if all.is_empty()
            || options.out_of_line
            || attachments.iter().any(|a| ends_thread(a.fragment))
            || !closure.leaving(symbols, kernel).is_empty()
            || exit_behind_pointer(symbols, closure, kernel)?.is_some()
        {
            return Ok(Sums::default());
        }
        let module = symbols.module;
        let adding = Adding::Group {
            ptx: module.version,
            sm: module.target().map_or(0, |t| t.number),
        };
        let flush = flush(&all, adding, options.slot_space);
        Ok(Sums { all, flush })
    }

    /// There are any.
    pub(crate) fn kept(&self) -> bool {
        !self.all.is_empty()
    }

    /// What the kernel begins with.
    pub(crate) fn declarations(&self) -> String {
        declare(&self.all)
    }
}
