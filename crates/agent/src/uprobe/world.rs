//! The session's maps as a program on the CPU sees them: each operation is one of the host on a live map.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use warpbpf_abi::maps::{BPF_EXIST, BPF_NOEXIST, EAGAIN, EBUSY, EEXIST, EIO, ENOENT};
use warpbpf_session::cpu::{Coordinates, Surroundings, is_percpu};
use warpbpf_session::{Action, Answer, HostOp, Progress};
use warpbpf_wire::{NoteLevel, ToTool};

use super::Sites;
use crate::agent::LiveState;

/// How long an operation waits for those of the tool before it, and for room on the device.
const LIMIT: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct World<'s> {
    sites: &'s Sites,
}

impl<'s> World<'s> {
    pub(super) fn new(sites: &'s Sites) -> World<'s> {
        World { sites }
    }

    fn operate(&self, map: u32, action: Action, key: &[u8], value: &[u8], flags: u64) -> Answer {
        let op = HostOp {
            action,
            flags,
            key: key.to_vec(),
            value: value.to_vec(),
        };
        let end = Instant::now() + LIMIT;
        loop {
            let answer = self.try_once(map as usize, &op);
            // An operation of the tool is on the device.
            if answer != Err(EBUSY) || Instant::now() > end {
                return answer;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn try_once(&self, map: usize, op: &HostOp) -> Answer {
        let agent = self.sites.agent;
        let live = agent.live.read().unwrap_or_else(PoisonError::into_inner);
        let LiveState::Here(live) = &*live else {
            return Err(EIO);
        };
        // While it is held the control thread begins none of the tool's.
        let _pump = agent.pump.lock().unwrap_or_else(PoisonError::into_inner);
        let done = agent.driver.within(live.context(), || {
            if live
                .host_ops_refused(map, std::slice::from_ref(op))
                .is_some()
            {
                return Err(EIO);
            }
            let mut progress = live.host_ops(map, vec![op.clone()]);
            loop {
                match progress {
                    Progress::Done(mut answers) => return answers.pop().unwrap_or(Err(EIO)),
                    // Bounded: the device's part is given up after a while.
                    Progress::Waiting => std::hint::spin_loop(),
                }
                progress = live.host_progress();
            }
        });
        done.unwrap_or(Err(EIO))
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
                    let copies = self.sites.agent.sms() as usize;
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
        let mut pump = self.sites.agent.pump.lock();
        let pump = pump.as_deref_mut().map_err(|_| EIO)?;
        let pump = pump.as_mut().ok_or(EIO)?;
        if pump.event(map, record) {
            Ok(())
        } else {
            Err(EAGAIN)
        }
    }

    fn print(&mut self, text: &str) {
        let text = text.trim_end_matches('\n').to_owned();
        let level = NoteLevel::Warning;
        self.sites.agent.send(ToTool::Note { level, text }, None);
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
        let local = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        let remote = libc::iovec {
            iov_base: address as *mut libc::c_void,
            iov_len: into.len(),
        };
        // SAFETY: the kernel copies into memory of ours, and says so where there is none at the other address.
        let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        copied == into.len() as isize
    }

    fn cpu(&mut self) -> u32 {
        // SAFETY: no preconditions.
        let cpu = unsafe { libc::sched_getcpu() };
        u32::try_from(cpu).unwrap_or(0)
    }

    fn coordinates(&self) -> Option<Coordinates> {
        None
    }
}
