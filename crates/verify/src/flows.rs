//! What each instruction moves from where to where: the transfer functions of the analyses over a
//! [`Graph`].
//!
//! Sources that differ between lanes are marked as such here, so that the analysis which asks about
//! lanes and the one which follows loads through the program agree on the rest.

use warpbpf_abi::helpers::{Arg, HelperId, Uniform, map_op, walks_alike};
use warpbpf_abi::kfuncs::KfuncId;
use warpbpf_ebpf::{AluOp, Callee, Insn, Reg, Source};

use crate::call::fills_value;
use crate::defines::fetched;
use crate::facts::{ArgFact, CallFact, InsnFact, Place, Region, map_def};
use crate::graph::{At, FRAMES, Flow, Graph, Kind, LOOP, LOOP_CONTEXT, Part, ROUNDS};

impl Graph<'_> {
    /// What flows at a node, in this order.
    pub fn flows(&self, node: usize, each: &mut impl FnMut(Flow)) {
        let f = self.frame(node);
        let At { kind, .. } = self.at(node);
        if kind == Kind::Again {
            return self.callback_flows(node, each);
        }
        let reg = |r: Reg| Part::reg(f, r);
        let mut set = |to: Part, from: [Part; 3], varies: bool| {
            each(Flow {
                to,
                strong: true,
                from,
                varies,
            });
        };
        match self.insn(node) {
            Insn::Alu { op, dst, src, .. } => {
                let left = if op == AluOp::Mov {
                    Part::NONE
                } else {
                    reg(dst)
                };
                let right = match src {
                    Source::Reg(src) => reg(src),
                    Source::Imm(_) => Part::NONE,
                };
                // `r ^= r` and `r -= r` are 0 whatever `r` was.
                let zero = src == Source::Reg(dst) && matches!(op, AluOp::Xor | AluOp::Sub);
                let from = if zero {
                    [Part::NONE; 3]
                } else {
                    [left, right, Part::NONE]
                };
                set(reg(dst), from, false);
            }
            Insn::MovSx { dst, src, .. } => {
                set(reg(dst), [reg(src), Part::NONE, Part::NONE], false)
            }
            Insn::LoadImm64 { dst, .. } => set(reg(dst), [Part::NONE; 3], false),
            Insn::Load {
                width, dst, base, ..
            }
            | Insn::LoadAcquire {
                width, dst, base, ..
            } => {
                if let InsnFact::Access(place) = self.fact(node) {
                    let (memory, address) = self.accessed(f, place, base, width.bytes());
                    set(
                        reg(dst),
                        [memory, address, Part::NONE],
                        self.memory_varies(place),
                    );
                }
            }
            Insn::Store {
                width, base, src, ..
            } => {
                let value = match src {
                    Source::Reg(src) => reg(src),
                    Source::Imm(_) => Part::NONE,
                };
                self.store(node, f, base, value, width.bytes(), each);
            }
            Insn::StoreRelease {
                width, base, src, ..
            } => self.store(node, f, base, reg(src), width.bytes(), each),
            Insn::Atomic {
                width,
                op,
                base,
                src,
                ..
            } => {
                let InsnFact::Access(place) = self.fact(node) else {
                    return;
                };
                let (memory, address) = self.accessed(f, place, base, width.bytes());
                let old = fetched(op, src);
                let shared = !matches!(place.region, Region::Stack { .. });
                if !shared {
                    each(Flow {
                        to: memory,
                        strong: false,
                        from: [reg(src), address, reg(Reg::R0)],
                        varies: false,
                    });
                }
                if let Some(old) = old {
                    each(Flow {
                        to: reg(old),
                        strong: true,
                        from: [memory, address, Part::NONE],
                        varies: shared,
                    });
                }
            }
            Insn::MayGoto { .. } => {
                each(Flow {
                    to: Part::regs(f, ROUNDS),
                    ..Flow::default()
                });
            }
            Insn::Call { callee } => self.call_flows(node, f, callee, each),
            Insn::Exit => {
                if self.returns_to(node).is_some() && f > 0 {
                    let from = [reg(Reg::R0), Part::NONE, Part::NONE];
                    set(Part::reg(f - 1, Reg::R0), from, false);
                }
            }
            // What they compute comes from the register itself.
            Insn::Neg { .. } | Insn::End { .. } => {}
            Insn::Jump { .. }
            | Insn::Goto { .. }
            | Insn::CallReg { .. }
            | Insn::LegacyPacket { .. } => {}
        }
    }

    /// What an access reads: memory that is followed, and the address where it is not the same
    /// number on all paths.
    fn accessed(&self, f: usize, place: &Place, base: Reg, bytes: u32) -> (Part, Part) {
        let address = match place.offset {
            Some(_) if !matches!(place.region, Region::MapValue { .. }) => Part::NONE,
            Some(_) | None => Part::reg(f, base),
        };
        match place.region {
            Region::Stack { frame } => (
                Part::stack(frame, place.offset, i64::from(bytes)).0,
                address,
            ),
            _ => (Part::NONE, address),
        }
    }

    fn store(
        &self,
        node: usize,
        f: usize,
        base: Reg,
        value: Part,
        bytes: u32,
        each: &mut impl FnMut(Flow),
    ) {
        let InsnFact::Access(place) = self.fact(node) else {
            return;
        };
        if let Region::Stack { frame } = place.region {
            let (to, whole) = Part::stack(frame, place.offset, i64::from(bytes));
            let (_, address) = self.accessed(f, place, base, bytes);
            each(Flow {
                to,
                strong: whole,
                from: [value, address, Part::NONE],
                varies: false,
            });
        }
    }

    fn call_flows(&self, node: usize, f: usize, callee: Callee, each: &mut impl FnMut(Flow)) {
        // `r0` to `r5`.
        let clobbered = Part::regs(f, 0x3f);
        let mut set = |to: Part, from: [Part; 3], varies: bool, strong: bool| {
            each(Flow {
                to,
                strong,
                from,
                varies,
            });
        };
        match callee {
            Callee::Local(_) => {
                let inner = (f + 1).min(FRAMES - 1);
                for reg in Reg::all().skip(1).take(5) {
                    let from = [Part::reg(f, reg), Part::NONE, Part::NONE];
                    set(Part::reg(inner, reg), from, false, true);
                }
                self.fresh_frame(inner, 0x3e, &mut set);
                set(clobbered, [Part::NONE; 3], false, true);
            }
            Callee::Kfunc(id) => {
                let it = match self.fact(node) {
                    InsnFact::Access(Place {
                        region: Region::Stack { frame },
                        offset,
                        ..
                    }) => Part::stack(*frame, *offset, 8).0,
                    _ => Part {
                        frame: f,
                        regs: 0,
                        cells: u128::MAX,
                    },
                };
                let (start, end) = (Part::regs(f, 1 << 2), Part::regs(f, 1 << 3));
                match KfuncId::from_number(id) {
                    Some(KfuncId::IterNumNew) => {
                        set(it, [start, end, Part::NONE], false, false);
                        set(Part::reg(f, Reg::R0), [start, end, Part::NONE], false, true);
                    }
                    Some(KfuncId::IterNumNext) => {
                        // It moves on: what was assigned under a varying branch is no longer alike.
                        set(it, [it, Part::NONE, Part::NONE], false, false);
                        set(
                            Part::reg(f, Reg::R0),
                            [it, Part::NONE, Part::NONE],
                            false,
                            true,
                        );
                    }
                    Some(KfuncId::IterNumDestroy) | None => {
                        set(Part::reg(f, Reg::R0), [Part::NONE; 3], false, true);
                    }
                }
                set(Part::regs(f, 0x3e), [Part::NONE; 3], false, true);
            }
            Callee::Helper(_) => {
                let InsnFact::Call(call) = self.fact(node) else {
                    return set(clobbered, [Part::NONE; 3], true, true);
                };
                self.helper_flows(node, f, call, &mut set);
            }
        }
    }

    /// A function starts with what is in `kept`, an empty stack and nothing else.
    fn fresh_frame(
        &self,
        frame: usize,
        kept: u16,
        set: &mut impl FnMut(Part, [Part; 3], bool, bool),
    ) {
        let rest = Part {
            frame,
            regs: !kept,
            cells: u128::MAX,
        };
        set(rest, [Part::NONE; 3], false, true);
    }

    fn helper_flows(
        &self,
        node: usize,
        f: usize,
        call: &CallFact,
        set: &mut impl FnMut(Part, [Part; 3], bool, bool),
    ) {
        let has_callback = call.args.contains(&ArgFact::Callback);
        if has_callback {
            let args = [Part::reg(f, Reg::R1), Part::regs(f, 1 << 4), Part::NONE];
            set(Part::regs(f, LOOP), args, self.rounds_vary(call), true);
            let context = [Part::regs(f, 1 << 3), Part::NONE, Part::NONE];
            set(Part::regs(f, LOOP_CONTEXT), context, false, true);
            set(Part::regs(f, 0x3f), [Part::NONE; 3], false, true);
            let inner = (f + 1).min(FRAMES - 1);
            // No round has returned anything yet.
            self.fresh_frame(inner, 0, set);
            return;
        }
        let row = self.helper(node);
        let uniform = call
            .map
            .and_then(|map| self.map_type(map))
            .and_then(|map_type| map_op(call.helper, map_type))
            .map(|op| op.uniform)
            .or(row.map(|h| h.uniform))
            .unwrap_or(Uniform::Varies);
        let varies = uniform == Uniform::Varies;
        // The arguments are joined first, in a place that nobody reads otherwise.
        let gathered = Part::regs(f, LOOP);
        set(gathered, [Part::NONE; 3], false, true);
        for i in 0..5 {
            let [memory, address] = self.argument(node, i);
            let is_out = row.is_some_and(|h| self.is_out(call, h.args[i]));
            let memory = if is_out { Part::NONE } else { memory };
            let varies = !is_out && self.reads_shared(call, i);
            set(gathered, [memory, address, Part::NONE], varies, false);
        }
        for i in 0..5 {
            if row.is_some_and(|h| self.is_out(call, h.args[i]))
                && let ArgFact::Pointer(place) = call.args[i]
                && let Region::Stack { frame } = place.region
            {
                let bytes = self.argument_bytes(node, call, i);
                let (to, whole) = Part::stack(frame, place.offset, bytes);
                // Of a buffer it may write less than there is room for.
                let whole = whole
                    && row.is_some_and(|h| {
                        matches!(h.args[i], Arg::U64Out | Arg::MapValueOut | Arg::DynptrOut)
                    });
                set(to, [gathered, Part::NONE, Part::NONE], varies, whole);
            }
        }
        let decides = match uniform {
            Uniform::Group => Part::NONE,
            Uniform::Varies | Uniform::ByArguments => gathered,
        };
        set(
            Part::reg(f, Reg::R0),
            [decides, Part::NONE, Part::NONE],
            varies,
            true,
        );
        // `r1` to `r5`, and the place.
        set(Part::regs(f, 0x3e | LOOP), [Part::NONE; 3], false, true);
    }

    /// Between the rounds of a callback: it gets its arguments, and the caller the number of
    /// rounds.
    fn callback_flows(&self, node: usize, each: &mut impl FnMut(Flow)) {
        let f = self.frame(node);
        let inner = (f + 1).min(FRAMES - 1);
        let InsnFact::Call(call) = self.fact(node) else {
            return;
        };
        let mut set = |to: Part, from: [Part; 3], varies: bool| {
            each(Flow {
                to,
                strong: true,
                from,
                varies,
            });
        };
        let (rounds, context) = (Part::regs(f, LOOP), Part::regs(f, LOOP_CONTEXT));
        let returned = Part::reg(inner, Reg::R0);
        // What decided once decides about all later rounds.
        set(rounds, [rounds, returned, Part::NONE], false);
        set(Part::reg(f, Reg::R0), [rounds, returned, Part::NONE], false);
        let from_context = [context, Part::NONE, Part::NONE];
        let given_varies = call.helper != HelperId::Loop
            && call
                .map
                .and_then(|m| self.map_type(m))
                .and_then(|map_type| map_op(call.helper, map_type))
                .is_none_or(|op| op.uniform != Uniform::ByArguments);
        // The index, or the map, key and value, or the sample.
        set(Part::regs(inner, 0b1110), [Part::NONE; 3], given_varies);
        let argument = if call.helper == HelperId::ForEachMapElem {
            4
        } else {
            2
        };
        set(Part::regs(inner, 1 << argument), from_context, false);
        // Its stack is fresh, as are the registers that hold no argument; `r0` stays, for the
        // branch that is here.
        set(
            Part {
                frame: inner,
                regs: 0x7e0 | ROUNDS,
                cells: u128::MAX,
            },
            [Part::NONE; 3],
            false,
        );
    }
}

impl Graph<'_> {
    /// Lanes of a group that pass the same arguments to this helper may still be called back
    /// differently often.
    fn rounds_vary(&self, call: &CallFact) -> bool {
        match call.helper {
            HelperId::Loop => false,
            HelperId::ForEachMapElem => {
                let map_type = call.map.and_then(|map| self.map_type(map));
                !map_type.is_some_and(walks_alike)
            }
            // Of the lanes that want to drain a ring, one does. Nothing is known of any other.
            _ => true,
        }
    }

    /// The helper writes what the argument points to.
    fn is_out(&self, call: &CallFact, arg: Arg) -> bool {
        match arg {
            Arg::U64Out | Arg::MemWrite | Arg::DynptrOut => true,
            Arg::MapValueOut => call
                .map
                .and_then(|map| map_def(self.env.maps, map))
                .is_none_or(fills_value),
            _ => false,
        }
    }
}
