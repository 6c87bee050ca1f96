//! Programs as functions for machine code: what the function is, and what it refuses.

use std::collections::{BTreeMap, BTreeSet};

use warpbpf_abi::access::{Cache, Kind, Space};
use warpbpf_abi::attach::{Scope, Site, When};
use warpbpf_abi::context::Capture;
use warpbpf_abi::layout::launch;
use warpbpf_codegen::Fragment;
use warpbpf_patch::{
    Attachment, Caller, Event, HiddenParam, Select, bake, launch_arg_words, launch_args_of_kernel,
    tools_function,
};
use warpbpf_softgpu::{Config, Gpu, Launch, Outcome};

fn text(site: Site, scope: Scope, fragment: &Fragment) -> Result<String, String> {
    let select = Select::default();
    let attachment = Attachment {
        site,
        scope,
        select: &select,
        fragment,
        gate: None,
        choice: None,
    };
    let caller = Caller::Splice(site);
    tools_function("probe", ("sm_90", 90), (8, 0), (caller, 64), &[attachment])
        .map_err(|e| e.to_string())
}

fn counter() -> Fragment {
    Fragment {
        body: "\t{\n\t.reg .b64 %wbpf_m;\n\tld.const.u64 %wbpf_m, [wbpf_slots+8];\n\tred.global.add.u64 [%wbpf_m], 1;\n\t}\n".to_owned(),
        slots: BTreeSet::from([1]),
        ..Fragment::default()
    }
}

#[test]
fn a_function_with_addresses_in_it() {
    let text = text(Site::Entry, Scope::Thread, &counter()).unwrap();
    assert_eq!(
        bake(&text, &[0, 0x7f00]).unwrap(),
        ".version 8.0\n.target sm_90\n.address_size 64\n\n.visible .func (.param .b32 wbpf_result) probe(.param .b64 wbpf_userdata, .param .b64 wbpf_pc)\n{\n\t{\n\t.reg .b64 %wbpf_m;\n\tmov.b64 %wbpf_m, 0x7f00;\n\tred.global.add.u64 [%wbpf_m], 1;\n\t}\n\tst.param.b32 [wbpf_result], 0;\n\tret;\n}\n"
    );
}

#[test]
fn a_leader_is_elected_at_the_entry() {
    for scope in [Scope::Warp, Scope::Block] {
        let text = text(Site::Entry, scope, &counter()).unwrap();
        assert!(text.contains("@%wbpf_p bra "), "{text}");
    }
    let with = Fragment {
        functions: BTreeMap::from([("f".to_owned(), ".func f()\n{\n\tret;\n}\n".to_owned())]),
        ..counter()
    };
    let text = text(Site::Exit, Scope::Thread, &with).unwrap();
    assert_eq!(text.matches(".func f()").count(), 1);
    assert!(text.find(".func f()") < text.find(".visible .func"));
}

/// Adds what it reads of the launch, and how often it was there, to three words of which the table
/// has the address.
fn reader(captures: &[Capture]) -> Fragment {
    let mut body = "\t{\n\t.reg .b64 %o;\n\tld.global.u64 %o, [%wbpf_table];\n".to_owned();
    for capture in captures {
        let at = if *capture == Capture::Launch { 0 } else { 8 };
        let register = capture.register();
        body += &format!("\tred.global.add.u64 [%o+{at}], {register};\n");
    }
    Fragment {
        body: body + "\tred.global.add.u64 [%o+16], 1;\n\t}\n",
        captures: captures.iter().copied().collect(),
        ..Fragment::default()
    }
}

