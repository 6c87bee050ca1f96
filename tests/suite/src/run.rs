//! Running applications plain and with programs, and reading reports.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// What a case found out, or what is wrong. What begins with `skipped: ` is neither passed nor
/// failed.
pub type Told = Result<String, String>;

/// Where the libraries of a CUDA toolkit are, on machines that have one.
pub const TOOLKIT: &str = "/usr/local/cuda/lib64";

/// A case.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Runs it.
    pub check: fn(&Bench) -> Told,
}

/// Where everything is.
pub struct Bench {
    /// Folder with `warpbpf`, `soft/`, `objects/`, `apps/`.
    pub folder: PathBuf,
    /// Run on the soft GPU.
    pub soft: bool,
    scratch: PathBuf,
    /// Variables that commands get.
    pub variables: Vec<(String, String)>,
}

/// A finished `warpbpf run`.
pub struct Run {
    /// The report.
    pub report: Value,
    /// What the application, or a failing command, wrote.
    pub output: Output,
}

impl Bench {
    /// A bench over a bundle, in a folder.
    pub fn new(folder: &str, soft: bool) -> Bench {
        let scratch = std::env::temp_dir().join(format!("s-{}", std::process::id()));
        let _ = std::fs::create_dir_all(&scratch);
        // Cases start programs elsewhere, in other folders. A path that leads nowhere is said where
        // it is opened.
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.into());
        Bench {
            folder,
            soft,
            scratch,
            variables: Vec::new(),
        }
    }

    /// The same bench with variables in the environment of what it runs.
    pub fn with(&self, variables: &[(&str, &str)]) -> Bench {
        let scratch = self.scratch.join("variables");
        let _ = std::fs::create_dir_all(&scratch);
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Bench {
            folder: self.folder.clone(),
            soft: self.soft,
            scratch,
            variables: variables.iter().map(owned).collect(),
        }
    }

    /// The bundle.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Path of an object.
    pub fn object(&self, name: &str) -> PathBuf {
        self.folder.join("objects").join(format!("{name}.bpf.o"))
    }

    /// Path of an application. On the soft GPU the one with the shared runtime, on a GPU the one
    /// with the static.
    pub fn app(&self, name: &str) -> PathBuf {
        self.folder.join("apps").join(if self.soft {
            format!("{name}-shared")
        } else {
            name.to_string()
        })
    }

    /// A scratch file.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// The command, with the device chosen after the verb.
    pub fn warpbpf(&self, verb: &str) -> Command {
        let mut command = Command::new(self.folder.join("warpbpf"));
        command.arg(verb).stdin(Stdio::null());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if matches!(
            verb,
            "run" | "trace" | "kernels" | "launch" | "loader" | "serve"
        ) {
            command.args(["--device", if self.soft { "soft" } else { "gpu" }]);
        }
        command
    }

    /// An application without anything of ours.
    pub fn plain(&self, app: &str, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let mut command = Command::new(self.app(app));
        command.args(arguments).stdin(Stdio::null());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if self.soft {
            command.env("LD_LIBRARY_PATH", self.folder.join("soft"));
        }
        let output = command.output().map_err(|e| format!("{app}: {e}"))?;
        if !output.status.success() {
            return Err(format!(
                "{app} alone ended with {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            ));
        }
        Ok(output.stdout)
    }

    /// An application with a program in it; more flags for `warpbpf run` may be given.
    pub fn probed(
        &self,
        flags: &[&str],
        object: &Path,
        app: &Path,
        arguments: &[&str],
    ) -> Result<Run, String> {
        let saved = self.scratch("report.json");
        let _ = std::fs::remove_file(&saved);
        let mut command = self.warpbpf("run");
        command
            .args(flags)
            .arg("--json")
            .arg("-o")
            .arg(&saved)
            .arg(object)
            .arg("--")
            .arg(app)
            .args(arguments);
        let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
        let text = std::fs::read(&saved).unwrap_or_default();
        let report = serde_json::from_slice(&text).unwrap_or(Value::Null);
        Ok(Run { report, output })
    }

    /// Runs plain and probed, and checks that the application's output is the same, byte for byte.
    pub fn both(&self, object: &str, app: &str, arguments: &[&str]) -> Result<Run, String> {
        self.both_with(&[], object, app, arguments)
    }

    /// The same with a script of Python's, which `needs` these modules and compiles kernels anew,
    /// whatever other runs have left in what `cache` names. `None` without the modules.
    pub fn both_in_python(
        &self,
        (needs, cache): (&str, &str),
        object: &str,
        (name, text): (&str, &str),
        arguments: &[&str],
    ) -> Result<Option<Run>, String> {
        let python = |arguments: &[&str]| {
            let mut command = Command::new("python3");
            command.env(cache, self.scratch(&format!("{name}-plain")));
            let output = command.args(arguments).output();
            output.map_err(|e| format!("python3: {e}"))
        };
        match python(&["-c", &format!("import {needs}")]) {
            Ok(output) if output.status.success() => {}
            _ => return Ok(None),
        }
        let script = self.scratch(name);
        std::fs::write(&script, text).map_err(|e| format!("{}: {e}", script.display()))?;
        let script = script.display().to_string();
        let arguments: Vec<&str> = std::iter::once(script.as_str())
            .chain(arguments.iter().copied())
            .collect();
        let plain = python(&arguments)?;
        same("exit status without us", plain.status.code(), Some(0))?;
        let fresh = self
            .scratch(&format!("{name}-probed"))
            .display()
            .to_string();
        let probed = self.with(&[(cache, &fresh)]);
        let run = probed.probed(&[], &self.object(object), "python3".as_ref(), &arguments)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        same("output", text(&run.output.stdout), text(&plain.stdout))?;
        Ok(Some(run))
    }

    /// The same with more flags for `warpbpf run`.
    pub fn both_with(
        &self,
        flags: &[&str],
        object: &str,
        app: &str,
        arguments: &[&str],
    ) -> Result<Run, String> {
        let expected = self.plain(app, arguments)?;
        let run = self.probed(flags, &self.object(object), &self.app(app), arguments)?;
        if run.output.stdout != expected {
            return Err(format!(
                "the application's output differs: `{}` instead of `{}`; {}",
                String::from_utf8_lossy(&run.output.stdout).trim_end(),
                String::from_utf8_lossy(&expected).trim_end(),
                String::from_utf8_lossy(&run.output.stderr).trim_end(),
            ));
        }
        if run.process().is_null() {
            return Err(format!(
                "no process in the report: {} {}",
                run.report,
                String::from_utf8_lossy(&run.output.stderr)
            ));
        }
        Ok(run)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

impl Run {
    /// The first process.
    pub fn process(&self) -> &Value {
        &self.report["processes"][0]
    }

    /// A map by name.
    pub fn map(&self, name: &str) -> Result<&Value, String> {
        let maps = self.process()["maps"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        maps.iter()
            .find(|m| m["name"] == name)
            .ok_or_else(|| format!("the report has no map `{name}`: {}", self.report))
    }

    /// Entries of a map as `(key, value)`.
    pub fn entries(&self, name: &str) -> Result<Vec<(Value, Value)>, String> {
        let entries = self.map(name)?["entries"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        Ok(entries
            .into_iter()
            .map(|e| (e["key"].clone(), e["value"].clone()))
            .collect())
    }

    /// The value of a number key in a map of numbers, 0 where it is absent.
    pub fn value(&self, name: &str, key: u64) -> Result<u64, String> {
        let entries = self.entries(name)?;
        Ok(entries
            .iter()
            .find(|(k, _)| k.as_u64() == Some(key))
            .and_then(|(_, v)| v.as_u64())
            .unwrap_or(0))
    }

    /// A kernel's row.
    pub fn kernel(&self, name: &str) -> Result<&Value, String> {
        let kernels = self.process()["kernels"].as_array();
        kernels
            .into_iter()
            .flatten()
            .find(|kernel| kernel["name"] == name)
            .ok_or_else(|| format!("`{name}` is not among the kernels: {}", self.report))
    }

    /// Standard error as text.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// All notes in one text.
    pub fn notes(&self) -> String {
        self.sentences("notes")
    }

    /// What is worth knowing though nothing is wrong, in one text.
    pub fn remarks(&self) -> String {
        self.sentences("remarks")
    }

    fn sentences(&self, list: &str) -> String {
        let list = self.report[list].as_array().cloned().unwrap_or_default();
        list.iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Searches by chance are to be as long as they can be of use (`cargo xtask test --deep`), and not
/// as short as a gate needs.
pub fn is_deep() -> bool {
    std::env::var_os("WARPBPF_DEEP").is_some()
}

/// `found` must be `expected`.
pub fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: T,
    expected: T,
) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: {found:?}, expected {expected:?}"))
    }
}

/// Says how many operations there were on a type of map, in a line of its own that is the same in
/// all cases: docs/measurements.md has a table of them.
pub fn operations(kind: &str, operations: u64) {
    say!("operations: {kind} {operations}");
}

/// Says so, and on a GPU there must have been at least a hundred million on each type.
pub fn enough(bench: &Bench, kind: &str, count: u64) -> Result<(), String> {
    operations(kind, count);
    if bench.soft || count >= 100_000_000 {
        Ok(())
    } else {
        Err(format!("only {count} operations on {kind}"))
    }
}

/// `text` must contain `part`.
pub fn says(text: &str, part: &str) -> Result<(), String> {
    if text.contains(part) {
        Ok(())
    } else {
        Err(format!("`{part}` is not in `{}`", text.trim_end()))
    }
}
