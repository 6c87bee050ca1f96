//! A cubin that is read once for all of its kernels: what is where in it, by name, so that a look
//! at one kernel costs what that kernel is large.

use std::cell::OnceCell;
use std::collections::HashMap;

use warpbpf_fatbin::{Cubin, CubinError, Kernel};

use crate::arch::Arch;
use crate::bank::{Bank, Uses};
use crate::elf::{GRAIN, Image};
use crate::error::{ElfError, Refusal};
use crate::info::{self, Attribute};
use crate::table::base;
use crate::word::{BYTES, Word};

/// The kinds of sections with relocations, `SHT_RELA` and `SHT_REL`, and bytes of an entry.
const RELOCATIONS: [(u64, usize); 2] = [(4, 24), (9, 16)];

/// A cubin and where everything is. Code is looked at when it is asked for.
#[derive(Debug)]
pub struct File<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) image: Image,
    /// Sections by name.
    sections: HashMap<String, Vec<usize>>,
    /// Symbols of kernels by name.
    kernels: HashMap<String, usize>,
    /// How many kernels are in a section.
    inhabitants: HashMap<usize, usize>,
    /// Lists of relocations by the section that they are for.
    pub(crate) relocations: HashMap<usize, Vec<usize>>,
    /// Sections of code that hold no kernel: any kernel may call it.
    functions: Vec<usize>,
    /// A section with another form of the code.
    twin: Option<usize>,
    /// What may be in the way of a section that grows.
    obstacles: Vec<usize>,
    facts: OnceCell<Result<HashMap<String, Kernel>, CubinError>>,
    numbers: OnceCell<Result<HashMap<u32, Vec<Attribute>>, Refusal>>,
    ending: OnceCell<Vec<usize>>,
    pub(crate) bank: OnceCell<Bank>,
    pub(crate) functions_use: OnceCell<Vec<Uses>>,
}

/// Where a kernel is in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Its symbol.
    pub(crate) symbol: usize,
    /// Section of its code.
    pub(crate) text: usize,
    /// Section of its attributes.
    pub(crate) info: usize,
    /// Section of the file's attributes.
    pub(crate) file_info: usize,
}

