//! Blocks that the tool executes itself: `BEGIN`, `END` and `interval`.

use crate::ast::BinaryOp;
use crate::typed::{Action, Code, Read, Value, What};

/// Rounds of all loops of one block; then it is ended.
pub const MOST_ROUNDS: u64 = 1 << 20;

/// What a block sees and does.
pub trait World {
    /// Nanoseconds of the host's monotonic clock.
    fn now(&mut self) -> u64;
    /// When the script began, on that clock.
    fn start(&mut self) -> u64;
    /// What a map has for a key; 0 if nothing.
    fn read(&mut self, map: usize, key: &[u64]) -> i64;
    /// Does what a request asks for.
    fn request(&mut self, request: usize, values: &[u64]);
}

/// What a statement ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    Break,
    Continue,
    Return,
}

/// Executes a block. False if its loops were ended before they ended themselves.
pub fn execute(code: &Code, world: &mut dyn World) -> bool {
    let mut run = Run {
        world,
        variables: vec![0; code.variables],
        rounds: 0,
    };
    if code
        .filter
        .as_ref()
        .is_some_and(|filter| run.value(filter) == 0)
    {
        return true;
    }
    run.actions(&code.body);
    run.rounds <= MOST_ROUNDS
}

struct Run<'w> {
    world: &'w mut dyn World,
    variables: Vec<i64>,
    rounds: u64,
}

impl Run<'_> {
    fn actions(&mut self, actions: &[Action]) -> Flow {
        for action in actions {
            match self.action(&action.what) {
                Flow::On => {}
                flow => return flow,
            }
        }
        Flow::On
    }

    fn action(&mut self, what: &What) -> Flow {
        match what {
            What::SetVariable { variable, value } => {
                self.variables[*variable] = self.value(value);
            }
            What::Send { request, args } => {
                let values: Vec<u64> = args.iter().map(|arg| self.value(arg) as u64).collect();
                self.world.request(*request, &values);
            }
            What::Evaluate(value) => {
                self.value(value);
            }
            What::If {
                cond,
                then,
                otherwise,
            } => {
                let taken = if self.value(cond) != 0 {
                    then
                } else {
                    otherwise
                };
                return self.actions(taken);
            }
            What::Unroll { count, body } => {
                for _ in 0..*count {
                    if !self.round() {
                        break;
                    }
                    match self.actions(body) {
                        Flow::Break => break,
                        Flow::Return => return Flow::Return,
                        Flow::On | Flow::Continue => {}
                    }
                }
            }
            What::While { cond, body } => {
                while self.value(cond) != 0 && self.round() {
                    match self.actions(body) {
                        Flow::Break => break,
                        Flow::Return => return Flow::Return,
                        Flow::On | Flow::Continue => {}
                    }
                }
            }
            What::For {
                variable,
                from,
                to,
                body,
                ..
            } => {
                self.variables[*variable] = self.value(from);
                let end = self.value(to);
                while self.variables[*variable] < end && self.round() {
                    match self.actions(body) {
                        Flow::Break => break,
                        Flow::Return => return Flow::Return,
                        Flow::On | Flow::Continue => {}
                    }
                    self.variables[*variable] += 1;
                }
            }
            What::Break => return Flow::Break,
            What::Continue => return Flow::Continue,
            What::Return => return Flow::Return,
            // The check refuses these here.
            What::SetMap { .. }
            | What::ChangeMap { .. }
            | What::Aggregate { .. }
            | What::Delete { .. } => {}
        }
        Flow::On
    }

    fn round(&mut self) -> bool {
        self.rounds += 1;
        self.rounds <= MOST_ROUNDS
    }

    fn value(&mut self, value: &Value) -> i64 {
        match value {
            Value::Number(number) => *number,
            Value::Read(Read::Clock) => self.world.now() as i64,
            Value::Read(Read::Elapsed) => {
                self.world.now().saturating_sub(self.world.start()) as i64
            }
            // The check refuses these here.
            Value::Read(_) | Value::StepMap { .. } | Value::Str { .. } | Value::Is { .. } => 0,
            Value::Variable(variable) => self.variables[*variable],
            Value::Map { map, key } => {
                let key: Vec<u64> = key.iter().map(|part| self.value(part) as u64).collect();
                self.world.read(*map, &key)
            }
            Value::Minus(value) => self.value(value).wrapping_neg(),
            Value::Not(value) => i64::from(self.value(value) == 0),
            Value::Complement(value) => !self.value(value),
            Value::Binary(BinaryOp::BothTrue, a, b) => {
                i64::from(self.value(a) != 0 && self.value(b) != 0)
            }
            Value::Binary(BinaryOp::AnyTrue, a, b) => {
                i64::from(self.value(a) != 0 || self.value(b) != 0)
            }
            Value::Binary(op, a, b) => {
                let (a, b) = (self.value(a), self.value(b));
                op.of(a, b)
            }
            Value::Choice(cond, then, otherwise) => match self.value(cond) {
                0 => self.value(otherwise),
                _ => self.value(then),
            },
            Value::StepVariable { variable, by, post } => {
                let before = self.variables[*variable];
                self.variables[*variable] = before.wrapping_add(*by);
                if *post {
                    before
                } else {
                    before.wrapping_add(*by)
                }
            }
        }
    }
}