/// The kernel's two ways out, each with a call as a stub has it; lanes of a warp come apart, and
/// some not at all where `N` is less than all.
const ENDING: &str = "
.visible .entry ending(.param .b64 table, .param .b64 data, .param .align 8 .b8 launch[32])
{
	.reg .b64 %t, %p;
	.reg .b32 %x, %y, %r;
	.reg .pred %q;
	.reg .b64 %l<4>;
	ld.param.b64 %t, [table];
	ld.param.b64 %p, [data];
	ld.param.b64 %l0, [launch];
	ld.param.b64 %l1, [launch+8];
	ld.param.b64 %l2, [launch+16];
	ld.param.b64 %l3, [launch+24];
	mov.u32 %x, %tid.x;
	mov.u32 %y, %ctaid.x;
	add.u32 %x, %x, %y;
	and.b32 %x, %x, 5;
	setp.eq.u32 %q, %x, 1;
	@%q bra SECOND;
	CALL
	ret;
SECOND:
	red.global.add.u64 [%p], 1;
	CALL
	ret;
}
";

/// One call, as a splice makes it or as Compute Sanitizer does.
fn call(args: Option<usize>) -> String {
    let mut text = "{\n\t.param .b64 p0;\n\t.param .b64 p1;\n\t.param .b32 q;\n\tst.param.b64 [p0], %t;\n\tst.param.b64 [p1], 4096;\n".to_owned();
    if let Some(words) = args {
        text += &format!("\t.param .align 8 .b8 p2[{}];\n", words * 8);
        for word in 0..words {
            text += &format!("\tst.param.b64 [p2+{}], %l{word};\n", word * 8);
        }
    }
    let list = if args.is_some() {
        "p0, p1, p2"
    } else {
        "p0, p1"
    };
    text + &format!("\tcall (q), probe, ({list});\n\tld.param.b32 %r, [q];\n\t}}")
}

/// Words that the programs added to, and all of the launch record when the kernel has ended.
fn ended(
    text: &str,
    args: Option<usize>,
    words: [u64; 3],
    record_bytes: u64,
) -> ([u64; 3], Vec<u8>) {
    let gpu = Gpu::new(Config::default());
    let kernel = ENDING.replace("CALL", &call(args));
    let module = gpu.load(&format!("{text}{kernel}")).unwrap();
    let [out, table, data] = [24, 64 + 32, 8].map(|bytes| gpu.alloc(bytes).unwrap());
    let record = gpu.alloc(record_bytes).unwrap();
    for (at, bytes) in [(out, 24), (table, 96), (data, 8), (record, record_bytes)] {
        gpu.fill(at, 0, bytes).unwrap();
    }
    gpu.write(table, &out.to_le_bytes()).unwrap();
    let [number, node, chosen] = words;
    let launch: Vec<u8> = [record, number, node, chosen]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    // The same words, where Compute Sanitizer's function looks for them.
    gpu.write(table + 64, &launch).unwrap();
    let mut params = Vec::new();
    params.extend(table.to_le_bytes());
    params.extend(data.to_le_bytes());
    params.extend(&launch);
    let kernel = module.kernel("ending").unwrap();
    // Twice, as the record must be what it was.
    for grid_id in 1..=2 {
        let outcome = gpu.launch(Launch {
            kernel: &kernel,
            grid: [3, 2, 1],
            block: [50, 2, 1],
            cluster: [1; 3],
            dynamic_shared: 0,
            params: &params,
            grid_id,
            stdout: None,
        });
        assert!(matches!(outcome, Ok(Outcome::Done { .. })), "{outcome:?}");
    }
    let mut counted = [0u8; 24];
    gpu.read(out, &mut counted).unwrap();
    let word = |at: usize| u64::from_le_bytes(counted[at * 8..at * 8 + 8].try_into().unwrap());
    let mut bytes = vec![1; record_bytes as usize];
    gpu.read(record, &mut bytes).unwrap();
    ([0, 1, 2].map(word), bytes)
}

/// Blocks of 100 threads, four warps of which the last one has four lanes.
const BLOCKS: u64 = 2 * 6;
const WARPS: u64 = BLOCKS * 4;
const THREADS: u64 = BLOCKS * 100;

