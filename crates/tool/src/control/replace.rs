//! Programs replaced for a second command: the tool asks the application's agent, and answers when
//! that has.
//!
//! A replacement may take as long as code takes to be compiled and loaded, and the thread here also
//! begins handshakes with applications: so it never waits.

use std::time::Duration;

use super::protocol::{ProgramInfo, ReplaceRequest, Reply, failed};
use crate::error::Error;
use crate::handles::process::Process;
use crate::heard::replacement::Replaced;
use crate::heard::replacement::Replacement;
use crate::object::Object;

/// A command waits for this.
#[derive(Debug)]
pub(super) struct Pending {
    process: Process,
    replacement: Replacement,
    token: u64,
}

impl Pending {
    /// Asks the agent.
    pub(super) fn begin(
        process: Option<&Process>,
        request: &ReplaceRequest,
        object: &[u8],
    ) -> Result<Pending, Error> {
        let process = process.ok_or(Error::NotReady { pid: 0 })?.clone();
        let object = || Object::from_bytes(&request.name, object);
        let replacement = match &request.change {
            warpbpf_wire::Change::Replace => Replacement::Replace(object()?),
            warpbpf_wire::Change::Add => Replacement::Add(object()?),
            warpbpf_wire::Change::Remove { programs } => Replacement::Remove(programs.clone()),
            warpbpf_wire::Change::Gate { open, programs } => Replacement::Gate {
                open: *open,
                programs: programs.clone(),
            },
            warpbpf_wire::Change::Slots => Replacement::Slots(object()?),
            warpbpf_wire::Change::Clear => Replacement::Clear,
            // Those of a tool of libbpf, which has no socket of this kind.
            warpbpf_wire::Change::OnCpu { .. } => {
                return Err(invalid(
                    "programs on the CPU are there as long as the application has any",
                ));
            }
            warpbpf_wire::Change::Join { .. } | warpbpf_wire::Change::Leave { .. } => {
                return Err(invalid(
                    "a second tool comes and goes by a connection of its own",
                ));
            }
        };
        Pending::of(
            process,
            replacement,
            Duration::from_millis(request.limit_ms),
        )
    }

    /// Asks the agent.
    pub(super) fn of(
        process: Process,
        replacement: Replacement,
        limit: Duration,
    ) -> Result<Pending, Error> {
        let token = process.begin_replacement(&replacement, limit)?;
        Ok(Pending {
            process,
            replacement,
            token,
        })
    }

    /// Asks once more, where others were being replaced. It may take what is left of the time.
    pub(super) fn again(&mut self, left: Duration) -> Result<(), Error> {
        self.token = self.process.begin_replacement(&self.replacement, left)?;
        Ok(())
    }

    /// What became of it; nothing yet.
    pub(super) fn done(&self) -> Option<Result<Replaced, Error>> {
        let answer = self.process.take_answer(self.token)?;
        Some(answer.and_then(|answer| self.process.replaced(&self.replacement, answer)))
    }

    /// The same, as the one who asked is told.
    pub(super) fn answer(&self) -> Option<Reply> {
        Some(match self.done()? {
            Ok(Replaced {
                generation,
                programs,
                without,
                slots,
            }) => Reply::Replaced {
                generation,
                programs,
                without,
                slots,
            },
            Err(error) => failed(&error),
        })
    }
}

fn invalid(why: &str) -> Error {
    Error::Answered {
        message: why.to_owned(),
        errno: warpbpf_abi::maps::EINVAL as i32,
    }
}

/// The programs of an application, with their launches.
pub(super) fn programs(state: &crate::heard::state::State) -> Vec<ProgramInfo> {
    let launches = |program: usize| {
        let with = |kernel: &&warpbpf_wire::Kernel| kernel.programs.contains(&program);
        let mut names: Vec<&str> = Vec::new();
        for kernel in state.kernels.iter().filter(with) {
            // Counts are of all kernels of a name.
            if !names.contains(&kernel.mangled.as_str()) {
                names.push(&kernel.mangled);
            }
        }
        let of = |name: &&str| {
            let counts = state.counts.get(*name)?;
            let now = counts.generations.iter();
            let now = now.filter(|(generation, _)| *generation == state.generation);
            Some(now.map(|(_, count)| count).sum::<u64>())
        };
        names.iter().filter_map(of).sum()
    };
    let program = |(index, program): (usize, &warpbpf_wire::Program)| ProgramInfo {
        name: program.name.clone(),
        section: program.section.clone(),
        launches: launches(index),
    };
    state.programs.iter().enumerate().map(program).collect()
}
