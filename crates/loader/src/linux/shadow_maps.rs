//! Maps of Linux that stand for ours, because programs of Linux use them.
//!
//! A map gets its [`Shadow`] when the first program of Linux names it. What the tool asks of a map
//! with a shadow map is answered from there, and from the device too once an application has it:
//! then a value is what stands on the device and what programs of Linux have changed since the
//! application connected, word by word. [`crate::app::shadow_sync`] brings values from one side to
//! the other where that cannot overwrite what the other side counts.

use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Arc, PoisonError};

use rustix::io::Errno;
use warpbpf_abi::maps::BPF_ANY;
use warpbpf_linux::drawn::Drawn;
use warpbpf_linux::ledger::{Ledger, combine};
use warpbpf_linux::map::LinuxMap;

use crate::kernel::Kernel;
use crate::linux::ring_targets::{ToOutput, ToRing};
use crate::objects::contents::Contents;
use crate::objects::map::Map;
use crate::objects::perf::Output;
use crate::objects::shadow::Shadow;
use crate::uapi::F_MMAPABLE;

impl Kernel {
    /// The descriptor that the tool maps instead of our memory: of a map that only programs of
    /// Linux use.
    pub(crate) fn mapped_in_linux(&self, at: usize) -> Option<RawFd> {
        let shadow = self.maps.get(at)?.shadow.as_ref()?;
        let wanted = self.maps.get(at)?.spec.flags & F_MMAPABLE != 0;
        shadow.memory().filter(|_| wanted)?;
        (!self.is_used_here(at)).then(|| shadow.fd())
    }

    /// The descriptor of a map's shadow map, which is made if there is none yet.
    pub(crate) fn ensure_shadow(&mut self, at: usize) -> Result<RawFd, Errno> {
        if let Some(shadow) = &self.map(at)?.shadow {
            return Ok(shadow.fd());
        }
        let linux = self.linux.clone().ok_or(Errno::PERM)?;
        let map = self.map(at)?;
        let (spec, name, frozen) = (map.spec, map.name.clone(), map.frozen);
        let (types, key_type, value_type, inner) =
            (map.btf, map.key_type, map.value_type, map.inner);
        if !LinuxMap::can_be(&spec) {
            (self.config.tell)(&format!(
                "map `{name}`: Linux has no such map; a program of Linux cannot use it"
            ));
            return Err(Errno::OPNOTSUPP);
        }
        let inner = inner
            .map(|inner| LinuxMap::create(&linux, &inner, "inner", None, None))
            .transpose()?;
        let types = types.and_then(|types| self.real_types(types).ok());
        let types = types.map(|fd| (fd, key_type.0, value_type.0));
        let mut shadow = Shadow {
            map: LinuxMap::create(&linux, &spec, &name, types, inner.as_ref())?,
            ledger: Ledger::default(),
        };
        let number = shadow.fd();
        let mut outputs = Vec::new();
        match &self.map(at)?.contents {
            Contents::Ring(ring) => {
                let to = Box::new(ToRing(ring.clone()));
                self.drawn
                    .add(Drawn::of_ring(shadow.map.another()?, ring.size(), to)?);
            }
            Contents::Outputs(all) => {
                let all = all.lock().unwrap_or_else(PoisonError::into_inner);
                outputs.extend(all.iter().map(|(cpu, output)| (*cpu, output.clone())));
            }
            _ => {}
        }
        for (cpu, output) in outputs {
            self.connect(&shadow.map, cpu, output)?;
        }
        // What the tool has written until now.
        let entries = self.map(at)?.contents.entries(&spec, self.slot(&spec));
        let maps: Vec<(Vec<u8>, usize)> = match &self.map(at)?.contents {
            Contents::Maps(maps) => maps.iter().map(|(key, map)| (key.clone(), *map)).collect(),
            _ => Vec::new(),
        };
        for (key, mut value) in entries {
            value.truncate(self.user_bytes(&spec));
            shadow.map.put(&key, &value, BPF_ANY)?;
            shadow.ledger.set_base(&key, &value);
        }
        for (key, map) in maps {
            let fd = self.ensure_shadow(map)?;
            shadow.map.put(&key, &fd.to_ne_bytes(), BPF_ANY)?;
        }
        match frozen {
            true => shadow.map.freeze()?,
            false => shadow.map.share(),
        }
        self.map_mut(at)?.shadow = Some(shadow);
        Ok(number)
    }

