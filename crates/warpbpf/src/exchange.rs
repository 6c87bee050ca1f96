//! Programs exchanged while an application runs: another object in place of the one that is in its kernels, one more, or one
//! less, at one moment for all its threads.

use std::time::Duration;

use warpbpf_object::MapDef;
use warpbpf_wire::{Changed, MapInfo, Options, ToAgent};

use crate::map::untyped_map;
use crate::parties::OWN;
use crate::state::Answer;
use crate::{Error, Object, Process};

/// How long an exchange may take, where nobody says: code of every kernel is compiled, and loaded while none runs.
pub const EXCHANGE_LIMIT: Duration = Duration::from_secs(30);
/// How much longer than its limit the agent may take to say so.
const GRACE: Duration = Duration::from_secs(5);

/// What is to become of the programs in an application's kernels.
#[derive(Debug, Clone)]
pub enum Exchange {
    /// Those of this object, and no others.
    Replace(Object),
    /// Those of this object too.
    Add(Object),
    /// All but these, by their C functions' names.
    Remove(Vec<String>),
    /// The same, but in kernels that run those of these names, or all if there is none, go on or are stopped.
    Gate {
        /// They go on.
        open: bool,
        /// Their C functions' names.
        programs: Vec<String>,
    },
    /// The same, and in slots are the programs of this object, and no others.
    Slots(Object),
    /// The same, and nothing is in slots.
    Clear,
    /// Those of this object too, for a second tool: its maps are its own, whatever they are called.
    Join {
        /// The number of the second tool, which no other has or had.
        guest: u32,
        /// The object.
        object: Object,
        /// How its programs are proved and which launches they are in.
        options: Box<Options>,
    },
    /// All but those of a second tool.
    Leave {
        /// Its number.
        guest: u32,
    },
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchanged {
    /// How many sets of programs the application has had, with this one. Launches are counted by it ([`KernelInfo::generations`](crate::KernelInfo::generations)).
    pub generation: u64,
    /// The programs that are in its kernels now.
    pub programs: Vec<String>,
    /// Kernels that programs want and that run without, and why: names for people.
    pub without: Vec<(String, String)>,
    /// The programs that are in slots.
    pub slots: Vec<String>,
}

impl Exchange {
    fn change(&self) -> warpbpf_wire::Change {
        match self {
            Exchange::Replace(_) => warpbpf_wire::Change::Replace,
            Exchange::Add(_) => warpbpf_wire::Change::Add,
            Exchange::Remove(programs) => warpbpf_wire::Change::Remove {
                programs: programs.clone(),
            },
            Exchange::Gate { open, programs } => warpbpf_wire::Change::Gate {
                open: *open,
                programs: programs.clone(),
            },
            Exchange::Slots(_) => warpbpf_wire::Change::Slots,
            Exchange::Clear => warpbpf_wire::Change::Clear,
            Exchange::Join { guest, options, .. } => warpbpf_wire::Change::Join {
                guest: *guest,
                options: options.clone(),
            },
            Exchange::Leave { guest } => warpbpf_wire::Change::Leave { guest: *guest },
        }
    }

    pub(crate) fn object(&self) -> Option<&Object> {
        match self {
            Exchange::Replace(object)
            | Exchange::Add(object)
            | Exchange::Slots(object)
            | Exchange::Join { object, .. } => Some(object),
            Exchange::Remove(_)
            | Exchange::Gate { .. }
            | Exchange::Clear
            | Exchange::Leave { .. } => None,
        }
    }
}

impl Process {
    /// Puts the programs of another object into its kernels in place of those that are there. When this returns, the next launch
    /// on any thread has them; until then launches have the old ones. A map that the new object declares as the old one did stays, with its contents,
    /// and others that it declares are made.
    ///
    /// # Errors
    /// [`Error::Exchange`] and nothing has changed; [`Error::Ended`], [`Error::NoAnswer`].
    pub fn replace(&self, object: &Object) -> Result<Exchanged, Error> {
        self.exchange(&Exchange::Replace(object.clone()), EXCHANGE_LIMIT)
    }

