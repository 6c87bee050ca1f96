//! What a chore or a suite prints. Where nobody reads any more it goes on, so that what it has
//! begun is ended; its status says that output is missing. Programs under `tests/` have this file,
//! too.

use std::fmt::Arguments;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

static LOST: AtomicBool = AtomicBool::new(false);

/// To standard output, 1, or standard error, 2.
pub fn write(stream: u8, text: Arguments<'_>) {
    let written = match stream {
        1 => {
            let mut out = std::io::stdout().lock();
            out.write_fmt(text).and_then(|()| out.flush())
        }
        _ => std::io::stderr().lock().write_fmt(text),
    };
    if written.is_err() {
        LOST.store(true, Ordering::Relaxed);
    }
}

/// The status at the end: never success if output was lost.
pub fn status(status: ExitCode) -> ExitCode {
    match LOST.load(Ordering::Relaxed) && status == ExitCode::SUCCESS {
        true => ExitCode::from(125),
        false => status,
    }
}

/// A line to standard output.
macro_rules! say {
    ($($words:tt)*) => { $crate::say::write(1, format_args!("{}\n", format_args!($($words)*))) };
}
