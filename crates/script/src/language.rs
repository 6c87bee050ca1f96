//! The words of the language: what each built-in is at each kind of probe, and which functions
//! there are.

use warpbpf_abi::access::Space;
use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::context;
use warpbpf_abi::cuda;
use warpbpf_abi::helpers::HelperId;

use crate::ast::ProbeKind;
use crate::typed::{Read, Type};

/// All built-ins; those with a number at their end are shown as `arg0`.
pub const BUILTINS: [&str; 45] = [
    "kernel",
    "launch",
    "block",
    "thread",
    "warp",
    "lane",
    "sm",
    "device",
    "active",
    "mask",
    "addr",
    "size",
    "kind",
    "space",
    "file",
    "line",
    "site",
    "value",
    "sectors",
    "conflicts",
    "waited",
    "taken",
    "taken_mask",
    "arg0",
    "nsecs",
    "elapsed",
    "pid",
    "tid",
    "uid",
    "gid",
    "cpu",
    "comm",
    "func",
    "probe",
    "retval",
    "duration",
    "grid",
    "blockIdx.x",
    "blockIdx.y",
    "blockIdx.z",
    "threadIdx.x",
    "threadIdx.y",
    "threadIdx.z",
    "blockDim.x",
    "gridDim.x",
];

/// All functions.
pub const FUNCTIONS: [&str; 15] = [
    "count", "sum", "avg", "min", "max", "stats", "hist", "lhist", "delete", "clear", "print",
    "printf", "zero", "exit", "str",
];

/// Words of the name of a thread.
const COMM_WORDS: u8 = 2;

/// Functions whose value is a map.
pub const AGGREGATES: [&str; 8] = [
    "count", "sum", "avg", "min", "max", "stats", "hist", "lhist",
];

/// Why a built-in has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// There is no such name.
    Unknown,
    /// It is known elsewhere, or never.
    NotHere(String),
}

/// What a built-in is at a probe.
///
/// # Errors
/// [`Missing`]
pub fn builtin(name: &str, probe: &ProbeKind) -> Result<(Type, Read), Missing> {
    match (name, probe) {
        ("nsecs", _) => return Ok((Type::Number, Read::Clock)),
        ("elapsed", _) => return Ok((Type::Number, Read::Elapsed)),
        ("probe", _) => return Ok((Type::Text, Read::Probe)),
        ("args" | "ctx" | "cgroup", _) => {
            return Err(Missing::NotHere(
                "`warpbpf trace` does not have it yet".into(),
            ));
        }
        _ => {}
    }
    match probe {
        ProbeKind::Gpu { site, scope } => match name {
            "sectors" | "conflicts" => touched(name, *site, *scope),
            _ => of_gpu(name, *site),
        },
        ProbeKind::Cuda { at_end } => of_cuda(name, *at_end),
        ProbeKind::Function { at_end, .. } => of_function(name, *at_end),
        ProbeKind::Begin | ProbeKind::End | ProbeKind::Interval { .. } => of_host(name),
    }
}

fn is_known(name: &str) -> bool {
    BUILTINS.contains(&name) || argument(name).is_some() || dimension(name).is_some()
}

fn elsewhere<T>(name: &str, instead: &str) -> Result<T, Missing> {
    match is_known(name) {
        true => Err(Missing::NotHere(instead.to_owned())),
        false => Err(Missing::Unknown),
    }
}

fn argument(name: &str) -> Option<usize> {
    let number: usize = name.strip_prefix("arg")?.parse().ok()?;
    (number.to_string().len() + 3 == name.len()).then_some(number)
}

/// `threadIdx.y` as its field in a context.
fn dimension(name: &str) -> Option<String> {
    let (head, part) = name.split_once('.')?;
    let head = match head {
        "blockIdx" => "block_idx",
        "threadIdx" => "thread_idx",
        "blockDim" => "block_dim",
        "gridDim" => "grid_dim",
        _ => return None,
    };
    let at = ["x", "y", "z"].iter().position(|known| *known == part)?;
    Some(format!("{head}[{at}]"))
}

