//! What the proof tells the code generator, exactly.

use std::collections::BTreeMap;

use crate::common::{accept, lookup};
use warpbpf_abi::helpers::HelperId;
use warpbpf_ebpf::Pc;
use warpbpf_verify::{ArgFact, CallFact, InsnFact, Place, Region};

fn stack(offset: i64) -> Place {
    Place {
        region: Region::Stack { frame: 0 },
        offset: Some(offset),
        align: 1 << offset.trailing_zeros().min(3),
    }
}

#[test]
fn a_counter() {
    let verified = accept(&format!(
        "{}r1 = *(u64 *)(r0 + 0)\nr1 += 1\n*(u64 *)(r0 + 0) = r1\nr0 = 0\nexit",
        lookup(0)
    ));
    let facts = verified.facts();
    assert_eq!(facts.instances.len(), 1);
    let value = Place {
        region: Region::MapValue { map: 0 },
        offset: Some(0),
        align: 8,
    };
    let main = &facts.instances[0];
    assert_eq!(
        (main.start, main.end, main.frame, main.stack_bytes),
        (Pc(0), Pc(13), 0, 8)
    );
    assert_eq!(
        main.insns,
        [
            InsnFact::Access(stack(-4)),
            InsnFact::Plain,
            InsnFact::Plain,
            InsnFact::Plain,
            InsnFact::Call(CallFact {
                helper: HelperId::MapLookupElem,
                map: Some(0),
                args: [
                    ArgFact::Map(0),
                    ArgFact::Pointer(stack(-4)),
                    ArgFact::Unused,
                    ArgFact::Unused,
                    ArgFact::Unused
                ],
                memory: None,
                strings: None,
                text: None,
            }),
            InsnFact::Branch {
                taken: true,
                falls: true,
                null_check: true
            },
            InsnFact::Plain,
            InsnFact::Plain,
            InsnFact::Access(value),
            InsnFact::Plain,
            InsnFact::Access(value),
            InsnFact::Plain,
            InsnFact::Plain,
        ]
    );
    // Four instructions, the lookup at its table cost, the branch, five more.
    assert_eq!(facts.cost, 4 + 12 + 1 + 5);
    assert_eq!(facts.stack_bytes, 8);
    assert_eq!(verified.warnings(), []);
}

#[test]
fn offsets_that_vary_are_not_told() {
    let verified = accept(
        "r6 = *(u32 *)(r1 + 48)\n*(u64 *)(r10 - 8) = 1\n*(u64 *)(r10 - 16) = 2\nr2 = r10\nr2 += -16\nif r6 > 3 goto +1\nr2 += 8\nr0 = *(u64 *)(r2 + 0)\nexit",
    );
    let main = &verified.facts().instances[0];
    assert_eq!(
        main.at(Pc(7)),
        &InsnFact::Access(Place {
            region: Region::Stack { frame: 0 },
            offset: None,
            align: 8,
        })
    );
    assert_eq!(
        main.at(Pc(0)),
        &InsnFact::Access(Place {
            region: Region::Context,
            offset: Some(48),
            align: 8,
        })
    );
    assert_eq!(main.stack_bytes, 16);
}

#[test]
fn a_function_is_proved_for_each_caller() {
    let verified = accept(&format!(
        "{}r1 = r0\ncall f\n*(u64 *)(r10 - 16) = 1\nr1 = r10\nr1 += -16\ncall f\nexit\nf:\nr0 = *(u64 *)(r1 + 0)\nexit",
        lookup(0)
    ));
    let facts = verified.facts();
    let regions: Vec<_> = facts
        .instances
        .iter()
        .map(|i| (i.start.0, i.frame, i.insns[0].clone()))
        .collect();
    assert_eq!(
        regions[1..],
        [
            (
                15,
                1,
                InsnFact::Access(Place {
                    region: Region::MapValue { map: 0 },
                    offset: Some(0),
                    align: 8,
                })
            ),
            (15, 1, InsnFact::Access(stack(-16))),
        ]
    );
    assert_eq!(
        facts.instances[0].calls,
        BTreeMap::from([(Pc(9), 1), (Pc(13), 2)])
    );
}

