//! Rings of records: what reaches the host, while kernels write and after, are just the records
//! that programs were told were taken, whole, each thread's in its order; what was refused is what
//! the ring counted.

use proptest::prelude::*;
use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::{BPF_ANY, EAGAIN, ENOSPC, MapType};
use warpbpf_maps::ring::Reader;

use super::device::Device;
use super::work::{Done, Machine, PER_THREAD, Parts, Todo, What, numbered, try_stress};

/// A record: thread, number of the operation, and what tells a whole one.
const RECORD: &str = r"
struct record { __u64 thread, value, check; __u8 tail[32]; };
struct large { struct record record; __u8 more[944]; };
static void fill(struct record *record, __u64 thread, __u64 value)
{
    record->thread = thread;
    record->value = value;
    record->check = ~value;
}
";

/// Bytes of a record without its tail, and of a large one.
const BYTES: usize = 24;
const LARGE: usize = 1000;

const RINGBUF: &str = r"
        struct record record = {};
        fill(&record, thread, op->value);
        __builtin_memset(record.tail, op->value, sizeof(record.tail));
        if (op->what == 7) {
            op->result = bpf_ringbuf_output(&table, &record, 24 + (op->key & 31), 0);
        } else if (op->what == 10) {
            struct large *taken = bpf_ringbuf_reserve(&table, sizeof(*taken), 0);
            op->result = taken ? 0 : -28;
            if (taken) {
                fill(&taken->record, thread, op->value);
                __builtin_memset(taken->record.tail, op->value, sizeof(taken->record.tail));
                for (int i = 0; i < 944; i++)
                    taken->more[i] = op->value;
                bpf_ringbuf_submit(taken, 0);
            }
        } else {
            struct record *taken = bpf_ringbuf_reserve(&table, 24, 0);
            op->result = taken ? 0 : -28;
            if (taken) {
                fill(taken, thread, op->value);
                if (op->what == 8)
                    bpf_ringbuf_submit(taken, 0);
                else
                    bpf_ringbuf_discard(taken, 0);
            }
        }";

const PERF: &str = r"
        struct record record = {};
        fill(&record, thread, op->value);
        __builtin_memset(record.tail, op->value, sizeof(record.tail));
        op->result = bpf_perf_event_output(ctx, &table, BPF_F_CURRENT_CPU, &record, 24 + (op->key & 31));";

fn stress(map_type: MapType, bytes: u32) -> Vec<Machine> {
    let table = match map_type {
        MapType::Ringbuf => format!("__uint(max_entries, {bytes});"),
        _ => "__uint(key_size, 4); __uint(value_size, 4);".to_owned(),
    };
    let declared = format!(
        r#"{RECORD}
struct {{
    __uint(type, {});
    {table}
}} table SEC(".maps");"#,
        map_type as u32
    );
    Machine::stress(&Parts {
        name: &format!("{}-{bytes}", map_type.name()),
        declared: &declared,
        act: if map_type == MapType::Ringbuf {
            RINGBUF
        } else {
            PERF
        },
    })
}

/// The host's end of a ring, as the agent's thread goes about it: copies of commit counts, of
/// control lines, then of what they cover.
struct Host {
    reader: Reader,
    area: usize,
    /// Records in the order of their rings.
    records: Vec<(u32, Vec<u8>)>,
}

impl Host {
    fn new(machine: &Machine) -> Host {
        let MapLayout::Ring(layout) = machine.layout("table") else {
            panic!("a ring");
        };
        Host {
            reader: Reader::new(layout),
            area: machine.map("table") + 1,
            records: Vec::new(),
        }
    }

    fn round(&mut self, device: &Device) {
        let copy = |range: std::ops::Range<u64>| {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            let at = device.address(self.area) + range.start;
            device.gpu().read(at, &mut bytes).expect("the ring");
            bytes
        };
        let commits = copy(self.reader.commits());
        let controls = copy(self.reader.controls());
        let chunks = self
            .reader
            .cover(&commits, &controls)
            .expect("whole copies");
        for chunk in &chunks {
            let bytes = copy(chunk.range.clone());
            let each = |record: warpbpf_maps::ring::Record<'_>| {
                self.records.push((record.shard, record.payload.to_vec()));
            };
            chunk.records(&bytes, each).expect("whole records");
            self.reader.take(chunk).expect("the next chunk");
        }
        let consumed = self.reader.consumed();
        device.write(self.area, consumed.offset, &consumed.bytes);
    }
}

