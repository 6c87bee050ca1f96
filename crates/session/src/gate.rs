//! Programs stopped and let go on in kernels that run: the host's side of the gate ([`warpbpf_abi::layout::gate`]).
//!
//! Sessions that follow one another share it, because kernels of all of them may run at once. A program keeps its bit for ever: a kernel
//! with it may run for hours after it was taken out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpbpf_abi::layout::gate;
use warpbpf_driver::{Driver, DriverError, Stream};

use crate::live::Live;
use crate::plan::Session;
use crate::slots::{DeviceSlots, Filling};

/// Why programs are neither stopped nor let go on.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum GateError {
    #[error("programs of this session have no gate: begin it with `--gate`")]
    None,
    #[error("there is no program `{program}`; there {there}")]
    NoProgram { program: String, there: String },
    #[error(
        "program `{program}` shares its place in the gate, because {} came before it: stop all, or begin a new session",
        gate::SHARED
    )]
    Shared { program: String },
}

/// Why kernels that run are not told.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwritten {
    /// A copy.
    #[error("{0}")]
    Driver(#[from] DriverError),
    /// Of the slots' halves one is in force and the other one is not left yet.
    #[error(
        "kernels still run what was in slots before the programs that are there now: try again"
    )]
    Busy,
    /// There is no such map in this context.
    #[error("a program names a map that there is not; this is a bug in warpbpf")]
    Missing,
}

/// How long a context that came while slots were filled may have readers of what it never had.
const FILL_LIMIT: Duration = Duration::from_secs(1);

/// What is closed, and what is in slots.
#[derive(Debug, Default)]
pub(crate) struct Gates(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Bits of programs that somebody stopped.
    stopped: u64,
    /// Bits of programs that were taken out.
    out: u64,
    filling: Option<Arc<Filling>>,
}

impl Gates {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The word as it is to be on the device.
    fn word(&self) -> u64 {
        let state = self.lock();
        state.stopped | state.out
    }

    /// The word, and what is in slots: where nothing is to run, those are empty too.
    fn wanted(&self) -> (u64, Option<Arc<Filling>>) {
        let word = self.word();
        (word, self.filling().filter(|_| word != gate::CLOSED))
    }

    /// What is in slots from now on.
    pub(crate) fn fill(&self, filling: Option<Arc<Filling>>) {
        self.lock().filling = filling;
    }

    pub(crate) fn filling(&self) -> Option<Arc<Filling>> {
        self.lock().filling.clone()
    }
}

/// The gate in one context.
#[derive(Debug)]
pub(crate) struct DeviceGate {
    env: u64,
    /// Its own: that of the maps may be busy with a large one.
    stream: Stream,
    /// Held while it is written, so that what is written last was read last.
    writing: Mutex<Option<DeviceSlots>>,
}

