//! The linked object as an ELF file.

use crate::btf_write::{Strings, put};
use crate::link::error::LinkError;
use crate::link::layout::{Layout, SHT_NOBITS, SHT_PROGBITS};
use crate::link::symbols::Symbols;
use crate::link::types::Merged;

const HEADER: usize = 64;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_REL: u32 = 9;
const SHF_INFO_LINK: u64 = 0x40;
/// Section numbers from here on have other meanings.
const MAX_SECTIONS: usize = 0xff00;

/// A section header, but for the position.
struct Header {
    name: u32,
    kind: u32,
    flags: u64,
    offset: u64,
    size: u64,
    link: u32,
    info: u32,
    align: u64,
    entry: u64,
}

struct Writer {
    out: Vec<u8>,
    names: Strings,
    headers: Vec<Header>,
}

impl Writer {
    fn add(&mut self, name: &str, kind: u32, align: u64, data: &[u8]) -> &mut Header {
        let align = align.max(1);
        self.out
            .resize(self.out.len().next_multiple_of(align as usize), 0);
        let name = self.names.add(name);
        self.headers.push(Header {
            name,
            kind,
            flags: 0,
            offset: self.out.len() as u64,
            size: data.len() as u64,
            link: 0,
            info: 0,
            align,
            entry: 0,
        });
        self.out.extend(data);
        let last = self.headers.len() - 1;
        &mut self.headers[last]
    }
}

pub(super) fn object(
    layout: &Layout,
    symbols: &Symbols,
    types: Merged,
) -> Result<Vec<u8>, LinkError> {
    let relocated = layout
        .sections
        .iter()
        .filter(|section| !section.relocations.is_empty())
        .count();
    // Null, contents, relocations, `.BTF`, `.BTF.ext`, `.symtab`, `.strtab`.
    if layout.sections.len() + relocated + 5 > MAX_SECTIONS {
        return Err(LinkError::TooLarge {
            what: "more than 65,280 sections",
        });
    }
    let mut w = Writer {
        out: vec![0; HEADER],
        names: Strings::new(),
        headers: Vec::new(),
    };
    for section in &layout.sections {
        let header = w.add(&section.name, section.kind, section.align, &section.data);
        header.flags = section.flags;
        if section.kind == SHT_NOBITS {
            header.size = section.size;
        }
    }
    if let Some(btf) = &types.btf {
        w.add(".BTF", SHT_PROGBITS, 4, btf);
    }
    if let Some(ext) = &types.ext {
        w.add(".BTF.ext", SHT_PROGBITS, 4, ext);
    }
    let symtab = (w.headers.len() + relocated + 1) as u32;
    for (index, section) in layout.sections.iter().enumerate() {
        if section.relocations.is_empty() {
            continue;
        }
        let mut data = Vec::new();
        for relocation in &section.relocations {
            // The null symbol comes first.
            let symbol = relocation.symbol as u64 + 1;
            data.extend(relocation.offset.to_le_bytes());
            data.extend((symbol << 32 | u64::from(relocation.kind)).to_le_bytes());
        }
        let header = w.add(&format!(".rel{}", section.name), SHT_REL, 8, &data);
        header.flags = SHF_INFO_LINK;
        header.link = symtab;
        header.info = index as u32 + 1;
        header.entry = 16;
    }
    let table = symbol_table(&mut w.names, symbols);
    let locals = symbols.all.iter().filter(|symbol| !symbol.global).count();
    let header = w.add(".symtab", SHT_SYMTAB, 8, &table);
    header.link = symtab + 1;
    header.info = locals as u32 + 1;
    header.entry = 24;
    w.names.add(".strtab");
    let names = std::mem::replace(&mut w.names, Strings::new());
    let strtab = names.offset(".strtab");
    w.add("", SHT_STRTAB, 1, names.bytes()).name = strtab;
    Ok(finish(w))
}

fn symbol_table(names: &mut Strings, symbols: &Symbols) -> Vec<u8> {
    let mut table = vec![0; 24];
    for symbol in &symbols.all {
        let binding = match (symbol.global, symbol.weak) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        };
        let (section, value) = match symbol.place {
            Some((section, value)) => (section as u16 + 1, value),
            None => (0, 0),
        };
        put(&mut table, &[names.add(&symbol.name)]);
        table.extend([binding << 4 | symbol.kind & 0xf, symbol.visibility & 3]);
        table.extend(section.to_le_bytes());
        table.extend(value.to_le_bytes());
        table.extend(symbol.size.to_le_bytes());
    }
    table
}

fn finish(w: Writer) -> Vec<u8> {
    let Writer {
        mut out, headers, ..
    } = w;
    out.resize(out.len().next_multiple_of(8), 0);
    let table = out.len() as u64;
    out.extend([0; HEADER]);
    for header in &headers {
        put(&mut out, &[header.name, header.kind]);
        for word in [header.flags, 0, header.offset, header.size] {
            out.extend(word.to_le_bytes());
        }
        put(&mut out, &[header.link, header.info]);
        out.extend(header.align.to_le_bytes());
        out.extend(header.entry.to_le_bytes());
    }
    // 64 bits, little endian, relocatable, for BPF.
    let mut head = b"\x7fELF\x02\x01\x01".to_vec();
    head.resize(16, 0);
    head.extend([1, 0, 247, 0]);
    put(&mut head, &[1]);
    for word in [0, 0, table] {
        head.extend(word.to_le_bytes());
    }
    put(&mut head, &[0]);
    let count = headers.len() as u16 + 1;
    for half in [HEADER as u16, 0, 0, HEADER as u16, count, count - 1] {
        head.extend(half.to_le_bytes());
    }
    out[..HEADER].copy_from_slice(&head);
    out
}
