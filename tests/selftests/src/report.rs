//! The table, and the lists beside it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::expect::Verdict;
use crate::ledger::{Key, Way};
use crate::run::{Case, Ours, Outcome, Took};

/// Rules by which addresses and old stack contents stay inside the program.
const LEAK_RULES: &[&str] = &[
    "pointer-arithmetic",
    "pointer-bytes",
    "pointer-compared",
    "pointer-returned",
    "pointer-stored",
    "stack-uninitialised",
];

/// Everything that was found.
#[derive(Debug, Default)]
pub struct Findings {
    /// Programs.
    pub cases: Vec<Case>,
    /// Files of which no program could be looked at, with the reason.
    pub files: Vec<(String, String)>,
}

/// Counts of a file, or of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Both accept.
    pub both_accept: usize,
    /// Both refuse.
    pub both_refuse: usize,
    /// We refuse, the kernel accepts,
    pub refused: usize,
    /// and so many of them because they could tell addresses or old stack contents to a user who,
    /// for the kernel, may know them.
    pub leaks: usize,
    /// We accept, the kernel refuses.
    pub accepted: usize,
    /// Not compared.
    pub left_out: usize,
}

impl Counts {
    fn compared(&self) -> usize {
        self.both_accept + self.both_refuse + self.refused + self.accepted
    }

    fn add(&mut self, outcome: &Outcome) {
        self.leaks += usize::from(would_leak(outcome));
        match outcome {
            Outcome::LeftOut(_) => self.left_out += 1,
            Outcome::Compared { kernel, ours, .. } => {
                let theirs = matches!(kernel, Verdict::Accepts);
                *match (theirs, matches!(ours, Ours::Accepts)) {
                    (true, true) => &mut self.both_accept,
                    (false, false) => &mut self.both_refuse,
                    (true, false) => &mut self.refused,
                    (false, true) => &mut self.accepted,
                } += 1;
            }
        }
    }

    /// Of `all` that the kernel accepts, the share that we accept, in tenths of a per cent.
    fn share(&self, all: usize) -> String {
        let share = (self.both_accept * 1000).checked_div(all).unwrap_or(1000);
        format!("{}.{} %", share / 10, share % 10)
    }
}

/// We refuse it by a rule that protects addresses and old stack contents, and the test says only
/// what a user may do from whom the kernel does not protect them.
fn would_leak(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Compared {
            kernel: Verdict::Accepts,
            ours: Ours::Refuses { rule, .. },
            ..
        } if LEAK_RULES.contains(&rule.as_str())
    )
}

impl Findings {
    /// All counts together.
    pub fn total(&self) -> Counts {
        let mut counts = Counts::default();
        for case in &self.cases {
            counts.add(&case.outcome);
        }
        counts
    }

    /// The disagreements.
    pub fn disagreements(&self) -> BTreeMap<Key, String> {
        let mut found = BTreeMap::new();
        for case in &self.cases {
            let Outcome::Compared { kernel, ours, .. } = &case.outcome else {
                continue;
            };
            let (way, detail) = match (kernel, ours) {
                (Verdict::Accepts, Ours::Accepts)
                | (Verdict::Refuses(_) | Verdict::Leaks(_), Ours::Refuses { .. }) => continue,
                (Verdict::Accepts, Ours::Refuses { rule, .. }) => (Way::Refused, rule.clone()),
                (_, Ours::Panics) => (Way::Refused, "panic".to_owned()),
                (Verdict::Refuses(messages), Ours::Accepts) => {
                    (Way::Accepted, format!("[{}]", messages.join("; ")))
                }
                (Verdict::Leaks(message), Ours::Accepts) => {
                    (Way::Accepted, format!("[unprivileged: {message}]"))
                }
            };
            found.insert((case.file.clone(), case.program.clone(), way), detail);
        }
        found
    }

