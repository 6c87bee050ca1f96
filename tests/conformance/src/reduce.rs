//! A disagreement as a few lines of PTX: what a compiler's makers can read, and what nothing of
//! ours needs to be run.
//!
//! The program is made smaller first, as everywhere; then lines of its PTX are taken out, or made a
//! number, as long as the device still computes something else than the soft GPU. A text that could
//! differ for another reason is not tried: it must run on the soft GPU to its end, and read no
//! register that was not written on every way to it.

use std::collections::{BTreeMap, BTreeSet};

use warpbpf_codegen::Target;
use warpbpf_codegen::kernel::{Kernel, module};

use crate::build::{Built, Effort, build};
use crate::device::{Bench, Device, RunError, SoftDevice};
use crate::fuzz::{inputs_of, smallest, targets};
use crate::lines::{Line, Text};
use crate::test::{Input, Test};

/// Name of the kernel: that of the first one of a batch.
const KERNEL: &str = "program_0";

/// What is left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reduced {
    /// The module.
    pub text: String,
    /// Instructions of the kernel.
    pub instructions: usize,
    /// How the outputs differ.
    pub what: String,
    /// The program that it was made of, with its input.
    pub program: String,
}

/// Reduces program `index` of `seed`. `None` if the device agrees with the soft GPU on it, for
/// every target.
///
/// # Errors
/// The device cannot be used.
pub fn reduce<D: Device>(
    seed: u64,
    index: u64,
    bench: &mut Bench<D>,
    told: impl Fn(&str),
) -> Result<Option<Reduced>, RunError> {
    let (test, inputs) = inputs_of(seed, index);
    let newest = bench.device().target();
    for target in targets(newest) {
        for input in &inputs {
            let Ok(built) = build(&test, target, Effort::FUZZ) else {
                continue;
            };
            let mut judge = Judge::new(bench);
            if judge
                .differs(&text_of(&built, target), &built, input)
                .is_none()
            {
                continue;
            }
            told(&format!("it differs as code for sm_{}", target.sm));
            let (test, input) = smallest(&test, input, target, judge.bench);
            return Ok(of_program(&test, &input, target, &mut judge, &told));
        }
    }
    Ok(None)
}

fn of_program<D: Device>(
    test: &Test,
    input: &Input,
    target: Target,
    judge: &mut Judge<'_, D>,
    told: &impl Fn(&str),
) -> Option<Reduced> {
    let built = build(test, target, Effort::FUZZ).ok()?;
    let whole = text_of(&built, target);
    let mut what = judge.differs(&whole, &built, input)?;
    let parsed = warpbpf_ptx::index(&whole).ok()?;
    let mut text = Text::of(&parsed, KERNEL).ok()?;
    let mut size = text.kernel().len();
    told(&format!("the program is left with {size} lines of PTX"));
    // What is left when nothing more can go.
    let mut attempt = |text: &Text, judge: &mut Judge<'_, D>| -> bool {
        let mut tried = text.clone();
        if reads_unwritten(tried.kernel()) {
            return false;
        }
        match judge.differs(&text.plain(), &built, input) {
            Some(difference) => {
                what = difference;
                true
            }
            None => false,
        }
    };
    loop {
        let before = text.clone();
        size = size.min(text.kernel().len());
        while size > 0 {
            let mut at = 0;
            while at < text.kernel().len() {
                let mut smaller = text.clone();
                let end = (at + size).min(smaller.kernel().len());
                smaller.kernel().drain(at..end);
                if attempt(&smaller, judge) {
                    text = smaller;
                } else {
                    at = end;
                }
            }
            size /= 2;
        }
        for at in 0..text.kernel().len() {
            let mut simpler = text.clone();
            let line = &mut simpler.kernel()[at];
            if let Some(number) = as_number(line) {
                *line = number;
                if attempt(&simpler, judge) {
                    text = simpler;
                }
            }
        }
        if text == before {
            break;
        }
        size = 4;
    }
    let instructions = text.kernel().iter().filter(|l| l.parts().is_some()).count();
    Some(Reduced {
        text: text.plain(),
        instructions,
        what,
        program: test.describe(input, 0),
    })
}

fn text_of(built: &Built, target: Target) -> String {
    let kernel = Kernel::new(KERNEL, &built.fragment).expect("what was tried was a kernel");
    module(&format!("sm_{}", target.sm), &built.env, &[kernel])
}

