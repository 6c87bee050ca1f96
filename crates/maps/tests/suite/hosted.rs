//! A hash on the host: its operations against a model, and the whole way of a call, from a
//! program's lanes on the soft GPU to the host that answers, answers late, or does not answer at
//! all.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;
use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::layout::{HostedLayout, MapLayout, env};
use warpbpf_abi::maps::{
    BPF_ANY, BPF_EXIST, BPF_NOEXIST, E2BIG, EEXIST, EINVAL, ENOENT, ETIMEDOUT, MapType, PLACE,
    Placement,
};
use warpbpf_codegen::kernel::kernel;
use warpbpf_codegen::{Env, Input, MapBinding, SlotSpace, Target, compile};
use warpbpf_maps::hosted::{Hosted, Words};
use warpbpf_maps::{Counters, MapError, MapPlan, MapView, Value, delete, plan, update};
use warpbpf_object::{MapDef, MapKind};
use warpbpf_softgpu::{Config, Gpu, Launch, Outcome};
use warpbpf_verify::{Platform, helpers_used, verify};

fn def(map_type: MapType, value_size: u32, max_entries: u32) -> MapDef {
    MapDef {
        name: "asked".into(),
        map_type: map_type as u32,
        key_size: if map_type == MapType::Array { 4 } else { 8 },
        value_size,
        max_entries,
        flags: 0,
        kind: MapKind::User,
        extra: [(PLACE.to_owned(), Placement::Host.number())].into(),
        key_type: None,
        value_type: None,
        inner: None,
        initial: Vec::new(),
    }
}

fn planned(value_size: u32, max_entries: u32) -> (MapPlan, HostedLayout) {
    let plan = plan(&def(MapType::Hash, value_size, max_entries), 4, &[]).unwrap();
    let MapLayout::Hosted(layout) = plan.layout else {
        panic!("{plan:?}");
    };
    (plan, layout)
}

/// A host block that one thread uses.
struct Block(RefCell<Vec<u8>>);

