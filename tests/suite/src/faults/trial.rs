//! One run of a scenario with one fault, and all that is known of it afterwards.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::judge::{self, Facts};
use super::live;
use super::plan::{self, Fault, Site};
use super::scenario::{How, Scenario};
use crate::process::{self, Owned, Signal};
use crate::run::Bench;

/// After this a run hangs. An agent may wait 10 s for its tool, and at the end.
pub const PATIENCE: Duration = Duration::from_secs(40);
/// Between two looks.
pub const TICK: Duration = Duration::from_millis(5);

/// The agent has sites that can fail: all builds do but release builds.
pub fn agent_has_sites(bench: &Bench) -> bool {
    let agent = std::fs::read(bench.folder().join("libwarpbpf_agent.so")).unwrap_or_default();
    let variable = b"WARPBPF_FAULT_LOG";
    agent.windows(variable.len()).any(|bytes| bytes == variable)
}

/// A scenario that went well without a fault.
#[derive(Clone)]
pub struct Trial<'b> {
    bench: &'b Bench,
    pub scenario: &'static Scenario,
    /// The application's output without anything of ours, and its status.
    expected: String,
    clean: Value,
    /// Where code is kept: `--cache-size`.
    room: Option<String>,
    pub sites: Vec<Site>,
}

/// What came of a fault.
#[derive(Debug, Default)]
pub struct Done {
    /// It happened.
    pub struck: bool,
    /// Something was lost, and told.
    pub felt: bool,
    /// What is not as it has to be.
    pub wrong: Option<String>,
}

