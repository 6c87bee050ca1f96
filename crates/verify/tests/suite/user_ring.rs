//! User ring buffers: what programs may do with what the host sends them.

use warpbpf_abi::maps::MapType;
use warpbpf_object::MapDef;
use warpbpf_verify::{Rejection, Verified, verify};

use crate::common::{self, code, platform};

fn map(name: &str, map_type: MapType, key_size: u32, max_entries: u32) -> MapDef {
    let value_size = if key_size == 4 { 8 } else { 0 };
    common::map(name, map_type as u32, key_size, value_size, max_entries)
}

/// By index: 0 `jobs`, 1 `counts`, 2 `events`, 3 `keyed`, 4 `huge`.
fn maps() -> Vec<MapDef> {
    vec![
        map("jobs", MapType::UserRingbuf, 0, 4096),
        map("counts", MapType::Array, 4, 1),
        map("events", MapType::Ringbuf, 0, 4096),
        map("keyed", MapType::UserRingbuf, 4, 4096),
        map("huge", MapType::UserRingbuf, 0, u32::MAX),
    ]
}

fn attempt(text: &str) -> Result<Verified<warpbpf_ebpf::Code>, Box<Rejection>> {
    verify(code(text), &maps(), &platform().with_budget(100_000))
}

/// A program that drains map `map` with this callback.
fn drains(map: u32, callback: &str) -> String {
    format!(
        "*(u64 *)(r10 - 8) = 0\nr1 = map[{map}]\nr2 = subprog[take]\nr3 = r10\nr3 += -8\nr4 = 0\ncall 209
        r0 = 0\nexit\ntake:\n{callback}"
    )
}

fn accept(callback: &str) -> Verified<warpbpf_ebpf::Code> {
    let text = drains(0, callback);
    attempt(&text).unwrap_or_else(|rejection| panic!("refused:\n{}\n{text}", rejection.render()))
}

fn refuse_all(text: &str, message: &str) {
    match attempt(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(rejection) => assert_eq!(rejection.rule.to_string(), message),
    }
}

fn refuse(callback: &str, message: &str) {
    refuse_all(&drains(0, callback), message);
}

const END: &str = "r0 = 0\nexit";

#[test]
fn a_sample_is_read_and_pointed_to() {
    accept(&format!(
        "r6 = r1\nr7 = r2\nr3 = r1\nr1 = r10\nr1 += -16\nr2 = 16\nr4 = 0\nr5 = 0\ncall 201
        r1 = *(u64 *)(r10 - 16)\nr2 = *(u64 *)(r7 + 0)\nr2 += r1\n*(u64 *)(r7 + 0) = r2
        r1 = r6\nr2 = 8\nr3 = 12\ncall 203\nif r0 == 0 goto +3\nr1 = *(u32 *)(r0 + 8)\n*(u64 *)(r0 + 0) = 7\nr1 = *(u8 *)(r0 + 11)
        {END}"
    ));
    // The context of the callback need not be memory.
    let text = drains(0, END).replace("r3 = r10\nr3 += -8", "r3 = 0");
    assert!(attempt(&text).is_ok());
}

#[test]
fn only_within_its_bounds() {
    let data = |offset: &str, size: &str, then: &str| {
        format!("r2 = {offset}\nr3 = {size}\ncall 203\n{then}\n{END}")
    };
    refuse(
        &data("0", "8", "r1 = *(u64 *)(r0 + 0)"),
        "`r0` may be null here: it is a pointer to a sample of map `jobs`, or null",
    );
    refuse(
        &data("0", "8", "if r0 == 0 goto +1\nr1 = *(u8 *)(r0 + 8)"),
        "read of 1 byte at offset 8 of a sample of map `jobs`, which has 8 bytes",
    );
    refuse(
        &data("4", "8", ""),
        "argument 2 of `bpf_dynptr_data` must be a constant offset that is a multiple of 8 (`bpf_dynptr_read` takes \
         any); `r2` is the number 4",
    );
    refuse(
        &data("0", "0", ""),
        "argument 3 of `bpf_dynptr_data` must be a constant size of at least 1; `r3` is the number 0",
    );
    refuse(
        &data("0", "5000", ""),
        "a record of 5000 bytes does not fit into map `jobs`: at most 4088",
    );
}