#[test]
fn what_a_launch_tells_is_read_and_arrivals_are_counted() {
    let (launch, node) = (Capture::Launch, Capture::Node);
    let all = [launch, node];
    let select = Select::default();
    for caller in [Caller::Splice(Site::Exit), Caller::Sanitizer(Event::Exit)] {
        for (scopes, times) in [
            (vec![Scope::Thread], THREADS),
            (vec![Scope::Warp], WARPS),
            (vec![Scope::Block], BLOCKS),
            (vec![Scope::Warp, Scope::Block], WARPS + BLOCKS),
            (
                vec![Scope::Thread, Scope::Block, Scope::Warp],
                THREADS + WARPS + BLOCKS,
            ),
        ] {
            let fragment = reader(&all);
            let attachments: Vec<Attachment<'_>> = (scopes.iter())
                .map(|scope| Attachment {
                    site: Site::Exit,
                    scope: *scope,
                    select: &select,
                    fragment: &fragment,
                    gate: None,
                    choice: None,
                })
                .collect();
            let counts = scopes.iter().any(|scope| *scope != Scope::Thread);
            let needed = u8::from(counts) | 0b110;
            assert_eq!(launch_arg_words(Site::Exit, &attachments), needed);
            assert_eq!(launch_arg_words(Site::Entry, &attachments), 0);
            let hidden = launch_args_of_kernel(40, needed, &scopes).expect("a parameter");
            assert_eq!((hidden.offset, hidden.size()), (40, 24));
            assert_eq!(hidden.counts(), counts);
            let target = ("sm_90", 90);
            let text = tools_function("probe", target, (8, 0), (caller, 64), &attachments);
            let text = text.unwrap();
            // Nobody waits for anybody.
            assert!(!text.contains(".sync"), "{text}");
            let args = matches!(caller, Caller::Splice(_)).then_some(3);
            let bytes = launch_size(&hidden);
            let (words, record) = ended(&text, args, [7, 5, 0], bytes);
            assert_eq!(
                words,
                [7 * times, 5 * times, times],
                "{caller:?} {scopes:?}"
            );
            assert!(record.iter().all(|byte| *byte == 0));
        }
    }
}

/// Of the grid above.
fn launch_size(hidden: &HiddenParam) -> u64 {
    launch::size(6, 4, 0, hidden.block_counters, hidden.warp_counters).max(8)
}

