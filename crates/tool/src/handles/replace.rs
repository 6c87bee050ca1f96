//! Programs replaced while an application runs: another object in place of the one that is in its
//! kernels, one more, or one less, at one moment for all its threads.

use std::collections::BTreeMap;
use std::time::Duration;

use warpbpf_object::{Btf, MapDef, TypeId};
use warpbpf_wire::{Changed, MapInfo};

use crate::error::Error;
use crate::handles::process::Process;
use crate::heard::client_views::OWN;
use crate::heard::plan::untyped_map;
use crate::heard::replacement::{Replaced, Replacement};
use crate::heard::state::{Answer, State};
use crate::object::Object;

/// How long a replacement may take, where nobody says: code of every kernel is compiled, and loaded
/// while none runs.
pub const REPLACE_LIMIT: Duration = Duration::from_secs(30);
/// How much longer than its limit the agent may take to say so.
const GRACE: Duration = Duration::from_secs(5);

impl Process {
    /// Puts the programs of another object into its kernels in place of those that are there. When
    /// this returns, the next launch on any thread has them; until then launches have the old ones.
    /// A map that the new object declares as the old one did stays, with its contents, and others
    /// that it declares are made.
    ///
    /// # Errors
    /// [`Error::Replace`] and nothing has changed; [`Error::Ended`], [`Error::NoAnswer`].
    pub fn replace(&self, object: &Object) -> Result<Replaced, Error> {
        self.replace_within(&Replacement::Replace(object.clone()), REPLACE_LIMIT)
    }

    /// Puts the programs of one more object into its kernels. Maps of the same name are the same
    /// map, and others are made.
    ///
    /// # Errors
    /// As [`Process::replace`].
    pub fn add(&self, object: &Object) -> Result<Replaced, Error> {
        self.replace_within(&Replacement::Add(object.clone()), REPLACE_LIMIT)
    }

    /// Takes programs out of its kernels, by their C functions' names. Their maps stay, to be read.
    ///
    /// # Errors
    /// As [`Process::replace`].
    pub fn remove(&self, programs: &[&str]) -> Result<Replaced, Error> {
        let programs = programs.iter().map(|name| (*name).to_owned());
        self.replace_within(&Replacement::Remove(programs.collect()), REPLACE_LIMIT)
    }

    /// Stops programs in its kernels, or lets them go on, by their C functions' names or all at
    /// once: when this returns, no site that is reached from then on runs one, or each does, in
    /// kernels that were launched long ago too. Nothing is loaded, so kernels may run for ever.
    /// [`Options::gate`](crate::Options::gate) must have been asked for.
    ///
    /// # Errors
    /// [`Error::Replace`]: no gate was asked for, there is no such program, or the device cannot be
    /// told; [`Error::Ended`], [`Error::NoAnswer`].
    pub fn gate(&self, open: bool, programs: &[&str]) -> Result<(), Error> {
        let programs = programs.iter().map(|name| (*name).to_owned()).collect();
        let replacement = Replacement::Gate { open, programs };
        self.replace_within(&replacement, REPLACE_LIMIT).map(drop)
    }

    /// Puts the programs of an object into slots of its kernels, in place of those that are there:
    /// when this returns, a site that is reached from then on runs them, in kernels that were
    /// launched long ago too. They are interpreted on the device, so nothing is loaded, and kernels
    /// may run for ever. A slot is where a program is, or was, of the same section;
    /// [`Options::slots`](crate::Options::slots) must have been asked for.
    ///
    /// # Errors
    /// [`Error::Replace`] and nothing has changed: no slots were asked for, there is none for a
    /// program, it cannot be interpreted, or kernels still run what was there before the last ones
    /// (`-EBUSY`); [`Error::Ended`], [`Error::NoAnswer`].
    pub fn put_in_slots(&self, object: &Object) -> Result<Replaced, Error> {
        self.replace_within(&Replacement::Slots(object.clone()), REPLACE_LIMIT)
    }

    /// Takes out what is in slots.
    ///
    /// # Errors
    /// As [`Process::put_in_slots`].
    pub fn clear_slots(&self) -> Result<(), Error> {
        self.replace_within(&Replacement::Clear, REPLACE_LIMIT)
            .map(drop)
    }

    /// A replacement with a limit of its own. Code is loaded while no kernel runs: if there is no
    /// such moment within it, the old programs stay.
    ///
    /// # Errors
    /// As [`Process::replace`].
    pub fn replace_within(
        &self,
        replacement: &Replacement,
        limit: Duration,
    ) -> Result<Replaced, Error> {
        let token = self.begin_replacement(replacement, limit)?;
        let answer = self.await_answer(token, limit + GRACE)?;
        self.replaced(replacement, answer)
    }

