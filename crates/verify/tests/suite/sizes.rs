//! Helpers with a size: what a call counts for grows with it, and what would be without limit is
//! refused.

use crate::common::{self, attempt, code, platform};
use warpbpf_abi::maps::MapType;
use warpbpf_object::{MapDef, MapKind};
use warpbpf_verify::{Platform, verify};

fn map(map_type: MapType, key_size: u32, value_size: u32, max_entries: u32) -> MapDef {
    common::map(
        map_type.name(),
        map_type as u32,
        key_size,
        value_size,
        max_entries,
    )
}

/// 0 has a value of 16 MiB, 1 one of 64 KiB, 2 is a large ring, 3 a queue.
fn maps() -> Vec<MapDef> {
    vec![
        map(MapType::Array, 4, 1 << 24, 1),
        map(MapType::Array, 4, 1 << 16, 1),
        map(MapType::Ringbuf, 0, 0, 1 << 30),
        map(MapType::Queue, 0, 1024, 16),
    ]
}

/// What the program costs.
fn cost(text: &str) -> u64 {
    let text = format!("{text}r0 = 0\nexit");
    let platform = platform().with_budget(1 << 40);
    let verified = verify(code(&text), &maps(), &platform);
    let verified = verified.unwrap_or_else(|r| panic!("{}\n{text}", r.render()));
    verified.facts().cost
}

/// The calls of helpers with a size, as a program with `size` bytes.
fn calls(size: u64) -> Vec<(&'static str, String)> {
    let dynptr =
        format!("r1 = map[0][0] + 0\nr2 = {size}\nr3 = 0\nr4 = r10\nr4 += -16\ncall 197\n");
    vec![
        (
            "comm",
            format!("r1 = map[0][0] + 0\nr2 = {size}\ncall 16\n"),
        ),
        (
            "comm, misaligned",
            format!("r1 = map[0][0] + 1\nr2 = {size}\ncall 16\n"),
        ),
        (
            "probe_read",
            format!("r1 = map[0][0] + 0\nr2 = {size}\nr3 = 0\ncall 4\n"),
        ),
        (
            "own memory",
            format!("r1 = map[0][0] + 0\nr2 = {size}\nr3 = map[0][0] + 8\ncall 4\n"),
        ),
        (
            "probe_read_str",
            format!("r1 = map[0][0] + 0\nr2 = {size}\nr3 = 0\ncall 45\n"),
        ),
        (
            "string of own memory",
            format!("r1 = map[0][0] + 0\nr2 = {size}\nr3 = map[0][0] + 8\ncall 115\n"),
        ),
        (
            "gpu_read",
            format!("r1 = map[0][0] + 0\nr2 = {size}\nr3 = 0\nr4 = 0\ncall 520\n"),
        ),
        (
            "ringbuf_output",
            format!("r1 = map[2]\nr2 = map[0][0] + 0\nr3 = {size}\nr4 = 0\ncall 130\n"),
        ),
        (
            "dynptr_read",
            format!(
                "{dynptr}r1 = map[0][0] + 0\nr2 = {size}\nr3 = r10\nr3 += -16\nr4 = 0\nr5 = 0\ncall 201\n"
            ),
        ),
        (
            "dynptr_write",
            format!(
                "{dynptr}r1 = r10\nr1 += -16\nr2 = 0\nr3 = map[0][0] + 0\nr4 = {size}\nr5 = 0\ncall 202\n"
            ),
        ),
    ]
}

#[test]
fn each_byte_counts() {
    for ((name, small), (_, large)) in calls(4096).into_iter().zip(calls(1 << 16)) {
        let (small, large) = (cost(&small), cost(&large));
        // At least an instruction for each 8 bytes, and in proportion.
        assert!(small >= 4096 / 8, "{name}: {small}");
        assert!(
            large >= 13 * small && large <= 17 * small,
            "{name}: {small} for 4 KiB, {large} for 64 KiB"
        );
    }
    // A few bytes cost what they did.
    assert_eq!(cost("r1 = r10\nr1 += -16\nr2 = 16\ncall 16\n"), 3 + 40 + 2);
}

