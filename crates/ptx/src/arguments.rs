//! What the source calls a kernel's parameters, and of which types they are: PTX has only their
//! numbers and sizes, but modules compiled for debugging (`nvcc -G`, `clang -g`) say the rest in
//! `.debug_info`.

use std::collections::HashMap;

use crate::ast::{Module, Param};
use crate::dwarf::{Tree, tag};

pub use crate::dwarf::DebugInfoError;

/// A parameter as the source has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Argument {
    /// Its name; empty where debug information has none.
    pub name: String,
    /// Its type as C++ writes it, `const float *`; empty where it is not known.
    pub ty: String,
}

/// The parameters of all functions of a module. Read once, because that is the whole of its debug
/// information.
#[derive(Debug, Clone)]
pub struct Arguments<'m, 'a> {
    module: &'m Module<'a>,
    tree: Tree<'a>,
    /// The entries of a name that a linker sees, in text order.
    functions: HashMap<String, Vec<usize>>,
}

/// The parameters of one kernel or function, see [`Arguments::of`].
///
/// # Examples
/// ```
/// // Compiled without `-G`: nothing is known.
/// let text = ".version 8.3\n.target sm_90\n.address_size 64\n.entry k(.param .u64 p) { ret; }";
/// let module = warpbpf_ptx::index(text).unwrap();
/// assert_eq!(warpbpf_ptx::arguments::of(&module, "k"), []);
/// ```
pub fn of(module: &Module<'_>, kernel: &str) -> Vec<Argument> {
    Arguments::new(module).of(kernel)
}

impl<'m, 'a> Arguments<'m, 'a> {
    /// Reads the module's debug information, as far as it can be read: see [`Arguments::error`].
    pub fn new(module: &'m Module<'a>) -> Arguments<'m, 'a> {
        let tree = Tree::new(module);
        let mut functions: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, entry) in tree.entries.iter().enumerate() {
            if entry.tag == tag::FUNCTION
                && let Some(name) = tree.linkage_name(at)
            {
                functions.entry(name.to_owned()).or_default().push(at);
            }
        }
        Arguments {
            module,
            tree,
            functions,
        }
    }

    /// What stopped the reading. What stands before it is known all the same.
    pub fn error(&self) -> Option<&DebugInfoError> {
        self.tree.error.as_ref()
    }

    /// The parameters of the function that the module calls `kernel`: one for each of
    /// [`Function::params`](crate::ast::Function::params), in their order. Empty where debug
    /// information does not have the function, or has so many parameters for it that which is which
    /// cannot be said.
    pub fn of(&self, kernel: &str) -> Vec<Argument> {
        let function = self.module.function(kernel);
        let (Some(function), Some(entries)) = (function, self.functions.get(kernel)) else {
            return Vec::new();
        };
        // Beside its definition a function can have a declaration, whose parameters have no names,
        // and instances.
        let known = |found: &[Argument]| -> usize {
            let parts = found.iter().flat_map(|found| [&found.name, &found.ty]);
            parts.filter(|part| !part.is_empty()).count()
        };
        let found = entries
            .iter()
            .map(|&entry| self.parameters(entry, &function.params))
            .reduce(|best, next| {
                if known(&next) > known(&best) {
                    next
                } else {
                    best
                }
            });
        found.unwrap_or_default()
    }

    fn parameters(&self, entry: usize, params: &[Param<'_>]) -> Vec<Argument> {
        let formals: Vec<_> = self
            .tree
            .children(entry)
            .filter(|&at| self.tree.entries[at].tag == tag::PARAMETER)
            .collect();
        // nvcc says which parameter it is; others copy it to a register first, and only the order
        // is left.
        let mut places = vec![None; params.len()];
        let mut without = Vec::new();
        for (nth, &formal) in formals.iter().enumerate() {
            let symbol = self.tree.symbol(formal);
            match symbol.and_then(|name| params.iter().position(|param| param.name == name)) {
                Some(at) => places[at] = Some(formal),
                None => without.push((nth, formal)),
            }
        }
        if formals.len() == params.len() {
            for (nth, formal) in without {
                places[nth].get_or_insert(formal);
            }
        }
        if places.iter().all(Option::is_none) {
            return Vec::new();
        }
        let argument = |formal| Argument {
            name: self.tree.name(formal).unwrap_or("").to_owned(),
            ty: self.type_of(formal),
        };
        let arguments = places.into_iter();
        arguments
            .map(|formal| formal.map(argument).unwrap_or_default())
            .collect()
    }

    /// The type of a variable or parameter.
    fn type_of(&self, entry: usize) -> String {
        match self.tree.ty(entry) {
            Some(ty) => Declarations {
                tree: &self.tree,
                left: Declarations::LONGEST,
            }
            .declare(Some(ty), String::new()),
            None => String::new(),
        }
    }
}

/// Writes types as C++ declares them, around what is declared.
struct Declarations<'t, 'a> {
    tree: &'t Tree<'a>,
    /// Entries that may still be looked at: a broken type can name itself.
    left: usize,
}

impl Declarations<'_, '_> {
    const LONGEST: usize = 200;

