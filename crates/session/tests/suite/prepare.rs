//! What a session makes of images: which programs have sites where, how sites are numbered and
//! named, and what is said of those that get none. Programs are compiled by clang.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use warpbpf_abi::choice::{Choice, ChoiceRequest};
use warpbpf_driver::DeviceInfo;
use warpbpf_session::{
    Means, Method, Options, Prepared, PreparedKernel, ProgramChange, Session, SessionError, inspect,
};

#[path = "../../../../tests/clang.rs"]
mod clang;

const CAPABILITY: (u32, u32) = (9, 0);

/// Two kernels that share a function; `looks` needs a clone, because its constant is initialised in
/// the module.
const MODULE: &str = ".version 8.3
.target sm_90
.address_size 64
.const .align 4 .b32 table[2] = {1, 2};
.func (.param .b32 out) _Z4loadPKi(.param .b64 in)
{
	.reg .b32 %r1;
	.reg .b64 %rd1;
	ld.param.u64 %rd1, [in];
	ld.u32 %r1, [%rd1];
	st.param.b32 [out], %r1;
	ret;
}
.visible .entry _Z4plusPi(.param .u64 p)
{
	.reg .b32 %r<3>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [p];
	ld.global.u32 %r1, [%rd1];
	{
	.param .b64 a;
	st.param.b64 [a], %rd1;
	.param .b32 b;
	call.uni (b), _Z4loadPKi, (a);
	ld.param.b32 %r2, [b];
	}
	st.global.u32 [%rd1], %r2;
	bar.sync 0;
	ret;
}
.visible .entry looks(.param .u64 p)
{
	.reg .b32 %r<2>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [p];
	ld.const.u32 %r1, [table];
	st.global.u32 [%rd1], %r1;
	ret;
}
";

/// A session of one program per section, each of which counts.
fn session(sections: &[&str]) -> Result<Session, SessionError> {
    let programs: String = sections
        .iter()
        .enumerate()
        .map(|(number, section)| {
            let name = if section.starts_with("kprobe") {
                "cuda__p"
            } else {
                "p"
            };
            format!("SEC(\"{section}\") int {name}{number}(void *ctx) {{ return add(); }}\n")
        })
        .collect();
    session_of(&format!(
        "struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1);
            __type(key, __u32); __type(value, __u64); }} counts SEC(\".maps\");
        static inline int add(void) {{
            __u32 key = 0;
            __u64 *value = bpf_map_lookup_elem(&counts, &key);
            if (value) *value += 1;
            return 0;
        }}
        {programs}"
    ))
}

fn session_of(source: &str) -> Result<Session, SessionError> {
    let info = DeviceInfo {
        name: String::new(),
        capability: CAPABILITY,
        sms: 4,
        driver_version: 13000,
    };
    Session::new(&compiled(source), &Options::default(), &info)
}

fn compiled(source: &str) -> Vec<u8> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("warpbpf-session-{}-{number}", std::process::id());
    let base: PathBuf = std::env::temp_dir().join(name);
    let (c, o) = (base.with_extension("c"), base.with_extension("o"));
    let text = format!(
        "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n{source}\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n"
    );
    std::fs::write(&c, text).expect("it is written");
    let done = Command::new(clang::clang())
        .args([
            "-O2",
            "-g",
            "-target",
            "bpf",
            "-mcpu=v3",
            "-I/usr/include/x86_64-linux-gnu",
            "-c",
        ])
        .arg(&c)
        .arg("-o")
        .arg(&o)
        .output()
        .expect("clang starts");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let bytes = std::fs::read(&o).expect("it was written");
    let _ = (std::fs::remove_file(&c), std::fs::remove_file(&o));
    bytes
}

fn prepared(session: &Session, ptx: &str) -> Prepared {
    session.prepare(&inspect(ptx.as_bytes(), CAPABILITY).expect("an image"))
}

fn kernel<'p>(prepared: &'p Prepared, name: &str) -> &'p PreparedKernel {
    let mut kernels = prepared.kernels.iter();
    kernels
        .find(|k| k.demangled == name)
        .expect("a kernel of that name")
}

/// How a kernel is made, its sites, and the programs that want it.
fn fate<'p>(prepared: &'p Prepared, name: &str) -> (&'static str, u32, &'p [usize]) {
    let kernel = kernel(prepared, name);
    let method = match kernel.method {
        Method::Slice => "slice",
        Method::Clone { .. } => "clone",
        Method::NoSite => "no site",
        Method::NotMatched => "not matched",
        Method::Refused { .. } => "refused",
        _ => "another",
    };
    (method, kernel.sites, &kernel.programs)
}

#[test]
fn sites_have_one_numbering_and_keep_it() {
    let session = session(&["gpu/mem/*|space=global+generic"]).expect("it is accepted");
    assert_eq!(session.site_names(), [""]);
    let first = prepared(&session, MODULE);
    assert_eq!(fate(&first, "plus"), ("slice", 3, &[0][..]));
    assert_eq!(fate(&first, "looks"), ("clone", 1, &[0][..]));
    let names = session.site_names();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(
        sorted,
        [
            "",
            "looks+37 st.global.u32",
            "plus+19 ld.global.u32",
            "plus+27 st.global.u32",
            "plus/load+10 ld.u32",
        ]
    );
    let text = first.rewritten.as_deref().expect("a clone");
    let number = names.iter().position(|name| name.starts_with("looks"));
    assert!(number.is_some_and(|n| n > 0), "{names:?}");
    assert!(text.contains(".entry wbpf_kernel_looks("), "{text}");
    // The same text again, as in another context, and another one.
    prepared(&session, MODULE);
    assert_eq!(session.site_names(), names);
    prepared(&session, &MODULE.replace("_Z4plusPi", "_Z3subPi"));
    assert_eq!(session.site_names().len(), 9);
}

