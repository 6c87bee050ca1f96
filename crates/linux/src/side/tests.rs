//! Linux's side of an object, with a Linux that only keeps what it is told.

use std::os::fd::{FromRawFd as _, IntoRawFd as _, RawFd};
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use warpbpf_ebpf::{Pc, decode};
use warpbpf_maps::MapPlan;
use warpbpf_object::{FunctionInfo, InitialEntry};

use super::*;
use crate::memory::PAGE;
use crate::sys::Place;
use crate::uapi::{Command, attr};

/// A map below: bytes of a key and of a value, and what it holds.
struct Below {
    name: String,
    sizes: (usize, usize),
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    frozen: bool,
    /// Keys that are gone when the one behind is asked for.
    fleeting: Vec<u32>,
    /// A key that is there, but passed over.
    missed: Option<u32>,
}

#[derive(Default)]
struct State {
    maps: BTreeMap<RawFd, Below>,
    /// Type, type of attachment, and code of each program.
    loaded: Vec<(u32, u32, Vec<u8>)>,
    placed: Vec<Place>,
    raw: Vec<String>,
    refuses: Option<&'static str>,
}

/// Two CPUs.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<State>>);

fn file() -> RawFd {
    let fd = memfd_create(c"a-test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, 4 * PAGE).unwrap();
    fd.into_raw_fd()
}

/// Bytes of this process.
fn bytes(address: u64, count: usize) -> Vec<u8> {
    // SAFETY: the code under test names memory of its own, of this many bytes.
    unsafe { std::slice::from_raw_parts(address as *const u8, count) }.to_vec()
}

fn write(address: u64, from: &[u8]) {
    // SAFETY: as above, and it is to be written.
    unsafe { std::ptr::copy(from.as_ptr(), address as *mut u8, from.len()) };
}

impl Linux for Fake {
    fn bpf(&self, command: Command, fields: &mut [u8]) -> Result<i64, Errno> {
        let mut state = self.0.lock().unwrap();
        let u32_at = |at: usize| u32::from_ne_bytes(fields[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_ne_bytes(fields[at..at + 8].try_into().unwrap());
        match command {
            Command::MapCreate => {
                let name = &fields[attr::map::NAME..][..16];
                let parts = match u32_at(attr::map::TYPE) == MapType::PercpuArray as u32 {
                    true => 2,
                    false => 1,
                };
                let fd = file();
                let below = Below {
                    name: String::from_utf8_lossy(name).trim_end_matches('\0').into(),
                    sizes: (
                        u32_at(attr::map::KEY_SIZE) as usize,
                        u32_at(attr::map::VALUE_SIZE) as usize * parts,
                    ),
                    values: BTreeMap::new(),
                    frozen: false,
                    fleeting: Vec::new(),
                    missed: None,
                };
                state.maps.insert(fd, below);
                Ok(i64::from(fd))
            }
            Command::ProgLoad => {
                if let Some(text) = state.refuses {
                    if u32_at(attr::prog::LOG_LEVEL) > 0 {
                        write(u64_at(attr::prog::LOG), text.as_bytes());
                    }
                    return Err(Errno::ACCESS);
                }
                let code = u32_at(attr::prog::INSN_COUNT) as usize * 8;
                let code = bytes(u64_at(attr::prog::INSNS), code);
                let kind = (u32_at(attr::prog::TYPE), u32_at(attr::prog::ATTACH_TYPE));
                state.loaded.push((kind.0, kind.1, code));
                Ok(i64::from(file()))
            }
            Command::RawTracepointOpen => {
                let name = bytes(u64_at(attr::raw_tracepoint::NAME), 16);
                let name = name.split(|byte| *byte == 0).next().unwrap();
                let name = String::from_utf8_lossy(name).into_owned();
                if name == "gone" {
                    return Err(Errno::NOENT);
                }
                state.raw.push(name);
                Ok(i64::from(file()))
            }
            Command::MapLookupElem
            | Command::MapUpdateElem
            | Command::MapGetNextKey
            | Command::MapFreeze => {
                let map = state.maps.get_mut(&(u32_at(attr::elem::MAP_FD) as RawFd));
                let map = map.ok_or(Errno::BADF)?;
                let key = match u64_at(attr::elem::KEY) {
                    0 => Vec::new(),
                    address => bytes(address, map.sizes.0),
                };
                let value = u64_at(attr::elem::VALUE);
                match command {
                    Command::MapLookupElem => {
                        write(value, map.values.get(&key).ok_or(Errno::NOENT)?);
                    }
                    Command::MapUpdateElem => {
                        map.values.insert(key, bytes(value, map.sizes.1));
                    }
                    Command::MapFreeze => map.frozen = true,
                    _ => {
                        let is_key = |gone: &mut u32| gone.to_ne_bytes()[..] == key;
                        if map.fleeting.extract_if(.., is_key).next().is_some() {
                            map.values.remove(&key);
                        }
                        // Behind a key that it does not have, Linux begins anew.
                        let begin = !map.values.contains_key(&key);
                        let keys = map.values.keys().filter(|known| begin || **known > key);
                        let missed = map.missed.map(u32::to_ne_bytes);
                        let mut keys = keys
                            .filter(|known| missed.is_none_or(|missed| missed[..] != known[..]));
                        write(value, keys.next().ok_or(Errno::NOENT)?);
                    }
                }
                Ok(0)
            }
            // Types are not taken, which costs the programs nothing.
            _ => Err(Errno::INVAL),
        }
    }

    fn cpus(&self) -> u32 {
        2
    }

    fn duplicate(&self, _: RawFd) -> Result<RawFd, Errno> {
        Ok(file())
    }

    fn probe(&self, _: RawFd, place: &Place) -> Result<OwnedFd, Errno> {
        self.0.lock().unwrap().placed.push(place.clone());
        // SAFETY: nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(file()) })
    }

    fn output(&self, _: u32) -> Result<OwnedFd, Errno> {
        Err(Errno::NODEV)
    }

    fn enable(&self, _: &OwnedFd, _: bool) {}
}

impl Fake {
    fn map<T>(&self, name: &str, with: impl FnOnce(&mut Below) -> T) -> T {
        let mut state = self.0.lock().unwrap();
        let map = state.maps.values_mut().find(|map| map.name == name);
        with(map.expect("the map"))
    }

    fn set(&self, name: &str, key: u32, value: u64) {
        let (key, value) = (key.to_ne_bytes().to_vec(), value.to_ne_bytes().to_vec());
        self.map(name, |map| map.values.insert(key, value));
    }
}

fn def(name: &str, kind: MapType, max_entries: u32) -> MapDef {
    MapDef {
        name: name.into(),
        map_type: kind as u32,
        key_size: 4,
        value_size: 8,
        max_entries,
        flags: 0,
        kind: MapKind::User,
        extra: BTreeMap::new(),
        key_type: None,
        value_type: None,
        inner: None,
        initial: Vec::new(),
    }
}

/// A program that names maps.
fn program(name: &str, section: &str, maps: &[u32]) -> Program {
    let mut code = Vec::new();
    for map in maps {
        code.extend([0x18, 0x11, 0, 0]);
        code.extend(map.to_le_bytes());
        code.extend([0; 8]);
    }
    code.extend([0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0]);
    let code = decode(&code).unwrap();
    let end = Pc(code.insns().len() as u32);
    Program {
        name: name.into(),
        section: section.into(),
        functions: vec![FunctionInfo {
            name: name.into(),
            start: Pc(0),
            end,
            btf: None,
        }],
        code,
        lines: Vec::new(),
        unresolved: BTreeMap::new(),
    }
}

fn load(fake: &Fake, object: &Object, others: &[(u32, Use)]) -> Result<Side, LinuxError> {
    let others = others.iter().copied().collect();
    let tracefs = Tracefs::default();
    let none = PlaceError::NoTypes {
        file: "vmlinux".into(),
    };
    Side::load(Arc::new(fake.clone()), object, &others, Err(&none), tracefs)
}

fn refused(object: &Object, others: &[(u32, Use)]) -> String {
    let error = load(&Fake::default(), object, others).expect_err("it is refused");
    error.to_string()
}

fn object(maps: Vec<MapDef>, programs: Vec<Program>) -> Object {
    Object {
        programs,
        maps,
        license: Some("GPL".into()),
        ..Object::default()
    }
}

/// A device's map.
struct Device(MapPlan, Vec<u8>);

impl Device {
    fn of(def: &MapDef) -> Device {
        let plan = warpbpf_maps::plan(def, 3, &[]).unwrap();
        let bytes = vec![0; plan.bytes() as usize];
        Device(plan, bytes)
    }

    fn set(&mut self, key: u32, value: &[u64]) {
        let value: Vec<u8> = value.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let writes = warpbpf_maps::update(&self.0, &self.1, &key.to_ne_bytes(), &value, 0);
        for write in writes.unwrap() {
            let at = write.offset as usize;
            self.1[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
    }

    fn view(&self) -> MapView<'_> {
        MapView::merged(&self.0, std::slice::from_ref(&self.1)).unwrap()
    }
}

/// Key and numbers of each entry.
fn shown(side: &Side, index: u32, devices: &[(u64, MapView<'_>)]) -> Vec<(u32, Vec<u64>)> {
    let number = |bytes: &Vec<u8>| u64::from_ne_bytes(bytes[..].try_into().unwrap());
    let all = side.together(index, devices).unwrap().into_iter();
    let entry = |(key, values): (Vec<u8>, Vec<Vec<u8>>)| {
        let key = u32::from_ne_bytes(key[..].try_into().unwrap());
        (key, values.iter().map(number).collect())
    };
    all.map(entry).collect()
}

#[test]
fn programs_are_loaded_with_real_maps_and_put_where_their_sections_say() {
    let fake = Fake::default();
    let mut data = def(".rodata", MapType::Array, 1);
    data.kind = MapKind::Data {
        section: ".rodata".into(),
        image: vec![7, 0, 0, 0, 0, 0, 0, 0],
        read_only: true,
    };
    let mut jumps = def("jumps", MapType::Array, 2);
    // `BPF_MAP_TYPE_PROG_ARRAY`
    (jumps.map_type, jumps.value_size) = (3, 4);
    jumps.initial = vec![InitialEntry {
        index: 1,
        value: InitialValue::Program("second".into()),
    }];
    let maps = vec![def("unused", MapType::Hash, 4), data, jumps];
    let programs = vec![
        program("first", "raw_tp/sys_enter", &[1, 2]),
        program("second", "kprobe/do_exit", &[]),
        program("third", "uretprobe.k//bin/app+0x40", &[1]),
    ];
    let mut side = load(&fake, &object(maps, programs), &[]).unwrap();
    let constants = fake.map(".rodata", |map| (map.frozen, map.values[&vec![0; 4]][0]));
    assert_eq!(constants, (true, 7));
    assert_eq!(
        fake.map("jumps", |map| map
            .values
            .keys()
            .cloned()
            .collect::<Vec<_>>()),
        [[1, 0, 0, 0]]
    );
    assert_eq!(
        fake.0.lock().unwrap().maps.len(),
        2,
        "nobody uses the other"
    );
    let loaded = fake.0.lock().unwrap().loaded.clone();
    let kinds: Vec<u32> = loaded.iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(kinds, [17, 2, 2]);
    let descriptor = |at: usize| RawFd::from_ne_bytes(loaded[0].2[at..at + 4].try_into().unwrap());
    let descriptors = [descriptor(4), descriptor(20)];
    assert!(
        descriptors
            .iter()
            .all(|fd| fake.0.lock().unwrap().maps.contains_key(fd))
    );
    assert_ne!(descriptors[0], descriptors[1]);
    // Nothing runs before it is asked for.
    assert_eq!(fake.0.lock().unwrap().placed, []);
    side.attach().unwrap();
    let state = fake.0.lock().unwrap();
    assert_eq!(state.raw, ["sys_enter"]);
    let places = [
        Place::Kernel("do_exit".into(), false),
        Place::File("/bin/app".into(), 0x40, true),
    ];
    assert_eq!(state.placed, places);
    let places: Vec<String> = side.programs().into_iter().map(|p| p.place).collect();
    let expected = [
        "raw tracepoint sys_enter",
        "probe at the start of do_exit()",
        "end of 0x40 in /bin/app",
    ];
    assert_eq!(places, expected);
}

#[test]
fn what_cannot_be_is_said_with_names() {
    let at = |kind| {
        object(
            vec![def("m", kind, 4)],
            vec![program("p", "raw_tp/x", &[0])],
        )
    };
    assert_eq!(
        refused(&at(MapType::GpuHash), &[]),
        "map `m` is of a type that Linux does not have; program `p`, which is for Linux, cannot use it"
    );
    let shared = [(0, Use::Read)];
    assert_eq!(
        refused(&at(MapType::Queue), &shared),
        "map `m`: programs of the GPU and of Linux cannot share a queue, a stack or a bloom filter"
    );
    assert_eq!(
        refused(&at(MapType::HashOfMaps), &shared),
        "map `m`: programs of the GPU and of Linux cannot share a map of maps"
    );
    let typed = object(Vec::new(), vec![program("p", "fentry/f", &[])]);
    assert_eq!(
        refused(&typed, &[]),
        "program `p` (`fentry/f`): this Linux shows no types of its own (vmlinux, CONFIG_DEBUG_INFO_BTF)"
    );
    let fake = Fake::default();
    fake.0.lock().unwrap().refuses = Some("first line\nR0 is bad\n");
    let error = load(&fake, &at(MapType::Hash), &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "program `p` (`raw_tp/x`): Linux refuses it: Permission denied (os error 13)\nits verifier says:\n  first line\n  R0 is bad"
    );
    fake.0.lock().unwrap().refuses = Some("");
    let error = load(&fake, &at(MapType::Hash), &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "program `p` (`raw_tp/x`): Linux refuses it: Permission denied (os error 13); it takes root, or CAP_BPF and CAP_PERFMON, and a Linux \
         that has such programs"
    );
    let gone = object(Vec::new(), vec![program("p", "raw_tp/gone", &[])]);
    let error = load(&Fake::default(), &gone, &[]).unwrap().attach();
    let error = error.unwrap_err().to_string();
    assert_eq!(
        error,
        "program `p` (`raw_tp/gone`): Linux has no tracepoint `gone`"
    );
}

#[test]
fn a_shared_map_has_what_all_sides_did_each_change_once() {
    let fake = Fake::default();
    let hash = def("hash", MapType::Hash, 16);
    let maps = vec![hash.clone()];
    let one = object(maps, vec![program("p", "raw_tp/x", &[0])]);
    let side = load(&fake, &one, &[(0, Use::Written)]).unwrap();
    assert!(!side.writes_to_devices());
    // 1: Linux alone. 2: both. An application begins with what is there then.
    fake.set("hash", 1, 10);
    fake.set("hash", 2, 10);
    let begun = side.begin(70).unwrap().contents;
    assert_eq!((begun.len(), begun[0].0, begun[0].1.len()), (1, "hash", 2));
    let (mut first, mut second) = (Device::of(&hash), Device::of(&hash));
    for (key, value) in &begun[0].1 {
        let key = u32::from_ne_bytes(key[..].try_into().unwrap());
        first.set(key, &[u64::from_ne_bytes(value[..].try_into().unwrap())]);
    }
    first.set(2, &[15]);
    fake.set("hash", 1, 12);
    fake.set("hash", 2, 13);
    // A second one begins later, and one of its keys is its own.
    side.begin(71).unwrap();
    second.set(1, &[12]);
    second.set(2, &[14]);
    second.set(3, &[4]);
    let devices = [(70, first.view()), (71, second.view())];
    assert_eq!(
        shown(&side, 0, &devices),
        [(1, vec![12]), (2, vec![13 + 5 + 1]), (3, vec![4])]
    );
    // Of one that nobody knows all counts.
    let devices = [(99, second.view())];
    assert_eq!(shown(&side, 0, &devices)[0], (1, vec![24]));
}

#[test]
fn values_go_the_one_way_that_overwrites_nothing() {
    let fake = Fake::default();
    let (read, counted) = (
        def("read", MapType::Hash, 4),
        def("counted", MapType::Array, 2),
    );
    let one = object(
        vec![read.clone(), counted.clone()],
        vec![program("p", "raw_tp/x", &[0, 1])],
    );
    let uses = [(0, Use::Read), (1, Use::Written)];
    let side = load(&fake, &one, &uses).unwrap();
    assert!(side.writes_to_devices());
    side.begin(5).unwrap();
    let carry = |index: u32, device: &Device| {
        let mut written = Vec::new();
        let mut write = |key: &[u8], value: Option<&[u8]>| {
            written.push((key[0], value.map(|value| value[0])));
            Ok(())
        };
        let mut look = |take: &mut dyn FnMut(&MapView<'_>)| {
            take(&device.view());
            Ok(())
        };
        side.carry(5, index, &mut write, &mut look).unwrap();
        written
    };
    // What is only read on the device is Linux's: what came, what changed, what is gone; each once.
    let unused = Device::of(&read);
    fake.set("read", 1, 6);
    fake.set("read", 2, 0);
    assert_eq!(carry(0, &unused), [(1, Some(6)), (2, Some(0))]);
    assert_eq!(carry(0, &unused), []);
    fake.map("read", |map| {
        map.values.remove(1u32.to_ne_bytes().as_slice())
    });
    fake.set("read", 2, 9);
    assert_eq!(carry(0, &unused), [(1, None), (2, Some(9))]);
    // What is counted there is added to Linux's words, which go on meanwhile.
    let memory = side.maps[&1].linux().memory().unwrap();
    let mut device = Device::of(&counted);
    device.set(1, &[3]);
    assert_eq!(carry(1, &device), []);
    memory.word(8).fetch_add(10, Ordering::Relaxed);
    device.set(1, &[5]);
    carry(1, &device);
    carry(1, &device);
    assert_eq!(memory.word(8).load(Ordering::Relaxed), 15);
    // Nobody asks for one that is not there any more.
    let mut nobody = |_: &[u8], _: Option<&[u8]>| Err(Errno::IO);
    let mut nothing = |_: &mut dyn FnMut(&MapView<'_>)| Err(Errno::IO);
    assert_eq!(side.carry(6, 0, &mut nobody, &mut nothing), Ok(()));
    assert_eq!(side.carry(5, 1, &mut nobody, &mut nothing), Err(Errno::IO));
    assert_eq!(carry(1, &device), [], "it is still known");
    assert_eq!(memory.word(8).load(Ordering::Relaxed), 15);
}

/// Linux's hash of 4 with keys 1 to 4, as the device has it.
fn full() -> (Fake, Side) {
    let fake = Fake::default();
    let maps = vec![def("read", MapType::Hash, 4)];
    let one = object(maps, vec![program("p", "raw_tp/x", &[0])]);
    let side = load(&fake, &one, &[(0, Use::Read)]).unwrap();
    (1..=4).for_each(|key| fake.set("read", key, 1));
    side.begin(5).unwrap();
    (fake, side)
}

/// What is written, and what comes of it if this is what each write meets.
fn written(side: &Side, meets: impl Fn(u8, bool) -> Result<(), Errno>) -> Written {
    let mut written = Vec::new();
    let mut write = |key: &[u8], value: Option<&[u8]>| {
        written.push((key[0], value.map(|value| value[0])));
        meets(key[0], value.is_some())
    };
    let mut nothing = |_: &mut dyn FnMut(&MapView<'_>)| Ok(());
    let done = side.carry(5, 0, &mut write, &mut nothing);
    (written, done)
}

type Written = (Vec<(u8, Option<u8>)>, Result<(), Errno>);

#[test]
fn a_full_hash_has_room_for_what_comes_where_something_goes() {
    let (fake, side) = full();
    let remove = |key: u32| fake.map("read", |map| map.values.remove(&key.to_ne_bytes()[..]));
    remove(3);
    fake.set("read", 2, 8);
    fake.set("read", 9, 7);
    let (order, done) = written(&side, |_, _| Ok(()));
    assert_eq!(order, [(3, None), (2, Some(8)), (9, Some(7))]);
    assert_eq!(done, Ok(()));
    // What fails does not keep others back, and is tried again.
    remove(4);
    remove(9);
    fake.set("read", 1, 5);
    fake.set("read", 2, 6);
    let meets = |key, is_new| match (key, is_new) {
        (4, false) => Err(Errno::BUSY),
        (1, true) => Err(Errno::TOOBIG),
        _ => Ok(()),
    };
    let all = [(4, None), (9, None), (1, Some(5)), (2, Some(6))];
    assert_eq!(written(&side, meets), (all.to_vec(), Err(Errno::BUSY)));
    let rest = [(4, None), (1, Some(5))];
    // Who does not answer is asked once.
    let silent = written(&side, |_, _| Err(Errno::IO));
    assert_eq!(silent, (rest[..1].to_vec(), Err(Errno::IO)));
    assert_eq!(written(&side, |_, _| Ok(())), (rest.to_vec(), Ok(())));
}

#[test]
fn keys_that_go_while_all_are_asked_for_hide_no_others() {
    let (fake, side) = full();
    let fleeting = |keys: &[u32]| fake.map("read", |map| map.fleeting = keys.to_vec());
    let linux = side.maps[&0].linux();
    fleeting(&[2]);
    let keys: Vec<u8> = linux.keys().unwrap().iter().map(|key| key[0]).collect();
    assert_eq!(keys, [1, 2, 3, 4]);
    // Of those that seem to be gone, only those go that a lookup does not find either.
    fake.map("read", |map| map.missed = Some(3));
    assert_eq!(written(&side, |_, _| Ok(())), (vec![(2, None)], Ok(())));
    fake.map("read", |map| map.missed = None);
    let all = [1, 3, 4].map(|key: u32| (key.to_ne_bytes().to_vec(), 1u64.to_ne_bytes().to_vec()));
    assert_eq!(linux.entries().unwrap(), all);
}

#[test]
fn values_per_cpu_stand_beside_those_per_multiprocessor() {
    let fake = Fake::default();
    let percpu = def("percpu", MapType::PercpuArray, 1);
    let one = object(vec![percpu.clone()], vec![program("p", "raw_tp/x", &[0])]);
    let side = load(&fake, &one, &[(0, Use::Written)]).unwrap();
    let two: Vec<u8> = [4u64, 5]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    fake.map("percpu", |map| map.values.insert(vec![0; 4], two));
    let begun = side.begin(1).unwrap();
    assert_eq!(begun, Begun::default(), "each side has its own");
    let mut device = Device::of(&percpu);
    device.set(0, &[10, 20, 30]);
    assert_eq!(
        shown(&side, 0, &[(1, device.view())]),
        [(0, vec![14, 25, 30])]
    );
}

#[test]
fn keys_of_an_array_are_its_numbers() {
    for kind in [MapType::Array, MapType::PercpuArray] {
        let fake = Fake::default();
        let one = object(
            vec![def("cells", kind, 5)],
            vec![program("p", "raw_tp/x", &[0])],
        );
        let side = load(&fake, &one, &[(0, Use::Read)]).unwrap();
        // What the fake would say when asked for them.
        fake.set("cells", 9, 1);
        let keys = side.maps[&0].linux().keys().unwrap();
        let expected: Vec<Vec<u8>> = (0..5u32).map(|key| key.to_ne_bytes().to_vec()).collect();
        assert_eq!(keys, expected, "{kind:?}");
    }
}

#[test]
fn a_map_that_is_too_large_begins_with_nothing_and_is_carried() {
    let fake = Fake::default();
    let (small, vast) = (
        def("small", MapType::Hash, 4),
        def("vast", MapType::Hash, 1 << 24),
    );
    let maps = vec![small, vast.clone()];
    let one = object(maps, vec![program("p", "raw_tp/x", &[0, 1])]);
    let side = load(&fake, &one, &[(0, Use::Read), (1, Use::Read)]).unwrap();
    // Empty it begins as any.
    assert_eq!(side.begin(4).unwrap(), Begun::default());
    fake.set("small", 1, 5);
    fake.set("vast", 2, 6);
    let begun = side.begin(5).unwrap();
    let entry = |key: u32, value: u64| (key.to_ne_bytes().to_vec(), value.to_ne_bytes().to_vec());
    assert_eq!(begun.contents, [("small", vec![entry(1, 5)])]);
    let bytes = warpbpf_maps::plan(&vast, 1, &[]).unwrap().bytes();
    let why = format!(
        "it has {bytes} bytes on the device, and at most 1073741824 can be given first contents"
    );
    assert_eq!(begun.without, [("vast", why)]);
    // What it did not begin with comes to it as what Linux writes later does.
    let mut written = Vec::new();
    let mut write = |key: &[u8], value: Option<&[u8]>| {
        written.push((key[0], value.map(|value| value[0])));
        Ok(())
    };
    let mut nothing = |_: &mut dyn FnMut(&MapView<'_>)| Ok(());
    side.carry(5, 0, &mut write, &mut nothing).unwrap();
    side.carry(5, 1, &mut write, &mut nothing).unwrap();
    assert_eq!(written, [(2, Some(6))]);
    // Many entries of a map that would fit.
    let entries = |count: usize| vec![(vec![0; 4], vec![0; 1 << 20]); count];
    let small = def("small", MapType::Hash, 256);
    assert_eq!(too_much(&small, &entries(127)), None);
    assert_eq!(
        too_much(&small, &entries(128)).unwrap(),
        "Linux's map holds 134222336 bytes of entries, and at most 134217728 can be brought to an application that starts"
    );
}
