//! The warp half from outside: what is uniform, which lanes are together, what that refuses, and
//! the warnings.

use std::collections::BTreeMap;

use crate::common::{accept, attempt, code, lookup, maps, platform};
use warpbpf_abi::attach::Scope;
use warpbpf_abi::helpers::{Arg, HELPERS, Helper, HelperId, MAP_OPS, Warp, map_op, of, takes};
use warpbpf_abi::maps::MapType;
use warpbpf_ebpf::Pc;
use warpbpf_verify::{Platform, WarpFact, helpers_used, verify};

/// The letters of a program's instructions: what it defines, or where it branches, is `u`niform or
/// `v`arying; upper case where not all lanes of the group come together.
fn letters(text: &str, scope: Scope) -> String {
    let verified = match verify(code(text), &maps(), &platform().with_scope(scope)) {
        Ok(verified) => verified,
        Err(rejection) => panic!("refused:\n{}\n{text}", rejection.render()),
    };
    let letter = |fact: WarpFact| match (fact.reached, fact.uniform, fact.together) {
        (false, ..) => '-',
        (true, true, true) => 'u',
        (true, false, true) => 'v',
        (true, true, false) => 'U',
        (true, false, false) => 'V',
    };
    let instances = verified.facts().instances.iter().enumerate();
    let words = instances.map(|(i, instance)| {
        let pcs = (instance.start.0..instance.end.0).map(Pc);
        pcs.map(|pc| letter(verified.warp().at(i, pc)))
            .collect::<String>()
    });
    words.collect::<Vec<_>>().join(" ")
}

fn of_thread(text: &str) -> String {
    letters(text, Scope::Thread)
}

#[test]
fn context_fields_by_their_source() {
    let fields: String = warpbpf_abi::context::KERNEL
        .fields
        .iter()
        .map(|field| {
            let size = field.size * 8;
            let text = format!("r0 = *(u{size} *)(r1 + {})\nr0 = 0\nexit", field.offset);
            of_thread(&text).remove(0)
        })
        .collect();
    // block_idx, block_dim, thread_idx, grid_dim: three each; lane, warp, sm, active_mask,
    // kernel_id, grid_id; dynamic_shared, cluster_rank, cluster_dim, arg_count; args; launch_id.
    assert_eq!(
        fields,
        format!("{}{}", "uuuuuuvvvuuuvuvuuu", "u".repeat(23))
    );
}

#[test]
fn data_flows_through_registers_stack_and_calls() {
    // The lane through the stack; four bytes next to it stay alike.
    assert_eq!(
        of_thread(
            "r2 = *(u32 *)(r1 + 48)\n*(u32 *)(r10 - 8) = r2\n*(u32 *)(r10 - 4) = 7\nr3 = *(u32 *)(r10 - 8)\nr4 = *(u32 *)(r10 - 4)\nr5 = *(u64 *)(r10 - 8)\nr2 = 1\nr3 ^= r3\nr0 = r5\nexit"
        ),
        "vuuvuvuuvu"
    );
    // One byte of four written over does not make the rest alike.
    assert_eq!(
        of_thread(
            "r2 = *(u32 *)(r1 + 48)\n*(u32 *)(r10 - 4) = r2\n*(u8 *)(r10 - 4) = 7\nr0 = *(u8 *)(r10 - 4)\n*(u32 *)(r10 - 4) = 7\nr0 = *(u32 *)(r10 - 4)\nexit"
        ),
        "vuuvuuu"
    );
    // Each call has its own answer.
    assert_eq!(
        of_thread(
            "r6 = *(u32 *)(r1 + 48)\nr1 = 5\ncall f\nr7 = r0\nr1 = r6\ncall f\nexit\nf:\nr0 = r1\nr0 += 1\nexit"
        ),
        "vuuuvvu uuu vvu"
    );
}

#[test]
fn lanes_part_at_a_varying_branch_and_meet_again() {
    assert_eq!(
        of_thread(
            "r2 = *(u32 *)(r1 + 48)\nr3 = 1\nr4 = 1\nif r2 > 3 goto other\nr3 = 2\ngoto out\nother:\nr3 = 3\nout:\nr5 = r3\nr5 = r4\nr0 = 0\nexit"
        ),
        "vuuvUUUvuuu"
    );
    // A uniform branch parts nobody.
    assert_eq!(
        of_thread(
            "r2 = *(u32 *)(r1 + 0)\nr3 = 1\nif r2 > 3 goto out\nr3 = 2\nout:\nr5 = r3\nr0 = 0\nexit"
        ),
        "uuuuuuu"
    );
    // An early exit: the rest is not reached together, but what is computed there is alike.
    assert_eq!(
        of_thread(
            "r2 = *(u32 *)(r1 + 48)\nr0 = 0\nif r2 > 3 goto +4\nr3 = 0\nr3 += 1\nif r3 < 4 goto -2\nr0 = r3\nexit"
        ),
        "vuvUUUUu"
    );
}

