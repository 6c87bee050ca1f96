//! Operations of the tool on live maps, one batch after the other, beside all else that the control
//! thread does: it looks in again and again until the device has done one, and never waits for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpbpf_abi::maps::EIO;
use warpbpf_maps::merge;
use warpbpf_session::{Action, Answer, HostOp, HostOpsError, PresetError, Progress, Session};
use warpbpf_wire::{MapOp, OpCode, OpsError, Outcome, decode_ops, encode_outcomes};

use crate::device::context_registry::ContextRegistry;
use crate::device::spread::{Each, Spread};

/// How long the thread asks without a pause: a kernel that finds room is done by then.
const EAGER: Duration = Duration::from_micros(300);
/// Batches that wait; a tool that asks faster than it is answered has lost its way.
const MOST: usize = 1024;

/// Most bytes that one batch may be answered with: beside it, everything else that the agent says
/// has to find room on the way to the tool.
const ANSWER: u64 = 32 << 20;

/// A batch of the tool.
#[derive(Debug)]
struct Request {
    token: u64,
    map: u32,
    blob: Vec<u8>,
}

/// What the tool is answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) token: u64,
    pub(crate) error: Option<String>,
    pub(crate) blob: Vec<u8>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    waiting: VecDeque<Request>,
    /// The one that the devices are doing, and its token.
    active: Option<(u64, Spread)>,
}

impl Requests {
    /// Takes a batch in; answered at once if there are too many already.
    pub(crate) fn push(&mut self, token: u64, map: u32, blob: Vec<u8>) -> Option<Reply> {
        if self.waiting.len() >= MOST || warpbpf_faults::strikes("agent/requests") {
            let error = format!("{MOST} batches of operations wait already");
            return Some(refused(token, error));
        }
        self.waiting.push_back(Request { token, map, blob });
        None
    }

    /// There is something to do.
    pub(crate) fn pending(&self) -> bool {
        self.active.is_some() || !self.waiting.is_empty()
    }

    /// Nothing of it can be done any more.
    pub(crate) fn refuse_all(&mut self, why: &str) -> Vec<Reply> {
        let active = self.active.take().map(|(token, _)| token);
        let waiting = self.waiting.drain(..).map(|request| request.token);
        let tokens = active.into_iter().chain(waiting);
        tokens.map(|token| refused(token, why.to_owned())).collect()
    }

    /// Does what can be done now, until there is `room` bytes of replies or more. `None` if no
    /// context has maps; then nothing was done.
    pub(crate) fn turn(
        &mut self,
        each: &mut Each<'_>,
        context_registry: &ContextRegistry,
        room: usize,
    ) -> Option<Vec<Reply>> {
        let mut contexts = 0;
        each(&mut |_, _, _| contexts += 1);
        if contexts == 0 {
            return None;
        }
        let mut replies: Vec<Reply> = Vec::new();
        let end = Instant::now() + EAGER;
        loop {
            if replies.iter().map(|reply| reply.blob.len()).sum::<usize>() >= room {
                return Some(replies);
            }
            let (token, mut spread) = match (self.active.take(), self.waiting.pop_front()) {
                (Some(active), next) => {
                    // The order of requests is kept.
                    if let Some(next) = next {
                        self.waiting.push_front(next);
                    }
                    active
                }
                (None, None) => return Some(replies),
                (None, Some(request)) => match begin(each, context_registry, &request) {
                    Ok(Begun::Spread(spread)) => (request.token, spread),
                    Ok(Begun::Done(answer)) => {
                        replies.push(done(request.token, vec![answer]));
                        continue;
                    }
                    Err(error) => {
                        replies.push(refused(request.token, error.to_string()));
                        continue;
                    }
                },
            };
            match spread.turn(each, context_registry, false) {
                Some(Progress::Done(answers)) => replies.push(done(token, answers)),
                Some(Progress::Waiting) => {
                    self.active = Some((token, spread));
                    if Instant::now() > end {
                        return Some(replies);
                    }
                    std::hint::spin_loop();
                }
                None => {
                    let error = "the contexts of the maps were destroyed meanwhile";
                    replies.push(refused(token, error.to_owned()));
                    return Some(replies);
                }
            }
        }
    }
}

