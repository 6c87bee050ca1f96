//! One more parameter behind those of a kernel, which launches of the copy append: what differs
//! from launch to launch cannot stand in its code.
//!
//! The bank of constants that has the parameters gets longer, and the kernel's attributes tell of
//! one parameter more, as the compiler would have written them; code that was there does not look
//! at it.

use crate::arch::Arch;
use crate::elf::Image;
use crate::error::Refusal;
use crate::file::{File, Place};
use crate::info::{self, Attribute};
use crate::number::Number;

/// Bytes of a word, and its alignment.
const WORD: u32 = 8;
/// Most words of the parameter: registers from R8 to R15 take them.
const MOST_WORDS: u32 = 4;
/// Most bytes of parameters of the form that all drivers know. With more a kernel has them at
/// another place, and other attributes (CUDA 12.1).
const LIMIT: u32 = 4352;
/// Low bits of the last word of a parameter's attribute: it is in the bank of all, and is no
/// pointer that anything is known of.
const PLAIN_PARAMETER: u32 = 0x1f000;

/// What a launch tells: a parameter behind the kernel's own, which it must append, and which words
/// of it each probe gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Launch {
    /// Bytes of the parameter, a multiple of 8; 0 if there is none.
    pub bytes: u32,
    /// Words of eight bytes that the probe at the entry gets, as bits: number `i` in R`8 + 2i` and
    /// the next register.
    pub entry: u8,
    /// The same of the one at the exits.
    pub exit: u8,
}

/// Where such a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hidden {
    /// Behind the kernel's own, from the beginning of these.
    pub offset: u32,
    /// Its bytes.
    pub bytes: u32,
}

/// A file with such a parameter, as far as it differs.
#[derive(Debug, Clone)]
pub(crate) struct Longer {
    pub(crate) hidden: Hidden,
    /// The bank with the parameters, and bytes that it gets.
    bank: usize,
    bank_bytes: u64,
    /// The kernel's attributes, and where new ones stand.
    info: usize,
    at: usize,
    attributes: Vec<u8>,
}

impl Launch {
    /// It tells nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Its words are in it.
    fn is_whole(&self) -> bool {
        let words = self.bytes / WORD;
        let all = self.entry | self.exit;
        self.bytes.is_multiple_of(WORD) && words <= MOST_WORDS && u32::from(all) >> words == 0
    }
}

/// Registers that words of a launch are given in, and where each is behind the parameter's
/// beginning.
pub(crate) fn given(words: u8) -> impl Iterator<Item = (u8, u32)> {
    let bits = (0..MOST_WORDS as u8).filter(move |word| words & 1 << word != 0);
    bits.map(|word| (8 + 2 * word, u32::from(word) * WORD))
}

/// Where the parameter is among all of a kernel that has so many bytes of its own, and how many
/// there are with it.
pub(crate) fn behind(own: u32, bytes: u32) -> (u32, u32) {
    // A file may say any number; beyond the last one it is too many in any case.
    let offset = own.checked_next_multiple_of(WORD).unwrap_or(u32::MAX);
    (offset, offset.saturating_add(bytes))
}

/// The attribute of a parameter.
pub(crate) fn parameter(number: u32, hidden: Hidden) -> [u32; 3] {
    let place = number | hidden.offset << 16;
    [0, place, hidden.bytes << 18 | PLAIN_PARAMETER]
}

/// The bank of a kernel's parameters.
pub(crate) fn bank_of(kernel: &str) -> String {
    format!(".nv.constant0.{kernel}")
}

/// The symbol of a section.
pub(crate) fn symbol_of(image: &Image, section: usize) -> Option<u32> {
    let mut symbols = image.symbols.iter();
    let own = symbols.find(|symbol| symbol.section == section && symbol.is_section);
    own.map(|symbol| symbol.index)
}

