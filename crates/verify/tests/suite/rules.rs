//! Each rule: a program that keeps it and one that breaks it, with the exact place and message.

use crate::common::{accept, attempt, lookup, platform, refuse, refuse_on};
use warpbpf_abi::attach::Site;
use warpbpf_ebpf::{AluOp, AtomicOp, Callee, Code, Imm64, Insn, Pc, Reg, Source, Width};
use warpbpf_verify::{Platform, verify};

#[test]
fn registers_are_written_before_they_are_read() {
    accept("r0 = 0\nexit");
    refuse(
        "r0 = r3\nexit",
        0,
        "`r3` is read but holds nothing: nothing was written to it",
    );
    refuse(
        "exit",
        0,
        "`r0` is read but holds nothing: nothing was written to it",
    );
    refuse(
        "r6 = 1\ncall 5\nr0 = r1\nexit",
        2,
        "`r1` is read but holds nothing: the call at instruction 1 overwrote it",
    );
    // On one path only.
    refuse(
        "r1 = *(u32 *)(r1 + 48)\nif r1 > 3 goto out\nr2 = 1\nout:\nr0 = r2\nexit",
        3,
        "`r2` is read but holds nothing: nothing was written to it",
    );
}

#[test]
fn the_frame_pointer_is_read_only() {
    accept("r1 = r10\nr1 += -8\n*(u64 *)(r1 + 0) = 1\nr0 = 0\nexit");
    refuse(
        "r10 += -8\nr0 = 0\nexit",
        0,
        "`r10` is the frame pointer and cannot be written",
    );
    refuse(
        "r10 = *(u32 *)(r1 + 0)\nr0 = 0\nexit",
        0,
        "`r10` is the frame pointer and cannot be written",
    );
}

#[test]
fn the_stack_is_512_bytes_and_initialised_byte_by_byte() {
    accept("*(u64 *)(r10 - 512) = 7\nr0 = *(u64 *)(r10 - 512)\nexit");
    accept("*(u32 *)(r10 - 8) = 7\n*(u32 *)(r10 - 4) = 7\nr0 = *(u64 *)(r10 - 8)\nexit");
    refuse(
        "*(u64 *)(r10 - 520) = 7\nr0 = 0\nexit",
        0,
        "write of 8 bytes at r10-520 of the stack, which has 512 bytes",
    );
    refuse(
        "*(u64 *)(r10 + 0) = 7\nr0 = 0\nexit",
        0,
        "write of 8 bytes at r10+0 of the stack, which has 512 bytes",
    );
    refuse(
        "*(u32 *)(r10 - 8) = 7\nr0 = *(u64 *)(r10 - 8)\nexit",
        1,
        "read of 8 bytes at r10-8 of the stack: the byte at r10-4 was never written",
    );
}

#[test]
fn only_what_cannot_be_split_must_be_aligned() {
    accept("*(u64 *)(r10 - 12) = 7\nr0 = *(u64 *)(r10 - 12)\nr0 = *(u32 *)(r10 - 11)\nexit");
    refuse(
        "*(u64 *)(r10 - 16) = 7\n*(u64 *)(r10 - 8) = 7\nr1 = 1\nlock *(u64 *)(r10 - 12) += r1\nr0 = 0\nexit",
        3,
        "atomic operation of 8 bytes at r10-12 of the stack: the address must be a multiple of 8",
    );
    refuse(
        "r1 = 1\nstore_release((u32 *)(r10 - 6), r1)\nr0 = 0\nexit",
        1,
        "write of 4 bytes at r10-6 of the stack: the address must be a multiple of 4",
    );
    refuse(
        "*(u64 *)(r10 - 8) = 7\nr0 = load_acquire((u16 *)(r10 - 7))\nexit",
        1,
        "read of 2 bytes at r10-7 of the stack: the address must be a multiple of 2",
    );
    let r = refuse(
        "*(u64 *)(r10 - 12) = r1\nr0 = 0\nexit",
        0,
        "write of 8 bytes at r10-12 of the stack: the address must be a multiple of 8",
    );
    assert_eq!(
        r.help(),
        "align the field: atomics, ordered accesses and stored pointers cannot be split"
    );
    // A variable offset: its known zero bits decide.
    let at = |mask: u32| {
        format!(
            "r6 = *(u32 *)(r1 + 48)\n{}r6 &= {mask}\nr0 += r6\nr1 = 1\nlock *(u32 *)(r0 + 0) += r1\nr0 = 0\nexit",
            lookup(8)
        )
    };
    accept(&at(0x3c));
    refuse(
        &at(0x1e),
        13,
        "atomic operation of 4 bytes at offset 0..=30 in steps of 2 of a value of map `big`: the address must be a multiple of 4",
    );
}

#[test]
fn variable_offsets_stay_inside_the_region() {
    // The lane is 0 to 31: times 8 that is 248, too much for a value of 64 bytes.
    let scaled = |check: &str| {
        format!(
            "r6 = *(u32 *)(r1 + 48)\n{}{check}r6 <<= 3\nr0 += r6\nr0 = *(u64 *)(r0 + 0)\nexit\nout:\nr0 = 0\nexit",
            lookup(8)
        )
    };
    accept(&scaled("if r6 > 7 goto out\n"));
    accept(&scaled("r6 &= 7\n"));
    accept(&scaled("w6 &= 7\n"));
    accept(&scaled("if w6 s>= 8 goto out\n"));
    refuse(
        &scaled(""),
        12,
        "read of 8 bytes at offset 0..=248 in steps of 8 of a value of map `big`, which has 64 bytes",
    );
    refuse(
        &scaled("if r6 > 8 goto out\n"),
        13,
        "read of 8 bytes at offset 0..=64 in steps of 8 of a value of map `big`, which has 64 bytes",
    );
    // A check of a copy, before or after, counts too.
    accept(&scaled("r7 = r6\nif r7 > 7 goto out\n"));
    // Negative: -8 before the value.
    refuse(
        &format!("{}r0 += -8\nr0 = *(u64 *)(r0 + 0)\nexit", lookup(0)),
        10,
        "read of 8 bytes at offset -8 of a value of map `counts`, which has 8 bytes",
    );
    // On the stack: a variable slot of an initialised array.
    let stack = |mask: u32| {
        format!(
            "r6 = *(u32 *)(r1 + 48)\n*(u64 *)(r10 - 8) = 1\n*(u64 *)(r10 - 16) = 2\nr6 &= {mask}\nr2 = r10\nr2 += -16\nr2 += r6\nr0 = *(u64 *)(r2 + 0)\nexit"
        )
    };
    accept(&stack(8));
    refuse(
        &stack(24),
        7,
        "read of 8 bytes at r10 plus -16..=8 in steps of 8 of the stack, which has 512 bytes",
    );
}

