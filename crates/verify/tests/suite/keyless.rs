//! Queues, stacks, bloom filters, event arrays and maps of maps: what programs may do with them.

use warpbpf_abi::maps::MapType;
use warpbpf_object::MapDef;
use warpbpf_verify::{ArgFact, CallFact, INNER, InsnFact, Rejection, Verified, verify};

use crate::common::{self, code, platform};

fn map(name: &str, map_type: MapType, key_size: u32, value_size: u32) -> MapDef {
    common::map(name, map_type as u32, key_size, value_size, 16)
}

fn of_maps(name: &str, inner: MapDef) -> MapDef {
    MapDef {
        inner: Some(Box::new(inner)),
        ..map(name, MapType::ArrayOfMaps, 4, 4)
    }
}

/// By index: 0 `jobs`, 1 `pile`, 2 `seen`, 3 `events`, 4 `arrays`, 5 `rings`, 6 `host`.
fn maps() -> Vec<MapDef> {
    vec![
        map("jobs", MapType::Queue, 0, 12),
        map("pile", MapType::Stack, 0, 8),
        map("seen", MapType::BloomFilter, 0, 8),
        map("events", MapType::PerfEventArray, 4, 4),
        of_maps("arrays", map("arrays.inner", MapType::Array, 4, 8)),
        of_maps("rings", map("rings.inner", MapType::Ringbuf, 0, 0)),
        map("host", MapType::GpuHostArray, 4, 8),
    ]
}

fn attempt(text: &str) -> Result<Verified<warpbpf_ebpf::Code>, Box<Rejection>> {
    verify(code(text), &maps(), &platform())
}

fn accept(text: &str) -> Verified<warpbpf_ebpf::Code> {
    attempt(text).unwrap_or_else(|rejection| panic!("refused:\n{}\n{text}", rejection.render()))
}

fn refuse(text: &str, message: &str) {
    match attempt(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(rejection) => assert_eq!(rejection.rule.to_string(), message),
    }
}

fn calls(verified: &Verified<warpbpf_ebpf::Code>) -> Vec<CallFact> {
    let facts = verified.facts().instances[0].insns.iter();
    facts
        .filter_map(|fact| match fact {
            InsnFact::Call(call) => Some(call.clone()),
            _ => None,
        })
        .collect()
}

const END: &str = "r0 = 0\nexit";

#[test]
fn a_pop_fills_its_value() {
    // All twelve bytes can be read after it, and none need be written before.
    accept(&format!(
        "r1 = map[0]\nr2 = r10\nr2 += -12\ncall 88
        r1 = *(u32 *)(r10 - 12)\nr1 = *(u32 *)(r10 - 8)\nr1 = *(u32 *)(r10 - 4)\n{END}"
    ));
    accept(&format!(
        "r1 = map[1]\nr2 = r10\nr2 += -8\ncall 89\nr1 = *(u64 *)(r10 - 8)\n{END}"
    ));
    refuse(
        &format!("r1 = map[1]\nr2 = r10\nr2 += -4\ncall 88\n{END}"),
        "argument 2 of `bpf_map_pop_elem` must be a value of map `pile` (8 bytes): write of 8 bytes at r10-4 of the \
         stack, which has 512 bytes",
    );
    refuse(
        &format!("r1 = map[1]\nr2 = 7\ncall 88\n{END}"),
        "argument 2 of `bpf_map_pop_elem` must be a value of map `pile` (8 bytes); `r2` is the number 7",
    );
}

#[test]
fn a_push_and_a_bloom_filter_read_their_value() {
    let unwritten = |map: &str, size: u32, helper: &str| {
        format!(
            "argument 2 of `bpf_{helper}` must be a value of map `{map}` ({size} bytes): read of {size} bytes at \
             r10-{size} of the stack: the byte at r10-{size} was never written"
        )
    };
    refuse(
        &format!("r1 = map[1]\nr2 = r10\nr2 += -8\nr3 = 0\ncall 87\n{END}"),
        &unwritten("pile", 8, "map_push_elem"),
    );
    refuse(
        &format!("r1 = map[2]\nr2 = r10\nr2 += -8\ncall 89\n{END}"),
        &unwritten("seen", 8, "map_peek_elem"),
    );
    accept(&format!(
        "*(u64 *)(r10 - 8) = 1
        r1 = map[2]\nr2 = r10\nr2 += -8\nr3 = 0\ncall 87
        r1 = map[2]\nr2 = r10\nr2 += -8\ncall 89\n{END}"
    ));
}