impl File<'_> {
    /// Offset and bytes of each parameter that a kernel has of its own, in their order.
    ///
    /// # Errors
    /// [`Refusal`]: there is no such kernel.
    pub fn parameters(&self, kernel: &str) -> Result<Vec<(u32, u32)>, Refusal> {
        let all = self.facts(kernel)?.params.iter();
        Ok(all.map(|param| (param.offset, param.size)).collect())
    }

    /// The parameter behind those of a kernel, and the numbers that become others. `None` if the
    /// launch tells nothing.
    pub(crate) fn longer(
        &self,
        (kernel, place): (&str, Place),
        launch: Launch,
    ) -> Result<Option<(Longer, Vec<Number>)>, Refusal> {
        let odd = |why| Refusal::Parameters { why };
        if launch.is_empty() {
            return Ok(None);
        }
        if !launch.is_whole() {
            return Err(odd("that is more than probes can be given"));
        }
        let facts = self.facts(kernel)?;
        let own = facts.param_bytes;
        let base = self.image.arch.parameters();
        let (offset, total) = behind(own, launch.bytes);
        if total > LIMIT {
            return Err(Refusal::ParametersFull {
                bytes: own,
                total,
                limit: LIMIT,
            });
        }
        let last = facts
            .params
            .iter()
            .map(|p| p.offset.saturating_add(p.size))
            .max();
        if last.unwrap_or(0) != own || facts.params.iter().any(|p| p.size == 0) {
            return Err(odd("its list of parameters has gaps"));
        }
        let bank = self.section(&bank_of(kernel));
        let bank = bank.ok_or(odd("its parameters are in no bank of its own"))?;
        if self.image.sections[bank].size != u64::from(base) + u64::from(own) {
            return Err(odd("the bank of its parameters has something else in it"));
        }
        let symbol = symbol_of(&self.image, bank);
        let symbol = symbol.ok_or(odd("the bank of its parameters has no symbol"))?;
        for section in [bank, place.info] {
            self.can_lengthen(section)?;
        }
        let hidden = Hidden {
            offset,
            bytes: launch.bytes,
        };
        let data = self.image.data(place.info);
        let list = &self.image.sections[place.info].name;
        let known = info::attributes(list, data)?;
        let of = |number| known.iter().filter(move |a| a.number == number);
        if of(info::KPARAM_INFO_V2).next().is_some()
            || of(info::KPARAM_INFO).count() != facts.params.len()
        {
            return Err(odd("its list of parameters is of another form"));
        }
        let mut numbers = Vec::new();
        let mut attributes = Vec::new();
        match of(info::PARAM_CBANK).collect::<Vec<&Attribute>>()[..] {
            [one] if one.words(data) == [symbol, base | own << 16] => {
                numbers.push(Number::half(place.info, one.offset + 6, total));
            }
            [] if own == 0 => sized(
                &mut attributes,
                info::PARAM_CBANK,
                &[symbol, base | total << 16],
            ),
            _ => {
                return Err(odd(
                    "what is said of the bank of its parameters is not known",
                ));
            }
        }
        match of(info::CBANK_PARAM_SIZE).collect::<Vec<&Attribute>>()[..] {
            [one] => numbers.push(Number::half(place.info, one.offset - 2, total)),
            [] if own == 0 => {
                let [low, high] = (total as u16).to_le_bytes();
                attributes.extend([info::HALF, info::CBANK_PARAM_SIZE, low, high]);
            }
            _ => return Err(odd("what is said of its parameters' size is not known")),
        }
        let number = facts.params.len() as u32;
        sized(
            &mut attributes,
            info::KPARAM_INFO,
            &parameter(number, hidden),
        );
        // The compiler lists the last parameter first.
        let first = of(info::KPARAM_INFO).next();
        let at = first.map(|attribute| attribute.offset - 4);
        let at = at.or_else(|| {
            let version = known.first().filter(|a| a.number == info::CUDA_API_VERSION);
            version.map(|version| version.offset + version.length)
        });
        let longer = Longer {
            hidden,
            bank,
            bank_bytes: u64::from(total - own),
            info: place.info,
            at: at.unwrap_or(0),
            attributes,
        };
        Ok(Some((longer, numbers)))
    }
}

/// Writes an attribute of words.
fn sized(out: &mut Vec<u8>, number: u8, words: &[u32]) {
    let [low, high] = (4 * words.len() as u16).to_le_bytes();
    out.extend([info::SIZED, number, low, high]);
    out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

impl Longer {
    /// Where in bank 0 the parameter is.
    pub(crate) fn in_bank(&self, arch: Arch) -> u32 {
        arch.parameters() + self.hidden.offset
    }

    /// Writes what stands where something stood before, and gives what comes behind that.
    pub(crate) fn write(&self, image: &mut Image) -> [(usize, Vec<u8>); 2] {
        let list = image.data_mut(self.info);
        let mut longer = list[..self.at].to_vec();
        longer.extend(&self.attributes);
        longer.extend(&list[self.at..]);
        let rest = longer.split_off(list.len());
        list.copy_from_slice(&longer);
        let zeros = vec![0; self.bank_bytes as usize];
        [(self.bank, zeros), (self.info, rest)]
    }
}