impl<'b> Trial<'b> {
    pub fn new(bench: &'b Bench, scenario: &'static Scenario) -> Result<Trial<'b>, String> {
        let mut trial = Trial {
            bench,
            scenario,
            expected: String::new(),
            clean: Value::Null,
            room: None,
            sites: Vec::new(),
        };
        if scenario.how != How::Attach {
            let bench = bench.with(scenario.variables);
            let output = bench.plain(scenario.app, scenario.arguments)?;
            if output == b"one GPU\n" {
                return Err("skipped: one GPU".to_owned());
            }
            trial.expected = format!("{}status 0\n", String::from_utf8_lossy(&output));
        }
        if scenario.keeps {
            trial.room = Some(trial.seed()?);
        }
        let facts = trial.facts(None, usize::MAX)?;
        if facts.output != trial.expected {
            return Err(format!(
                "the output is `{}`, not `{}`",
                facts.output, trial.expected
            ));
        }
        trial.sites = plan::sites(&facts.log);
        if facts.report.is_null() {
            return Err(format!("no report; the tool said `{}`", facts.errors));
        }
        trial.clean = facts.report;
        judge::clean(scenario, &trial.clean, scenario.falls_back && !bench.soft)?;
        if scenario.keeps {
            let kernels = trial.clean["processes"][0]["kernels"].as_array();
            let is = |cached| kernels.into_iter().flatten().any(|k| k["cached"] == cached);
            if !is(true) || !is(false) {
                return Err(format!("not some of each: {}", trial.clean));
            }
        }
        Ok(trial)
    }

    /// Runs it with a fault; `worker` tells its files from those of others at the same time.
    pub fn run(&self, fault: &Fault, worker: usize) -> Done {
        let facts = match self.facts(Some(fault), worker) {
            Ok(facts) => facts,
            Err(reason) => {
                return Done {
                    wrong: Some(reason),
                    ..Done::default()
                };
            }
        };
        let struck = plan::has_struck(&facts.log, fault);
        let judged = judge::judge(
            self.scenario,
            &self.expected,
            &self.clean,
            &facts,
            fault,
            struck,
        );
        Done {
            struck,
            felt: judged == Ok(true),
            wrong: judged
                .err()
                .map(|reason| format!("{reason}{}", said(&facts.errors))),
        }
    }

    /// What the cache has before each run: all that a run leaves there but one entry.
    fn seed(&self) -> Result<String, String> {
        let text = |e: std::io::Error| e.to_string();
        let seed = self.cache("seed");
        let _ = std::fs::remove_dir_all(&seed);
        self.facts(None, usize::MAX)?;
        let made = self.cache(&usize::MAX.to_string());
        let files = std::fs::read_dir(&made).map_err(text)?.flatten();
        let mut entries: Vec<PathBuf> = files.map(|file| file.path()).collect();
        entries.retain(|path| path.extension().is_some_and(|e| e == "code"));
        // The one that was made last goes: what is made before it is found, where room for it would
        // take that away.
        entries.sort_by_cached_key(|path| path.metadata().and_then(|m| m.modified()).ok());
        let one = entries.pop().filter(|_| !entries.is_empty());
        // Too little for all that is made. A GPU gives the application's variables other addresses
        // in each run, so that most is made again, in an order that may take what is to be found
        // out before it is looked for: there it is enough.
        let sizes = entries.iter().map(|path| path.metadata().map(|m| m.len()));
        let bytes: u64 = sizes.sum::<Result<u64, _>>().map_err(text)?;
        let room = match self.bench.soft {
            true => bytes,
            false => bytes * 2,
        };
        std::fs::remove_file(one.ok_or("too little was kept")?).map_err(text)?;
        std::fs::rename(made, seed).map_err(text)?;
        Ok(room.to_string())
    }

    fn cache(&self, whose: &str) -> PathBuf {
        let name = format!("faults-{}-{whose}.cache", self.scenario.name);
        self.bench.scratch(&name)
    }

    /// A folder of a run's own, with what it is to find there.
    fn fresh_cache(&self, worker: usize) -> Result<PathBuf, String> {
        let text = |e: std::io::Error| e.to_string();
        let cache = self.cache(&worker.to_string());
        let _ = std::fs::remove_dir_all(&cache);
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&cache)
            .map_err(text)?;
        for file in std::fs::read_dir(self.cache("seed"))
            .into_iter()
            .flatten()
            .flatten()
        {
            std::fs::copy(file.path(), cache.join(file.file_name())).map_err(text)?;
        }
        Ok(cache)
    }

    fn facts(&self, fault: Option<&Fault>, worker: usize) -> Result<Facts, String> {
        let file = |what: &str| {
            self.bench
                .scratch(&format!("faults-{}-{worker}.{what}", self.scenario.name))
        };
        let log = file("log");
        let _ = std::fs::remove_file(&log);
        let cache = match self.scenario.keeps {
            true => self.fresh_cache(worker)?,
            false => PathBuf::from("off"),
        };
        let environment = |command: &mut Command| {
            command.env("WARPBPF_FAULT_LOG", &log);
            command.env("WARPBPF_CACHE", &cache);
            command.envs(self.scenario.variables.iter().copied());
            if let Some(fault) = fault {
                command.env("WARPBPF_FAULT", &fault.text);
            }
        };
        let files = Files {
            report: file("json"),
            output: file("out"),
            errors: file("err"),
        };
        for path in [&files.report, &files.output, &files.errors] {
            let _ = std::fs::remove_file(path);
        }
        let mut facts = match self.scenario.how {
            How::Attach => live::attach(self.bench, self.scenario, &files, &environment)?,
            how => self.started(how, &files, &environment)?,
        };
        // What is missing was never written: no site was passed, or the tool was killed.
        facts.log = std::fs::read_to_string(&log).unwrap_or_default();
        facts.report = files.report();
        facts.errors = std::fs::read_to_string(&files.errors).unwrap_or_default();
        Ok(facts)
    }

    fn started(
        &self,
        how: How,
        files: &Files,
        environment: &dyn Fn(&mut Command),
    ) -> Result<Facts, String> {
        let Scenario {
            object,
            app,
            arguments,
            flags,
            ..
        } = *self.scenario;
        // The first shell's number becomes the tool's; the second one tells how the application
        // ended, even if nobody waits for it.
        let mut command = Command::new("sh");
        command.args(["-c", r#"WARPBPF_FAULT_TOOL=$$ exec "$@""#, "sh"]);
        let run = self.bench.warpbpf("run");
        command
            .arg(run.get_program())
            .args(run.get_args())
            .args(flags);
        if let Some(room) = &self.room {
            command.args(["--cache-size", room]);
        }
        command.args(["--json", "-o"]).arg(&files.report);
        command.arg(self.bench.object(object)).arg("--");
        command.args(["sh", "-c", r#""$@"; echo "status $?""#, "sh"]);
        command.arg(self.bench.app(app)).args(arguments);
        environment(&mut command);
        command.stdin(Stdio::null());
        command
            .stdout(files.make(&files.output)?)
            .stderr(files.make(&files.errors)?);
        let mut child = Owned::spawn(&mut command).map_err(|e| format!("warpbpf: {e}"))?;
        match how {
            How::Operations => live::operate(self.bench, child.id()),
            How::Slots => live::fill(self.bench, child.id()),
            How::Replace => live::replace(self.bench, child.id()),
            How::Run | How::Attach => {}
        }
        let status = within(&mut child, "`warpbpf run`", PATIENCE)?;
        let output = files.whole_output(child.id())?;
        Ok(Facts {
            output,
            status,
            ..Facts::default()
        })
    }
}

/// Where a run writes.
pub struct Files {
    pub report: PathBuf,
    pub output: PathBuf,
    pub errors: PathBuf,
}

impl Files {
    pub fn make(&self, path: &Path) -> Result<File, String> {
        File::create(path).map_err(|e| format!("{}: {e}", path.display()))
    }

    fn report(&self) -> Value {
        let text = std::fs::read(&self.report).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or(Value::Null)
    }

    /// The application may live on when its tool is gone.
    fn whole_output(&self, group: u32) -> Result<String, String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let output = std::fs::read(&self.output).map_err(|e| e.to_string())?;
            let output = String::from_utf8_lossy(&output).into_owned();
            if output
                .lines()
                .last()
                .is_some_and(|line| line.starts_with("status "))
                && output.ends_with('\n')
            {
                return Ok(output);
            }
            if Instant::now() > end {
                // It is of the group, whose number is therefore nobody else's.
                let _ = process::signal_group(group, Signal::Kill);
                return Err(format!("the application did not end; it said `{output}`"));
            }
            std::thread::sleep(TICK);
        }
    }
}

/// Waits for a child, which ends with all its group if it takes longer than `limit`. `None` if it
/// was killed.
pub fn within(child: &mut Owned, what: &str, limit: Duration) -> Result<Option<i32>, String> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return Ok(status.code());
        }
        if Instant::now() > end {
            process::signal_group(child.id(), Signal::Kill)?;
            let _ = child.wait();
            return Err(format!("{what} hangs"));
        }
        std::thread::sleep(TICK);
    }
}

/// The end of what the application and the tool have said, which is where the reason is most often.
fn said(errors: &str) -> String {
    const MOST: usize = 1000;
    let errors = errors.trim_end();
    let from = errors.ceil_char_boundary(errors.len().saturating_sub(MOST));
    match &errors[from..] {
        "" => String::new(),
        end => format!("; on standard error `{end}`"),
    }
}
