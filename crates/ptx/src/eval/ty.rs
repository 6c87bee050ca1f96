//! Operand types, and the narrower ones that an operation is defined on: once decoded, an integer
//! operation cannot meet a float.

/// A type a lane-local operation can have, PTX ISA "Fundamental Types" and "Packed Floating Point
/// Data Types".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the PTX ISA's")]
pub enum Ty {
    Pred,
    B8,
    B16,
    B32,
    B64,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    BF16,
    BF16x2,
    F32,
    F64,
}

impl Ty {
    /// Reads a type as a modifier writes it, without the dot.
    pub fn parse(text: &str) -> Option<Ty> {
        Some(match text {
            "pred" => Ty::Pred,
            "b8" => Ty::B8,
            "b16" => Ty::B16,
            "b32" => Ty::B32,
            "b64" => Ty::B64,
            "u8" => Ty::U8,
            "u16" => Ty::U16,
            "u32" => Ty::U32,
            "u64" => Ty::U64,
            "s8" => Ty::S8,
            "s16" => Ty::S16,
            "s32" => Ty::S32,
            "s64" => Ty::S64,
            "f16" => Ty::F16,
            "f16x2" => Ty::F16x2,
            "bf16" => Ty::BF16,
            "bf16x2" => Ty::BF16x2,
            "f32" => Ty::F32,
            "f64" => Ty::F64,
            _ => return None,
        })
    }

    /// Width in bits; 1 for a predicate.
    pub fn bits(self) -> u32 {
        match self {
            Ty::Pred => 1,
            Ty::B8 | Ty::U8 | Ty::S8 => 8,
            Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::BF16 => 16,
            Ty::B32 | Ty::U32 | Ty::S32 | Ty::F32 | Ty::F16x2 | Ty::BF16x2 => 32,
            Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 => 64,
        }
    }

    /// True for `.s8` to `.s64`.
    pub fn is_signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }

    /// True for floating point types, packed ones included.
    pub fn is_float(self) -> bool {
        self.float().is_some()
    }

    /// The bits a value of this type has.
    pub fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    /// As an integer type with a sign or without; `None` for bits, predicates and floats.
    pub(super) fn int(self) -> Option<IntTy> {
        Some(match self {
            Ty::U8 => IntTy::U8,
            Ty::U16 => IntTy::U16,
            Ty::U32 => IntTy::U32,
            Ty::U64 => IntTy::U64,
            Ty::S8 => IntTy::S8,
            Ty::S16 => IntTy::S16,
            Ty::S32 => IntTy::S32,
            Ty::S64 => IntTy::S64,
            Ty::Pred | Ty::B8 | Ty::B16 | Ty::B32 | Ty::B64 => return None,
            Ty::F16 | Ty::F16x2 | Ty::BF16 | Ty::BF16x2 | Ty::F32 | Ty::F64 => return None,
        })
    }

    /// As a floating point type.
    pub(super) fn float(self) -> Option<FloatTy> {
        Some(match self {
            Ty::F16 => FloatTy::F16,
            Ty::F16x2 => FloatTy::F16x2,
            Ty::BF16 => FloatTy::BF16,
            Ty::BF16x2 => FloatTy::BF16x2,
            Ty::F32 => FloatTy::F32,
            Ty::F64 => FloatTy::F64,
            Ty::Pred | Ty::B8 | Ty::B16 | Ty::B32 | Ty::B64 => return None,
            Ty::U8 | Ty::U16 | Ty::U32 | Ty::U64 | Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64 => {
                return None;
            }
        })
    }
}

/// An integer type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum IntTy {
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
}

impl IntTy {
    pub(super) fn bits(self) -> u32 {
        match self {
            IntTy::U8 | IntTy::S8 => 8,
            IntTy::U16 | IntTy::S16 => 16,
            IntTy::U32 | IntTy::S32 => 32,
            IntTy::U64 | IntTy::S64 => 64,
        }
    }

    pub(super) fn is_signed(self) -> bool {
        match self {
            IntTy::U8 | IntTy::U16 | IntTy::U32 | IntTy::U64 => false,
            IntTy::S8 | IntTy::S16 | IntTy::S32 | IntTy::S64 => true,
        }
    }
}

/// A floating point type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FloatTy {
    F16,
    F16x2,
    BF16,
    BF16x2,
    F32,
    F64,
}

/// Runs `$body` with `$T` standing for the Rust integer of `$ty`, and `$U` for its unsigned twin,
/// through which a result is zero-extended.
macro_rules! each_int {
    ($ty:expr, $T:ident, $U:ident => $body:expr) => {
        each_int!(@ $ty, $T, $U, $body,
            U8 u8 u8, U16 u16 u16, U32 u32 u32, U64 u64 u64, S8 i8 u8, S16 i16 u16, S32 i32 u32, S64 i64 u64)
    };
    (@ $ty:expr, $T:ident, $U:ident, $body:expr, $($variant:ident $t:ident $u:ident),*) => {
        match $ty {
            $($crate::eval::ty::IntTy::$variant => {
                type $T = $t;
                type $U = $u;
                // Names both, because not every operation does.
                const _: fn($T, $U) = |_, _| {};
                $body
            })*
        }
    };
}
pub(super) use each_int;
