//! `warpbpf kernels`: what an application loads, and what could be done with it.

use crate::commands::run::{observe, write};
use crate::error::CliError;
use crate::flags::KernelsFlags;
use crate::model::Report;
use crate::render;
use crate::target::Surroundings;

/// Runs the application without any program and lists its kernels.
pub fn run(flags: &KernelsFlags, surroundings: &Surroundings) -> Result<u8, CliError> {
    let tool = warpbpf::Tool::observe()?;
    let report = observe(&flags.target, surroundings, &tool, None, (0, None))?;
    write(&flags.output, &report, usize::MAX, &|report: &Report, _| {
        let mut text: String = report.processes.iter().map(render::kernels).collect();
        for note in &report.notes {
            text += &format!("warpbpf: {note}\n");
        }
        text
    })?;
    Ok(report.status.unwrap_or(125) as u8)
}
