//! The kernel asked as libbpf asks it, without libbpf and without an application.

mod fuzz;
mod linux;
mod maps;
mod progs;
mod replace;

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use warpbpf_maps::MapPlan;
use warpbpf_wire::{MapOp, OpCode, Outcome};

use crate::kernel::{Config, Descriptors, Kernel};
use crate::objects::session::{Copied, Session};
use crate::tool::notify::Notify;
use crate::tool::user::tests::Memory;
use crate::uapi::{Command, attr};

/// Numbers that are no descriptors.
#[derive(Default)]
pub(crate) struct Numbers(RawFd);

impl Descriptors for Numbers {
    fn make(&mut self, _: Option<&Notify>) -> Result<RawFd, Errno> {
        self.0 += 1;
        Ok(1000 + self.0)
    }
}

/// A tool: a kernel, memory, and calls.
pub(crate) struct Tool {
    pub(crate) kernel: Kernel,
    pub(crate) memory: Memory,
}

impl Tool {
    pub(crate) fn new() -> Tool {
        let config = Config {
            cpus: 4,
            threads: 1024,
            options: warpbpf_session::Options::default(),
            is_kernel_symbol: |name| name == "do_exit",
            tell: |_| {},
        };
        Tool {
            kernel: Kernel::new(config, Box::new(Numbers::default())),
            memory: Memory::default(),
        }
    }

    /// A call with these fields: offset and little-endian bytes.
    pub(crate) fn call(
        &mut self,
        command: Command,
        fields: &[(usize, &[u8])],
    ) -> Result<i64, Errno> {
        let at = self.attr(fields);
        self.kernel.bpf(command as u32, at, 144, &self.memory)
    }

    pub(crate) fn attr(&mut self, fields: &[(usize, &[u8])]) -> u64 {
        let mut bytes = [0u8; 144];
        for (at, value) in fields {
            bytes[*at..at + value.len()].copy_from_slice(value);
        }
        self.memory.put(&bytes)
    }

    pub(crate) fn map(&mut self, kind: u32, key: u32, value: u32, entries: u32) -> RawFd {
        self.call(
            Command::MapCreate,
            &[
                (attr::map::TYPE, &kind.to_ne_bytes()),
                (attr::map::KEY_SIZE, &key.to_ne_bytes()),
                (attr::map::VALUE_SIZE, &value.to_ne_bytes()),
                (attr::map::MAX_ENTRIES, &entries.to_ne_bytes()),
                (attr::map::NAME, b"a_map"),
            ],
        )
        .unwrap() as RawFd
    }
}

/// An operation: what, key, value, flags.
pub(crate) type Done = (OpCode, Vec<u8>, Vec<u8>, u64);

/// A device with one map, which is number 0 and place 0, unless it is said to have more.
pub(crate) struct Device {
    pub(crate) plan: Arc<MapPlan>,
    pub(crate) bytes: Mutex<Vec<u8>>,
    /// How many maps it has: each has the number of its place.
    pub(crate) maps: Mutex<u32>,
    /// What was done, in order.
    pub(crate) done: Mutex<Vec<Done>>,
    /// What it says to changes of this key.
    pub(crate) refused: Mutex<Option<(Vec<u8>, i32)>>,
    /// The next lookup is better an operation.
    pub(crate) singly: Mutex<bool>,
}

impl Device {
    pub(crate) fn new(def: &warpbpf_object::MapDef, sms: u32) -> Arc<Device> {
        let plan = warpbpf_maps::plan(def, sms, &[]).unwrap();
        let bytes = Mutex::new(vec![0; plan.bytes() as usize]);
        Arc::new(Device {
            plan: Arc::new(plan),
            bytes,
            maps: Mutex::new(1),
            done: Mutex::default(),
            refused: Mutex::default(),
            singly: Mutex::default(),
        })
    }

    pub(crate) fn set(&self, key: &[u8], value: &[u8]) {
        let mut bytes = self.bytes.lock().unwrap();
        let writes = warpbpf_maps::update(&self.plan, &bytes, key, value, 0).unwrap();
        for write in writes {
            let at = write.offset as usize;
            bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
    }
}

impl Session for Device {
    fn number(&self, map: usize) -> Option<u32> {
        let number = map as u32;
        (number < *self.maps.lock().unwrap()).then_some(number)
    }
    fn sms(&self) -> u32 {
        2
    }
    fn copied(&self, _: u32) -> Result<Option<Copied>, Errno> {
        Ok(Some(Copied {
            plan: self.plan.clone(),
            parts: Arc::new(vec![self.bytes.lock().unwrap().clone()]),
        }))
    }
    fn asks_singly(&self, _: u32) -> bool {
        *self.singly.lock().unwrap()
    }
    fn gives_up_singles(&self) {
        *self.singly.lock().unwrap() = false;
    }
    fn operate(&self, _: u32, ops: &[MapOp<'_>]) -> Result<Vec<Outcome>, Errno> {
        for op in ops {
            let done = (op.code, op.key.to_vec(), op.value.to_vec(), op.flags);
            self.done.lock().unwrap().push(done);
        }
        let refused = self.refused.lock().unwrap().clone();
        let answer = |op: &MapOp<'_>| match &refused {
            Some((key, errno)) if key == op.key => Outcome::failed(*errno),
            _ => Outcome::done(b"answered".to_vec()),
        };
        Ok(ops.iter().map(answer).collect())
    }
}

/// A definition as an object would have it.
pub(crate) fn def(
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
) -> warpbpf_object::MapDef {
    warpbpf_object::MapDef {
        name: "a_map".into(),
        map_type,
        key_size,
        value_size,
        max_entries,
        flags: 0,
        kind: warpbpf_object::MapKind::User,
        extra: std::collections::BTreeMap::new(),
        key_type: None,
        value_type: None,
        inner: None,
        initial: Vec::new(),
    }
}
