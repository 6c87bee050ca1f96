//! One program through loader and verifier, and the comparison with what the kernel does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use warpbpf_ebpf::{AluOp, Code, Insn, Pc, Source};
use warpbpf_object::{MapDef, Object, load_some};
use warpbpf_verify::{Facts, InsnFact, Subject, verify};

use crate::compile::Unit;
use crate::expect::{self, Expectation, Verdict};
use crate::kernel::{Kernel, Said};
use crate::platform::{self, Kind};
use crate::{left_out, memory};

/// What became of one program.
#[derive(Debug)]
pub struct Case {
    /// Its source file.
    pub file: String,
    /// Its C function.
    pub program: String,
    /// The result.
    pub outcome: Outcome,
}

/// What came out.
#[derive(Debug)]
pub enum Outcome {
    /// Not compared.
    LeftOut(String),
    /// Compared.
    Compared {
        /// What the kernel does.
        kernel: Verdict,
        /// What we do.
        ours: Ours,
        /// What the running kernel says, if it could be asked.
        running: Said,
        /// What the proof took.
        took: Took,
    },
}

/// What a proof takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Took {
    /// Of the processor: other work on the machine does not count.
    pub time: Duration,
    /// The most bytes allocated at once.
    pub bytes: usize,
    /// How many instructions the program has.
    pub insns: usize,
}

/// What warpbpf does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ours {
    /// It loads.
    Accepts,
    /// It does not.
    Refuses {
        /// Name of the rule; `load` if the file is already refused.
        rule: String,
        /// The message.
        message: String,
    },
    /// The verifier panics, which it must never do.
    Panics,
}

/// All programs of a source file that are tests.
///
/// # Errors
/// Why there is none: what the compiler or the loader says about the file.
pub fn cases(unit: &Unit, kernel: Option<&Kernel>) -> Result<Vec<Case>, String> {
    let bytes = unit
        .object
        .as_ref()
        .map_err(|why| format!("not compiled: {why}"))?;
    let mut names = Vec::new();
    let shared = load_some(bytes, &mut |name| {
        names.push(name.to_owned());
        false
    })
    .map_err(|error| left_out::by_load_error(&error).unwrap_or_else(|| error.to_string()))?;
    let Some(btf) = &shared.btf else {
        return Err("no BTF".to_owned());
    };
    let mut cases = Vec::new();
    for name in names {
        let expectation = expect::of(btf, &name);
        if expectation.auxiliary || expectation.other_arch {
            continue;
        }
        let loaded = load_some(bytes, &mut |other| other == name);
        let outcome = match loaded {
            Ok(object) => outcome(&object, &expectation, kernel),
            Err(error) => match left_out::by_load_error(&error) {
                Some(reason) => Outcome::LeftOut(reason),
                None => Outcome::Compared {
                    kernel: expectation.verdict,
                    ours: Ours::Refuses {
                        rule: "load".to_owned(),
                        message: error.to_string(),
                    },
                    running: Said::default(),
                    took: Took::default(),
                },
            },
        };
        cases.push(Case {
            file: unit.name.clone(),
            program: name,
            outcome,
        });
    }
    Ok(cases)
}

fn outcome(object: &Object, expectation: &Expectation, oracle: Option<&Kernel>) -> Outcome {
    let Some(program) = object.programs.first() else {
        return Outcome::LeftOut("no entry point".to_owned());
    };
    let kind = match platform::kind_of(&program.section) {
        Ok(kind) => kind,
        Err(word) => return Outcome::LeftOut(format!("type of program: {word}")),
    };
    if let Some(reason) = left_out::by_use(&program.code, &object.maps, &kind.platform()) {
        return Outcome::LeftOut(reason);
    }
    let maps: Vec<_> = object
        .maps
        .iter()
        .map(|map| platform::adapted(map).unwrap_or_else(|_| map.clone()))
        .collect();
    let strict = expectation
        .flags
        .iter()
        .any(|f| f == "BPF_F_STRICT_ALIGNMENT");
    let running = oracle.map(|kernel| kernel.ask(&program.code, &object.maps, kind, strict));
    let verdict = expectation.verdict.clone();
    compare(program, &maps, kind, verdict, running.unwrap_or_default())
}

/// Verifies a program under Linux's rules for its type, beside what the kernel does.
pub fn compare(
    subject: &impl Subject,
    maps: &[MapDef],
    kind: Kind,
    kernel: Verdict,
    running: Said,
) -> Outcome {
    let platform = kind.platform();
    let start = cpu_time();
    let (result, bytes) =
        memory::most(|| catch_unwind(AssertUnwindSafe(|| verify(subject, maps, &platform))));
    let took = Took {
        time: cpu_time().saturating_sub(start),
        bytes,
        insns: subject.code().insns().len(),
    };
    let ours = match result {
        Ok(Ok(verified)) => match divides_by_zero(subject.code(), verified.facts()) {
            Some(slot) => Ours::Refuses {
                rule: "linux-division".to_owned(),
                message: format!("slot {slot}: a division by the constant 0"),
            },
            None => Ours::Accepts,
        },
        Ok(Err(rejection)) => {
            if let Some(reason) = left_out::by_rule(&rejection.rule) {
                return Outcome::LeftOut(reason);
            }
            Ours::Refuses {
                rule: rejection.rule.name().to_owned(),
                message: format!(
                    "slot {} `{}`: {}",
                    rejection.slot, rejection.insn, rejection.rule
                ),
            }
        }
        Err(_) => Ours::Panics,
    };
    Outcome::Compared {
        kernel,
        ours,
        running,
        took,
    }
}

/// How long this thread has run.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the clock exists in every thread, and the time that is written is there.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "Linux has this clock since 2.6.12");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Linux refuses a division by the constant 0 where control can come, and tests use it to ask
/// whether it can. For us its result is defined.
fn divides_by_zero(code: &Code, facts: &Facts) -> Option<u32> {
    let zero = |insn: &Insn| {
        matches!(
            insn,
            Insn::Alu {
                op: AluOp::Div | AluOp::Mod | AluOp::SDiv | AluOp::SMod,
                src: Source::Imm(0),
                ..
            }
        )
    };
    facts.instances.iter().find_map(|instance| {
        (instance.start.0..instance.end.0)
            .map(Pc)
            .find(|pc| zero(code.at(*pc)) && !matches!(instance.at(*pc), InsnFact::Dead))
            .map(|pc| code.slot(pc))
    })
}
