//! Programs of Linux beside programs in kernels, in one object: what each side counts, what both
//! have together, and what is said where Linux does not take them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::attach::{Application, Attached};
use crate::loader::installed;
use crate::process::{self, Owned, Signal};
use crate::run::{Bench, Case, Run, Told, same, says};
use crate::ways::Served;

/// The application: calls before CUDA, calls behind launches, launches, and launches with pauses.
const APP: &str = "linuxcalls";
const ARGUMENTS: [&str; 4] = ["10", "20", "3", "0"];
const CALLS: u64 = 30;
/// Threads of its launches.
const THREADS: u64 = 3 * 64;
/// Number of the call that it makes.
const CALL: &str = if cfg!(target_arch = "x86_64") {
    "call=121"
} else {
    "call=155"
};

/// How long something may take that Linux does.
const PATIENCE: Duration = Duration::from_secs(60);

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("linux: maps that both sides have", shared),
        case("linux: a typed tracepoint", typed),
        case("linux: a tracepoint", tracepoint),
        case("linux: both ends of a function", |bench| {
            kind(bench, "linux_fentry", CALLS)
        }),
        case("linux: probes of a function", |bench| {
            kind(bench, "linux_kprobe", CALLS)
        }),
        case("linux: probes of a library's function", |bench| {
            kind(bench, "linux_uprobe", CALLS)
        }),
        case("linux: processes that others start", served),
        case("linux: a tool that is killed", killed),
        case("linux: attached to a process", attached),
        case("linux: what its verifier refuses", refused),
        case("linux: without the privilege", unprivileged),
        case("linux: left out", left_out),
        case("linux: without its types", untyped),
    ]
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// A map of Linux's part of a report, in `maps` or `shared`.
fn map<'r>(report: &'r Value, list: &str, name: &str) -> Result<&'r Value, String> {
    let maps = report["linux"][list].as_array();
    let mut named = maps.into_iter().flatten().filter(|map| map["name"] == name);
    let found = named.next();
    found.ok_or_else(|| format!("there is no `{name}` in `{list}`: {}", report["linux"]))
}

/// Key and value of each entry, in the order of keys.
fn entries(map: &Value) -> Vec<(u64, u64)> {
    let entries = map["entries"].as_array().into_iter().flatten();
    let mut entries: Vec<_> = entries
        .map(|entry| (number(&entry["key"]), number(&entry["value"])))
        .collect();
    entries.sort_unstable();
    entries
}

/// Why this Linux does not run such programs at all, if it is for that.
fn not_here(errors: &str) -> Option<String> {
    let reasons = [
        "does not let this process use `bpf()`",
        "this Linux has no probes of its functions (CONFIG_KPROBE_EVENTS)",
        "this Linux shows no types of its own",
        "libc.so.6` cannot be read: ",
        // Without a word of the verifier it is not the program.
        "Linux refuses it: Operation not permitted",
    ];
    let line = errors
        .lines()
        .find(|line| reasons.iter().any(|reason| line.contains(reason)));
    line.map(|line| format!("skipped: {line}"))
}

/// Runs the application, whose output must be its own; `Err` within for what is skipped.
fn run(bench: &Bench, object: &str, arguments: &[&str]) -> Result<Result<Run, String>, String> {
    let expected = bench.plain(APP, arguments)?;
    let run = bench.probed(
        &["--set", CALL],
        &bench.object(object),
        &bench.app(APP),
        arguments,
    )?;
    if run.output.status.code() == Some(1)
        && let Some(reason) = not_here(&run.errors())
    {
        return Ok(Err(reason));
    }
    same(&run.errors(), run.output.status.code(), Some(0))?;
    same(
        "the application's output",
        run.output.stdout == expected,
        true,
    )?;
    Ok(Ok(run))
}

/// Threads of the GPU, calls of Linux, and both, where the other end of a function counts into the
/// latter.
fn counts(report: &Value, both: u64) -> Result<(), String> {
    let expected = [(0, THREADS + both), (1, THREADS), (2, CALLS)];
    same(
        "`array`",
        entries(map(report, "shared", "array")?),
        expected.to_vec(),
    )
}

fn kind(bench: &Bench, object: &str, both: u64) -> Told {
    let run = match run(bench, object, &ARGUMENTS)? {
        Ok(run) => run,
        Err(skipped) => return Ok(skipped),
    };
    counts(&run.report, both)?;
    let programs = run.report["linux"]["programs"].as_array();
    let places = programs
        .into_iter()
        .flatten()
        .filter_map(|p| p["place"].as_str());
    let places: Vec<&str> = places.collect();
    Ok(format!("{CALLS} calls at {}", places.join(" and ")))
}

