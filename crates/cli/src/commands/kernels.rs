//! `warpbpf kernels`: what an application loads, and what could be done with it.

use crate::back_ends::{Kind, Means};
use crate::commands::run::{observe, write};
use crate::error::CliError;
use crate::flags::KernelsFlags;
use crate::machine;
use crate::model::{Process, Report};
use crate::render;
use crate::target::Surroundings;

/// Runs the application without any program and lists its kernels.
pub fn run(flags: &KernelsFlags, surroundings: &Surroundings) -> Result<u8, CliError> {
    let tool = warpbpf::Tool::observe()?;
    let mut report = observe(&flags.target, surroundings, &tool, None, (0, None))?;
    for missing in missing(&report.processes) {
        report.notes.push(missing);
    }
    write(&flags.output, &report, usize::MAX, &|report: &Report, _| {
        let mut text: String = report.processes.iter().map(render::kernels).collect();
        for note in &report.notes {
            text += &format!("warpbpf: {note}\n");
        }
        text
    })?;
    Ok(report.status.unwrap_or(125) as u8)
}

/// What kernels without PTX would need and their devices cannot have, as `doctor` tells it.
fn missing(processes: &[Process]) -> Vec<String> {
    let without_ptx = |process: &&Process| {
        let mut kernels = process.kernels.iter();
        kernels.any(|kernel| kernel.way.contains("`--backend "))
    };
    let mut kinds: Vec<Kind> = Vec::new();
    for process in processes.iter().filter(without_ptx) {
        let here = match process.soft {
            true => vec![Kind::Soft],
            false => Kind::of(&machine::gpus().unwrap_or_default()),
        };
        let new = here.into_iter().filter(|kind| !kinds.contains(kind));
        let new: Vec<Kind> = new.collect();
        kinds.extend(new);
    }
    if kinds.is_empty() {
        return Vec::new();
    }
    let means = Means::found();
    let missing = kinds.iter().map(|kind| kind.back_ends(&means).missing());
    missing.flatten().collect()
}
