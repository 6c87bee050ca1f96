//! Kernels that a fuzzer changed: as they are, recompiled without programs, and with programs in
//! them they must compute the same, byte for byte, and what the programs count must be what the
//! kernels do.
//!
//! A mutant is made from a seed and an index, so a number is all that a failure needs. What goes to
//! a GPU was run on the soft GPU on the spot, in several orders of its warps: it ends, it traps
//! nowhere, and no race decides what it computes.
//!
//! Reading order: [`warpbpf_conformance::lines`], [`generate`], [`subject`], [`mutate`] (and
//! `scene`, where it may), [`layout`]; [`count`] and [`judge`], which know what is right;
//! [`engine`], which knows what is there.

pub mod count;
pub mod engine;
pub mod generate;
pub mod judge;
pub mod layout;
pub mod mutate;
mod scene;
pub mod subject;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use warpbpf_conformance::rng::Rng;

use crate::probes::Counts;
use crate::texts;
use engine::{Engine, Probed};
use judge::{Dropped, Judged, judge};
use mutate::{Mutation, Mutator};
use subject::Subject;

/// Why probes that ask for the predicate of a branch do not get a jump through a table. The corpus
/// has none.
const NO_PREDICATE: &str = "an indexed branch has no predicate";

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The bundle.
    pub bundle: PathBuf,
    /// On the soft GPU.
    pub soft: bool,
    /// Of the random numbers.
    pub seed: u64,
    /// First index.
    pub first: u64,
    /// Mutants to make, those that are dropped included.
    pub count: u64,
    /// No new one after so long.
    pub time: Duration,
    /// Where texts go about which there is something to say.
    pub keep: Option<PathBuf>,
    /// A `ptxas` that must accept the texts before anything else happens to them: what a GPU's
    /// driver would refuse is dropped.
    pub ptxas: Option<String>,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Mutants made.
    pub made: u64,
    /// Mutants compared, by subject.
    pub compared: BTreeMap<String, u64>,
    /// Changes in them, by kind.
    pub changes: BTreeMap<&'static str, u64>,
    /// Why others were not.
    pub dropped: BTreeMap<Dropped, u64>,
    /// Runs whose memory was compared, byte for byte.
    pub runs: u64,
    /// Counts that were compared.
    pub counts: u64,
    /// Places that programs did not get, by reason.
    pub left_out: BTreeMap<String, u64>,
    /// Disagreements.
    pub wrong: u64,
}

/// A mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    /// With its changes.
    pub subject: Subject,
    /// As it is loaded.
    pub written: String,
    /// What was changed.
    pub changes: Vec<Mutation>,
}

/// The mutant of an index.
///
/// # Errors
/// The generator wrote what cannot be read.
pub fn mutant(corpus: &[Subject], seed: u64, index: u64) -> Result<Mutant, String> {
    let mut rng = Rng::new(seed, index);
    let mut subject = match corpus.is_empty() || !rng.one_in(3) {
        true => subject::generated(&mut rng)?,
        false => corpus[rng.below(corpus.len())].clone(),
    };
    let mut changes = Vec::new();
    let wanted = rng.between(0, 8);
    for _ in 0..wanted {
        let kind = rng.pick(&Mutation::ALL);
        let generated = subject.generated;
        // Each has names of its own for what it adds.
        let tag = changes.len() as u32 * 100;
        if Mutator::new(&mut rng, generated, tag).apply(kind, &mut subject.text) {
            changes.push(kind);
        }
    }
    let written = layout::lay_out(&mut rng, &subject.text);
    Ok(Mutant {
        subject,
        written,
        changes,
    })
}

