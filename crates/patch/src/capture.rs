//! Sets the registers that fragments read at a site (`Capture`): what is known when the kernel is
//! patched as immediates, which ptxas folds; the rest is copied out of the instruction's operands
//! without changing any register of the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use warpbpf_abi::access::{Barrier, Kind, Space};
use warpbpf_abi::attach::When;
use warpbpf_abi::context::Capture;
use warpbpf_abi::layout::launch;
use warpbpf_abi::names::{GROUP_MASK, SLOTS};
use warpbpf_codegen::SlotSpace;
use warpbpf_ptx::access::{Bytes, TensorBox, row_lanes};
use warpbpf_ptx::ast::{Function, Instruction, Operand, Param};
use warpbpf_ptx::sync::barrier as barrier_of;
use warpbpf_ptx::type_size;

use crate::body::Symbol;
use crate::closure::OPAQUE_TYPES;
use crate::find::{Fact, Place, Scene};
use crate::launch_args::LaunchArgs;
use crate::operand::{SourceOperand, Word, base_and_offset, constant, expression, sources, words};
use crate::tensor::{TensorLayout, bytes};

/// A block of code in the making: the registers it declares, what runs before the site's
/// instruction, and what runs where the programs do.
#[derive(Default)]
pub(crate) struct Block {
    registers: BTreeSet<(&'static str, String)>,
    /// Before the instruction where the programs run behind it, and for lanes too that its guard
    /// holds back: it must only read.
    pub(crate) early: String,
    /// Where the programs run.
    pub(crate) late: String,
}

impl Block {
    /// Declares a register and gives its name.
    pub(crate) fn register(&mut self, ty: &'static str, name: &str) -> String {
        self.registers.insert((ty, name.to_owned()));
        name.to_owned()
    }

    pub(crate) fn declares(&self) -> bool {
        !self.registers.is_empty()
    }

    /// The `.reg` statements.
    pub(crate) fn declarations(&self) -> String {
        let mut by_type: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (ty, name) in &self.registers {
            by_type.entry(ty).or_default().push(name);
        }
        let mut out = String::new();
        for (ty, names) in by_type {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "\t.reg .{ty} {};", names.join(", "));
        }
        out
    }

    /// A register of 64 bits that is set where the programs run.
    pub(crate) fn launch_arg(&mut self, register: &str, load: &str) {
        self.register("b64", register);
        self.put(false, format_args!("{load}"));
    }

    fn put(&mut self, early: bool, text: std::fmt::Arguments<'_>) {
        let out = if early {
            &mut self.early
        } else {
            &mut self.late
        };
        let _ = writeln!(out, "\t{text}");
    }
}

/// The slots that stand for addresses of module variables, in a slice.
#[derive(Clone, Copy)]
pub(crate) struct Slots<'r, 'a> {
    pub(crate) globals: &'r BTreeMap<&'a str, u32>,
    pub(crate) space: SlotSpace,
}

impl Slots<'_, '_> {
    /// The statement that reads a slot; `bake` knows its form.
    pub(crate) fn load(&self, register: &str, slot: u32) -> String {
        let space = self.space.word();
        format!("ld.{space}.u64 {register}, [{SLOTS}+{}];", slot * 8)
    }
}

/// What the registers get their values from.
pub(crate) struct Source<'s, 'b, 'm, 'a> {
    pub(crate) kernel: &'s Function<'a>,
    /// The code stands in the kernel itself, where its parameters can be read.
    pub(crate) in_kernel: bool,
    pub(crate) site: u32,
    pub(crate) line: u32,
    pub(crate) when: When,
    pub(crate) slots: Option<Slots<'s, 'a>>,
    /// How tensor maps say the size of their boxes.
    pub(crate) tensors: Option<&'s TensorLayout>,
    /// The place, and the index of its statement.
    pub(crate) place: Option<(&'s Scene<'b, 'm, 'a>, &'s Place, usize)>,
}

impl<'b, 'a> Source<'_, 'b, '_, 'a> {
    /// Declares and sets the registers of `captures`.
    pub(crate) fn write(&self, captures: &BTreeSet<Capture>, block: &mut Block) {
        for capture in captures {
            let ty = if capture.bits() == 64 { "b64" } else { "b32" };
            let register = block.register(ty, &capture.register());
            self.set(*capture, &register, block);
        }
    }