#[test]
fn what_a_loop_leaves_behind_varies_if_its_lanes_leave_at_different_times() {
    // The counter is alike in a round, but not behind the loop.
    let until = |limit: &str| {
        of_thread(&format!(
            "r2 = *(u32 *)(r1 + {limit})\nr2 &= 7\nr3 = 0\nagain:\nr3 += 1\nif r3 < r2 goto again\nr0 = r3\nexit"
        ))
    };
    assert_eq!(until("48"), "vvuUVvu");
    assert_eq!(until("0"), "uuuuuuu");
}

#[test]
fn memory_of_others_varies_constants_do_not() {
    let value = |map: u32| {
        let text = format!("{}r0 = *(u64 *)(r0 + 0)\nexit", lookup(map));
        let letters = of_thread(&text);
        (letters.as_bytes()[4] as char, letters.as_bytes()[8] as char)
    };
    // The place in an array is the same for all lanes, what is in it not; a hash can change between
    // two lookups.
    assert_eq!(value(0), ('u', 'v'));
    assert_eq!(value(6), ('v', 'V'));
    assert_eq!(
        of_thread("r1 = map[3][0] + 32\nr0 = *(u32 *)(r1 + 0)\nexit"),
        "uuu"
    );
    // With a varying key the place varies.
    assert_eq!(
        of_thread(
            "r2 = *(u32 *)(r1 + 48)\n*(u32 *)(r10 - 4) = r2\nr2 = r10\nr2 += -4\nr1 = map[0]\ncall 1\nr0 = 0\nexit"
        ),
        "vuuuuvuu"
    );
}

#[test]
fn helpers_by_their_column() {
    let result = |id: u32| of_thread(&format!("call {id}\nr0 = 0\nexit")).remove(0);
    let letters: String = [5, 8, 14, 502, 506, 509, 510, 511]
        .map(result)
        .iter()
        .collect();
    assert_eq!(letters, "vvuvuvvv");
    let written = |id: u32| {
        of_thread(&format!(
            "r1 = r10\nr1 += -8\nr2 = r10\nr2 += -16\nr3 = r10\nr3 += -24\ncall {id}\nr0 = *(u64 *)(r10 - 16)\nexit"
        ))
        .remove(7)
    };
    let letters: String = [503, 504, 505, 508].map(written).iter().collect();
    assert_eq!(letters, "uuvu");
}

#[test]
fn one_lane_alone_is_always_together() {
    let text = "r2 = *(u32 *)(r1 + 48)\nif r2 > 3 goto out\ncall 511\nout:\nr0 = 0\nexit";
    assert_eq!(letters(text, Scope::Thread), "vvVuu");
    assert_eq!(letters(text, Scope::Warp), "uuuuu");
    assert_eq!(letters(text, Scope::Block), "uuuuu");
}

