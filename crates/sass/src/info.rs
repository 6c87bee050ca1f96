//! The attributes in `.nv.info`: which there are, and what each means for an edit of the code.
//!
//! A list holds `u8 format, u8 attribute, u16 value or length` and, for format 4, that many bytes.
//! Numbers and names are those that the disassembler prints. An edit is refused where an attribute
//! is not in the table: it could speak of an instruction that is changed.

use crate::error::Refusal;

/// Format of an attribute with bytes of its own.
pub const SIZED: u8 = 4;
/// Format of one with a number of two bytes.
pub const HALF: u8 = 3;

/// What an attribute says of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing of single instructions.
    Plain,
    /// Offsets of instructions, four bytes each; none of them may be one that is changed.
    Places,
    /// Offsets of the instructions that end threads.
    Exits,
    /// A symbol and a number of registers.
    Registers,
    /// A symbol and bytes of stack.
    Stack,
    /// A kernel with it is left alone.
    Refused,
}

use Meaning::{Exits, Places, Plain, Refused, Registers, Stack};

/// Number, name, meaning.
const ATTRIBUTES: &[(u8, &str, Meaning)] = &[
    (0x01, "PAD", Plain),
    (0x02, "IMAGE_SLOT", Plain),
    (0x03, "JUMPTABLE_RELOCS", Plain),
    (0x04, "CTAIDZ_USED", Plain),
    (0x05, "MAX_THREADS", Plain),
    (0x06, "IMAGE_OFFSET", Plain),
    (0x07, "IMAGE_SIZE", Plain),
    (0x08, "TEXTURE_NORMALIZED", Plain),
    (0x09, "SAMPLER_INIT", Plain),
    (0x0a, "PARAM_CBANK", Plain),
    (0x0d, "SYNC_STACK", Plain),
    (0x0e, "TEXID_SAMPID_MAP", Plain),
    (0x0f, "EXTERNS", Plain),
    (0x10, "REQNTID", Plain),
    (0x11, "FRAME_SIZE", Stack),
    (0x12, "MIN_STACK_SIZE", Stack),
    (0x13, "SAMPLER_FORCE_UNNORMALIZED", Plain),
    (0x14, "BINDLESS_IMAGE_OFFSETS", Plain),
    (0x15, "BINDLESS_TEXTURE_BANK", Plain),
    (0x16, "BINDLESS_SURFACE_BANK", Plain),
    (0x17, "KPARAM_INFO", Plain),
    (0x19, "CBANK_PARAM_SIZE", Plain),
    (0x1b, "MAXREG_COUNT", Plain),
    (0x1c, "EXIT_INSTR_OFFSETS", Exits),
    (0x1d, "S2RCTAID_INSTR_OFFSETS", Places),
    (0x1e, "CRS_STACK_SIZE", Plain),
    (0x1f, "NEED_CNP_WRAPPER", Refused),
    (0x20, "NEED_CNP_PATCH", Refused),
    (0x21, "EXPLICIT_CACHING", Plain),
    (0x23, "MAX_STACK_SIZE", Stack),
    (0x25, "LD_CACHEMOD_INSTR_OFFSETS", Places),
    (0x27, "ATOM_SYS_INSTR_OFFSETS", Places),
    (0x28, "COOP_GROUP_INSTR_OFFSETS", Places),
    (0x29, "COOP_GROUP_MASK_REGIDS", Plain),
    (0x2a, "SW1850030_WAR", Plain),
    (0x2b, "WMMA_USED", Plain),
    // The driver may put other code in place of these instructions, with registers that it chooses.
    (0x2d, "ATOMF16_EMUL_INSTR_OFFSETS", Refused),
    (0x2e, "ATOM16_EMUL_INSTR_REG_MAP", Refused),
    (0x2f, "REGCOUNT", Registers),
    (0x30, "SW2393858_WAR", Plain),
    (0x31, "INT_WARP_WIDE_INSTR_OFFSETS", Places),
    // Places and counts in one list, which is read elsewhere.
    (0x34, "INDIRECT_BRANCH_TARGETS", Plain),
    (0x35, "SW2861232_WAR", Plain),
    (0x36, "SW_WAR", Plain),
    (0x37, "CUDA_API_VERSION", Plain),
    (0x38, "NUM_MBARRIERS", Plain),
    (0x39, "MBARRIER_INSTR_OFFSETS", Plain),
    (0x3d, "CTA_PER_CLUSTER", Plain),
    (0x3e, "EXPLICIT_CLUSTER", Plain),
    (0x3f, "MAX_CLUSTER_RANK", Plain),
    (0x41, "RESERVED_SMEM_USED", Plain),
    (0x42, "RESERVED_SMEM_0_SIZE", Plain),
    (0x45, "KPARAM_INFO_V2", Plain),
    (0x46, "SYSCALL_OFFSETS", Places),
    (0x47, "SW_WAR_MEMBAR_SYS_INSTR_OFFSETS", Places),
    (0x4c, "NUM_BARRIERS", Plain),
    (0x4d, "TEXMODE_INDEPENDENT", Plain),
    (0x50, "SPARSE_MMA_MASK", Plain),
    // The driver is asked to put a barrier in front of each exit, and would look for them where
    // they were.
    (0x53, "GEN_ERRBAR_AT_EXIT", Refused),
    (0x54, "REG_RECONFIG", Plain),
    (0x55, "ANNOTATIONS", Plain),
    (0x57, "STACK_CANARY_TRAP_OFFSETS", Places),
    (0x5b, "BLOCKS_ARE_CLUSTERS", Plain),
    (0x5e, "CUDA_REQ", Plain),
    (0x5f, "MERCURY_ISA_VERSION", Plain),
    (0x60, "EXPORTED_FUNCTION", Plain),
    (0x64, "MIN_PER_CTA_MEMORY_SIZE", Plain),
    (0x66, "LANGUAGE", Plain),
];

