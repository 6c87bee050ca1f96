//! Looks at an edited cubin as if someone else had made it, before it may be loaded: every byte
//! that differs must be one that an edit may change, and every thread must still go where it went.
//!
//! It knows the original and the result and nothing of how one became the other. Sections and
//! kernels are read a second time by `warpbpf-fatbin`, whose ELF reader is not ours.

mod accesses;
mod bank;
mod code;
mod parameters;

use std::collections::HashMap;
use std::ops::Range;

use warpbpf_fatbin::{Cubin, Kernel};

use code::Code;
use parameters::Parameters;

use crate::arch::Arch;
use crate::bank::Addresses;
use crate::elf::{GRAIN, Image, Moves};
use crate::error::CheckError;
use crate::hidden::Launch;
use crate::info;
use crate::probe::REGISTERS;
use crate::word::{BYTES, Word};

/// A kernel that should have got probes, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Put<'a> {
    /// Its name.
    pub kernel: &'a str,
    /// Where it begins.
    pub entry: bool,
    /// Wherever a thread of it ends.
    pub exit: bool,
    /// Wherever it accesses global memory by loads and stores: alone.
    pub accesses: bool,
    /// What a launch tells probes at its ends.
    pub launch: Launch,
}

/// Kernels that are not what they must be: by index, and what is wrong.
pub type Wrong = Vec<(usize, CheckError)>;

/// Checks that `after` is `before` with probes in `kernel`, at its entry, its exits, or both.
///
/// # Errors
/// [`CheckError`]: what is wrong with it.
pub fn check(
    before: &[u8],
    after: &[u8],
    kernel: &str,
    entry: bool,
    exit: bool,
) -> Result<(), CheckError> {
    let put = Put {
        kernel,
        entry,
        exit,
        accesses: false,
        launch: Launch::default(),
    };
    let wrong = check_all(before, after, &[put], &Addresses::new())?;
    wrong
        .into_iter()
        .next()
        .map_or(Ok(()), |(_, error)| Err(error))
}

