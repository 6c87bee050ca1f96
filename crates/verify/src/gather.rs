//! Collects what the paths learn about each instruction into the [`Facts`] that hold on all of
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use warpbpf_abi::helpers::HelperId;
use warpbpf_ebpf::{Callee, Code, Insn, Pc};

use crate::domain::pointer::{Pointer, Target};
use crate::domain::stack::FRAME_BYTES;
use crate::domain::state::Frame;
use crate::env::Env;
use crate::facts::{ArgFact, CallFact, Facts, InsnFact, Instance, Place, Region};
use crate::rule::Rule;
use crate::transfer::Compared;

/// Instructions that a program may have when every call is inlined: the code generator inlines them
/// all.
const INLINED_LIMIT: usize = 1 << 16;
/// Bytes of stack that a chain of calls may use.
const STACK_LIMIT: u32 = 512;

/// Facts being collected.
#[derive(Debug, Default)]
pub struct Gather {
    instances: Vec<Building>,
    insns: usize,
    modifies: bool,
}

#[derive(Debug)]
struct Building {
    range: Range<u32>,
    caller: Option<(usize, Pc)>,
    frame: u32,
    facts: Vec<Fact>,
    calls: BTreeMap<Pc, usize>,
    /// Bytes below the frame pointer that were used.
    stack: i64,
}

#[derive(Clone, Debug)]
enum Fact {
    Dead,
    Plain,
    Access(Place),
    Call(CallFact),
    Branch {
        taken: bool,
        falls: bool,
        pointer: bool,
        number: bool,
    },
}

impl Gather {
    /// A new instance of the function in `range`, called from there.
    ///
    /// # Errors
    /// [`Rule::TooLarge`].
    pub fn instance(
        &mut self,
        range: &Range<u32>,
        frame: u32,
        caller: Option<(usize, Pc)>,
    ) -> Result<usize, Rule> {
        self.inlined(range)?;
        self.instances.push(Building {
            range: range.clone(),
            caller,
            frame,
            facts: vec![Fact::Dead; range.len()],
            calls: BTreeMap::new(),
            stack: 0,
        });
        let index = self.instances.len() - 1;
        if let Some((caller, pc)) = caller {
            self.instances[caller].calls.insert(pc, index);
        }
        Ok(index)
    }

    /// One more instance of the function in `range` is counted.
    fn inlined(&mut self, range: &Range<u32>) -> Result<(), Rule> {
        self.insns += range.len();
        if self.insns > INLINED_LIMIT {
            return Err(Rule::TooLarge {
                limit: INLINED_LIMIT,
            });
        }
        Ok(())
    }

    /// The instance that a call leads to, if some path has gone there.
    pub fn callee(&self, caller: usize, pc: Pc) -> Option<usize> {
        self.instances[caller].calls.get(&pc).copied()
    }

    /// The function of an instance.
    pub fn range(&self, instance: usize) -> &Range<u32> {
        &self.instances[instance].range
    }

    fn slot(&mut self, instance: usize, pc: Pc) -> &mut Fact {
        let building = &mut self.instances[instance];
        &mut building.facts[(pc.0 - building.range.start) as usize]
    }

    /// A path reaches the instruction.
    pub fn reached(&mut self, instance: usize, pc: Pc) {
        let fact = self.slot(instance, pc);
        if matches!(fact, Fact::Dead) {
            *fact = Fact::Plain;
        }
    }

    /// The instruction accesses this place on some path.
    ///
    /// # Errors
    /// [`Rule::Mixed`] if it accesses another region on another path.
    pub fn access(
        &mut self,
        env: &Env<'_>,
        instance: usize,
        pc: Pc,
        place: Place,
    ) -> Result<(), Rule> {
        let fact = self.slot(instance, pc);
        *fact = match fact {
            Fact::Access(old) => Fact::Access(join_place(env, *old, place)?),
            Fact::Dead | Fact::Plain | Fact::Call(_) | Fact::Branch { .. } => Fact::Access(place),
        };
        Ok(())
    }

