//! What a kernel reaches, and so how an instrumented variant of it can be made.

use std::collections::{BTreeMap, BTreeSet};

use warpbpf_abi::names::PREFIX;
use warpbpf_ptx::ast::{Linkage, Module, StatementKind};

use crate::body::{Body, Symbol, Symbols};
use crate::error::PatchError;
use crate::site::function_exits;

/// How a kernel can be instrumented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// As a module of its own, at any time.
    Slice,
    /// Only inside its module, before that is loaded.
    Clone {
        /// Why not as a module of its own.
        reasons: Vec<String>,
    },
    /// Not at all.
    Refused {
        /// What stands against it.
        reason: String,
        /// What would make it possible.
        advice: String,
    },
}

/// Functions without a body that the driver itself brings into every module.
const DRIVER_FUNCTIONS: &[&str] = &[
    "vprintf",
    "malloc",
    "free",
    "__assertfail",
    "__nv_aligned_device_malloc",
];

/// Functions of the device runtime, which start kernels from kernels.
const LAUNCH_FUNCTIONS: &[&str] = &[
    "cudaLaunchDevice",
    "cudaLaunchDeviceV2",
    "cudaLaunchDeviceV2_ptsz",
    "cudaLaunchDevice_ptsz",
    "cudaGetParameterBuffer",
    "cudaGetParameterBufferV2",
    "__cudaCDP2LaunchDeviceV2",
    "__cudaCDP2LaunchDeviceV2_ptsz",
    "__cudaCDP2GetParameterBufferV2",
];

/// Types of module-scope variables that stand for a binding rather than memory.
pub(crate) const OPAQUE_TYPES: &[&str] = &["texref", "samplerref", "surfref"];

/// How `kernel` can be instrumented.
///
/// # Errors
/// No such kernel, or a text that cannot be read.
pub fn method(module: &Module<'_>, kernel: &str) -> Result<Method, PatchError> {
    let symbols = Symbols::new(module);
    Ok(Closure::of(&symbols, kernel)?.method)
}

/// A kernel and what it reaches by name.
pub(crate) struct Closure<'m, 'a> {
    /// The kernel and the functions with a body, by name.
    pub(crate) bodies: BTreeMap<&'a str, Body<'m, 'a>>,
    /// Functions without a body.
    pub(crate) externs: BTreeSet<&'a str>,
    /// Module-scope variables, in the order they were met.
    pub(crate) variables: Vec<&'a str>,
    pub(crate) method: Method,
    /// Lanes may wait for each other in it, and count on those that have left not being waited for.
    pub(crate) has_sync: bool,
}

impl<'m, 'a> Closure<'m, 'a> {
    pub(crate) fn of(
        symbols: &Symbols<'m, 'a>,
        kernel: &str,
    ) -> Result<Closure<'m, 'a>, PatchError> {
        check_module(symbols.module)?;
        let entry = symbols
            .function(kernel)
            .filter(|f| f.is_entry && f.body.is_some())
            .ok_or_else(|| PatchError::NoKernel {
                kernel: kernel.to_owned(),
            })?;
        let mut closure = Closure {
            bodies: BTreeMap::new(),
            externs: BTreeSet::new(),
            variables: Vec::new(),
            method: Method::Slice,
            has_sync: false,
        };
        let mut judge = Judge::default();
        let mut pending = vec![entry];
        while let Some(function) = pending.pop() {
            if closure.bodies.contains_key(function.name) {
                continue;
            }
            if function.body.is_none() {
                if closure.externs.insert(function.name) {
                    judge.extern_function(symbols, function.name);
                    let target = symbols.aliases.get(function.name);
                    pending.extend(target.and_then(|t| symbols.function(t)));
                }
                continue;
            }
            let body = Body::read(symbols, function, kernel)?;
            if has_our_names(symbols.module, &body) {
                judge.our_names(function.name);
            }
            judge.body(&body);
            closure.has_sync |= has_sync(&body);
            for mention in &body.mentions {
                match mention.symbol {
                    Symbol::Function(called) if mention.is_call => pending.push(called),
                    Symbol::Function(taken) => judge.address_taken(function.name, taken.name),
                    Symbol::Variable(variable) => {
                        let behind = symbols.module.text[mention.span.end..].trim_start();
                        if variable.space == "global" && behind.starts_with('[') {
                            judge.indexed(function.name, variable.name);
                        }
                        if !closure.variables.contains(&variable.name) {
                            closure.variables.push(variable.name);
                            judge.variable(variable);
                        }
                    }
                }
            }
            closure.bodies.insert(function.name, body);
        }
        judge.directives(symbols.module);
        closure.method = judge.verdict();
        Ok(closure)
    }
}

