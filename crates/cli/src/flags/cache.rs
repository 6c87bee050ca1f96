//! Flags about compiled code that is kept from one run to the next.

use clap::{Args, Subcommand};
use warpbpf_tool::CacheRequest;

use super::choice::size;

/// Where it is kept, for verbs that compile.
#[derive(Debug, Clone, Default, Args)]
pub struct KeepFlags {
    /// Keep compiled code for the next run: in this folder, or in `warpbpf` of the application's
    /// cache folder (XDG_CACHE_HOME, ~/.cache): `on`. If not said, what WARPBPF_CACHE says in the
    /// application's environment, else `off`
    #[arg(long, value_name = "FOLDER|on|off", value_parser = folder)]
    pub cache: Option<String>,
    /// Most that it may have there: bytes, or with `K`, `M` or `G`; 512M if not said. What was not
    /// used for longest goes
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub cache_size: Option<u64>,
}

impl KeepFlags {
    /// As the agent takes them.
    pub fn request(&self) -> Option<CacheRequest> {
        let request = CacheRequest {
            place: self.cache.clone(),
            bytes: self.cache_size,
        };
        (request != CacheRequest::default()).then_some(request)
    }
}

/// `warpbpf cache`
#[derive(Debug, Args)]
pub struct CacheFlags {
    /// What to do; `list` if nothing is said
    #[command(subcommand)]
    pub action: Option<CacheAction>,
    /// The folder, if it is not that of WARPBPF_CACHE or your cache folder's `warpbpf`
    #[arg(long, global = true, value_name = "FOLDER", value_parser = folder)]
    pub cache: Option<String>,
    /// JSON instead of a table
    #[arg(long, global = true)]
    pub json: bool,
}

/// What can be done with entries.
#[derive(Debug, Clone, Subcommand)]
pub enum CacheAction {
    /// List them, the one that was used last first
    List,
    /// Check each of them and take damaged ones away; exit status 1 if there were some
    Verify,
    /// Take all away
    Clear,
    /// Take those away that were not used for longest
    Prune {
        /// What may stay: bytes, or with `K`, `M` or `G`
        #[arg(long, value_name = "SIZE", value_parser = size)]
        cache_size: u64,
    },
}

/// Applications have working directories of their own.
fn folder(text: &str) -> Result<String, String> {
    if matches!(text, "on" | "off") {
        return Ok(text.to_owned());
    }
    let path = std::path::absolute(text).map_err(|_| "write a folder, `on` or `off`".to_owned())?;
    let path = path.into_os_string().into_string();
    path.map_err(|_| "the folder's name must be UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::folder;

    #[test]
    fn a_folder_is_made_absolute() {
        assert_eq!(folder("off"), Ok("off".into()));
        assert_eq!(folder("on"), Ok("on".into()));
        assert_eq!(folder("/a/b"), Ok("/a/b".into()));
        let here = std::env::current_dir().unwrap().join("c");
        assert_eq!(folder("c"), Ok(here.display().to_string()));
        assert_eq!(folder(""), Err("write a folder, `on` or `off`".into()));
    }
}
