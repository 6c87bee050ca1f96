//! Programs on the CPU against maps that are kept here.

use std::collections::BTreeMap;

use warpbpf_object::MapKind;

use super::*;
use crate::cpu::error::CpuError;
use crate::cpu::surroundings::{Coordinates, Surroundings};

#[derive(Default)]
struct World {
    values: BTreeMap<(u32, Vec<u8>), Vec<u8>>,
    records: Vec<(u32, Vec<u8>)>,
    printed: Vec<String>,
    at: Coordinates,
    /// Changes the value of map 0 before each update, as somebody else would.
    meddles: bool,
    /// Helpers and atomics for which there is time; `None`: for all.
    helpers_left: Option<u32>,
}

impl Surroundings for World {
    fn lookup(&mut self, map: u32, key: &[u8]) -> Result<Vec<u8>, i64> {
        self.values.get(&(map, key.to_vec())).cloned().ok_or(-2)
    }
    fn update(&mut self, map: u32, key: &[u8], value: &[u8], flags: u64) -> Result<(), i64> {
        if flags == 1 && self.values.contains_key(&(map, key.to_vec())) {
            return Err(-17);
        }
        self.values.insert((map, key.to_vec()), value.to_vec());
        Ok(())
    }
    fn delete(&mut self, map: u32, key: &[u8]) -> Result<(), i64> {
        self.values
            .remove(&(map, key.to_vec()))
            .map(|_| ())
            .ok_or(-2)
    }
    fn push(&mut self, _: u32, _: &[u8], _: u64) -> Result<(), i64> {
        Err(-22)
    }
    fn pop(&mut self, _: u32) -> Result<Vec<u8>, i64> {
        Err(-2)
    }
    fn output(&mut self, map: u32, record: &[u8]) -> Result<(), i64> {
        if self.meddles {
            // Somebody else adds to the second word meanwhile.
            if let Some(value) = self.values.get_mut(&(0, vec![0; 4])) {
                value[8] += 1;
            }
        }
        self.records.push((map, record.to_vec()));
        Ok(())
    }
    fn print(&mut self, text: &str) {
        self.printed.push(text.to_owned());
    }
    fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
        into.fill(address as u8);
        address != 0
    }
    fn out_of_time(&mut self) -> bool {
        let left = self.helpers_left.map(|left| left.saturating_sub(1));
        std::mem::replace(&mut self.helpers_left, left) == Some(0)
    }
    fn cpu(&mut self) -> u32 {
        7
    }
    fn function(&self) -> u64 {
        0x7f00_1230
    }
    fn coordinates(&self) -> Option<Coordinates> {
        Some(self.at)
    }
}

fn map(name: &str, map_type: MapType, value_size: u32) -> MapDef {
    MapDef {
        name: name.into(),
        map_type: map_type as u32,
        key_size: 4,
        value_size,
        max_entries: 4,
        flags: 0,
        kind: MapKind::User,
        extra: BTreeMap::new(),
        key_type: None,
        value_type: None,
        inner: None,
        initial: Vec::new(),
    }
}

fn program(text: &str) -> Program {
    Program {
        name: "p".into(),
        section: "gpu/entry/*".into(),
        code: warpbpf_ebpf::assemble(text).unwrap(),
        functions: Vec::new(),
        lines: Vec::new(),
        unresolved: BTreeMap::new(),
    }
}

fn maps() -> Vec<MapDef> {
    vec![
        map("counts", MapType::Array, 16),
        map("events", MapType::Ringbuf, 0),
        map("threads", MapType::PerThreadArray, 8),
    ]
}

#[test]
fn stores_and_atomics_go_to_the_map_word_by_word() {
    let program = program(
        "r6 = r1
        *(u32 *)(r10 - 4) = 0
        r2 = r10
        r2 += -4
        r1 = map[0]
        call 1
        if r0 == 0 goto end
        r7 = r0
        *(u64 *)(r7 + 0) = 5
        *(u64 *)(r10 - 16) = 9
        r1 = map[1]
        r2 = r10
        r2 += -16
        r3 = 8
        r4 = 0
        call 130
        r1 = 1
        lock *(u64 *)(r7 + 8) += r1
        *(u64 *)(r7 + 0) = 6
        r0 = *(u32 *)(r6 + 24)
        end: exit",
    );
    let mut world = World {
        meddles: true,
        ..World::default()
    };
    world.values.insert((0, vec![0; 4]), vec![0; 16]);
    let context = Coordinates {
        thread: [3, 0, 0],
        ..Coordinates::default()
    }
    .context(240);
    check(&program, &maps(), true).unwrap();
    assert_eq!(execute(&program, &maps(), &context, &mut world), Ok(3));
    let value = &world.values[&(0, vec![0; 4])];
    assert_eq!((value[0], value[8]), (6, 2), "somebody's addition and ours");
    assert_eq!(world.records, [(1, vec![9, 0, 0, 0, 0, 0, 0, 0])]);
    assert_eq!(Coordinates::of_context(&context).thread, [3, 0, 0]);
    // Without the key the program sees NULL.
    world.values.clear();
    assert_eq!(execute(&program, &maps(), &context, &mut world), Ok(0));
}