    /// Puts the programs of one more object into its kernels. Maps of the same name are the same map, and
    /// others are made.
    ///
    /// # Errors
    /// As [`Process::replace`].
    pub fn add(&self, object: &Object) -> Result<Exchanged, Error> {
        self.exchange(&Exchange::Add(object.clone()), EXCHANGE_LIMIT)
    }

    /// Takes programs out of its kernels, by their C functions' names. Their maps stay, to be read.
    ///
    /// # Errors
    /// As [`Process::replace`].
    pub fn remove(&self, programs: &[&str]) -> Result<Exchanged, Error> {
        let programs = programs.iter().map(|name| (*name).to_owned());
        self.exchange(&Exchange::Remove(programs.collect()), EXCHANGE_LIMIT)
    }

    /// Stops programs in its kernels, or lets them go on, by their C functions' names or all at once: when this returns, no site that is reached from then on runs one, or
    /// each does, in kernels that were launched long ago too. Nothing is loaded, so kernels may run for ever. [`Options::gate`](crate::Options::gate) must have been
    /// asked for.
    ///
    /// # Errors
    /// [`Error::Exchange`]: no gate was asked for, there is no such program, or the device cannot be told; [`Error::Ended`], [`Error::NoAnswer`].
    pub fn gate(&self, open: bool, programs: &[&str]) -> Result<(), Error> {
        let programs = programs.iter().map(|name| (*name).to_owned()).collect();
        let exchange = Exchange::Gate { open, programs };
        self.exchange(&exchange, EXCHANGE_LIMIT).map(drop)
    }

    /// Puts the programs of an object into slots of its kernels, in place of those that are there: when this returns, a site that is reached
    /// from then on runs them, in kernels that were launched long ago too. They are interpreted on the device, so nothing is loaded, and kernels may run for
    /// ever. A slot is where a program is, or was, of the same section; [`Options::slots`](crate::Options::slots) must have been asked for.
    ///
    /// # Errors
    /// [`Error::Exchange`] and nothing has changed: no slots were asked for, there is none for a program, it cannot be interpreted, or kernels
    /// still run what was there before the last ones (`-EBUSY`); [`Error::Ended`], [`Error::NoAnswer`].
    pub fn put_in_slots(&self, object: &Object) -> Result<Exchanged, Error> {
        self.exchange(&Exchange::Slots(object.clone()), EXCHANGE_LIMIT)
    }

    /// Takes out what is in slots.
    ///
    /// # Errors
    /// As [`Process::put_in_slots`].
    pub fn clear_slots(&self) -> Result<(), Error> {
        self.exchange(&Exchange::Clear, EXCHANGE_LIMIT).map(drop)
    }

    /// An exchange with a limit of its own. Code is loaded while no kernel runs: if there is no such moment within it, the old
    /// programs stay.
    ///
    /// # Errors
    /// As [`Process::replace`].
    pub fn exchange(&self, exchange: &Exchange, limit: Duration) -> Result<Exchanged, Error> {
        let token = self.begin_exchange(exchange, limit)?;
        let answer = self.await_answer(token, limit + GRACE)?;
        self.exchanged(exchange, answer)
    }

    /// The same without waiting: the request's number.
    pub(crate) fn begin_exchange(
        &self,
        exchange: &Exchange,
        limit: Duration,
    ) -> Result<u64, Error> {
        if let Some(token) = self.begin_with_functions(exchange, limit)? {
            return Ok(token);
        }
        let message = |token| exchange_message(exchange, token, limit);
        self.begin(message, exchange.object().map_or(&[][..], Object::bytes))
    }