/// With types that are meant for programs in kernels, in which the field is elsewhere, it is still
/// the running kernel's.
fn typed(bench: &Bench) -> Told {
    let told = kind(bench, "linux_typed", 0)?;
    if told.starts_with("skipped: ") {
        return Ok(told);
    }
    let object = bench.object("linux_typed");
    let types = object.display().to_string();
    let flags = ["--set", CALL, "--btf", &types];
    let run = bench.probed(&flags, &object, &bench.app(APP), &ARGUMENTS)?;
    same(&run.errors(), run.output.status.code(), Some(0))?;
    counts(&run.report, 0)?;
    Ok(told)
}

fn shared(bench: &Bench) -> Told {
    // The last launches see what was counted meanwhile, if there are enough of them for this
    // machine.
    for more in [200, 2000] {
        let told = sides(bench, more)?;
        if let Some(told) = told {
            return Ok(told);
        }
    }
    Err("2000 launches, 5 ms apart, did not see what Linux had counted before them".into())
}

/// With so many launches behind the first three; nothing if the last one had not seen all.
fn sides(bench: &Bench, more: u64) -> Result<Option<String>, String> {
    let run = match run(bench, "linuxside", &["10", "20", "3", &more.to_string()])? {
        Ok(run) => run,
        Err(skipped) => return Ok(Some(skipped)),
    };
    let threads = (3 + more) * 64;
    let both = vec![(0, threads + CALLS), (1, threads), (2, CALLS)];
    let report = &run.report;
    same(
        "`array`",
        entries(map(report, "shared", "array")?),
        both.clone(),
    )?;
    same("`hash`", entries(map(report, "shared", "hash")?), both)?;
    let percpu = map(report, "shared", "percpu")?;
    same("`percpu`", number(&percpu["sum"]), threads + CALLS)?;
    let variables = &map(report, "shared", ".bss")?["entries"][0]["value"];
    same(
        "a variable",
        number(&variables["together"]),
        threads + CALLS,
    )?;
    same(
        "the process",
        &variables["wbpf_app_pid"],
        &run.process()["pid"],
    )?;
    // Of Linux alone: a kind of map that no GPU has is among them, and the application has none of
    // these.
    same(
        "`calls`",
        entries(map(report, "maps", "calls")?),
        vec![(7, CALLS)],
    )?;
    same(
        "`stacks`",
        map(report, "maps", "stacks")?["kind"].as_str(),
        Some("type 7"),
    )?;
    let samples = &map(report, "maps", "samples")?["events"];
    same(
        "samples",
        (number(&samples["received"]), number(&samples["lost"])),
        (CALLS, 0),
    )?;
    for name in ["calls", "stacks", "samples"] {
        same(name, run.map(name).is_err(), true)?;
    }
    // Each side's records are with it, those of Linux in their order.
    let records = &map(report, "shared", "events")?["events"];
    same(
        "records of Linux",
        (number(&records["received"]), number(&records["lost"])),
        (CALLS, 0),
    )?;
    let first = records["first"].as_array().into_iter().flatten();
    // Two halves: the source, and the variable, which the GPU counts too.
    let halves: Vec<u64> = first.map(number).collect();
    let of_linux = halves.iter().all(|word| word & 0xffff_ffff == 1);
    same("their source", of_linux && halves.is_sorted(), true)?;
    let events = &run.map("events")?["events"];
    same("records of kernels", number(&events["received"]), threads)?;
    // What Linux counts is there when the first kernel begins, and comes while kernels run.
    same("what the first kernel saw", run.value("seen", 0)?, 10 + 1)?;
    let faults = run.notes().contains("maps shared with Linux");
    same(
        "values that do not go from one side to the other",
        faults,
        false,
    )?;
    let last = run.value("seen", 1)?;
    same("it is no more than there was", last <= CALLS, true)?;
    let told = format!("{threads} threads and {CALLS} calls, together and apart");
    Ok((last == CALLS).then_some(told))
}