/// The places whose context has a field.
fn places_with(field: &str) -> String {
    let sites = warpbpf_abi::attach::SITES.iter();
    let has = sites.filter(|site| context::of(**site).fields.iter().any(|f| f.name == field));
    let words: Vec<String> = has.map(|site| format!("`gpu:{}`", site.word())).collect();
    match words.split_last() {
        Some((last, [])) => format!("it is known at {last}"),
        Some((last, before)) => format!("it is known at {} and {last}", before.join(", ")),
        None => "it is known nowhere".into(),
    }
}

fn of_gpu(name: &str, site: Site) -> Result<(Type, Read), Missing> {
    let in_function = matches!(site, Site::Func | Site::FuncRet);
    let dimension = dimension(name);
    let (ty, field) = match name {
        "block" => return Ok((Type::Number, Read::Helper(HelperId::GpuBlockId as u32))),
        "thread" => return Ok((Type::Number, Read::Helper(HelperId::GpuThreadId as u32))),
        "pid" | "uid" | "gid" | "comm" => {
            return of_process(name).ok_or(Missing::Unknown);
        }
        "cpu" => {
            return Err(Missing::NotHere(
                "a kernel runs on no CPU; `sm` is its multiprocessor".into(),
            ));
        }
        "func" => return elsewhere(name, "it is known at `cuda:FUNCTION`"),
        "device" => return Ok((Type::Device, Read::Nothing)),
        "tid" => {
            return Err(Missing::NotHere(
                "a kernel has no thread of the host; `thread` is its own".into(),
            ));
        }
        "retval" | "duration" => {
            return elsewhere(name, "it is known at `cudaret:FUNCTION`");
        }
        "launch" if in_function => {
            return elsewhere(name, "PTX cannot tell it inside of a device function");
        }
        "kernel" => (Type::Kernel, "kernel_id"),
        "launch" => (Type::Number, "launch_id"),
        "grid" => (Type::Number, "grid_id"),
        "warp" => (Type::Number, "warp"),
        "lane" => (Type::Number, "lane"),
        "sm" => (Type::Number, "sm"),
        "active" | "mask" => (Type::Number, "active_mask"),
        "addr" => (Type::Number, "address"),
        "size" => (Type::Number, "bytes"),
        "kind" if site == Site::Barrier => (Type::Barrier, "kind"),
        "kind" => (Type::Access, "kind"),
        "space" => (Type::Space, "space"),
        "file" => (Type::File, "site"),
        "site" => (Type::Site, "site"),
        "line" => (Type::Number, "line"),
        "value" => (Type::Number, "value[0]"),
        "waited" => (Type::Number, "waited"),
        "taken" => (Type::Number, "taken"),
        "taken_mask" => (Type::Number, "taken_mask"),
        _ => match (argument(name), &dimension) {
            (Some(_), _) if in_function => {
                return elsewhere(
                    name,
                    "PTX cannot read parameters inside of a device function",
                );
            }
            (Some(number), _) if number >= context::ARGS => {
                return Err(Missing::NotHere(format!(
                    "the first {} parameters are known; `|args=NAME` chooses others",
                    context::ARGS
                )));
            }
            (Some(number), _) => {
                let field = format!("args[{number}]");
                return field_of(site, &field).map(|read| (Type::Number, read));
            }
            (None, Some(field)) => return field_of(site, field).map(|read| (Type::Number, read)),
            (None, None) => return Err(Missing::Unknown),
        },
    };
    let read = field_of(site, field)?;
    match (name, read) {
        ("active", Read::Field { offset, .. }) => Ok((ty, Read::Lanes(offset))),
        _ => Ok((ty, read)),
    }
}

/// What the lanes that came together access.
fn touched(name: &str, site: Site, scope: Scope) -> Result<(Type, Read), Missing> {
    field_of(site, "bytes")?;
    if scope == Scope::Block {
        return Err(Missing::NotHere(
            "of a block one lane runs: use `gpu:mem.warp`, once for the lanes that came together"
                .into(),
        ));
    }
    let read = match name {
        "sectors" => Read::Touched {
            helper: HelperId::GpuWarpSectors as u32,
            spaces: [Space::Global as u32, Space::Generic as u32],
        },
        _ => Read::Touched {
            helper: HelperId::GpuWarpConflicts as u32,
            spaces: [Space::Shared as u32, Space::Cluster as u32],
        },
    };
    Ok((Type::Number, read))
}

