//! Where the function at a place of a file begins and how long it is: by its symbol, exported or
//! not, else by what exceptions are unwound by; for an entry of a procedure linkage table by its
//! section. A jump is put only into a function that is known as a whole, because a branch anywhere
//! in it may lead to where the jump would stand.

use std::collections::BTreeMap;

use object::read::elf::{ElfFile64, SectionHeader as _};
use object::{
    Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, ReadCache, ReadRef,
};
use warpbpf_hook::Kind;

use crate::uprobe::function_error::FunctionError;

/// `DW_EH_PE_pcrel`, the only base that functions of libraries are counted from, beside none.
const PCREL: u8 = 0x10;

/// Sections of procedure linkage tables, each with the bytes of an entry where the section does not
/// say it, as lld's do not.
const TABLES: &[(&str, u64)] = &[(".plt", 16), (".plt.sec", 16), (".plt.got", 8)];

/// What begins at `offset` in the file, a function or an entry of a procedure linkage table, and
/// its bytes.
///
/// # Errors
/// The file cannot be read, nothing of the kind begins there, or nothing says how long it is.
pub(crate) fn of_function(path: &str, offset: u64) -> Result<(Kind, usize), FunctionError> {
    let unread = |error: &dyn std::fmt::Display| unread(path, error);
    warpbpf_faults::check("uprobe/symbols", || {
        unread(&"Too many open files (os error 24)")
    })?;
    let file = warpbpf_descriptor::open(path).map_err(|error| unread(&error))?;
    in_elf(&ReadCache::new(file), path, offset)
}

/// The same of a file's bytes.
fn in_elf<'d>(
    bytes: impl ReadRef<'d>,
    path: &str,
    offset: u64,
) -> Result<(Kind, usize), FunctionError> {
    let elf: ElfFile64<'_, object::Endianness, _> =
        ElfFile64::parse(bytes).map_err(|error| unread(path, &error))?;
    let segment = elf.segments().find_map(|segment| {
        let (start, bytes) = segment.file_range();
        let into = offset.checked_sub(start).filter(|into| *into < bytes)?;
        segment.address().checked_add(into)
    });
    let address = segment.ok_or(FunctionError::NotInFile)?;
    for (name, usual) in TABLES {
        let Some(table) = elf.section_by_name(name) else {
            continue;
        };
        let bytes = match table.elf_section_header().sh_entsize(elf.endian()) {
            0 => *usual,
            bytes => bytes,
        };
        match address.checked_sub(table.address()) {
            Some(into) if into < table.size() && into % bytes == 0 => {
                return Ok((Kind::Entry, bytes as usize));
            }
            Some(into) if into < table.size() => {
                return Err(inside_of(format!("an entry of `{name}`")));
            }
            _ => {}
        }
    }
    let symbols = elf.symbols().chain(elf.dynamic_symbols());
    let mut inside = None;
    for symbol in symbols.filter(|symbol| symbol.kind() == object::SymbolKind::Text) {
        let Some(into) = address.checked_sub(symbol.address()) else {
            continue;
        };
        if into >= symbol.size() || symbol.section_index().is_none() {
            continue;
        }
        if into == 0 {
            return Ok((Kind::Function, symbol.size() as usize));
        }
        inside =
            Some(String::from_utf8_lossy(symbol.name_bytes().unwrap_or_default()).into_owned());
    }
    if let Some(function) = inside {
        return Err(inside_of(format!("`{function}`")));
    }
    let frames = elf.section_by_name(".eh_frame");
    let found =
        frames.and_then(|section| function_of(section.data().ok()?, section.address(), address));
    match found {
        Some((start, bytes)) if start == address => Ok((Kind::Function, bytes as usize)),
        Some((start, _)) => Err(inside_of(format!("the function at {start:#x}"))),
        None => Err(FunctionError::NoLength),
    }
}

fn inside_of(of: String) -> FunctionError {
    FunctionError::Inside { of }
}

fn unread(path: &str, error: &dyn std::fmt::Display) -> FunctionError {
    FunctionError::Unread {
        path: path.to_owned(),
        error: error.to_string(),
    }
}

