//! `warpbpf report`: a saved report, shown again.

use crate::flags::ReportFlags;
use crate::report::model::{Report, VERSION};
use crate::report::render;
use crate::term::error::{CliError, read};
use crate::term::output::say;

/// Prints the tables of a saved report to standard output.
pub fn run(flags: &ReportFlags) -> Result<u8, CliError> {
    let path = flags.file.display().to_string();
    let report: Report =
        serde_json::from_slice(&read(&flags.file)?).map_err(|e| CliError::NotAReport {
            path: path.clone(),
            reason: e.to_string(),
        })?;
    if report.version != VERSION {
        let reason = format!(
            "it has version {}, this command reads {VERSION}",
            report.version
        );
        return Err(CliError::NotAReport { path, reason });
    }
    let report = match flags.per_device {
        true => report.per_device(),
        false => report,
    };
    say(&render::report(&report, flags.rows));
    Ok(0)
}
