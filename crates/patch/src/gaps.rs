//! Where between two statements nothing may be put: inside a call with its parameters (PTX ISA
//! "Device Function Parameters": they stand in one basic block), between `wgmma.fence` and the wait
//! for its group (ptxas serialises what it cannot follow), between an instruction that sets the
//! carry and one that reads it (PTX ISA "Extended-Precision Integer Arithmetic Instructions": a
//! call loses it), and between a product and a sum without rounding modifiers (PTX ISA "mul",
//! "add"): ptxas makes a multiply-add of them if they stand in one basic block, and code between
//! them would be the end of the block, so that the kernel computed other numbers.

use std::collections::{BTreeMap, BTreeSet};

use warpbpf_ptx::ast::{Instruction, Operand, Statement, StatementKind};

use crate::body::Body;

const CALL: &str = "it belongs to a call, and nothing can stand between a call and its parameters";
const WGMMA: &str = "inside a wgmma group";
const CARRY: &str = "between an instruction that sets the carry and one that reads it";
const UNROLLED: &str = "in a loop whose rounds the compiler joins, a product of one with a sum of the next, which code there would prevent";
const FUSED: &str = "between a product and a sum that the compiler makes one operation of, which code there would prevent";

/// What stands against code before each statement.
pub(crate) struct Gaps<'a> {
    /// Labels that branches go to. Others, such as those of debug sections, begin no basic block.
    targets: BTreeSet<&'a str>,
    /// Gap `k` is before statement `k`; the last one is the end.
    reasons: Vec<Option<&'static str>>,
    /// Statements that belong to a call, with the first one of it.
    calls: BTreeMap<usize, usize>,
}

