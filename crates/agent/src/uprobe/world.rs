//! The session's maps as a program on the CPU sees them: each operation is one of the host on a
//! live map.
//!
//! The thread is the application's and may hold any lock of the application or the driver; whoever
//! has one of ours may be waiting for that. So ours are only tried, for a bounded time, and what is
//! given up is counted.

use std::sync::Arc;
use std::time::Instant;

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, EAGAIN, EBUSY, EEXIST, EIO, ENOENT};
use warpbpf_driver::own_memory;
use warpbpf_maps::words;
use warpbpf_session::cpu::{Coordinates, Surroundings, is_percpu, store_by_update};
use warpbpf_session::{Action, Answer, HostOp, Progress};
use warpbpf_wire::{NoteLevel, ToTool};

use super::lost::{LIMIT, Lost, count, within_patience};
use crate::device::context_registry::ContextState;
use crate::device::spread::{Spread, Work};
use crate::sys::lock::tried;
use crate::uprobe::sites::{Site, Sites};

/// See the module.
pub(crate) struct World<'s> {
    sites: &'s Sites,
    lost: &'s Lost,
    /// Address of the function that has the program.
    function: u64,
    /// When this run has taken as long as it may.
    until: Instant,
}

impl<'s> World<'s> {
    /// For one run of a program at that function, which begins now.
    pub(crate) fn new(sites: &'s Sites, site: &Site, program: usize) -> World<'s> {
        World {
            sites,
            lost: &sites.lost[program],
            function: site.address as u64,
            until: Instant::now() + LIMIT,
        }
    }

    fn operate(&self, map: u32, action: Action, key: &[u8], value: &[u8], flags: u64) -> Answer {
        let op = HostOp {
            action,
            flags,
            key: key.to_vec(),
            value: value.to_vec(),
        };
        // Meanwhile an operation of the tool may be on the device, or the control thread copies
        // maps.
        let answer = within_patience(self.until, || {
            let answer = self.try_once(map as usize, &op);
            (answer != Err(EBUSY)).then_some(answer)
        });
        answer.unwrap_or_else(|| {
            count(&self.lost.refused);
            Err(EBUSY)
        })
    }

    fn try_once(&self, map: usize, op: &HostOp) -> Answer {
        let agent = self.sites.agent;
        let shards = agent.context_registry.try_all().ok_or(EBUSY)?;
        let states = shards.iter().map(|shard| tried(shard.state.try_read()));
        let states: Option<Vec<_>> = states.collect();
        let states = states.ok_or(EBUSY)?;
        // While they are held the control thread begins none of the tool's.
        let pumps = shards.iter().map(|shard| tried(shard.pump.try_lock()));
        let pumps: Option<Vec<_>> = pumps.collect();
        let mut pumps = pumps.ok_or(EBUSY)?;
        // Who has what ended contexts left may wait for the pumps. No context ends while its state
        // is held.
        let _operating = agent.context_registry.operate().ok_or(EBUSY)?;
        let mut refused = false;
        let mut each = |work: &mut Work<'_>| {
            for ((shard, state), pump) in shards.iter().zip(&states).zip(&mut pumps) {
                if let (ContextState::Here(live), Some(pump)) = (&**state, &mut **pump)
                    && let Some(number) = shard.number.get()
                {
                    let context = live.context();
                    agent.driver.within(context, || work(*number, pump, live));
                }
            }
        };
        each(&mut |_, _, live| {
            let ops = std::slice::from_ref(op);
            refused |= live.host_ops_refused(map, ops).is_some();
        });
        if refused {
            return Err(EIO);
        }
        let mut spread = Spread::new(Arc::clone(&self.sites.session), map, vec![op.clone()]);
        loop {
            match spread.turn(&mut each, &agent.context_registry, true) {
                Some(Progress::Done(mut answers)) => return answers.pop().unwrap_or(Err(EIO)),
                // Bounded: the device's part is given up after a while.
                Some(Progress::Waiting) => std::hint::spin_loop(),
                None => return Err(EIO),
            }
        }
    }
}

