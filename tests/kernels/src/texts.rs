//! The corpus as text, without a device: PTX comes back byte for byte where nothing is put in, and
//! `ptxas` accepts every kernel with a program at every place there is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use warpbpf_driver::DeviceInfo;
use warpbpf_ptx::Splices;
use warpbpf_ptx::ast::{Module, StatementKind};
use warpbpf_session::{Session, inspect};

use crate::groups::{self, Group};

/// The object with programs at every kind of place.
const EVERYWHERE: &str = "everywhere_all";

/// What is known of a file.
#[derive(Debug, Default)]
pub struct Checked {
    /// Its length.
    pub bytes: usize,
    /// Its kernels.
    pub kernels: usize,
    /// Kernels whose instrumented text `ptxas` accepts, with the number of sites in it: `vectorAdd
    /// 12`.
    pub accepted: Vec<String>,
    /// What is wrong.
    pub wrong: Vec<String>,
}

/// The PTX files of a group in a bundle: none for one that has only relocatable code.
///
/// # Errors
/// They should be there and are not.
pub fn files(bundle: &Path, group: &Group) -> Result<Vec<PathBuf>, String> {
    let folder = bundle.join("kernels");
    if group.captured {
        let folder = folder.join("triton");
        let entries = std::fs::read_dir(&folder)
            .map_err(|e| format!("cannot list `{}`: {e}", folder.display()))?;
        let mut files: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|e| e == "ptx"))
            .collect();
        files.sort();
        if files.is_empty() {
            return Err(format!("`{}` holds no PTX", folder.display()));
        }
        return Ok(files);
    }
    if group.expected != groups::Expected::Instrumented {
        return Ok(Vec::new());
    }
    Ok(vec![folder.join(format!("{}.ptx", group.name))])
}

/// Checks a file.
///
/// # Errors
/// A file, an object or `ptxas` that is not there; what is wrong with the text is in
/// [`Checked::wrong`].
pub fn check(bundle: &Path, file: &Path, ptxas: &str) -> Result<Checked, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| format!("cannot read `{}`: {e}", file.display()))?;
    let mut checked = Checked {
        bytes: text.len(),
        ..Checked::default()
    };
    let module = match warpbpf_ptx::index(&text) {
        Ok(module) => module,
        Err(error) => {
            checked.wrong.push(error.to_string());
            return Ok(checked);
        }
    };
    checked.wrong.extend(round_trip(&module));
    let object = bundle.join(format!("objects/{EVERYWHERE}.bpf.o"));
    let object =
        std::fs::read(&object).map_err(|e| format!("cannot read `{}`: {e}", object.display()))?;
    let device = DeviceInfo {
        name: "none".into(),
        capability: (9, 0),
        sms: 132,
        driver_version: 13_000,
    };
    let session = Session::new(&object, &warpbpf_session::Options::default(), &device)
        .map_err(|e| e.to_string())?;
    let image = inspect(text.as_bytes(), device.capability).map_err(|e| e.to_string())?;
    for kernel in module
        .functions
        .iter()
        .filter(|f| f.is_entry && f.body.is_some())
    {
        checked.kernels += 1;
        let accepted = session.splice(&image, kernel.name);
        let accepted = accepted.map_err(|error| error.to_string());
        let accepted = accepted.and_then(|splice| {
            accepts(ptxas, &module, &splice.text)?;
            Ok(splice.site_count)
        });
        match accepted {
            Ok(sites) => checked.accepted.push(format!("{} {sites}", kernel.name)),
            Err(reason) => checked.wrong.push(format!("`{}`: {reason}", kernel.name)),
        }
    }
    Ok(checked)
}

/// No edit gives the same bytes, and so does every statement in its place.
fn round_trip(module: &Module<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    match Splices::new().apply(module.text) {
        Ok(same) if same == module.text => {}
        Ok(_) => wrong.push("no edit gives another text".into()),
        Err(error) => wrong.push(format!("no edit: {error}")),
    }
    for function in &module.functions {
        let statements = match warpbpf_ptx::parse_body(module, function) {
            Ok(statements) => statements,
            Err(error) => {
                wrong.push(format!("`{}`: {error}", function.name));
                continue;
            }
        };
        let mut splices = Splices::new();
        for statement in &statements {
            // A variable of a list shares its span with the others.
            if matches!(statement.kind, StatementKind::Instruction(_)) {
                let itself = &module.text[statement.span.clone()];
                splices.replace(statement.span.clone(), itself);
            }
        }
        match splices.apply(module.text) {
            Ok(same) if same == module.text => {}
            Ok(_) => wrong.push(format!(
                "`{}`: its statements give another text",
                function.name
            )),
            Err(error) => wrong.push(format!("`{}`: {error}", function.name)),
        }
    }
    wrong
}

pub(crate) fn accepts(ptxas: &str, module: &Module<'_>, text: &str) -> Result<(), String> {
    let arch = module.targets.first().copied().unwrap_or("sm_90");
    // Kernels of several groups are looked at at once, and may have one name.
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("warpbpf-kernels-{}-{number}.ptx", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, text).map_err(|e| format!("cannot write `{}`: {e}", file.display()))?;
    // It accepts or refuses a text without optimising it, in a third of the time.
    let level = std::env::var_os("WARPBPF_DEEP").is_none().then_some("-O0");
    let done = Command::new(ptxas)
        .arg(format!("-arch={arch}"))
        .args(level)
        .arg(&file)
        .args(["-o", "/dev/null"])
        .output();
    // What is left in the folder of temporary files harms nobody.
    let removed = std::fs::remove_file(&file);
    let done = done.map_err(|e| format!("`{ptxas}`: {e}; `cargo xtask setup` installs it"))?;
    if done.status.success() {
        return removed.map_err(|e| format!("cannot remove `{}`: {e}", file.display()));
    }
    let errors = String::from_utf8_lossy(&done.stderr);
    let line = errors
        .lines()
        .find(|l| l.contains("error"))
        .unwrap_or("no word");
    // The line of the text says more than its number.
    let at = line
        .split_once(", line ")
        .and_then(|(_, rest)| rest.split_once(';')?.0.trim().parse::<usize>().ok())
        .and_then(|number| text.lines().nth(number.checked_sub(1)?))
        .unwrap_or_default();
    Err(format!("ptxas refuses it: {line}: `{}`", at.trim()))
}
