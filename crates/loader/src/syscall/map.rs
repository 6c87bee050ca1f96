//! `bpf()` for maps. Before an application is connected they are held here; then the device holds
//! them, and what is asked is answered from copies of its memory, what is changed is changed there.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::PoisonError;

use rustix::io::Errno;
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, MapType};
use warpbpf_maps::{MapView, Value};
use warpbpf_object::TypeId;
use warpbpf_wire::OpCode;

use crate::kernel::Kernel;
use crate::objects::contents::{Contents, index};
use crate::objects::extra_cpus::ExtraCpus;
use crate::objects::handle::Handle;
use crate::objects::map::Map;
use crate::objects::perf::Perf;
use crate::objects::session::{errno, one};
use crate::objects::walk::{Entries, Walk};
use crate::spec::Spec;
use crate::tool::attr::Attr;
use crate::tool::user::User;
use crate::uapi::{F_LOCK, F_RDONLY, F_WRONLY, LAST_MAP_TYPE, attr};

impl Kernel {
    pub(crate) fn map_create(&mut self, a: &Attr) -> Result<i64, Errno> {
        let spec = Spec {
            map_type: a.u32(attr::map::TYPE),
            key_size: a.u32(attr::map::KEY_SIZE),
            value_size: a.u32(attr::map::VALUE_SIZE),
            max_entries: a.u32(attr::map::MAX_ENTRIES),
            flags: a.u32(attr::map::FLAGS),
            extra: a.u64(attr::map::EXTRA),
        };
        if spec.kind().is_none() && !(1..=LAST_MAP_TYPE).contains(&spec.map_type) {
            return Err(Errno::INVAL);
        }
        let inner = match spec.kind() {
            Some(MapType::ArrayOfMaps | MapType::HashOfMaps) => {
                let inner = self.map_at(a.fd(attr::map::INNER_MAP_FD))?;
                Some(self.maps.get(inner).ok_or(Errno::BADF)?.spec)
            }
            _ => None,
        };
        let (key_type, value_type) = (a.u32(attr::map::KEY_TYPE), a.u32(attr::map::VALUE_TYPE));
        let btf = if key_type != 0 || value_type != 0 {
            Some(self.btf_at(a.fd(attr::map::BTF_FD))?)
        } else {
            None
        };
        let slot = spec.slot(self.config.cpus, self.config.threads);
        if slot > warpbpf_maps::MAX_BYTES {
            return Err(Errno::TOOBIG);
        }
        let at = self.maps.add(Map {
            spec,
            name: a.name(attr::map::NAME),
            btf,
            key_type: TypeId(key_type),
            value_type: TypeId(value_type),
            frozen: false,
            contents: Contents::new(&spec, slot)?,
            extra_cpus: ExtraCpus::default(),
            inner,
            walk: None,
            shadow: None,
        });
        self.open(Some(Handle::Map(at)))
    }

    fn key(&self, at: usize, address: u64, user: &dyn User) -> Result<Vec<u8>, Errno> {
        user.bytes(address, self.map(at)?.spec.key_size as usize)
    }

    pub(crate) fn readable(&self, at: usize) -> Result<(), Errno> {
        let denied = self.map(at)?.spec.flags & F_WRONLY != 0;
        if denied { Err(Errno::PERM) } else { Ok(()) }
    }

    pub(crate) fn writable(&self, at: usize) -> Result<(), Errno> {
        let map = self.map(at)?;
        let denied = map.frozen || map.spec.flags & F_RDONLY != 0;
        if denied { Err(Errno::PERM) } else { Ok(()) }
    }

    /// It has a shadow map, and no device has it.
    fn is_linux_s(&self, at: usize) -> Result<bool, Errno> {
        Ok(self.map(at)?.shadow.is_some() && self.session_of(at).is_none())
    }

    /// The value of a key as user space gets it.
    pub(crate) fn lookup(&self, at: usize, key: &[u8]) -> Result<Vec<u8>, Errno> {
        let map = self.map(at)?;
        if map.shadow.is_some() && !matches!(map.contents, Contents::Maps(_)) {
            return self.lookup_both(at, key, || self.lookup_here(at, key));
        }
        self.lookup_here(at, key)
    }

