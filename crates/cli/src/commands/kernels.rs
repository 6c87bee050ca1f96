//! `warpbpf kernels`: what an application loads, and what could be done with it.

use crate::application::machine;
use crate::application::start::Surroundings;
use crate::backend::available::{Kind, Means};
use crate::commands::run::{Watched, observe};
use crate::flags::KernelsFlags;
use crate::report::model::{Process, Report};
use crate::report::news::Records;
use crate::report::notes::alike;
use crate::report::outlet::Outlet;
use crate::report::render;
use crate::term::error::{CliError, FAILED};
use crate::term::plain;
use crate::term::signals::Signals;

/// Runs the application without any program and lists its kernels.
pub fn run(flags: &KernelsFlags, surroundings: &Surroundings) -> Result<u8, CliError> {
    let mut signals = Signals::begin();
    let mut outlet = Outlet::open_answer(&flags.output)?;
    let tool = warpbpf_tool::Tool::observe()?;
    let mut watched = Watched {
        outlet: &mut outlet,
        timeline: None,
        records: Records::Kept(0),
        interval: None,
        reader: None,
    };
    let (target, signals) = (&flags.target, &mut signals);
    let mut report = observe(target, surroundings, &tool, None, &mut watched, signals)?;
    for missing in missing(&report.processes) {
        report.notes.push(missing);
    }
    outlet.write(&report, &|report: &Report| {
        let mut text: String = report.processes.iter().map(render::kernels).collect();
        for note in alike(&report.notes) {
            text += &format!("warpbpf: {}\n", plain::message(&note));
        }
        text
    });
    Ok(report.status.map_or(FAILED, |status| status as u8))
}

/// What kernels without PTX would need and their devices cannot have, as `doctor` tells it.
fn missing(processes: &[Process]) -> Vec<String> {
    let without_ptx = |process: &&Process| {
        let mut kernels = process.kernels.iter();
        kernels.any(|kernel| {
            kernel
                .method
                .why_not()
                .is_some_and(|why| why.contains("`--backend "))
        })
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