#[test]
fn a_large_size_breaks_the_budget() {
    let judged = |text: &str| {
        let text = format!("{text}r0 = 0\nexit");
        let default = Platform::new(warpbpf_abi::attach::Site::Entry);
        match verify(code(&text), &maps(), &default) {
            Ok(_) => panic!("accepted:\n{text}"),
            Err(r) => assert_eq!(r.rule.name(), "budget", "{}", r.render()),
        }
    };
    for (_, text) in calls((1 << 24) - 8) {
        // The largest record is smaller.
        if !text.contains("call 130") {
            judged(&text);
        }
    }
    judged(&"r1 = map[1][0] + 0\nr2 = 65536\ncall 16\n".repeat(80));
}

#[test]
fn a_cost_beyond_all_numbers_fits_no_budget() {
    let count = 8_388_608;
    // Loops in loops: more instructions than a number of 64 bits can count.
    let call = |name: &str| {
        format!("r1 = {count}\nr2 = subprog[{name}]\nr3 = 0\nr4 = 0\ncall 181\nr0 = 0\nexit\n")
    };
    let text = format!(
        "{}a:\n{}b:\n{}c:\n{}d:\nr0 = 0\nexit",
        call("a"),
        call("b"),
        call("c"),
        call("d")
    );
    let refused = attempt(&text, &platform().with_budget(u64::MAX)).expect_err("no budget");
    assert_eq!(refused.rule.name(), "budget", "{}", refused.render());
    // One such loop less is a large number that fits.
    let text = format!("{}a:\n{}b:\nr0 = 0\nexit", call("a"), call("b"));
    assert!(attempt(&text, &platform().with_budget(u64::MAX)).is_ok());
}

#[test]
fn what_a_function_of_the_device_is_given_has_a_limit() {
    let text = "r1 = map[3]\nr2 = map[0][0] + 0\nr3 = 0\ncall 87\nr0 = 0\nexit";
    let refused = verify(code(text), &maps(), &platform()).expect_err("too large");
    assert_eq!(
        refused.rule.to_string(),
        "`bpf_map_push_elem` passes 1024 bytes of key and value of map `queue` to a function of the device, which takes 1008 at most"
    );
    let mut small = maps();
    small[3].value_size = 1008;
    assert!(verify(code(text), &small, &platform()).is_ok());
}

#[test]
fn constant_strings_have_a_limit() {
    let judged = |length: usize| {
        let mut image = vec![b'x'; length];
        image.push(0);
        let rodata = MapDef {
            kind: MapKind::Data {
                section: ".rodata".into(),
                image,
                read_only: true,
            },
            ..map(MapType::Array, 4, length as u32 + 1, 1)
        };
        let text = "r1 = map[0][0] + 0\ncall 501\nr0 = 0\nexit";
        verify(code(text), &[rodata], &platform()).map(|_| ())
    };
    assert!(judged(4095).is_ok());
    assert_eq!(
        judged(4096).expect_err("too long").rule.to_string(),
        "the constant string of `bpf_gpu_puts` has 4096 bytes; at most 4095"
    );
}

/// What the code generator must know is one number on all paths, or the program is refused with the
/// two.
#[test]
fn a_size_that_the_code_needs_is_the_same_on_all_paths() {
    let either = |first: &str, second: &str, call: &str| {
        let text = format!(
            "r6 = *(u32 *)(r1 + 0)\n*(u64 *)(r10 - 8) = 1\n*(u64 *)(r10 - 16) = 1\nr7 = {first}\nif r6 == 0 goto on\nr7 = {second}\non:\n{call}\nr0 = 0\nexit"
        );
        match verify(code(&text), &maps(), &platform()) {
            Ok(_) => "accepted".to_owned(),
            Err(r) => r.rule.to_string(),
        }
    };
    let mixed = |first: &str, second: &str| {
        format!("this instruction works on {first} on one path and on {second} on another")
    };
    assert_eq!(
        either("16", "8", "r1 = r10\nr1 += -16\nr2 = r7\ncall 16"),
        mixed("a size of 8", "a size of 16")
    );
    // A record may have another size: it is passed as it is.
    assert_eq!(
        either(
            "16",
            "64",
            "r1 = map[2]\nr2 = r7\nr3 = 0\ncall 131\nif r0 == 0 goto +3\nr1 = r0\nr2 = 0\ncall 132"
        ),
        "accepted"
    );
    // The context is nowhere in memory.
    let text =
        "r2 = *(u32 *)(r1 + 0)\nif r2 == 0 goto on\nr1 += 4\non:\nr0 = *(u32 *)(r1 + 0)\nexit";
    let refused = attempt(text, &platform()).expect_err("two fields");
    assert_eq!(
        refused.rule.to_string(),
        mixed("offset 4 of the context", "offset 0 of the context")
    );
}