/// `warpbpf run` of an object where another file system, which nobody else sees, is at a place.
fn run_over(bench: &Bench, (kind, place): (&str, &str), flags: &[&str], object: &str) -> Command {
    let mut inner = bench.warpbpf("run");
    inner.args(["--set", CALL]).args(flags);
    inner.arg(bench.object(object)).arg("--");
    inner.arg(bench.app(APP)).args(ARGUMENTS);
    let mount = format!("mount -t {kind} none {place} || exit 77; exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &mount, "sh"]);
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        command.envs(value.map(|value| (name, value)));
    }
    command
}

/// Fields cannot be found, so nothing is started with their places in the object; the rest runs
/// without.
fn untyped(bench: &Bench) -> Told {
    let run = |flags: &[&str]| {
        let output = run_over(bench, ("tmpfs", "/sys/kernel/btf"), flags, "linux_typed").output();
        output.map_err(|error| format!("no `unshare`: {error}"))
    };
    let output = match run(&[]) {
        Ok(output) => output,
        Err(why) => return Ok(format!("skipped: {why}")),
    };
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(77) || errors.starts_with("unshare: ") {
        return Ok(format!("skipped: {}", errors.trim()));
    }
    if errors.contains("does not let this process use `bpf()`") {
        return not_here(&errors).ok_or(errors);
    }
    same(&errors, output.status.code(), Some(1))?;
    says(
        &errors,
        "the CO-RE relocation (field offset) of `struct task_struct.tgid` asks for types of the target, which there are not: this Linux shows no types of its own (/sys/kernel/btf/vmlinux, ",
    )?;
    same("output", output.stdout.is_empty(), true)?;
    let output = run(&["--skip-linux"])?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    same(&errors, output.status.code(), Some(0))?;
    let counted = format!("{CALLS} calls, {THREADS} threads");
    says(&String::from_utf8_lossy(&output.stdout), &counted)?;
    Ok("told, and run without".into())
}

/// Where tracefs can be seen.
fn tracepoint(bench: &Bench) -> Told {
    let saved = bench.scratch("tracepoint.json");
    let flags = ["--json", "-o", &saved.display().to_string()];
    let tracing = ("tracefs", "/sys/kernel/tracing");
    let output = match run_over(bench, tracing, &flags, "linux_tracepoint").output() {
        Ok(output) => output,
        Err(error) => return Ok(format!("skipped: no `unshare`: {error}")),
    };
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => {}
        Some(77) => {
            return Ok(format!(
                "skipped: tracefs cannot be mounted: {}",
                errors.trim()
            ));
        }
        _ => {
            return match not_here(&errors) {
                Some(skipped) => Ok(skipped),
                None if errors.starts_with("unshare: ") => {
                    Ok(format!("skipped: {}", errors.trim()))
                }
                None => Err(errors),
            };
        }
    }
    let text = std::fs::read(&saved).map_err(|e| e.to_string())?;
    let report: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    counts(&report, 0)?;
    // Where there is none it is said which there are, and nothing was started.
    let run = bench.probed(
        &[],
        &bench.object("linux_tracepoint"),
        &bench.app(APP),
        &ARGUMENTS,
    )?;
    if run.output.status.code() != Some(0) {
        same("refused", run.output.status.code(), Some(1))?;
        says(
            &run.errors(),
            "program `on_call` (`tracepoint/syscalls/sys_enter_getpgid`): ",
        )?;
        says(
            &run.errors(),
            "mount tracefs (`mount -t tracefs none /sys/kernel/tracing`)",
        )?;
        same("output", run.output.stdout.is_empty(), true)?;
    }
    Ok(format!(
        "{CALLS} calls at tracepoint syscalls:sys_enter_getpgid"
    ))
}

/// `warpbpf serve` with programs that see all processes.
fn serve(bench: &Bench, name: &str) -> (Command, PathBuf) {
    let saved = bench.scratch(&format!("{name}.json"));
    let mut command = bench.warpbpf("serve");
    command.arg("--socket").arg(bench.scratch(name));
    command.args(["--set", CALL, "--json", "-o"]).arg(&saved);
    command.arg(bench.object("linux_processes"));
    (command, saved)
}

/// Numbers of the programs of Linux that a process has.
fn programs(pid: u32) -> BTreeSet<String> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fdinfo"));
    let descriptors = descriptors.into_iter().flatten().flatten();
    let told = descriptors.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let number = |told: String| {
        let number = told.lines().find_map(|line| line.strip_prefix("prog_id:"));
        number.map(|number| number.trim().to_owned())
    };
    told.filter_map(number).collect()
}

