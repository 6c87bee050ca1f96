//! Bank 4 of a file whose variables are elsewhere: the addresses that were given stand there,
//! nothing is left that would make the loader write others, and all else is as it was.

use crate::bank::{Addresses, BANK};
use crate::elf::Image;
use crate::error::CheckError;

/// Kinds of lists of relocations, and bytes of an entry: with the addend in it, and without.
const LISTS: [(u64, usize); 2] = [(4, 24), (9, 16)];
/// An address of 64 bits.
const ADDRESS: u64 = 2;

/// Sections with the bytes that they must have.
pub(super) type Expected = Vec<(usize, Vec<u8>)>;

/// The bank and its relocations as they must be.
///
/// # Errors
/// [`CheckError`]: a name does not say which variable it is.
pub(super) fn expected(old: &Image, addresses: &Addresses) -> Result<Expected, CheckError> {
    let changed = || CheckError::Changed(BANK.to_owned());
    let Some(bank) = old.section(BANK).filter(|_| !addresses.is_empty()) else {
        return Ok(Expected::new());
    };
    for name in addresses.keys() {
        let named = |s: &&crate::elf::Symbol| s.name == *name;
        if old.symbols.iter().filter(named).count() != 1 {
            return Err(changed());
        }
    }
    let mut slots = old.data(bank).to_vec();
    let mut all = Expected::new();
    for (index, list) in old.sections.iter().enumerate() {
        let Some((kind, bytes)) = LISTS.into_iter().find(|(kind, _)| *kind == list.kind) else {
            continue;
        };
        if list.info != bank as u64 {
            continue;
        }
        let mut kept = Vec::new();
        for entry in old.data(index).chunks_exact(bytes) {
            let word = |at: usize| {
                entry[at..at + 8]
                    .iter()
                    .rev()
                    .fold(0, |n, b| n << 8 | u64::from(*b))
            };
            let (at, info) = (word(0) as usize, word(8));
            let symbol = old.symbols.get((info >> 32) as usize);
            let given = symbol.and_then(|symbol| addresses.get(&symbol.name));
            let Some(address) = given.filter(|_| info & 0xffff_ffff == ADDRESS) else {
                kept.extend_from_slice(entry);
                continue;
            };
            let end = at.checked_add(8).ok_or_else(changed)?;
            let slot = slots.get_mut(at..end).ok_or_else(changed)?;
            let addend = match kind {
                4 => word(16),
                _ => slot.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)),
            };
            slot.copy_from_slice(&address.wrapping_add(addend).to_le_bytes());
        }
        all.push((index, kept));
    }
    all.push((bank, slots));
    Ok(all)
}

/// They are so, and where a list was longer nothing is left.
pub(super) fn check(
    (old, new): (&Image, &Image),
    after: &[u8],
    expected: &Expected,
) -> Result<(), CheckError> {
    for (index, bytes) in expected {
        let (was, is) = (&old.sections[*index], &new.sections[*index]);
        let rest = is.offset as usize + bytes.len()..is.offset as usize + was.size as usize;
        let rest = after.get(rest).unwrap_or(&[1]);
        if new.data(*index) != bytes || rest.iter().any(|byte| *byte != 0) {
            return Err(CheckError::Changed(was.name.clone()));
        }
    }
    Ok(())
}
