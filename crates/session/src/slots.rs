//! Slots: places beside programs in kernels, for programs that come while those kernels run and perhaps never end.
//!
//! A slot is for a place (`gpu/mem/*|kind=load`, say), and is in every kernel that got a program for that place. What is put there is proved
//! like any program, translated for the interpreter on the device, and brought by a copy: no code is loaded, so nothing waits for kernels. On
//! the device it lies in one of two halves ([`warpbpf_abi::layout::slots`]), together with its constants; all slots change at one moment.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpbpf_abi::attach::Site;
use warpbpf_abi::choice::{Choice, ChoiceRequest};
use warpbpf_abi::layout::{env, slots};
use warpbpf_codegen::interpreter::{Form as Code, Interpreter, NotInterpreted, translate_for_slot};
use warpbpf_codegen::{MapBinding, Target};
use warpbpf_driver::{Driver, DriverError, Stream};
use warpbpf_maps::{MapPlan, SumUse};
use warpbpf_verify::Verified;

use crate::gate::Unwritten;
use crate::plan::{self, PlannedProgram, Session};
use crate::readers::Readers;
use crate::replace::ReplaceError;
use crate::section::{AttachSpec, Form};

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

/// The bit of a slot in the word of open ones.
pub(crate) fn bit(slot: u32) -> u32 {
    slot.min(slots::SHARED)
}

/// The places that have a slot, by number. They only come to be more, because kernels with them may run for ever.
#[derive(Debug, Default)]
pub(crate) struct Slots(Mutex<Vec<Place>>);

#[derive(Debug)]
struct Place {
    spec: AttachSpec,
    section: String,
}

/// What places are told apart by: what a program calls the kernel's parameters is no part of it, nor in which launches it is.
fn place(program: &PlannedProgram) -> AttachSpec {
    AttachSpec {
        arguments: Vec::new(),
        launches: ChoiceRequest::default(),
        ..program.spec.clone()
    }
}

impl Slots {
    fn lock(&self) -> MutexGuard<'_, Vec<Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Slots where these programs are, as long as there is room.
    pub(crate) fn make(&self, programs: &[PlannedProgram]) {
        let mut places = self.lock();
        for program in programs {
            let spec = place(program);
            let known = places.iter().any(|place| place.spec == spec);
            if !known && spec.form != Form::Run && (places.len() as u64) < slots::MOST {
                let section = program.section().to_owned();
                places.push(Place { spec, section });
            }
        }
    }

    fn of(&self, program: &PlannedProgram) -> Option<u32> {
        let spec = place(program);
        let found = self.lock().iter().position(|place| place.spec == spec);
        found.and_then(|at| u32::try_from(at).ok())
    }

    /// What there is, as the end of a sentence.
    fn there(&self) -> String {
        let places = self.lock();
        let there: Vec<String> = places
            .iter()
            .map(|place| format!("`{}`", place.section))
            .collect();
        match there.len() {
            0 => "is none".to_owned(),
            1 => format!("is one for {}", there[0]),
            _ => format!("are those for {}", there.join(", ")),
        }
    }
}

/// Programs for slots, ready for any context of their session.
#[derive(Debug)]
pub struct Filling {
    /// Told apart by this, on a device.
    id: u64,
    /// Whose maps they use.
    base: Arc<Session>,
    /// By slot.
    code: Vec<(u32, Code)>,
    /// Maps that they bring, behind those of the session.
    constants: Vec<MapPlan>,
    programs: Vec<String>,
}

impl Filling {
    /// The session that it was made for.
    pub(crate) fn base(&self) -> &Session {
        &self.base
    }

    /// Names of the programs.
    pub fn programs(&self) -> &[String] {
        &self.programs
    }

    /// A bit for each slot in which something runs.
    pub(crate) fn open(&self) -> u64 {
        let bits = self.code.iter().map(|(slot, _)| 1u64 << bit(*slot));
        bits.fold(0, |open, bit| open | bit)
    }

    fn bytes(&self) -> u64 {
        let code = self.code.iter().map(|(_, code)| code.size() as u64);
        let constants = self.constants.iter().map(|plan| rounded(plan.bytes()));
        slots::PROGRAMS + code.chain(constants).sum::<u64>()
    }

    /// What a half holds that lies at `at`. `None` if a program names a map that there is not.
    fn encode(&self, at: u64, env: u64, maps: &[u64]) -> Option<Vec<u8>> {
        let mut bytes = vec![0; slots::PROGRAMS as usize];
        let mut maps = maps.to_vec();
        for plan in &self.constants {
            let start = bytes.len();
            maps.push(at + start as u64);
            bytes.resize(start + rounded(plan.bytes()) as usize, 0);
            for write in &plan.image {
                let from = start + write.offset as usize;
                let to = bytes.get_mut(from..from + write.bytes.len())?;
                to.copy_from_slice(&write.bytes);
            }
        }
        for (slot, code) in &self.code {
            let address = at + bytes.len() as u64;
            let entry = *slot as usize * 8;
            bytes[entry..entry + 8].copy_from_slice(&address.to_le_bytes());
            bytes.extend(code.encode(env, &maps)?);
        }
        Some(bytes)
    }
}

fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(16)
}

impl Session {
    /// There are slots beside programs.
    pub fn has_slots(&self) -> bool {
        self.options.slots
    }

