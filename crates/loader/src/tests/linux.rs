//! Programs of Linux and the maps that they use, with a kernel below that only keeps what it is
//! told.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use warpbpf_abi::maps::MapType;
use warpbpf_wire::OpCode;

use super::progs::{code, nothing};
use super::{Device, def};
use crate::objects::contents::Contents;
use crate::tests::Tool;
use crate::tool::user::{Process, User as _};
use crate::uapi::{Command, F_MMAPABLE, attr, prog_type, pseudo};
use warpbpf_linux::sys::{Linux, Place};

const ARRAY: u32 = MapType::Array as u32;
const HASH: u32 = MapType::Hash as u32;

/// A map below.
#[derive(Default)]
struct Below {
    name: String,
    sizes: (usize, usize),
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    frozen: bool,
}

#[derive(Default)]
struct State {
    maps: BTreeMap<RawFd, Below>,
    /// Code of programs.
    loaded: Vec<Vec<u8>>,
    /// Other commands.
    asked: Vec<Command>,
    placed: Vec<Place>,
    refuses: bool,
}

/// The kernel below: two CPUs.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<State>>);

fn file() -> i64 {
    let fd = memfd_create(c"a-test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, 4096).unwrap();
    i64::from(fd.into_raw_fd())
}

impl Linux for Fake {
    fn bpf(&self, command: Command, fields: &mut [u8]) -> Result<i64, Errno> {
        let mut state = self.0.lock().unwrap();
        let u32_at = |at: usize| u32::from_ne_bytes(fields[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_ne_bytes(fields[at..at + 8].try_into().unwrap());
        let own = Process::own();
        match command {
            Command::MapCreate => {
                let name = &fields[attr::map::NAME..][..16];
                let kind = u32_at(attr::map::TYPE);
                let parts = if kind == MapType::PercpuArray as u32 {
                    2
                } else {
                    1
                };
                let sizes = (
                    u32_at(attr::map::KEY_SIZE) as usize,
                    u32_at(attr::map::VALUE_SIZE) as usize * parts,
                );
                let fd = file();
                let below = Below {
                    name: String::from_utf8_lossy(name).trim_end_matches('\0').into(),
                    sizes,
                    ..Below::default()
                };
                state.maps.insert(fd as RawFd, below);
                Ok(fd)
            }
            Command::ProgLoad if state.refuses => Err(Errno::ACCESS),
            Command::ProgLoad => {
                let bytes = u32_at(attr::prog::INSN_COUNT) as usize * 8;
                let code = own.bytes(u64_at(attr::prog::INSNS), bytes)?;
                state.loaded.push(code);
                Ok(file())
            }
            Command::MapLookupElem
            | Command::MapUpdateElem
            | Command::MapDeleteElem
            | Command::MapGetNextKey
            | Command::MapFreeze => {
                let map = state.maps.get_mut(&(u32_at(attr::elem::MAP_FD) as RawFd));
                let map = map.ok_or(Errno::BADF)?;
                let key = match u64_at(attr::elem::KEY) {
                    0 => Vec::new(),
                    address => own.bytes(address, map.sizes.0)?,
                };
                let value = u64_at(attr::elem::VALUE);
                match command {
                    Command::MapLookupElem => {
                        own.write(value, map.values.get(&key).ok_or(Errno::NOENT)?)?;
                    }
                    Command::MapUpdateElem => {
                        map.values.insert(key, own.bytes(value, map.sizes.1)?);
                    }
                    Command::MapDeleteElem => {
                        map.values.remove(&key).ok_or(Errno::NOENT)?;
                    }
                    Command::MapFreeze => map.frozen = true,
                    _ => {
                        let mut keys = map.values.keys().filter(|known| **known > key);
                        own.write(value, keys.next().ok_or(Errno::NOENT)?)?;
                    }
                }
                Ok(0)
            }
            _ => {
                state.asked.push(command);
                Ok(77)
            }
        }
    }

    fn cpus(&self) -> u32 {
        2
    }

    fn duplicate(&self, _: RawFd) -> Result<RawFd, Errno> {
        Ok(file() as RawFd)
    }

    fn probe(&self, _: RawFd, place: &Place) -> Result<OwnedFd, Errno> {
        self.0.lock().unwrap().placed.push(place.clone());
        // SAFETY: nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(file() as RawFd) })
    }

    fn output(&self, _: u32) -> Result<OwnedFd, Errno> {
        // SAFETY: as above.
        Ok(unsafe { OwnedFd::from_raw_fd(file() as RawFd) })
    }

    fn enable(&self, _: &OwnedFd, enabled: bool) {
        let command = if enabled {
            Command::LinkCreate
        } else {
            Command::LinkDetach
        };
        self.0.lock().unwrap().asked.push(command);
    }
}

impl Fake {
    fn value(&self, name: &str, key: &[u8]) -> Option<Vec<u8>> {
        let state = self.0.lock().unwrap();
        let map = state.maps.values().find(|map| map.name == name);
        map.expect("the map").values.get(key).cloned()
    }

    fn set(&self, name: &str, key: &[u8], value: &[u8]) {
        let mut state = self.0.lock().unwrap();
        let map = state.maps.values_mut().find(|map| map.name == name);
        map.expect("the map")
            .values
            .insert(key.to_vec(), value.to_vec());
    }
}

fn tool() -> (Tool, Fake) {
    let (mut tool, fake) = (Tool::new(), Fake::default());
    tool.kernel.linux = Some(Arc::new(fake.clone()));
    (tool, fake)
}

/// A program that names a map.
pub(super) fn naming(map: RawFd) -> Vec<u8> {
    code(&[
        (0x18, 1, pseudo::MAP_FD, 0, map),
        (0, 0, 0, 0, 0),
        (0xb7, 0, 0, 0, 0),
        (0x95, 0, 0, 0, 0),
    ])
}

impl Tool {
    fn operate(
        &mut self,
        command: Command,
        map: RawFd,
        key: &[u8],
        value: &mut [u8],
    ) -> Result<(), Errno> {
        let (key, place) = (self.memory.put(key), self.memory.put(value));
        self.call(
            command,
            &[
                (attr::elem::MAP_FD, &map.to_ne_bytes()),
                (attr::elem::KEY, &key.to_ne_bytes()),
                (attr::elem::VALUE, &place.to_ne_bytes()),
            ],
        )?;
        value.copy_from_slice(&self.memory.get(place, value.len()));
        Ok(())
    }

    fn value_of(&mut self, map: RawFd, key: u32, bytes: usize) -> Result<Vec<u8>, Errno> {
        let mut value = vec![0; bytes];
        self.operate(Command::MapLookupElem, map, &key.to_ne_bytes(), &mut value)?;
        Ok(value)
    }
}

#[test]
fn a_program_of_linux_has_real_maps_and_the_tool_sees_them() {
    let (mut tool, fake) = tool();
    let map = tool.map(HASH, 4, 8, 16);
    let key = 5u32.to_ne_bytes();
    tool.operate(Command::MapUpdateElem, map, &key, &mut [1; 8])
        .unwrap();
    let prog = tool.load_as(prog_type::RAW_TRACEPOINT, b"on_call", &naming(map), 0);
    let prog = prog.unwrap() as RawFd;
    let shadow = *fake.0.lock().unwrap().maps.keys().next().unwrap();
    assert_eq!(fake.0.lock().unwrap().loaded, [naming(shadow)]);
    assert_ne!(shadow, map);
    // What stood in it is in Linux's, and from now on it is Linux's.
    assert_eq!(fake.value("a_map", &key), Some(vec![1; 8]));
    fake.set("a_map", &key, &[2; 8]);
    fake.set("a_map", &6u32.to_ne_bytes(), &[3; 8]);
    assert_eq!(tool.value_of(map, 5, 8), Ok(vec![2; 8]));
    assert_eq!(tool.value_of(map, 7, 8), Err(Errno::NOENT));
    let mut next = [0; 4];
    tool.operate(Command::MapGetNextKey, map, &key, &mut next)
        .unwrap();
    assert_eq!(next, 6u32.to_ne_bytes());
    tool.operate(Command::MapUpdateElem, map, &key, &mut [4; 8])
        .unwrap();
    assert_eq!(fake.value("a_map", &key), Some(vec![4; 8]));
    tool.operate(Command::MapDeleteElem, map, &key, &mut [])
        .unwrap();
    assert_eq!(fake.value("a_map", &key), None);
    let again = tool.operate(Command::MapDeleteElem, map, &key, &mut []);
    assert_eq!(again, Err(Errno::NOENT));
    // Its attachment is Linux's business, and so is what is not known here.
    let (name, fd) = (attr::raw_tracepoint::PROG_FD, prog.to_ne_bytes());
    assert_eq!(
        tool.call(Command::RawTracepointOpen, &[(name, &fd)]),
        Ok(77)
    );
    assert_eq!(
        tool.call(Command::LinkDetach, &[(0, &4242u32.to_ne_bytes())]),
        Ok(77)
    );
    let asked = [Command::RawTracepointOpen, Command::LinkDetach];
    assert_eq!(fake.0.lock().unwrap().asked, asked);
    // A value per CPU has as many parts as the tool believes in.
    let percpu = tool.map(MapType::PercpuArray as u32, 4, 8, 1);
    tool.operate(Command::MapUpdateElem, percpu, &[0; 4], &mut [7; 32])
        .unwrap();
    tool.load_as(prog_type::TRACEPOINT, b"on_switch", &naming(percpu), 0)
        .unwrap();
    assert_eq!(
        tool.value_of(percpu, 0, 32),
        Ok([vec![7; 16], vec![0; 16]].concat())
    );
    // Without the last descriptor it is gone, and its map goes with the last of its own.
    tool.kernel.closed(prog);
    assert!(tool.kernel.progs.get(0).is_none() && tool.kernel.maps.get(0).is_some());
}

#[test]
fn what_both_change_is_summed_from_the_moment_when_an_application_has_the_map() {
    let (mut tool, fake) = tool();
    let map = tool.map(ARRAY, 4, 8, 4);
    tool.load_as(prog_type::TRACEPOINT, b"on_switch", &naming(map), 0)
        .unwrap();
    let key = |key: u32| key.to_ne_bytes();
    let word = |value: u64| value.to_ne_bytes();
    for at in 0..4 {
        fake.set("a_map", &key(at), &word(10));
    }
    tool.kernel.adopt_shadows().unwrap();
    let begun = tool.kernel.maps.get(0).unwrap();
    let entries = begun.contents.entries(&begun.spec, 8);
    assert_eq!(
        entries.len(),
        4,
        "an application begins with what Linux counted"
    );
    let device = Device::new(&def(ARRAY, 4, 8, 4), 2);
    for at in 0..4 {
        device.set(&key(at), &word(10));
    }
    tool.kernel.session = Some(device.clone());
    device.set(&key(0), &word(15));
    device.set(&key(1), &word(15));
    fake.set("a_map", &key(0), &word(12));
    fake.set("a_map", &key(2), &word(12));
    for (at, sum) in [(0, 17), (1, 15), (2, 12), (3, 10)] {
        assert_eq!(tool.value_of(map, at, 8), Ok(word(sum).to_vec()), "{at}");
    }
    // What the tool writes is on both sides.
    tool.operate(Command::MapUpdateElem, map, &key(0), &mut word(100))
        .unwrap();
    assert_eq!(fake.value("a_map", &key(0)), Some(word(100).to_vec()));
    let done = device.done.lock().unwrap().pop().unwrap();
    assert_eq!((done.1, done.2), (key(0).to_vec(), word(100).to_vec()));
    device.set(&key(0), &word(100));
    assert_eq!(tool.value_of(map, 0, 8), Ok(word(100).to_vec()));
    // Who launches a program after that begins with what Linux has, which is what both are counted
    // from.
    tool.kernel.adopt_shadows().unwrap();
    let seen = tool.kernel.seen(0);
    let expected = [(0, 100), (1, 10), (2, 12), (3, 10)];
    let expected = expected.map(|(at, value)| (key(at).to_vec(), word(value).to_vec()));
    assert_eq!(seen, expected);
}

#[test]
fn what_linux_refuses_and_what_it_cannot_have_is_told() {
    let (mut tool, fake) = tool();
    let map = tool.map(MapType::GpuHash as u32, 4, 8, 4);
    let prog = tool.load_as(prog_type::TRACEPOINT, b"on_switch", &naming(map), 0);
    assert_eq!(prog, Err(Errno::OPNOTSUPP));
    let queue = tool.map(MapType::Queue as u32, 0, 8, 4);
    tool.load_as(prog_type::KPROBE, b"probe", &naming(queue), 0)
        .unwrap();
    let prog = tool.load_as(prog_type::TRACEPOINT, b"on_switch", &naming(queue), 0);
    assert_eq!(prog, Err(Errno::INVAL));
    fake.0.lock().unwrap().refuses = true;
    let good = tool.map(HASH, 4, 8, 4);
    let prog = tool.load_as(prog_type::TRACEPOINT, b"on_switch", &naming(good), 0);
    assert_eq!(prog, Err(Errno::ACCESS));
}

#[test]
fn without_permission_a_program_that_only_linux_can_attach_is_refused_with_a_reason() {
    let mut tool = Tool::new();
    let map = tool.map(HASH, 4, 8, 16);
    let log = tool.memory.put(&[0; 4096]);
    let prog = tool.load_as(prog_type::RAW_TRACEPOINT, b"on_call", &naming(map), log);
    assert_eq!(prog, Err(Errno::PERM));
    let said = tool.memory.text(log, 4096).unwrap();
    assert_eq!(
        said,
        "programs of this type run in Linux, and `bpf()` is not permitted here: run the tool as root, or with CAP_BPF and \
         CAP_PERFMON, or leave the program out (bpf_program__set_autoload)\n"
    );
    // One at a tracepoint is attached to nothing, which is said then.
    tool.load_as(prog_type::TRACEPOINT, b"on_switch", &naming(map), 0)
        .unwrap();
}

#[test]
fn variables_of_both_are_brought_together() {
    let (mut tool, _fake) = tool();
    let spec = [
        (attr::map::TYPE, ARRAY),
        (attr::map::KEY_SIZE, 4),
        (attr::map::VALUE_SIZE, 32),
        (attr::map::MAX_ENTRIES, 1),
        (attr::map::FLAGS, F_MMAPABLE),
    ]
    .map(|(at, value)| (at, value.to_ne_bytes()));
    let spec: Vec<(usize, &[u8])> = spec.iter().map(|(at, value)| (*at, &value[..])).collect();
    let map = tool.call(Command::MapCreate, &spec).unwrap() as RawFd;
    tool.load_as(prog_type::TRACEPOINT, b"on_switch", &naming(map), 0)
        .unwrap();
    let shadow = tool.kernel.maps.get(0).unwrap().shadow.as_ref().unwrap();
    let shadow = shadow.fd();
    // As long as nobody else names it, the tool maps Linux's own.
    assert_eq!(tool.kernel.mapped_in_linux(0), Some(shadow));
    tool.load_as(prog_type::KPROBE, b"cuda__probe", &naming(map), 0)
        .unwrap();
    assert_eq!(tool.kernel.mapped_in_linux(0), None);
    let word = |tool: &Tool, linux: bool, number: u64| -> u64 {
        let map = tool.kernel.maps.get(0).unwrap();
        let Contents::Mapped(memory, _) = &map.contents else {
            panic!("not mapped")
        };
        let below = map.shadow.as_ref().unwrap().memory().unwrap();
        let memory = if linux { below } else { &**memory };
        memory.word(number * 8).load(Ordering::Relaxed)
    };
    let set = |tool: &Tool, linux: bool, number: u64, value: u64| {
        let map = tool.kernel.maps.get(0).unwrap();
        let Contents::Mapped(memory, _) = &map.contents else {
            panic!("not mapped")
        };
        let below = map.shadow.as_ref().unwrap().memory().unwrap();
        let memory = if linux { below } else { &**memory };
        memory.word(number * 8).store(value, Ordering::Relaxed);
    };
    // Before there is an application the tool and Linux see each other's words.
    set(&tool, false, 0, 5);
    set(&tool, true, 1, 6);
    tool.kernel.synchronise();
    assert_eq!([word(&tool, true, 0), word(&tool, false, 1)], [5, 6]);
    // Then the device has them too: it counts in word 2 beside Linux, and nobody else in word 3.
    let device = Device::new(&def(ARRAY, 4, 32, 1), 2);
    device.set(&[0; 4], &[5u64, 0, 10, 3].map(u64::to_ne_bytes).concat());
    tool.kernel.session = Some(device.clone());
    set(&tool, true, 2, 20);
    tool.kernel.synchronise();
    let seen: Vec<u64> = (0..4).map(|number| word(&tool, false, number)).collect();
    assert_eq!(seen, [5, 6, 30, 3]);
    assert!(
        device.done.lock().unwrap().is_empty(),
        "nothing is carried over"
    );
    // A word of the tool goes to both, and what the others count stays what it is.
    set(&tool, false, 0, 8);
    tool.kernel.synchronise();
    assert_eq!([word(&tool, true, 0), word(&tool, true, 2)], [8, 20]);
    let sent = device.done.lock().unwrap().pop().unwrap().2;
    let now = [8u64, 0, 10, 3].map(u64::to_ne_bytes).concat();
    assert_eq!(sent, warpbpf_maps::words::pack(&now, [0]));
    device.set(&[0; 4], &now);
    tool.kernel.synchronise();
    let seen: Vec<u64> = (0..4).map(|number| word(&tool, false, number)).collect();
    assert_eq!(seen, [8, 6, 30, 3]);
    // What the device has counted meanwhile is still to be added to Linux's words; what the tool
    // wrote is not.
    tool.kernel.written = BTreeSet::from([0]);
    assert_eq!(tool.kernel.carry(), Some(Ok(())));
    let linux: Vec<u64> = (0..4).map(|number| word(&tool, true, number)).collect();
    assert_eq!(linux, [8, 6, 30, 3]);
    tool.kernel.synchronise();
    let seen: Vec<u64> = (0..4).map(|number| word(&tool, false, number)).collect();
    assert_eq!(seen, [8, 6, 30, 3]);
}

#[test]
fn a_probe_of_a_function_of_linux_is_placed_there() {
    let (mut tool, fake) = tool();
    let prog = tool
        .load_as(prog_type::KPROBE, b"probe", &nothing(), 0)
        .unwrap() as i32;
    let event = tool.event(b"do_exit", true);
    let link = tool.link(prog, event).unwrap() as i32;
    assert!(tool.kernel.attached().is_empty());
    assert_eq!(fake.0.lock().unwrap().loaded, [nothing()]);
    assert!(tool.kernel.links.get(0).unwrap().in_linux.is_some());
    tool.call(Command::LinkDetach, &[(0, &link.to_ne_bytes())])
        .unwrap();
    let state = fake.0.lock().unwrap();
    assert_eq!(state.asked, [Command::LinkDetach]);
    assert_eq!(state.placed, [Place::Kernel("do_exit".into(), true)]);
}

#[test]
fn what_linux_writes_is_carried_to_a_device_that_only_reads_and_the_other_way_it_is_added() {
    let (mut tool, fake) = tool();
    let map = tool.map(ARRAY, 4, 8, 4);
    tool.load_as(prog_type::TRACEPOINT, b"on_switch", &naming(map), 0)
        .unwrap();
    assert_eq!(
        tool.kernel.carry(),
        Some(Ok(())),
        "there is no application yet"
    );
    tool.kernel.adopt_shadows().unwrap();
    let device = Device::new(&def(ARRAY, 4, 8, 4), 2);
    tool.kernel.session = Some(device.clone());
    let key = |key: u32| key.to_ne_bytes();
    let word = |value: u64| value.to_ne_bytes();
    let carried = |tool: &mut Tool| {
        assert_eq!(tool.kernel.carry(), Some(Ok(())));
        std::mem::take(&mut *device.done.lock().unwrap())
    };
    // A program that only looks at the map.
    let attached = tool.kernel.attached();
    tool.kernel.note_written(&attached);
    assert!(tool.kernel.written.is_empty());
    fake.set("a_map", &key(2), &word(9));
    fake.set("a_map", &key(3), &word(0));
    let update = |at: u32, value: u64| (OpCode::Update, key(at).to_vec(), word(value).to_vec(), 0);
    assert_eq!(carried(&mut tool), [update(2, 9)]);
    device.set(&key(2), &word(9));
    assert_eq!(carried(&mut tool), []);
    assert_eq!(tool.value_of(map, 2, 8), Ok(word(9).to_vec()));
    // One that counts in it.
    tool.kernel.written = BTreeSet::from([0]);
    let below = |tool: &Tool, at: u64| {
        let shadow = tool.kernel.maps.get(0).unwrap().shadow.as_ref().unwrap();
        shadow
            .memory()
            .unwrap()
            .word(at * 8)
            .load(Ordering::Relaxed)
    };
    let linux = |tool: &Tool, at: u64, more: u64| {
        let shadow = tool.kernel.maps.get(0).unwrap().shadow.as_ref().unwrap();
        shadow
            .memory()
            .unwrap()
            .word(at * 8)
            .fetch_add(more, Ordering::Relaxed);
    };
    device.set(&key(1), &word(50));
    linux(&tool, 1, 7);
    assert_eq!(carried(&mut tool), []);
    assert_eq!([below(&tool, 1), below(&tool, 0)], [57, 0]);
    assert_eq!(below(&tool, 2), 0, "what came from Linux is not added");
    device.set(&key(1), &word(40));
    linux(&tool, 1, 1);
    assert_eq!(carried(&mut tool), []);
    assert_eq!(below(&tool, 1), 48);
    // The kernel below keeps what is mapped and what is asked for apart; the tool sees one sum
    // either way.
    fake.set("a_map", &key(1), &word(48));
    assert_eq!(tool.value_of(map, 1, 8), Ok(word(48).to_vec()));
    // What the tool writes is on both sides, and is not added.
    tool.operate(Command::MapUpdateElem, map, &key(1), &mut word(5))
        .unwrap();
    device.set(&key(1), &word(5));
    device.done.lock().unwrap().clear();
    assert_eq!(carried(&mut tool), []);
    assert_eq!(below(&tool, 1), 48);
}

#[test]
fn keys_that_linux_adds_and_removes_are_carried_too() {
    let (mut tool, fake) = tool();
    let map = tool.map(HASH, 4, 8, 16);
    tool.load_as(prog_type::TRACEPOINT, b"on_switch", &naming(map), 0)
        .unwrap();
    let device = Device::new(&def(HASH, 4, 8, 16), 2);
    let key = |key: u32| key.to_ne_bytes().to_vec();
    fake.set("a_map", &key(1), &[0; 8]);
    tool.kernel.adopt_shadows().unwrap();
    tool.kernel.session = Some(device.clone());
    fake.set("a_map", &key(2), &[0; 8]);
    let carried = |tool: &mut Tool| {
        assert_eq!(tool.kernel.carry(), Some(Ok(())));
        std::mem::take(&mut *device.done.lock().unwrap())
    };
    assert_eq!(
        carried(&mut tool),
        [(OpCode::Update, key(2), vec![0; 8], 0)]
    );
    assert_eq!(carried(&mut tool), []);
    fake.0
        .lock()
        .unwrap()
        .maps
        .values_mut()
        .for_each(|map| map.values.clear());
    let delete = |at| (OpCode::Delete, key(at), Vec::new(), 0);
    assert_eq!(carried(&mut tool), [delete(1), delete(2)]);
    assert_eq!(carried(&mut tool), []);
    // What a device does not take is tried again.
    *device.refused.lock().unwrap() = Some((key(3), -7));
    fake.set("a_map", &key(3), &[1; 8]);
    assert_eq!(tool.kernel.carry(), Some(Err(Errno::TOOBIG)));
    *device.refused.lock().unwrap() = None;
    device.done.lock().unwrap().clear();
    assert_eq!(
        carried(&mut tool),
        [(OpCode::Update, key(3), vec![1; 8], 0)]
    );
    // A hash that the device writes stays where it is.
    tool.kernel.written = BTreeSet::from([0]);
    fake.set("a_map", &key(4), &[1; 8]);
    assert_eq!(carried(&mut tool), []);
}