#[test]
fn null_is_checked_before_use() {
    accept(&format!("{}r0 = *(u64 *)(r0 + 0)\nexit", lookup(0)));
    let unchecked = "*(u32 *)(r10 - 4) = 20\nr2 = r10\nr2 += -4\nr1 = map[0]\ncall 1\n";
    refuse(
        &format!("{unchecked}r0 = *(u64 *)(r0 + 0)\nexit"),
        6,
        "`r0` may be null here: it is a pointer to a value of map `counts`, or null",
    );
    refuse(
        &format!("{unchecked}r0 += 4\nr0 = 0\nexit"),
        6,
        "`+=` on `r0`, which is a pointer to a value of map `counts`, or null",
    );
    // The check of a copy counts, also through the stack.
    accept(&format!(
        "{unchecked}r6 = r0\nif r6 == 0 goto out\n*(u64 *)(r0 + 0) = 1\nout:\nr0 = 0\nexit"
    ));
    accept(&format!(
        "{unchecked}*(u64 *)(r10 - 16) = r0\nif r0 == 0 goto out\nr1 = *(u64 *)(r10 - 16)\n*(u64 *)(r1 + 0) = 1\nout:\nr0 = 0\nexit"
    ));
    // With a zero in a register.
    accept(&format!(
        "{unchecked}r3 = 0\nif r0 == r3 goto out\n*(u64 *)(r0 + 0) = 1\nout:\nr0 = 0\nexit"
    ));
    // The other side.
    refuse(
        &format!("{unchecked}if r0 != 0 goto out\n*(u64 *)(r0 + 0) = 1\nout:\nr0 = 0\nexit"),
        7,
        "`r0` is used as an address but holds a number: 0",
    );
    // Two lookups are two pointers.
    refuse(
        &format!(
            "{unchecked}r6 = r0\nr2 = r10\nr2 += -4\nr1 = map[0]\ncall 1\nif r0 == 0 goto out\n*(u64 *)(r6 + 0) = 1\nout:\nr0 = 0\nexit"
        ),
        13,
        "`r6` may be null here: it is a pointer to a value of map `counts`, or null",
    );
}

#[test]
fn pointers_are_not_computed_with() {
    refuse(
        "r1 *= 2\nr0 = 0\nexit",
        0,
        "`*=` on `r1`, which is the context",
    );
    refuse(
        "w1 += 4\nr0 = 0\nexit",
        0,
        "`32-bit arithmetic` on `r1`, which is the context",
    );
    refuse(
        "w0 = w1\nexit",
        0,
        "`32-bit arithmetic` on `r1`, which is the context",
    );
    refuse(
        "r2 = r10\nr2 -= r1\nr0 = 0\nexit",
        1,
        "`-=` on `r2`, which is a pointer to r10+0 of the stack",
    );
    refuse(
        "r1 = -r1\nr0 = 0\nexit",
        0,
        "`-` on `r1`, which is the context",
    );
    refuse(
        "r1 = be16 r1\nr0 = 0\nexit",
        0,
        "`byte swap` on `r1`, which is the context",
    );
    refuse(
        "r1 = (s8)r1\nr0 = 0\nexit",
        0,
        "`sign extension` on `r1`, which is the context",
    );
    refuse(
        "r1 = map[0]\nr1 += 8\nr0 = 0\nexit",
        2,
        "`+=` on `r1`, which is map `counts`",
    );
    refuse(
        "r2 = 5\nr2 -= r1\nr0 = 0\nexit",
        1,
        "`-=` on `r1`, which is the context",
    );
    // A number plus a pointer is a pointer.
    accept("r2 = -8\nr2 += r10\n*(u64 *)(r2 + 0) = 1\nr0 = 0\nexit");
}

#[test]
fn pointers_do_not_leak() {
    refuse(
        "r0 = r1\nexit",
        1,
        "`r0` is the context at exit; a program returns a number",
    );
    refuse(
        &format!("{}*(u64 *)(r0 + 0) = r10\nr0 = 0\nexit", lookup(0)),
        9,
        "the pointer in `r10` (a pointer to r10+0 of the stack) would be stored to offset 0 of a value of map `counts`",
    );
    refuse(
        "*(u32 *)(r10 - 4) = r10\nr0 = 0\nexit",
        0,
        "the pointer in `r10` (a pointer to r10+0 of the stack) would be stored to r10-4 of the stack",
    );
    refuse(
        "if r1 > 5 goto +0\nr0 = 0\nexit",
        0,
        "`r1` is the context; only `==` and `!=` with 0 compare pointers",
    );
    refuse(
        "if r1 == r10 goto +0\nr0 = 0\nexit",
        0,
        "`r1` is the context; only `==` and `!=` with 0 compare pointers",
    );
    refuse(
        "if w1 == 0 goto +0\nr0 = 0\nexit",
        0,
        "`r1` is the context; only `==` and `!=` with 0 compare pointers",
    );
    refuse(
        "*(u64 *)(r10 - 8) = r1\nr0 = *(u32 *)(r10 - 8)\nexit",
        1,
        "read of 4 bytes at r10-8 of the stack: these bytes are part of the pointer stored at r10-8",
    );
    refuse(
        &format!(
            "{}r1 = r10\nlock *(u64 *)(r0 + 0) += r1\nr0 = 0\nexit",
            lookup(0)
        ),
        10,
        "`an atomic operation` on `r1`, which is a pointer to r10+0 of the stack",
    );
    refuse(
        "r6 = r10\nr6 += -8\n*(u64 *)(r10 - 8) = r10\nr2 = r6\nr3 = r6\nr1 = map[2]\nr4 = 0\ncall 2\nr0 = 0\nexit",
        8,
        "argument 2 of `bpf_map_update_elem` must be a key of map `table` (8 bytes): read of 8 bytes at r10-8 of the stack: these bytes are part of the pointer stored at r10-8",
    );
}

#[test]
fn a_spilled_value_comes_back_as_it_was() {
    accept("*(u64 *)(r10 - 8) = r1\nr2 = *(u64 *)(r10 - 8)\nr0 = *(u32 *)(r2 + 48)\nexit");
    // A number keeps its bounds, and a check of it after the spill counts for the copy.
    accept(&format!(
        "r6 = *(u32 *)(r1 + 56)\n*(u64 *)(r10 - 16) = r6\n{}if r6 > 7 goto out\nr6 = *(u64 *)(r10 - 16)\nr6 <<= 3\nr0 += r6\n*(u64 *)(r0 + 0) = 1\nout:\nr0 = 0\nexit",
        lookup(8)
    ));
}

