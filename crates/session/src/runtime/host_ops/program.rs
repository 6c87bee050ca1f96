//! The eBPF program that operates on one map: it reads a record, calls the helper, and leaves the
//! result in the record.

use std::fmt::Write as _;

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::helpers::{HelperId, map_op};
use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::{EINVAL, ENOENT};
use warpbpf_codegen::kernel::{Kernel as Entry, module, slot_count};
use warpbpf_codegen::{Env, Fragment, Input, SlotSpace, Target, compile};
use warpbpf_maps::MapPlan;
use warpbpf_object::MapDef;
use warpbpf_verify::{Platform, verify};

use super::error::HostOpsError;
use super::op::{Action, Answer, HostOp};
use crate::plan::ptx_version::ptx_version;
use crate::plan::session::Session;
use crate::runtime::host_ops::op::{Codes, Record};

const LOOKUP: u32 = HelperId::MapLookupElem as u32;
const UPDATE: u32 = HelperId::MapUpdateElem as u32;
const DELETE: u32 = HelperId::MapDeleteElem as u32;
const PUSH: u32 = HelperId::MapPushElem as u32;
const POP: u32 = HelperId::MapPopElem as u32;
const PEEK: u32 = HelperId::MapPeekElem as u32;

/// In a record: what to do (u64, 0 for nothing).
const OP: u32 = 0;
/// In a record: flags (u64).
const FLAGS: u32 = 8;
/// In a record: the key, then the value at the next multiple of 8.
const KEY: u32 = 16;
/// Words of a value that are copied one by one; more are copied in a loop.
const UNROLLED: u32 = 16;
/// What one operation may cost: the host can wait.
const BUDGET: u64 = 1 << 24;

/// A map's program as a kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) record: Record,
    fragment: Fragment,
}

/// The kernels of a session, in one module.
#[derive(Debug)]
pub(crate) struct Kernels {
    pub(crate) text: String,
    /// Entries of its slot table.
    pub(crate) slots: u32,
    /// The slot of the records' address.
    pub(crate) memory_slot: u32,
    /// By map from the first one that was asked for; or why there is none.
    pub(crate) kernels: Vec<Result<Kernel, HostOpsError>>,
}

impl Record {
    fn new(plan: &MapPlan) -> Record {
        let has = |helper| map_op(helper, plan.map_type).is_some();
        Record {
            key_size: plan.key_size,
            value_size: plan.value_size,
            asks: matches!(plan.layout, MapLayout::Bloom(_)),
            codes: Codes {
                // Of a value per multiprocessor the kernel would see one, that of where it happens
                // to run.
                lookup: has(HelperId::MapLookupElem) && !super::op::has_copies(plan),
                update: has(HelperId::MapUpdateElem),
                delete: has(HelperId::MapDeleteElem),
                push: has(HelperId::MapPushElem),
                pop: has(HelperId::MapPopElem),
                peek: has(HelperId::MapPeekElem),
            },
        }
    }

    fn value_at(self) -> u32 {
        KEY + self.key_size.next_multiple_of(8)
    }

    /// Bytes that the program may touch.
    fn bytes(self) -> u32 {
        self.value_at() + self.value_size.next_multiple_of(8)
    }

    /// Distance of records: the program's bytes, and its result behind them.
    pub(crate) fn stride(self) -> u64 {
        u64::from((self.bytes() + 8).next_multiple_of(16))
    }

    /// What is called for an operation on this type.
    fn action(self, action: Action) -> Option<Action> {
        let Codes {
            lookup,
            update,
            delete,
            push,
            pop,
            peek,
        } = self.codes;
        let first = |choices: &[(bool, Action)]| choices.iter().find(|c| c.0).map(|c| c.1);
        match action {
            Action::Lookup => first(&[(lookup, action), (peek, Action::Peek)]),
            Action::Update => first(&[(update, action), (push, Action::Push)]),
            Action::Delete => first(&[(delete, action)]),
            Action::Push => first(&[(push, action)]),
            Action::Pop => first(&[(pop, action)]),
            Action::Peek => first(&[(peek, action)]),
            Action::LookupAndDelete => first(&[(lookup && delete, action), (pop, Action::Pop)]),
            // No value has a fixed place here.
            Action::Words => None,
        }
    }

