//! Programs replaced while an application runs: a session is made of the one before it.
//!
//! A session never changes; this makes the next one. What programs and tools name by number stays
//! what it is: kernels, sites and maps, of which there only come more. A map stays as it is,
//! contents and all, where the new object declares it alike; one that nobody uses any more stays to
//! be read. So code of both sessions may run at once, and everything that can be refused is refused
//! here, before anything is compiled or any memory asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::MapType;
use warpbpf_abi::options::Options;
use warpbpf_ebpf::{Code, Imm64, Insn};
use warpbpf_maps::{MapPlan, Placement, SumUse, stops};
use warpbpf_object::{MapDef, MapKind, Program};
use warpbpf_verify::verify;

use crate::cpu;
use crate::plan::client;
use crate::plan::planned::{OWN, PlannedProgram};
use crate::plan::proof;
use crate::plan::replace::error::MOST_MAPS;
use crate::plan::session::{Lineage, Session, Variable, variables};
use crate::plan::session_error::SessionError;

pub(crate) mod error;

pub use error::ReplaceError;

/// What is to become of the programs.
#[derive(Debug, Clone, Copy)]
pub enum Change<'c> {
    /// Those of this object file, and no others.
    Replace(&'c [u8]),
    /// Those of this object file too.
    Add(&'c [u8]),
    /// All but these of the tool's own, by name.
    Remove(&'c [String]),
    /// Those of this object file too, for a second tool: its maps are its own, whatever they are
    /// called.
    Join {
        /// The number of the second tool, not [`OWN`] and no other's.
        client: u32,
        /// The file.
        object: &'c [u8],
        /// How its programs are proved, and which launches they are in. All else is as for the
        /// first tool's.
        options: &'c Options,
    },
    /// All but those of a second tool.
    Leave {
        /// Its number.
        client: u32,
    },
}

impl Session {
    /// How many sessions there were up to this one, counted from 1.
    pub fn generation(&self) -> u64 {
        self.lineage.generation
    }

    /// Maps that the first one of these sessions had; those behind them came since.
    pub fn first_maps(&self) -> usize {
        self.lineage.first_maps
    }

    /// What identifies a map in all sessions that follow one another.
    pub(crate) fn map_id(&self, map: usize) -> u64 {
        self.lineage.map_ids[map]
    }

    /// What identifies programs: the same number in two sessions is the same program.
    pub fn program_ids(&self, programs: &[usize]) -> Vec<u64> {
        let id = |program: &usize| self.lineage.program_ids[*program];
        programs.iter().map(id).collect()
    }

    /// The session that follows this one.
    ///
    /// # Errors
    /// [`ReplaceError`]: what is refused; this session is as it was.
    pub fn replaced(&self, change: Change<'_>) -> Result<Session, ReplaceError> {
        let mut next = Next {
            brings: Brings::Maps,
            client: OWN,
            defs: self.defs.clone(),
            lineage: Lineage {
                generation: self.lineage.generation + 1,
                ..self.lineage.clone()
            },
        };
        let (programs, ids) = match change {
            Change::Replace(object) => {
                let mut programs = next.take_in(object, true, &self.options)?;
                let mut ids = next.program_ids(&programs);
                // Those of others are not the tool's to replace.
                let (others, other_ids) = self.those(|program| program.client != OWN);
                programs.extend(others);
                ids.extend(other_ids);
                (programs, ids)
            }
            Change::Add(object) => {
                let added = next.take_in(object, false, &self.options)?;
                let added_ids = next.program_ids(&added);
                let twice = added.iter().find(|p| self.has_program(p.name()));
                if let Some(program) = twice.map(|p| p.name().to_owned()) {
                    return Err(ReplaceError::Twice { program });
                }
                let mut programs = self.programs.clone();
                programs.extend(added);
                (
                    programs,
                    [self.lineage.program_ids.clone(), added_ids].concat(),
                )
            }
            Change::Remove(names) => self.without(names)?,
            Change::Join {
                client,
                object,
                options,
            } => {
                next.client = client;
                let options = client::options(&self.options, options, client);
                let mut came = next.take_in(object, false, &options)?;
                for program in &mut came {
                    program.client = client;
                    if program.verified.facts().uses_printk() {
                        let program = program.name().to_owned();
                        return Err(ReplaceError::ClientPrints { program });
                    }
                }
                let came_ids = next.program_ids(&came);
                let ids = [&self.lineage.program_ids[..], &came_ids].concat();
                ([&self.programs[..], &came].concat(), ids)
            }
            Change::Leave { client } => self.without_client(client)?,
        };
        let Next {
            defs, mut lineage, ..
        } = next;
        lineage.program_ids = ids;
        for program in &programs {
            let facts = program.verified.facts();
            let name = || program.name().to_owned();
            if facts.uses_printk() && self.printk.is_none() {
                return Err(ReplaceError::Printk { program: name() });
            }
            if facts.reads_application() && !lineage.reads {
                return Err(ReplaceError::Reads { program: name() });
            }
            if program.choice.needs_nvtx() && !lineage.ranges {
                return Err(ReplaceError::Ranges {
                    program: name(),
                    choice: Arc::clone(&program.choice),
                });
            }
        }
        let in_kernels = programs.iter().map(|p| p.verified.program());
        cpu::check_shared(&self.host_programs, in_kernels, &defs).map_err(SessionError::Cpu)?;
        let maps = self.plans(&programs, &defs)?;
        if self.options.slots {
            lineage.slots.make(&programs);
        }
        let mut inner = self.inner.clone();
        inner.resize(defs.len(), None);
        Ok(Session {
            programs,
            host_programs: self.host_programs.clone(),
            maps,
            inner,
            defs,
            printk: self.printk.clone(),
            kernels: Arc::clone(&self.kernels),
            sites: Arc::clone(&self.sites),
            options: self.options.clone(),
            means: self.means.clone(),
            tensors: self.tensors.clone(),
            hardware: self.hardware,
            lineage,
            process: self.process.clone(),
        })
    }

    /// The programs of an object that run beside those of this session, with the plans of all maps.
    /// Constants that they bring stand behind its own.
    pub(crate) fn beside(
        &self,
        object: &[u8],
    ) -> Result<(Vec<PlannedProgram>, Vec<MapPlan>), ReplaceError> {
        let mut next = Next {
            brings: Brings::Constants,
            client: OWN,
            defs: self.defs.clone(),
            lineage: self.lineage.clone(),
        };
        let programs = next.take_in(object, false, &self.options)?;
        let all = [&self.programs[..], &programs].concat();
        let in_kernels = all.iter().map(|p| p.verified.program());
        cpu::check_shared(&self.host_programs, in_kernels, &next.defs)
            .map_err(SessionError::Cpu)?;
        let plans = self.plans(&all, &next.defs)?;
        Ok((programs, plans))
    }

    /// The tool has a program of this name.
    fn has_program(&self, name: &str) -> bool {
        self.own_programs().any(|program| program.name() == name)
    }

    /// What there is, as the end of a sentence.
    pub(crate) fn program_names(&self) -> String {
        let there = self.own_programs().map(|p| format!("`{}`", p.name()));
        let there: Vec<String> = there.collect();
        match there.len() {
            0 => "is none".to_owned(),
            1 => format!("is {}", there[0]),
            _ => format!("are {}", there.join(", ")),
        }
    }

    fn without(&self, names: &[String]) -> Result<(Vec<PlannedProgram>, Vec<u64>), ReplaceError> {
        if let Some(missing) = names.iter().find(|name| !self.has_program(name)) {
            return Err(ReplaceError::NoProgram {
                program: missing.clone(),
                there: self.program_names(),
            });
        }
        Ok(self.those(|program| !names.iter().any(|name| name == program.name())))
    }

    /// Programs that are `wanted`, with what identifies them.
    pub(crate) fn those(
        &self,
        wanted: impl Fn(&PlannedProgram) -> bool,
    ) -> (Vec<PlannedProgram>, Vec<u64>) {
        let all = self.programs.iter().zip(&self.lineage.program_ids);
        let left = all.filter(|(program, _)| wanted(program));
        left.map(|(program, id)| (program.clone(), *id)).unzip()
    }

    /// Plans of all maps: the old ones as they were, as far as the new programs can live with that.
    fn plans(
        &self,
        programs: &[PlannedProgram],
        defs: &[MapDef],
    ) -> Result<Vec<MapPlan>, ReplaceError> {
        let uses = proof::sum_uses(programs, &self.host_programs, defs);
        let plan = |(index, (def, uses)): (usize, (&MapDef, &Vec<SumUse>))| {
            let Some(before) = self.maps.get(index) else {
                let new = warpbpf_maps::plan_on(def, self.hardware, uses);
                return new.map_err(|error| SessionError::Map(error).into());
            };
            let unused = uses.iter().all(|used| *used == SumUse::default());
            match unused {
                true => Ok(before.clone()),
                false => self.kept(before, def, uses),
            }
        };
        defs.iter().zip(&uses).enumerate().map(plan).collect()
    }

    /// The plan of a map that stays where it is, with programs that use it so.
    fn kept(
        &self,
        before: &MapPlan,
        def: &MapDef,
        uses: &[SumUse],
    ) -> Result<MapPlan, ReplaceError> {
        let new = warpbpf_maps::plan_on(def, self.hardware, uses).map_err(SessionError::Map)?;
        let mut kept = before.clone();
        let summed =
            |plan: &MapPlan| matches!(plan.layout, MapLayout::Array(array) if array.summed);
        if summed(before) {
            let fields: BTreeSet<_> = before
                .sum_fields
                .iter()
                .chain(&new.sum_fields)
                .copied()
                .collect();
            let mut ends = fields.iter().zip(fields.iter().skip(1));
            let overlap = ends.any(|(field, next)| field.offset + field.size > next.offset);
            let reason = match (summed(&new), overlap) {
                (true, false) => None,
                (true, true) => Some("it adds to parts of a field".to_owned()),
                (false, _) => Some(
                    new.not_summed
                        .clone()
                        .unwrap_or_else(|| "it is not summed".to_owned()),
                ),
            };
            if let Some(reason) = reason {
                let map = before.name.clone();
                return Err(ReplaceError::Summed { map, reason });
            }
            kept.sum_fields = fields.into_iter().collect();
        }
        // What several devices have is added up only where nobody does more than add.
        kept.added = match uses.iter().any(|used| used.more_than_adds) {
            true => new.added,
            false => {
                let added: BTreeSet<_> = before.added.iter().chain(&new.added).copied().collect();
                added.into_iter().collect()
            }
        };
        Ok(kept)
    }
}

/// What an object may have that the session has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Brings {
    Constants,
    /// Those too.
    Maps,
}

/// A session that is being made.
struct Next {
    brings: Brings,
    /// Whose programs come.
    client: u32,
    defs: Vec<MapDef>,
    lineage: Lineage,
}

impl Next {
    /// Proves the programs of an object against the maps that there are and those that come.
    fn take_in(
        &mut self,
        object: &[u8],
        replaces: bool,
        options: &Options,
    ) -> Result<Vec<PlannedProgram>, ReplaceError> {
        let object = warpbpf_object::load(object);
        let mut object = object.map_err(|source| SessionError::Object { source })?;
        if let Some(host) = cpu::take(&mut object).map_err(SessionError::Cpu)?.first() {
            return Err(ReplaceError::OnCpu {
                program: host.program.name.clone(),
                section: host.program.section.clone(),
            });
        }
        if object.programs.is_empty() {
            return Err(SessionError::Empty.into());
        }
        let types = object.btf.as_ref();
        proof::complete(&mut object.maps, types, options);
        client::rename(&mut object.programs, &mut object.maps, self.client);
        let there = |name: &str| object.maps.iter().any(|map| map.name == name);
        let requests = options.map_memory.iter().filter(|(name, _)| there(name));
        let requests: Vec<_> = requests.cloned().collect();
        proof::place(&mut object.maps, &requests)?;
        let mut numbers = Vec::with_capacity(object.maps.len());
        for def in &object.maps {
            let variables = variables(def, types);
            let known = match &def.kind {
                _ if self.client != OWN => None,
                MapKind::User => self.same_map(def)?,
                MapKind::Data { .. } => self.same_data(def, variables.as_deref(), replaces),
            };
            numbers.push(match known {
                Some(index) => index,
                None => self.add_map(def.clone(), variables)?,
            });
        }
        let renumbered = object.programs.into_iter().map(|p| renumber(p, &numbers));
        let mut defs = self.defs.clone();
        let programs = proof::prove_programs(
            renumbered.collect(),
            &mut defs,
            options,
            &mut |program, maps, platform| verify(program, maps, platform),
        )?;
        for count in defs.split_off(self.defs.len()) {
            if self.brings == Brings::Constants {
                let program = stops::program_of(&count.name).unwrap_or_default();
                let program = program.to_owned();
                return Err(ReplaceError::Stops { program });
            }
            self.add_map(count, None)?;
        }
        Ok(programs)
    }

    fn program_ids(&self, programs: &[PlannedProgram]) -> Vec<u64> {
        programs.iter().map(|_| self.lineage.program_id()).collect()
    }

    /// The map of this name, which must be declared alike.
    fn same_map(&self, def: &MapDef) -> Result<Option<u32>, ReplaceError> {
        let mut all = (0..).zip(&self.defs);
        let Some((index, before)) = all.find(|(_, before)| before.name == def.name) else {
            return Ok(None);
        };
        let type_name = |number: u32| match MapType::from_number(number) {
            Some(map_type) => format!("{map_type:?}"),
            None => number.to_string(),
        };
        let differs = |what, was: String, is: String| {
            Err(ReplaceError::Shape {
                map: def.name.clone(),
                what,
                was,
                is,
            })
        };
        if before.map_type != def.map_type {
            return differs("type", type_name(before.map_type), type_name(def.map_type));
        }
        for (what, was, is) in [
            ("key size", before.key_size, def.key_size),
            ("value size", before.value_size, def.value_size),
            ("`max_entries`", before.max_entries, def.max_entries),
            ("`map_flags`", before.flags, def.flags),
        ] {
            if was != is {
                return differs(what, was.to_string(), is.to_string());
            }
        }
        for name in before.extra.keys().chain(def.extra.keys()) {
            let [was, is] = [before, def].map(|def| def.extra.get(name).copied().unwrap_or(0));
            if was != is {
                return differs("attribute", format!("{name} {was}"), is.to_string());
            }
        }
        let shape = |def: &Option<Box<MapDef>>| {
            let shape = |d: &MapDef| (d.map_type, d.key_size, d.value_size, d.max_entries, d.flags);
            def.as_deref().map(shape)
        };
        if shape(&before.inner) != shape(&def.inner) {
            return differs("inner map", "as it was".into(), "another".into());
        }
        Ok(Some(index))
    }

    /// A data section that can stand for this one: constants with the same contents; variables, if
    /// the object takes the place of another one and they lie where they did, with the values that
    /// they have by now.
    fn same_data(
        &self,
        def: &MapDef,
        variables: Option<&[Variable]>,
        replaces: bool,
    ) -> Option<u32> {
        let MapKind::Data {
            section,
            image,
            read_only,
        } = &def.kind
        else {
            return None;
        };
        let mut all = self
            .defs
            .iter()
            .zip(&self.lineage.variables)
            .enumerate()
            .rev();
        let (found, _) = all.find(|(at, (before, lie))| match &before.kind {
            _ if self.lineage.clients[*at] != OWN => false,
            MapKind::Data { section: of, .. } if of != section => false,
            MapKind::Data {
                image: contents,
                read_only: true,
                ..
            } => *read_only && contents == image,
            MapKind::Data { .. } => {
                let alike = before.value_size == def.value_size && lie.as_deref() == variables;
                replaces && !*read_only && variables.is_some() && alike
            }
            MapKind::User => false,
        })?;
        Some(found as u32)
    }

    fn add_map(
        &mut self,
        mut def: MapDef,
        variables: Option<Vec<Variable>>,
    ) -> Result<u32, ReplaceError> {
        if !def.is_constant() {
            let map = def.name.clone();
            if self.brings == Brings::Constants {
                return Err(ReplaceError::NewBeside { map });
            }
            if let Some(why) = only_at_the_start(&def) {
                return Err(match self.client {
                    OWN => ReplaceError::New { map, why },
                    _ => ReplaceError::ClientMap { map, why },
                });
            }
        }
        let index = self.defs.len();
        if index >= MOST_MAPS {
            return Err(ReplaceError::Maps { maps: index + 1 });
        }
        // Names tell maps apart.
        if self.defs.iter().any(|before| before.name == def.name) {
            def.name = format!("{}@{}", def.name, self.lineage.generation);
        }
        self.defs.push(def);
        self.lineage.map_ids.push(self.lineage.id());
        self.lineage.clients.push(self.client);
        self.lineage.variables.push(variables);
        Ok(index as u32)
    }
}

/// Why a map cannot come later: what its kind needs beside memory of the device is made when a
/// session begins. A definition that nothing can be made of is refused when it is planned.
fn only_at_the_start(def: &MapDef) -> Option<&'static str> {
    use MapType::{ArrayOfMaps, GpuRingbuf, HashOfMaps, PerfEventArray, Ringbuf, UserRingbuf};
    match MapType::from_number(def.map_type)? {
        Ringbuf | PerfEventArray | GpuRingbuf | UserRingbuf => {
            Some("what goes by rings goes by memory that is made when a session begins")
        }
        ArrayOfMaps | HashOfMaps => Some("maps of maps are only made when a session begins"),
        _ => match warpbpf_maps::placement(def) {
            Ok(Placement::Host) => {
                Some("maps in the host's memory are only made when a session begins")
            }
            Ok(Placement::Device) | Err(_) => None,
        },
    }
}

/// The program with its maps under the numbers that they have here.
fn renumber(mut program: Program, numbers: &[u32]) -> Program {
    let number = |map: u32| numbers.get(map as usize).copied().unwrap_or(map);
    let insns = program.code.insns().iter().cloned().map(|insn| match insn {
        Insn::LoadImm64 {
            dst,
            value: Imm64::Map(map),
        } => Insn::LoadImm64 {
            dst,
            value: Imm64::Map(number(map)),
        },
        Insn::LoadImm64 {
            dst,
            value: Imm64::MapValue { map, offset },
        } => Insn::LoadImm64 {
            dst,
            value: Imm64::MapValue {
                map: number(map),
                offset,
            },
        },
        other => other,
    });
    program.code = Code::new(insns.collect());
    program
}
