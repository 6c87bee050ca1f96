//! An application's life with a program in its kernel, in a world where nothing runs: what it
//! launches, loads and unloads.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use warpbpf_driver::{jit, sys};
use warpbpf_wire::{KernelCount, Occupancy, Options, ToAgent, ToTool, ToolConnection};

use super::fake::agent;
use super::world::World;
use crate::device::context_registry::{self, ContextState};
use crate::hooks::{contexts, launch, loads};
use crate::runtime::agent::Agent;
use crate::sys::guard::Outcome;

#[path = "../../../../tests/clang.rs"]
mod clang;

const SECOND: Duration = Duration::from_secs(1);

pub(super) const PTX: &str = "\
.version 8.0
.target sm_90
.address_size 64
.visible .entry inc(.param .u64 p)
{
.reg .b64 %rd<2>;
ld.param.u64 %rd1, [p];
cvta.to.global.u64 %rd1, %rd1;
red.global.add.u32 [%rd1], 1;
ret;
}
";

/// A map, a ring, and a program that needs a launch record.
const PROGRAM: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u64);
} counts SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} events SEC(".maps");
SEC("gpu/exit.block/inc")
int leave(struct wbpf_kernel_ctx *ctx)
{
    __u32 key = 1;
    __u64 *value = bpf_map_lookup_elem(&counts, &key);
    if (value)
        *value += 1;
    __u64 *event = bpf_ringbuf_reserve(&events, 8, 0);
    if (event)
        bpf_ringbuf_submit(event, 0);
    return 0;
}
char LICENSE[] SEC("license") = "GPL";
"#;

fn object() -> &'static [u8] {
    static OBJECT: OnceLock<Vec<u8>> = OnceLock::new();
    OBJECT.get_or_init(|| compile("attached", PROGRAM))
}

/// The object of a program in C.
pub(super) fn compile(name: &str, program: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let name = format!("warpbpf-agent-{}-{name}", std::process::id());
    let source = std::env::temp_dir().join(name).with_extension("bpf.c");
    let object = source.with_extension("o");
    std::fs::write(&source, program).unwrap();
    let status = Command::new(clang::clang())
        .args(["-O2", "-g", "-target", "bpf", "-c"])
        .arg(format!("-I{}", root.join("include").display()))
        .arg("-I/usr/include/x86_64-linux-gnu")
        .args([&source, Path::new("-o"), &object])
        .status()
        .unwrap();
    assert!(status.success(), "clang failed: run `cargo xtask setup`");
    let bytes = std::fs::read(&object).unwrap();
    for file in [source, object] {
        std::fs::remove_file(file).unwrap();
    }
    bytes
}

/// An application whose first load will attach the program.
pub(super) struct Application {
    pub(super) agent: &'static Agent,
    pub(super) world: Arc<World>,
    pub(super) context: usize,
    pub(super) tool: Option<ToolConnection>,
    /// Everything that the driver answered it.
    pub(super) answers: Vec<c_int>,
}

impl Application {
    pub(super) fn new() -> Application {
        Application::with(Options::default(), object(), &[])
    }

    /// With other options, another program, and what the tool says before: messages with their
    /// blobs.
    pub(super) fn with(
        options: Options,
        object: &[u8],
        before: &[(ToAgent, Vec<u8>)],
    ) -> Application {
        let (world, context) = World::enter();
        let (agent, mut tool) = agent();
        for (message, blob) in before {
            tool.send(message, blob, None, SECOND).unwrap();
        }
        let options = Options {
            ring_bytes: Some(4096),
            ..options
        };
        let request = ToAgent::Attach { options };
        tool.send(&request, object, None, SECOND).unwrap();
        Application {
            agent,
            world,
            context,
            tool: Some(tool),
            answers: Vec::new(),
        }
    }

    pub(super) fn load(&mut self) -> usize {
        let text = CString::new(PTX).unwrap();
        self.load_image(text.to_bytes_with_nul())
    }

    /// Loads NUL-terminated text or a cubin.
    pub(super) fn load_image(&mut self, image: &[u8]) -> usize {
        let (mut module, outcome) = (ptr::null_mut(), Outcome::default());
        // SAFETY: a local and a whole image.
        let code = unsafe {
            loads::module_load_data(self.agent, &outcome, &mut module, image.as_ptr().cast())
        };
        self.answers.push(code);
        module as usize
    }

