//! Bank 4, where addresses of variables and functions are, and what code uses of its module.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::elf::Image;
use crate::error::SharedData;

/// The section with bank 4.
pub(crate) const BANK: &str = ".nv.constant4";

/// Bytes of an address.
const WIDE: u64 = 8;

/// Addresses of variables, by their names.
pub type Addresses = BTreeMap<String, u64>;

/// What the code in a section uses of its module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Uses {
    pub(crate) section: usize,
    /// The first that a copy would have for itself.
    pub(crate) first: Option<SharedData>,
    /// The first that it cannot be given either.
    pub(crate) refused: Option<SharedData>,
    /// Symbols of variables.
    pub(crate) variables: BTreeSet<usize>,
}

/// Bank 4: addresses that the loader writes.
#[derive(Debug)]
pub(crate) struct Bank {
    /// In order.
    pub(crate) slots: Vec<Slot>,
}

/// An address in it.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Where it is.
    pub(crate) at: u64,
    /// Distance from the symbol.
    pub(crate) addend: u64,
    pub(crate) leads_to: Leads,
}

/// What an address in bank 4 leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leads {
    /// What is the same in each copy of the file.
    Same,
    /// A variable that the driver gives the address of by its name: its symbol.
    Variable(usize),
    /// Something else.
    Elsewhere,
}

impl Bank {
    /// Slots of variables whose addresses are given, and those addresses.
    pub(crate) fn given(&self, image: &Image, addresses: &Addresses) -> Vec<(u64, u64)> {
        let given = self.slots.iter().filter_map(|slot| match slot.leads_to {
            Leads::Variable(symbol) => {
                let address = addresses.get(&image.symbols[symbol].name)?;
                Some((slot.at, address.wrapping_add(slot.addend)))
            }
            Leads::Same | Leads::Elsewhere => None,
        });
        given.collect()
    }

    pub(crate) fn is_same_in_copies(&self) -> bool {
        let same = |slot: &Slot| slot.leads_to == Leads::Same;
        !self.slots.is_empty() && self.slots.iter().all(same)
    }

    /// The slots that a read from an offset may take, or one from an offset that is not known.
    pub(crate) fn read(&self, from: Option<u64>) -> impl Iterator<Item = &Slot> {
        let read = from.map(|at| {
            // Halves of an address are read one by one, too.
            let wide = at.is_multiple_of(WIDE);
            at..at + if wide { WIDE } else { WIDE / 2 }
        });
        self.slots.iter().filter(move |slot| {
            let slot = slot.at..slot.at.saturating_add(WIDE);
            let overlaps = |read: &Range<u64>| slot.start < read.end && read.start < slot.end;
            read.as_ref().is_none_or(overlaps)
        })
    }
}
