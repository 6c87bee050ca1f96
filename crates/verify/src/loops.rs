//! Loops whose rounds something else counts: helpers that call back, iterators over numbers, and
//! `may_goto`.
//!
//! Few rounds of a known number are followed one by one, with exact counters. Else the state says
//! nothing of the count: any number of rounds may have been made, and may follow, and only the
//! bound on the cost multiplies ([`crate::bound`]).

use warpbpf_abi::helpers::{Helper, HelperId};
use warpbpf_abi::kfuncs::{KfuncId, MAX_LOOPS};
use warpbpf_abi::layout::UserRingLayout;
use warpbpf_abi::maps::EINVAL;
use warpbpf_ebpf::{Pc, Reg};

use crate::check::{memory_writable, readable};
use crate::domain::pointer::{Pointer, Target, Value};
use crate::domain::scalar::Scalar;
use crate::domain::stack::FRAME_BYTES;
use crate::domain::state::{Frame, Given, Iter, Looping};
use crate::effect::clobber;
use crate::env::place_of;
use crate::event::{Event, Point, Token};
use crate::explorer::{Explorer, Method, Onward, Path};
use crate::facts::{ArgFact, CallFact};
use crate::rule::Rule;
use crate::transfer::Compared;

/// Up to so many rounds are followed one by one.
const EXACT_TRIPS: u64 = 32;
/// What `may_goto` costs: the test, the count and the jump.
const MAY_GOTO_COST: u64 = 3;
/// What a helper spends around each call back: counting, the test of its result, the jump.
const ROUND_COST: u64 = 6;
/// What it spends besides for an element of a hash, to find the key and the value in its node. The
/// slots that it looks through are counted at the call: see [`crate::budget`].
const NODE_COST: u64 = 11;
/// What it spends besides for a sample: to look at its header and to move on behind it.
const SAMPLE_COST: u64 = 48;
/// What a call for an iterator costs.
const ITERATOR_COST: u64 = 8;