#[test]
fn callbacks_and_iterators_count_for_all_lanes_or_not() {
    // The number of rounds is the block's or the lane's; the callback adds to the caller's stack.
    let looped = |rounds: u32| {
        of_thread(&format!(
            "r1 = *(u32 *)(r1 + {rounds})\nr1 &= 7\n*(u64 *)(r10 - 8) = 0\nr2 = subprog[f]\nr3 = r10\nr3 += -8\nr4 = 0\ncall 181\nr6 = r0\nr0 = *(u64 *)(r10 - 8)\nexit\nf:\nr3 = *(u64 *)(r2 + 0)\nr3 += r1\n*(u64 *)(r2 + 0) = r3\nr0 = 0\nexit"
        ))
    };
    assert_eq!(looped(0), "uuuuuuuuuuu uuuuu");
    // In a round the sum is alike, behind them it is not.
    assert_eq!(looped(48), "vvuuuuuvvvu UUUUU");
    // A callback that stops when the lane says so.
    assert_eq!(
        of_thread(
            "r6 = *(u32 *)(r1 + 48)\n*(u64 *)(r10 - 8) = r6\nr1 = 20\nr2 = subprog[f]\nr3 = r10\nr3 += -8\nr4 = 0\ncall 181\nr0 = 0\nexit\nf:\nr3 = *(u64 *)(r2 + 0)\nr0 = 0\nif r1 < r3 goto +1\nr0 = 1\nexit"
        ),
        "vuuuuuuvuu VUVUU"
    );
    let iterated = |end: u32| {
        of_thread(&format!(
            "r3 = *(u32 *)(r1 + {end})\nr3 &= 7\nr2 = 0\nr6 = 0\nr1 = r10\nr1 += -8\ncall kfunc[1]\nagain:\nr1 = r10\nr1 += -8\ncall kfunc[2]\nif r0 == 0 goto out\nr1 = *(u32 *)(r0 + 0)\nr6 = r1\ngoto again\nout:\nr1 = r10\nr1 += -8\ncall kfunc[3]\nr7 = r6\nr0 = 0\nexit"
        ))
    };
    assert_eq!(iterated(0), "uuuuuuuuuuuuuuuuuuuu");
    assert_eq!(iterated(48), "vvuuuuvUUVVVVUuuuvuu");
}

#[test]
fn branches_are_counted_and_found() {
    let verified = accept(
        "r2 = *(u32 *)(r1 + 48)\nr3 = *(u32 *)(r1 + 0)\nif r2 > 3 goto +0\nif r3 > 3 goto +1\nr4 = 0\nif r2 > 5 goto +1\nr4 = 0\nr0 = 0\nexit",
    );
    assert_eq!(verified.warp().branches(), (1, 1));
    assert!(verified.warp().is_uniform_branch(Pc(3)));
    assert!(!verified.warp().is_uniform_branch(Pc(5)));
    // Nothing is claimed of what is not there.
    assert!(!verified.warp().is_uniform_branch(Pc(99)));
    assert_eq!(verified.warp().at(7, Pc(0)), WarpFact::default());
}

/// The table with one helper changed: `bpf_gpu_membar` waits for the whole group,
/// `bpf_map_update_elem` wants the same arguments in all of it.
fn demanding() -> Platform {
    let table: Vec<Helper> = HELPERS
        .iter()
        .map(|h| Helper {
            warp: match h.kind {
                HelperId::GpuMembar => Warp::Together,
                HelperId::MapUpdateElem => Warp::TogetherAlike,
                _ => h.warp,
            },
            ..*h
        })
        .collect();
    Platform {
        helpers: Box::leak(table.into_boxed_slice()),
        ..platform()
    }
}

#[test]
fn a_helper_that_needs_the_group_gets_it_or_is_refused() {
    let judge = |text: &str| match attempt(text, &demanding()) {
        Ok(_) => "accepted".to_owned(),
        Err(r) => format!("{} {}: {}", r.rule.name(), r.slot, r.rule),
    };
    assert_eq!(judge("call 506\nr0 = 0\nexit"), "accepted");
    // Behind a varying branch whose ways have met.
    assert_eq!(
        judge("r2 = *(u32 *)(r1 + 48)\nr6 = 0\nif r2 > 3 goto +1\nr6 = 1\ncall 506\nr0 = 0\nexit"),
        "accepted"
    );
    // On one of the ways.
    assert_eq!(
        judge("r2 = *(u32 *)(r1 + 48)\nif r2 > 3 goto +1\ncall 506\nr0 = 0\nexit"),
        "not-together 2: `bpf_gpu_membar` needs all lanes that arrived together, but the branch at instruction 1 sends some of them another way"
    );
    // After some have left.
    assert_eq!(
        judge("r2 = *(u32 *)(r1 + 48)\nr0 = 0\nif r2 > 3 goto +1\ncall 506\nr0 = 0\nexit"),
        "not-together 3: `bpf_gpu_membar` needs all lanes that arrived together, but the branch at instruction 2 sends some of them another way"
    );
    // In a loop that lanes leave at different times, and in one that they leave together.
    let looped = |limit: u32| {
        judge(&format!(
            "r6 = *(u32 *)(r1 + {limit})\nr6 &= 7\nr7 = 0\nagain:\nr7 += 1\ncall 506\nif r7 < r6 goto again\nr0 = 0\nexit"
        ))
    };
    assert_eq!(
        looped(48),
        "not-together 4: `bpf_gpu_membar` needs all lanes that arrived together, but the branch at instruction 5 sends some of them another way"
    );
    assert_eq!(looped(0), "accepted");
    // In a function that is called on one way only.
    assert_eq!(
        judge(
            "r2 = *(u32 *)(r1 + 48)\nif r2 > 3 goto +1\ncall f\nr0 = 0\nexit\nf:\ncall 506\nr0 = 0\nexit"
        ),
        "not-together 5: `bpf_gpu_membar` needs all lanes that arrived together, but the branch at instruction 1 sends some of them another way"
    );
    // One lane is its own group.
    let alone = demanding().with_scope(Scope::Warp);
    let text = "r2 = *(u32 *)(r1 + 48)\nif r2 > 3 goto +1\ncall 506\nr0 = 0\nexit";
    assert!(attempt(text, &alone).is_ok());
}