#[test]
fn dynptrs_of_records_and_values() {
    // 8 bytes of the value from its offset 4 on go into a record of 12 bytes; what does not fit is
    // told, and no record of flags 1 is there to be sent.
    let program = program(
        "*(u32 *)(r10 - 4) = 0
        r2 = r10
        r2 += -4
        r1 = map[0]
        call 1
        if r0 == 0 goto end
        r1 = r0
        r1 += 4
        r2 = 12
        r3 = 0
        r4 = r10
        r4 += -32
        call 197
        r6 = r0
        r1 = map[1]
        r2 = 12
        r3 = 0
        r4 = r10
        r4 += -48
        call 198
        r6 |= r0
        r1 = r10
        r1 += -64
        r2 = 8
        r3 = r10
        r3 += -32
        r4 = 0
        r5 = 0
        call 201
        r6 |= r0
        r1 = r10
        r1 += -48
        r2 = 4
        r3 = r10
        r3 += -64
        r4 = 8
        r5 = 0
        call 202
        r6 |= r0
        r1 = r10
        r1 += -48
        r2 = 5
        r3 = r10
        r3 += -64
        r4 = 8
        r5 = 0
        call 202
        r7 = r0
        r1 = r10
        r1 += -48
        r2 = 0
        r3 = 4
        call 203
        *(u32 *)(r0 + 0) = 258
        r1 = r10
        r1 += -32
        r2 = 11
        r3 = 2
        call 203
        r6 |= r0
        r1 = r10
        r1 += -48
        r2 = 0
        call 199
        r1 = map[1]
        r2 = 12
        r3 = 1
        r4 = r10
        r4 += -48
        call 198
        r8 = r0
        r1 = r10
        r1 += -48
        r2 = 0
        call 199
        r0 = r6
        r0 <<= 16
        r7 = -r7
        r8 = -r8
        r7 <<= 8
        r0 |= r7
        r0 |= r8
        end: exit",
    );
    check(&program, &maps(), true).unwrap();
    let mut world = World::default();
    let value: Vec<u8> = (0..16).collect();
    world.values.insert((0, vec![0; 4]), value.clone());
    // -E2BIG and -EINVAL, and nothing else.
    let expected = Ok(7 << 8 | 22);
    assert_eq!(execute(&program, &maps(), &[0; 240], &mut world), expected);
    assert_eq!(
        world.records,
        [(1, vec![2, 1, 0, 0, 4, 5, 6, 7, 8, 9, 10, 11])]
    );
    assert_eq!(world.values[&(0, vec![0; 4])], value);
}

#[test]
fn a_program_is_stopped_when_its_time_is_used_up() {
    let endless = program(
        "again: call 5
        goto again
        exit",
    );
    let mut world = World {
        helpers_left: Some(3),
        ..World::default()
    };
    let error = execute(&endless, &maps(), &[0; 240], &mut world).unwrap_err();
    assert_eq!(
        error.to_string(),
        "program `p` was stopped: the time for one run is used up"
    );
    assert!(matches!(error, CpuError::Limit { .. }), "{error:?}");
    // One that is done in time is not.
    let thrice = program("call 5\ncall 5\ncall 5\nr0 = 7\nexit");
    world.helpers_left = Some(3);
    assert_eq!(execute(&thrice, &maps(), &[0; 240], &mut world), Ok(7));
}

#[test]
fn a_program_that_errs_ends_there() {
    let bad = program(
        "r1 = 0
        r0 = *(u64 *)(r1 + 8)
        exit",
    );
    let error = execute(&bad, &maps(), &[0; 240], &mut World::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "program `p` ended: load of 8 bytes at 0x8, where no memory is"
    );
    let endless = program("again: goto again\nexit");
    let error = execute(&endless, &maps(), &[0; 240], &mut World::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "program `p` was stopped: the limit of executed instructions is used up"
    );
    let writes_context = program("*(u64 *)(r1 + 0) = 1\nexit");
    let error = execute(&writes_context, &maps(), &[0; 240], &mut World::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "program `p` ended: store of 8 bytes at 0x100000000000, which is read-only"
    );
}

