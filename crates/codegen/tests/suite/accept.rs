//! ptxas accepts what we emit, for every target.

use crate::common::{self, Case, array, hash, per_thread, ring, rodata, sharded};
use warpbpf_abi::attach::Scope;
use warpbpf_abi::layout::{HostedLayout, MapLayout};
use warpbpf_abi::maps::{MapType, PLACE, Placement};
use warpbpf_codegen::SlotSpace;

/// `(*v)++` behind a lookup with a constant key.
const COUNTER: &str = "
    *(u32 *)(r10 - 4) = 0
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 == 0 goto out
    r1 = *(u64 *)(r0 + 0)
    r1 += 1
    *(u64 *)(r0 + 0) = r1
out:
    r0 = 0
    exit";

const RESERVE: &str = "
    r6 = r1
    r1 = map[0]
    r2 = 24
    r3 = 0
    call 131
    if r0 == 0 goto out
    r1 = *(u32 *)(r6 + 24)
    *(u64 *)(r0 + 0) = r1
    *(u64 *)(r0 + 8) = 7
    *(u64 *)(r0 + 16) = 8
    r1 = r0
    r2 = 0
    call 132
out:
    r0 = 0
    exit";

#[test]
fn counters() {
    Case::new(COUNTER, vec![array(8, 1)]).assembles();
    Case::new(COUNTER, vec![sharded(8, 1, 132)]).assembles();
    Case::new(COUNTER, vec![per_thread(8, 1, 1 << 20)]).assembles();
    Case::new(COUNTER, vec![array(8, 1)])
        .scope(Scope::Block)
        .assembles();
    let mut global = Case::new(COUNTER, vec![array(8, 1)]);
    global.env.slots = SlotSpace::Global;
    global.assembles();
}

#[test]
fn hashes() {
    let asm = "
    r6 = *(u32 *)(r1 + 24)
    *(u64 *)(r10 - 8) = r6
    *(u64 *)(r10 - 16) = 1
    r1 = map[0]
    r2 = r10
    r2 += -8
    r3 = r10
    r3 += -16
    r4 = 1
    call 2
    r1 = map[0]
    r2 = r10
    r2 += -8
    call 1
    if r0 == 0 goto out
    r1 = 1
    lock *(u64 *)(r0 + 0) += r1
    r1 = map[0]
    r2 = r10
    r2 += -8
    call 3
out:
    r0 = 0
    exit";
    Case::new(asm, vec![hash(8, 8, 1024)]).assembles();
    let (mut asked, _) = hash(8, 8, 1024);
    asked
        .extra
        .insert(PLACE.to_owned(), Placement::Host.number());
    let layout = MapLayout::Hosted(HostedLayout {
        max_entries: 1024,
        key_size: 8,
        value_size: 8,
    });
    Case::new(asm, vec![(asked, layout)]).assembles();
}

#[test]
fn rings() {
    Case::new(RESERVE, vec![ring(1 << 16, 132)]).assembles();
    Case::new(RESERVE, vec![ring(1 << 16, 132)])
        .scope(Scope::Warp)
        .assembles();
    let output = "
    r6 = *(u32 *)(r1 + 24)
    *(u64 *)(r10 - 8) = r6
    *(u64 *)(r10 - 16) = 2
    r1 = map[0]
    r2 = r10
    r2 += -16
    r3 = 12
    r4 = 0
    call 130
    r7 = r0
    r6 &= 7
    r6 += 1
    r1 = map[0]
    r2 = r10
    r2 += -16
    r3 = r6
    r4 = 0
    call 130
    r0 = 0
    exit";
    Case::new(output, vec![ring(1 << 16, 132)]).assembles();
}

#[test]
fn printk_and_puts() {
    let asm = "
    r3 = *(u32 *)(r1 + 24)
    r1 = map[0][0] + 0
    r2 = 6
    call 6
    r1 = map[0][0] + 6
    call 501
    r0 = 0
    exit";
    Case::new(asm, vec![rodata(b"a %d\n\0bc\0")]).assembles();
}

#[test]
fn machine_helpers() {
    let mut asm = String::from("r7 = 0\n");
    for id in [5, 8, 14, 502, 506, 509, 510, 511] {
        asm.push_str(&format!("call {id}\nr7 ^= r0\n"));
    }
    for id in [503, 504, 505, 508] {
        asm.push_str(&format!(
            "r1 = r10\nr1 += -8\nr2 = r10\nr2 += -16\nr3 = r10\nr3 += -24\ncall {id}\nr0 = *(u64 *)(r10 - 16)\nr7 ^= r0\n"
        ));
    }
    asm.push_str("r1 = map[0][0] + 0\n*(u64 *)(r1 + 0) = r7\nr0 = 0\nif r7 == 0 goto out\ncall 507\nout:\nexit");
    Case::new(&asm, vec![array(8, 1)]).assembles();
}