#[test]
fn context_fields_are_read_one_by_one_and_never_written() {
    accept("r0 = *(u32 *)(r1 + 48)\nexit");
    accept("r0 = *(u64 *)(r1 + 64)\nexit");
    accept("r1 += 48\nr0 = *(u32 *)(r1 + 4)\nexit");
    let r = refuse(
        "r0 = *(u64 *)(r1 + 48)\nexit",
        0,
        "read of 8 bytes at offset 48 of the context is no field of `wbpf_kernel_ctx`",
    );
    assert_eq!(
        r.help(),
        "read a whole field: `lane` is 4 bytes at offset 48"
    );
    // A part of one, if it is aligned; it is as small as the field allows.
    accept("r0 = *(s16 *)(r1 + 50)\nexit");
    accept(&format!(
        "r6 = *(u8 *)(r1 + 48)\nr7 = *(s8 *)(r1 + 49)\n{}r0 += r6\nr0 += r7\nr0 = *(u8 *)(r0 + 32)\nexit",
        lookup(8)
    ));
    refuse(
        "r0 = *(u16 *)(r1 + 49)\nexit",
        0,
        "read of 2 bytes at offset 49 of the context is no field of `wbpf_kernel_ctx`",
    );
    refuse(
        "r0 = *(u64 *)(r1 + 68)\nexit",
        0,
        "read of 8 bytes at offset 68 of the context is no field of `wbpf_kernel_ctx`",
    );
    refuse(
        "r0 = *(u32 *)(r1 + 240)\nexit",
        0,
        "read of 4 bytes at offset 240 of the context is no field of `wbpf_kernel_ctx`",
    );
    refuse(
        "r2 = *(u32 *)(r1 + 48)\nr1 += r2\nr0 = *(u32 *)(r1 + 0)\nexit",
        2,
        "read of 4 bytes at offset 0..=31 of the context is no field of `wbpf_kernel_ctx`",
    );
    refuse(
        "*(u32 *)(r1 + 48) = 1\nr0 = 0\nexit",
        0,
        "write of 4 bytes at offset 48 of the context: the context can only be read",
    );
    refuse(
        "r2 = 1\nlock *(u32 *)(r1 + 48) += r2\nr0 = 0\nexit",
        1,
        "atomic operation of 4 bytes at offset 48 of the context: the context can only be read",
    );
}

#[test]
fn numbers_are_no_addresses() {
    refuse(
        "r1 = 4096\nr0 = *(u64 *)(r1 + 0)\nexit",
        1,
        "`r1` is used as an address but holds a number: 4096",
    );
    refuse(
        "r1 = *(u64 *)(r1 + 64)\nr0 = *(u64 *)(r1 + 0)\nexit",
        1,
        "`r1` is used as an address but holds a number: any number",
    );
    refuse(
        "r1 = map[0]\nr0 = *(u64 *)(r1 + 0)\nexit",
        2,
        "read of 8 bytes at offset 0 of map `counts`: a map itself has no bytes",
    );
}

#[test]
fn constants_are_known_and_not_written() {
    // 0x20 is 7: times 8, within the 64 bytes of `big`.
    accept(&format!(
        "r6 = map[3][0] + 32\nr6 = *(u64 *)(r6 + 0)\n{}r6 <<= 3\nr0 += r6\nr0 = *(u64 *)(r0 + 0)\nexit",
        lookup(8)
    ));
    accept("r1 = map[4][0] + 8\n*(u64 *)(r1 + 0) = 1\nr0 = 0\nexit");
    refuse(
        "r1 = map[3][0] + 32\n*(u64 *)(r1 + 0) = 1\nr0 = 0\nexit",
        2,
        "write of 8 bytes at offset 32 of a value of map `.rodata`: map `.rodata` is read-only data",
    );
    refuse(
        "r1 = map[4][0] + 17\nr0 = 0\nexit",
        0,
        "an address at offset 17 of a value of map `.bss`, which has 16 bytes",
    );
    refuse(
        "r1 = map[2][0] + 0\nr0 = 0\nexit",
        0,
        "map `table` of type hash has no value with a fixed address",
    );
    refuse(
        "*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr3 = map[3][0] + 0\nr1 = map[3]\nr4 = 0\ncall 2\nr0 = 0\nexit",
        8,
        "`bpf_map_update_elem` at a value: map `.rodata` is read-only data",
    );
}

#[test]
fn maps_are_served_and_well_formed() {
    let r = refuse(
        "r1 = map[5]\nr0 = 0\nexit",
        0,
        "map `future` has type 99, which is not served",
    );
    let help = r.help();
    assert!(help.starts_with("these are served: hash (1), "), "{help}");
    assert!(help.contains(", per_thread_array (1502)"), "{help}");
    refuse(
        "r1 = map[99]\nr0 = 0\nexit",
        0,
        "map 99 does not exist, the object has 9",
    );
    refuse(
        "r1 = map[7]\nr0 = 0\nexit",
        0,
        "map `odd` of type array must have a key of 4 bytes, not 8",
    );
    // A map that is only defined hurts nobody.
    accept("r0 = 0\nexit");
}

#[test]
fn helpers_get_what_they_ask_for() {
    accept(&format!("{}r0 = 0\nexit", lookup(6)));
    refuse("call 600\nr0 = 0\nexit", 0, "helper 600 is not known");
    for (id, message, help) in [
        (
            12,
            "`bpf_tail_call` of Linux (helper 12) is not served",
            "call the other program as a function",
        ),
        (
            35,
            "`bpf_get_current_task` of Linux (helper 35) is not served",
            "a thread of a GPU has no task",
        ),
        (
            93,
            "`bpf_spin_lock` is not served: a lane that holds a lock waits for the lanes of its warp that wait for the lock",
            "use `__sync_fetch_and_add`",
        ),
        (
            118,
            "`bpf_jiffies64` of Linux (helper 118) is not served",
            "use `bpf_ktime_get_ns`",
        ),
        (
            174,
            "`bpf_get_attach_cookie` of Linux (helper 174) is not served",
            "use `ctx->kernel_id`",
        ),
        (
            9,
            "`bpf_skb_store_bytes` of Linux (helper 9) is not served",
            "that is the work of another kind of program",
        ),
    ] {
        let r = refuse(&format!("call {id}\nr0 = 0\nexit"), 0, message);
        assert!(r.help().starts_with(help), "{}", r.help());
    }
    refuse(
        "r1 = 0\ncall 1\nr0 = 0\nexit",
        1,
        "argument 1 of `bpf_map_lookup_elem` must be a map; `r1` is the number 0",
    );
    refuse(
        "r1 = map[0]\ncall 1\nr0 = 0\nexit",
        2,
        "`r2` is read but holds nothing: nothing was written to it",
    );
    refuse(
        "r1 = map[0]\nr2 = 4\ncall 1\nr0 = 0\nexit",
        3,
        "argument 2 of `bpf_map_lookup_elem` must be a key of map `counts` (4 bytes); `r2` is the number 4",
    );
    refuse(
        "r2 = r10\nr2 += -4\nr1 = map[0]\ncall 1\nr0 = 0\nexit",
        4,
        "argument 2 of `bpf_map_lookup_elem` must be a key of map `counts` (4 bytes): read of 4 bytes at r10-4 of the stack: the byte at r10-4 was never written",
    );
    refuse(
        "r2 = r10\nr1 = map[0]\ncall 1\nr0 = 0\nexit",
        3,
        "argument 2 of `bpf_map_lookup_elem` must be a key of map `counts` (4 bytes): read of 4 bytes at r10+0 of the stack, which has 512 bytes",
    );
    refuse(
        "r2 = r1\nr1 = map[0]\ncall 1\nr0 = 0\nexit",
        3,
        "argument 2 of `bpf_map_lookup_elem` must be a key of map `counts` (4 bytes): `r2` is used as an address but holds a number: the context, which is not in memory",
    );
    let r = refuse(
        "*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[1]\ncall 1\nr0 = 0\nexit",
        5,
        "`bpf_map_lookup_elem` does not take map `events`, a map of type ringbuf",
    );
    let help = r.help();
    assert!(help.starts_with("it takes hash, "), "{help}");
    assert!(!help.contains("ringbuf"), "{help}");
    refuse(
        "r1 = map[0]\nr2 = 8\nr3 = 0\ncall 131\nr0 = 0\nexit",
        4,
        "`bpf_ringbuf_reserve` does not take map `counts`, a map of type array",
    );
    // An out parameter is written, and may be uninitialised before.
    let out = "r1 = r10\nr1 += -8\nr2 = r10\nr2 += -16\nr3 = r10\nr3 += -24\ncall 505\n";
    accept(&format!("{out}r0 = *(u64 *)(r10 - 24)\nexit"));
    refuse(
        &out.replace("-16", "-12"),
        6,
        "argument 2 of `bpf_gpu_thread_idx` must be 8 writable bytes: write of 8 bytes at r10-12 of the stack: the address must be a multiple of 8",
    );
    refuse(
        "r1 = r10\ncall 503\nr0 = 0\nexit",
        1,
        "argument 1 of `bpf_gpu_block_idx` must be 8 writable bytes: write of 8 bytes at r10+0 of the stack, which has 512 bytes",
    );
}