/// Makes mutants and compares them; `told` gets what is wrong.
///
/// # Errors
/// What has nothing to do with a mutant.
pub fn run(plan: &Plan, mut told: impl FnMut(&str)) -> Result<Summary, String> {
    let corpus = subject::corpus(&plan.bundle)?;
    let mut engine = Engine::open(&plan.bundle, plan.soft)?;
    let start = Instant::now();
    let mut summary = Summary::default();
    // Originals first: if one cannot be judged, its arguments are wrong.
    if plan.first == 0 {
        for subject in &corpus {
            let plain = subject.text.plain();
            if let Err((why, said)) = judge(&subject.text, &plain, &subject.kernel, &subject.shape)
            {
                summary.wrong += 1;
                told(&format!(
                    "`{}` as it is: {}: {said}",
                    subject.name,
                    why.word()
                ));
            }
        }
    }
    for index in plan.first..plan.first.saturating_add(plan.count) {
        if start.elapsed() > plan.time {
            break;
        }
        let mutant = mutant(&corpus, plan.seed, index)?;
        summary.made += 1;
        let subject = &mutant.subject;
        let judged = match judge(
            &subject.text,
            &mutant.written,
            &subject.kernel,
            &subject.shape,
        ) {
            Ok(judged) => judged,
            Err((why, said)) => {
                *summary.dropped.entry(why).or_default() += 1;
                // The soft GPU reads all that is made here.
                if why == Dropped::Unreadable {
                    told(&kept(
                        plan,
                        index,
                        &mutant,
                        &[format!("{}: {said}", why.word())],
                    )?);
                    summary.wrong += 1;
                }
                continue;
            }
        };
        let accepted = match &plan.ptxas {
            Some(ptxas) => accepted(ptxas, &mutant),
            None => Ok(()),
        };
        match accepted.and_then(|()| compare(&mut engine, &mutant, &judged, &mut summary)) {
            Ok(wrong) if wrong.is_empty() => {
                *summary.compared.entry(subject.name.clone()).or_default() += 1;
                for change in &mutant.changes {
                    *summary.changes.entry(change.word()).or_default() += 1;
                }
            }
            Ok(wrong) => {
                summary.wrong += 1;
                told(&kept(plan, index, &mutant, &wrong)?);
            }
            Err((why, said)) => {
                *summary.dropped.entry(why).or_default() += 1;
                if why == Dropped::Refused {
                    told(&kept(
                        plan,
                        index,
                        &mutant,
                        &[format!("dropped, {}: {said}", why.word())],
                    )?);
                }
            }
        }
    }
    Ok(summary)
}

/// Writes a text away and says how to get it again.
fn kept(plan: &Plan, index: u64, mutant: &Mutant, wrong: &[String]) -> Result<String, String> {
    let name = &mutant.subject.name;
    let changes: Vec<&str> = mutant.changes.iter().map(|c| c.word()).collect();
    let mut text = format!(
        "seed {} index {index}, {name} ({}):\n  {}",
        plan.seed,
        changes.join(", "),
        wrong.join("\n  ")
    );
    if let Some(folder) = &plan.keep {
        let file = folder.join(format!("mutant-{}-{index}.ptx", plan.seed));
        std::fs::write(&file, &mutant.written)
            .map_err(|e| format!("cannot write `{}`: {e}", file.display()))?;
        text += &format!("\n  text: {}", file.display());
    }
    let device = if plan.soft { "soft" } else { "gpu" };
    text += &format!(
        "\n  again: warpbpf-kernels mutants {device} BUNDLE --seed {} --from {index} --count 1 --keep FOLDER",
        plan.seed
    );
    Ok(text)
}

fn accepted(ptxas: &str, mutant: &Mutant) -> Result<(), (Dropped, String)> {
    let refused = |e: String| (Dropped::Refused, e);
    let module = warpbpf_ptx::index(&mutant.written).map_err(|e| refused(e.to_string()))?;
    texts::accepts(ptxas, &module, &mutant.written).map_err(refused)
}

