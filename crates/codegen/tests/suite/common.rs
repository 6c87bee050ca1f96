//! What the tests share: programs in assembler are verified and compiled, wrapped into a kernel,
//! shown to ptxas and run on the soft GPU.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::layout::{
    ArrayLayout, HashLayout, LruLayout, MapLayout, PerThreadLayout, RingLayout, UserRingLayout,
    env, slot,
};
use warpbpf_abi::maps::MapType;
use warpbpf_codegen::kernel::kernel;
use warpbpf_codegen::{Env, Fragment, Input, MapBinding, SlotSpace, Target, compile};
use warpbpf_ebpf::Code;
use warpbpf_object::{MapDef, MapKind, Object, Program};
use warpbpf_softgpu::{Config, Gpu, Launch, Module, Outcome};
use warpbpf_verify::{Platform, Subject, Verified, prove_bounded, verify};

#[path = "../../../../tests/clang.rs"]
mod tool;

/// `.target` and `.version` pairs that must assemble: the oldest version that knows the target, and
/// the newest we have.
pub const TARGETS: &[(&str, u32, (u32, u32))] = &[
    ("sm_75", 75, (6, 3)),
    ("sm_80", 80, (7, 0)),
    ("sm_86", 86, (7, 1)),
    ("sm_89", 89, (7, 8)),
    ("sm_90", 90, (7, 8)),
    ("sm_90a", 90, (8, 0)),
    ("sm_100", 100, (8, 6)),
    ("sm_120", 120, (8, 7)),
    ("sm_90", 90, (9, 0)),
];

/// Orders in which the soft GPU lets warps run: its own, and by these seeds. All of them in `cargo
/// xtask test --deep`.
pub fn seeds() -> &'static [Option<u64>] {
    let all: &[Option<u64>] = &[None, Some(1), Some(2), Some(3), Some(4)];
    if is_deep() { all } else { &all[..2] }
}

/// Searches by chance are as long as they can be of use.
pub fn is_deep() -> bool {
    std::env::var_os("WARPBPF_DEEP").is_some()
}

