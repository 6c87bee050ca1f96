//! Programs as functions that Compute Sanitizer calls in the middle of a kernel: what each gets,
//! what a program sees of it, and what is refused.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use warpbpf_abi::access::{Barrier, Kind, Space};
use warpbpf_abi::attach::{Scope, When};
use warpbpf_abi::context::Capture;
use warpbpf_codegen::Fragment;
use warpbpf_patch::{Attachment, Caller, Event, Select, tools_function};
use warpbpf_softgpu::{Config, Gpu, Launch, Outcome};

/// Bits of what follows `userdata` and `pc`, as `sanitizer_patching.h` declares the callbacks.
fn signature(event: Event) -> &'static [u32] {
    match event {
        Event::Access(_) => &[64, 32, 32, 64],
        Event::Prefetch => &[64, 32],
        Event::AsyncCopy => &[64, 32, 32],
        Event::Matrix => &[32, 32, 32, 32, 64],
        Event::Barrier => &[32, 32, 32],
        Event::WarpBarrier | Event::CopiesWait => &[32],
        Event::Mbarrier => &[64, 32, 32],
        Event::ProductsWait => &[32, 32],
        Event::Call => &[64, 32],
        Event::Entry | Event::Exit | Event::ClusterArrive | Event::ClusterWait | Event::Return => {
            &[]
        }
    }
}

fn function(
    event: Event,
    scope: Scope,
    select: &Select,
    fragment: &Fragment,
) -> Result<String, String> {
    let attachment = Attachment {
        site: event.site(),
        scope,
        select,
        fragment,
        gate: None,
        choice: None,
    };
    let caller = Caller::Sanitizer(event);
    let target = ("sm_90", 90);
    tools_function("probe", target, (8, 0), (caller, 64), &[attachment]).map_err(|e| e.to_string())
}

/// Adds up what all lanes that come see of `captures`, a word for each, and counts them in the word
/// behind.
fn witness(captures: &[Capture]) -> Fragment {
    let mut body = "\t{\n\t.reg .b64 %o, %w;\n\tld.global.u64 %o, [%wbpf_table];\n".to_owned();
    for (word, capture) in captures.iter().enumerate() {
        let register = capture.register();
        match capture.bits() {
            64 => writeln!(body, "\tmov.b64 %w, {register};"),
            _ => writeln!(body, "\tcvt.u64.u32 %w, {register};"),
        }
        .unwrap();
        writeln!(body, "\tred.global.add.u64 [%o+{}], %w;", word * 8).unwrap();
    }
    let count = captures.len() * 8;
    writeln!(body, "\tred.global.add.u64 [%o+{count}], 1;\n\t}}").unwrap();
    Fragment {
        body,
        captures: captures.iter().copied().collect(),
        ..Fragment::default()
    }
}

/// A kernel that calls the function as Compute Sanitizer would. Its own parameters are words.
fn calling(event: Event) -> String {
    let mut declared = ".param .b64 table".to_owned();
    let mut given =
        "\t.param .b64 g0, g1;\n\tst.param.b64 [g0], %t;\n\tst.param.b64 [g1], 4096;\n".to_owned();
    let mut list = "g0, g1".to_owned();
    for (at, bits) in signature(event).iter().enumerate() {
        let own = at + 2;
        write!(declared, ", .param .b64 a{own}").unwrap();
        write!(given, "\t.param .b{bits} g{own};\n\tld.param.u{bits} %a{bits}, [a{own}];\n\tst.param.b{bits} [g{own}], %a{bits};\n").unwrap();
        write!(list, ", g{own}").unwrap();
    }
    format!(
        ".visible .entry calling({declared})\n{{\n\t.reg .b64 %t, %a64;\n\t.reg .b32 %a32;\n\tld.param.b64 %t, [table];\n\t{{\n{given}\t.param .b32 q;\n\tcall (q), probe, ({list});\n\t}}\n\tret;\n}}\n"
    )
}