#[test]
fn a_dynptr_is_no_memory() {
    refuse(
        &format!("r1 = *(u64 *)(r1 + 0)\n{END}"),
        "read of 8 bytes at offset 0 of the dynptr of a sample of map `jobs`, which has 0 bytes",
    );
    refuse(
        &format!("r1 += 8\n{END}"),
        "`+=` on `r1`, which is the dynptr of a sample of map `jobs`",
    );
    refuse(
        &format!("r1 = r2\nr2 = 0\nr3 = 8\ncall 203\n{END}"),
        "argument 1 of `bpf_dynptr_data` must be a dynptr; `r1` is a pointer to r10-8 of the stack",
    );
    refuse(
        &format!("r3 = 5\nr1 = r10\nr1 += -8\nr2 = 8\nr4 = 0\nr5 = 0\ncall 201\n{END}"),
        "argument 3 of `bpf_dynptr_read` must be a dynptr; `r3` is the number 5",
    );
}

#[test]
fn nothing_of_a_sample_outlives_its_callback() {
    let keep = "r6 = r2\nr2 = 0\nr3 = 8\ncall 203\nif r0 == 0 goto +1\n*(u64 *)(r6 + 0) = r0\nr0 = 0\nexit";
    let text = drains(0, keep).replacen(
        "r0 = 0\nexit\ntake",
        "r1 = *(u64 *)(r10 - 8)\nr0 = 0\nexit\ntake",
        1,
    );
    refuse_all(
        &text,
        "read of 8 bytes at r10-8 of the stack: the byte at r10-8 was never written",
    );
    let text = drains(0, "*(u64 *)(r2 + 0) = r1\nr0 = 0\nexit").replacen(
        "r0 = 0\nexit\ntake",
        "r1 = *(u64 *)(r10 - 8)\nr0 = 0\nexit\ntake",
        1,
    );
    refuse_all(
        &text,
        "read of 8 bytes at r10-8 of the stack: the byte at r10-8 was never written",
    );
}

#[test]
fn callbacks_and_maps() {
    refuse(
        "r0 = 2\nexit",
        "the callback returns the number 2; it must return 0 to go on or 1 to stop",
    );
    refuse_all(
        &drains(2, END),
        "`bpf_user_ringbuf_drain` does not take map `events`, a map of type ringbuf",
    );
    refuse_all(
        &drains(3, END),
        "map `keyed` of type user_ringbuf must have no key",
    );
    refuse_all(
        &drains(4, END),
        "map `huge` of type user_ringbuf may have `max_entries` of 1073741824 bytes at most",
    );
    refuse_all(
        "r1 = map[0]\nr2 = r10\nr3 = 0\ncall 1\nr0 = 0\nexit",
        "`bpf_map_lookup_elem` does not take map `jobs`, a map of type user_ringbuf",
    );
    // Which lane drains is not known: what all lanes must do together has no place in the callback,
    // nor behind its result.
    refuse(
        "r1 = 1\ncall 528\nr0 = 0\nexit",
        "`bpf_gpu_warp_sum` needs all lanes that arrived together, but the branch at instruction 8 sends some of them \
         another way",
    );
}

#[test]
fn what_a_drain_costs() {
    // Sixteen rounds at most: what each spends, and the callback's own.
    let cost = |callback: &str| accept(callback).facts().cost;
    let plain = cost(END);
    assert_eq!(cost(&format!("r1 = 0\n{END}")), plain + 16);
    let read = |offset: u32| {
        format!("r3 = r1\nr1 = r10\nr1 += -16\nr2 = 16\nr4 = {offset}\nr5 = 0\ncall 201\n{END}")
    };
    assert_eq!(cost(&read(8)), plain + 16 * (6 + 16 + 2 * 4));
    assert_eq!(cost(&read(4)), plain + 16 * (6 + 16 + 2 * 28));
}
