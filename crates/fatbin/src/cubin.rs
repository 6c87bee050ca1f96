//! The cubin: what the machine code's own metadata says about each kernel, so that a variant can be
//! compared with the original (parameters, static shared memory, launch bounds) and shown to the
//! user (registers).
//!
//! A cubin is an ELF64 for machine 190. Beside the code in `.text.KERNEL` there are attribute
//! lists, `.nv.info` for the file and `.nv.info.KERNEL` for each kernel: `u8 format` (1 no value, 2
//! one byte, 3 two bytes, 4 a length and that many bytes), `u8 attribute`, `u16 value or length`.
//! The meaning of the attributes below was checked against `ptxas -v` and against the source.

use object::elf;
use std::collections::HashMap;

use object::LittleEndian;
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};

use crate::error::CubinError;

/// Bytes of an ELF header: what [`cubin_len`] needs.
pub const CUBIN_HEADER_BYTES: usize = 64;
const EM_CUDA: u16 = 190;
/// `st_other` of a kernel; a device function lacks it.
const STO_CUDA_ENTRY: u8 = 0x10;
/// From sm_90 on the system keeps the first KiB of a block's shared memory, and the kernel's
/// section includes it.
const RESERVED_SHARED: u64 = 1024;

/// Attribute numbers.
mod eiattr {
    pub const MAX_THREADS: u8 = 0x05;
    pub const FRAME_SIZE: u8 = 0x11;
    pub const MIN_STACK_SIZE: u8 = 0x12;
    pub const KPARAM_INFO: u8 = 0x17;
    pub const CBANK_PARAM_SIZE: u8 = 0x19;
    pub const MAXREG_COUNT: u8 = 0x1b;
    pub const EXIT_INSTR_OFFSETS: u8 = 0x1c;
    pub const REGCOUNT: u8 = 0x2f;
    /// Parameters beyond 4 KiB do not fit the fields of `KPARAM_INFO`.
    pub const KPARAM_INFO_V2: u8 = 0x45;
    pub const NUM_BARRIERS: u8 = 0x4c;
}

/// What `MAXREG_COUNT` says where nothing limits a kernel.
const NO_LIMIT: u32 = 255;

type Header = elf::FileHeader64<LittleEndian>;

/// The sections of a file by name; of several the first.
struct Sections<'a> {
    bytes: &'a [u8],
    by_name: HashMap<&'a [u8], &'a elf::SectionHeader64<LittleEndian>>,
}

impl<'a> Sections<'a> {
    fn new(table: &SectionTable<'a, Header>, bytes: &'a [u8]) -> Sections<'a> {
        let mut by_name = HashMap::new();
        for section in table.iter() {
            if let Ok(name) = table.section_name(LittleEndian, section) {
                by_name.entry(name).or_insert(section);
            }
        }
        Sections { bytes, by_name }
    }

    fn get(&self, name: &str) -> Option<(&'a elf::SectionHeader64<LittleEndian>, &'a [u8])> {
        let header = *self.by_name.get(name.as_bytes())?;
        Some((header, header.data(LittleEndian, self.bytes).ok()?))
    }
}

/// One parameter of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// Offset in the parameter buffer, in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
}

/// One kernel of a cubin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kernel {
    /// Mangled name.
    pub name: String,
    /// Registers per thread.
    pub registers: Option<u32>,
    /// How many it may have, by an option of the compiler or its launch bounds; `None` if as many
    /// as there are.
    pub max_registers: Option<u32>,
    /// Static shared memory per block in bytes, without what the system keeps.
    pub static_shared: u32,
    /// Launch bounds (`.maxntid`), if the kernel has them.
    pub max_threads: Option<[u32; 3]>,
    /// Parameters by ordinal.
    pub params: Vec<Param>,
    /// Size of the parameter buffer in bytes.
    pub param_bytes: u32,
    /// The kernel's own stack frame per thread in bytes (local memory), without its callees.
    pub frame_size: u32,
    /// Stack that a thread needs at least, callees included, in bytes.
    pub min_stack: u32,
    /// Barriers used, if the file says it.
    pub barriers: Option<u32>,
    /// Code size in bytes.
    pub code_bytes: u64,
    /// Offsets in the code of the instructions that end a thread.
    pub exits: Vec<u32>,
}

/// What is read of a cubin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cubin {
    /// Architecture number, e.g. 90. The suffix is not in the file; the fatbin entry has it.
    pub arch: u32,
    /// The `compute_N` that it was compiled from, if the file says it.
    pub virtual_arch: Option<u32>,
    /// Kernels in the order of the symbol table.
    pub kernels: Vec<Kernel>,
}

