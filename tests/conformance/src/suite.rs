//! bpf_conformance on every engine, as one table.

use std::fmt::Write as _;
use std::path::Path;

use warpbpf_ebpf::{Code, assemble, decode, encode, listing};

use crate::build::{BuildError, Built, Effort, Way, build_for};
use crate::case::{Case, parse};
use crate::device::{Bench, Device, RunError};
use crate::refused;
use crate::test::{Input, Output, Test};
use crate::world::interpret;

/// Cases of the suite. A clone that has lost some must not look like one that passes.
pub const CASES: usize = 313;
/// Threads that run each case on a GPU: two warps, all of which must agree.
const THREADS: usize = 64;
/// `may_goto` rounds of the interpreter; no case of the suite has one.
const ROUNDS: u32 = 1 << 20;

/// A case with its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// Name of the file, without `.data`.
    pub name: String,
    /// The case.
    pub case: Case,
}

/// How a case went on one engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As it must.
    Passed,
    /// Refused, as [`refused::REFUSED`] says, with its reason.
    Listed(&'static str),
    /// Anything else.
    Failed(String),
}

/// One engine's column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// Name of the engine.
    pub engine: String,
    /// One per case.
    pub verdicts: Vec<Verdict>,
}

impl Column {
    /// How many passed.
    pub fn passed(&self) -> usize {
        self.verdicts
            .iter()
            .filter(|v| **v == Verdict::Passed)
            .count()
    }

    /// How many failed.
    pub fn failed(&self) -> usize {
        let failed = |v: &&Verdict| matches!(v, Verdict::Failed(_));
        self.verdicts.iter().filter(failed).count()
    }
}

