//! A rejection as people see it: the rule, the C line, the instruction, what its registers hold,
//! and the path there.

use std::error::Error;
use std::fmt;

use annotate_snippets::{AnnotationKind, Element, Level, Renderer, Snippet};
use warpbpf_ebpf::{Code, Insn, Pc, disasm};

use crate::broken::Broken;
use crate::event::Event;
use crate::rule::Rule;
use crate::subject::{SourceLine, Subject};
use crate::warn::{Related, Warning};

/// How many steps of the path are told: the last ones.
const STEPS_TOLD: usize = 8;

/// Why a program is refused. The program is at fault, not the verifier: nothing of it may be
/// compiled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// Name of the program.
    pub program: String,
    /// The rule that it breaks.
    pub rule: Rule,
    /// The instruction that breaks it.
    pub pc: Pc,
    /// The same as a slot number, as `llvm-objdump` counts.
    pub slot: u32,
    /// The instruction's text; empty if there is none.
    pub insn: String,
    /// The C line it comes from.
    pub line: Option<SourceLine>,
    /// The registers that the instruction reads, with what they hold.
    pub values: Vec<(String, String)>,
    /// The last steps of the path that leads there.
    pub path: Vec<Step>,
}

/// A decision or call on the path to a rejection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Slot number of the instruction.
    pub slot: u32,
    /// The instruction's text.
    pub insn: String,
    /// What happens there: `taken`, `not taken`, `called`.
    pub what: &'static str,
    /// How often in a row.
    pub times: u64,
    /// The C line it comes from.
    pub line: Option<SourceLine>,
}

impl Rejection {
    pub(crate) fn new(subject: &impl Subject, broken: Broken) -> Rejection {
        let code = subject.code();
        let path = steps(subject, &broken.path);
        let rule = match broken.rule {
            Rule::Recursion { function } => Rule::Recursion {
                function: recursive_name(subject, broken.pc, function),
            },
            Rule::UnknownHelper { id, known } => match subject.unresolved(broken.pc) {
                Some(what) => Rule::Unresolved {
                    what: what.to_owned(),
                },
                None => Rule::UnknownHelper { id, known },
            },
            Rule::LinuxHelper { id, name, advice } => match subject.unresolved(broken.pc) {
                Some(what) => Rule::Unresolved {
                    what: what.to_owned(),
                },
                None => Rule::LinuxHelper { id, name, advice },
            },
            rule => rule,
        };
        let is_about_a_loop = rule.is_about_a_loop();
        Rejection {
            program: subject.name().to_owned(),
            rule,
            pc: broken.pc,
            slot: slot(code, broken.pc),
            insn: text(code, broken.pc),
            line: match is_about_a_loop {
                true => subject.line_of(loop_end(code, broken.pc)),
                false => subject.line_of(broken.pc),
            },
            values: broken
                .values
                .into_iter()
                .map(|(reg, value)| (reg.to_string(), value))
                .collect(),
            path,
        }
    }

    /// What to change.
    pub fn help(&self) -> String {
        self.rule.help()
    }

    /// The message with the C line, the instruction, the values and the path, without colour.
    pub fn render(&self) -> String {
        self.render_with(false)
    }

    /// The same, with colour for a terminal if `colour`.
    pub fn render_with(&self, colour: bool) -> String {
        let title = self.rule.to_string();
        let insn = format!("instruction {}: {}", self.slot, self.insn);
        let mut group = Level::ERROR
            .primary_title(title.as_str())
            .id(self.rule.name())
            .elements(Vec::<Element<'_>>::new());
        group = match &self.line {
            Some(line) => group.element(snippet(line, AnnotationKind::Primary, &insn)),
            None => group.element(
                Snippet::source(self.insn.as_str())
                    .line_start(self.slot as usize)
                    .annotation(AnnotationKind::Primary.span(0..self.insn.len())),
            ),
        };
        let values: Vec<String> = self
            .values
            .iter()
            .map(|(reg, value)| format!("{reg} is {value}"))
            .collect();
        group = group.elements(
            values
                .iter()
                .map(|value| Level::NOTE.message(value.as_str())),
        );
        let path = self.path_text();
        if !path.is_empty() {
            group = group.element(Level::NOTE.message(path.as_str()));
        }
        let help = self.help();
        group = group.element(Level::HELP.message(help.as_str()));
        renderer(colour).render(&[group])
    }

    fn path_text(&self) -> String {
        if self.path.is_empty() {
            return String::new();
        }
        let steps = self.path.iter().map(|step| {
            let times = if step.times > 1 {
                format!(", {} times", step.times)
            } else {
                String::new()
            };
            let insn = format!(
                "instruction {} (`{}`) {}{times}",
                step.slot, step.insn, step.what
            );
            match &step.line {
                Some(line) => {
                    let text = line.text.trim();
                    format!("  {}:{}: `{text}`: {insn}", line.file, line.line)
                }
                None => format!("  {insn}"),
            }
        });
        format!("on this path:\n{}", steps.collect::<Vec<_>>().join("\n"))
    }
}

impl Warning {
    /// The message with the C lines that it is about, with colour for a terminal if `colour`.
    pub fn render_with(&self, colour: bool) -> String {
        let insn = format!("instruction {}: {}", self.slot, self.insn);
        let mut group = Level::WARNING
            .primary_title(self.message.as_str())
            .id(self.name)
            .elements(Vec::<Element<'_>>::new());
        group = match &self.line {
            Some(line) => group.element(snippet(line, AnnotationKind::Primary, &insn)),
            None => group.element(
                Snippet::source(self.insn.as_str())
                    .line_start(self.slot as usize)
                    .annotation(AnnotationKind::Primary.span(0..self.insn.len())),
            ),
        };
        let about = self
            .related
            .as_ref()
            .map(|r| (r, format!("{} by instruction {}", r.what, r.slot)));
        match &about {
            Some((
                Related {
                    line: Some(line), ..
                },
                text,
            )) => {
                group = group.element(snippet(line, AnnotationKind::Context, text));
            }
            Some((_, text)) => group = group.element(Level::NOTE.message(text.as_str())),
            None => {}
        }
        group = group.element(Level::HELP.message(self.help.as_str()));
        renderer(colour).render(&[group])
    }
}

fn renderer(colour: bool) -> Renderer {
    if colour {
        Renderer::styled()
    } else {
        Renderer::plain()
    }
}

/// A source line with a mark under the token at its column.
fn snippet<'a>(
    line: &'a SourceLine,
    kind: AnnotationKind,
    label: &'a str,
) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
    Snippet::source(line.text.as_str())
        .path(line.file.as_str())
        .line_start(line.line as usize)
        .annotation(kind.span(token(&line.text, line.column)).label(label))
}

