//! What only other environments than a GPU kernel use: a context with rules of its own, memory that
//! helpers fill, maps that programs may only read or only write.

use warpbpf_abi::attach::Site;
use warpbpf_abi::helpers::{Arg, Effect, Helper, HelperId, Ret, Uniform, Warp};
use warpbpf_abi::maps::{BPF_F_RDONLY_PROG, BPF_F_WRONLY_PROG};
use warpbpf_object::MapDef;
use warpbpf_verify::{ContextField, Platform, verify};

use crate::common::{code, lookup, maps};

const fn row(id: u32, name: &'static str, args: [Arg; 5], uniform: Uniform) -> Helper {
    Helper {
        id,
        name,
        kind: HelperId::Foreign,
        args,
        ret: Ret::Scalar,
        effect: Effect::Observe,
        warp: Warp::AnyLanes,
        uniform,
        cost: 1,
        prototype: "",
        doc: "",
    }
}

static HELPERS: &[Helper] = &[
    row(
        900,
        "fill",
        [Arg::MemWrite, Arg::Size, Arg::None, Arg::None, Arg::None],
        Uniform::Varies,
    ),
    row(
        901,
        "sum",
        [
            Arg::MemReadOrNull,
            Arg::SizeOrZero,
            Arg::None,
            Arg::None,
            Arg::None,
        ],
        Uniform::Varies,
    ),
    row(
        902,
        "cookie",
        [Arg::Context, Arg::None, Arg::None, Arg::None, Arg::None],
        Uniform::ByArguments,
    ),
    row(903, "dice", [Arg::None; 5], Uniform::Varies),
    row(
        904,
        "peek",
        [Arg::Map, Arg::Scalar, Arg::None, Arg::None, Arg::None],
        Uniform::Varies,
    ),
];

/// Four readable bytes at 0, four more that can be written too at 8, a pointer at 16.
fn context(offset: u32, size: u32, writes: bool) -> ContextField {
    match (offset, size) {
        (0, 4) if !writes => ContextField::Number,
        (8, 4) => ContextField::Number,
        (16, 8) => ContextField::Unserved("a packet pointer"),
        _ => ContextField::Absent,
    }
}

fn attempt(text: &str, maps: &[MapDef]) -> Result<(), String> {
    verify(code(text), maps, &platform())
        .map(|_| ())
        .map_err(|rejection| format!("{}: {}", rejection.slot, rejection.rule))
}

fn platform() -> Platform {
    let gpu = Platform::new(Site::Entry);
    let helpers: &'static [Helper] = Vec::leak([gpu.helpers, HELPERS].concat());
    Platform {
        foreign_context: Some(context),
        helpers,
        ..gpu
    }
}

#[track_caller]
fn accept(text: &str) {
    assert_eq!(attempt(text, &maps()), Ok(()), "{text}");
}

#[track_caller]
fn refuse(text: &str, message: &str) {
    assert_eq!(attempt(text, &maps()), Err(message.to_owned()), "{text}");
}

#[test]
fn the_context_has_rules_of_its_own() {
    accept("r2 = *(u32 *)(r1 + 0)\n*(u32 *)(r1 + 8) = r2\nr0 = 0\nexit");
    refuse(
        "*(u32 *)(r1 + 0) = 1\nr0 = 0\nexit",
        "0: write of 4 bytes at offset 0 of the context is no field of `wbpf_kernel_ctx`",
    );
    refuse(
        "r2 = *(u64 *)(r1 + 16)\nr0 = 0\nexit",
        "0: a packet pointer is not served",
    );
    refuse(
        "*(u32 *)(r1 + 8) = r10\nr0 = 0\nexit",
        "0: the pointer in `r10` (a pointer to r10+0 of the stack) would be stored to offset 8 of the context",
    );
    refuse(
        "r2 = 1\nlock *(u32 *)(r1 + 8) += r2\nr0 = 0\nexit",
        "1: atomic operation of 4 bytes at offset 8 of the context is no field of `wbpf_kernel_ctx`",
    );
}

#[test]
fn filled_memory_is_initialised() {
    accept("r1 = r10\nr1 += -12\nr2 = 12\ncall 900\nr0 = *(u32 *)(r10 - 8)\nexit");
    refuse(
        "r1 = r10\nr1 += -12\nr2 = 8\ncall 900\nr0 = *(u32 *)(r10 - 4)\nexit",
        "4: read of 4 bytes at r10-4 of the stack: the byte at r10-4 was never written",
    );
    refuse(
        "r1 = r10\nr1 += -8\nr2 = 12\ncall 900\nr0 = 0\nexit",
        "3: argument 1 of `bpf_fill` must be 12 writable bytes: write of 12 bytes at r10-8 of the stack, which has 512 bytes",
    );
    // How much is filled is not known, so all of it must hold something before.
    refuse(
        "r2 = *(u32 *)(r1 + 0)\nr2 &= 7\nr2 += 1\nr1 = r10\nr1 += -8\ncall 900\nr0 = 0\nexit",
        "5: argument 1 of `bpf_fill` must be 8 writable bytes: read of 8 bytes at r10-8 of the stack: the byte at r10-8 was never written",
    );
    accept(
        "r2 = *(u32 *)(r1 + 0)\nr2 &= 7\nr2 += 1\n*(u64 *)(r10 - 8) = 0\nr1 = r10\nr1 += -8\ncall 900\nr0 = *(u64 *)(r10 - 8)\nexit",
    );
}

