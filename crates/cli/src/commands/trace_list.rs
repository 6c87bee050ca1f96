//! `warpbpf trace -l`: which probes one stands for, by what is in the application's file and in the
//! table of the driver's functions. Nothing runs.

use std::ffi::OsStr;
use std::path::Path;

use warpbpf_abi::access::{Barrier, Kind, Space};
use warpbpf_abi::attach::Site;
use warpbpf_abi::cuda;
use warpbpf_script::ast::ProbeKind;
use warpbpf_script::{gpu_section, one_probe};
use warpbpf_session::listing::{KernelSites, Places, sites};
use warpbpf_session::names::is_like;
use warpbpf_session::section::{AttachSpec, SectionError, parse};

use super::splice::images;
use crate::report::table::counted;
use crate::term::error::CliError;
use crate::term::output::say;
use crate::term::plain;

/// Of which architecture the code of a file is looked at, as `warpbpf sites` does.
const CAPABILITY: (u32, u32) = (9, 0);

/// Prints them.
///
/// # Errors
/// What is no probe, what nothing is like, and a file that has no kernels.
pub fn list(text: &str, application: Option<&OsStr>) -> Result<u8, CliError> {
    let probe = one_probe(text).map_err(|error| CliError::Script {
        shown: error.render("-l", text, false),
    })?;
    let found = match &probe.kind {
        ProbeKind::Cuda { .. } => functions(&probe.text)?,
        ProbeKind::Gpu { site, .. } => {
            let Some(application) = application else {
                return Err(CliError::Other(format!(
                    "`{text}` is in kernels: name the file that has them, as in `warpbpf trace -l '{text}' -- ./app`"
                )));
            };
            let path = Path::new(application);
            let spec = spec(&probe.text, *site).map_err(|error| CliError::Refused {
                path: text.to_owned(),
                message: error.to_string(),
            })?;
            if let Some(selector) = not_in_a_list(&spec) {
                return Err(CliError::Other(format!(
                    "`-l` does not tell places by `{selector}=`: leave it out, or see `warpbpf sites {} --lines` and `--insns`",
                    path.display()
                )));
            }
            let kernels: Vec<KernelSites> = images(path, CAPABILITY)?
                .iter()
                .flat_map(|image| sites(image, &spec.kernels))
                .collect();
            kernels
                .iter()
                .flat_map(|kernel| probes(kernel, &spec))
                .collect()
        }
        _ => {
            return Err(CliError::Other(format!(
                "`{text}` stands for itself: `-l` lists places in kernels (`gpu:mem:*`) and functions of the driver (`cuda:*`)"
            )));
        }
    };
    if found.is_empty() {
        let place = application.map_or_else(|| text.to_owned(), |app| app.to_string_lossy().into());
        return Err(CliError::Refused {
            path: place,
            message: format!(
                "nothing there is like `{text}`; `warpbpf kernels -- APP` runs an application and lists the kernels that it loads"
            ),
        });
    }
    let lines: Vec<String> = found.iter().map(|line| format!("{line}\n")).collect();
    say(&lines.concat());
    Ok(0)
}

/// Functions of the driver API.
fn functions(probe: &str) -> Result<Vec<String>, CliError> {
    let (head, glob) = probe.split_once(':').unwrap_or((probe, "*"));
    let apis = cuda::apis();
    let named = apis.iter().filter(|api| is_like(glob, api.name));
    let found: Vec<String> = named.map(|api| format!("{head}:{}", api.name)).collect();
    match found.is_empty() {
        false => Ok(found),
        true => Err(CliError::Refused {
            path: probe.to_owned(),
            message: format!(
                "the driver API has no such function; did you mean `{}`?",
                cuda::nearest(glob).join("`, `")
            ),
        }),
    }
}

/// What a probe in kernels selects. All lines and all instructions can be listed, though no program
/// can be at all of them.
fn spec(probe: &str, site: Site) -> Result<AttachSpec, SectionError> {
    let all = match site {
        Site::Line if !probe.contains("at=") => "at=any:1",
        Site::Insn if !probe.contains("op=") => "op=*",
        _ => "",
    };
    let bar = match (all, probe.contains('|')) {
        ("", _) => "",
        (_, true) => ",",
        (_, false) => "|",
    };
    let mut spec = parse("probe", &gpu_section(&format!("{probe}{bar}{all}")))?;
    if site == Site::Line && !all.is_empty() {
        spec.select.at = None;
    }
    Ok(spec)
}