    /// The same without waiting: the request's number.
    pub(crate) fn begin_replacement(
        &self,
        replacement: &Replacement,
        limit: Duration,
    ) -> Result<u64, Error> {
        if let Some(token) = self.begin_with_functions(replacement, limit)? {
            return Ok(token);
        }
        let message = |token| replacement.message(token, limit);
        self.begin(message, replacement.object().map_or(&[][..], Object::bytes))
    }

    /// Takes in what became of a replacement.
    pub(crate) fn replaced(
        &self,
        replacement: &Replacement,
        answer: Answer,
    ) -> Result<Replaced, Error> {
        let changed = match answer {
            Answer::Changed(changed) => *changed,
            Answer::Waiting | Answer::Snapshotted | Answer::MapOps { .. } => {
                return Err(self.no_answer());
            }
        };
        if let Some(refusal) = changed.refused {
            return Err(Error::Replace {
                pid: self.pid(),
                message: refusal.message,
                errno: refusal.errno,
            });
        }
        self.lock().merge(replacement, &changed);
        Ok(Replaced {
            generation: changed.generation,
            programs: changed.programs.into_iter().map(|p| p.name).collect(),
            without: changed.without,
            slots: changed.slots,
        })
    }
}

impl State {
    /// The object that tells of all programs and maps that there are and were.
    fn merge(&mut self, replacement: &Replacement, changed: &Changed) {
        let new = match replacement {
            Replacement::Replace(new) | Replacement::Add(new) => new,
            Replacement::Join { .. } => {
                self.object = self.object.take().map(|old| beside(&old, &changed.maps));
                return;
            }
            Replacement::Remove(_)
            | Replacement::Gate { .. }
            | Replacement::Slots(_)
            | Replacement::Clear
            | Replacement::Leave { .. } => {
                return;
            }
        };
        self.object = Some(match self.object.take() {
            Some(old) => merged(&old, replacement, &changed.maps),
            None => new.clone(),
        });
    }
}

/// Definitions of all maps by number, those of both objects with their types.
fn merged(old: &Object, replacement: &Replacement, maps: &[MapInfo]) -> Object {
    let (new, replaces) = match replacement {
        Replacement::Replace(new) => (new, true),
        Replacement::Add(new) => (new, false),
        Replacement::Remove(_)
        | Replacement::Gate { .. }
        | Replacement::Slots(_)
        | Replacement::Clear
        | Replacement::Join { .. }
        | Replacement::Leave { .. } => {
            return old.clone();
        }
    };
    let was = &old.parsed().maps;
    let of_new = |name: &str| {
        // A section of the same name that is another one has the number of its programs in its
        // name.
        let name = name.split_once('@').map_or(name, |(name, _)| name);
        new.parsed().map(name).map(|(_, def)| def.clone())
    };
    let came: Vec<&str> = maps
        .iter()
        .skip(was.len())
        .map(|map| map.name.as_str())
        .collect();
    let (base, other) = if replaces { (new, old) } else { (old, new) };
    let mut parsed = base.parsed().clone();
    let mut types = Types {
        into: parsed.btf.take().unwrap_or_default(),
        other: other.btf(),
        known: BTreeMap::new(),
    };
    let mut definition = |(number, info): (usize, &MapInfo)| match was.get(number) {
        known if info.client != OWN => known.cloned().unwrap_or_else(|| untyped_map(info)),
        // It is the old one, though the new object may have another of this name.
        Some(def) => {
            let again = came
                .iter()
                .any(|name| name.split('@').next() == Some(&def.name));
            match of_new(&info.name).filter(|_| replaces && !again) {
                Some(new_def) => new_def,
                None if replaces => types.of_other(def.clone()),
                None => def.clone(),
            }
        }
        None => match of_new(&info.name) {
            Some(def) if replaces => def,
            Some(def) => types.of_other(def),
            None => untyped_map(info),
        },
    };
    let maps = maps.iter().enumerate().map(&mut definition).collect();
    let has_types = base.btf().is_some() || !types.known.is_empty();
    parsed.btf = has_types.then_some(types.into);
    parsed.maps = maps;
    if !replaces {
        parsed
            .programs
            .extend(new.parsed().programs.iter().cloned());
    }
    Object::from_parsed(base.name(), base.bytes(), parsed)
}