#[test]
fn context_fields() {
    let mut asm = String::from("r7 = 0\n");
    for offset in (0..64).step_by(4) {
        asm.push_str(&format!("r0 = *(u32 *)(r1 + {offset})\nr7 += r0\n"));
    }
    asm.push_str("r0 = *(u64 *)(r1 + 64)\nr7 += r0\nr0 = *(u64 *)(r1 + 72)\nr7 += r0\n");
    asm.push_str("r1 = map[0][0] + 0\n*(u64 *)(r1 + 0) = r7\nr0 = 0\nexit");
    Case::new(&asm, vec![array(8, 1)]).assembles();
}

#[test]
fn updates_and_deletes_of_arrays() {
    let asm = "
    r6 = *(u32 *)(r1 + 24)
    *(u32 *)(r10 - 4) = r6
    *(u64 *)(r10 - 16) = r6
    r1 = map[0]
    r2 = r10
    r2 += -4
    r3 = r10
    r3 += -16
    r4 = r6
    call 2
    r1 = map[0]
    r2 = r10
    r2 += -4
    call 3
    r0 = 0
    exit";
    Case::new(asm, vec![array(8, 16)]).assembles();
    let mut percpu = sharded(8, 16, 132);
    percpu.0.map_type = MapType::PercpuArray as u32;
    Case::new(asm, vec![percpu]).assembles();
    Case::new(asm, vec![per_thread(8, 16, 4096)]).assembles();
}

/// Every read-modify-write and ordered access, with constants and with registers.
#[test]
fn atomics_on_map_values() {
    let mut asm = String::from("r6 = *(u32 *)(r1 + 24)\nr9 = map[0][0] + 0\n");
    for setup in ["r1 = 5\nr0 = 0", "r1 = r6\nr0 = r6"] {
        for op in [
            "lock *(u64 *)(r9 + 0) += r1",
            "lock *(u32 *)(r9 + 0) |= r1",
            "lock *(u64 *)(r9 + 8) &= r1",
            "lock *(u32 *)(r9 + 8) ^= r1",
            "r1 = atomic_fetch_add((u64 *)(r9 + 0), r1)",
            "w1 = atomic_fetch_add((u32 *)(r9 + 0), w1)",
            "r1 = atomic_fetch_or((u64 *)(r9 + 0), r1)",
            "w1 = atomic_fetch_and((u32 *)(r9 + 0), w1)",
            "r1 = atomic_fetch_xor((u64 *)(r9 + 0), r1)",
            "r1 = xchg_64(r9 + 0, r1)",
            "w1 = xchg32_32(r9 + 0, w1)",
            "r0 = cmpxchg_64(r9 + 0, r0, r1)",
            "w0 = cmpxchg32_32(r9 + 0, w0, w1)",
            "r1 = load_acquire((u64 *)(r9 + 8))",
            "store_release((u64 *)(r9 + 8), r1)",
        ] {
            asm.push_str(&format!(
                "{setup}\n{op}\n*(u64 *)(r9 + 16) = r0\n*(u64 *)(r9 + 24) = r1\n"
            ));
        }
    }
    asm.push_str("r0 = 0\nexit");
    Case::new(&asm, vec![array(32, 1)]).assembles();
}

/// An empty program costs nothing, a per-thread counter little: registers as ptxas reports them.
#[test]
fn registers() {
    let used = |case: &Case| {
        let log = common::ptxas(&case.module("sm_90", (8, 0)), "sm_90", &["-v"]);
        let at = log.find("Used ").expect("a report") + 5;
        log[at..]
            .split(' ')
            .next()
            .and_then(|n| n.parse::<u32>().ok())
            .expect("a number")
    };
    let empty = used(&Case::new("r0 = 0\nexit", vec![]));
    assert_eq!(empty, 4);
    let counter = used(&Case::new(COUNTER, vec![sharded(8, 1, 132)]));
    assert!(counter <= 12, "{counter} registers for a sharded counter");
    let per_thread = used(&Case::new(COUNTER, vec![per_thread(8, 1, 1 << 20)]));
    assert!(
        per_thread <= 16,
        "{per_thread} registers for a per-thread counter"
    );
}