/// What is wrong with a mutant on an engine.
fn compare(
    engine: &mut Engine,
    mutant: &Mutant,
    judged: &Judged,
    summary: &mut Summary,
) -> Result<Vec<String>, (Dropped, String)> {
    let (text, subject) = (&mutant.written, &mutant.subject);
    let (kernel, shape) = (subject.kernel.as_str(), &subject.shape);
    let mut wrong = Vec::new();
    let plain = {
        let loaded = engine.load(text).map_err(|e| (Dropped::Refused, e))?;
        let plain = match loaded.plain(kernel, shape, Some(0)) {
            Ok(plain) => plain,
            Err(error) => return Ok(vec![format!("as it is: {error}")]),
        };
        if loaded.can_stain() {
            match loaded.plain(kernel, shape, Some(u32::MAX)) {
                Ok(again) if again == plain => {}
                Ok(again) => return Err((Dropped::Undefined, difference(&again, &plain))),
                Err(error) => return Ok(vec![format!("as it is, once more: {error}")]),
            }
        }
        if !subject.fused && plain != judged.buffers {
            wrong.push(format!(
                "as it is, against the soft GPU: {}",
                difference(&plain, &judged.buffers)
            ));
        }
        match loaded.recompiled(text, kernel, shape) {
            Ok(again) if again == plain => {}
            Ok(again) => wrong.push(format!(
                "recompiled without programs: {}",
                difference(&again, &plain)
            )),
            Err(error) => wrong.push(format!("recompiled without programs: {error}")),
        }
        summary.runs += 2;
        plain
    };
    match engine.probed(text, kernel, shape) {
        Ok(all) => {
            for probed in all {
                wrong.extend(judge_probed(
                    &probed,
                    &plain,
                    judged,
                    shape.threads(),
                    summary,
                ));
            }
        }
        Err(error) => wrong.push(error),
    }
    Ok(wrong)
}

fn judge_probed(
    probed: &Probed,
    plain: &[Vec<u8>],
    judged: &Judged,
    threads: u64,
    summary: &mut Summary,
) -> Vec<String> {
    let mut wrong = Vec::new();
    summary.runs += 1;
    if probed.buffers != plain {
        wrong.push(format!(
            "{}: {}",
            probed.probe,
            difference(&probed.buffers, plain)
        ));
    }
    for (reason, n) in &probed.left_out {
        *summary.left_out.entry(reason.clone()).or_default() += u64::from(*n);
        let may = probed.may_miss.iter().any(|part| reason.contains(part));
        if !may && reason != NO_PREDICATE {
            wrong.push(format!("{}: {n} sites left out: {reason}", probed.probe));
        }
    }
    let ends = Counts::from([(0, threads), (1, threads)]);
    let (found, expected) = match probed.probe {
        "entry+exit" => (probed.counts.clone(), ends),
        "mem" => (count::only_known(&probed.counts), judged.accesses.clone()),
        "branch" => (probed.counts.clone(), judged.branches.clone()),
        _ => {
            let kept = probed.counts.iter().filter(|(what, _)| **what < 2);
            (kept.map(|(what, n)| (*what, *n)).collect(), ends)
        }
    };
    // Such functions run without programs, which is told, and the count knows nothing of it.
    if probed
        .left_out
        .iter()
        .any(|(reason, _)| reason.contains("a call through a pointer"))
    {
        return wrong;
    }
    summary.counts += expected.len() as u64;
    if found != expected {
        wrong.push(format!(
            "{}: counted {found:?}, expected {expected:?}",
            probed.probe
        ));
    }
    wrong
}

/// The first byte that is another one.
fn difference(found: &[Vec<u8>], expected: &[Vec<u8>]) -> String {
    for (buffer, (one, other)) in found.iter().zip(expected).enumerate() {
        let differing = || {
            one.iter()
                .zip(other)
                .enumerate()
                .filter(|(_, (a, b))| a != b)
        };
        if let Some((at, (a, b))) = differing().next() {
            return format!(
                "buffer {buffer} has {a:#04x} instead of {b:#04x} at byte {at}, {} bytes differ",
                differing().count()
            );
        }
    }
    "nothing differs".into()
}