#[test]
fn launch_bits_say_which_programs_are_in_a_launch() {
    let (select, fragment) = (Select::default(), reader(&[]));
    let attachment = |scope, bit| Attachment {
        site: Site::Exit,
        scope,
        select: &select,
        fragment: &fragment,
        gate: None,
        choice: Some(bit),
    };
    let attachments = [
        attachment(Scope::Thread, 0),
        attachment(Scope::Block, 1),
        attachment(Scope::Warp, 5),
    ];
    let words = launch_arg_words(Site::Exit, &attachments);
    assert_eq!(words, 0b1001);
    assert_eq!(launch_args_of_kernel(0, 0, &[Scope::Thread]), None);
    let hidden = launch_args_of_kernel(0, words, &[Scope::Thread, Scope::Block, Scope::Warp]);
    let hidden = hidden.expect("a parameter");
    assert!(hidden.chosen && hidden.size() == 32);
    for caller in [Caller::Splice(Site::Exit), Caller::Sanitizer(Event::Exit)] {
        let target = ("sm_90", 90);
        let text = tools_function("probe", target, (8, 0), (caller, 64), &attachments).unwrap();
        let args = matches!(caller, Caller::Splice(_)).then_some(4);
        for (bits, times) in [
            (0, 0),
            (1, THREADS),
            (2, BLOCKS),
            (1 << 5, WARPS),
            (2 | 1 << 5, BLOCKS + WARPS),
            (u64::MAX, THREADS + BLOCKS + WARPS),
        ] {
            let (words, record) = ended(&text, args, [9, 0, bits], launch_size(&hidden));
            assert_eq!(words, [0, 0, times], "{caller:?} {bits:#x}");
            assert!(record.iter().all(|byte| *byte == 0));
        }
    }
    // At accesses Compute Sanitizer's functions get launch arguments, too; those of a splice do
    // not.
    let select = Select {
        spaces: vec![Space::Global],
        kinds: vec![Kind::Store],
        ..Select::default()
    };
    let told = reader(&[Capture::Launch]);
    let attachment = Attachment {
        site: Site::Mem,
        scope: Scope::Thread,
        select: &select,
        fragment: &told,
        gate: None,
        choice: Some(3),
    };
    let text = |caller, attachment: Attachment<'_>| {
        let target = ("sm_90", 90);
        let made = tools_function("probe", target, (8, 0), (caller, 64), &[attachment]);
        made.map_err(|error| error.to_string())
    };
    let sanitizer = text(Caller::Sanitizer(Event::Access(Space::Global)), attachment).unwrap();
    for part in [
        "ld.global.u64 %wbpf_chosen, [%wbpf_table+88];",
        "and.b64 %wbpf_chosen_of, %wbpf_chosen, 0x8;",
        "ld.global.u64 %wbpf_v_launch, [%wbpf_table+72];",
    ] {
        assert_eq!(sanitizer.matches(part).count(), 1, "{sanitizer}");
    }
    assert_eq!(
        text(Caller::SpliceAccess, attachment).unwrap_err(),
        "a choice of launches at accesses, where programs choose different ones, is not to be had in a kernel without PTX; choose the same for all of them"
    );
    let plain = Attachment {
        choice: None,
        ..attachment
    };
    assert_eq!(
        text(Caller::SpliceAccess, plain).unwrap_err(),
        "`launch_id` is not to be had in a kernel without PTX; do without it"
    );
}

#[test]
fn a_block_is_over_when_all_of_its_threads_have_come() {
    let fragment = Fragment {
        body: "\tmembar.gl;\n".to_owned(),
        ..Fragment::default()
    };
    let text = text(Site::Exit, Scope::Block, &fragment).unwrap();
    assert_eq!(
        text,
        ".version 8.0\n.target sm_90\n.address_size 64\n\n.visible .func (.param .b32 wbpf_result) probe(.param .b64 wbpf_userdata, .param .b64 wbpf_pc, .param .align 8 .b8 wbpf_launch[24])\n{\n\t{\n\t.reg .pred %wbpf_p;\n\t.reg .b32 %wbpf_a, %wbpf_b, %wbpf_c, %wbpf_n;\n\t.reg .b64 %wbpf_d, %wbpf_e, %wbpf_f;\n\tmov.u32 %wbpf_n, 1;\n\tmov.u32 %wbpf_a, %ctaid.z;\n\tmov.u32 %wbpf_b, %nctaid.y;\n\tmul.wide.u32 %wbpf_d, %wbpf_a, %wbpf_b;\n\tmov.u32 %wbpf_a, %ctaid.y;\n\tcvt.u64.u32 %wbpf_e, %wbpf_a;\n\tadd.s64 %wbpf_d, %wbpf_d, %wbpf_e;\n\tmov.u32 %wbpf_a, %nctaid.x;\n\tcvt.u64.u32 %wbpf_e, %wbpf_a;\n\tmul.lo.s64 %wbpf_d, %wbpf_d, %wbpf_e;\n\tmov.u32 %wbpf_a, %ctaid.x;\n\tcvt.u64.u32 %wbpf_f, %wbpf_a;\n\tadd.s64 %wbpf_d, %wbpf_d, %wbpf_f;\n\tmov.u32 %wbpf_a, %ntid.x;\n\tmov.u32 %wbpf_b, %ntid.y;\n\tmul.lo.u32 %wbpf_c, %wbpf_a, %wbpf_b;\n\tmov.u32 %wbpf_a, %ntid.z;\n\tmul.lo.u32 %wbpf_c, %wbpf_c, %wbpf_a;\n\tld.param.u64 %wbpf_f, [wbpf_launch];\n\tshl.b64 %wbpf_e, %wbpf_d, 2;\n\tadd.s64 %wbpf_e, %wbpf_f, %wbpf_e;\n\tatom.acq_rel.gpu.global.add.u32 %wbpf_a, [%wbpf_e+0], %wbpf_n;\n\tadd.u32 %wbpf_a, %wbpf_a, %wbpf_n;\n\tsetp.ne.u32 %wbpf_p, %wbpf_a, %wbpf_c;\n\t@%wbpf_p bra wbpf_done_0;\n\tst.global.u32 [%wbpf_e+0], 0;\n\tmembar.gl;\nwbpf_done_0:\n\t}\n\tst.param.b32 [wbpf_result], 0;\n\tret;\n}\n"
    );
}

