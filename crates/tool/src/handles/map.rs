//! A map of a process: its bytes read and changed, while it runs and afterwards.

use std::time::Duration;

use warpbpf_abi::maps::{ENOENT, MapType};
use warpbpf_maps::{MapPlan, MapView, merge, stops};
use warpbpf_object::MapDef;
use warpbpf_wire::{ContextInfo, MapInfo, MapOp, OpCode, Outcome, encode_ops};

use crate::error::Error;
use crate::handles::process::Process;
use crate::heard::client_views::OWN;
use crate::heard::events::Event;
use crate::heard::events::Losses;
use crate::heard::plan::plan_of;

pub use warpbpf_maps::Entry;

/// A map in a process. A handle: cheap to clone, usable from any thread.
///
/// While the process runs, each operation is done on the live map, and what it saw is what it
/// gives. When the process has ended, the map as it was at its end is read, and changes are
/// [`Error::Ended`].
#[derive(Debug, Clone)]
pub struct Map {
    process: Process,
    index: u32,
    info: MapInfo,
}

/// All of a map at one moment, or nearly: while kernels run, words may be of different moments. Of
/// an application with several GPUs, what all of them have, as one.
#[derive(Debug, Clone)]
pub struct Snapshot {
    plan: MapPlan,
    /// Of each context.
    parts: Vec<Vec<u8>>,
}

impl Snapshot {
    /// Reads it.
    ///
    /// # Errors
    /// [`Error::Access`] if the agent sent a layout that does not fit the bytes.
    #[doc(hidden)]
    pub fn view(&self) -> Result<MapView<'_>, Error> {
        Ok(MapView::merged(&self.plan, &self.parts)?)
    }

    /// The map's bytes in device memory, of each context ([`Process::contexts`]).
    pub fn parts(&self) -> &[Vec<u8>] {
        &self.parts
    }

    /// The map's bytes in device memory; of several devices those of the first.
    pub fn bytes(&self) -> &[u8] {
        self.parts.first().map_or(&[], Vec::as_slice)
    }
}

impl Map {
    pub(crate) fn new(process: Process, index: u32, info: MapInfo) -> Map {
        Map {
            process,
            index,
            info,
        }
    }

    /// Its name in the object.
    pub fn name(&self) -> &str {
        &self.info.name
    }
    /// Its index among the object's maps.
    pub fn index(&self) -> u32 {
        self.index
    }
    /// Sizes and layout.
    pub fn info(&self) -> &MapInfo {
        &self.info
    }
    /// Its type, unless the agent is newer than this library.
    pub fn map_type(&self) -> Option<MapType> {
        MapType::from_number(self.info.map_type)
    }
    /// The process that it is in.
    pub fn process(&self) -> &Process {
        &self.process
    }
    /// Its definition in the object.
    #[doc(hidden)]
    pub fn definition(&self) -> Option<MapDef> {
        let object = self.process.object()?;
        object.parsed().maps.get(self.index as usize).cloned()
    }

