//! All tools of this user asked at once: one that is stopped or stuck is waited for once, not one
//! after the other, and is known by its number then.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::ask::{Control, unexpected};
use super::protocol::{Reply, Request, SessionInfo};

/// How long tools may take to say what they have, where nobody says: longer than one of them is
/// busy with another's question.
pub const TOOL_PATIENCE: Duration = Duration::from_secs(5);
/// How long one may take that has not answered before.
const BRIEFLY: Duration = Duration::from_millis(10);
/// Between two looks at all of them.
const TICK: Duration = Duration::from_millis(2);

/// A tool that has answered.
#[derive(Debug)]
pub struct Answered {
    /// To ask it more.
    pub control: Control,
    /// What it has.
    pub session: SessionInfo,
    /// The object file.
    pub object: Vec<u8>,
}

/// What a tool has, and its object file.
type Has = (SessionInfo, Vec<u8>);

/// What became of the question.
#[derive(Debug, Default)]
pub struct Asked {
    /// Those that have answered, in the order of their sockets.
    pub answered: Vec<Answered>,
    /// Processes of those that have not.
    pub silent: Vec<u32>,
    /// How long they were waited for.
    pub patience: Duration,
}

impl Asked {
    /// A sentence about those that have not answered, if there are any.
    pub fn silence(&self) -> Option<String> {
        let all: Vec<String> = self.silent.iter().map(u32::to_string).collect();
        let of = match all.len() {
            0 => return None,
            1 => "the tool of process",
            _ => "the tools of processes",
        };
        Some(format!(
            "{of} {} did not answer within {} s, and what is there is not known: `kill -CONT` lets one that is stopped go on",
            all.join(", "),
            self.patience.as_secs_f64()
        ))
    }
}

/// Who asks again and again, and waits for a tool that says nothing once.
#[derive(Debug, Default)]
pub(crate) struct Asker {
    silent: HashSet<PathBuf>,
}

impl Asker {
    /// As [`Control::ask_all`].
    pub(crate) fn ask(&mut self, patience: Duration, goes_on: &dyn Fn() -> bool) -> Asked {
        let begun = Instant::now();
        let all = Control::find().into_iter();
        // One that ends meanwhile has nothing.
        let asked = all.filter_map(|mut control| control.begin().ok().map(|()| (control, None)));
        let mut asked: Vec<(Control, Option<Has>)> = asked.collect();
        loop {
            asked.retain_mut(|(control, answer)| {
                answer.is_some() || control.hear().map(|heard| *answer = heard).is_ok()
            });
            let took = begun.elapsed();
            let waits = asked.iter().any(|(control, answer)| {
                let known = self.silent.contains(control.path());
                answer.is_none() && took < if known { BRIEFLY } else { patience }
            });
            if !waits || !goes_on() {
                break;
            }
            std::thread::sleep(TICK);
        }
        let mut all = Asked {
            patience,
            ..Asked::default()
        };
        for (control, answer) in asked {
            match answer {
                Some((session, object)) => {
                    self.silent.remove(control.path());
                    all.answered.push(Answered {
                        control,
                        session,
                        object,
                    });
                }
                None => {
                    self.silent.insert(control.path().to_owned());
                    all.silent.extend(control.tool());
                }
            }
        }
        all
    }
}

impl Control {
    /// Asks all tools of this user on this machine what they have. Those that do not say so within
    /// `patience`, or as long as it `goes_on`, are left.
    pub fn ask_all(patience: Duration, goes_on: &dyn Fn() -> bool) -> Asked {
        Asker::default().ask(patience, goes_on)
    }

    /// Its process, if that can be seen from here.
    pub fn tool(&self) -> Option<u32> {
        self.connection.process()
    }

    /// Asks what is in it, without waiting.
    pub(crate) fn begin(&mut self) -> Result<(), crate::error::Error> {
        self.connection.queue(&Request::Session, &[], None)?;
        self.connection.flush()?;
        Ok(())
    }

    /// The answer, if it is there.
    pub(crate) fn hear(&mut self) -> Result<Option<Has>, crate::error::Error> {
        self.connection.flush()?;
        let Some(frame) = self.connection.try_recv()? else {
            return Ok(None);
        };
        match frame.message {
            Reply::Session(session) => Ok(Some((session, frame.blob))),
            other => Err(unexpected(other)),
        }
    }
}