    /// Takes in what became of an exchange.
    pub(crate) fn exchanged(
        &self,
        exchange: &Exchange,
        answer: Answer,
    ) -> Result<Exchanged, Error> {
        let changed = match answer {
            Answer::Changed(changed) => *changed,
            Answer::Waiting | Answer::Snapshotted | Answer::MapOps { .. } => {
                return Err(self.no_answer());
            }
        };
        if let Some(refusal) = changed.refused {
            return Err(Error::Exchange {
                pid: self.pid(),
                message: refusal.message,
                errno: refusal.errno,
            });
        }
        self.lock().merge(exchange, &changed);
        Ok(Exchanged {
            generation: changed.generation,
            programs: changed.programs.into_iter().map(|p| p.name).collect(),
            without: changed.without,
            slots: changed.slots,
        })
    }
}

pub(crate) fn exchange_message(exchange: &Exchange, token: u64, limit: Duration) -> ToAgent {
    ToAgent::Change {
        token,
        change: exchange.change(),
        limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
    }
}

impl crate::state::State {
    /// The object that tells of all programs and maps that there are and were.
    fn merge(&mut self, exchange: &Exchange, changed: &Changed) {
        let new = match exchange {
            Exchange::Replace(new) | Exchange::Add(new) => new,
            Exchange::Join { .. } => {
                self.object = self.object.take().map(|old| beside(&old, &changed.maps));
                return;
            }
            Exchange::Remove(_)
            | Exchange::Gate { .. }
            | Exchange::Slots(_)
            | Exchange::Clear
            | Exchange::Leave { .. } => {
                return;
            }
        };
        self.object = Some(match self.object.take() {
            Some(old) => merged(&old, exchange, &changed.maps),
            None => new.clone(),
        });
    }
}

/// Definitions of all maps by number. Types are those of one of the two objects: of a map of the other the bytes are shown.
fn merged(old: &Object, exchange: &Exchange, maps: &[MapInfo]) -> Object {
    let (new, replaces) = match exchange {
        Exchange::Replace(new) => (new, true),
        Exchange::Add(new) => (new, false),
        Exchange::Remove(_)
        | Exchange::Gate { .. }
        | Exchange::Slots(_)
        | Exchange::Clear
        | Exchange::Join { .. }
        | Exchange::Leave { .. } => {
            return old.clone();
        }
    };
    let was = &old.parsed().maps;
    let of_new = |name: &str| {
        // A section of the same name that is another one has the number of its programs in its name.
        let name = name.split_once('@').map_or(name, |(name, _)| name);
        new.parsed().map(name).map(|(_, def)| def.clone())
    };
    let came: Vec<&str> = maps
        .iter()
        .skip(was.len())
        .map(|map| map.name.as_str())
        .collect();
    let definition = |(number, info): (usize, &MapInfo)| match was.get(number) {
        known if info.guest != OWN => known.cloned().unwrap_or_else(|| untyped_map(info)),
        // It is the old one, though the new object may have another of this name.
        Some(def) => {
            let again = came
                .iter()
                .any(|name| name.split('@').next() == Some(&def.name));
            match of_new(&info.name).filter(|_| replaces && !again) {
                Some(new_def) => new_def,
                None if replaces => untyped(def.clone()),
                None => def.clone(),
            }
        }
        None => match of_new(&info.name) {
            Some(def) if replaces => def,
            Some(def) => untyped(def),
            None => untyped_map(info),
        },
    };
    let base = if replaces { new } else { old };
    let mut parsed = base.parsed().clone();
    parsed.maps = maps.iter().enumerate().map(definition).collect();
    if !replaces {
        parsed
            .programs
            .extend(new.parsed().programs.iter().cloned());
    }
    Object::from_parsed(base.name(), base.bytes(), parsed)
}

/// An object, and maps of second tools behind its own: of those the bytes are shown.
fn beside(old: &Object, maps: &[MapInfo]) -> Object {
    let mut parsed = old.parsed().clone();
    let known = parsed.maps.len();
    parsed.maps.extend(maps.iter().skip(known).map(untyped_map));
    Object::from_parsed(old.name(), old.bytes(), parsed)
}

fn untyped(mut def: MapDef) -> MapDef {
    (def.key_type, def.value_type) = (None, None);
    def
}