impl Surroundings for World<'_> {
    fn lookup(&mut self, map: u32, key: &[u8]) -> Result<Vec<u8>, i64> {
        let mut value = self.operate(map, Action::Lookup, key, &[], 0)?;
        let size = self.sites.session.map_defs()[map as usize].value_size;
        value.truncate(size as usize);
        Ok(value)
    }

    fn update(&mut self, map: u32, key: &[u8], value: &[u8], flags: u64) -> Result<(), i64> {
        let def = &self.sites.session.map_defs()[map as usize];
        let mut all = Vec::new();
        let value = if is_percpu(def) {
            // Only programs on the CPU use the map, one after the other.
            match (self.operate(map, Action::Lookup, key, &[], 0), flags) {
                (Ok(_), BPF_NOEXIST) => return Err(EEXIST),
                (Ok(found), _) => all = found,
                (Err(ENOENT), BPF_EXIST) => return Err(ENOENT),
                (Err(ENOENT), _) => {
                    let agent = self.sites.agent;
                    let copies = agent.cpus() as usize * agent.context_registry.made() as usize;
                    all.resize(value.len().next_multiple_of(8) * copies, 0);
                }
                (Err(errno), _) => return Err(errno),
            }
            all[..value.len()].copy_from_slice(value);
            &all
        } else {
            value
        };
        let done = self.operate(map, Action::Update, key, value, flags);
        done.map(|_| ())
    }

    fn store(&mut self, map: u32, key: &[u8], value: &[u8], meant: &[usize]) -> Result<(), i64> {
        let def = &self.sites.session.map_defs()[map as usize];
        let plan = &self.sites.session.maps()[map as usize];
        if !matches!(plan.layout, MapLayout::Array(_)) || is_percpu(def) {
            return store_by_update(self, map, key, value, meant);
        }
        // Kernels may count into the other words at this moment.
        let packed = words::pack(value, meant.iter().copied());
        let done = self.operate(map, Action::Words, key, &packed, BPF_ANY);
        done.map(|_| ())
    }

    fn delete(&mut self, map: u32, key: &[u8]) -> Result<(), i64> {
        self.operate(map, Action::Delete, key, &[], 0).map(|_| ())
    }

    fn push(&mut self, map: u32, value: &[u8], flags: u64) -> Result<(), i64> {
        let done = self.operate(map, Action::Push, &[], value, flags);
        done.map(|_| ())
    }

    fn pop(&mut self, map: u32) -> Result<Vec<u8>, i64> {
        self.operate(map, Action::Pop, &[], &[], 0)
    }

    fn output(&mut self, map: u32, record: &[u8]) -> Result<(), i64> {
        // The first context that has maps takes it. `None` is that nobody could be asked.
        let output = || {
            for shard in self.sites.agent.context_registry.try_all()? {
                if let Some(pump) = &mut *tried(shard.pump.try_lock())? {
                    return Some(pump.event(map, record).then_some(()).ok_or(EAGAIN));
                }
            }
            Some(Err(EIO))
        };
        within_patience(self.until, output).unwrap_or_else(|| {
            count(&self.lost.refused);
            Err(EAGAIN)
        })
    }

    fn out_of_time(&mut self) -> bool {
        Instant::now() >= self.until
    }

    fn print(&mut self, text: &str) {
        let text = text.trim_end_matches('\n').to_owned();
        let level = NoteLevel::Warning;
        self.sites.agent.send(
            ToTool::Note {
                level,
                text,
                clients: Vec::new(),
            },
            None,
        );
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
        own_memory::read(address as usize, into)
    }

    fn cpu(&mut self) -> u32 {
        // SAFETY: no preconditions.
        let cpu = unsafe { libc::sched_getcpu() };
        u32::try_from(cpu).unwrap_or(0)
    }

    fn function(&self) -> u64 {
        self.function
    }

    fn coordinates(&self) -> Option<Coordinates> {
        None
    }
}
