//! Section names as attach points: `gpu/<where>[.<scope>]/<kernel glob>`, and bpftime's `kprobe/` and `kretprobe/`.

use warpbpf_abi::attach::{Scope, Site};

/// Where a program wants to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachSpec {
    /// Kind of site.
    pub site: Site,
    /// How often it fires there.
    pub scope: Scope,
    /// Glob over kernel names.
    pub kernels: String,
}

/// Why a section name is not an attach point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum SectionError {
    #[error(
        "`{program}`: section `{section}` is not an attach point; write `gpu/entry/KERNEL` or `gpu/exit/KERNEL`, with `.warp` or `.block` after the place for another scope"
    )]
    Unknown { program: String, section: String },
    #[error(
        "`{program}`: `{place}` in section `{section}` is not served by this version; it has `entry` and `exit`"
    )]
    Place {
        program: String,
        section: String,
        place: String,
    },
    #[error(
        "`{program}`: scope `{scope}` in section `{section}` is unknown; scopes are `thread`, `warp` and `block`"
    )]
    Scope {
        program: String,
        section: String,
        scope: String,
    },
    #[error(
        "`{program}`: section `{section}` names no kernel; write a name or a glob, for example `gpu/entry/*`"
    )]
    NoKernel { program: String, section: String },
    #[error(
        "`{program}`: selector `|{selector}` in section `{section}` is not served by this version"
    )]
    Selector {
        program: String,
        section: String,
        selector: String,
    },
    #[error(
        "`{program}`: section `{section}` is a host-side program; this version runs GPU programs only (`gpu/…`, or bpftime's `kprobe/` and `kretprobe/` on functions named `cuda__*`)"
    )]
    HostSide { program: String, section: String },
}

const PLACES: &[Site] = &[Site::Entry, Site::Exit];
const SCOPES: &[Scope] = &[Scope::Thread, Scope::Warp, Scope::Block];
const HOST_SIDE: &[&str] = &[
    "kprobe",
    "kretprobe",
    "uprobe",
    "uretprobe",
    "fentry",
    "fexit",
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

/// Reads a section name. `program` is the C function's name: bpftime tells GPU programs by its `cuda__` prefix.
pub fn parse(program: &str, section: &str) -> Result<AttachSpec, SectionError> {
    let whose = || (program.to_string(), section.to_string());
    let (head, rest) = section.split_once('/').unwrap_or((section, ""));
    if let Some(site) = bpftime_site(program, head) {
        if rest.is_empty() {
            let (program, section) = whose();
            return Err(SectionError::NoKernel { program, section });
        }
        return Ok(AttachSpec {
            site,
            scope: Scope::Thread,
            kernels: rest.to_string(),
        });
    }
    if head != "gpu" {
        let (program, section) = whose();
        return Err(if HOST_SIDE.contains(&head) {
            SectionError::HostSide { program, section }
        } else {
            SectionError::Unknown { program, section }
        });
    }
    let (place, kernels) = rest.split_once('/').unwrap_or((rest, ""));
    let (place, scope) = place
        .split_once('.')
        .unwrap_or((place, Scope::Thread.word()));
    let Some(site) = PLACES.iter().copied().find(|s| s.word() == place) else {
        let (program, section) = whose();
        return Err(SectionError::Place {
            program,
            section,
            place: place.to_string(),
        });
    };
    let Some(scope) = SCOPES.iter().copied().find(|s| s.word() == scope) else {
        let (program, section) = whose();
        return Err(SectionError::Scope {
            program,
            section,
            scope: scope.to_string(),
        });
    };
    if let Some((_, selector)) = kernels.split_once('|') {
        let (program, section) = whose();
        return Err(SectionError::Selector {
            program,
            section,
            selector: selector.to_string(),
        });
    }
    if kernels.is_empty() {
        let (program, section) = whose();
        return Err(SectionError::NoKernel { program, section });
    }
    Ok(AttachSpec {
        site,
        scope,
        kernels: kernels.to_string(),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(program: &str, section: &str, expect: &str) {
        let got = match parse(program, section) {
            Ok(s) => format!("{} {} {}", s.site.word(), s.scope.word(), s.kernels),
            Err(e) => e.to_string(),
        };
        assert_eq!(got, expect);
    }

    #[test]
    fn accepted_forms() {
        check("p", "gpu/entry/vectorAdd", "entry thread vectorAdd");
        check("p", "gpu/exit.warp/*", "exit warp *");
        check("p", "gpu/exit.block/ns::gemm<*>", "exit block ns::gemm<*>");
        check(
            "cuda__probe",
            "kprobe/_Z9vectorAddPKfS0_Pf",
            "entry thread _Z9vectorAddPKfS0_Pf",
        );
        check(
            "cuda__probe",
            "kretprobe/_Z9vectorAddPKfS0_Pf",
            "exit thread _Z9vectorAddPKfS0_Pf",
        );
    }

    #[test]
    fn refusals_say_what_to_do() {
        check(
            "p",
            "gpu/entry",
            "`p`: section `gpu/entry` names no kernel; write a name or a glob, for example `gpu/entry/*`",
        );
        check(
            "p",
            "gpu/mem/k|kind=load",
            "`p`: `mem` in section `gpu/mem/k|kind=load` is not served by this version; it has `entry` and `exit`",
        );
        check(
            "p",
            "gpu/entry.grid/k",
            "`p`: scope `grid` in section `gpu/entry.grid/k` is unknown; scopes are `thread`, `warp` and `block`",
        );
        check(
            "p",
            "gpu/entry/k|sm=90",
            "`p`: selector `|sm=90` in section `gpu/entry/k|sm=90` is not served by this version",
        );
        check(
            "p",
            "kprobe/do_exit",
            "`p`: section `kprobe/do_exit` is a host-side program; this version runs GPU programs only (`gpu/…`, or bpftime's `kprobe/` and `kretprobe/` on functions named `cuda__*`)",
        );
        check(
            "p",
            "xdp",
            "`p`: section `xdp` is not an attach point; write `gpu/entry/KERNEL` or `gpu/exit/KERNEL`, with `.warp` or `.block` after the place for another scope",
        );
    }
}