/// Start and length of the function around `address` by the contents of an `.eh_frame` section that
/// lies at `base`. What it cannot read it passes over.
fn function_of(section: &[u8], base: u64, address: u64) -> Option<(u64, u64)> {
    // How pointers are written in the entries that refer to a common one, by its place.
    let mut encodings: BTreeMap<usize, u8> = BTreeMap::new();
    let mut at = 0;
    loop {
        let mut reader = Reader { bytes: section, at };
        let length = match reader.unsigned(4)? {
            0 => return None,
            0xffff_ffff => reader.unsigned(8)?,
            length => length,
        };
        let body = reader.at;
        let next = body.checked_add(usize::try_from(length).ok()?)?;
        let id = reader.unsigned(4)? as usize;
        if id == 0 {
            if let Some(encoding) = pointer_encoding(&mut reader) {
                encodings.insert(at, encoding);
            }
        } else if let Some(encoding) = body.checked_sub(id).and_then(|cie| encodings.get(&cie)) {
            let here = base.wrapping_add(reader.at as u64);
            let start = reader.pointer(*encoding);
            // The length is written in the same way, and counts from nothing.
            let bytes = reader.pointer(*encoding & 0x07);
            if let (Some(start), Some(bytes)) = (start, bytes) {
                let start = match encoding & 0x70 {
                    PCREL => here.wrapping_add(start),
                    _ => start,
                };
                if address.wrapping_sub(start) < bytes {
                    return Some((start, bytes));
                }
            }
        }
        at = next;
    }
}

