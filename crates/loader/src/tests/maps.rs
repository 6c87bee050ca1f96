//! Maps: without an application as Linux has them, with one as the device has them.

use rustix::io::Errno;
use warpbpf_maps::words;
use warpbpf_wire::OpCode;

use super::{Device, def};
use crate::objects::extra_cpus::ExtraCpus;
use crate::tests::Tool;
use crate::uapi::{Command, attr};

const HASH: u32 = 1;
const ARRAY: u32 = 2;
const PERCPU_ARRAY: u32 = 6;
const PERCPU_HASH: u32 = 5;
const LOOKUP: Command = Command::MapLookupElem;

impl Tool {
    /// A call with a descriptor, a key, a value's address and flags.
    fn element(
        &mut self,
        command: Command,
        fd: i32,
        key: Option<&[u8]>,
        value: u64,
        flags: u64,
    ) -> Result<i64, Errno> {
        let key = key.map_or(0, |key| self.memory.put(key));
        self.call(
            command,
            &[
                (attr::elem::MAP_FD, &fd.to_ne_bytes()),
                (attr::elem::KEY, &key.to_ne_bytes()),
                (attr::elem::VALUE, &value.to_ne_bytes()),
                (attr::elem::FLAGS, &flags.to_ne_bytes()),
            ],
        )
    }

    fn update(&mut self, fd: i32, key: &[u8], value: &[u8], flags: u64) -> Result<i64, Errno> {
        let value = self.memory.put(value);
        self.element(Command::MapUpdateElem, fd, Some(key), value, flags)
    }

    fn get(
        &mut self,
        command: Command,
        fd: i32,
        key: &[u8],
        bytes: usize,
    ) -> Result<Vec<u8>, Errno> {
        let value = self.memory.put(&vec![0xee; bytes]);
        self.element(command, fd, Some(key), value, 0)?;
        Ok(self.memory.get(value, bytes))
    }

    fn keys(&mut self, fd: i32) -> Vec<u32> {
        let mut keys: Vec<u32> = Vec::new();
        loop {
            let next = self.memory.put(&[0; 4]);
            let before = keys.last().map(|key| key.to_ne_bytes());
            let before = before.as_ref().map(|key| key.as_slice());
            match self.element(Command::MapGetNextKey, fd, before, next, 0) {
                Ok(_) => keys.push(u32::from_ne_bytes(
                    self.memory.get(next, 4).try_into().unwrap(),
                )),
                Err(error) => {
                    assert_eq!(error, Errno::NOENT);
                    return keys;
                }
            }
        }
    }

    fn batch(&mut self, command: Command, fields: &[(usize, &[u8])]) -> (Result<i64, Errno>, u32) {
        let at = self.attr(fields);
        let result = self.kernel.bpf(command as u32, at, 144, &self.memory);
        let count = self.memory.get(at + attr::batch::COUNT as u64, 4);
        (result, u32::from_ne_bytes(count.try_into().unwrap()))
    }
}

fn key(number: u32) -> [u8; 4] {
    number.to_ne_bytes()
}

#[test]
fn a_hash_keeps_what_it_is_given() {
    let mut tool = Tool::new();
    let fd = tool.map(HASH, 4, 8, 2);
    assert_eq!(tool.get(LOOKUP, fd, &key(5), 8), Err(Errno::NOENT));
    assert_eq!(tool.update(fd, &key(5), &[1; 8], 2), Err(Errno::NOENT));
    assert_eq!(tool.update(fd, &key(5), &[1; 8], 1), Ok(0));
    assert_eq!(tool.update(fd, &key(5), &[2; 8], 1), Err(Errno::EXIST));
    assert_eq!(tool.update(fd, &key(5), &[3; 8], 8), Err(Errno::INVAL));
    assert_eq!(tool.update(fd, &key(3), &[3; 8], 0), Ok(0));
    assert_eq!(tool.update(fd, &key(4), &[4; 8], 0), Err(Errno::TOOBIG));
    assert_eq!(tool.keys(fd), [3, 5]);
    assert_eq!(tool.get(LOOKUP, fd, &key(5), 8), Ok(vec![1; 8]));
    let take = Command::MapLookupAndDeleteElem;
    assert_eq!(tool.get(take, fd, &key(5), 8), Ok(vec![1; 8]));
    assert_eq!(tool.keys(fd), [3]);
    let delete = |tool: &mut Tool| tool.element(Command::MapDeleteElem, fd, Some(&key(3)), 0, 0);
    assert_eq!(delete(&mut tool), Ok(0));
    assert_eq!(delete(&mut tool), Err(Errno::NOENT));
    assert_eq!(
        tool.element(LOOKUP, 3, Some(&key(3)), 0, 0),
        Err(Errno::BADF)
    );
    assert_eq!(tool.element(LOOKUP, fd, None, 0, 0), Err(Errno::FAULT));
    assert_eq!(
        tool.element(LOOKUP, fd, Some(&key(3)), 0, 1),
        Err(Errno::INVAL)
    );
}