/// Checks that `after` is `before` with probes in these kernels and these addresses of variables,
/// and nothing else; each kernel is there once. Gives those that are wrong by themselves.
///
/// # Errors
/// [`CheckError`]: what is wrong with the file.
pub fn check_all(
    before: &[u8],
    after: &[u8],
    puts: &[Put<'_>],
    addresses: &Addresses,
) -> Result<Wrong, CheckError> {
    let unreadable = |e: &dyn std::fmt::Display| CheckError::Unreadable(e.to_string());
    let old = Image::parse(before).map_err(|e| unreadable(&e))?;
    let new = Image::parse(after).map_err(|e| unreadable(&e))?;
    let read = |bytes| Cubin::parse(bytes).map_err(|e| unreadable(&e));
    let (was, is) = (read(before)?, read(after)?);
    let mut edited = Edited::find((&old, &new), &was, puts)?;
    edited.bank = bank::expected(&old, addresses)?;
    layout(&old, &new, &edited)?;
    bank::check((&old, &new), after, &edited.bank)?;
    same_bytes((before, after), (&old, &new), &edited)?;
    symbols(&old, &new, &edited)?;
    let pairs = kernels(&was, &is, &edited)?;
    let mut wrong = Vec::new();
    for (index, (one, put)) in edited.all.iter().zip(puts).enumerate() {
        let checked = pairs
            .get(&index)
            .ok_or_else(|| CheckError::Changed(put.kernel.to_owned()))
            .and_then(|(was, is)| one.check((&old, &new), (was, is), put));
        if let Err(error) = checked {
            wrong.push((index, error));
        }
    }
    Ok(wrong)
}

/// The code of one kernel, before it is in a file: see [`check`].
pub(crate) fn check_code(
    arch: Arch,
    code: (&[Word], &[Word]),
    put: Put<'_>,
    given: (u32, u32),
) -> Result<(), CheckError> {
    exits(arch, code, put, given).map(|_| ())
}

/// Checks the code of a kernel, before and after, and gives where threads end in it. Given are
/// bytes of stack that there are for probes, and where in bank 0 is what a launch tells.
fn exits(
    arch: Arch,
    (old, new): (&[Word], &[Word]),
    put: Put<'_>,
    (stack, launch_at): (u32, u32),
) -> Result<Vec<u64>, CheckError> {
    let code = Code {
        arch,
        old,
        new,
        exit: put.exit,
        stack,
        launch: put.launch,
        launch_at,
    };
    match put.accesses {
        true => code.check_accesses(),
        false => code.check(put.entry),
    }
}

/// A kernel with probes: its symbol, the section of its code, and how much longer that is.
struct One {
    symbol: usize,
    text: usize,
    growth: u64,
    parameters: Option<Parameters>,
}

/// All kernels with probes, in the order that they were given in, and how to find them.
struct Edited {
    all: Vec<One>,
    by_symbol: HashMap<usize, usize>,
    by_text: HashMap<usize, usize>,
    /// By the name of their attributes.
    by_info: HashMap<String, usize>,
    /// Sections that are longer than by code, by how much.
    longer: HashMap<usize, u64>,
    by_name: HashMap<String, usize>,
    moves: Moves,
    /// Sections where addresses of variables stand.
    bank: bank::Expected,
}

impl Edited {
    fn find(
        (old, new): (&Image, &Image),
        facts: &Cubin,
        puts: &[Put<'_>],
    ) -> Result<Edited, CheckError> {
        let (was, is) = (kernels_of(old), kernels_of(new));
        let mut edited = Edited {
            all: Vec::new(),
            by_symbol: HashMap::new(),
            by_text: HashMap::new(),
            by_info: HashMap::new(),
            longer: HashMap::new(),
            by_name: HashMap::new(),
            moves: Moves::new(std::iter::empty()),
            bank: bank::Expected::new(),
        };
        let mut pieces = Vec::new();
        for (index, put) in puts.iter().enumerate() {
            let missing = || CheckError::Changed(put.kernel.to_owned());
            let &(symbol, text) = was.get(put.kernel).ok_or_else(missing)?;
            if is.get(put.kernel) != Some(&(symbol, text)) {
                return Err(missing());
            }
            let kernel = facts.kernel(put.kernel).ok_or_else(missing)?;
            let parameters = Parameters::find((old, new), kernel, put.launch)?;
            let end = |section: usize| {
                let section = &old.sections[section];
                section.offset + section.size
            };
            if let Some(longer) = &parameters {
                for (section, growth) in [
                    (longer.bank, longer.bank_growth),
                    (longer.info, longer.info_growth),
                ] {
                    if edited.longer.insert(section, growth).is_some() {
                        return Err(CheckError::Layout(old.sections[section].name.clone()));
                    }
                    pieces.push((end(section), growth));
                }
            }
            let section = &old.sections[text];
            let growth = new.sections[text].size.wrapping_sub(section.size);
            let repeated = edited.by_text.insert(text, index).is_some();
            if repeated || growth == 0 || growth > 1 << 32 || !growth.is_multiple_of(GRAIN) {
                return Err(CheckError::Layout(section.name.clone()));
            }
            pieces.push((end(text), growth));
            edited.by_symbol.insert(symbol, index);
            edited
                .by_info
                .insert(format!(".nv.info.{}", put.kernel), index);
            edited.by_name.insert(put.kernel.to_owned(), index);
            edited.all.push(One {
                symbol,
                text,
                growth,
                parameters,
            });
        }
        pieces.sort_unstable();
        edited.moves = Moves::new(pieces.into_iter());
        Ok(edited)
    }
}

/// Symbol and section of each kernel that is in one, by name.
fn kernels_of(image: &Image) -> HashMap<&str, (usize, usize)> {
    let mut all = HashMap::new();
    for symbol in image.symbols.iter().filter(|s| s.is_kernel) {
        if symbol.section < image.sections.len() {
            let at = (symbol.index as usize, symbol.section);
            all.entry(symbol.name.as_str()).or_insert(at);
        }
    }
    all
}

impl One {
    /// What is its own: code and what the driver will believe of it.
    fn check(
        &self,
        (old, new): (&Image, &Image),
        (was, is): (&Kernel, &Kernel),
        put: &Put<'_>,
    ) -> Result<(), CheckError> {
        let (before, after) = (words(old.data(self.text)), words(new.data(self.text)));
        let stack = is.frame_size.saturating_sub(was.frame_size);
        let launch_at = self.parameters.as_ref().map_or(0, |longer| longer.at);
        let code = (&before[..], &after[..]);
        let exits = exits(old.arch, code, *put, (stack, launch_at))?;
        let longer = self.parameters.as_ref().map(|longer| longer.of(was));
        facts(longer.as_ref().unwrap_or(was), is, self.growth, &exits)?;
        let header = new.sections[self.text].info >> 24;
        if header != 0 && is.registers.map(u64::from) != Some(header) {
            return Err(CheckError::Metadata {
                what: "registers in the section's header",
                found: header.to_string(),
                expected: format!("{:?}", is.registers),
            });
        }
        Ok(())
    }
}

fn words(code: &[u8]) -> Vec<Word> {
    let chunks = code.chunks_exact(BYTES);
    chunks.filter_map(|chunk| Word::at(chunk, 0)).collect()
}

/// Sections and segments: the same ones, those behind longer code further back.
fn layout(old: &Image, new: &Image, edited: &Edited) -> Result<(), CheckError> {
    let wrong = |name: &str| CheckError::Layout(name.to_owned());
    if old.sections.len() != new.sections.len() || old.segments.len() != new.segments.len() {
        return Err(wrong("the tables"));
    }
    for (index, (was, is)) in old.sections.iter().zip(&new.sections).enumerate() {
        let mut expected = was.clone();
        expected.offset += edited.moves.by(was.offset);
        if let Some(one) = edited.by_text.get(&index) {
            expected.size += edited.all[*one].growth;
            // The number of registers; compared with the attributes elsewhere.
            expected.info = was.info & 0x00ff_ffff | is.info & 0xff00_0000;
        }
        if let Some((_, bytes)) = edited.bank.iter().find(|(of, _)| *of == index) {
            expected.size = bytes.len() as u64;
        }
        expected.size += edited.longer.get(&index).copied().unwrap_or(0);
        if *is != expected {
            return Err(wrong(&was.name));
        }
    }
    for (index, (was, is)) in old.segments.iter().zip(&new.segments).enumerate() {
        if *is != edited.moves.segment(was) {
            return Err(wrong(&format!("segment {index}")));
        }
    }
    Ok(())
}

/// All bytes of the file but those that were just compared by their meaning, or will be.
fn same_bytes(
    (before, after): (&[u8], &[u8]),
    (old, new): (&Image, &Image),
    edited: &Edited,
) -> Result<(), CheckError> {
    if after.len() as u64 != before.len() as u64 + edited.moves.by(u64::MAX) {
        return Err(CheckError::Layout("the file".to_owned()));
    }
    // Without what was added the file is as long as it was.
    let mut added: Vec<(usize, usize)> = edited
        .all
        .iter()
        .map(|one| {
            let section = &new.sections[one.text];
            let end = (section.offset + section.size) as usize;
            (end - one.growth as usize, end)
        })
        .collect();
    for longer in edited.all.iter().filter_map(|one| one.parameters.as_ref()) {
        added.extend(zeros(after, new, longer)?);
    }
    added.sort_unstable();
    let mut stripped = Vec::with_capacity(before.len());
    let mut from = 0;
    for (start, end) in added {
        stripped.extend_from_slice(&after[from..start]);
        from = end;
    }
    stripped.extend_from_slice(&after[from..]);

    for range in open(before, after, (old, new), edited)? {
        let was = before.get(range.clone());
        if let Some((was, is)) = was.zip(stripped.get_mut(range)) {
            is.copy_from_slice(was);
        }
    }
    if before == stripped {
        return Ok(());
    }
    let mut pairs = before.iter().zip(&stripped);
    let at = pairs.position(|(was, is)| was != is).unwrap_or(0) as u64;
    let here =
        |s: &&crate::elf::Section| s.is_stored() && (s.offset..s.offset + s.size).contains(&at);
    let name = old.sections.iter().find(here).map(|s| s.name.clone());
    Err(CheckError::Changed(
        name.unwrap_or_else(|| format!("byte {at:#x} of the file")),
    ))
}

/// What there is of a new parameter in the file: attributes, and zeros in its bank and behind both.
fn zeros(
    after: &[u8],
    new: &Image,
    longer: &Parameters,
) -> Result<[(usize, usize); 3], CheckError> {
    let filled = |section: usize, from: u64, growth: u64| {
        let section = &new.sections[section];
        let end = section.offset + section.size - growth + growth.next_multiple_of(GRAIN);
        let range = (section.offset + from) as usize..end as usize;
        match after.get(range.clone()) {
            Some(bytes) if bytes.iter().all(|byte| *byte == 0) => Ok((range.start, range.end)),
            _ => Err(CheckError::Changed(section.name.clone())),
        }
    };
    let bank = new.sections[longer.bank].size - longer.bank_growth;
    let info = &new.sections[longer.info];
    let attributes = &longer.inserted;
    let at = info.offset as usize;
    Ok([
        (at + attributes.start, at + attributes.end),
        filled(longer.bank, bank, longer.bank_growth)?,
        filled(longer.info, info.size, longer.info_growth)?,
    ])
}

/// Ranges of the file before that may be others.
fn open(
    before: &[u8],
    after: &[u8],
    (old, new): (&Image, &Image),
    edited: &Edited,
) -> Result<Vec<Range<usize>>, CheckError> {
    let mut open: Vec<Range<usize>> = Vec::new();
    // Where the tables are, and their entries, which `layout` has compared.
    open.push(32..48);
    let number = |bytes: &[u8], at: usize| {
        let bytes = bytes[at..at + 8].try_into().unwrap_or([0; 8]);
        u64::from_le_bytes(bytes)
    };
    let moved = |at: usize| {
        let place = number(before, at);
        let right = number(after, at) == place + edited.moves.by(place);
        (right, place as usize)
    };
    let (segments_right, segments) = moved(32);
    let (sections_right, sections) = moved(40);
    if !segments_right || !sections_right {
        return Err(CheckError::Layout("the tables".to_owned()));
    }
    // Names, flags, alignments of segments and sizes of entries are not among what `layout` has
    // compared.
    for at in (0..old.segments.len()).map(|i| segments + 56 * i) {
        open.extend([at..at + 4, at + 8..at + 24, at + 32..at + 48]);
    }
    for at in (0..old.sections.len()).map(|i| sections + 64 * i) {
        open.extend([at + 4..at + 8, at + 16..at + 56]);
    }
    for (index, section) in old.sections.iter().enumerate() {
        let range = section.offset as usize..(section.offset + section.size) as usize;
        let in_bank = edited.bank.iter().any(|(of, _)| *of == index);
        if in_bank || edited.by_text.contains_key(&index) {
            open.push(range);
        } else if section.kind == 2 {
            // `st_size` of the kernels.
            for one in &edited.all {
                let at = range.start + 24 * one.symbol + 16;
                open.push(at..at + 8);
            }
        } else if section.name == ".nv.info" || edited.by_info.contains_key(&section.name) {
            let one = edited.by_info.get(&section.name);
            let longer = one.and_then(|one| edited.all[*one].parameters.as_ref());
            let mut list = new.data(index).to_vec();
            if let Some(longer) = longer {
                list.drain(longer.inserted.clone());
            }
            let within = attributes(old.data(index), &list, edited, (&section.name, longer))?;
            open.extend(
                within
                    .into_iter()
                    .map(|r| range.start + r.start..range.start + r.end),
            );
        }
    }
    Ok(open)
}

/// Bytes of an attribute list that may differ: numbers of the kernels' own registers, stack and
/// exits.
fn attributes(
    old: &[u8],
    new: &[u8],
    edited: &Edited,
    (section, longer): (&str, Option<&Parameters>),
) -> Result<Vec<Range<usize>>, CheckError> {
    let changed = || CheckError::Changed(section.to_owned());
    let was = info::attributes(section, old).map_err(|_| changed())?;
    let is = info::attributes(section, new).map_err(|_| changed())?;
    if was.len() != is.len() {
        return Err(changed());
    }
    let mut open = Vec::new();
    for (was, is) in was.iter().zip(&is) {
        if (was.number, was.offset, was.length) != (is.number, is.offset, is.length) {
            return Err(changed());
        }
        if let Some(longer) = longer {
            open.extend(longer.size((was, old), (is, new))?);
        }
        match info::meaning(was.number) {
            Some(info::Meaning::Registers | info::Meaning::Stack)
                if was
                    .words(old)
                    .first()
                    .is_some_and(|of| edited.by_symbol.contains_key(&(*of as usize))) =>
            {
                open.push(was.offset + 4..was.offset + 8);
            }
            Some(info::Meaning::Exits) => open.push(was.offset..was.offset + was.length),
            // A limit of registers is raised to what probes need, and no further.
            _ if was.number == info::MAXREG_COUNT
                && u32::from(was.value) < REGISTERS
                && u32::from(is.value) == REGISTERS =>
            {
                open.push(was.offset - 2..was.offset);
            }
            _ => {}
        }
    }
    Ok(open)
}

fn symbols(old: &Image, new: &Image, edited: &Edited) -> Result<(), CheckError> {
    if old.symbols.len() != new.symbols.len() {
        return Err(CheckError::Changed("the symbols".to_owned()));
    }
    for (index, (was, is)) in old.symbols.iter().zip(&new.symbols).enumerate() {
        let mut expected = was.clone();
        if edited.by_symbol.contains_key(&index) {
            expected.size = new.sections[was.section].size;
        }
        if *is != expected {
            return Err(CheckError::Changed(format!("symbol {}", was.name)));
        }
    }
    Ok(())
}

/// What the driver will believe of kernels without probes is what it was. Gives those with some,
/// before and after.
fn kernels<'c>(
    old: &'c Cubin,
    new: &'c Cubin,
    edited: &Edited,
) -> Result<HashMap<usize, (&'c Kernel, &'c Kernel)>, CheckError> {
    if old.arch != new.arch || old.kernels.len() != new.kernels.len() {
        return Err(CheckError::Changed("the kernels".to_owned()));
    }
    let mut pairs = HashMap::new();
    for (was, is) in old.kernels.iter().zip(&new.kernels) {
        match edited.by_name.get(&was.name) {
            Some(index) => {
                pairs.insert(*index, (was, is));
            }
            None if was == is => {}
            None => return Err(CheckError::Changed(was.name.clone())),
        }
    }
    Ok(pairs)
}

/// What the driver will believe of a kernel with probes.
fn facts(was: &Kernel, is: &Kernel, growth: u64, exits: &[u64]) -> Result<(), CheckError> {
    let metadata = |what, found: String, expected: String| {
        Err(CheckError::Metadata {
            what,
            found,
            expected,
        })
    };
    let least = was.registers.unwrap_or(0).max(REGISTERS);
    if is.registers != Some(least) {
        return metadata(
            "registers",
            format!("{:?}", is.registers),
            least.to_string(),
        );
    }
    let (frame, stack) = (
        is.frame_size.wrapping_sub(was.frame_size),
        is.min_stack.wrapping_sub(was.min_stack),
    );
    if frame != stack || frame > 1 << 20 {
        return metadata("stack", stack.to_string(), frame.to_string());
    }
    let mut listed: Vec<u64> = is.exits.iter().map(|at| u64::from(*at)).collect();
    listed.sort_unstable();
    // Dead code may end threads without being listed.
    let mut real = exits.to_vec();
    real.sort_unstable();
    if was.exits.len() != is.exits.len() || listed.iter().any(|at| !real.contains(at)) {
        return metadata("exits", format!("{listed:x?}"), format!("{real:x?}"));
    }
    let expected = Kernel {
        registers: is.registers,
        frame_size: is.frame_size,
        min_stack: is.min_stack,
        exits: is.exits.clone(),
        code_bytes: was.code_bytes + growth,
        ..was.clone()
    };
    if *is != expected {
        return Err(CheckError::Changed(was.name.clone()));
    }
    Ok(())
}
