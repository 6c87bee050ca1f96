//! From what the tool has loaded and attached to one object file that the agent takes.

use std::collections::BTreeMap;

use warpbpf_abi::maps::{BPF_F_RDONLY_PROG, MapType};
use warpbpf_object::{Assembly, LoadedMap, LoadedProgram, MapReference, TypeId, assemble};

use crate::kernel::Kernel;
use crate::kernel::program_error::GatherError;
use crate::objects::contents::Contents;
use crate::objects::map::Map;
use crate::objects::prog::Prog;

/// An object and what became of the tool's maps in it.
#[derive(Debug, Clone, Default)]
pub struct Gathered {
    /// The object file.
    pub object: Vec<u8>,
    /// The session's number of each map that is in it, by place in the kernel's table.
    pub numbers: BTreeMap<usize, u32>,
    /// The names that maps have there, by number.
    pub names: Vec<String>,
    /// The names that programs have there.
    pub programs: Vec<String>,
}

/// Names of maps by place.
pub type MapNames = BTreeMap<usize, String>;

/// A map on its way into the object.
struct Chosen<'k> {
    at: usize,
    map: &'k Map,
    name: String,
    /// It holds variables: the section's name and its contents.
    data: Option<Vec<u8>>,
}

impl Kernel {
    /// Makes an object of programs, each in its section, and of the maps that they use.
    ///
    /// # Errors
    /// What is not there, or does not fit.
    pub fn gather(&self, programs: &[(usize, String)]) -> Result<Gathered, GatherError> {
        self.gather_beside(programs, &[], &MapNames::new())
    }