    /// The bytes of an operation, or why it cannot be done.
    pub(crate) fn encode(self, op: &HostOp) -> Result<Vec<u8>, i64> {
        let action = self.action(op.action).ok_or(EINVAL)?;
        // A bloom filter is asked for a value; others give one.
        let asks = action == Action::Peek && (self.asks || !op.value.is_empty());
        let takes_value = matches!(action, Action::Update | Action::Push) || asks;
        let value_size = if takes_value { self.value_size } else { 0 };
        if op.key.len() != self.key_size as usize || op.value.len() != value_size as usize {
            return Err(EINVAL);
        }
        let mut bytes = vec![0; self.stride() as usize];
        bytes[OP as usize..][..8].copy_from_slice(&code(action).to_le_bytes());
        bytes[FLAGS as usize..][..8].copy_from_slice(&op.flags.to_le_bytes());
        bytes[KEY as usize..][..op.key.len()].copy_from_slice(&op.key);
        bytes[self.value_at() as usize..][..op.value.len()].copy_from_slice(&op.value);
        Ok(bytes)
    }

    /// The result in a record.
    pub(crate) fn decode(self, op: &HostOp, bytes: &[u8]) -> Answer {
        let mut result = [0; 8];
        result.copy_from_slice(&bytes[self.bytes() as usize..][..8]);
        match i64::from_le_bytes(result) {
            0 => {}
            errno => return Err(errno.clamp(-4095, -1)),
        }
        let size = if op.action.gives() {
            self.value_size
        } else {
            0
        };
        Ok(bytes[self.value_at() as usize..][..size as usize].to_vec())
    }

    /// The program.
    fn text(self) -> String {
        let Codes {
            lookup,
            update,
            delete,
            push,
            pop,
            peek,
        } = self.codes;
        let value = self.value_at();
        let mut text = format!("r6 = r1\nr7 = *(u64 *)(r6 + {OP})\n");
        let mut body = String::new();
        // Writing to a string cannot fail.
        let mut choose = |action: Action, label: &str| {
            let _ = writeln!(text, "if r7 == {} goto {label}", code(action));
        };
        let key = format!("r1 = map[0]\nr2 = r6\nr2 += {KEY}\n");
        let in_value = |register| format!("{register} = r6\n{register} += {value}\n");
        let flags = |register| format!("{register} = *(u64 *)(r6 + {FLAGS})\n");
        if lookup {
            choose(Action::Lookup, "lookup");
            if delete {
                choose(Action::LookupAndDelete, "lookup");
            }
            let copy = self.copy();
            let _ = write!(
                body,
                "lookup:\n{key}call {LOOKUP}\nif r0 == 0 goto missing\n{copy}"
            );
            if delete {
                let both = code(Action::LookupAndDelete);
                let _ = writeln!(body, "if r7 == {both} goto delete");
            }
            let _ = write!(body, "r0 = 0\nexit\nmissing:\nr0 = {ENOENT}\nexit\n");
        }
        if delete {
            choose(Action::Delete, "delete");
            let _ = write!(body, "delete:\n{key}call {DELETE}\nexit\n");
        }
        if update {
            choose(Action::Update, "update");
            let _ = write!(
                body,
                "update:\n{key}{}{}call {UPDATE}\nexit\n",
                in_value("r3"),
                flags("r4")
            );
        }
        if push {
            choose(Action::Push, "push");
            let _ = write!(
                body,
                "push:\nr1 = map[0]\n{}{}call {PUSH}\nexit\n",
                in_value("r2"),
                flags("r3")
            );
        }
        for (there, action, label, helper) in [
            (pop, Action::Pop, "pop", POP),
            (peek, Action::Peek, "peek", PEEK),
        ] {
            if there {
                choose(action, label);
                let _ = write!(
                    body,
                    "{label}:\nr1 = map[0]\n{}call {helper}\nexit\n",
                    in_value("r2")
                );
            }
        }
        text + "r0 = 0\nexit\n" + &body
    }

