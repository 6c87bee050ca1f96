//! Edits are put into the file: all are written and checked in one pass.

use std::collections::{HashMap, HashSet};

use crate::bank::{Addresses, BANK};
use crate::check::{Put, check_all};
use crate::elf::Image;
use crate::error::Refusal;
use crate::file::File;
use crate::probe::Hook;
use crate::splice::{Change, Edit};

/// An edited file.
#[derive(Debug)]
pub struct Written {
    /// The whole file.
    pub cubin: Vec<u8>,
    /// Edits, by index, that are not in it, and why.
    pub left_out: Vec<(usize, Refusal)>,
    /// How often the whole file was written and checked: once, and once more if an edit did not
    /// pass.
    pub passes: usize,
}

/// A cubin with probes in one kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spliced {
    /// The whole file.
    pub cubin: Vec<u8>,
    /// What was changed.
    pub change: Change,
}

/// Puts probes into one kernel of a cubin. The other kernels stay as they are; the result can be
/// given to this function again. For several kernels of a file [`File`] does it in one pass.
///
/// # Errors
/// [`Refusal`]: something in the kernel, the probe or the file is not understood, or the result did
/// not pass its check.
pub fn splice(
    cubin: &[u8],
    kernel: &str,
    entry: Option<Hook<'_>>,
    exit: Option<Hook<'_>>,
) -> Result<Spliced, Refusal> {
    let file = File::parse(cubin)?;
    file.with_edit(file.edit(kernel, entry, exit)?)
}

impl File<'_> {
    /// The file with edits of it: all are put in, the file is laid out and checked once. What does
    /// not pass is left out. Variables whose addresses are given ([`File::variables`]) are at
    /// those, wherever code takes their addresses from bank 4.
    ///
    /// # Errors
    /// [`Refusal::Check`]: the file as a whole did not pass.
    pub fn write(&self, edits: &[Edit], addresses: &Addresses) -> Result<Written, Refusal> {
        let mut left_out = Vec::new();
        let mut seen = HashSet::new();
        let mut chosen: Vec<usize> = Vec::new();
        for (index, edit) in edits.iter().enumerate() {
            match seen.insert(edit.place.text) {
                true => chosen.push(index),
                false => left_out.push((index, edit.twice())),
            }
        }
        let mut passes = 0;
        loop {
            if chosen.is_empty() {
                let cubin = self.bytes.to_vec();
                return Ok(Written {
                    cubin,
                    left_out,
                    passes,
                });
            }
            passes += 1;
            let cubin = self.laid_out(chosen.iter().map(|index| &edits[*index]), addresses);
            let puts: Vec<Put<'_>> = chosen.iter().map(|index| edits[*index].put()).collect();
            let failed = check_all(self.bytes, &cubin, &puts, addresses)?;
            if failed.is_empty() {
                return Ok(Written {
                    cubin,
                    left_out,
                    passes,
                });
            }
            let failed = failed.into_iter();
            let failed: HashMap<usize, Refusal> = failed
                .map(|(at, error)| (chosen[at], Refusal::Check(error)))
                .collect();
            chosen.retain(|index| !failed.contains_key(index));
            left_out.extend(failed);
        }
    }

    fn laid_out<'e>(
        &self,
        edits: impl Iterator<Item = &'e Edit>,
        addresses: &Addresses,
    ) -> Vec<u8> {
        let mut image = self.image.clone();
        self.give(&mut image, addresses);
        let mut pieces = Vec::new();
        for edit in edits {
            let text = edit.place.text;
            edit.write(&mut image);
            pieces.push((text, edit.added.iter().flat_map(|w| w.bytes()).collect()));
            pieces.extend(
                edit.longer
                    .iter()
                    .flat_map(|longer| longer.write(&mut image)),
            );
        }
        image.grow(pieces);
        image.into_bytes()
    }

    /// Writes addresses into bank 4, and takes the relocations away by which the loader would write
    /// others.
    fn give(&self, image: &mut Image, addresses: &Addresses) {
        let Some(bank) = self.section(BANK).filter(|_| !addresses.is_empty()) else {
            return;
        };
        let given = self.bank().given(image, addresses);
        for (at, address) in &given {
            let at = *at as usize;
            if let Some(slot) = image.data_mut(bank).get_mut(at..at + 8) {
                slot.copy_from_slice(&address.to_le_bytes());
            }
        }
        let given: HashSet<u64> = given.into_iter().map(|(at, _)| at).collect();
        for list in self.relocations.get(&bank).into_iter().flatten() {
            let entries = self.entries(*list);
            let kept = entries.filter(|entry| {
                let at = entry.first_chunk().map_or(0, |at| u64::from_le_bytes(*at));
                !given.contains(&at)
            });
            let kept: Vec<u8> = kept.flatten().copied().collect();
            let data = image.data_mut(*list);
            let (written, rest) = data.split_at_mut(kept.len());
            written.copy_from_slice(&kept);
            rest.fill(0);
            image.sections[*list].size = kept.len() as u64;
        }
    }

    /// The file with one edit.
    pub(crate) fn with_edit(&self, edit: Edit) -> Result<Spliced, Refusal> {
        let written = self.write(std::slice::from_ref(&edit), &Addresses::new())?;
        match written.left_out.into_iter().next() {
            Some((_, refusal)) => Err(refusal),
            None => Ok(Spliced {
                cubin: written.cubin,
                change: edit.change,
            }),
        }
    }
}