#[test]
fn an_array_has_all_its_keys_from_the_start() {
    let mut tool = Tool::new();
    let fd = tool.map(ARRAY, 4, 6, 3);
    assert_eq!(tool.keys(fd), [0, 1, 2]);
    assert_eq!(tool.update(fd, &key(1), &[9; 6], 0), Ok(0));
    assert_eq!(tool.update(fd, &key(1), &[9; 6], 1), Err(Errno::EXIST));
    assert_eq!(tool.update(fd, &key(3), &[9; 6], 0), Err(Errno::TOOBIG));
    // No byte behind the value is written.
    assert_eq!(
        tool.get(LOOKUP, fd, &key(1), 8),
        Ok(vec![9, 9, 9, 9, 9, 9, 0xee, 0xee])
    );
    assert_eq!(tool.get(LOOKUP, fd, &key(3), 6), Err(Errno::NOENT));
    let deleted = tool.element(Command::MapDeleteElem, fd, Some(&key(1)), 0, 0);
    assert_eq!(deleted, Err(Errno::INVAL));
}

#[test]
fn what_is_frozen_or_protected_is_not_written() {
    let mut tool = Tool::new();
    let fd = tool.map(ARRAY, 4, 8, 1);
    let freeze = |tool: &mut Tool| tool.call(Command::MapFreeze, &[(0, &fd.to_ne_bytes())]);
    assert_eq!(freeze(&mut tool), Ok(0));
    assert_eq!(freeze(&mut tool), Err(Errno::BUSY));
    assert_eq!(tool.update(fd, &key(0), &[9; 8], 0), Err(Errno::PERM));
    assert_eq!(tool.get(LOOKUP, fd, &key(0), 8), Ok(vec![0; 8]));
}

#[test]
fn queues_and_stacks_give_values_in_their_order() {
    let mut tool = Tool::new();
    for (kind, order) in [(22, [1u8, 2, 3]), (23, [3, 2, 1])] {
        let fd = tool.map(kind, 0, 4, 3);
        for value in 1..=3 {
            assert_eq!(tool.update(fd, &[], &[value; 4], 0), Ok(0));
        }
        assert_eq!(tool.update(fd, &[], &[4; 4], 0), Err(Errno::TOOBIG));
        assert_eq!(tool.update(fd, &[], &[4; 4], 1), Err(Errno::INVAL));
        for value in order {
            assert_eq!(tool.get(LOOKUP, fd, &[], 4), Ok(vec![value; 4]));
            let take = Command::MapLookupAndDeleteElem;
            assert_eq!(tool.get(take, fd, &[], 4), Ok(vec![value; 4]));
        }
        assert_eq!(tool.get(LOOKUP, fd, &[], 4), Err(Errno::NOENT));
    }
}

#[test]
fn what_cannot_be_given_is_not_taken() {
    let mut tool = Tool::new();
    let take = Command::MapLookupAndDeleteElem;
    for (kind, key) in [(1, &key(3)[..]), (22, &[])] {
        let fd = tool.map(kind, key.len() as u32, 4, 3);
        assert_eq!(tool.update(fd, key, &[9; 4], 0), Ok(0));
        let key_at = tool.memory.put(key);
        let fields: &[(usize, &[u8])] = &[
            (attr::elem::MAP_FD, &fd.to_ne_bytes()),
            (attr::elem::KEY, &key_at.to_ne_bytes()),
            (attr::elem::VALUE, &8u64.to_ne_bytes()),
        ];
        assert_eq!(tool.call(take, fields), Err(Errno::FAULT));
        assert_eq!(tool.get(take, fd, key, 4), Ok(vec![9; 4]));
    }
}