#[test]
fn what_only_ptx_has_is_refused_by_name() {
    let refused = |site, scope, fragment: &Fragment| text(site, scope, fragment).unwrap_err();
    assert_eq!(
        refused(Site::Mem, Scope::Thread, &counter()),
        "a program at `mem` is not to be had in a kernel without PTX; use `entry` or `exit`"
    );
    for (capture, name) in [
        (Capture::Arg(2), "`args[2]`"),
        (Capture::ArgCount, "`arg_count`"),
    ] {
        let fragment = Fragment {
            captures: BTreeSet::from([capture]),
            ..counter()
        };
        assert_eq!(
            refused(Site::Entry, Scope::Thread, &fragment),
            format!("{name} is not to be had in a kernel without PTX; do without it")
        );
    }
    let aggregates = Fragment {
        block_cells: 1,
        ..counter()
    };
    assert_eq!(
        refused(Site::Exit, Scope::Thread, &aggregates),
        "an aggregate over a block (`bpf_gpu_block_sum` and its like) is not to be had in a kernel without PTX; add to a value of a map"
    );
    let ends = Fragment {
        body: "\t{\n\texit;\n\t}\n".to_owned(),
        ..Fragment::default()
    };
    assert_eq!(
        refused(Site::Entry, Scope::Thread, &ends),
        "helper 507 (it ends the thread) is not to be had in a kernel without PTX; do without it"
    );
}

fn accessed(scope: Scope, select: &Select, fragment: &Fragment) -> Result<String, String> {
    let caller = Caller::Sanitizer(Event::Access(Space::Shared));
    accessed_by(caller, scope, select, fragment)
}

fn accessed_by(
    caller: Caller,
    scope: Scope,
    select: &Select,
    fragment: &Fragment,
) -> Result<String, String> {
    let attachment = Attachment {
        site: Site::Mem,
        scope,
        select,
        fragment,
        gate: None,
        choice: None,
    };
    let target = ("sm_90", 90);
    tools_function("probe", target, (8, 0), (caller, 64), &[attachment]).map_err(|e| e.to_string())
}

#[test]
fn one_that_all_kernels_of_a_module_call_looks_whether_it_is_meant() {
    let attachment = Attachment {
        site: Site::Exit,
        scope: Scope::Thread,
        select: &Select::default(),
        fragment: &Fragment {
            body: "\tmembar.gl;\n".to_owned(),
            ..Fragment::default()
        },
        gate: None,
        choice: None,
    };
    let caller = Caller::Sanitizer(Event::Exit);
    let text = tools_function("probe", ("sm_90", 90), (8, 0), (caller, 64), &[attachment]).unwrap();
    assert_eq!(
        text,
        ".version 8.0\n.target sm_90\n.address_size 64\n\n.visible .func (.param .b32 wbpf_result) probe(.param .b64 wbpf_userdata, .param .b64 wbpf_pc)\n{\n\t.reg .b64 %wbpf_table;\n\tld.param.b64 %wbpf_table, [wbpf_userdata];\n\t.reg .pred %wbpf_none;\n\tsetp.eq.u64 %wbpf_none, %wbpf_table, 0;\n\t@%wbpf_none bra wbpf_nobody;\n\tmembar.gl;\nwbpf_nobody:\n\tst.param.b32 [wbpf_result], 0;\n\tret;\n}\n"
    );
}