    fn lookup_here(&self, at: usize, key: &[u8]) -> Result<Vec<u8>, Errno> {
        let map = self.map(at)?;
        let spec = &map.spec;
        match &map.contents {
            Contents::Maps(maps) => {
                let inner = maps.get(key).ok_or(Errno::NOENT)?;
                return Ok((*inner as u32 + 1).to_ne_bytes().to_vec());
            }
            Contents::Ring(_)
            | Contents::UserRing(_)
            | Contents::Outputs(_)
            | Contents::Records(_) => return Err(Errno::OPNOTSUPP),
            Contents::Row(_) => {
                if let Some((session, number)) = self.session_of(at) {
                    return one(&*session, number, OpCode::Peek, key, &[], 0);
                }
            }
            Contents::Slots(_) | Contents::Mapped(..) | Contents::Keyed(_) | Contents::Threads => {
                if let Some(value) = self.lookup_one(at, key) {
                    return value;
                }
                if let Some(copied) = self.copied(at)? {
                    let view = MapView::merged(&copied.plan, &copied.parts);
                    let value = view.and_then(|view| view.lookup(key));
                    let value = value.map_err(|error| errno(error.errno()))?;
                    return self.user_value(map, key, value.ok_or(Errno::NOENT)?);
                }
            }
        }
        let value = map.contents.get(spec, self.slot(spec), key);
        let mut value = value.ok_or(Errno::NOENT)?;
        value.truncate(self.user_bytes(spec));
        Ok(value)
    }

    /// One value of a large hash, asked for by itself if a copy would have to be made for it only
    /// because the tool has changed something: it may be about to change every entry.
    fn lookup_one(&self, at: usize, key: &[u8]) -> Option<Result<Vec<u8>, Errno>> {
        let kind = self.map(at).ok()?.spec.kind();
        let (session, number) = self.session_of(at)?;
        let one_value = matches!(kind, Some(MapType::Hash));
        if !one_value || !session.asks_singly(number) {
            return None;
        }
        match one(&*session, number, OpCode::Lookup, key, &[], 0) {
            // Then all are copied.
            Err(Errno::OPNOTSUPP | Errno::BUSY | Errno::IO) => {
                session.gives_up_singles();
                None
            }
            found => Some(found),
        }
    }

    /// A value of the device as user space sees it: a multiprocessor is a CPU.
    pub(crate) fn user_value(&self, map: &Map, key: &[u8], value: Value) -> Result<Vec<u8>, Errno> {
        let spec = &map.spec;
        let mut bytes = vec![0; self.user_bytes(spec)];
        let mut put = |at: usize, value: &[u8]| match bytes.get_mut(at..at + value.len()) {
            Some(place) => {
                place.copy_from_slice(value);
                Ok(())
            }
            // More CPUs than the tool believes in, which have nothing to say.
            None if value.iter().all(|byte| *byte == 0) => Ok(()),
            None => Err(Errno::OVERFLOW),
        };
        match value {
            Value::One(value) => put(0, &value)?,
            Value::PerSm(values) => {
                let stride = spec.value_size.next_multiple_of(8) as usize;
                for (sm, value) in values.iter().enumerate() {
                    put(sm * stride, value)?;
                }
                // A shadow map in Linux has what the tool wrote, for CPUs that there are.
                if map.shadow.is_none() {
                    let before = map.contents.get(spec, self.slot(spec), key);
                    let from = values.len() * stride;
                    map.extra_cpus.add(key, &mut bytes, from, before.as_deref());
                }
            }
            // The tool asked for so many threads; there may be more.
            Value::PerThread(values) => {
                for (thread, value) in values {
                    let _ = put(thread as usize * spec.value_size as usize, &value);
                }
            }
        }
        Ok(bytes)
    }

