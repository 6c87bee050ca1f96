//! A map of Linux, and the operations on it.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use warpbpf_abi::maps::MapType;

use crate::memory::{Access, Memory};
use crate::spec::Spec;
use crate::sys::{Fields, Linux};
use crate::uapi::{Command, F_MMAPABLE, LAST_MAP_TYPE, attr};

/// As many keys as the map can have are asked for so many times at most, while others delete them.
const PASSES: usize = 4;

/// A map of Linux.
pub struct LinuxMap {
    linux: Arc<dyn Linux>,
    spec: Spec,
    fd: OwnedFd,
    /// Its values, where they can be mapped.
    memory: Option<Memory>,
}

impl std::fmt::Debug for LinuxMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LinuxMap({:?}, {:?})", self.fd, self.spec)
    }
}

/// Keys with their values.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// The types of a map: a descriptor of BTF, and in it those of a key and of a value.
pub type Types = (RawFd, u32, u32);

impl LinuxMap {
    /// Linux has maps of this type, and bytes of its user rings could be the device's too.
    pub fn can_be(spec: &Spec) -> bool {
        spec.map_type <= LAST_MAP_TYPE && spec.kind() != Some(MapType::UserRingbuf)
    }

    /// Makes one. `inner` is what a map of maps is made by the example of.
    ///
    /// # Errors
    /// Linux's.
    pub fn create(
        linux: &Arc<dyn Linux>,
        spec: &Spec,
        name: &str,
        types: Option<Types>,
        inner: Option<&LinuxMap>,
    ) -> Result<LinuxMap, Errno> {
        let mut spec = *spec;
        // What the device counts can be added to values that are mapped.
        if spec.kind() == Some(MapType::Array) {
            spec.flags |= F_MMAPABLE;
        }
        let (types, key_type, value_type) = types.unwrap_or((0, 0, 0));
        let fields = Fields::new()
            .u32(attr::map::TYPE, spec.map_type)
            .u32(attr::map::KEY_SIZE, spec.key_size)
            .u32(attr::map::VALUE_SIZE, spec.value_size)
            .u32(attr::map::MAX_ENTRIES, spec.max_entries)
            .u32(attr::map::FLAGS, spec.flags)
            .u32(
                attr::map::INNER_MAP_FD,
                inner.map_or(0, |inner| inner.fd() as u32),
            )
            .name(attr::map::NAME, name)
            .u32(attr::map::BTF_FD, types as u32)
            .u32(attr::map::KEY_TYPE, key_type)
            .u32(attr::map::VALUE_TYPE, value_type)
            .u64(attr::map::EXTRA, spec.extra);
        Ok(LinuxMap {
            linux: linux.clone(),
            spec,
            fd: fields.open(&**linux, Command::MapCreate)?,
            memory: None,
        })
    }