impl Summary {
    /// For people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let compared: u64 = self.compared.values().sum();
        let generated = self.compared.get("generated").copied().unwrap_or(0);
        let list = |pairs: Vec<String>| pairs.join(", ");
        out += &format!(
            "mutants compared: {generated} of generated kernels, {} of the corpus ({} kernels)\n",
            compared - generated,
            self.compared.len() - usize::from(generated > 0)
        );
        let changes = self.changes.iter().map(|(word, n)| format!("{word} {n}"));
        out += &format!("  changes: {}\n", list(changes.collect()));
        let dropped = self
            .dropped
            .iter()
            .map(|(why, n)| format!("{} {n}", why.word()));
        out += &format!("  dropped: {}\n", list(dropped.collect()));
        let left_out = self.left_out.iter().map(|(why, n)| format!("{n} {why}"));
        out += &format!("  sites left out: {}\n", list(left_out.collect()));
        out += &format!(
            "mutants made={} compared={compared} runs={} counts={} wrong={}\n",
            self.made, self.runs, self.counts, self.wrong
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_depends_on_its_numbers_only() {
        for index in 0..40 {
            let one = mutant(&[], 3, index).expect("it can be read");
            assert_eq!(Ok(one.clone()), mutant(&[], 3, index));
            assert_ne!(Ok(one), mutant(&[], 4, index));
        }
    }

    #[test]
    fn most_mutants_are_used_and_all_are_read() {
        let mut dropped: BTreeMap<&str, u32> = BTreeMap::new();
        let mut changed = 0;
        for index in 0..60 {
            let made = mutant(&[], 9, index).expect("it can be read");
            let subject = &made.subject;
            match judge(
                &subject.text,
                &made.written,
                &subject.kernel,
                &subject.shape,
            ) {
                Ok(judged) => {
                    assert!(judged.accesses.values().sum::<u64>() > subject.shape.threads());
                    changed += made.changes.len();
                }
                Err((Dropped::Unreadable, said)) => panic!("{index}: {said}\n{}", made.written),
                Err((why, _)) => *dropped.entry(why.word()).or_default() += 1,
            }
        }
        assert!(
            dropped.values().sum::<u32>() < 6 && changed > 100,
            "{dropped:?}, {changed} changes"
        );
    }

    #[test]
    fn what_a_probe_must_not_do_is_seen() {
        let judged = Judged {
            buffers: vec![vec![1, 2]],
            accesses: Counts::from([(9, 64)]),
            branches: Counts::new(),
        };
        let probed = Probed {
            probe: "mem",
            buffers: vec![vec![1, 2]],
            counts: Counts::from([(9, 64), (14, 3)]),
            left_out: Vec::new(),
            may_miss: &["belongs to a call"],
        };
        let said = |probed: &Probed| {
            judge_probed(
                probed,
                &judged.buffers,
                &judged,
                64,
                &mut Summary::default(),
            )
        };
        assert_eq!(said(&probed), [""; 0]);
        let changed = Probed {
            buffers: vec![vec![1, 3]],
            counts: Counts::from([(9, 63)]),
            left_out: vec![("it belongs to a call".into(), 2), ("a whim".into(), 1)],
            ..probed.clone()
        };
        assert_eq!(
            said(&changed),
            [
                "mem: buffer 0 has 0x03 instead of 0x02 at byte 1, 1 bytes differ",
                "mem: 1 sites left out: a whim",
                "mem: counted {9: 63}, expected {9: 64}"
            ]
        );
        let ends = Probed {
            probe: "all",
            counts: Counts::from([(0, 64), (1, 60), (2, 5)]),
            ..probed
        };
        assert_eq!(
            said(&ends),
            ["all: counted {0: 64, 1: 60}, expected {0: 64, 1: 64}"]
        );
    }

    #[test]
    fn the_first_difference_is_told() {
        let of = |bytes: &[u8]| vec![vec![1], bytes.to_vec()];
        assert_eq!(
            difference(&of(&[1, 2, 3]), &of(&[1, 5, 6])),
            "buffer 1 has 0x02 instead of 0x05 at byte 1, 2 bytes differ"
        );
    }
}