/// How a common entry, read up to its id, says that pointers to functions are written; `None` if it
/// cannot be understood.
fn pointer_encoding(reader: &mut Reader<'_>) -> Option<u8> {
    let version = reader.byte()?;
    let mut augmentation = Vec::new();
    loop {
        match reader.byte()? {
            0 => break,
            byte => augmentation.push(byte),
        }
    }
    reader.leb()?;
    reader.leb()?;
    match version {
        1 => u64::from(reader.byte()?),
        _ => reader.leb()?,
    };
    let mut encoding = 0;
    for letter in augmentation {
        match letter {
            b'z' => {
                reader.leb()?;
            }
            b'R' => encoding = reader.byte()?,
            b'L' => {
                reader.byte()?;
            }
            b'P' => {
                let personality = reader.byte()?;
                reader.pointer(personality)?;
            }
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    matches!(encoding & 0xf0, 0 | PCREL).then_some(encoding)
}

/// Bytes read from a place on.
struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn unsigned(&mut self, bytes: usize) -> Option<u64> {
        let read = self.bytes.get(self.at..self.at.checked_add(bytes)?)?;
        self.at += bytes;
        Some(
            read.iter()
                .rev()
                .fold(0, |word, byte| word << 8 | u64::from(*byte)),
        )
    }

    /// A LEB128 number's value does not matter here, only where it ends.
    fn leb(&mut self) -> Option<u64> {
        loop {
            let byte = self.byte()?;
            if byte & 0x80 == 0 {
                return Some(u64::from(byte));
            }
        }
    }

    /// A pointer as `DW_EH_PE_…` says, before anything is added to it.
    fn pointer(&mut self, encoding: u8) -> Option<u64> {
        match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.unsigned(8),
            0x02 => self.unsigned(2),
            0x03 => self.unsigned(4),
            0x0a => self.unsigned(2).map(|word| word as i16 as u64),
            0x0b => self.unsigned(4).map(|word| word as i32 as u64),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// A common entry with `R`, and one function of 0x40 bytes at 0x1000, for a section at 0x2000.
    fn section() -> Vec<u8> {
        let mut bytes = vec![
            16, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b,
        ];
        bytes.resize(20, 0);
        let here = 0x2000 + bytes.len() as i32 + 8;
        bytes.extend(16u32.to_le_bytes());
        bytes.extend(24u32.to_le_bytes());
        bytes.extend((0x1000 - here).to_le_bytes());
        bytes.extend(0x40u32.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend([0; 4]);
        bytes
    }

    /// An executable with a function in its symbols and the one of [`section`].
    fn executable() -> Vec<u8> {
        let names = b"\0.shstrtab\0.text\0.eh_frame\0.symtab\0.strtab\0f\0";
        let at = |name: &[u8]| names.windows(name.len()).position(|w| w == name).unwrap() as u32;
        let mut symbols = vec![0u8; 24];
        symbols.extend(at(b"f\0").to_le_bytes());
        symbols.extend([0x12, 0, 2, 0]);
        symbols.extend(0x1040u64.to_le_bytes());
        symbols.extend(0x20u64.to_le_bytes());
        // Name, type, address, link, contents.
        type Part<'p> = (&'p [u8], u32, u64, u32, Vec<u8>);
        let parts: [Part<'_>; 5] = [
            (b".shstrtab\0", 3, 0, 0, names.to_vec()),
            (b".text\0", 1, 0x1000, 0, vec![0x90; 0x80]),
            (b".eh_frame\0", 1, 0x2000, 0, section()),
            (b".symtab\0", 2, 0, 5, symbols),
            (b".strtab\0", 3, 0, 0, names.to_vec()),
        ];
        let mut bytes = vec![0u8; 64 + 56];
        let mut table = vec![0u8; 64];
        for (name, kind, address, link, data) in parts {
            if address == 0x1000 {
                let segment = [
                    1 | 5 << 32,
                    bytes.len() as u64,
                    0x1000,
                    0x1000,
                    0x80,
                    0x80,
                    16,
                ];
                let row = segment.iter().flat_map(|word: &u64| word.to_le_bytes());
                bytes.splice(64..120, row);
            }
            table.extend(at(name).to_le_bytes());
            table.extend(kind.to_le_bytes());
            table.extend(if address == 0 { 0u64 } else { 2 }.to_le_bytes());
            for word in [address, bytes.len() as u64, data.len() as u64] {
                table.extend(word.to_le_bytes());
            }
            table.extend(link.to_le_bytes());
            table.extend(1u32.to_le_bytes());
            table.extend(8u64.to_le_bytes());
            table.extend(if kind == 2 { 24u64 } else { 0 }.to_le_bytes());
            bytes.extend(data);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        let start = bytes.len() as u64;
        bytes.extend(table);
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16..24].copy_from_slice(&[3, 0, 62, 0, 1, 0, 0, 0]);
        bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
        bytes[40..48].copy_from_slice(&start.to_le_bytes());
        bytes[52..64].copy_from_slice(&[64, 0, 56, 0, 1, 0, 64, 0, 6, 0, 1, 0]);
        bytes
    }

    #[test]
    fn fuzz_functions() {
        let file = executable();
        let text = file.windows(0x80).position(|w| w == [0x90; 0x80]).unwrap() as u64;
        let found = |offset| in_elf(&file[..], "f", offset);
        assert!(matches!(found(text + 0x40), Ok((Kind::Function, 0x20))));
        assert!(matches!(found(text), Ok((Kind::Function, 0x40))));
        let words: &[&[u8]] = &[b"zPLR\0", &[0xff; 4], &[0x1b], b".plt.sec\0"];
        let seeds = vec![file.clone(), section()];
        let target = warpbpf_fuzz::Target::new("functions", seeds);
        target.words(words).run(|bytes| {
            for offset in [text, text + 0x40, text + 0x7f] {
                let _ = in_elf(bytes, "f", offset);
            }
            for base in [0x2000, u64::MAX] {
                if let Some((_, length)) = function_of(bytes, base, 0x1000) {
                    assert!(length > 0);
                }
            }
        });
    }

    #[test]
    fn a_segment_that_ends_beyond_the_last_address_has_no_functions() {
        let mut file = executable();
        let text = file.windows(0x80).position(|w| w == [0x90; 0x80]).unwrap() as u64;
        // The address in the first program header.
        file[64 + 16..64 + 24].copy_from_slice(&u64::MAX.to_le_bytes());
        let found = in_elf(&file[..], "f", text + 0x40).map(|_| ());
        assert_eq!(found, Err(FunctionError::NotInFile));
    }

    #[test]
    fn unwind_entries_say_where_functions_are() {
        let bytes = section();
        let at = |address| function_of(&bytes, 0x2000, address);
        assert_eq!(at(0x1000), Some((0x1000, 0x40)));
        assert_eq!(at(0x103f), Some((0x1000, 0x40)));
        assert_eq!(at(0x1040), None);
        assert_eq!(at(0xfff), None);
        // Whatever is cut off or damaged is not understood, and nothing is read beyond the end.
        for end in 0..bytes.len() - 8 {
            assert_eq!(function_of(&bytes[..end], 0x2000, 0x1000), None, "{end}");
        }
        for place in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[place] ^= 0xff;
            let _ = function_of(&bad, 0x2000, 0x1000);
        }
    }

    /// The file offset of an address of this test's own code.
    fn offset_of(address: usize) -> (String, u64) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let hex = |text: &str| usize::from_str_radix(text, 16).unwrap();
        let found = maps.lines().find_map(|line| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let (low, high) = words[0].split_once('-')?;
            (hex(low)..hex(high)).contains(&address).then(|| {
                let offset = address - hex(low) + hex(words[2]);
                (words[5].to_owned(), offset as u64)
            })
        });
        found.unwrap()
    }

    #[inline(never)]
    extern "C" fn a_function_of_this_file(x: u64) -> u64 {
        std::hint::black_box(x) * 3 + 1
    }

    #[test]
    fn a_local_function_is_known_by_its_symbol_and_by_its_unwind_entry() {
        let address = a_function_of_this_file as *const () as usize;
        let (path, offset) = offset_of(address);
        let (kind, by_symbol) = of_function(&path, offset).unwrap();
        assert_eq!(kind, Kind::Function);
        assert!((4..4096).contains(&by_symbol), "{by_symbol}");
        let inside = of_function(&path, offset + 1).unwrap_err().to_string();
        assert!(
            inside.starts_with("that is inside of `")
                && inside.contains("a_function_of_this_file")
                && inside.ends_with("only the start and the end of functions are served"),
            "{inside}"
        );
        // The same without any symbol.
        let cache = ReadCache::new(File::open(&path).unwrap());
        let elf: ElfFile64<'_, object::Endianness, _> = ElfFile64::parse(&cache).unwrap();
        let section = elf.section_by_name(".eh_frame").unwrap();
        let symbol = elf
            .symbols()
            .find(|s| {
                s.name()
                    .is_ok_and(|name| name.contains("a_function_of_this_file"))
            })
            .unwrap();
        let found = function_of(
            section.data().unwrap(),
            section.address(),
            symbol.address() + 2,
        );
        assert_eq!(found, Some((symbol.address(), symbol.size())));
        assert_eq!(symbol.size() as usize, by_symbol);
    }

    /// Which entry is for which function only the linker's tables say, so all of this test's own
    /// are looked at.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn entries_of_linkage_tables_are_as_long_as_their_section_says() {
        let (path, _) = offset_of(what_is_no_function_is_refused as *const () as usize);
        let cache = ReadCache::new(File::open(&path).unwrap());
        let elf: ElfFile64<'_, object::Endianness, _> = ElfFile64::parse(&cache).unwrap();
        let mut seen = 0;
        for (name, bytes) in TABLES {
            let Some(table) = elf.section_by_name(name) else {
                continue;
            };
            let (offset, size) = table.file_range().unwrap();
            assert_eq!(
                of_function(&path, offset),
                Ok((Kind::Entry, *bytes as usize)),
                "{name}"
            );
            let last = offset + size - bytes;
            assert_eq!(of_function(&path, last), Ok((Kind::Entry, *bytes as usize)));
            assert_eq!(
                of_function(&path, last + 1).unwrap_err().to_string(),
                format!(
                    "that is inside of an entry of `{name}`, and only the start and the end of functions are served"
                )
            );
            seen += 1;
        }
        assert!(seen > 0);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn ends_of_entries_and_entries_of_the_driver_are_refused() {
        use std::os::unix::fs::MetadataExt as _;
        let (own, _) = offset_of(what_is_no_function_is_refused as *const () as usize);
        let folder = std::env::temp_dir().join(format!("warpbpf-entries-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let refused = |name: &str, at_end| {
            let path = folder.join(name);
            std::fs::copy(&own, &path).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let elf: ElfFile64<'_, object::Endianness> = ElfFile64::parse(&*bytes).unwrap();
            let table = TABLES
                .iter()
                .find_map(|(name, _)| elf.section_by_name(name));
            let (offset, _) = table.unwrap().file_range().unwrap();
            let file = std::fs::metadata(&path).unwrap();
            let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
            // As if it were loaded; nothing is read there before it is refused.
            let maps = format!(
                "10000000-20000000 r-xp 00000000 {major:02x}:{minor:02x} {} x\n",
                file.ino()
            );
            let found =
                super::super::find(&path.display().to_string(), offset, at_end, maps.as_bytes());
            found.unwrap_err().to_string()
        };
        let end = "that is an entry of a procedure linkage table, which has no end; take the function that it is for";
        assert_eq!(refused("app", true), end);
        for name in ["libcuda.so.580", "libnvidia-ptxjitcompiler.so.1"] {
            assert_eq!(
                refused(name, false),
                format!(
                    "entries of `{name}` are called by the driver itself, with its locks held; take the function that it is for"
                )
            );
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_no_function_is_refused() {
        let (path, _) = offset_of(what_is_no_function_is_refused as *const () as usize);
        assert_eq!(of_function(&path, u64::MAX), Err(FunctionError::NotInFile));
        // The ELF header.
        assert_eq!(of_function(&path, 0), Err(FunctionError::NoLength));
        assert!(
            of_function("/nonexistent", 0)
                .unwrap_err()
                .to_string()
                .starts_with("`/nonexistent` cannot be read: ")
        );
    }
}
