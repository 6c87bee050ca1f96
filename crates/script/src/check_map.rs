//! What each map is, as far as it is known: what its first uses say, all others must say, too.

use warpbpf_abi::nearest::nearest;

use crate::error::{Problem, ScriptError};
use crate::span::{Span, position};
use crate::typed::{Kind, Map, Type};

/// All maps of a script.
#[derive(Debug, Default)]
pub struct Maps {
    all: Vec<Entry>,
    /// Something new was learned.
    pub learned: bool,
}

#[derive(Debug)]
struct Entry {
    name: String,
    key: Option<(Vec<Type>, Span)>,
    kind: Option<(Kind, Span)>,
    /// Something else than an addition changes it.
    is_set: bool,
}

fn key_name(key: &[Type]) -> String {
    let names: Vec<&str> = key.iter().map(|ty| ty.name()).collect();
    match names.as_slice() {
        [] => "no key".into(),
        names => format!("the key [{}]", names.join(", ")),
    }
}

impl Maps {
    /// The index of a map.
    pub fn index(&mut self, name: &str) -> usize {
        let found = self.all.iter().position(|entry| entry.name == name);
        found.unwrap_or_else(|| {
            self.all.push(Entry {
                name: name.to_owned(),
                key: None,
                kind: None,
                is_set: false,
            });
            self.all.len() - 1
        })
    }

    /// Its name.
    pub fn name(&self, map: usize) -> &str {
        &self.all[map].name
    }

    /// What the keys of the map with this name are, if that is known.
    pub fn keys_of(&self, name: &str) -> Option<&[Type]> {
        let entry = self.all.iter().find(|entry| entry.name == name)?;
        entry.key.as_ref().map(|(key, _)| key.as_slice())
    }

    /// A use says what its keys are.
    ///
    /// # Errors
    /// Another use says something else.
    pub fn key(
        &mut self,
        source: &str,
        map: usize,
        key: &[Type],
        span: Span,
    ) -> Result<(), ScriptError> {
        let entry = &mut self.all[map];
        match &entry.key {
            Some((known, _)) if known == key => Ok(()),
            Some((known, at)) => Err(Problem::MapKey {
                map: entry.name.clone(),
                now: key_name(key),
                before: key_name(known),
                line: position(source, at.start).line,
            }
            .at(span)),
            None => {
                entry.key = Some((key.to_vec(), span));
                self.learned = true;
                Ok(())
            }
        }
    }

    /// A use says what it keeps; `is_set`: by something else than an addition.
    ///
    /// # Errors
    /// Another use says something else.
    pub fn kind(
        &mut self,
        source: &str,
        map: usize,
        kind: Kind,
        is_set: bool,
        span: Span,
    ) -> Result<(), ScriptError> {
        let entry = &mut self.all[map];
        self.learned |= is_set && !entry.is_set;
        entry.is_set |= is_set;
        match entry.kind {
            Some((known, _)) if known == kind => Ok(()),
            Some((known, at)) => Err(Problem::MapKind {
                map: entry.name.clone(),
                now: kind.name(),
                before: known.name(),
                line: position(source, at.start).line,
            }
            .at(span)),
            None => {
                entry.kind = Some((kind, span));
                self.learned = true;
                Ok(())
            }
        }
    }

    /// What a map keeps that is read.
    ///
    /// # Errors
    /// Nobody writes it.
    pub fn read(&self, map: usize, span: Span) -> Result<Kind, ScriptError> {
        let entry = &self.all[map];
        if let Some((kind, _)) = entry.kind {
            return Ok(kind);
        }
        let written = self.all.iter().filter(|entry| entry.kind.is_some());
        let names = written.map(|entry| entry.name.as_str());
        let problem = Problem::NeverWritten {
            map: entry.name.clone(),
            meant: nearest(&entry.name, names).map(str::to_owned),
        };
        Err(problem.at(span))
    }

    /// All of them, when all is known.
    pub fn finish(&self) -> Vec<Map> {
        let map = |entry: &Entry| Map {
            name: entry.name.clone(),
            // One that is only named is refused before.
            kind: entry.kind.map_or(Kind::Count, |(kind, _)| kind),
            key: entry.key.clone().map_or(Vec::new(), |(key, _)| key),
            only_added: !entry.is_set,
        };
        self.all.iter().map(map).collect()
    }
}
