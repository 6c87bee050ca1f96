//! Section names as attach points: `gpu/<where>[.<scope>]/<kernel glob>[|key=value,…]`, and
//! bpftime's `kprobe/` and `kretprobe/` with its three special names.
//!
//! Globs are over C++ names, which hold `::`, `<` and commas. So selectors stand behind `|`, and a
//! comma ends a value only outside brackets.

mod error;
mod words;

use std::borrow::Cow;
use std::ops::RangeInclusive;

use warpbpf_abi::access::{Barrier, Cache, Kind, Space};
use warpbpf_abi::attach::{SITES, Scope, Site, When};
use warpbpf_abi::choice::{ChoiceError, ChoiceKey, ChoiceRequest};
use warpbpf_abi::context::{self, ARGS, Context};
use warpbpf_abi::nearest::nearest;
use warpbpf_patch::Select;

use crate::plan::section::words::{RUN, listed};

pub use error::SectionError;

/// Where a program wants to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachSpec {
    /// What it is to its kernel.
    pub form: Form,
    /// Kind of site.
    pub site: Site,
    /// How often it fires there.
    pub scope: Scope,
    /// Glob over kernel names.
    pub kernels: String,
    /// Which of the sites of that kind. Its `functions` is `None`: they are found per module, by
    /// [`AttachSpec::functions`].
    pub select: Select,
    /// Glob over the functions, the kernel itself among them, that the sites must be in.
    pub functions: Option<String>,
    /// Names of the kernel's parameters that the context's `args` are, in this order; none: all by
    /// position.
    pub arguments: Vec<String>,
    /// Which launches it is in, as far as it says.
    pub launches: ChoiceRequest,
}

impl AttachSpec {
    /// What `r1` points to.
    pub fn context(&self) -> &'static Context {
        match self.form {
            Form::Probe | Form::Run => context::of(self.site),
            Form::MemCapture => &CAPTURED_TEXT,
        }
    }
}

/// What a program is to its kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// It fires inside an application's kernel.
    Probe,
    /// bpftime's `__memcapture`: a probe at loads and stores without a context of ours.
    MemCapture,
    /// It is the kernel (`gpu/run`, bpftime's `__directly_run`).
    Run,
}

/// bpftime gives `__memcapture` programs the text of the instruction, at an address in memory. This
/// version gives them none, so that reading it is refused: a field of another struct at that offset
/// would be a wrong answer.
static CAPTURED_TEXT: Context = Context {
    c_name: "the PTX text of __memcapture, which this version does not give: use gpu/mem and its fields",
    size: 0,
    fields: &[],
};

/// bpftime's names of no kernel.
const MEM_CAPTURE: &str = "__memcapture";
const DIRECTLY_RUN: &str = "__directly_run";
/// The device function that an application calls where it wants to be traced. bpftime calls the
/// program in its place.
const STUB: &str = "__bpftime_cuda__kernel_trace";
/// All of these; what they ask for goes with `kprobe/`.
pub const SPECIAL: [&str; 3] = [MEM_CAPTURE, DIRECTLY_RUN, STUB];

const SCOPES: &[Scope] = &[Scope::Thread, Scope::Warp, Scope::Block];
const WHENS: &[When] = &[When::Before, When::After];
const HOST_SIDE: &[&str] = &[
    "kprobe",
    "kretprobe",
    "uprobe.k",
    "uretprobe.k",
    "fentry",
    "fentry.s",
    "fexit",
    "fexit.s",
    "tracepoint",
    "tp",
    "raw_tp",
    "raw_tracepoint",
    "tp_btf",
    "perf_event",
    "usdt",
    "cuda",
    "cudaret",
    "policy",
];

/// A selector's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Kind,
    Space,
    Cache,
    Size,
    Op,
    At,
    Func,
    When,
    Args,
}

impl Key {
    const fn word(self) -> &'static str {
        match self {
            Key::Kind => "kind",
            Key::Space => "space",
            Key::Cache => "cache",
            Key::Size => "size",
            Key::Op => "op",
            Key::At => "at",
            Key::Func => "func",
            Key::When => "when",
            Key::Args => "args",
        }
    }
}