/// The words of the witness after a call by `threads` threads.
fn seen(event: Event, text: &str, threads: u32, arguments: &[u64], words: usize) -> Vec<u64> {
    let gpu = Gpu::new(Config::default());
    let module = gpu.load(&format!("{text}{}", calling(event))).unwrap();
    let bytes = words as u64 * 8 + 8;
    let out = gpu.alloc(bytes).unwrap();
    gpu.fill(out, 0, bytes).unwrap();
    let table = gpu.alloc(8).unwrap();
    gpu.write(table, &out.to_le_bytes()).unwrap();
    let mut params = table.to_le_bytes().to_vec();
    params.extend(arguments.iter().flat_map(|word| word.to_le_bytes()));
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
    let mut read = vec![0; words * 8 + 8];
    gpu.read(out, &mut read).unwrap();
    let words = read.chunks(8);
    words
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

/// What a program at all places of the event sees.
fn told(event: Event, captures: &[Capture], threads: u32, arguments: &[u64]) -> Vec<u64> {
    let fragment = witness(captures);
    let text = function(event, Scope::Thread, &Select::default(), &fragment).unwrap();
    seen(event, &text, threads, arguments, captures.len())
}

const ACCESS: [Capture; 7] = [
    Capture::Address,
    Capture::Target,
    Capture::Bytes,
    Capture::Kind,
    Capture::Space,
    Capture::TargetSpace,
    Capture::ValueBytes,
];

const BARRIER: [Capture; 5] = [
    Capture::Address,
    Capture::Space,
    Capture::BarrierKind,
    Capture::BarrierId,
    Capture::BarrierThreads,
];

#[test]
fn a_function_has_the_signature_of_its_event() {
    for event in Event::ALL {
        let text = function(
            event,
            Scope::Thread,
            &Select::default(),
            &Fragment::default(),
        );
        let text = text.unwrap();
        let head = text.lines().find(|line| line.starts_with(".visible .func"));
        let bits: Vec<&str> = head.unwrap().split(".param .b").skip(1).collect();
        let bits = bits.iter().map(|rest| &rest[..2]);
        let expected = [32, 64, 64].iter().chain(signature(event));
        let expected = expected.map(ToString::to_string);
        assert!(bits.eq(expected), "{event:?}: {text}");
        let names = head.unwrap().split([' ', ')', ',']);
        let mut names: Vec<&str> = names.filter(|word| word.starts_with("wbpf_")).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 3 + signature(event).len(), "{event:?}: {text}");
    }
}

#[test]
fn an_event_is_for_programs_of_its_place_and_kind() {
    let of = |event: Event, kinds: &[Kind], spaces: &[Space]| {
        event.may_pass(&Select {
            kinds: kinds.to_vec(),
            spaces: spaces.to_vec(),
            ..Select::default()
        })
    };
    let global = Event::Access(Space::Global);
    for event in [global, Event::AsyncCopy, Event::Matrix] {
        assert!(of(event, &[], &[]), "{event:?}");
    }
    assert!(of(global, &[Kind::Load], &[]) && !of(global, &[], &[Space::Shared]));
    assert!(!of(global, &[Kind::AsyncCopy, Kind::MatrixLoad], &[]));
    assert!(of(Event::AsyncCopy, &[Kind::AsyncCopy], &[Space::Global]));
    assert!(!of(Event::AsyncCopy, &[Kind::Load], &[]));
    assert!(of(Event::Matrix, &[Kind::MatrixStore], &[Space::Shared]));
    assert!(!of(Event::Matrix, &[], &[Space::Global]));
    let cluster = Event::Access(Space::Cluster);
    assert!(of(cluster, &[], &[Space::Cluster]) && !of(cluster, &[], &[Space::Shared]));
    let barrier = |event: Event, kinds: &[Barrier]| {
        event.may_pass(&Select {
            barriers: kinds.to_vec(),
            ..Select::default()
        })
    };
    assert!(barrier(Event::Barrier, &[]) && barrier(Event::Barrier, &[Barrier::Sync]));
    assert!(!barrier(Event::Barrier, &[Barrier::Warp]));
    for event in [Event::CopiesWait, Event::ProductsWait] {
        assert!(barrier(event, &[Barrier::GroupWait]) && !barrier(event, &[Barrier::Sync]));
    }
}

