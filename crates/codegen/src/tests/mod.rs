//! Programs with facts made by hand: whatever the verifier may come to know of an address, less
//! than it could or all of it, the code does what the interpreter does.

mod accesses;
mod loops;

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::helpers::HelperId;
use warpbpf_abi::layout::slot;
use warpbpf_ebpf::interp::stack_regions;
use warpbpf_ebpf::{
    Callback, Code, FlatMemory, Insn, Limits, Machine, Memory, Outcome, Pc, Reg, Region as Bytes,
    TrapKind, Width, bpf_loop, run,
};
use warpbpf_softgpu::{Config, Gpu, Launch};
use warpbpf_verify::{Facts, InsnFact, Instance, Place, Region};

use crate::kernel::kernel;
use crate::pipeline::compile_code;
use crate::{Env, Input, SlotSpace, Target};

/// Bytes of the program's memory: no multiple of 8, so that the result is not right behind it.
const SIZE: u32 = 60;
const STRIDE: u32 = 80;
/// Where the interpreter has the memory.
const BASE: u64 = 0x10000;
/// Bytes of stack that programs use.
const STACK: u32 = 32;

fn env() -> Env {
    Env {
        target: Target {
            ptx: (6, 3),
            sm: 75,
        },
        site: Site::Entry,
        scope: Scope::Thread,
        kernel_id: 0,
        maps: Vec::new(),
        printk: None,
        slots: SlotSpace::Const,
        input: Input::Memory {
            slot: slot::FIRST_MAP,
            size: SIZE,
            stride: STRIDE,
        },
        keep_sums: false,
        meets: true,
        args: Vec::new(),
    }
}

/// Facts of a program of one function; `place` tells of accesses.
fn facts(code: &Code, place: impl Fn(usize, &Insn) -> Place) -> Facts {
    functions(code, &[(0, 0)], &[], |i, insn| match insn {
        Insn::Load { .. }
        | Insn::Store { .. }
        | Insn::Atomic { .. }
        | Insn::LoadAcquire { .. }
        | Insn::StoreRelease { .. } => InsnFact::Access(place(i, insn)),
        Insn::Jump { .. } => InsnFact::Branch {
            taken: true,
            falls: true,
            null_check: false,
        },
        _ => InsnFact::Plain,
    })
}

/// Facts of a program of several functions: their starts and frames, and the calls as caller,
/// instruction, callee.
fn functions(
    code: &Code,
    starts: &[(u32, u32)],
    calls: &[(usize, u32, usize)],
    fact: impl Fn(usize, &Insn) -> InsnFact,
) -> Facts {
    let instance = |(i, &(start, frame)): (usize, &(u32, u32))| {
        let end = starts
            .get(i + 1)
            .map_or(code.insns().len() as u32, |(next, _)| *next);
        let own = calls.iter().filter(|(caller, ..)| *caller == i);
        Instance {
            start: Pc(start),
            end: Pc(end),
            frame,
            insns: (start..end)
                .map(|pc| fact(pc as usize, code.at(Pc(pc))))
                .collect(),
            calls: own.map(|(_, pc, callee)| (Pc(*pc), *callee)).collect(),
            stack_bytes: STACK,
        }
    };
    Facts {
        instances: starts.iter().enumerate().map(instance).collect(),
        stack_bytes: STACK,
        cost: 0,
        modifies: false,
        may_goto_rounds: 3,
        constants: std::collections::BTreeMap::new(),
    }
}

struct World(FlatMemory);

impl Memory for World {
    fn load(&mut self, address: u64, width: Width) -> Result<u64, TrapKind> {
        self.0.load(address, width)
    }
    fn store(&mut self, address: u64, width: Width, value: u64) -> Result<(), TrapKind> {
        self.0.store(address, width, value)
    }
}

impl Machine for World {
    fn call_helper(
        &mut self,
        id: u32,
        args: [u64; 5],
        callback: &mut Callback<'_>,
    ) -> Result<u64, TrapKind> {
        if id != HelperId::Loop as u32 {
            return Err(TrapKind::NoHelper { id });
        }
        bpf_loop(self, args, callback)
    }
}

