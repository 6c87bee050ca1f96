//! Code that a process has already and by which a borrowed thread makes system calls and finds its
//! way home: a system call with a return behind it, and the `rt_sigreturn` that ends signal
//! handlers.

use std::ops::Range;

use crate::elf::Library;
use crate::error::InjectError;
use crate::machine::{GATES, RESTORER, RESTORER_IN};
use crate::memory::{Bytes as _, Memory};
use crate::process::Subject;

/// Bytes that are read at once.
const PIECE: u64 = 64 << 10;
/// Where a function is searched.
const NEAR: u64 = 64;

/// Addresses of code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gate {
    /// A system call, and a return.
    pub(crate) call: u64,
    /// `rt_sigreturn`.
    pub(crate) restorer: u64,
}

impl Gate {
    /// Looks into libc, which lies at `base`.
    ///
    /// # Errors
    /// [`InjectError::NoFunction`]: it has no such code.
    pub(crate) fn find(subject: &Subject, memory: &Memory, base: u64) -> Result<Gate, InjectError> {
        let (names, code) = GATES;
        let library = Library::at(memory, base);
        let functions = names.iter().filter_map(|name| {
            let found = library.as_ref()?.function(name).ok()??;
            Some(found.start..found.start.saturating_add(NEAR))
        });
        let all = subject.code_of(base);
        let call = search(memory, functions.chain(all.clone()), code);
        let call = call.ok_or(InjectError::NoFunction {
            pid: subject.pid,
            function: names[0],
        })?;
        let ranges = match RESTORER_IN {
            Some(name) => {
                let named = subject.maps.iter().filter(|m| m.name == name);
                named.map(|m| m.range.clone()).collect()
            }
            None => all,
        };
        let restorer = search(memory, ranges.into_iter(), RESTORER);
        let restorer = restorer.ok_or(InjectError::NoFunction {
            pid: subject.pid,
            function: "rt_sigreturn",
        })?;
        Ok(Gate { call, restorer })
    }
}

/// The first address in these ranges with these bytes.
fn search(
    memory: &Memory,
    mut ranges: impl Iterator<Item = Range<u64>>,
    code: &[u8],
) -> Option<u64> {
    ranges.find_map(|range| {
        let mut at = range.start;
        while at < range.end {
            // A piece goes so far into the next one that nothing is cut.
            let length = (range.end - at).min(PIECE + code.len() as u64 - 1);
            let bytes = memory.read_some(at, length as usize);
            let found = bytes.windows(code.len()).position(|some| some == code);
            if let Some(found) = found {
                return Some(at + found as u64);
            }
            at = at.saturating_add(PIECE);
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_where_pieces_meet_and_nowhere_else() {
        let pid = std::process::id();
        let memory = Memory::open(pid).unwrap();
        let mut bytes = vec![0u8; 2 * PIECE as usize];
        let start = bytes.as_ptr() as u64;
        let code = [0x5a, 0xa5, 0x77];
        let all = start..start + bytes.len() as u64;
        let find = |bytes: &[u8]| {
            assert_eq!(bytes.as_ptr() as u64, start);
            search(&memory, [all.clone()].into_iter(), &code)
        };
        assert_eq!(find(&bytes), None);
        for at in [0, PIECE as usize - 1, PIECE as usize, bytes.len() - 3] {
            bytes.fill(0);
            bytes[at..at + 3].copy_from_slice(&code);
            assert_eq!(find(&bytes), Some(start + at as u64), "{at}");
        }
    }

    #[test]
    fn a_process_has_both() {
        let pid = std::process::id();
        let memory = Memory::open(pid).unwrap();
        let subject = Subject::look(pid).unwrap();
        let base = subject.base_of(|name| name == "libc.so.6").unwrap();
        let gate = Gate::find(&subject, &memory, base).unwrap();
        let mut code = [0; RESTORER.len()];
        memory.read(gate.restorer, &mut code).unwrap();
        assert_eq!(code, RESTORER);
        let mut code = vec![0; GATES.1.len()];
        memory.read(gate.call, &mut code).unwrap();
        assert_eq!(code, GATES.1);
    }
}