#[test]
fn selectors_over_functions_are_of_each_module() {
    for (section, sites) in [
        ("gpu/mem/plus|func=load,space=generic", 1),
        ("gpu/mem/plus|func=_Z4load*", 1),
        ("gpu/mem/plus|func=plus,kind=store", 1),
        ("gpu/func/plus", 1),
        ("gpu/funcret/plus|func=load", 1),
        ("gpu/barrier/plus|kind=sync", 1),
        ("gpu/insn/plus|op=bar.*", 1),
    ] {
        let session = session(&[section]).expect("it is accepted");
        let made = prepared(&session, MODULE);
        assert_eq!(fate(&made, "plus"), ("slice", sites, &[0][..]), "{section}");
        assert_eq!(
            kernel(&made, "looks").method,
            Method::NotMatched,
            "{section}"
        );
    }
}

#[test]
fn a_kernel_without_a_site_runs_as_it_is() {
    let session = session(&["gpu/mem/*|kind=atomic", "gpu/barrier/plus"]).expect("it is accepted");
    let made = prepared(&session, MODULE);
    // Its clone was made, and dropped when nothing was found to be in it.
    assert_eq!(fate(&made, "looks"), ("no site", 0, &[][..]));
    assert!(!kernel(&made, "looks").wanted);
    assert_eq!(made.rewritten, None);
    assert_eq!(fate(&made, "plus"), ("slice", 1, &[0, 1][..]));
    // At a start there always is something to do.
    let session = self::session(&["gpu/mem/*|kind=atomic", "gpu/entry/*"]).expect("as above");
    let made = prepared(&session, MODULE);
    assert_eq!(fate(&made, "looks"), ("clone", 0, &[0, 1][..]));
    assert_eq!(fate(&made, "plus"), ("slice", 0, &[0, 1][..]));
}

#[test]
fn memcapture_is_at_loads_and_stores_and_gives_no_text() {
    let session = session(&["kprobe/__memcapture"]).expect("it is accepted");
    let made = prepared(&session, MODULE);
    assert_eq!(fate(&made, "plus"), ("slice", 4, &[0][..]));
    let error =
        session_of("SEC(\"kprobe/__memcapture\") int cuda__p(char *text) { return text[0]; }")
            .expect_err("the text cannot be read");
    let said = error.to_string();
    assert!(
        said.contains("is no field of `the PTX text of __memcapture, which this version does not give: use gpu/mem and its fields`"),
        "{said}"
    );
}

#[test]
fn a_program_can_be_a_kernel() {
    let session = session(&["gpu/run", "gpu/entry/*", "kprobe/__directly_run"]).expect("accepted");
    assert_eq!(session.own_kernels(), [0, 2]);
    // It is in no kernel of an application, not even in one of its name.
    let made = prepared(&session, &MODULE.replace("looks", "p0"));
    assert_eq!(fate(&made, "p0").2, [1]);
    let own = session.own_kernel(2, CAPABILITY).expect("code is made");
    assert_eq!(
        own.text,
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry cuda__p2()\n{\n\tret;\n}\n"
    );
    assert_eq!(fate(&own.prepared, "cuda__p2"), ("slice", 0, &[2][..]));
    for (capability, head) in [
        ((10, 0), ".version 8.6\n.target sm_100\n"),
        ((12, 0), ".version 8.8\n.target sm_120\n"),
    ] {
        let own = session.own_kernel(0, capability).expect("code is made");
        assert!(own.text.starts_with(head), "{}", own.text);
    }
}

/// What a program reads from the context of its place does not keep its counters from having a copy
/// per multiprocessor.
#[test]
fn counters_in_the_middle_of_a_kernel_are_sharded() {
    // `bytes` of `struct wbpf_mem_ctx`, `taken` of `struct wbpf_branch_ctx`.
    for (section, offset) in [("gpu/mem/*", 248), ("gpu/branch/*", 244)] {
        let session = session_of(&format!(
            "struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1);
                __type(key, __u32); __type(value, __u64); }} counts SEC(\".maps\");
            SEC(\"{section}\") int p(char *ctx) {{
                __u32 key = 0;
                __u64 *value = bpf_map_lookup_elem(&counts, &key);
                if (value) *value += *(volatile __u32 *)(ctx + {offset});
                return 0;
            }}"
        ))
        .unwrap_or_else(|error| panic!("{error}"));
        let map = &session.maps()[0];
        assert_eq!(map.not_summed, None, "{section}");
        assert_eq!(map.sum_fields.len(), 1, "{section}");
    }
}

/// Object of the programs `first` and, if there is one, `more`, with a map of this many entries and
/// a constant.
fn versioned(entries: u32, constant: u32, body: &str) -> Vec<u8> {
    compiled(&format!(
        "struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, {entries});
            __type(key, __u32); __type(value, __u64); }} counts SEC(\".maps\");
        const volatile __u32 at = {constant};
        {body}"
    ))
}

const ADDS: &str = "SEC(\"gpu/entry/*\") int first(void *ctx) {
    __u32 key = at;
    __u64 *value = bpf_map_lookup_elem(&counts, &key);
    if (value) *value += 1;
    return 0;
}";

fn begun(object: &[u8]) -> Session {
    begun_with(object, &Options::default())
}

fn begun_with(object: &[u8], options: &Options) -> Session {
    begun_by(object, options, Means::default())
}

fn begun_by(object: &[u8], options: &Options, means: Means) -> Session {
    let info = DeviceInfo {
        name: String::new(),
        capability: CAPABILITY,
        sms: 4,
        driver_version: 13000,
    };
    Session::with(object, options, means, &info).expect("a session")
}

fn map_names(session: &Session) -> Vec<&str> {
    session.maps().iter().map(|map| map.name.as_str()).collect()
}