#[test]
fn sizes_have_bounds() {
    let output = |size: &str| {
        format!(
            "r6 = *(u32 *)(r1 + 48)\n*(u64 *)(r10 - 8) = 1\n*(u64 *)(r10 - 16) = 1\nr2 = r10\nr2 += -16\n{size}\nr1 = map[1]\nr4 = 0\ncall 130\nr0 = 0\nexit"
        )
    };
    accept(&output("r3 = 16"));
    accept(&output("r3 = r6\nr3 &= 15\nr3 += 1"));
    refuse(
        &output("r3 = r6\nr3 &= 15"),
        10,
        "argument 3 of `bpf_ringbuf_output` must be a size of at least 1 with a known upper bound; `r3` is the number 0..=15",
    );
    refuse(
        &output("r3 = 24"),
        9,
        "argument 2 of `bpf_ringbuf_output` must be memory of 24 bytes: read of 24 bytes at r10-16 of the stack, which has 512 bytes",
    );
    refuse(
        &output("r3 = 100000"),
        9,
        "a record of 100000 bytes does not fit into map `events`: at most 8184",
    );
}

#[test]
fn only_allowed_programs_change_the_application() {
    let r = refuse(
        "call 507\n",
        0,
        "`bpf_gpu_exit` can change what the application computes",
    );
    assert_eq!(r.help(), "pass --allow-modify if that is wanted");
    let allowed = platform().with_allow_modify(true);
    let verified = attempt("call 507\n", &allowed).unwrap_or_else(|r| panic!("{r}"));
    assert!(verified.facts().modifies);
    assert!(!accept("r0 = 0\nexit").facts().modifies);
    refuse_on(
        &allowed,
        "r1 = map[1]\nr2 = 8\nr3 = 0\ncall 131\nif r0 == 0 goto +1\ncall 507\nr0 = 0\nexit",
        6,
        "the record reserved at instruction 4 in map `events` is neither submitted nor discarded before the thread ends",
    );
}

const RESERVE: &str =
    "r1 = map[1]\nr2 = 16\nr3 = 0\ncall 131\nif r0 != 0 goto have\nr0 = 0\nexit\nhave:\nr6 = r0\n";

#[test]
fn records_are_given_back_once() {
    let submit = "r1 = r6\nr2 = 0\ncall 132\n";
    accept(&format!(
        "{RESERVE}*(u64 *)(r6 + 8) = 7\n{submit}r0 = 0\nexit"
    ));
    accept(&format!("{RESERVE}r1 = r6\nr2 = 0\ncall 133\nr0 = 0\nexit"));
    refuse(
        &format!("{RESERVE}r0 = 0\nexit"),
        10,
        "the record reserved at instruction 4 in map `events` is neither submitted nor discarded on this path",
    );
    refuse(
        &format!("{RESERVE}{submit}*(u64 *)(r6 + 0) = 7\nr0 = 0\nexit"),
        12,
        "`r6` is read but holds nothing: instruction 11 gave its record back",
    );
    refuse(
        &format!("{RESERVE}{submit}{submit}r0 = 0\nexit"),
        12,
        "`r6` is read but holds nothing: instruction 11 gave its record back",
    );
    refuse(
        &format!("{RESERVE}r6 += 8\n{submit}r0 = 0\nexit"),
        12,
        "argument 1 of `bpf_ringbuf_submit` must be the record that `bpf_ringbuf_reserve` returned; `r1` is a pointer to offset 8 of a record of map `events`",
    );
    refuse(
        &format!("{RESERVE}*(u64 *)(r6 + 16) = 7\n{submit}r0 = 0\nexit"),
        9,
        "write of 8 bytes at offset 16 of a record of map `events`, which has 16 bytes",
    );
    refuse(
        "r1 = map[1]\nr2 = 16\nr3 = 0\ncall 131\nr1 = r0\nr2 = 0\ncall 132\nr0 = 0\nexit",
        7,
        "`r1` may be null here: it is a pointer to a record of map `events`, or null",
    );
    refuse(
        "r2 = *(u32 *)(r1 + 48)\nr1 = map[1]\nr3 = 0\ncall 131\nr0 = 0\nexit",
        4,
        "argument 2 of `bpf_ringbuf_reserve` must be a constant size of at least 1; `r2` is the number 0..=31",
    );
    refuse(
        "r1 = map[1]\nr2 = 100000\nr3 = 0\ncall 131\nr0 = 0\nexit",
        4,
        "a record of 100000 bytes does not fit into map `events`: at most 8184",
    );
    // Two records at once, given back in either order.
    accept(&format!(
        "{RESERVE}r1 = map[1]\nr2 = 8\nr3 = 0\ncall 131\nif r0 == 0 goto one\nr1 = r0\nr2 = 0\ncall 133\none:\n{submit}r0 = 0\nexit"
    ));
}

