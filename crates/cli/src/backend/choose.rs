//! What puts programs into kernels without PTX: what the user says, or what the programs need and
//! the machine has.

use std::path::PathBuf;

use warpbpf_abi::attach::Site;
use warpbpf_session::PlannedProgram;

use crate::backend::assemble;
use crate::backend::ptxas::Ptxas;
use crate::backend::sanitizer;
use crate::flags::{Backend, CodeFlags};

/// When the programs come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before the application does anything.
    Start,
    /// While it runs: what has to be in it from the start is not.
    Late,
}

/// For kernels of which there is only machine code.
#[derive(Debug, Default)]
pub struct Chosen {
    /// Assembles functions; `None`: such kernels run as they are.
    pub ptxas: Option<Ptxas>,
    /// Compute Sanitizer calls them.
    pub library: Option<PathBuf>,
    /// It does so only in kernels that cannot have theirs by `splice`.
    pub splice_first: bool,
    /// Nobody asked for any of that: where it cannot be, nothing is said until it is missed.
    pub by_default: bool,
    /// What the user is told, who left the choice to us.
    pub note: Option<String>,
}

/// Chooses.
///
/// # Errors
/// What the user asks for does not go together, or is not on this machine.
pub fn choose(
    code: &CodeFlags,
    programs: &[PlannedProgram],
    moment: Moment,
) -> Result<Chosen, String> {
    if code.splice_variables && matches!(code.backend, Backend::Ptx | Backend::Sanitizer) {
        return Err(
            "`--splice-variables` is for `--backend splice`: only there a copy of machine code is written"
                .to_owned(),
        );
    }
    if code.splice_memory && code.backend != Backend::Splice {
        return Err(
            "`--splice-memory` is for `--backend splice`: only there loads and stores are found in machine code"
                .to_owned(),
        );
    }
    if code.caches && moment == Moment::Start {
        return Err(
            "`--caches` is for `warpbpf attach`: in an application that is started with programs no load is missed"
                .to_owned(),
        );
    }
    let gated = [(code.slots, "--slots"), (code.gate, "--gate")];
    let gated = gated.into_iter().find(|(on, _)| *on).map(|(_, flag)| flag);
    let named = match code.backend {
        Backend::Ptx => return Ok(Chosen::default()),
        Backend::Auto => {
            let wanted = gated.is_none() && programs.iter().any(|p| is_spliced(p.spec.site));
            let ptxas = wanted.then(|| assemble::ptxas().and_then(Ptxas::new));
            return Ok(Chosen {
                ptxas: ptxas.and_then(Result::ok),
                by_default: true,
                ..Chosen::default()
            });
        }
        Backend::All => {
            let mut chosen = match gated {
                Some(flag) => Chosen::none(&format!("`{flag}` puts gates and slots into PTX only")),
                None => {
                    let places = programs.iter().map(|p| (p.name(), p.spec.site));
                    let places: Vec<(&str, Site)> = places.collect();
                    {
                        let ptxas = assemble::ptxas().and_then(Ptxas::new);
                        for_programs(&places, moment, ptxas, sanitizer::library)
                    }
                }
            };
            let spliced = chosen.splice_first || chosen.ptxas.is_some() && chosen.library.is_none();
            if let Some(note) = chosen
                .note
                .as_mut()
                .filter(|_| code.splice_variables && !spliced)
            {
                *note += "; `--splice-variables` is for `splice`";
            }
            return Ok(chosen);
        }
        Backend::Splice => "splice",
        Backend::Sanitizer => "sanitizer",
    };
    if let Some(flag) = gated {
        return Err(format!(
            "`{flag}` does not go with `--backend {named}`: gates and slots stand in a kernel's PTX"
        ));
    }
    let ptxas = assemble::ptxas().and_then(Ptxas::new)?;
    let by_sanitizer = code.backend == Backend::Sanitizer;
    Ok(Chosen {
        ptxas: Some(ptxas),
        library: by_sanitizer.then(sanitizer::library).transpose()?,
        ..Chosen::default()
    })
}

/// Compute Sanitizer only where a program needs it: it costs more, and shuts out profilers.
fn for_programs(
    programs: &[(&str, Site)],
    moment: Moment,
    ptxas: Result<Ptxas, String>,
    library: impl FnOnce() -> Result<PathBuf, String>,
) -> Chosen {
    let ptxas = match ptxas {
        Ok(ptxas) => ptxas,
        Err(reason) => return Chosen::none(&reason),
    };
    let spliced = |(_, site): &(&str, Site)| is_spliced(*site);
    let middle = programs.iter().find(|(_, site)| only_sanitizer(*site));
    let sanitized = middle.map(|(name, _)| match moment {
        Moment::Start => {
            library().map_err(|reason| format!("program `{name}` needs `sanitizer`: {reason}"))
        }
        Moment::Late => Err(format!(
            "program `{name}` needs `sanitizer`, which has to be in the application from the start"
        )),
    });
    let refused = match (sanitized, middle) {
        (Some(Ok(library)), Some((name, site))) => {
            let splice_first = programs.iter().any(spliced);
            let most = match splice_first {
                true => "`splice`, or by ",
                false => "",
            };
            return Chosen {
                ptxas: Some(ptxas),
                library: Some(library),
                splice_first,
                by_default: false,
                note: Some(format!(
                    "kernels without PTX get programs by {most}`sanitizer`, as `{name}` is at places of kind `{}`: profilers that use CUPTI do not work in the application",
                    site.word()
                )),
            };
        }
        (Some(Err(reason)), _) => Some(reason),
        _ => None,
    };
    // Where nothing is at entries or exits, there is nothing to put there.
    if !programs.iter().any(spliced) {
        let reason = refused.as_deref();
        return Chosen::none(reason.unwrap_or("all are at places that are found in PTX only"));
    }
    let but = refused.map(|reason| format!("; {reason}"));
    Chosen {
        ptxas: Some(ptxas),
        library: None,
        splice_first: false,
        by_default: false,
        note: Some(format!(
            "kernels without PTX get programs by `splice`{}",
            but.unwrap_or_default()
        )),
    }
}