#[test]
fn a_session_is_followed_by_another_with_its_maps() {
    let first = begun(&versioned(8, 1, ADDS));
    assert_eq!(first.generation(), 1);
    let object = versioned(8, 2, ADDS);
    let second = first.replaced(ProgramChange::Replace(&object)).unwrap();
    assert_eq!((second.generation(), second.first_maps()), (2, 2));
    // The old constants are still read by what runs.
    assert_eq!(map_names(&second), ["counts", ".rodata", ".rodata@2"]);
    assert_eq!(first.maps()[0].layout, second.maps()[0].layout);
    let again = versioned(8, 1, ADDS);
    let third = second.replaced(ProgramChange::Replace(&again)).unwrap();
    assert_eq!(
        map_names(&third),
        map_names(&second),
        "constants of the first"
    );
    // Programs are told apart by what they are, not by name.
    assert_ne!(first.program_ids(&[0]), second.program_ids(&[0]));
    let more = ADDS.replace("first", "more");
    let more = versioned(8, 1, &more);
    let both = third.replaced(ProgramChange::Add(&more)).unwrap();
    let names: Vec<&str> = both.programs().iter().map(|p| p.name()).collect();
    assert_eq!(names, ["first", "more"]);
    assert_eq!(both.program_ids(&[0]), third.program_ids(&[0]));
    let one = both
        .replaced(ProgramChange::Remove(&["first".into()]))
        .unwrap();
    assert_eq!(one.program_ids(&[0]), both.program_ids(&[1]));
    assert_eq!((one.generation(), one.programs().len()), (5, 1));
    // Numbers of kernels go on.
    let prepared = one.prepare(&inspect(MODULE.as_bytes(), CAPABILITY).unwrap());
    assert!(prepared.kernels.iter().any(|kernel| kernel.wanted));
    assert_eq!(one.kernel_names(), first.kernel_names());
}

#[test]
fn slots_stay_what_they_are_when_maps_come() {
    let prints = ADDS.replace("*value += 1;", "{ *value += 1; bpf_printk(\"%d\", at); }");
    let first = begun(&versioned(8, 1, &prints));
    let object = versioned(8, 2, &prints);
    let second = first.replaced(ProgramChange::Replace(&object)).unwrap();
    assert!(second.maps().len() > first.maps().len());
    // Text of the first session is loaded with what stands in the slots of the second.
    let slots = |session: &Session| {
        let maps = session.bindings().into_iter().map(|map| map.slot);
        let printk = session.printk_binding().unwrap().slot;
        (maps.collect::<Vec<u32>>(), printk)
    };
    let ((was, printk), (is, printk_now)) = (slots(&first), slots(&second));
    assert_eq!(was, is[..was.len()]);
    assert_eq!(printk, printk_now);
    for (session, maps) in [(&first, was), (&second, is)] {
        let addresses: Vec<u64> = (0..maps.len() as u64).map(|map| 100 + map).collect();
        let all = session.in_slots(1, &addresses, Some(99));
        assert_eq!((all[0], all[printk as usize]), (1, 99));
        for (slot, address) in maps.iter().zip(&addresses) {
            assert_eq!(all[*slot as usize], *address);
        }
        assert_eq!(all.len(), maps.len() + 2, "each stands once");
    }
}

/// A program `p` with a map of its own of this type, and what else it has.
fn with_other(map_type: &str, more: &str) -> Vec<u8> {
    compiled(&format!(
        "struct {{ __uint(type, BPF_MAP_TYPE_{map_type}); __uint(max_entries, 8);
            __type(key, __u32); __type(value, __u64); {more} }} others SEC(\".maps\");
        __u64 seen = 5;
        SEC(\"gpu/entry/*\") int p(void *ctx) {{
            __u32 key = 0;
            __u64 *value = bpf_map_lookup_elem(&others, &key);
            if (value) *value += 1;
            seen += 1;
            return 0;
        }}"
    ))
}

#[test]
fn maps_come_with_their_programs() {
    let first = begun(&versioned(8, 1, ADDS));
    for map_type in [
        "ARRAY",
        "HASH",
        "PERCPU_ARRAY",
        "PERCPU_HASH",
        "LRU_HASH",
        "LRU_PERCPU_HASH",
    ] {
        let object = with_other(map_type, "");
        let second = first.replaced(ProgramChange::Add(&object)).unwrap();
        let names = map_names(&second);
        assert_eq!(
            names,
            ["counts", ".rodata", "others", ".data"],
            "{map_type}"
        );
        assert_eq!((second.first_maps(), second.map_count()), (2, 4));
        assert_eq!(second.programs().len(), 2);
        // They are shown, and constants that came are not.
        let bytes = |session: &Session| {
            let layouts = session.layouts();
            layouts
                .iter()
                .map(|map| map.snapshot_bytes)
                .collect::<Vec<u64>>()
        };
        let shown = bytes(&second);
        assert!(shown.iter().all(|bytes| *bytes > 0), "{shown:?}");
        let third = versioned(8, 9, &ADDS.replace("first", "third"));
        let third = second.replaced(ProgramChange::Add(&third)).unwrap();
        assert_eq!(map_names(&third)[4], ".rodata@3");
        assert_eq!(bytes(&third)[..4], shown);
        assert_eq!(bytes(&third)[4], 0);
        // One that is there by now is the same, and must be declared alike.
        let again = third.replaced(ProgramChange::Replace(&object)).unwrap();
        assert_eq!(map_names(&again), map_names(&third));
        let otherwise = with_other(map_type, "__uint(numa_node, 1);");
        let refused = third.replaced(ProgramChange::Replace(&otherwise));
        assert_eq!(
            refused.unwrap_err().to_string(),
            "map `others` is there already with another attribute (numa_node 0, and 1 in the new object): its contents could not be kept; give the map another name, or declare it as it was"
        );
    }
    // Variables of one more object are its own.
    let both = begun(&with_other("ARRAY", ""));
    let more = with_other("ARRAY", "").to_vec();
    let refused = both.replaced(ProgramChange::Add(&more)).unwrap_err();
    assert!(refused.to_string().starts_with("program `p` is there"));
    let other =
        compiled("__u64 seen = 7; SEC(\"gpu/entry/*\") int q(void *ctx) { seen += 2; return 0; }");
    let both = both.replaced(ProgramChange::Add(&other)).unwrap();
    assert_eq!(map_names(&both), ["others", ".data", ".data@2"]);
}

