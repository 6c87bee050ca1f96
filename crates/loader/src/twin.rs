//! Maps of Linux that stand for ours, because programs of Linux use them.
//!
//! A map gets its [`Twin`] when the first program of Linux names it. What the tool asks of a map with a twin is answered from
//! there, and from the device too once an application has it: then a value is what stands on the device and what programs of
//! Linux have changed since the application connected, word by word. [`crate::carry`] brings values from one side to the other
//! where that cannot overwrite what the other side counts.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use rustix::io::Errno;
use warpbpf_abi::maps::{BPF_ANY, MapType};

use crate::bpf_map::Map;
use crate::contents::Contents;
use crate::drawn::Drawn;
use crate::kernel::Kernel;
use crate::linux::{Fields, Linux};
use crate::memory::{Access, Memory};
use crate::perf::Output;
use crate::spec::Spec;
use crate::uapi::{Command, F_MMAPABLE, LAST_MAP_TYPE, attr};

/// A map of the kernel that stands for one of ours.
#[derive(Debug)]
pub struct Twin {
    fd: OwnedFd,
    /// What it held when an application was last given its contents, and what the tool has written since; zeros where
    /// nothing stands.
    base: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What the device held when that was last added to Linux's values; zeros where nothing stands.
    given: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Its values, where they can be mapped.
    memory: Option<Memory>,
}

impl Twin {
    /// Its descriptor.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(crate) fn memory(&self) -> Option<&Memory> {
        self.memory.as_ref()
    }

    pub(crate) fn base(&self, key: &[u8], bytes: usize) -> Vec<u8> {
        let mut base = self.base.get(key).cloned().unwrap_or_default();
        base.resize(bytes, 0);
        base
    }

    /// Keys of values that stood there; of an array, those that were not zero.
    pub(crate) fn known(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.base.keys()
    }

    pub(crate) fn knows(&self, key: &[u8]) -> bool {
        self.base.contains_key(key)
    }

    /// The key is gone.
    pub(crate) fn forget(&mut self, key: &[u8]) {
        self.base.remove(key);
        self.given.remove(key);
    }

    /// The device holds a value of the tool or of Linux, which Linux holds too.
    pub(crate) fn set_given(&mut self, key: &[u8], value: &[u8]) {
        self.given.insert(key.to_vec(), value.to_vec());
    }

    /// The device holds these words, which the tool wrote and Linux holds too. What else it has changed is still to be added.
    pub(crate) fn give(&mut self, key: &[u8], bytes: usize, words: &[(usize, [u8; 8])]) {
        let mut given = self.given.get(key).cloned().unwrap_or_default();
        given.resize(bytes, 0);
        let places = given.as_chunks_mut::<8>().0;
        words.iter().for_each(|(word, new)| places[*word] = *new);
        self.set_given(key, &given);
    }

    /// Adds to Linux's words, of a value that begins at `start`, what the device has changed since the last time.
    pub(crate) fn add(&mut self, key: &[u8], start: u64, device: &[u8]) {
        let Some(memory) = &self.memory else { return };
        let mut base = self.base(key, device.len());
        let mut given = self.given.get(key).cloned().unwrap_or_default();
        given.resize(device.len(), 0);
        if given == device {
            return;
        }
        let words = base.as_chunks_mut::<8>().0.iter_mut();
        let sides = given
            .as_chunks::<8>()
            .0
            .iter()
            .zip(device.as_chunks::<8>().0);
        for ((at, base), (given, device)) in (0..).zip(words).zip(sides) {
            let number = |word: &[u8; 8]| u64::from_ne_bytes(*word);
            let more = number(device).wrapping_sub(number(given));
            // Atomic: nothing that Linux's programs add at this moment is lost.
            memory
                .word(start + 8 * at)
                .fetch_add(more, Ordering::Relaxed);
            *base = number(base).wrapping_add(more).to_ne_bytes();
        }
        self.set_base(key, &base);
        self.set_given(key, device);
    }

    /// Gives words of a mapped value, which begins at `start`, to Linux's programs.
    pub(crate) fn write(
        &mut self,
        key: &[u8],
        start: u64,
        bytes: usize,
        words: &[(usize, [u8; 8])],
    ) {
        let mut base = self.base(key, bytes);
        for (word, new) in words {
            let at = word * 8;
            if let Some(memory) = &self.memory {
                memory.store(start + at as u64, new);
            }
            base[at..at + 8].copy_from_slice(new);
        }
        self.set_base(key, &base);
    }

    pub(crate) fn set_base(&mut self, key: &[u8], value: &[u8]) {
        self.base.insert(key.to_vec(), value.to_vec());
    }
}