/// The keys that mean something at a place.
const fn keys(site: Site) -> &'static [Key] {
    match site {
        Site::Entry | Site::Exit => &[Key::Args],
        Site::Mem => &[
            Key::Kind,
            Key::Space,
            Key::Cache,
            Key::Size,
            Key::Op,
            Key::At,
            Key::Func,
            Key::When,
            Key::Args,
        ],
        Site::Barrier => &[Key::Kind, Key::Op, Key::At, Key::Func, Key::When, Key::Args],
        Site::Func | Site::FuncRet => &[Key::Func, Key::Args],
        Site::Insn => &[Key::Op, Key::At, Key::Func, Key::When, Key::Args],
        // What stands first on a line is the compiler's choice, and behind a branch its takers do
        // not come.
        Site::Line => &[Key::At, Key::Func, Key::Args],
        Site::Branch => &[Key::Op, Key::At, Key::Func, Key::Args],
    }
}

/// A block has one entry and one last exit, but passes other places any number of times.
const fn scopes(site: Site) -> &'static [Scope] {
    match site {
        Site::Entry | Site::Exit => SCOPES,
        Site::Mem
        | Site::Barrier
        | Site::Func
        | Site::FuncRet
        | Site::Insn
        | Site::Line
        | Site::Branch => &[Scope::Thread, Scope::Warp],
    }
}

/// What selectors a place takes.
fn keys_text(site: Site) -> String {
    let own = match keys(site) {
        [key] => format!("its key is `{}`", key.word()),
        keys => format!(
            "its keys are {}",
            listed(keys.iter().map(|key| key.word()), "and")
        ),
    };
    let launches = listed(ChoiceKey::ALL.iter().map(|key| key.word()), "and");
    format!("{own}; of every place are {launches}, which choose launches")
}

/// Reads a section name. `program` is the C function's name: bpftime tells GPU programs by its
/// `cuda__` prefix.
///
/// # Errors
/// [`SectionError`]: what is wrong, and what may stand there.
pub fn parse(program: &str, section: &str) -> Result<AttachSpec, SectionError> {
    let reading = Reading { program, section };
    let (head, rest) = section.split_once('/').unwrap_or((section, ""));
    if let Some(site) = bpftime_site(program, head) {
        return reading.bpftime(site, rest);
    }
    let (program, section) = (program.to_owned(), section.to_owned());
    if head == "gpu" {
        reading.gpu(rest)
    } else if matches!(head, "uprobe" | "uretprobe") {
        let head = head.to_owned();
        Err(SectionError::OnCpu {
            program,
            section,
            head,
        })
    } else if HOST_SIDE.contains(&head) {
        Err(SectionError::HostSide { program, section })
    } else {
        // `gup/entry/KERNEL`, or only the place.
        let words = || SITES.iter().map(|site| site.word()).chain([RUN]);
        let place = |word: &str| {
            let known = words().find(|place| *place == word);
            known.or_else(|| nearest(word, words()))
        };
        let meant = match (nearest(head, ["gpu"]), rest) {
            (Some(gpu), rest) => Some(format!("{gpu}/{rest}")),
            (None, "") => place(head).map(|place| format!("gpu/{place}/*")),
            (None, rest) => place(head).map(|place| format!("gpu/{place}/{rest}")),
        };
        Err(SectionError::Unknown {
            program,
            section,
            meant,
        })
    }
}

fn bpftime_site(program: &str, head: &str) -> Option<Site> {
    if !program.starts_with("cuda__") {
        return None;
    }
    match head {
        "kprobe" => Some(Site::Entry),
        "kretprobe" => Some(Site::Exit),
        _ => None,
    }
}

/// The kernel that bpftime means by `NAME`. Its forms for Linux's own maps say `cuda_` in front of
/// it, which is no part of the kernel's name there; a kernel of that whole name is meant as well.
pub fn bpftime_kernel(name: &str) -> Cow<'_, str> {
    const PREFIX: &str = "cuda_";
    match name.strip_prefix(PREFIX) {
        Some(kernel) if !kernel.is_empty() => format!("[{PREFIX}]{kernel}").into(),
        _ => name.into(),
    }
}

fn spec(form: Form, site: Site, kernels: &str) -> AttachSpec {
    AttachSpec {
        form,
        site,
        scope: Scope::Thread,
        kernels: kernels.to_owned(),
        select: Select::default(),
        functions: None,
        arguments: Vec::new(),
        launches: ChoiceRequest::default(),
    }
}

