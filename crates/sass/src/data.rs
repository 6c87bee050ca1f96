//! What a kernel shares with the rest of its file: variables, constants, functions by address. A file that is loaded a second time has
//! its own ones, so a kernel that reads some may not be run out of it.
//!
//! Machine code comes to them in three ways only: by constant bank 3, which holds `__constant__` variables, by bank 4, where addresses of
//! variables and functions are, and by relocations in the code itself. So nothing is followed here: who names one of those banks is refused.

use crate::elf::Image;
use crate::error::SharedData;
use crate::word::{BYTES, Word};

/// The kind of sections with relocations: `SHT_RELA` and `SHT_REL`.
const RELOCATIONS: [u64; 2] = [4, 9];
/// Operand forms with a constant in the second or in the third place; loads from a bank are of the second one too.
const WITH_CONSTANT: [u128; 2] = [5, 3];
/// The banks.
const VARIABLES: u128 = 3;
const ADDRESSES: u128 = 4;

/// Tables of the compiler's own functions, such as that of `sinf` for large numbers: nobody writes them.
const TABLES: &str = "__cudart_";

/// Beginnings of the names of functions that launch kernels or graphs.
const LAUNCHING: [&str; 6] = [
    "cudaLaunchDevice",
    "cudaGraphLaunch",
    "cudaCDP",
    "__cudaCDP",
    "__cuda_syscall_cnp",
    "cudaGetParameterBuffer",
];

/// What stands against running `kernel` out of a second copy of its file.
pub fn shared_data(image: &Image, kernel: &str) -> Option<SharedData> {
    if is_relocated(image, kernel) {
        return Some(SharedData::Relocations);
    }
    let only_tables = only_tables(image);
    for index in 0..image.sections.len() {
        if !is_code(image, kernel, index) {
            continue;
        }
        let data = image.data(index);
        let words = (0..data.len() / BYTES).filter_map(|at| Word::at(data, at * BYTES));
        for word in words {
            let form = word.bits(9, 3);
            if !WITH_CONSTANT.contains(&form) {
                continue;
            }
            match word.bits(54, 5) {
                VARIABLES => return Some(SharedData::Constants),
                ADDRESSES if !only_tables => return Some(SharedData::Addresses),
                _ => {}
            }
        }
    }
    None
}

/// The same by the tables of the file alone, without a look at any code: who might be sharing something is refused.
pub fn shared_tables(image: &Image, kernel: &str) -> Option<SharedData> {
    let is_there = |name: &str| {
        let section = image.section(name);
        section.is_some_and(|index| image.sections[index].size > 0)
    };
    if is_relocated(image, kernel) {
        return Some(SharedData::Relocations);
    }
    if is_there(".nv.constant3") {
        return Some(SharedData::Constants);
    }
    let addresses = is_there(".nv.constant4") && !only_tables(image);
    addresses.then_some(SharedData::Addresses)
}

/// A function by which the code of a file may launch something on the device.
pub fn launches(image: &Image) -> Option<&str> {
    let names = image.symbols.iter().map(|symbol| symbol.name.as_str());
    let mut launching = names.filter(|name| LAUNCHING.iter().any(|start| name.starts_with(start)));
    launching.next()
}

/// A section holds code that the kernel may run: its own, or that of a function which is called, from which nothing tells who calls it.
fn is_code(image: &Image, kernel: &str, section: usize) -> bool {
    let Some(name) = image.sections.get(section).map(|of| of.name.as_str()) else {
        return false;
    };
    let of_kernel = |symbol: &crate::elf::Symbol| symbol.section == section && symbol.is_kernel;
    let Some(function) = name.strip_prefix(".text.") else {
        return false;
    };
    function == kernel || !image.symbols.iter().any(of_kernel)
}

/// Code that the kernel may run has relocations.
fn is_relocated(image: &Image, kernel: &str) -> bool {
    let mut relocations = image
        .sections
        .iter()
        .filter(|section| RELOCATIONS.contains(&section.kind) && section.size > 0);
    relocations.any(|section| is_code(image, kernel, section.info as usize))
}

/// Nothing but tables of the compiler has its address in bank 4.
fn only_tables(image: &Image) -> bool {
    let Some(bank) = image.section(".nv.constant4") else {
        return false;
    };
    let all = image.sections.iter().enumerate();
    let mut of_bank = all
        .filter(|(_, section)| RELOCATIONS.contains(&section.kind) && section.info as usize == bank)
        .peekable();
    let named = |(index, section): (usize, &crate::elf::Section)| {
        let bytes = if section.kind == RELOCATIONS[0] {
            24
        } else {
            16
        };
        image.data(index).chunks_exact(bytes).all(|entry| {
            // The upper half of `r_info`.
            let symbol = entry[12..16].iter().rev();
            let symbol = symbol.fold(0u32, |number, byte| number << 8 | u32::from(*byte));
            let symbol = image.symbols.iter().find(|s| s.index == symbol);
            symbol.is_some_and(|symbol| symbol.name.starts_with(TABLES))
        })
    };
    of_bank.peek().is_some() && of_bank.all(named)
}
