//! What can be probed in an image: its kernels, and the places in each by kind, by source line and
//! by opcode.

use std::collections::BTreeMap;

use warpbpf_abi::access::{Barrier, Kind, Space};
use warpbpf_abi::attach::Site;
use warpbpf_abi::method::Method;
use warpbpf_patch::{Detail, Patcher, SiteFact, SiteList};
use warpbpf_ptx::arguments::Arguments;
use warpbpf_ptx::ast::Module;

use crate::plan::image::{ImageInfo, KernelSummary};
use crate::plan::in_ptx;
use crate::plan::names;

/// A kernel and its places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSites {
    /// Name as the driver knows it.
    pub mangled: String,
    /// Name as people write it.
    pub demangled: String,
    /// Where its code comes from.
    pub source: String,
    /// A slice, a clone, or why neither.
    pub method: Method,
    /// Its parameters by position, as `args` of the context has them.
    pub arguments: Vec<Argument>,
    /// Places of the same kind, in the order of the documentation. Lines are in
    /// [`KernelSites::lines`].
    pub places: Vec<Places>,
    /// Source lines that have code, by file and line.
    pub lines: Vec<Line>,
    /// Opcodes with their modifiers and how often each occurs, the most frequent first.
    pub opcodes: Vec<(String, usize)>,
}

/// A parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// PTX type: `u64`, or `b8[24]` for a structure.
    pub ptx: String,
    /// Name in the source; empty without debug information (`nvcc -G`).
    pub name: String,
    /// Type in the source; empty likewise.
    pub ty: String,
}

/// Places of the same kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Kind of place.
    pub site: Site,
    /// What is there, as `|kind=` takes it; `None` where there is no such selector.
    pub kind: Option<&'static str>,
    /// As `|space=` takes it, of accesses.
    pub space: Option<&'static str>,
    /// Bytes of an access by one lane, where the text says how many.
    pub bytes: Option<u32>,
    /// The device function, of `func` and `funcret`.
    pub function: Option<String>,
    /// How many there are.
    pub count: usize,
    /// How many of them no program can be put before, by reason.
    pub barred: BTreeMap<&'static str, usize>,
}

/// A source line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Path as the compiler knew it.
    pub file: String,
    /// Line in it.
    pub line: u32,
    /// Pieces of code that it became: as often does a `gpu/line` program stand there.
    pub pieces: usize,
    /// Places on it by kind: accesses, barriers, branches.
    pub places: BTreeMap<Site, usize>,
}

/// What can be probed in the kernels of an image that `glob` names. What stands against a kernel is
/// in its `method`.
pub fn sites(image: &ImageInfo, glob: &str) -> Vec<KernelSites> {
    let wanted = image
        .kernels
        .iter()
        .filter(|kernel| names::matches(glob, &kernel.mangled));
    let all_refused = |reason: &str| {
        wanted
            .clone()
            .map(|kernel| {
                let list = SiteList::default();
                listed(kernel, Method::refused(reason), Vec::new(), &list)
            })
            .collect()
    };
    let Some(ptx) = image.ptx.as_deref() else {
        return all_refused(image.why_no_ptx.as_deref().unwrap_or("it has no PTX"));
    };
    let module = match warpbpf_ptx::index(ptx) {
        Ok(module) => module,
        Err(error) => return all_refused(&format!("its PTX cannot be read: {error}")),
    };
    let patcher = Patcher::new(&module);
    let debug = Arguments::new(&module);
    wanted
        .map(|kernel| {
            let method = in_ptx::method(patcher.method(&kernel.mangled));
            let given = arguments(&module, &debug, &kernel.mangled);
            match patcher.list_sites(&kernel.mangled) {
                Ok(list) => listed(kernel, method, given, &list),
                Err(error) => {
                    let method = Method::refused(error.to_string());
                    listed(kernel, method, given, &SiteList::default())
                }
            }
        })
        .collect()
}

fn arguments(module: &Module<'_>, debug: &Arguments<'_, '_>, kernel: &str) -> Vec<Argument> {
    let params = module.function(kernel).map_or(&[][..], |f| &f.params);
    let mut named = debug.of(kernel).into_iter();
    params
        .iter()
        .map(|param| {
            let (name, ty) = named
                .next()
                .map_or_else(Default::default, |a| (a.name, a.ty));
            let ptx = match param.array {
                Some(n) => format!("{}[{n}]", param.ty),
                None => param.ty.to_owned(),
            };
            Argument { ptx, name, ty }
        })
        .collect()
}

/// Pieces of code of a line, and places on it.
type OnLine = (usize, BTreeMap<Site, usize>);

/// What makes two places the same.
type Group = (
    Site,
    Option<Kind>,
    Option<Barrier>,
    Option<Space>,
    Option<u32>,
    Option<String>,
);

fn group(fact: &SiteFact) -> Group {
    let site = fact.info.site;
    match fact.detail {
        Detail::Access {
            kind, space, bytes, ..
        } => (site, Some(kind), None, Some(space), bytes, None),
        Detail::Barrier(barrier) => (site, None, Some(barrier), None, None, None),
        Detail::None => {
            let function = matches!(site, Site::Func | Site::FuncRet)
                .then(|| names::demangle(&fact.info.function));
            (site, None, None, None, None, function)
        }
    }
}

fn listed(
    kernel: &KernelSummary,
    method: Method,
    arguments: Vec<Argument>,
    list: &SiteList,
) -> KernelSites {
    let mut groups: BTreeMap<Group, (usize, BTreeMap<&'static str, usize>)> = BTreeMap::new();
    let mut lines: BTreeMap<(&str, u32), OnLine> = BTreeMap::new();
    for fact in &list.sites {
        if let Some((file, line)) = &fact.info.at {
            let (pieces, places) = lines.entry((file, *line)).or_default();
            match fact.info.site {
                Site::Line => *pieces += 1,
                site => *places.entry(site).or_default() += 1,
            }
        }
        if fact.info.site != Site::Line {
            let (count, barred) = groups.entry(group(fact)).or_default();
            *count += 1;
            if let Some(reason) = fact.barred {
                *barred.entry(reason).or_default() += 1;
            }
        }
    }
    let mut opcodes: Vec<(String, usize)> = list
        .opcodes
        .iter()
        .map(|(op, count)| (op.clone(), *count))
        .collect();
    opcodes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    KernelSites {
        mangled: kernel.mangled.clone(),
        demangled: kernel.demangled.clone(),
        source: kernel.source.clone(),
        method,
        arguments,
        places: groups
            .into_iter()
            .map(
                |((site, kind, barrier, space, bytes, function), (count, barred))| Places {
                    site,
                    kind: kind.map(Kind::word).or(barrier.map(Barrier::word)),
                    space: space.map(Space::word),
                    bytes,
                    function,
                    count,
                    barred,
                },
            )
            .collect(),
        lines: lines
            .into_iter()
            .map(|((file, line), (pieces, places))| Line {
                file: file.to_owned(),
                line,
                pieces,
                places,
            })
            .collect(),
        opcodes,
    }
}
