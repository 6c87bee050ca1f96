//! Calls, returns and the functions that the emulator provides itself (`vprintf`, `malloc`, `free`,
//! `__assertfail`).

use std::cell::Cell;
use std::sync::PoisonError;

use crate::block::{Block, Env};
use crate::limits::MAX_LOCAL;
use crate::op::{Builtin, Call, Callee, Op, Place};
use crate::position::Position;
use crate::trap::{Exec, Fault, TrapKind};
use crate::warp::{Frame, Group, State, Warp, lanes};
use crate::windows;
use crate::worker::{Flow, Worker};

/// Nested calls per thread.
const MAX_DEPTH: usize = 1024;

/// Why an address cannot be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum NotCallable {
    #[error("this is not the address of a function")]
    NoFunction,
    #[error("this is not the address of a function with a body")]
    NoBody,
    #[error("the function belongs to another module")]
    OtherModule,
    #[error("`{function}` has {declared} parameters, the call passes {passed}")]
    Parameters {
        function: String,
        declared: usize,
        passed: usize,
    },
}

impl Worker<'_> {
    pub(crate) fn call(
        &mut self,
        block: &mut Block,
        warp: &mut Warp,
        running: usize,
        call: &Call,
    ) -> Exec<Flow> {
        let group = warp.groups[running];
        let target = match call.callee {
            Callee::Direct(target) => target,
            Callee::Builtin(builtin) => {
                for lane in lanes(group.mask) {
                    self.builtin(&block.env, warp, group.at, lane, builtin, call)?;
                }
                return Ok(Flow::Go(group.at.pc + 1));
            }
            Callee::Indirect(row) => {
                let row = warp.row(group.at.base, row);
                let first = group.mask.trailing_zeros();
                let address = row[first as usize & 31].get();
                let same = lanes(group.mask)
                    .filter(|&l| row[l].get() == address)
                    .fold(0u32, |bits, l| bits | 1 << l);
                let target = self.function_at(address, call).map_err(|error| {
                    Fault::new(
                        first,
                        TrapKind::InvalidCall,
                        format!("indirect call to {address:#x}: {error}"),
                    )
                })?;
                if same != group.mask {
                    warp.groups.push(Group {
                        mask: group.mask & !same,
                        ..group
                    });
                    warp.groups[running].mask = same;
                }
                target
            }
        };
        self.enter(warp, running, target, call)?;
        Ok(Flow::Choose)
    }

    fn function_at(&self, address: u64, call: &Call) -> Result<u32, NotCallable> {
        let Some((module, index)) = windows::function_at(address) else {
            return Err(NotCallable::NoFunction);
        };
        if module != self.run.module_id {
            return Err(NotCallable::OtherModule);
        }
        let target = self.run.program.by_module_index.get(&index).copied();
        let target = target.ok_or(NotCallable::NoBody)?;
        let function = &self.run.program.functions[target as usize];
        if function.params.len() != call.arguments.len()
            || function.returns.len() < call.results.len()
        {
            return Err(NotCallable::Parameters {
                function: function.name.clone(),
                declared: function.params.len(),
                passed: call.arguments.len(),
            });
        }
        Ok(target)
    }

    fn enter(&mut self, warp: &mut Warp, running: usize, target: u32, call: &Call) -> Exec<()> {
        let Group { mask, at, .. } = warp.groups[running];
        let caller = &self.run.program.functions[at.function as usize];
        let callee = &self.run.program.functions[target as usize];
        let new = Position {
            base: at.base + caller.rows,
            local: at.local + caller.frame,
            function: target,
            pc: 0,
        };
        let lane = mask.trailing_zeros();
        if warp.stacks.is_empty() {
            warp.stacks.resize_with(32, Vec::new);
        }
        if warp.stacks[lane as usize & 31].len() >= MAX_DEPTH {
            let message = format!(
                "call of `{}` is more than {MAX_DEPTH} calls deep",
                callee.name
            );
            return Err(Fault::new(lane, TrapKind::StackOverflow, message));
        }
        if new.local + callee.frame > MAX_LOCAL {
            let message = format!(
                "call of `{}` needs more than {MAX_LOCAL} bytes of local memory",
                callee.name
            );
            return Err(Fault::new(lane, TrapKind::StackOverflow, message));
        }
        // An empty callee frame still ends local memory there, so that a returned frame's bytes are
        // gone.
        warp.open_frame(new.base, callee.rows, new.local, callee.frame, mask);
        for (&from, &to) in call.arguments.iter().zip(&callee.params) {
            lanes(mask).for_each(|lane| transfer(warp, lane, (at, from), (new, to)));
        }
        for lane in lanes(mask) {
            let dynamic = warp.dynamic.get(lane).map_or(0, Vec::len) as u32;
            warp.stacks[lane].push(Frame {
                at: Position {
                    pc: at.pc + 1,
                    ..at
                },
                call: at.pc,
                dynamic,
            });
        }
        warp.groups[running].at = new;
        Ok(())
    }

    pub(crate) fn ret(&mut self, block: &mut Block, warp: &mut Warp, running: usize) -> Exec<Flow> {
        let Group { mask, at, .. } = warp.groups[running];
        let first = mask.trailing_zeros() as usize & 31;
        let Some(frame) = warp
            .stacks
            .get(first)
            .and_then(|stack| stack.last())
            .copied()
        else {
            self.exit_lanes(block, warp, running);
            return Ok(Flow::Choose);
        };
        let together = lanes(mask)
            .filter(|&lane| {
                warp.stacks[lane]
                    .last()
                    .is_some_and(|f| f.at == frame.at && f.call == frame.call)
            })
            .fold(0u32, |bits, lane| bits | 1 << lane);
        if together != mask {
            warp.groups.push(Group {
                mask: mask & !together,
                at,
                state: State::Ready,
            });
        }
        let returns = &self.run.program.functions[at.function as usize].returns;
        let code = &self.run.program.functions[frame.at.function as usize].code;
        if let Op::Call(call) = &code[frame.call as usize].op {
            for (&from, &to) in returns.iter().zip(call.results.iter()) {
                lanes(together).for_each(|lane| transfer(warp, lane, (at, from), (frame.at, to)));
            }
        }
        for lane in lanes(together) {
            let popped = warp.stacks[lane].pop();
            if let (Some(frame), Some(dynamic)) = (popped, warp.dynamic.get_mut(lane)) {
                dynamic.truncate(frame.dynamic as usize);
            }
            if let Some(local) = warp.local.get_mut(lane) {
                local.truncate(at.local as usize / 8);
            }
        }
        warp.groups[running] = Group {
            mask: together,
            at: frame.at,
            state: State::Ready,
        };
        Ok(Flow::Choose)
    }

    fn builtin(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        lane: usize,
        builtin: Builtin,
        call: &Call,
    ) -> Exec<()> {
        let argument = |i: usize| {
            call.arguments
                .get(i)
                .map_or(0, |&place| fetch(warp, lane, at, place))
        };
        let result = match builtin {
            Builtin::Vprintf => {
                let format = self.text(env, warp, lane, argument(0))?;
                let (text, count) = self.format(env, warp, lane, &format, argument(1))?;
                env.printed.borrow_mut().extend_from_slice(&text);
                count
            }
            Builtin::Malloc => {
                let address = self.run.memory.alloc(argument(0)).unwrap_or(0);
                if address != 0 {
                    self.run
                        .heap
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .insert(address);
                }
                address
            }
            Builtin::Free => {
                let address = argument(0);
                let known = self
                    .run
                    .heap
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&address);
                if address != 0 && (!known || self.run.memory.free(address).is_err()) {
                    let message =
                        format!("`free` of {address:#x}, which device `malloc` did not return");
                    return Err(Fault::new(lane as u32, TrapKind::InvalidFree, message));
                }
                0
            }
            Builtin::AssertFail => {
                let mut text = |i| self.text(env, warp, lane, argument(i));
                let (message, file, function) = (text(0)?, text(1)?, text(3)?);
                let message = format!(
                    "{}:{}: {}: assertion `{}` failed",
                    String::from_utf8_lossy(&file),
                    argument(2) as u32,
                    String::from_utf8_lossy(&function),
                    String::from_utf8_lossy(&message)
                );
                return Err(Fault::new(lane as u32, TrapKind::Assert, message));
            }
            Builtin::ParameterBuffer => {
                let [grid, block] = [1, 2].map(|n| triple(warp, lane, at, call.arguments.get(n)));
                self.parameter_buffer(argument(0), grid, block, argument(3) as u32)
            }
            Builtin::LaunchDevice => u64::from(self.launch_device(argument(0))),
            Builtin::LastError => 0,
            Builtin::SetConditional => {
                let (handle, value) = (argument(0), argument(1) as u32);
                if self.run.memory.write(handle, &value.to_le_bytes()).is_err() {
                    let message = format!("{handle:#x} is no handle of a conditional node");
                    return Err(Fault::new(
                        lane as u32,
                        TrapKind::InvalidDescriptor,
                        message,
                    ));
                }
                0
            }
        };
        if let Some(&place) = call.results.first() {
            deliver(warp, lane, at, place, result);
        }
        Ok(())
    }
}