#[test]
fn helpers_and_types_that_do_not_go_together() {
    for (text, helper, map) in [
        (
            "*(u32 *)(r10 - 4) = 0\nr1 = map[0]\nr2 = r10\nr2 += -4\ncall 1",
            "map_lookup_elem",
            "jobs",
        ),
        (
            "r1 = map[2]\nr2 = r10\nr2 += -8\ncall 88",
            "map_pop_elem",
            "seen",
        ),
        (
            "r1 = map[6]\nr2 = r10\nr2 += -8\ncall 88",
            "map_pop_elem",
            "host",
        ),
        (
            "*(u32 *)(r10 - 4) = 0\nr1 = map[3]\nr2 = r10\nr2 += -4\ncall 1",
            "map_lookup_elem",
            "events",
        ),
        // The maps in a map are changed by the host.
        (
            "*(u64 *)(r10 - 8) = 0\nr1 = map[4]\nr2 = r10\nr2 += -4\nr3 = r10\nr3 += -8\nr4 = 0\ncall 2",
            "map_update_elem",
            "arrays",
        ),
    ] {
        let rejection = attempt(&format!("{text}\n{END}")).expect_err("refused");
        let told = rejection.rule.to_string();
        assert!(told.contains(helper) && told.contains(map), "{told}");
        assert_eq!(rejection.rule.name(), "wrong-map-type", "{told}");
    }
}

const FIND: &str = "*(u32 *)(r10 - 4) = 1\nr1 = map[4]\nr2 = r10\nr2 += -4\ncall 1\n";

#[test]
fn a_map_in_a_map_may_not_be_there() {
    refuse(
        &format!("{FIND}r1 = r0\nr2 = r10\nr2 += -4\ncall 1\n{END}"),
        "`r1` may be null here: it is a map in `arrays`, or null",
    );
    refuse(
        &format!("{FIND}if r0 == 0 goto out\nr1 = *(u64 *)(r0 + 0)\nout:\n{END}"),
        "read of 8 bytes at offset 0 of a map in `arrays`: a map itself has no bytes",
    );
}

#[test]
fn a_map_in_a_map_is_used_by_its_type() {
    let verified = accept(&format!(
        "{FIND}if r0 == 0 goto out
        r1 = r0\nr2 = r10\nr2 += -4\ncall 1
        r1 = *(u64 *)(r0 + 0)
        out:\n{END}"
    ));
    let calls = calls(&verified);
    assert_eq!(calls[0].map, Some(4));
    assert_eq!(calls[1].map, Some(4 | INNER));
    assert_eq!(calls[1].args[0], ArgFact::Map(4 | INNER));
    refuse(
        &format!(
            "{FIND}if r0 == 0 goto out\nr1 = r0\nr2 = r10\nr2 += -4\ncall 1\nr1 = *(u64 *)(r0 + 8)\nout:\n{END}"
        ),
        "read of 8 bytes at offset 8 of a value of map `arrays.inner`, which has 8 bytes",
    );
}

#[test]
fn rings_in_a_map_take_whole_records_only() {
    let find = FIND.replace("map[4]", "map[5]");
    accept(&format!(
        "{find}if r0 == 0 goto out
        r1 = r0\nr2 = r10\nr2 += -4\nr3 = 4\nr4 = 0\ncall 130
        out:\n{END}"
    ));
    accept(&format!(
        "{find}if r0 == 0 goto out\nr1 = r0\nr2 = 3\ncall 134\nout:\n{END}"
    ));
    refuse(
        &format!("{find}if r0 == 0 goto out\nr1 = r0\nr2 = 8\nr3 = 0\ncall 131\nout:\n{END}"),
        "map `rings.inner` of type ringbuf is in a map of maps: a record that is given back later would not tell its \
         ring; use `bpf_ringbuf_output`",
    );
}

#[test]
fn events_fit_into_the_smallest_ring() {
    let send = |size: u64| {
        format!("r6 = r1\nr2 = map[3]\nr3 = 0\nr4 = map[7][0] + 0\nr5 = {size}\ncall 25\n{END}")
    };
    let mut all = maps();
    all.push(MapDef {
        max_entries: 1,
        ..map("large", MapType::Array, 4, 10_000)
    });
    let platform = platform().with_budget(1 << 20);
    let attempt = |text: &str| verify(code(text), &all, &platform);
    assert!(attempt(&send(8184)).is_ok());
    assert!(attempt(&send(0)).is_ok());
    let refused = attempt(&send(8192)).expect_err("too large");
    assert_eq!(
        refused.rule.to_string(),
        "a record of 8192 bytes does not fit into map `events`: at most 8184"
    );
}

#[test]
fn types_of_linux_have_advice() {
    let mut all = maps();
    all[0].map_type = 7;
    let text = format!("r1 = map[0]\nr2 = r10\nr2 += -12\ncall 88\n{END}");
    let refused = verify(code(&text), &all, &platform()).expect_err("not served");
    assert_eq!(
        refused.rule.to_string(),
        "map `jobs` has Linux's type stack_trace (7), which is not served"
    );
    assert_eq!(
        refused.rule.help(),
        "a GPU thread has no stack that can be walked: send block, thread and `site` of the context through a ring \
         buffer"
    );
    let mut all = maps();
    all[4].inner = None;
    let refused = verify(code(&format!("{FIND}{END}")), &all, &platform()).expect_err("no inner");
    assert_eq!(
        refused.rule.to_string(),
        "map `arrays` of type array_of_maps must declare the maps that are in it: `__array(values, struct { … })`"
    );
}