/// Types of one object, into which those come of another's maps.
struct Types<'o> {
    into: Btf,
    other: Option<&'o Btf>,
    /// What was taken in, by its number there.
    known: BTreeMap<TypeId, TypeId>,
}

impl Types<'_> {
    /// A map of the other object.
    fn of_other(&mut self, mut def: MapDef) -> MapDef {
        let Some(other) = self.other else {
            return untyped(def);
        };
        let mut at = Some(&mut def);
        while let Some(map) = at {
            for id in [&mut map.key_type, &mut map.value_type] {
                *id = id.and_then(|id| {
                    let taken = self.into.take_in(other, &[id], &mut self.known);
                    taken.first().copied()
                });
            }
            at = map.inner.as_deref_mut();
        }
        def
    }
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

#[cfg(test)]
mod tests {
    use warpbpf_object::{MapKind, Type};

    use super::*;

    /// An object with a map of this name, whose values are a struct of this name that holds a
    /// pointer to itself.
    fn object(map: &str, value: &str) -> Object {
        let int = Type::Int {
            name: format!("int of {value}"),
            size: 4,
            bits: 32,
            signed: false,
            char: false,
            bool: false,
        };
        let member = |name: &str, ty| warpbpf_object::Member {
            name: name.into(),
            ty: TypeId(ty),
            bit_offset: 0,
            bit_size: 0,
        };
        let types = vec![
            int,
            Type::Ptr { target: TypeId(3) },
            Type::Struct {
                name: value.into(),
                size: 8,
                members: vec![member("number", 1), member("next", 2)],
            },
        ];
        let def = MapDef {
            key_type: Some(TypeId(1)),
            value_type: Some(TypeId(3)),
            kind: MapKind::User,
            ..untyped_map(&info(map))
        };
        let parsed = warpbpf_object::Object {
            maps: vec![def],
            btf: Some(Btf::of_types(types)),
            ..warpbpf_object::Object::default()
        };
        Object::from_parsed(map, *b"", parsed)
    }

    fn info(name: &str) -> MapInfo {
        MapInfo {
            name: name.into(),
            map_type: 2,
            key_size: 4,
            value_size: 8,
            max_entries: 1,
            layout: warpbpf_wire::Layout::Array {
                max_entries: 1,
                value_size: 8,
                shards: 1,
                summed: false,
            },
            summed: Vec::new(),
            added: Vec::new(),
            bytes: 8,
            client: OWN,
        }
    }

    /// The struct that a map's values are, what its fields are of, and where its pointer leads.
    fn value_of(object: &Object, map: usize) -> (String, String, String) {
        let (def, btf) = (&object.parsed().maps[map], object.btf().unwrap());
        let ty = |id: TypeId| btf.type_by_id(id).unwrap();
        let Some(Type::Struct { name, members, .. }) = def.value_type.map(ty) else {
            panic!("{:?}", def.value_type);
        };
        let Type::Ptr { target } = ty(members[1].ty) else {
            panic!("no pointer");
        };
        let called = |id| ty(id).name().unwrap_or_default().to_owned();
        (name.clone(), called(members[0].ty), called(*target))
    }

    #[test]
    fn maps_that_stay_keep_their_types() {
        let (one, two) = (object("one", "struct_one"), object("two", "struct_two"));
        let of = |value: &str| {
            (
                value.to_owned(),
                format!("int of {value}"),
                value.to_owned(),
            )
        };
        let maps = [info("one"), info("two")];
        for replacement in [Replacement::Replace(two.clone()), Replacement::Add(two)] {
            let object = merged(&one, &replacement, &maps);
            assert_eq!(value_of(&object, 0), of("struct_one"));
            assert_eq!(value_of(&object, 1), of("struct_two"));
            let key = object.parsed().maps[0].key_type.unwrap();
            let key = object.btf().unwrap().type_by_id(key).unwrap();
            assert_eq!(key.name(), Some("int of struct_one"));
        }
        // Again and again: what is no longer needed does not stay.
        let mut object = one;
        let mut maps = vec![info("one")];
        for round in 0..5 {
            let name = format!("map{round}");
            maps.push(info(&name));
            let new = self::object(&name, &format!("struct{round}"));
            object = merged(&object, &Replacement::Replace(new), &maps);
        }
        assert_eq!(value_of(&object, 0), of("struct_one"));
        assert_eq!(value_of(&object, 3), of("struct2"));
        // Three types each, and `void`.
        assert_eq!(object.btf().unwrap().types().count(), 6 * 3 + 1);
    }
}