#[test]
fn a_helper_that_needs_alike_arguments_gets_them_or_is_refused() {
    let update = |value: u32| {
        let text = format!(
            "r6 = *(u32 *)(r1 + {value})\n*(u32 *)(r10 - 4) = 3\n*(u64 *)(r10 - 16) = r6\nr1 = map[0]\nr2 = r10\nr2 += -4\nr3 = r10\nr3 += -16\nr4 = 0\ncall 2\nr0 = 0\nexit"
        );
        match attempt(&text, &demanding()) {
            Ok(_) => "accepted".to_owned(),
            Err(r) => format!("{} {}: {}", r.rule.name(), r.slot, r.rule),
        }
    };
    assert_eq!(update(0), "accepted");
    assert_eq!(
        update(48),
        "not-alike 10: argument 3 of `bpf_map_update_elem` must be the same in all lanes; `r3` can differ between them"
    );
}

#[test]
fn exchanges_between_lanes_need_a_group() {
    let together = HELPERS.iter().filter(|h| h.warp != Warp::AnyLanes);
    assert_eq!(
        together.map(|h| h.name).collect::<Vec<_>>(),
        [
            "gpu_warp_ballot",
            "gpu_warp_match",
            "gpu_warp_first",
            "gpu_warp_sum",
            "gpu_warp_min",
            "gpu_warp_max",
            "gpu_warp_and",
            "gpu_warp_or",
            "gpu_block_sum",
            "gpu_block_min",
            "gpu_block_max",
            "gpu_block_and",
            "gpu_block_or",
            "gpu_warp_sectors",
            "gpu_warp_conflicts"
        ]
    );
    assert_eq!(
        of(HelperId::GpuMembar).effect,
        warpbpf_abi::helpers::Effect::Order
    );
}

#[test]
fn what_a_group_makes_together_is_uniform() {
    let of = |helper: u32| {
        let text = format!("r1 = *(u32 *)(r1 + 48)\ncall {helper}\nr0 += 0\nr0 = 0\nexit");
        of_thread(&text).chars().nth(1)
    };
    let uniform: Vec<u32> = (525..=532).filter(|id| of(*id) == Some('u')).collect();
    assert_eq!(uniform, [525, 527, 528, 529, 530, 531, 532]);
    assert_eq!(of(526), Some('v'));
    // Of the group itself: its size, not the place in it.
    assert_eq!(of(522), Some('u'));
    assert_eq!(
        (of(521), of(523), of(524)),
        (Some('v'), Some('v'), Some('v'))
    );
}

#[test]
fn a_lane_that_has_ended_does_not_come() {
    let text =
        "r1 = *(u32 *)(r1 + 48)\nif r1 > 3 goto +1\ncall 507\nr1 = 1\ncall 528\nr0 = 0\nexit";
    let judge = |platform: &Platform| {
        let verdict = attempt(text, &platform.clone().with_allow_modify(true));
        verdict.map(|_| ()).map_err(|r| r.rule.to_string())
    };
    assert_eq!(
        judge(&platform()),
        Err("`bpf_gpu_warp_sum` needs all lanes that arrived together, but the branch at instruction 1 sends some of them another way".to_owned())
    );
    assert_eq!(judge(&platform().with_scope(Scope::Warp)), Ok(()));
}

/// Slot and rule of the refusal.
fn refused(text: &str) -> String {
    match attempt(text, &platform()) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(r) => format!("{} {}: {}", r.rule.name(), r.slot, r.rule),
    }
}

