//! What a file says of the parameters of a kernel that has one more: the bank that has them is
//! longer, and its attributes tell of all of them.

use std::ops::Range;

use warpbpf_fatbin::{Kernel, Param};

use crate::elf::Image;
use crate::error::CheckError;
use crate::hidden::{Launch, bank_of, behind, symbol_of};
use crate::info::{self, Attribute};

/// Bits of a parameter's attribute below its size: it is in the bank of all.
const OTHER_BITS: u32 = 0x1f000;

/// A kernel's new parameter, and sections that are longer for it.
#[derive(Debug, Clone)]
pub(super) struct Parameters {
    pub(super) bank: usize,
    /// Bytes that the bank has more.
    pub(super) bank_growth: u64,
    pub(super) info: usize,
    /// Bytes that the kernel's attributes have more.
    pub(super) info_growth: u64,
    /// Where in them, and how many stand there: new ones.
    pub(super) inserted: Range<usize>,
    /// Bytes of all parameters, and of the kernel's own.
    total: u32,
    own: u32,
    /// The parameter as the second reader has it.
    param: Param,
    /// Where in bank 0 it is.
    pub(super) at: u32,
}

impl Parameters {
    /// As they must be of a kernel that had the parameters which `was` has. `None` if a launch
    /// tells it nothing.
    ///
    /// # Errors
    /// [`CheckError`]: something else is said of them.
    pub(super) fn find(
        (old, new): (&Image, &Image),
        was: &Kernel,
        launch: Launch,
    ) -> Result<Option<Parameters>, CheckError> {
        if launch.is_empty() {
            return Ok(None);
        }
        let changed = || CheckError::Changed(format!("the parameters of {}", was.name));
        let bank = old.section(&bank_of(&was.name)).ok_or_else(changed)?;
        let info = old
            .section(&format!(".nv.info.{}", was.name))
            .ok_or_else(changed)?;
        let (offset, total) = behind(was.param_bytes, launch.bytes);
        let base = old.arch.parameters();
        if old.sections[bank].size != u64::from(base + was.param_bytes) || base + total > 1 << 15 {
            return Err(changed());
        }
        let symbol = symbol_of(old, bank).ok_or_else(changed)?;
        let param = Param {
            offset,
            size: launch.bytes,
        };
        let (data, list) = (new.data(info), &new.sections[info].name);
        let there = info::attributes(list, data).map_err(|_| changed())?;
        let had = info::attributes(list, old.data(info)).map_err(|_| changed())?;
        let had = |number| had.iter().any(|a| a.number == number);
        // What must be new, each once: the parameter, and what a kernel without any has not.
        let number = was.params.len() as u32;
        let words = [0, number | offset << 16, launch.bytes << 18 | OTHER_BITS];
        let is_new = |a: &&Attribute| match a.number {
            info::KPARAM_INFO => a.words(data) == words,
            info::PARAM_CBANK => {
                !had(info::PARAM_CBANK) && a.words(data) == [symbol, base | total << 16]
            }
            info::CBANK_PARAM_SIZE => {
                let is_half = data[a.offset - 4] == info::HALF;
                !had(info::CBANK_PARAM_SIZE) && is_half && u32::from(a.value) == total
            }
            _ => false,
        };
        let added: Vec<&Attribute> = there.iter().filter(is_new).collect();
        let missing = [info::PARAM_CBANK, info::CBANK_PARAM_SIZE];
        let missing = missing.into_iter().filter(|number| !had(*number)).count();
        let start = added.first().map_or(0, |a| a.offset - 4);
        let bytes = |a: &&Attribute| 4 + a.length;
        let end = start + added.iter().map(bytes).sum::<usize>();
        let in_a_row = added.last().is_some_and(|a| a.offset + a.length == end);
        if added.len() != 1 + missing || !in_a_row {
            return Err(changed());
        }
        Ok(Some(Parameters {
            bank,
            bank_growth: u64::from(total - was.param_bytes),
            info,
            info_growth: (end - start) as u64,
            inserted: start..end,
            total,
            own: was.param_bytes,
            param,
            at: base + offset,
        }))
    }

    /// An attribute that was there says how many bytes of parameters there are: where that stands
    /// in it.
    ///
    /// # Errors
    /// [`CheckError`]: it says something else.
    pub(super) fn size(
        &self,
        (was, old): (&Attribute, &[u8]),
        (is, new): (&Attribute, &[u8]),
    ) -> Result<Option<Range<usize>>, CheckError> {
        let (at, before, after) = match was.number {
            info::CBANK_PARAM_SIZE => {
                let sizes = (u32::from(was.value), u32::from(is.value));
                (was.offset - 2, sizes.0, sizes.1)
            }
            info::PARAM_CBANK => {
                let size = |a: &Attribute, data| a.words(data).get(1).map_or(0, |w| w >> 16);
                (was.offset + 6, size(was, old), size(is, new))
            }
            _ => return Ok(None),
        };
        match (before, after) == (self.own, self.total) {
            true => Ok(Some(at..at + 2)),
            false => Err(CheckError::Metadata {
                what: "bytes of parameters",
                found: after.to_string(),
                expected: self.total.to_string(),
            }),
        }
    }

    /// The same kernel with all of its parameters.
    pub(super) fn of(&self, was: &Kernel) -> Kernel {
        let mut is = was.clone();
        is.params.push(self.param);
        is.param_bytes = self.total;
        is
    }
}