#[test]
fn asynchronous_copies_have_a_source_and_a_target() {
    let kind = Kind::AsyncCopy as u64;
    let (global, shared) = (Space::Global as u64, Space::Shared as u64);
    assert_eq!(
        told(Event::AsyncCopy, &ACCESS, 1, &[0x7000_0000_1230, 0x440, 8]),
        [0x7000_0000_1230, 0x440, 8, kind, global, shared, 0, 1]
    );
    // Zeros are written, and nothing is read.
    assert_eq!(
        told(Event::AsyncCopy, &ACCESS, 1, &[0, 0x440, 16]),
        [0, 0x440, 0, kind, global, shared, 0, 1]
    );
    let sized = Select {
        bytes: Some(16..=16),
        ..Select::default()
    };
    let text = function(Event::AsyncCopy, Scope::Thread, &sized, &witness(&[])).unwrap();
    let count = |bytes| seen(Event::AsyncCopy, &text, 40, &[64, 0, bytes], 0);
    assert_eq!((count(16), count(8)), (vec![40], vec![0]));
}

#[test]
fn prefetches_have_an_address_and_no_size() {
    let (kind, global) = (Kind::Prefetch as u64, Space::Global as u64);
    assert_eq!(
        told(Event::Prefetch, &ACCESS, 1, &[0x7000_0000_1230, 2]),
        [0x7000_0000_1230, 0, 0, kind, global, 0, 0, 1]
    );
    let of = |kinds: &[Kind], bytes| Select {
        kinds: kinds.to_vec(),
        bytes,
        ..Select::default()
    };
    assert!(Event::Prefetch.may_pass(&of(&[Kind::Prefetch, Kind::Load], None)));
    assert!(!Event::Prefetch.may_pass(&of(&[Kind::Load], None)));
    let sized = of(&[], Some(1..=16));
    let text = function(Event::Prefetch, Scope::Thread, &sized, &witness(&[])).unwrap();
    assert_eq!(seen(Event::Prefetch, &text, 40, &[64, 1], 0), [0]);
}

#[test]
fn rows_of_a_matrix_belong_to_the_lanes_that_give_them() {
    let shared = Space::Shared as u64;
    for (count, rows) in [(1, 8), (2, 16), (4, 32)] {
        for (flags, kind) in [(1, Kind::MatrixLoad), (2, Kind::MatrixStore)] {
            let seen = told(Event::Matrix, &ACCESS, 32, &[0x440, 16, flags, count, 0]);
            let kind = 32 * kind as u64;
            let expected = [rows * 0x440, 0, rows * 16, kind, 32 * shared, 0, 0, 32];
            assert_eq!(seen, expected, "{count} {flags}");
        }
    }
    let stores = Select {
        kinds: vec![Kind::MatrixStore],
        ..Select::default()
    };
    let text = function(Event::Matrix, Scope::Warp, &stores, &witness(&[])).unwrap();
    let count = |flags| seen(Event::Matrix, &text, 64, &[0x440, 16, flags, 4, 0], 0);
    assert_eq!((count(2), count(1)), (vec![2], vec![0]));
}

#[test]
fn shared_memory_of_other_blocks_is_a_space() {
    let cluster = Event::Access(Space::Cluster);
    let (kind, space) = (Kind::Load as u64, Space::Cluster as u64);
    assert_eq!(
        told(cluster, &ACCESS, 1, &[0x100_0440, 4, 1, 0]),
        [0x100_0440, 0, 4, kind, space, 0, 0, 1]
    );
}