/// A section name being read.
#[derive(Clone, Copy)]
struct Reading<'a> {
    program: &'a str,
    section: &'a str,
}

impl<'a> Reading<'a> {
    fn whose(self) -> (String, String) {
        (self.program.to_owned(), self.section.to_owned())
    }

    fn no_kernel(self, place: &'static str) -> SectionError {
        let (program, section) = self.whose();
        SectionError::NoKernel {
            program,
            section,
            place,
        }
    }

    fn bpftime(self, site: Site, rest: &str) -> Result<AttachSpec, SectionError> {
        match (rest, site) {
            ("", _) => Err(self.no_kernel(site.word())),
            (MEM_CAPTURE, Site::Entry) => {
                let mut spec = spec(Form::MemCapture, Site::Mem, "*");
                spec.select.kinds = vec![Kind::Load, Kind::Store];
                spec.select.when = When::After;
                Ok(spec)
            }
            (DIRECTLY_RUN, Site::Entry) => Ok(spec(Form::Run, Site::Entry, self.program)),
            (STUB, Site::Entry) => Ok(AttachSpec {
                functions: Some(STUB.to_owned()),
                ..spec(Form::Probe, Site::Func, "*")
            }),
            (name, _) => match SPECIAL.into_iter().find(|s| *s == name) {
                Some(name) => {
                    let (program, section) = self.whose();
                    Err(SectionError::NotAtExit {
                        program,
                        section,
                        name,
                    })
                }
                None => Ok(spec(Form::Probe, site, &bpftime_kernel(name))),
            },
        }
    }

    /// Behind `gpu/`.
    fn gpu(self, rest: &str) -> Result<AttachSpec, SectionError> {
        let (place, kernels) = rest.split_once('/').unwrap_or((rest, ""));
        let (place, scope) = place
            .split_once('.')
            .unwrap_or((place, Scope::Thread.word()));
        if place == RUN {
            return self.run(scope, kernels);
        }
        let Some(site) = SITES.iter().copied().find(|s| s.word() == place) else {
            let (program, section) = self.whose();
            let words = SITES.iter().map(|site| site.word()).chain([RUN]);
            return Err(SectionError::Place {
                program,
                section,
                place: place.to_owned(),
                meant: nearest(place, words).map(str::to_owned),
            });
        };
        let scope = self.scope(scope, site.word(), scopes(site))?;
        let (kernels, selectors) = match kernels.split_once('|') {
            Some((kernels, selectors)) => (kernels, Some(selectors)),
            None => (kernels, None),
        };
        if kernels.is_empty() {
            return Err(self.no_kernel(site.word()));
        }
        let mut spec = AttachSpec {
            scope,
            ..spec(Form::Probe, site, kernels)
        };
        let mut given = Vec::new();
        for part in selectors.into_iter().flat_map(split) {
            self.selector(part, &mut given, &mut spec)?;
        }
        self.check_needs(site, &given)?;
        Ok(spec)
    }

    /// A program that is a kernel has the name of its function, or one of its own.
    fn run(self, scope: &str, name: &str) -> Result<AttachSpec, SectionError> {
        self.scope(scope, RUN, &[Scope::Thread])?;
        let name = if name.is_empty() { self.program } else { name };
        Ok(spec(Form::Run, Site::Entry, name))
    }

    fn scope(
        self,
        word: &str,
        place: &'static str,
        allowed: &[Scope],
    ) -> Result<Scope, SectionError> {
        let (program, section) = self.whose();
        match SCOPES.iter().copied().find(|s| s.word() == word) {
            None => Err(SectionError::Scope {
                program,
                section,
                scope: word.to_owned(),
                meant: nearest(word, allowed.iter().map(|s| s.word())).map(str::to_owned),
            }),
            Some(scope) if !allowed.contains(&scope) => Err(SectionError::ScopeHere {
                program,
                section,
                scope: word.to_owned(),
                place,
                allowed: listed(allowed.iter().map(|s| s.word()), "and"),
            }),
            Some(scope) => Ok(scope),
        }
    }

