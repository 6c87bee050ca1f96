//! What a kernel shares with the rest of its file: variables, constants, functions by address. A
//! file that is loaded a second time has its own ones, so a kernel that reads some may not be run
//! out of it.
//!
//! Machine code comes to them in three ways only: by constant bank 3, which holds `__constant__`
//! variables, by bank 4, where addresses of variables and functions are, and by relocations in the
//! code itself. So nothing is followed here: who names one of those banks is refused, but where an
//! address leads to what is the same in each copy: strings and tables that the compiler made, and
//! functions of the driver's. By those kernels print and assert.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use crate::bank::{BANK, Bank, Leads, Slot, Uses};
use crate::elf::{Image, Section, Symbol};
use crate::error::SharedData;
use crate::file::File;
use crate::offsets::{self, LDC};
use crate::word::{BYTES, RZ, Word};

/// Operand forms with a constant in the second or in the third place; loads from a bank are of the
/// second one too.
const WITH_CONSTANT: [u128; 2] = [5, 3];
/// The banks.
const VARIABLES: u128 = 3;
const ADDRESSES: u128 = 4;
/// Opcode of a load from a bank at an offset in a register; [`LDC`] is one if it names a register.
const ULDC_INDEXED: u16 = 0x0bb;

/// Sections with variables.
const OF_MODULE: [&str; 2] = [".nv.global", ".nv.global.init"];
/// Relocation of an address of 64 bits.
const ADDRESS: u32 = 2;
/// Tables of the compiler's own functions, such as that of `sinf` for large numbers: nobody writes
/// them.
const TABLES: &str = "__cudart_";
/// Strings in the code, and names of functions in messages of `assert`: likewise. No variable of a
/// source can have such a name, but for one by `extern "C"`.
const STRINGS: [&str; 3] = ["$str", "_$_str", "__unnamed_"];
/// Functions that the driver has, one for all modules.
const OF_DRIVER: [&str; 5] = [
    "vprintf",
    "malloc",
    "free",
    "__assertfail",
    "__nv_aligned_device_malloc",
];

/// Beginnings of the names of functions that launch kernels or graphs.
const LAUNCHING: [&str; 6] = [
    "cudaLaunchDevice",
    "cudaGraphLaunch",
    "cudaCDP",
    "__cudaCDP",
    "__cuda_syscall_cnp",
    "cudaGetParameterBuffer",
];

/// A variable of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variable {
    /// Its name, which no other one has.
    pub name: String,
    /// Its bytes.
    pub size: u64,
}

impl File<'_> {
    /// What stands against running `kernel` out of a second copy of the file.
    pub fn shared_data(&self, kernel: &str) -> Option<SharedData> {
        let first = |uses: &Uses| uses.first;
        self.of_code(kernel, first).unwrap_or_else(Some)
    }

    /// The variables that `kernel` shares with the file, where it could run out of a second copy
    /// that had their addresses in place of those of its own ([`File::write`]). It may use fewer.
    ///
    /// # Errors
    /// What stands against it nevertheless.
    pub fn variables(&self, kernel: &str) -> Result<Vec<Variable>, SharedData> {
        if let Some(refused) = self.of_code(kernel, |uses| uses.refused)? {
            return Err(refused);
        }
        let mut all = BTreeSet::new();
        for uses in self.uses_of(kernel) {
            all.extend(uses.variables.iter().map(|index| {
                let symbol = &self.image.symbols[*index];
                Variable {
                    name: symbol.name.clone(),
                    size: symbol.size,
                }
            }));
        }
        Ok(all.into_iter().collect())
    }

    /// The first thing, in the order of the file, that is found in code which the kernel may run.
    fn of_code(
        &self,
        kernel: &str,
        of: impl Fn(&Uses) -> Option<SharedData>,
    ) -> Result<Option<SharedData>, SharedData> {
        let own = self.sections(&format!(".text.{kernel}"));
        if own.is_empty() {
            return Err(SharedData::Unknown);
        }
        if self.has_relocations(own) {
            return Err(SharedData::Relocations);
        }
        let mut found: Vec<_> = self.uses_of(kernel).collect();
        found.sort_by_key(|uses| uses.section);
        Ok(found.into_iter().find_map(|uses| of(&uses)))
    }

    /// What a kernel's own code uses, and that of all functions.
    fn uses_of(&self, kernel: &str) -> impl Iterator<Item = Cow<'_, Uses>> {
        let of_functions = self.functions_use.get_or_init(|| {
            let uses = self.functions().iter().map(|section| self.uses(*section));
            uses.collect()
        });
        let own = self.sections(&format!(".text.{kernel}")).iter();
        let own = own.map(|section| Cow::Owned(self.uses(*section)));
        own.chain(of_functions.iter().map(Cow::Borrowed))
    }

    /// The same by the tables of the file alone, without a look at any code: who might be sharing
    /// something is refused.
    pub fn shared_tables(&self, kernel: &str) -> Option<SharedData> {
        let is_there = |name: &str| {
            let section = self.section(name);
            section.is_some_and(|index| self.image.sections[index].size > 0)
        };
        let own = self.sections(&format!(".text.{kernel}"));
        if own.is_empty() {
            return Some(SharedData::Unknown);
        }
        if self.has_relocations(own) {
            return Some(SharedData::Relocations);
        }
        if is_there(".nv.constant3") {
            return Some(SharedData::Constants);
        }
        let addresses = is_there(".nv.constant4") && !self.bank().is_same_in_copies();
        addresses.then_some(SharedData::Addresses)
    }

    /// A function by which the code of the file may launch something on the device.
    pub fn launches(&self) -> Option<&str> {
        let names = self.image.symbols.iter().map(|symbol| symbol.name.as_str());
        let mut launching =
            names.filter(|name| LAUNCHING.iter().any(|start| name.starts_with(start)));
        launching.next()
    }

    /// Code that the kernel may run has relocations: its own, or that of a function which is
    /// called, from which nothing tells who calls it.
    fn has_relocations(&self, own: &[usize]) -> bool {
        let mut all = own.iter().chain(self.functions());
        all.any(|section| self.is_relocated(*section))
    }

    /// What the code in a section uses, up to what stands against any copy.
    fn uses(&self, section: usize) -> Uses {
        let data = self.image.data(section);
        let words: Vec<Word> = data
            .chunks_exact(BYTES)
            .filter_map(|word| Word::at(word, 0))
            .collect();
        let mut uses = Uses {
            section,
            ..Uses::default()
        };
        let offsets = OnceCell::new();
        for (word, at) in words.iter().copied().zip((0u64..).step_by(BYTES)) {
            let form = word.bits(9, 3);
            if !WITH_CONSTANT.contains(&form) {
                continue;
            }
            match word.bits(54, 5) {
                VARIABLES => uses.refused = Some(SharedData::Constants),
                ADDRESSES => {
                    let from = match is_indexed(word) {
                        false => Some(word.bits(38, 16) as u64),
                        true => offsets
                            .get_or_init(|| offsets::of_loads(&words, self.arch()))
                            .get(&at)
                            .copied(),
                    };
                    let mut read = self.bank().read(from).peekable();
                    if read.peek().is_none() {
                        uses.refused = Some(SharedData::Addresses);
                    }
                    for slot in read {
                        match slot.leads_to {
                            Leads::Same => {}
                            Leads::Variable(symbol) => {
                                uses.first = uses.first.or(Some(SharedData::Addresses));
                                uses.variables.insert(symbol);
                            }
                            Leads::Elsewhere => uses.refused = Some(SharedData::Addresses),
                        }
                    }
                }
                _ => {}
            }
            if uses.refused.is_some() {
                uses.first = uses.first.or(uses.refused);
                break;
            }
        }
        uses
    }

    pub(crate) fn bank(&self) -> &Bank {
        self.bank.get_or_init(|| read_bank(self))
    }
}