#[test]
fn barriers_are_told_apart() {
    let told = |event, arguments: &[u64]| told(event, &BARRIER, 1, arguments);
    let plain = |kind: Barrier| vec![0, 0, kind as u64, 0, 0, 1];
    assert_eq!(
        told(Event::Barrier, &[3, 64, 1]),
        [0, 0, Barrier::Sync as u64, 3, 64, 1]
    );
    for (event, kind, arguments) in [
        (Event::WarpBarrier, Barrier::Warp, &[0xff][..]),
        (Event::ClusterArrive, Barrier::ClusterArrive, &[]),
        (Event::ClusterWait, Barrier::ClusterWait, &[]),
        (Event::CopiesWait, Barrier::GroupWait, &[2]),
        (Event::ProductsWait, Barrier::GroupWait, &[1, !0]),
    ] {
        assert_eq!(told(event, arguments), plain(kind), "{event:?}");
    }
    let shared = Space::Shared as u64;
    // Made, arrived at in four ways, waited for, ended.
    let mbarrier = |kind: Barrier| vec![0x440, shared, kind as u64, 0, 0, 1];
    let arrives = [Barrier::MbarrierArrive];
    for action in 0..=8 {
        let (expected, arrival) = match action {
            2..=5 => (mbarrier(Barrier::MbarrierArrive), 1),
            6 => (mbarrier(Barrier::MbarrierWait), 0),
            _ => (vec![0; 6], 0),
        };
        let arguments = [0x440, action, 1];
        assert_eq!(told(Event::Mbarrier, &arguments), expected, "{action}");
        let select = Select {
            barriers: arrives.to_vec(),
            ..Select::default()
        };
        let text = function(Event::Mbarrier, Scope::Thread, &select, &witness(&[])).unwrap();
        let count = seen(Event::Mbarrier, &text, 1, &arguments, 0);
        assert_eq!(count, [arrival], "{action}");
    }
}

#[test]
fn scopes_are_those_of_all_places() {
    for (event, arguments) in [
        (Event::Barrier, &[0, 0, 0][..]),
        (Event::Mbarrier, &[64, 2, 1]),
        (Event::Call, &[4096, 0]),
        (Event::Return, &[]),
    ] {
        for (scope, times) in [(Scope::Thread, 80), (Scope::Warp, 3), (Scope::Block, 1)] {
            let text = function(event, scope, &Select::default(), &witness(&[])).unwrap();
            assert_eq!(seen(event, &text, 80, arguments, 0), [times], "{event:?}");
        }
    }
}

#[test]
fn what_is_not_told_at_barriers_and_calls_is_refused_by_name() {
    let refused = |event: Event, select: Select, captures: &[Capture]| {
        let fragment = Fragment {
            captures: BTreeSet::from_iter(captures.iter().copied()),
            ..Fragment::default()
        };
        let text = function(event, Scope::Thread, &select, &fragment).unwrap_err();
        text.replace(
            " is not to be had in a kernel without PTX; do without it",
            "",
        )
    };
    for event in [Event::Barrier, Event::Mbarrier] {
        for (capture, name) in [
            (Capture::Waited, "`waited`"),
            (Capture::Site, "`site`"),
            (Capture::Line, "`line`"),
            (Capture::Arg(1), "`args[1]`"),
            (Capture::ArgCount, "`arg_count`"),
            (Capture::Arg(3), "`args[3]`"),
        ] {
            assert_eq!(refused(event, Select::default(), &[capture]), name);
        }
    }
    for event in [Event::Call, Event::Return] {
        let captures = [Capture::Site, Capture::ArgCount];
        for (capture, name) in captures.into_iter().zip(["`site`", "`arg_count`"]) {
            assert_eq!(refused(event, Select::default(), &[capture]), name);
        }
        let select = Select {
            functions: Some(BTreeSet::new()),
            ..Select::default()
        };
        assert_eq!(refused(event, select, &[]), "`func=`");
    }
    let select = Select {
        barriers: vec![Barrier::Sync, Barrier::Arrive],
        ..Select::default()
    };
    assert_eq!(
        refused(Event::Barrier, select, &[]),
        "`kind=arrive` is not to be had in a kernel without PTX; leave it out, as barriers at which a thread does not wait are not told of"
    );
    let select = Select {
        when: When::After,
        ..Select::default()
    };
    assert_eq!(
        refused(Event::Barrier, select, &[]),
        "`when=after` is not to be had in a kernel without PTX; use `when=before`"
    );
}
