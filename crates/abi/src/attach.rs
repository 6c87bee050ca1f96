//! Where a program attaches: the kinds of sites and the scopes in which it fires.

/// A kind of site inside a kernel. Host-side kinds come with the host-side engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Site {
    /// The start of a kernel, before its first instruction.
    Entry,
    /// Every way out of a kernel: `ret`, `exit`, predicated or not, `exit` in device functions
    /// included.
    Exit,
    /// Each access to memory, see [`crate::access`].
    Mem,
    /// Each barrier and each wait of one, see [`crate::access::Barrier`].
    Barrier,
    /// The start of a device function (`.func`) that the kernel reaches.
    Func,
    /// Every `ret` of a device function.
    FuncRet,
    /// Instructions by opcode.
    Insn,
    /// The first instruction of each piece of code of a source line, by `.loc`.
    Line,
    /// Each branch with a condition.
    Branch,
}

/// All of them, in the order of the documentation.
pub const SITES: &[Site] = &[
    Site::Entry,
    Site::Exit,
    Site::Mem,
    Site::Barrier,
    Site::Func,
    Site::FuncRet,
    Site::Insn,
    Site::Line,
    Site::Branch,
];

impl Site {
    /// Its word in a section name: `gpu/<word>/…`.
    pub const fn word(self) -> &'static str {
        match self {
            Site::Entry => "entry",
            Site::Exit => "exit",
            Site::Mem => "mem",
            Site::Barrier => "barrier",
            Site::Func => "func",
            Site::FuncRet => "funcret",
            Site::Insn => "insn",
            Site::Line => "line",
            Site::Branch => "branch",
        }
    }
    /// In the middle of a kernel, where a thread may pass again and again.
    pub const fn is_in_middle(self) -> bool {
        !matches!(self, Site::Entry | Site::Exit)
    }
    /// Instructions that one invocation may execute, helpers counted at their table cost. What
    /// stands in the middle of a kernel runs much more often than what stands at its ends.
    pub const fn default_budget(self) -> u64 {
        match self {
            Site::Entry | Site::Exit => 4096,
            Site::Barrier | Site::Func | Site::FuncRet => 1024,
            Site::Mem | Site::Insn | Site::Line | Site::Branch => 256,
        }
    }
}

/// On which side of its instruction a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum When {
    /// Before it is executed: the default.
    #[default]
    Before,
    /// After it: a loaded value can be read, which makes the lane wait for it; a barrier's waiting
    /// time is known.
    After,
}

impl When {
    /// Its word: `|when=<word>`.
    pub const fn word(self) -> &'static str {
        match self {
            When::Before => "before",
            When::After => "after",
        }
    }
}

/// How often a program fires at its site.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Scope {
    /// In every thread.
    #[default]
    Thread,
    /// Once per group of lanes that arrives together, by its lowest active lane; at exit once per
    /// warp.
    Warp,
    /// Once per block: at entry by thread 0, at exit after the last warp has arrived. In the middle
    /// of a kernel, each time that thread 0 passes.
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