/// The device and the soft GPU.
struct Judge<'b, D> {
    bench: &'b mut Bench<D>,
    soft: Bench<SoftDevice>,
    /// The device is of no use any more.
    broken: bool,
}

impl<'b, D: Device> Judge<'b, D> {
    fn new(bench: &'b mut Bench<D>) -> Judge<'b, D> {
        Judge {
            bench,
            soft: Bench::new(SoftDevice::new(None)),
            broken: false,
        }
    }

    /// How the device's output differs from the soft GPU's; `None` if it does not, or if that says
    /// nothing.
    fn differs(&mut self, text: &str, built: &Built, input: &Input) -> Option<String> {
        if self.broken {
            return None;
        }
        let batch = [(built, input)];
        let expected = self.soft.run_text(text, &batch).ok()?.pop()?.ok()?;
        match self.bench.run_text(text, &batch).ok()?.pop()? {
            Ok(output) => expected.difference(&output, "soft GPU", "device"),
            Err(error) => {
                self.broken = !self.bench.device().survives();
                Some(format!("the device fails: {error}"))
            }
        }
    }
}

/// An instruction that only gives a value to a register, as one that gives it 0.
fn as_number(line: &Line) -> Option<Line> {
    let parts = line.parts()?;
    let first = parts.operands.first()?;
    let ty = parts.name.rsplit('.').next()?;
    let bits = ty.get(1..)?.parse::<u32>().ok()?;
    let gives = !matches!(parts.opcode(), "st" | "red" | "bra" | "setp") && first.starts_with('%');
    let simple = parts.opcode() == "mov" && parts.operands.get(1) == Some(&"0");
    // A product in full width and a conversion name the type of what they read last.
    let named = !parts.name.contains("wide") && parts.opcode() != "cvt" && bits >= 16;
    (gives && named && !simple && !first.contains('|'))
        .then(|| Line(format!("mov.b{bits} {first}, 0;")))
}

/// Some way through the kernel comes to a register that nothing was written to: the device may find
/// anything in it.
fn reads_unwritten(lines: &[Line]) -> bool {
    let labels: BTreeMap<&str, usize> = lines
        .iter()
        .enumerate()
        .filter_map(|(at, line)| Some((line.0.strip_suffix(':').filter(|_| line.is_label())?, at)))
        .collect();
    let registers = registers(lines);
    let mut before: Vec<Option<BTreeSet<String>>> = vec![None; lines.len() + 1];
    before[0] = Some(BTreeSet::new());
    let mut pending = vec![0];
    while let Some(at) = pending.pop() {
        let (Some(line), Some(mut written)) = (lines.get(at), before[at].clone()) else {
            continue;
        };
        let mut next = vec![at + 1];
        if let Some(parts) = line.parts() {
            let stores = matches!(parts.opcode(), "st" | "red" | "bra" | "ret" | "exit");
            let list = |operand: &str| -> Vec<String> {
                let operand = Line(operand.to_owned());
                let names = operand.names().into_iter();
                names
                    .filter(|name| registers(name))
                    .map(str::to_owned)
                    .collect()
            };
            let reads = parts.operands.iter().skip(usize::from(!stores));
            let guard = parts.guard.map(|(register, _)| register.to_owned());
            let mut reads: Vec<String> = reads.flat_map(|o| list(o)).chain(guard.clone()).collect();
            // What is written under a predicate keeps its value otherwise.
            let writes = match (stores, parts.operands.first()) {
                (false, Some(first)) => list(first),
                _ => Vec::new(),
            };
            if guard.is_some() {
                reads.extend(writes.iter().cloned());
            }
            if reads.iter().any(|register| !written.contains(register)) {
                return true;
            }
            written.extend(writes);
            match parts.opcode() {
                "bra" => {
                    let Some(to) = parts.operands.first().and_then(|to| labels.get(to)) else {
                        return true;
                    };
                    if guard.is_none() {
                        next.clear();
                    }
                    next.push(*to);
                }
                "ret" | "exit" if guard.is_none() => next.clear(),
                _ => {}
            }
        }
        for to in next {
            let merged = match &before[to] {
                None => written.clone(),
                Some(old) => old.intersection(&written).cloned().collect(),
            };
            if before[to].as_ref() != Some(&merged) {
                before[to] = Some(merged);
                pending.push(to);
            }
        }
    }
    false
}

/// Says of a name whether the kernel declares it as a register, alone or as one of many.
fn registers(lines: &[Line]) -> impl Fn(&str) -> bool + '_ {
    let names = lines.iter().filter_map(|line| {
        let list = line.0.strip_prefix(".reg")?.strip_suffix(';')?.trim();
        Some(list.split_once(char::is_whitespace)?.1.split(','))
    });
    let declared: Vec<(&str, bool)> = names
        .flatten()
        .map(|name| match name.trim().split_once('<') {
            Some((prefix, _)) => (prefix, true),
            None => (name.trim(), false),
        })
        .collect();
    move |name| {
        declared
            .iter()
            .any(|(known, many)| match name.strip_prefix(known) {
                Some("") => !many,
                Some(number) => *many && number.bytes().all(|b| b.is_ascii_digit()),
                None => false,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The soft GPU behind a compiler that takes a difference for a sum.
    struct Wrong(SoftDevice);

    impl Device for Wrong {
        fn name(&self) -> String {
            "wrong".to_owned()
        }
        fn target(&self) -> Target {
            self.0.target()
        }
        fn survives(&self) -> bool {
            true
        }
        fn is_slow(&self) -> bool {
            false
        }
        fn load(&mut self, ptx: &str) -> Result<(), RunError> {
            self.0.load(&ptx.replace("xor.b64", "or.b64"))
        }
        fn slots(&mut self) -> Result<u64, RunError> {
            self.0.slots()
        }
        fn alloc(&mut self, bytes: u64) -> Result<u64, RunError> {
            self.0.alloc(bytes)
        }
        fn free(&mut self, address: u64) -> Result<(), RunError> {
            self.0.free(address)
        }
        fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), RunError> {
            self.0.write(address, bytes)
        }
        fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), RunError> {
            self.0.read(address, into)
        }
        fn launch(&mut self, kernel: &str, blocks: u32, threads: u32) -> Result<(), RunError> {
            self.0.launch(kernel, blocks, threads)
        }
    }

    #[test]
    fn what_a_wrong_compiler_does_is_found_in_few_lines() {
        let mut bench = Bench::new(Wrong(SoftDevice::new(None)));
        let found = (0..200).find_map(|index| {
            reduce(5, index, &mut bench, |_| {}).expect("the device can be used")
        });
        let reduced = found.expect("some program has an exclusive or");
        let text = &reduced.text;
        assert!(text.contains("xor.b64"), "{text}");
        assert!(
            reduced.instructions <= 16,
            "{} instructions:\n{text}",
            reduced.instructions
        );
        assert!(reduced.what.contains("on the soft GPU"), "{}", reduced.what);
    }

    #[test]
    fn a_device_that_is_right_leaves_nothing_to_reduce() {
        let mut bench = Bench::new(SoftDevice::new(None));
        assert_eq!(reduce(158_737, 1507, &mut bench, |_| {}), Ok(None));
    }

    #[test]
    fn registers_are_written_on_every_way() {
        let lines = |text: &[&str]| -> Vec<Line> {
            let declared = [".reg .pred %p<2>;", ".reg .b64 %r<4>;"].iter();
            declared
                .chain(text)
                .map(|line| Line((*line).to_owned()))
                .collect()
        };
        let unwritten = |text: &[&str]| reads_unwritten(&lines(text));
        assert!(!unwritten(&[
            "mov.b64 %r1, %tid;",
            "add.s64 %r2, %r1, 1;",
            "ret;"
        ]));
        assert!(unwritten(&["add.s64 %r2, %r1, 1;"]));
        let skipped = [
            "setp.eq.s64 %p1, 0, 1;",
            "@%p1 bra L;",
            "mov.b64 %r1, 0;",
            "L:",
            "st.global.b64 [%r1], 1;",
        ];
        assert!(unwritten(&skipped));
        assert!(unwritten(&[
            "setp.eq.s64 %p1, 0, 1;",
            "@%p1 mov.b64 %r1, 0;"
        ]));
        // Round a loop, what its end writes is not there in the first round.
        assert!(unwritten(&[
            "L:",
            "mov.b64 %r2, %r1;",
            "mov.b64 %r1, 0;",
            "bra L;"
        ]));
    }
}
