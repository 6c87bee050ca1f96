//! The maps that the tests' programs use, and the two questions that tests ask.

use std::collections::BTreeMap;

use warpbpf_abi::attach::Site;
use warpbpf_ebpf::{Code, Pc, assemble};
use warpbpf_object::{FunctionInfo, MapDef, MapKind, Program};
use warpbpf_verify::{Platform, Rejection, Verified, verify};

/// `.rodata`: format strings, then a number. The offsets are in the programs' texts.
pub const RODATA_BYTES: &[u8] =
    b"n %d of %u\n\0%s\0\x00x=%d %d %d %d\0\0\0\x07\0\0\0\0\0\0\0unended";

/// A map of the program's own, with nothing special about it.
pub fn map(name: &str, map_type: u32, key_size: u32, value_size: u32, max_entries: u32) -> MapDef {
    MapDef {
        name: name.to_owned(),
        map_type,
        key_size,
        value_size,
        max_entries,
        flags: 0,
        kind: MapKind::User,
        extra: BTreeMap::new(),
        key_type: None,
        value_type: None,
        inner: None,
        initial: Vec::new(),
    }
}

fn data(section: &str, image: &[u8], read_only: bool) -> MapDef {
    MapDef {
        kind: MapKind::Data {
            section: section.to_owned(),
            image: image.to_vec(),
            read_only,
        },
        ..map(section, 2, 4, image.len() as u32, 1)
    }
}

/// By index: 0 `counts`, 1 `events`, 2 `table`, 3 `.rodata`, 4 `.bss`, 5 `future`, 6 `mine`, 7
/// `odd`, 8 `big`.
pub fn maps() -> Vec<MapDef> {
    vec![
        map("counts", 2, 4, 8, 16),
        map("events", 27, 0, 0, 65536),
        map("table", 1, 8, 16, 1024),
        data(".rodata", RODATA_BYTES, true),
        data(".bss", &[0; 16], false),
        map("future", 99, 4, 8, 16),
        map("mine", 1502, 4, 8, 16),
        map("odd", 2, 8, 8, 16),
        map("big", 2, 4, 64, 16),
    ]
}

pub fn code(text: &str) -> Code {
    match assemble(text) {
        Ok(code) => code,
        Err(errors) => panic!("the test's program does not assemble: {errors:?}"),
    }
}

/// A program whose functions begin at these instructions.
pub fn program(text: &str, functions: &[u32]) -> Program {
    let code = code(text);
    let end = code.insns().len() as u32;
    let ends = functions.iter().skip(1).copied().chain([end]);
    let both = functions.iter().zip(ends);
    Program {
        name: "p".into(),
        section: "gpu/entry/*".into(),
        code,
        functions: both
            .map(|(start, end)| FunctionInfo {
                name: format!("f{start}"),
                start: Pc(*start),
                end: Pc(end),
                btf: None,
            })
            .collect(),
        lines: Vec::new(),
        unresolved: BTreeMap::new(),
    }
}

pub fn platform() -> Platform {
    Platform {
        result_kept: true,
        ..Platform::new(Site::Entry)
    }
}

pub fn attempt(text: &str, platform: &Platform) -> Result<Verified<Code>, Box<Rejection>> {
    verify(code(text), &maps(), platform)
}

/// The program is accepted.
pub fn accept(text: &str) -> Verified<Code> {
    match attempt(text, &platform()) {
        Ok(verified) => verified,
        Err(rejection) => panic!("refused:\n{}\n{}", rejection.render(), text),
    }
}

/// The program is refused, at this slot, with this message.
pub fn refuse(text: &str, slot: u32, message: &str) -> Box<Rejection> {
    refuse_on(&platform(), text, slot, message)
}

/// The same on another platform.
pub fn refuse_on(platform: &Platform, text: &str, slot: u32, message: &str) -> Box<Rejection> {
    match attempt(text, platform) {
        Ok(_) => panic!("accepted, but should be refused with `{message}`:\n{text}"),
        Err(rejection) => {
            assert_eq!(
                (rejection.slot, rejection.rule.to_string().as_str()),
                (slot, message),
                "{text}"
            );
            rejection
        }
    }
}

/// `r0` = a value of map `index`, of a key (of 4 bytes) that it may not have, not null; or exit.
pub fn lookup(index: u32) -> String {
    format!(
        "*(u32 *)(r10 - 4) = 20\nr2 = r10\nr2 += -4\nr1 = map[{index}]\ncall 1\nif r0 != 0 goto found\nr0 = 0\nexit\nfound:\n"
    )
}