#[test]
fn loops_that_wait_for_others_have_a_name() {
    // A flag.
    assert_eq!(
        refused(&format!(
            "{}again:\nr1 = *(u64 *)(r0 + 0)\nif r1 == 0 goto again\nr0 = 0\nexit",
            lookup(0)
        )),
        "spin 9: this loop waits for another thread: it ends only when the value that instruction 9 reads gives another answer"
    );
    // A lock, by compare-and-swap and by exchange.
    assert_eq!(
        refused(&format!(
            "{}r6 = r0\nagain:\nr0 = 0\nr1 = 1\nlock *(u64 *)(r6 + 0) cmpxchg r0, r1\nif r0 != 0 goto again\nr0 = 0\nexit",
            lookup(0)
        ).replace("lock *(u64 *)(r6 + 0) cmpxchg r0, r1", "r0 = cmpxchg_64(r6 + 0, r0, r1)")),
        "spin 12: this loop waits for another thread: it ends only when the value that instruction 12 reads gives another answer"
    );
    // A key that somebody is to insert.
    assert_eq!(
        refused(
            "again:\n*(u64 *)(r10 - 8) = 3\nr2 = r10\nr2 += -8\nr1 = map[2]\ncall 1\nif r0 == 0 goto again\nr0 = 0\nexit"
        ),
        "spin 5: this loop waits for another thread: it ends only when the lookup at instruction 5 gives another answer"
    );
    // The clock.
    assert_eq!(
        refused(
            "call 502\nr6 = r0\nr6 += 1000\nagain:\ncall 502\nif r0 < r6 goto again\nr0 = 0\nexit"
        ),
        "spin 3: this loop waits for time to pass: it ends only when the clock at instruction 3 gives another answer"
    );
    // A loop that counts too far is no wait, even if it looks at memory besides.
    assert!(refused(&format!(
        "{}r6 = 0\nagain:\nr6 += 1\nr1 = *(u64 *)(r0 + 0)\nif r1 != 0 goto out\nif r6 < 100000 goto again\nout:\nr0 = 0\nexit",
        lookup(0)
    ))
    .starts_with("loop-budget "));
    // Nothing at all happens.
    assert!(refused("r0 = 0\nagain:\ngoto again").starts_with("may-not-end "));
    assert_eq!(
        refused(&format!("{}r1 = r0\ncall 93\nr0 = 0\nexit", lookup(0))),
        "lock 10: `bpf_spin_lock` is not served: a lane that holds a lock waits for the lanes of its warp that wait for the lock"
    );
}

/// The names and slots of the warnings, and the slots they refer to.
fn warned(text: &str) -> Vec<(&'static str, u32, Option<u32>)> {
    accept(text)
        .warnings()
        .iter()
        .map(|w| (w.name, w.slot, w.related.as_ref().map(|r| r.slot)))
        .collect()
}

