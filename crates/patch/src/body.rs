//! A function's statements with the module's symbols found in them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use warpbpf_ptx::ast::{
    Function, Guard, Instruction, Module, Operand, Span, Statement, StatementKind, Variable,
};
use warpbpf_ptx::lines::Sources;
use warpbpf_ptx::parse_body;

use crate::error::PatchError;

/// The functions and variables of a module by name.
pub(crate) struct Symbols<'m, 'a> {
    pub(crate) module: &'m Module<'a>,
    variables: BTreeMap<&'a str, &'m Variable<'a>>,
    functions: BTreeMap<&'a str, &'m Function<'a>>,
    /// `.alias name, target`
    pub(crate) aliases: BTreeMap<&'a str, &'a str>,
    sources: OnceLock<Sources<'a>>,
}

/// What a name of the module stands for.
#[derive(Clone, Copy)]
pub(crate) enum Symbol<'m, 'a> {
    Function(&'m Function<'a>),
    Variable(&'m Variable<'a>),
}

impl<'m, 'a> Symbols<'m, 'a> {
    pub(crate) fn new(module: &'m Module<'a>) -> Symbols<'m, 'a> {
        let mut functions: BTreeMap<&'a str, &'m Function<'a>> = BTreeMap::new();
        for function in &module.functions {
            let known = functions.entry(function.name).or_insert(function);
            if known.body.is_none() {
                *known = function;
            }
        }
        let aliases = module.aliases.iter();
        let aliases = aliases.map(|alias| (alias.name, alias.target)).collect();
        Symbols {
            module,
            variables: module.variables.iter().map(|v| (v.name, v)).collect(),
            functions,
            aliases,
            sources: OnceLock::new(),
        }
    }

    /// Files and names of inlined functions; read when first asked for.
    pub(crate) fn sources(&self) -> &Sources<'a> {
        self.sources.get_or_init(|| Sources::new(self.module))
    }

    pub(crate) fn get(&self, name: &str) -> Option<Symbol<'m, 'a>> {
        let variable = self.variables.get(name).copied().map(Symbol::Variable);
        variable.or_else(|| self.function(name).map(Symbol::Function))
    }

    /// The function that a name stands for: itself, or what it is an alias of.
    pub(crate) fn resolve(&self, name: &'a str) -> &'a str {
        self.aliases.get(name).copied().unwrap_or(name)
    }

    /// The one with a body where there is one.
    pub(crate) fn function(&self, name: &str) -> Option<&'m Function<'a>> {
        self.functions.get(name).copied()
    }
}

/// A place where a statement names a symbol of the module.
pub(crate) struct Mention<'m, 'a> {
    /// Index of the statement.
    pub(crate) statement: usize,
    /// The name's bytes.
    pub(crate) span: Span,
    pub(crate) symbol: Symbol<'m, 'a>,
    /// It is the function that a `call` calls.
    pub(crate) is_call: bool,
}

/// A function that was read.
pub(crate) struct Body<'m, 'a> {
    pub(crate) function: &'m Function<'a>,
    pub(crate) statements: Vec<Statement<'a>>,
    pub(crate) mentions: Vec<Mention<'m, 'a>>,
    /// Statements that call through a register.
    pub(crate) indirect_calls: Vec<usize>,
}

impl<'m, 'a> Body<'m, 'a> {
    /// Reads `function` for `kernel`.
    pub(crate) fn read(
        symbols: &Symbols<'m, 'a>,
        function: &'m Function<'a>,
        kernel: &str,
    ) -> Result<Body<'m, 'a>, PatchError> {
        let statements =
            parse_body(symbols.module, function).map_err(|source| PatchError::Parse {
                kernel: kernel.to_owned(),
                function: function.name.to_owned(),
                source,
            })?;
        let mut body = Body {
            function,
            statements: Vec::new(),
            mentions: Vec::new(),
            indirect_calls: Vec::new(),
        };
        let finder = Finder {
            symbols,
            local: local_names(function, &statements),
        };
        for (index, statement) in statements.iter().enumerate() {
            match &statement.kind {
                StatementKind::Instruction(instruction) => {
                    finder.instruction(index, instruction, &mut body);
                }
                StatementKind::CallTargets { targets, .. } => {
                    for target in targets {
                        finder.mention(index, target, statement.span.clone(), &mut body);
                    }
                }
                StatementKind::Label(_)
                | StatementKind::Open
                | StatementKind::Close
                | StatementKind::Registers(_)
                | StatementKind::Variable(_)
                | StatementKind::Loc(_)
                | StatementKind::Pragma(_)
                | StatementKind::CallPrototype { .. }
                | StatementKind::BranchTargets { .. }
                | StatementKind::Directive(_) => {}
            }
        }
        body.statements = statements;
        Ok(body)
    }

    /// The instructions with their places.
    pub(crate) fn instructions(&self) -> impl Iterator<Item = (usize, &Instruction<'a>)> {
        self.statements
            .iter()
            .enumerate()
            .filter_map(|(index, statement)| match &statement.kind {
                StatementKind::Instruction(instruction) => Some((index, instruction)),
                _ => None,
            })
    }

