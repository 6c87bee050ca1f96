//! From a checked program to instructions: statements.
//!
//! An expression's value comes into `r0`. What must outlive another expression lies on the stack.
//! `r6` is the context, and `r7` to `r9` are used inside of one statement. Updates of maps are
//! exact however many lanes make them: a key that is not there is inserted by `BPF_NOEXIST` and
//! looked up again, and the value is changed by one atomic instruction.

use warpbpf_abi::helpers::HelperId;
use warpbpf_ebpf::{AluOp, AtomicOp, JumpOp, Reg, Source, Width};

use crate::asm::{Label, r};
use crate::emit_expr::Emitter;
use crate::typed::{Action, Change, Code, Program, Request, Value, What};

impl Emitter<'_> {
    /// A whole program.
    pub fn program(&mut self, program: &Program) {
        let Code {
            first,
            filter,
            body,
            ..
        } = &program.code;
        let out = self.out;
        self.asm.copy(r(6), Reg::R1);
        for variable in 0..self.variables {
            let off = self.slot(variable);
            self.asm.store(Width::W64, Reg::FP, off, Source::Imm(0));
        }
        for (variable, read) in first {
            self.value(&Value::Read(*read));
            let off = self.slot(*variable);
            self.store_slot(off);
        }
        if program.elects {
            self.asm.call(HelperId::GpuWarpLeader as u32);
            self.asm.jump(JumpOp::Eq, Reg::R0, Source::Imm(0), out);
        }
        if let Some(filter) = filter {
            self.unless(filter, out);
        }
        self.actions(body);
        self.asm.place(out);
        self.asm.number(Reg::R0, 0);
        self.asm.exit();
    }

    fn actions(&mut self, actions: &[Action]) {
        for action in actions {
            if self.is_too_large() {
                return;
            }
            self.asm.span = action.span;
            let depth = self.depth;
            self.action(&action.what);
            self.depth = depth;
        }
    }

    fn action(&mut self, what: &What) {
        match what {
            What::SetVariable { variable, value } => {
                self.value(value);
                let off = self.slot(*variable);
                self.store_slot(off);
            }
            What::SetMap { map, key, value } => self.set_map(*map, key, value),
            What::ChangeMap {
                map,
                key,
                change,
                value,
            } => {
                let op = match change {
                    Change::Add => AtomicOp::Add { fetch: false },
                    Change::And => AtomicOp::And { fetch: false },
                    Change::Or => AtomicOp::Or { fetch: false },
                    Change::Xor => AtomicOp::Xor { fetch: false },
                };
                self.change_map(*map, key, op, value);
            }
            What::Aggregate { map, key, value } => self.aggregate(*map, key, value),
            What::Delete { map, key } => {
                let key = self.key(*map, key, None);
                self.asm.map(r(1), *map);
                self.address(r(2), key);
                self.asm.call(HelperId::MapDeleteElem as u32);
            }
            What::Send { request, args } => self.send(*request, args),
            What::Evaluate(value) => self.value(value),
            What::If {
                cond,
                then,
                otherwise,
            } => {
                let (no, end) = (self.asm.label(), self.asm.label());
                self.unless(cond, no);
                self.actions(then);
                if !otherwise.is_empty() {
                    self.asm.goto(end);
                }
                self.asm.place(no);
                self.actions(otherwise);
                self.asm.place(end);
            }
            What::Unroll { count, body } => {
                let end = self.asm.label();
                for _ in 0..*count {
                    self.copies += 1;
                    if self.is_too_large() {
                        break;
                    }
                    let next = self.asm.label();
                    self.in_loop(end, next, body);
                    self.asm.place(next);
                }
                self.asm.place(end);
            }
            What::While { cond, body } => {
                let (next, end) = (self.asm.label(), self.asm.label());
                self.asm.place(next);
                let stopped = self.round();
                self.unless(cond, end);
                self.in_loop(end, next, body);
                self.asm.goto(next);
                self.stopped(stopped, end);
            }
            What::For {
                variable,
                from,
                to,
                end: last,
                body,
            } => {
                let (variable, last) = (self.slot(*variable), self.slot(*last));
                self.value(from);
                self.store_slot(variable);
                self.value(to);
                self.store_slot(last);
                let (top, next) = (self.asm.label(), self.asm.label());
                let end = self.asm.label();
                self.asm.place(top);
                let stopped = self.round();
                self.load_slot(Reg::R0, variable);
                self.load_slot(r(1), last);
                self.asm.jump(JumpOp::SGe, Reg::R0, Source::Reg(r(1)), end);
                self.in_loop(end, next, body);
                self.asm.place(next);
                self.load_slot(Reg::R0, variable);
                self.asm.alu(AluOp::Add, Reg::R0, Source::Imm(1));
                self.store_slot(variable);
                self.asm.goto(top);
                self.stopped(stopped, end);
            }
            What::Break => {
                if let Some((end, _)) = self.loops.last() {
                    self.asm.goto(*end);
                }
            }
            What::Continue => {
                if let Some((_, next)) = self.loops.last() {
                    self.asm.goto(*next);
                }
            }
            What::Return => self.asm.goto(self.out),
        }
    }

    fn in_loop(&mut self, end: Label, next: Label, body: &[Action]) {
        self.loops.push((end, next));
        self.actions(body);
        self.loops.pop();
    }

    /// Begins a round of a loop; where the label goes, there may be no more.
    fn round(&mut self) -> Label {
        let stopped = self.asm.label();
        self.asm.may_goto(stopped);
        stopped
    }

    /// Behind a loop: one that was ended early is counted.
    fn stopped(&mut self, stopped: Label, end: Label) {
        self.asm.place(stopped);
        self.count_lost(self.layout.lost);
        self.asm.place(end);
    }

    fn send(&mut self, request: usize, args: &[Value]) {
        let words = 1 + args.iter().map(Value::words).sum::<usize>();
        let base = self.block(words);
        let size = 8 * words as i64;
        self.put_all(args, base + 8);
        self.asm
            .store(Width::W64, Reg::FP, base, Source::Imm(request as i32));
        self.asm.map(r(1), self.layout.records);
        self.address(r(2), base);
        self.asm.number(r(3), size);
        self.asm.number(r(4), 0);
        self.asm.call(HelperId::RingbufOutput as u32);
        if matches!(self.checked.requests[request], Request::Exit) {
            self.asm.goto(self.out);
        }
    }
}
