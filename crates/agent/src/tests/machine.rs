//! Programs replaced in a kernel of which there is only machine code: the tool brings functions for
//! those that there will be, and copies of the file with calls to them take each other's place.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use warpbpf_driver::DeviceInfo;
use warpbpf_session::{Arch, ProgramChange, Session};
use warpbpf_wire::{Change, Changed, Options, ToAgent, ToTool};

use super::attached::{Application, PTX, compile, counts};
use super::replace::object;

const LIMIT: Duration = Duration::from_secs(20);

/// What `ptxas` makes of a text.
pub(super) fn ptxas(text: &str, options: &[&str]) -> Vec<u8> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let home = std::env::var_os("WARPBPF_CUDA_HOME").map(PathBuf::from);
    let home = home.unwrap_or_else(|| root.join(".toolchain/cuda/nvidia/cu13"));
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("warpbpf-agent-machine-{}-{number}", std::process::id());
    let source = std::env::temp_dir().join(name).with_extension("ptx");
    let cubin = source.with_extension("cubin");
    std::fs::write(&source, text).unwrap();
    let mut ptxas = Command::new(home.join("bin/ptxas"));
    let ptxas = ptxas.arg("-arch=sm_90").args(options).arg("-o");
    let output = ptxas.args([&cubin, &source]).output();
    let output = output.expect("no ptxas: run `cargo xtask setup`");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let bytes = std::fs::read(&cubin).unwrap();
    for file in [source, cubin] {
        std::fs::remove_file(file).unwrap();
    }
    bytes
}

/// The kernel `inc` without its PTX.
pub(super) fn cubin() -> &'static [u8] {
    static CUBIN: OnceLock<Vec<u8>> = OnceLock::new();
    CUBIN.get_or_init(|| ptxas(PTX, &[]))
}

/// The tool's own session, which goes the way of the agent's.
struct Tool(Session);

impl Tool {
    fn new(object: &[u8]) -> Tool {
        let device = DeviceInfo {
            name: String::new(),
            capability: (9, 0),
            sms: 4,
            driver_version: 13000,
        };
        Tool(Session::new(object, &warpbpf_session::Options::default(), &device).unwrap())
    }

    fn functions(&self) -> Vec<(ToAgent, Vec<u8>)> {
        let texts = self.0.probe_texts(Arch::Sm90).into_iter();
        let function = |text: String| {
            let cubin = ptxas(&text, &["--compile-as-tools-patch"]);
            (ToAgent::Probe { text, error: None }, cubin)
        };
        texts.map(function).collect()
    }
}

/// An application with machine code, programs in it, and the session that its tool has.
fn started(name: &str, kernel: &str) -> (Application, Tool, usize) {
    let object = object(name, kernel);
    let tool = Tool::new(&object);
    let options = Options {
        splice: true,
        ..Options::default()
    };
    let mut app = Application::with(options, &object, &tool.functions());
    let module = app.load_image(cubin());
    let function = app.function(module);
    (app, tool, function)
}

