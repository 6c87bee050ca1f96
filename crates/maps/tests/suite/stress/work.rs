//! Operations: which there are, a program that does them, and what each thread was told.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestError, TestRunner};
use warpbpf_abi::layout::MapLayout;
use warpbpf_maps::{Hardware, MapPlan, MapView, plan_on};
use warpbpf_object::{Object, Program};
use warpbpf_softgpu::Config;

use super::device::{Case, Device, clang};

/// Threads of a stress test, and operations of each.
pub const STRESS_THREADS: usize = 96;
pub const PER_THREAD: usize = 6;
/// Operations of a lane that is alone.
pub const ALONE: usize = 60;
/// Multiprocessors: the schedule of one is the seed's alone, several are run by two threads of the
/// host.
pub const SMS: [u32; 2] = [1, 3];

/// What is done to a key, a value or a record. The numbers are the program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum What {
    Lookup,
    Update,
    Delete,
    /// Adds through a pointer, and does not ask what was there.
    Add,
    /// The same, and tells what was there.
    FetchAdd,
    Push,
    Peek,
    /// A record of 24 bytes and up to 31 more.
    Output,
    /// One of 24 bytes.
    Submit,
    /// One of 24 bytes that is given up.
    Discard,
    /// One of 1,000 bytes.
    Large,
    Drain,
}

/// An operation of a thread, before it is done.
#[derive(Debug, Clone, Copy)]
pub struct Todo {
    pub what: What,
    pub flags: u64,
    pub key: u64,
    pub value: u64,
}

/// One that was done.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    pub what: What,
    pub flags: u64,
    pub key: u64,
    pub value: u64,
    pub thread: usize,
    pub result: i64,
    /// What it gave, where it gives something.
    pub found: Option<u64>,
    /// The multiprocessor that did it.
    pub sm: u64,
    pub began: u64,
    pub ended: u64,
}

/// Words of a record: what, flags, key, value, result, whether something was found and what, the
/// multiprocessor, began, ended.
const RECORD: usize = 10;

/// What a program needs besides.
pub struct Parts<'a> {
    /// Tells programs apart in the folder of temporary files.
    pub name: &'a str,
    /// Declarations: of `struct value`, the map `table`, and more.
    pub declared: &'a str,
    /// What is done with `op`, `value` and `key`.
    pub act: &'a str,
}

/// A program in which each thread does its operations from an array, as many as `per_thread`.
pub fn object(parts: &Parts<'_>, threads: usize, per_thread: usize) -> Object {
    let Parts {
        name,
        declared,
        act,
    } = parts;
    let source = format!(
        r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
struct operation {{
    __u64 what, flags, key, value;
    __s64 result;
    __u64 is_found, found, sm, began, ended;
}};
struct {{
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, {operations});
    __type(key, __u32);
    __type(value, struct operation);
}} operations SEC(".maps");
struct {{
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
}} clock SEC(".maps");
{declared}
SEC("gpu/entry/*")
int run(struct wbpf_kernel_ctx *ctx)
{{
    __u32 thread = ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];
    for (__u32 i = 0; i < {per_thread}; i++) {{
        __u32 at = thread * {per_thread} + i, zero = 0;
        struct operation *op = bpf_map_lookup_elem(&operations, &at);
        __u64 *now = bpf_map_lookup_elem(&clock, &zero);
        if (!op || !now)
            return 0;
        op->sm = bpf_get_smp_processor_id();
        op->began = __sync_fetch_and_add(now, 1);
        {act}
        op->ended = __sync_fetch_and_add(now, 1);
    }}
    return 0;
}}
char LICENSE[] SEC("license") = "GPL";
"#,
        operations = threads * per_thread,
    );
    clang(&format!("stress-{name}-{threads}"), &source, "v3")
}

/// A proved program with the maps that this crate makes of its definitions.
pub struct Machine {
    pub case: Case<Program>,
    pub plans: Vec<MapPlan>,
    pub sms: u32,
    per_thread: usize,
}

impl Machine {
    fn new(object: &Object, sms: u32, per_thread: usize) -> Machine {
        // Nobody sums: programs use what they find.
        let hardware = Hardware::new(sms, (9, 0));
        let plan = |def| plan_on(def, hardware, &[]).unwrap_or_else(|error| panic!("{error}"));
        let plans: Vec<MapPlan> = object.maps.iter().map(plan).collect();
        let layouts = plans.iter().map(|plan| plan.layout);
        let maps = object.maps.iter().cloned().zip(layouts).collect();
        let mut case = Case::prove(object.programs[0].clone(), maps, None);
        for (map, def) in case.env.maps.iter_mut().zip(&object.maps) {
            map.inner = def.inner.as_deref().map(|of| plan(of).layout);
        }
        // For 128-bit atomics.
        (case.env.target.ptx, case.env.target.sm) = ((8, 3), 90);
        Machine {
            case,
            plans,
            sms,
            per_thread,
        }
    }