    pub(crate) fn get(&self, at: usize, key: &[u8]) -> Result<Vec<u8>, Errno> {
        let (map, shadow) = self.with_shadow(at)?;
        let mut value = shadow.map.get(key)?;
        value.resize(self.user_bytes(&map.spec), 0);
        Ok(value)
    }

    fn with_shadow(&self, at: usize) -> Result<(&Map, &Shadow), Errno> {
        let map = self.map(at)?;
        Ok((map, map.shadow.as_ref().ok_or(Errno::BADF)?))
    }

    /// What `lookup` gives for a map with a shadow map; `here` is what it gives without.
    pub(crate) fn lookup_both(
        &self,
        at: usize,
        key: &[u8],
        here: impl FnOnce() -> Result<Vec<u8>, Errno>,
    ) -> Result<Vec<u8>, Errno> {
        let linux = self.get(at, key);
        if self.session_of(at).is_none() {
            return linux;
        }
        match (here(), linux) {
            (Ok(mut value), Ok(linux)) => {
                let shadow = self.map(at)?.shadow.as_ref().ok_or(Errno::BADF)?;
                combine(&mut value, &linux, &shadow.ledger.base(key, linux.len()));
                Ok(value)
            }
            (Err(Errno::NOENT), linux) => linux,
            (here, _) => here,
        }
    }

    /// The tool writes a value.
    pub(crate) fn update_shadow(
        &mut self,
        at: usize,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<(), Errno> {
        let shadow = self.map_mut(at)?.shadow.as_mut().ok_or(Errno::BADF)?;
        shadow.map.put(key, value, flags)?;
        shadow.ledger.set_base(key, value);
        Ok(())
    }

    /// What Linux's programs write on a CPU goes to the ring that the tool has there.
    pub(crate) fn connect_output(
        &self,
        at: usize,
        cpu: u32,
        output: Arc<Output>,
    ) -> Result<(), Errno> {
        let (_, shadow) = self.with_shadow(at)?;
        self.connect(&shadow.map, cpu, output)
    }

    fn connect(&self, map: &LinuxMap, cpu: u32, output: Arc<Output>) -> Result<(), Errno> {
        let linux = self.linux.as_deref().ok_or(Errno::PERM)?;
        // The tool believes in more.
        if cpu >= linux.cpus() {
            return Ok(());
        }
        let event = linux.output(cpu)?;
        let number = event.as_raw_fd() as u32;
        let to = Box::new(ToOutput(output));
        self.drawn.add(Drawn::of_output(event, to)?);
        map.put(&cpu.to_ne_bytes(), &number.to_ne_bytes(), BPF_ANY)
    }

    /// A map of maps has another one at a key.
    pub(crate) fn update_shadow_map(
        &mut self,
        at: usize,
        key: &[u8],
        map: usize,
    ) -> Result<(), Errno> {
        let inner = self.ensure_shadow(map)?;
        let (_, shadow) = self.with_shadow(at)?;
        shadow.map.put(key, &inner.to_ne_bytes(), BPF_ANY)
    }

    pub(crate) fn delete_from_shadow(&mut self, at: usize, key: &[u8]) -> Result<(), Errno> {
        let shadow = self.map_mut(at)?.shadow.as_mut().ok_or(Errno::BADF)?;
        shadow.map.delete(key)?;
        shadow.ledger.forget(key);
        Ok(())
    }

    pub(crate) fn take_from_shadow(&mut self, at: usize, key: &[u8]) -> Result<Vec<u8>, Errno> {
        let (map, shadow) = self.with_shadow(at)?;
        let mut value = shadow.map.take(key)?;
        value.resize(self.user_bytes(&map.spec), 0);
        Ok(value)
    }

    /// Whether a bloom filter of Linux has the value.
    pub(crate) fn in_filter_of_shadow(&self, at: usize, value: &[u8]) -> Result<(), Errno> {
        self.with_shadow(at)?.1.map.has(value)
    }

    pub(crate) fn freeze_shadow(&self, at: usize) -> Result<(), Errno> {
        self.with_shadow(at)?.1.map.freeze()
    }

    pub(crate) fn next_key_of_shadow(
        &self,
        at: usize,
        before: Option<&[u8]>,
    ) -> Result<Vec<u8>, Errno> {
        self.with_shadow(at)?.1.map.next_key(before)
    }

    /// All keys of a shadow map; those that come and go meanwhile may be missing.
    pub(crate) fn keys_of_shadow(&self, at: usize) -> Result<Vec<Vec<u8>>, Errno> {
        self.with_shadow(at)?.1.map.keys()
    }
}
