//! The session's part on the soft GPU: slots, launch record, counters.

use warpbpf_abi::layout::launch;
use warpbpf_patch::Variant;
use warpbpf_softgpu::{Config, Gpu, Launch, Module, Outcome};

/// Number of the u64 counters.
pub const COUNTERS: usize = 256;

#[derive(Debug)]
pub struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub n: u32,
}

impl Shape {
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|&n| u64::from(n)).product()
    }
    pub fn threads(&self) -> u64 {
        self.block.iter().map(|&n| u64::from(n)).product()
    }
    pub fn warps(&self) -> u64 {
        self.threads().div_ceil(32)
    }
}

/// Blocks that are no whole number of warps, of one warp, of several dimensions, and a grid of
/// several.
pub const SHAPES: [Shape; 4] = [
    Shape {
        grid: [3, 1, 1],
        block: [100, 1, 1],
        n: 250,
    },
    Shape {
        grid: [4, 1, 1],
        block: [32, 1, 1],
        n: 128,
    },
    Shape {
        grid: [2, 1, 1],
        block: [9, 5, 3],
        n: 200,
    },
    Shape {
        grid: [2, 2, 3],
        block: [33, 2, 1],
        n: 100,
    },
];

pub fn gpu(seed: Option<u64>) -> Gpu {
    Gpu::new(Config {
        sms: 2,
        threads: 1,
        seed,
        memory: 64 << 20,
        step_limit: Some(50_000_000),
        ..Config::default()
    })
}

pub fn alloc(gpu: &Gpu, bytes: u64) -> u64 {
    let address = gpu.alloc(bytes).unwrap();
    gpu.fill(address, 0, bytes).unwrap();
    address
}

pub fn read(gpu: &Gpu, address: u64, bytes: u64) -> Vec<u8> {
    let mut out = vec![0; bytes as usize];
    gpu.read(address, &mut out).unwrap();
    out
}

pub fn run(gpu: &Gpu, module: &Module, name: &str, shape: &Shape, params: &[u8]) {
    let kernel = module.kernel(name).unwrap();
    let launch = Launch {
        kernel: &kernel,
        grid: shape.grid,
        block: shape.block,
        cluster: [1, 1, 1],
        dynamic_shared: 0,
        params,
        grid_id: 1,
        stdout: None,
    };
    match gpu.launch(launch).unwrap() {
        Outcome::Done { .. } => {}
        Outcome::Trapped(trap) => panic!("{trap}"),
    }
}

/// Launches a variant as the session would and checks its counts.
pub struct Session<'g> {
    pub gpu: &'g Gpu,
    pub counters: u64,
}

impl<'g> Session<'g> {
    pub fn new(gpu: &'g Gpu) -> Session<'g> {
        Session {
            gpu,
            counters: alloc(gpu, COUNTERS as u64 * 8),
        }
    }

    /// Fills the slot table of `module`; `original` has the globals.
    pub fn bind(&self, module: &Module, original: &Module, variant: &Variant) {
        let (slots, bytes) = module.global("wbpf_slots").unwrap();
        assert_eq!(bytes, u64::from(variant.slot_count) * 8);
        self.gpu
            .write(slots + 8, &self.counters.to_le_bytes())
            .unwrap();
        for (slot, name) in &variant.globals {
            let (address, _) = original.global(name).unwrap();
            self.gpu
                .write(slots + u64::from(*slot) * 8, &address.to_le_bytes())
                .unwrap();
        }
    }

    /// The counts of one launch with `params`, the original's.
    pub fn launch(
        &self,
        module: &Module,
        variant: &Variant,
        shape: &Shape,
        params: &[u8],
    ) -> Vec<u64> {
        self.launch_chosen(module, variant, shape, params, u64::MAX)
    }

    /// The same of a launch that these choices of programs take.
    pub fn launch_chosen(
        &self,
        module: &Module,
        variant: &Variant,
        shape: &Shape,
        params: &[u8],
        chosen: u64,
    ) -> Vec<u64> {
        self.gpu
            .fill(self.counters, 0, COUNTERS as u64 * 8)
            .unwrap();
        let mut params = params.to_vec();
        let mut record = None;
        if let Some(hidden) = variant.hidden {
            let bytes = launch::size(
                shape.blocks(),
                shape.warps(),
                u64::from(hidden.block_cells),
                hidden.block_counters,
                hidden.warp_counters,
            );
            let address = alloc(self.gpu, bytes);
            params.resize(hidden.offset as usize, 0);
            params.extend(address.to_le_bytes());
            // The number of the launch and the node of a graph, which no program here reads.
            params.extend(1u64.to_le_bytes());
            params.extend(0u64.to_le_bytes());
            if hidden.chosen {
                params.extend(chosen.to_le_bytes());
            }
            record = Some((address, bytes));
        }
        run(self.gpu, module, &variant.entry, shape, &params);
        if let Some((address, bytes)) = record {
            assert!(
                read(self.gpu, address, bytes).iter().all(|byte| *byte == 0),
                "the launch record is not zero"
            );
            self.gpu.free(address).unwrap();
        }
        let bytes = read(self.gpu, self.counters, COUNTERS as u64 * 8);
        bytes
            .chunks(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect()
    }
}

/// Checks `counts` of all sites and scopes; `counted` where the scopes that count at exit were
/// attached.
pub fn check(counts: &[u64], shape: &Shape, split: bool, counted: bool, what: &str) {
    let (threads, warps, blocks) = (
        shape.blocks() * shape.threads(),
        shape.blocks() * shape.warps(),
        shape.blocks(),
    );
    if split {
        assert!(
            counts[1] >= warps,
            "{what}: entry.warp {} of {warps}",
            counts[1]
        );
    } else {
        assert_eq!(counts[1], warps, "{what}: entry.warp");
    }
    assert_eq!(counts[11], threads, "{what}: lanes of entry.warp");
    assert_eq!(
        [counts[0], counts[2], counts[3]],
        [threads, blocks, threads],
        "{what}"
    );
    if counted {
        assert_eq!(
            [counts[4], counts[5]],
            [warps, blocks],
            "{what}: exit.warp, exit.block"
        );
    }
}