#[test]
fn updates_that_can_be_lost() {
    let update = |change: &str| {
        warned(&format!(
            "{}r1 = *(u64 *)(r0 + 0)\n{change}*(u64 *)(r0 + 0) = r1\nr0 = 0\nexit",
            lookup(8)
        ))
    };
    // One atomic each.
    for change in [
        "r1 += 1\n",
        "r1 |= 1\n",
        "r1 &= 7\n",
        "r1 ^= 1\n",
        "r1 -= 3\n",
        "r2 = 5\nr1 += r2\n",
        // Chains, as of `*v += a + 1`.
        "r2 = *(u32 *)(r10 - 4)\nr1 += r2\nr1 += 1\n",
        "r2 = 5\nr1 -= r2\nr1 += 7\nr1 -= 1\n",
        "r2 = 5\nr2 += r1\nr2 += 3\nr1 = r2\n",
        "r1 ^= 5\nr1 ^= 9\n",
        // A second name of what is combined, which nobody reads.
        "r2 = r1\nr2 += 1\nr3 = 2\nr3 += r2\nr1 = r3\n",
    ] {
        assert_eq!(update(change), [], "{change}");
    }
    // What was combined first is read after the store.
    for (behind, found) in [
        ("*(u64 *)(r0 + 8) = r2", true),
        ("r2 = 0\n*(u64 *)(r0 + 8) = r2", false),
        ("*(u64 *)(r0 + 8) = r1", false),
    ] {
        let warnings = warned(&format!(
            "{}r1 = *(u64 *)(r0 + 0)\nr2 = r1\nr2 += 1\nr1 = 3\nr1 += r2\n*(u64 *)(r0 + 0) = r1\n{behind}\nr0 = 0\nexit",
            lookup(8)
        ));
        assert_eq!(warnings.len(), usize::from(found), "{behind}");
    }
    // Of a 4-byte field, a sum of several that is needed in 8 bytes; a single one is none.
    for (change, count) in [("r1 += 1\nr1 += r2\n", 1), ("r1 += r2\n", 0)] {
        let warnings = warned(&format!(
            "{}r1 = *(u32 *)(r0 + 0)\nr2 = *(u32 *)(r10 - 4)\n{change}*(u32 *)(r0 + 0) = r1\n*(u64 *)(r0 + 8) = r1\nr0 = 0\nexit",
            lookup(8)
        ));
        assert_eq!(warnings.len(), count, "{change}");
    }
    // Two places of which nothing is known but that they are in one value.
    assert_eq!(
        warned(&format!(
            "r6 = *(u32 *)(r1 + 24)\nr7 = *(u32 *)(r1 + 0)\nr8 = r7\nr6 &= 1\nr7 &= 1\nr6 <<= 3\nr7 <<= 3\n{}r6 += r0\nr7 += r0\nif r8 == 9 goto out\n\
             r1 = *(u64 *)(r6 + 0)\nr1 += 1\n*(u64 *)(r7 + 0) = r1\nout:\nr0 = 0\nexit",
            lookup(8)
        ))
        .len(),
        1
    );
    // A new value, whatever was loaded.
    assert_eq!(update("r1 = 1\n"), []);
    for (change, slot) in [
        ("r1 <<= 1\n", 11),
        ("r1 *= 3\n", 11),
        ("r1 += r1\n", 11),
        ("r1 += 1\nr1 *= 3\n", 12),
        // A number minus what was loaded, a mixture, twice what was loaded, half of a sum.
        ("r2 = 5\nr2 -= r1\nr1 = r2\n", 13),
        ("r1 += 1\nr1 |= 2\n", 12),
        ("r2 = r1\nr2 += 1\nr1 += r2\n", 13),
        ("w1 += 1\n", 11),
    ] {
        assert_eq!(update(change), [("lost-update", slot, Some(9))], "{change}");
    }
    // Another field is another value.
    assert_eq!(
        warned(&format!(
            "{}r1 = *(u64 *)(r0 + 8)\nr1 <<= 1\n*(u64 *)(r0 + 0) = r1\nr0 = 0\nexit",
            lookup(8)
        )),
        []
    );
    // Through the stack and a function.
    assert_eq!(
        warned(&format!(
            "{}r6 = r0\nr1 = *(u64 *)(r6 + 0)\n*(u64 *)(r10 - 16) = r1\ncall f\nr1 = *(u64 *)(r10 - 16)\nr1 += r0\nr1 *= 2\n*(u64 *)(r6 + 0) = r1\nr0 = 0\nexit\nf:\nr0 = 1\nexit",
            lookup(8)
        )),
        [("lost-update", 16, Some(10))]
    );
    // Something else is stored in between, so that it is no atomic.
    assert_eq!(
        warned(&format!(
            "{}r1 = *(u64 *)(r0 + 0)\nr2 = 0\n*(u64 *)(r0 + 0) = r2\nr1 += 1\n*(u64 *)(r0 + 0) = r1\nr0 = 0\nexit",
            lookup(8)
        )),
        [("lost-update", 13, Some(9))]
    );
    // The old value is needed before the store.
    assert_eq!(
        warned(&format!(
            "{}r1 = *(u64 *)(r0 + 0)\n*(u64 *)(r0 + 8) = r1\nr1 += 1\n*(u64 *)(r0 + 0) = r1\nr0 = 0\nexit",
            lookup(8)
        )),
        [("lost-update", 12, Some(9))]
    );
    // Per thread there is nobody to lose to.
    assert_eq!(
        warned(&format!(
            "{}r1 = *(u64 *)(r0 + 0)\nr1 <<= 1\n*(u64 *)(r0 + 0) = r1\nr0 = 0\nexit",
            lookup(6)
        )),
        []
    );
    // Global data.
    assert_eq!(
        warned(
            "r9 = map[4][0] + 8\nr1 = *(u32 *)(r9 + 0)\nw1 *= 3\n*(u32 *)(r9 + 0) = r1\nr0 = 0\nexit"
        ),
        [("lost-update", 4, Some(2))]
    );
}

