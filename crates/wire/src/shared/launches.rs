//! Launches, counted in a memfd of their own that the agent and the tool share: whatever ends the
//! process, what was counted is there. Beside them stands how many launches had been counted before
//! the last copy of the maps from the device, so that a reader can tell how many launches' data are
//! missing.
//!
//! The size is fixed. Layout, all offsets in bytes, all numbers little-endian u64:
//!
//! | where | what |
//! |---|---|
//! | 0 | magic, version, rows in use, launches after the end |
//! | 256 | launches without programs that found no row: uninstrumented, skipped, unwanted |
//! | 4096 | per context 64 bytes: the last copy, launches with programs that found no row |
//! | 8192 | rows of 64 bytes: launches, kind and context, generation, place and length of the text |
//! | … | texts: a kernel's name and those of programs, separated by zero bytes |
//!
//! A row is written before it is in use, and only its number of launches changes then. The last
//! copy is four times the number of launches that were counted before it, and 0 before there was
//! one, 1 where nobody knows whether kernels ran during the copy, 2 where none did, 3 where some
//! did.

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};

use super::area::PAGE;
use super::error::{SharedError, os};
use super::memfd::{given, sealed, sealed_file};
use crate::words::{self, Words};

const NAME: &CStr = c"warpbpf-launches";
const MAGIC: u64 = u64::from_le_bytes(*b"wbpflnch");
const VERSION: u64 = 1;
const USED: u64 = 16;
const LATE: u64 = 24;
const OTHER: u64 = 256;
const CONTEXTS: u64 = PAGE;
const CONTEXT_STRIDE: u64 = 64;
const MOST_CONTEXTS: u64 = 64;
const ROWS: u64 = CONTEXTS + CONTEXT_STRIDE * MOST_CONTEXTS;
const ROW_STRIDE: u64 = 64;
const MOST_ROWS: u64 = if cfg!(test) { 32 } else { 8192 };
const TEXTS: u64 = ROWS + ROW_STRIDE * MOST_ROWS;
const TEXT_BYTES: u64 = if cfg!(test) { 1 << 10 } else { 1 << 20 };
/// More launches are counted by nobody: a sum of thousands of such numbers fits into 64 bits.
const MANY: u64 = 1 << 48;
const TOTAL: u64 = (TEXTS + TEXT_BYTES).next_multiple_of(PAGE);

/// What becomes of launches that a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LaunchKind {
    /// They have probes.
    With,
    /// They have, and are counted as [`LaunchKind::With`], too: those that some of the kernel's
    /// programs take, where the programs choose different launches.
    Chosen,
    /// They are of the original, although a program matches.
    Uninstrumented,
    /// They are of the original, because the user wanted no probes in them.
    Skipped,
    /// They are of the original, because no program in force wanted the kernel.
    Unwanted,
}

impl LaunchKind {
    const ALL: [LaunchKind; 5] = [
        LaunchKind::With,
        LaunchKind::Chosen,
        LaunchKind::Uninstrumented,
        LaunchKind::Skipped,
        LaunchKind::Unwanted,
    ];
}

/// Which launches a row counts. There is one row for all that are alike.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LaunchRow {
    /// What became of them.
    pub kind: LaunchKind,
    /// The number of the context; 0 of those without programs.
    pub context: u32,
    /// The set of programs; 0 of those without.
    pub generation: u64,
    /// The kernel's name in the image.
    pub kernel: String,
    /// Programs that are in all of them.
    pub programs: Vec<String>,
}

impl LaunchRow {
    fn text(&self) -> Vec<u8> {
        let mut text = self.kernel.clone().into_bytes();
        for program in &self.programs {
            text.push(0);
            text.extend(program.as_bytes());
        }
        text
    }
}

/// The last copy of a context's maps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LastCopy {
    /// Launches with programs that were counted before it.
    pub launches: u64,
    /// Kernels ran meanwhile; `None`: nobody knows.
    pub kernels_ran: Option<bool>,
}

impl LastCopy {
    fn word(self) -> u64 {
        let state = match self.kernels_ran {
            None => 1,
            Some(false) => 2,
            Some(true) => 3,
        };
        self.launches << 2 | state
    }

    fn of(word: u64) -> LastCopy {
        let launches = word >> 2;
        let kernels_ran = match word & 3 {
            3 => Some(true),
            // What was not launched does not run.
            1 if launches > 0 => None,
            _ => Some(false),
        };
        LastCopy {
            launches,
            kernels_ran,
        }
    }
}

fn context_at(context: u32) -> Option<u64> {
    let context = u64::from(context);
    (context < MOST_CONTEXTS).then(|| CONTEXTS + CONTEXT_STRIDE * context)
}

/// The agent's side.
#[derive(Debug)]
pub struct LaunchWriter {
    words: Words,
    rows: Mutex<Rows>,
}

