//! What is wrong with a section name, and what may stand there.

use warpbpf_abi::choice::ChoiceError;

use super::words::places;

/// Why a section name is not an attach point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum SectionError {
    #[error(
        "`{program}`: section `{section}` is not an attach point{}; write `gpu/PLACE/KERNEL`, where the place is {}, with `.warp` or `.block` after it for another scope",
        did_you_mean(meant),
        places()
    )]
    Unknown {
        program: String,
        section: String,
        meant: Option<String>,
    },
    #[error(
        "`{program}`: there is no place `{place}` (section `{section}`){}; places are {}",
        did_you_mean(meant),
        places()
    )]
    Place {
        program: String,
        section: String,
        place: String,
        meant: Option<String>,
    },
    #[error(
        "`{program}`: scope `{scope}` in section `{section}` is unknown{}; scopes are `thread`, `warp` and `block`",
        did_you_mean(meant)
    )]
    Scope {
        program: String,
        section: String,
        scope: String,
        meant: Option<String>,
    },
    #[error(
        "`{program}`: scope `{scope}` has no meaning at `{place}` (section `{section}`); scopes there are {allowed}"
    )]
    ScopeHere {
        program: String,
        section: String,
        scope: String,
        place: &'static str,
        allowed: String,
    },
    #[error(
        "`{program}`: section `{section}` names no kernel; write a name or a glob, for example `gpu/{place}/*`"
    )]
    NoKernel {
        program: String,
        section: String,
        place: &'static str,
    },
    #[error(
        "`{program}`: `{part}` in section `{section}` is not `key=value`; `gpu/{place}`: {allowed}"
    )]
    Shape {
        program: String,
        section: String,
        part: String,
        place: &'static str,
        allowed: String,
    },
    #[error("`{program}`: `gpu/{place}` has no key `{key}` (section `{section}`){allowed}")]
    Key {
        program: String,
        section: String,
        key: String,
        place: &'static str,
        allowed: String,
    },
    #[error("`{program}`: `{key}` is given twice in section `{section}`; {advice}")]
    Twice {
        program: String,
        section: String,
        key: &'static str,
        advice: &'static str,
    },
    #[error("`{program}`: `{key}` cannot be `{value}` in section `{section}`; it is {allowed}")]
    Value {
        program: String,
        section: String,
        key: &'static str,
        value: String,
        allowed: String,
    },
    #[error("`{program}`: {error} (section `{section}`)")]
    Launches {
        program: String,
        section: String,
        error: ChoiceError,
    },
    #[error("`{program}`: no access has the size that section `{section}` asks for")]
    NoSize { program: String, section: String },
    #[error(
        "`{program}`: `gpu/{place}` needs `{key}=` (section `{section}`); write for example `gpu/{place}/*|{example}`"
    )]
    Needs {
        program: String,
        section: String,
        place: &'static str,
        key: &'static str,
        example: &'static str,
    },
    #[error(
        "`{program}`: section `{section}` is none that runs here: in kernels it is `gpu/…`, or bpftime's `kprobe/` and `kretprobe/` on functions named `cuda__*`; `warpbpf run`, `attach` and `serve` bring programs to Linux, beside some for kernels (`tracepoint/`, `raw_tp/`, `tp_btf/`, `fentry/`, `fexit/`, `kprobe/`, `uprobe.k/FILE:FUNCTION`)"
    )]
    HostSide { program: String, section: String },
    #[error(
        "`{program}`: section `{section}` is for a function on the CPU: write `{head}.k/FILE:FUNCTION` to have Linux run it (`warpbpf run`, `attach` and `serve`, beside a program for kernels), attach it from a tool of libbpf under `warpbpf loader`, or write it as a script (`warpbpf trace -e '{head}:FILE:FUNCTION {{ … }}'`)"
    )]
    OnCpu {
        program: String,
        section: String,
        head: String,
    },
    #[error("`{program}`: section `{section}` is bpftime's `{name}`, which goes with `kprobe/`")]
    NotAtExit {
        program: String,
        section: String,
        name: &'static str,
    },
}

/// ` (did you mean …?)`, if something is near.
pub(super) fn did_you_mean(name: &Option<String>) -> String {
    let text = |name: &String| format!(" (did you mean `{name}`?)");
    name.as_ref().map_or(String::new(), text)
}