impl Cubin {
    /// Reads the metadata of a cubin.
    ///
    /// # Errors
    /// [`CubinError`]: not an ELF, not for CUDA, or damaged.
    pub fn parse(bytes: &[u8]) -> Result<Cubin, CubinError> {
        let header = Header::parse(bytes).map_err(elf_error)?;
        let endian = header.endian().map_err(elf_error)?;
        let machine = header.e_machine(endian).0;
        if machine != EM_CUDA {
            return Err(CubinError::Machine { machine });
        }
        let table = header.sections(endian, bytes).map_err(elf_error)?;
        let sections = Sections::new(&table, bytes);
        let symbols = table
            .symbols(endian, bytes, elf::SHT_SYMTAB)
            .map_err(elf_error)?;
        let reserved = sections.get(".nv.shared.reserved.0").is_some();

        let mut kernels = Vec::new();
        // Which symbol is which kernel: the file's own attributes name kernels by symbol.
        let mut by_symbol = HashMap::new();
        for (index, symbol) in symbols.enumerate() {
            if symbol.st_type() != elf::STT_FUNC || symbol.st_other().0 & STO_CUDA_ENTRY == 0 {
                continue;
            }
            let name = symbols.symbol_name(endian, symbol).map_err(elf_error)?;
            let mut kernel = Kernel {
                name: String::from_utf8_lossy(name).into_owned(),
                code_bytes: symbol.st_size(endian),
                ..Kernel::default()
            };
            if let Some((shared, _)) = sections.get(&format!(".nv.shared.{}", kernel.name)) {
                let kept = if reserved { RESERVED_SHARED } else { 0 };
                let own = shared.sh_size(endian).saturating_sub(kept);
                kernel.static_shared = u32::try_from(own).unwrap_or(u32::MAX);
            }
            let info = format!(".nv.info.{}", kernel.name);
            if let Some((_, data)) = sections.get(&info) {
                for attribute in Attributes::new(&info, data) {
                    kernel_attribute(&mut kernel, &info, &attribute?)?;
                }
            }
            by_symbol.insert(index.0 as u32, kernels.len());
            kernels.push(kernel);
        }
        if let Some((_, data)) = sections.get(".nv.info") {
            for attribute in Attributes::new(".nv.info", data) {
                file_attribute(&mut kernels, &by_symbol, &attribute?)?;
            }
        }
        let flags = header.e_flags(endian).0;
        // ABI 8 and later keep the number in the second byte, earlier ones in the first.
        let arch = if header.e_ident().abi_version >= 8 {
            flags >> 8 & 0xff
        } else {
            flags & 0xff
        };
        let note = sections.get(".note.nv.cuinfo");
        let virtual_arch = note.and_then(|(_, note)| compiled_from(note));
        Ok(Cubin {
            arch,
            virtual_arch,
            kernels,
        })
    }

    /// The kernel of this mangled name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }
}

/// The PTX that a cubin was assembled from, which `ptxas -lineinfo` and `-G` put into it line by
/// line, without comments and `.loc`. `None` if it is not there.
pub fn embedded_ptx(bytes: &[u8]) -> Option<String> {
    let header = Header::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let table = header.sections(endian, bytes).ok()?;
    let (_, lines) = Sections::new(&table, bytes).get(".nv_debug_ptx_txt")?;
    // Each line ends in a NUL.
    let text = String::from_utf8(lines.to_vec()).ok()?;
    Some(text.replace('\0', "\n"))
}

/// Whole length in bytes of the ELF that begins with `header` ([`CUBIN_HEADER_BYTES`] of it). Both
/// header tables stand behind everything else in what `ptxas` and `nvlink` write, so their ends are
/// the file's end; `None` if it is not an ELF64 or the numbers overflow.
pub fn cubin_len(header: &[u8]) -> Option<usize> {
    let header = header.get(..CUBIN_HEADER_BYTES)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let half = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let word = |at: usize| (0..8).fold(0u64, |word, i| word | u64::from(header[at + i]) << (8 * i));
    let end = |table: u64, count: u64, size: u64| table.checked_add(count * size);
    let segments = end(word(32), half(56), half(54))?;
    let sections = end(word(40), half(60), half(58))?;
    usize::try_from(segments.max(sections).max(CUBIN_HEADER_BYTES as u64))
        .ok()
        .filter(|&n| isize::try_from(n).is_ok())
}

fn elf_error(error: object::read::Error) -> CubinError {
    CubinError::Elf {
        reason: error.to_string(),
    }
}

/// The note's words behind its name are a version and, in two bytes, the virtual architecture.
fn compiled_from(note: &[u8]) -> Option<u32> {
    let name_bytes = usize::try_from(u32::from_le_bytes(*note.first_chunk()?))
        .ok()?
        .checked_next_multiple_of(4)?;
    let words = note.get(12..)?.get(name_bytes..)?;
    let number = u32::from(u16::from_le_bytes([*words.get(2)?, *words.get(3)?]));
    (number != 0).then_some(number)
}

