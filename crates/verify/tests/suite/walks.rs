//! Loops whose number of rounds a map decides: where lanes of a group may walk differently far, the
//! rounds, the result and what the callback left behind differ between them, and helpers that need
//! the group are refused there.

use crate::common::{self, code, platform};
use warpbpf_abi::helpers::{HelperId, takes};
use warpbpf_abi::maps::{MAP_TYPES, MapType};
use warpbpf_ebpf::Pc;
use warpbpf_object::MapDef;
use warpbpf_verify::{Rejection, Verified, verify};

fn map(map_type: MapType, key_size: u32, value_size: u32, max_entries: u32) -> MapDef {
    common::map("m", map_type as u32, key_size, value_size, max_entries)
}

fn attempt(text: &str, maps: &[MapDef]) -> Result<Verified<warpbpf_ebpf::Code>, Box<Rejection>> {
    verify(code(text), maps, &platform().with_budget(1 << 20))
}

/// Calls helper `call` with a callback that adds 1 to the caller's stack; `behind` follows, with
/// the result in `r6` and the sum in `r7`; `inside` is what the callback does first.
fn walk(call: u32, behind: &str, inside: &str) -> String {
    format!(
        "*(u64 *)(r10 - 8) = 0\nr1 = map[0]\nr2 = subprog[f]\nr3 = r10\nr3 += -8\nr4 = 0\ncall {call}\nr6 = r0\nr7 = *(u64 *)(r10 - 8)\n{behind}r0 = 0\nexit\nf:\nr6 = r{}\n{inside}r7 = *(u64 *)(r6 + 0)\nr7 += 1\n*(u64 *)(r6 + 0) = r7\nr0 = 0\nexit",
        if call == 164 { 4 } else { 2 },
    )
}

/// Whether the result, the sum and the rounds are the same in all lanes.
fn alike(map_type: MapType, call: u32) -> (bool, bool, bool) {
    let (key, entries) = match map_type {
        MapType::UserRingbuf => (0, 4096),
        _ => (4, 16),
    };
    let value = if key == 0 { 0 } else { 8 };
    let maps = [map(map_type, key, value, entries)];
    let verified = attempt(&walk(call, "", ""), &maps)
        .unwrap_or_else(|r| panic!("{}: {}", map_type.name(), r.render()));
    let at = |instance, pc| verified.warp().at(instance, Pc(pc));
    assert!(at(0, 6).branch, "{}", map_type.name());
    (
        at(0, 7).uniform,
        at(0, 8).uniform,
        at(0, 6).uniform && at(1, 11).together,
    )
}

#[test]
fn walks_over_maps_vary_but_for_arrays() {
    let mut fixed = Vec::new();
    let walkable = MAP_TYPES
        .iter()
        .map(|(map_type, _)| *map_type)
        .filter(|map_type| takes(HelperId::ForEachMapElem, *map_type));
    for map_type in walkable {
        match alike(map_type, 164) {
            (true, true, true) => fixed.push(map_type.name()),
            other => assert_eq!(other, (false, false, false), "{}", map_type.name()),
        }
    }
    assert_eq!(
        fixed,
        [
            "array",
            "percpu_array",
            "gpu_array",
            "gpu_kernel_array",
            "gpu_host_array"
        ]
    );
    assert_eq!(alike(MapType::UserRingbuf, 209), (false, false, false));
}

#[test]
fn group_helpers_are_refused_behind_and_in_a_walk_over_a_hash() {
    let sum = "r1 = 1\ncall 528\n";
    let verdict = |map_type, behind: &str, inside: &str| match attempt(
        &walk(164, behind, inside),
        &[map(map_type, 4, 8, 16)],
    ) {
        Ok(_) => "accepted".to_owned(),
        Err(r) => format!("{} {}", r.rule.name(), r.slot),
    };
    let by_count = format!("r6 &= 16\nif r6 == 0 goto +2\n{sum}");
    let by_sum = format!("r7 &= 16\nif r7 == 0 goto +2\n{sum}");
    for map_type in [
        MapType::Hash,
        MapType::GpuHash,
        MapType::PercpuHash,
        MapType::LruHash,
        MapType::LruPercpuHash,
        MapType::PerThreadArray,
    ] {
        let name = map_type.name();
        assert_eq!(
            verdict(map_type, &by_count, ""),
            "not-together 14",
            "{name}"
        );
        assert_eq!(verdict(map_type, &by_sum, ""), "not-together 14", "{name}");
        assert_eq!(verdict(map_type, "", sum), "not-together 15", "{name}");
        // All lanes have come back from the walk.
        assert_eq!(verdict(map_type, sum, ""), "accepted", "{name}");
    }
    for (behind, inside) in [(&*by_count, ""), (&*by_sum, ""), ("", sum)] {
        assert_eq!(verdict(MapType::Array, behind, inside), "accepted");
    }
}

#[test]
fn loops_with_a_count_that_comes_from_a_hash_vary() {
    let refused = |behind: &str| {
        let text = walk(164, behind, "");
        match attempt(&text, &[map(MapType::Hash, 4, 8, 16)]) {
            Ok(_) => panic!("accepted:\n{text}"),
            Err(r) => assert_eq!(r.rule.name(), "not-together", "{}", r.render()),
        }
    };
    // `bpf_loop`, an iterator over numbers, `may_goto` and a plain loop, as many times as there
    // were elements.
    refused(
        "r6 &= 7\nr1 = r6\nr2 = subprog[g]\nr3 = 0\nr4 = 0\ncall 181\nr0 = 0\nexit\ng:\nr1 = 1\ncall 528\nr0 = 0\nexit\n",
    );
    refused(
        "r6 &= 7\nr1 = r10\nr1 += -16\nr2 = 0\nr3 = r6\ncall kfunc[1]\nnext:\nr1 = r10\nr1 += -16\ncall kfunc[2]\nif r0 == 0 goto out\nr1 = 1\ncall 528\ngoto next\nout:\nr1 = r10\nr1 += -16\ncall kfunc[3]\n",
    );
    refused(
        "r6 &= 7\nr8 = 0\nnext:\nmay_goto out\nif r8 >= r6 goto out\nr8 += 1\nr1 = 1\ncall 528\ngoto next\nout:\n",
    );
    refused("r6 &= 7\nr8 = 0\nnext:\nr8 += 1\nr1 = 1\ncall 528\nif r8 < r6 goto next\n");
}

#[test]
fn what_a_map_in_a_map_answers_varies_with_the_map() {
    let outer = MapDef {
        inner: Some(Box::new(map(MapType::Array, 4, 8, 16))),
        ..map(MapType::ArrayOfMaps, 4, 4, 4)
    };
    // The key is the same in all lanes; the maps may have different numbers of entries, or none of
    // them the key.
    let text = "r6 = *(u32 *)(r1 + 48)\n*(u32 *)(r10 - 4) = r6\n*(u32 *)(r10 - 8) = 1\nr1 = map[0]\nr2 = r10\nr2 += -4\ncall 1\nif r0 == 0 goto out\nr1 = r0\nr2 = r10\nr2 += -8\nr3 = r10\nr3 += -16\n*(u64 *)(r10 - 16) = 1\nr4 = 0\ncall 2\nr6 = r0\nout:\nr0 = 0\nexit";
    let verified = attempt(text, &[outer]).unwrap_or_else(|r| panic!("{}", r.render()));
    assert!(!verified.warp().at(0, Pc(16)).uniform);
}