    /// A value of user space as the device takes it.
    pub(crate) fn device_value(&self, spec: &Spec, sms: u32, mut value: Vec<u8>) -> Vec<u8> {
        if spec.is_percpu() {
            value.truncate(spec.value_size.next_multiple_of(8) as usize * sms as usize);
        } else {
            value.truncate(spec.value_size as usize);
        }
        value
    }

    pub(crate) fn update(
        &mut self,
        at: usize,
        key: &[u8],
        value: Vec<u8>,
        flags: u64,
    ) -> Result<(), Errno> {
        let slot = self.slot(&self.map(at)?.spec);
        let spec = self.map(at)?.spec;
        let (shadow, session) = (self.map(at)?.shadow.is_some(), self.session_of(at));
        match &self.map(at)?.contents {
            Contents::Maps(_) => return self.put_map(at, key, &value, flags),
            Contents::Outputs(_) => return self.put_output(at, key, &value),
            Contents::Ring(_)
            | Contents::UserRing(_)
            | Contents::Records(_)
            | Contents::Threads => return Err(Errno::INVAL),
            Contents::Slots(_) | Contents::Mapped(..) | Contents::Keyed(_) | Contents::Row(_) => {}
        }
        let mut flags = flags;
        if shadow {
            self.update_shadow(at, key, &value, flags)?;
            if session.is_none() {
                return Ok(());
            }
            // The device may have the key, or not.
            flags = BPF_ANY;
        }
        if let Some((session, number)) = session {
            let code = if spec.is_row() {
                OpCode::Push
            } else {
                OpCode::Update
            };
            let given = self.device_value(&spec, session.sms(), value.clone());
            one(&*session, number, code, key, &given, flags)?;
            let map = self.map_mut(at)?;
            if let Some(shadow) = &mut map.shadow {
                shadow.ledger.set_given(key, &value);
            } else if spec.is_percpu() {
                map.extra_cpus.wrote(key, &value, given.len());
            }
            if let Contents::Mapped(_, known) = &mut self.map_mut(at)?.contents
                && let Some(place) = index(key, spec.max_entries)
            {
                let at = place as usize * slot as usize;
                known[at..at + value.len()].copy_from_slice(&value);
            } else {
                return Ok(());
            }
        }
        let map = self.map_mut(at)?;
        map.contents.set(&spec, slot, key, &value, flags)
    }

    fn put_map(&mut self, at: usize, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        let fd = value.first_chunk().ok_or(Errno::INVAL)?;
        let inner = self.map_at(i32::from_ne_bytes(*fd))?;
        let given = self.map(inner)?.spec;
        let map = self.map(at)?;
        let like = map.inner.ok_or(Errno::INVAL)?;
        let same = |spec: Spec| (spec.map_type, spec.key_size, spec.value_size, spec.flags);
        if same(given) != same(like) {
            return Err(Errno::INVAL);
        }
        if map.spec.kind() == Some(MapType::ArrayOfMaps) {
            index(key, map.spec.max_entries).ok_or(Errno::TOOBIG)?;
        }
        let Contents::Maps(maps) = &map.contents else {
            return Err(Errno::INVAL);
        };
        match (maps.contains_key(key), flags) {
            (false, BPF_EXIST) => return Err(Errno::NOENT),
            (true, warpbpf_abi::maps::BPF_NOEXIST) => return Err(Errno::EXIST),
            (false, _) if maps.len() >= map.spec.max_entries as usize => return Err(Errno::TOOBIG),
            _ => {}
        }
        if let Some((session, number)) = self.session_of(at) {
            let Some(held) = session.number(inner) else {
                (self.config.tell)(&format!(
                    "map `{}`: `{}` cannot be put into it while the application runs: the application began without that map",
                    map.name,
                    self.map(inner)?.name
                ));
                return Err(Errno::OPNOTSUPP);
            };
            let value = (held + 1).to_ne_bytes();
            one(&*session, number, OpCode::Update, key, &value, BPF_ANY)?;
        }
        if map.shadow.is_some() {
            self.update_shadow_map(at, key, inner)?;
        }
        if let Contents::Maps(maps) = &mut self.map_mut(at)?.contents {
            maps.insert(key.to_vec(), inner);
        }
        Ok(())
    }

