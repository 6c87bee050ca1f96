//! Where a program attaches: the kinds of sites and the scopes in which it fires.

/// A kind of site inside a kernel. Host-side kinds come with the host-side engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Site {
    /// The start of a kernel, before its first instruction.
    Entry,
    /// Every way out of a kernel: `ret`, `exit`, predicated or not, `exit` in device functions included.
    Exit,
}

impl Site {
    /// Its word in a section name: `gpu/<word>/…`.
    pub const fn word(self) -> &'static str {
        match self {
            Site::Entry => "entry",
            Site::Exit => "exit",
        }
    }
    /// Instructions that one invocation may execute, helpers counted at their table cost.
    pub const fn default_budget(self) -> u64 {
        match self {
            Site::Entry | Site::Exit => 4096,
        }
    }
}

/// How often a program fires at its site.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Scope {
    /// In every thread.
    #[default]
    Thread,
    /// Once per group of lanes that arrives together, by its lowest active lane; at exit once per warp.
    Warp,
    /// Once per block: at entry by thread 0, at exit after the last warp has arrived.
    Block,
}

impl Scope {
    /// Its word in a section name: `gpu/entry.<word>/…`.
    pub const fn word(self) -> &'static str {
        match self {
            Scope::Thread => "thread",
            Scope::Warp => "warp",
            Scope::Block => "block",
        }
    }
}