pub fn map(map_type: MapType, key_size: u32, value_size: u32, max_entries: u32) -> MapDef {
    MapDef {
        name: format!("{}_map", map_type.name()),
        map_type: map_type as u32,
        key_size,
        value_size,
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

pub fn array(value_size: u32, max_entries: u32) -> (MapDef, MapLayout) {
    sharded(value_size, max_entries, 1)
}

pub fn sharded(value_size: u32, max_entries: u32, shards: u32) -> (MapDef, MapLayout) {
    let layout = MapLayout::Array(ArrayLayout {
        max_entries,
        value_size,
        shards,
        summed: shards > 1,
    });
    (map(MapType::Array, 4, value_size, max_entries), layout)
}

pub fn hash(key_size: u32, value_size: u32, max_entries: u32) -> (MapDef, MapLayout) {
    let layout = MapLayout::Hash(HashLayout {
        max_entries,
        key_size,
        value_size,
        copies: 1,
        dense: false,
    });
    (
        map(MapType::Hash, key_size, value_size, max_entries),
        layout,
    )
}

/// A hash of any type, whose values have `shards` copies if it is a per-SM one.
pub fn table(
    map_type: MapType,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    shards: u32,
) -> (MapDef, MapLayout) {
    (
        map(map_type, key_size, value_size, max_entries),
        layout_of(map_type, key_size, value_size, max_entries, 1, shards),
    )
}

pub fn ring(max_entries: u32, shards: u32) -> (MapDef, MapLayout) {
    (
        map(MapType::Ringbuf, 0, 0, max_entries),
        MapLayout::Ring(RingLayout::new(max_entries, shards)),
    )
}

pub fn per_thread(value_size: u32, max_entries: u32, threads: u64) -> (MapDef, MapLayout) {
    let layout = MapLayout::PerThread(PerThreadLayout {
        max_entries,
        value_size,
        threads,
    });
    (
        map(MapType::PerThreadArray, 4, value_size, max_entries),
        layout,
    )
}

pub fn rodata(text: &[u8]) -> (MapDef, MapLayout) {
    let (mut def, layout) = array(text.len() as u32, 1);
    def.name = ".rodata".to_owned();
    def.kind = MapKind::Data {
        section: ".rodata".to_owned(),
        image: text.to_vec(),
        read_only: true,
    };
    (def, layout)
}

/// A program with its maps.
pub struct Case<P = Code> {
    pub program: Verified<P>,
    pub maps: Vec<(MapDef, MapLayout)>,
    pub env: Env,
}

impl Case {
    pub fn new(asm: &str, maps: Vec<(MapDef, MapLayout)>) -> Case {
        let code =
            warpbpf_ebpf::asm::assemble(asm).unwrap_or_else(|errors| panic!("{errors:?}\n{asm}"));
        Case::of(code, maps)
    }

    pub fn of(code: Code, maps: Vec<(MapDef, MapLayout)>) -> Case {
        Case::prove(code, maps, None)
    }

    /// A program at places of another kind than a kernel's entry.
    pub fn at(site: Site, asm: &str, maps: Vec<(MapDef, MapLayout)>) -> Case {
        let code =
            warpbpf_ebpf::asm::assemble(asm).unwrap_or_else(|errors| panic!("{errors:?}\n{asm}"));
        let defs: Vec<MapDef> = maps.iter().map(|(def, _)| def.clone()).collect();
        let program = verify(code, &defs, &Platform::new(site));
        let program = program.unwrap_or_else(|rejection| panic!("{rejection}"));
        let mut case = Case::of_proved(program, maps, None);
        case.env.site = site;
        case
    }

    /// A program that runs by itself on `bytes` of memory.
    pub fn alone(code: Code, maps: Vec<(MapDef, MapLayout)>, bytes: u32) -> Case {
        Case::prove(code, maps, Some(bytes))
    }
}

impl Case<Program> {
    /// The only program of an object, with the default layout of each map.
    pub fn object(object: &Object, shards: u32) -> Case<Program> {
        let maps = object.maps.iter().map(|def| {
            let map_type = MapType::from_number(def.map_type).expect("a map type of ours");
            let (key, value) = (def.key_size, def.value_size);
            (
                def.clone(),
                layout_of(map_type, key, value, def.max_entries, 1 << 16, shards),
            )
        });
        Case::prove(object.programs[0].clone(), maps.collect(), None)
    }

    /// The same with loops that are bounded when they run, for which one more map counts.
    pub fn bounded(object: &Object, shards: u32, budget: u64) -> Case<Program> {
        let mut maps: Vec<_> = (object.maps.iter())
            .map(|def| {
                let MapType::Array = MapType::from_number(def.map_type).expect("a map type") else {
                    panic!("an array")
                };
                array(def.value_size, def.max_entries)
            })
            .collect();
        maps.push(sharded(8, 1, shards));
        let counter = object.maps.len() as u32;
        let defs: Vec<MapDef> = maps.iter().map(|(def, _)| def.clone()).collect();
        let platform = Platform::new(Site::Entry).with_budget(budget);
        let bounded = prove_bounded(&object.programs[0], counter, |program| {
            verify(program, &defs, &platform)
        });
        let bounded = bounded.unwrap_or_else(|rejection| panic!("{rejection}"));
        Case::of_proved(bounded.verified, maps, None)
    }
}

impl<P: Subject + Clone> Case<P> {
    /// The same in a module for `target`, with dense slots where keys and values of a HASH fit.
    pub fn dense(&self, target: Target) -> Case<P> {
        let dense = |def: &MapDef, layout: &mut MapLayout| {
            if let MapLayout::Hash(l) = layout {
                let may = MapType::from_number(def.map_type) != Some(MapType::PercpuHash);
                l.dense = may && HashLayout::fits_dense(l.key_size, l.value_size, l.copies);
            }
        };
        let (mut maps, mut env) = (self.maps.clone(), self.env.clone());
        for ((def, layout), binding) in maps.iter_mut().zip(&mut env.maps) {
            dense(def, layout);
            dense(def, &mut binding.layout);
        }
        env.target = target;
        Case {
            program: self.program.clone(),
            maps,
            env,
        }
    }

    /// The same where no lane waits for another.
    pub fn apart(&self) -> Case<P> {
        let env = Env {
            meets: false,
            ..self.env.clone()
        };
        let case = Case {
            program: self.program.clone(),
            maps: self.maps.clone(),
            env,
        };
        let fragment = case.compile();
        for text in fragment.functions.values().chain([&fragment.body]) {
            for word in [".sync", "activemask"] {
                assert!(!text.contains(word), "{word}: {text}");
            }
        }
        case
    }

    pub fn prove(code: P, maps: Vec<(MapDef, MapLayout)>, memory: Option<u32>) -> Case<P> {
        let defs: Vec<MapDef> = maps.iter().map(|(def, _)| def.clone()).collect();
        let mut platform = Platform::new(Site::Entry)
            .with_allow_modify(true)
            .with_budget(1 << 20);
        if let Some(bytes) = memory {
            platform = platform.with_memory(bytes);
        }
        let program =
            verify(code, &defs, &platform).unwrap_or_else(|rejection| panic!("{rejection}"));
        Case::of_proved(program, maps, memory)
    }

    fn of_proved(
        program: Verified<P>,
        maps: Vec<(MapDef, MapLayout)>,
        memory: Option<u32>,
    ) -> Case<P> {
        let bind = |i: usize, layout| MapBinding {
            slot: slot::FIRST_MAP + i as u32,
            session_index: 100 + i as u32,
            layout,
            inner: None,
        };
        let bindings: Vec<MapBinding> = maps
            .iter()
            .enumerate()
            .map(|(i, (_, layout))| bind(i, *layout))
            .collect();
        let printk = bind(maps.len(), MapLayout::Ring(RingLayout::new(1 << 16, 4)));
        let env = Env {
            target: Target {
                ptx: (6, 3),
                sm: 75,
            },
            site: Site::Entry,
            scope: Scope::Thread,
            kernel_id: 7,
            maps: bindings,
            printk: Some(printk),
            slots: SlotSpace::Const,
            input: match memory {
                None => Input::Context,
                Some(size) => Input::Memory {
                    // Behind the printk ring.
                    slot: slot::FIRST_MAP + maps.len() as u32 + 1,
                    size,
                    stride: Case::<P>::stride(size),
                },
            },
            keep_sums: false,
            meets: true,
            args: Vec::new(),
        };
        Case { program, maps, env }
    }

    /// Bytes from one thread's memory to the next one's: memory, result, and some more.
    fn stride(size: u32) -> u32 {
        (size.next_multiple_of(8) + 8).next_multiple_of(16) + 16
    }

    pub fn scope(mut self, scope: Scope) -> Case<P> {
        self.env.scope = scope;
        self
    }

    pub fn compile(&self) -> Fragment {
        compile(&self.program, &self.env).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A module with one kernel that runs the fragment in every thread of whole warps.
    pub fn module(&self, target: &str, version: (u32, u32)) -> String {
        let fragment = self.compile();
        let mut env = self.env.clone();
        env.target.ptx = version;
        let text = kernel("probe", target, &fragment, &env);
        let text = text.unwrap_or_else(|error| panic!("{error}"));
        // Twice, because a function can have several sites: what the block declares must stay
        // inside it.
        let twice = format!("\tbra once;\n{0}once:\n{0}\tret;\n", fragment.body);
        text.replace(&format!("{}\tret;\n", fragment.body), &twice)
    }

    /// ptxas takes the fragment on every target.
    pub fn assembles(&self) {
        for (target, sm, version) in TARGETS {
            let mut case = Case {
                program: self.program.clone(),
                maps: self.maps.clone(),
                env: self.env.clone(),
            };
            case.env.target = Target {
                ptx: *version,
                sm: *sm,
            };
            ptxas(&case.module(target, *version), target, &[]);
        }
    }

    /// Runs the kernel on the soft GPU and leaves the maps' contents.
    pub fn run(&self, config: Config, grid: [u32; 3], block: [u32; 3]) -> Ran {
        let device = Device::new(self, config);
        device.launch(grid, block);
        device.maps()
    }
}

/// Threads that have memory of their own, where a program runs by itself.
pub const MEMORY_THREADS: u64 = 64;

/// A soft GPU with the maps of a case in its memory.
pub struct Device {
    gpu: Gpu,
    module: Module,
    /// Address and size of the environment block, of each map and of the printk ring.
    areas: Vec<(u64, u64)>,
}

impl Device {
    pub fn new<P: Subject + Clone>(case: &Case<P>, config: Config) -> Device {
        Device::of(case, config, &format!("sm_{}", case.env.target.sm))
    }

    /// A device for modules of this target. The case's environment says so too.
    pub fn of<P: Subject + Clone>(case: &Case<P>, config: Config, target: &str) -> Device {
        Device::with(case, config, &case.module(target, case.env.target.ptx))
    }

    /// A device whose module is this text, made from that of the case.
    pub fn with<P: Subject + Clone>(case: &Case<P>, config: Config, text: &str) -> Device {
        let gpu = Gpu::new(config);
        let module = gpu
            .load(text)
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        let mut sizes = vec![env::SIZE];
        sizes.extend(case.maps.iter().map(|(_, layout)| layout.size()));
        sizes.extend(case.env.printk.map(|b| b.layout.size()));
        if let Input::Memory { stride, .. } = case.env.input {
            sizes.push(MEMORY_THREADS * u64::from(stride));
        }
        let areas: Vec<(u64, u64)> = sizes
            .into_iter()
            .map(|size| {
                let address = gpu.alloc(size.max(1)).expect("device memory");
                gpu.fill(address, 0, size).expect("own memory");
                (address, size)
            })
            .collect();
        let (slots, _) = module.global("wbpf_slots").expect("the slot table");
        for (i, (address, _)) in areas.iter().enumerate() {
            gpu.write(slots + i as u64 * 8, &address.to_le_bytes())
                .expect("the slot table");
        }
        for (i, (def, _)) in case.maps.iter().enumerate() {
            if let MapKind::Data { image, .. } = &def.kind {
                gpu.write(areas[i + 1].0, image).expect("map memory");
            }
        }
        Device { gpu, module, areas }
    }

    /// The device, for memory that belongs to no map.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Address of area `i`.
    pub fn address(&self, area: usize) -> u64 {
        self.areas[area].0
    }

    /// Writes into area `i`: 0 is the environment block, then the maps.
    pub fn write(&self, area: usize, at: u64, bytes: &[u8]) {
        self.gpu
            .write(self.areas[area].0 + at, bytes)
            .expect("area");
    }

    /// Another module on the same device with the same maps: it runs what the case says, in place
    /// of this one's code.
    pub fn beside<P: Subject + Clone>(&self, case: &Case<P>) -> Module {
        let target = case.env.target;
        let text = case.module(&format!("sm_{}", target.sm), target.ptx);
        let module = self.gpu.load(&text).expect("a module");
        let (slots, _) = module.global("wbpf_slots").expect("the slot table");
        for (i, (address, _)) in self.areas.iter().enumerate() {
            self.gpu
                .write(slots + i as u64 * 8, &address.to_le_bytes())
                .expect("the slot table");
        }
        module
    }

    /// Runs the kernel and that of a module that stands beside it, both at once.
    pub fn launch_with(&self, other: &Module, grid: [u32; 3], block: [u32; 3]) {
        std::thread::scope(|scope| {
            scope.spawn(|| self.launch_of(other, grid, block, [1, 1, 1]));
            self.launch(grid, block);
        });
    }

    pub fn launch(&self, grid: [u32; 3], block: [u32; 3]) {
        self.launch_clusters(grid, block, [1, 1, 1]);
    }

    /// Gives the instructions that were executed, by all warps together.
    pub fn launch_clusters(&self, grid: [u32; 3], block: [u32; 3], cluster: [u32; 3]) -> u64 {
        self.launch_of(&self.module, grid, block, cluster)
    }

    fn launch_of(
        &self,
        module: &Module,
        grid: [u32; 3],
        block: [u32; 3],
        cluster: [u32; 3],
    ) -> u64 {
        let kernel = module.kernel("probe").expect("the kernel");
        let launch = Launch {
            kernel: &kernel,
            grid,
            block,
            cluster,
            dynamic_shared: 0,
            params: &[],
            grid_id: 5,
            stdout: None,
        };
        match self.gpu.launch(launch) {
            Ok(Outcome::Done { steps }) => steps,
            Ok(Outcome::Trapped(trap)) => panic!("{trap:?}"),
            Err(error) => panic!("{error}\n{}", module.text()),
        }
    }

    pub fn maps(&self) -> Ran {
        let read = |&(address, size): &(u64, u64)| {
            let mut bytes = vec![0; size as usize];
            self.gpu.read(address, &mut bytes).expect("own memory");
            bytes
        };
        Ran {
            areas: self.areas[1..].iter().map(read).collect(),
        }
    }
}

/// Contents of the maps after a run; the printk ring is last.
pub struct Ran {
    pub areas: Vec<Vec<u8>>,
}

impl Ran {
    pub fn u64(&self, map: usize, at: u64) -> u64 {
        let at = at as usize;
        u64::from_le_bytes(self.areas[map][at..at + 8].try_into().expect("8 bytes"))
    }
    pub fn u32(&self, map: usize, at: u64) -> u32 {
        let at = at as usize;
        u32::from_le_bytes(self.areas[map][at..at + 4].try_into().expect("4 bytes"))
    }
}

/// Where a hash has a key's node.
pub fn node(layout: &HashLayout, ran: &Ran, map: usize, key: &[u8]) -> Option<u64> {
    let hash = warpbpf_abi::layout::hash(key);
    (0..u64::from(HashLayout::PROBES)).find_map(|i| {
        let slot = hash.wrapping_add(i) & (layout.slots() - 1);
        let at = layout.node_of(slot, ran.u64(map, layout.slot(slot)))?;
        ran.areas[map][at as usize..].starts_with(key).then_some(at)
    })
}

pub fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn tool(name: &str) -> PathBuf {
    let home = std::env::var_os("WARPBPF_CUDA_HOME").map_or_else(
        || workspace().join(".toolchain/cuda/nvidia/cu13"),
        PathBuf::from,
    );
    let path = home.join("bin").join(name);
    assert!(
        path.exists(),
        "`{}` is not there: run `cargo xtask setup`",
        path.display()
    );
    path
}

/// ptxas optimises where a test asks what comes of it (`-v`, `-O1`), and in `cargo xtask test
/// --deep`: without that it accepts or refuses a text in a third of the time.
fn level(options: &[&str]) -> Option<&'static str> {
    let is_chosen = options.iter().any(|o| o.starts_with("-O") || *o == "-v");
    (!is_chosen && !is_deep()).then_some("-O0")
}

/// Assembles a module; returns what ptxas says with `options`.
pub fn ptxas(text: &str, target: &str, options: &[&str]) -> String {
    let file = std::env::temp_dir().join(format!(
        "wbpf-codegen-{}-{:?}.ptx",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::write(&file, text).expect("temporary file");
    let output = Command::new(tool("ptxas"))
        .arg(format!("-arch={target}"))
        .args(level(options))
        .args(options)
        .arg(&file)
        .args(["-o", "/dev/null"])
        .output()
        .expect("ptxas runs");
    let log = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    std::fs::remove_file(&file).expect("temporary file");
    assert!(
        output.status.success(),
        "{target}: {log}\n{}",
        numbered(text)
    );
    log
}

fn numbered(text: &str) -> String {
    text.lines()
        .enumerate()
        .map(|(i, line)| format!("{:4} {line}\n", i + 1))
        .collect()
}

/// Compiles BPF C with clang and loads it.
pub fn clang(name: &str, source: &str, cpu: &str) -> Object {
    // By thread, because two tests may use one name.
    let stem = std::env::temp_dir().join(format!(
        "wbpf-codegen-{}-{:?}-{name}-{cpu}",
        std::process::id(),
        std::thread::current().id()
    ));
    let (input, output) = (stem.with_extension("bpf.c"), stem.with_extension("bpf.o"));
    std::fs::write(&input, source).expect("temporary file");
    let result = Command::new(tool::clang())
        .args(["-O2", "-g", "-target", "bpf", "-c", &format!("-mcpu={cpu}")])
        .arg("-I")
        .arg(workspace().join("include"))
        .arg(format!(
            "-I/usr/include/{}-linux-gnu",
            std::env::consts::ARCH
        ))
        .arg(&input)
        .arg("-o")
        .arg(&output)
        .output()
        .expect("clang runs");
    assert!(
        result.status.success(),
        "{}",
        String::from_utf8_lossy(&result.stderr)
    );
    let bytes = std::fs::read(&output).expect("clang's output");
    std::fs::remove_file(&input).expect("temporary file");
    std::fs::remove_file(&output).expect("temporary file");
    warpbpf_object::load(&bytes).unwrap_or_else(|error| panic!("{error}"))
}

/// Compares with the file `filetests/codegen/NAME`; writes it if `WARPBPF_BLESS` is set.
pub fn golden(name: &str, text: &str) {
    let path = workspace().join("filetests/codegen").join(name);
    if std::env::var_os("WARPBPF_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("filetests/codegen");
        std::fs::write(&path, text).expect("golden file");
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!(
            "{}: {error}; run with WARPBPF_BLESS=1 to write it",
            path.display()
        )
    });
    assert!(
        expected == text,
        "`filetests/codegen/{name}` differs; look at the difference and run with WARPBPF_BLESS=1\n{text}"
    );
}

/// The layout of a map of this type that nobody sums.
fn layout_of(
    map_type: MapType,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    threads: u64,
    shards: u32,
) -> MapLayout {
    match map_type {
        MapType::Array | MapType::GpuArray | MapType::GpuHostArray => {
            MapLayout::Array(ArrayLayout {
                max_entries,
                value_size,
                shards: 1,
                summed: false,
            })
        }
        MapType::PercpuArray => MapLayout::Array(ArrayLayout {
            max_entries,
            value_size,
            shards,
            summed: false,
        }),
        MapType::Hash | MapType::GpuHash | MapType::PercpuHash => MapLayout::Hash(HashLayout {
            max_entries,
            key_size,
            value_size,
            copies: if map_type == MapType::PercpuHash {
                shards
            } else {
                1
            },
            dense: false,
        }),
        MapType::LruHash | MapType::LruPercpuHash => MapLayout::Lru(LruLayout {
            max_entries,
            key_size,
            value_size,
            copies: if map_type == MapType::LruPercpuHash {
                shards
            } else {
                1
            },
        }),
        MapType::Ringbuf => MapLayout::Ring(RingLayout::new(max_entries, shards)),
        MapType::PerThreadArray => MapLayout::PerThread(PerThreadLayout {
            max_entries,
            value_size,
            threads,
        }),
        MapType::UserRingbuf => {
            MapLayout::UserRing(UserRingLayout::new(max_entries).expect("a size"))
        }
        other => panic!("no layout of {} yet", other.name()),
    }
}