#[test]
fn maps_that_need_more_than_memory_do_not_come() {
    let first = begun(&versioned(8, 1, ADDS));
    let refused = |session: &Session, object: &[u8]| {
        let refused = session.replaced(ProgramChange::Add(object));
        refused.map(|_| ()).unwrap_err().to_string()
    };
    let ring = compiled(
        "struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); } ring SEC(\".maps\");
        SEC(\"gpu/entry/*\") int p(void *ctx) {
            __u64 one = 1;
            return bpf_ringbuf_output(&ring, &one, 8, 0);
        }",
    );
    assert_eq!(
        refused(&first, &ring),
        "map `ring` is new, and what goes by rings goes by memory that is made when a session begins: begin with an object that has it"
    );
    assert_eq!(
        refused(&first, &with_other("ARRAY", "__uint(warpbpf_place, 2);")),
        "map `others` is new, and maps in the host's memory are only made when a session begins: begin with an object that has it"
    );
    let of_maps = compiled(
        "struct one { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u64); };
        struct { __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS); __uint(max_entries, 2); __type(key, __u32); __array(values, struct one); } all SEC(\".maps\");
        SEC(\"gpu/entry/*\") int p(void *ctx) {
            __u32 key = 0;
            return !bpf_map_lookup_elem(&all, &key);
        }",
    );
    assert_eq!(
        refused(&first, &of_maps),
        "map `all` is new, and maps of maps are only made when a session begins: begin with an object that has it"
    );
    let unknown = with_other("ARRAY", "__uint(map_flags, 64);");
    assert!(refused(&first, &unknown).starts_with("map `others`: "));
}

fn joined(session: &Session, client: u32, object: &[u8]) -> Result<Session, String> {
    let options = Options::default();
    let change = ProgramChange::Join {
        client,
        object,
        options: &options,
    };
    session
        .replaced(change)
        .map_err(|error| error.told_to(client))
}

fn program_names(session: &Session) -> Vec<&str> {
    session.programs().iter().map(|p| p.name()).collect()
}

#[test]
fn a_second_tool_has_programs_and_maps_of_its_own() {
    let object = versioned(8, 1, ADDS);
    let first = begun(&object);
    // The very same object, twice, and one whose map of the same name is another.
    let second = joined(&first, 1, &object).unwrap();
    let third = joined(&second, 2, &versioned(9, 1, ADDS)).unwrap();
    assert_eq!(program_names(&third), ["first", "first@c1", "first@c2"]);
    let names = [
        "counts",
        ".rodata",
        "counts@c1",
        ".rodata@c1",
        "counts@c2",
        ".rodata@c2",
    ];
    assert_eq!(map_names(&third), names);
    let clients: Vec<u32> = (0..6).map(|map| third.map_client(map)).collect();
    assert_eq!(clients, [0, 0, 1, 1, 2, 2]);
    assert_eq!(third.clients_of(&[2, 0]), [0, 2]);

    // What the first tool does is about its own, and constants are not taken from others.
    let again = third.replaced(ProgramChange::Replace(&versioned(8, 2, ADDS)));
    let again = again.unwrap();
    assert_eq!(program_names(&again), ["first", "first@c1", "first@c2"]);
    assert_eq!(
        again.program_ids(&[1, 2]),
        third.program_ids(&[1, 2]),
        "clients' programs stay what they were"
    );
    assert_ne!(again.program_ids(&[0]), third.program_ids(&[0]));
    assert_eq!(map_names(&again)[6..], [".rodata@4"]);
    let name = ["first@c1".to_owned()];
    let refused = third.replaced(ProgramChange::Remove(&name)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "there is no program `first@c1`; there is `first`"
    );

    // In any order they go, and what is left is the same.
    let left = third.replaced(ProgramChange::Leave { client: 1 }).unwrap();
    assert_eq!(program_names(&left), ["first", "first@c2"]);
    assert_eq!(left.program_ids(&[0, 1]), third.program_ids(&[0, 2]));
    assert_eq!(left.numbers(&third.program_ids(&[2, 0])), Some(vec![1, 0]));
    assert_eq!(left.numbers(&third.program_ids(&[1])), None);
    assert_eq!(map_names(&left), names);
    for client in [0, 1] {
        let gone = left.replaced(ProgramChange::Leave { client }).unwrap_err();
        let told = format!("no programs of a second tool of number {client} are there");
        assert_eq!(gone.to_string(), told);
    }
}

#[test]
fn a_second_tool_is_told_what_it_cannot_have() {
    let prints = ADDS.replace("return 0", "bpf_printk(\"x\"); return 0");
    let first = begun(&versioned(8, 1, &prints));
    let refused = |object: &[u8]| joined(&first, 3, object).map(|_| ()).unwrap_err();
    assert_eq!(
        refused(&versioned(8, 1, &prints)),
        "program `first` prints, and what is printed goes to the first tool: attach when that has ended, or count in a map"
    );
    assert_eq!(
        refused(&with_other("ARRAY", "__uint(warpbpf_place, 2);")),
        "map `others` cannot come with a second tool: maps in the host's memory are only made when a session begins; begin the first tool with an object that has it, or attach when that has ended"
    );
    // Its budget is its own, and not the first tool's.
    let bounded = Options {
        budget: Some(2),
        ..Options::default()
    };
    let object = versioned(8, 1, ADDS);
    let change = ProgramChange::Join {
        client: 3,
        object: &object,
        options: &bounded,
    };
    let over = first.replaced(change).unwrap_err().told_to(3);
    assert!(over.starts_with("program `first` was refused\n"), "{over}");
    assert!(joined(&first, 3, &object).is_ok());
    // So are its launches.
    let request: ChoiceRequest = "every=4".parse().unwrap();
    let chosen = Options {
        choose: vec![("first".into(), request)],
        ..Options::default()
    };
    let change = ProgramChange::Join {
        client: 3,
        object: &object,
        options: &chosen,
    };
    let every = first.replaced(change).unwrap();
    let every: Vec<u64> = every.choices().map(|choice| choice.every).collect();
    assert_eq!(every, [0, 4]);
}