struct Attribute<'a> {
    number: u8,
    offset: usize,
    /// Value of the formats without a length.
    value: u16,
    data: &'a [u8],
}

impl Attribute<'_> {
    fn word(&self, section: &str, at: usize) -> Result<u32, CubinError> {
        match self.data.get(at..at + 4) {
            Some(&[a, b, c, d]) => Ok(u32::from_le_bytes([a, b, c, d])),
            _ => Err(self.short(section)),
        }
    }

    fn short(&self, section: &str) -> CubinError {
        CubinError::Attribute {
            section: section.to_owned(),
            attribute: self.number,
            offset: self.offset,
        }
    }
}

struct Attributes<'a> {
    section: &'a str,
    data: &'a [u8],
    offset: usize,
}

impl<'a> Attributes<'a> {
    fn new(section: &'a str, data: &'a [u8]) -> Attributes<'a> {
        Attributes {
            section,
            data,
            offset: 0,
        }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, CubinError>;

    fn next(&mut self) -> Option<Self::Item> {
        const SIZED: u8 = 4;
        let rest = self
            .data
            .get(self.offset..)
            .filter(|rest| !rest.is_empty())?;
        let offset = self.offset;
        let short = |number| {
            Some(Err(CubinError::Attribute {
                section: self.section.to_owned(),
                attribute: number,
                offset,
            }))
        };
        let &[format, number, low, high] = match rest.first_chunk::<4>() {
            Some(head) => head,
            None => {
                let error = short(rest.get(1).copied().unwrap_or(0));
                self.offset = self.data.len();
                return error;
            }
        };
        let value = u16::from_le_bytes([low, high]);
        let length = if format == SIZED {
            usize::from(value)
        } else {
            0
        };
        let Some(data) = rest.get(4..4 + length) else {
            let error = short(number);
            self.offset = self.data.len();
            return error;
        };
        self.offset = offset + 4 + length.next_multiple_of(4);
        Some(Ok(Attribute {
            number,
            offset,
            value,
            data,
        }))
    }
}

fn kernel_attribute(
    kernel: &mut Kernel,
    section: &str,
    attribute: &Attribute<'_>,
) -> Result<(), CubinError> {
    let word = |at| attribute.word(section, at);
    match attribute.number {
        eiattr::MAX_THREADS => kernel.max_threads = Some([word(0)?, word(4)?, word(8)?]),
        eiattr::MAXREG_COUNT => {
            let most = u32::from(attribute.value);
            kernel.max_registers = (most < NO_LIMIT).then_some(most);
        }
        eiattr::CBANK_PARAM_SIZE => kernel.param_bytes = u32::from(attribute.value),
        eiattr::NUM_BARRIERS => kernel.barriers = Some(u32::from(attribute.value & 0xff)),
        eiattr::EXIT_INSTR_OFFSETS => {
            kernel.exits = (0..attribute.data.len() / 4)
                .map(|i| word(4 * i))
                .collect::<Result<_, _>>()?;
        }
        eiattr::KPARAM_INFO => {
            let place = word(4)?;
            set_param(
                kernel,
                place & 0xffff,
                Param {
                    offset: place >> 16,
                    size: word(8)? >> 18,
                },
            );
        }
        eiattr::KPARAM_INFO_V2 => {
            let place = word(4)?;
            set_param(
                kernel,
                place & 0xffff,
                Param {
                    offset: place >> 16,
                    size: word(8)? & 0xffff,
                },
            );
        }
        _ => {}
    }
    Ok(())
}

/// The list comes from the last parameter to the first.
fn set_param(kernel: &mut Kernel, ordinal: u32, param: Param) {
    let ordinal = ordinal as usize;
    if kernel.params.len() <= ordinal {
        kernel
            .params
            .resize(ordinal + 1, Param { offset: 0, size: 0 });
    }
    kernel.params[ordinal] = param;
}

fn file_attribute(
    kernels: &mut [Kernel],
    by_symbol: &HashMap<u32, usize>,
    attribute: &Attribute<'_>,
) -> Result<(), CubinError> {
    type Field = fn(&mut Kernel, u32);
    let set: Field = match attribute.number {
        eiattr::REGCOUNT => |kernel, value| kernel.registers = Some(value),
        eiattr::FRAME_SIZE => |kernel, value| kernel.frame_size = value,
        eiattr::MIN_STACK_SIZE => |kernel, value| kernel.min_stack = value,
        _ => return Ok(()),
    };
    let symbol = attribute.word(".nv.info", 0)?;
    let value = attribute.word(".nv.info", 4)?;
    if let Some(&index) = by_symbol.get(&symbol) {
        set(&mut kernels[index], value);
    }
    Ok(())
}