    /// The instruction makes this call on some path.
    ///
    /// # Errors
    /// [`Rule::Mixed`] if an argument is another map or region on another path.
    pub fn call(
        &mut self,
        env: &Env<'_>,
        instance: usize,
        pc: Pc,
        call: &CallFact,
    ) -> Result<(), Rule> {
        let fact = self.slot(instance, pc);
        let joined = match fact {
            Fact::Call(old) => {
                // Two texts are told by what they say, rather than by where they are.
                let text = join_text(old.text.as_ref(), call.text.as_ref())?;
                let mut args = old.args;
                for (i, (old, new)) in args.iter_mut().zip(&call.args).enumerate() {
                    let (before, now) = (*old, *new);
                    *old = join_arg(env, before, now)?;
                    if is_one_constant(call.helper, i) && before != now {
                        return Err(Rule::Mixed {
                            first: constant_text(env, before),
                            second: constant_text(env, now),
                        });
                    }
                }
                CallFact {
                    helper: call.helper,
                    map: join_map(env, old.map, call.map)?,
                    args,
                    memory: join_memory(env, old.memory, call.memory)?,
                    strings: join_strings(env, old.strings.as_ref(), call.strings.as_ref())?,
                    text,
                }
            }
            Fact::Dead | Fact::Plain | Fact::Access(_) | Fact::Branch { .. } => call.clone(),
        };
        *fact = Fact::Call(joined);
        Ok(())
    }

    /// The conditional jump goes these ways on some path.
    ///
    /// # Errors
    /// [`Rule::Mixed`] if it compares pointers on one path and numbers on another.
    pub fn branch(
        &mut self,
        instance: usize,
        pc: Pc,
        taken: bool,
        falls: bool,
        compared: Compared,
    ) -> Result<(), Rule> {
        let fact = self.slot(instance, pc);
        let (mut all_taken, mut all_falls, mut pointer, mut number) = match fact {
            Fact::Branch {
                taken,
                falls,
                pointer,
                number,
            } => (*taken, *falls, *pointer, *number),
            Fact::Dead | Fact::Plain | Fact::Access(_) | Fact::Call(_) => {
                (false, false, false, false)
            }
        };
        all_taken |= taken;
        all_falls |= falls;
        match compared {
            Compared::Pointer => pointer = true,
            Compared::Numbers => number = true,
            Compared::Zeros => {}
        }
        if pointer && number {
            return Err(Rule::Mixed {
                first: "a pointer".to_owned(),
                second: "a number".to_owned(),
            });
        }
        *fact = Fact::Branch {
            taken: all_taken,
            falls: all_falls,
            pointer,
            number,
        };
        Ok(())
    }

    /// The program can change the application.
    pub fn modifies(&mut self) {
        self.modifies = true;
    }

    /// A pointer is used for an access while `frames` run: how deep does that stack go.
    ///
    /// # Errors
    /// [`Rule::StackTooDeep`] at once, not only in [`finish`](Self::finish): it bounds what a state
    /// holds.
    pub fn touched(&mut self, pointer: &Pointer, frames: &[Frame]) -> Result<(), Rule> {
        let Target::Stack(frame) = pointer.target else {
            return Ok(());
        };
        if let Some(frame) = frames.get(frame as usize) {
            let depth = -pointer.offset.s64.min;
            let stack = &mut self.instances[frame.instance].stack;
            *stack = (*stack).max(depth);
        }
        match self.too_deep(frames) {
            Some((_, bytes)) => Err(Rule::StackTooDeep { bytes }),
            None => Ok(()),
        }
    }

    /// The first of `frames` whose stack, with those of its callers, passes the limit, and the
    /// bytes of them all.
    pub fn too_deep(&self, frames: &[Frame]) -> Option<(usize, u32)> {
        let mut bytes = 0;
        frames.iter().enumerate().find_map(|(at, frame)| {
            // Nothing is known of a function that was refused for its size.
            let instance = self.instances.get(frame.instance);
            bytes += instance.map_or(0, Building::stack_bytes);
            (bytes > STACK_LIMIT).then_some((at, bytes))
        })
    }

    /// The facts.
    ///
    /// # Errors
    /// [`Rule::StackTooDeep`] or [`Rule::TooLarge`], with the call at which the limit is passed.
    pub fn finish(
        mut self,
        env: &Env<'_>,
        functions: &[Range<u32>],
        cost: u64,
        may_goto_rounds: u32,
    ) -> Result<Facts, (Rule, Pc)> {
        let mut deepest = 0;
        let mut depths: Vec<u32> = Vec::new();
        for building in &self.instances {
            let own = building.stack_bytes();
            let caller = building.caller.map_or(0, |(caller, _)| depths[caller]);
            let bytes = caller + own;
            if bytes > STACK_LIMIT {
                let pc = building
                    .caller
                    .map_or(Pc(building.range.start), |(_, pc)| pc);
                return Err((Rule::StackTooDeep { bytes }, pc));
            }
            depths.push(bytes);
            deepest = deepest.max(bytes);
        }
        self.add_dead_callees(env.code, functions)?;
        let instances: Vec<Instance> = self.instances.into_iter().map(Building::finish).collect();
        let constants = constants(env, &instances);
        Ok(Facts {
            instances,
            stack_bytes: deepest,
            cost,
            modifies: self.modifies,
            may_goto_rounds,
            constants,
        })
    }