impl<'a> Closure<'_, 'a> {
    /// Device functions that end threads by `exit`, and those through which they are called by
    /// name: in text order.
    pub(crate) fn leaving(&self, symbols: &Symbols<'_, 'a>, kernel: &str) -> Vec<&'a str> {
        self.leading(symbols, kernel, |body| !function_exits(body).is_empty())
    }

    /// Device functions that are `wanted`, and those through which they are called by name: in text
    /// order.
    pub(crate) fn leading(
        &self,
        symbols: &Symbols<'_, 'a>,
        kernel: &str,
        wanted: impl Fn(&Body<'_, 'a>) -> bool,
    ) -> Vec<&'a str> {
        let others = self.bodies.iter().filter(|(name, _)| **name != kernel);
        let mut leading: BTreeSet<&'a str> = others
            .clone()
            .filter(|(_, body)| wanted(body))
            .map(|(name, _)| *name)
            .collect();
        loop {
            let known = leading.len();
            for (name, body) in others.clone() {
                if body
                    .calls()
                    .any(|f| leading.contains(symbols.resolve(f.name)))
                {
                    leading.insert(name);
                }
            }
            if leading.len() == known {
                break;
            }
        }
        let mut leading: Vec<&'a str> = leading.into_iter().collect();
        leading.sort_by_key(|name| self.bodies[name].function.span.start);
        leading
    }
}

fn check_module(module: &Module<'_>) -> Result<(), PatchError> {
    if module.address_size != 64 {
        return Err(PatchError::AddressSize {
            bits: module.address_size,
        });
    }
    let names = module.functions.iter().map(|f| f.name);
    let mut names = names.chain(module.variables.iter().map(|v| v.name));
    match names.find(|name| name.starts_with(PREFIX)) {
        Some(name) => Err(PatchError::AlreadyInstrumented {
            name: name.to_owned(),
        }),
        None => Ok(()),
    }
}

/// Registers, labels, variables and parameters of ours would not be told from the function's own.
/// Comments may say anything.
fn has_our_names(module: &Module<'_>, body: &Body<'_, '_>) -> bool {
    let params = body.function.params.iter().chain(&body.function.returns);
    let mut texts = body.statements.iter().map(|s| &module.text[s.span.clone()]);
    params.map(|p| p.name).any(|name| name.contains(PREFIX))
        || texts.any(|text| text.contains(PREFIX) && without_comments(text).contains(PREFIX))
}

/// A statement's text with a blank for each comment within it.
fn without_comments(statement: &str) -> String {
    let mut out = String::with_capacity(statement.len());
    let mut rest = statement;
    while let Some(at) = rest.find('/') {
        let (before, comment) = rest.split_at(at);
        out.push_str(before);
        let length = match comment.as_bytes().get(1) {
            Some(b'/') => comment.find('\n').unwrap_or(comment.len()),
            Some(b'*') => comment.find("*/").map_or(comment.len(), |end| end + 2),
            _ => {
                out.push('/');
                rest = &comment[1..];
                continue;
            }
        };
        out.push(' ');
        rest = &comment[length..];
    }
    out + rest
}

/// True if a lane of this function may wait for other lanes.
fn has_sync(body: &Body<'_, '_>) -> bool {
    let waits = |opcode: &str| matches!(opcode, "bar" | "barrier");
    !body.indirect_calls.is_empty()
        || body
            .instructions()
            .any(|(_, i)| waits(i.opcode) || i.has("sync") || i.has("aligned"))
}

/// Collects what stands against each method.
#[derive(Default)]
struct Judge {
    reasons: Vec<String>,
    refused: Option<(String, String)>,
}

