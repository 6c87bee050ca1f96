//! Functions of a library as it lies in the memory of a process: the file may be another one by
//! now, or in a container.

use std::ops::Range;

use crate::error::InjectError;
use crate::memory::Bytes;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NULL: u64 = 0;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// `sizeof(Elf64_Sym)`
const SYMBOL: u64 = 24;
/// `STT_GNU_IFUNC`: its address is that of a function that chooses one.
const IFUNC: u8 = 10;
/// Most symbols that are looked at one by one, in a library without a table of hashes.
const MOST: u32 = 1 << 16;
/// Most symbols whose names have hashes that end alike: a chain that is longer is damaged, and each
/// costs some calls.
const MOST_ALIKE: u32 = 1 << 12;
/// Most entries of a dynamic section that are looked at: libraries have some thirty.
const MOST_TAGS: u64 = 4096;

/// A loaded library.
#[derive(Debug)]
pub struct Library<'m> {
    memory: &'m dyn Bytes,
    bias: u64,
    strings: u64,
    symbols: u64,
    gnu: Option<u64>,
    sysv: Option<u64>,
}

impl<'m> Library<'m> {
    /// Reads its headers, which lie at `base`. `None` if they are not those of a dynamic ELF file.
    pub fn at(memory: &'m dyn Bytes, base: u64) -> Option<Library<'m>> {
        let mut header = [0; 64];
        memory.read(base, &mut header).ok()?;
        if &header[..5] != b"\x7fELF\x02" {
            return None;
        }
        let table = base.checked_add(u64::from_le_bytes(header[32..40].try_into().ok()?))?;
        let count = u64::from(u16::from_le_bytes(header[56..58].try_into().ok()?));
        let (mut low, mut dynamic) = (None, None);
        for n in 0..count {
            let mut entry = [0; 56];
            memory.read(table.checked_add(n * 56)?, &mut entry).ok()?;
            let word = |at: usize| Some(u64::from_le_bytes(entry[at..at + 8].try_into().ok()?));
            match u32::from_le_bytes(entry[..4].try_into().ok()?) {
                PT_LOAD if low.is_none() => low = Some(word(16)? & !0xfff),
                PT_DYNAMIC => dynamic = Some((word(16)?, word(40)?)),
                _ => {}
            }
        }
        let bias = base.wrapping_sub(low?);
        let (at, bytes) = dynamic?;
        let (mut strings, mut symbols, mut gnu, mut sysv) = (None, None, None, None);
        for n in 0..(bytes / 16).min(MOST_TAGS) {
            let entry = bias.wrapping_add(at).checked_add(n * 16)?;
            let mut words = [0; 16];
            memory.read(entry, &mut words).ok()?;
            let [tag, value] = [0, 8].map(|at| {
                let mut word = [0; 8];
                word.copy_from_slice(&words[at..at + 8]);
                u64::from_le_bytes(word)
            });
            // The loader of glibc writes addresses where the file has offsets; that of the vDSO
            // does not.
            let address = if value < base {
                value.wrapping_add(bias)
            } else {
                value
            };
            match tag {
                DT_NULL => break,
                DT_STRTAB => strings = Some(address),
                DT_SYMTAB => symbols = Some(address),
                DT_GNU_HASH => gnu = Some(address),
                DT_HASH => sysv = Some(address),
                _ => {}
            }
        }
        Some(Library {
            memory,
            bias,
            strings: strings?,
            symbols: symbols?,
            gnu,
            sysv,
        })
    }

    /// Where a function is that the library has itself, and how long.
    ///
    /// # Errors
    /// Its tables cannot be read.
    pub fn function(&self, name: &str) -> Result<Option<Range<u64>>, InjectError> {
        if let Some(gnu) = self.gnu {
            return self.by_gnu_hash(gnu, name);
        }
        let Some(sysv) = self.sysv else {
            return Ok(None);
        };
        // Its second word is the number of symbols.
        for n in 0..self.half(sysv, 4)?.min(MOST) {
            if let Some(found) = self.symbol(n, name)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn by_gnu_hash(&self, table: u64, name: &str) -> Result<Option<Range<u64>>, InjectError> {
        let hash = name.bytes().fold(5381u32, |hash, byte| {
            hash.wrapping_mul(33).wrapping_add(u32::from(byte))
        });
        let half = |at: u64| self.half(table, at);
        let (n_buckets, first, n_bloom) = (half(0)?, half(4)?, half(8)?);
        if n_buckets == 0 {
            return Ok(None);
        }
        let buckets = 16 + u64::from(n_bloom) * 8;
        let chains = buckets + u64::from(n_buckets) * 4;
        let begin = half(buckets + u64::from(hash % n_buckets) * 4)?;
        if begin < first {
            return Ok(None);
        }
        for at in begin..begin.saturating_add(MOST_ALIKE) {
            let there = half(chains + u64::from(at - first) * 4)?;
            if there | 1 == hash | 1
                && let Some(found) = self.symbol(at, name)?
            {
                return Ok(Some(found));
            }
            // The last one of a chain is odd.
            if there & 1 == 1 {
                break;
            }
        }
        Ok(None)
    }

    /// The symbol with this number, if it is a function of this name.
    fn symbol(&self, number: u32, name: &str) -> Result<Option<Range<u64>>, InjectError> {
        let row = u64::from(number) * SYMBOL;
        let named = u64::from(self.half(self.symbols, row)?);
        let info = self.half(self.symbols, row + 4)?;
        let (kind, section) = ((info & 0xf) as u8, info >> 16);
        let named = place(self.strings, named)?;
        if section == 0 || kind == IFUNC || self.memory.text(named, name.len() + 1) != name {
            return Ok(None);
        }
        let word = |at: u64| self.memory.word(place(self.symbols, row + at)?);
        let start = self.bias.wrapping_add(word(8)?);
        // One that goes beyond all addresses is none.
        let end = start.checked_add(word(16)?);
        Ok(end.map(|end| start..end))
    }

    /// A small number in a table.
    fn half(&self, table: u64, at: u64) -> Result<u32, InjectError> {
        self.memory.half(place(table, at)?)
    }
}

/// A place in a table, whose address is what the process says.
fn place(table: u64, at: u64) -> Result<u64, InjectError> {
    table
        .checked_add(at)
        .ok_or(InjectError::Table { at: table })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::process::Subject;

    #[test]
    fn functions_are_where_the_loader_says() {
        let pid = std::process::id();
        let memory = Memory::open(pid).unwrap();
        let maps = crate::proc::mappings(pid).unwrap();
        let subject = Subject {
            pid,
            seccomp: false,
            maps,
        };
        let base = subject.base_of(|name| name == "libc.so.6").unwrap();
        let libc = Library::at(&memory, base).unwrap();
        for name in [c"pthread_create", c"malloc", c"dlopen", c"getppid"] {
            // SAFETY: a NUL-terminated name.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as u64;
            let found = libc.function(name.to_str().unwrap()).unwrap().unwrap();
            assert_eq!(found.start, expected, "{name:?}");
            assert!(!found.is_empty() && found.end - found.start < 1 << 16);
            let code = subject.code_of(base);
            assert!(code.iter().any(|range| range.contains(&found.start)));
        }
        assert_eq!(libc.function("no_such_function").unwrap(), None);
        // Chosen by the processor.
        assert_eq!(libc.function("strlen").unwrap(), None);
        assert!(Library::at(&memory, base + 4096).is_none());
        assert!(Library::at(&memory, 8).is_none());
    }

    #[test]
    fn a_file_that_is_mapped_besides_changes_nothing() {
        use std::os::fd::AsRawFd as _;
        let pid = std::process::id();
        let memory = Memory::open(pid).unwrap();
        let look = || Subject {
            pid,
            seccomp: false,
            maps: crate::proc::mappings(pid).unwrap(),
        };
        let is_libc = |name: &str| name == "libc.so.6";
        let before = look();
        let base = before.base_of(is_libc).unwrap();
        let mapping = before.maps.iter().find(|m| m.range.start == base).unwrap();
        let file = std::fs::File::open(&mapping.name).unwrap();
        let bytes = file.metadata().unwrap().len() as usize;
        // SAFETY: new memory, of a file that nobody changes.
        let there = unsafe {
            let (rights, kind) = (libc::PROT_READ, libc::MAP_PRIVATE);
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                rights,
                kind,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(there, libc::MAP_FAILED);
        let now = look();
        assert!(now.maps.iter().any(|m| m.range.start == there as u64));
        assert_eq!(now.base_of(is_libc), Some(base));
        let libc = Library::at(&memory, base).unwrap();
        // SAFETY: a NUL-terminated name.
        let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"getppid".as_ptr()) } as u64;
        assert_eq!(libc.function("getppid").unwrap().unwrap().start, expected);
        // SAFETY: it was mapped above, and nothing refers to it.
        assert_eq!(unsafe { libc::munmap(there, bytes) }, 0);
    }
}
