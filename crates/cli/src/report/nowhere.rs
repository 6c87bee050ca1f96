//! Programs that were put nowhere leave nothing in their maps: what is said of them, and how to
//! find out why.

use warpbpf_tool::Method;

use crate::report::model::{self, Report};

/// Kernels that are named where a program stands in none of many.
const SHOWN: usize = 5;
/// Kernels that are named where a glob matches none of them.
const SEEN: usize = 20;
/// How the note begins that no kernel got a program.
pub const NOTHING: &str = "nothing was instrumented";

/// Says what became of programs at `globs`, with the reason first if no kernel got one. `choices`
/// are the launches that each program is in, as text, where that is not each launch. Of a `strict`
/// run no launch is as little as no kernel. True if there was nothing.
pub fn note_all(
    report: &mut Report,
    globs: &[String],
    choices: &[(&str, String)],
    strict: bool,
) -> bool {
    let mut notes = unmatched(report, globs);
    notes.extend(no_site(report));
    notes.extend(all_skipped(report, choices));
    let kernels = || report.processes.iter().flat_map(|p| &p.kernels);
    let (placed, launched) = (
        kernels().any(|k| k.instrumented),
        kernels().any(|k| k.launches > 0),
    );
    // Who came to no process has said so before.
    if let Some(at) = report
        .notes
        .iter()
        .position(|note| note.starts_with(NOTHING))
    {
        let first = report.notes.remove(at);
        report.notes.insert(0, first);
    } else if !globs.is_empty() && (!placed || strict && !launched) {
        let reason = match notes.is_empty() || placed {
            true => why_nothing(report),
            false => notes.remove(0),
        };
        report.notes.insert(0, format!("{NOTHING}: {reason}"));
    }
    report.notes.extend(notes);
    !placed || !launched
}

/// Why there is nothing in any map, where no other note says it.
fn why_nothing(report: &Report) -> String {
    let kernels: Vec<&model::Kernel> = report.processes.iter().flat_map(|p| &p.kernels).collect();
    let wanted = |k: &&&model::Kernel| k.method != Method::NotMatched;
    let some = |kernels: &mut dyn Iterator<Item = String>| {
        let all: Vec<String> = kernels.collect();
        some_of(&all, SHOWN)
    };
    if report.processes.is_empty() {
        return "no application came".to_owned();
    }
    if kernels.is_empty() {
        return "the application loaded no kernel".to_owned();
    }
    if kernels.iter().all(|k| !k.instrumented) {
        let mut methods = kernels
            .iter()
            .filter(wanted)
            .map(|k| format!("`{}` has no programs: {}", cut(&k.name), k.method));
        return some(&mut methods);
    }
    let idle = |k: &&&model::Kernel| k.instrumented;
    let mut idle = kernels.iter().filter(idle).map(|k| {
        let name = cut(&k.name);
        match k.uninstrumented + k.skipped + k.unwanted {
            0 => format!("`{name}` was not launched"),
            without => format!(
                "`{name}` was launched {without} times, each without programs (uninstrumented {}, skipped {}, unwanted {})",
                k.uninstrumented, k.skipped, k.unwanted
            ),
        }
    });
    some(&mut idle)
}

/// Names can be very long.
fn cut(name: &str) -> String {
    const MOST: usize = 200;
    match name.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}

/// So many of them, and how many more there are.
fn some_of(names: &[impl AsRef<str>], most: usize) -> String {
    let more = match names.len().saturating_sub(most) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown: Vec<&str> = names.iter().take(most).map(AsRef::as_ref).collect();
    format!("{}{more}", shown.join(", "))
}

/// No launch was chosen: that is said, with what chooses.
fn all_skipped(report: &Report, choices: &[(&str, String)]) -> Option<String> {
    let kernels = || report.processes.iter().flat_map(|p| &p.kernels);
    let skipped: u64 = kernels().map(|kernel| kernel.skipped).sum();
    if choices.is_empty() || skipped == 0 || kernels().any(|kernel| kernel.launches > 0) {
        return None;
    }
    let chosen = choices.iter();
    let chosen: Vec<String> = chosen
        .map(|(program, choice)| format!("`{program}` is in launches with {choice}"))
        .collect();
    let mut note = format!(
        "programs were in no launch: {} skipped; {}",
        match skipped {
            1 => "the only one was".to_owned(),
            all => format!("all {all} were"),
        },
        some_of(&chosen, SHOWN),
    );
    if choices.iter().any(|(_, choice)| choice.contains("stream=")) {
        note += "; streams have numbers from 1 on in the order in which they are made, `default` is the one that is not made, and `--timeline FILE` shows which kernel ran in which";
    }
    Some(note)
}