impl Judge {
    fn reason(&mut self, reason: String) {
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    fn refuse(&mut self, reason: String, advice: &str) {
        self.refused
            .get_or_insert_with(|| (reason, advice.to_owned()));
    }

    fn our_names(&mut self, function: &str) {
        self.refuse(
            format!("`{function}` has names with `{PREFIX}` in them, which warpbpf's own code has"),
            "name them otherwise",
        );
    }

    fn extern_function(&mut self, symbols: &Symbols<'_, '_>, name: &str) {
        if LAUNCH_FUNCTIONS.contains(&name) {
            self.refuse(
                format!("it starts other kernels from the device (`{name}`)"),
                "instrument the kernels that it starts, if the host starts them too",
            );
        } else if symbols.aliases.contains_key(name) {
            self.reason(format!("`{name}` is an alias"));
        } else if !DRIVER_FUNCTIONS.contains(&name) {
            self.refuse(
                format!("it calls `{name}`, which this module does not define"),
                "build the application without relocatable device code (`-rdc=false`), or link it before loading",
            );
        }
    }

    fn address_taken(&mut self, function: &str, taken: &str) {
        self.reason(format!(
            "`{function}` takes the address of function `{taken}`, and function pointers belong to one module"
        ));
    }

    fn indexed(&mut self, function: &str, variable: &str) {
        self.reason(format!(
            "`{function}` names elements of `{variable}` by their index, which an address read from a slot cannot have"
        ));
    }

    fn variable(&mut self, variable: &warpbpf_ptx::ast::Variable<'_>) {
        let name = variable.name;
        if OPAQUE_TYPES.contains(&variable.ty) || variable.space == "tex" {
            self.reason(format!(
                "it uses `{name}`, a {} that the application binds in its own module",
                variable.ty
            ));
            return;
        }
        match variable.space {
            "shared" | "local" => {}
            "const" => self.reason(format!(
                "it uses the constant `{name}`, and each module has a constant bank of its own"
            )),
            "global" if variable.linkage == Linkage::Extern => self.refuse(
                format!("it uses the variable `{name}`, which this module does not define"),
                "link the module before loading it",
            ),
            "global" => {}
            space => self.reason(format!("it uses `{name}` in the state space `.{space}`")),
        }
    }

    fn body(&mut self, body: &Body<'_, '_>) {
        let function = body.function.name;
        if !body.indirect_calls.is_empty() {
            self.reason(format!(
                "`{function}` calls through a pointer, and function pointers belong to one module"
            ));
        }
        for statement in &body.statements {
            if let StatementKind::Variable(variable) = &statement.kind
                && matches!(variable.space, "global" | "const")
            {
                self.refuse(
                    format!(
                        "`{function}` declares the `.{}` variable `{}` inside its body, of which a copy would be another",
                        variable.space, variable.name
                    ),
                    "declare it at module scope",
                );
            }
        }
    }

    fn directives(&mut self, module: &Module<'_>) {
        let known = [".section", ".alias", ".pragma", "@@", "#"];
        for span in &module.others {
            let text = &module.text[span.clone()];
            if !known.iter().any(|word| text.starts_with(word)) {
                let word = text.split_ascii_whitespace().next().unwrap_or(text);
                self.reason(format!(
                    "its module has a `{word}` directive that is not known"
                ));
            }
        }
    }

    fn verdict(self) -> Method {
        match self.refused {
            Some((reason, advice)) => Method::Refused { reason, advice },
            None if self.reasons.is_empty() => Method::Slice,
            None => Method::Clone {
                reasons: self.reasons,
            },
        }
    }
}

/// Functions that are reached through pointers and end the thread: where the kernel calls through a
/// pointer, its ways out cannot all be known.
pub(crate) fn exit_behind_pointer<'a>(
    symbols: &Symbols<'_, 'a>,
    closure: &Closure<'_, 'a>,
    kernel: &str,
) -> Result<Option<&'a str>, PatchError> {
    if closure.bodies.values().all(|b| b.indirect_calls.is_empty()) {
        return Ok(None);
    }
    let mut bodies = Vec::new();
    for function in symbols.module.functions.iter().filter(|f| f.body.is_some()) {
        bodies.push(Body::read(symbols, function, kernel)?);
    }
    let mut pending: Vec<&'a str> = Vec::new();
    for mention in bodies.iter().flat_map(|b| &b.mentions) {
        if let (Symbol::Function(function), false) = (mention.symbol, mention.is_call) {
            pending.push(function.name);
        }
    }
    for init in symbols.module.variables.iter().filter_map(|v| v.init) {
        let words = init.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '$')));
        pending.extend(words.filter_map(|w| symbols.function(w)).map(|f| f.name));
    }
    let mut seen = BTreeSet::new();
    while let Some(name) = pending.pop() {
        if !seen.insert(name) {
            continue;
        }
        for body in bodies.iter().filter(|b| b.function.name == name) {
            if !function_exits(body).is_empty() && !body.function.is_entry {
                return Ok(Some(name));
            }
            pending.extend(body.calls().map(|f| f.name));
        }
    }
    Ok(None)
}
