//! Tests of the instruction set through its public interface.

mod codec;
mod interpreter;
mod llvm;
mod text;

use proptest::prelude::*;
use warpbpf_ebpf::Slot;
use warpbpf_ebpf::table::{FORMS, Form, Shape, Use};

/// Which field of a form holds a distance in slots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Distance {
    None,
    Off,
    Imm,
}

fn distance(form: &Form) -> Distance {
    if form.text.contains("{t}") {
        Distance::Off
    } else if form.text.contains("{T}") {
        Distance::Imm
    } else {
        Distance::None
    }
}

/// The slots of `form` with the given operands where it has them, and the next instruction as
/// target.
fn slots(form: &Form, operands: Slot, high: i32) -> Vec<Slot> {
    let distance = distance(form);
    let off = if distance == Distance::Off {
        0
    } else {
        operands.off
    };
    // A distance counts from behind the first slot.
    let next = if form.opcode == Slot::LDDW { 1 } else { 0 };
    let imm = if distance == Distance::Imm {
        next
    } else {
        operands.imm
    };
    let mut slots = vec![Slot {
        opcode: form.opcode,
        dst: form.dst.fill(i32::from(operands.dst)) as u8,
        src: form.src.fill(i32::from(operands.src)) as u8,
        off: form.off.fill(i32::from(off)) as i16,
        imm: form.imm.fill(imm),
    }];
    if form.opcode == Slot::LDDW {
        slots.push(Slot {
            imm: form.imm_high.fill(high),
            ..Slot::default()
        });
    }
    slots
}

/// Whether the encoder writes this form, or another one with the same meaning.
fn canonical(form: &Form) -> bool {
    FORMS.iter().find(|other| other.shape == form.shape) == Some(form)
}

fn bytes(slots: &[Slot]) -> Vec<u8> {
    slots.iter().flat_map(|slot| slot.to_bytes()).collect()
}

/// A form with operands.
fn any_slots() -> impl Strategy<Value = (&'static Form, Vec<Slot>)> {
    let form = (0..FORMS.len()).prop_map(|i| &FORMS[i]);
    (
        form,
        0u8..=10,
        0u8..=10,
        any::<i16>(),
        any::<i32>(),
        any::<i32>(),
    )
        .prop_map(|(form, dst, src, off, imm, high)| {
            (
                form,
                slots(
                    form,
                    Slot {
                        opcode: 0,
                        dst,
                        src,
                        off,
                        imm,
                    },
                    high,
                ),
            )
        })
}

/// A program: instructions with random operands, then as many `exit` as any distance may need, with
/// every distance pointed at an instruction.
fn any_program() -> impl Strategy<Value = Vec<u8>> {
    let insns = prop::collection::vec((any_slots(), any::<prop::sample::Index>()), 1..40);
    insns.prop_map(|insns| {
        let mut starts = Vec::new();
        let mut len = 0;
        for ((_, slots), _) in &insns {
            starts.push(len);
            len += slots.len();
        }
        let mut out = Vec::new();
        for (((form, mut slots), target), start) in insns.into_iter().zip(&starts) {
            let target = *target.get(&starts) as i32 - *start as i32 - 1;
            match distance(form) {
                Distance::None => {}
                Distance::Off => slots[0].off = target as i16,
                Distance::Imm => slots[0].imm = target,
            }
            out.extend(slots);
        }
        bytes(&out)
    })
}

#[test]
fn every_opcode_of_the_classes_is_accounted_for() {
    // 256 opcodes, of which the table defines these; the number changes only with the instruction
    // set.
    let mut opcodes: Vec<u8> = FORMS.iter().map(|form| form.opcode).collect();
    opcodes.sort_unstable();
    opcodes.dedup();
    assert_eq!((FORMS.len(), opcodes.len()), (180, 129));
    for opcode in opcodes {
        let found = warpbpf_ebpf::table::forms_of(opcode).count();
        assert_eq!(
            found,
            FORMS.iter().filter(|form| form.opcode == opcode).count(),
            "{opcode:#x}"
        );
    }
    assert_eq!(warpbpf_ebpf::table::forms_of(0xff).count(), 0);
}

#[test]
fn no_slot_is_two_instructions() {
    for a in FORMS {
        for b in FORMS.iter().filter(|b| b.opcode == a.opcode && *b != a) {
            let apart = |x: Use, y: Use| matches!((x, y), (Use::Is(x), Use::Is(y)) if x != y);
            assert!(
                apart(a.src, b.src) || apart(a.off, b.off) || apart(a.imm, b.imm),
                "{} and {}",
                a.text,
                b.text
            );
        }
    }
}

#[test]
fn the_documentation_lists_every_form() {
    let text = warpbpf_ebpf::table::documentation();
    assert_eq!(text.lines().count(), FORMS.len() + 2);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        "| opcode | src | offset | imm | text | since | group | meaning |"
    );
    assert_eq!(
        lines[2],
        "| 0x04 | 0 | 0 | any | `wD += imm` | v1 | base32 | Wrapping addition. |"
    );
    assert!(
        lines.contains(
            &"| 0xdb | any | any | 0xf1 | `r0 = cmpxchg_64(rD + off, r0, rS)` | v3 | atomic64 | Store src if memory equals r0; r0 becomes the old value in either case. |"
        ),
        "{text}"
    );
    assert!(
        lines.contains(&"| 0x47 | 0 | 0 | any | `rD \\|= imm` | v1 | base64 | Bitwise or. |"),
        "{text}"
    );
    assert_eq!(
        FORMS
            .iter()
            .filter(|form| matches!(form.shape, Shape::Exit))
            .count(),
        1
    );
}
