//! An object without some of its programs and maps.

use warpbpf_object::{Btf, InitialValue, Type, hide, load, set_variables};

use crate::common::{compile, compile_with};

const SOURCE: &str = "struct inner { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, int); __type(value, int); };
    struct inner one SEC(\".maps\"), two SEC(\".maps\");
    struct { __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS); __uint(max_entries, 2); __type(key, int); __array(values, struct inner); }
        outer SEC(\".maps\") = { .values = { [1] = &one } };
    struct { __uint(type, BPF_MAP_TYPE_STACK_TRACE); __uint(max_entries, 1); __uint(key_size, 4); __uint(value_size, 8); } stacks SEC(\".maps\");
    const volatile int limit = 3; int counted;
    static __attribute__((noinline)) long helper(void *ctx) { return bpf_get_stackid(ctx, &stacks, 0) + limit; }
    SEC(\"tp/a/b\") long linux_side(void *ctx) { int key = 1; bpf_map_lookup_elem(&outer, &key); return helper(ctx); }
    SEC(\"gpu/entry/*\") long in_kernel(void *ctx) { int key = 0, *value = bpf_map_lookup_elem(&two, &key); counted++; return value ? *value : limit; }";

fn names(bytes: &[u8]) -> (Vec<String>, Vec<String>) {
    let object = load(bytes).expect("it loads");
    let programs = object.programs.iter().map(|p| p.name.clone());
    (
        programs.collect(),
        object.maps.iter().map(|m| m.name.clone()).collect(),
    )
}

#[test]
fn what_is_hidden_is_not_there_and_all_else_is_as_it_was() {
    let whole = compile(SOURCE);
    let all = ["one", "two", "outer", "stacks", ".rodata", ".bss"];
    let (programs, maps) = names(&whole);
    assert_eq!(programs, ["linux_side", "in_kernel"]);
    assert!(all.iter().all(|name| maps.contains(&(*name).to_owned())));
    let part =
        hide(&whole, &["linux_side"], &["stacks", "outer", "one"]).expect("it can be hidden");
    assert_eq!(part.len(), whole.len());
    let (programs, maps) = names(&part);
    assert_eq!(programs, ["in_kernel"]);
    assert!(
        maps.contains(&"two".to_owned())
            && !maps
                .iter()
                .any(|m| ["one", "outer", "stacks"].contains(&m.as_str()))
    );
    // The other half has all maps, at their places, and what is in them.
    let rest = hide(&whole, &["in_kernel"], &[]).expect("it can be hidden");
    let (before, rest) = (load(&whole).unwrap(), load(&rest).unwrap());
    assert_eq!(
        (rest.programs.len(), &rest.programs[0]),
        (1, &before.programs[0])
    );
    assert_eq!(rest.maps, before.maps);
    let (outer, map) = rest.map("outer").unwrap();
    assert_eq!((map.initial.len(), map.initial[0].index), (1, 1));
    let InitialValue::Map(inner) = map.initial[0].value else {
        panic!("{:?}", map.initial);
    };
    assert_eq!(rest.maps[inner as usize].name, "one");
    let named: Vec<u32> = rest.programs[0].maps().collect();
    assert!(named.contains(&outer) && named.contains(&rest.map("stacks").unwrap().0));
    assert!(!named.contains(&rest.map("two").unwrap().0));
    // Variables can be set in it as before, and hiding nothing changes nothing.
    set_variables(&part, &[("limit", "4")]).expect("it is there");
    assert_eq!(hide(&whole, &["nobody"], &["nothing"]).unwrap(), whole);
}

#[test]
fn a_hidden_map_that_code_names_is_missed_by_name() {
    let part = hide(&compile(SOURCE), &["linux_side"], &["two"]).expect("it can be hidden");
    let error = load(&part).expect_err("a program needs it").to_string();
    assert!(error.contains("two"), "{error}");
}

#[test]
fn an_object_without_types_has_no_maps_to_hide() {
    let source = "SEC(\"tp/a/b\") long a(void *ctx) { return 0; } SEC(\"x\") long b(void *ctx) { return 1; }";
    let whole = compile_with(source, &["-target", "bpf"]);
    let part = hide(&whole, &["a"], &["m"]).expect("it can be hidden");
    assert_eq!(names(&part).0, ["b"]);
}

#[test]
fn types_written_again_are_the_same_and_have_the_texts() {
    let types = load(&compile(SOURCE)).unwrap().btf.unwrap();
    let (bytes, places) = types
        .to_bytes(&["a line", "", "another", "a line"])
        .unwrap();
    let again = Btf::parse(&bytes).unwrap();
    assert!(again.types().eq(types.types()));
    let texts: Vec<&str> = places.iter().map(|at| again.string(*at).unwrap()).collect();
    assert_eq!(texts, ["a line", "", "another", "a line"]);
    assert_eq!(places[0], places[3]);
}

/// Types of a module, which begin behind the kernel's: a function of a prototype of the kernel's.
#[test]
fn types_of_a_module_go_on_from_those_of_the_kernel() {
    let kernel = load(&compile(SOURCE)).unwrap().btf.unwrap();
    let count = kernel.types().count() as u32;
    let (proto, name) = kernel
        .types()
        .find_map(|(_, ty)| match ty {
            Type::Func { proto, name, .. } => Some((proto.0, name.clone())),
            _ => None,
        })
        .unwrap();
    // Strings behind the kernel's begin where those end.
    let (bytes, _) = kernel.to_bytes(&[]).unwrap();
    let kernel = Btf::parse(&bytes).unwrap();
    let end = u32::from_le_bytes(bytes[20..24].try_into().unwrap());
    let text = b"\0of_module\0";
    let mut module = vec![0x9f, 0xeb, 1, 0];
    for word in [24, 0, 12, 12, text.len() as u32] {
        module.extend(word.to_le_bytes());
    }
    for word in [end + 1, 12 << 24, proto] {
        module.extend(word.to_le_bytes());
    }
    module.extend(text);
    let both = kernel.followed_by(&module).unwrap();
    let (id, ty) = both.find("of_module").next().unwrap();
    assert_eq!(id.0, count);
    assert!(matches!(ty, Type::Func { proto: p, .. } if p.0 == proto));
    assert!(
        both.find(&name).next().is_some(),
        "the kernel's are there, too"
    );
    assert!(kernel.find("of_module").next().is_none());
}
