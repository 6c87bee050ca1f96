//! The kernel under the tool: programs that only it can run are given to it, with real maps in place of ours.
//!
//! A map gets its [`Twin`] when the first program of Linux names it. What the tool asks of a map with a twin is answered from
//! there, and from the device too once an application has it: then a value is what stands on the device and what programs of
//! Linux have changed since the application connected, word by word. Nothing is carried from one side to the other while
//! both run, for that would overwrite what the other side counts.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use rustix::io::Errno;
use warpbpf_abi::maps::{BPF_ANY, MapType};

use crate::bpf_map::Map;
use crate::bpf_prog::Prog;
use crate::contents::Contents;
use crate::drawn::Drawn;
use crate::kernel::{Attr, Handle, Kernel};
use crate::memory::{Access, Memory};
use crate::spec::Spec;
use crate::uapi::{Command, F_MMAPABLE, LAST_MAP_TYPE, attr, prog_type, pseudo};
use crate::user::User;

/// Linux's `bpf()`, and what else its programs need.
pub trait Linux: Send {
    /// `bpf(command, fields)`; addresses are of this process.
    ///
    /// # Errors
    /// The kernel's.
    fn bpf(&self, command: Command, fields: &mut [u8]) -> Result<i64, Errno>;
    /// CPUs that a value per CPU has parts for.
    fn cpus(&self) -> u32;
    /// Another descriptor for the same object.
    ///
    /// # Errors
    /// The kernel's.
    fn duplicate(&self, fd: RawFd) -> Result<RawFd, Errno>;
    /// A program at the start or the end of a function of the kernel, until the descriptor is closed.
    ///
    /// # Errors
    /// The kernel's; `ENOENT` if it has no such probes.
    fn probe(&self, prog: RawFd, function: &str, ret: bool) -> Result<OwnedFd, Errno>;
    /// Turns such a probe on or off.
    fn enable(&self, event: &OwnedFd, enabled: bool);
}

/// A map of the kernel that stands for one of ours.
#[derive(Debug)]
pub struct Twin {
    fd: OwnedFd,
    /// What it held when an application was last given its contents, and what the tool has written since; zeros where
    /// nothing stands.
    base: BTreeMap<Vec<u8>, Vec<u8>>,
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
        if value.iter().any(|byte| *byte != 0) {
            self.base.insert(key.to_vec(), value.to_vec());
        } else {
            self.base.remove(key);
        }
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

/// The fields of a command to Linux.
struct Fields([u8; attr::SIZE]);

impl Fields {
    fn new() -> Fields {
        Fields([0; attr::SIZE])
    }

    fn put(mut self, at: usize, bytes: &[u8]) -> Fields {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn u32(self, at: usize, value: u32) -> Fields {
        self.put(at, &value.to_ne_bytes())
    }

    fn u64(self, at: usize, value: u64) -> Fields {
        self.put(at, &value.to_ne_bytes())
    }

    /// Where something of ours lies; null for nothing.
    fn address<T>(self, at: usize, of: &[T]) -> Fields {
        let address = if of.is_empty() { 0 } else { of.as_ptr() as u64 };
        self.u64(at, address)
    }

    fn name(self, at: usize, name: &str) -> Fields {
        // Linux takes letters, digits, `_` and `.`.
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
        let name: Vec<u8> = name.bytes().filter(fits).take(15).collect();
        self.put(at, &name)
    }
}

impl Kernel {
    /// Linux, if it lets us and the one who asks is the tool.
    pub(crate) fn linux(&self) -> Option<&dyn Linux> {
        self.linux.as_deref().filter(|_| self.reserved.is_none())
    }

    fn ask_linux(&self, command: Command, mut fields: Fields) -> Result<i64, Errno> {
        let linux = self.linux.as_deref().ok_or(Errno::PERM)?;
        linux.bpf(command, &mut fields.0)
    }