fn field_of(site: Site, name: &str) -> Result<Read, Missing> {
    let fields = context::of(site).fields.iter();
    let found = fields.into_iter().find(|field| field.name == name);
    match found {
        Some(field) => Ok(Read::Field {
            offset: field.offset as i16,
            size: field.size,
            signed: false,
        }),
        None => Err(Missing::NotHere(places_with(name))),
    }
}

/// What is known of a process and a thread of the host.
fn of_process(name: &str) -> Option<(Type, Read)> {
    let number = HelperId::GetCurrentPidTgid as u32;
    let user = HelperId::GetCurrentUidGid as u32;
    let cpu = HelperId::GetSmpProcessorId as u32;
    match name {
        "pid" => Some((Type::Number, Read::UpperHalf(number))),
        "tid" => Some((Type::Number, Read::LowerHalf(number))),
        "uid" => Some((Type::Number, Read::LowerHalf(user))),
        "gid" => Some((Type::Number, Read::UpperHalf(user))),
        "cpu" => Some((Type::Number, Read::LowerHalf(cpu))),
        "comm" => Some((Type::Str(COMM_WORDS), Read::Comm)),
        _ => None,
    }
}

fn of_cuda(name: &str, at_end: bool) -> Result<(Type, Read), Missing> {
    if let Some(found) = of_process(name) {
        return Ok(found);
    }
    let word = |offset: usize| Read::Field {
        offset: offset as i16,
        size: 8,
        signed: false,
    };
    match (name, argument(name)) {
        ("kernel", _) => Ok((Type::Kernel, word(cuda::KERNEL))),
        ("launch", _) => Ok((Type::Number, word(cuda::LAUNCH))),
        ("func", _) => Ok((
            Type::Api,
            Read::Field {
                offset: cuda::API as i16,
                size: 4,
                signed: false,
            },
        )),
        ("retval", _) if at_end => Ok((
            Type::Number,
            Read::Field {
                offset: cuda::RESULT as i16,
                size: 4,
                signed: true,
            },
        )),
        ("duration", _) if at_end => Ok((Type::Number, word(cuda::DURATION))),
        ("retval" | "duration", _) => elsewhere(name, "it is known at `cudaret:FUNCTION`"),
        (_, Some(number)) if number < cuda::ARGS => {
            Ok((Type::Number, word(cuda::ARGS_AT + 8 * number)))
        }
        _ => elsewhere(name, "it is known in kernels: `gpu:WHERE:KERNEL`"),
    }
}

/// Offsets of the registers with arguments in Linux's `struct pt_regs` of x86-64, and of the one
/// with a result.
const ARGUMENTS: [i16; 6] = [112, 104, 96, 88, 72, 64];
const RESULT: i16 = 80;

fn of_function(name: &str, at_end: bool) -> Result<(Type, Read), Missing> {
    if let Some(found) = of_process(name) {
        return Ok(found);
    }
    let register = |offset: i16| Read::Field {
        offset,
        size: 8,
        signed: false,
    };
    match (name, argument(name)) {
        ("retval", _) if at_end => Ok((Type::Number, register(RESULT))),
        ("retval", _) => elsewhere(name, "it is known at `uretprobe:FILE:FUNCTION`"),
        (_, Some(_)) if at_end => {
            elsewhere(name, "a function's arguments are gone when it returns")
        }
        (_, Some(number)) => match ARGUMENTS.get(number) {
            Some(offset) => Ok((Type::Number, register(*offset))),
            None => elsewhere(name, "the first six arguments are known"),
        },
        _ => elsewhere(name, "it is known in kernels: `gpu:WHERE:KERNEL`"),
    }
}

fn of_host(name: &str) -> Result<(Type, Read), Missing> {
    elsewhere(
        name,
        "the tool's own blocks know `nsecs` and `elapsed`, and what is in maps",
    )
}
