//! `warpbpf serve`: a program inside the kernels of applications that others start, now or later,
//! with three variables in their environment: a service file, a container, another terminal.

use std::path::{Path, PathBuf};

use warpbpf_tool::start::{self, Entry};
use warpbpf_wire::rendezvous::Signpost;

use crate::application::machine;
use crate::application::start::Surroundings;
use crate::backend::choose::Moment;
use crate::collect::collector::Collector;
use crate::commands::attach::{let_go, watch};
use crate::commands::run::{Attachment, Watched, show};
use crate::flags::ServeFlags;
use crate::report::outlet::Outlet;
use crate::term::error::CliError;
use crate::term::inherited;
use crate::term::output::tell;
use crate::term::signals::Interrupted;
use crate::timeline::Timeline;

/// Behind the variables: applications may come.
const WAITING: &str = "warpbpf: Ctrl-C ends this and shows what they did";

/// Waits for applications, and shows what they have at the end.
pub fn run(flags: &ServeFlags, surroundings: &Surroundings) -> Result<u8, CliError> {
    let session = &flags.session;
    // Each application has some of them.
    inherited::raise_file_limit();
    let mut outlet = Outlet::open(&session.work.output)?;
    let timeline = Timeline::open(&session.request, &outlet)?;
    let attachment = Attachment::requested(&session.request, &session.work, Moment::Start)?;
    let tool = &attachment.tool;
    let device = machine::choose(flags.device)?;
    machine::tell_of(&device, flags.device);
    let place = absolute(&flags.socket)?;
    let (mut variables, entry) = start::environment(
        &device,
        flags.inject.into(),
        &place,
        surroundings,
        tool.wants_ranges(),
    )?;
    variables.extend(tool.more_variables(&device));
    Interrupted::watch();
    let post = Signpost::put_up(&place, tool.socket()).map_err(warpbpf_tool::Error::Wire)?;
    tell!("warpbpf: waiting for applications with this in their environment:");
    for (name, value) in &variables {
        tell!("{name}={}", value.to_string_lossy());
    }
    if let Entry::Preload(why) = entry {
        tell!("warpbpf: the agent comes in by LD_PRELOAD: {why}");
    }
    tell!("{WAITING}");
    let records = session.work.records();
    let mut collector = Collector::new(tool, records, attachment.linux.as_deref());
    let mut watched = Watched {
        outlet: &mut outlet,
        timeline,
        records,
        interval: session.work.live(),
        reader: None,
    };
    // Applications come and go: only the user ends this.
    watch(session, &mut collector, &mut watched, &mut || true);
    drop(post);
    let_go(tool, &mut collector);
    watched.turn(&mut collector);
    let mut report = collector.report(Vec::new(), None);
    if !collector.any() {
        report.notes.push(
            "nothing was instrumented: no application with these variables has loaded CUDA code meanwhile as this user; one that ran before is reached by `warpbpf attach -p PID`"
                .into(),
        );
    }
    let status = attachment.conclude(&mut report, session.work.strict, 0);
    watched.end(tool, &mut report);
    show(&session.work, &report, &mut outlet);
    Ok(status)
}

/// Applications have other working folders.
fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path).map_err(|source| CliError::Write {
        path: path.display().to_string(),
        source,
    })
}