impl Explorer<'_, '_, '_> {
    /// Either side may always be taken.
    pub(crate) fn may_goto(
        &mut self,
        path: &mut Path,
        instance: usize,
        target: Pc,
    ) -> Result<Onward, Rule> {
        self.spend(path, MAY_GOTO_COST)?;
        self.gather
            .branch(instance, path.pc, true, true, Compared::Zeros)?;
        let jumps = Event::Branch {
            pc: path.pc,
            taken: true,
        };
        let falls = Event::Took(Token::MayGoto(instance));
        let next = path.pc.next();
        self.fork(path, [jumps, falls], |side, first| {
            side.pc = if first { target } else { next };
        });
        Ok(Onward::Goes)
    }

    /// The path becomes two with these events: the first waits, the second is `path`. `change`
    /// makes each of them.
    fn fork(&mut self, path: &mut Path, events: [Event; 2], change: impl Fn(&mut Path, bool)) {
        let [waits, goes] = self.paths.fork(path.node, events, path.cost);
        let mut other = Path {
            state: path.state.clone(),
            pc: path.pc,
            cost: path.cost,
            node: waits,
        };
        change(&mut other, true);
        self.wait(other);
        path.node = goes;
        change(path, false);
    }

    /// A checked call of a helper that calls back.
    pub(crate) fn call_back(
        &mut self,
        path: &mut Path,
        instance: usize,
        helper: &Helper,
        fact: &CallFact,
    ) -> Result<Onward, Rule> {
        let pc = path.pc;
        let arg = |i: usize| *path.state.reg(Reg::all().nth(i).unwrap_or(Reg::R1));
        let (function, context) = (arg(2), arg(3));
        let Value::Pointer(Pointer {
            target: Target::Function(function),
            ..
        }) = function
        else {
            return Err(Rule::CallsNowhere { target: u32::MAX });
        };
        let known = |i: usize| match fact.args[i] {
            ArgFact::Scalar { value, .. } => value,
            _ => None,
        };
        let mut may_fail = known(3) != Some(0);
        let (given, least, most) = match helper.kind {
            HelperId::ForEachMapElem => {
                let map = fact.map.unwrap_or(0);
                let (def, map_type) = self.env.map(map)?;
                let entries = def.max_entries;
                let least = if map_type.is_hash() { 0 } else { entries };
                (Given::Element(map), least, entries)
            }
            HelperId::UserRingbufDrain => {
                // Another thread may be draining.
                may_fail = true;
                let map = fact.map.unwrap_or(0);
                (Given::Sample(map), 0, UserRingLayout::SAMPLES)
            }
            _ => {
                // The number is 32 bits wide.
                let count = arg(1)
                    .scalar()
                    .map_or(Scalar::UNKNOWN, |count| count.zero_extend(32));
                may_fail |= count.u64.max > u64::from(MAX_LOOPS);
                let bounded = |n: u64| n.min(u64::from(MAX_LOOPS)) as u32;
                (
                    Given::Number,
                    bounded(count.u64.min),
                    bounded(count.u64.max),
                )
            }
        };
        self.callee(path, instance, function)?;
        clobber(&mut path.state, pc);
        self.forget(path, instance, pc.next());
        // How many samples there are, nobody knows.
        let countable = !matches!(given, Given::Sample(_));
        let exact = countable && u64::from(most) <= EXACT_TRIPS && self.method == Method::Exact;
        let held = path.state.held.len();
        path.state.top_mut().looping = Some(Looping {
            function,
            given,
            done: exact.then_some(0),
            least,
            most,
            may_fail,
            context,
            held,
        });
        let token = Token::Callback(instance, pc);
        let trips = self.trips.entry(token).or_insert(0);
        *trips = (*trips).max(u64::from(most));
        path.node = self.paths.extend(path.node, Event::Fresh(token), path.cost);
        self.between_calls(path)
    }

    /// A callback returns `result` to its helper.
    pub(crate) fn called_back(
        &mut self,
        path: &mut Path,
        looping: &Looping,
        result: &Value,
    ) -> Result<Onward, Rule> {
        let found = match result {
            Value::Number { scalar, .. } if scalar.u64.max <= 1 => scalar,
            Value::Number { .. } | Value::Pointer(_) => {
                return Err(Rule::CallbackResult {
                    found: self.env.value(result),
                });
            }
            Value::Nothing(_) => {
                readable(self.env, &path.state, Reg::R0)?;
                return Ok(Onward::Ends);
            }
        };
        if path.state.held.len() > looping.held {
            self.nothing_held_since(path, looping.held)?;
        }
        let (stops, goes) = (found.u64.max == 1, found.u64.min == 0);
        let Some(frame) = path.state.pop() else {
            return Ok(Onward::Ends);
        };
        // Back at the helper call.
        path.pc = Pc(frame.return_to.0 - 1);
        let mut done = None;
        if let Some(looping) = &mut path.state.top_mut().looping {
            looping.done = looping.done.map(|done| done + 1);
            done = looping.done;
        }
        // Where it may stop anyway, the head sees to that.
        let stops_anyway = goes && done.is_none_or(|done| done >= looping.least);
        match (stops && !stops_anyway, goes) {
            (true, true) => {
                let helper = |p: &mut Path, first| {
                    if first {
                        leave_helper(p);
                    }
                };
                self.fork(path, [Event::Way, Event::Way], helper);
                self.between_calls(path)
            }
            (true, false) => {
                leave_helper(path);
                Ok(Onward::Goes)
            }
            (false, _) => self.between_calls(path),
        }
    }

    /// In a helper that calls back, before the first call or between two: it may return or call
    /// once more.
    fn between_calls(&mut self, path: &mut Path) -> Result<Onward, Rule> {
        let (pc, instance) = (path.pc, path.state.top().instance);
        let Some(looping) = path.state.top().looping else {
            return Ok(Onward::Ends);
        };
        let point = Point {
            instance,
            pc,
            inside: true,
            head: true,
        };
        if self.meet(path, point)? {
            return Ok(Onward::Covered);
        }
        // As in Linux, not calling at all is always thought possible.
        let returns = looping
            .done
            .is_none_or(|done| done == 0 || done >= looping.least);
        let calls = looping.done.unwrap_or(0) < looping.most;
        if !calls {
            leave_helper(path);
            return Ok(Onward::Goes);
        }
        let took = Event::Took(Token::Callback(instance, pc));
        if returns {
            self.fork(path, [Event::Way, took], |p, first| {
                if first {
                    leave_helper(p);
                }
            });
        } else {
            path.node = self.paths.extend(path.node, took, path.cost);
        }
        self.enter_callback(path, instance, &looping)
    }

    fn enter_callback(
        &mut self,
        path: &mut Path,
        instance: usize,
        looping: &Looping,
    ) -> Result<Onward, Rule> {
        let pc = path.pc;
        let callee = self.callee(path, instance, looping.function)?;
        let mut frame = Frame::new(callee, path.state.frames.len() as u32, pc.next());
        let mut spent = ROUND_COST;
        match looping.given {
            Given::Number => {
                frame.regs[1] = Value::number(match looping.done {
                    Some(done) => Scalar::constant(u64::from(done)),
                    None => Scalar::range(0, u64::from(looping.most.saturating_sub(1))),
                });
                frame.regs[2] = looping.context;
            }
            Given::Element(map) => {
                frame.regs[1] = Value::pointer(Target::Map(map));
                frame.regs[2] = Value::pointer(Target::MapKey(map));
                frame.regs[3] = Value::pointer(Target::MapValue(map));
                frame.regs[4] = looping.context;
                if matches!(self.env.map(map), Ok((_, map_type)) if map_type.is_hash()) {
                    spent += NODE_COST;
                }
            }
            Given::Sample(map) => {
                let depth = path.state.frames.len() as u32;
                frame.regs[1] = Value::pointer(Target::Dynptr { map, frame: depth });
                frame.regs[2] = looping.context;
                spent += SAMPLE_COST;
            }
        }
        self.spend(path, spent)?;
        path.state.frames.push(frame);
        path.node = self.paths.extend(path.node, Event::Call(pc), path.cost);
        self.fresh_rounds(path, callee);
        path.pc = looping.function;
        Ok(Onward::Goes)
    }

    /// A call of an iterator function.
    pub(crate) fn call_iterator(
        &mut self,
        path: &mut Path,
        instance: usize,
        number: u32,
    ) -> Result<Onward, Rule> {
        let Some(kfunc) = KfuncId::from_number(number) else {
            return Ok(Onward::Ends);
        };
        let pc = path.pc;
        self.spend(path, ITERATOR_COST)?;
        readable(self.env, &path.state, Reg::R1)?;
        let (pointer, frame, slot) = self.iterator_slot(path, kfunc)?;
        if let Some(place) = place_of(&pointer) {
            self.gather.access(self.env, instance, pc, place)?;
        }
        self.gather.touched(&pointer, &path.state.frames)?;
        let made = path
            .state
            .iter_in(frame, i64::from(slot), i64::from(slot) + 8)
            .copied();
        let next = pc.next();
        match (kfunc, made) {
            (KfuncId::IterNumNew, None) => {
                memory_writable(self.env, &path.state, Reg::R1, 8, 8)?;
                self.new_iterator(path, (instance, pc), frame, slot)?;
            }
            (KfuncId::IterNumNew, Some(iter)) => {
                return Err(Rule::IteratorBytes {
                    access: "making an iterator".to_owned(),
                    place: self.env.place(&pointer),
                    slot: self.env.code.slot(iter.made_at.1),
                });
            }
            (KfuncId::IterNumNext | KfuncId::IterNumDestroy, None) => {
                return Err(self.no_iterator_at(path, kfunc));
            }
            (KfuncId::IterNumNext, Some(iter)) => {
                clobber(&mut path.state, pc);
                // Both ways go on there.
                path.pc = next;
                self.next_number(path, &iter);
            }
            (KfuncId::IterNumDestroy, Some(_)) => {
                clobber(&mut path.state, pc);
                path.state.destroy(frame, slot, pc);
            }
        }
        path.pc = next;
        Ok(Onward::Goes)
    }

    /// The pointer in `r1`, and the slot that it points to.
    fn iterator_slot(&self, path: &Path, kfunc: KfuncId) -> Result<(Pointer, u32, i16), Rule> {
        let Value::Pointer(pointer) = path.state.reg(Reg::R1) else {
            return Err(self.no_iterator_at(path, kfunc));
        };
        match (pointer.target, pointer.fixed()) {
            (Target::Stack(frame), Some(at))
                if !pointer.nullable && at % 8 == 0 && (-FRAME_BYTES..=-8).contains(&at) =>
            {
                Ok((*pointer, frame, at as i16))
            }
            _ => Err(self.no_iterator_at(path, kfunc)),
        }
    }

    fn no_iterator_at(&self, path: &Path, kfunc: KfuncId) -> Rule {
        Rule::IteratorArgument {
            function: kfunc.name(),
            expected: match kfunc {
                KfuncId::IterNumNew => "8 bytes of the stack",
                KfuncId::IterNumNext | KfuncId::IterNumDestroy => {
                    "an iterator that `bpf_iter_num_new` made"
                }
            },
            found: self.env.value(path.state.reg(Reg::R1)),
        }
    }

    fn new_iterator(
        &mut self,
        path: &mut Path,
        made_at: (usize, Pc),
        frame: u32,
        slot: i16,
    ) -> Result<(), Rule> {
        let (instance, pc) = made_at;
        let mut bounds = [Scalar::UNKNOWN; 2];
        for (reg, bound) in Reg::all().skip(2).zip(&mut bounds) {
            readable(self.env, &path.state, reg)?;
            match path.state.reg(reg) {
                Value::Number { scalar, .. } => *bound = *scalar,
                Value::Pointer(p) => {
                    return Err(Rule::PointerArithmetic {
                        op: "bpf_iter_num_new",
                        reg: reg.to_string(),
                        pointer: self.env.pointer(p),
                    });
                }
                Value::Nothing(_) => {}
            }
        }
        let [start, end] = bounds.map(|bound| bound.s32);
        let (low, high) = (i64::from(start.min), i64::from(end.max));
        let most = i64::from(MAX_LOOPS);
        let fails = start.max > end.min || high - low > most;
        let trips = (high - low).clamp(0, most) as u64;
        let exact = start.min == start.max && trips <= EXACT_TRIPS && self.method == Method::Exact;
        clobber(&mut path.state, pc);
        let result = if fails {
            Scalar::signed_range(EINVAL, 0)
        } else {
            Scalar::constant(0)
        };
        path.state.set(Reg::R0, Value::number(result));
        let offset = i64::from(slot);
        path.state.overwrite_dynptrs(frame, offset, offset + 8);
        if let Some(frame) = path.state.frames.get_mut(frame as usize) {
            frame.stack.unwrite(offset, offset + 8);
        }
        path.state.iters.push(Iter {
            frame,
            slot,
            made_at,
            low,
            high,
            least_end: if fails { i64::MIN } else { i64::from(end.min) },
            next: exact.then_some(low),
            drained: high <= low,
        });
        let token = Token::Iterator(instance, pc, frame, slot);
        let known = self.trips.entry(token).or_insert(0);
        *known = (*known).max(trips);
        path.node = self.paths.extend(path.node, Event::Fresh(token), path.cost);
        Ok(())
    }

    /// The next number, or null at the end.
    fn next_number(&mut self, path: &mut Path, iter: &Iter) {
        let same = |other: &Iter| (other.frame, other.slot) == (iter.frame, iter.slot);
        let ends = iter.drained || iter.next.is_none_or(|next| next >= iter.least_end);
        let gives = !iter.drained && iter.next.is_none_or(|next| next < iter.high);
        let end = |p: &mut Path| {
            p.state.set(Reg::R0, Value::constant(0));
            for other in p.state.iters.iter_mut().filter(|i| same(i)) {
                other.drained = true;
                other.next = None;
            }
        };
        let give = |p: &mut Path| {
            let (frame, slot) = (iter.frame, iter.slot);
            p.state
                .set(Reg::R0, Value::pointer(Target::Number { frame, slot }));
            for other in p.state.iters.iter_mut().filter(|i| same(i)) {
                other.next = other.next.map(|next| next + 1);
            }
        };
        let (instance, pc) = iter.made_at;
        let took = Event::Took(Token::Iterator(instance, pc, iter.frame, iter.slot));
        match (ends, gives) {
            (true, true) => self.fork(path, [Event::Way, took], |p, first| {
                if first {
                    end(p);
                } else {
                    give(p);
                }
            }),
            (false, true) => {
                path.node = self.paths.extend(path.node, took, path.cost);
                give(path);
            }
            (_, false) => end(path),
        }
    }
}

/// The helper returns: how often it called, or why it did not.
fn leave_helper(path: &mut Path) {
    let Some(looping) = path.state.top_mut().looping.take() else {
        return;
    };
    let calls = match looping.done {
        Some(done) if !looping.may_fail => Scalar::constant(u64::from(done)),
        _ => {
            let least = if looping.may_fail { EINVAL } else { 0 };
            Scalar::signed_range(least, i64::from(looping.most))
        }
    };
    path.state.set(Reg::R0, Value::number(calls));
    path.pc = path.pc.next();
}