    /// The functions that it calls by name.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &'m Function<'a>> {
        self.mentions.iter().filter_map(|m| match m.symbol {
            Symbol::Function(function) if m.is_call => Some(function),
            _ => None,
        })
    }

    /// What a name in a statement stands for in the module; `None` where a name of the function
    /// hides it.
    pub(crate) fn symbol(&self, statement: usize, name: &str) -> Option<Symbol<'m, 'a>> {
        let from = self.mentions.partition_point(|m| m.statement < statement);
        let here = self.mentions[from..].iter();
        let mut here = here.take_while(|m| m.statement == statement);
        let found = here.find(|m| match m.symbol {
            Symbol::Function(function) => function.name == name,
            Symbol::Variable(variable) => variable.name == name,
        });
        found.map(|m| m.symbol)
    }

    /// Where code may be put that runs just before statement `index`: not between it and its
    /// pragmas. Those of its block stay in front: `nounroll` counts only where nothing stands
    /// between it and the label of its loop.
    pub(crate) fn before(&self, index: usize) -> usize {
        let mut first = index;
        for at in (0..index).rev() {
            match self.statements[at].kind {
                StatementKind::Pragma(text) if is_of_block(text) => {}
                StatementKind::Pragma(_) => first = at,
                _ => break,
            }
        }
        self.statements[first].span.start
    }
}

/// PTX ISA "Pragma Strings": those that say something of a basic block or function, and not of the
/// next instruction.
fn is_of_block(pragma: &str) -> bool {
    ["nounroll", "frequency", "enable_smem_spilling"]
        .iter()
        .any(|word| pragma.trim_start().starts_with(word))
}

/// Names that hide those of the module.
fn local_names<'a>(function: &Function<'a>, statements: &[Statement<'a>]) -> BTreeSet<&'a str> {
    let params = function.params.iter().chain(&function.returns);
    let mut names: BTreeSet<&str> = params.map(|p| p.name).collect();
    for statement in statements {
        match &statement.kind {
            StatementKind::Label(name)
            | StatementKind::CallPrototype { name, .. }
            | StatementKind::BranchTargets { name, .. }
            | StatementKind::CallTargets { name, .. } => drop(names.insert(name)),
            StatementKind::Registers(registers) => {
                let plain = registers.iter().filter(|r| r.count.is_none());
                names.extend(plain.map(|r| r.name));
            }
            StatementKind::Variable(variable) => drop(names.insert(variable.name)),
            StatementKind::Open
            | StatementKind::Close
            | StatementKind::Instruction(_)
            | StatementKind::Loc(_)
            | StatementKind::Pragma(_)
            | StatementKind::Directive(_) => {}
        }
    }
    names
}

struct Finder<'s, 'm, 'a> {
    symbols: &'s Symbols<'m, 'a>,
    local: BTreeSet<&'a str>,
}

impl<'m, 'a> Finder<'_, 'm, 'a> {
    fn instruction(&self, index: usize, instruction: &Instruction<'a>, body: &mut Body<'m, 'a>) {
        let target = (instruction.opcode == "call")
            .then(|| {
                let mut operands = instruction.operands.iter();
                operands.position(|operand| !matches!(operand, Operand::List(_)))
            })
            .flatten();
        let operands = instruction.operands.iter().zip(&instruction.operand_spans);
        for (at, (_, span)) in operands.enumerate() {
            let before = body.mentions.len();
            for (name, span) in words(self.symbols.module.text, span.clone()) {
                self.mention(index, name, span, body);
            }
            if target == Some(at) {
                let called = body.mentions[before..]
                    .iter_mut()
                    .find(|m| matches!(m.symbol, Symbol::Function(_)));
                match called {
                    Some(mention) => mention.is_call = true,
                    None => body.indirect_calls.push(index),
                }
            }
        }
    }

    fn mention(&self, statement: usize, name: &str, span: Span, body: &mut Body<'m, 'a>) {
        if self.local.contains(name) {
            return;
        }
        if let Some(symbol) = self.symbols.get(name) {
            body.mentions.push(Mention {
                statement,
                span,
                symbol,
                is_call: false,
            });
        }
    }
}

/// The identifiers in a part of the text, PTX ISA "Identifiers". Operands hold no strings or
/// comments that matter: a comment could only make us see a symbol too many.
fn words(text: &str, span: Span) -> impl Iterator<Item = (&str, Span)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%');
    let base = span.start;
    let part = &text[span];
    part.split(move |c| !is_word(c))
        .filter(|word| !word.is_empty())
        .map(move |word| {
            let start = base + (word.as_ptr() as usize - part.as_ptr() as usize);
            (word, start..start + word.len())
        })
}

/// An instruction's guard in front of it.
pub(crate) fn guard_text(guard: Guard<'_>) -> String {
    let not = if guard.negated { "!" } else { "" };
    format!("@{not}{} ", guard.register)
}
