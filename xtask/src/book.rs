//! The guide as a book, by mdbook, which is installed into `.toolchain`.

use std::path::PathBuf;

use crate::jobs::StepResult;
use crate::log::Log;
use crate::shell::{Failure, cargo, root};

/// The version that is installed, with the dependencies that it was released with.
const VERSION: &str = "0.5.4";

/// Builds the book into `target/book`.
///
/// # Errors
/// mdbook cannot be installed, or a page that the summary names is not there.
pub fn build(log: &Log) -> StepResult {
    let mdbook = installed(log)?;
    let docs = root().join("docs");
    log.run(std::process::Command::new(mdbook).arg("build").arg(docs))?;
    Ok("target/book".to_owned())
}

fn installed(log: &Log) -> Result<PathBuf, Failure> {
    let folder = root().join(".toolchain/mdbook");
    let mdbook = folder.join("bin/mdbook");
    let version = std::process::Command::new(&mdbook)
        .arg("--version")
        .output();
    if version.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(VERSION)) {
        return Ok(mdbook);
    }
    let made = folder.join("target");
    // It builds a book of forty pages; to optimise it takes longer than that ever will.
    let mut install = cargo();
    install
        .args(["install", "mdbook", "--version", VERSION, "--locked"])
        .args(["--debug", "--no-default-features", "--force", "--root"])
        .arg(&folder)
        .env("CARGO_TARGET_DIR", &made)
        .env("CARGO_PROFILE_DEV_DEBUG", "false");
    log.run(&mut install)?;
    let _ = std::fs::remove_dir_all(made);
    Ok(mdbook)
}
