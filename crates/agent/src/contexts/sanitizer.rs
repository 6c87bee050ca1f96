//! Compute Sanitizer in the application: it has to be there before the first context is, when the
//! tool has not said yet what it wants.
//!
//! So the tool names the library in the environment, and what came of it is told when programs
//! come.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use warpbpf_driver::Stream;
use warpbpf_driver::sys::CUresult;
use warpbpf_session::launch_args::{Tables, Words};
use warpbpf_session::{Sanitizer, SanitizerError};
use warpbpf_wire::NoteLevel;

use crate::kernels::fallback::FallbackReason;
use crate::kernels::shape::Shape;
use crate::kernels::stream_name::StreamName;
use crate::runtime::agent::Agent;
use crate::sys::lock::lock;

/// Names the library.
const LIBRARY: &str = "WARPBPF_SANITIZER_LIBRARY";

/// Nobody waits for who is at it: loading a library leads back here.
static BEGUN: AtomicBool = AtomicBool::new(false);
static SUBSCRIBED: Mutex<Option<Result<&'static Sanitizer, SanitizerError>>> = Mutex::new(None);

/// Subscribes, if the tool wants it and nobody has done it before.
pub(crate) fn subscribe() {
    let Some(library) = std::env::var_os(LIBRARY).filter(|name| !name.is_empty()) else {
        return;
    };
    if !BEGUN.swap(true, Ordering::Relaxed) {
        let subscribed = Sanitizer::subscribe(Path::new(&library));
        *lock(&SUBSCRIBED) = Some(subscribed);
    }
}

/// The subscription; the user is told what it means, or why there is none. With `spliced`, kernels
/// may have programs otherwise.
pub(crate) fn subscribed(agent: &Agent, spliced: bool) -> Option<&'static Sanitizer> {
    let (level, text, subscribed) = what_to_say(lock(&SUBSCRIBED).clone(), spliced);
    agent.note(level, text);
    subscribed
}

/// Calls `run`, which launches a variant, with its launch arguments in a table.
///
/// # Errors
/// Why the original must run.
pub(crate) fn with_table(
    agent: &Agent,
    tables: &Tables,
    (stream, shape): (Option<StreamName>, &Shape),
    words: Words,
    run: &dyn Fn() -> CUresult,
) -> Result<CUresult, FallbackReason> {
    // It could begin before its table is written.
    if shape.overlaps {
        return Err(FallbackReason::Overlap);
    }
    let stream = stream.ok_or(FallbackReason::Graph)?;
    let on = (stream.key(), Stream(stream.handle()));
    let table = tables.table(&agent.driver, on, words);
    Ok(table.ok_or(FallbackReason::Record)?.launch(run))
}

/// Tells the user once if launches were made without the arguments that programs need.
pub(crate) fn tell_refused(agent: &Agent) {
    let Some(Ok(sanitizer)) = &*lock(&SUBSCRIBED) else {
        return;
    };
    if let Some(error) = sanitizer.refused() {
        let text = format!("Compute Sanitizer: programs did not run in some launches: {error}");
        agent.note(NoteLevel::Warning, text);
    }
}

type Said = (NoteLevel, String, Option<&'static Sanitizer>);

fn what_to_say(
    subscribed: Option<Result<&'static Sanitizer, SanitizerError>>,
    spliced: bool,
) -> Said {
    let without = match spliced {
        true => "kernels without PTX have programs by `splice` alone",
        false => "kernels without PTX run without probes",
    };
    match subscribed {
        Some(Ok(sanitizer)) => (
            NoteLevel::Info,
            "Compute Sanitizer is in the application: torch.profiler, nsys and whatever else uses CUPTI do not work there".into(),
            Some(sanitizer),
        ),
        Some(Err(error)) => (
            NoteLevel::Warning,
            format!("Compute Sanitizer cannot be used: {error}; {without}"),
            None,
        ),
        None => (
            NoteLevel::Warning,
            format!(
                "Compute Sanitizer is not in the application, where it has to be from the start: start it by `warpbpf run --backend sanitizer` on a GPU, as the soft GPU has none; {without}"
            ),
            None,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_told_why_there_is_none() {
        let said = |subscribed| {
            let (level, text, made) = what_to_say(subscribed, false);
            assert!(made.is_none() && level == NoteLevel::Warning);
            text
        };
        assert_eq!(
            said(Some(Err(SanitizerError::Taken))),
            "Compute Sanitizer cannot be used: another tool subscribed to Compute Sanitizer in this application before; there can be one, run it without that tool; kernels without PTX run without probes"
        );
        assert_eq!(
            said(None),
            "Compute Sanitizer is not in the application, where it has to be from the start: start it by `warpbpf run --backend sanitizer` on a GPU, as the soft GPU has none; kernels without PTX run without probes"
        );
        let (_, text, _) = what_to_say(Some(Err(SanitizerError::Taken)), true);
        assert!(
            text.ends_with("; kernels without PTX have programs by `splice` alone"),
            "{text}"
        );
    }
}
