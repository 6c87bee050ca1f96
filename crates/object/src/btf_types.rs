//! The types of BTF, one by one, and why they cannot be read.

/// Number of a type in a [`Btf`]. Zero is `void`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct TypeId(pub u32);

impl TypeId {
    /// `void`, or "no type".
    pub const VOID: TypeId = TypeId(0);
}

impl std::fmt::Display for TypeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}]", self.0)
    }
}

/// Field of a struct or union.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Empty for an anonymous struct or union.
    pub name: String,
    /// The field's type.
    pub ty: TypeId,
    /// Offset from the start of the struct, in bits.
    pub bit_offset: u32,
    /// Width of a bit field in bits; 0 for an ordinary field.
    pub bit_size: u32,
}

/// Variable of a data section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SectionVar {
    /// The [`Type::Var`].
    pub ty: TypeId,
    /// Byte offset in its section. Unresolved in the file; [`crate::load`] fills it from the symbol
    /// table.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
}

/// Where a function or variable can be seen from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Linkage {
    /// `static`.
    Static,
    /// Visible outside its file.
    Global,
    /// Declared here, defined elsewhere.
    Extern,
}

/// A type. Names are empty where C has none.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(
    missing_docs,
    reason = "the names and fields are those of the BTF documentation; sizes are bytes"
)]
pub enum Type {
    Void,
    /// `bits` is the value's width, `size` its storage.
    Int {
        name: String,
        size: u32,
        bits: u8,
        signed: bool,
        char: bool,
        bool: bool,
    },
    Ptr {
        target: TypeId,
    },
    Array {
        element: TypeId,
        index: TypeId,
        count: u32,
    },
    Struct {
        name: String,
        size: u32,
        members: Vec<Member>,
    },
    Union {
        name: String,
        size: u32,
        members: Vec<Member>,
    },
    /// `ENUM` and `ENUM64`; a value of an unsigned one is kept as the same 64 bits.
    Enum {
        name: String,
        size: u32,
        signed: bool,
        values: Vec<(String, i64)>,
    },
    Fwd {
        name: String,
        union: bool,
    },
    Typedef {
        name: String,
        target: TypeId,
    },
    Volatile {
        target: TypeId,
    },
    Const {
        target: TypeId,
    },
    Restrict {
        target: TypeId,
    },
    Func {
        name: String,
        proto: TypeId,
        linkage: Linkage,
    },
    FuncProto {
        ret: TypeId,
        params: Vec<(String, TypeId)>,
    },
    Var {
        name: String,
        ty: TypeId,
        linkage: Linkage,
    },
    DataSec {
        name: String,
        size: u32,
        vars: Vec<SectionVar>,
    },
    Float {
        name: String,
        size: u32,
    },
    DeclTag {
        name: String,
        target: TypeId,
        component: Option<u32>,
    },
    TypeTag {
        name: String,
        target: TypeId,
    },
}

impl Type {
    /// Its name, if it has one.
    pub fn name(&self) -> Option<&str> {
        let name = match self {
            Type::Void | Type::Ptr { .. } | Type::Array { .. } | Type::FuncProto { .. } => {
                return None;
            }
            Type::Volatile { .. } | Type::Const { .. } | Type::Restrict { .. } => return None,
            Type::Int { name, .. }
            | Type::Struct { name, .. }
            | Type::Union { name, .. }
            | Type::Enum { name, .. }
            | Type::Fwd { name, .. }
            | Type::Typedef { name, .. }
            | Type::Func { name, .. }
            | Type::Var { name, .. }
            | Type::DataSec { name, .. }
            | Type::Float { name, .. }
            | Type::DeclTag { name, .. }
            | Type::TypeTag { name, .. } => name,
        };
        (!name.is_empty()).then_some(name.as_str())
    }
}

/// Why a `.BTF` or `.BTF.ext` section cannot be read. The file is at fault.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BtfError {
    /// The section ends inside a record.
    #[error("it ends at byte {at} inside {what}")]
    Truncated {
        /// Offset in bytes from the start of the section.
        at: usize,
        /// The record that was being read.
        what: &'static str,
    },
    /// Not BTF, or of the other byte order.
    #[error("its magic is {magic:#06x}, not 0xeb9f (little endian)")]
    Magic {
        /// What stands there.
        magic: u16,
    },
    /// A layout newer than this reader.
    #[error("its version is {version}, only 1 is known")]
    Version {
        /// What stands there.
        version: u8,
    },
    /// A kind that is not in the documentation this was written from.
    #[error("type {id} has the unknown kind {kind}")]
    Kind {
        /// The type.
        id: TypeId,
        /// Its kind number.
        kind: u32,
    },
    /// A string offset that is not inside the string table, or no UTF-8 there.
    #[error("string offset {offset} is not a string of the string table")]
    String {
        /// Offset in bytes.
        offset: u32,
    },
    /// A record size that cannot hold the record.
    #[error("{what} records of {size} bytes are not known")]
    RecordSize {
        /// Which table.
        what: &'static str,
        /// Size in bytes.
        size: u32,
    },
}