    pub(super) fn function(&mut self, module: usize) -> usize {
        let mut function = ptr::null_mut();
        let (outcome, name) = (Outcome::default(), c"inc".as_ptr());
        // SAFETY: a local and NUL-terminated text.
        let code = unsafe {
            let module = module as *mut c_void;
            loads::module_get_function(self.agent, &outcome, &mut function, module, name)
        };
        self.answers.push(code);
        function as usize
    }

    pub(super) fn launch(&mut self, function: usize, blocks: c_uint, threads: c_uint) {
        self.launch_in(0, function, blocks, threads);
    }

    pub(super) fn launch_in(
        &mut self,
        stream: usize,
        function: usize,
        blocks: c_uint,
        threads: c_uint,
    ) {
        let mut value = 0u64;
        let mut params = [ptr::from_mut(&mut value).cast::<c_void>()];
        let outcome = Outcome::default();
        let function = function as *mut c_void;
        // SAFETY: the one parameter that the kernel has.
        let code = unsafe {
            launch::kernel(
                self.agent,
                &outcome,
                function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream as *mut c_void,
                params.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        self.answers.push(code);
    }

    pub(super) fn library(&mut self) -> usize {
        let (mut library, text) = (ptr::null_mut(), CString::new(PTX).unwrap());
        let (outcome, image) = (Outcome::default(), text.as_ptr().cast());
        // SAFETY: a local, NUL-terminated text, and no options.
        let code = unsafe {
            loads::library_load_data(
                self.agent,
                &outcome,
                &mut library,
                image,
                ptr::null_mut(),
                ptr::null_mut(),
                0,
                ptr::null_mut(),
                ptr::null_mut(),
                0,
            )
        };
        self.answers.push(code);
        library as usize
    }

    pub(super) fn kernel(&mut self, library: usize) -> usize {
        let mut kernel = ptr::null_mut();
        let (outcome, name) = (Outcome::default(), c"inc".as_ptr());
        // SAFETY: a local and NUL-terminated text.
        let code = unsafe {
            let library = library as *mut c_void;
            loads::library_get_kernel(self.agent, &outcome, &mut kernel, library, name)
        };
        self.answers.push(code);
        kernel as usize
    }

    pub(super) fn unload(&mut self, module: usize) {
        let outcome = Outcome::default();
        // SAFETY: a module of this world, or none.
        let code = unsafe { loads::module_unload(self.agent, &outcome, module as *mut c_void) };
        self.answers.push(code);
    }

    pub(super) fn unload_library(&mut self, library: usize) {
        let outcome = Outcome::default();
        // SAFETY: a library of this world.
        let code = unsafe { loads::library_unload(self.agent, &outcome, library as *mut c_void) };
        self.answers.push(code);
    }

    pub(super) fn destroy(&mut self) {
        let outcome = Outcome::default();
        // SAFETY: this world's context.
        let code = unsafe { contexts::destroy(self.agent, &outcome, self.context as *mut c_void) };
        self.answers.push(code);
    }

    /// Everything but hello that was said until good-bye.
    pub(super) fn said(&mut self) -> Vec<ToTool> {
        self.agent.finish("exit", 5 * SECOND);
        let mut said = Vec::new();
        let tool = self.tool.as_mut().unwrap();
        while let Ok(Some(frame)) = tool.recv(5 * SECOND) {
            match frame.message {
                ToTool::Hello(_) => {}
                ToTool::Bye { .. } => break,
                message => said.push(message),
            }
        }
        said
    }
}

pub(super) fn notes(said: &[ToTool]) -> Vec<&str> {
    said.iter()
        .filter_map(|m| match m {
            ToTool::Note { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

pub(super) fn counts(said: &[ToTool]) -> Vec<KernelCount> {
    said.iter()
        .rev()
        .find_map(|m| match m {
            ToTool::Counts(counts) => Some(counts.kernels.clone()),
            _ => None,
        })
        .unwrap()
}

#[test]
fn a_grid_that_is_resident_only_without_probes_runs_without_them() {
    let mut app = Application::new();
    let module = app.load();
    let original = app.function(module);
    // 4 SMs; 8 blocks each without probes, 6 with them.
    for blocks in [24, 25, 32, 33, 1000] {
        app.launch(original, blocks, 256);
    }
    let asked = app.world.calls()["cuOccupancyMaxActiveBlocksPerMultiprocessor"];
    app.launch(original, 32, 256);
    assert_eq!(
        app.world.calls()["cuOccupancyMaxActiveBlocksPerMultiprocessor"],
        asked,
        "a shape is asked once"
    );
    app.launch(original, 32, 2048);
    let variants: Vec<bool> = app
        .world
        .launched()
        .iter()
        .map(|f| *f != original)
        .collect();
    assert_eq!(variants, [true, false, false, true, true, false, false]);
    assert_eq!(app.answers, [0; 9]);
    let said = app.said();
    assert_eq!(
        notes(&said),
        [
            "kernel `inc`: registers 12 → 40, blocks of 256 threads per SM 8 → 6; part of what it takes longer comes from that",
            "kernel `inc` was launched with 25 blocks of 256 threads: all of them run at once without probes (8 per SM on 4 SMs), but not with them (6 per SM; registers 12 → 40, shared memory 0 → 0 bytes). Blocks that wait for each other would hang, so such launches run without probes. Programs with fewer live values or of `.warp` or `.block` scope need fewer registers; larger grids and smaller ones are instrumented",
            "kernel `inc` was launched with larger blocks than its probes allow (1024 threads): it needs too many registers with them; those launches run without probes",
        ]
    );
    let mangled = "inc".to_string();
    let (launches, uninstrumented) = (3, 4);
    assert_eq!(
        counts(&said),
        [KernelCount {
            mangled,
            launches,
            uninstrumented,
            skipped: 0,
            contexts: vec![(0, 3)],
            unwanted: 0,
            generations: vec![(1, 3)],
            programs: Vec::new(),
            context_programs: Vec::new(),
        }]
    );
    let kernel = said.iter().find_map(|m| match m {
        ToTool::Kernel(kernel) => Some(kernel),
        _ => None,
    });
    let kernel = kernel.unwrap();
    let occupancy = Occupancy {
        block_threads: 256,
        before: 8,
        after: 6,
    };
    assert_eq!(kernel.occupancy, Some(occupancy));
    assert_eq!(kernel.local_bytes, Some((0, 0)));
    assert_eq!(
        (kernel.registers_before, kernel.registers_after),
        (Some(12), Some(40))
    );
}

#[test]
fn a_module_that_is_unloaded_takes_its_slices_with_it() {
    let mut app = Application::new();
    let mut modules = Vec::new();
    for _ in 0..100 {
        let module = app.load();
        let function = app.function(module);
        app.launch(function, 1, 32);
        app.unload(module);
        modules.push(app.world.modules().len());
    }
    // What stays is the clock's module.
    assert_eq!(modules, [1; 100]);
    assert_eq!(app.answers, [0; 400]);
    assert_eq!(app.agent.kernel_registry.entries(), 0);
    let said = app.said();
    let [inc] = counts(&said).try_into().unwrap();
    assert_eq!((inc.launches, inc.uninstrumented), (100, 0));
}

#[test]
fn an_unload_that_fails_changes_nothing() {
    let mut app = Application::new();
    let module = app.load();
    let function = app.function(module);
    app.unload(module + 1);
    app.launch(function, 1, 32);
    app.world.forget_module(module);
    app.unload(module);
    app.launch(function, 1, 32);
    assert_eq!(app.answers, [0, 0, 400, 0, 400, 0]);
    assert!(app.world.launched().iter().all(|f| *f != function));
}

#[test]
fn a_context_that_ends_takes_its_maps_with_it_and_the_next_gets_new_ones() {
    let mut app = Application::new();
    let module = app.load();
    let function = app.function(module);
    app.launch(function, 1, 32);
    app.destroy();
    assert!(app.agent.table.get(function).is_none());
    let old = Arc::clone(&app.world);
    (app.world, app.context) = World::enter();
    for _ in 0..3 {
        let module = app.load();
        let function = app.function(module);
        app.launch(function, 1, 32);
        assert_ne!(app.world.launched().last(), Some(&function));
        app.unload(module);
    }
    // The clock of the new maps stays.
    assert_eq!(app.world.modules().len(), 1);
    assert_eq!((old.launched().len(), app.world.with_probes()), (1, 3));
    assert_eq!(app.answers, [0; 16]);
    let said = app.said();
    let contexts: Vec<u32> = said.iter().filter_map(context_number).collect();
    assert_eq!(contexts, [0, 1]);
    let [inc] = counts(&said).try_into().unwrap();
    assert_eq!((inc.launches, inc.uninstrumented), (4, 0));
    assert_eq!(inc.contexts, [(0, 1), (1, 3)]);
}

/// The number of the maps that a message announces.
pub(super) fn context_number(message: &ToTool) -> Option<u32> {
    match message {
        ToTool::Ready(ready) => Some(ready.context.number),
        ToTool::Context(context) => Some(context.number),
        _ => None,
    }
}

#[test]
fn more_contexts_than_there_are_numbers_for_run_without_probes() {
    let mut app = Application::new();
    let mut last = 0;
    for _ in 0..=context_registry::MOST {
        let module = app.load();
        last = app.function(module);
        app.launch(last, 1, 32);
        app.context = app.world.another_context();
    }
    let most = context_registry::MOST as usize;
    let launched = app.world.launched();
    assert_eq!((launched.len(), app.world.with_probes()), (most + 1, most));
    assert_eq!(launched.last(), Some(&last));
    assert!(app.answers.iter().all(|code| *code == 0));
    let said = app.said();
    assert_eq!(said.iter().filter_map(context_number).count(), most);
    let [inc] = counts(&said).try_into().unwrap();
    assert_eq!(
        (inc.launches, inc.uninstrumented),
        (context_registry::MOST.into(), 1)
    );
    let note = "kernel `inc` runs without probes in a further context: 64 contexts have had maps, and no more get any";
    assert!(notes(&said).contains(&note));
    let rows = said.iter().filter(|m| matches!(m, ToTool::Kernel(_)));
    assert_eq!(rows.count(), 1);
}

#[test]
fn a_context_whose_maps_cannot_be_made_does_not_disturb_the_others() {
    let mut app = Application::new();
    let first = app.context;
    let module = app.load();
    let function = app.function(module);
    app.launch(function, 1, 32);
    let second = app.world.another_context();
    let before = app.world.held();
    let calls = app.world.calls()["cuMemAlloc_v2"];
    app.world.fail("cuMemAlloc_v2", calls + 1);
    let module = app.load();
    let refused = app.function(module);
    app.launch(refused, 1, 32);
    assert_eq!(app.world.launched().last(), Some(&refused));
    assert_eq!(app.world.held(), before, "nothing of it stays");
    app.world.another_context();
    let module = app.load();
    let third = app.function(module);
    app.launch(third, 1, 32);
    app.world.switch_to(first);
    app.launch(function, 1, 32);
    app.world.switch_to(second);
    app.launch(refused, 1, 32);
    assert_eq!(
        (app.world.launched().len(), app.world.with_probes()),
        (5, 3)
    );
    assert!(app.answers.iter().all(|code| *code == 0));
    let said = app.said();
    assert_eq!(
        said.iter().filter_map(context_number).collect::<Vec<_>>(),
        [0, 1]
    );
    assert_eq!(
        notes(&said)
            .into_iter()
            .filter(|note| note.starts_with("kernels of a further context"))
            .collect::<Vec<_>>(),
        [
            "kernels of a further context (on device 0) run without probes: its maps could not be made: `cuMemAlloc` failed with CUDA_ERROR_FAKE (999): 256 bytes"
        ]
    );
    let [inc] = counts(&said).try_into().unwrap();
    assert_eq!((inc.launches, inc.uninstrumented), (3, 2));
    assert_eq!(inc.contexts, [(0, 2), (1, 1)]);
}

#[test]
fn options_of_the_applications_compiler_are_repeated() {
    let mut app = Application::new();
    let text = CString::new(PTX).unwrap();
    let mut module = ptr::null_mut();
    let outcome = Outcome::default();
    let mut options = [jit::MAX_REGISTERS, 12, jit::GENERATE_LINE_INFO];
    let mut values = [32, 1, 1].map(|n: usize| n as *mut c_void);
    // SAFETY: arrays of three elements, a local and NUL-terminated text.
    let code = unsafe {
        loads::module_load_data_ex(
            app.agent,
            &outcome,
            &mut module,
            text.as_ptr().cast(),
            3,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    assert_eq!(code, 0);
    let expected = vec![(jit::MAX_REGISTERS, 32), (jit::GENERATE_LINE_INFO, 1)];
    // The first load of ours is the clock. Of the variant the compiler's log is asked for, too, at
    // an address of ours.
    let repeated: Vec<Vec<_>> = app
        .world
        .jit()
        .into_iter()
        .map(|load| {
            let ours = [
                sys::JIT_INFO_LOG_BUFFER,
                sys::JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            ];
            load.into_iter()
                .filter(|(option, _)| !ours.contains(option))
                .collect()
        })
        .collect();
    assert_eq!(repeated, [vec![], expected]);
    drop(app.tool.take());
}

#[test]
fn a_librarys_kernels_outlive_a_context_and_have_variants_in_the_next() {
    let mut app = Application::new();
    let library = app.library();
    let kernel = app.kernel(library);
    app.launch(kernel, 1, 32);
    assert_eq!(app.world.with_probes(), 1);
    app.destroy();
    app.context = app.world.another_context();
    // Nothing that is hooked was called there yet.
    app.launch(kernel, 1, 32);
    assert_eq!(app.world.with_probes(), 1);
    let again = app.kernel(library);
    app.launch(again, 1, 32);
    app.launch(kernel, 1, 32);
    assert_eq!(app.world.with_probes(), 3);
    assert_eq!(app.answers, [0; 8]);
    let said = app.said();
    let [inc] = counts(&said).try_into().unwrap();
    assert_eq!((inc.launches, inc.uninstrumented), (3, 1));
    assert_eq!(inc.contexts, [(0, 1), (1, 2)]);
    assert!(notes(&said).contains(&"kernel `inc` was launched in a context without maps (nothing was loaded there through a call that is hooked); those launches run without probes"));
}

#[test]
fn a_library_whose_context_has_ended_is_reported_once() {
    let mut app = Application::new();
    let library = app.library();
    let kernel = app.kernel(library);
    app.launch(kernel, 1, 32);
    app.destroy();
    let said = app.said();
    let methods: Vec<String> = said
        .iter()
        .filter_map(|m| match m {
            ToTool::Kernel(kernel) => Some(kernel.method.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(methods, ["slice"]);
}

#[test]
fn only_the_last_release_of_the_primary_context_waits_for_kernels() {
    let mut app = Application::new();
    let outcome = Outcome::default();
    let mut context = ptr::null_mut();
    for _ in 0..2 {
        // SAFETY: a local.
        let code = unsafe { contexts::primary_retain(app.agent, &outcome, &mut context, 0) };
        app.answers.push(code);
    }
    let module = app.load();
    let function = app.function(module);
    app.launch(function, 1, 32);
    let waits = |app: &Application| app.world.calls().get("cuCtxSynchronize").copied();
    let here = |app: &Application| {
        let all = app.agent.context_registry.all();
        all.iter()
            .any(|shard| matches!(&*shard.read(), ContextState::Here(_)))
    };
    // Somebody loads code there meanwhile, which may wait for kernels, too.
    let shard = app.agent.context_registry.all().remove(0);
    let loading = shard.read();
    // SAFETY: no pointers.
    let code = unsafe { contexts::primary_release(app.agent, &outcome, 0) };
    drop(loading);
    assert_eq!((code, waits(&app), here(&app)), (0, None, true));
    app.launch(function, 1, 32);
    assert_eq!(app.world.with_probes(), 2);
    // SAFETY: as above.
    let code = unsafe { contexts::primary_release(app.agent, &outcome, 0) };
    assert_eq!((code, waits(&app), here(&app)), (0, Some(1), false));
    assert!(app.answers.iter().all(|code| *code == 0));
}

#[test]
fn many_threads_load_launch_and_unload_at_once() {
    let mut app = Application::new();
    let (agent, context) = (app.agent, app.context);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let world = Arc::clone(&app.world);
            scope.spawn(move || {
                world.switch_to(context);
                let mut app = Application {
                    agent,
                    world,
                    context,
                    tool: None,
                    answers: Vec::new(),
                };
                for _ in 0..20 {
                    let module = app.load();
                    let function = app.function(module);
                    app.launch(function, 1, 32);
                    app.unload(module);
                }
                assert_eq!(app.answers, [0; 80]);
            });
        }
    });
    assert_eq!(
        (app.world.launched().len(), app.world.with_probes()),
        (160, 160)
    );
    assert_eq!(app.world.modules().len(), 1);
    let said = app.said();
    let ready = said.iter().filter(|m| matches!(m, ToTool::Ready(_)));
    assert_eq!(ready.count(), 1);
    let [inc] = counts(&said).try_into().unwrap();
    assert_eq!((inc.launches, inc.uninstrumented), (160, 0));
}