#[derive(Debug, Default)]
struct Rows {
    /// Where the rows are.
    known: HashMap<LaunchRow, u64>,
    /// Those of launches with programs by their context.
    with: HashMap<u32, Vec<u64>>,
    text_bytes: u64,
}

impl LaunchWriter {
    /// Makes the memfd, sealed against any change of size.
    ///
    /// # Errors
    /// [`SharedError`]: there is none.
    pub fn create() -> Result<(LaunchWriter, OwnedFd), SharedError> {
        let (words, fd) = sealed(NAME, TOTAL)?;
        let rows = Mutex::default();
        let writer = LaunchWriter { words, rows };
        writer.begin();
        Ok((writer, given(fd)?))
    }

    /// Begins anew with another memfd. What counts launches stays where it is in memory, so that a
    /// counter which somebody still has is there, and counts something else by and by.
    ///
    /// # Errors
    /// [`SharedError`]: it is as it was.
    pub fn renew(&self) -> Result<OwnedFd, SharedError> {
        let fd = sealed_file(NAME, TOTAL)?;
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let mapped = fd.here().and_then(|fd| self.words.map_again(fd));
        mapped.map_err(os("mmap"))?;
        *rows = Rows::default();
        self.begin();
        given(fd)
    }

    fn begin(&self) {
        self.words.word(8).store(VERSION, Ordering::Relaxed);
        self.words.word(0).store(MAGIC, Ordering::Release);
    }

    /// What counts such launches: each adds one to it. Where there is no room for a row, that is
    /// what counts all of the kind that have none.
    pub fn row(&self, row: LaunchRow) -> &AtomicU64 {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = rows.known.get(&row) {
            return self.words.word(*at);
        }
        let text = row.text();
        let (number, at) = (rows.known.len() as u64, rows.text_bytes);
        let bytes = (text.len() as u64).next_multiple_of(8);
        if number == MOST_ROWS || at + bytes > TEXT_BYTES {
            return self.other(row.kind, row.context);
        }
        words::store(self.words.slice(TEXTS + at, bytes), &text);
        let entry = ROWS + ROW_STRIDE * number;
        let fields = [
            row.kind as u64 | u64::from(row.context) << 32,
            row.generation,
            at | (text.len() as u64) << 32,
        ];
        for (word, value) in self.words.slice(entry + 8, 24).iter().zip(fields) {
            word.store(value, Ordering::Relaxed);
        }
        self.words.word(USED).store(number + 1, Ordering::Release);
        if row.kind == LaunchKind::With {
            rows.with.entry(row.context).or_default().push(entry);
        }
        rows.text_bytes += bytes;
        rows.known.insert(row, entry);
        self.words.word(entry)
    }

    fn other(&self, kind: LaunchKind, context: u32) -> &AtomicU64 {
        let of_context = |behind| {
            // An agent has fewer contexts.
            let at = context_at(context).unwrap_or(CONTEXTS);
            self.words.word(at + behind)
        };
        match kind {
            LaunchKind::With => of_context(8),
            // Nobody reads it: they are counted above.
            LaunchKind::Chosen => of_context(16),
            LaunchKind::Uninstrumented => self.words.word(OTHER),
            LaunchKind::Skipped => self.words.word(OTHER + 8),
            LaunchKind::Unwanted => self.words.word(OTHER + 16),
        }
    }

    /// Launches with programs in a context so far.
    pub fn launches(&self, context: u32) -> u64 {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = rows.with.get(&context).into_iter().flatten();
        let rows = rows.map(|at| self.words.word(*at));
        let other = self.other(LaunchKind::With, context);
        rows.chain([other])
            .map(|word| word.load(Ordering::Acquire))
            .sum()
    }

    /// The maps of a context were copied.
    pub fn copied(&self, context: u32, copy: LastCopy) {
        if let Some(at) = context_at(context) {
            self.words.word(at).store(copy.word(), Ordering::Release);
        }
    }

    /// What counts launches after the agent's last copy, whose kernels programs match and which had
    /// none.
    pub fn late(&self) -> &AtomicU64 {
        self.words.word(LATE)
    }
}

/// What there is at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launches {
    /// Launches by row.
    pub rows: Vec<(LaunchRow, u64)>,
    /// By the number of the context, those with programs that found no row, and the last copy;
    /// contexts without either are left out.
    pub contexts: Vec<(u32, u64, LastCopy)>,
    /// Those without that found no row: uninstrumented, skipped and unwanted ones.
    pub other: [u64; 3],
    /// Launches after the end, as [`LaunchWriter::late`] counts them.
    pub late: u64,
}

/// Launches of which data are missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Missing {
    /// Launches with programs that were counted after the last copy had begun.
    pub launches: u64,
    /// Kernels ran while that was made, of which it has a part; `None`: nobody knows.
    pub kernels_ran: Option<bool>,
    /// Launches after the end.
    pub late: u64,
}