    fn put_output(&mut self, at: usize, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        let map = self.map(at)?;
        let cpu = index(key, map.spec.max_entries).ok_or(Errno::TOOBIG)?;
        let fd = i32::from_ne_bytes(*value.first_chunk().ok_or(Errno::INVAL)?);
        let Some(Handle::Perf(event)) = self.handle(fd) else {
            return Err(Errno::BADF);
        };
        let (Contents::Outputs(outputs), Some(Perf::Output(output))) =
            (&map.contents, self.perfs.get(event))
        else {
            return Err(Errno::INVAL);
        };
        let mut outputs = outputs.lock().unwrap_or_else(PoisonError::into_inner);
        outputs.insert(cpu, output.clone());
        if map.shadow.is_some() {
            self.connect_output(at, cpu, output.clone())?;
        }
        Ok(())
    }

    pub(crate) fn delete(&mut self, at: usize, key: &[u8]) -> Result<(), Errno> {
        if self.map(at)?.shadow.is_none() {
            return self.delete_here(at, key);
        }
        let linux = self.delete_from_shadow(at, key);
        let local = matches!(self.map(at)?.contents, Contents::Maps(_));
        if !local && self.is_linux_s(at)? {
            return linux;
        }
        // One side that had it is enough.
        match (self.delete_here(at, key), linux) {
            (Err(Errno::NOENT), linux) => linux,
            (here, _) => here,
        }
    }

    fn delete_here(&mut self, at: usize, key: &[u8]) -> Result<(), Errno> {
        if matches!(self.map(at)?.contents, Contents::Keyed(_))
            && let Some((session, number)) = self.session_of(at)
        {
            one(&*session, number, OpCode::Delete, key, &[], 0)?;
            let slot = self.slot(&self.map(at)?.spec);
            let map = self.map_mut(at)?;
            if map.spec.is_percpu() {
                let before = map.contents.get(&map.spec, slot, key).is_some();
                map.extra_cpus.removed(key, before);
            }
            return Ok(());
        }
        if let Contents::Maps(maps) = &self.map(at)?.contents
            && maps.contains_key(key)
            && let Some((session, number)) = self.session_of(at)
        {
            one(&*session, number, OpCode::Delete, key, &[], 0)?;
        }
        if self.map(at)?.spec.kind() == Some(MapType::BloomFilter) {
            return Err(Errno::OPNOTSUPP);
        }
        self.map_mut(at)?.contents.remove(key)
    }

    pub(crate) fn map_lookup(&mut self, a: &Attr, user: &dyn User) -> Result<i64, Errno> {
        let at = self.map_at(a.fd(attr::elem::MAP_FD))?;
        if a.u64(attr::elem::FLAGS) & !F_LOCK != 0 {
            return Err(Errno::INVAL);
        }
        self.readable(at)?;
        let spec = self.map(at)?.spec;
        if spec.kind() == Some(MapType::BloomFilter) {
            // Asks whether its value is in the filter.
            let value = user.bytes(a.u64(attr::elem::VALUE), spec.value_size as usize)?;
            return self.in_filter(at, &value).map(|()| 0);
        }
        let key = self.key(at, a.u64(attr::elem::KEY), user)?;
        let value = self.lookup(at, &key)?;
        user.write(a.u64(attr::elem::VALUE), &value)?;
        Ok(0)
    }

    fn in_filter(&self, at: usize, value: &[u8]) -> Result<(), Errno> {
        if self.is_linux_s(at)? {
            return self.in_filter_of_shadow(at, value);
        }
        if let Some((session, number)) = self.session_of(at) {
            return one(&*session, number, OpCode::Peek, &[], value, 0).map(|_| ());
        }
        match &self.map(at)?.contents {
            Contents::Row(row) if row.iter().any(|v| v == value) => Ok(()),
            _ => Err(Errno::NOENT),
        }
    }