#[test]
fn tests_before_a_store() {
    let max = |stored: &str| {
        warned(&format!(
            "r6 = *(u32 *)(r1 + 48)\n{}r1 = *(u64 *)(r0 + 0)\nif r1 >= r6 goto out\n{stored}\nout:\nr0 = 0\nexit",
            lookup(8)
        ))
    };
    assert_eq!(
        max("*(u64 *)(r0 + 0) = r6"),
        [("lost-update", 12, Some(10))]
    );
    // Whoever is second stores the same.
    assert_eq!(max("*(u64 *)(r0 + 0) = 1"), []);
    assert_eq!(max("r2 = 1\n*(u64 *)(r0 + 0) = r2"), []);
    // Another field.
    assert_eq!(max("*(u64 *)(r0 + 8) = r6"), []);
}

/// `map[9]`, a hash with keys of 4 bytes.
fn with_hash(text: &str) -> Vec<(&'static str, u32, Option<u32>)> {
    let mut maps = maps();
    maps.push(warpbpf_object::MapDef {
        name: "seen".to_owned(),
        map_type: 1,
        extra: BTreeMap::new(),
        ..maps[0].clone()
    });
    match verify(code(text), &maps, &platform()) {
        Ok(v) => v
            .warnings()
            .iter()
            .map(|w| (w.name, w.slot, w.related.as_ref().map(|r| r.slot)))
            .collect(),
        Err(r) => panic!("{}", r.render()),
    }
}

#[test]
fn insertions_that_two_threads_do_at_once() {
    let program = |flags: u32, otherwise: &str| {
        with_hash(&format!(
            "*(u32 *)(r10 - 4) = 3\n*(u64 *)(r10 - 16) = 1\nr2 = r10\nr2 += -4\nr1 = map[9]\ncall 1\nif r0 == 0 goto new\n{otherwise}goto out\nnew:\nr2 = r10\nr2 += -4\nr3 = r10\nr3 += -16\nr1 = map[9]\nr4 = {flags}\ncall 2\nout:\nr0 = 0\nexit"
        ))
    };
    let adds = "r1 = 1\nlock *(u64 *)(r0 + 0) += r1\n";
    assert_eq!(program(0, adds), [("lost-insert", 18, Some(6))]);
    assert_eq!(program(1, adds), []);
    // Nobody counts: what is overwritten is the same.
    assert_eq!(program(0, "r1 = 1\n"), []);
    // A value written back by the helper.
    assert_eq!(
        with_hash(
            "*(u32 *)(r10 - 4) = 3\nr2 = r10\nr2 += -4\nr1 = map[9]\ncall 1\nif r0 == 0 goto out\nr1 = *(u64 *)(r0 + 0)\nr1 += 1\n*(u64 *)(r10 - 16) = r1\nr2 = r10\nr2 += -4\nr3 = r10\nr3 += -16\nr1 = map[9]\nr4 = 2\ncall 2\nout:\nr0 = 0\nexit"
        ),
        [("lost-update", 17, Some(7))]
    );
}

#[test]
fn locks_with_a_bound_are_warned_of() {
    let program = |expected: &str| {
        warned(&format!(
            "{}r6 = r0\nr7 = 0\nagain:\n{expected}\nr1 = 1\nr0 = cmpxchg_64(r6 + 0, r0, r1)\nif r0 == 0 goto got\nr7 += 1\nif r7 < 8 goto again\nr0 = 0\nexit\ngot:\nr1 = 0\nr0 = xchg_64(r6 + 8, r1)\nr0 = 0\nexit",
            lookup(8)
        ).replace("r0 = xchg_64(r6 + 8, r1)", "r1 = xchg_64(r6 + 8, r1)"))
    };
    assert_eq!(program("r0 = 0"), [("lock", 13, Some(14))]);
    // Brings a value up to date: looks first.
    assert_eq!(program("r0 = *(u64 *)(r6 + 0)"), []);
}