/// Where an edit of machine code puts programs.
fn is_spliced(site: Site) -> bool {
    matches!(site, Site::Entry | Site::Exit)
}

/// Of all back ends for machine code only Compute Sanitizer tells of such places, but for an
/// experiment.
fn only_sanitizer(site: Site) -> bool {
    matches!(site, Site::Mem | Site::Barrier | Site::Func | Site::FuncRet)
}

impl Chosen {
    fn none(why: &str) -> Chosen {
        Chosen {
            note: Some(format!("kernels without PTX get no programs: {why}")),
            ..Chosen::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: (&str, Site) = ("enters", Site::Entry);
    const EXIT: (&str, Site) = ("leaves", Site::Exit);
    const MEM: (&str, Site) = ("reads", Site::Mem);
    const BARRIER: (&str, Site) = ("waits", Site::Barrier);
    const CALL: (&str, Site) = ("calls", Site::Func);
    const BRANCH: (&str, Site) = ("turns", Site::Branch);

    fn here() -> Result<Ptxas, String> {
        Ok(Ptxas {
            file: "ptxas".into(),
            limit: std::time::Duration::from_secs(1),
        })
    }

    fn library() -> Result<PathBuf, String> {
        Ok("library".into())
    }

    fn missing<T>() -> Result<T, String> {
        Err("it is not there".to_owned())
    }

    fn chosen(programs: &[(&str, Site)], moment: Moment) -> (bool, bool, String) {
        let chosen = for_programs(programs, moment, here(), library);
        (
            chosen.ptxas.is_some(),
            chosen.library.is_some(),
            chosen.note.unwrap_or_default(),
        )
    }

    #[test]
    fn flags_of_one_back_end_are_for_it_alone() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            code: CodeFlags,
        }
        let refused = |words: &[&str]| {
            let line = <Line as clap::Parser>::parse_from([&["warpbpf"], words].concat());
            choose(&line.code, &[], Moment::Start).map(|_| ())
        };
        for backend in ["ptx", "sanitizer", "auto", "all"] {
            assert_eq!(
                refused(&["--backend", backend, "--splice-memory"]),
                Err("`--splice-memory` is for `--backend splice`: only there loads and stores are found in machine code".to_owned())
            );
        }
        assert_eq!(
            refused(&["--splice-variables"]),
            Err("`--splice-variables` is for `--backend splice`: only there a copy of machine code is written".to_owned())
        );
        assert_eq!(
            refused(&["--caches"]),
            Err("`--caches` is for `warpbpf attach`: in an application that is started with programs no load is missed".to_owned())
        );
        assert_eq!(
            refused(&["--backend", "auto", "--splice-variables"]),
            Ok(())
        );
        assert_eq!(refused(&[]), Ok(()));
    }

    #[test]
    fn what_programs_need_is_taken_and_no_more() {
        let splice = (
            true,
            false,
            "kernels without PTX get programs by `splice`".to_owned(),
        );
        for programs in [&[ENTRY][..], &[EXIT], &[ENTRY, EXIT, BRANCH]] {
            assert_eq!(chosen(programs, Moment::Start), splice);
            assert_eq!(chosen(programs, Moment::Late), splice);
        }
        for (program, text) in [
            (MEM, "`reads` is at places of kind `mem`"),
            (BARRIER, "`waits` is at places of kind `barrier`"),
            (CALL, "`calls` is at places of kind `func`"),
        ] {
            for (programs, splice_first) in [(&[ENTRY, program][..], true), (&[program], false)] {
                let chosen = for_programs(programs, Moment::Start, here(), library);
                assert!(chosen.ptxas.is_some() && chosen.library.is_some());
                assert_eq!(chosen.splice_first, splice_first);
                let note = chosen.note.unwrap_or_default();
                assert!(note.contains(text), "{note}");
                assert_eq!(
                    note.contains("by `splice`, or by `sanitizer`"),
                    splice_first
                );
            }
        }
        assert_eq!(
            chosen(&[ENTRY, MEM], Moment::Late),
            (
                true,
                false,
                "kernels without PTX get programs by `splice`; program `reads` needs `sanitizer`, which has to be in the application from the start".to_owned()
            )
        );
        assert_eq!(
            chosen(&[MEM], Moment::Late),
            (
                false,
                false,
                "kernels without PTX get no programs: program `reads` needs `sanitizer`, which has to be in the application from the start".to_owned()
            )
        );
        assert_eq!(
            chosen(&[BRANCH], Moment::Start),
            (
                false,
                false,
                "kernels without PTX get no programs: all are at places that are found in PTX only"
                    .to_owned()
            )
        );
    }

    #[test]
    fn what_is_missing_is_said() {
        let without = for_programs(&[ENTRY], Moment::Start, missing(), library);
        assert_eq!(
            (without.ptxas, without.note.as_deref()),
            (
                None,
                Some("kernels without PTX get no programs: it is not there")
            )
        );
        let without = for_programs(&[EXIT, MEM], Moment::Start, here(), missing);
        assert_eq!(
            without.note.as_deref(),
            Some(
                "kernels without PTX get programs by `splice`; program `reads` needs `sanitizer`: it is not there"
            )
        );
        assert!(without.library.is_none() && without.ptxas.is_some());
    }
}
