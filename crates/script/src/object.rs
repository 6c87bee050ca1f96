//! From instructions to an object file, with the lines of the script that they come from.

use warpbpf_ebpf::{Code, Imm64, Insn, Pc, encode};
use warpbpf_object::{
    Assembly, LoadedLine, LoadedMap, LoadedProgram, MapReference, TypeId, assemble,
};

use crate::layout::Layout;
use crate::span::{Span, line_text, position};

/// A program that is ready.
#[derive(Debug)]
pub struct Ready {
    /// Its name.
    pub name: String,
    /// Its section.
    pub section: String,
    /// Its instructions.
    pub code: Code,
    /// Where each comes from.
    pub spans: Vec<Span>,
}

/// The bytes of an object file.
///
/// # Errors
/// Why there are none, in words: a jump that is too far.
pub fn object(
    programs: &[Ready],
    layout: &Layout,
    name: &str,
    source: &str,
) -> Result<Vec<u8>, String> {
    let mut types = Types::default();
    let file = types.string(name);
    let functions: Vec<TypeId> = programs
        .iter()
        .map(|program| types.function(&program.name))
        .collect();
    let mut encoded = Vec::new();
    for program in programs {
        encoded.push(encode(&program.code).map_err(|error| error.to_string())?);
    }
    let lines: Vec<Vec<LoadedLine>> = programs
        .iter()
        .map(|program| lines(program, &mut types, file, source))
        .collect();
    let bytes = types.bytes();
    let maps = layout.maps.iter().map(|map| LoadedMap {
        name: &map.name,
        map_type: map.map_type as u32,
        key_size: map.key_size,
        value_size: map.value_size,
        max_entries: map.entries,
        ..LoadedMap::default()
    });
    let parts = programs
        .iter()
        .zip(&encoded)
        .zip(functions.iter().zip(lines));
    let loaded = parts.map(|((program, code), (function, lines))| LoadedProgram {
        name: &program.name,
        section: &program.section,
        code,
        maps: references(&program.code),
        types: Some(0),
        functions: vec![(0, *function)],
        lines,
    });
    let assembly = Assembly {
        types: vec![&bytes],
        maps: maps.collect(),
        programs: loaded.collect(),
        license: "Dual MIT/GPL",
    };
    assemble(&assembly).map_err(|error| error.to_string())
}

fn references(code: &Code) -> Vec<MapReference> {
    let insns = (0..).map(Pc).zip(code.insns());
    let maps = insns.filter_map(|(pc, insn)| match insn {
        Insn::LoadImm64 {
            value: Imm64::Map(map),
            ..
        } => Some(MapReference {
            slot: code.slot(pc),
            map: *map as usize,
            offset: None,
        }),
        _ => None,
    });
    maps.collect()
}

/// A record for each instruction that comes from another place than the one before it.
fn lines(program: &Ready, types: &mut Types, file: u32, source: &str) -> Vec<LoadedLine> {
    let mut lines: Vec<LoadedLine> = Vec::new();
    let mut last = None;
    for (pc, span) in (0..).map(Pc).zip(&program.spans) {
        if last == Some(*span) {
            continue;
        }
        last = Some(*span);
        let at = position(source, span.start);
        let text = types.string(line_text(source, at.line));
        lines.push(LoadedLine {
            slot: program.code.slot(pc),
            file,
            text,
            // Ten bits are the column's.
            position: at.line << 10 | at.column.min(1023),
        });
    }
    lines
}

/// BTF as its format says (Linux, `Documentation/bpf/btf.rst`): the type of programs, and strings.
#[derive(Debug, Default)]
struct Types {
    words: Vec<u32>,
    count: u32,
    strings: Vec<u8>,
}

const INT: u32 = 1;
const PTR: u32 = 2;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const HEADER: u32 = 24;

impl Types {
    fn string(&mut self, text: &str) -> u32 {
        if self.strings.is_empty() {
            self.strings.push(0);
        }
        let mut wanted = text.replace('\0', " ").into_bytes();
        wanted.push(0);
        let same = self.strings.windows(wanted.len()).position(|s| s == wanted);
        // One that is the end of another one serves, too.
        same.unwrap_or_else(|| {
            let at = self.strings.len();
            self.strings.extend(wanted);
            at
        }) as u32
    }

    fn add(&mut self, name: u32, kind: u32, extra: u32, size_or_type: u32, rest: &[u32]) -> u32 {
        self.words.extend([name, kind << 24 | extra, size_or_type]);
        self.words.extend(rest);
        self.count += 1;
        self.count
    }

    /// `int name(void *ctx)`
    fn function(&mut self, name: &str) -> TypeId {
        const PROTOTYPE: u32 = 3;
        if self.count == 0 {
            let (int, ctx) = (self.string("int"), self.string("ctx"));
            let pointer = self.add(0, PTR, 0, 0, &[]);
            let int = self.add(int, INT, 0, 4, &[1 << 24 | 32]);
            self.add(0, FUNC_PROTO, 1, int, &[ctx, pointer]);
        }
        let name = self.string(name);
        let global = 1;
        TypeId(self.add(name, FUNC, global, PROTOTYPE, &[]))
    }

    fn bytes(mut self) -> Vec<u8> {
        self.string("");
        let types = 4 * self.words.len() as u32;
        let strings = self.strings.len() as u32;
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [HEADER, 0, types, types, strings].iter().chain(&self.words) {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.strings);
        bytes
    }
}
