//! From the text of a probe to what it is.

use warpbpf_abi::attach::{SITES, Scope};
use warpbpf_abi::nearest::nearest;

use crate::ast::{Probe, ProbeKind};
use crate::error::{Problem, ScriptError};
use crate::lex::PROBES;
use crate::span::Span;

const SCOPES: [Scope; 3] = [Scope::Thread, Scope::Warp, Scope::Block];

/// Reads one.
///
/// # Errors
/// A word that is no probe, place or scope, and a probe that lacks a part.
pub fn probe(text: &str, span: Span) -> Result<Probe, ScriptError> {
    let (head, rest) = match text.split_once(':') {
        Some((head, rest)) => (head, Some(rest)),
        None => (text, None),
    };
    let part = |word: &str, from: usize| Span {
        start: span.start + from,
        end: span.start + from + word.len(),
    };
    if let Some(blank) = head.find(char::is_whitespace) {
        let word = head[..blank].to_owned();
        return Err(unknown(&word).at(part(&word, 0)));
    }
    let shape = |shape| {
        Err(Problem::ProbeShape {
            probe: text.to_owned(),
            shape,
        }
        .at(span))
    };
    let kind = match (head, rest) {
        ("BEGIN", None) => ProbeKind::Begin,
        ("END", None) => ProbeKind::End,
        ("gpu", Some(rest)) => {
            const SHAPE: &str =
                "gpu:WHERE:KERNEL`, such as `gpu:entry:*` or `gpu:exit.block:*gemm*";
            let Some((place, kernels)) = rest.split_once(':') else {
                return shape(SHAPE);
            };
            if kernels.is_empty() {
                return shape(SHAPE);
            }
            let (site, scope) = place.split_once('.').unwrap_or((place, "thread"));
            let words = || SITES.iter().map(|site| site.word());
            let Some(found) = SITES.iter().find(|known| known.word() == site) else {
                let problem = Problem::Place {
                    word: site.to_owned(),
                    meant: nearest(site, words()).map(str::to_owned),
                };
                return Err(problem.at(part(site, "gpu:".len())));
            };
            let Some(found_scope) = SCOPES.iter().find(|known| known.word() == scope) else {
                let words = SCOPES.iter().map(|scope| scope.word());
                let problem = Problem::Scope {
                    word: scope.to_owned(),
                    meant: nearest(scope, words).map(str::to_owned),
                };
                return Err(problem.at(part(scope, "gpu:".len() + site.len() + 1)));
            };
            ProbeKind::Gpu {
                site: *found,
                scope: *found_scope,
            }
        }
        ("cuda" | "cudaret", rest) => {
            let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
                return shape(
                    "cuda:FUNCTION`, such as `cuda:cuLaunchKernel` or `cudaret:cuMemcpy*",
                );
            };
            if rest.contains(char::is_whitespace) {
                return shape("cuda:FUNCTION`, without blanks, such as `cuda:cuLaunchKernel");
            }
            ProbeKind::Cuda {
                at_end: head == "cudaret",
            }
        }
        ("uprobe" | "uretprobe", rest) => {
            let parts = rest.and_then(|rest| rest.rsplit_once(':'));
            let Some((file, function)) = parts.filter(|(f, n)| !f.is_empty() && !n.is_empty())
            else {
                return shape("uprobe:FILE:FUNCTION`, such as `uprobe:./app:main");
            };
            ProbeKind::Function {
                at_end: head == "uretprobe",
                file: file.to_owned(),
                function: function.to_owned(),
            }
        }
        ("interval", rest) => {
            const SHAPE: &str = "interval:s:N` or `interval:ms:N";
            let Some((unit, number)) = rest.and_then(|rest| rest.split_once(':')) else {
                return shape(SHAPE);
            };
            let factor = match unit {
                "ms" => 1,
                "s" => 1000,
                _ => return shape(SHAPE),
            };
            let number = number.parse::<u64>().ok().filter(|number| *number > 0);
            let Some(ms) = number.and_then(|number| number.checked_mul(factor)) else {
                return shape(SHAPE);
            };
            ProbeKind::Interval { ms }
        }
        ("tracepoint" | "fentry" | "fexit" | "kprobe" | "kretprobe", _) => {
            let problem = Problem::Unserved {
                what: format!("`{head}`, a probe in Linux,"),
                instead: "`warpbpf trace` has no probes in Linux yet: write a program in C for `warpbpf run` (docs/attach.md)".into(),
            };
            return Err(problem.at(part(head, 0)));
        }
        ("BEGIN" | "END", Some(_)) => return shape("BEGIN` or `END"),
        ("gpu", None) => return shape("gpu:WHERE:KERNEL`, such as `gpu:entry:*"),
        _ => return Err(unknown(head).at(part(head, 0))),
    };
    Ok(Probe {
        text: text.to_owned(),
        span,
        kind,
    })
}

fn unknown(word: &str) -> Problem {
    Problem::Probe {
        word: word.to_owned(),
        meant: nearest(word, PROBES).map(str::to_owned),
    }
}
