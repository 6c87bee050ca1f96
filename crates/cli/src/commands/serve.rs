//! `warpbpf serve`: a program inside the kernels of applications that others start, now or later, with three variables in their
//! environment: a service file, a container, another terminal.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use warpbpf::start::{self, Entry};
use warpbpf_wire::rendezvous::Signpost;

use crate::collect::Collector;
use crate::commands::attach::{Interrupted, follow};
use crate::commands::run::{Attachment, show};
use crate::error::CliError;
use crate::flags::ServeFlags;
use crate::machine::{self, Device};
use crate::target::Surroundings;

/// How long a message may take.
const TICK: Duration = Duration::from_millis(20);
/// Behind the variables: applications may come.
const WAITING: &str = "warpbpf: Ctrl-C ends this and shows what they did";
/// How long agents may take to bring everything home.
const LAST_WORDS: Duration = Duration::from_secs(70);

/// Waits for applications, and shows what they have at the end.
pub fn run(flags: &ServeFlags, surroundings: &Surroundings) -> Result<u8, CliError> {
    let session = &flags.session;
    let attachment = Attachment::for_session(session)?;
    let tool = &attachment.tool;
    let device = machine::choose(flags.device)?;
    if let Device::Soft { why, .. } = &device {
        eprintln!("warpbpf: applications run on the soft GPU ({why})");
    }
    let place = absolute(&flags.socket)?;
    let (variables, entry) = start::environment(
        &device,
        flags.inject.into(),
        &place,
        surroundings,
        tool.wants_ranges(),
    )?;
    Interrupted::watch();
    let post = Signpost::put_up(&place, tool.socket()).map_err(warpbpf::Error::Wire)?;
    eprintln!("warpbpf: waiting for applications with this in their environment:");
    for (name, value) in &variables {
        eprintln!("{name}={}", value.to_string_lossy());
    }
    if let Entry::Preload(why) = entry {
        eprintln!("warpbpf: the agent comes in by LD_PRELOAD: {why}");
    }
    eprintln!("{WAITING}");
    let mut collector = Collector::new(tool, session.events);
    let interval = session.output.live(session.interval);
    let end = session
        .duration
        .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.max(0.0)));
    // Applications come and go: only the user ends this.
    follow(&mut collector, interval, end, &mut || true);
    drop(post);
    for process in tool.processes() {
        // Most have ended by themselves.
        let _ = process.detach();
    }
    let patience = Instant::now() + LAST_WORDS;
    while collector.connected() && Instant::now() < patience {
        collector.poll(TICK);
    }
    collector.poll(Duration::ZERO);
    let mut report = collector.report(Vec::new(), None);
    if !collector.any() {
        report.notes.push(
            "nobody came: no application with these variables has loaded CUDA code meanwhile"
                .into(),
        );
    }
    attachment.conclude(&mut report);
    show(&session.output, &report, session.rows, session.per_device)?;
    Ok(0)
}

/// Applications have other working folders.
fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path).map_err(|source| CliError::Write {
        path: path.display().to_string(),
        source,
    })
}