#[test]
fn what_is_not_served_is_named() {
    let refused = |text: &str, gpu| check(&program(text), &maps(), gpu).unwrap_err().to_string();
    assert_eq!(
        refused("call 528\nexit", true),
        "program `p` calls `bpf_gpu_warp_sum`, which programs on the CPU are not served"
    );
    assert_eq!(
        refused("call 546\nexit", true),
        "program `p` calls `bpf_gpu_block_sum`, which programs on the CPU are not served"
    );
    assert_eq!(
        refused("call 503\nexit", false),
        "program `p` calls `bpf_gpu_block_idx`, which programs on the CPU are not served"
    );
    assert_eq!(
        refused("call 134\nexit", true),
        "program `p` calls `bpf_ringbuf_query`, which programs on the CPU are not served"
    );
    assert_eq!(
        refused("call 35\nexit", false),
        "program `p` calls `bpf_get_current_task`, which programs on the CPU are not served"
    );
    assert_eq!(
        refused("call 173\nexit", true),
        "program `p` calls `bpf_get_func_ip`, which programs on the CPU are not served"
    );
    assert_eq!(check(&program("call 173\nexit"), &maps(), false), Ok(()));
    assert_eq!(
        refused("r1 = map[2]\nexit", true),
        "program `p` uses map `threads` of type 1502, which programs on the CPU are not served"
    );
}

#[test]
fn the_processs_memory_and_messages() {
    let reads = program(
        "*(u64 *)(r10 - 8) = 7
        r1 = r10
        r1 += -8
        r2 = 4
        r3 = 1
        call 112
        r0 = *(u64 *)(r10 - 8)
        exit",
    );
    let mut world = World::default();
    assert_eq!(execute(&reads, &maps(), &[], &mut world), Ok(0x0101_0101));
    let prints = program(
        "*(u64 *)(r10 - 8) = 0x75252078
        r1 = r10
        r1 += -8
        r2 = 5
        r3 = 42
        call 6
        r0 = 0
        exit",
    );
    assert_eq!(execute(&prints, &maps(), &[], &mut world), Ok(0));
    assert_eq!(world.printed, ["x 42"]);
    let asks = program("call 173\nexit");
    assert_eq!(execute(&asks, &maps(), &[], &mut world), Ok(0x7f00_1230));
    let ends = program("call 507\nexit");
    assert_eq!(execute(&ends, &maps(), &[], &mut world), Ok(0));
}

#[test]
fn what_a_program_points_to_is_read_like_the_processs_memory() {
    // "ab", a NUL and an "X" behind it.
    let reads = |helper: u32, result: &str| {
        program(&format!(
            "*(u64 *)(r10 - 8) = 0x58006261
            r1 = r10
            r1 += -16
            r2 = 8
            r3 = r10
            r3 += -8
            call {helper}
            r1 = *(u64 *)(r10 - 16)
            r0 = {result}
            exit"
        ))
    };
    for (helper, result, bytes) in [(113, 0, 0x5800_6261), (115, 3, 0x6261), (45, 3, 0x6261)] {
        let run = |result| {
            let program = reads(helper, result);
            execute(&program, &maps(), &[], &mut World::default())
        };
        assert_eq!((run("r0"), run("r1")), (Ok(result), Ok(bytes)), "{helper}");
    }
}

#[test]
fn programs_of_the_host_are_taken_out_of_an_object() {
    let at = section("/lib/libcudart.so.13", 0x1230, true);
    assert_eq!(at, "uretprobe//lib/libcudart.so.13+0x1230");
    let of = |section: &str| Program {
        section: section.into(),
        ..program("r1 = map[3]\nr0 = 0\nexit")
    };
    let mut maps = maps();
    maps.push(map("per_cpu", MapType::PercpuHash, 8));
    let mut object = Object {
        programs: vec![of("gpu/entry/*"), of("uprobe//bin/app+0x40")],
        maps,
        license: None,
        version: None,
        btf: None,
    };
    let host = take(&mut object).unwrap();
    assert_eq!((host.len(), object.programs.len()), (1, 1));
    assert_eq!(host[0].place.text(), "/bin/app+0x40");
    assert!(!host[0].at_end);
    let error = check_shared(&host, object.programs.iter(), &object.maps).unwrap_err();
    assert_eq!(
        error.to_string(),
        "program `p` on the CPU uses map `per_cpu`, which has a value per multiprocessor, and so do programs in kernels: give each side a map of its own"
    );
    assert_eq!(
        check_shared(&host, std::iter::empty(), &object.maps),
        Ok(())
    );
}
