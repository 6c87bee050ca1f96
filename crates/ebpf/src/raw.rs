//! The 8-byte slot as it stands in memory, before anyone knows what it means.
//!
//! The table, the object loader and the assembler all speak of fields; only this file knows where
//! their bits are (RFC 9669 §3).

/// One 8-byte slot. Registers are the raw four bits, so up to 15.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slot {
    /// Operation code.
    pub opcode: u8,
    /// Destination register field.
    pub dst: u8,
    /// Source register field.
    pub src: u8,
    /// Signed offset field.
    pub off: i16,
    /// Signed immediate field.
    pub imm: i32,
}

impl Slot {
    /// Size in bytes.
    pub const BYTES: usize = 8;

    /// Opcode of the instruction that takes two slots (`lddw`).
    pub const LDDW: u8 = 0x18;

    /// From its little-endian bytes.
    pub const fn from_bytes(b: [u8; 8]) -> Slot {
        Slot {
            opcode: b[0],
            dst: b[1] & 0xf,
            src: b[1] >> 4,
            off: i16::from_le_bytes([b[2], b[3]]),
            imm: i32::from_le_bytes([b[4], b[5], b[6], b[7]]),
        }
    }

    /// To its little-endian bytes.
    pub const fn to_bytes(self) -> [u8; 8] {
        let (off, imm) = (self.off.to_le_bytes(), self.imm.to_le_bytes());
        [
            self.opcode,
            (self.src << 4) | (self.dst & 0xf),
            off[0],
            off[1],
            imm[0],
            imm[1],
            imm[2],
            imm[3],
        ]
    }

    /// All slots of `bytes`; a trailing partial slot is left out.
    pub fn all(bytes: &[u8]) -> impl Iterator<Item = Slot> {
        bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|chunk| Slot::from_bytes(*chunk))
    }
}