impl DeviceGate {
    /// That behind an environment block, where all is open until it is written.
    pub(crate) fn new(env: u64, stream: Stream, slots: bool) -> DeviceGate {
        let slots = slots.then(|| DeviceSlots::new(env, stream));
        DeviceGate {
            env,
            stream,
            writing: Mutex::new(slots),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<DeviceSlots>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `maps` gives the addresses of a session's maps.
    fn write(
        &self,
        driver: &Driver,
        gates: &Gates,
        maps: impl Fn(&Session) -> Result<Vec<u64>, DriverError>,
    ) -> Result<(), Unwritten> {
        let mut writing = self.lock();
        let (word, filling) = gates.wanted();
        if let (Some(slots), Some(filling)) = (writing.as_mut(), &filling) {
            // It is there already, but in a context that came since. Only then are maps asked for: who makes some may wait for kernels.
            if !slots.has(filling) {
                let maps = maps(filling.base())?;
                self.fill(driver, gates, slots, (filling, &maps), FILL_LIMIT, &|| true)?;
            }
        }
        Ok(self.tell(driver, word, writing.as_mut(), filling.as_deref())?)
    }

    /// Brings programs into the half that is not in force.
    fn fill(
        &self,
        driver: &Driver,
        gates: &Gates,
        slots: &mut DeviceSlots,
        (filling, maps): (&Filling, &[u64]),
        limit: Duration,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), Unwritten> {
        if slots.is_unsure() && !slots.has(filling) {
            // Kernels may enter either half, until all copies say again what is in force.
            let (word, now) = gates.wanted();
            self.tell(driver, word, Some(&mut *slots), now.as_deref())?;
        }
        slots.fill(driver, filling, maps, limit, goes_on)
    }

    /// Writes all copies. What is in slots is in force where it has been brought, else they are closed.
    fn tell(
        &self,
        driver: &Driver,
        word: u64,
        slots: Option<&mut DeviceSlots>,
        filling: Option<&Filling>,
    ) -> Result<(), DriverError> {
        let write = |open: u64, half: u64| {
            let mut bytes = vec![0; gate::SIZE as usize];
            for copy in bytes.chunks_exact_mut(gate::STRIDE as usize) {
                for (at, word) in [(0, word), (gate::OPEN, open), (gate::HALF, half)] {
                    copy[at as usize..][..8].copy_from_slice(&word.to_le_bytes());
                }
            }
            driver.write(self.env + gate::COPIES_AT, &bytes, self.stream)
        };
        match slots {
            Some(slots) => slots.switch(filling, write),
            None => write(0, 0),
        }
    }
}

impl Live {
    /// Kernels that run in this context are told which programs are closed, and what is in slots; nothing where no gate was asked for.
    /// The context must be current.
    ///
    /// # Errors
    /// [`Unwritten`]: kernels that run go on as they were.
    pub fn write_gate(&self) -> Result<(), Unwritten> {
        let Some(gate) = &self.gate else {
            return Ok(());
        };
        let gates = &self.session().lineage.gates;
        let maps = |session: &Session| self.map_addresses(session);
        self.driver
            .relaxed(|| gate.write(&self.driver, gates, maps))
    }

    /// Brings programs for slots to this context, where nothing runs them until [`Session::fill_slots`] and [`Live::write_gate`].
    /// The context must be current.
    ///
    /// # Errors
    /// [`Unwritten::Busy`] if that took longer than `limit`, because the half that they come to is not left, or `goes_on` said no; a copy.
    pub fn bring_to_slots(
        &self,
        filling: &Filling,
        limit: Duration,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), Unwritten> {
        let Some(gate) = &self.gate else {
            return Ok(());
        };
        let maps = self.map_addresses(filling.base())?;
        let gates = &self.session().lineage.gates;
        let what = (filling, maps.as_slice());
        self.driver.relaxed(|| match gate.lock().as_mut() {
            Some(slots) => gate.fill(&self.driver, gates, slots, what, limit, goes_on),
            None => Ok(()),
        })
    }
}

impl Session {
    /// A gate stands in front of each program.
    pub fn has_gate(&self) -> bool {
        self.options.gate
    }

    /// The bit of a program, if a gate was asked for.
    pub(crate) fn gate_of(&self, program: usize) -> Option<u32> {
        let id = self.lineage.program_ids[program];
        let own = u32::try_from(id).unwrap_or(u32::MAX);
        self.options.gate.then(|| own.min(gate::SHARED))
    }

    /// Programs are to run no more, or again; all, those that come included, if none is named. [`Live::write_gate`] tells the devices.
    ///
    /// # Errors
    /// [`GateError`]: nothing is changed.
    pub fn set_gate(&self, open: bool, programs: &[String]) -> Result<(), GateError> {
        if !self.has_gate() {
            return Err(GateError::None);
        }
        let mut bits = if programs.is_empty() { gate::CLOSED } else { 0 };
        for name in programs {
            let all = self.programs.iter().enumerate();
            let mut named = all.filter(|(_, program)| program.name() == name).peekable();
            if named.peek().is_none() {
                let (program, there) = (name.clone(), self.program_names());
                return Err(GateError::NoProgram { program, there });
            }
            for (index, _) in named {
                match self.gate_of(index) {
                    Some(bit) if bit != gate::SHARED => bits |= 1 << bit,
                    Some(_) | None => {
                        let program = name.clone();
                        return Err(GateError::Shared { program });
                    }
                }
            }
        }
        let mut state = self.lineage.gates.lock();
        match open {
            true => state.stopped &= !bits,
            false => state.stopped |= bits,
        }
        Ok(())
    }

    /// Programs of this session that the next one has not are to run no more, in kernels that were launched with them either.
    /// [`Live::write_gate`] tells the devices. False if nothing was to be done; names are of those that cannot be closed by themselves,
    /// because [`gate::SHARED`] programs came before them.
    pub fn close_those_without(&self, next: &Session) -> (bool, Vec<String>) {
        let (mut out, mut late) = (0, Vec::new());
        for (index, id) in self.lineage.program_ids.iter().enumerate() {
            match self.gate_of(index) {
                Some(_) if next.lineage.program_ids.contains(id) => {}
                Some(gate::SHARED) => late.push(self.programs[index].name().to_owned()),
                Some(bit) => out |= 1 << bit,
                None => {}
            }
        }
        self.lineage.gates.lock().out |= out;
        (out != 0, late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_out_stays_closed_when_the_rest_goes_on() {
        let gates = Gates::default();
        assert_eq!(gates.word(), 0);
        gates.lock().out |= 0b10;
        assert_eq!(gates.word(), 0b10);
        gates.lock().stopped = gate::CLOSED;
        assert_eq!(gates.word(), gate::CLOSED);
        gates.lock().stopped = 0;
        assert_eq!(gates.word(), 0b10);
    }
}
