//! What the comparison leaves out, and why: programs that use what no GPU has and the verifier has
//! no notion of. It is decided by what the code uses, never by the verdict.

use warpbpf_ebpf::{Callee, Code, Imm64, Insn};
use warpbpf_object::{MapDef, ObjectError};
use warpbpf_verify::{ContextField, Platform, Rule};

use crate::{contexts, helpers, platform};

/// A class of reasons, for counting.
pub type Reason = String;

/// Why an object that does not load is no refusal by a rule.
pub fn by_load_error(error: &ObjectError) -> Option<Reason> {
    match error {
        ObjectError::StructOps { .. } => Some("struct_ops".to_owned()),
        ObjectError::Arena { .. } => Some("arena".to_owned()),
        ObjectError::Extern { symbol, .. } => {
            Some(format!("kernel functions and variables (`{symbol}`)"))
        }
        ObjectError::CoRe { .. } => Some("types of the kernel (CO-RE)".to_owned()),
        ObjectError::LegacyMaps { .. }
        | ObjectError::MapsWithoutBtf
        | ObjectError::MapDef { .. }
        | ObjectError::DataTooLarge { .. }
        | ObjectError::DataRelocation { .. } => Some(format!("not loaded: {error}")),
        _ => None,
    }
}

/// What a program uses that is not covered.
pub fn by_use(code: &Code, maps: &[MapDef], platform: &Platform) -> Option<Reason> {
    code.insns().iter().find_map(|insn| match *insn {
        Insn::Call {
            callee: Callee::Helper(id),
        } => {
            if id == UNRESOLVED {
                return Some("types of the kernel (CO-RE)".to_owned());
            }
            let offered = platform.helper(id).is_some();
            let known = helpers::ALL.iter().any(|l| l.iter().any(|h| h.id == id));
            // A number that no helper of 6.12 has is refused by everybody.
            (!offered && !known && id <= LAST_HELPER).then(|| format!("helper {}", name(id)))
        }
        Insn::Call {
            callee: Callee::Kfunc(_),
        } => Some("kernel functions".to_owned()),
        Insn::LegacyPacket { .. } => Some("legacy packet access (ld_abs, ld_ind)".to_owned()),
        Insn::LoadImm64 {
            value: Imm64::BtfId(_),
            ..
        } => Some("kernel variables".to_owned()),
        Insn::LoadImm64 {
            value: Imm64::Map(index),
            ..
        } => platform::adapted(maps.get(index as usize)?)
            .err()
            .map(|number| format!("map type {}", map_type(number))),
        _ => None,
    })
}

/// What the verifier met and has no notion of.
pub fn by_rule(rule: &Rule) -> Option<Reason> {
    match rule {
        Rule::Unsupported { what, .. } => contexts::POINTERS
            .iter()
            .find(|field| matches!(field, ContextField::Unserved(name) if name == what))
            .map(|_| what.clone()),
        _ => None,
    }
}

/// What the loader writes where a type of the kernel is not known, as libbpf does.
const UNRESOLVED: u32 = 0xbad_2310;

/// `BPF_FUNC_cgrp_storage_delete`
const LAST_HELPER: u32 = 211;

fn name(id: u32) -> String {
    let name = match id {
        12 => "tail_call",
        25 => "perf_event_output",
        35 => "get_current_task",
        84 | 85 | 86 | 95 | 96 | 98 | 99 | 136..=140 => "for sockets",
        81 => "get_local_storage",
        93 | 94 => "spin_lock",
        169..=172 => "timer",
        197..=203 => "dynptr",
        _ => return id.to_string(),
    };
    name.to_owned()
}

fn map_type(number: u32) -> &'static str {
    match number {
        3 => "prog_array",
        4 => "perf_event_array",
        7 => "stack_trace",
        12 | 13 => "of maps",
        15 | 18 => "sockmap",
        17 => "xskmap",
        19 | 21 => "cgroup_storage",
        20 => "reuseport_sockarray",
        24 => "sk_storage",
        33 => "arena",
        _ => "other",
    }
}