    /// For stress, one on each number of multiprocessors.
    pub fn stress(parts: &Parts<'_>) -> Vec<Machine> {
        let object = object(parts, STRESS_THREADS, PER_THREAD);
        let machine = |sms: &u32| Machine::new(&object, *sms, PER_THREAD);
        SMS.iter().map(machine).collect()
    }

    /// For one lane.
    pub fn alone(parts: &Parts<'_>) -> Machine {
        Machine::new(&object(parts, 1, ALONE), 1, ALONE)
    }

    /// Where a map stands among the object's.
    pub fn map(&self, name: &str) -> usize {
        let found = self.plans.iter().position(|plan| plan.name == name);
        found.unwrap_or_else(|| panic!("no map `{name}`"))
    }

    pub fn layout(&self, name: &str) -> MapLayout {
        self.plans[self.map(name)].layout
    }

    /// A device with a schedule and empty maps.
    pub fn device(&self, seed: u64) -> Device {
        let config = Config {
            sms: self.sms,
            threads: self.sms.min(2) as usize,
            seed: Some(seed),
            memory: 1 << 26,
            step_limit: Some(200_000_000),
            clock: reads,
            ..Config::default()
        };
        Device::new(&self.case, config)
    }

    /// Bytes of a map.
    pub fn bytes(&self, device: &Device, name: &str) -> Vec<u8> {
        device.maps().areas.swap_remove(self.map(name))
    }

    /// What the host finds in `table`.
    pub fn view<T>(&self, device: &Device, look: impl FnOnce(MapView<'_>) -> T) -> T {
        self.view_of(device, "table", look)
    }

    /// The same of another map.
    pub fn view_of<T>(
        &self,
        device: &Device,
        name: &str,
        look: impl FnOnce(MapView<'_>) -> T,
    ) -> T {
        let bytes = self.bytes(device, name);
        let view = MapView::new(&self.plans[self.map(name)], &bytes);
        look(view.unwrap_or_else(|error| panic!("{error}")))
    }

    /// Does the operations, each thread its own one after the other.
    pub fn run(&self, device: &Device, todo: &[Todo], block: usize) -> Vec<Done> {
        let mut bytes = Vec::new();
        for op in todo {
            let mut words = [0; RECORD];
            words[..4].copy_from_slice(&[op.what as u64, op.flags, op.key, op.value]);
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        let operations = self.map("operations");
        // Area 0 is the environment.
        device.write(operations + 1, 0, &bytes);
        let blocks = todo.len() / self.per_thread / block;
        device.launch([blocks as u32, 1, 1], [block as u32, 1, 1]);
        let ran = device.maps();
        let done = todo.iter().enumerate().map(|(i, op)| {
            let word = |at: usize| ran.u64(operations, ((i * RECORD + at) * 8) as u64);
            Done {
                what: op.what,
                flags: op.flags,
                key: op.key,
                value: op.value,
                thread: i / self.per_thread,
                result: word(4) as i64,
                found: (word(5) != 0).then(|| word(6)),
                sm: word(7),
                began: word(8),
                ended: word(9),
            }
        });
        done.collect()
    }
}

/// A device's clock that no pause of this machine moves: nobody is taken for stopped.
fn reads() -> u64 {
    static READS: AtomicU64 = AtomicU64::new(0);
    READS.fetch_add(1, Ordering::Relaxed)
}

/// Numbers the operations from 1 on, where a value is to be told from every other.
pub fn numbered(mut todo: Vec<Todo>) -> Vec<Todo> {
    for (op, number) in todo.iter_mut().zip(1..) {
        op.value = number;
    }
    todo
}

/// Workloads for stress, with a schedule, a machine of `machines` and a size of blocks: `check`
/// gets them all.
pub fn try_stress(
    machines: &[Machine],
    op: impl Strategy<Value = Todo>,
    check: impl Fn(&Machine, Vec<Todo>, u64, usize) -> Result<(), TestCaseError>,
) {
    let workload = prop::collection::vec(op, STRESS_THREADS * PER_THREAD);
    let block = prop_oneof![Just(32usize), Just(48), Just(96)];
    let input = (workload, any::<u64>(), 0..machines.len(), block);
    let ran = runner(24).run(&input, |(todo, seed, machine, block)| {
        check(&machines[machine], todo, seed, block).map_err(|error| match error {
            TestCaseError::Fail(why) => TestCaseError::fail(format!(
                "seed {seed}, machine {machine}, blocks of {block}: {why}"
            )),
            rejected => rejected,
        })
    });
    told(ran);
}

/// Workloads of one lane.
pub fn try_alone(
    op: impl Strategy<Value = Todo>,
    check: impl Fn(Vec<Todo>) -> Result<(), TestCaseError>,
) {
    let workload = prop::collection::vec(op, ALONE);
    told(runner(24).run(&workload, check));
}

/// Fails without the hundreds of operations: what is wrong names its own.
fn told<T>(ran: Result<(), TestError<T>>) {
    match ran {
        Ok(()) => {}
        Err(TestError::Fail(why, _)) => panic!("{why}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Cases {
        cases,
        failure_persistence: None,
        // Fewer threads meet in other ways.
        max_shrink_iters: 0,
        ..Cases::default()
    })
}