#[test]
fn a_full_queue_drops_its_oldest_and_a_full_stack_refuses() {
    let mut tool = Tool::new();
    for (kind, told, order) in [(22, Ok(0), [2u8, 3]), (23, Err(Errno::TOOBIG), [2, 1])] {
        let fd = tool.map(kind, 0, 4, 2);
        for value in 1..=2 {
            assert_eq!(tool.update(fd, &[], &[value; 4], 2), Ok(0));
        }
        assert_eq!(tool.update(fd, &[], &[3; 4], 2), told);
        for value in order {
            let take = Command::MapLookupAndDeleteElem;
            assert_eq!(tool.get(take, fd, &[], 4), Ok(vec![value; 4]));
        }
    }
}

#[test]
fn attributes_that_linux_refuses_are_refused() {
    let mut tool = Tool::new();
    let mut create = |kind: u32, key: u32, value: u32, entries: u32| {
        tool.call(
            Command::MapCreate,
            &[
                (attr::map::TYPE, &kind.to_ne_bytes()),
                (attr::map::KEY_SIZE, &key.to_ne_bytes()),
                (attr::map::VALUE_SIZE, &value.to_ne_bytes()),
                (attr::map::MAX_ENTRIES, &entries.to_ne_bytes()),
            ],
        )
    };
    for (kind, keys, values, entries) in [
        (0, 4, 8, 1),
        (99, 4, 8, 1),
        (1499, 4, 8, 1),
        (HASH, 0, 8, 1),
        (ARRAY, 8, 8, 1),
        (ARRAY, 4, 0, 1),
        (ARRAY, 4, 8, 0),
        (27, 0, 0, 5000),
        (22, 4, 8, 1),
        (4, 4, 8, 1),
    ] {
        let refused = create(kind, keys, values, entries);
        assert_eq!(
            refused,
            Err(Errno::INVAL),
            "{kind} {keys} {values} {entries}"
        );
    }
    assert_eq!(create(ARRAY, 4, 1 << 30, 1 << 30), Err(Errno::TOOBIG));
    for kind in [ARRAY, PERCPU_ARRAY, HASH] {
        let created = create(kind, 4, u32::MAX, u32::MAX);
        assert_eq!(created.is_ok(), kind == HASH, "{kind}");
    }
    // What only programs of the host use may exist.
    assert!(create(7, 4, 8, 16).is_ok());
}

#[test]
fn batches_walk_in_steps() {
    let mut tool = Tool::new();
    let fd = tool.map(HASH, 4, 4, 16);
    let keys: Vec<u8> = (0..5).flat_map(key).collect();
    let values: Vec<u8> = (10..15).flat_map(key).collect();
    let (keys_at, values_at) = (tool.memory.put(&keys), tool.memory.put(&values));
    let fields = |count: u32, input: u64, out: u64, keys: u64, values: u64| {
        [
            (attr::batch::IN, input.to_ne_bytes().to_vec()),
            (attr::batch::OUT, out.to_ne_bytes().to_vec()),
            (attr::batch::KEYS, keys.to_ne_bytes().to_vec()),
            (attr::batch::VALUES, values.to_ne_bytes().to_vec()),
            (attr::batch::COUNT, count.to_ne_bytes().to_vec()),
            (attr::batch::MAP_FD, fd.to_ne_bytes().to_vec()),
        ]
    };
    let mut run = |command, fields: [(usize, Vec<u8>); 6]| {
        let fields: Vec<(usize, &[u8])> =
            fields.iter().map(|(at, v)| (*at, v.as_slice())).collect();
        tool.batch(command, &fields)
    };
    let update = Command::MapUpdateBatch;
    assert_eq!(run(update, fields(5, 0, 0, keys_at, values_at)), (Ok(0), 5));
    // A bad address in the middle: what went before it stays.
    assert_eq!(
        run(update, fields(5, 0, 0, keys_at, 8)),
        (Err(Errno::FAULT), 0)
    );
    let lookup = Command::MapLookupBatch;
    let (k, v, place) = (keys_at, values_at, values_at + 128);
    assert_eq!(run(lookup, fields(3, 0, place, k, v)), (Ok(0), 3));
    assert_eq!(
        run(lookup, fields(3, place, place, k, v)),
        (Err(Errno::NOENT), 2)
    );
    assert_eq!(
        run(Command::MapDeleteBatch, fields(2, 0, 0, k, 0)),
        (Ok(0), 2)
    );
    assert_eq!(
        run(Command::MapLookupAndDeleteBatch, fields(9, 0, place, k, v)),
        (Err(Errno::NOENT), 3)
    );
    assert_eq!(
        tool.memory.get(keys_at, 12),
        (0..3).flat_map(key).collect::<Vec<u8>>()
    );
    assert_eq!(
        tool.memory.get(values_at, 12),
        (10..13).flat_map(key).collect::<Vec<u8>>()
    );
    assert_eq!(tool.keys(fd), [0u32; 0]);
}