fn done(token: u64, answers: Vec<Answer>) -> Reply {
    let outcomes: Vec<Outcome> = answers.into_iter().map(outcome).collect();
    Reply {
        token,
        error: None,
        blob: encode_outcomes(&outcomes),
    }
}

fn refused(token: u64, error: String) -> Reply {
    Reply {
        token,
        error: Some(error),
        blob: Vec::new(),
    }
}

fn outcome(answer: Answer) -> Outcome {
    match answer {
        Ok(bytes) => Outcome::done(bytes),
        // Error numbers are small.
        Err(errno) => Outcome::failed(errno as i32),
    }
}

/// A request that was understood.
enum Begun {
    Done(Answer),
    Spread(Spread),
}

/// Why a request is not begun. `Display` is the whole answer to the tool.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("{0}")]
    Ops(#[from] OpsError),
    #[error("{0}")]
    Preset(#[from] PresetError),
    #[error("there are no maps")]
    NoMaps,
    #[error("a snapshot stands alone in its batch")]
    Snapshot,
    #[error("a snapshot is no update")]
    PresetSnapshot,
    #[error("the host cannot do this: {0}")]
    Refused(HostOpsError),
    #[error("map {map} does not exist: the session has {maps}")]
    NoMap { map: usize, maps: usize },
    #[error(
        "map {map} came when programs were replaced, and a context has the first {fewest} maps only: nothing can be done on it"
    )]
    NotEverywhere { map: usize, fewest: usize },
    #[error(
        "the answer to {ops} operations can take {bytes} bytes, the limit is {ANSWER}: ask for fewer values at a time, or for a snapshot of the map"
    )]
    Answer { ops: usize, bytes: u64 },
}

fn begin(
    each: &mut Each<'_>,
    context_registry: &ContextRegistry,
    request: &Request,
) -> Result<Begun, RequestError> {
    let ops = decode_ops(&request.blob)?;
    let map = request.map as usize;
    let (mut session, mut fewest) = (None, usize::MAX);
    each(&mut |_, _, live| {
        let adopted = live.adopted();
        fewest = fewest.min(adopted.map_count());
        let newer = |session: &Arc<Session>| session.generation() < adopted.generation();
        if session.as_ref().is_none_or(newer) {
            session = Some(adopted);
        }
    });
    let session = session.ok_or(RequestError::NoMaps)?;
    check_map(map, session.map_count(), fewest)?;
    if let [MapOp { code, .. }] = ops.as_slice()
        && *code == OpCode::Snapshot
    {
        let mut answers: Vec<Answer> = Vec::new();
        each(&mut |_, pump, live| answers.push(pump.snapshot_one(live, map)));
        // The first context's number of copies, unless one cannot be made.
        answers.sort_by_key(Result::is_ok);
        let answer = answers.into_iter().next().unwrap_or(Err(EIO));
        return Ok(Begun::Done(answer));
    }
    let ops = ops.iter().map(host_op).collect::<Option<Vec<HostOp>>>();
    let ops = ops.ok_or(RequestError::Snapshot)?;
    let (mut why, mut values) = (None, 0u64);
    // Values that stand side by side have a part for each context up to the last, those included
    // that have ended.
    let side_by_side = merge::is_side_by_side(&session.maps()[map]);
    let ended = context_registry
        .ended()
        .iter()
        .map(|ended| ended.number)
        .max();
    let mut before = ended.map_or(0, |number| u64::from(number) + 1);
    each(&mut |number, _, live| {
        if live.adopted().map_count() <= map {
            return;
        }
        why = why.take().or_else(|| live.host_ops_refused(map, &ops));
        let own = live.host_answer_bytes(map, &ops);
        before = before.max(u64::from(number) + 1);
        values = match side_by_side {
            true => own.saturating_mul(before),
            false => values.saturating_add(own),
        };
    });
    if let Some(error) = why {
        return Err(RequestError::Refused(error));
    }
    let others = encode_outcomes(&[Outcome::default()]).len() as u64 * ops.len() as u64;
    check_answer(values.saturating_add(others), ops.len())?;
    Ok(Begun::Spread(Spread::new(session, map, ops)))
}