/// Writes all that a program can know of an access, and counts who does.
fn witness() -> Fragment {
    Fragment {
        body: "\t{\n\t.reg .b64 %o;\n\tld.global.u64 %o, [%wbpf_table];\n\tst.global.u64 [%o], %wbpf_v_address;\n\tst.global.u64 [%o+8], %wbpf_v_value0;\n\tst.global.u64 [%o+16], %wbpf_v_value1;\n\tst.global.u32 [%o+24], %wbpf_v_bytes;\n\tst.global.u32 [%o+28], %wbpf_v_kind;\n\tst.global.u32 [%o+32], %wbpf_v_space;\n\tst.global.u32 [%o+36], %wbpf_v_valuebytes;\n\tred.global.add.u64 [%o+40], 1;\n\t}\n".to_owned(),
        captures: BTreeSet::from([
            Capture::Address,
            Capture::Value(0),
            Capture::Value(1),
            Capture::Bytes,
            Capture::Kind,
            Capture::Space,
            Capture::ValueBytes,
        ]),
        ..Fragment::default()
    }
}

/// A kernel that calls the function as Compute Sanitizer would, with its own parameters.
const CALLING: &str = "
.visible .entry calling(.param .b64 table, .param .b64 ptr, .param .b32 size, .param .b32 flags, .param .b64 data)
{
	.reg .b64 %t, %a, %d;
	.reg .b32 %s, %f, %r;
	ld.param.b64 %t, [table];
	ld.param.b64 %a, [ptr];
	ld.param.b32 %s, [size];
	ld.param.b32 %f, [flags];
	ld.param.b64 %d, [data];
	{
	.param .b64 p0;
	.param .b64 p1;
	.param .b64 p2;
	.param .b32 p3;
	.param .b32 p4;
	.param .b64 p5;
	.param .b32 q;
	st.param.b64 [p0], %t;
	st.param.b64 [p1], 4096;
	st.param.b64 [p2], %a;
	st.param.b32 [p3], %s;
	st.param.b32 [p4], %f;
	st.param.b64 [p5], %d;
	call (q), probe, (p0, p1, p2, p3, p4, p5);
	ld.param.b32 %r, [q];
	}
	ret;
}
";

/// What the witness says of one access by `threads` threads: its words, and how often it was there.
fn witnessed(text: &str, threads: u32, (size, flags, data): (u32, u32, bool)) -> [u64; 6] {
    let gpu = Gpu::new(Config::default());
    let module = gpu.load(&format!("{text}{CALLING}")).unwrap();
    let [out, table, value] = [64, 8, 16].map(|bytes| gpu.alloc(bytes).unwrap());
    gpu.fill(out, 0, 64).unwrap();
    gpu.write(table, &out.to_le_bytes()).unwrap();
    let bytes: Vec<u8> = (1..=16).collect();
    gpu.write(value, &bytes).unwrap();
    let mut params = Vec::new();
    for word in [table, 0x1234] {
        params.extend(word.to_le_bytes());
    }
    for word in [size, flags] {
        params.extend(word.to_le_bytes());
    }
    params.extend(if data { value } else { 0 }.to_le_bytes());
    let outcome = gpu.launch(Launch {
        kernel: &module.kernel("calling").unwrap(),
        grid: [1; 3],
        block: [threads, 1, 1],
        cluster: [1; 3],
        dynamic_shared: 0,
        params: &params,
        grid_id: 1,
        stdout: None,
    });
    assert!(matches!(outcome, Ok(Outcome::Done { .. })), "{outcome:?}");
    let mut words = [0u8; 48];
    gpu.read(out, &mut words).unwrap();
    let word = |at: usize| u64::from_le_bytes(words[at * 8..at * 8 + 8].try_into().unwrap());
    [0, 1, 2, 3, 4, 5].map(word)
}