    /// Its descriptor.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Another descriptor for it.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn another(&self) -> Result<OwnedFd, Errno> {
        self.fd.try_clone().map_err(|_| Errno::MFILE)
    }

    /// What it is.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Its values, once [`LinuxMap::share`] has mapped them.
    pub fn memory(&self) -> Option<&Memory> {
        self.memory.as_ref()
    }

    /// Maps its values, if it is an array, so that what others count can be added to them. Linux
    /// maps none with locks or timers in them, and such a map goes on without.
    pub fn share(&mut self) {
        if self.spec.flags & F_MMAPABLE == 0 {
            return;
        }
        let bytes = self.spec.slot(1, 1) * u64::from(self.spec.max_entries);
        let fd = self.another();
        self.memory = fd
            .and_then(|fd| Memory::of(fd, 0, bytes, Access::Write))
            .ok();
    }

    /// Bytes of a value as Linux wants and gives it.
    pub fn value_bytes(&self) -> usize {
        self.spec.user_bytes(self.linux.cpus(), 1) as usize
    }

    fn element(
        &self,
        command: Command,
        key: &[u8],
        value: &mut [u8],
        flags: u64,
    ) -> Result<(), Errno> {
        let fields = Fields::new()
            .u32(attr::elem::MAP_FD, self.fd() as u32)
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
        fields.ask(&*self.linux, command).map(|_| ())
    }

    /// Gives a key a value, of which what is missing is zeros.
    ///
    /// # Errors
    /// Linux's.
    pub fn put(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        let mut value = value.to_vec();
        value.resize(self.value_bytes(), 0);
        self.element(Command::MapUpdateElem, key, &mut value, flags)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Linux's: `ENOENT` if there is none.
    pub fn get(&self, key: &[u8]) -> Result<Vec<u8>, Errno> {
        self.get_by(Command::MapLookupElem, key)
    }

    /// The same, and removes it.
    ///
    /// # Errors
    /// As [`LinuxMap::get`].
    pub fn take(&self, key: &[u8]) -> Result<Vec<u8>, Errno> {
        self.get_by(Command::MapLookupAndDeleteElem, key)
    }

    fn get_by(&self, command: Command, key: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut value = vec![0; self.value_bytes()];
        self.element(command, key, &mut value, 0)?;
        Ok(value)
    }

    /// Whether a bloom filter has the value.
    ///
    /// # Errors
    /// Linux's: `ENOENT` if not.
    pub fn has(&self, value: &[u8]) -> Result<(), Errno> {
        self.element(Command::MapLookupElem, &[], &mut value.to_vec(), 0)
    }

    /// Removes a key.
    ///
    /// # Errors
    /// Linux's.
    pub fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        self.element(Command::MapDeleteElem, key, &mut [], 0)
    }

    /// The key behind this one, or the first.
    ///
    /// # Errors
    /// Linux's: `ENOENT` behind the last.
    pub fn next_key(&self, before: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        let mut next = vec![0; self.spec.key_size as usize];
        self.element(Command::MapGetNextKey, before.unwrap_or(&[]), &mut next, 0)?;
        Ok(next)
    }

    /// All keys, each once. While others come and go, some may be missing: that one is not there,
    /// only a lookup tells.
    ///
    /// # Errors
    /// Linux's.
    pub fn keys(&self) -> Result<Vec<Vec<u8>>, Errno> {
        // An array's are known without a call for each.
        if self.spec.has_indices() {
            let all = 0..self.spec.max_entries;
            return Ok(all.map(|key| key.to_ne_bytes().to_vec()).collect());
        }
        let most = (self.spec.max_entries as usize).saturating_mul(PASSES);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let (mut known, mut passed) = (BTreeSet::new(), BTreeSet::new());
        let mut before = None;
        // Of this pass.
        let mut new = false;
        for _ in 0..most {
            let key = match self.next_key(before.as_deref()) {
                Ok(key) => key,
                Err(Errno::NOENT) => break,
                Err(error) => return Err(error),
            };
            // Behind a key that is gone by now, Linux begins at the first one again.
            if passed.contains(&key) {
                if !std::mem::take(&mut new) {
                    break;
                }
                passed.clear();
            }
            passed.insert(key.clone());
            if known.insert(key.clone()) {
                keys.push(key.clone());
                new = true;
            }
            before = Some(key);
        }
        Ok(keys)
    }

    /// All keys with their values; those that come and go meanwhile may be missing.
    ///
    /// # Errors
    /// Linux's.
    pub fn entries(&self) -> Result<Entries, Errno> {
        let mut entries = Vec::new();
        for key in self.keys()? {
            match self.get(&key) {
                Ok(value) => entries.push((key, value)),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    /// Nobody may change it by `bpf()` any more.
    ///
    /// # Errors
    /// Linux's.
    pub fn freeze(&self) -> Result<(), Errno> {
        let fields = Fields::new().u32(attr::elem::MAP_FD, self.fd() as u32);
        fields.ask(&*self.linux, Command::MapFreeze).map(|_| ())
    }
}