#[test]
fn a_kernel_keeps_what_it_has_where_a_second_tools_programs_cannot_come_too() {
    let object = versioned(8, 1, ADDS);
    let first = begun(&object);
    let image = inspect(MODULE.as_bytes(), CAPABILITY).unwrap();
    let before = first.prepare(&image);
    assert!(before.kernels.iter().all(|kernel| kernel.wanted));
    let second = joined(&first, 1, &object).unwrap();
    let mut both = second.prepare(&image);
    // The module is loaded, so nothing comes into it.
    both.refuse_clones("it is loaded");
    let left_out = both.fall_back(&before, |name, programs| {
        second.may_keep(name, &first.program_ids(programs))
    });
    assert_eq!(left_out.len(), 1);
    let (name, why) = &left_out[0];
    assert_eq!(name, "looks");
    let why = why.why_not().unwrap();
    assert!(why.starts_with("it needs a clone"), "{why}");
    let programs: Vec<_> = both
        .kernels
        .iter()
        .map(|kernel| (kernel.mangled.as_str(), kernel.programs.clone()))
        .collect();
    assert_eq!(programs, [("_Z4plusPi", vec![0, 1]), ("looks", vec![0])]);
}

#[test]
fn a_kernel_has_the_first_tools_programs_where_those_of_all_cannot_be() {
    let object = versioned(8, 1, ADDS);
    let first = begun(&object);
    let image = inspect(MODULE.as_bytes(), CAPABILITY).unwrap();
    let second = joined(&first, 1, &object).unwrap();
    let refused = |session: &Session| {
        let mut prepared = session.prepare(&image);
        for kernel in &mut prepared.kernels {
            kernel.wanted = false;
            kernel.method = Method::refused("too much");
        }
        prepared
    };
    let mut both = refused(&second);
    let left_out = second.without_clients_where_refused(&image, &mut both, "it is loaded");
    let plus = ("_Z4plusPi".to_owned(), Method::refused("too much"));
    // The other one needs a clone.
    assert_eq!(left_out, [plus]);
    let kernels: Vec<_> = both
        .kernels
        .iter()
        .map(|kernel| (kernel.wanted, kernel.programs.clone()))
        .collect();
    assert_eq!(kernels, [(true, vec![0]), (false, vec![0, 1])]);
    // Without clients nothing else can be made.
    let left_out = first.without_clients_where_refused(&image, &mut refused(&first), "");
    assert_eq!(left_out, []);
}

#[test]
fn what_cannot_follow_is_refused_by_name() {
    let first = begun(&versioned(8, 1, ADDS));
    let refused = |object: &[u8]| {
        let refused = first.replaced(ProgramChange::Replace(object));
        refused.map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&versioned(9, 1, ADDS)),
        "map `counts` is there already with another `max_entries` (8, and 9 in the new object): its contents could not be kept; give the map another name, or declare it as it was"
    );
    let reads = ADDS.replace("*value += 1", "*value = *value * 2");
    assert!(refused(&versioned(8, 1, &reads)).starts_with(
        "map `counts` has a copy for each multiprocessor, because programs only added to it so far, and now one does more ("
    ));
    let prints = ADDS.replace("return 0", "bpf_printk(\"x\"); return 0");
    assert!(
        refused(&versioned(8, 1, &prints))
            .starts_with("program `first` prints, and no program did")
    );
    let unsafe_one = ADDS
        .replace("key = at", "key = at + 100")
        .replace("if (value)", "");
    assert!(refused(&versioned(8, 1, &unsafe_one)).starts_with("program `first` was refused"));
    let unknown = first.replaced(ProgramChange::Remove(&["nobody".into()]));
    assert_eq!(
        unknown.unwrap_err().to_string(),
        "there is no program `nobody`; there is `first`"
    );
    let twice = versioned(8, 1, ADDS);
    let twice = first.replaced(ProgramChange::Add(&twice)).unwrap_err();
    assert_eq!(
        twice.to_string(),
        "program `first` is there already: replace it, or give the new one another name"
    );
}

#[test]
fn programs_are_told_apart_only_where_they_are_in_different_launches() {
    let asks = |sections: &[&str]| {
        let session = session(sections).unwrap();
        let common = session.common_choice().map(ToString::to_string);
        // A clone's text is to be seen.
        let text = prepared(&session, MODULE).rewritten.unwrap();
        (
            common,
            text.contains("wbpf_launch[32]"),
            text.contains("+24]"),
        )
    };
    let same = |choice: &str| (Some(choice.to_owned()), false, false);
    assert_eq!(asks(&["gpu/entry/*"]), same("all launches"));
    let alike = ["gpu/entry/*|every=3", "gpu/mem/*|kind=load,every=3"];
    assert_eq!(asks(&alike), same("every=3"));
    assert_eq!(
        asks(&["gpu/entry/*|every=1", "gpu/exit/*"]),
        same("all launches")
    );
    let differ = ["gpu/entry/*", "gpu/mem/*|kind=load,every=3", "gpu/exit/*"];
    assert_eq!(asks(&differ), (None, true, true));
    // In one kernel they are alike.
    let apart = [
        "gpu/entry/looks|every=3",
        "gpu/exit/looks|every=3",
        "gpu/entry/plus",
    ];
    assert_eq!(asks(&apart), (None, false, false));
}