impl Words for Block {
    fn load(&self, at: u64) -> u64 {
        let at = at as usize;
        u64::from_le_bytes(self.0.borrow()[at..at + 8].try_into().unwrap())
    }
    fn store(&self, at: u64, word: u64) {
        let at = at as usize;
        self.0.borrow_mut()[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
}

#[test]
fn types_are_placed_or_refused_by_name() {
    let placed = |map_type| plan(&def(map_type, 8, 16), 4, &[]);
    assert_eq!(placed(MapType::Array).unwrap().placement, Placement::Host);
    let refused = placed(MapType::LruHash).unwrap_err();
    assert!(matches!(refused, MapError::Host { .. }));
    assert_eq!(
        refused.to_string(),
        "map `asked` cannot be placed on the host: it is a lru_hash, possible are array, percpu_array, per_thread_array, gpu_array, gpu_kernel_array, per_thread_host_array, gpu_host_array, hash, gpu_hash; leave it on the device"
    );
    let mut strange = def(MapType::Hash, 8, 16);
    strange.extra.insert(PLACE.to_owned(), 7);
    assert_eq!(
        plan(&strange, 4, &[]).unwrap_err().to_string(),
        "map `asked`: attribute `warpbpf_place` = 7 is not served for type hash; remove it"
    );
    let mut home = def(MapType::GpuHostArray, 8, 16);
    home.key_size = 4;
    home.extra
        .insert(PLACE.to_owned(), Placement::Device.number());
    assert_eq!(plan(&home, 4, &[]).unwrap().placement, Placement::Device);
}

proptest! {
    /// The host's operations, those on a quiet copy, and what a reader sees of both.
    #[test]
    fn operations_agree_with_a_model(
        ops in prop::collection::vec((0u8..4, 0u64..6, any::<u64>(), 0u64..4), 1..120),
        wide in any::<bool>(),
    ) {
        let (plan, layout) = planned(if wide { 20 } else { 8 }, 4);
        let block = Block(RefCell::new(vec![0; plan.bytes() as usize]));
        let mut quiet = vec![0; plan.bytes() as usize];
        let mut hosted = Hosted::new(layout, &block);
        let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut full = 0;
        for (what, key, seed, flags) in ops {
            let value: Vec<u8> = seed.to_le_bytes().into_iter().cycle()
                .take(plan.value_size as usize).collect();
            let bytes = key.to_le_bytes();
            let there = model.contains_key(&key);
            let (expected, done, written) = match what {
                0 | 1 => {
                    let expected = match flags {
                        BPF_NOEXIST if there => Err(EEXIST),
                        BPF_EXIST if !there => Err(ENOENT),
                        BPF_ANY | BPF_NOEXIST | BPF_EXIST if !there && model.len() == 4 => Err(E2BIG),
                        BPF_ANY | BPF_NOEXIST | BPF_EXIST => Ok(()),
                        _ => Err(EINVAL),
                    };
                    full += u64::from(expected == Err(E2BIG));
                    if expected.is_ok() {
                        model.insert(key, value.clone());
                    }
                    (
                        expected,
                        hosted.update(&block, &bytes, &value, flags),
                        update(&plan, &quiet, &bytes, &value, flags),
                    )
                }
                2 => {
                    let expected = model.remove(&key).map(drop).ok_or(ENOENT);
                    (expected, hosted.delete(&block, &bytes), delete(&plan, &quiet, &bytes))
                }
                _ => {
                    prop_assert_eq!(hosted.lookup(&block, &bytes), model.get(&key).cloned());
                    continue;
                }
            };
            prop_assert_eq!(done, expected);
            prop_assert_eq!(written.as_ref().map(drop).map_err(|e| e.errno()), expected);
            for write in written.unwrap_or_default() {
                let at = write.offset as usize;
                quiet[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
            }
        }
        for bytes in [&*block.0.borrow(), &quiet] {
            let view = MapView::new(&plan, bytes).unwrap();
            let seen: BTreeMap<u64, Vec<u8>> = view.entries().map(|entry| {
                let Value::One(value) = entry.value else { panic!() };
                (u64::from_le_bytes(entry.key.try_into().unwrap()), value)
            }).collect();
            prop_assert_eq!(&seen, &model);
        }
        let view = block.0.borrow();
        let counters = MapView::new(&plan, &view).unwrap().counters();
        prop_assert_eq!(counters, Counters { full, ..Counters::default() });
        // Another host takes over.
        drop(view);
        let next = Hosted::new(layout, &block);
        for (key, value) in &model {
            prop_assert_eq!(next.lookup(&block, &key.to_le_bytes()), Some(value.clone()));
        }
    }
}

/// A record of a thread: what to do, flags, result, key, value.
const RECORD: usize = 6;
const PROGRAM: &str = "
    r6 = r1
    r7 = *(u64 *)(r6 + 0)
    if r7 == 1 goto lookup
    if r7 == 2 goto update
    r1 = map[0]
    r2 = r6
    r2 += 24
    call 3
    goto end
lookup:
    r1 = map[0]
    r2 = r6
    r2 += 24
    call 1
    r8 = r0
    r0 = 0
    if r8 == 0 goto end
    r3 = *(u64 *)(r8 + 0)
    *(u64 *)(r6 + 32) = r3
    r3 = *(u64 *)(r8 + 8)
    *(u64 *)(r6 + 40) = r3
    r0 = 1
    goto end
update:
    r1 = map[0]
    r2 = r6
    r2 += 24
    r3 = r6
    r3 += 32
    r4 = *(u64 *)(r6 + 8)
    call 2
end:
    *(u64 *)(r6 + 16) = r0
    r0 = 0
    exit
";

/// A host block in memory that the soft GPU and a thread share.
struct Shared(Vec<AtomicU64>);

impl Words for Shared {
    fn load(&self, at: u64) -> u64 {
        self.0[at as usize / 8].load(Ordering::Acquire)
    }
    fn store(&self, at: u64, word: u64) {
        self.0[at as usize / 8].store(word, Ordering::Release);
    }
}

struct World {
    gpu: Gpu,
    module: warpbpf_softgpu::Module,
    block: Shared,
    layout: HostedLayout,
    control: u64,
    records: u64,
    stride: u64,
}

impl World {
    fn new(max_entries: u32, limit: u64, seed: Option<u64>) -> World {
        let def = def(MapType::Hash, 16, max_entries);
        let (_, layout) = planned(16, max_entries);
        let code = warpbpf_ebpf::assemble(PROGRAM).unwrap();
        let platform = Platform::new(Site::Entry)
            .with_memory(RECORD as u32 * 8)
            .with_budget(4096);
        let program = verify(code, std::slice::from_ref(&def), &platform)
            .unwrap_or_else(|rejection| panic!("{rejection}"));
        let costs: Vec<(u64, u64)> = helpers_used(program.facts(), std::slice::from_ref(&def))
            .iter()
            .map(|used| (used.counted, used.at_most - used.counted))
            .collect();
        let waits = u64::from(HostedLayout::ROUNDS) * 24;
        assert_eq!(costs, [(616, waits), (648, waits), (616, waits)]);
        let stride = 64;
        let env = Env {
            target: Target {
                ptx: (7, 8),
                sm: 90,
            },
            site: Site::Entry,
            scope: Scope::Thread,
            kernel_id: 0,
            maps: vec![MapBinding {
                slot: 1,
                session_index: 0,
                layout: MapLayout::Hosted(layout),
                inner: None,
            }],
            printk: None,
            slots: SlotSpace::Const,
            input: Input::Memory {
                slot: 2,
                size: RECORD as u32 * 8,
                stride: stride as u32,
            },
            keep_sums: false,
            meets: true,
            args: Vec::new(),
        };
        let fragment = compile(&program, &env).unwrap();
        let gpu = Gpu::new(Config {
            sms: 4,
            threads: 2,
            seed,
            memory: 1 << 24,
            clock: || {
                static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
                START
                    .get_or_init(std::time::Instant::now)
                    .elapsed()
                    .as_nanos() as u64
            },
            ..Config::default()
        });
        let module = gpu
            .load(&kernel("probe", "sm_90", &fragment, &env).unwrap())
            .unwrap();
        let words = layout.size() as usize / 8;
        let block = Shared((0..words).map(|_| AtomicU64::new(0)).collect());
        // SAFETY: the block outlives the device, and is only touched by atomics.
        let host = unsafe { gpu.map_host(block.0.as_ptr().cast_mut().cast(), layout.size()) };
        let area = |bytes: u64| {
            let address = gpu.alloc(bytes).unwrap();
            gpu.fill(address, 0, bytes).unwrap();
            address
        };
        let environment = area(env::SIZE);
        let control = area(HostedLayout::CONTROL_BYTES);
        let records = area(stride * 4096);
        let put = |at: u64, word: u64| gpu.write(at, &word.to_le_bytes()).unwrap();
        put(control + HostedLayout::HOST, host);
        put(control + HostedLayout::LIMIT, limit);
        let (slots, _) = module.global("wbpf_slots").unwrap();
        for (slot, address) in [environment, control, records].into_iter().enumerate() {
            put(slots + slot as u64 * 8, address);
        }
        World {
            gpu,
            module,
            block,
            layout,
            control,
            records,
            stride,
        }
    }

    /// Each thread does its record; the results come back in their place.
    fn run(&self, records: &mut [[u64; RECORD]]) {
        for (at, record) in (self.records..)
            .step_by(self.stride as usize)
            .zip(&*records)
        {
            let bytes: Vec<u8> = record.iter().flat_map(|w| w.to_le_bytes()).collect();
            self.gpu.write(at, &bytes).unwrap();
        }
        let kernel = self.module.kernel("probe").unwrap();
        let block = records.len().min(128) as u32;
        let ended = self.gpu.launch(Launch {
            kernel: &kernel,
            grid: [records.len() as u32 / block, 1, 1],
            block: [block, 1, 1],
            cluster: [1, 1, 1],
            dynamic_shared: 0,
            params: &[],
            grid_id: 0,
            stdout: None,
        });
        assert!(matches!(ended, Ok(Outcome::Done { .. })), "{ended:?}");
        for (at, record) in (self.records..).step_by(self.stride as usize).zip(records) {
            let mut bytes = [0; RECORD * 8];
            self.gpu.read(at, &mut bytes).unwrap();
            for (word, bytes) in record.iter_mut().zip(bytes.chunks(8)) {
                *word = u64::from_le_bytes(bytes.try_into().unwrap());
            }
        }
    }

    /// The same while a thread answers.
    fn served(&self, hosted: &mut Hosted, records: &mut [[u64; RECORD]]) {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if hosted.serve(&self.block) == 0 {
                        std::thread::yield_now();
                    }
                }
            });
            self.run(records);
            done.store(true, Ordering::Relaxed);
        });
    }

    fn claims(&self) -> Vec<u64> {
        let mut bytes = vec![0; 8 * HostedLayout::SLOTS as usize];
        let at = self.control + HostedLayout::CLAIMS;
        self.gpu.read(at, &mut bytes).unwrap();
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        bytes.chunks(8).map(word).collect()
    }

    fn timed_out(&self) -> u64 {
        self.block.load(HostedLayout::TIMED_OUT)
    }
}

