//! What the proof does, step by step, for `verify --log`: the state before each instruction that it
//! looks at.

use warpbpf_ebpf::{Pc, Reg, disasm};

use crate::domain::pointer::Value;
use crate::domain::stack::Stack;
use crate::domain::state::State;
use crate::env::Env;

/// Who listens.
pub type Logger<'l> = &'l mut dyn FnMut(&LogStep);

/// The state before one instruction on one path. Paths are followed one after the other; where one
/// ends, the next step is that of another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogStep {
    /// How often the proof was begun, counted from 1: a second time with states joined, a third
    /// with more effort.
    pub pass: u32,
    /// The instruction.
    pub pc: Pc,
    /// The same as a slot number.
    pub slot: u32,
    /// Its text.
    pub insn: String,
    /// Call depth: 0 in the entry function.
    pub depth: u32,
    /// Instructions executed before on this path.
    pub cost: u64,
    /// The registers that hold something, with what.
    pub registers: Vec<(Reg, String)>,
    /// What the step before changed in this frame's stack: offset from `r10`, bytes, and what they
    /// hold now.
    pub stack: Vec<(i64, u32, String)>,
}

impl LogStep {
    /// The step at `pc`; `told` is the stack of the step before.
    pub(crate) fn new(
        env: &Env<'_>,
        state: &State,
        pc: Pc,
        cost: u64,
        pass: u32,
        told: &Stack,
    ) -> LogStep {
        let held = |reg: &Reg| !matches!(state.reg(*reg), Value::Nothing(_));
        let registers = Reg::all().filter(held);
        let stack = state.top().stack.cells();
        let changed = stack.filter(|cell| !told.cells().any(|old| old == *cell));
        LogStep {
            pass,
            pc,
            slot: env.code.slot(pc),
            insn: disasm::disassemble(env.code, pc),
            depth: state.depth(),
            cost,
            registers: registers
                .map(|reg| (reg, env.value(state.reg(reg))))
                .collect(),
            stack: changed
                .map(|cell| {
                    (
                        i64::from(cell.offset),
                        u32::from(cell.size),
                        env.value(&cell.value),
                    )
                })
                .collect(),
        }
    }
}