    /// The value of `key`, or nothing. Of a map with a value per multiprocessor or thread all of
    /// them, in order, each padded to 8 bytes, as Linux does.
    ///
    /// # Errors
    /// [`Error::Size`], [`Error::Operation`], [`Error::NoAnswer`].
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.check_key(key)?;
        match self.one(OpCode::Lookup, "a lookup", key, &[], 0) {
            Err(Error::Ended { .. }) => self.lookup_last(key),
            done => found(done),
        }
    }

    /// Gives `key` the value `value`. `flags` is `BPF_ANY`, `BPF_NOEXIST` or `BPF_EXIST`. Of a map
    /// with a value per multiprocessor, `value` is one for all of them, or one for each, padded to
    /// 8 bytes.
    ///
    /// # Errors
    /// [`Error::Size`], [`Error::Ended`], [`Error::NoAnswer`], [`Error::Operation`] with Linux's
    /// numbers.
    pub fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), Error> {
        self.check_key(key)?;
        self.one(OpCode::Update, "an update", key, value, flags)
            .map(drop)
    }

    /// Removes `key`; false if it was not there.
    ///
    /// # Errors
    /// As [`Map::update`].
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        self.check_key(key)?;
        found(self.one(OpCode::Delete, "a delete", key, &[], 0)).map(|done| done.is_some())
    }

    /// Removes `key` and gives its value. A program that changes the value between the two steps of
    /// this is not seen.
    ///
    /// # Errors
    /// As [`Map::update`].
    pub fn lookup_and_delete(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.check_key(key)?;
        found(self.one(OpCode::LookupAndDelete, "a lookup and delete", key, &[], 0))
    }

    /// Adds a value to a queue, stack or bloom filter, or a record of any size to a user ring
    /// buffer, which is full (`ENOSPC`) until programs have drained it. With `BPF_EXIST` a full
    /// queue drops its oldest one; a full stack refuses (`E2BIG`) as without the flag, for nobody
    /// reaches its oldest value.
    ///
    /// # Errors
    /// As [`Map::update`].
    pub fn push(&self, value: &[u8], flags: u64) -> Result<(), Error> {
        if self.info.map_type != MapType::UserRingbuf as u32 {
            self.check_value(value)?;
        }
        self.one(OpCode::Push, "a push", &[], value, flags)
            .map(drop)
    }

    /// Takes the next value out of a queue or stack.
    ///
    /// # Errors
    /// As [`Map::update`].
    pub fn pop(&self) -> Result<Option<Vec<u8>>, Error> {
        found(self.one(OpCode::Pop, "a pop", &[], &[], 0))
    }

    /// The next value of a queue or stack, which stays in it.
    ///
    /// # Errors
    /// As [`Map::update`].
    pub fn peek(&self) -> Result<Option<Vec<u8>>, Error> {
        found(self.one(OpCode::Peek, "a peek", &[], &[], 0))
    }

    /// `value` may be in the bloom filter; if not, it never was put in.
    ///
    /// # Errors
    /// As [`Map::update`].
    pub fn contains(&self, value: &[u8]) -> Result<bool, Error> {
        self.check_value(value)?;
        found(self.one(OpCode::Peek, "a test", &[], value, 0)).map(|done| done.is_some())
    }

    /// Many operations in one message: an outcome for each. Those on one key are done in their
    /// order, others may be done at once: a batch is not atomic.
    ///
    /// # Errors
    /// [`Error::Ended`], [`Error::NoAnswer`], [`Error::Map`]: nothing is known of any of them.
    pub fn batch(&self, ops: &[MapOp<'_>]) -> Result<Vec<Outcome>, Error> {
        let outcomes = self
            .process
            .operate(self.index, &self.info.name, &encode_ops(ops))?;
        if outcomes.len() != ops.len() {
            return Err(Error::Map {
                map: self.info.name.clone(),
                message: format!(
                    "{} outcomes came for {} operations",
                    outcomes.len(),
                    ops.len()
                ),
            });
        }
        Ok(outcomes)
    }

    fn one(
        &self,
        code: OpCode,
        what: &'static str,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<Vec<u8>, Error> {
        let op = MapOp {
            code,
            flags,
            key,
            value,
        };
        let outcome = self.batch(&[op])?.pop().unwrap_or_default();
        match outcome.errno {
            0 => Ok(outcome.bytes),
            errno => Err(Error::Operation {
                map: self.info.name.clone(),
                what,
                errno,
            }),
        }
    }

    /// All of it now; of a process that has ended, as it was then.
    ///
    /// # Errors
    /// [`Error::Map`] for a ring, whose records are events, and where nothing was ever copied;
    /// [`Error::NoAnswer`].
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        if self.info.bytes > 0 {
            match self.one(OpCode::Snapshot, "a snapshot", &[], &[], 0) {
                Ok(_) | Err(Error::Ended { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.last_snapshot()
    }

    /// All of it as it was last copied, without asking the process: while kernels run, at most
    /// about a second old.
    ///
    /// # Errors
    /// As [`Map::snapshot`].
    pub fn last_snapshot(&self) -> Result<Snapshot, Error> {
        let failed = |message: &str| Error::Map {
            map: self.info.name.clone(),
            message: message.to_owned(),
        };
        let plan = self
            .plan()
            .ok_or_else(|| failed("its type is not known here"))?;
        if self.info.bytes == 0 {
            return Err(failed("it has no contents but events"));
        }
        let mut parts = Vec::new();
        let mut state = self.process.lock();
        let mut spare = std::mem::take(&mut state.spare);
        let (index, mut copied) = (state.client_views.area(self.index), false);
        for context in &state.contexts {
            let most = 2 * plan.snapshot_bytes();
            let fits = |bytes: &Vec<u8>| bytes.capacity() as u64 <= most;
            let mut bytes = spare.pop().filter(fits).unwrap_or_default();
            // One that ended before the map came has nothing of it.
            let lacks = index >= context.shared.maps();
            if !lacks && !context.may_hold(index, plan.snapshot_bytes()) {
                return Err(failed(
                    "its process does not hold as much memory as it says",
                ));
            }
            match lacks || context.shared.snapshot(index, &mut bytes)?.is_none() {
                false => copied = true,
                // A context that just came: what it begins with is as good as nothing.
                true if lacks || copied => {
                    bytes.clear();
                    bytes.resize(plan.snapshot_bytes() as usize, 0);
                }
                true => return Err(failed("nothing was copied out of it yet")),
            }
            parts.push(bytes);
        }
        if !copied {
            return Err(failed("nothing was copied out of it yet"));
        }
        Ok(Snapshot { plan, parts })
    }

    /// The part of each context by itself, as it was last copied, in the order of
    /// [`Process::contexts`].
    ///
    /// # Errors
    /// As [`Map::snapshot`].
    pub fn contexts(&self) -> Result<Vec<(ContextInfo, Snapshot)>, Error> {
        let Snapshot { plan, parts } = self.last_snapshot()?;
        let each = self.process.contexts().into_iter().zip(parts);
        let each = each.map(|(context, part)| {
            let snapshot = Snapshot {
                plan: plan.clone(),
                parts: vec![part],
            };
            (context, snapshot)
        });
        Ok(each.collect())
    }

    /// Everything in it, in the order of [`MapView::entries`].
    ///
    /// # Errors
    /// As [`Map::snapshot`].
    pub fn entries(&self) -> Result<Vec<Entry>, Error> {
        Ok(self.snapshot()?.view()?.entries().collect())
    }

    /// Calls `each` with every key and its value, of a map with one value per key: what a map with
    /// a million keys is read by. Returns how many there were.
    ///
    /// # Errors
    /// As [`Map::snapshot`].
    pub fn each(&self, mut each: impl FnMut(&[u8], &[u8])) -> Result<usize, Error> {
        let snapshot = self.snapshot()?;
        let mut count = 0;
        snapshot.view()?.each(|key, value| {
            count += 1;
            each(key, value);
        });
        self.process.lock().spare = snapshot.parts;
        Ok(count)
    }

    /// Records of this ring that are there, in their order per multiprocessor; waits up to
    /// `timeout` for the first one. Returns how many there were, as libbpf's `ring_buffer__poll`
    /// and `perf_buffer__poll` do; `each` may use the process and its maps.
    pub fn poll(&self, timeout: Duration, each: impl FnMut(Event<'_>)) -> usize {
        self.process.poll_map(Some(self.index), timeout, each)
    }

    /// Records of this ring that never came, wherever they were lost.
    pub fn lost(&self) -> u64 {
        self.losses().sum()
    }

    /// The same, by why they were lost.
    pub fn losses(&self) -> Losses {
        self.process.lock().losses(self.index)
    }

    /// The plan that a view needs, from what the agent sent.
    #[doc(hidden)]
    pub fn plan(&self) -> Option<MapPlan> {
        plan_of(&self.info)
    }

    fn lookup_last(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let snapshot = self.last_snapshot()?;
        let view = snapshot.view()?;
        let value = view.lookup(key)?;
        Ok(value.map(|value| merge::in_a_row(&snapshot.plan, value)))
    }

    fn check_key(&self, key: &[u8]) -> Result<(), Error> {
        self.check("key", self.info.key_size, key)
    }

    fn check_value(&self, value: &[u8]) -> Result<(), Error> {
        self.check("value", self.info.value_size, value)
    }

    fn check(&self, what: &'static str, size: u32, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() == size as usize {
            return Ok(());
        }
        Err(Error::Size {
            map: self.info.name.clone(),
            what,
            expected: size as usize,
            found: bytes.len(),
        })
    }
}

impl Process {
    /// Its maps, in the object's order; empty before they exist. Those of other tools are not among
    /// them.
    pub fn maps(&self) -> Vec<Map> {
        let infos: Vec<MapInfo> = self.lock().maps.clone();
        let own = (0..).zip(infos).filter(|(_, info)| info.client == OWN);
        own.map(|(index, info)| Map::new(self.clone(), index, info))
            .collect()
    }

    /// A map by its name.
    ///
    /// # Errors
    /// [`Error::NotReady`] before the maps exist, [`Error::Refused`], [`Error::NoMap`] with the
    /// names that there are.
    pub fn map(&self, name: &str) -> Result<Map, Error> {
        self.pump();
        let state = self.lock();
        if let Some(message) = &state.refused {
            return Err(Error::Refused {
                pid: state.pid,
                message: message.clone(),
            });
        }
        if !state.is_ready() {
            return Err(Error::NotReady { pid: state.pid });
        }
        let own = |map: &&MapInfo| map.client == OWN;
        let mut maps = state.maps.iter();
        let found = maps.position(|map| own(&map) && map.name == name);
        let Some(index) = found else {
            let names = state.maps.iter().filter(own);
            let names: Vec<String> = names.map(|m| format!("`{}`", m.name)).collect();
            return Err(Error::NoMap {
                name: name.to_owned(),
                there: names.join(", "),
            });
        };
        let info = state.maps[index].clone();
        drop(state);
        Ok(Map::new(self.clone(), index as u32, info))
    }

    /// Programs that were ended in loops that nothing bounds
    /// ([`Options::bound_loops`](crate::Options::bound_loops)), and how often, as it was last
    /// copied: of what they would have done after that, nothing is done.
    pub fn stopped(&self) -> Vec<(String, u64)> {
        let counts = self.maps().into_iter().filter_map(|map| {
            let program = stops::program_of(map.name())?.to_owned();
            let snapshot = map.last_snapshot().ok()?;
            Some((program, stops::count(&map.plan()?, snapshot.parts())))
        });
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

/// A key that is not there is an answer.
fn found<T>(done: Result<T, Error>) -> Result<Option<T>, Error> {
    match done {
        Ok(value) => Ok(Some(value)),
        Err(Error::Operation { errno, .. }) if i64::from(errno) == ENOENT => Ok(None),
        Err(error) => Err(error),
    }
}
