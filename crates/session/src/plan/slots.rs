//! Slots: places beside programs in kernels, for programs that come while those kernels run and
//! perhaps never end.
//!
//! A slot is for a place (`gpu/mem/*|kind=load`, say), and is in every kernel that got a program
//! for that place. What is put there is proved like any program, translated for the interpreter on
//! the device, and brought by a copy: no code is loaded, so nothing waits for kernels. On the
//! device it lies in one of two halves ([`warpbpf_abi::layout::slots`]), together with its
//! constants; all slots change at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use warpbpf_abi::attach::Site;
use warpbpf_abi::choice::Choice;
use warpbpf_abi::layout::{env, slots};
use warpbpf_codegen::interpreter::{Form as Code, Interpreter, NotInterpreted, translate_for_slot};
use warpbpf_codegen::{MapBinding, Target};
use warpbpf_maps::{MapPlan, SumUse};
use warpbpf_verify::Verified;

use crate::plan::planned::PlannedProgram;
use crate::plan::proof;
use crate::plan::replace::error::ReplaceError;
use crate::plan::session::{Filling, Session, place};

/// Why programs do not come into slots. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum SlotError {
    #[error("programs of this session have no slots: begin it with `--slots`")]
    None,
    #[error("{0}")]
    Object(#[from] ReplaceError),
    #[error(
        "program `{program}` is for `{section}`, where there is no slot; there {there}. A slot is where the session has, or had, a program: begin it with one at that place, which may do nothing"
    )]
    NoSlot {
        program: String,
        section: String,
        there: String,
    },
    #[error(
        "program `{program}` chooses launches in its section (`{section}`), and what is in a slot is in those that the program beside it is in: leave that out"
    )]
    Launches { program: String, section: String },
    #[error(
        "of program `{program}` other launches are said by its name ({choice}) than of program `{beside}` ({its}), beside which its slot is, and what is in a slot is in those of the program beside it: give it another name"
    )]
    Said {
        program: String,
        choice: Arc<Choice>,
        beside: String,
        its: Arc<Choice>,
    },
    #[error("program `{program}` cannot run in a slot: {why}")]
    Program {
        program: String,
        why: NotInterpreted,
    },
    #[error(
        "program `{program}` cannot run in a slot: it calls `bpf_{helper}` on map `{map}`, and programs there can only for arrays and for hashes on the device whose keys have at most 64 and values at most 256 bytes, and not for maps in maps"
    )]
    Map {
        program: String,
        helper: &'static str,
        map: String,
    },
    #[error(
        "program `{program}` changes how map `{map}` is added up over multiprocessors, which is decided when a session begins: begin with a program that adds to the same fields, or use another map"
    )]
    Sums { program: String, map: String },
    #[error(
        "program `{program}` changes how map `{map}` is added up over GPUs, which is decided by the programs of the session: replace those by some that use the same fields as it does, or use another map"
    )]
    Added { program: String, map: String },
    #[error(
        "the programs and their constants need {bytes} bytes, and slots have room for {}",
        slots::HALF
    )]
    Room { bytes: u64 },
    #[error("a program names a map that there is not; this is a bug in warpbpf")]
    Missing,
}

impl Session {
    /// There are slots beside programs.
    pub fn has_slots(&self) -> bool {
        self.options.slots
    }

    /// The interpreter that runs what is in slots: the same in all sessions that follow one
    /// another.
    pub(crate) fn interpreter(&self, target: Target) -> Interpreter {
        let maps = self.maps().iter().take(self.first_maps());
        let layouts: Vec<_> = maps.map(|plan| plan.layout).collect();
        Interpreter::new(&layouts, target)
    }

    /// Slots beside programs, each with one of the programs at whose place it is.
    pub(crate) fn slots_beside(&self, programs: &[usize]) -> Vec<(u32, usize)> {
        let mut found = BTreeMap::new();
        if self.has_slots() {
            for index in programs {
                if let Some(slot) = self.lineage.slots.of(&self.programs[*index]) {
                    found.entry(slot).or_insert(*index);
                }
            }
        }
        found.into_iter().collect()
    }

