//! `warpbpf link`: several objects become one.

use serde_json::json;

use crate::flags::LinkFlags;
use crate::term::destination::Destination;
use crate::term::error::{CliError, read};
use crate::term::output::say;

/// Links objects into a file.
pub fn run(flags: &LinkFlags) -> Result<u8, CliError> {
    let files: Vec<(String, Vec<u8>)> = flags
        .objects
        .iter()
        .map(|path| Ok((path.display().to_string(), read(path)?)))
        .collect::<Result<_, CliError>>()?;
    let objects: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
        .collect();
    let path = flags.output.display().to_string();
    let linked = warpbpf_object::link(&objects).map_err(|error| CliError::Refused {
        path: path.clone(),
        message: error.to_string(),
    })?;
    // An object that is there stays until this one is whole.
    Destination::check(&flags.output)?.write(&linked)?;
    if flags.json {
        let row = json!({ "ok": true, "output": path, "bytes": linked.len() });
        say(&format!("{row}\n"));
    }
    Ok(0)
}