impl<'a> File<'a> {
    /// Reads the tables of a cubin.
    ///
    /// # Errors
    /// [`ElfError`]: see [`Image::parse`].
    pub fn parse(bytes: &'a [u8]) -> Result<File<'a>, ElfError> {
        let image = Image::parse(bytes)?;
        let mut sections: HashMap<String, Vec<usize>> = HashMap::new();
        let mut relocations: HashMap<usize, Vec<usize>> = HashMap::new();
        for (index, section) in image.sections.iter().enumerate() {
            sections
                .entry(section.name.clone())
                .or_default()
                .push(index);
            if RELOCATIONS.iter().any(|(kind, _)| *kind == section.kind) && section.size > 0 {
                let of = relocations.entry(section.info as usize).or_default();
                of.push(index);
            }
        }
        let mut kernels = HashMap::new();
        let mut inhabitants: HashMap<usize, usize> = HashMap::new();
        for (index, symbol) in image.symbols.iter().enumerate() {
            if symbol.is_kernel {
                kernels.entry(symbol.name.clone()).or_insert(index);
                *inhabitants.entry(symbol.section).or_default() += 1;
            }
        }
        let all = || image.sections.iter().enumerate();
        let functions = all()
            .filter(|(index, s)| s.name.starts_with(".text.") && !inhabitants.contains_key(index))
            .map(|(index, _)| index);
        let functions = functions.collect();
        // Newer architectures carry the code in a second form.
        let twin = |name: &str| name.starts_with(".nv.merc") || name.starts_with(".nv.capmerc");
        let twin = all().find(|(_, s)| twin(&s.name)).map(|(index, _)| index);
        Ok(File {
            bytes,
            obstacles: image.obstacles(),
            image,
            sections,
            kernels,
            inhabitants,
            relocations,
            functions,
            twin,
            facts: OnceCell::new(),
            numbers: OnceCell::new(),
            ending: OnceCell::new(),
            bank: OnceCell::new(),
            functions_use: OnceCell::new(),
        })
    }

    /// The architecture that it is for.
    pub fn arch(&self) -> Arch {
        self.image.arch
    }

    /// Number of the first section of a name.
    pub(crate) fn section(&self, name: &str) -> Option<usize> {
        self.sections(name).first().copied()
    }

    /// Numbers of the sections of a name.
    pub(crate) fn sections(&self, name: &str) -> &[usize] {
        self.sections.get(name).map_or(&[], Vec::as_slice)
    }

    /// Sections of code that any kernel may call.
    pub(crate) fn functions(&self) -> &[usize] {
        &self.functions
    }

    /// Entries of the relocations of a section.
    pub(crate) fn relocations(&self, section: usize) -> impl Iterator<Item = &[u8]> {
        let lists = self.relocations.get(&section).into_iter().flatten();
        lists.flat_map(|list| self.entries(*list))
    }

    /// Entries of a list of relocations.
    pub(crate) fn entries(&self, list: usize) -> impl Iterator<Item = &[u8]> {
        let kind = self.image.sections[list].kind;
        let known = RELOCATIONS.iter().find(|(of, _)| *of == kind);
        let bytes = known.map_or(24, |(_, bytes)| *bytes);
        self.image.data(list).chunks_exact(bytes)
    }

    /// A section has relocations.
    pub(crate) fn is_relocated(&self, section: usize) -> bool {
        self.relocations.contains_key(&section)
    }

    /// What the second reader says of a kernel.
    pub(crate) fn facts(&self, kernel: &str) -> Result<&Kernel, Refusal> {
        let facts = self.facts.get_or_init(|| {
            let mut by_name = HashMap::new();
            for kernel in Cubin::parse(self.bytes)?.kernels {
                by_name.entry(kernel.name.clone()).or_insert(kernel);
            }
            Ok(by_name)
        });
        let facts = facts
            .as_ref()
            .map_err(|error| Refusal::Cubin(error.clone()))?;
        facts.get(kernel).ok_or_else(|| Refusal::NoKernel {
            kernel: kernel.to_owned(),
        })
    }

    /// Where a kernel is.
    pub(crate) fn place(&self, kernel: &str) -> Result<Place, Refusal> {
        if let Some(twin) = self.twin {
            return Err(Refusal::OtherForm {
                section: self.image.sections[twin].name.clone(),
            });
        }
        let missing = || Refusal::NoKernel {
            kernel: kernel.to_owned(),
        };
        let index = *self.kernels.get(kernel).ok_or_else(missing)?;
        let symbol = &self.image.symbols[index];
        let section = self.image.sections.get(symbol.section);
        let section = section.ok_or_else(missing)?;
        let alone = self.inhabitants.get(&symbol.section) == Some(&1);
        if symbol.value != 0
            || symbol.size != section.size
            || !alone
            || !section.size.is_multiple_of(GRAIN)
        {
            return Err(Refusal::NotAlone {
                kernel: kernel.to_owned(),
                section: section.name.clone(),
            });
        }
        let list = |name: &str| self.section(name).ok_or_else(missing);
        Ok(Place {
            symbol: index,
            text: symbol.section,
            info: list(&format!(".nv.info.{kernel}"))?,
            file_info: list(".nv.info")?,
        })
    }

    /// Those of the file's attributes that are a number for a symbol.
    pub(crate) fn numbers(&self, place: Place) -> Result<&[Attribute], Refusal> {
        let numbers = self.numbers.get_or_init(|| {
            let data = self.image.data(place.file_info);
            let mut by_symbol: HashMap<u32, Vec<Attribute>> = HashMap::new();
            for attribute in info::attributes(".nv.info", data)? {
                if let &[symbol, _] = attribute.words(data).as_slice() {
                    by_symbol.entry(symbol).or_default().push(attribute);
                }
            }
            Ok(by_symbol)
        });
        let numbers = numbers.as_ref().map_err(Refusal::clone)?;
        let symbol = self.image.symbols[place.symbol].index;
        Ok(numbers.get(&symbol).map_or(&[], Vec::as_slice))
    }

    /// Code beside a kernel's own in which threads end. Kernels are not called by the code of
    /// others.
    pub(crate) fn ends_elsewhere(&self, section: usize) -> Option<usize> {
        let ending = self.ending.get_or_init(|| {
            let ends = |index: &usize| {
                let mut words = self.image.data(*index).chunks_exact(BYTES);
                words.any(|w| Word::at(w, 0).is_some_and(|w| w.base() == base::EXIT))
            };
            self.functions.iter().copied().filter(ends).collect()
        });
        ending.iter().copied().find(|index| *index != section)
    }

    /// Whether a kernel's code can be longer.
    pub(crate) fn can_grow(&self, place: Place) -> Result<(), ElfError> {
        self.can_lengthen(place.text)
    }

    /// Whether a section can be longer where it is.
    pub(crate) fn can_lengthen(&self, section: usize) -> Result<(), ElfError> {
        self.image.can_grow(section, &self.obstacles)
    }
}
