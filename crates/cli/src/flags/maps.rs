//! Flags of `warpbpf maps`.

use clap::{Args, Subcommand};

/// `warpbpf maps`
#[derive(Debug, Args)]
pub struct MapsFlags {
    /// Only the session with this process id, of the application or of its `warpbpf run`
    #[arg(long, value_name = "PID", global = true)]
    pub pid: Option<u32>,
    /// JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do
    #[command(subcommand)]
    pub verb: MapsVerb,
}

/// What `maps` does. Keys and values are numbers, `hex:…` bytes, or fields by their names: `pid=3
/// config.level=2`.
#[derive(Debug, Subcommand)]
pub enum MapsVerb {
    /// Name the maps of all sessions
    List,
    /// Show everything in a map
    Dump {
        /// Its name
        map: String,
        /// Where an application uses several GPUs, what each has; the JSON has both
        #[arg(long)]
        per_device: bool,
    },
    /// Show the value of a key
    Lookup {
        /// Its name
        map: String,
        /// A number, `hex:…`, `field=value` for each field, or as `dump` shows it
        #[arg(required = true, allow_negative_numbers = true)]
        key: Vec<String>,
    },
    /// Give a key a value
    Update {
        /// Its name
        map: String,
        /// The key in one word: a number, `hex:…`, `field=value,field=value`, or as `dump`
        /// shows it
        #[arg(allow_negative_numbers = true)]
        key: String,
        /// A number, `hex:…`, a whole value as `dump` shows it, or `field=value` for each field
        /// that changes; others stay as they are
        #[arg(required = true, allow_negative_numbers = true)]
        value: Vec<String>,
        /// Only if the key is not there yet
        #[arg(long, conflicts_with = "exist")]
        noexist: bool,
        /// Only if the key is there
        #[arg(long)]
        exist: bool,
    },
    /// Remove a key
    Delete {
        /// Its name
        map: String,
        /// A number, `hex:…`, `field=value` for each field, or as `dump` shows it
        #[arg(required = true, allow_negative_numbers = true)]
        key: Vec<String>,
    },
    /// Add a value to a queue, stack, bloom filter or user ring buffer
    Push {
        /// Its name
        map: String,
        /// A number, `hex:…`, `field=value` for each field, or as `dump` shows it
        #[arg(required = true, allow_negative_numbers = true)]
        value: Vec<String>,
    },
    /// Take the next value out of a queue or stack
    Pop {
        /// Its name
        map: String,
    },
    /// Show the next value of a queue or stack
    Peek {
        /// Its name
        map: String,
    },
    /// Show what changes in a map, until it is interrupted or the application ends
    Watch {
        /// Its name
        map: String,
        /// Seconds between two looks
        #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
        interval: f64,
        /// End after so many looks
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
}