fn lookup(key: u64) -> [u64; RECORD] {
    [1, 0, 77, key, 0, 0]
}
fn insert(key: u64, flags: u64) -> [u64; RECORD] {
    [2, flags, 77, key, key * 3, key * 5]
}
fn remove(key: u64) -> [u64; RECORD] {
    [3, 0, 77, key, 0, 0]
}
fn results(records: &[[u64; RECORD]]) -> Vec<i64> {
    records.iter().map(|record| record[2] as i64).collect()
}

const SECOND: u64 = 1_000_000_000;

/// Four times as many lanes as there are slots; each call is answered, in each schedule.
#[test]
fn every_lane_is_answered() {
    for seed in [None, Some(1), Some(2)] {
        let world = World::new(3000, 10 * SECOND, seed);
        let mut hosted = Hosted::new(world.layout, &world.block);
        let mut inserts: Vec<_> = (0..2048).map(|key| insert(key, BPF_NOEXIST)).collect();
        world.served(&mut hosted, &mut inserts);
        assert_eq!(results(&inserts), [0; 2048]);
        let mut again: Vec<_> = (0..2048).map(|key| insert(key, BPF_NOEXIST)).collect();
        world.served(&mut hosted, &mut again);
        assert_eq!(results(&again), [EEXIST; 2048]);
        let mut deletes: Vec<_> = (0..1024).map(|n| remove(2 * n)).collect();
        world.served(&mut hosted, &mut deletes);
        assert_eq!(results(&deletes), [0; 1024]);
        let mut lookups: Vec<_> = (0..2048).map(lookup).collect();
        world.served(&mut hosted, &mut lookups);
        for (key, record) in (0..).zip(&lookups) {
            let found = if key % 2 == 1 {
                [1, key, key * 3, key * 5]
            } else {
                [0, key, 0, 0]
            };
            assert_eq!(record[2..], found);
        }
        assert_eq!(world.timed_out(), 0);
        assert!(
            world
                .claims()
                .iter()
                .all(|claim| claim & 3 == HostedLayout::FREE)
        );
        assert_eq!(
            world.claims().iter().map(|claim| claim >> 2).sum::<u64>(),
            3 * 2048 + 1024
        );
    }
}