#[test]
fn formats_are_constant_and_understood() {
    let print = |offset: u32, size: u32, rest: &str| {
        format!("{rest}r1 = map[3][0] + {offset}\nr2 = {size}\ncall 6\nr0 = 0\nexit")
    };
    accept(&print(0, 12, "r3 = 1\nr4 = 2\n"));
    refuse(
        &print(0, 12, "r3 = 1\n"),
        4,
        "`r4` is read but holds nothing: nothing was written to it",
    );
    refuse(
        &print(0, 11, "r3 = 1\nr4 = 2\n"),
        5,
        "argument 1 of `bpf_trace_printk` must be a constant string that ends with a NUL inside its size; `r1` is a pointer to a value of map `.rodata`",
    );
    refuse(
        &print(12, 3, "r3 = 1\n"),
        4,
        "argument 3 of `bpf_trace_printk` must be a constant string (in `.rodata`); `r3` is the number 1",
    );
    // A constant string, and not always the same.
    accept(&print(12, 3, "r3 = map[3][0] + 16\n"));
    accept(&print(
        12,
        3,
        "r4 = *(u32 *)(r1 + 48)\nr3 = map[3][0] + 0\nr3 += r4\n",
    ));
    refuse(
        &print(12, 3, "r3 = map[3][0] + 40\n"),
        5,
        "argument 3 of `bpf_trace_printk` must be a constant string (in `.rodata`); `r3` is a pointer to offset 40 of a value of map `.rodata`",
    );
    refuse(
        &print(12, 3, "r3 = map[4][0] + 0\n"),
        5,
        "argument 3 of `bpf_trace_printk` must be a constant string (in `.rodata`); `r3` is a pointer to a value of map `.bss`",
    );
    refuse(
        &print(16, 16, "r3 = 1\nr4 = 2\nr5 = 3\n"),
        6,
        "the format has 4 conversions; `bpf_trace_printk` takes 3",
    );
    refuse(
        &print(0, 12, "r3 = r10\nr4 = 2\n"),
        5,
        "argument 3 of `bpf_trace_printk` must be a number; `r3` is a pointer to r10+0 of the stack",
    );
    // On the stack, of constants.
    let on_stack = |bytes: &str, size: u32| {
        format!("{bytes}\nr1 = r10\nr1 += -8\nr2 = {size}\ncall 6\nr0 = 0\nexit")
    };
    accept(&on_stack("*(u64 *)(r10 - 8) = 0", 8));
    accept(&on_stack("*(u32 *)(r10 - 8) = 25185", 3));
    refuse(
        &on_stack("*(u32 *)(r10 - 8) = 25185", 2),
        4,
        "argument 1 of `bpf_trace_printk` must be a constant string that ends with a NUL inside its size; `r1` is a pointer to r10-8 of the stack",
    );
    let constant = "argument 1 of `bpf_trace_printk` must be a constant string (in `.rodata`, or of constants that were stored on the stack); `r1` is";
    refuse(
        &on_stack("*(u16 *)(r10 - 8) = 25185", 8),
        4,
        &format!("{constant} a pointer to r10-8 of the stack, and byte 2 there was never written"),
    );
    refuse(
        &on_stack("r1 = *(u32 *)(r1 + 48)\n*(u64 *)(r10 - 8) = r1", 8),
        5,
        &format!(
            "{constant} a pointer to r10-8 of the stack, and byte 0 there is not a known constant"
        ),
    );
    // Only the end of the frame is behind it.
    refuse(
        "*(u8 *)(r10 - 1) = 97\nr1 = r10\nr1 += -1\ncall 501\nr0 = 0\nexit",
        3,
        "argument 1 of `bpf_gpu_puts` must be a constant string that ends with a NUL inside its size; `r1` is a pointer to r10-1 of the stack",
    );
    accept("r1 = map[3][0] + 15\ncall 501\nr0 = 0\nexit");
    refuse(
        "r1 = map[3][0] + 40\ncall 501\nr0 = 0\nexit",
        2,
        "argument 1 of `bpf_gpu_puts` must be a constant string that ends with a NUL inside its size; `r1` is a pointer to offset 40 of a value of map `.rodata`",
    );
}

#[test]
fn loops_end_within_the_budget() {
    accept("r1 = 0\nr0 = 0\nagain:\nr0 += r1\nr1 += 1\nif r1 < 100 goto again\nexit");
    // A bound that is only an upper bound.
    accept(
        "r1 = *(u32 *)(r1 + 48)\nr0 = 0\nagain:\nr0 += 1\nif r0 >= r1 goto out\nif r0 < 64 goto again\nout:\nr0 = 0\nexit",
    );
    refuse(
        "again:\ngoto again",
        0,
        "the loop may not end: nothing changes between two rounds of it",
    );
    refuse(
        &format!(
            "{}again:\nr1 = *(u64 *)(r0 + 0)\nif r1 != 5 goto again\nr0 = 0\nexit",
            lookup(0)
        ),
        9,
        "this loop waits for another thread: it ends only when the value that instruction 9 reads gives another answer",
    );
    let r = refuse(
        "r1 = 0\nagain:\nr1 += 1\nif r1 != 100000 goto again\nr0 = 0\nexit",
        1,
        "the loop may not end, or not soon: after 2048 rounds the budget of 4096 instructions is used up",
    );
    assert_eq!(
        r.help(),
        "give the loop a constant bound that the program counts up to, beside one that a map holds (`k < 32 && k < n`); where it ends later than this budget, raise that (`--budget N`); or have it ended when it runs, which is counted (`--bound-loops`; not in functions that are called, but in those that are `__always_inline`)"
    );
    accept("r1 = 0\nagain:\nr1 += 1\nif r1 != 2046 goto again\nr0 = 0\nexit");
    refuse_on(
        &platform().with_budget(3),
        "r0 = 0\nr0 += 1\nr0 += 1\nexit",
        3,
        "one invocation may execute 4 instructions on this path; the budget is 3",
    );
}

#[test]
fn a_path_that_an_earlier_one_covers_still_costs() {
    // Both sides meet with equal states; the second one is the longer.
    let text = "r1 = *(u32 *)(r1 + 48)\nif r1 > 5 goto long\ngoto meet\nlong:\nr2 = 1\nr2 += 1\nr2 += 1\nr2 += 1\nmeet:\nr0 = 0\nr0 += 1\nexit";
    assert_eq!(accept(text).facts().cost, 9);
    refuse_on(
        &platform().with_budget(8),
        text,
        7,
        "one invocation may execute 9 instructions on this path; the budget is 8",
    );
}

#[test]
fn many_branches_do_not_multiply() {
    // 40 branches whose outcome steers nothing: 2^40 paths, a few hundred steps.
    let mut text = String::from("r6 = map[4][0] + 0\nr7 = 0\n");
    for i in 0..40 {
        text += &format!(
            "r1 = *(u64 *)(r6 + 0)\nif r1 & {} goto +1\nr7 += {i}\n",
            1 << (i % 30)
        );
    }
    text += "r0 = r7\nexit";
    accept(&text);
    // Counting in a loop, then using the count as an index: many states, but not too many.
    let text = format!(
        "r6 = *(u64 *)(r1 + 64)\nr7 = 0\nr8 = 0\nagain:\nif r6 & 1 goto +1\nr7 += 1\nr6 >>= 1\nr8 += 1\nif r8 < 7 goto again\n{}r7 <<= 3\nr0 += r7\n*(u64 *)(r0 + 0) = 1\nr0 = 0\nexit",
        lookup(8)
    );
    accept(&text);
}

/// The largest of 16 numbers, and where it is: 2^16 paths, and a position that is then used as an
/// index.
#[test]
fn states_are_joined_where_too_many_meet() {
    let largest = |bound: u32| {
        format!(
            "{}r6 = r0\nr7 = 0\nr8 = 0\nr9 = 0\nagain:\nr1 = r6\nr2 = r7\nr2 &= 7\nr2 <<= 3\nr1 += r2\nr1 = *(u64 *)(r1 + 0)\nif r1 <= r8 goto next\nr8 = r1\nr9 = r7\nnext:\nr7 += 1\nif r7 < {bound} goto again\nr9 <<= 2\nr6 += r9\n*(u32 *)(r6 + 0) = 1\nr0 = 0\nexit",
            lookup(8)
        )
    };
    let mut small = platform();
    small.effort = 50_000;
    let verified = attempt(&largest(16), &small).unwrap_or_else(|r| panic!("{}", r.render()));
    // 5 and the lookup, 4, 16 rounds of 11, 5.
    assert_eq!(verified.facts().cost, 5 + 12 + 4 + 16 * 11 + 5);
    // What is too much for joining is still found out, or given up.
    let rule = attempt(&largest(17), &small).err().map(|r| r.rule.name());
    assert_eq!(rule, Some("out-of-bounds"));
}