    /// The interpreter that runs what is in slots: the same in all sessions that follow one another.
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
        // A map that no program of the session used so far has values of slots alone: of several GPUs the first one with a value is shown.
        let uses = plan::sum_uses(&self.programs, &self.host_programs, &self.defs);
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

    /// These programs are in slots, or none. [`crate::Live::write_gate`] tells the devices, to which [`crate::Live::bring_to_slots`] has
    /// brought them.
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

/// Which half of a context is in force, and which one may be written.
#[derive(Debug, Default)]
struct Halves {
    /// The half that is in force, or was.
    current: usize,
    /// What is in each half.
    held: [u64; 2],
    /// The last write of the gate failed: some of its copies, or all, may name either half.
    unsure: bool,
}

impl Halves {
    fn with(&self, id: u64) -> Option<usize> {
        self.held.iter().position(|held| *held == id)
    }

    /// The one that no copy of the gate names, if that is known.
    fn free(&self) -> Option<usize> {
        (!self.unsure).then_some(self.current ^ 1)
    }

    /// The gate was written with this half in force, or with none, or that failed.
    fn told(&mut self, half: Option<usize>, written: bool) {
        self.unsure = !written;
        if let (Some(half), true) = (half, written) {
            self.current = half;
        }
    }
}

/// The slots of one context.
#[derive(Debug)]
pub(crate) struct DeviceSlots {
    env: u64,
    stream: Stream,
    readers: Readers,
    halves: Halves,
}

impl DeviceSlots {
    /// Those behind an environment block: nothing is there yet.
    pub(crate) fn new(env: u64, stream: Stream) -> DeviceSlots {
        DeviceSlots {
            env,
            stream,
            readers: Readers::new(env + slots::AT, stream),
            halves: Halves::default(),
        }
    }

    fn half(&self, half: usize) -> u64 {
        self.env + slots::AT + slots::HALVES + half as u64 * slots::HALF
    }

    /// These programs are in one of the halves.
    pub(crate) fn has(&self, filling: &Filling) -> bool {
        self.halves.with(filling.id).is_some()
    }

    /// The gate must be written before programs come: what it says on the device is not known.
    pub(crate) fn is_unsure(&self) -> bool {
        self.halves.unsure
    }

    /// Brings programs into the half that is not in force, once all have left it.
    pub(crate) fn fill(
        &mut self,
        driver: &Driver,
        filling: &Filling,
        maps: &[u64],
        limit: Duration,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), Unwritten> {
        if self.has(filling) {
            return Ok(());
        }
        let Some(free) = self.halves.free() else {
            return Err(Unwritten::Busy);
        };
        let stay = warpbpf_faults::strikes("session/slot-readers");
        if stay || !self.readers.drain(driver, limit, goes_on)? {
            return Err(Unwritten::Busy);
        }
        let at = self.half(free);
        let Some(bytes) = filling.encode(at, self.env, maps) else {
            return Err(Unwritten::Missing);
        };
        self.halves.held[free] = 0;
        driver.write(at, &bytes, self.stream)?;
        self.halves.held[free] = filling.id;
        Ok(())
    }

    /// Has `write` tell the device the bits of slots that are open, and the half with these programs: none where they are not there.
    pub(crate) fn switch(
        &mut self,
        filling: Option<&Filling>,
        write: impl FnOnce(u64, u64) -> Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        let there = filling.and_then(|filling| Some((filling, self.halves.with(filling.id)?)));
        let written = match there {
            Some((filling, half)) => write(filling.open(), self.half(half)),
            None => write(0, 0),
        };
        self.halves
            .told(there.map(|(_, half)| half), written.is_ok());
        written
    }
}

const _: () = assert!(
    env::SIZE.is_multiple_of(16),
    "the words of a gate are read together"
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs come into the free half, and the gate is written so.
    fn put(halves: &mut Halves, id: u64, written: bool) -> Option<usize> {
        let half = match halves.with(id) {
            Some(half) => half,
            None => {
                let free = halves.free()?;
                halves.held[free] = id;
                free
            }
        };
        halves.told(Some(half), written);
        Some(half)
    }

    #[test]
    fn a_half_that_the_gate_may_name_is_not_written() {
        let mut halves = Halves::default();
        assert_eq!(put(&mut halves, 1, true), Some(1));
        assert_eq!(put(&mut halves, 2, false), Some(0));
        // Copies of the gate may name the first one, the second one, or some each.
        assert_eq!((halves.current, halves.held), (1, [2, 1]));
        assert_eq!(put(&mut halves, 3, true), None);
        assert_eq!(halves.held, [2, 1]);
        // The gate is written again: the second one is in force.
        assert_eq!(put(&mut halves, 2, true), Some(0));
        assert_eq!(put(&mut halves, 3, true), Some(1));
        assert_eq!(halves.held, [2, 3]);
    }

    #[test]
    fn a_gate_with_closed_slots_leaves_the_other_half_free() {
        let mut halves = Halves::default();
        assert_eq!(put(&mut halves, 1, true), Some(1));
        halves.told(None, false);
        assert_eq!(halves.free(), None);
        halves.told(None, true);
        assert_eq!(halves.free(), Some(0));
        assert_eq!(put(&mut halves, 2, true), Some(0));
    }
}
