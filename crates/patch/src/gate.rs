//! The gate in front of programs: a word on the device says which of them do not run now, so that a
//! kernel that never ends can be told.
//!
//! Each site reads the word once, before anything is captured (but the time at a barrier) and
//! before lanes form a group: whoever goes on is in the group, so helpers that wait for all of it
//! wait for nobody who stayed away. Where programs of one site can be closed one by one, lanes have
//! a group already, and those whose helpers need all of it ask all of it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use warpbpf_abi::layout::{gate, slot};
use warpbpf_abi::names::{GROUP_MASK, SLOTS};
use warpbpf_codegen::SlotSpace;

use crate::attachment::Gate;

/// The gates of one site.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gates {
    bits: BTreeSet<u32>,
    /// Bits of its slots, which are read together with the word.
    slots: BTreeSet<u32>,
    /// Something runs there whatever the gate says.
    always: bool,
}

impl Gates {
    /// Of a site where such programs stand; without a gate, one always runs.
    pub(crate) fn of(all: impl Iterator<Item = Option<Gate>>) -> Gates {
        let mut gates = Gates::default();
        for gate in all {
            match gate {
                Some(Gate::Program(bit)) => drop(gates.bits.insert(bit)),
                Some(Gate::Slot(bit)) => drop(gates.slots.insert(bit)),
                None => gates.always = true,
            }
        }
        gates
    }

    /// Registers that it uses: type and name.
    pub(crate) fn registers(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        let open = (!self.slots.is_empty()).then_some(("b64", "%wbpf_open"));
        let always = [
            ("pred", "%wbpf_shut"),
            ("b32", "%wbpf_gate_sm"),
            ("b64", "%wbpf_gate"),
            ("b64", "%wbpf_gate_at"),
        ];
        always.into_iter().chain(open)
    }

    /// There is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.bits.is_empty() && self.slots.is_empty()
    }

    /// All of the site can be left out at once.
    pub(crate) fn closes_all(&self) -> bool {
        !self.is_empty() && !self.always
    }

    /// Reads the word. With `skip`, a label behind all programs of the site, goes there if none is
    /// open; `together`: the group is formed already, and goes as a whole.
    pub(crate) fn read(&self, slots: SlotSpace, skip: Option<&str>, together: bool) -> String {
        let space = slots.word();
        let table = match slot::ENV {
            0 => SLOTS.to_owned(),
            number => format!("{SLOTS}+{}", number * 8),
        };
        // The word of slots stands behind the other, so that it costs no load of its own.
        let (vector, into) = match self.slots.is_empty() {
            true => ("", "%wbpf_gate"),
            false => ("v2.", "{%wbpf_gate, %wbpf_open}"),
        };
        let mut out = format!(
            "\tmov.u32 %wbpf_gate_sm, %smid;\n\tand.b32 %wbpf_gate_sm, %wbpf_gate_sm, {};\n\tld.{space}.u64 %wbpf_gate_at, [{table}];\n\t\
             mad.wide.u32 %wbpf_gate_at, %wbpf_gate_sm, {}, %wbpf_gate_at;\n\tld.relaxed.gpu.global.{vector}u64 {into}, [%wbpf_gate_at+{}];\n",
            gate::COPIES - 1,
            gate::STRIDE,
            gate::COPIES_AT
        );
        if let Some(label) = skip {
            let mask = |bits: &BTreeSet<u32>| bits.iter().fold(0u64, |all, bit| all | 1 << bit);
            let (all, slots) = (mask(&self.bits), mask(&self.slots));
            let mut test = String::new();
            if all != 0 {
                test = format!(
                    "\tand.b64 %wbpf_gate_at, %wbpf_gate, {all:#x};\n\tsetp.eq.u64 %wbpf_shut, %wbpf_gate_at, {all:#x};\n"
                );
            }
            if slots != 0 {
                let (and, shut) = match all {
                    0 => ("", ""),
                    _ => (".and", ", %wbpf_shut"),
                };
                // Writing to a String cannot fail.
                let _ = write!(
                    test,
                    "\tand.b64 %wbpf_gate_at, %wbpf_open, {slots:#x};\n\tsetp.eq{and}.u64 %wbpf_shut, %wbpf_gate_at, 0{shut};\n"
                );
            }
            out.push_str(&test);
            leave(together, label, &mut out);
        }
        out
    }

    /// Goes to `label` if a program of a site whose word was read does not run; nothing where the
    /// site as a whole was left out then. `together`: with the whole group or not at all.
    pub(crate) fn test(
        &self,
        gate: Option<Gate>,
        skipped: bool,
        together: bool,
        label: &str,
    ) -> String {
        let alone = self.bits.len() + self.slots.len() == 1;
        let Some(gate) = gate.filter(|_| !(skipped && alone)) else {
            return String::new();
        };
        let (word, bit, closed) = match gate {
            Gate::Program(bit) => ("%wbpf_gate", bit, "ne"),
            Gate::Slot(bit) => ("%wbpf_open", bit, "eq"),
        };
        let mut out = format!(
            "\tand.b64 %wbpf_gate_at, {word}, {:#x};\n\tsetp.{closed}.u64 %wbpf_shut, %wbpf_gate_at, 0;\n",
            1u64 << bit
        );
        leave(together, label, &mut out);
        out
    }
}

/// Goes to `label` if `%wbpf_shut` is set, for one lane of the group at least where all are to go
/// `together`.
fn leave(together: bool, label: &str, out: &mut String) {
    // Writing to a String cannot fail.
    if together {
        let _ = writeln!(
            out,
            "\tvote.sync.any.pred %wbpf_shut, %wbpf_shut, {GROUP_MASK};"
        );
    }
    let _ = writeln!(out, "\t@%wbpf_shut bra {label};");
}