    /// `inner` of type `ty`: `(*f)` of a function's is `int (*f)(float)`.
    fn declare(&mut self, ty: Option<usize>, inner: String) -> String {
        let Some(at) = ty else {
            return join("void", &inner);
        };
        if self.left == 0 {
            return join("…", &inner);
        }
        self.left -= 1;
        let target = self.tree.ty(at);
        match self.tree.entries[at].tag {
            tag::POINTER => self.points(target, "*", inner),
            tag::REFERENCE => self.points(target, "&", inner),
            tag::RVALUE_REFERENCE => self.points(target, "&&", inner),
            tag::POINTER_TO_MEMBER => {
                let class = self.tree.class(at).map(|class| self.qualified(class));
                let sign = format!("{}::*", class.unwrap_or_default());
                self.points(target, &sign, inner)
            }
            tag::CONST => self.qualify(target, "const", inner),
            tag::VOLATILE => self.qualify(target, "volatile", inner),
            tag::RESTRICT => self.qualify(target, "__restrict__", inner),
            tag::ATOMIC => self.qualify(target, "_Atomic", inner),
            tag::ARRAY => {
                let mut inner = inner;
                for dimension in self.tree.children(at) {
                    match self.tree.entries[dimension].count {
                        Some(count) => inner += &format!("[{count}]"),
                        None => inner += "[]",
                    }
                }
                self.declare(target, inner)
            }
            tag::SUBROUTINE => {
                // A member's object is written as its class.
                let parameters: Vec<_> = self
                    .tree
                    .children(at)
                    .filter(|&at| !self.tree.entries[at].artificial)
                    .collect();
                let mut types = Vec::new();
                for parameter in parameters {
                    if self.left == 0 {
                        break;
                    }
                    types.push(self.declare(self.tree.ty(parameter), String::new()));
                }
                self.declare(target, format!("{inner}({})", types.join(", ")))
            }
            _ => join(&self.qualified(at), &inner),
        }
    }

    fn points(&mut self, target: Option<usize>, sign: &str, inner: String) -> String {
        let inner = if inner.starts_with(|c: char| c.is_alphabetic()) && !sign.ends_with(['*', '&'])
        {
            format!("{sign} {inner}")
        } else {
            format!("{sign}{inner}")
        };
        // Arrays and functions bind closer than pointers.
        let binds = target
            .is_some_and(|at| matches!(self.tree.entries[at].tag, tag::ARRAY | tag::SUBROUTINE));
        self.declare(target, if binds { format!("({inner})") } else { inner })
    }

    /// In front of what is no pointer, behind the `*` of what is one.
    fn qualify(&mut self, target: Option<usize>, word: &str, inner: String) -> String {
        let pointer = target.is_some_and(|at| {
            matches!(
                self.tree.entries[at].tag,
                tag::POINTER | tag::REFERENCE | tag::RVALUE_REFERENCE | tag::POINTER_TO_MEMBER
            ) || self.is_qualified_pointer(at)
        });
        if pointer {
            self.declare(target, join(word, &inner))
        } else {
            format!("{word} {}", self.declare(target, inner))
        }
    }

    fn is_qualified_pointer(&self, at: usize) -> bool {
        let qualified = std::iter::successors(Some(at), |&at| {
            matches!(
                self.tree.entries[at].tag,
                tag::CONST | tag::VOLATILE | tag::RESTRICT | tag::ATOMIC
            )
            .then(|| self.tree.ty(at))?
        });
        let innermost = qualified.take(Declarations::LONGEST).last();
        innermost.is_some_and(|at| self.tree.entries[at].tag == tag::POINTER)
    }

    /// The name of a type with the namespaces and classes around it.
    fn qualified(&self, at: usize) -> String {
        let around = std::iter::successors(Some(at), |&at| self.tree.entries[at].parent);
        let mut parts: Vec<&str> = Vec::new();
        for at in around {
            let unnamed = match self.tree.entries[at].tag {
                tag::NAMESPACE => "(anonymous namespace)",
                tag::STRUCTURE => "(unnamed struct)",
                tag::CLASS => "(unnamed class)",
                tag::UNION => "(unnamed union)",
                tag::ENUMERATION => "(unnamed enum)",
                // A function's own types are known by their own name.
                _ if !parts.is_empty() => break,
                _ => "(unnamed)",
            };
            parts.push(self.tree.name(at).unwrap_or(unnamed));
        }
        // nvcc calls an enumeration of a namespace by its mangled name.
        if let [name] = parts.as_slice()
            && let Some(found) = nested(name)
        {
            parts = found;
        }
        parts.reverse();
        parts.join("::")
    }
}

/// The parts of `_ZN2ns5ColorE`, innermost first; `None` for a name with anything but names in it.
fn nested(mangled: &str) -> Option<Vec<&str>> {
    let mut rest = mangled.strip_prefix("_ZN")?.strip_suffix('E')?;
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let length: usize = rest[..digits].parse().ok()?;
        parts.push(
            rest[digits..]
                .get(..length)
                .filter(|part| !part.is_empty())?,
        );
        rest = &rest[digits + length..];
    }
    parts.reverse();
    Some(parts)
}

/// A blank between a type and what is declared, but none before an array's bracket.
fn join(ty: &str, inner: &str) -> String {
    if inner.is_empty() || inner.starts_with('[') {
        format!("{ty}{inner}")
    } else {
        format!("{ty} {inner}")
    }
}