#[test]
fn the_proof_gives_up_in_time() {
    let mut small = platform();
    small.effort = 50;
    refuse_on(
        &small,
        "r1 = 0\nagain:\nr1 += 1\nif r1 < 100 goto again\nr0 = 0\nexit",
        1,
        "the proof needs more than 50 steps",
    );
}

#[test]
fn control_stays_in_the_function() {
    refuse("r0 = 0", 0, "control falls off the end of the function");
    refuse(
        "r0 = 0\ncall f\nr0 = 1\nf:\nr0 = 0\nexit",
        2,
        "control falls off the end of the function",
    );
    refuse(
        "r0 = 0\ngoto in\nexit\ncall f\nexit\nf:\nr0 = 0\nin:\nexit",
        1,
        "the jump goes to instruction 6, outside its function",
    );
    // Unreachable code may do what it likes, but for jumps.
    accept("r0 = 0\nexit\nr0 = r7\nexit");
    let empty = verify(Code::default(), &[], &platform());
    assert_eq!(
        empty.err().map(|r| r.rule.to_string()).as_deref(),
        Some("control falls off the end of the function")
    );
}

#[test]
fn calls_nest_but_do_not_recur() {
    accept("r1 = 3\ncall f\nexit\nf:\nr0 = r1\nexit");
    refuse(
        "call f\nexit\nf:\nr0 = 0\ncall f\nexit",
        3,
        "`the function at instruction 2` calls itself, directly or through others",
    );
    // r6 to r9 are kept, r1 to r5 are not.
    accept("r6 = 3\ncall f\nr0 = r6\nexit\nf:\nr0 = 0\nr6 = 9\nexit");
    refuse(
        "r1 = 3\ncall f\nr0 = r1\nexit\nf:\nr0 = 0\nexit",
        2,
        "`r1` is read but holds nothing: the call at instruction 1 overwrote it",
    );
    // A callee does not see the caller's r6.
    refuse(
        "r6 = 3\ncall f\nexit\nf:\nr0 = r6\nexit",
        3,
        "`r6` is read but holds nothing: nothing was written to it",
    );
    // The caller's stack can be passed down, the callee's not up.
    accept(
        "r1 = r10\nr1 += -8\ncall f\nr0 = *(u64 *)(r10 - 8)\nexit\nf:\n*(u64 *)(r1 + 0) = 5\nr0 = 0\nexit",
    );
    refuse(
        "call f\nr0 = 0\nexit\nf:\nr0 = r10\nexit",
        4,
        "`r0` is a pointer into the stack of the function that returns",
    );
    refuse(
        "r1 = r10\nr1 += -8\ncall f\nr1 = *(u64 *)(r10 - 8)\nr0 = 0\nexit\nf:\n*(u64 *)(r1 + 0) = r10\nr0 = 0\nexit",
        3,
        "read of 8 bytes at r10-8 of the stack: the byte at r10-8 was never written",
    );
    // A pointer that is not the callee's own may be returned.
    accept("r1 = r10\nr1 += -8\ncall f\n*(u64 *)(r0 + 0) = 1\nr0 = 0\nexit\nf:\nr0 = r1\nexit");
    let mut deep = String::from("call f1\nexit\n");
    for i in 1..9 {
        deep += &format!("f{i}:\ncall f{}\nexit\n", i + 1);
    }
    deep += "f9:\nr0 = 0\nexit";
    refuse(&deep, 14, "calls are nested 9 deep; at most 8");
    let stacks = |bytes: u32| {
        format!(
            "*(u64 *)(r10 - 256) = 1\ncall f\nexit\nf:\n*(u64 *)(r10 - {bytes}) = 1\nr0 = 0\nexit"
        )
    };
    assert_eq!(accept(&stacks(256)).facts().stack_bytes, 512);
    refuse(
        &stacks(264),
        1,
        "this chain of calls uses 520 bytes of stack; at most 512",
    );
}

#[test]
fn inlined_size_has_a_limit() {
    // Seven levels, each calling the next one eight times.
    let mut text = String::from("call f1\nexit\n");
    for i in 1..7 {
        text += &format!("f{i}:\n{}exit\n", format!("call f{}\n", i + 1).repeat(8));
    }
    text += "f7:\nr0 = 0\nexit";
    let wide = platform().with_budget(u64::MAX);
    let r = attempt(&text, &wide)
        .err()
        .unwrap_or_else(|| panic!("accepted"));
    assert_eq!(
        r.rule.to_string(),
        "inlining all calls gives more than 65536 instructions"
    );
}

#[test]
fn one_instruction_has_one_region() {
    let mixed = format!(
        "r6 = *(u32 *)(r1 + 48)\n{}*(u64 *)(r10 - 16) = 1\nr1 = r0\nif r6 > 3 goto +2\nr1 = r10\nr1 += -16\nr0 = *(u64 *)(r1 + 0)\nexit",
        lookup(0)
    );
    refuse(
        &mixed,
        15,
        "this instruction works on the stack of the entry function on one path and on a value of map `counts` on another",
    );
    // Two call sites are two instances.
    accept(&format!(
        "{}r1 = r0\ncall f\n*(u64 *)(r10 - 16) = 1\nr1 = r10\nr1 += -16\ncall f\nexit\nf:\nr0 = *(u64 *)(r1 + 0)\nexit",
        lookup(0)
    ));
    refuse(
        "r6 = *(u32 *)(r1 + 48)\n*(u64 *)(r10 - 8) = 1\nr2 = r10\nr2 += -8\nr1 = map[0]\nif r6 > 3 goto +2\nr1 = map[8]\ncall 1\nr0 = 0\nexit",
        9,
        "this instruction works on map `big` on one path and on map `counts` on another",
    );
}

