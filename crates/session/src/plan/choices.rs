//! Which launches the programs of a kernel are in, where those may be others for each: every choice
//! that there is has a bit, and a launch says which of them take it
//! ([`warpbpf_abi::layout::launch::PARAM_CHOSEN`]).
//!
//! A kernel has one variant with all of its programs. Where they all choose the same launches
//! nothing of this is in its code: a launch runs the variant or the original.

use std::sync::Arc;

use warpbpf_abi::choice::Choice;
use warpbpf_abi::layout::launch;

use crate::plan::kernel_error::ChoiceError;
use crate::plan::planned::PlannedProgram;
use crate::plan::session::Session;

/// Choices of the programs of one kernel.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// By bit; one if there is nothing to tell apart.
    all: Vec<Arc<Choice>>,
    /// Names of the programs, and the bit of each.
    programs: Vec<(String, u32)>,
    /// Parallel to them: whose they are ([`crate::plan::client`]), and what identifies them.
    clients: Vec<u32>,
    ids: Vec<u64>,
}

impl Choices {
    pub(crate) fn of<'p>(programs: impl Iterator<Item = (&'p PlannedProgram, u64)>) -> Choices {
        let mut choices = Choices::default();
        for (program, id) in programs {
            choices.clients.push(program.client);
            choices.ids.push(id);
            let known = choices
                .all
                .iter()
                .position(|known| *known == program.choice);
            let bit = known.unwrap_or(choices.all.len());
            if known.is_none() {
                choices.all.push(Arc::clone(&program.choice));
            }
            choices
                .programs
                .push((program.name().to_owned(), bit as u32));
        }
        choices
    }

    /// By bit. They live as long as this.
    pub fn all(&self) -> &[Arc<Choice>] {
        &self.all
    }

    /// Not all programs choose the same launches.
    pub fn differ(&self) -> bool {
        self.all.len() > 1
    }

    /// Names of the programs, and the bit of each.
    pub fn programs(&self) -> &[(String, u32)] {
        &self.programs
    }

    /// Parallel to the programs: whose they are ([`crate::plan::client`]).
    pub fn clients(&self) -> &[u32] {
        &self.clients
    }

    /// Parallel to the programs: what identifies them ([`Session::program_ids`]).
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// The bit of a program, by its place in the list that this was made of; `None` where there is
    /// nothing to tell apart.
    pub(crate) fn bit(&self, program: usize) -> Option<u32> {
        let (_, bit) = self.programs.get(program).filter(|_| self.differ())?;
        Some(*bit)
    }

    /// The bit of each of these choices among `all`; none where they are the same. `None` if one is
    /// not there, or has no bit of its own: where there are too many, the last bit is that of
    /// several.
    pub fn bits_in(&self, all: &Choices) -> Option<Vec<u32>> {
        if self.all == all.all {
            return Some(Vec::new());
        }
        let bit = |own: &Arc<Choice>| {
            let known = all.all.iter().position(|known| known == own)?;
            let shared = all.check_count().is_err() && known >= launch::MOST_CHOICES - 1;
            (!shared).then_some(known as u32)
        };
        self.all.iter().map(bit).collect()
    }

    /// They can be told apart in slots, which have no place for bits.
    ///
    /// # Errors
    /// Two that cannot.
    pub(crate) fn check_in_slots(&self) -> Result<(), ChoiceError> {
        let of = |bit: usize| {
            let mut programs = self.programs.iter();
            let (name, _) = programs.find(|(_, own)| *own as usize == bit)?;
            Some((name.clone(), Arc::clone(&self.all[bit])))
        };
        match of(0).zip(of(1)) {
            Some((one, other)) => Err(ChoiceError::InSlots { one, other }),
            None => Ok(()),
        }
    }

    /// There is a bit for each of them.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn check_count(&self) -> Result<(), ChoiceError> {
        match self.all.len() {
            0..=launch::MOST_CHOICES => Ok(()),
            ways => Err(ChoiceError::TooMany { ways }),
        }
    }
}

impl Session {
    /// The choices of these programs.
    pub fn choices_of(&self, programs: &[usize]) -> Choices {
        let ids = self.program_ids(programs).into_iter();
        Choices::of(programs.iter().map(|index| &self.programs[*index]).zip(ids))
    }

