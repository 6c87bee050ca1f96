//! Linux's own verifier tests, against warpbpf's verifier:
//! `tools/testing/selftests/bpf/progs/verifier_*.c`, compiled here, each program loaded and
//! verified under the rules of its type, and the outcome compared with what the test expects of the
//! kernel. `disagreements.txt` lists where the two differ and why; a difference that is not in it
//! fails.
//!
//! It is a program and not a `#[test]`, because it needs the kernel's sources, which are not ours
//! to copy; `cargo xtask selftests` brings them.

#[path = "../../../xtask/src/say.rs"]
#[macro_use]
mod say;

mod compile;
mod contexts;
mod expect;
mod helpers;
mod kernel;
mod large;
mod ledger;
mod left_out;
mod legacy;
mod memory;
mod platform;
mod report;
mod run;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kernel::Kernel;
use ledger::{Ledger, Way};
use report::Findings;

fn main() -> ExitCode {
    say::status(work())
}

fn work() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [linux, clang, out] = arguments.as_slice() else {
        crate::say::write(
            2,
            format_args!("usage: warpbpf-selftests LINUX-SOURCE CLANG OUTPUT-FOLDER\n"),
        );
        return ExitCode::from(2);
    };
    let tools = compile::Tools {
        linux: PathBuf::from(linux),
        clang: clang.clone(),
        out: PathBuf::from(out),
    };
    if !tools.linux.is_dir() {
        crate::say::write(
            2,
            format_args!(
                "selftests: they need Linux's sources, and `{linux}` is no folder; `cargo xtask selftests` brings them\n"
            ),
        );
        return ExitCode::FAILURE;
    }
    match selftests(&tools) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            crate::say::write(2, format_args!("selftests: {message}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Runs everything and prints the tables. False if the list of disagreements is not right, or a
/// proof takes too much.
fn selftests(tools: &compile::Tools) -> Result<bool, String> {
    let mut findings = Findings::default();
    let oracle = Kernel::new();
    for unit in compile::compile(tools)? {
        match run::cases(&unit, oracle.as_ref().ok()) {
            Ok(cases) => findings.cases.extend(cases),
            Err(reason) => findings.files.push((unit.name, reason)),
        }
    }
    for file in legacy::files(tools)? {
        match legacy::cases(tools, &file, oracle.as_ref().ok()) {
            Ok(cases) => findings.cases.extend(cases),
            Err(reason) => findings.files.push((format!("verifier/{file}"), reason)),
        }
    }
    let large = large::cases(tools);
    crate::say::write(1, format_args!("{}", findings.table()));
    let (costs, within) = findings.costs();
    crate::say::write(1, format_args!("{}{costs}", findings.left_out()));
    let (times, large_within) = large::table(&large);
    crate::say::write(1, format_args!("{times}{}", large::plot(&findings, &large)));
    match &oracle {
        Ok(_) => crate::say::write(1, format_args!("{}", findings.running())),
        Err(why) => say!("the running kernel's own verifier: not available: {why}"),
    }
    let write = |name: &str, text: String| {
        let path = tools.out.join(name);
        std::fs::write(&path, text).map_err(|e| format!("cannot write `{}`: {e}", path.display()))
    };
    write("running-kernel.txt", findings.running_list())?;
    write("wrongly-refused.txt", findings.list(Way::Refused))?;
    write("wrongly-accepted.txt", findings.list(Way::Accepted))?;
    say!("lists are in `{}`", tools.out.display());
    Ok(check_ledger(&findings)? && check_left_out(&findings)? && within && large_within)
}

/// What is not compared may not grow unnoticed: the committed list is exact.
fn check_left_out(findings: &Findings) -> Result<bool, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("left-out.txt");
    let found = findings.left_out_list();
    if std::env::var_os("WARPBPF_BLESS").is_some() {
        std::fs::write(&path, &found)
            .map_err(|e| format!("cannot write `{}`: {e}", path.display()))?;
        return Ok(true);
    }
    let listed = std::fs::read_to_string(&path)
        .map_err(|e| format!("cannot read `{}`: {e}", path.display()))?;
    let (listed, found): (BTreeSet<&str>, BTreeSet<&str>) =
        (listed.lines().collect(), found.lines().collect());
    for line in found.difference(&listed) {
        say!("left out and not listed: {line}");
    }
    for line in listed.difference(&found) {
        say!("listed as left out and is not: {line}");
    }
    Ok(listed == found)
}

fn check_ledger(findings: &Findings) -> Result<bool, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("disagreements.txt");
    let text = std::fs::read_to_string(&path)
        .map_err(|e| format!("cannot read `{}`: {e}", path.display()))?;
    let ledger = Ledger::parse(&text).map_err(|e| format!("`{}`: {e}", path.display()))?;
    let found = findings.disagreements();
    if std::env::var_os("WARPBPF_BLESS").is_some() {
        let blessed = ledger.blessed(&found);
        std::fs::write(&path, blessed.render())
            .map_err(|e| format!("cannot write `{}`: {e}", path.display()))?;
        say!("`{}` is written", path.display());
        return Ok(true);
    }
    let differences = ledger.differences(&found);
    for line in &differences {
        say!("{line}");
    }
    Ok(differences.is_empty())
}
