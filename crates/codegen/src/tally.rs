//! What stands around the sums that programs keep in registers ([`Fragment::tallies`]): their
//! declaration, and the code that adds them to their maps.
//!
//! Sums of lanes that are together are added up among them first: 32 atomics on one address take as
//! long as 32 on different ones, and the lanes of a warp mostly leave together.

use std::collections::BTreeSet;
use std::fmt::Write;

use warpbpf_abi::names::{GROUP_MASK, SLOTS};

use crate::fragment::{Fragment, SlotSpace, Tally};

/// Sums below this add up to less than 2^32 over the lanes of a warp.
const SMALL: u64 = 1 << 27;
/// First PTX version and first target with `redux.sync` (PTX ISA, "redux.sync").
const REDUX: ((u32, u32), u32) = ((7, 0), 80);

/// How the sums of lanes get into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adding {
    /// Each lane for itself.
    Lanes,
    /// Lanes of the group ([`GROUP_MASK`]) together, where a module of this version for this
    /// `sm_NN` can do so. All lanes of the group come here.
    Group {
        /// `.version` of the module.
        ptx: (u32, u32),
        /// Number in `.target sm_NN`.
        sm: u32,
    },
}

/// Declares the registers and sets them to 0.
pub fn declare(tallies: &BTreeSet<Tally>) -> String {
    let mut text = String::new();
    for tally in tallies {
        let (bits, register) = (tally.bits, tally.register());
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\t.reg .b{bits} {register};\n\tmov.b{bits} {register}, 0;\n"
        );
    }
    text
}

/// Code that adds what is in the registers to their maps, and leaves the registers as they are.
pub fn flush(tallies: &BTreeSet<Tally>, adding: Adding, slots: SlotSpace) -> Fragment {
    let together = match adding {
        Adding::Lanes => false,
        Adding::Group { ptx, sm } => ptx >= REDUX.0 && sm >= REDUX.1,
    };
    let mut w = Writer {
        text: String::from("{\n"),
        slots,
        based: None,
    };
    w.line(".reg .pred %wbpf_p<3>;");
    w.line(".reg .b32 %wbpf_w<2>;");
    w.line(".reg .b64 %wbpf_d<3>;");
    w.line("mov.u32 %wbpf_w0, %smid;");
    if together {
        w.together(tallies);
    } else {
        w.apart(tallies);
    }
    w.text.push_str("}\n");
    Fragment {
        body: w.text,
        uses_group_mask: together,
        slots: tallies.iter().map(|t| t.slot).collect(),
        ..Fragment::default()
    }
}

struct Writer {
    text: String,
    slots: SlotSpace,
    /// The slot whose array `%wbpf_d0` points into.
    based: Option<u32>,
}

impl Writer {
    fn line(&mut self, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "\t{text}");
    }

    /// `%wbpf_d0`: this multiprocessor's copy of the array.
    fn base(&mut self, tally: &Tally) {
        if self.based == Some(tally.slot) {
            return;
        }
        self.based = Some(tally.slot);
        let space = self.slots.word();
        let (last, stride, slot) = (tally.shards - 1, tally.stride, tally.slot * 8);
        self.line(&format!("ld.{space}.u64 %wbpf_d1, [{SLOTS}+{slot}];"));
        self.line(&format!("min.u32 %wbpf_w1, %wbpf_w0, {last};"));
        self.line("cvt.u64.u32 %wbpf_d0, %wbpf_w1;");
        self.line(&format!(
            "mad.lo.s64 %wbpf_d0, %wbpf_d0, {stride}, %wbpf_d1;"
        ));
    }

    /// Adds register `from` where `%wbpf_p0` holds.
    fn red(&mut self, tally: &Tally, from: &str) {
        let (bits, at) = (tally.bits, tally.at);
        self.line(&format!(
            "@%wbpf_p0 red.relaxed.gpu.global.add.u{bits} [%wbpf_d0+{at}], {from};"
        ));
    }

    fn apart(&mut self, tallies: &BTreeSet<Tally>) {
        for tally in tallies {
            let (bits, register) = (tally.bits, tally.register());
            self.base(tally);
            self.line(&format!("setp.ne.s{bits} %wbpf_p0, {register}, 0;"));
            self.red(tally, &register);
        }
    }

    /// The lowest lane adds for all, if the sums of all lanes are small.
    fn together(&mut self, tallies: &BTreeSet<Tally>) {
        self.line("mov.b64 %wbpf_d2, 0;");
        for tally in tallies.iter().filter(|t| t.bits == 64) {
            self.line(&format!("or.b64 %wbpf_d2, %wbpf_d2, {};", tally.register()));
        }
        self.line(&format!("setp.lt.u64 %wbpf_p0, %wbpf_d2, {SMALL};"));
        self.line(&format!(
            "vote.sync.all.pred %wbpf_p1, %wbpf_p0, {GROUP_MASK};"
        ));
        self.line("@!%wbpf_p1 bra $wbpf_large;");
        self.line("mov.u32 %wbpf_w1, %lanemask_lt;");
        self.line(&format!("and.b32 %wbpf_w1, %wbpf_w1, {GROUP_MASK};"));
        self.line("setp.eq.u32 %wbpf_p2, %wbpf_w1, 0;");
        for tally in tallies {
            self.base(tally);
            let mut part = tally.register();
            if tally.bits == 64 {
                self.line(&format!("cvt.u32.u64 %wbpf_w1, {part};"));
                part = "%wbpf_w1".to_owned();
            }
            self.line(&format!(
                "redux.sync.add.u32 %wbpf_w1, {part}, {GROUP_MASK};"
            ));
            self.line("setp.ne.and.u32 %wbpf_p0, %wbpf_w1, 0, %wbpf_p2;");
            if tally.bits == 64 {
                self.line("cvt.u64.u32 %wbpf_d2, %wbpf_w1;");
                self.red(tally, "%wbpf_d2");
            } else {
                // It wraps as the field does.
                self.red(tally, "%wbpf_w1");
            }
        }
        self.line("bra $wbpf_added;");
        let _ = writeln!(self.text, "$wbpf_large:");
        self.based = None;
        self.apart(tallies);
        let _ = writeln!(self.text, "$wbpf_added:");
    }
}
