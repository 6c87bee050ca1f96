//! Programs stopped and let go on in kernels that run: the host's side of the gate
//! ([`warpbpf_abi::layout::gate`]).
//!
//! Sessions that follow one another share it, because kernels of all of them may run at once. A
//! program keeps its bit for ever: a kernel with it may run for hours after it was taken out.

use warpbpf_abi::layout::gate;

use crate::plan::session::Session;

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

    /// Programs are to run no more, or again; all, those that come included, if none is named.
    /// [`crate::Live::write_gate`] tells the devices.
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

    /// Programs of this session that the next one has not are to run no more, in kernels that were
    /// launched with them either. [`crate::Live::write_gate`] tells the devices. False if nothing
    /// was to be done; names are of those that cannot be closed by themselves, because
    /// [`gate::SHARED`] programs came before them.
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
    use crate::plan::session::Gates;

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
