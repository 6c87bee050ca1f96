//! What Compute Sanitizer tells of: each kind of event with the parameters that its function gets,
//! and which attachments want it.

use warpbpf_abi::access::{Barrier, Kind, Space};
use warpbpf_abi::attach::{Site, When};
use warpbpf_abi::context::Capture;

use crate::attachment::Attachment;
use crate::error::PatchError;
use crate::launch_args::is_launch_arg;
use crate::select::Select;
use crate::tools_refused::{not_here, refused};

/// Something of which a kernel's machine code tells by a call: one function for all of its places
/// in a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// A thread begins.
    Entry,
    /// It ends.
    Exit,
    /// A load, store, atomic or prefetch that turned out to be of this space.
    Access(Space),
    /// `prefetch`, of which an H100 tells so and not as of an access.
    Prefetch,
    /// `cp.async`
    AsyncCopy,
    /// `ldmatrix`, `stmatrix`
    Matrix,
    /// A block's barrier that waits.
    Barrier,
    /// `bar.warp.sync`
    WarpBarrier,
    /// `barrier.cluster.arrive`
    ClusterArrive,
    /// `barrier.cluster.wait`
    ClusterWait,
    /// What is done to an mbarrier: arrivals, those of copies among them, and waits that are over.
    Mbarrier,
    /// `cp.async.wait_group`
    CopiesWait,
    /// `wgmma.wait_group`
    ProductsWait,
    /// A call, before it.
    Call,
    /// A return from one.
    Return,
}

/// Kinds of access that are told apart.
const KINDS: [Kind; 7] = [
    Kind::Load,
    Kind::Store,
    Kind::Atomic,
    Kind::Prefetch,
    Kind::AsyncCopy,
    Kind::MatrixLoad,
    Kind::MatrixStore,
];
/// Those of [`Event::Access`].
const PLAIN: &[Kind] = &[
    Kind::Load,
    Kind::Store,
    Kind::Atomic,
    Kind::Prefetch,
    Kind::Other,
];
/// Spaces of which accesses are told.
const SPACES: [Space; 4] = [Space::Global, Space::Shared, Space::Local, Space::Cluster];

impl Event {
    /// All of them.
    pub const ALL: [Event; 18] = [
        Event::Entry,
        Event::Exit,
        Event::Access(SPACES[0]),
        Event::Access(SPACES[1]),
        Event::Access(SPACES[2]),
        Event::Access(SPACES[3]),
        Event::Prefetch,
        Event::AsyncCopy,
        Event::Matrix,
        Event::Barrier,
        Event::WarpBarrier,
        Event::ClusterArrive,
        Event::ClusterWait,
        Event::Mbarrier,
        Event::CopiesWait,
        Event::ProductsWait,
        Event::Call,
        Event::Return,
    ];

    /// The kind of place that it is for a program.
    pub fn site(self) -> Site {
        match self {
            Event::Entry => Site::Entry,
            Event::Exit => Site::Exit,
            Event::Access(_) | Event::Prefetch | Event::AsyncCopy | Event::Matrix => Site::Mem,
            Event::Call => Site::Func,
            Event::Return => Site::FuncRet,
            Event::Barrier
            | Event::WarpBarrier
            | Event::ClusterArrive
            | Event::ClusterWait
            | Event::Mbarrier
            | Event::CopiesWait
            | Event::ProductsWait => Site::Barrier,
        }
    }

    /// A program that selects so, at places of the event's kind, may want some of them.
    pub fn may_pass(self, select: &Select) -> bool {
        match self.site() {
            Site::Mem => {
                let kinds = &select.kinds;
                let one = |kind: &Kind| kinds.contains(kind);
                (kinds.is_empty() || self.kinds().iter().any(one))
                    && (select.spaces.is_empty() || select.spaces.contains(&self.space()))
            }
            Site::Barrier => {
                let kinds = &select.barriers;
                kinds.is_empty() || self.barriers().iter().any(|kind| kinds.contains(kind))
            }
            _ => true,
        }
    }