#[test]
fn a_batch_that_fails_says_what_it_has_taken_and_loses_nothing() {
    let mut tool = Tool::new();
    let fd = tool.map(HASH, 4, 8, 16);
    for number in 0..3 {
        assert_eq!(tool.update(fd, &key(number), &[7; 8], 0), Ok(0));
    }
    let keys = tool.memory.put(&[0; 12]);
    // The attributes will be the last 256 bytes of memory: at their end is room for two values.
    let values = tool.memory.put(&[]) + 256 - 16;
    let count = tool.batch(
        Command::MapLookupAndDeleteBatch,
        &[
            (attr::batch::OUT, &keys.to_ne_bytes()),
            (attr::batch::KEYS, &keys.to_ne_bytes()),
            (attr::batch::VALUES, &values.to_ne_bytes()),
            (attr::batch::COUNT, &key(3)),
            (attr::batch::MAP_FD, &fd.to_ne_bytes()),
        ],
    );
    assert_eq!(count, (Err(Errno::FAULT), 2));
    assert_eq!(tool.keys(fd), [2]);
}

#[test]
fn a_multiprocessor_is_a_cpu() {
    let mut tool = Tool::new();
    let fd = tool.map(PERCPU_ARRAY, 4, 4, 1);
    let device = Device::new(&def(PERCPU_ARRAY, 4, 4, 1), 2);
    device.set(&key(0), &[7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    tool.kernel.session = Some(device.clone());
    let mut expected = vec![0; 32];
    (expected[0], expected[8]) = (7, 9);
    assert_eq!(tool.get(LOOKUP, fd, &key(0), 32), Ok(expected));
    // The device gets as many values as it has multiprocessors.
    let values: Vec<u8> = (0..4u64).flat_map(u64::to_ne_bytes).collect();
    assert_eq!(tool.update(fd, &key(0), &values, 0), Ok(0));
    let done = device.done.lock().unwrap().clone();
    assert_eq!(
        done,
        [(OpCode::Update, key(0).to_vec(), values[..16].to_vec(), 0)]
    );
    // What it has no multiprocessors for is read back with what it has.
    device.set(&key(0), &values[..16]);
    assert_eq!(tool.get(LOOKUP, fd, &key(0), 32), Ok(values));
}

#[test]
fn values_of_cpus_that_no_multiprocessor_is_are_the_tools() {
    for kind in [PERCPU_ARRAY, PERCPU_HASH] {
        let mut tool = Tool::new();
        let fd = tool.map(kind, 4, 8, 4);
        let all =
            |first: u64| -> Vec<u8> { (first..first + 4).flat_map(u64::to_ne_bytes).collect() };
        assert_eq!(tool.update(fd, &key(1), &all(10), 0), Ok(0));
        let device = Device::new(&def(kind, 4, 8, 4), 2);
        device.set(&key(1), &all(10)[..16]);
        device.set(&key(2), &all(20)[..16]);
        tool.kernel.session = Some(device.clone());
        // What it wrote before there was a device, and nothing for what kernels put there.
        assert_eq!(tool.get(LOOKUP, fd, &key(1), 32), Ok(all(10)), "{kind}");
        let mut theirs = all(20);
        theirs[16..].fill(0);
        assert_eq!(tool.get(LOOKUP, fd, &key(2), 32), Ok(theirs), "{kind}");
        // Kernels count on, and the tool's part stays.
        device.set(&key(1), &all(50)[..16]);
        let both = [&all(50)[..16], &all(10)[16..]].concat();
        assert_eq!(tool.get(LOOKUP, fd, &key(1), 32), Ok(both), "{kind}");
        assert_eq!(tool.update(fd, &key(1), &all(30), 0), Ok(0));
        device.set(&key(1), &all(30)[..16]);
        assert_eq!(tool.get(LOOKUP, fd, &key(1), 32), Ok(all(30)), "{kind}");
        if kind == PERCPU_HASH {
            let gone = tool.element(Command::MapDeleteElem, fd, Some(&key(1)), 0, 0);
            assert_eq!(gone, Ok(0));
            // Kernels put it there again.
            device.set(&key(1), &all(20)[..16]);
            let mut theirs = all(20);
            theirs[16..].fill(0);
            assert_eq!(tool.get(LOOKUP, fd, &key(1), 32), Ok(theirs));
        }
    }
}

/// Nothing stays of keys that come and go while there is an application; of one that was there
/// before, that it is gone.
#[test]
fn of_keys_that_the_tool_removes_it_keeps_what_it_has_to() {
    let mut tool = Tool::new();
    let fd = tool.map(PERCPU_HASH, 4, 8, 4);
    assert_eq!(tool.update(fd, &key(1), &[1; 32], 0), Ok(0));
    let device = Device::new(&def(PERCPU_HASH, 4, 8, 4), 2);
    tool.kernel.session = Some(device);
    let at = tool.kernel.map_at(fd).unwrap();
    for number in [2, 3, 1, 4] {
        assert_eq!(tool.update(fd, &key(number), &[2; 32], 0), Ok(0));
        let gone = tool.element(Command::MapDeleteElem, fd, Some(&key(number)), 0, 0);
        assert_eq!(gone, Ok(0));
    }
    let mut expected = ExtraCpus::default();
    expected.removed(&key(1), true);
    assert_eq!(tool.kernel.map(at).unwrap().extra_cpus, expected);
}

/// What is put into a map of maps, and taken out, is so on the device, too.
#[test]
fn maps_in_maps_are_changed_on_the_device() {
    for kind in [12u32, 13] {
        let mut tool = Tool::new();
        let inner = tool.map(ARRAY, 4, 8, 1);
        let create = [
            (attr::map::TYPE, kind.to_ne_bytes()),
            (attr::map::KEY_SIZE, 4u32.to_ne_bytes()),
            (attr::map::VALUE_SIZE, 4u32.to_ne_bytes()),
            (attr::map::MAX_ENTRIES, 2u32.to_ne_bytes()),
            (attr::map::INNER_MAP_FD, inner.to_ne_bytes()),
        ];
        let create: Vec<(usize, &[u8])> = create.iter().map(|(at, b)| (*at, &b[..])).collect();
        let outer = tool.call(Command::MapCreate, &create).unwrap() as i32;
        let second = tool.map(ARRAY, 4, 8, 1);
        let late = tool.map(ARRAY, 4, 8, 1);
        assert_eq!(tool.update(outer, &key(0), &inner.to_ne_bytes(), 0), Ok(0));
        let device = Device::new(&def(ARRAY, 4, 8, 1), 2);
        *device.maps.lock().unwrap() = 3;
        tool.kernel.session = Some(device.clone());
        let put = |tool: &mut Tool, at: u32, map: i32, flags: u64| {
            tool.update(outer, &key(at), &map.to_ne_bytes(), flags)
        };
        assert_eq!(put(&mut tool, 1, second, 2), Err(Errno::NOENT));
        assert_eq!(put(&mut tool, 0, second, 1), Err(Errno::EXIST));
        assert_eq!(put(&mut tool, 0, late, 0), Err(Errno::OPNOTSUPP));
        assert_eq!(put(&mut tool, 0, outer, 0), Err(Errno::INVAL));
        assert_eq!(*device.done.lock().unwrap(), []);
        // Places are 0 for the first map, 1 for the map of maps, 2 for the second.
        assert_eq!(put(&mut tool, 0, second, 2), Ok(0));
        let value = 3u32.to_ne_bytes().to_vec();
        assert_eq!(tool.get(LOOKUP, outer, &key(0), 4), Ok(value.clone()));
        // What the device refuses is as it was.
        *device.refused.lock().unwrap() = Some((key(0).to_vec(), -16));
        assert_eq!(put(&mut tool, 0, inner, 0), Err(Errno::BUSY));
        let delete =
            |tool: &mut Tool| tool.element(Command::MapDeleteElem, outer, Some(&key(0)), 0, 0);
        assert_eq!(delete(&mut tool), Err(Errno::BUSY));
        assert_eq!(tool.get(LOOKUP, outer, &key(0), 4), Ok(value.clone()));
        *device.refused.lock().unwrap() = None;
        device.done.lock().unwrap().remove(1);
        assert_eq!(delete(&mut tool), Ok(0));
        assert_eq!(delete(&mut tool), Err(Errno::NOENT));
        assert_eq!(tool.get(LOOKUP, outer, &key(0), 4), Err(Errno::NOENT));
        let done = device.done.lock().unwrap();
        assert_eq!(done[0], (OpCode::Update, key(0).to_vec(), value, 0));
        assert_eq!(done.len(), 3);
        let gone = (OpCode::Delete, key(0).to_vec(), Vec::new(), 0);
        assert_eq!(done[1..], [gone.clone(), gone]);
    }
}

#[test]
fn a_filter_has_no_keys() {
    let mut tool = Tool::new();
    for (kind, refused) in [
        (22, Errno::INVAL),
        (23, Errno::INVAL),
        (30, Errno::OPNOTSUPP),
    ] {
        let fd = tool.map(kind, 0, 4, 4);
        let next = tool.memory.put(&[0; 4]);
        for command in [Command::MapGetNextKey, Command::MapDeleteElem] {
            let asked = tool.element(command, fd, Some(&key(0)), next, 0);
            assert_eq!(asked, Err(refused), "{command:?}");
        }
    }
}

#[test]
fn what_more_multiprocessors_than_cpus_say_is_an_error_and_not_cut() {
    let mut tool = Tool::new();
    let fd = tool.map(PERCPU_ARRAY, 4, 4, 1);
    let device = Device::new(&def(PERCPU_ARRAY, 4, 4, 1), 5);
    tool.kernel.session = Some(device.clone());
    // The last one has nothing to say.
    let mut values = vec![0; 40];
    values[24] = 7;
    device.set(&key(0), &values);
    assert_eq!(tool.get(LOOKUP, fd, &key(0), 32), Ok(values[..32].to_vec()));
    values[32] = 1;
    device.set(&key(0), &values);
    assert_eq!(tool.get(LOOKUP, fd, &key(0), 32), Err(Errno::OVERFLOW));
}

#[test]
fn with_an_application_the_device_answers() {
    let mut tool = Tool::new();
    let fd = tool.map(HASH, 4, 8, 16);
    assert_eq!(tool.update(fd, &key(1), &[1; 8], 0), Ok(0));
    let device = Device::new(&def(HASH, 4, 8, 16), 2);
    for number in [4, 2, 9] {
        device.set(&key(number), &[number as u8; 8]);
    }
    tool.kernel.session = Some(device.clone());
    assert_eq!(tool.get(LOOKUP, fd, &key(1), 8), Err(Errno::NOENT));
    assert_eq!(tool.get(LOOKUP, fd, &key(9), 8), Ok(vec![9; 8]));
    let mut keys = tool.keys(fd);
    keys.sort_unstable();
    assert_eq!(keys, [2, 4, 9]);
    assert_eq!(tool.update(fd, &key(5), &[5; 8], 1), Ok(0));
    assert_eq!(
        tool.element(Command::MapDeleteElem, fd, Some(&key(4)), 0, 0),
        Ok(0)
    );
    let take = Command::MapLookupAndDeleteElem;
    assert_eq!(tool.get(take, fd, &key(2), 8), Ok(b"answered".to_vec()));
    let done = device.done.lock().unwrap();
    assert_eq!(
        *done,
        [
            (OpCode::Update, key(5).to_vec(), vec![5; 8], 1),
            (OpCode::Delete, key(4).to_vec(), vec![], 0),
            (OpCode::LookupAndDelete, key(2).to_vec(), vec![], 0),
        ]
    );
}

#[test]
fn one_value_of_a_large_map_is_asked_for_by_itself() {
    let mut tool = Tool::new();
    let fd = tool.map(HASH, 4, 8, 16);
    let device = Device::new(&def(HASH, 4, 8, 16), 2);
    device.set(&key(2), &[2; 8]);
    tool.kernel.session = Some(device.clone());
    *device.singly.lock().unwrap() = true;
    assert_eq!(tool.get(LOOKUP, fd, &key(2), 8), Ok(b"answered".to_vec()));
    let asked = (OpCode::Lookup, key(2).to_vec(), vec![], 0);
    assert_eq!(*device.done.lock().unwrap(), [asked]);
    *device.refused.lock().unwrap() = Some((key(3).to_vec(), 2));
    assert_eq!(tool.get(LOOKUP, fd, &key(3), 8), Err(Errno::NOENT));
    // Where such operations are not served, there is the copy.
    *device.refused.lock().unwrap() = Some((key(2).to_vec(), 95));
    assert_eq!(tool.get(LOOKUP, fd, &key(2), 8), Ok(vec![2; 8]));
    let asked = device.done.lock().unwrap().len();
    assert_eq!(tool.get(LOOKUP, fd, &key(2), 8), Ok(vec![2; 8]));
    assert_eq!(device.done.lock().unwrap().len(), asked);
}

#[test]
fn what_the_tool_maps_and_what_the_device_holds_come_together() {
    let mut tool = Tool::new();
    let (two, mmapable) = (2u32.to_ne_bytes(), (1u32 << 10).to_ne_bytes());
    let fd = tool
        .call(
            Command::MapCreate,
            &[
                (attr::map::TYPE, &ARRAY.to_ne_bytes()),
                (attr::map::KEY_SIZE, &key(4)),
                (attr::map::VALUE_SIZE, &key(16)),
                (attr::map::MAX_ENTRIES, &two),
                (attr::map::FLAGS, &mmapable),
            ],
        )
        .unwrap() as i32;
    assert_eq!(tool.update(fd, &key(1), &[1; 16], 0), Ok(0));
    tool.kernel.note_mapped();
    let device = Device::new(&def(ARRAY, 4, 16, 2), 2);
    device.set(&key(1), &[1; 16]);
    tool.kernel.session = Some(device.clone());
    tool.kernel.synchronise();
    assert!(device.done.lock().unwrap().is_empty());
    // The device counts in the first word, the tool writes the second.
    let mut counted = [1; 16];
    counted[0] = 200;
    device.set(&key(1), &counted);
    let crate::objects::contents::Contents::Mapped(memory, _) =
        &tool.kernel.maps.get(0).unwrap().contents
    else {
        panic!("not mapped");
    };
    let memory = memory.clone();
    memory.store(24, &[3; 8]);
    tool.kernel.synchronise();
    counted[8..].fill(3);
    assert_eq!(memory.copy(16, 16), counted);
    let done = device.done.lock().unwrap();
    assert_eq!(
        *done,
        [(
            OpCode::Words,
            key(1).to_vec(),
            words::pack(&counted, [1]),
            0
        )]
    );
}

#[test]
fn a_word_that_the_device_refused_is_sent_again() {
    let mut tool = Tool::new();
    let fields: [(usize, u32); 5] = [
        (attr::map::TYPE, ARRAY),
        (attr::map::KEY_SIZE, 4),
        (attr::map::VALUE_SIZE, 8),
        (attr::map::MAX_ENTRIES, 2),
        (attr::map::FLAGS, 1 << 10),
    ];
    let fields = fields.map(|(at, value)| (at, value.to_ne_bytes()));
    let fields: Vec<(usize, &[u8])> = fields.iter().map(|(at, v)| (*at, v.as_slice())).collect();
    tool.call(Command::MapCreate, &fields).unwrap();
    tool.kernel.note_mapped();
    let device = Device::new(&def(ARRAY, 4, 8, 2), 2);
    tool.kernel.session = Some(device.clone());
    let crate::objects::contents::Contents::Mapped(memory, _) =
        &tool.kernel.maps.get(0).unwrap().contents
    else {
        panic!("not mapped");
    };
    let memory = memory.clone();
    memory.store(0, &[1; 16]);
    let sent = |device: &Device| {
        let done = std::mem::take(&mut *device.done.lock().unwrap());
        done.into_iter().map(|done| done.1).collect::<Vec<_>>()
    };
    *device.refused.lock().unwrap() = Some((key(0).to_vec(), -16));
    tool.kernel.synchronise();
    // The keys behind it are sent too.
    assert_eq!(sent(&device), [key(0), key(1)]);
    device.set(&key(1), &[1; 8]);
    *device.refused.lock().unwrap() = Some((key(0).to_vec(), -5));
    tool.kernel.synchronise();
    assert_eq!(sent(&device), [key(0)]);
    assert_eq!(memory.copy(0, 16), [1; 16]);
    *device.refused.lock().unwrap() = None;
    tool.kernel.synchronise();
    assert_eq!(sent(&device), [key(0)]);
    device.set(&key(0), &[1; 8]);
    tool.kernel.synchronise();
    assert!(sent(&device).is_empty());
}

#[test]
fn ids_pins_and_info_name_the_same_objects() {
    let mut tool = Tool::new();
    let first = tool.map(HASH, 4, 8, 16);
    let second = tool.map(ARRAY, 4, 8, 3);
    let next = |tool: &mut Tool, start: u32| {
        let at = tool.attr(&[(attr::id::START, &start.to_ne_bytes())]);
        let command = Command::MapGetNextId as u32;
        tool.kernel.bpf(command, at, 144, &tool.memory)?;
        let next = tool.memory.get(at + attr::id::NEXT as u64, 4);
        Ok(u32::from_ne_bytes(next.try_into().unwrap()))
    };
    assert_eq!(next(&mut tool, 0), Ok(1));
    assert_eq!(next(&mut tool, 1), Ok(2));
    assert_eq!(next(&mut tool, 2), Err(Errno::NOENT));
    let path = tool.memory.put(b"/sys/fs/bpf/here\0");
    let pin = |tool: &mut Tool| {
        tool.call(
            Command::ObjPin,
            &[
                (attr::obj::PATH, &path.to_ne_bytes()),
                (attr::obj::FD, &second.to_ne_bytes()),
            ],
        )
    };
    assert_eq!(pin(&mut tool), Ok(0));
    assert_eq!(pin(&mut tool), Err(Errno::EXIST));
    tool.kernel.closed(second);
    tool.kernel.closed(first);
    assert_eq!(next(&mut tool, 0), Ok(2));
    let got = tool.call(Command::ObjGet, &[(attr::obj::PATH, &path.to_ne_bytes())]);
    let got = got.unwrap() as i32;
    let info = tool.memory.put(&[0xee; 88]);
    let asked = [
        (attr::info::FD, got.to_ne_bytes().to_vec()),
        (attr::info::LENGTH, 80u32.to_ne_bytes().to_vec()),
        (attr::info::INFO, info.to_ne_bytes().to_vec()),
    ];
    let asked: Vec<(usize, &[u8])> = asked.iter().map(|(at, v)| (*at, v.as_slice())).collect();
    assert_eq!(tool.call(Command::ObjGetInfoByFd, &asked), Ok(0));
    let bytes = tool.memory.get(info, 88);
    let words: Vec<u32> = bytes[..24]
        .chunks(4)
        .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(words, [ARRAY, 2, 4, 8, 3, 0]);
    assert_eq!(&bytes[24..30], b"a_map\0");
    assert_eq!(bytes[80..], [0xee; 8]);
    assert!(tool.kernel.unpin("/sys/fs/bpf/here"));
    assert!(!tool.kernel.unpin("/sys/fs/bpf/here"));
    tool.kernel.closed(got);
    assert_eq!(next(&mut tool, 0), Err(Errno::NOENT));
}