impl Launches {
    /// Launches with programs in a context.
    fn with_programs(&self, context: u32) -> u64 {
        let rows = self.rows.iter();
        let rows = rows
            .filter(|(row, _)| row.kind == LaunchKind::With && row.context == context)
            .map(|(_, launches)| *launches);
        let other = self.contexts.iter();
        let other = other
            .filter(|(number, ..)| *number == context)
            .map(|(_, other, _)| *other);
        rows.chain(other).fold(0, u64::saturating_add)
    }

    /// What the last copies do not have.
    pub fn missing(&self) -> Missing {
        let mut missing = Missing {
            kernels_ran: Some(false),
            late: self.late,
            ..Missing::default()
        };
        for context in 0..MOST_CONTEXTS as u32 {
            let copy = self
                .contexts
                .iter()
                .find(|(number, ..)| *number == context)
                .map_or(LastCopy::of(0), |(_, _, copy)| *copy);
            let here = self.with_programs(context).saturating_sub(copy.launches);
            missing.launches = missing.launches.saturating_add(here);
            missing.kernels_ran = match (missing.kernels_ran, copy.kernels_ran) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (None, _) | (_, None) => None,
                (Some(false), Some(false)) => Some(false),
            };
        }
        missing
    }
}

/// The tool's side. Keeps working when the agent is dead.
#[derive(Debug)]
pub struct LaunchReader {
    words: Words,
}

impl LaunchReader {
    /// Maps a memfd from an agent after checking that it is as long as it must be, and cannot
    /// shrink.
    ///
    /// # Errors
    /// [`SharedError`]: it is none.
    pub fn open(fd: impl AsFd) -> Result<LaunchReader, SharedError> {
        let format = |what: String| SharedError::Format { what };
        let seals = fcntl_get_seals(&fd).map_err(os("fcntl(F_GET_SEALS)"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(format("its file may shrink".into()));
        }
        let bytes = fstat(&fd).map_err(os("fstat"))?.st_size as u64;
        if bytes != TOTAL {
            return Err(format(format!("it has {bytes} bytes")));
        }
        let words = Words::map(&fd, TOTAL as usize).map_err(os("mmap"))?;
        if words.word(0).load(Ordering::Acquire) != MAGIC {
            return Err(format("its magic is wrong".into()));
        }
        let version = words.word(8).load(Ordering::Relaxed);
        if version != VERSION {
            let what = format!("its version is {version}, this is {VERSION}");
            return Err(format(what));
        }
        Ok(LaunchReader { words })
    }

    /// What there is now. Rows that are none of an agent's are left out.
    pub fn look(&self) -> Launches {
        let word = |at| self.words.word(at).load(Ordering::Relaxed);
        let used = self.words.word(USED).load(Ordering::Acquire);
        let mut text_bytes = 0;
        let mut rows = Vec::new();
        for number in 0..used.min(MOST_ROWS) {
            let Some((row, bytes)) = self.row(ROWS + ROW_STRIDE * number) else {
                continue;
            };
            // The texts of an agent lie beside each other.
            text_bytes += bytes;
            if text_bytes > TEXT_BYTES {
                break;
            }
            let launches = word(ROWS + ROW_STRIDE * number).min(MANY);
            rows.push((row, launches));
        }
        let contexts = (0..MOST_CONTEXTS as u32).filter_map(|number| {
            let at = context_at(number)?;
            let [copy, other] = [at, at + 8].map(word);
            (copy != 0 || other != 0).then(|| (number, other.min(MANY), LastCopy::of(copy)))
        });
        Launches {
            rows,
            contexts: contexts.collect(),
            other: [0, 8, 16].map(|behind| word(OTHER + behind).min(MANY)),
            late: word(LATE).min(MANY),
        }
    }

    /// The row there, and the bytes of its text.
    fn row(&self, at: u64) -> Option<(LaunchRow, u64)> {
        let field = |behind| self.words.word(at + behind).load(Ordering::Relaxed);
        let [kind, generation, place] = [8, 16, 24].map(field);
        let context = (kind >> 32) as u32;
        let kind = *LaunchKind::ALL.get(kind as u32 as usize)?;
        context_at(context)?;
        let (start, bytes) = (place & u64::from(u32::MAX), place >> 32);
        let room = bytes.next_multiple_of(8);
        if !start.is_multiple_of(8) || start + room > TEXT_BYTES {
            return None;
        }
        let mut text = vec![0; bytes as usize];
        words::load(self.words.slice(TEXTS + start, room), &mut text);
        let text = String::from_utf8(text).ok()?;
        let mut names = text.split('\0').map(str::to_owned);
        let row = LaunchRow {
            kind,
            context,
            generation,
            kernel: names.next()?,
            programs: names.collect(),
        };
        Some((row, bytes))
    }
}

#[cfg(test)]
mod tests;