    /// A call that no path reaches gets an instance of which nothing is reached, so that every call
    /// has one. It counts like the others: nothing of it is emitted, but its facts take as much
    /// room.
    fn add_dead_callees(
        &mut self,
        code: &Code,
        functions: &[Range<u32>],
    ) -> Result<(), (Rule, Pc)> {
        for caller in 0..self.instances.len() {
            for pc in self.instances[caller].range.clone().map(Pc) {
                let Insn::Call {
                    callee: Callee::Local(start),
                } = code.at(pc)
                else {
                    continue;
                };
                let Ok(function) = functions.binary_search_by_key(&start.0, |r| r.start) else {
                    continue;
                };
                if self.instances[caller].calls.contains_key(&pc) {
                    continue;
                }
                let range = &functions[function];
                self.inlined(range).map_err(|rule| (rule, pc))?;
                let frame = self.instances[caller].frame + 1;
                let index = self.instances.len();
                self.instances[caller].calls.insert(pc, index);
                self.instances.push(Building {
                    range: range.clone(),
                    caller: Some((caller, pc)),
                    frame,
                    facts: vec![Fact::Dead; range.len()],
                    calls: BTreeMap::new(),
                    stack: 0,
                });
            }
        }
        Ok(())
    }
}

impl Building {
    fn stack_bytes(&self) -> u32 {
        (self.stack.clamp(0, FRAME_BYTES) as u32).next_multiple_of(8)
    }

    fn finish(self) -> Instance {
        let stack_bytes = self.stack_bytes();
        let insns = self.facts.into_iter().map(|fact| match fact {
            Fact::Dead => InsnFact::Dead,
            Fact::Plain => InsnFact::Plain,
            Fact::Access(place) => InsnFact::Access(place),
            Fact::Call(call) => InsnFact::Call(call),
            Fact::Branch {
                taken,
                falls,
                pointer,
                ..
            } => InsnFact::Branch {
                taken,
                falls,
                null_check: pointer,
            },
        });
        Instance {
            start: Pc(self.range.start),
            end: Pc(self.range.end),
            frame: self.frame,
            insns: insns.collect(),
            calls: self.calls,
            stack_bytes,
        }
    }
}

/// Bytes that never change, of the maps that instructions access.
fn constants(env: &Env<'_>, instances: &[Instance]) -> BTreeMap<u32, Arc<[u8]>> {
    let facts = instances.iter().flat_map(|instance| &instance.insns);
    let accessed = facts.filter_map(|fact| match fact {
        InsnFact::Access(place) => place.map_value(),
        _ => None,
    });
    let maps: BTreeSet<u32> = accessed.collect();
    let bytes = |map| Some((map, env.constant_bytes(map)?.into()));
    maps.into_iter().filter_map(bytes).collect()
}

fn region_text(env: &Env<'_>, region: Region) -> String {
    match region {
        Region::Stack { frame: 0 } => "the stack of the entry function".to_owned(),
        Region::Stack { frame } => format!("the stack at call depth {frame}"),
        Region::Context => "the context".to_owned(),
        Region::MapValue { map } => format!("a value of map `{}`", env.map_name(map)),
        Region::Record { map } => format!("a record of map `{}`", env.map_name(map)),
        Region::MapKey { map } => format!("a key of map `{}`", env.map_name(map)),
        Region::Memory => "the program's memory".to_owned(),
    }
}

fn arg_text(env: &Env<'_>, arg: ArgFact) -> String {
    match arg {
        ArgFact::Unused => "nothing".to_owned(),
        ArgFact::Map(map) => format!("map `{}`", env.map_name(map)),
        ArgFact::Scalar { .. } => "a number".to_owned(),
        ArgFact::Pointer(place) => region_text(env, place.region),
        ArgFact::Callback => "a function".to_owned(),
        ArgFact::Sample => "a sample".to_owned(),
    }
}

/// The code that is made for the helper needs to know argument `i`, which the proof knows on each
/// path: it must be the same on all of them.
fn is_one_constant(helper: HelperId, i: usize) -> bool {
    match helper {
        HelperId::GetCurrentComm | HelperId::DynptrRead => i == 1,
        HelperId::DynptrWrite => i == 3,
        // The host is told where in its map a message's text is.
        _ => helper.prints() && i == 0,
    }
}