/// The bank of a file.
fn read_bank(file: &File<'_>) -> Bank {
    let mut names: HashMap<&str, usize> = HashMap::new();
    for symbol in &file.image.symbols {
        *names.entry(&symbol.name).or_default() += 1;
    }
    let bank = file.section(BANK);
    let entries = bank.into_iter().flat_map(|bank| file.relocations(bank));
    let mut slots: Vec<Slot> = entries
        .map(|entry| {
            let (at, symbol) = (number(entry, 0..8), number(entry, 12..16) as usize);
            let addend = match entry.len() {
                24 => number(entry, 16..24),
                // It stands where the address will.
                _ => bank
                    .and_then(|bank| {
                        let at = usize::try_from(at).ok()?;
                        let there = file.image.data(bank).get(at..at.checked_add(8)?)?;
                        Some(number(there, 0..8))
                    })
                    .unwrap_or(0),
            };
            let leads_to = match number(entry, 8..12) == u64::from(ADDRESS) {
                true => leads_to(&file.image, symbol, &names),
                false => Leads::Elsewhere,
            };
            Slot {
                at,
                addend,
                leads_to,
            }
        })
        .collect();
    slots.sort_by_key(|slot| slot.at);
    Bank { slots }
}

/// A load at an offset in a register.
fn is_indexed(word: Word) -> bool {
    let base = word.base();
    base == ULDC_INDEXED || base == LDC && word.bits(24, 8) != u128::from(RZ)
}

fn number(entry: &[u8], range: Range<usize>) -> u64 {
    let bytes = entry[range].iter().rev();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn leads_to(image: &Image, index: usize, names: &HashMap<&str, usize>) -> Leads {
    let Some(symbol) = image.symbols.get(index) else {
        return Leads::Elsewhere;
    };
    let section = image.sections.get(symbol.section);
    let section = section.map_or("", |section| &section.name);
    let alone = names.get(symbol.name.as_str()) == Some(&1);
    match is_same_in_copies(image, symbol) {
        true => Leads::Same,
        false
            if alone
                && symbol.is_plain_variable
                && symbol.size > 0
                && OF_MODULE.contains(&section) =>
        {
            Leads::Variable(index)
        }
        false => Leads::Elsewhere,
    }
}

/// What a symbol stands for is never written, and nobody asks for its address by its name; or the
/// driver has it once.
fn is_same_in_copies(image: &Image, symbol: &Symbol) -> bool {
    let name = symbol.name.as_str();
    if symbol.section == 0 {
        return symbol.is_function && OF_DRIVER.contains(&name);
    }
    let section = image.sections.get(symbol.section);
    let numbered = |start: &&str| {
        let rest = name.strip_prefix(*start);
        rest.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || "$_".contains(c)))
    };
    let is_string = || STRINGS.iter().any(numbered);
    name.starts_with(TABLES) || section.is_some_and(Section::is_stored) && is_string()
}