/// The bytes of the token at a column, counted from 1; of the whole line if there is none.
fn token(text: &str, column: u32) -> std::ops::Range<usize> {
    let start = (column as usize).saturating_sub(1);
    let whole = || text.len() - text.trim_start().len()..text.trim_end().len();
    let Some(rest) = text.get(start..).filter(|_| column > 0) else {
        return whole();
    };
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let length = match rest.chars().next() {
        Some(c) if word(c) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
        Some(c) if "+-*/%&|^<>=!".contains(c) => rest
            .find(|c| !"+-*/%&|^<>=!".contains(c))
            .unwrap_or(rest.len()),
        Some(c) if !c.is_whitespace() => c.len_utf8(),
        _ => return whole(),
    };
    start..start + length
}

/// The last steps of a path, of which `events` gives the last first.
fn steps(subject: &impl Subject, events: &[Event]) -> Vec<Step> {
    let code = subject.code();
    let mut told: Vec<(Pc, &'static str, u64)> = Vec::new();
    for event in events {
        let full = told.len() == STEPS_TOLD;
        let (pc, what) = match *event {
            Event::Branch { pc, taken } => (pc, if taken { "taken" } else { "not taken" }),
            Event::Call(pc) => (pc, "called"),
            Event::Root | Event::Meet(_) | Event::Took(_) | Event::Fresh(_) | Event::Way => {
                continue;
            }
        };
        match told.last_mut() {
            Some((last, same, times)) if (*last, *same) == (pc, what) => *times += 1,
            _ if full => break,
            _ => told.push((pc, what, 1)),
        }
    }
    let step = |(pc, what, times)| Step {
        slot: slot(code, pc),
        insn: text(code, pc),
        what,
        times,
        line: subject.line_of(pc),
    };
    told.into_iter().rev().map(step).collect()
}

/// The jump back of the innermost loop that `pc` is in, whose line is the one with `for` or
/// `while`: a loop's first instruction is of its body where the compiler tests at the end.
fn loop_end(code: &Code, pc: Pc) -> Pc {
    let back = |(at, insn): (u32, &Insn)| {
        let target = match insn {
            Insn::Jump { target, .. } | Insn::Goto { target, .. } => *target,
            _ => return None,
        };
        (target <= pc && pc.0 <= at).then(|| (at - target.0, at))
    };
    let loops = (0..).zip(code.insns()).filter_map(back);
    loops.min().map_or(pc, |(_, at)| Pc(at))
}

fn slot(code: &Code, pc: Pc) -> u32 {
    if pc.index() < code.insns().len() {
        code.slot(pc)
    } else {
        0
    }
}

fn text(code: &Code, pc: Pc) -> String {
    if pc.index() < code.insns().len() {
        disasm::disassemble(code, pc)
    } else {
        String::new()
    }
}

/// The name of the function that the call at `pc` goes to, if it has one.
fn recursive_name(subject: &impl Subject, pc: Pc, fallback: String) -> String {
    use warpbpf_ebpf::Callee;
    match subject.code().insns().get(pc.index()) {
        Some(Insn::Call {
            callee: Callee::Local(start),
        }) => subject
            .function_name(*start)
            .map_or(fallback, str::to_owned),
        _ => fallback,
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is refused: instruction {}",
            self.program, self.slot
        )?;
        if let Some(line) = &self.line {
            write!(f, " ({}:{}:{})", line.file, line.line, line.column)?;
        }
        write!(f, ": {}; {}", self.rule, self.help())
    }
}

impl Error for Rejection {}
