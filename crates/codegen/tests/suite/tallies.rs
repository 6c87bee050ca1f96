//! Sums that programs keep in registers, and those that they cannot keep.

use crate::common::{Case, array};
use warpbpf_abi::attach::Site;
use warpbpf_abi::layout::{ArrayLayout, MapLayout};
use warpbpf_codegen::{Fragment, SlotSpace, Tally, Target, compile};
use warpbpf_softgpu::{Config, Gpu, Launch, Outcome};

/// A program that counts in an array of 4 values of 72 bytes with 3 copies, which the host sums if
/// `summed`.
fn compiled(asm: &str, summed: bool) -> Fragment {
    let (def, _) = array(72, 4);
    let layout = MapLayout::Array(ArrayLayout {
        max_entries: 4,
        value_size: 72,
        shards: 3,
        summed,
    });
    let mut case = Case::new(asm, vec![(def, layout)]);
    case.env.keep_sums = true;
    compile(&case.program, &case.env).unwrap()
}

/// Does `add` to the value whose key `key` puts into `r2`.
fn adding(key: &str, add: &str) -> String {
    format!(
        "{key}
        *(u32 *)(r10 - 4) = r2
        r2 = r10
        r2 += -4
        r1 = map[0]
        call 1
        if r0 == 0 goto out
        {add}
        out:
        r0 = 0
        exit"
    )
}

fn tally(at: u64, bits: u32) -> Tally {
    Tally {
        slot: 1,
        shards: 3,
        stride: 384,
        at,
        bits,
    }
}

#[test]
fn a_sum_at_a_known_place_is_kept() {
    let add = "r1 = *(u64 *)(r0 + 8)
        r1 += 5
        *(u64 *)(r0 + 8) = r1
        r1 = 7
        lock *(u32 *)(r0 + 68) += r1";
    let fragment = compiled(&adding("r2 = 2", add), true);
    assert_eq!(
        fragment.body,
        "{\n\tadd.u64 %wbpf_sum_1_152_64, %wbpf_sum_1_152_64, 5;\n\tadd.u32 %wbpf_sum_1_212_32, %wbpf_sum_1_212_32, 7;\n}\n"
    );
    let kept: Vec<Tally> = fragment.tallies.iter().copied().collect();
    assert_eq!(kept, [tally(152, 64), tally(212, 32)]);
    assert_eq!(fragment.slots.iter().copied().collect::<Vec<_>>(), [1]);
}

#[test]
fn others_are_atomics() {
    let once = "r1 = 5\n lock *(u64 *)(r0 + 8) += r1";
    for (why, asm, summed) in [
        (
            "a key that varies",
            adding("r2 = *(u32 *)(r1 + 12)", once),
            true,
        ),
        ("an array without copies", adding("r2 = 2", once), false),
        (
            "a sum that is read",
            adding(
                "r2 = 2",
                "r1 = 5\n r1 = atomic_fetch_add((u64 *)(r0 + 8), r1)\n *(u64 *)(r0 + 16) = r1",
            ),
            true,
        ),
        (
            "a program that ends threads",
            adding("r2 = 2", "r1 = 5\n lock *(u64 *)(r0 + 8) += r1\n call 507"),
            true,
        ),
        (
            "no addition",
            adding("r2 = 2", "r1 = 5\n lock *(u64 *)(r0 + 8) |= r1"),
            true,
        ),
    ] {
        let fragment = compiled(&asm, summed);
        assert!(fragment.tallies.is_empty(), "{why}");
        let atomics = ["red.", "atom."].map(|op| fragment.body.matches(op).count());
        assert_eq!(atomics.iter().sum::<usize>(), 1, "{why}: {}", fragment.body);
    }
}

#[test]
fn a_program_keeps_eight() {
    let adds: Vec<String> = (0..9)
        .map(|i| format!("r1 = {}\n lock *(u64 *)(r0 + {}) += r1", i + 1, i * 8))
        .collect();
    let fragment = compiled(&adding("r2 = 0", &adds.join("\n")), true);
    assert_eq!(fragment.tallies.len(), 8);
    assert_eq!(fragment.body.matches("add.u64 %wbpf_sum_1_").count(), 8);
    assert_eq!(
        fragment
            .body
            .matches("red.relaxed.gpu.global.add.u64")
            .count(),
        1
    );
    // Once more at a place that is kept needs no further register.
    let again = format!(
        "{}\nr1 = 1\n lock *(u64 *)(r0 + 0) += r1",
        adds[..8].join("\n")
    );
    let fragment = compiled(&adding("r2 = 0", &again), true);
    assert_eq!(
        (
            fragment.tallies.len(),
            fragment.body.matches("red.").count()
        ),
        (8, 0)
    );
}