    /// The same with the maps of other programs too, which are not in it themselves; maps that have
    /// a name already keep it.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn gather_beside(
        &self,
        programs: &[(usize, String)],
        others: &[usize],
        known: &MapNames,
    ) -> Result<Gathered, GatherError> {
        let prog = |at: &usize| {
            let gone = GatherError::ProgramGone { program: *at };
            self.progs.get(*at).ok_or(gone)
        };
        let mut progs = Vec::new();
        for (at, section) in programs {
            progs.push((prog(at)?, section));
        }
        let mut users: Vec<&Prog> = progs.iter().map(|(prog, _)| *prog).collect();
        for at in others {
            users.push(prog(at)?);
        }
        let chosen = self.choose_maps(&users, known)?;
        let place: BTreeMap<usize, usize> = chosen.iter().map(|c| c.at).zip(0..).collect();

        let mut btfs: Vec<usize> = Vec::new();
        let mut number_of = |btf: Option<usize>| {
            let btf = btf?;
            let known = btfs.iter().position(|b| *b == btf);
            Some(known.unwrap_or_else(|| {
                btfs.push(btf);
                btfs.len() - 1
            }))
        };
        let mut maps = Vec::new();
        for c in &chosen {
            let spec = &c.map.spec;
            let types = number_of(c.map.btf);
            let inner = c.map.inner.map(|inner| {
                Box::new(LoadedMap {
                    map_type: inner.map_type,
                    key_size: inner.key_size,
                    value_size: inner.value_size,
                    max_entries: inner.max_entries,
                    flags: inner.flags,
                    extra: inner.extra,
                    ..LoadedMap::default()
                })
            });
            let initial = match &c.map.contents {
                Contents::Maps(maps) => (maps.iter())
                    .filter_map(|(key, map)| {
                        let key = u32::from_ne_bytes(*key.first_chunk()?);
                        Some((key, *place.get(map)?))
                    })
                    .collect(),
                _ => Vec::new(),
            };
            maps.push(LoadedMap {
                name: &c.name,
                map_type: spec.map_type,
                key_size: spec.key_size,
                value_size: spec.value_size,
                max_entries: spec.max_entries,
                flags: spec.flags,
                extra: spec.extra,
                types: types.unwrap_or(0),
                key_type: types.map_or(TypeId::VOID, |_| c.map.key_type),
                value_type: types.map_or(TypeId::VOID, |_| c.map.value_type),
                data: c.data.as_deref().map(|bytes| (c.name.as_str(), bytes)),
                inner,
                initial,
            });
        }
        let names = unique(progs.iter().map(|(prog, _)| prog.name.clone()), &[]);
        let mut loaded = Vec::new();
        for ((prog, section), name) in progs.iter().zip(&names) {
            loaded.push(LoadedProgram {
                name,
                section,
                code: &prog.code,
                maps: (prog.references.iter())
                    .map(|reference| MapReference {
                        slot: reference.slot,
                        map: place.get(&reference.map).copied().unwrap_or(usize::MAX),
                        offset: reference.offset,
                    })
                    .collect(),
                types: number_of(prog.btf),
                functions: prog.functions.clone(),
                lines: prog.lines.clone(),
            });
        }
        let types = btfs.iter().filter_map(|at| self.btfs.get(*at));
        let assembly = Assembly {
            types: types.map(|btf| &*btf.bytes).collect(),
            maps,
            programs: loaded,
            license: progs.first().map_or("", |(prog, _)| &prog.license),
        };
        let object = assemble(&assembly)?;
        // The object's order: what is declared, then data sections.
        let mut order: Vec<&Chosen<'_>> = chosen.iter().filter(|c| c.data.is_none()).collect();
        order.extend(chosen.iter().filter(|c| c.data.is_some()));
        Ok(Gathered {
            object,
            numbers: order.iter().map(|c| c.at).zip(0..).collect(),
            names: order.iter().map(|c| c.name.clone()).collect(),
            programs: names,
        })
    }

    /// Programs that can only be for a GPU, attached or not: an application has their maps from the
    /// start, so that they can be attached later.
    pub(crate) fn loaded_for_gpu(&self) -> Vec<usize> {
        let mine = (self.progs.iter()).filter(|(_, prog)| prog.is_for_gpu() && !prog.in_linux);
        mine.map(|(at, _)| at).collect()
    }

    /// Names of maps that a program uses, or that are in those, and that have none in `known`.
    pub(crate) fn unknown_maps(&self, prog: usize, known: &MapNames) -> Vec<String> {
        let used = self.progs.get(prog).into_iter().flat_map(Prog::all_maps);
        let mut used: Vec<usize> = used.collect();
        let maps = used.iter().filter_map(|at| self.maps.get(*at));
        let within: Vec<usize> = maps.flat_map(|map| map.held()).collect();
        used.extend(within);
        used.sort_unstable();
        used.dedup();
        used.retain(|at| !known.contains_key(at));
        let maps = used.iter().filter_map(|at| self.maps.get(*at));
        maps.map(|map| map.name.clone()).collect()
    }

    /// The maps that programs use and those in them, in the order of their creation.
    fn choose_maps(
        &self,
        progs: &[&Prog],
        known: &MapNames,
    ) -> Result<Vec<Chosen<'_>>, GatherError> {
        let mut used: Vec<usize> = progs.iter().flat_map(|prog| prog.all_maps()).collect();
        let within: Vec<usize> = (used.iter())
            .filter_map(|at| self.maps.get(*at))
            .flat_map(|map| map.held().collect::<Vec<_>>())
            .collect();
        used.extend(within);
        used.sort_unstable();
        used.dedup();
        let mut chosen = Vec::new();
        let mut names = Vec::new();
        for at in used {
            let map = self.maps.get(at).ok_or(GatherError::MapGone { map: at })?;
            let variables = (progs.iter())
                .flat_map(|prog| &prog.references)
                .any(|reference| reference.map == at && reference.offset.is_some());
            let one = map.spec.kind() == Some(MapType::Array) && map.spec.max_entries == 1;
            let data = (variables && one).then(|| {
                let bytes = map.contents.get(&map.spec, self.slot(&map.spec), &[0; 4]);
                let mut bytes = bytes.unwrap_or_default();
                bytes.truncate(map.spec.value_size as usize);
                bytes
            });
            if !known.contains_key(&at) {
                names.push(match &data {
                    Some(_) => section_name(map),
                    None => map.name.clone(),
                });
            }
            chosen.push((at, map, data));
        }
        let taken: Vec<&str> = known.values().map(String::as_str).collect();
        let mut fresh = unique(names.into_iter(), &taken).into_iter();
        let named = chosen.into_iter().filter_map(|(at, map, data)| {
            let name = known.get(&at).cloned().or_else(|| fresh.next())?;
            Some(Chosen {
                at,
                map,
                name,
                data,
            })
        });
        Ok(named.collect())
    }
}

/// libbpf names a data section's map by the object and the section, both shortened; what it may
/// hold is in its flags.
fn section_name(map: &Map) -> String {
    let base = if map.spec.flags & BPF_F_RDONLY_PROG != 0 {
        ".rodata"
    } else if map.name.ends_with(".bss") {
        ".bss"
    } else {
        ".data"
    };
    base.to_owned()
}

/// The same names, numbers behind those that occur again or are taken. A map without a name gets
/// one.
fn unique(names: impl Iterator<Item = String>, taken: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        let name = if name.is_empty() {
            "unnamed".to_owned()
        } else {
            name
        };
        let mut candidate = name.clone();
        let mut number = 2;
        while all.contains(&candidate) || taken.contains(&candidate.as_str()) {
            candidate = format!("{name}.{number}");
            number += 1;
        }
        all.push(candidate);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::unique;

    #[test]
    fn names_become_unique() {
        let names = ["a", "b", "a", "", "a", ""].map(str::to_owned);
        assert_eq!(
            unique(names.into_iter(), &[]),
            ["a", "b", "a.2", "unnamed", "a.3", "unnamed.2"]
        );
        let names = ["a", "a"].map(str::to_owned);
        assert_eq!(unique(names.into_iter(), &["a", "a.3"]), ["a.2", "a.4"]);
    }
}