/// Nobody is there: the kernel ends, each call says so, and each is counted. What was asked is done
/// when somebody comes, and then calls go on, in the same slots.
#[test]
fn a_host_that_is_away_hangs_nothing() {
    let world = World::new(3000, SECOND / 50, None);
    let mut inserts: Vec<_> = (0..1024).map(|key| insert(key, BPF_ANY)).collect();
    world.run(&mut inserts);
    assert_eq!(results(&inserts), [ETIMEDOUT; 1024]);
    assert_eq!(world.timed_out(), 1024);
    let abandoned = |world: &World| {
        let claims = world.claims();
        claims
            .iter()
            .filter(|claim| *claim & 3 == HostedLayout::ABANDONED)
            .count()
    };
    let asked = abandoned(&world);
    assert!(
        (1..=HostedLayout::SLOTS as usize).contains(&asked),
        "{asked}"
    );
    // The others were refused at once, without a slot, or found none.
    let mut lookups: Vec<_> = (0..1024).map(lookup).collect();
    world.run(&mut lookups);
    assert_eq!(results(&lookups), [0; 1024]);
    assert!(lookups.iter().all(|record| record[4..] == [0, 0]));
    assert_eq!(world.timed_out(), 2048);
    assert_eq!(
        abandoned(&world),
        asked,
        "a stalled host is not asked again"
    );

    let mut hosted = Hosted::new(world.layout, &world.block);
    assert_eq!(hosted.serve(&world.block), asked);
    let mut inserts: Vec<_> = (0..1024).map(|key| insert(key, BPF_ANY)).collect();
    world
        .gpu
        .write(
            world.control + HostedLayout::LIMIT,
            &(10 * SECOND).to_le_bytes(),
        )
        .unwrap();
    world.served(&mut hosted, &mut inserts);
    assert_eq!(results(&inserts), [0; 1024]);
    assert_eq!(world.timed_out(), 2048);
    // Lanes take the slots that they come to first, which need not be all.
    assert!(
        abandoned(&world) < asked,
        "what was abandoned is taken again"
    );
}