/// Globs that matched nothing are said, with the kernels that were there.
fn unmatched(report: &Report, globs: &[String]) -> Vec<String> {
    let seen: Vec<&model::Kernel> = report.processes.iter().flat_map(|p| &p.kernels).collect();
    let mut notes = Vec::new();
    for glob in globs {
        if report.processes.is_empty()
            || seen
                .iter()
                .any(|k| warpbpf_session::names::matches(glob, &k.mangled))
        {
            continue;
        }
        let mut names: Vec<&str> = seen.iter().map(|k| k.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let names: Vec<String> = names.into_iter().map(cut).collect();
        let list = match names.is_empty() {
            true => "none".to_owned(),
            false => some_of(&names, SEEN),
        };
        notes.push(format!("`{glob}` matched no kernel; kernels seen: {list}"));
    }
    notes.dedup();
    notes
}

/// Programs that were put nowhere leave nothing in their maps: that is said, with the way to find
/// out why.
fn no_site(report: &Report) -> Vec<String> {
    let kernels = || report.processes.iter().flat_map(|p| &p.kernels);
    let none = |k: &model::Kernel| k.method == Method::NoSite && k.left_out.is_empty();
    if kernels().any(|k| k.instrumented) {
        return program_without_site(report);
    }
    if !kernels().any(none) {
        return Vec::new();
    }
    let app = report.command.first().map_or("APP", String::as_str);
    let mut note = format!(
        "no kernel has a site that a program wants: `warpbpf sites {app}` lists what there is"
    );
    if report.programs.iter().any(|p| p.section.contains("at=")) {
        note += "; `at=` needs line information (`nvcc -lineinfo`)";
    }
    vec![note]
}

/// So is a program that stands nowhere while another one does: its maps are as empty, and nothing
/// else says why.
fn program_without_site(report: &Report) -> Vec<String> {
    let app = report.command.first().map_or("APP", String::as_str);
    let kernels: Vec<&model::Kernel> = report.processes.iter().flat_map(|p| &p.kernels).collect();
    let mut notes = Vec::new();
    for (index, program) in report.programs.iter().enumerate() {
        let matching = kernels.iter().filter_map(|kernel| {
            let (_, count) = kernel.placed.iter().find(|(at, _)| *at == index)?;
            Some((kernel.name.as_str(), *count))
        });
        let matching: Vec<(&str, u32)> = matching.collect();
        if matching.is_empty() || matching.iter().any(|(_, count)| *count > 0) {
            continue;
        }
        let mut names: Vec<&str> = matching.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        let mut note = format!(
            "program `{}` (`{}`) stands nowhere: there is no {} in {}; `warpbpf sites {app}` lists what there is",
            program.name,
            program.section,
            looked_for(&program.section),
            some_of(
                &names.iter().map(|name| cut(name)).collect::<Vec<_>>(),
                SHOWN
            ),
        );
        if program.section.contains("at=") {
            note += "; `at=` needs line information (`nvcc -lineinfo`)";
        }
        notes.push(note);
    }
    notes
}

/// `mem` place with `kind=load,size>16`: of a section, what a kernel must have.
fn looked_for(section: &str) -> String {
    let (place, selectors) = match section.split_once('|') {
        Some((place, selectors)) => (place, Some(selectors)),
        None => (section, None),
    };
    let kind = place.strip_prefix("gpu/").unwrap_or(place);
    let kind = kind.split(['/', '.']).next().unwrap_or(kind);
    match selectors {
        Some(selectors) => format!("`{kind}` place with `{selectors}` that may have code"),
        None => format!("`{kind}` place that may have code"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_stands_nowhere_is_named() {
        let program = |name: &str, section: &str| model::Program {
            name: name.into(),
            section: section.into(),
            ..model::Program::default()
        };
        let kernel = |name: &str, placed: &[(usize, u32)]| model::Kernel {
            name: name.into(),
            instrumented: true,
            placed: placed.to_vec(),
            ..model::Kernel::default()
        };
        let noted = |kernels: &[model::Kernel]| {
            let report = Report {
                command: vec!["./app".into()],
                programs: vec![
                    program("at_entry", "gpu/entry/*"),
                    program("wide", "gpu/mem.warp/*|kind=load,size>16"),
                    program("there", "gpu/line/k*|at=k.cu:7"),
                    program("barriers", "gpu/barrier/*"),
                ],
                processes: vec![model::Process {
                    kernels: kernels.to_vec(),
                    ..model::Process::default()
                }],
                ..Report::default()
            };
            no_site(&report)
        };
        assert_eq!(
            noted(&[
                kernel("b", &[(0, 1), (1, 0), (2, 0), (3, 0)]),
                kernel("a", &[(0, 1), (1, 0), (3, 2)])
            ]),
            [
                "program `wide` (`gpu/mem.warp/*|kind=load,size>16`) stands nowhere: there is no `mem` place with `kind=load,size>16` \
                 that may have code in a, b; `warpbpf sites ./app` lists what there is",
                "program `there` (`gpu/line/k*|at=k.cu:7`) stands nowhere: there is no `line` place with `at=k.cu:7` that may have \
                 code in b; `warpbpf sites ./app` lists what there is; `at=` needs line information (`nvcc -lineinfo`)"
            ]
        );
        let many: Vec<model::Kernel> = (0..7)
            .map(|n| kernel(&format!("k{n}"), &[(3, 0)]))
            .collect();
        assert_eq!(
            noted(&many),
            [
                "program `barriers` (`gpu/barrier/*`) stands nowhere: there is no `barrier` place that may have code in k0, k1, k2, k3, \
                 k4 and 2 more; `warpbpf sites ./app` lists what there is"
            ]
        );
        assert_eq!(
            noted(&[kernel("a", &[(0, 1), (1, 3)])]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn programs_without_a_site_are_not_passed_over() {
        let kernel = |method: Method, left_out: &[(&str, u32)]| model::Kernel {
            method,
            left_out: left_out.iter().map(|(r, n)| ((*r).into(), *n)).collect(),
            ..model::Kernel::default()
        };
        let noted = |section: &str, kernels: &[model::Kernel]| {
            let report = Report {
                command: vec!["./app".into()],
                programs: vec![model::Program {
                    section: section.into(),
                    ..model::Program::default()
                }],
                processes: vec![model::Process {
                    kernels: kernels.to_vec(),
                    ..model::Process::default()
                }],
                ..Report::default()
            };
            no_site(&report)
        };
        let without = kernel(Method::NoSite, &[]);
        let other = kernel(Method::NotMatched, &[]);
        let said =
            "no kernel has a site that a program wants: `warpbpf sites ./app` lists what there is";
        assert_eq!(
            noted("gpu/mem/*", &[without.clone(), other.clone()]),
            [said]
        );
        assert_eq!(
            noted("gpu/line/*|at=k.cu:7", std::slice::from_ref(&without)),
            [format!(
                "{said}; `at=` needs line information (`nvcc -lineinfo`)"
            )]
        );
        let probed = model::Kernel {
            instrumented: true,
            ..kernel(Method::Slice, &[])
        };
        let left_out = kernel(Method::NoSite, &[("inside a wgmma group", 2)]);
        for kernels in [vec![without, probed], vec![left_out], vec![other], vec![]] {
            assert_eq!(noted("gpu/mem/*", &kernels), Vec::<String>::new());
        }
    }

    /// What is noted of kernels with programs at this glob, behind a note that was there; and
    /// whether there was nothing.
    fn all_of(kernels: &[model::Kernel], glob: &str, strict: bool) -> (Vec<String>, bool) {
        let mut report = Report {
            command: vec!["./app".into()],
            processes: vec![model::Process {
                kernels: kernels.to_vec(),
                ..model::Process::default()
            }],
            notes: vec!["another".into()],
            ..Report::default()
        };
        let nothing = note_all(&mut report, &[glob.to_owned()], &[], strict);
        (report.notes, nothing)
    }

    #[test]
    fn what_skips_all_launches_is_named() {
        let skipped = |skipped, launches| Report {
            processes: vec![model::Process {
                kernels: vec![model::Kernel {
                    skipped,
                    ..kernel("k", "slice", launches)
                }],
                ..model::Process::default()
            }],
            ..Report::default()
        };
        let by_stream = [("count", "stream=99".to_owned())];
        assert_eq!(
            all_skipped(&skipped(10, 0), &by_stream).unwrap(),
            "programs were in no launch: all 10 were skipped; `count` is in launches with stream=99; streams have numbers from 1 on in the order in which they are made, `default` is the one that is not made, and `--timeline FILE` shows which kernel ran in which"
        );
        let by_size = [("count", "min_blocks=9".to_owned())];
        assert_eq!(
            all_skipped(&skipped(1, 0), &by_size).unwrap(),
            "programs were in no launch: the only one was skipped; `count` is in launches with min_blocks=9"
        );
        assert_eq!(all_skipped(&skipped(9, 1), &by_stream), None);
        assert_eq!(all_skipped(&skipped(0, 0), &by_stream), None);
        assert_eq!(all_skipped(&skipped(9, 0), &[]), None);
    }

    fn kernel(name: &str, method: &str, launches: u64) -> model::Kernel {
        let method: Method = method.parse().unwrap();
        model::Kernel {
            name: name.into(),
            mangled: name.into(),
            instrumented: method == Method::Slice,
            method,
            launches,
            ..model::Kernel::default()
        }
    }

    #[test]
    fn the_reason_why_there_is_nothing_comes_first() {
        let first = |kernels: &[model::Kernel], glob: &str, strict| {
            let (notes, nothing) = all_of(kernels, glob, strict);
            assert_eq!(notes.len(), 2, "{notes:?}");
            (notes[0].clone(), nothing)
        };
        let of = |reason: &str| (format!("{NOTHING}: {reason}"), true);
        assert_eq!(
            first(&[], "*", false),
            of("`*` matched no kernel; kernels seen: none")
        );
        assert_eq!(
            first(
                &[kernel("b", "not matched", 0), kernel("a", "not matched", 0)],
                "x",
                false
            ),
            of("`x` matched no kernel; kernels seen: a, b")
        );
        assert_eq!(
            first(&[kernel("a", "no site", 0)], "*", false),
            of(
                "no kernel has a site that a program wants: `warpbpf sites ./app` lists what there is"
            )
        );
        assert_eq!(
            first(&[kernel("a", "refused: no PTX", 0)], "*", false),
            of("`a` has no programs: refused: no PTX")
        );
        let skipped = model::Kernel {
            skipped: 3,
            ..kernel("a", "slice", 0)
        };
        assert_eq!(
            first(&[skipped, kernel("b", "slice", 0)], "*", true),
            of(
                "`a` was launched 3 times, each without programs (uninstrumented 0, skipped 3, unwanted 0), `b` was not launched"
            )
        );
    }

    #[test]
    fn what_was_instrumented_has_no_such_note() {
        let launched = [kernel("a", "slice", 1)];
        assert_eq!(
            all_of(&launched, "*", true),
            (vec!["another".to_owned()], false)
        );
        // No launch is nothing, but is not said where nobody asks for it: who attaches may have
        // come between two.
        let idle = [kernel("a", "slice", 0)];
        assert_eq!(
            all_of(&idle, "*", false),
            (vec!["another".to_owned()], true)
        );
    }

    #[test]
    fn many_long_names_are_cut() {
        let long = "k".repeat(4000);
        let kernels: Vec<model::Kernel> = (0..25)
            .map(|n| kernel(&format!("{n:02}{long}"), "not matched", 0))
            .collect();
        let (notes, _) = all_of(&kernels, "x", false);
        assert!(notes[0].ends_with("… and 5 more"), "{}", notes[0]);
        assert!(notes[0].len() < 5000);
    }
}