    /// The programs of an object, for slots, where they then are all that there is.
    ///
    /// # Errors
    /// [`SlotError`]: what is refused.
    pub fn filling(self: &Arc<Session>, object: &[u8]) -> Result<Filling, SlotError> {
        /// Numbers of fillings, of which 0 is none.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if !self.has_slots() {
            return Err(SlotError::None);
        }
        let (programs, plans) = self.beside(object)?;
        let name = |program: &PlannedProgram| program.name().to_owned();
        let changed = self.maps.iter().zip(&plans);
        let mut changed = changed.filter(|(was, is)| was.sum_fields != is.sum_fields);
        if let Some((map, _)) = changed.next() {
            return Err(SlotError::Sums {
                program: programs.first().map(name).unwrap_or_default(),
                map: map.name.clone(),
            });
        }
        // A map that no program of the session used so far has values of slots alone: of several
        // GPUs the first one with a value is shown.
        let uses = proof::sum_uses(&self.programs, &self.host_programs, &self.defs);
        let used = |uses: &Vec<SumUse>| uses.iter().any(|used| *used != SumUse::default());
        let changed = self.maps.iter().zip(&plans).zip(&uses);
        let mut changed = changed.filter(|((was, is), uses)| {
            was.added != is.added && (!was.added.is_empty() || used(uses))
        });
        if let Some(((map, _), _)) = changed.next() {
            return Err(SlotError::Added {
                program: programs.first().map(name).unwrap_or_default(),
                map: map.name.clone(),
            });
        }
        let mut by_slot: BTreeMap<u32, Vec<&PlannedProgram>> = BTreeMap::new();
        for program in &programs {
            if !program.spec.launches.is_empty() {
                return Err(SlotError::Launches {
                    program: name(program),
                    section: program.section().to_owned(),
                });
            }
            let said = &self.options.choose;
            if said.iter().any(|(of, _)| of == program.name()) {
                let spec = place(program);
                let mut beside = self.own_programs().filter(|own| place(own) == spec);
                if let Some(other) = beside.find(|own| own.choice != program.choice) {
                    return Err(SlotError::Said {
                        program: name(program),
                        choice: Arc::clone(&program.choice),
                        beside: name(other),
                        its: Arc::clone(&other.choice),
                    });
                }
            }
            let slot = self.lineage.slots.of(program);
            let slot = slot.ok_or_else(|| SlotError::NoSlot {
                program: name(program),
                section: program.section().to_owned(),
                there: self.lineage.slots.there(),
            })?;
            by_slot.entry(slot).or_default().push(program);
        }
        let bindings = self.bindings_of(&plans);
        // What is done by which number does not depend on the target.
        let interpreter = self.interpreter(Target {
            ptx: (8, 0),
            sm: 90,
        });
        let mut code = Vec::new();
        for (slot, programs) in &by_slot {
            let made = translated(programs, &bindings, &interpreter);
            code.push((
                *slot,
                made.map_err(|(program, why)| refusal(program, why, &plans))?,
            ));
        }
        let filling = Filling {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            base: Arc::clone(self),
            code,
            constants: plans[self.maps.len()..].to_vec(),
            programs: programs.iter().map(name).collect(),
        };
        let known = vec![0; self.maps.len()];
        match (filling.bytes(), filling.encode(0, 0, &known)) {
            (bytes, _) if bytes > slots::HALF => Err(SlotError::Room { bytes }),
            (_, None) => Err(SlotError::Missing),
            (_, Some(_)) => Ok(filling),
        }
    }

    /// These programs are in slots, or none. [`crate::Live::write_gate`] tells the devices, to
    /// which [`crate::Live::bring_to_slots`] has brought them.
    pub fn fill_slots(&self, filling: Option<Arc<Filling>>) {
        self.lineage.gates.fill(filling);
    }

    /// Programs that are in slots.
    pub fn in_slots_now(&self) -> Vec<String> {
        let filling = self.lineage.gates.filling();
        filling.map_or_else(Vec::new, |filling| filling.programs.clone())
    }
}

fn translated(
    programs: &[&PlannedProgram],
    maps: &[MapBinding],
    interpreter: &Interpreter,
) -> Result<Code, (String, NotInterpreted)> {
    let verified: Vec<&Verified<_>> = programs.iter().map(|p| &p.verified).collect();
    let site = programs.first().map_or(Site::Entry, |p| p.spec.site);
    let form = translate_for_slot(&verified, maps, interpreter, site);
    form.map_err(|(number, why)| (programs[number].name().to_owned(), why))
}

/// With the map's name, where it is about one.
fn refusal(program: String, why: NotInterpreted, plans: &[MapPlan]) -> SlotError {
    let of_map = match why {
        NotInterpreted::Map { helper, map, .. } => {
            let plan = plans.get(map as usize);
            plan.map(|plan| (helper, plan.name.clone()))
        }
        _ => None,
    };
    match of_map {
        Some((helper, map)) => SlotError::Map {
            program,
            helper,
            map,
        },
        None => SlotError::Program { program, why },
    }
}

const _: () = assert!(
    env::SIZE.is_multiple_of(16),
    "the words of a gate are read together"
);
