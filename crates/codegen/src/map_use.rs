//! How a program uses its maps, as far as sharding is concerned: a map that programs only add to
//! can have a copy per SM, which the host sums.
//!
//! The answer comes from the IR behind `opt_atomics`: additions whose result nobody wants are what
//! they will be in the code, and everything else that touches a value is a reason not to shard its
//! map. The maps' layouts play no part, so the analysis binds layouts of its own.

use std::collections::{BTreeMap, BTreeSet};

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::helpers::{self, HelperId};
use warpbpf_abi::layout::{
    ArrayLayout, HostedLayout, MapLayout, QueueLayout, RingLayout, SumField, UserRingLayout,
};
use warpbpf_ebpf::Code;
use warpbpf_verify::{ArgFact, CallFact, Facts, INNER, InsnFact, Region, Subject, Verified};

use crate::fragment::{Env, Input, MapBinding, MapUse, SlotSpace, Target};
use crate::from_ebpf;
use crate::ir::{Mem, Op, Origin, Rmw};
use crate::pipeline::PASSES;

/// One [`MapUse`] per map of the object. `site` is the one that the program was proved for.
pub fn map_uses<P: Subject>(program: &Verified<P>, site: Site, map_count: usize) -> Vec<MapUse> {
    uses_of(program.program().code(), program.facts(), site, map_count)
}

fn uses_of(code: &Code, facts: &Facts, site: Site, map_count: usize) -> Vec<MapUse> {
    let mut uses = Uses {
        maps: vec![MapUse::default(); map_count],
    };
    let calls: Vec<&CallFact> = facts
        .instances
        .iter()
        .flat_map(|i| &i.insns)
        .filter_map(|fact| match fact {
            InsnFact::Call(call) => Some(call),
            InsnFact::Dead | InsnFact::Plain | InsnFact::Access(_) | InsnFact::Branch { .. } => {
                None
            }
        })
        .collect();
    let mut layouts = BTreeMap::new();
    for call in &calls {
        uses.call(call);
        if let Some(map) = call.map {
            // A dynptr on the stack is of another map than a sample's.
            let layout = plain_layout(match call.memory {
                Some((Region::MapValue { .. }, _)) => HelperId::MapLookupElem,
                Some(_) => HelperId::RingbufReserve,
                None => call.helper,
            });
            let known = layouts.entry(map).or_insert(layout);
            if layout != plain_layout(HelperId::MapLookupElem) {
                *known = layout;
            }
        }
    }
    uses.run(code, facts, &plain_env(site, map_count, &layouts));
    // To an array a helper stores values as the program does. Where helpers put keys in or take
    // them out it may be a hash, and what the program itself does to values is told apart from them
    // by taking it for one that the host is asked for.
    let changes = |call: &&&CallFact| {
        matches!(
            call.helper,
            HelperId::MapUpdateElem | HelperId::MapDeleteElem
        )
    };
    let changed: BTreeSet<u32> = calls.iter().filter(changes).filter_map(|c| c.map).collect();
    if !changed.is_empty() {
        let asked = MapLayout::Hosted(HostedLayout {
            max_entries: 1,
            key_size: 1,
            value_size: 1,
        });
        layouts.extend(changed.iter().map(|map| (*map, asked)));
        let mut others = Uses {
            maps: vec![MapUse::default(); map_count],
        };
        calls.iter().for_each(|call| others.call(call));
        others.run(code, facts, &plain_env(site, map_count, &layouts));
        for (map, (usage, other)) in (0..).zip(uses.maps.iter_mut().zip(&others.maps)) {
            if changed.contains(&map) {
                usage.more_than_adds = other.more_than_adds;
            }
        }
    }
    uses.maps
}

struct Uses {
    maps: Vec<MapUse>,
}

impl Uses {
    /// Notes what the program does, compiled for `env`.
    fn run(&mut self, code: &Code, facts: &Facts, env: &Env) {
        let mut func = match from_ebpf::run(code, facts, env) {
            Ok(func) => func,
            Err(error) => {
                for map in 0..self.maps.len() as u32 {
                    self.refuse(map, || format!("the program cannot be compiled: {error}"));
                }
                return;
            }
        };
        for (name, pass) in PASSES {
            pass(&mut func, env);
            // What follows changes how additions are done, not which there are.
            if *name == "opt_dce.3" {
                break;
            }
        }
        for inst in func.blocks.iter().flat_map(|b| &b.insts) {
            self.op(&inst.op, inst.result.is_some());
        }
    }

    /// Notes a reason; the first one stays.
    fn refuse(&mut self, map: u32, reason: impl FnOnce() -> String) {
        if let Some(usage) = self.maps.get_mut(map as usize) {
            usage.more_than_adds = true;
            usage.not_summable.get_or_insert_with(reason);
        }
    }