/// Memory and result in the interpreter.
fn interpret(code: &Code, memory: &[u8]) -> (Vec<u8>, u64) {
    let mut flat = FlatMemory::new();
    let regions = stack_regions().chain([Bytes {
        base: BASE,
        bytes: memory.to_vec(),
        writable: true,
    }]);
    for region in regions {
        assert!(flat.add(region));
    }
    let mut world = World(flat);
    let limits = Limits {
        may_goto: 3,
        ..Limits::default()
    };
    let args = [BASE, memory.len() as u64];
    let result = match run(code, Pc(0), &args, &mut world, limits) {
        Ok(Outcome::Return(value)) => value,
        other => panic!("{other:?}"),
    };
    let bytes = world.0.bytes(BASE, memory.len()).expect("the memory");
    (bytes.to_vec(), result)
}

/// Memory and result of each of some threads on the soft GPU, which are all the same.
fn emulate(code: &Code, facts: &Facts, memory: &[u8]) -> (Vec<u8>, u64) {
    emulate_with(&env(), code, facts, memory, &mut [], 3)
}

/// The same in an environment with maps, whose bytes are `areas`.
fn emulate_with(
    env: &Env,
    code: &Code,
    facts: &Facts,
    memory: &[u8],
    areas: &mut [Vec<u8>],
    threads: u64,
) -> (Vec<u8>, u64) {
    let fragment = compile_code(code, facts, env).unwrap_or_else(|error| panic!("{error}"));
    let text = kernel("program", "sm_75", &fragment, env);
    let text = text.unwrap_or_else(|error| panic!("{error}"));
    let gpu = Gpu::new(Config {
        sms: 1,
        threads: 1,
        memory: 1 << 20,
        step_limit: Some(1 << 20),
        ..Config::default()
    });
    let module = gpu
        .load(&text)
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    let stride = u64::from(STRIDE);
    let own = gpu.alloc(threads * stride).expect("device memory");
    gpu.fill(own, 0xee, threads * stride).expect("own memory");
    for thread in 0..threads {
        gpu.write(own + thread * stride, memory)
            .expect("own memory");
    }
    let mut addresses: Vec<u64> = Vec::new();
    for area in &*areas {
        let address = gpu.alloc(area.len() as u64).expect("device memory");
        gpu.write(address, area).expect("own memory");
        addresses.push(address);
    }
    addresses.push(own);
    let (table, _) = module.global("wbpf_slots").expect("the slot table");
    for (i, address) in addresses.iter().enumerate() {
        let at = table + (u64::from(slot::FIRST_MAP) + i as u64) * 8;
        gpu.write(at, &address.to_le_bytes())
            .expect("the slot table");
    }
    let kernel = module.kernel("program").expect("the kernel");
    let outcome = gpu.launch(Launch {
        kernel: &kernel,
        grid: [threads as u32, 1, 1],
        block: [1, 1, 1],
        cluster: [1, 1, 1],
        dynamic_shared: 0,
        params: &[],
        grid_id: 1,
        stdout: None,
    });
    match outcome {
        Ok(warpbpf_softgpu::Outcome::Done { .. }) => {}
        Ok(warpbpf_softgpu::Outcome::Trapped(trap)) => panic!("{trap:?}\n{text}"),
        Err(error) => panic!("{error}\n{text}"),
    }
    for (area, address) in areas.iter_mut().zip(&addresses) {
        gpu.read(*address, area).expect("own memory");
    }
    let mut last = None;
    for thread in 0..threads {
        let mut bytes = vec![0; STRIDE as usize];
        gpu.read(own + thread * stride, &mut bytes)
            .expect("own memory");
        let (memory, rest) = bytes.split_at(SIZE as usize);
        // Between memory and result, and behind it.
        assert_eq!(rest[..4], [0xee; 4]);
        assert_eq!(rest[12..], [0xee; 8]);
        let result = u64::from_le_bytes(rest[4..12].try_into().expect("8 bytes"));
        let this = (memory.to_vec(), result);
        assert_eq!(*last.get_or_insert_with(|| this.clone()), this);
    }
    last.expect("a thread")
}

fn check(code: &Code, facts: &Facts, memory: &[u8]) {
    let (bytes, result) = interpret(code, memory);
    let got = emulate(code, facts, memory);
    assert_eq!(got, (bytes, result), "\n{}", warpbpf_ebpf::listing(code));
}

fn reg(n: u32) -> Reg {
    Reg::new(n as u8).expect("a register")
}

fn assemble(text: &str) -> Code {
    warpbpf_ebpf::asm::assemble(text).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn at(region: Region, offset: Option<i64>, align: u32) -> Place {
    Place {
        region,
        offset,
        align,
    }
}