    fn check_needs(self, site: Site, given: &[Key]) -> Result<(), SectionError> {
        let needed = match site {
            Site::Insn => Some((Key::Op, "op=mma.*")),
            Site::Line => Some((Key::At, "at=kernel.cu:212")),
            Site::Entry
            | Site::Exit
            | Site::Mem
            | Site::Barrier
            | Site::Func
            | Site::FuncRet
            | Site::Branch => None,
        };
        match needed {
            Some((key, example)) if !given.contains(&key) => {
                let (program, section) = self.whose();
                Err(SectionError::Needs {
                    program,
                    section,
                    place: site.word(),
                    key: key.word(),
                    example,
                })
            }
            _ => Ok(()),
        }
    }

    /// One `key=value`, or `size` with another relation.
    fn selector(
        self,
        part: &str,
        given: &mut Vec<Key>,
        spec: &mut AttachSpec,
    ) -> Result<(), SectionError> {
        let place = spec.site.word();
        let site = spec.site;
        let name_end = part
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(part.len());
        let (name, rest) = part.split_at(name_end);
        let relation = [">=", "<=", "=", ">", "<"]
            .into_iter()
            .find_map(|relation| Some((relation, rest.strip_prefix(relation)?)));
        let shape = || {
            let (program, section) = self.whose();
            SectionError::Shape {
                program,
                section,
                part: part.to_owned(),
                place,
                allowed: keys_text(site),
            }
        };
        if name.is_empty() {
            return Err(shape());
        }
        if let Some(key) = ChoiceKey::of(name) {
            let value = relation.filter(|(relation, _)| *relation == "=");
            let (_, value) = value.ok_or_else(shape)?;
            let said = spec.launches.set(key, value);
            return said.map_err(|error| self.request(error));
        }
        let Some(key) = keys(spec.site).iter().copied().find(|k| k.word() == name) else {
            let (program, section) = self.whose();
            let words = keys(spec.site).iter().map(|key| key.word());
            let words = words.chain(ChoiceKey::ALL.iter().map(|key| key.word()));
            let meant = error::did_you_mean(&nearest(name, words).map(str::to_owned));
            return Err(SectionError::Key {
                program,
                section,
                key: name.to_owned(),
                place,
                allowed: format!("{meant}; {}", keys_text(site)),
            });
        };
        let Some((relation, value)) = relation else {
            return Err(shape());
        };
        if relation != "=" && key != Key::Size {
            return Err(shape());
        }
        if given.contains(&key) && key != Key::Size {
            let (program, section) = self.whose();
            return Err(SectionError::Twice {
                program,
                section,
                key: key.word(),
                advice: match key {
                    Key::Kind | Key::Space | Key::Cache | Key::Args => "join its words by `+`",
                    Key::Size | Key::Op | Key::At | Key::Func | Key::When => {
                        "write a program for each"
                    }
                },
            });
        }
        given.push(key);
        let select = &mut spec.select;
        match key {
            Key::Kind if spec.site == Site::Barrier => {
                select.barriers = self.words(key, value, Barrier::ALL, Barrier::word)?;
            }
            Key::Kind => select.kinds = self.words(key, value, Kind::ALL, Kind::word)?,
            Key::Space => select.spaces = self.words(key, value, Space::ALL, Space::word)?,
            Key::Cache => select.caches = self.words(key, value, Cache::ALL, Cache::word)?,
            Key::When => {
                let allowed = || listed(WHENS.iter().map(|w| w.word()), "or");
                select.when = self.one(key, value, WHENS, When::word, allowed)?;
            }
            Key::Size => {
                select.bytes = Some(self.size(relation, value, select.bytes.as_ref())?);
            }
            Key::Op => {
                select.op =
                    Some(self.text(key, value, "a glob over opcodes, for example `ld.global.*`")?)
            }
            Key::At => select.at = Some(self.place_in_source(value)?),
            Key::Args => spec.arguments = self.names(value)?,
            Key::Func => {
                spec.functions = Some(self.text(
                    key,
                    value,
                    "a glob over function names, for example `ns::*`",
                )?);
            }
        }
        Ok(())
    }

    /// Of a key that chooses launches.
    fn request(self, error: ChoiceError) -> SectionError {
        let (program, section) = self.whose();
        SectionError::Launches {
            program,
            section,
            error,
        }
    }

    fn value(self, key: Key, value: &str, allowed: impl Into<String>) -> SectionError {
        let (program, section) = self.whose();
        SectionError::Value {
            program,
            section,
            key: key.word(),
            value: value.to_owned(),
            allowed: allowed.into(),
        }
    }