/// A map is there in every context: one that a replacement brought may be missing where it could
/// not be made.
fn check_map(map: usize, maps: usize, fewest: usize) -> Result<(), RequestError> {
    if map >= maps {
        return Err(RequestError::NoMap { map, maps });
    }
    if map >= fewest {
        return Err(RequestError::NotEverywhere { map, fewest });
    }
    Ok(())
}

/// Refuses a batch before anything of it is done: an answer that cannot be sent would lose what was
/// taken out.
fn check_answer(bytes: u64, ops: usize) -> Result<(), RequestError> {
    match bytes <= ANSWER {
        true => Ok(()),
        false => Err(RequestError::Answer { ops, bytes }),
    }
}

/// The session with the first contents of its maps as the tool wants them, or why that cannot be.
pub(crate) fn preset(
    mut session: Session,
    presets: &[(String, Vec<u8>)],
) -> Result<Session, RequestError> {
    for (map, blob) in presets {
        let ops = decode_ops(blob)?;
        let ops = ops.iter().map(host_op).collect::<Option<Vec<HostOp>>>();
        let ops = ops.ok_or(RequestError::PresetSnapshot)?;
        session.preset(map, &ops)?;
    }
    Ok(session)
}

/// `None` for a snapshot, which is none.
fn host_op(op: &MapOp<'_>) -> Option<HostOp> {
    let action = match op.code {
        OpCode::Lookup => Action::Lookup,
        OpCode::Update => Action::Update,
        OpCode::Delete => Action::Delete,
        OpCode::Push => Action::Push,
        OpCode::Pop => Action::Pop,
        OpCode::Peek => Action::Peek,
        OpCode::LookupAndDelete => Action::LookupAndDelete,
        OpCode::Words => Action::Words,
        OpCode::Snapshot => return None,
    };
    Some(HostOp {
        action,
        flags: op.flags,
        key: op.key.to_vec(),
        value: op.value.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_too_long_are_refused_beforehand() {
        check_answer(32 << 20, 4).unwrap();
        assert_eq!(
            check_answer((32 << 20) + 8, 4).unwrap_err().to_string(),
            "the answer to 4 operations can take 33554440 bytes, the limit is 33554432: ask for fewer values at a time, or for a snapshot of the map"
        );
    }

    #[test]
    fn maps_that_not_every_context_has_are_refused() {
        check_map(1, 3, 2).unwrap();
        assert_eq!(
            check_map(2, 3, 2).unwrap_err().to_string(),
            "map 2 came when programs were replaced, and a context has the first 2 maps only: nothing can be done on it"
        );
        assert_eq!(
            check_map(3, 3, 2).unwrap_err().to_string(),
            "map 3 does not exist: the session has 3"
        );
    }

    #[test]
    fn a_tool_that_asks_too_much_is_told() {
        let mut requests = Requests::default();
        for token in 0..MOST as u64 {
            assert_eq!(requests.push(token, 0, Vec::new()), None);
        }
        let reply = requests.push(7777, 0, Vec::new()).unwrap();
        assert_eq!(
            (reply.token, reply.error.as_deref()),
            (7777, Some("1024 batches of operations wait already"))
        );
        assert!(requests.pending());
        let refused = requests.refuse_all("it is over");
        assert_eq!(refused.len(), MOST);
        assert_eq!(refused[3].token, 3);
        assert_eq!(refused[3].error.as_deref(), Some("it is over"));
        assert!(!requests.pending());
    }
}