/// Attribute that marks a function as compiled for putting into other code.
pub const TOOLS_PATCH_FUNC: u8 = 0x4b;
/// Attribute with the stack frame of a function.
pub const FRAME_SIZE: u8 = 0x11;
/// Attribute with the registers of a function.
pub const REGCOUNT: u8 = 0x2f;
/// Attribute with the limit of registers that the kernel was compiled with.
pub const MAXREG_COUNT: u8 = 0x1b;
/// Attribute with a parameter: an index, its number and place, its size and bank.
pub const KPARAM_INFO: u8 = 0x17;
/// The same of newer architectures.
pub const KPARAM_INFO_V2: u8 = 0x45;
/// Attribute with the bytes of all parameters.
pub const CBANK_PARAM_SIZE: u8 = 0x19;
/// Attribute with their bank: the symbol of its section, where in it they begin, and bytes.
pub const PARAM_CBANK: u8 = 0x0a;
/// Attribute with the version of the API, which lists begin with.
pub const CUDA_API_VERSION: u8 = 0x37;
/// Attribute with where indirect branches lead.
pub const INDIRECT_BRANCH_TARGETS: u8 = 0x34;

/// An attribute and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute {
    /// Its number.
    pub number: u8,
    /// Value of the formats without bytes of their own.
    pub value: u16,
    /// Offset in the section of its bytes.
    pub offset: usize,
    /// How many.
    pub length: usize,
}

impl Attribute {
    /// Its bytes as numbers of four bytes.
    pub fn words(self, section: &[u8]) -> Vec<u32> {
        let bytes = &section[self.offset..self.offset + self.length];
        let words = bytes.chunks_exact(4);
        words
            .map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
            .collect()
    }

    /// Writes one of these numbers.
    pub fn set(self, section: &mut [u8], index: usize, value: u32) {
        let at = self.offset + 4 * index;
        section[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// What an attribute means. `None`: it is not known.
pub fn meaning(number: u8) -> Option<Meaning> {
    let row = ATTRIBUTES.iter().find(|(known, ..)| *known == number);
    row.map(|(_, _, meaning)| *meaning)
}

/// `EXIT_INSTR_OFFSETS` or, of one that is not known, `0x7f`.
pub fn name(number: u8) -> String {
    let row = ATTRIBUTES.iter().find(|(known, ..)| *known == number);
    row.map_or_else(
        || format!("{number:#04x}"),
        |(_, name, _)| (*name).to_owned(),
    )
}

/// The attributes of a list.
///
/// # Errors
/// [`Refusal::Attributes`] if it ends inside one.
pub fn attributes(section: &str, data: &[u8]) -> Result<Vec<Attribute>, Refusal> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let short = || Refusal::Attributes {
            section: section.to_owned(),
            offset: at,
        };
        let &[format, number, low, high] = data.get(at..at + 4).ok_or_else(short)? else {
            return Err(short());
        };
        let value = u16::from_le_bytes([low, high]);
        let length = if format == SIZED {
            usize::from(value)
        } else {
            0
        };
        if data.len() < at + 4 + length {
            return Err(short());
        }
        all.push(Attribute {
            number,
            value,
            offset: at + 4,
            length,
        });
        at += 4 + length.next_multiple_of(4);
    }
    Ok(all)
}