    /// The capture must be taken before the instruction is executed.
    pub(crate) fn is_early(&self, capture: Capture) -> bool {
        if self.when == When::Before {
            return false;
        }
        match capture {
            Capture::Address
            | Capture::Target
            | Capture::Operand(_)
            | Capture::Waited
            | Capture::BarrierId
            | Capture::BarrierThreads => true,
            Capture::Bytes => self
                .access()
                .is_some_and(|access| matches!(access.bytes, Bytes::Operand(_))),
            Capture::Value(i) => {
                let words = self.value_words();
                words.0.get(usize::from(i)).is_some_and(|(early, _)| *early)
            }
            Capture::ArgCount
            | Capture::Arg(_)
            | Capture::Launch
            | Capture::Node
            | Capture::Site
            | Capture::Line
            | Capture::Kind
            | Capture::Space
            | Capture::Cache
            | Capture::ValueBytes
            | Capture::TargetSpace
            | Capture::BarrierKind
            | Capture::OperandCount
            | Capture::TakenMask
            | Capture::Taken => false,
        }
    }

    /// A word of the hidden parameter, which only the kernel itself can read.
    fn launch_arg(&self, at: u64, d: &str, block: &mut Block) {
        match self.in_kernel {
            true => block.put(false, format_args!("{}", LaunchArgs::Parameter.load(d, at))),
            false => block.put(false, format_args!("mov.b64 {d}, 0;")),
        }
    }

    fn set(&self, capture: Capture, d: &str, block: &mut Block) {
        let early = self.is_early(capture);
        let access = self.access();
        let barrier = match self.place {
            Some((_, place, _)) => match &place.fact {
                Fact::Barrier(barrier) => Some(*barrier),
                _ => None,
            },
            None => None,
        };
        let immediate = |block: &mut Block, value: u32| {
            block.put(early, format_args!("mov.u32 {d}, {value};"));
        };
        match capture {
            Capture::ArgCount => immediate(block, self.kernel.params.len() as u32),
            Capture::Arg(i) => self.argument(usize::from(i), d, block),
            Capture::Launch => self.launch_arg(launch::PARAM_NUMBER, d, block),
            Capture::Node => self.launch_arg(launch::PARAM_NODE, d, block),
            Capture::Site => immediate(block, self.site),
            Capture::Line => immediate(block, self.line),
            Capture::Address => {
                let operand = access.map(|a| a.address);
                let operand = operand.or_else(|| barrier?.address.map(|(at, _)| at));
                self.address(early, operand, d, block);
                self.rows(early, "b64", d, block);
            }
            Capture::Bytes => {
                match access.map(|a| a.bytes) {
                    Some(Bytes::Fixed(bytes)) => immediate(block, bytes),
                    Some(Bytes::Operand(at)) => self.narrow(early, Some(at), d, block),
                    Some(Bytes::Box(map, shape)) => self.boxed(early, map, shape, d, block),
                    Some(Bytes::Unknown) | None => immediate(block, 0),
                }
                self.rows(early, "b32", d, block);
            }
            Capture::Kind => immediate(block, access.map_or(0, |a| a.kind as u32)),
            Capture::Space => {
                let of_barrier = barrier.and_then(|b| b.address.map(|(_, space)| space));
                let space = access.map(|a| a.space).or(of_barrier);
                immediate(block, space.unwrap_or(Space::Generic) as u32);
            }
            Capture::Cache => immediate(block, access.map_or(0, |a| a.cache as u32)),
            Capture::Value(i) => {
                let (words, _) = self.value_words();
                match words.get(usize::from(i)) {
                    Some((_, word)) => self.word(early, word, d, block),
                    None => block.put(early, format_args!("mov.b64 {d}, 0;")),
                }
            }
            Capture::ValueBytes => immediate(block, self.value_words().1),
            Capture::Target => {
                let target = access.and_then(|a| a.target.map(|(at, _)| at));
                self.address(early, target, d, block);
            }
            Capture::TargetSpace => {
                let target = access.and_then(|a| a.target.map(|(_, space)| space));
                immediate(block, target.unwrap_or(Space::Generic) as u32);
            }
            Capture::BarrierKind => immediate(block, barrier.map_or(0, |b| b.kind as u32)),
            Capture::BarrierId => self.narrow(early, barrier.and_then(|b| b.id), d, block),
            Capture::BarrierThreads => {
                self.narrow(early, barrier.and_then(|b| b.threads), d, block);
            }
            Capture::Waited => {
                if self.when == When::Before || barrier.is_none() {
                    block.put(early, format_args!("mov.b64 {d}, 0;"));
                } else {
                    let now = block.register("b64", "%wbpf_now");
                    block.put(true, format_args!("mov.u64 {d}, %clock64;"));
                    // On sm_90 a barrier does not hold back a read of the clock that follows it,
                    // but what synchronises the warp it does (docs/measurements.md, "Time at
                    // barriers").
                    let mut mask = GROUP_MASK.to_owned();
                    if let Some(done) = self.outcome() {
                        // A try goes on until its outcome is wanted. All who take part are in the
                        // mask already, but only we know.
                        mask = block.register("b32", "%wbpf_tried");
                        block.put(
                            false,
                            format_args!("vote.sync.ballot.b32 {mask}, {done}, {GROUP_MASK};"),
                        );
                        block.put(false, format_args!("or.b32 {mask}, {mask}, {GROUP_MASK};"));
                    }
                    block.put(false, format_args!("bar.warp.sync {mask};"));
                    block.put(false, format_args!("mov.u64 {now}, %clock64;"));
                    block.put(false, format_args!("sub.s64 {d}, {now}, {d};"));
                }
            }
            Capture::Operand(i) => self.operand(early, usize::from(i), d, block),
            Capture::OperandCount => {
                let count = self.instruction().map_or(0, |i| self.sources(i).len());
                immediate(block, count as u32);
            }
            Capture::TakenMask => match self.taken() {
                Some((register, not)) => {
                    let not = if not { "!" } else { "" };
                    block.put(
                        early,
                        format_args!("vote.sync.ballot.b32 {d}, {not}{register}, {GROUP_MASK};"),
                    );
                }
                None => immediate(block, 0),
            },
            Capture::Taken => match self.taken() {
                Some((register, not)) => {
                    let (yes, no) = if not { (0, 1) } else { (1, 0) };
                    block.put(
                        early,
                        format_args!("selp.b32 {d}, {yes}, {no}, {register};"),
                    );
                }
                None => immediate(block, 0),
            },
        }
    }