    pub(crate) fn map_update(&mut self, a: &Attr, user: &dyn User) -> Result<i64, Errno> {
        let at = self.map_at(a.fd(attr::elem::MAP_FD))?;
        self.writable(at)?;
        let flags = flags(a.u64(attr::elem::FLAGS))?;
        let spec = self.map(at)?.spec;
        let key = self.key(at, a.u64(attr::elem::KEY), user)?;
        let value = user.bytes(a.u64(attr::elem::VALUE), self.user_bytes(&spec))?;
        self.update(at, &key, value, flags)?;
        Ok(0)
    }

    pub(crate) fn map_delete(&mut self, a: &Attr, user: &dyn User) -> Result<i64, Errno> {
        let at = self.map_at(a.fd(attr::elem::MAP_FD))?;
        self.writable(at)?;
        let key = self.key(at, a.u64(attr::elem::KEY), user)?;
        self.delete(at, &key)?;
        Ok(0)
    }

    /// `BPF_MAP_LOOKUP_AND_DELETE_ELEM`: a queue's and a stack's pop, a hash's take.
    pub(crate) fn map_take(&mut self, a: &Attr, user: &dyn User) -> Result<i64, Errno> {
        let at = self.map_at(a.fd(attr::elem::MAP_FD))?;
        self.readable(at)?;
        self.writable(at)?;
        let key = self.key(at, a.u64(attr::elem::KEY), user)?;
        // Nothing is taken that cannot be given: first it is seen whether there is a place for it.
        let (place, bytes) = (
            a.u64(attr::elem::VALUE),
            self.user_bytes(&self.map(at)?.spec),
        );
        user.write(place, &user.bytes(place, bytes)?)?;
        let value = self.take(at, &key)?;
        user.write(a.u64(attr::elem::VALUE), &value)?;
        Ok(0)
    }