#[test]
fn lanes_that_are_together_add_once_where_ptxas_cannot_see_it() {
    let add = "r1 = *(u64 *)(r0 + 8)
        r1 += 5
        *(u64 *)(r0 + 8) = r1";
    let compiled = |key: &str, slots: SlotSpace| {
        let (def, _) = array(72, 4);
        let layout = MapLayout::Array(ArrayLayout {
            max_entries: 4,
            value_size: 72,
            shards: 1,
            summed: false,
        });
        let mut case = Case::new(&adding(key, add), vec![(def, layout)]);
        case.env.slots = slots;
        compile(&case.program, &case.env).unwrap().body
    };
    let count = |text: &str, what: &str| text.matches(what).count();
    let table = SlotSpace::Table { kernel: 9 };
    let alike = compiled("r2 = 2", table);
    assert_eq!(
        (
            count(&alike, "activemask"),
            count(&alike, "popc"),
            count(&alike, "red.")
        ),
        (1, 1, 1),
        "{alike}"
    );
    assert_eq!(count(&alike, "@%"), 1, "only the lowest lane adds: {alike}");
    // Addresses that ptxas knows, and ones that are each lane's own.
    for (key, slots) in [
        ("r2 = 2", SlotSpace::Const),
        ("call 7\nr2 = r0\nr2 &= 3", table),
    ] {
        let text = compiled(key, slots);
        assert_eq!(count(&text, "activemask"), 0, "{text}");
    }
}

/// What is of an instruction is mostly the same in all lanes, and each sum is right where it is
/// not.
#[test]
fn lanes_with_the_same_number_of_bytes_add_once() {
    let bytes = "r2 = 1
        r6 = *(u32 *)(r1 + 256)";
    let add = "lock *(u64 *)(r0 + 8) += r6
        lock *(u32 *)(r0 + 16) += r6";
    let compiled_where = |key: &str, meets: bool| {
        let asm = adding(key, add);
        let mut case = Case::at(Site::Mem, &asm, vec![array(24, 4)]);
        case.env.slots = SlotSpace::Table { kernel: 9 };
        case.env.meets = meets;
        let target = Target {
            ptx: (8, 0),
            sm: 90,
        };
        case.env.target = target;
        compile(&case.program, &case.env).unwrap()
    };
    let compiled = |key: &str| compiled_where(key, true);
    let fragment = compiled(bytes);
    assert_eq!(fragment.body.matches("match.any.sync").count(), 2);
    // Where lanes may not wait for each other, each adds its own.
    let apart = compiled_where(bytes, false);
    assert_eq!(apart.body.matches("match.any.sync").count(), 0);
    assert_eq!(apart.body.matches("red.").count(), 2);
    // An address is each lane's own: to ask who has the same would cost more than it saves.
    let address = compiled("r2 = 1\nr6 = *(u64 *)(r1 + 248)");
    assert_eq!(address.body.matches("match.any.sync").count(), 0);

    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .b64 table)\n{{\n\t.reg .b64 %wbpf_table;\n\t.reg .b32 %wbpf_v_bytes, %s;\n\tld.param.b64 %wbpf_table, [table];\n\tmov.u32 %wbpf_v_bytes, %tid.x;\n\tmov.u32 %s, %ctaid.x;\n\tshr.u32 %wbpf_v_bytes, %wbpf_v_bytes, %s;\n{}\tret;\n}}\n",
        fragment.body
    );
    let gpu = Gpu::new(Config::default());
    let module = gpu.load(&text).unwrap();
    let [table, values] = [128, 96].map(|bytes| gpu.alloc(bytes).unwrap());
    gpu.fill(values, 0, 96).unwrap();
    for slot in 0..16 {
        gpu.write(table + slot * 8, &values.to_le_bytes()).unwrap();
    }
    // In each block twice as many lanes have the same number.
    let outcome = gpu.launch(Launch {
        kernel: &module.kernel("k").unwrap(),
        grid: [7, 1, 1],
        block: [80, 1, 1],
        cluster: [1; 3],
        dynamic_shared: 0,
        params: &table.to_le_bytes(),
        grid_id: 1,
        stdout: None,
    });
    assert!(matches!(outcome, Ok(Outcome::Done { .. })), "{outcome:?}");
    let mut read = [0; 96];
    gpu.read(values, &mut read).unwrap();
    let sum: u64 = (0..7u32)
        .flat_map(|shift| (0..80u64).map(move |thread| thread >> shift))
        .sum();
    let mut expected = [0; 96];
    expected[32..40].copy_from_slice(&sum.to_le_bytes());
    expected[40..44].copy_from_slice(&(sum as u32).to_le_bytes());
    assert_eq!(read, expected);
}