    /// The kinds of access that it can be.
    pub(crate) fn kinds(self) -> &'static [Kind] {
        match self {
            Event::Access(_) => PLAIN,
            Event::Prefetch => &[Kind::Prefetch],
            Event::AsyncCopy => &[Kind::AsyncCopy],
            Event::Matrix => &[Kind::MatrixLoad, Kind::MatrixStore],
            _ => &[],
        }
    }

    /// The space that it accesses; of an mbarrier, the one that it is in.
    pub(crate) fn space(self) -> Space {
        match self {
            Event::Access(space) => space,
            Event::Prefetch | Event::AsyncCopy => Space::Global,
            Event::Matrix | Event::Mbarrier => Space::Shared,
            _ => Space::Generic,
        }
    }

    /// The kinds of barrier that it can be.
    pub(crate) fn barriers(self) -> &'static [Barrier] {
        match self {
            Event::Barrier => &[Barrier::Sync],
            Event::WarpBarrier => &[Barrier::Warp],
            Event::ClusterArrive => &[Barrier::ClusterArrive],
            Event::ClusterWait => &[Barrier::ClusterWait],
            Event::Mbarrier => &[Barrier::MbarrierArrive, Barrier::MbarrierWait],
            Event::CopiesWait | Event::ProductsWait => &[Barrier::GroupWait],
            _ => &[],
        }
    }

    /// What its function gets behind the two parameters that all have: names and bits. A later
    /// version of the library may give some more behind these.
    pub(crate) fn parameters(self) -> &'static [(&'static str, u32)] {
        match self {
            Event::Access(_) => &[("ptr", 64), ("size", 32), ("flags", 32), ("data", 64)],
            Event::Prefetch => &[("ptr", 64), ("cache", 32)],
            Event::AsyncCopy => &[("ptr", 64), ("target", 32), ("size", 32)],
            Event::Matrix => &[
                ("ptr", 32),
                ("size", 32),
                ("flags", 32),
                ("count", 32),
                ("data", 64),
            ],
            Event::Barrier => &[("id", 32), ("threads", 32), ("flags", 32)],
            Event::WarpBarrier => &[("lanes", 32)],
            Event::Mbarrier => &[("ptr", 64), ("action", 32), ("count", 32)],
            Event::CopiesWait => &[("groups", 32)],
            Event::ProductsWait => &[("groups", 32), ("lanes", 32)],
            Event::Call => &[("target", 64), ("flags", 32)],
            Event::Entry
            | Event::Exit
            | Event::ClusterArrive
            | Event::ClusterWait
            | Event::Return => &[],
        }
    }
}

/// What Compute Sanitizer does not tell in the middle of a kernel, a program must not ask for.
pub(crate) fn check(site: Site, attachment: &Attachment<'_>) -> Result<(), PatchError> {
    let select = attachment.select;
    if select.when == When::After {
        return refused("`when=after`", "use `when=before`");
    }
    kinds(select)?;
    spaces(select)?;
    for (given, what) in [
        (!select.caches.is_empty(), "`cache=`"),
        (select.op.is_some(), "`op=`"),
        (select.at.is_some(), "`at=`"),
        (select.functions.is_some(), "`func=`"),
    ] {
        if given {
            return refused(what, "do without it");
        }
    }
    let told = |capture: &Capture| match site {
        Site::Mem => matches!(
            capture,
            Capture::Address
                | Capture::Bytes
                | Capture::Kind
                | Capture::Space
                | Capture::Value(_)
                | Capture::ValueBytes
                | Capture::Target
                | Capture::TargetSpace
        ),
        Site::Barrier => matches!(
            capture,
            Capture::Address
                | Capture::Space
                | Capture::BarrierKind
                | Capture::BarrierId
                | Capture::BarrierThreads
        ),
        _ => false,
    } || is_launch_arg(*capture);
    match attachment.fragment.captures.iter().find(|c| !told(c)) {
        Some(capture) => not_here(*capture),
        None => Ok(()),
    }
}

fn kinds(select: &Select) -> Result<(), PatchError> {
    if let Some(kind) = select.kinds.iter().find(|kind| !KINDS.contains(kind)) {
        let advice = "use `load`, `store`, `atomic` (reductions are among them), `prefetch`, `async_copy`, `matrix_load` or `matrix_store`";
        return refused(&format!("`kind={}`", kind.word()), advice);
    }
    let told = |kind: &Barrier| Event::ALL.iter().any(|e| e.barriers().contains(kind));
    match select.barriers.iter().find(|kind| !told(kind)) {
        Some(kind) => {
            let what = format!("`kind={}`", kind.word());
            refused(
                &what,
                "leave it out, as barriers at which a thread does not wait are not told of",
            )
        }
        None => Ok(()),
    }
}

fn spaces(select: &Select) -> Result<(), PatchError> {
    // An access whose instruction leaves the space open is told of as one of the space that it is
    // of.
    let told = |space: &Space| SPACES.contains(space) || *space == Space::Generic;
    let none = !select.spaces.is_empty() && !select.spaces.iter().any(|s| SPACES.contains(s));
    match select.spaces.iter().find(|space| none || !told(space)) {
        Some(space) => {
            let advice = "use `global`, `shared`, `cluster` or `local`, one of which each access is of, whatever its instruction says";
            refused(&format!("`space={}`", space.word()), advice)
        }
        None => Ok(()),
    }
}