#[test]
fn a_splice_tells_of_loads_and_stores_of_global_memory() {
    let fragment = Fragment {
        body: "\t{\n\t.reg .b64 %o;\n\tld.global.u64 %o, [%wbpf_table];\n\tst.global.u64 [%o], %wbpf_v_address;\n\tst.global.u32 [%o+24], %wbpf_v_bytes;\n\tst.global.u32 [%o+28], %wbpf_v_kind;\n\tst.global.u32 [%o+32], %wbpf_v_space;\n\tred.global.add.u64 [%o+40], 1;\n\t}\n".to_owned(),
        captures: BTreeSet::from([
            Capture::Address,
            Capture::Bytes,
            Capture::Kind,
            Capture::Space,
        ]),
        ..Fragment::default()
    };
    let select = |spaces: &[Space], kinds: &[Kind]| Select {
        spaces: spaces.to_vec(),
        kinds: kinds.to_vec(),
        ..Select::default()
    };
    let by = |select: &Select, fragment: &Fragment| {
        accessed_by(Caller::SpliceAccess, Scope::Thread, select, fragment)
    };
    let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    let stores = by(&select(&[Space::Global], &[Kind::Store]), &fragment).unwrap();
    let space = u64::from(Space::Global as u32);
    assert_eq!(
        witnessed(&stores, 3, (8, 2, false)),
        [0x1234, 0, 0, pair(8, Kind::Store as u32), space, 3]
    );
    assert_eq!(witnessed(&stores, 3, (8, 1, false)), [0; 6]);
    // All that has its number asks whether it is meant, but where each call is a kernel's own.
    assert!(!stores.contains("wbpf_nobody"));

    let refused = |select: &Select, fragment| by(select, fragment).unwrap_err();
    let every = "an access of every space is not to be had in a kernel without PTX; say `space=global`, whose instructions are found";
    let store = [Kind::Store];
    for spaces in [&[][..], &[Space::Global, Space::Shared]] {
        assert_eq!(refused(&select(spaces, &store), &fragment), every);
    }
    let every = "an access of every kind is not to be had in a kernel without PTX; say `kind=load`, `kind=store` or `kind=load+store`, whose instructions are found";
    for kinds in [&[][..], &[Kind::Load, Kind::Atomic]] {
        assert_eq!(refused(&select(&[Space::Global], kinds), &fragment), every);
    }
    assert_eq!(
        refused(&select(&[Space::Global], &store), &witness()),
        "`value[0]` is not to be had in a kernel without PTX; do without it"
    );
}

#[test]
fn accesses_are_what_the_flags_say() {
    let all = Select::default();
    let text = accessed(Scope::Thread, &all, &witness()).unwrap();
    let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    let [read, write, system, prefetch, quiet] = [1, 2, 4, 8, 0x100];
    // Each with a scope, which says nothing of the kind.
    for (size, flags, kind, value, value_bytes) in [
        (4, read | 0x40, Kind::Load, [0, 0], 0),
        (1, write, Kind::Store, [1, 0], 1),
        (2, write, Kind::Store, [0x0201, 0], 2),
        (4, write, Kind::Store, [0x0403_0201, 0], 4),
        (8, write | 0x80, Kind::Store, [0x0807_0605_0403_0201, 0], 8),
        (
            16,
            write,
            Kind::Store,
            [0x0807_0605_0403_0201, 0x100f_0e0d_0c0b_0a09],
            16,
        ),
        (4, read | write, Kind::Atomic, [0, 0], 0),
        (4, read | system, Kind::Atomic, [0, 0], 0),
        (4, write | quiet, Kind::Atomic, [0, 0], 0),
        (4, read | prefetch, Kind::Prefetch, [0, 0], 0),
        (4, 0, Kind::Other, [0, 0], 0),
    ] {
        assert_eq!(
            witnessed(&text, 1, (size, flags, true)),
            [
                0x1234,
                value[0],
                value[1],
                pair(size, kind as u32),
                pair(Space::Shared as u32, value_bytes),
                1
            ],
            "{size} bytes, flags {flags:#x}"
        );
    }
    // Who has no value to show has none.
    let without = witnessed(&text, 1, (4, write, false));
    assert_eq!(without[1..3], [0, 0]);
}

