//! What a kernel shares with the rest of its file: variables, constants, functions by address. A file that is loaded a second time has
//! its own ones, so a kernel that reads some may not be run out of it.
//!
//! Machine code comes to them in three ways only: by constant bank 3, which holds `__constant__` variables, by bank 4, where addresses of
//! variables and functions are, and by relocations in the code itself. So nothing is followed here: who names one of those banks is refused, but where
//! an address leads to what is the same in each copy: strings and tables that the compiler made, and functions of the driver's. By those kernels print and assert.

use crate::elf::Image;
use crate::error::SharedData;
use crate::file::File;
use crate::word::{BYTES, RZ, Word};

/// Operand forms with a constant in the second or in the third place; loads from a bank are of the second one too.
const WITH_CONSTANT: [u128; 2] = [5, 3];
/// The banks.
const VARIABLES: u128 = 3;
const ADDRESSES: u128 = 4;
/// Opcodes that load from a bank at an offset in a register: always, and if it names one.
const ULDC_INDEXED: u16 = 0x0bb;
const LDC: u16 = 0x182;

/// Relocation of an address of 64 bits.
const ADDRESS: u32 = 2;
/// Bytes of that.
const WIDE: u64 = 8;

/// Tables of the compiler's own functions, such as that of `sinf` for large numbers: nobody writes them.
const TABLES: &str = "__cudart_";
/// Strings in the code, and names of functions in messages of `assert`: likewise. No variable of a source can have such a name, but for one by `extern "C"`.
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

impl File<'_> {
    /// What stands against running `kernel` out of a second copy of the file.
    pub fn shared_data(&self, kernel: &str) -> Option<SharedData> {
        let own = self.sections(&format!(".text.{kernel}"));
        if self.has_relocations(own) {
            return Some(SharedData::Relocations);
        }
        let of_functions = self.functions_share.get_or_init(|| {
            let shares = |index: &usize| Some((*index, self.shared_by(*index)?));
            self.functions().iter().find_map(shares)
        });
        let of_own = own
            .iter()
            .find_map(|index| Some((*index, self.shared_by(*index)?)));
        // The first in the order of the file.
        let all = [of_own, *of_functions].into_iter().flatten();
        all.min_by_key(|(index, _)| *index)
            .map(|(_, shared)| shared)
    }

    /// The same by the tables of the file alone, without a look at any code: who might be sharing something is refused.
    pub fn shared_tables(&self, kernel: &str) -> Option<SharedData> {
        let is_there = |name: &str| {
            let section = self.section(name);
            section.is_some_and(|index| self.image.sections[index].size > 0)
        };
        if self.has_relocations(self.sections(&format!(".text.{kernel}"))) {
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

    /// Code that the kernel may run has relocations: its own, or that of a function which is called, from which nothing tells who calls it.
    fn has_relocations(&self, own: &[usize]) -> bool {
        let mut all = own.iter().chain(self.functions());
        all.any(|section| self.is_relocated(*section))
    }

    /// What the code in a section shares with the module, by its first instruction that does.
    fn shared_by(&self, section: usize) -> Option<SharedData> {
        let data = self.image.data(section);
        let mut words = (0..data.len() / BYTES).filter_map(|at| Word::at(data, at * BYTES));
        words.find_map(|word| {
            let form = word.bits(9, 3);
            if !WITH_CONSTANT.contains(&form) {
                return None;
            }
            match word.bits(54, 5) {
                VARIABLES => Some(SharedData::Constants),
                ADDRESSES if !self.bank().is_read_alike(word) => Some(SharedData::Addresses),
                _ => None,
            }
        })
    }

    fn bank(&self) -> &Bank {
        self.bank.get_or_init(|| Bank::read(self))
    }
}

/// Bank 4: addresses that the loader writes.
#[derive(Debug)]
pub(crate) struct Bank {
    /// Where each is, in order, and whether what it leads to is the same in each copy of the file.
    slots: Vec<(u64, bool)>,
}

impl Bank {
    fn read(file: &File<'_>) -> Bank {
        let bank = file.section(".nv.constant4");
        let entries = bank.into_iter().flat_map(|bank| file.relocations(bank));
        let mut slots: Vec<(u64, bool)> = entries
            .map(|entry| {
                let number = |range: std::ops::Range<usize>| {
                    let bytes = entry[range].iter().rev();
                    bytes.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
                };
                let symbol = file.image.symbols.get(number(12..16) as usize);
                let same = number(8..12) == u64::from(ADDRESS)
                    && symbol.is_some_and(|symbol| is_same_in_copies(&file.image, symbol));
                (number(0..8), same)
            })
            .collect();
        slots.sort_unstable();
        Bank { slots }
    }

    fn is_same_in_copies(&self) -> bool {
        !self.slots.is_empty() && self.slots.iter().all(|(_, same)| *same)
    }

    /// What an instruction takes out of the bank is, or leads to, the same in each copy.
    fn is_read_alike(&self, word: Word) -> bool {
        let base = word.base();
        let index = word.bits(24, 8);
        if base == ULDC_INDEXED || base == LDC && index != u128::from(RZ) {
            return self.is_same_in_copies();
        }
        let at = word.bits(38, 16) as u64;
        // Halves of an address are read one by one, too.
        let end = at
            + if at.is_multiple_of(WIDE) {
                WIDE
            } else {
                WIDE / 2
            };
        let slots = self.slots.iter();
        let mut read = slots
            .filter(|(slot, _)| *slot < end && slot.saturating_add(WIDE) > at)
            .peekable();
        read.peek().is_some() && read.all(|(_, same)| *same)
    }
}

/// What a symbol stands for is never written, and nobody asks for its address by its name; or the driver has it once.
fn is_same_in_copies(image: &Image, symbol: &crate::elf::Symbol) -> bool {
    let name = symbol.name.as_str();
    if symbol.section == 0 {
        return symbol.is_function && OF_DRIVER.contains(&name);
    }
    let stored = image
        .sections
        .get(symbol.section)
        .is_some_and(|s| s.is_stored());
    let numbered = |start: &&str| {
        let rest = name.strip_prefix(*start);
        rest.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || "$_".contains(c)))
    };
    name.starts_with(TABLES) || stored && STRINGS.iter().any(numbered)
}