impl<'a> Gaps<'a> {
    pub(crate) fn of(body: &Body<'_, 'a>) -> Gaps<'a> {
        let mut gaps = Gaps {
            targets: targets(body),
            reasons: vec![None; body.statements.len() + 1],
            calls: BTreeMap::new(),
        };
        gaps.groups(body);
        gaps.carries(body);
        gaps.products(body);
        gaps.loops(body);
        gaps.calls(body);
        gaps
    }

    /// Why nothing can be put before statement `index`.
    pub(crate) fn before(&self, index: usize) -> Option<&'static str> {
        self.reasons.get(index).copied().flatten()
    }

    /// Why nothing can be put directly behind statement `index`.
    pub(crate) fn behind(&self, index: usize) -> Option<&'static str> {
        self.before(index + 1)
    }

    /// The first statement of the call that statement `index` belongs to.
    pub(crate) fn call_of(&self, index: usize) -> Option<usize> {
        self.calls.get(&index).copied()
    }

    /// Why no site is at a statement that belongs to a call.
    pub(crate) fn member(&self, index: usize) -> Option<&'static str> {
        self.calls.contains_key(&index).then_some(CALL)
    }

    fn bar(&mut self, gap: usize, reason: &'static str) {
        if let Some(slot) = self.reasons.get_mut(gap) {
            slot.get_or_insert(reason);
        }
    }

    fn groups(&mut self, body: &Body<'_, '_>) {
        let mut open = None;
        for (index, i) in body.instructions() {
            match (i.opcode, i.modifiers.first()) {
                ("wgmma", Some(&"fence" | &"mma_async")) => drop(open.get_or_insert(index)),
                ("wgmma", Some(&"wait_group")) => {
                    // A wait without a fence before it in the text waits for a group that a loop
                    // left open.
                    let Some(first) = open.take() else { continue };
                    for gap in first + 1..=index {
                        self.bar(gap, WGMMA);
                    }
                }
                _ => {}
            }
        }
        if let Some(first) = open {
            for gap in first + 1..=body.statements.len() {
                self.bar(gap, WGMMA);
            }
        }
    }

    fn carries(&mut self, body: &Body<'_, '_>) {
        let mut set = None;
        for (index, step) in steps(body) {
            match step {
                Step::Instruction(i) => {
                    if let (Some(first), "addc" | "subc" | "madc") = (set, i.opcode) {
                        for gap in first + 1..=index {
                            self.bar(gap, CARRY);
                        }
                        set = Some(index);
                    }
                    if i.has("cc") {
                        set = Some(index);
                    } else if ends_block(i) {
                        set = None;
                    }
                }
                Step::Label(name) if self.targets.contains(name) => set = None,
                Step::Label(_) => {}
            }
        }
    }

    fn products(&mut self, body: &Body<'_, '_>) {
        // Registers that hold a product of the block, with where it was made.
        let mut products: BTreeMap<&str, usize> = BTreeMap::new();
        let straight = straight(body);
        for (index, step) in steps(body) {
            let i = match step {
                Step::Instruction(i) => i,
                Step::Label(name) => {
                    if self.targets.contains(name) && !straight.contains(name) {
                        products.clear();
                    }
                    continue;
                }
            };
            // Of several products ptxas takes the one that it can reach.
            let sources = i.operands.iter().skip(1).flat_map(names);
            let made = sources.filter_map(|name| products.get(name).copied()).min();
            match (i.opcode, made) {
                ("add" | "sub", Some(first)) if is_contractible(i) => {
                    for gap in first + 1..=index {
                        self.bar(gap, FUSED);
                    }
                }
                _ => {}
            }
            let made = match i.opcode {
                "mul" if is_contractible(i) => Some(index),
                // The last step of both is a product.
                "div" if i.has("approx") || i.has("full") => Some(index),
                // Packed and unpacked, too.
                "mov" | "neg" => made,
                _ => None,
            };
            for to in i.operands.first().into_iter().flat_map(names) {
                match made {
                    Some(made) => drop(products.insert(to, made)),
                    None => drop(products.remove(to)),
                }
            }
            let goes_on =
                matches!(i.operands.first(), Some(Operand::Name(to)) if straight.contains(to));
            if ends_block(i) && !goes_on {
                products.clear();
            }
        }
    }

    /// Loops of one basic block in which a product goes round to a sum.
    fn loops(&mut self, body: &Body<'_, '_>) {
        // The block that is being looked at: its label, where that is, and its instructions.
        let mut block: Option<(&str, usize, Vec<&Instruction<'_>>)> = None;
        for (index, step) in steps(body) {
            match step {
                Step::Label(name) if self.targets.contains(name) => {
                    block = Some((name, index, Vec::new()));
                }
                Step::Instruction(i) if ends_block(i) => {
                    let back = matches!(
                        (i.opcode, i.operands.first(), &block),
                        ("bra", Some(Operand::Name(to)), Some((label, ..))) if to == label
                    );
                    if let Some((_, head, list)) = block.take().filter(|_| back)
                        && product_goes_round(&list)
                    {
                        for gap in head + 1..=index {
                            self.bar(gap, UNROLLED);
                        }
                    }
                }
                Step::Instruction(i) => {
                    if let Some((_, _, list)) = &mut block {
                        list.push(i);
                    }
                }
                Step::Label(_) => {}
            }
        }
    }

    fn calls(&mut self, body: &Body<'_, '_>) {
        let calls: Vec<usize> = body
            .instructions()
            .filter(|(_, i)| i.opcode == "call")
            .map(|(index, _)| index)
            .collect();
        for call in calls {
            let first = self.first_of(body, call);
            let last = self.last_of(body, call);
            for index in first..=last {
                self.calls.insert(index, first);
                self.bar(index + usize::from(index == first), CALL);
            }
        }
    }

    /// From the `{` or the declaration of parameters that a call begins with: the earliest
    /// statement of its basic block that prepares it.
    fn first_of(&self, body: &Body<'_, '_>, call: usize) -> usize {
        let mut first = call;
        // Declarations may stand far before the call.
        let is_next = |index: usize, first: usize| {
            let between = &body.statements[index + 1..first];
            let instruction = |s: &Statement<'_>| matches!(s.kind, StatementKind::Instruction(_));
            !between.iter().any(instruction)
        };
        for index in (0..call).rev() {
            match &body.statements[index].kind {
                StatementKind::Label(name) if self.targets.contains(name) => break,
                StatementKind::Close => break,
                StatementKind::Instruction(i) if ends_block(i) => break,
                StatementKind::Instruction(i) if is_local(body, i, "st") => first = index,
                StatementKind::Variable(v) if v.space == "param" && is_next(index, first) => {
                    first = index;
                }
                // A scope around the call alone: what is in front of it may prepare the call, too.
                StatementKind::Open => {
                    if is_next(index, first) {
                        first = index;
                    }
                }
                StatementKind::Instruction(_)
                | StatementKind::Label(_)
                | StatementKind::Registers(_)
                | StatementKind::Variable(_)
                | StatementKind::Loc(_)
                | StatementKind::Pragma(_)
                | StatementKind::CallPrototype { .. }
                | StatementKind::BranchTargets { .. }
                | StatementKind::CallTargets { .. }
                | StatementKind::Directive(_) => {}
            }
        }
        first
    }

    /// The last read of a returned parameter in the call's basic block.
    fn last_of(&self, body: &Body<'_, '_>, call: usize) -> usize {
        let mut last = call;
        for (index, statement) in body.statements.iter().enumerate().skip(call + 1) {
            match &statement.kind {
                StatementKind::Label(name) if self.targets.contains(name) => break,
                StatementKind::Instruction(i) if ends_block(i) => break,
                StatementKind::Instruction(i) if is_local(body, i, "ld") => last = index,
                StatementKind::Instruction(_)
                | StatementKind::Open
                | StatementKind::Close
                | StatementKind::Label(_)
                | StatementKind::Registers(_)
                | StatementKind::Variable(_)
                | StatementKind::Loc(_)
                | StatementKind::Pragma(_)
                | StatementKind::CallPrototype { .. }
                | StatementKind::BranchTargets { .. }
                | StatementKind::CallTargets { .. }
                | StatementKind::Directive(_) => {}
            }
        }
        last
    }
}

