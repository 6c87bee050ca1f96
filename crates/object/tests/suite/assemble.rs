//! Objects made of what a loader passes to the kernel: the same programs and maps come back, or a
//! refusal says why not.

use object::{Object as _, ObjectSection as _};
use warpbpf_ebpf::{Code, Imm64, Insn, Pc, encode, listing};
use warpbpf_object::btf::Type;
use warpbpf_object::{
    AssembleError, Assembly, LoadedLine, LoadedMap, LoadedProgram, MapKind, MapReference, Object,
    TypeId, assemble, load,
};

use crate::common::compile;

const SOURCE: &str = "
    struct entry { long hits; int last; };
    struct { __uint(type, 1); __uint(max_entries, 7); __type(key, int); __type(value, struct entry); } seen SEC(\".maps\");
    struct { __uint(type, 1502); __uint(max_entries, 3); __uint(key_size, 4); __uint(value_size, 16); __ulong(map_extra, 1UL << 33); } wide SEC(\".maps\");
    const volatile int limit = 3;
    long total = 5;
    static __attribute__((noinline)) int twice(int x) { asm volatile(\"\"); return 2 * x; }
    static long step(__u64 i, void *ctx) { total += i; return 0; }
    SEC(\"gpu/entry/*\") int enter(void *ctx) {
        int k = 0; struct entry *e = bpf_map_lookup_elem(&seen, &k);
        if (e) e->hits += twice(limit);
        bpf_loop(4, step, 0, 0);
        return bpf_map_lookup_elem(&wide, &k) != 0;
    }
    char LICENSE[] SEC(\"license\") = \"Dual MIT/GPL\";";

fn types_of(elf: &[u8]) -> Vec<u8> {
    let file = object::File::parse(elf).unwrap();
    let section = file.section_by_name(".BTF").unwrap();
    section.data().unwrap().to_vec()
}

/// What libbpf would pass for a loaded object: code, and beside it where maps are named.
fn bytes_of(code: &Code) -> (Vec<u8>, Vec<MapReference>) {
    let mut references = Vec::new();
    for (pc, insn) in (0..).map(Pc).zip(code.insns()) {
        let Insn::LoadImm64 { value, .. } = insn else {
            continue;
        };
        let (map, offset) = match value {
            Imm64::Map(map) => (*map, None),
            Imm64::MapValue { map, offset } => (*map, Some(*offset)),
            _ => continue,
        };
        references.push(MapReference {
            slot: code.slot(pc),
            map: map as usize,
            offset,
        });
    }
    (encode(code).unwrap(), references)
}

/// Takes an object apart and puts it together again.
fn again(object: &Object, types: &[u8]) -> Result<Vec<u8>, AssembleError> {
    let maps = object.maps.iter().map(|def| LoadedMap {
        name: &def.name,
        map_type: def.map_type,
        key_size: def.key_size,
        value_size: def.value_size,
        max_entries: def.max_entries,
        flags: def.flags,
        extra: def.extra.get("map_extra").copied().unwrap_or(0),
        types: 0,
        key_type: def.key_type.unwrap_or_default(),
        value_type: def.value_type.unwrap_or_default(),
        data: match &def.kind {
            MapKind::User => None,
            MapKind::Data { section, image, .. } => Some((section.as_str(), image.as_slice())),
        },
        ..LoadedMap::default()
    });
    let parts: Vec<_> = object.programs.iter().map(|p| bytes_of(&p.code)).collect();
    let programs = object
        .programs
        .iter()
        .zip(&parts)
        .map(|(program, (code, maps))| {
            let function = |f: &warpbpf_object::FunctionInfo| {
                (program.code.slot(f.start), f.btf.unwrap_or_default())
            };
            let lines = program.lines.iter().map(|line| LoadedLine {
                slot: program.code.slot(line.pc),
                file: 0,
                text: 0,
                position: line.line << 10 | line.column,
            });
            LoadedProgram {
                name: &program.name,
                section: &program.section,
                code,
                maps: maps.clone(),
                types: Some(0),
                functions: program.functions.iter().map(function).collect(),
                lines: lines.collect(),
            }
        });
    assemble(&Assembly {
        types: vec![types],
        maps: maps.collect(),
        programs: programs.collect(),
        license: object.license.as_deref().unwrap_or(""),
    })
}

#[test]
fn what_was_loaded_is_an_object_again() {
    let elf = compile(SOURCE);
    let object = load(&elf).unwrap();
    let bytes = again(&object, &types_of(&elf)).unwrap();
    let back = load(&bytes).unwrap();
    assert_eq!(back.license.as_deref(), Some("Dual MIT/GPL"));
    let names = |object: &Object| -> Vec<String> {
        object.maps.iter().map(|map| map.name.clone()).collect()
    };
    assert_eq!(names(&back), names(&object));
    for (old, new) in object.maps.iter().zip(&back.maps) {
        let numbers = |m: &warpbpf_object::MapDef| {
            (
                m.map_type,
                m.key_size,
                m.value_size,
                m.max_entries,
                m.flags,
                m.extra.clone(),
            )
        };
        assert_eq!(numbers(new), numbers(old), "{}", old.name);
        assert_eq!(new.kind, old.kind);
    }
    let (old, new) = (&object.programs[0], &back.programs[0]);
    assert_eq!(listing(&new.code), listing(&old.code));
    assert_eq!(
        new.functions.iter().map(|f| f.start).collect::<Vec<_>>(),
        old.functions.iter().map(|f| f.start).collect::<Vec<_>>()
    );
    let positions = |p: &warpbpf_object::Program| -> Vec<(Pc, u32, u32)> {
        p.lines.iter().map(|l| (l.pc, l.line, l.column)).collect()
    };
    assert_eq!(positions(new), positions(old));
    // Types of keys and values are the program's own.
    let types = back.btf.as_ref().unwrap();
    let value = back.maps[0].value_type.unwrap();
    assert!(matches!(
        types.strip(value).unwrap().1,
        Type::Struct { name, size: 16, .. } if name == "entry"
    ));
    let section = back.maps.iter().find(|map| map.name == ".data").unwrap();
    assert!(matches!(
        types.type_by_id(section.value_type.unwrap()),
        Some(Type::DataSec { vars, .. }) if vars.len() == 1
    ));
    // Once more, from what came back.
    let twice = again(&back, &types_of(&bytes)).unwrap();
    assert_eq!(load(&twice).unwrap().maps.len(), back.maps.len());
}

/// `r0 = 0; exit`.
const NOTHING: [u8; 16] = [0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];

fn program(name: &'static str, code: &'static [u8]) -> LoadedProgram<'static> {
    LoadedProgram {
        name,
        section: "gpu/entry/*",
        code,
        ..LoadedProgram::default()
    }
}

#[test]
fn programs_of_one_section_and_maps_of_maps() {
    let inner = LoadedMap {
        map_type: 2,
        key_size: 4,
        value_size: 8,
        max_entries: 5,
        ..LoadedMap::default()
    };
    let outer = LoadedMap {
        name: "outer",
        map_type: 12,
        key_size: 4,
        value_size: 4,
        max_entries: 3,
        inner: Some(Box::new(inner.clone())),
        initial: vec![(2, 1)],
        ..LoadedMap::default()
    };
    let first = LoadedMap {
        name: "first",
        ..inner
    };
    let assembly = Assembly {
        maps: vec![outer, first],
        programs: vec![program("a", &NOTHING), program("b", &NOTHING)],
        license: "GPL",
        ..Assembly::default()
    };
    let object = load(&assemble(&assembly).unwrap()).unwrap();
    let names: Vec<_> = object.programs.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let outer = &object.maps[0];
    assert_eq!(outer.inner.as_ref().unwrap().max_entries, 5);
    assert_eq!(outer.initial.len(), 1);
    assert_eq!(outer.initial[0].index, 2);
    assert_eq!(outer.initial[0].value, warpbpf_object::InitialValue::Map(1));
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let refused = |assembly: Assembly<'_>| assemble(&assembly).unwrap_err().to_string();
    let with = |program| Assembly {
        programs: vec![program],
        ..Assembly::default()
    };
    assert_eq!(
        refused(Assembly {
            types: vec![&[1, 2, 3]],
            ..Assembly::default()
        })
        .split(':')
        .next(),
        Some("the types that were loaded as number 0 cannot be read")
    );
    let mut p = program("p", &NOTHING);
    p.functions = vec![(0, TypeId::VOID), (9, TypeId::VOID)];
    assert_eq!(
        refused(with(p)),
        "program `p`: its function at instruction 0 is not inside its 2 instructions"
    );
    let mut p = program("p", &NOTHING);
    p.maps = vec![MapReference {
        slot: 0,
        map: 4,
        offset: None,
    }];
    assert_eq!(
        refused(with(p.clone())),
        "program `p`: instruction 0 refers to no map"
    );
    p.maps[0] = MapReference {
        slot: 0,
        map: 0,
        offset: Some(8),
    };
    let mut assembly = with(p);
    assembly.maps = vec![LoadedMap {
        name: "m",
        map_type: 1,
        ..LoadedMap::default()
    }];
    assert_eq!(
        refused(assembly),
        "program `p`: instruction 0 takes map `m` for variables"
    );
    let nested = LoadedMap {
        inner: Some(Box::default()),
        ..LoadedMap::default()
    };
    assert_eq!(
        refused(Assembly {
            maps: vec![LoadedMap {
                name: "outer",
                inner: Some(Box::new(nested)),
                ..LoadedMap::default()
            }],
            ..Assembly::default()
        }),
        "map `outer`: maps of maps of maps do not exist"
    );
    assert_eq!(
        refused(Assembly {
            maps: vec![LoadedMap {
                name: "outer",
                initial: vec![(0, 7)],
                ..LoadedMap::default()
            }],
            ..Assembly::default()
        }),
        "map `outer`: one of its values is no map that was loaded"
    );
}