/// Programs end with the tool, though it could do nothing for that.
fn killed(bench: &Bench) -> Told {
    let Some(bpftool) = installed() else {
        return Ok("skipped: bpftool is not installed".into());
    };
    let mut tool = match Served::start(serve(bench, "killed").0) {
        Ok(tool) => tool,
        Err(said) => return not_here(&said).ok_or(said),
    };
    // By their numbers: another case may have a program of this name.
    let programs = programs(tool.child.id());
    let loaded = || {
        let mut all = String::new();
        for number in &programs {
            let words = ["prog", "show", "id", number];
            let shown = Command::new(bpftool).args(words).output();
            let shown = shown.map_err(|e| format!("bpftool: {e}"))?;
            all += &String::from_utf8_lossy(&shown.stdout);
        }
        Ok::<_, String>(all)
    };
    says(&loaded()?, "name of_all_callers")?;
    tool.child.kill().map_err(|e| e.to_string())?;
    tool.child.wait().map_err(|e| e.to_string())?;
    // Linux frees them some time after the last descriptor.
    let end = Instant::now() + PATIENCE;
    while !loaded()?.is_empty() {
        same("it was too long", Instant::now() < end, true)?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok("nothing is left".into())
}

/// Two applications, one after the other: Linux's map has both, and what they did on devices counts
/// once each.
fn served(bench: &Bench) -> Told {
    let (command, saved) = serve(bench, "beside");
    let mut tool = match Served::start(command) {
        Ok(tool) => tool,
        Err(said) => return not_here(&said).ok_or(said),
    };
    let mut pids = Vec::new();
    for calls in ["40", "50"] {
        let mut command = Command::new(bench.app(APP));
        command.args(["7", calls, "3"]);
        command.envs(tool.variables.iter().map(|(name, value)| (name, value)));
        let child = Owned::spawn(command.stdout(std::process::Stdio::null()));
        let mut child = child.map_err(|e| e.to_string())?;
        pids.push(u64::from(child.id()));
        let status = child.wait().map_err(|e| e.to_string())?;
        same("exit status of the application", status.code(), Some(0))?;
    }
    process::signal(tool.child.id(), Signal::Interrupt)?;
    let status = tool.child.wait().map_err(|e| e.to_string())?;
    same("exit status of serve", status.code(), Some(0))?;
    let text = std::fs::read(&saved).map_err(|e| e.to_string())?;
    let report: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    let calls = entries(map(&report, "maps", "calls")?);
    let of = |pid: u64| calls.iter().find(|(key, _)| *key == pid).map(|(_, n)| *n);
    same("calls of the first", of(pids[0]), Some(47))?;
    same("calls of the second", of(pids[1]), Some(57))?;
    same(
        "processes",
        report["processes"].as_array().map(Vec::len),
        Some(2),
    )?;
    // Only devices counted here, so there is no key 2.
    let array = report["together"].as_array().into_iter().flatten();
    let array: Vec<_> = array.filter(|map| map["name"] == "array").collect();
    let twice = vec![(0, 2 * THREADS), (1, 2 * THREADS)];
    same(
        "`array` of both",
        entries(array.first().ok_or("no `array`")?),
        twice,
    )?;
    // Each application began with what Linux had counted until then, and that counts once.
    let both = entries(map(&report, "shared", "both")?);
    let of = |key: u64| both.iter().find(|(known, _)| *known == key);
    let counted = [0, pids[0], pids[1]].map(|key| of(key).map(|(_, n)| *n));
    let expected = [2 * THREADS, 47, 57].map(Some);
    same("`both`, threads and calls", counted, expected)?;
    let together = report["together"].as_array().into_iter().flatten();
    let twice = together.filter(|map| map["name"] == "both").count();
    same("`both`, once more", twice, 0)?;
    Ok("47 and 57 calls of two processes".into())
}

/// The variable has the number of the process that was attached to, which has its own programs, and
/// they end.
fn attached(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    application.launch(1)?;
    let pid = application.pid();
    let tool = match Attached::to(bench, &["-p", &pid], "linux_typed") {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        Err(reason) => return not_here(&reason).ok_or(reason),
        Ok(tool) => tool,
    };
    application.launch(2)?;
    let report = tool.interrupt()?;
    let variables = &map(&report, "maps", ".bss")?["entries"][0]["value"];
    let told = number(&variables["wbpf_app_pid"]).to_string();
    same("the process", &told, &pid)?;
    application.end()?;
    Ok(format!("process {pid} is told"))
}

/// The application is not started, and Linux's verifier says why, with the line.
fn refused(bench: &Bench) -> Told {
    let run = bench.probed(
        &[],
        &bench.object("linux_refused"),
        &bench.app(APP),
        &ARGUMENTS,
    )?;
    let errors = run.errors();
    same(&errors, run.output.status.code(), Some(1))?;
    if errors.contains("does not let this process use `bpf()`") {
        return not_here(&errors).ok_or(errors);
    }
    says(
        &errors,
        "program `on_call` (`raw_tp/sys_enter`): Linux refuses it: Permission denied",
    )?;
    says(&errors, "its verifier says:\n")?;
    says(&errors, "R0 invalid mem access 'map_value_or_null'")?;
    says(&errors, "; *value += 1; @ linux_refused.bpf.c:11\n")?;
    says(
        &errors,
        "with `--skip-linux` the others run without the programs for Linux",
    )?;
    same("output", run.output.stdout.is_empty(), true)?;
    Ok("the verifier's text, and no application".into())
}

/// A user without privileges is told what to do, and can run the rest.
fn unprivileged(bench: &Bench) -> Told {
    let as_nobody = |flags: &[&str]| {
        let mut inner = bench.warpbpf("run");
        inner.args(flags).args(["--set", CALL]);
        inner.arg(bench.object("linux_typed")).arg("--");
        inner.arg(bench.app(APP)).args(ARGUMENTS);
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--inh-caps=-all",
            "--",
        ]);
        command.arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            command.envs(value.map(|value| (name, value)));
        }
        // A folder of sockets that is root's is none of theirs.
        command.env_remove("XDG_RUNTIME_DIR");
        command.output()
    };
    let output = match as_nobody(&[]) {
        Ok(output) => output,
        Err(error) => return Ok(format!("skipped: no `setpriv`: {error}")),
    };
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if errors.starts_with("setpriv: ") {
        return Ok(format!("skipped: {}", errors.trim()));
    }
    same(&errors, output.status.code(), Some(1))?;
    says(
        &errors,
        "program `on_call` (`tp_btf/sys_enter`) is for Linux, which does not let this process use `bpf()`: Operation not permitted",
    )?;
    says(&errors, "run as root, or with CAP_BPF and CAP_PERFMON")?;
    same("output", output.stdout.is_empty(), true)?;
    let output = as_nobody(&["--skip-linux"]).map_err(|e| e.to_string())?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    same(&errors, output.status.code(), Some(0))?;
    says(
        &errors,
        "program `on_call` (`tp_btf/sys_enter`) does not run: `--skip-linux`",
    )?;
    says(
        &String::from_utf8_lossy(&output.stdout),
        &format!("{CALLS} calls, {THREADS} threads"),
    )?;
    Ok("told, and run without".into())
}