/// Copies a parameter of one lane from a place in one frame to a place in another.
fn transfer(
    warp: &Warp,
    lane: usize,
    (from_at, from): (Position, Place),
    (to_at, to): (Position, Place),
) {
    if let (
        Place::Frame {
            offset: from,
            size: a,
        },
        Place::Frame {
            offset: to,
            size: b,
        },
    ) = (from, to)
    {
        for i in 0..a.min(b) {
            let byte = byte_of(warp, lane, from_at.local + from + i);
            set_byte(warp, lane, to_at.local + to + i, byte);
        }
    } else {
        deliver(warp, lane, to_at, to, fetch(warp, lane, from_at, from));
    }
}

/// A `dim3`.
fn triple(warp: &Warp, lane: usize, at: Position, place: Option<&Place>) -> [u32; 3] {
    let Some(&Place::Frame { offset, .. }) = place else {
        return [0; 3];
    };
    [0, 4, 8].map(|by| {
        let offset = offset + by;
        fetch(warp, lane, at, Place::Frame { offset, size: 4 }) as u32
    })
}

/// The value at a place, of at most 8 bytes.
fn fetch(warp: &Warp, lane: usize, at: Position, place: Place) -> u64 {
    match place {
        Place::Row(row) => warp.row(at.base, row)[lane].get(),
        Place::Frame { offset, size } => (0..size.min(8)).fold(0, |value, i| {
            value | u64::from(byte_of(warp, lane, at.local + offset + i)) << (8 * i)
        }),
    }
}

fn deliver(warp: &Warp, lane: usize, at: Position, place: Place, value: u64) {
    match place {
        Place::Row(row) => warp.row(at.base, row)[lane].set(value),
        Place::Frame { offset, size } => {
            (0..size.min(8)).for_each(|i| {
                set_byte(warp, lane, at.local + offset + i, (value >> (8 * i)) as u8)
            });
        }
    }
}

fn word(warp: &Warp, lane: usize, offset: u32) -> Option<&Cell<u64>> {
    warp.local.get(lane)?.get(offset as usize / 8)
}

fn byte_of(warp: &Warp, lane: usize, offset: u32) -> u8 {
    word(warp, lane, offset).map_or(0, |word| word.get().to_ne_bytes()[offset as usize % 8])
}

fn set_byte(warp: &Warp, lane: usize, offset: u32, byte: u8) {
    if let Some(word) = word(warp, lane, offset) {
        let mut bytes = word.get().to_ne_bytes();
        bytes[offset as usize % 8] = byte;
        word.set(u64::from_ne_bytes(bytes));
    }
}