#[test]
fn dead_code_is_said_to_be_dead() {
    let verified =
        accept("r0 = 0\nr1 = 5\nif r1 > 3 goto out\ncall f\nout:\nexit\nf:\nr0 = r9\nexit");
    let facts = verified.facts();
    let main = &facts.instances[0];
    assert_eq!(
        main.at(Pc(2)),
        &InsnFact::Branch {
            taken: true,
            falls: false,
            null_check: false
        }
    );
    assert_eq!(main.at(Pc(3)), &InsnFact::Dead);
    assert_eq!(main.calls, BTreeMap::from([(Pc(3), 1)]));
    assert_eq!(facts.instances[1].insns, [InsnFact::Dead, InsnFact::Dead]);
}

#[test]
fn arguments_are_joined_over_paths() {
    let verified = accept(
        "r6 = *(u32 *)(r1 + 48)\n*(u64 *)(r10 - 8) = 1\nr2 = r10\nr2 += -8\nr3 = 4\nif r6 > 3 goto +1\nr3 = 8\nr1 = map[1]\nr4 = 0\ncall 130\nr0 = 0\nexit",
    );
    let InsnFact::Call(call) = verified.facts().instances[0].at(Pc(9)) else {
        panic!("a call")
    };
    assert_eq!(call.map, Some(1));
    assert_eq!(
        call.args[2],
        ArgFact::Scalar {
            value: None,
            max: 8
        }
    );
    assert_eq!(
        call.args[3],
        ArgFact::Scalar {
            value: Some(0),
            max: 0
        }
    );
}

#[test]
fn a_record_names_its_ring() {
    let verified = accept(
        "r1 = map[1]\nr2 = 16\nr3 = 0\ncall 131\nif r0 == 0 goto out\n*(u64 *)(r0 + 8) = 7\nr1 = r0\nr2 = 0\ncall 132\nout:\nr0 = 0\nexit",
    );
    let main = &verified.facts().instances[0];
    assert_eq!(
        main.at(Pc(5)),
        &InsnFact::Access(Place {
            region: Region::Record { map: 1 },
            offset: Some(8),
            align: 8,
        })
    );
    let InsnFact::Call(submit) = main.at(Pc(8)) else {
        panic!("a call")
    };
    assert_eq!(
        (submit.map, submit.args[0]),
        (
            Some(1),
            ArgFact::Pointer(Place {
                region: Region::Record { map: 1 },
                offset: Some(0),
                align: 8,
            })
        )
    );
}

#[test]
fn the_worst_path_gives_the_cost() {
    // 10 rounds of 3, and 2 around.
    let verified = accept("r1 = 0\nagain:\nr1 += 1\nr2 = r1\nif r1 < 10 goto again\nr0 = 0\nexit");
    assert_eq!(verified.facts().cost, 1 + 30 + 2);
}

#[test]
fn ranges_of_fields_and_helpers_are_known() {
    // The lane needs no check to index 32 bytes; neither does the helper's answer.
    accept(&format!(
        "r6 = *(u32 *)(r1 + 48)\n{}r0 += r6\nr0 = *(u8 *)(r0 + 0)\nexit",
        lookup(8)
    ));
    accept(&format!(
        "call 511\nr6 = r0\n{}r0 += r6\nr0 = *(u8 *)(r0 + 32)\nexit",
        lookup(8)
    ));
}

#[test]
fn maps_that_a_program_may_write_to() {
    let written = |then: &str| {
        let verified = accept(&format!("{}{then}r0 = 0\nexit", lookup(0)));
        verified.facts().written_maps(verified.program())
    };
    assert_eq!(written("r1 = *(u64 *)(r0 + 0)\n"), [].into());
    assert_eq!(written("*(u64 *)(r0 + 0) = 1\n"), [0].into());
    assert_eq!(written("r1 = 1\nlock *(u64 *)(r0 + 0) += r1\n"), [0].into());
    // A helper that is given a place in a value, which it may write to.
    assert_eq!(written("r1 = r0\nr2 = 8\nr3 = 0\ncall 113\n"), [0].into());
}