fn left_out(bench: &Bench) -> Told {
    let flags = ["--skip-linux", "--set", CALL];
    let run = bench.both_with(&flags, "linuxside", APP, &ARGUMENTS)?;
    same("Linux's part", &run.report["linux"], &Value::Null)?;
    let note = "program `on_call` (`raw_tp/sys_enter`) does not run: `--skip-linux`";
    says(&run.notes(), note)?;
    let counted = [
        run.value("array", 0)?,
        run.value("array", 1)?,
        run.value("array", 2)?,
    ];
    same("`array`", counted, [THREADS, THREADS, 0])?;
    let proof = bench
        .warpbpf("verify")
        .arg(bench.object("linuxside"))
        .output();
    let proof = proof.map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&proof.stdout).into_owned();
    same("exit status of verify", proof.status.code(), Some(0))?;
    says(&text, "in_kernel (gpu/entry/*): safe")?;
    says(
        &text,
        "on_call (raw_tp/sys_enter): runs in Linux, whose verifier proves it when it is loaded\n",
    )?;
    // Who cannot bring it to Linux does not leave it out without a word.
    let launched = bench
        .warpbpf("launch")
        .arg(bench.object("linuxside"))
        .output();
    let launched = launched.map_err(|e| e.to_string())?;
    same("exit status of launch", launched.status.success(), false)?;
    says(
        &String::from_utf8_lossy(&launched.stderr),
        "`warpbpf run`, `attach` and `serve` bring programs to Linux",
    )?;
    Ok("kernels' programs alone".into())
}