#[test]
fn selectors_and_scopes_of_accesses_are_looked_at_by_the_function() {
    let select = Select {
        kinds: vec![Kind::Store, Kind::Prefetch],
        bytes: Some(4..=8),
        spaces: vec![Space::Shared, Space::Generic],
        ..Select::default()
    };
    let text = accessed(Scope::Thread, &select, &witness()).unwrap();
    let count = |text: &str, size, flags| witnessed(text, 40, (size, flags, true))[5];
    assert_eq!(count(&text, 4, 2), 40);
    assert_eq!(count(&text, 8, 8), 40);
    assert_eq!(count(&text, 2, 2), 0);
    assert_eq!(count(&text, 16, 2), 0);
    assert_eq!(count(&text, 4, 1), 0);
    for (scope, times) in [(Scope::Warp, 2), (Scope::Block, 1)] {
        let text = accessed(scope, &Select::default(), &witness()).unwrap();
        assert_eq!(count(&text, 4, 1), times);
    }
}

#[test]
fn what_compute_sanitizer_does_not_tell_is_refused_by_name() {
    let refused = |select: Select, fragment: &Fragment| {
        let text = accessed(Scope::Thread, &select, fragment).unwrap_err();
        let what = text.strip_suffix("; do without it").unwrap_or(&text);
        what.replace(" is not to be had in a kernel without PTX", "")
    };
    let plain = counter();
    for (select, text) in [
        (
            Select {
                when: When::After,
                ..Select::default()
            },
            "`when=after`; use `when=before`",
        ),
        (
            Select {
                kinds: vec![Kind::Load, Kind::TensorCopy],
                ..Select::default()
            },
            "`kind=tensor_copy`; use `load`, `store`, `atomic` (reductions are among them), `prefetch`, `async_copy`, `matrix_load` or `matrix_store`",
        ),
        (
            Select {
                spaces: vec![Space::Generic],
                ..Select::default()
            },
            "`space=generic`; use `global`, `shared`, `cluster` or `local`, one of which each access is of, whatever its instruction says",
        ),
        (
            Select {
                spaces: vec![Space::Global, Space::Param],
                ..Select::default()
            },
            "`space=param`; use `global`, `shared`, `cluster` or `local`, one of which each access is of, whatever its instruction says",
        ),
        (
            Select {
                op: Some("ld.*".into()),
                ..Select::default()
            },
            "`op=`",
        ),
        (
            Select {
                at: Some(("a.cu".into(), 3)),
                ..Select::default()
            },
            "`at=`",
        ),
        (
            Select {
                functions: Some(BTreeSet::new()),
                ..Select::default()
            },
            "`func=`",
        ),
        (
            Select {
                caches: vec![Cache::Nc],
                ..Select::default()
            },
            "`cache=`",
        ),
    ] {
        assert_eq!(refused(select, &plain), text);
    }
    for (capture, name) in [
        (Capture::Site, "`site`"),
        (Capture::Line, "`line`"),
        (Capture::Cache, "`cache`"),
        (Capture::Arg(0), "`args[0]`"),
    ] {
        let fragment = Fragment {
            captures: BTreeSet::from([capture]),
            ..counter()
        };
        assert_eq!(refused(Select::default(), &fragment), name);
    }
}
