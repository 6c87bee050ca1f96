//! Hashes on the host (`HostedLayout`): who answers the lanes that ask for keys.
//!
//! No thread is started here. Whoever runs kernels has one that is in [`Calls::keep_serving`];
//! without it calls run out of time, and kernels end all the same.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warpbpf_abi::layout::{HostedLayout, MapLayout};
use warpbpf_abi::maps::{EINVAL, ENOENT};
use warpbpf_maps::hosted::Hosted;

use crate::plan::session::Session;
use crate::runtime::host_memory::HostMemory;
use crate::runtime::host_ops::op::{Action, Answer, HostOp};

/// How long it looks without a pause after a request: kernels that ask, ask again.
const EAGER: Duration = Duration::from_millis(2);
/// How long it then looks at the first interval, before it slows down.
const AWAKE: Duration = Duration::from_secs(2);
/// The pauses of both intervals.
const SHORT: Duration = Duration::from_micros(50);
const LONG: Duration = Duration::from_millis(1);

/// The host's side of all hashes that lie there.
#[derive(Debug)]
pub struct Calls {
    state: Mutex<State>,
    /// Others than who serves that want the lock. Who serves takes it again and again, and lets
    /// them go first.
    others: AtomicU32,
}

#[derive(Debug)]
struct State {
    maps: Vec<Served>,
    /// The memory has gone with its context.
    closed: bool,
}

#[derive(Debug)]
struct Served {
    map: usize,
    sizes: (usize, usize),
    memory: HostMemory,
    hosted: Hosted,
}

/// While it lives nobody is served. See [`Calls::pause`].
#[derive(Debug)]
pub struct Pause<'a>(MutexGuard<'a, State>);

impl Pause<'_> {
    /// The memory is no more, or soon will not be: nobody will be served again.
    pub fn close(mut self) {
        self.0.closed = true;
    }
}

impl Calls {
    /// `None` if no map of the session is served. `memories` are those of the maps on the host,
    /// whose first contents are there.
    pub(crate) fn new(session: &Session, memories: &[Option<HostMemory>]) -> Option<Calls> {
        let plans = session.maps().iter().enumerate().zip(memories);
        let maps: Vec<Served> = plans
            .filter_map(|((map, plan), memory)| {
                let (MapLayout::Hosted(layout), Some(memory)) = (plan.layout, memory) else {
                    return None;
                };
                Some(Served {
                    map,
                    sizes: (layout.key_size as usize, layout.value_size as usize),
                    memory: *memory,
                    hosted: Hosted::new(layout, memory),
                })
            })
            .collect();
        let closed = false;
        (!maps.is_empty()).then(|| Calls {
            state: Mutex::new(State { maps, closed }),
            others: AtomicU32::new(0),
        })
    }

    /// For others than who serves.
    fn state(&self) -> MutexGuard<'_, State> {
        self.others.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock();
        self.others.fetch_sub(1, Ordering::Relaxed);
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers requests until there will be none any more ([`Pause::close`]).
    pub fn keep_serving(&self) {
        let mut asked = Instant::now();
        while let Some(served) = self.serve() {
            if served != 0 {
                asked = Instant::now();
                continue;
            }
            match asked.elapsed() {
                idle if idle < EAGER => std::hint::spin_loop(),
                idle if idle < AWAKE => std::thread::sleep(SHORT),
                _ => std::thread::sleep(LONG),
            }
        }
    }

    /// Answers every request that is there; how many there were, or `None` if there will be none
    /// any more.
    fn serve(&self) -> Option<usize> {
        while self.others.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return None;
        }
        let serve = |served: &mut Served| served.hosted.serve(&served.memory);
        Some(state.maps.iter_mut().map(serve).sum())
    }

    /// Keeps everybody from serving until the result is dropped.
    pub fn pause(&self) -> Pause<'_> {
        Pause(self.state())
    }

    /// Does operations of the host on map `map`; `None` if it is not served.
    pub(crate) fn host_ops(&self, map: usize, ops: &[HostOp]) -> Option<Vec<Answer>> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        let served = state.maps.iter_mut().find(|served| served.map == map)?;
        Some(ops.iter().map(|op| served.operate(op)).collect())
    }
}

impl Served {
    fn operate(&mut self, op: &HostOp) -> Answer {
        let (hosted, words) = (&mut self.hosted, &self.memory);
        let (key_size, value_size) = self.sizes;
        let value = if op.action == Action::Update {
            value_size
        } else {
            0
        };
        if op.key.len() != key_size || op.value.len() != value {
            return Err(EINVAL);
        }
        match op.action {
            Action::Lookup => hosted.lookup(words, &op.key).ok_or(ENOENT),
            Action::Update => hosted
                .update(words, &op.key, &op.value, op.flags)
                .map(|()| Vec::new()),
            Action::Delete => hosted.delete(words, &op.key).map(|()| Vec::new()),
            Action::LookupAndDelete => {
                let value = hosted.lookup(words, &op.key).ok_or(ENOENT)?;
                hosted.delete(words, &op.key)?;
                Ok(value)
            }
            Action::Push | Action::Pop | Action::Peek | Action::Words => Err(EINVAL),
        }
    }
}

/// First contents of the control block of a map whose host block has this address on the device.
pub(crate) fn control(session: &Session, address: u64) -> Vec<u8> {
    let mut bytes = vec![0; HostedLayout::CONTROL_BYTES as usize];
    let mut put = |at: u64, word: u64| {
        bytes[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
    };
    put(HostedLayout::HOST, address);
    put(HostedLayout::LIMIT, session.call_limit_ns());
    bytes
}