    fn call(&mut self, call: &CallFact) {
        let name = helpers::of(call.helper).name;
        if let (Some(map), HelperId::MapUpdateElem | HelperId::MapDeleteElem) =
            (call.map, call.helper)
        {
            // Of a hash, that is how keys come and go.
            if let Some(usage) = self.maps.get_mut(map as usize) {
                usage
                    .not_summable
                    .get_or_insert_with(|| format!("`bpf_{name}` changes it"));
            }
        }
        for arg in &call.args {
            if let ArgFact::Pointer(place) = arg
                && let Region::MapValue { map } = place.region
            {
                self.refuse(map, || {
                    format!("a pointer to its value is passed to `bpf_{name}`")
                });
            }
        }
    }

    fn op(&mut self, op: &Op, has_result: bool) {
        match op {
            Op::Load {
                mem: Mem::Map(o) | Mem::MapSync(o) | Mem::MapSlot(o),
                ..
            } => {
                self.refuse(o.map, || format!("the program reads its value{}", at(*o)));
            }
            Op::Store {
                mem: Mem::Map(o) | Mem::MapSync(o) | Mem::MapSlot(o),
                ..
            } => {
                self.refuse(o.map, || {
                    format!("the program stores to its value{}", at(*o))
                });
            }
            Op::CopyBytes {
                mem: Mem::Map(o) | Mem::MapSync(o) | Mem::MapSlot(o),
                ..
            } => {
                self.refuse(o.map, || format!("the program copies its value{}", at(*o)));
            }
            Op::Atomic {
                origin: Some(o),
                op,
                width,
                ..
            } => match (op, has_result, o.offset) {
                (Rmw::Add, false, Some(offset)) => {
                    if let (Some(usage), Ok(offset)) =
                        (self.maps.get_mut(o.map as usize), u32::try_from(offset))
                    {
                        usage.adds.insert(SumField {
                            offset,
                            size: width.bytes(),
                        });
                    }
                }
                (Rmw::Add, false, None) => {
                    self.refuse(o.map, || {
                        "the program adds at an offset that varies".to_owned()
                    });
                }
                (Rmw::Add, true, _) => {
                    self.refuse(o.map, || {
                        format!("the program uses what an addition{} returns", at(*o))
                    });
                }
                (Rmw::And | Rmw::Or | Rmw::Xor | Rmw::Exch | Rmw::Cas, ..) => {
                    self.refuse(o.map, || {
                        format!(
                            "the program changes its value{} other than by adding",
                            at(*o)
                        )
                    });
                }
            },
            _ => {}
        }
    }
}

fn at(origin: Origin) -> String {
    origin
        .offset
        .map(|o| format!(" at offset {o}"))
        .unwrap_or_default()
}

/// A layout that the helper works on.
fn plain_layout(helper: HelperId) -> MapLayout {
    match helper {
        HelperId::RingbufOutput
        | HelperId::RingbufReserve
        | HelperId::RingbufSubmit
        | HelperId::RingbufDiscard
        | HelperId::RingbufReserveDynptr
        | HelperId::RingbufSubmitDynptr
        | HelperId::RingbufDiscardDynptr
        | HelperId::RingbufQuery
        | HelperId::PerfEventOutput => MapLayout::Ring(RingLayout::new(1 << 20, 1)),
        HelperId::MapPushElem | HelperId::MapPopElem | HelperId::MapPeekElem => {
            MapLayout::Queue(QueueLayout {
                max_entries: 1,
                value_size: 8,
                lifo: false,
            })
        }
        HelperId::UserRingbufDrain
        | HelperId::DynptrRead
        | HelperId::DynptrWrite
        | HelperId::DynptrData => MapLayout::UserRing(UserRingLayout {
            bytes: UserRingLayout::LEAST,
        }),
        _ => MapLayout::Array(ArrayLayout {
            max_entries: u32::MAX,
            value_size: 8,
            shards: 1,
            summed: false,
        }),
    }
}

/// An environment in which any program compiles as far as the IR.
fn plain_env(site: Site, map_count: usize, layouts: &BTreeMap<u32, MapLayout>) -> Env {
    let array = plain_layout(HelperId::MapLookupElem);
    let ring = plain_layout(HelperId::RingbufOutput);
    let layout = |map| layouts.get(&map).copied();
    let binding = |index: u32, layout, inner| MapBinding {
        slot: index,
        session_index: index,
        layout,
        inner,
    };
    let count = map_count as u32;
    Env {
        target: Target {
            ptx: (6, 3),
            sm: 75,
        },
        site,
        scope: Scope::Thread,
        kernel_id: 0,
        maps: (0..count)
            .map(|i| binding(i + 1, layout(i).unwrap_or(array), layout(i | INNER)))
            .collect(),
        printk: Some(binding(count + 1, ring, None)),
        slots: SlotSpace::Const,
        input: Input::Context,
        keep_sums: false,
        meets: true,
        args: Vec::new(),
    }
}
