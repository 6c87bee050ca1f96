//! What maps hold before the first kernel runs, as the tool wants it: operations on their planned
//! first contents.

use warpbpf_abi::maps::MOST_PRESET;
use warpbpf_maps::{AccessError, MapError, MapPlan, Write, inner, merge};
use warpbpf_object::MapDef;

use crate::plan::session::Session;
use crate::runtime::host_ops::op::{Action, HostOp};

/// Why a map cannot be preset. Nothing was changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PresetError {
    /// No such map.
    #[error("map `{map}` cannot be preset: there is none; there are {there}")]
    NoMap {
        /// Its name.
        map: String,
        /// The names that there are.
        there: String,
    },
    /// `.rodata`: the proof rests on it.
    #[error("map `{map}` cannot be preset: it is read-only; set its variables in the object")]
    ReadOnly {
        /// Its name.
        map: String,
    },
    /// Too large.
    #[error(
        "map `{map}` cannot be preset: it has {bytes} bytes, the limit is {MOST_PRESET}; update it once it lives"
    )]
    TooLarge {
        /// Its name.
        map: String,
        /// Its bytes.
        bytes: u64,
    },
    /// An operation that only reads or takes out.
    #[error("operation {number} on map `{map}` is no update or delete")]
    NoUpdate {
        /// Its name.
        map: String,
        /// Counted from 0.
        number: usize,
    },
    /// A value of a map of maps is no map's number plus one.
    #[error(
        "operation {number} on map `{map}` names map {value}: a value is 1 to {there}, a map's place in the object plus one"
    )]
    NoInner {
        /// Its name.
        map: String,
        /// Counted from 0.
        number: usize,
        /// The value.
        value: u32,
        /// How many maps there are.
        there: usize,
    },
    /// A map that cannot be in that map of maps.
    #[error("operation {number} cannot be done: {source}")]
    Inner {
        /// Counted from 0.
        number: usize,
        /// Why.
        source: MapError,
    },
    /// The operation fails.
    #[error("operation {number} cannot be done: {source}")]
    Access {
        /// Counted from 0.
        number: usize,
        /// Why.
        source: AccessError,
    },
}

impl Session {
    /// Does operations on the first contents of a map, in order: updates and deletes.
    ///
    /// # Errors
    /// [`PresetError`]; the map is then as it was.
    pub fn preset(&mut self, map: &str, ops: &[HostOp]) -> Result<(), PresetError> {
        let name = || map.to_owned();
        let found = self.maps().iter().position(|plan| plan.name == map);
        let Some(index) = found else {
            let names: Vec<String> = self
                .maps()
                .iter()
                .map(|m| format!("`{}`", m.name))
                .collect();
            return Err(PresetError::NoMap {
                map: name(),
                there: names.join(", "),
            });
        };
        if self.map_defs()[index].is_constant() {
            return Err(PresetError::ReadOnly { map: name() });
        }
        let plan = &self.maps()[index];
        let bytes = plan.bytes();
        if bytes > MOST_PRESET {
            return Err(PresetError::TooLarge { map: name(), bytes });
        }
        check_inner(self.map_defs(), index, ops)?;
        let image = change(plan, &plan.image, ops, false)?;
        let further = change(plan, &plan.further, ops, true)?;
        let plan = &mut self.maps_mut()[index];
        (plan.image, plan.further) = (image, further);
        Ok(())
    }
}

/// What is put into a map of maps is a map like the declared one: programs are proved for that. A
/// value of another size is refused later.
fn check_inner(defs: &[MapDef], index: usize, ops: &[HostOp]) -> Result<(), PresetError> {
    let outer = &defs[index];
    if outer.inner.is_none() {
        return Ok(());
    }
    for (number, op) in ops.iter().enumerate() {
        let Ok(value) = op.value.as_slice().try_into().map(u32::from_le_bytes) else {
            continue;
        };
        let def = value.checked_sub(1).and_then(|at| defs.get(at as usize));
        let def = def.ok_or_else(|| PresetError::NoInner {
            map: outer.name.clone(),
            number,
            value,
            there: defs.len(),
        })?;
        inner::check(outer, def).map_err(|source| PresetError::Inner { number, source })?;
    }
    Ok(())
}

/// The contents after `ops`; `further` ones, if not the first context's.
fn change(
    plan: &MapPlan,
    image: &[Write],
    ops: &[HostOp],
    further: bool,
) -> Result<Vec<Write>, PresetError> {
    let map = &plan.name;
    let mut contents = vec![0; plan.bytes() as usize];
    let put = |contents: &mut [u8], write: &Write| {
        let at = write.offset as usize;
        contents[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
    };
    let mut image = image.to_vec();
    for write in &image {
        put(&mut contents, write);
    }
    for (number, op) in ops.iter().enumerate() {
        let writes = match op.action {
            Action::Update | Action::Push => {
                let value = match further && !plan.added.is_empty() {
                    true => merge::split(plan, &op.value, 2).swap_remove(1),
                    false => op.value.clone(),
                };
                warpbpf_maps::update(plan, &contents, &op.key, &value, op.flags)
            }
            Action::Delete => warpbpf_maps::delete(plan, &contents, &op.key),
            Action::Lookup
            | Action::Pop
            | Action::Peek
            | Action::LookupAndDelete
            | Action::Words => {
                return Err(PresetError::NoUpdate {
                    map: map.clone(),
                    number,
                });
            }
        };
        let writes = writes.map_err(|source| PresetError::Access { number, source })?;
        for write in writes {
            put(&mut contents, &write);
            image.push(write);
        }
    }
    Ok(image)
}
