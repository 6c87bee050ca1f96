//! Where the bytes of each object end up.

use std::collections::BTreeMap;

use crate::data::MAX_SECTION;
use crate::error::ObjectError;
use crate::link::error::LinkError;
use crate::link::input::Input;

pub(super) const SHT_PROGBITS: u32 = 1;
pub(super) const SHT_NOBITS: u32 = 8;
/// `SHF_WRITE`, `SHF_ALLOC`, `SHF_EXECINSTR`. Joined texts are not merged once more.
const KEPT_FLAGS: u64 = 7;
/// Largest alignment that is kept: what is loaded into maps has none beyond that.
const MAX_ALIGN: u64 = 4096;

/// A section of the result.
pub(super) struct OutSection {
    pub(super) name: String,
    pub(super) kind: u32,
    pub(super) flags: u64,
    pub(super) align: u64,
    /// Empty for `SHT_NOBITS`.
    pub(super) data: Vec<u8>,
    pub(super) size: u64,
    pub(super) relocations: Vec<OutRelocation>,
}

pub(super) struct OutRelocation {
    pub(super) offset: u64,
    pub(super) kind: u32,
    /// Index in [`Symbols::all`](super::symbols::Symbols::all).
    pub(super) symbol: usize,
}

pub(super) struct Layout {
    pub(super) sections: Vec<OutSection>,
    /// By object and by section there: the section of the result and the offset in it.
    pub(super) placed: Vec<Vec<Option<(usize, u64)>>>,
}

impl Layout {
    pub(super) fn section(&self, name: &str) -> Option<usize> {
        self.sections
            .iter()
            .position(|section| section.name == name)
    }
}

/// Puts sections of one name one after the other. Debug information is left out, types are merged
/// elsewhere.
pub(super) fn place(inputs: &[Input<'_>]) -> Result<Layout, LinkError> {
    let mut layout = Layout {
        sections: Vec::new(),
        placed: Vec::new(),
    };
    let mut by_name: BTreeMap<String, usize> = BTreeMap::new();
    for input in inputs {
        let mut placed = vec![None; input.elf.sections.len()];
        for (index, section) in input.elf.sections.iter().enumerate() {
            let has_bytes = section.kind == SHT_PROGBITS;
            if !section.allocated || !(has_bytes || section.kind == SHT_NOBITS) {
                continue;
            }
            if section.size > MAX_SECTION {
                return Err(input.fault(ObjectError::DataTooLarge {
                    section: section.name.clone(),
                    size: section.size,
                    limit: MAX_SECTION,
                }));
            }
            // One licence and one version, which are the same everywhere (`agree`).
            let single = matches!(section.name.as_str(), "license" | "version");
            if single && by_name.contains_key(&section.name) {
                continue;
            }
            // An empty `.text` is in every object; only what symbols or relocations name is kept.
            if section.size == 0 {
                continue;
            }
            let least = if section.executable { 8 } else { 1 };
            let align = section.align.clamp(least, MAX_ALIGN).next_power_of_two();
            let out = *by_name.entry(section.name.clone()).or_insert_with(|| {
                layout.sections.push(OutSection {
                    name: section.name.clone(),
                    kind: SHT_NOBITS,
                    flags: 0,
                    align: 1,
                    data: Vec::new(),
                    size: 0,
                    relocations: Vec::new(),
                });
                layout.sections.len() - 1
            });
            let target = &mut layout.sections[out];
            target.align = target.align.max(align);
            target.flags |= section.flags & KEPT_FLAGS;
            let start = target.size.next_multiple_of(align);
            target.size = start + section.size;
            if target.size > MAX_SECTION {
                return Err(LinkError::TooLarge {
                    what: "a section of more than 64 MiB",
                });
            }
            if has_bytes {
                target.kind = SHT_PROGBITS;
                target.data.resize(start as usize, 0);
                target.data.extend(section.data);
            }
            if target.kind == SHT_PROGBITS {
                target.data.resize(target.size as usize, 0);
            }
            placed[index] = Some((out, start));
        }
        layout.placed.push(placed);
    }
    Ok(layout)
}
