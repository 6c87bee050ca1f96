//! Kernel nodes of executable graphs, and the launch records that they have.

use warpbpf_session::LoadedVariant;

use crate::kernels::entry::{Entry, Runs};

/// A launch record that is an executable graph's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// The context that its memory is of.
    pub(crate) context: usize,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl Record {
    /// It is there for a variant of this context, and so large.
    pub(crate) fn serves(&self, context: usize, bytes: u64) -> bool {
        self.context == context && self.bytes >= bytes
    }
}

/// A kernel node of an executable graph.
#[derive(Debug)]
pub(crate) struct Use {
    /// The node of the graph that was instantiated, if that is known.
    pub(crate) node: usize,
    pub(crate) within: Vec<usize>,
    /// It is in the body of a conditional node: nobody knows how often it runs.
    pub(crate) body: bool,
    /// The kernel, if programs want it, and what of it runs.
    pub(crate) kernel: Option<(&'static Entry, Runs)>,
    pub(crate) record: Option<Record>,
    pub(crate) enabled: bool,
    /// Its number among the graph's kernel nodes; `None` if what is in the graph is not known.
    pub(crate) at: Option<u32>,
    /// Number of the launch, as programs have it that run in it.
    pub(crate) launch: u64,
    /// The kernel's name in its image, where a timeline tells it.
    pub(crate) name: Option<String>,
}

/// Launch records that may be given to nodes.
#[derive(Debug, Default)]
pub(crate) struct Records(pub(crate) Vec<Record>);

impl Records {
    /// Each of these once: nodes may share one.
    pub(crate) fn of<'u>(uses: impl Iterator<Item = &'u Use>) -> Records {
        let mut records: Vec<Record> = uses.filter_map(|it| it.record).collect();
        records.sort_unstable_by_key(|record| (record.context, record.address));
        records.dedup();
        Records(records)
    }

    /// One of at least so many bytes in the variant's context: the smallest of those that are left,
    /// so that updates with the same nodes need no others, else a new one. `None` if there is no
    /// room.
    pub(crate) fn take(
        &mut self,
        variant: &LoadedVariant,
        context: usize,
        bytes: u64,
    ) -> Option<Record> {
        let all = self.0.iter().enumerate();
        let fitting = all.filter(|(_, r)| r.serves(context, bytes));
        if let Some((at, _)) = fitting.min_by_key(|(_, r)| r.bytes) {
            return Some(self.0.swap_remove(at));
        }
        let address = variant.own_record(bytes)?;
        Some(Record {
            context,
            address,
            bytes,
        })
    }

    /// A context is gone, and its memory.
    pub(crate) fn forget(&mut self, context: usize) {
        self.0.retain(|record| record.context != context);
    }
}

/// What became of a kernel that was put into a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    /// The kernel, if programs want it, and what of it is in the node.
    pub(crate) kernel: Option<(&'static Entry, Runs)>,
    /// Number of the launch, as programs in the variant have it; 0 if none runs, or none is told.
    pub(crate) launch: u64,
    /// Handle of the kernel that the application gave.
    pub(crate) given: usize,
}
