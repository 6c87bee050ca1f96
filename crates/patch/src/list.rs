//! What can be probed in a kernel: the places of every kind, without putting anything there.

use std::collections::{BTreeMap, BTreeSet};

use warpbpf_abi::access::{Barrier, Cache, Kind, Space};
use warpbpf_abi::attach::{Site, When};
use warpbpf_ptx::access::Bytes;
use warpbpf_ptx::ast::Module;

use crate::body::Symbols;
use crate::closure::Closure;
use crate::error::PatchError;
use crate::find::{Fact, Scene, TextLines};
use crate::variant::SiteInfo;

/// The places of a kernel and of the functions that it reaches by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SiteList {
    /// Accesses, barriers, branches, lines and device functions, in text order.
    pub sites: Vec<SiteFact>,
    /// How often each opcode with its modifiers occurs, calls with their parameters left out: the
    /// places of `gpu/insn`.
    pub opcodes: BTreeMap<String, usize>,
}

/// A place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteFact {
    /// Where; its number is 0.
    pub info: SiteInfo,
    /// What is known of it.
    pub detail: Detail,
    /// Why no program can run before it.
    pub barred: Option<&'static str>,
}

/// What is known of a place from the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// An access to memory.
    Access {
        /// What it does.
        kind: Kind,
        /// Where.
        space: Space,
        /// Cache operator or ordering.
        cache: Cache,
        /// Bytes of one lane, if the text says how many.
        bytes: Option<u32>,
    },
    /// A barrier.
    Barrier(Barrier),
    /// A place of another kind.
    None,
}

/// The places of `kernel`.
///
/// # Errors
/// No such kernel, or a text that cannot be read.
pub fn list_sites(module: &Module<'_>, kernel: &str) -> Result<SiteList, PatchError> {
    sites_of(&Symbols::new(module), kernel)
}

/// [`list_sites`] of a module whose symbols are known.
pub(crate) fn sites_of(symbols: &Symbols<'_, '_>, kernel: &str) -> Result<SiteList, PatchError> {
    let closure = Closure::of(symbols, kernel)?;
    let mut list = SiteList::default();
    let kinds = [
        Site::Mem,
        Site::Barrier,
        Site::Func,
        Site::FuncRet,
        Site::Line,
        Site::Branch,
    ];
    let kinds = BTreeSet::from(kinds);
    let mut bodies: Vec<_> = closure.bodies.values().collect();
    bodies.sort_by_key(|body| body.function.span.start);
    for body in bodies {
        let scene = Scene::of(body, symbols.sources());
        let runs = scene.runs(None).into_iter().collect();
        let mut lines = TextLines::from(symbols.module, body.function.span.start);
        for place in scene.places(&kinds, &runs) {
            let mut info = scene.info(&place, None);
            info.text_line = lines.at(scene.offset(place.anchor));
            list.sites.push(SiteFact {
                info,
                detail: detail(&place.fact),
                barred: scene.against(&place, When::Before, false),
            });
        }
        for (index, instruction) in body.instructions() {
            if scene.gaps.member(index).is_none() {
                *list.opcodes.entry(instruction.name.to_owned()).or_default() += 1;
            }
        }
    }
    Ok(list)
}

fn detail(fact: &Fact) -> Detail {
    match fact {
        Fact::Mem(access) => Detail::Access {
            kind: access.kind,
            space: access.space,
            cache: access.cache,
            bytes: match access.bytes {
                Bytes::Fixed(bytes) => Some(bytes),
                Bytes::Operand(_) | Bytes::Box(..) | Bytes::Unknown => None,
            },
        },
        Fact::Barrier(barrier) => Detail::Barrier(barrier.kind),
        Fact::Func | Fact::FuncRet | Fact::Insn | Fact::Line | Fact::Branch { .. } => Detail::None,
    }
}