/// Reads all cases of a folder, in the order of their names.
///
/// # Errors
/// The file that cannot be read or is no case.
pub fn read(folder: &Path) -> Result<Vec<Named>, String> {
    let shown = folder.display();
    let entries = std::fs::read_dir(folder).map_err(|e| format!("cannot list `{shown}`: {e}"))?;
    let mut cases = Vec::new();
    for entry in entries {
        let path = entry
            .map_err(|e| format!("cannot list `{shown}`: {e}"))?
            .path();
        if path.extension().is_none_or(|extension| extension != "data") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = std::fs::read_to_string(&path)
            .map_err(|e| format!("cannot read `{}`: {e}", path.display()))?;
        let case = parse(&text).map_err(|e| format!("`{}`: {e}", path.display()))?;
        cases.push(Named {
            name: name.into_owned(),
            case,
        });
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(cases)
}

impl Case {
    fn test(&self) -> Test {
        Test {
            code: self.code.clone(),
            memory: self.memory.len() as u32,
            maps: Vec::new(),
        }
    }

    fn input(&self, threads: usize) -> Input {
        Input {
            threads: vec![self.memory.clone(); threads],
            maps: Vec::new(),
        }
    }
}

/// All cases on the interpreter, through the encoder, the decoder and the assembler too.
pub fn interpreter(cases: &[Named]) -> Column {
    let verdict = |named: &Named| match interpreted(&named.case) {
        Ok(_) => Verdict::Passed,
        Err(reason) => Verdict::Failed(reason),
    };
    Column {
        engine: "interpreter".to_owned(),
        verdicts: cases.iter().map(verdict).collect(),
    }
}

fn interpreted(case: &Case) -> Result<Output, String> {
    round_trips(&case.code)?;
    let output = interpret(&case.test(), &case.input(1), ROUNDS).map_err(|e| e.to_string())?;
    match output.threads.as_slice() {
        [(r0, _)] if *r0 == case.result => Ok(output),
        threads => Err(format!(
            "r0 is {:x?}, expected {:#x}",
            threads.iter().map(|t| t.0).collect::<Vec<_>>(),
            case.result
        )),
    }
}

/// Bytes and text are other forms of the same program.
fn round_trips(code: &Code) -> Result<(), String> {
    let bytes = encode(code).map_err(|e| e.to_string())?;
    if decode(&bytes).as_ref() != Ok(code) {
        return Err("decode(encode(code)) differs".to_owned());
    }
    if assemble(&listing(code)).as_ref() != Ok(code) {
        return Err("assemble(listing(code)) differs".to_owned());
    }
    Ok(())
}

/// All cases on a device.
///
/// # Errors
/// The device itself failed, so that nothing is known of the cases.
pub fn on_device<D: Device>(
    cases: &[Named],
    bench: &mut Bench<D>,
    way: Way,
) -> Result<Column, RunError> {
    let target = bench.device().target();
    let mut verdicts = vec![Verdict::Failed("was not run".to_owned()); cases.len()];
    let mut jobs = Vec::new();
    for (index, named) in cases.iter().enumerate() {
        let built = build_for(&named.case.test(), target, Effort::SUITE, way);
        match (built, refused::find(&named.name)) {
            (Ok(built), None) => jobs.push(Job {
                index,
                built,
                input: named.case.input(THREADS),
            }),
            (Ok(_), Some(_)) => {
                verdicts[index] = Verdict::Failed(
                    "is listed as refused, but is accepted: take it from the list".to_owned(),
                );
            }
            (Err(BuildError::Refused { rule, .. }), Some(listed)) if rule == listed.rule => {
                verdicts[index] = Verdict::Listed(listed.reason);
            }
            (Err(error), _) => verdicts[index] = Verdict::Failed(error.to_string()),
        }
    }
    let batch: Vec<(&Built, &Input)> = jobs.iter().map(|job| (&job.built, &job.input)).collect();
    let outputs = bench.run_all(&batch, target)?;
    for (job, output) in jobs.iter().zip(outputs) {
        let compared = output.map_err(|e| e.to_string()).and_then(|output| {
            let expected = interpreted(&cases[job.index].case)?;
            compare(&expected, &output)
        });
        verdicts[job.index] = match compared {
            Ok(()) => Verdict::Passed,
            Err(reason) => Verdict::Failed(reason),
        };
    }
    Ok(Column {
        engine: match way {
            Way::Compiled => bench.device().name(),
            Way::Interpreted => format!("{}, interpreted", bench.device().name()),
        },
        verdicts,
    })
}

struct Job {
    index: usize,
    built: Built,
    input: Input,
}

/// Every thread did what the interpreter's one did.
fn compare(expected: &Output, output: &Output) -> Result<(), String> {
    let expected = Output {
        threads: vec![expected.threads[0].clone(); output.threads.len()],
        maps: expected.maps.clone(),
    };
    match expected.difference(output, "interpreter", "GPU") {
        None => Ok(()),
        Some(difference) => Err(difference),
    }
}

/// The table: a row for each case, a column for each engine, the sums, and what went wrong.
pub fn table(cases: &[Named], columns: &[Column]) -> String {
    let names = cases.iter().map(|named| named.name.len()).max();
    let width = names.unwrap_or(0).max(12);
    let mut text = format!("{:width$}", "case");
    let widths: Vec<usize> = columns.iter().map(|c| c.engine.len().max(7)).collect();
    // Writing to a String cannot fail.
    for (column, width) in columns.iter().zip(&widths) {
        let _ = write!(text, "  {:width$}", column.engine);
    }
    let mut notes = String::new();
    for (row, named) in cases.iter().enumerate() {
        let _ = write!(text, "\n{:width$}", named.name);
        for (column, width) in columns.iter().zip(&widths) {
            let word = match &column.verdicts[row] {
                Verdict::Passed => "ok",
                Verdict::Listed(reason) => {
                    let note = format!("{}: refused: {reason}\n", named.name);
                    if !notes.ends_with(&note) {
                        notes.push_str(&note);
                    }
                    "refused"
                }
                Verdict::Failed(reason) => {
                    let _ = writeln!(notes, "{}: {}: FAIL: {reason}", named.name, column.engine);
                    "FAIL"
                }
            };
            let _ = write!(text, "  {word:width$}");
        }
        text.truncate(text.trim_end().len());
    }
    let _ = write!(text, "\n{:width$}", "passed");
    for (column, width) in columns.iter().zip(&widths) {
        let passed = format!("{}/{}", column.passed(), cases.len());
        let _ = write!(text, "  {passed:width$}");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text.push_str(&notes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, text: &str) -> Named {
        Named {
            name: name.to_owned(),
            case: parse(text).expect("a case"),
        }
    }

    #[test]
    fn a_wrong_result_is_noticed() {
        let cases = [
            named("right", "-- asm\nmov %r0, 1\nexit\n-- result\n0x1\n"),
            named("wrong", "-- asm\nmov %r0, 1\nexit\n-- result\n0x2\n"),
        ];
        let column = interpreter(&cases);
        assert_eq!((column.passed(), column.failed()), (1, 1));
        assert_eq!(
            table(&cases, &[column]),
            "case          interpreter\nright         ok\nwrong         FAIL\npassed        1/2\n\
             wrong: interpreter: FAIL: r0 is [1], expected 0x2\n"
        );
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = read(Path::new("no/such/folder")).expect_err("it is not there");
        assert!(
            error.starts_with("cannot list `no/such/folder`: "),
            "{error}"
        );
    }
}