    pub(crate) fn take(&mut self, at: usize, key: &[u8]) -> Result<Vec<u8>, Errno> {
        let spec = self.map(at)?.spec;
        if self.is_linux_s(at)? {
            return self.take_from_shadow(at, key);
        }
        let both = self.map(at)?.shadow.is_some();
        match (&self.map(at)?.contents, self.session_of(at)) {
            (Contents::Row(_), _) if spec.kind() == Some(MapType::BloomFilter) => {
                Err(Errno::OPNOTSUPP)
            }
            (Contents::Row(_), Some((session, number))) => {
                one(&*session, number, OpCode::Pop, key, &[], 0)
            }
            (Contents::Keyed(_), Some((session, number))) if !spec.is_percpu() && !both => {
                one(&*session, number, OpCode::LookupAndDelete, key, &[], 0)
            }
            (Contents::Keyed(_), _) => {
                let value = self.lookup(at, key)?;
                self.delete(at, key)?;
                Ok(value)
            }
            (Contents::Row(_), None) => {
                let Contents::Row(row) = &mut self.map_mut(at)?.contents else {
                    return Err(Errno::INVAL);
                };
                let value = match spec.kind() {
                    Some(MapType::Stack) => row.pop_back(),
                    _ => row.pop_front(),
                };
                value.ok_or(Errno::NOENT)
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    pub(crate) fn map_freeze(&mut self, a: &Attr) -> Result<i64, Errno> {
        let at = self.map_at(a.fd(attr::elem::MAP_FD))?;
        let map = self.map(at)?;
        if map.frozen {
            return Err(Errno::BUSY);
        }
        if map.shadow.is_some() {
            self.freeze_shadow(at)?;
        }
        self.map_mut(at)?.frozen = true;
        Ok(0)
    }

    pub(crate) fn map_next_key(&mut self, a: &Attr, user: &dyn User) -> Result<i64, Errno> {
        let at = self.map_at(a.fd(attr::elem::MAP_FD))?;
        self.readable(at)?;
        let before = match a.u64(attr::elem::KEY) {
            0 => None,
            address => Some(self.key(at, address, user)?),
        };
        let next = self.next_key(at, before.as_deref())?;
        user.write(a.u64(attr::elem::VALUE), &next)?;
        Ok(0)
    }

    pub(crate) fn next_key(&mut self, at: usize, before: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        let spec = self.map(at)?.spec;
        let arrays = matches!(
            spec.kind(),
            Some(MapType::ArrayOfMaps | MapType::PerfEventArray)
        );
        if spec.has_indices() || arrays {
            // As in Linux: a key that is none starts again.
            let next = match before.and_then(|key| index(key, spec.max_entries)) {
                Some(key) => key + 1,
                None => 0,
            };
            if next >= spec.max_entries {
                return Err(Errno::NOENT);
            }
            return Ok(next.to_ne_bytes().to_vec());
        }
        let local = matches!(self.map(at)?.contents, Contents::Maps(_));
        if !local && self.is_linux_s(at)? {
            return self.next_key_of_shadow(at, before);
        }
        if matches!(self.map(at)?.contents, Contents::Keyed(_)) && self.session_of(at).is_some() {
            let walk = self.map(at)?.walk.as_ref();
            let known = walk.zip(before).is_some_and(|(walk, key)| walk.knows(key));
            if !known {
                self.start_walk(at)?;
            }
            let walk = self.map_mut(at)?.walk.as_mut();
            return walk.and_then(|walk| walk.next(before)).ok_or(Errno::NOENT);
        }
        match &self.map(at)?.contents {
            Contents::Keyed(entries) => after(entries, before).ok_or(Errno::NOENT),
            Contents::Maps(entries) => after(entries, before).ok_or(Errno::NOENT),
            Contents::Row(_) if spec.kind() != Some(MapType::BloomFilter) => Err(Errno::INVAL),
            Contents::Row(_)
            | Contents::Slots(_)
            | Contents::Mapped(..)
            | Contents::Ring(_)
            | Contents::UserRing(_)
            | Contents::Outputs(_)
            | Contents::Threads
            | Contents::Records(_) => Err(Errno::OPNOTSUPP),
        }
    }

    /// Notes the keys that the device's map has now, and their values where the copy says them
    /// already.
    pub(crate) fn start_walk(&mut self, at: usize) -> Result<(), Errno> {
        let (spec, is_shadow) = (self.map(at)?.spec, self.map(at)?.shadow.is_some());
        let mut entries = Entries::new(spec.key_size);
        if let Some(copied) = self.copied(at)? {
            let view = MapView::merged(&copied.plan, &copied.parts);
            let view = view.map_err(|error| errno(error.errno()))?;
            if spec.is_percpu() {
                view.entries()
                    .for_each(|entry| entries.push(&entry.key, &[]));
            } else if is_shadow {
                let mut known = HashSet::new();
                view.each(|key, _| {
                    entries.push(key, &[]);
                    known.insert(key.to_vec());
                });
                let more = self.keys_of_shadow(at)?.into_iter();
                more.filter(|key| !known.contains(key))
                    .for_each(|key| entries.push(&key, &[]));
            } else {
                entries = entries.with_values(&copied.parts, spec.value_size as usize);
                view.each(|key, value| entries.push(key, value));
            }
        }
        self.map_mut(at)?.walk = Some(Walk::new(entries));
        Ok(())
    }
}

/// Flags of an update.
pub(crate) fn flags(flags: u64) -> Result<u64, Errno> {
    let flags = flags & !F_LOCK;
    if flags > BPF_EXIST {
        Err(Errno::INVAL)
    } else {
        Ok(flags)
    }
}

/// The key behind another one, or the first if that is none of them.
fn after<V>(entries: &BTreeMap<Vec<u8>, V>, before: Option<&[u8]>) -> Option<Vec<u8>> {
    let before = before.filter(|key| entries.contains_key(*key));
    let next = match before {
        Some(key) => entries
            .range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded))
            .next(),
        None => entries.first_key_value(),
    };
    next.map(|(key, _)| key.clone())
}