/// What a thread wrote, as bytes; nothing of what was given up.
fn expected(done: &Done) -> Option<Vec<u8>> {
    let length = match done.what {
        What::Output => BYTES + (done.key & 31) as usize,
        What::Submit => BYTES,
        What::Large => LARGE,
        _ => return None,
    };
    let words = [done.thread as u64, done.value, !done.value];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(length, done.value as u8);
    (done.result == 0).then_some(bytes)
}

fn try_rings(machines: &[Machine], op: impl Strategy<Value = Todo>) {
    try_stress(machines, op, |machine, todo, seed, block| {
        let device = machine.device(seed);
        let mut host = Host::new(machine);
        let todo = numbered(todo);
        let mut refused = 0;
        // The ring wraps, more than once where it is small. In odd rounds the host looks while the
        // kernel writes.
        for round in 0..4u64 {
            host.records.clear();
            let done = match round % 2 {
                0 => machine.run(&device, &todo, block),
                _ => std::thread::scope(|scope| {
                    let running = scope.spawn(|| machine.run(&device, &todo, block));
                    while !running.is_finished() {
                        host.round(&device);
                    }
                    running.join().expect("a kernel that ends")
                }),
            };
            host.round(&device);
            prop_assert_eq!(host.reader.pending(), 0);
            let mut of_thread: Vec<Vec<&[u8]>> = vec![Vec::new(); todo.len() / PER_THREAD];
            for (shard, payload) in &host.records {
                let word = u64::from_le_bytes(payload[..8].try_into().expect("8 bytes"));
                let of_thread = of_thread.get_mut(word as usize);
                prop_assert!(of_thread.is_some(), "a record of nobody: {payload:?}");
                of_thread.into_iter().for_each(|list| list.push(payload));
                let writer = &done[word as usize * PER_THREAD];
                prop_assert_eq!(u64::from(*shard), writer.sm);
            }
            for (thread, found) in of_thread.iter().enumerate() {
                let own = &done[thread * PER_THREAD..][..PER_THREAD];
                let wanted: Vec<Vec<u8>> = own.iter().filter_map(expected).collect();
                prop_assert_eq!(found, &wanted, "thread {}", thread);
            }
            // As in Linux: `bpf_ringbuf_output` says that one may try again.
            let is_ringbuf = machine.plans[machine.map("table")].map_type == MapType::Ringbuf;
            let no_room = |d: &Done| match d.what {
                What::Output if is_ringbuf => EAGAIN,
                _ => ENOSPC,
            };
            let strange = done
                .iter()
                .find(|d| d.result != 0 && d.result != no_room(d));
            prop_assert!(strange.is_none(), "{strange:?}");
            refused += done.iter().filter(|d| d.result != 0).count() as u64;
            let lost = host.reader.lost();
            prop_assert_eq!(lost.full + lost.busy, refused);
        }
        Ok(())
    });
}

fn of(what: impl Strategy<Value = What>) -> impl Strategy<Value = Todo> {
    (what, 0..32u64).prop_map(|(what, key)| Todo {
        what,
        flags: BPF_ANY,
        key,
        value: 0,
    })
}

/// With room for everything, and with a ring that large records fill.
#[test]
fn a_ring_gives_the_host_just_what_was_submitted() {
    let small =
        prop_oneof![3 => Just(What::Output), 2 => Just(What::Submit), 1 => Just(What::Discard)];
    try_rings(&stress(MapType::Ringbuf, 1 << 20), of(small.clone()));
    let mixed = prop_oneof![2 => small, 1 => Just(What::Large)];
    try_rings(&stress(MapType::Ringbuf, 1 << 16), of(mixed));
}

#[test]
fn perf_buffers_and_bpftimes_ring_give_the_host_just_what_was_sent() {
    for map_type in [MapType::PerfEventArray, MapType::GpuRingbuf] {
        try_rings(&stress(map_type, 0), of(Just(What::Output)));
    }
}
