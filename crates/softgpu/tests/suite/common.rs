//! What the tests share: a device, nvcc, launches.

pub mod matrix;

use std::path::{Path, PathBuf};
use std::process::Command;

use warpbpf_softgpu::{Config, Gpu, Launch, Module, Outcome, Trap};

/// The toolkit, by WARPBPF_CUDA_HOME or where `cargo xtask setup` puts it.
pub fn cuda_home() -> PathBuf {
    let home = std::env::var_os("WARPBPF_CUDA_HOME").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.toolchain/cuda/nvidia/cu13"),
        PathBuf::from,
    );
    assert!(
        home.join("bin/nvcc").exists(),
        "no nvcc in `{}`: run `cargo xtask setup`",
        home.display()
    );
    home
}

/// Compiles CUDA C++ to PTX.
pub fn nvcc(name: &str, source: &str) -> String {
    nvcc_for("sm_90", name, source)
}

/// Compiles CUDA C++ to PTX for a target, in a folder `name` that no other test uses.
pub fn nvcc_for(target: &str, name: &str, source: &str) -> String {
    let home = cuda_home();
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir).expect("a scratch directory");
    let (cu, ptx) = (dir.join("a.cu"), dir.join("a.ptx"));
    std::fs::write(&cu, source).expect("source written");
    let output = Command::new(home.join("bin/nvcc"))
        .args(["-ptx", "-lineinfo", "-std=c++17", "-arch", target, "-o"])
        .arg(&ptx)
        .arg(&cu)
        .arg("-I")
        .arg(home.join("include"))
        .arg("-I")
        .arg(home.join("include/cccl"))
        .output()
        .expect("nvcc runs");
    assert!(
        output.status.success(),
        "nvcc: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::read_to_string(ptx).expect("PTX")
}

pub fn header(body: &str) -> String {
    format!(".version 8.3\n.target sm_90\n.address_size 64\n{body}")
}

pub fn config() -> Config {
    Config {
        memory: 64 << 20,
        step_limit: Some(50_000_000),
        ..Config::default()
    }
}

/// Parameters one after the other, each at a multiple of its size.
#[derive(Default)]
pub struct Params(pub Vec<u8>);

impl Params {
    pub fn u64(self, value: u64) -> Self {
        self.put(&value.to_le_bytes())
    }

    pub fn u32(self, value: u32) -> Self {
        self.put(&value.to_le_bytes())
    }

    fn put(mut self, bytes: &[u8]) -> Self {
        self.0.resize(self.0.len().next_multiple_of(bytes.len()), 0);
        self.0.extend_from_slice(bytes);
        self
    }
}

pub struct Rig {
    pub gpu: Gpu,
    pub module: Module,
    pub dynamic_shared: u32,
    pub cluster: [u32; 3],
    pub printed: String,
}

impl Rig {
    pub fn new(ptx: &str) -> Rig {
        Rig::with(config(), ptx)
    }

    pub fn with(config: Config, ptx: &str) -> Rig {
        let gpu = Gpu::new(config);
        let module = gpu.load(ptx).unwrap_or_else(|error| panic!("{error}"));
        Rig {
            gpu,
            module,
            dynamic_shared: 0,
            cluster: [1, 1, 1],
            printed: String::new(),
        }
    }

    pub fn try_run(&mut self, kernel: &str, grid: u32, block: u32, params: &Params) -> Outcome {
        let found = self
            .module
            .kernels()
            .find(|name| name.contains(kernel))
            .expect("the kernel")
            .to_owned();
        let kernel = self.module.kernel(&found).expect("the kernel");
        let printed = &mut self.printed;
        let mut sink = |text: &[u8]| printed.push_str(&String::from_utf8_lossy(text));
        self.gpu
            .launch(Launch {
                kernel: &kernel,
                grid: [grid, 1, 1],
                block: [block, 1, 1],
                cluster: self.cluster,
                dynamic_shared: self.dynamic_shared,
                params: &params.0,
                grid_id: 1,
                stdout: Some(&mut sink),
            })
            .unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn run(&mut self, kernel: &str, grid: u32, block: u32, params: &Params) {
        if let Outcome::Trapped(trap) = self.try_run(kernel, grid, block, params) {
            panic!("{trap}");
        }
    }

    pub fn trap(&mut self, kernel: &str, grid: u32, block: u32, params: &Params) -> Trap {
        match self.try_run(kernel, grid, block, params) {
            Outcome::Trapped(trap) => *trap,
            Outcome::Done { .. } => panic!("the kernel should trap"),
        }
    }

    pub fn u32s(&self, values: &[u32]) -> u64 {
        let address = self.gpu.alloc(values.len() as u64 * 4).expect("memory");
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.gpu.write(address, &bytes).expect("written");
        address
    }

    pub fn f32s(&self, values: &[f32]) -> u64 {
        self.u32s(&values.iter().map(|v| v.to_bits()).collect::<Vec<_>>())
    }

    pub fn f64s(&self, values: &[f64]) -> u64 {
        let address = self.gpu.alloc(values.len() as u64 * 8).expect("memory");
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.gpu.write(address, &bytes).expect("written");
        address
    }

    pub fn zeroes(&self, count: usize) -> u64 {
        self.u32s(&vec![0; count])
    }

    pub fn read_u32(&self, address: u64, count: usize) -> Vec<u32> {
        let mut bytes = vec![0; count * 4];
        self.gpu.read(address, &mut bytes).expect("read");
        bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| u32::from_le_bytes(*b))
            .collect()
    }

    pub fn read_f32(&self, address: u64, count: usize) -> Vec<f32> {
        self.read_u32(address, count)
            .into_iter()
            .map(f32::from_bits)
            .collect()
    }

    pub fn read_u64(&self, address: u64, count: usize) -> Vec<u64> {
        let mut bytes = vec![0; count * 8];
        self.gpu.read(address, &mut bytes).expect("read");
        bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|b| u64::from_le_bytes(*b))
            .collect()
    }

    pub fn read_f64(&self, address: u64, count: usize) -> Vec<f64> {
        self.read_u64(address, count)
            .into_iter()
            .map(f64::from_bits)
            .collect()
    }
}