/// What stands on the device, and what Linux's programs have changed since `base`: the sum for words that both count in, and
/// for all others what the one side that changed them wrote.
pub(crate) fn combine(device: &mut [u8], linux: &[u8], base: &[u8]) {
    let mut at = 0;
    while at < device.len() {
        let bytes = [8, 4, 2, 1].into_iter().find(|b| at + b <= device.len());
        let end = at + bytes.unwrap_or(1);
        let word = |from: &[u8]| {
            let mut word = [0; 8];
            word[..end - at].copy_from_slice(&from[at..end]);
            u64::from_le_bytes(word)
        };
        let changed = word(linux).wrapping_sub(word(base));
        let sum = word(device).wrapping_add(changed).to_le_bytes();
        device[at..end].copy_from_slice(&sum[..end - at]);
        at = end;
    }
}

impl Kernel {
    /// The descriptor that the tool maps instead of our memory: of a map that only programs of Linux use.
    pub(crate) fn mapped_in_linux(&self, at: usize) -> Option<RawFd> {
        let twin = self.maps.get(at)?.twin.as_ref()?;
        let wanted = self.maps.get(at)?.spec.flags & F_MMAPABLE != 0;
        twin.memory().filter(|_| wanted)?;
        (!self.is_used_here(at)).then(|| twin.fd())
    }

    /// The descriptor of a map's twin, which is made if there is none yet.
    pub(crate) fn ensure_twin(&mut self, at: usize) -> Result<RawFd, Errno> {
        if let Some(twin) = &self.map(at)?.twin {
            return Ok(twin.fd());
        }
        let map = self.map(at)?;
        let (spec, name, frozen) = (map.spec, map.name.clone(), map.frozen);
        let (types, key_type, value_type, inner) =
            (map.btf, map.key_type, map.value_type, map.inner);
        if spec.map_type > LAST_MAP_TYPE || spec.kind() == Some(MapType::UserRingbuf) {
            (self.config.tell)(&format!(
                "map `{name}`: Linux has no such map; a program of Linux cannot use it"
            ));
            return Err(Errno::OPNOTSUPP);
        }
        let inner = inner
            .map(|inner| self.create(&inner, "inner", None, None))
            .transpose()?;
        let types = types.and_then(|types| self.real_types(types).ok());
        let types = types.map(|fd| (fd, key_type.0, value_type.0));
        // What the device counts can be added to values that are mapped.
        let mut linux = spec;
        if spec.kind() == Some(MapType::Array) {
            linux.flags |= F_MMAPABLE;
        }
        let fd = self.create(&linux, &name, types, inner.as_ref())?;
        let number = fd.as_raw_fd();
        let mut twin = Twin {
            fd,
            base: BTreeMap::new(),
            given: BTreeMap::new(),
            memory: None,
        };
        let mut outputs = Vec::new();
        match &self.map(at)?.contents {
            Contents::Ring(ring) => {
                let fd = twin.fd.try_clone().map_err(|_| Errno::MFILE)?;
                self.drawn.add(Drawn::of_ring(fd, ring.clone())?);
            }
            Contents::Outputs(all) => {
                let all = all.lock().unwrap_or_else(PoisonError::into_inner);
                outputs.extend(all.iter().map(|(cpu, output)| (*cpu, output.clone())));
            }
            _ => {}
        }
        for (cpu, output) in outputs {
            self.connect(number, &spec, cpu, output)?;
        }
        // What the tool has written until now.
        let entries = self.map(at)?.contents.entries(&spec, self.slot(&spec));
        let maps: Vec<(Vec<u8>, usize)> = match &self.map(at)?.contents {
            Contents::Maps(maps) => maps.iter().map(|(key, map)| (key.clone(), *map)).collect(),
            _ => Vec::new(),
        };
        for (key, mut value) in entries {
            value.truncate(self.user_bytes(&spec));
            self.put(number, &spec, &key, &value, BPF_ANY)?;
            twin.set_base(&key, &value);
        }
        for (key, map) in maps {
            let fd = self.ensure_twin(map)?;
            self.put(number, &spec, &key, &fd.to_ne_bytes(), BPF_ANY)?;
        }
        if frozen {
            self.ask_linux(
                Command::MapFreeze,
                Fields::new().u32(attr::elem::MAP_FD, number as u32),
            )?;
        } else if linux.flags & F_MMAPABLE != 0 {
            let bytes = self.slot(&spec) * u64::from(spec.max_entries);
            let fd = twin.fd.try_clone().map_err(|_| Errno::MFILE)?;
            let memory = Memory::of(fd, 0, bytes, Access::Write);
            // Linux maps no values with locks or timers in them; a tool that asks for it is told so.
            twin.memory = memory.ok();
        }
        self.map_mut(at)?.twin = Some(twin);
        Ok(number)
    }

