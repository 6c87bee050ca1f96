//! Where the driver's functions are, by the file that it was loaded from: asking the dynamic loader
//! could wait for a thread that waits for us (see `uprobe`).

use std::collections::HashMap;

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSymbol as _, ReadCache};

use crate::runtime::agent::Agent;
use crate::sys::anchor::{ANCHOR, driver_at};
use crate::sys::symbols::code_of;
use crate::uprobe::mapped::mapped_around;

/// The driver's functions with their code.
pub(crate) enum Functions<'a> {
    /// Of a library: address and bytes by name.
    File(HashMap<String, (usize, usize)>),
    /// Of a driver that is no library of its own.
    Asked(&'a Agent),
}

impl<'a> Functions<'a> {
    /// Reads the driver's symbols.
    pub(crate) fn new(agent: &'a Agent, maps: &[u8]) -> Functions<'a> {
        match read(driver_at(), maps) {
            Some(functions) => Functions::File(functions),
            None => Functions::Asked(agent),
        }
    }

    /// Address and code of one.
    pub(crate) fn find(&self, name: &str) -> Option<(usize, Vec<u8>)> {
        match self {
            Functions::File(functions) => {
                let (address, bytes) = *functions.get(name)?;
                // SAFETY: code of the driver, which is never unloaded.
                let code = unsafe { std::slice::from_raw_parts(address as *const u8, bytes) };
                Some((address, code.to_vec()))
            }
            Functions::Asked(agent) => {
                let address = agent.symbol(name)?;
                // SAFETY: the driver has a function there.
                Some((address, unsafe { code_of(address) }))
            }
        }
    }
}

/// Functions of the file whose code lies around `anchor`, which is [`ANCHOR`]'s.
fn read(anchor: usize, maps: &[u8]) -> Option<HashMap<String, (usize, usize)>> {
    let (path, code) = mapped_around(maps, anchor)?;
    let cache = ReadCache::new(warpbpf_descriptor::open(&path).ok()?);
    let elf: ElfFile64<'_, object::Endianness, _> = ElfFile64::parse(&cache).ok()?;
    let functions = || {
        let all = elf.dynamic_symbols();
        all.filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.is_definition())
    };
    let at = functions().find(|symbol| symbol.name() == Ok(ANCHOR))?;
    let moved = (anchor as u64).wrapping_sub(at.address());
    let placed = |symbol: object::read::elf::ElfSymbol64<'_, '_, object::Endianness, _>| {
        let address = usize::try_from(symbol.address().wrapping_add(moved)).ok()?;
        let bytes = usize::try_from(symbol.size()).ok()?;
        let end = address.checked_add(bytes)?;
        let inside = bytes > 0 && code.start <= address && end <= code.end;
        inside.then_some((symbol.name().ok()?.to_owned(), (address, bytes)))
    };
    Some(functions().filter_map(placed).collect())
}