#[test]
fn what_is_said_of_a_program_goes_before_its_section() {
    let object = versioned(8, 1, &ADDS.replace("entry/*", "entry/*|every=4,after=2"));
    let options = |request: &str| Options {
        choice: "every=9,at_most=7"
            .parse::<ChoiceRequest>()
            .unwrap()
            .over(&Choice::default()),
        choose: vec![
            ("first".to_owned(), request.parse().unwrap()),
            ("other".to_owned(), "gpus=3".parse().unwrap()),
        ],
        ..Options::default()
    };
    let session = begun_with(&object, &options("after=0"));
    let chosen = |session: &Session| {
        let all = session.programs().iter();
        all.map(|p| format!("{}: {}", p.name(), p.choice))
            .collect::<Vec<_>>()
    };
    assert_eq!(chosen(&session), ["first: every=4,at_most=7"]);
    // It stays with the name.
    let other = versioned(8, 1, &ADDS.replace("first", "other"));
    let both = session.replaced(ProgramChange::Add(&other)).unwrap();
    assert_eq!(
        chosen(&both),
        [
            "first: every=4,at_most=7",
            "other: every=9,at_most=7,gpus=3"
        ]
    );
    let again = versioned(8, 2, ADDS);
    let again = both.replaced(ProgramChange::Replace(&again)).unwrap();
    assert_eq!(chosen(&again), ["first: every=9,at_most=7"]);

    let ranges = versioned(8, 1, &ADDS.replace("entry/*", "entry/*|nvtx=step,stream=2"));
    let refused = session.replaced(ProgramChange::Replace(&ranges));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "program `first` is for launches that NVTX tells of (every=9,at_most=7,nvtx=step,stream=2), and the application's calls of NVTX do not come to us: that is decided when it starts; start it with `--ranges`"
    );
    let means = Means {
        nvtx_comes_to_us: true,
        ..Means::default()
    };
    let with_slot = begun_by(&object, &options("every=2"), means);
    assert!(with_slot.needs_nvtx());
    assert!(with_slot.replaced(ProgramChange::Replace(&ranges)).is_ok());
    // That programs there wanted them does not bring the calls to us.
    let with_ranges = begun_with(&object, &options("nvtx=epoch"));
    let refused = with_ranges.replaced(ProgramChange::Replace(&ranges));
    assert!(refused.is_err());
}

#[test]
fn what_is_in_slots_chooses_no_launches() {
    let choosing = ADDS.replace("entry/*", "entry/*|every=4");
    // Beside a program that does a slot may be, and is in its launches.
    let session = with_slots(&versioned(8, 1, &choosing));
    assert!(session.filling(&versioned(8, 1, ADDS)).is_ok());
    let refused = session.filling(&versioned(8, 1, &choosing)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "program `first` chooses launches in its section (`gpu/entry/*|every=4`), and what is in a slot is in those that the program beside it is in: leave that out"
    );
    let two = choosing.clone() + &ADDS.replace("first", "second");
    let session = with_slots(&versioned(8, 1, &two));
    let prepared = prepared(&session, MODULE);
    assert_eq!(
        kernel(&prepared, "looks").method.to_string(),
        "refused: its programs choose different launches (`first`: every=4; `second`: all launches), and what is in slots cannot be told apart; choose the same for all of them"
    );
}

#[test]
fn the_gate_has_a_place_for_each_of_the_first_programs() {
    let options = Options {
        gate: true,
        ..Options::default()
    };
    let named = |name: &str| versioned(8, 1, &ADDS.replace("first", name));
    let first = begun_with(&named("first"), &options);
    let stop = |session: &Session, name: &str| {
        let done = session.set_gate(false, &[name.to_owned()]);
        done.map_err(|error| error.to_string())
    };
    assert_eq!(stop(&first, "first"), Ok(()));
    assert_eq!(
        stop(&first, "nobody"),
        Err("there is no program `nobody`; there is `first`".to_owned())
    );
    let none = begun(&named("first"));
    assert_eq!(
        stop(&none, "first"),
        Err("programs of this session have no gate: begin it with `--gate`".to_owned())
    );
    let object = named("next");
    let mut session = first.replaced(ProgramChange::Replace(&object)).unwrap();
    assert_eq!(first.close_those_without(&session), (true, Vec::new()));
    assert_eq!(none.close_those_without(&session), (false, Vec::new()));
    // 0 was `first`, 1 is `next`; the last one with a place of its own is 62.
    for _ in 2..63 {
        session = session.replaced(ProgramChange::Replace(&object)).unwrap();
    }
    assert_eq!(stop(&session, "next"), Ok(()));
    let late = session.replaced(ProgramChange::Replace(&object)).unwrap();
    assert_eq!(
        stop(&late, "next"),
        Err("program `next` shares its place in the gate, because 63 came before it: stop all, or begin a new session".to_owned())
    );
    assert_eq!(
        late.close_those_without(&first),
        (false, vec!["next".to_owned()])
    );
    assert_eq!(late.set_gate(false, &[]), Ok(()));
}