#[test]
fn nothing_at_all_is_memory_of_no_bytes() {
    accept("r1 = 0\nr2 = 0\ncall 901\nr0 = 0\nexit");
    accept("r1 = r10\nr2 = 0\ncall 901\nr0 = 0\nexit");
    refuse(
        "r1 = 0\nr2 = 4\ncall 901\nr0 = 0\nexit",
        "2: argument 1 of `bpf_sum` must be memory of 4 bytes; `r1` is the number 0",
    );
    refuse(
        "r1 = r10\nr1 += -8\nr2 = 0\ncall 900\nr0 = 0\nexit",
        "3: argument 2 of `bpf_fill` must be a size of at least 1 with a known upper bound; `r2` is the number 0",
    );
}

#[test]
fn a_helper_can_ask_for_the_context() {
    accept("call 902\nr0 = 0\nexit");
    refuse(
        "r1 += 8\ncall 902\nr0 = 0\nexit",
        "1: argument 1 of `bpf_cookie` must be the context; `r1` is a pointer to offset 8 of the context",
    );
}

/// They share a kind, so each is told from the others by its number.
#[test]
fn a_helper_is_what_its_own_row_says() {
    let branches = |text: &str| {
        let verified = verify(code(text), &maps(), &platform());
        let verified = verified.unwrap_or_else(|r| panic!("{}", r.render()));
        verified.warp().branches()
    };
    assert_eq!(
        branches("call 902\nif r0 > 3 goto +1\nr0 = 1\nr0 = 0\nexit"),
        (1, 0)
    );
    assert_eq!(
        branches("call 903\nif r0 > 3 goto +1\nr0 = 1\nr0 = 0\nexit"),
        (0, 1)
    );
    // Filled is what `bpf_fill` fills, and no more.
    assert_eq!(
        branches(
            "call 902\n*(u64 *)(r10 - 16) = r0\nr1 = r10\nr1 += -8\nr2 = 8\ncall 900\nr3 = *(u64 *)(r10 - 16)\nr4 = *(u64 *)(r10 - 8)\nr0 = 0\nif r3 > 3 goto +1\nr0 = 1\nif r4 > 3 goto +1\nr0 = 2\nr0 = 0\nexit"
        ),
        (1, 1)
    );
}

#[test]
fn a_helper_of_another_environment_takes_any_map() {
    // An array, a ring, a hash, one value per thread.
    for map in [0, 1, 2, 6] {
        accept(&format!("r1 = map[{map}]\nr2 = 0\ncall 904\nr0 = 0\nexit"));
    }
}

/// What it returns is no clock of ours, so a loop that it ends waits for nothing that we could
/// name.
#[test]
fn a_loop_that_such_a_helper_ends_has_no_bound() {
    let rule = |id: u32| {
        let text = format!("again:\ncall {id}\nif r0 != 0 goto again\nr0 = 0\nexit");
        verify(code(&text), &maps(), &platform())
            .map(|_| ())
            .map_err(|rejection| rejection.rule.name())
    };
    assert_eq!(rule(903), Err("may-not-end"));
    assert_eq!(rule(5), Err("spin"));
}

#[test]
fn maps_can_be_closed_to_reads_or_writes() {
    let with = |flags: u32| {
        let mut maps = maps();
        maps[0].flags = flags;
        maps
    };
    let read = format!("{}r0 = *(u64 *)(r0 + 0)\nexit", lookup(0));
    let write = format!("{}*(u64 *)(r0 + 0) = 1\nr0 = 0\nexit", lookup(0));
    assert_eq!(attempt(&read, &with(BPF_F_RDONLY_PROG)), Ok(()));
    assert_eq!(attempt(&write, &with(BPF_F_WRONLY_PROG)), Ok(()));
    assert_eq!(
        attempt(&write, &with(BPF_F_RDONLY_PROG)),
        Err("9: write of 8 bytes at offset 0 of a value of map `counts`: map `counts` is read-only data".to_owned())
    );
    assert_eq!(
        attempt(&read, &with(BPF_F_WRONLY_PROG)),
        Err("9: read of 8 bytes at offset 0 of a value of map `counts`: map `counts` is write-only for programs".to_owned())
    );
}

#[test]
fn what_an_atomic_finds_on_the_stack_is_known() {
    // The old value is 0, so the loop behind it is never entered.
    accept(
        "*(u64 *)(r10 - 8) = 0\nr1 = 1\nr1 = atomic_fetch_add((u64 *)(r10 - 8), r1)\nagain:\nif r1 != 0 goto again\nr0 = 0\nexit",
    );
}