    /// The same for a kernel of which there is only machine code: functions for it serve any
    /// kernel, so a choice has one bit in all of them. Bits that none of the kernel's programs has
    /// are those of one of its choices.
    pub(crate) fn choices_in_machine_code(&self, programs: &[usize]) -> Choices {
        let own = self.choices_of(programs);
        if !own.differ() {
            return own;
        }
        let known = |choice: &Arc<Choice>| own.all.contains(choice);
        let everyone = self.every_choice();
        let all = everyone.iter().map(|choice| match known(choice) {
            true => Arc::clone(choice),
            false => Arc::clone(&own.all[0]),
        });
        let all = all.collect();
        let bits = programs.iter().zip(&own.programs);
        let bits =
            bits.map(|(index, (name, _))| (name.clone(), self.machine_bit(&everyone, *index)));
        Choices {
            programs: bits.collect(),
            all,
            ..own
        }
    }

    /// Every choice that a program makes, once.
    fn every_choice(&self) -> Vec<Arc<Choice>> {
        let mut all: Vec<Arc<Choice>> = Vec::new();
        for program in &self.programs {
            if !all.contains(&program.choice) {
                all.push(Arc::clone(&program.choice));
            }
        }
        all
    }

    fn machine_bit(&self, all: &[Arc<Choice>], program: usize) -> u32 {
        let own = &self.programs[program].choice;
        all.iter().position(|known| known == own).unwrap_or(0) as u32
    }

    /// The bit of a program in functions for machine code whose programs are told apart.
    ///
    /// # Errors
    /// There are more choices than bits.
    pub(crate) fn bit_in_machine_code(&self, program: usize) -> Result<u32, ChoiceError> {
        let all = self.every_choice();
        match all.len() {
            0..=launch::MOST_CHOICES => Ok(self.machine_bit(&all, program)),
            ways => Err(ChoiceError::TooManyInMachineCode { ways }),
        }
    }

    /// What all programs choose; `None` if they differ.
    pub fn common_choice(&self) -> Option<&Choice> {
        let (first, others) = self.programs.split_first()?;
        let same = others.iter().all(|other| other.choice == first.choice);
        same.then_some(&*first.choice)
    }

    /// What only NVTX tells matters to programs, or may to such that come.
    pub fn needs_nvtx(&self) -> bool {
        self.lineage.ranges
    }

    /// What programs choose, one by one.
    pub fn choices(&self) -> impl Iterator<Item = &Choice> {
        self.programs.iter().map(|program| &*program.choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(count: u64) -> Choices {
        let choice = |after| {
            Arc::new(Choice {
                after,
                ..Choice::default()
            })
        };
        Choices {
            all: (0..count).map(choice).collect(),
            programs: (0..count).map(|n| (format!("p{n}"), n as u32)).collect(),
            ..Choices::default()
        }
    }

    #[test]
    fn a_launch_has_bits_for_so_many() {
        let most = launch::MOST_CHOICES as u64;
        assert_eq!(choices(most).check_count(), Ok(()));
        assert_eq!(choices(most).bit(63), Some(63));
        assert_eq!(
            choices(most + 1).check_count().unwrap_err().to_string(),
            "its programs choose launches in 65 ways, and 64 can be told apart; choose the same for more of them"
        );
    }

    #[test]
    fn choices_are_found_among_those_of_more_programs() {
        let all = choices(3);
        assert_eq!(all.bits_in(&choices(3)), Some(Vec::new()));
        let some = Choices {
            all: vec![Arc::clone(&all.all[2]), Arc::clone(&all.all[0])],
            ..Choices::default()
        };
        assert_eq!(some.bits_in(&all), Some(vec![2, 0]));
        assert_eq!(all.bits_in(&some), None, "one is not there");
        let most = launch::MOST_CHOICES as u64;
        assert_eq!(some.bits_in(&choices(most)), Some(vec![2, 0]));
        assert_eq!(some.bits_in(&choices(most + 1)), Some(vec![2, 0]));
        let last = Choices {
            all: vec![Arc::clone(&choices(most).all[most as usize - 1])],
            ..Choices::default()
        };
        assert_eq!(last.bits_in(&choices(most)), Some(vec![most as u32 - 1]));
        assert_eq!(
            last.bits_in(&choices(most + 1)),
            None,
            "others have it, too"
        );
    }

    #[test]
    fn what_is_the_same_needs_none() {
        let one = choices(1);
        assert_eq!(
            (one.bit(0), one.differ(), one.check_in_slots()),
            (None, false, Ok(()))
        );
        let two = choices(2);
        assert_eq!(
            (two.bit(0), two.bit(1), two.bit(2)),
            (Some(0), Some(1), None)
        );
        assert_eq!(
            two.check_in_slots().unwrap_err().to_string(),
            "its programs choose different launches (`p0`: all launches; `p1`: after=1), and what is in slots cannot be told apart; choose the same for all of them"
        );
    }
}
