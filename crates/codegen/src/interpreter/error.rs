//! Why a program that can be compiled cannot be interpreted.

use warpbpf_ebpf::Pc;

use super::area::{DEPTHS, KEY_BYTES, STACK, VALUE_BYTES};

/// Most instructions of the device's that a program may become.
pub(super) const MOST_WORDS: usize = 1 << 14;

/// Why a program that can be compiled cannot be interpreted. `Display` is for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum NotInterpreted {
    #[error(
        "instruction `{pc}` calls `bpf_{helper}`, which programs in a slot cannot; they can call {there}"
    )]
    Helper {
        pc: Pc,
        helper: &'static str,
        there: String,
    },
    #[error(
        "instruction `{pc}` calls `bpf_{helper}` on map `{map}`, which programs in a slot can only for arrays and for hashes on the device whose keys have at most {KEY_BYTES} and values at most {VALUE_BYTES} bytes, and not for maps in maps"
    )]
    Map {
        pc: Pc,
        helper: &'static str,
        map: u32,
    },
    #[error(
        "instruction `{pc}` reads `{field}` of its context, which a slot does not have: it has where the thread is, the kernel's numbers, and of the place its number, line, address, bytes and kinds"
    )]
    Field { pc: Pc, field: &'static str },
    #[error("instruction `{pc}` {what}, which programs in a slot cannot")]
    Instruction { pc: Pc, what: &'static str },
    #[error("its functions need {bytes} bytes of stack together, and a slot has {STACK}")]
    Stack { bytes: u32 },
    #[error("its functions call each other {depth} deep, and a slot has room for {DEPTHS}")]
    Depth { depth: u32 },
    #[error(
        "it becomes more than {MOST_WORDS} instructions, because functions are written out where they are called: make it smaller"
    )]
    Long,
    #[error("the proof of instruction `{pc}` lacks {expected}; this is a bug in warpbpf")]
    Missing { pc: Pc, expected: &'static str },
}