    fn text(self, key: Key, value: &str, allowed: &str) -> Result<String, SectionError> {
        match value {
            "" => Err(self.value(key, value, allowed)),
            text => Ok(text.to_owned()),
        }
    }

    /// Names of parameters, joined by `+`, as many as a context has room for.
    fn names(self, value: &str) -> Result<Vec<String>, SectionError> {
        let names: Vec<String> = value.split('+').map(str::to_owned).collect();
        if names.len() > ARGS || names.iter().any(String::is_empty) {
            let allowed =
                format!("up to {ARGS} names of parameters, joined by `+`, for example `n+alpha`");
            return Err(self.value(Key::Args, value, allowed));
        }
        Ok(names)
    }

    fn one<T: Copy>(
        self,
        key: Key,
        word: &str,
        all: &[T],
        name: fn(T) -> &'static str,
        allowed: impl Fn() -> String,
    ) -> Result<T, SectionError> {
        let found = all.iter().copied().find(|item| name(*item) == word);
        found.ok_or_else(|| self.value(key, word, allowed()))
    }

    /// Words joined by `+`.
    fn words<T: Copy + PartialEq>(
        self,
        key: Key,
        value: &str,
        all: &[T],
        name: fn(T) -> &'static str,
    ) -> Result<Vec<T>, SectionError> {
        let allowed = || {
            let words = listed(all.iter().map(|item| name(*item)), "or");
            format!("one of {words}, or several joined by `+`")
        };
        let mut items = Vec::new();
        for word in value.split('+') {
            let item = self.one(key, word, all, name, allowed)?;
            if !items.contains(&item) {
                items.push(item);
            }
        }
        Ok(items)
    }

    /// Narrows what earlier relations left over.
    fn size(
        self,
        relation: &str,
        value: &str,
        before: Option<&RangeInclusive<u32>>,
    ) -> Result<RangeInclusive<u32>, SectionError> {
        let n: u32 = value
            .parse()
            .map_err(|_| self.value(Key::Size, value, "a number of bytes"))?;
        let (low, high) = match relation {
            ">=" => (Some(n), Some(u32::MAX)),
            "<=" => (Some(0), Some(n)),
            ">" => (n.checked_add(1), Some(u32::MAX)),
            "<" => (Some(0), n.checked_sub(1)),
            _ => (Some(n), Some(n)),
        };
        let (least, most) = before.map_or((0, u32::MAX), |r| (*r.start(), *r.end()));
        let range = low
            .zip(high)
            .map(|(low, high)| low.max(least)..=high.min(most))
            .filter(|range| !range.is_empty());
        range.ok_or_else(|| {
            let (program, section) = self.whose();
            SectionError::NoSize { program, section }
        })
    }

    fn place_in_source(self, value: &str) -> Result<(String, u32), SectionError> {
        let parsed = value
            .rsplit_once(':')
            .filter(|(file, _)| !file.is_empty())
            .and_then(|(file, line)| Some((file.to_owned(), line.parse().ok()?)))
            .filter(|(_, line)| *line > 0);
        let allowed = "a file and a line, for example `kernel.cu:212`";
        parsed.ok_or_else(|| self.value(Key::At, value, allowed))
    }
}

/// What follows is part of the name of a C++ operator.
fn is_of_operator(before: &str) -> bool {
    before
        .trim_end_matches(['<', '>', '-', '='])
        .ends_with("operator")
}

/// Selectors, at commas outside brackets. The `<` and `>` of `size<=16` are no brackets.
fn split(selectors: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut depth, mut in_value) = (0, 0i32, false);
    for (at, byte) in selectors.bytes().enumerate() {
        match byte {
            b',' if depth <= 0 => {
                parts.push(selectors[start..at].trim());
                (start, depth, in_value) = (at + 1, 0, false);
            }
            b'=' => in_value = true,
            // `operator<`, `operator->`
            b'<' | b'>' if is_of_operator(&selectors[..at]) => {}
            b'<' | b'(' | b'[' if in_value => depth += 1,
            b'>' | b')' | b']' if in_value => depth -= 1,
            _ => {}
        }
    }
    parts.push(selectors[start..].trim());
    parts
}

#[cfg(test)]
mod tests;