/// A product that is there at the end of the block is summed at its beginning, before its register
/// is written again.
fn product_goes_round(block: &[&Instruction<'_>]) -> bool {
    let mut products: BTreeSet<&str> = BTreeSet::new();
    for round in 0..2 {
        for i in block {
            let mut sources = i.operands.iter().skip(1).flat_map(names);
            let of_product = sources.any(|name| products.contains(name));
            if round == 1 && of_product && matches!(i.opcode, "add" | "sub") && is_contractible(i) {
                return true;
            }
            let made = match i.opcode {
                // In the second round only what the first one left counts.
                "mul" if round == 0 => is_contractible(i),
                "div" if round == 0 => i.has("approx") || i.has("full"),
                "mov" | "neg" => of_product,
                _ => false,
            };
            for to in i.operands.first().into_iter().flat_map(names) {
                if made {
                    products.insert(to);
                } else {
                    products.remove(to);
                }
            }
        }
    }
    false
}

/// The names in an operand, of all parts of a vector.
fn names<'a>(operand: &Operand<'a>) -> Vec<&'a str> {
    match operand {
        Operand::Name(name) => vec![name],
        Operand::Vector(list) => list.iter().flat_map(names).collect(),
        _ => Vec::new(),
    }
}

/// Of floating-point numbers, and not told how to round.
fn is_contractible(i: &Instruction<'_>) -> bool {
    let float = |ty: &&str| {
        let kinds = ["f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"];
        kinds.contains(ty)
    };
    i.modifiers.last().is_some_and(float) && !["rn", "rz", "rm", "rp"].iter().any(|r| i.has(r))
}

/// What makes basic blocks.
enum Step<'s, 'a> {
    Label(&'a str),
    Instruction(&'s Instruction<'a>),
}

/// Labels and instructions with their places.
fn steps<'s, 'a>(body: &'s Body<'_, 'a>) -> impl Iterator<Item = (usize, Step<'s, 'a>)> {
    let step = |(index, statement): (usize, &'s Statement<'a>)| {
        let step = match &statement.kind {
            StatementKind::Label(name) => Step::Label(name),
            StatementKind::Instruction(i) => Step::Instruction(i),
            StatementKind::Open
            | StatementKind::Close
            | StatementKind::Registers(_)
            | StatementKind::Variable(_)
            | StatementKind::Loc(_)
            | StatementKind::Pragma(_)
            | StatementKind::CallPrototype { .. }
            | StatementKind::BranchTargets { .. }
            | StatementKind::CallTargets { .. }
            | StatementKind::Directive(_) => return None,
        };
        Some((index, step))
    };
    body.statements.iter().enumerate().filter_map(step)
}

fn targets<'a>(body: &Body<'_, 'a>) -> BTreeSet<&'a str> {
    let mut targets = BTreeSet::new();
    for statement in &body.statements {
        match &statement.kind {
            StatementKind::Instruction(i) if matches!(i.opcode, "bra" | "brx") => {
                targets.extend(i.operands.iter().filter_map(|operand| match operand {
                    Operand::Name(name) => Some(*name),
                    _ => None,
                }));
            }
            StatementKind::BranchTargets { targets: list, .. } => targets.extend(list),
            _ => {}
        }
    }
    targets
}

/// Labels that only the branch just before them goes to: for ptxas no block begins there.
fn straight<'a>(body: &Body<'_, 'a>) -> BTreeSet<&'a str> {
    let mut places: BTreeMap<&str, u32> = BTreeMap::new();
    let mut branch: Option<&'a str> = None;
    let mut straight = BTreeSet::new();
    for statement in &body.statements {
        if let StatementKind::BranchTargets { targets, .. } = &statement.kind {
            for to in targets {
                *places.entry(to).or_default() += 2;
            }
        }
    }
    for (_, step) in steps(body) {
        match step {
            Step::Instruction(i) => {
                branch = match i.operands.first() {
                    Some(Operand::Name(to)) if i.opcode == "bra" => Some(to),
                    _ => None,
                };
                if let Some(to) = branch {
                    *places.entry(to).or_default() += 1;
                }
            }
            Step::Label(name) if branch == Some(name) => drop(straight.insert(name)),
            Step::Label(_) => {}
        }
    }
    straight.retain(|name| places.get(name) == Some(&1));
    straight
}

fn ends_block(i: &Instruction<'_>) -> bool {
    matches!(
        i.opcode,
        "bra" | "brx" | "call" | "ret" | "exit" | "trap" | "brkpt"
    )
}

/// `ld.param` or `st.param` of a variable that is no parameter of the function itself.
fn is_local(body: &Body<'_, '_>, i: &Instruction<'_>, opcode: &str) -> bool {
    let own = |name: &str| {
        let mut params = body.function.params.iter().chain(&body.function.returns);
        params.any(|p| p.name == name)
    };
    let space = |word: &&&str| matches!(**word, "param" | "param::func");
    i.opcode == opcode
        && i.modifiers.iter().any(|word| space(&word))
        && i.operands.iter().any(
            |operand| matches!(operand, Operand::Address { base: Some(name), .. } if !own(name)),
        )
}