    /// The table: one line per file, then the totals.
    pub fn table(&self) -> String {
        let mut files: BTreeMap<&str, Counts> = BTreeMap::new();
        for case in &self.cases {
            files.entry(&case.file).or_default().add(&case.outcome);
        }
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{:<44}{:>9}{:>7}{:>9}{:>7}{:>10}{:>10}",
            "file", "compared", "agree", "refused", "leaks", "accepted", "left out"
        );
        let mut line = |name: &str, c: &Counts| {
            let _ = writeln!(
                text,
                "{name:<44}{:>9}{:>7}{:>9}{:>7}{:>10}{:>10}",
                c.compared(),
                c.both_accept + c.both_refuse,
                c.refused - c.leaks,
                c.leaks,
                c.accepted,
                c.left_out
            );
        };
        for (name, counts) in &files {
            line(name, counts);
        }
        let total = self.total();
        line("all", &total);
        let accepts = total.both_accept + total.refused;
        let _ = writeln!(
            text,
            "the kernel accepts {accepts}, we accept {} of them: {}; {} more are refused because they could tell addresses or old stack contents, which the kernel shows to the privileged: without those {}",
            total.both_accept,
            total.share(accepts),
            total.leaks,
            total.share(accepts - total.leaks),
        );
        let _ = writeln!(
            text,
            "the kernel refuses {}, we accept {} of them; no reason in the list may be one of safety",
            total.both_refuse + total.accepted,
            total.accepted
        );
        text
    }

    /// Programs that were left out, by reason, the most frequent first.
    fn reasons(&self) -> Vec<(&str, Vec<String>)> {
        let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for case in &self.cases {
            if let Outcome::LeftOut(reason) = &case.outcome {
                let name = format!("{} {}", case.file, case.program);
                reasons.entry(reason).or_default().push(name);
            }
        }
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(reason, names)| (std::cmp::Reverse(names.len()), *reason));
        reasons
    }

    /// What was left out: whole files, and the number of programs for each reason.
    pub fn left_out(&self) -> String {
        let mut text = String::new();
        for (file, reason) in &self.files {
            let _ = writeln!(text, "left out: {file}: {reason}");
        }
        for (reason, names) in self.reasons() {
            let _ = writeln!(text, "left out: {:>4} programs: {reason}", names.len());
        }
        text
    }

    /// Every program that was left out, with the reason.
    pub fn left_out_list(&self) -> String {
        let mut text = self.left_out();
        for (reason, names) in self.reasons() {
            for name in names {
                let _ = writeln!(text, "{name}: {reason}");
            }
        }
        text
    }

    /// Disagreements of one way with messages, the most frequent rule first.
    pub fn list(&self, way: Way) -> String {
        let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for case in &self.cases {
            let Outcome::Compared { kernel, ours, .. } = &case.outcome else {
                continue;
            };
            let name = format!("{} {}", case.file, case.program);
            match (way, kernel, ours) {
                (Way::Refused, Verdict::Accepts, Ours::Refuses { rule, message }) => {
                    groups
                        .entry(rule)
                        .or_default()
                        .push(format!("{name}: {message}"));
                }
                (Way::Refused, _, Ours::Panics) => groups.entry("panic").or_default().push(name),
                (Way::Accepted, Verdict::Refuses(messages), Ours::Accepts) => {
                    let message = messages.join("; ");
                    groups
                        .entry("refuses")
                        .or_default()
                        .push(format!("{name}: {message}"));
                }
                (Way::Accepted, Verdict::Leaks(message), Ours::Accepts) => {
                    groups
                        .entry("unprivileged")
                        .or_default()
                        .push(format!("{name}: {message}"));
                }
                _ => {}
            }
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(rule, lines)| (std::cmp::Reverse(lines.len()), *rule));
        let mut text = String::new();
        for (rule, lines) in &groups {
            let _ = writeln!(text, "== {rule}: {}", lines.len());
            for line in lines {
                let _ = writeln!(text, "{line}");
            }
        }
        text
    }

    /// What the running kernel says about the same programs.
    pub fn running(&self) -> String {
        let (mut asked, mut as_expected, mut as_we, mut leaks, mut confirmed) = (0, 0, 0, 0, 0);
        for case in &self.cases {
            let Outcome::Compared {
                kernel,
                ours,
                running,
                ..
            } = &case.outcome
            else {
                continue;
            };
            let accepted = matches!(ours, Ours::Accepts);
            if let Some(said) = running.privileged {
                let expected = !matches!(kernel, Verdict::Refuses(_));
                asked += 1;
                as_expected += usize::from(said == expected);
                as_we += usize::from(said == accepted);
            }
            if would_leak(&case.outcome) {
                leaks += 1;
                confirmed += usize::from(running.protected == Some(false));
            }
        }
        format!(
            "the running kernel was asked about {asked}: {as_expected} as its tests expect, {as_we} as we say; of {leaks} that we refuse as leaks, it confirms {confirmed} for users without CAP_PERFMON\n"
        )
    }

    /// Where the running kernel and we differ, or it and what its tests expect.
    pub fn running_list(&self) -> String {
        let mut text = String::new();
        for case in &self.cases {
            let Outcome::Compared {
                kernel,
                ours,
                running,
                ..
            } = &case.outcome
            else {
                continue;
            };
            let Some(said) = running.privileged else {
                continue;
            };
            let expected = !matches!(kernel, Verdict::Refuses(_));
            let accepted = matches!(ours, Ours::Accepts);
            if said == expected && said == accepted {
                continue;
            }
            let word = |accepts: bool| if accepts { "accepts" } else { "refuses" };
            let protected = running.protected.map_or("cannot be asked", word);
            let _ = writeln!(
                text,
                "{} {}: the test expects {}, the running kernel {}, without CAP_PERFMON {protected}; warpbpf {}",
                case.file,
                case.program,
                word(expected),
                word(said),
                match ours {
                    Ours::Accepts => "accepts",
                    Ours::Refuses { rule, .. } => rule,
                    Ours::Panics => "panics",
                }
            );
        }
        text
    }

    /// What the proofs took, and whether that is within the limits.
    pub fn costs(&self) -> (String, bool) {
        let mut all: Vec<(Took, String)> = self
            .cases
            .iter()
            .filter_map(|case| match &case.outcome {
                Outcome::Compared { took, .. } => {
                    Some((*took, format!("{} {}", case.file, case.program)))
                }
                Outcome::LeftOut(_) => None,
            })
            .collect();
        all.sort();
        let at = |percent: usize| {
            let index = (all.len() * percent / 100).min(all.len().saturating_sub(1));
            all.get(index).map_or(Duration::ZERO, |(took, _)| took.time)
        };
        let millis = |time: Duration| time.as_secs_f64() * 1000.0;
        let name = |worst: Option<&(Took, String)>| {
            worst.map_or_else(|| "none".to_owned(), |(_, name)| name.clone())
        };
        let largest = all.iter().max_by_key(|(took, _)| took.bytes);
        let bytes = largest.map_or(0, |(took, _)| took.bytes);
        let text = format!(
            "verification: p50 {:.3} ms, p95 {:.3} ms, worst {:.1} ms ({}); most memory {:.1} MB ({}); the limits are {:.0} ms for p95, {:.0} ms, {:.0} MB\n",
            millis(at(50)),
            millis(at(95)),
            millis(at(100)),
            name(all.last()),
            bytes as f64 / 1e6,
            name(largest),
            millis(P95_LIMIT),
            millis(WORST_LIMIT),
            MEMORY_LIMIT as f64 / 1e6,
        );
        let within = at(95) <= P95_LIMIT && at(100) <= WORST_LIMIT && bytes <= MEMORY_LIMIT;
        (text, within)
    }
}

/// Of 100 proofs, 95 take no longer.
const P95_LIMIT: Duration = Duration::from_millis(50);
/// No proof takes longer.
pub const WORST_LIMIT: Duration = Duration::from_secs(2);
/// No proof takes more bytes.
pub const MEMORY_LIMIT: usize = 200_000_000;