    fn create(
        &self,
        spec: &Spec,
        name: &str,
        types: Option<(RawFd, u32, u32)>,
        inner: Option<&OwnedFd>,
    ) -> Result<OwnedFd, Errno> {
        let (types, key_type, value_type) = types.unwrap_or((0, 0, 0));
        let fields = Fields::new()
            .u32(attr::map::TYPE, spec.map_type)
            .u32(attr::map::KEY_SIZE, spec.key_size)
            .u32(attr::map::VALUE_SIZE, spec.value_size)
            .u32(attr::map::MAX_ENTRIES, spec.max_entries)
            .u32(attr::map::FLAGS, spec.flags)
            .u32(
                attr::map::INNER_MAP_FD,
                inner.map_or(0, |fd| fd.as_raw_fd() as u32),
            )
            .name(attr::map::NAME, name)
            .u32(attr::map::BTF_FD, types as u32)
            .u32(attr::map::KEY_TYPE, key_type)
            .u32(attr::map::VALUE_TYPE, value_type)
            .u64(attr::map::EXTRA, spec.extra);
        self.own(Command::MapCreate, fields)
    }

    /// Bytes of a value as Linux wants and gives it.
    fn linux_bytes(&self, spec: &Spec) -> usize {
        let cpus = self.linux.as_deref().map_or(1, Linux::cpus);
        spec.user_bytes(cpus, 1) as usize
    }

    /// One operation on a map of Linux.
    fn element(
        &self,
        command: Command,
        fd: RawFd,
        key: &[u8],
        value: &mut [u8],
        flags: u64,
    ) -> Result<(), Errno> {
        let fields = Fields::new()
            .u32(attr::elem::MAP_FD, fd as u32)
            .address(attr::elem::KEY, key)
            .u64(
                attr::elem::VALUE,
                if value.is_empty() {
                    0
                } else {
                    value.as_mut_ptr() as u64
                },
            )
            .u64(attr::elem::FLAGS, flags);
        self.ask_linux(command, fields).map(|_| ())
    }