#[test]
fn what_is_not_served_is_refused_by_name() {
    let with = |insn: Insn| {
        let insns = vec![
            insn,
            Insn::Alu {
                wide: true,
                op: AluOp::Mov,
                dst: Reg::R0,
                src: Source::Imm(0),
            },
            Insn::Exit,
        ];
        let r = verify(Code::new(insns), &crate::common::maps(), &platform())
            .err()
            .unwrap_or_else(|| panic!("accepted {insn:?}"));
        r.rule.to_string()
    };
    assert_eq!(
        with(Insn::CallReg { target: Reg::R1 }),
        "a call through a register is not served"
    );
    assert_eq!(
        with(Insn::Call {
            callee: Callee::Kfunc(7)
        }),
        "kernel function 7 (a kfunc) is not served"
    );
    assert_eq!(
        with(Insn::LoadImm64 {
            dst: Reg::R1,
            value: Imm64::BtfId(7)
        }),
        "kernel variable 7 (by BTF id) is not served"
    );
    assert_eq!(
        with(Insn::LegacyPacket {
            width: Width::W8,
            indirect: false,
            src: Reg::R0,
            imm: 0
        }),
        "legacy packet access is not served"
    );
    assert_eq!(
        with(Insn::Atomic {
            width: Width::W8,
            op: AtomicOp::Xchg,
            base: Reg::FP,
            off: -8,
            src: Reg::R1
        }),
        "the instruction is malformed: atomics have 32 or 64 bits"
    );
    assert_eq!(
        with(Insn::End {
            kind: warpbpf_ebpf::EndKind::Swap,
            bits: 8,
            dst: Reg::R1
        }),
        "the instruction is malformed: byte swaps have 16, 32 or 64 bits"
    );
    assert_eq!(
        with(Insn::MovSx {
            wide: false,
            bits: 32,
            dst: Reg::R0,
            src: Reg::R1
        }),
        "the instruction is malformed: sign extension from 8, 16 or (64-bit) 32 bits"
    );
    assert_eq!(
        with(Insn::Load {
            width: Width::W64,
            signed: true,
            dst: Reg::R0,
            base: Reg::R1,
            off: 64
        }),
        "the instruction is malformed: a 64-bit load has no sign extension"
    );
    assert_eq!(
        with(Insn::Call {
            callee: Callee::Local(Pc(77))
        }),
        "a call to instruction 77, where there is none"
    );
}

#[test]
fn atomics_and_v4_memory_are_proved() {
    accept(&format!(
        "{}r1 = 1\nlock *(u64 *)(r0 + 0) += r1\nr1 = atomic_fetch_add((u64 *)(r0 + 0), r1)\nr6 = r0\nr0 = 5\nr0 = cmpxchg_64(r6 + 0, r0, r1)\nexit",
        lookup(0)
    ));
    accept(
        "*(u64 *)(r10 - 8) = 1\nr1 = 1\nlock *(u64 *)(r10 - 8) += r1\nr0 = *(u64 *)(r10 - 8)\nexit",
    );
    refuse(
        "r1 = 1\nlock *(u64 *)(r10 - 8) += r1\nr0 = 0\nexit",
        1,
        "atomic operation of 8 bytes at r10-8 of the stack: the byte at r10-8 was never written",
    );
    accept(
        "r1 = 1\nstore_release((u64 *)(r10 - 8), r1)\nr0 = load_acquire((u64 *)(r10 - 8))\nexit",
    );
    accept("r1 = 200\nr1 = (s8)r1\nr0 = r1\nr0 s/= 3\nr0 s%= 5\nr0 = bswap32 r0\nexit");
}

#[test]
fn a_default_platform_has_the_table_of_its_site() {
    let p = Platform::new(Site::Exit);
    assert_eq!(
        (p.budget, p.effort, p.allow_modify, p.context.size),
        (4096, 1_000_000, false, 240)
    );
}

/// What the first path to a meeting point proves holds for a second one only if nothing it relied
/// on differs.
#[test]
fn a_path_is_dropped_only_if_an_earlier_one_covers_it() {
    // A byte that only the first path wrote.
    refuse(
        "r6 = *(u32 *)(r1 + 48)\nif r6 > 3 goto meet\n*(u64 *)(r10 - 8) = 1\nmeet:\nr0 = *(u64 *)(r10 - 8)\nexit",
        3,
        "read of 8 bytes at r10-8 of the stack: the byte at r10-8 was never written",
    );
    // The same where the bytes' value is unknown: an out parameter of a helper.
    refuse(
        "r6 = *(u32 *)(r1 + 48)\nif r6 > 3 goto meet\nr1 = r10\nr1 += -8\nr2 = r10\nr2 += -16\nr3 = r10\nr3 += -24\ncall 505\nmeet:\nr0 = *(u64 *)(r10 - 8)\nexit",
        9,
        "read of 8 bytes at r10-8 of the stack: the byte at r10-8 was never written",
    );
    // A pointer where the first path had an unknown number.
    refuse(
        "r6 = *(u32 *)(r1 + 48)\n*(u64 *)(r10 - 8) = 5\nif r6 <= 3 goto second\nlock *(u64 *)(r10 - 8) += r6\ngoto meet\nsecond:\n*(u64 *)(r10 - 8) = r10\nmeet:\nr0 = *(u64 *)(r10 - 8)\nexit",
        7,
        "`r0` is a pointer to r10+0 of the stack at exit; a program returns a number",
    );
    // A pointer that only the first path checked.
    let unchecked =
        "r6 = *(u32 *)(r1 + 48)\n*(u32 *)(r10 - 4) = 20\nr2 = r10\nr2 += -4\nr1 = map[0]\ncall 1\n";
    refuse(
        &format!(
            "{unchecked}if r6 > 3 goto meet\nif r0 == 0 goto out\nmeet:\n*(u64 *)(r0 + 0) = 1\nout:\nr0 = 0\nexit"
        ),
        9,
        "`r0` may be null here: it is a pointer to a value of map `counts`, or null",
    );
    // A copy that only the first path made: a check of one is then no check of the other.
    refuse(
        &format!(
            "r6 = *(u32 *)(r1 + 48)\nr8 = *(u32 *)(r1 + 48)\nr9 = *(u32 *)(r1 + 56)\n{}r7 = r6\nif r9 > 3 goto copied\nr7 = r6\ngoto meet\ncopied:\nr7 = r8\nmeet:\nif r6 > 7 goto out\nr7 <<= 3\nr0 += r7\n*(u64 *)(r0 + 0) = 1\nout:\nr0 = 0\nexit",
            lookup(8)
        ),
        20,
        "write of 8 bytes at offset 0..=248 in steps of 8 of a value of map `big`, which has 64 bytes",
    );
    // A record that only the second path holds.
    refuse(
        "r6 = *(u32 *)(r1 + 48)\nif r6 <= 3 goto meet\ngoto end\nmeet:\nr1 = map[1]\nr2 = 8\nr3 = 0\ncall 131\nend:\nr0 = 0\nexit",
        9,
        "the record reserved at instruction 7 in map `events` is neither submitted nor discarded on this path",
    );
    // A number that decides a later branch.
    refuse(
        "r6 = *(u32 *)(r1 + 48)\nr7 = 1\nif r6 <= 3 goto second\ngoto meet\nsecond:\nr7 = 2\nmeet:\nif r7 != 2 goto out\nr0 = r8\nexit\nout:\nr0 = 0\nexit",
        6,
        "`r8` is read but holds nothing: nothing was written to it",
    );
    // A pointer where the first path had a number: only one of them may be added to another number
    // and stored.
    refuse(
        "r6 = *(u32 *)(r1 + 48)\n*(u64 *)(r10 - 8) = 5\nif r6 <= 3 goto second\ngoto meet\nsecond:\n*(u64 *)(r10 - 8) = r10\nmeet:\nr0 = *(u64 *)(r10 - 8)\nexit",
        6,
        "`r0` is a pointer to r10+0 of the stack at exit; a program returns a number",
    );
}

