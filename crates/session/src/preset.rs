//! What maps hold before the first kernel runs, as the tool wants it: operations on their planned first contents.

use warpbpf_abi::maps::MOST_PRESET;
use warpbpf_maps::{AccessError, MapPlan, Write, merge};

use crate::host_ops::{Action, HostOp};
use crate::plan::Session;

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
        let image = change(plan, &plan.image, ops, false)?;
        let further = change(plan, &plan.further, ops, true)?;
        let plan = &mut self.maps_mut()[index];
        (plan.image, plan.further) = (image, further);
        Ok(())
    }
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