    fn put(
        &self,
        fd: RawFd,
        spec: &Spec,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<(), Errno> {
        let mut value = value.to_vec();
        value.resize(self.linux_bytes(spec), 0);
        self.element(Command::MapUpdateElem, fd, key, &mut value, flags)
    }

    pub(crate) fn get(&self, command: Command, at: usize, key: &[u8]) -> Result<Vec<u8>, Errno> {
        let (map, fd) = self.with_twin(at)?;
        let mut value = vec![0; self.linux_bytes(&map.spec)];
        self.element(command, fd, key, &mut value, 0)?;
        value.resize(self.user_bytes(&map.spec), 0);
        Ok(value)
    }

    fn with_twin(&self, at: usize) -> Result<(&Map, RawFd), Errno> {
        let map = self.map(at)?;
        let twin = map.twin.as_ref().ok_or(Errno::BADF)?;
        Ok((map, twin.fd()))
    }

    /// What `lookup` gives for a map with a twin; `here` is what it gives without.
    pub(crate) fn lookup_both(
        &self,
        at: usize,
        key: &[u8],
        here: impl FnOnce() -> Result<Vec<u8>, Errno>,
    ) -> Result<Vec<u8>, Errno> {
        let linux = self.get(Command::MapLookupElem, at, key);
        if self.session_of(at).is_none() {
            return linux;
        }
        match (here(), linux) {
            (Ok(mut value), Ok(linux)) => {
                let twin = self.map(at)?.twin.as_ref().ok_or(Errno::BADF)?;
                combine(&mut value, &linux, &twin.base(key, linux.len()));
                Ok(value)
            }
            (Err(Errno::NOENT), linux) => linux,
            (here, _) => here,
        }
    }

    /// The tool writes a value.
    pub(crate) fn update_twin(
        &mut self,
        at: usize,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<(), Errno> {
        let (map, fd) = self.with_twin(at)?;
        self.put(fd, &map.spec, key, value, flags)?;
        if let Some(twin) = &mut self.map_mut(at)?.twin {
            twin.set_base(key, value);
        }
        Ok(())
    }

    /// What Linux's programs write on a CPU goes to the ring that the tool has there.
    pub(crate) fn connect_output(
        &self,
        at: usize,
        cpu: u32,
        output: Arc<Output>,
    ) -> Result<(), Errno> {
        let (map, fd) = self.with_twin(at)?;
        self.connect(fd, &map.spec, cpu, output)
    }

    fn connect(&self, fd: RawFd, spec: &Spec, cpu: u32, output: Arc<Output>) -> Result<(), Errno> {
        let linux = self.linux.as_deref().ok_or(Errno::PERM)?;
        // The tool believes in more.
        if cpu >= linux.cpus() {
            return Ok(());
        }
        let event = linux.output(cpu)?;
        let number = event.as_raw_fd() as u32;
        self.drawn.add(Drawn::of_output(event, output)?);
        self.put(fd, spec, &cpu.to_ne_bytes(), &number.to_ne_bytes(), BPF_ANY)
    }

    /// A map of maps has another one at a key.
    pub(crate) fn update_twin_map(
        &mut self,
        at: usize,
        key: &[u8],
        map: usize,
    ) -> Result<(), Errno> {
        let inner = self.ensure_twin(map)?;
        let (map, fd) = self.with_twin(at)?;
        self.put(fd, &map.spec, key, &inner.to_ne_bytes(), BPF_ANY)
    }

    pub(crate) fn delete_from_twin(&mut self, at: usize, key: &[u8]) -> Result<(), Errno> {
        let (_, fd) = self.with_twin(at)?;
        self.element(Command::MapDeleteElem, fd, key, &mut [], 0)?;
        if let Some(twin) = &mut self.map_mut(at)?.twin {
            twin.forget(key);
        }
        Ok(())
    }

    pub(crate) fn take_from_twin(&mut self, at: usize, key: &[u8]) -> Result<Vec<u8>, Errno> {
        self.get(Command::MapLookupAndDeleteElem, at, key)
    }

    /// Whether a bloom filter of Linux has the value.
    pub(crate) fn in_filter_of_twin(&self, at: usize, value: &[u8]) -> Result<(), Errno> {
        let (_, fd) = self.with_twin(at)?;
        let mut value = value.to_vec();
        self.element(Command::MapLookupElem, fd, &[], &mut value, 0)
    }

    pub(crate) fn freeze_twin(&self, at: usize) -> Result<(), Errno> {
        let (_, fd) = self.with_twin(at)?;
        let fields = Fields::new().u32(attr::elem::MAP_FD, fd as u32);
        self.ask_linux(Command::MapFreeze, fields).map(|_| ())
    }

    pub(crate) fn next_key_of_twin(
        &self,
        at: usize,
        before: Option<&[u8]>,
    ) -> Result<Vec<u8>, Errno> {
        let (map, fd) = self.with_twin(at)?;
        let mut next = vec![0; map.spec.key_size as usize];
        self.element(
            Command::MapGetNextKey,
            fd,
            before.unwrap_or(&[]),
            &mut next,
            0,
        )?;
        Ok(next)
    }

    /// All keys of a twin; those that come and go meanwhile may be missing.
    pub(crate) fn keys_of_twin(&self, at: usize) -> Result<Vec<Vec<u8>>, Errno> {
        let most = self.map(at)?.spec.max_entries as usize;
        let mut keys: Vec<Vec<u8>> = Vec::new();
        while keys.len() < most {
            match self.next_key_of_twin(at, keys.last().map(Vec::as_slice)) {
                Ok(key) => keys.push(key),
                Err(Errno::NOENT) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(keys)
    }

    /// What Linux's maps hold is what an application starts with.
    pub(crate) fn adopt_twins(&mut self) -> Result<(), Errno> {
        // Words that the tool has written since it last waited are in its memory only.
        self.synchronise();
        let all: Vec<usize> = (self.maps.iter())
            .filter(|(_, map)| map.twin.is_some())
            .map(|(at, _)| at)
            .collect();
        for at in all {
            let map = self.map(at)?;
            let (spec, slot) = (map.spec, self.slot(&map.spec));
            match &map.contents {
                Contents::Slots(_) | Contents::Mapped(..) => {}
                Contents::Keyed(_) => {
                    self.map_mut(at)?.contents = Contents::new(&spec, slot)?;
                }
                Contents::Row(_)
                | Contents::Ring(_)
                | Contents::UserRing(_)
                | Contents::Outputs(_)
                | Contents::Maps(_)
                | Contents::Threads
                | Contents::Records(_) => continue,
            }
            if spec.kind().is_none() {
                continue;
            }
            if let Some(twin) = &mut self.map_mut(at)?.twin {
                twin.base.clear();
                twin.given.clear();
            }
            for key in self.keys_of_twin(at)? {
                let value = match self.get(Command::MapLookupElem, at, &key) {
                    Err(Errno::NOENT) => continue,
                    value => value?,
                };
                let map = self.map_mut(at)?;
                map.contents.set(&spec, slot, &key, &value, BPF_ANY)?;
                let zeros = value.iter().all(|byte| *byte == 0);
                if let Some(twin) = &mut map.twin
                    && !(zeros && spec.has_indices())
                {
                    twin.set_base(&key, &value);
                    twin.set_given(&key, &value);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::combine;

    #[test]
    fn words_of_one_side_are_its_and_words_of_both_are_summed() {
        // Both count; only the device writes; only Linux writes; four bytes, of which both count one half.
        let base = [5u64, 7, 7].map(u64::to_le_bytes).concat();
        let mut device = [15u64, 99, 7].map(u64::to_le_bytes).concat();
        let mut linux = [6u64, 7, 3].map(u64::to_le_bytes).concat();
        let base = [base, vec![1, 0, 0, 0, 9]].concat();
        device.extend([4, 0, 0, 0, 9]);
        linux.extend([2, 0, 0, 0, 8]);
        combine(&mut device, &linux, &base);
        let words = [16u64, 99, 3].map(u64::to_le_bytes).concat();
        assert_eq!(device, [words, vec![5, 0, 0, 0, 8]].concat());
    }
}