fn constant_text(env: &Env<'_>, arg: ArgFact) -> String {
    match arg {
        ArgFact::Scalar {
            value: Some(size), ..
        } => format!("a size of {size}"),
        ArgFact::Pointer(Place {
            region,
            offset: Some(offset),
            ..
        }) => format!("offset {offset} of {}", region_text(env, region)),
        _ => arg_text(env, arg),
    }
}

fn join_place(env: &Env<'_>, a: Place, b: Place) -> Result<Place, Rule> {
    if a.region != b.region {
        return Err(Rule::Mixed {
            first: region_text(env, a.region),
            second: region_text(env, b.region),
        });
    }
    // The context is nowhere in memory: which field it is decides what the code is.
    if a.region == Region::Context && a.offset != b.offset {
        let text = |place| constant_text(env, ArgFact::Pointer(place));
        return Err(Rule::Mixed {
            first: text(a),
            second: text(b),
        });
    }
    Ok(Place {
        region: a.region,
        offset: if a.offset == b.offset { a.offset } else { None },
        align: a.align.min(b.align),
    })
}

fn join_map(env: &Env<'_>, a: Option<u32>, b: Option<u32>) -> Result<Option<u32>, Rule> {
    match (a, b) {
        (Some(a), Some(b)) if a != b => Err(Rule::Mixed {
            first: format!("map `{}`", env.map_name(a)),
            second: format!("map `{}`", env.map_name(b)),
        }),
        (a, b) => Ok(a.or(b)),
    }
}

fn join_memory(
    env: &Env<'_>,
    a: Option<(Region, u32)>,
    b: Option<(Region, u32)>,
) -> Result<Option<(Region, u32)>, Rule> {
    match (a, b) {
        (Some((a, _)), Some((b, _))) if a != b => Err(Rule::Mixed {
            first: format!("a dynptr of {}", region_text(env, a)),
            second: format!("a dynptr of {}", region_text(env, b)),
        }),
        (Some((region, a)), Some((_, b))) => Ok(Some((region, a.min(b)))),
        (a, b) => Ok(a.or(b)),
    }
}

/// The code that is made for a string knows its map.
fn join_strings(
    env: &Env<'_>,
    a: Option<&Arc<[u32]>>,
    b: Option<&Arc<[u32]>>,
) -> Result<Option<Arc<[u32]>>, Rule> {
    let pairs = a.into_iter().flat_map(|a| a.iter());
    let mut pairs = pairs.zip(b.into_iter().flat_map(|b| b.iter()));
    match pairs.find(|(a, b)| a != b) {
        None => Ok(a.or(b).cloned()),
        Some((a, b)) => {
            let name = |map: &u32| format!("a string of map `{}`", env.map_name(*map));
            Err(Rule::Mixed {
                first: name(a),
                second: name(b),
            })
        }
    }
}

/// A constant string is part of the code that is made, so it is the same on every path.
fn join_text(a: Option<&Arc<[u8]>>, b: Option<&Arc<[u8]>>) -> Result<Option<Arc<[u8]>>, Rule> {
    if a == b {
        return Ok(a.cloned());
    }
    let name = |text: Option<&Arc<[u8]>>| match text {
        Some(text) => format!("the string {:?}", String::from_utf8_lossy(text)),
        None => "no string".to_owned(),
    };
    Err(Rule::Mixed {
        first: name(a),
        second: name(b),
    })
}

fn join_arg(env: &Env<'_>, a: ArgFact, b: ArgFact) -> Result<ArgFact, Rule> {
    match (a, b) {
        (ArgFact::Unused, ArgFact::Unused)
        | (ArgFact::Callback, ArgFact::Callback)
        | (ArgFact::Sample, ArgFact::Sample) => Ok(a),
        (ArgFact::Map(x), ArgFact::Map(y)) if x == y => Ok(a),
        (
            ArgFact::Scalar { value, max },
            ArgFact::Scalar {
                value: other,
                max: other_max,
            },
        ) => Ok(ArgFact::Scalar {
            value: if value == other { value } else { None },
            max: max.max(other_max),
        }),
        (ArgFact::Pointer(a), ArgFact::Pointer(b)) => join_place(env, a, b).map(ArgFact::Pointer),
        (
            ArgFact::Unused
            | ArgFact::Map(_)
            | ArgFact::Scalar { .. }
            | ArgFact::Pointer(_)
            | ArgFact::Callback
            | ArgFact::Sample,
            _,
        ) => Err(Rule::Mixed {
            first: arg_text(env, a),
            second: arg_text(env, b),
        }),
    }
}
