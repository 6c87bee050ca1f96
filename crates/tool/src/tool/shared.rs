//! What a tool's thread and its handles share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use warpbpf_wire::{CacheRequest, Listener, MapOp, Options};

use crate::control::Server;
use crate::handles::process::Process;
use crate::heard::functions::Assembler;
use crate::object::Object;
use crate::tool::handshakes::Handshakes;

/// How long an agent that came into a running process may take until it sees all launches.
pub(crate) const ATTACHED: Duration = Duration::from_secs(10);
pub(crate) type Begin = dyn Fn(u64, &mut dyn FnMut(&str, &[MapOp<'_>])) + Send + Sync;

/// What the maps of an application begin with.
pub(crate) struct Beginning(pub(crate) Box<Begin>);

impl std::fmt::Debug for Beginning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Beginning")
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// Before the listener, whose folder its socket is in.
    pub(crate) server: Mutex<Option<Server>>,
    pub(crate) listener: Listener,
    pub(crate) object: Option<Object>,
    pub(crate) options: Options,
    pub(crate) presets: Mutex<Vec<(String, Vec<u8>)>>,
    pub(crate) beginning: OnceLock<Beginning>,
    pub(crate) numbers: AtomicU64,
    pub(crate) assembler: OnceLock<Assembler>,
    pub(crate) cache: Mutex<Option<CacheRequest>>,
    pub(crate) processes: Mutex<Vec<Process>>,
    pub(crate) command: Mutex<Vec<String>>,
    pub(crate) handshakes: Handshakes,
    /// How long other tools may take to answer.
    pub(crate) patience: Mutex<Duration>,
    /// Why an application could not be let in.
    pub(crate) deaf: Mutex<Option<String>>,
    pub(crate) ends: AtomicBool,
}

impl Shared {
    /// The number of an application that comes.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}