#[test]
fn a_gate_keeps_nobody_from_an_aggregate_over_a_block() {
    let sums = "static long (*block_sum)(__u64, __u64 *) = (void *)546;
        SEC(\"gpu/entry/*\") int sums(void *ctx) { __u64 total; return block_sum(at, &total); }";
    let object = versioned(8, 1, sums);
    let message = "program `sums` calls `bpf_gpu_block_sum`, which counts all threads of a block, and a gate (`--gate`, `--slots`) may keep some of them from it: do without the gate, or add to a value of a map";
    let info = DeviceInfo {
        name: String::new(),
        capability: CAPABILITY,
        sms: 4,
        driver_version: 13000,
    };
    for (gate, slots) in [(true, false), (false, true)] {
        let options = Options {
            gate,
            slots,
            ..Options::default()
        };
        let refused = Session::new(&object, &options, &info).unwrap_err();
        assert_eq!(refused.to_string(), message);
        // Nor may one come in a replacement, or into a slot.
        let begun = Arc::new(begun_with(&versioned(8, 1, ADDS), &options));
        let added = begun.replaced(ProgramChange::Add(&object)).unwrap_err();
        assert_eq!(added.to_string(), message);
        if slots {
            assert_eq!(begun.filling(&object).unwrap_err().to_string(), message);
        }
    }
    assert!(Session::new(&object, &Options::default(), &info).is_ok());
}

#[test]
fn what_is_said_of_a_name_holds_in_slots_or_is_refused() {
    let beside = ADDS.replace("first", "second").replace("entry", "exit");
    let object = versioned(8, 1, &(ADDS.to_owned() + &beside));
    let with = |said: &[(&str, &str)]| {
        let said = said.iter();
        let options = Options {
            slots: true,
            choose: said
                .map(|(name, request)| (name.to_string(), request.parse().unwrap()))
                .collect(),
            ..Options::default()
        };
        Arc::new(begun_with(&object, &options))
    };
    let own = versioned(8, 1, ADDS);
    let elsewhere = versioned(8, 1, &ADDS.replace("entry", "exit"));
    let session = with(&[("first", "every=4")]);
    assert!(session.filling(&own).is_ok(), "its namesake is in the same");
    assert_eq!(
        session.filling(&elsewhere).unwrap_err().to_string(),
        "of program `first` other launches are said by its name (every=4) than of program `second` (all launches), beside which its slot is, and what is in a slot is in those of the program beside it: give it another name"
    );
    let session = with(&[("first", "every=4"), ("second", "every=4")]);
    assert!(session.filling(&elsewhere).is_ok());
    // A second tool's, which are in all launches, have nothing to do with it.
    let beside = Arc::new(joined(&session, 1, &object).unwrap());
    assert!(beside.filling(&elsewhere).is_ok());
}

#[test]
fn a_kernel_of_its_own_has_nothing_to_count_blocks_in() {
    let sums = "static long (*block_sum)(__u64, __u64 *) = (void *)546;
        SEC(\"gpu/run\") int sums(void *ctx) { __u64 total; return block_sum(at, &total); }";
    let info = DeviceInfo {
        name: String::new(),
        capability: CAPABILITY,
        sms: 4,
        driver_version: 13000,
    };
    let refused = Session::new(&versioned(8, 1, sums), &Options::default(), &info).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "program `sums` calls `bpf_gpu_block_sum`, which counts all threads of a block in a launch record, and a kernel of its own (`gpu/run`) has none: use it in a program at `gpu/entry` or `gpu/exit`, or add to a value of a map"
    );
}

fn with_slots(object: &[u8]) -> Arc<Session> {
    let options = Options {
        slots: true,
        ..Options::default()
    };
    Arc::new(begun_with(object, &options))
}

#[test]
fn programs_for_slots_are_proved_translated_and_kept() {
    let session = with_slots(&versioned(8, 1, ADDS));
    assert!(session.has_gate(), "slots come with a gate");
    let filled = |object: &[u8]| {
        let made = session.filling(object);
        made.map(|filling| filling.programs().to_vec())
            .map_err(|error| error.to_string())
    };
    // A constant that is another one comes along; a program may have the name of one that is there.
    assert_eq!(filled(&versioned(8, 2, ADDS)), Ok(vec!["first".to_owned()]));
    let two = ADDS.to_owned()
        + &ADDS
            .replace("first", "more")
            .replace("void *ctx", "struct c *ctx");
    let two = two.replacen("SEC", "struct c { int x; };\nSEC", 1);
    assert_eq!(
        filled(&versioned(8, 3, &two)),
        Ok(vec!["first".to_owned(), "more".to_owned()])
    );
    assert_eq!(session.in_slots_now(), Vec::<String>::new());
    let filling = session.filling(&versioned(8, 2, ADDS)).unwrap();
    session.fill_slots(Some(Arc::new(filling)));
    let next = session.replaced(ProgramChange::Remove(&["first".into()]));
    let next = next.unwrap();
    assert_eq!(next.in_slots_now(), ["first"], "a replacement leaves it");
    session.fill_slots(None);
    assert_eq!(next.in_slots_now(), Vec::<String>::new());
    // The place stays, because kernels with it may run.
    let next = Arc::new(next);
    assert!(next.filling(&versioned(8, 2, ADDS)).is_ok());

    assert_eq!(
        begun_shared(&versioned(8, 1, ADDS))
            .filling(&versioned(8, 1, ADDS))
            .unwrap_err()
            .to_string(),
        "programs of this session have no slots: begin it with `--slots`"
    );
    assert_eq!(
        filled(&versioned(8, 1, &ADDS.replace("entry/*", "entry/other"))),
        Err("program `first` is for `gpu/entry/other`, where there is no slot; there is one for `gpu/entry/*`. A slot is where the session has, or had, a program: begin it with one at that place, which may do nothing".to_owned())
    );
    let unsafe_one = ADDS
        .replace("key = at", "key = at + 100")
        .replace("if (value)", "");
    assert!(
        filled(&versioned(8, 1, &unsafe_one))
            .unwrap_err()
            .starts_with("program `first` was refused")
    );
    let reads = ADDS.replace("*value += 1", "*value = *value * 2");
    assert!(filled(&versioned(8, 1, &reads)).unwrap_err().starts_with(
        "map `counts` has a copy for each multiprocessor, because programs only added to it so far, and now one does more ("
    ));
    let halves = ADDS.replace("*value += 1", "*((__u32 *)value + 1) += 1");
    let halved = filled(&versioned(8, 1, &halves)).unwrap_err();
    assert!(
        halved.ends_with("now one does more (adds of different sizes overlap at offset 4); use another map for that, or begin with this program"),
        "{halved}"
    );
    let random = ADDS.replace("*value += 1", "*value += bpf_get_prandom_u32()");
    assert!(
        filled(&versioned(8, 1, &random))
            .unwrap_err()
            .starts_with("program `first` cannot run in a slot: instruction `")
    );
    assert!(
        filled(&versioned(9, 1, ADDS))
            .unwrap_err()
            .starts_with("map `counts` is there already with another `max_entries`")
    );
    let large = ADDS.replace("key = at", "key = at + big[at & 7]");
    let large = "const volatile __u32 big[300000] = {1};\n".to_owned() + &large;
    assert_eq!(
        filled(&versioned(8, 1, &large))
            .unwrap_err()
            .split_once(" bytes, ")
            .map(|(_, rest)| rest.to_owned()),
        Some("and slots have room for 1048576".to_owned())
    );
}

#[test]
fn what_maps_are_not_made_for_is_refused_in_slots() {
    let adds = |field: &str| {
        compiled(&format!(
            "struct pair {{ __u64 one, two; }};
            struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1);
                __type(key, __u32); __type(value, struct pair); }} pairs SEC(\".maps\");
            SEC(\"gpu/entry/*\") int p(void *ctx) {{
                __u32 key = 0;
                struct pair *pair = bpf_map_lookup_elem(&pairs, &key);
                if (pair) pair->{field} += 1;
                return 0;
            }}"
        ))
    };
    // A hash whose values are too large to be handed over in a slot.
    let large = compiled(
        "struct large { char bytes[300]; };
        struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 4);
            __type(key, __u32); __type(value, struct large); } larges SEC(\".maps\");
        SEC(\"gpu/entry/*\") int p(void *ctx) {
            __u32 key = 0;
            return !bpf_map_lookup_elem(&larges, &key);
        }",
    );
    assert_eq!(
        with_slots(&large).filling(&large).unwrap_err().to_string(),
        "program `p` cannot run in a slot: it calls `bpf_map_lookup_elem` on map `larges`, and programs there can only for arrays and for hashes on the device whose keys have at most 64 and values at most 256 bytes, and not for maps in maps"
    );
    let counts = |statement: &str| {
        compiled(&format!(
            "struct {{ __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 4);
                __type(key, __u32); __type(value, __u64); }} counts SEC(\".maps\");
            SEC(\"gpu/entry/*\") int p(void *ctx) {{
                __u32 key = 0;
                __u64 *n = bpf_map_lookup_elem(&counts, &key);
                if (n) {{ {statement} }}
                return 0;
            }}"
        ))
    };
    let (add, set) = ("__sync_fetch_and_add(n, 1);", "*n = *n / 2;");
    let session = with_slots(&counts(add));
    assert!(session.filling(&counts(add)).is_ok());
    assert_eq!(
        session.filling(&counts(set)).unwrap_err().to_string(),
        "program `p` changes how map `counts` is added up over GPUs, which is decided by the programs of the session: replace those by some that use the same fields as it does, or use another map"
    );
    // Nothing of the session adds or stores: it stays what it is, a map of which the first GPU with
    // a value is shown.
    let session = with_slots(&counts("return *n;"));
    assert!(session.filling(&counts(add)).is_ok());
    assert_eq!(
        session.filling(&adds("one")).unwrap_err().to_string(),
        "map `pairs` is new, and programs in slots use maps that are there: bring it by a replacement first (`warpbpf add`), or begin with an object that has it"
    );
    // Then it is there.
    let more = adds("one");
    let renamed = Arc::new(session.replaced(ProgramChange::Replace(&more)).unwrap());
    assert!(renamed.filling(&more).is_ok());
    let session = with_slots(&adds("one"));
    assert!(session.filling(&adds("one")).is_ok());
    assert_eq!(
        session.filling(&adds("two")).unwrap_err().to_string(),
        "program `p` changes how map `pairs` is added up over multiprocessors, which is decided when a session begins: begin with a program that adds to the same fields, or use another map"
    );
}

