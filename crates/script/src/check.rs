//! Names and types: from the tree as it was written to one that code is made of.
//!
//! A map may be read in front of the place where it is written, so blocks are looked at several
//! times: what maps are is gathered until nothing new comes, and only then faults are told.

use warpbpf_abi::attach::Scope as Place;

use crate::ast::{Block, Probe, ProbeKind, Script};
use crate::check_expr::Scope;
use crate::check_map::Maps;
use crate::error::{Problem, ScriptError};
use crate::span::Span;
use crate::typed::{Checked, Code, HostBlock, Kind, Moment, Program, Request};

/// Checks a script.
///
/// # Errors
/// All faults that were found, in the order of the script.
pub fn check(source: &str, script: &Script) -> Result<Checked, Vec<ScriptError>> {
    let mut checker = Checker {
        source,
        maps: Maps::default(),
        texts: Vec::new(),
        requests: Vec::new(),
        errors: Vec::new(),
        gathering: true,
    };
    loop {
        checker.maps.learned = false;
        checker.requests.clear();
        checker.all(script);
        if !checker.maps.learned {
            break;
        }
    }
    checker.gathering = false;
    checker.requests.clear();
    let (programs, blocks) = checker.all(script);
    let maps = checker.maps.finish();
    for (request, span) in &checker.requests {
        if let Request::Clear(map) | Request::Zero(map) = request
            && !can_begin_anew(&maps[*map].kind, maps[*map].only_added)
        {
            let problem = Problem::Unserved {
                what: format!("`clear` or `zero` of `{}`", maps[*map].name),
                instead: format!(
                    "it is {}: only counts, sums, averages, statistics and histograms can begin anew",
                    maps[*map].kind.name()
                ),
            };
            checker.errors.push(problem.at(*span));
        }
    }
    if !checker.errors.is_empty() {
        // One fault at several probes of a block is one fault.
        let mut errors: Vec<ScriptError> = Vec::new();
        for error in checker.errors {
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        errors.sort_by_key(|error| error.span.start);
        return Err(errors);
    }
    Ok(Checked {
        maps,
        requests: checker
            .requests
            .into_iter()
            .map(|(request, _)| request)
            .collect(),
        texts: checker.texts,
        programs,
        blocks,
    })
}

/// What is only added to can be shown without what was there before.
fn can_begin_anew(kind: &Kind, only_added: bool) -> bool {
    match kind {
        Kind::Value(_) => only_added,
        Kind::Min | Kind::Max => false,
        _ => true,
    }
}

struct Checker<'s> {
    source: &'s str,
    maps: Maps,
    texts: Vec<String>,
    requests: Vec<(Request, Span)>,
    errors: Vec<ScriptError>,
    gathering: bool,
}

impl Checker<'_> {
    fn all(&mut self, script: &Script) -> (Vec<Program>, Vec<HostBlock>) {
        let (mut programs, mut blocks) = (Vec::new(), Vec::new());
        for block in &script.blocks {
            for probe in &block.probes {
                let code = self.block(block, probe);
                let when = match &probe.kind {
                    ProbeKind::Begin => Moment::Begin,
                    ProbeKind::End => Moment::End,
                    ProbeKind::Interval { ms } => Moment::Every { ms: *ms },
                    ProbeKind::Gpu { .. } | ProbeKind::Cuda { .. } | ProbeKind::Function { .. } => {
                        programs.push(Program {
                            probe: probe.text.clone(),
                            span: probe.span,
                            elects: elects(&code, probe),
                            section: section(probe, &code),
                            function: match &probe.kind {
                                ProbeKind::Function { file, function, .. } => {
                                    Some((file.clone(), function.clone()))
                                }
                                _ => None,
                            },
                            code,
                        });
                        continue;
                    }
                };
                blocks.push(HostBlock { when, code });
            }
        }
        (programs, blocks)
    }

    fn block(&mut self, block: &Block, probe: &Probe) -> Code {
        let mut scope = Scope {
            source: self.source,
            probe,
            maps: &mut self.maps,
            texts: &mut self.texts,
            requests: &mut self.requests,
            variables: Vec::new(),
            first: Vec::new(),
            loops: 0,
            errors: Vec::new(),
            gathering: self.gathering,
        };
        let filter = block.filter.as_ref();
        let filter = match filter.map(|filter| scope.number(filter, "a filter")) {
            Some(Ok(filter)) => Some(filter),
            Some(Err(error)) => {
                scope.errors.push(error);
                None
            }
            None => None,
        };
        let body = scope.statements(&block.body);
        let variables = scope.variables.len();
        let errors = std::mem::take(&mut scope.errors);
        let first = std::mem::take(&mut scope.first);
        if !self.gathering {
            self.errors.extend(errors);
        }
        Code {
            first,
            filter,
            body,
            variables,
        }
    }
}

/// All lanes run the program, as they are asked something together, and then one of them goes on.
fn elects(code: &Code, probe: &Probe) -> bool {
    let one = matches!(
        probe.kind,
        ProbeKind::Gpu {
            scope: Place::Warp,
            ..
        }
    );
    one && !code.first.is_empty()
}

/// The section of a probe in kernels, by its text.
pub fn gpu_section(text: &str) -> String {
    let (head, rest) = text.split_once(':').unwrap_or((text, ""));
    let (place, kernels) = rest.split_once(':').unwrap_or((rest, "*"));
    format!("{head}/{place}/{kernels}")
}

/// The section that says what a probe says.
fn section(probe: &Probe, code: &Code) -> String {
    let (head, rest) = probe.text.split_once(':').unwrap_or((&probe.text, ""));
    match &probe.kind {
        ProbeKind::Gpu { site, .. } => {
            if elects(code, probe) {
                let kernels = rest.split_once(':').map_or("*", |(_, kernels)| kernels);
                return format!("{head}/{}/{kernels}", site.word());
            }
            gpu_section(&probe.text)
        }
        _ => format!("{head}/{rest}"),
    }
}