    fn own(&self, command: Command, fields: Fields) -> Result<OwnedFd, Errno> {
        let fd = self.ask_linux(command, fields)? as RawFd;
        // SAFETY: the kernel has just given it to us, and nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// A command about an object of Linux; `None` if it is for us.
    pub(crate) fn forwarded(
        &self,
        command: Command,
        a: &Attr,
        user: &dyn User,
    ) -> Option<Result<i64, Errno>> {
        let linux = self.linux()?;
        let prog = |at: usize| matches!(self.handle(a.fd(at)), Some(Handle::Prog(p)) if self.is_in_linux(p));
        let unknown = |at: usize| self.handle(a.fd(at)).is_none();
        let theirs = match command {
            Command::LinkCreate => {
                let event = self.handle(a.fd(attr::link::TARGET_FD));
                prog(attr::link::PROG_FD) && !matches!(event, Some(Handle::Perf(_)))
            }
            Command::RawTracepointOpen => prog(attr::raw_tracepoint::PROG_FD),
            Command::ProgAttach | Command::ProgDetach => prog(attr::prog_attach::PROG_FD),
            Command::ProgTestRun => prog(attr::test::PROG_FD),
            Command::ObjGetInfoByFd => prog(attr::info::FD) || unknown(attr::info::FD),
            Command::ObjPin => prog(attr::obj::FD) || unknown(attr::obj::FD),
            Command::LinkUpdate | Command::LinkDetach | Command::IterCreate => unknown(0),
            Command::ProgQuery | Command::TaskFdQuery => true,
            _ => false,
        };
        theirs.then(|| a.pass(user, |bytes| linux.bpf(command, bytes)))
    }

    pub(crate) fn is_in_linux(&self, prog: usize) -> bool {
        self.progs.get(prog).is_some_and(|prog| prog.in_linux)
    }

    /// Some program that is not Linux's names the map.
    pub(crate) fn is_used_here(&self, map: usize) -> bool {
        let mut here = self.progs.iter().filter(|(_, prog)| !prog.in_linux);
        here.any(|(_, prog)| prog.all_maps().any(|at| at == map))
    }

    /// The descriptor that the tool maps instead of our memory: of a map that only programs of Linux use.
    pub(crate) fn mapped_in_linux(&self, at: usize) -> Option<RawFd> {
        let twin = self.maps.get(at)?.twin.as_ref()?;
        twin.memory()?;
        (!self.is_used_here(at)).then(|| twin.fd())
    }

    /// Loads a program into Linux; `given` is the tool's command, if there is more to it than `prog` knows.
    ///
    /// # Errors
    /// The kernel's, and of maps that it cannot have.
    pub(crate) fn load_in_linux(
        &mut self,
        prog: &Prog,
        given: Option<(&Attr, &dyn User)>,
    ) -> Result<RawFd, Errno> {
        let mut code = prog.code.clone();
        for reference in &prog.references {
            let fd = self.ensure_twin(reference.map)?;
            let at = reference.slot as usize * warpbpf_ebpf::Slot::BYTES;
            let what = match reference.offset {
                Some(_) => pseudo::MAP_VALUE,
                None => pseudo::MAP_FD,
            };
            code[at + 1] = code[at + 1] & 0xf | what << 4;
            code[at + 4..at + 8].copy_from_slice(&fd.to_ne_bytes());
        }
        let license: Vec<u8> = prog.license.bytes().chain([0]).collect();
        let words = |words: &[u32]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_ne_bytes()).collect()
        };
        let functions: Vec<u8> = (prog.functions.iter())
            .flat_map(|(slot, ty)| words(&[*slot, ty.0]))
            .collect();
        let lines: Vec<u8> = (prog.lines.iter())
            .flat_map(|line| words(&[line.slot, line.file, line.text, line.position]))
            .collect();
        // Types that this kernel does not take are not worth the program, which may do without.
        let types = prog.btf.and_then(|at| self.real_types(at).ok());
        let mut fields = match given {
            Some((a, _)) => Fields(*a.bytes()),
            None => Fields::new()
                .u32(attr::prog::TYPE, prog.kind)
                .name(attr::prog::NAME, &prog.short_name),
        };
        fields = fields
            .u32(
                attr::prog::INSN_COUNT,
                (code.len() / warpbpf_ebpf::Slot::BYTES) as u32,
            )
            .address(attr::prog::INSNS, &code)
            .address(attr::prog::LICENSE, &license)
            // Maps are named by descriptors now.
            .u32(attr::prog::FD_ARRAY_COUNT, 0);
        let (functions, lines) = match types {
            Some(_) => (functions, lines),
            None => Default::default(),
        };
        let count = |records: &[u8], size: u32| records.len() as u32 / size;
        fields = fields
            .u32(attr::prog::BTF_FD, types.unwrap_or(0) as u32)
            .u32(
                attr::prog::FUNC_INFO_SIZE,
                if functions.is_empty() { 0 } else { 8 },
            )
            .u32(attr::prog::FUNC_INFO_COUNT, count(&functions, 8))
            .address(attr::prog::FUNC_INFO, &functions)
            .u32(
                attr::prog::LINE_INFO_SIZE,
                if lines.is_empty() { 0 } else { 16 },
            )
            .u32(attr::prog::LINE_INFO_COUNT, count(&lines, 16))
            .address(attr::prog::LINE_INFO, &lines);
        let mut bytes = fields.0;
        let linux = self.linux.as_deref().ok_or(Errno::PERM)?;
        let loaded = linux.bpf(Command::ProgLoad, &mut bytes);
        if let Some((a, user)) = given {
            let mut size = [0; 4];
            size.copy_from_slice(&bytes[attr::prog::LOG_TRUE_SIZE..][..4]);
            a.answer(user, attr::prog::LOG_TRUE_SIZE, u32::from_ne_bytes(size))?;
        }
        Ok(loaded? as RawFd)
    }