fn begun_shared(object: &[u8]) -> Arc<Session> {
    Arc::new(begun(object))
}

#[test]
fn a_kernel_has_a_slot_for_each_place_and_the_memory_is_counted() {
    let two = ADDS.to_owned() + &ADDS.replace("first", "more");
    let session = with_slots(&versioned(8, 1, &two));
    let prepared = session.prepare(&inspect(MODULE.as_bytes(), CAPABILITY).unwrap());
    let wanted: Vec<_> = prepared.kernels.iter().filter(|k| k.wanted).collect();
    assert!(!wanted.is_empty());
    // What is in a slot is no program of the kernel.
    assert!(wanted.iter().all(|k| k.placed.len() == 2));
    let memory = session.device_memory();
    let slots = memory.iter().find(|(name, _)| name == "the slots");
    assert_eq!(
        slots,
        Some(&("the slots".to_owned(), 256 + 2 * 8192 + (2 << 20)))
    );
}

/// A program whose loop runs as often as a variable says; without an end of its own if `many`.
fn looping(many: bool) -> Vec<u8> {
    let bound = if many { "k < n" } else { "k < n && k < 9" };
    compiled(&format!(
        "__u64 rounds = 1; __u64 sums[1];
        SEC(\"gpu/entry/*\") int walks(void *ctx) {{
            __u64 n = rounds, x = 0;
            for (__u64 k = 0; {bound}; k++) x = (x ^ k) * 3;
            sums[0] = x;
            return 0;
        }}"
    ))
}

#[test]
fn loops_without_a_bound_get_one_and_a_count_where_that_is_asked_for() {
    let options = Options {
        bound_loops: true,
        ..Options::default()
    };
    let refused = warpbpf_session::plan::prove(
        warpbpf_object::load(&looping(true)).unwrap(),
        &Options::default(),
    );
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("error[loop-budget]") && refused.contains("`--bound-loops`"));
    let first = begun_with(&looping(true), &options);
    let stops = "wbpf.stops.walks";
    assert_eq!(map_names(&first).last(), Some(&stops));
    assert_eq!(first.programs()[0].bounded.len(), 1);
    // Its count has a copy for each multiprocessor, as nothing else is done with it.
    assert_eq!(first.maps().last().unwrap().not_summed, None);
    // What ends by itself has no count, and the next programs keep that of their name.
    let ends = begun_with(&looping(false), &options);
    assert!(!map_names(&ends).contains(&stops));
    let second = first
        .replaced(ProgramChange::Replace(&looping(true)))
        .unwrap();
    assert_eq!(map_names(&second), map_names(&first));
    // Or get one.
    let next = ends.replaced(ProgramChange::Replace(&looping(true)));
    let next = next.unwrap();
    assert_eq!(map_names(&next).last(), Some(&stops));
    assert_eq!(next.map_count(), ends.map_count() + 1);
}