    /// Copies the value that `r0` points to into the record.
    fn copy(self) -> String {
        let mut text = format!("r8 = r6\nr8 += {}\n", self.value_at());
        let (words, mut left) = (self.value_size / 8, self.value_size % 8);
        let mut at = 0;
        if words > UNROLLED {
            let _ = write!(
                text,
                "r9 = 0\nword:\nr3 = *(u64 *)(r0 + 0)\n*(u64 *)(r8 + 0) = r3\nr0 += 8\nr8 += 8\nr9 += 1\nif r9 < {words} goto word\n"
            );
        } else {
            while at < words * 8 {
                let _ = write!(text, "r3 = *(u64 *)(r0 + {at})\n*(u64 *)(r8 + {at}) = r3\n");
                at += 8;
            }
        }
        for (size, ty) in [(4, "u32"), (2, "u16"), (1, "u8")] {
            if left >= size {
                let _ = write!(
                    text,
                    "r3 = *({ty} *)(r0 + {at})\n*({ty} *)(r8 + {at}) = r3\n"
                );
                at += size;
                left -= size;
            }
        }
        text
    }
}

/// What an operation is called in a record.
fn code(action: Action) -> u64 {
    match action {
        Action::Lookup => 1,
        Action::Update => 2,
        Action::Delete => 3,
        Action::Push => 4,
        Action::Pop => 5,
        Action::Peek => 6,
        Action::LookupAndDelete => 7,
        // None, see `Record::action`.
        Action::Words => 0,
    }
}

impl Session {
    /// A kernel for each map from number `first` on whose operations need one.
    pub(crate) fn host_kernels(&self, capability: (u32, u32), first: usize) -> Kernels {
        let sm = capability.0 * 10 + capability.1;
        let memory_slot = self.first_free_slot();
        let env = |maps| Env {
            target: Target {
                ptx: ptx_version(sm),
                sm,
            },
            site: Site::Entry,
            scope: Scope::Thread,
            kernel_id: 0,
            maps,
            printk: None,
            slots: SlotSpace::Const,
            input: Input::Memory {
                slot: memory_slot,
                size: 0,
                stride: 16,
            },
            keep_sums: false,
            meets: true,
            args: Vec::new(),
        };
        let maps = self.maps().iter().zip(self.map_defs());
        let kernels: Vec<Result<Kernel, HostOpsError>> = maps
            .enumerate()
            .skip(first)
            .map(|(index, (plan, def))| {
                let record = record(plan)?;
                let mut own = env(vec![self.bindings()[index]]);
                own.input = Input::Memory {
                    slot: memory_slot,
                    size: record.bytes(),
                    stride: record.stride() as u32,
                };
                let name = format!("warpbpf_host_{index}");
                let fragment = fragment(record, def, &own)?;
                Entry::new(&name, &fragment).map_err(HostOpsError::Compile)?;
                Ok(Kernel {
                    name,
                    record,
                    fragment,
                })
            })
            .collect();
        let all = env(self.bindings());
        let entries: Vec<Entry<'_>> = kernels
            .iter()
            .flatten()
            .filter_map(|kernel| Entry::new(&kernel.name, &kernel.fragment).ok())
            .collect();
        Kernels {
            text: module(&format!("sm_{sm}"), &all, &entries),
            slots: slot_count(&all, &entries),
            memory_slot,
            kernels,
        }
    }
}

fn record(plan: &MapPlan) -> Result<Record, HostOpsError> {
    match plan.layout {
        MapLayout::Array(_) | MapLayout::PerThread(_) | MapLayout::Hosted(_) => {
            return Err(HostOpsError::NoKernel);
        }
        MapLayout::Ring(_) => return Err(HostOpsError::Events),
        MapLayout::UserRing(_) => return Err(HostOpsError::Copies),
        _ => {}
    }
    let record = Record::new(plan);
    if !record.codes.update && !record.codes.push {
        return Err(HostOpsError::Constant);
    }
    Ok(record)
}

fn fragment(record: Record, def: &MapDef, env: &Env) -> Result<Fragment, HostOpsError> {
    let code = warpbpf_ebpf::assemble(&record.text()).map_err(HostOpsError::Assemble)?;
    let platform = Platform::new(Site::Entry)
        .with_memory(record.bytes())
        .with_budget(BUDGET);
    let maps = std::slice::from_ref(def);
    let verified = verify(code, maps, &platform);
    let verified = verified.map_err(|rejection| HostOpsError::Rejected { rejection })?;
    compile(&verified, env).map_err(HostOpsError::Compile)
}