/// A launch of a copy gets its number, where arrivals are counted and whose programs are in it.
/// Where nothing can count, the original runs.
#[test]
fn launches_of_a_copy_get_their_arguments() {
    let program = "#include <linux/bpf.h>
        #include <bpf/bpf_helpers.h>
        #include \"warpbpf.h\"
        SEC(\"gpu/exit.block/inc\") int ends(struct wbpf_kernel_ctx *ctx) { return ctx->launch_id & 1; }
        SEC(\"gpu/entry/inc|every=2\") int begins(struct wbpf_kernel_ctx *ctx) { return ctx->lane; }
        char LICENSE[] SEC(\"license\") = \"GPL\";
    ";
    let object = compile("machine-args", program);
    let options = Options {
        splice: true,
        ..Options::default()
    };
    let mut app = Application::with(options, &object, &Tool::new(&object).functions());
    let module = app.load_image(cubin());
    let function = app.function(module);
    app.world.look_at_parameter(1);
    for _ in 0..4 {
        app.launch(function, 3, 64);
    }
    let args = app.world.launch_args();
    let [record, ..] = args[0];
    assert!(record != 0, "{args:?}");
    let expected: Vec<[u64; 4]> = [3, 1, 3, 1]
        .into_iter()
        .zip(1..)
        .map(|(chosen, number)| [record, number, 0, chosen])
        .collect();
    assert_eq!((args, app.world.with_probes()), (expected, 4));

    // More blocks than a launch record can have.
    app.launch(function, 20_000_000, 64);
    // Another stream has another one.
    app.launch_in(0x77, function, 3, 64);
    let args = app.world.launch_args();
    assert_eq!((args.len(), app.world.with_probes()), (5, 5));
    assert_ne!(args[4][0], record);
    assert_eq!(args[4][1..], [6, 0, 1]);
    let said = app.said();
    let kernel = &counts(&said)[0];
    assert_eq!((kernel.launches, kernel.uninstrumented), (5, 1));
}

/// Sends functions and asks for a change.
fn change(
    app: &mut Application,
    functions: &[(ToAgent, Vec<u8>)],
    change: Change,
    object: &[u8],
) -> Changed {
    let tool = app.tool.as_mut().unwrap();
    for (message, blob) in functions {
        tool.send(message, blob, None, LIMIT).unwrap();
    }
    let message = ToAgent::Change {
        token: 1,
        change,
        limit_ms: LIMIT.as_millis() as u64,
    };
    tool.send(&message, object, None, LIMIT).unwrap();
    let changed = loop {
        let frame = tool.recv(LIMIT).unwrap().expect("an answer");
        if let ToTool::Changed(changed) = frame.message {
            break changed;
        }
    };
    // What is left of the old programs is unloaded behind the answer.
    app.agent.replacement.wait_until_idle(LIMIT);
    changed
}

/// Copies of the file with calls that are loaded.
fn copies(app: &Application) -> usize {
    let all = app.world.modules();
    all.iter().filter(|text| text.starts_with("wbpf")).count()
}

/// What ran in each launch so far.
fn ran(app: &Application) -> Vec<usize> {
    app.world.launched()
}

#[test]
fn what_was_assembled_for_other_programs_runs_from_the_replacement_on() {
    let (mut app, mut tool, function) = started("first", "inc");
    app.launch(function, 2, 64);
    assert_eq!((copies(&app), app.world.with_probes()), (1, 1));

    // Two programs at one place.
    let beside = object("second", "in*");
    tool.0 = tool.0.replaced(ProgramChange::Add(&beside)).unwrap();
    let added = change(&mut app, &tool.functions(), Change::Add, &beside);
    assert_eq!((added.refused, added.without), (None, Vec::new()));
    app.launch(function, 2, 64);
    // Of the first set something may still run.
    assert_eq!((copies(&app), app.world.with_probes()), (2, 2));

    // The other one of them alone, never launched; then both are gone.
    let first = ["first".to_owned()];
    tool.0 = tool.0.replaced(ProgramChange::Remove(&first)).unwrap();
    let programs = first.to_vec();
    let removed = change(
        &mut app,
        &tool.functions(),
        Change::Remove { programs },
        &[],
    );
    assert_eq!((removed.refused, removed.without), (None, Vec::new()));
    assert_eq!(copies(&app), 3);
    let programs = vec!["second".to_owned()];
    let removed = change(&mut app, &[], Change::Remove { programs }, &[]);
    assert_eq!((removed.refused, copies(&app)), (None, 2));
    app.launch(function, 2, 64);
    let ran = ran(&app);
    assert_eq!((app.world.with_probes(), ran[2]), (2, function));
    assert_ne!(ran[0], ran[1]);

    assert!(app.answers.iter().all(|code| *code == 0));
}

#[test]
fn copies_of_all_sets_go_with_the_image() {
    let object_of = |name| object(name, "inc");
    let first = object_of("begins");
    let mut tool = Tool::new(&first);
    let options = Options {
        splice: true,
        ..Options::default()
    };
    let mut app = Application::with(options, &first, &tool.functions());
    let module = app.load_image(cubin());
    let function = app.function(module);
    for name in ["comes", "follows"] {
        app.launch(function, 1, 32);
        let next = object_of(name);
        tool.0 = tool.0.replaced(ProgramChange::Replace(&next)).unwrap();
        let done = change(&mut app, &tool.functions(), Change::Replace, &next);
        assert_eq!((done.refused, done.without), (None, Vec::new()));
    }
    assert_eq!(copies(&app), 3);
    app.unload(module);
    let all = app.world.modules();
    assert!(
        !all.iter().any(|text| text.contains("\u{7f}ELF")),
        "neither copies nor the image"
    );
}

#[test]
fn a_kernel_without_a_function_for_its_programs_runs_its_original() {
    let (mut app, _, function) = started("served", "inc");
    app.launch(function, 2, 64);
    let other = object("unserved", "inc");
    let done = change(&mut app, &[], Change::Add, &other);
    let [(kernel, reason)] = &done.without[..] else {
        panic!("{done:?}")
    };
    assert_eq!((done.refused, kernel.as_str()), (None, "inc"));
    assert!(
        reason.ends_with(
            "no function was assembled for just these programs; let them be for the same kernels"
        ),
        "{reason}"
    );
    app.launch(function, 2, 64);
    assert_eq!((ran(&app)[1], app.world.with_probes()), (function, 1));
    // A set of which there was a function before has it, though none comes with the replacement.
    let done = change(&mut app, &[], Change::Replace, &object("served", "inc"));
    assert_eq!((done.refused, done.without), (None, Vec::new()));
    app.launch(function, 2, 64);
    assert_eq!(app.world.with_probes(), 2);
}

/// Nothing is changed, for this reason, and the next try has what it needs.
fn refused_and_tried_again(name: &str, fails: impl Fn(&Application), why: &str) {
    let (mut app, mut tool, function) = started(name, "inc");
    app.launch(function, 2, 64);
    let held = app.world.held();
    let other = object(&format!("{name}_again"), "inc");
    tool.0 = tool.0.replaced(ProgramChange::Replace(&other)).unwrap();
    let functions = tool.functions();
    fails(&app);
    let refusal = change(&mut app, &functions, Change::Replace, &other).refused;
    let refusal = refusal.expect("a refusal");
    assert_eq!(
        (refusal.errno, refusal.message.starts_with(why)),
        (-5, true),
        "{}",
        refusal.message
    );
    app.launch(function, 2, 64);
    let all = ran(&app);
    assert_eq!(all[0], all[1], "the programs that were there");
    assert_eq!((copies(&app), app.world.held()), (1, held));
    let done = change(&mut app, &functions, Change::Replace, &other);
    assert_eq!((done.refused, done.without), (None, Vec::new()));
    app.launch(function, 2, 64);
    assert_eq!(
        (ran(&app)[2] == all[0], app.world.with_probes()),
        (false, 3)
    );
}

#[test]
fn programs_stay_where_the_driver_does_not_load_the_copy() {
    let next_call = |symbol: &'static str| {
        move |app: &Application| {
            let calls = app.world.calls().get(symbol).copied().unwrap_or(0);
            app.world.fail(symbol, calls + 1);
        }
    };
    let why = "the copy of its file with calls cannot be loaded: `cuModuleLoadDataEx` failed with CUDA_ERROR_FAKE (999)";
    refused_and_tried_again("unloaded", next_call("cuModuleLoadDataEx"), why);
    let why = "the copy of its file with calls cannot be loaded: `cuMemAlloc` failed with CUDA_ERROR_FAKE (999)";
    refused_and_tried_again("roomless", next_call("cuMemAlloc_v2"), why);
}

#[test]
fn programs_stay_where_the_assembler_fails() {
    let (mut app, mut tool, function) = started("assembled", "inc");
    app.launch(function, 2, 64);
    let other = object("unassembled", "inc");
    tool.0 = tool.0.replaced(ProgramChange::Replace(&other)).unwrap();
    let error = Some("`ptxas` refuses the function: no room".to_owned());
    let texts = tool.0.probe_texts(Arch::Sm90).into_iter();
    let failed = texts.map(|text| {
        let error = error.clone();
        (ToAgent::Probe { text, error }, Vec::new())
    });
    let failed: Vec<_> = failed.collect();
    let done = change(&mut app, &failed, Change::Replace, &other);
    let refusal = done.refused.expect("a refusal");
    assert_eq!((refusal.errno, Some(refusal.message)), (-5, error));
    app.launch(function, 2, 64);
    assert_eq!((copies(&app), app.world.with_probes()), (1, 2));
}

#[test]
fn a_file_that_no_program_wanted_is_kept_for_those_that_come() {
    let (mut app, mut tool, function) = started("elsewhere", "another");
    app.launch(function, 2, 64);
    assert_eq!((copies(&app), app.world.with_probes()), (0, 0));
    let here = object("here", "inc");
    tool.0 = tool.0.replaced(ProgramChange::Add(&here)).unwrap();
    let added = change(&mut app, &tool.functions(), Change::Add, &here);
    assert_eq!((added.refused, added.without), (None, Vec::new()));
    app.launch(function, 2, 64);
    assert_eq!((copies(&app), app.world.with_probes()), (1, 1));
}