    /// A program of Linux holds a map.
    pub(crate) fn bind_in_linux(&mut self, prog: RawFd, map: usize) -> Result<(), Errno> {
        let map = self.ensure_twin(map)?;
        let fields = Fields::new()
            .u32(attr::bind::PROG_FD, prog as u32)
            .u32(attr::bind::MAP_FD, map as u32);
        self.ask_linux(Command::ProgBindMap, fields).map(|_| ())
    }

    /// A program at a function of Linux, from now on; says why not.
    pub(crate) fn probe_linux(
        &mut self,
        prog: usize,
        function: &str,
        ret: bool,
    ) -> Result<OwnedFd, String> {
        if self.linux().is_none() {
            return Err("`bpf()` is not permitted (root or CAP_BPF and CAP_PERFMON)".into());
        }
        let Some(mut prog) = self.progs.get(prog).cloned() else {
            return Err("it is gone".into());
        };
        prog.kind = prog_type::KPROBE;
        let fd = self.load_in_linux(&prog, None);
        let fd = fd.map_err(|error| format!("Linux does not load it: {error}"))?;
        // SAFETY: the kernel has just given it to us, and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let linux = self.linux().ok_or("Linux is gone")?;
        let placed = linux.probe(fd.as_raw_fd(), function, ret);
        placed.map_err(|error| format!("Linux has no such probe: {error}"))
    }

    fn real_types(&mut self, at: usize) -> Result<RawFd, Errno> {
        let btf = self.btfs.get(at).ok_or(Errno::BADF)?;
        if let Some(fd) = &btf.in_linux {
            return Ok(fd.as_raw_fd());
        }
        let fields = Fields::new()
            .address(attr::btf::BTF, &btf.bytes)
            .u32(attr::btf::SIZE, btf.bytes.len() as u32);
        let fd = self.own(Command::BtfLoad, fields)?;
        let number = fd.as_raw_fd();
        self.btfs.get_mut(at).ok_or(Errno::BADF)?.in_linux = Some(fd);
        Ok(number)
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
        let fd = self.create(&spec, &name, types, inner.as_ref())?;
        let number = fd.as_raw_fd();
        let mut twin = Twin {
            fd,
            base: BTreeMap::new(),
            memory: None,
        };
        if let Contents::Ring(ring) = &self.map(at)?.contents {
            let drawn = Drawn::new(twin.fd.try_clone().map_err(|_| Errno::MFILE)?, ring.clone())?;
            self.drawn.add(drawn);
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
        } else if spec.flags & F_MMAPABLE != 0 {
            let bytes = self.slot(&spec) * u64::from(spec.max_entries);
            let fd = twin.fd.try_clone().map_err(|_| Errno::MFILE)?;
            twin.memory = Some(Memory::of(fd, 0, bytes, Access::Write)?);
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

    fn get(&self, command: Command, at: usize, key: &[u8]) -> Result<Vec<u8>, Errno> {
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
            twin.set_base(key, &[]);
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
            for key in self.keys_of_twin(at)? {
                let value = match self.get(Command::MapLookupElem, at, &key) {
                    Err(Errno::NOENT) => continue,
                    value => value?,
                };
                let map = self.map_mut(at)?;
                map.contents.set(&spec, slot, &key, &value, BPF_ANY)?;
                if let Some(twin) = &mut map.twin {
                    twin.set_base(&key, &value);
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
