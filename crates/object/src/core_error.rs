//! What is wrong with a CO-RE relocation: faults of the file, or of what it asks. That the target
//! does not have something is no fault (it becomes a call of `UNRESOLVED_CALL`).

use crate::btf_types::BtfError;

/// What is wrong with a CO-RE relocation. `Display` is the end of a sentence that begins with the
/// relocation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum CoreError {
    #[error("is of a kind ({kind}) that is not known")]
    Kind { kind: u32 },
    #[error(transparent)]
    Types(#[from] BtfError),
    #[error("has the malformed path `{path}`")]
    Path { path: String },
    #[error("has an empty path")]
    NoPath,
    #[error("names nothing")]
    Nothing,
    #[error("leads to no member")]
    NoMember,
    #[error("leads into target types that are nested without end")]
    Endless,
    #[error("asks for types of the target, which there are not: {why}")]
    NoTarget { why: String },
    #[error("is of a type without a name, which cannot be looked up in a target; name the type")]
    Unnamed,
    #[error("is ambiguous: the target has several types `{name}` that fit, with different results")]
    Ambiguous { name: String },
    #[error("is of a type without a size")]
    TypeWithoutSize,
    #[error("is of a field without a size")]
    FieldWithoutSize,
    #[error("asks of an array element what only members have")]
    Element,
    #[error("is of a bit field that is neither number nor enumeration")]
    BitFieldOfWhat,
    #[error("is of a bit field that no load of 8 bytes holds")]
    WideBitField,
    #[error("shifts a field of more than 8 bytes")]
    WideShift,
    #[error("belongs to an instruction that holds no such number")]
    Instruction,
    #[error("does not fit its instruction, which holds {found} where the types say {expected}")]
    OtherNumber { found: u64, expected: u64 },
    #[error("does not fit its instruction, which accesses {width} bytes of a field of {size}")]
    OtherWidth { width: u64, size: u64 },
}