/// A selector by which the list of a file does not tell places.
fn not_in_a_list(spec: &AttachSpec) -> Option<&'static str> {
    let select = &spec.select;
    if !select.caches.is_empty() {
        return Some("cache");
    }
    if select.op.is_some() && spec.site != Site::Insn {
        return Some("op");
    }
    if select.at.is_some() && spec.site != Site::Line {
        return Some("at");
    }
    let of_functions = matches!(spec.site, Site::Func | Site::FuncRet);
    (spec.functions.is_some() && !of_functions).then_some("func")
}

/// The probes that one is in a kernel, each with how many places it has there.
fn probes(kernel: &KernelSites, spec: &AttachSpec) -> Vec<String> {
    let scope = match spec.scope.word() {
        "thread" => String::new(),
        scope => format!(".{scope}"),
    };
    let name = match kernel.demangled.contains(char::is_whitespace) {
        true => format!("\"{}\"", kernel.demangled),
        false => kernel.demangled.clone(),
    };
    let head = format!("gpu:{}{scope}:{}", spec.site.word(), plain::name(&name));
    if let Some(why) = kernel.method.why_not() {
        return vec![format!("{head}  not there: {}", plain::name(why))];
    }
    let line = |selectors: &str, count: usize| {
        let selectors = plain::name(selectors);
        match count {
            0 => format!("{head}{selectors}"),
            _ => format!("{head}{selectors}  {}", counted(count as u128, "place")),
        }
    };
    match spec.site {
        Site::Entry | Site::Exit => vec![line("", 0)],
        Site::Line => {
            let wanted = kernel.lines.iter().filter(|at| match &spec.select.at {
                None => true,
                Some((file, number)) => {
                    let ends = at.file.strip_suffix(file.as_str());
                    at.line == *number && ends.is_some_and(|b| b.is_empty() || b.ends_with('/'))
                }
            });
            wanted
                .map(|at| line(&format!("|at={}:{}", at.file, at.line), at.pieces))
                .collect()
        }
        Site::Insn => {
            let op = spec.select.op.as_deref().unwrap_or("*");
            let wanted = kernel.opcodes.iter().filter(|(name, _)| is_like(op, name));
            wanted
                .map(|(op, count)| line(&format!("|op={op}"), *count))
                .collect()
        }
        Site::Mem | Site::Barrier | Site::Func | Site::FuncRet | Site::Branch => {
            let places = kernel.places.iter();
            let wanted =
                places.filter(|places| places.site == spec.site && is_wanted(places, spec));
            wanted
                .map(|places| {
                    let mut selectors = Vec::new();
                    for (key, word) in [
                        ("func", places.function.clone()),
                        ("space", places.space.map(str::to_owned)),
                        ("kind", places.kind.map(str::to_owned)),
                        ("size", places.bytes.map(|bytes| bytes.to_string())),
                    ] {
                        if let Some(word) = word {
                            selectors.push(format!("{key}={word}"));
                        }
                    }
                    let bar = if selectors.is_empty() { "" } else { "|" };
                    line(&format!("{bar}{}", selectors.join(",")), places.count)
                })
                .collect()
        }
    }
}

/// What the probe's own selectors let through.
fn is_wanted(places: &Places, spec: &AttachSpec) -> bool {
    let select = &spec.select;
    let kind = places.kind.unwrap_or_default();
    let space = places.space.and_then(Space::from_word);
    let is_kind = match places.site {
        Site::Barrier => {
            let kind = Barrier::from_word(kind);
            select.barriers.is_empty() || kind.is_some_and(|kind| select.barriers.contains(&kind))
        }
        _ => {
            let kind = Kind::from_word(kind);
            select.kinds.is_empty() || kind.is_some_and(|kind| select.kinds.contains(&kind))
        }
    };
    let is_space = select.spaces.is_empty() || space.is_some_and(|s| select.spaces.contains(&s));
    let is_size = match (&select.bytes, places.bytes) {
        (Some(range), Some(bytes)) => range.contains(&bytes),
        _ => true,
    };
    let function = places.function.as_deref().unwrap_or_default();
    let is_function = spec
        .functions
        .as_deref()
        .is_none_or(|glob| is_like(glob, function));
    is_kind && is_space && is_size && is_function
}