#[test]
fn a_truncated_copy_is_another_number() {
    refuse(
        &format!(
            "r6 = *(u64 *)(r1 + 64)\n*(u32 *)(r10 - 16) = r6\nr7 = *(u32 *)(r10 - 16)\n{}if r7 > 7 goto out\nr0 += r6\n*(u8 *)(r0 + 0) = 1\nout:\nr0 = 0\nexit",
            lookup(8)
        ),
        14,
        "write of 1 byte at offset any number of a value of map `big`, which has 64 bytes",
    );
    refuse(
        &format!(
            "r6 = *(u64 *)(r1 + 64)\nw7 = w6\n{}if r7 > 7 goto out\nr0 += r6\n*(u8 *)(r0 + 0) = 1\nout:\nr0 = 0\nexit",
            lookup(8)
        ),
        13,
        "write of 1 byte at offset any number of a value of map `big`, which has 64 bytes",
    );
}

#[test]
fn a_pointer_that_left_its_region_may_be_null() {
    refuse(
        "r6 = *(u64 *)(r1 + 64)\nr7 = map[4][0] + 0\nr7 += r6\nif r7 == 0 goto null\nr0 = 0\nexit\nnull:\nr0 = r8\nexit",
        7,
        "`r8` is read but holds nothing: nothing was written to it",
    );
    accept("if r1 == 0 goto null\nr0 = 0\nexit\nnull:\nr0 = r8\nexit");
}

#[test]
fn an_array_has_the_keys_below_its_size() {
    let constant = |map: u32, key: u32| {
        format!(
            "*(u32 *)(r10 - 4) = {key}\nr2 = r10\nr2 += -4\nr1 = map[{map}]\ncall 1\nr0 = *(u64 *)(r0 + 0)\nexit"
        )
    };
    accept(&constant(0, 15));
    refuse(
        &constant(0, 16),
        6,
        "`r0` may be null here: it is a pointer to a value of map `counts`, or null",
    );
    // A thread may be beyond the last one that has a copy.
    refuse(
        &constant(6, 0),
        6,
        "`r0` may be null here: it is a pointer to a value of map `mine`, or null",
    );
    // A key that was compared is as good.
    accept(
        "r6 = *(u32 *)(r1 + 48)\nif r6 > 15 goto out\n*(u32 *)(r10 - 4) = r6\nr2 = r10\nr2 += -4\nr1 = map[0]\ncall 1\nr0 = *(u64 *)(r0 + 0)\nout:\nr0 = 0\nexit",
    );
}

#[test]
fn helpers_that_fail_tell_small_negative_numbers() {
    accept(
        "*(u32 *)(r10 - 4) = 1\n*(u64 *)(r10 - 16) = 1\nr2 = r10\nr2 += -4\nr3 = r10\nr3 += -16\nr4 = 0\nr1 = map[0]\ncall 2\nif r0 s> 0 goto never\nif r0 s< -4095 goto never\nr0 = 0\nexit\nnever:\nr0 = r9\nexit",
    );
}

#[test]
fn numbers_stay_tied_when_a_constant_is_added() {
    let text = |check: &str| {
        format!(
            "r6 = *(u32 *)(r1 + 56)\n{}r7 = r6\nr7 += 4\n{check}r0 += r6\n*(u8 *)(r0 + 0) = 1\nout:\nr0 = 0\nexit",
            lookup(8)
        )
    };
    accept(&text("if r7 > 67 goto out\n"));
    refuse(
        &text("if r7 > 68 goto out\n"),
        14,
        "write of 1 byte at offset 0..=64 of a value of map `big`, which has 64 bytes",
    );
    // Also the other way round, and through the stack.
    accept(&format!(
        "r6 = *(u32 *)(r1 + 56)\n{}r6 += 8\n*(u64 *)(r10 - 16) = r6\nr6 -= 4\nif r6 > 60 goto out\nr7 = *(u64 *)(r10 - 16)\nr0 += r7\n*(u8 *)(r0 - 8) = 1\nout:\nr0 = 0\nexit",
        lookup(8)
    ));
    // A multiple is another number.
    refuse(
        &format!(
            "r6 = *(u32 *)(r1 + 56)\n{}r7 = r6\nr7 <<= 1\nif r7 > 64 goto out\nr6 &= 127\nr0 += r6\n*(u8 *)(r0 + 0) = 1\nout:\nr0 = 0\nexit",
            lookup(8)
        ),
        15,
        "write of 1 byte at offset 0..=127 of a value of map `big`, which has 64 bytes",
    );
}

#[test]
fn pointers_into_one_object_are_compared_and_subtracted() {
    // The order and distance of places in one stack are known.
    accept(
        "r6 = r10\nr6 += -16\nif r6 >= r10 goto never\nr7 = r10\nr7 -= r6\nif r7 != 16 goto never\nr0 = 0\nexit\nnever:\nr0 = r9\nexit",
    );
    // Of two values of a map they are not.
    refuse(
        &format!(
            "{}r6 = r0\nr7 = r0\nr7 -= r6\nif r7 == 5 goto odd\nr0 = 0\nexit\nodd:\nr0 = r8\nexit",
            lookup(0)
        ),
        15,
        "`r8` is read but holds nothing: nothing was written to it",
    );
    refuse(
        &format!(
            "{}r6 = r0\nif r6 != r0 goto odd\nr0 = 0\nexit\nodd:\nr0 = r8\nexit",
            lookup(0)
        ),
        13,
        "`r8` is read but holds nothing: nothing was written to it",
    );
    // Places in different objects have none.
    refuse(
        &format!("{}r0 -= r10\nr0 = 0\nexit", lookup(0)),
        9,
        "`-=` on `r0`, which is a pointer to a value of map `counts`",
    );
    refuse(
        &format!("{}if r0 > r10 goto +0\nr0 = 0\nexit", lookup(0)),
        9,
        "`r0` is a pointer to a value of map `counts`; only `==` and `!=` with 0 compare pointers",
    );
}

#[test]
fn signed_and_unsigned_bounds_meet_where_both_go_round() {
    accept(
        "r0 = *(u32 *)(r1 + 48)\nr0 = *(s8 *)(r1 + 64)\nr2 = -256\nif r0 > r2 goto out\nif r0 < 128 goto out\nr0 = r9\nexit\nout:\nr0 = 0\nexit",
    );
}

#[test]
fn the_low_bytes_of_a_spilled_number_may_be_all_of_it() {
    accept(
        "r6 = *(u32 *)(r1 + 64)\n*(u64 *)(r10 - 8) = r6\nr1 = *(u32 *)(r10 - 8)\nif r1 != 0 goto out\nif r6 == 0 goto out\nr0 = r9\nexit\nout:\nr0 = 0\nexit",
    );
    // Of a larger one they are not.
    refuse(
        "r6 = *(u64 *)(r1 + 64)\n*(u64 *)(r10 - 8) = r6\nr1 = *(u32 *)(r10 - 8)\nif r1 != 0 goto out\nif r6 == 0 goto out\nr0 = r9\nexit\nout:\nr0 = 0\nexit",
        5,
        "`r9` is read but holds nothing: nothing was written to it",
    );
}

#[test]
fn a_program_may_have_so_many_instructions() {
    let program = format!("{}r0 = 0\nexit", "r1 = 0\n".repeat(65_536));
    refuse(
        &program,
        0,
        "inlining all calls gives more than 65536 instructions",
    );
}
