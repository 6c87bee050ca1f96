//! Control flow: functions, branches, loops of every shape that clang makes, and some that it does
//! not.

use warpbpf_ebpf::{AluOp, Callee, Imm64, Insn, JumpOp, Pc, Reg, Source, Width};

use warpbpf_abi::kfuncs::KfuncId;

use super::state::{
    Area, COUNTER, Function, Generator, ITERATOR, Kind, POINTER, Role, STACK, VALUE, reg,
};

const CONDITIONS: [JumpOp; 11] = [
    JumpOp::Eq,
    JumpOp::Ne,
    JumpOp::Set,
    JumpOp::Gt,
    JumpOp::Ge,
    JumpOp::Lt,
    JumpOp::Le,
    JumpOp::SGt,
    JumpOp::SGe,
    JumpOp::SLt,
    JumpOp::SLe,
];

impl Generator<'_> {
    /// Decides which functions there will be.
    pub fn plan_functions(&mut self, n: usize) {
        for _ in 0..n {
            let map = self.rng.below(self.maps.len()) as u32;
            let is_array = |map: u32| {
                let spec = self.maps.get(map as usize);
                matches!(spec, Some(crate::test::MapSpec::Array { .. }))
            };
            let elements = self.alone && is_array(map);
            let role = match self.rng.below(if elements { 5 } else { 3 }) {
                0 => Role::Round,
                1 | 2 => Role::Plain {
                    numbers: self.rng.below(4) as u8,
                },
                _ => Role::Element { map },
            };
            self.functions.push(Function {
                role,
                uses: Vec::new(),
            });
        }
    }

    /// Writes one function. `given` is where its pointer argument points.
    pub fn function(&mut self, role: Role, given: Option<Area>) {
        self.role = role;
        self.kinds = [Kind::Nothing; Reg::COUNT];
        self.kept = [false; Reg::COUNT];
        self.areas.clear();
        self.depth = 0;
        let numbers = match role {
            Role::Entry => vec![reg(2)],
            Role::Plain { numbers } => (0..numbers).map(|n| reg(n + 2)).collect(),
            Role::Round => vec![reg(1)],
            Role::Element { .. } => Vec::new(),
        };
        for number in &numbers {
            self.kinds[number.index()] = Kind::Number;
        }
        if let Some(given) = given {
            self.copy(POINTER, given.base);
            self.kinds[POINTER.index()] = Kind::Pointer;
            self.areas.push(Area {
                base: POINTER,
                ..given
            });
            self.kept[POINTER.index()] = true;
        }
        if let Role::Element { map } = role {
            // The value stays in r7 for the whole callback; the key is read once.
            self.copy(VALUE, reg(3));
            self.kinds[VALUE.index()] = Kind::Pointer;
            self.kept[VALUE.index()] = true;
            let size = self.maps[map as usize].value_size() as i16;
            self.areas.push(Area {
                base: VALUE,
                low: 0,
                high: size,
                align: 8,
            });
            self.load(Width::W32, reg(0), reg(2), 0);
            if self.rng.one_in(2) {
                self.kinds[0] = Kind::Number;
                self.key_or_null();
            }
        }
        self.fill_stack();
        self.kept[Reg::FP.index()] = true;
        self.areas.push(Area {
            base: Reg::FP,
            low: -STACK,
            high: 0,
            align: 8,
        });
        let statements = match role {
            Role::Entry => 3 + self.rng.below(14),
            Role::Plain { .. } => 1 + self.rng.below(5),
            Role::Round | Role::Element { .. } => 1 + self.rng.below(3),
        };
        let outer = self.loops;
        if role != Role::Entry {
            self.loops += 1;
        }
        self.statements(statements);
        self.loops = outer;
        self.leave();
    }

    /// The code with all functions behind the program; those that nobody calls are left out.
    pub fn finish(mut self) -> Vec<Insn> {
        for index in 0..self.functions.len() {
            let uses = std::mem::take(&mut self.functions[index].uses);
            if uses.is_empty() {
                continue;
            }
            let start = self.code.len();
            for at in uses {
                self.aim(at, start);
            }
            self.callable = index + 1;
            self.budget = self.budget.max(4);
            let role = self.functions[index].role;
            let base = match role {
                Role::Entry | Role::Plain { .. } => reg(1),
                Role::Round => reg(2),
                Role::Element { .. } => reg(4),
            };
            let given = Area {
                base,
                low: 0,
                high: 16,
                align: 8,
            };
            self.function(role, Some(given));
        }
        self.code
    }

    /// Every byte of the function's stack gets a value: arguments, memory, constants.
    fn fill_stack(&mut self) {
        for word in 0..STACK / 8 {
            let off = -8 * (word + 1);
            let src = match self.rng.below(3) {
                0 => Source::Imm(self.immediate()),
                1 if self.kinds[POINTER.index()] == Kind::Pointer => {
                    let dst = reg(self.rng.pick(&[0, 8, 9]));
                    self.load(Width::W64, dst, POINTER, 0);
                    Source::Reg(dst)
                }
                _ => Source::Reg(self.number()),
            };
            self.store(Width::W64, Reg::FP, off, src);
        }
    }

    /// Ends the function with a number in `r0` that depends on much of what went on.
    fn leave(&mut self) {
        let stack = Area {
            base: Reg::FP,
            low: -STACK,
            high: 0,
            align: 8,
        };
        let was = self.kinds[0];
        self.kept[0] = false;
        if was != Kind::Number {
            self.set(Reg::R0, 0);
        }
        for n in 1..10 {
            if self.kinds[n] == Kind::Number && !self.rng.one_in(3) {
                self.alu(true, AluOp::Mul, Reg::R0, Source::Imm(31));
                self.alu(true, AluOp::Xor, Reg::R0, Source::Reg(reg(n as u8)));
            }
        }
        for off in (stack.low..stack.high).step_by(8) {
            if self.rng.one_in(2) {
                self.load(Width::W64, reg(1), Reg::FP, off);
                self.alu(true, AluOp::Mul, Reg::R0, Source::Imm(37));
                self.alu(true, AluOp::Xor, Reg::R0, Source::Reg(reg(1)));
            }
        }
        if matches!(self.role, Role::Round | Role::Element { .. }) {
            // A callback says 0 for "go on" and 1 for "stop".
            let imm = i32::from(!self.rng.one_in(3));
            self.alu(true, AluOp::And, Reg::R0, Source::Imm(imm));
        }
        self.emit(Insn::Exit);
    }

    pub fn statements(&mut self, n: usize) {
        for _ in 0..n {
            if self.budget == 0 {
                self.arithmetic();
                return;
            }
            self.budget -= 1;
            self.statement();
        }
    }

    fn statement(&mut self) {
        let nests = self.depth < 3;
        let repeats = self.loops < 2 && self.depth < 3;
        match self.rng.below(32) {
            0..=9 => self.arithmetic(),
            10..=14 => self.access(),
            15..=17 if self.daring && self.rng.one_in(2) => self.daring_access(),
            15..=17 => self.varying_access(),
            18 if self.rng.one_in(2) => self.pointer_or_null(),
            18 => self.moved_pointer(),
            19..=22 if nests => self.branch(),
            23 | 24 if repeats => self.counted_loop(),
            25 if repeats => match self.rng.below(3) {
                0 => self.iterator_loop(),
                _ => self.varying_loop(),
            },
            26 if repeats => self.may_goto_loop(),
            27 | 28 => self.call_function(),
            29 => self.helper(),
            30 if !self.maps.is_empty() => self.map_statement(),
            31 if self.depth > 0 && self.role == Role::Entry && self.rng.one_in(3) => {
                self.early_exit();
            }
            _ if !self.maps.is_empty() => self.map_statement(),
            _ => self.arithmetic(),
        }
    }

    /// A comparison of numbers.
    fn condition(&mut self) -> usize {
        let (wide, op) = (self.rng.one_in(2), self.rng.pick(&CONDITIONS));
        let dst = self.number();
        let src = self.source();
        self.jump(wide, op, dst, src)
    }

    fn body(&mut self) {
        self.depth += 1;
        let n = 1 + self.rng.below(4);
        self.statements(n);
        self.depth -= 1;
    }

    fn branch(&mut self) {
        let skip = self.condition();
        let before = self.kinds;
        self.body();
        if self.rng.one_in(2) {
            let end = self.goto();
            self.land(skip);
            let then = std::mem::replace(&mut self.kinds, before);
            self.body();
            self.land(end);
            self.merge(&then);
        } else {
            self.land(skip);
            self.merge(&before);
        }
    }

    /// A register that holds a pointer on one path and null on the other, and the test that tells
    /// them apart.
    fn pointer_or_null(&mut self) {
        let (by, src) = (self.number(), self.source());
        // An operand may have been made where the other was.
        if self.kinds[by.index()] != Kind::Number {
            return self.arithmetic();
        }
        let mut operands = vec![by];
        if let Source::Reg(src) = src {
            operands.push(src);
        }
        let dst = self.free_but(&operands);
        self.set(dst, 0);
        let (wide, op) = (self.rng.one_in(2), self.rng.pick(&CONDITIONS));
        let null = self.jump(wide, op, by, src);
        if self.kinds[POINTER.index()] == Kind::Pointer && self.rng.one_in(2) {
            self.copy(dst, POINTER);
        } else {
            self.copy(dst, Reg::FP);
            // Also where nothing is ever stored: nobody reads there.
            let words = if self.rng.one_in(2) { STACK / 8 } else { 64 };
            let off = -8 * self.rng.below(words as usize + 1) as i32;
            self.alu(true, AluOp::Add, dst, Source::Imm(off));
        }
        self.land(null);
        self.null_test(dst);
    }

    /// The same of a callback's key, which decides itself: `r2` holds the pointer and `r0` the key.
    fn key_or_null(&mut self) {
        let mask = self.rng.pick(&[1, 2, 3]);
        let dst = reg(8);
        self.set(dst, 0);
        let null = self.jump(true, JumpOp::Set, Reg::R0, Source::Imm(mask));
        self.copy(dst, reg(2));
        self.land(null);
        self.null_test(dst);
    }

    /// Makes a number of whether `dst` is null.
    fn null_test(&mut self, dst: Reg) {
        let op = self.rng.pick(&[JumpOp::Eq, JumpOp::Ne]);
        let skip = self.jump(true, op, dst, Source::Imm(0));
        self.set(dst, 11);
        let end = self.goto();
        self.land(skip);
        self.set(dst, 5);
        self.land(end);
    }

    /// Ends the whole program inside a branch. What follows is reached by the other side only.
    fn early_exit(&mut self) {
        let (kinds, kept) = (self.kinds, self.kept);
        let skip = self.condition();
        self.leave();
        (self.kinds, self.kept) = (kinds, kept);
        self.land(skip);
    }

    /// A body that leaves every register that was a number a number, so that it can be run again.
    fn repeatable_body(&mut self) {
        let before = self.kinds;
        self.loops += 1;
        self.body();
        self.loops -= 1;
        for (n, kind) in (0u8..10).zip(before) {
            if kind == Kind::Number && self.kinds[n as usize] != Kind::Number {
                self.set(reg(n), i32::from(n));
            }
        }
    }

    /// `do { … } while (++i < n)`, counter in a register or on the stack.
    fn counted_loop(&mut self) {
        let rounds = self.rng.between(1, 6) as i32;
        let candidates = [reg(7), reg(8), reg(9)];
        let counter = self.rng.pick(&candidates);
        if self.kept[counter.index()] || self.rng.one_in(4) {
            if self.loops > 0 {
                return self.arithmetic();
            }
            self.store(Width::W64, Reg::FP, COUNTER, Source::Imm(0));
            let head = self.code.len();
            self.repeatable_body();
            let number = self.free();
            self.load(Width::W64, number, Reg::FP, COUNTER);
            self.alu(true, AluOp::Add, number, Source::Imm(1));
            self.store(Width::W64, Reg::FP, COUNTER, Source::Reg(number));
            let back = self.jump(true, JumpOp::Lt, number, Source::Imm(rounds));
            self.aim(back, head);
            return;
        }
        let down = self.rng.one_in(3);
        self.set(counter, if down { rounds } else { 0 });
        self.kept[counter.index()] = true;
        let head = self.code.len();
        self.repeatable_body();
        let wide = self.rng.one_in(2);
        let (step, op, limit) = if down {
            (-1, self.rng.pick(&[JumpOp::Ne, JumpOp::SGt]), 0)
        } else {
            (
                1,
                self.rng.pick(&[JumpOp::Ne, JumpOp::Lt, JumpOp::SLt]),
                rounds,
            )
        };
        self.alu(wide, AluOp::Add, counter, Source::Imm(step));
        let back = self.jump(wide, op, counter, Source::Imm(limit));
        self.aim(back, head);
        self.kept[counter.index()] = false;
    }

    /// `for (i = x & 7; i; i--)`: lanes leave it at different times.
    fn varying_loop(&mut self) {
        let counter = self.rng.pick(&[reg(7), reg(8), reg(9)]);
        if self.kept[counter.index()] {
            return self.arithmetic();
        }
        let from = self.number();
        self.copy(counter, from);
        let mask = self.rng.pick(&[1, 3, 7]);
        self.alu(true, AluOp::And, counter, Source::Imm(mask));
        self.kept[counter.index()] = true;
        let before = self.kinds;
        let head = self.code.len();
        let end = self.jump(true, JumpOp::Eq, counter, Source::Imm(0));
        self.repeatable_body();
        self.alu(true, AluOp::Sub, counter, Source::Imm(1));
        let back = self.goto();
        self.aim(back, head);
        self.land(end);
        self.kinds = before;
        self.kept[counter.index()] = false;
    }

    /// `while (x < n && may_goto)`, or without any condition of its own.
    fn may_goto_loop(&mut self) {
        let before = self.kinds;
        let head = self.code.len();
        let end = self.emit(Insn::MayGoto { target: Pc(0) });
        self.repeatable_body();
        let other = (!self.rng.one_in(3)).then(|| self.condition());
        let after = self.kinds;
        let back = self.goto();
        self.aim(back, head);
        self.land(end);
        self.kinds = before;
        if let Some(at) = other {
            self.land(at);
            self.merge(&after);
        }
    }

    /// `bpf_for(i, start, end)`, as clang writes the open-coded iterator.
    fn iterator_loop(&mut self) {
        if self.iterating {
            return self.arithmetic();
        }
        let start = self.rng.between(-2, 2) as i32;
        if self.rng.one_in(2) {
            let end = start + self.rng.between(-1, 6) as i32;
            self.set(reg(3), end);
        } else {
            let from = self.number();
            self.copy(reg(3), from);
            self.alu(true, AluOp::And, reg(3), Source::Imm(7));
        }
        self.set(reg(2), start);
        self.iterator(KfuncId::IterNumNew);
        let head = self.code.len();
        self.iterator(KfuncId::IterNumNext);
        let at_head = self.kinds;
        let end = self.jump(true, JumpOp::Eq, Reg::R0, Source::Imm(0));
        let number = self.free_but(&[Reg::R0]);
        self.load(Width::W32, number, Reg::R0, 0);
        self.kinds[0] = Kind::Nothing;
        self.iterating = true;
        self.repeatable_body();
        self.iterating = false;
        let back = self.goto();
        self.aim(back, head);
        self.land(end);
        // The first round may have been the last.
        self.kinds = at_head;
        self.iterator(KfuncId::IterNumDestroy);
    }

    /// Calls a function of the iterator on the stack. What it leaves in `r0` is for the caller to
    /// know.
    fn iterator(&mut self, kfunc: KfuncId) {
        self.copy(reg(1), Reg::FP);
        self.alu(true, AluOp::Add, reg(1), Source::Imm(i32::from(ITERATOR)));
        self.emit(Insn::Call {
            callee: Callee::Kfunc(kfunc as u32),
        });
        self.clobber();
        self.kinds[0] = Kind::Nothing;
    }

    /// A call of one of the planned functions, in its way.
    fn call_function(&mut self) {
        let n = self.functions.len() - self.callable.min(self.functions.len());
        if n == 0 || self.loops > 1 {
            return self.arithmetic();
        }
        let index = self.callable + self.rng.below(n);
        match self.functions[index].role {
            Role::Entry => {}
            Role::Plain { numbers } => {
                for n in 0..numbers {
                    let dst = reg(n + 2);
                    let from = self.number();
                    self.copy(dst, from);
                }
                self.pointer_argument(reg(1));
                let at = self.emit(Insn::Call {
                    callee: Callee::Local(Pc(0)),
                });
                self.functions[index].uses.push(at);
            }
            Role::Round => {
                if self.rng.one_in(3) {
                    let rounds = self.rng.between(0, 5) as i32;
                    self.set(reg(1), rounds);
                } else {
                    let from = self.number();
                    self.copy(reg(1), from);
                    self.alu(true, AluOp::And, reg(1), Source::Imm(7));
                }
                self.callback(index, reg(2), reg(3), reg(4));
                self.emit(Insn::Call {
                    callee: Callee::Helper(warpbpf_abi::helpers::HelperId::Loop as u32),
                });
            }
            Role::Element { map } => {
                self.emit(Insn::LoadImm64 {
                    dst: reg(1),
                    value: Imm64::Map(map),
                });
                self.callback(index, reg(2), reg(3), reg(4));
                self.emit(Insn::Call {
                    callee: Callee::Helper(warpbpf_abi::helpers::HelperId::ForEachMapElem as u32),
                });
            }
        }
        self.clobber();
    }

    /// Function, pointer and flags for a helper that calls back.
    fn callback(&mut self, index: usize, function: Reg, context: Reg, flags: Reg) {
        let at = self.emit(Insn::LoadImm64 {
            dst: function,
            value: Imm64::Func(Pc(0)),
        });
        self.functions[index].uses.push(at);
        self.stack_argument(context);
        self.set(flags, 0);
    }

    /// A pointer to 16 bytes: of the stack, or of what this function was given.
    fn pointer_argument(&mut self, dst: Reg) {
        let own = self.areas.iter().find(|area| area.base == POINTER);
        let room = own.map_or(0, |area| (area.high - area.low - 16) / 8);
        if own.is_some() && self.rng.one_in(2) {
            self.copy(dst, POINTER);
            let skip = self.rng.below(room as usize + 1) as i32 * 8;
            self.alu(true, AluOp::Add, dst, Source::Imm(skip));
        } else {
            self.stack_argument(dst);
        }
    }

    fn stack_argument(&mut self, dst: Reg) {
        self.copy(dst, Reg::FP);
        let words = i32::from(STACK / 8) - 1;
        let off = -8 * (2 + self.rng.below(words as usize) as i32);
        self.alu(true, AluOp::Add, dst, Source::Imm(off));
        self.kinds[dst.index()] = Kind::Nothing;
    }
}