#[test]
fn calls_count_for_what_they_do() {
    let used = |text: &str| {
        let verified = accept(text);
        helpers_used(verified.facts(), &maps())
            .into_iter()
            .map(|u| (u.name(), u.map, u.places, u.counted, u.at_most))
            .collect::<Vec<_>>()
    };
    // An array, in two places.
    let again = lookup(0)
        .replace("found:", "")
        .replace("goto found", "goto +0")
        .replace("r0 = 0\nexit\n", "");
    assert_eq!(
        used(&format!("{again}{again}call 5\nr0 = 0\nexit")),
        [
            ("map_lookup_elem", Some(0), 2, 12, 12),
            ("ktime_get_ns", None, 1, 24, 24)
        ]
    );
    // A hash with keys of 8 and values of 16 bytes and room for 1,024: 128 probes of 24 and 3
    // instructions. An update asks, up to 64 times, 32 shards for a node, and 64 words of a bitmap,
    // 16 instructions each, and 16,384 times 32 shards for room.
    let key = "*(u64 *)(r10 - 8) = 1\n*(u64 *)(r10 - 24) = 1\n*(u64 *)(r10 - 16) = 1\nr2 = r10\nr2 += -8\nr3 = r10\nr3 += -24\nr1 = map[2]\nr4 = 0\n";
    assert_eq!(
        used(&format!("{key}call 1\nr0 = 0\nexit")),
        [("map_lookup_elem", Some(2), 1, 400 + 16, 416 + 128 * 27)]
    );
    assert_eq!(
        used(&format!("{key}call 2\nr0 = 0\nexit")),
        [(
            "map_update_elem",
            Some(2),
            1,
            900 + 3 * 16,
            948 + 128 * (48 + 3) + 64 * (32 + 64) * 16 + 16_384 * 32 * 24
        )]
    );
    // What a record is copied for depends on its size.
    assert_eq!(
        used(
            "*(u64 *)(r10 - 8) = 1\nr1 = map[1]\nr2 = r10\nr2 += -8\nr3 = 8\nr4 = 0\ncall 130\nr0 = 0\nexit"
        ),
        [("ringbuf_output", Some(1), 1, 400 + 16, 416 + 64 * 16)]
    );
}

#[test]
fn maps_with_locks_are_refused_where_they_are_used() {
    let mut maps = maps();
    maps[0].extra.insert("bpf_spin_lock".to_owned(), 0);
    let judge = |text: &str| {
        verify(code(text), &maps, &platform())
            .err()
            .map(|r| (r.rule.name(), r.slot, r.rule.to_string()))
    };
    assert_eq!(judge("r0 = 0\nexit"), None);
    assert_eq!(
        judge("r1 = map[0]\nr0 = 0\nexit"),
        Some((
            "lock",
            0,
            "values of map `counts` hold a `struct bpf_spin_lock`: a lane that holds a lock waits for the lanes of its warp that wait for the lock".to_owned()
        ))
    );
}

#[test]
fn every_map_operation_has_its_row() {
    let operations = [
        HelperId::MapLookupElem,
        HelperId::MapUpdateElem,
        HelperId::MapDeleteElem,
        HelperId::ForEachMapElem,
    ];
    for (map_type, name) in warpbpf_abi::maps::MAP_TYPES {
        let ring = *map_type == MapType::Ringbuf;
        let events = matches!(map_type, MapType::PerfEventArray | MapType::GpuRingbuf);
        let list = matches!(map_type, MapType::Queue | MapType::Stack);
        let filter = *map_type == MapType::BloomFilter;
        let filled = *map_type == MapType::UserRingbuf;
        let outer = matches!(map_type, MapType::ArrayOfMaps | MapType::HashOfMaps);
        let keyed = !(ring || events || list || filter || outer || filled);
        for helper in HELPERS.iter().map(|h| h.kind) {
            let known = match helper {
                HelperId::RingbufOutput
                | HelperId::RingbufReserve
                | HelperId::RingbufReserveDynptr
                | HelperId::RingbufQuery => ring,
                HelperId::PerfEventOutput => events,
                HelperId::UserRingbufDrain => filled,
                HelperId::MapPushElem | HelperId::MapPeekElem => list || filter,
                HelperId::MapPopElem => list,
                HelperId::MapLookupElem => keyed || outer,
                HelperId::MapLookupPercpuElem => map_op(helper, *map_type).is_some(),
                _ if operations.contains(&helper) => keyed,
                _ => true,
            };
            assert_eq!(takes(helper, *map_type), known, "{helper:?} on {name}");
        }
        assert!(takes(HelperId::Foreign, *map_type));
    }
    // A helper that takes a map of ours has rows, or it would take any.
    for helper in HELPERS.iter().filter(|h| h.args.contains(&Arg::Map)) {
        assert!(
            MAP_OPS.iter().any(|op| op.helper == helper.kind),
            "{}",
            helper.name
        );
    }
    // A walk counts what its own row says, and its slots besides.
    let walks = MAP_OPS
        .iter()
        .filter(|op| op.helper == HelperId::ForEachMapElem);
    let cost = of(HelperId::ForEachMapElem).cost;
    assert!(walks.into_iter().all(|op| op.cost == cost));
}