    fn access(&self) -> Option<&warpbpf_ptx::access::Access> {
        match &self.place?.1.fact {
            Fact::Mem(access) => Some(access),
            Fact::Barrier(_)
            | Fact::Func
            | Fact::FuncRet
            | Fact::Insn
            | Fact::Line
            | Fact::Branch { .. } => None,
        }
    }

    fn instruction(&self) -> Option<&'b Instruction<'a>> {
        let (scene, place, _) = self.place?;
        scene.instruction(place.anchor)
    }

    /// Predicate of a branch, and whether it is negated.
    fn taken(&self) -> Option<(&'a str, bool)> {
        let (_, place, _) = self.place?;
        let guard = self.instruction()?.guard?;
        matches!(place.fact, Fact::Branch { .. }).then_some((guard.register, guard.negated))
    }

    /// The predicate that says whether a wait of an mbarrier is over.
    fn outcome(&self) -> Option<&'a str> {
        let instruction = self.instruction()?;
        let waits = barrier_of(instruction)?.kind == Barrier::MbarrierWait;
        match instruction.operands.first() {
            Some(Operand::Name(done)) if waits && self.ty(done) == Some("pred") => Some(done),
            _ => None,
        }
    }

    fn ty(&self, name: &str) -> Option<&'a str> {
        let (scene, _, statement) = self.place?;
        scene.registers.ty(statement, name)
    }

    /// `args[number]`: the parameter's first 8 bytes, in pieces as large as its alignment allows.
    fn argument(&self, number: usize, d: &str, block: &mut Block) {
        let param = self.kernel.params.get(number).filter(|_| self.in_kernel);
        let readable = |p: &&Param<'_>| !OPAQUE_TYPES.contains(&p.ty);
        let Some((param, size)) = param.filter(readable).and_then(|p| Some((p, p.size()?))) else {
            return block.put(false, format_args!("mov.b64 {d}, 0;"));
        };
        let size = size.min(8);
        if size == 8 && param.align >= 8 {
            return block.put(false, format_args!("ld.param.b64 {d}, [{}];", param.name));
        }
        block.put(false, format_args!("mov.b64 {d}, 0;"));
        let piece = block.register("b64", "%wbpf_u");
        let mut at = 0;
        while at < size {
            // The largest power of two that divides the place and fits.
            let mut width = param.align.clamp(1, 4);
            while at % width != 0 || at + width > size || !width.is_power_of_two() {
                width -= 1;
            }
            let (bits, name) = (width * 8, param.name);
            block.put(
                false,
                format_args!("ld.param.u{bits} {piece}, [{name}+{at}];"),
            );
            if at > 0 {
                block.put(false, format_args!("shl.b64 {piece}, {piece}, {};", at * 8));
            }
            block.put(false, format_args!("or.b64 {d}, {d}, {piece};"));
            at += width;
        }
    }

    /// Of `ldmatrix` and `stmatrix` only the first lanes give rows; to those of the others 0.
    fn rows(&self, early: bool, ty: &str, d: &str, block: &mut Block) {
        let kind = self.access().map(|a| a.kind);
        if !matches!(kind, Some(Kind::MatrixLoad | Kind::MatrixStore)) {
            return;
        }
        let Some(lanes) = self.instruction().and_then(row_lanes).filter(|n| *n < 32) else {
            return;
        };
        let p = block.register("pred", "%wbpf_p");
        let t = block.register("b32", "%wbpf_t");
        block.put(early, format_args!("mov.u32 {t}, %laneid;"));
        block.put(early, format_args!("setp.lt.u32 {p}, {t}, {lanes};"));
        block.put(early, format_args!("selp.{ty} {d}, {d}, 0, {p};"));
    }

    /// The bytes of a copy whose tensor map operand `map` has.
    fn boxed(&self, early: bool, map: usize, shape: TensorBox, d: &str, block: &mut Block) {
        let Some(layout) = self.tensors else {
            return block.put(early, format_args!("mov.b32 {d}, 0;"));
        };
        let address = block.register("b64", "%wbpf_u");
        self.address(early, Some(map), &address, block);
        let code = bytes(layout, shape, &address, d);
        block.put(early, format_args!("{}", code.trim()));
    }

    /// The address in operand `at`, as the instruction has it.
    fn address(&self, early: bool, at: Option<usize>, d: &str, block: &mut Block) {
        let operand = at.and_then(|at| self.instruction()?.operands.get(at));
        let (base, offset) = match operand {
            Some(Operand::Address { base, offset, .. }) => (*base, *offset),
            Some(Operand::Name(name)) => (Some(*name), 0),
            Some(Operand::Other(text)) => match base_and_offset(text) {
                // ptxas computes it.
                Some((base, offset)) => return self.computed(early, base, offset, d, block),
                None => return self.indexed(early, text, d, block),
            },
            _ => (None, 0),
        };
        let Some(base) = base else {
            return block.put(early, format_args!("mov.b64 {d}, {offset:#x};"));
        };
        match self.ty(base).and_then(type_size) {
            Some(8) if offset == 0 => block.put(early, format_args!("mov.b64 {d}, {base};")),
            Some(8) => block.put(early, format_args!("add.s64 {d}, {base}, {offset};")),
            // 32-bit addresses wrap as such.
            Some(size @ (2 | 4)) => {
                let offset = offset as i32;
                self.short(early, (base, size), format_args!("{offset}"), d, block);
            }
            Some(_) => block.put(early, format_args!("mov.b64 {d}, 0;")),
            None => self.symbol(early, base, offset, d, block),
        }
    }

    /// An address in a register of 4 bytes, or of 2, which shared memory has room for.
    fn short(
        &self,
        early: bool,
        (base, size): (&str, u64),
        offset: std::fmt::Arguments<'_>,
        d: &str,
        block: &mut Block,
    ) {
        let t = block.register("b32", "%wbpf_t");
        if size == 2 {
            block.put(early, format_args!("cvt.u32.u16 {t}, {base};"));
            block.put(early, format_args!("add.s32 {t}, {t}, {offset};"));
        } else {
            block.put(early, format_args!("add.s32 {t}, {base}, {offset};"));
        }
        block.put(early, format_args!("cvt.u64.u32 {d}, {t};"));
    }

    /// `[base + offset]` whose offset is a constant expression.
    fn computed(&self, early: bool, base: &str, offset: &str, d: &str, block: &mut Block) {
        match self.ty(base).and_then(type_size) {
            Some(8) => block.put(early, format_args!("add.s64 {d}, {base}, {offset};")),
            Some(size @ (2 | 4)) => {
                self.short(early, (base, size), format_args!("{offset}"), d, block);
            }
            Some(_) => block.put(early, format_args!("mov.b64 {d}, 0;")),
            None => {
                self.symbol(early, base, 0, d, block);
                block.put(early, format_args!("add.s64 {d}, {d}, {offset};"));
            }
        }
    }

    /// `name[index]`, PTX ISA "Arrays as Operands": the index counts elements, so ptxas is left to
    /// compute it.
    fn indexed(&self, early: bool, text: &str, d: &str, block: &mut Block) {
        let is_array = text.ends_with(']') && !text.starts_with('[');
        match text.split_once('[').filter(|_| is_array) {
            Some((name, _)) if self.is_memory(name.trim()) => {
                block.put(early, format_args!("mov.u64 {d}, {text};"));
            }
            _ => block.put(early, format_args!("mov.b64 {d}, 0;")),
        }
    }

    /// The name is of memory that has an address.
    fn is_memory(&self, name: &str) -> bool {
        let Some((scene, _, statement)) = self.place else {
            return false;
        };
        match scene.body.symbol(statement, name) {
            Some(Symbol::Variable(v)) => !OPAQUE_TYPES.contains(&v.ty) && v.space != "tex",
            Some(Symbol::Function(_)) => false,
            None => {
                let mut params = self.kernel.params.iter();
                let param = self.in_kernel && params.any(|p| p.name == name);
                param || scene.variables.contains(name)
            }
        }
    }

    fn symbol(&self, early: bool, name: &str, offset: i64, d: &str, block: &mut Block) {
        let Some((scene, _, statement)) = self.place else {
            return;
        };
        if !self.is_memory(name) {
            return block.put(early, format_args!("mov.b64 {d}, 0;"));
        }
        let slot = self.slots.and_then(|slots| {
            scene.body.symbol(statement, name)?;
            Some((slots, *slots.globals.get(name)?))
        });
        match slot {
            Some((slots, slot)) => block.put(early, format_args!("{}", slots.load(d, slot))),
            None => block.put(early, format_args!("mov.u64 {d}, {name};")),
        }
        if offset != 0 {
            block.put(early, format_args!("add.s64 {d}, {d}, {offset};"));
        }
    }

    /// A 32-bit number in operand `at`.
    fn narrow(&self, early: bool, at: Option<usize>, d: &str, block: &mut Block) {
        let operand = at.and_then(|at| self.instruction()?.operands.get(at));
        match operand {
            Some(operand) if self.expression(operand).is_some() => {
                let text = self.expression(operand).unwrap_or_default();
                block.put(early, format_args!("mov.b32 {d}, {text};"));
            }
            Some(Operand::Name(name)) => match self.ty(name).and_then(type_size) {
                Some(4) => block.put(early, format_args!("mov.b32 {d}, {name};")),
                Some(8) => block.put(early, format_args!("cvt.u32.u64 {d}, {name};")),
                Some(2) => block.put(early, format_args!("cvt.u32.u16 {d}, {name};")),
                Some(_) | None => block.put(early, format_args!("mov.b32 {d}, 0;")),
            },
            Some(Operand::Int(value)) => {
                block.put(early, format_args!("mov.b32 {d}, {:#x};", *value as u32));
            }
            _ => block.put(early, format_args!("mov.b32 {d}, 0;")),
        }
    }

    /// The words of the value, each with whether it is taken before the instruction; and how many
    /// bytes there are.
    fn value_words(&self) -> (Vec<(bool, Word<'b, 'a>)>, u32) {
        const WORDS: usize = 4;
        let (Some(access), Some(i), Some((scene, _, statement))) =
            (self.access(), self.instruction(), self.place)
        else {
            return (Vec::new(), 0);
        };
        let after = self.when == When::After;
        let stored = access.values.iter().map(|at| (after, *at));
        let loaded = access.result.filter(|_| after).map(|at| (false, at));
        let ty = |name: &str| scene.registers.ty(statement, name);
        let mut all = Vec::new();
        let mut bytes = 0;
        for (early, at) in stored.chain(loaded) {
            let Some(operand) = i.operands.get(at).filter(|_| all.len() < WORDS) else {
                continue;
            };
            let (words, size) = words(operand, access.element, &ty);
            bytes = all.len() as u32 * 8 + size;
            all.extend(words.into_iter().map(|word| (early, word)));
        }
        all.truncate(WORDS);
        (all, bytes.min(WORDS as u32 * 8))
    }

    fn word(&self, early: bool, word: &Word<'_, 'a>, d: &str, block: &mut Block) {
        match word {
            Word::Half(name, high) => self.half(early, name, *high, d, block),
            Word::Parts(parts) => {
                if parts.is_empty() {
                    block.put(early, format_args!("mov.b64 {d}, 0;"));
                }
                for (part, (operand, size, component)) in parts.iter().enumerate() {
                    if part == 0 {
                        self.widen(early, operand, *component, Some(*size), d, block);
                        continue;
                    }
                    let u = block.register("b64", "%wbpf_u");
                    self.widen(early, operand, *component, Some(*size), &u, block);
                    let shift = part as u32 * size * 8;
                    block.put(early, format_args!("shl.b64 {u}, {u}, {shift};"));
                    block.put(early, format_args!("or.b64 {d}, {d}, {u};"));
                }
            }
        }
    }

    fn half(&self, early: bool, name: &str, high: bool, d: &str, block: &mut Block) {
        let other = block.register("b64", "%wbpf_u");
        let pair = if high {
            format!("{{{other}, {d}}}")
        } else {
            format!("{{{d}, {other}}}")
        };
        block.put(early, format_args!("mov.b128 {pair}, {name};"));
    }

    fn operand(&self, early: bool, number: usize, d: &str, block: &mut Block) {
        let Some(i) = self.instruction() else {
            return block.put(early, format_args!("mov.b64 {d}, 0;"));
        };
        let size = i.modifiers.iter().rev().find_map(|word| type_size(word));
        let source = self.sources(i).get(number).copied();
        match source {
            Some((Operand::Name(name), None)) if self.ty(name).and_then(type_size) == Some(16) => {
                self.half(early, name, false, d, block);
            }
            Some((operand @ (Operand::Name(_) | Operand::Not(_)), component))
                if self.expression(operand).is_none() =>
            {
                self.widen(early, operand, component, None, d, block);
            }
            Some((operand, component)) => {
                let size = size.map(|size| size as u32);
                self.widen(early, operand, component, size, d, block);
            }
            None => block.put(early, format_args!("mov.b64 {d}, 0;")),
        }
    }

    fn sources(&self, i: &'b Instruction<'a>) -> Vec<SourceOperand<'b, 'a>> {
        sources(i, &|name| self.ty(name))
    }

    fn expression(&self, operand: &Operand<'a>) -> Option<&'a str> {
        expression(operand, &|name| self.ty(name))
    }

    /// Bits of an operand, of its lowest `size` bytes if that is known, in 64 bits; of a vector
    /// register those of one component.
    fn widen(
        &self,
        early: bool,
        operand: &Operand<'a>,
        component: Option<char>,
        size: Option<u32>,
        d: &str,
        block: &mut Block,
    ) {
        if let Some(text) = self.expression(operand) {
            block.put(early, format_args!("mov.b64 {d}, {text};"));
            return self.mask(early, size, 8, d, block);
        }
        let (name, not) = match operand {
            Operand::Name(name) => (*name, false),
            Operand::Not(name) => (*name, true),
            other => {
                let bits = constant(other, size);
                return block.put(early, format_args!("mov.b64 {d}, {bits:#x};"));
            }
        };
        let name = match component {
            Some(component) => format!("{name}.{component}"),
            None => name.to_owned(),
        };
        let ty = self.ty(&name);
        if ty == Some("pred") {
            let (yes, no) = if not { (0, 1) } else { (1, 0) };
            return block.put(early, format_args!("selp.b64 {d}, {yes}, {no}, {name};"));
        }
        let held = ty.and_then(type_size).map_or(0, |size| size as u32);
        match held {
            8 => block.put(early, format_args!("mov.b64 {d}, {name};")),
            4 => {
                let t = block.register("b32", "%wbpf_t");
                block.put(early, format_args!("mov.b32 {t}, {name};"));
                block.put(early, format_args!("cvt.u64.u32 {d}, {t};"));
            }
            2 => {
                let h = block.register("b16", "%wbpf_h");
                block.put(early, format_args!("mov.b16 {h}, {name};"));
                block.put(early, format_args!("cvt.u64.u16 {d}, {h};"));
            }
            1 => block.put(early, format_args!("cvt.u64.u8 {d}, {name};")),
            _ => return block.put(early, format_args!("mov.b64 {d}, 0;")),
        }
        self.mask(early, size, held, d, block);
    }

    /// A register may be wider than what is stored of it.
    fn mask(&self, early: bool, size: Option<u32>, held: u32, d: &str, block: &mut Block) {
        if let Some(size) = size.filter(|size| *size < held) {
            let mask = (1u64 << (size * 8)) - 1;
            block.put(early, format_args!("and.b64 {d}, {d}, {mask:#x};"));
        }
    }
}
