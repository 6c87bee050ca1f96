//! Why a cubin is left as it is. Everything that is not understood ends here: a kernel without
//! probes is a loss, one that was edited wrongly is a wrong result in somebody's work.

use warpbpf_fatbin::CubinError;

/// A cubin whose file cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// Not a 64-bit little-endian ELF.
    #[error("not a 64-bit ELF")]
    NotElf,
    /// For another machine.
    #[error("ELF machine `{machine}` is not CUDA (`190`)")]
    Machine {
        /// `e_machine`.
        machine: u64,
    },
    /// Machine code that the table does not describe.
    #[error("machine code for `sm_{sm}` is not known here; `sm_80` and `sm_90` are")]
    Arch {
        /// Architecture number.
        sm: u32,
    },
    /// A table or section that does not fit in the file.
    #[error("its tables are damaged")]
    Tables,
    /// A section that cannot be made larger where it is.
    #[error("section `{section}` cannot grow: {reason}")]
    CannotGrow {
        /// Its name.
        section: String,
        /// What is in the way.
        reason: String,
    },
}

/// What a kernel has in common with others of its file, and would have for itself in a second copy
/// of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SharedData {
    /// Bank 3.
    #[error("it reads `__constant__` variables")]
    Constants,
    /// Bank 4.
    #[error("it uses variables of its module, or functions by their address")]
    Addresses,
    /// In the code.
    #[error("its code has relocations")]
    Relocations,
    /// Where its code would be.
    #[error("its code is in no section of its own, so what it shares is not known")]
    Unknown,
}

/// A kernel that got no probe. `at` is an offset in the kernel's code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The kernel's file.
    #[error("the cubin cannot be edited: {0}")]
    Elf(#[from] ElfError),
    /// The kernel's metadata.
    #[error("the cubin cannot be read: {0}")]
    Cubin(#[from] CubinError),
    /// The probe's file.
    #[error("the probe's cubin cannot be read: {0}")]
    ProbeElf(ElfError),
    /// No such kernel.
    #[error("the cubin has no kernel `{kernel}`")]
    NoKernel {
        /// Its name.
        kernel: String,
    },
    /// Nothing to put in.
    #[error("neither a probe for the entry nor one for the exits was given")]
    NoProbe,
    /// Two edits of one kernel in one pass.
    #[error("kernel `{kernel}` has probes by another edit already")]
    Twice {
        /// Its name.
        kernel: String,
    },
    /// The kernel's symbol and section do not cover the same bytes.
    #[error("kernel `{kernel}` does not fill its section `{section}`")]
    NotAlone {
        /// The kernel.
        kernel: String,
        /// The section.
        section: String,
    },
    /// A second form of the code that would no longer be the same.
    #[error("section `{section}` holds another form of the code, which would no longer fit")]
    OtherForm {
        /// The section.
        section: String,
    },
    /// An attribute list that ends inside an attribute.
    #[error("section `{section}` ends inside the attribute at offset `{offset:#x}`")]
    Attributes {
        /// The section.
        section: String,
        /// Offset in it.
        offset: usize,
    },
    /// An attribute that may speak of an instruction that is changed.
    #[error(
        "section `{section}` has the attribute `{attribute}`, whose meaning for an edit is not known"
    )]
    UnknownAttribute {
        /// The section.
        section: String,
        /// Name or number.
        attribute: String,
    },
    /// An attribute under which the code must stay as it is.
    #[error("the kernel has the attribute `{attribute}`, under which the driver edits it too")]
    RefusedAttribute {
        /// Its name.
        attribute: String,
    },
    /// An attribute names an instruction that would be replaced.
    #[error("attribute `{attribute}` names the instruction at `{at:#x}`, which would be replaced")]
    ListedPlace {
        /// Its name.
        attribute: String,
        /// The instruction.
        at: u64,
    },
    /// The list of exits names an instruction that ends no thread.
    #[error("the list of exits names `{at:#x}`, where no thread ends")]
    ListedExit {
        /// The instruction.
        at: u64,
    },
    /// An attribute that must be changed is not there.
    #[error("the kernel has no attribute `{attribute}`, which would have to be raised")]
    NoAttribute {
        /// Its name.
        attribute: &'static str,
    },
    /// The first instruction is not the one that every compiled kernel begins with.
    #[error("the kernel begins with `{word:#034x}` and not with the load of its stack pointer")]
    FirstInstruction {
        /// The instruction's bits.
        word: u128,
    },
    /// Something leads to the first instruction, which would run the probe again.
    #[error(
        "the instruction at `{at:#x}` leads to the kernel's first one, where a probe would run again"
    )]
    LeadsToEntry {
        /// Who leads there.
        at: u64,
    },
    /// Something leads out of the kernel's section.
    #[error("the instruction at `{at:#x}` leads out of the kernel's code")]
    LeadsOut {
        /// Who leads there.
        at: u64,
    },
    /// Indirect branches whose places are not listed.
    #[error("the instruction at `{at:#x}` branches to places that no attribute lists")]
    IndirectBranch {
        /// The branch.
        at: u64,
    },
    /// A place that the linker or loader fills in would be replaced.
    #[error("the loader writes to the instruction at `{at:#x}`, which would be replaced")]
    Relocated {
        /// The instruction.
        at: u64,
    },
    /// An exit of a form that is not known.
    #[error("the exit at `{at:#x}` (`{word:#034x}`) has modifiers that are not known")]
    ExitForm {
        /// The exit.
        at: u64,
        /// Its bits.
        word: u128,
    },
    /// Threads may end in other code.
    #[error("the kernel calls code in other sections, and threads end in `{section}`")]
    ExitsElsewhere {
        /// One of them.
        section: String,
    },
    /// Control flow that is not known.
    #[error(
        "the instruction at `{at:#x}` (opcode `{opcode:#05x}`) may end threads or leave the kernel in a way that is not known"
    )]
    ControlFlow {
        /// The instruction.
        at: u64,
        /// Its opcode.
        opcode: u16,
    },
    /// An instruction may still use registers when a probe at an exit changes them, and how to wait
    /// for it is not known.
    #[error(
        "nothing tells when the instruction at `{at:#x}` (opcode `{opcode:#05x}`) is done with its registers"
    )]
    Unprotected {
        /// The instruction.
        at: u64,
        /// Its opcode.
        opcode: u16,
    },
    /// All barriers are counted by somebody.
    #[error("all six barriers are counted by `DEPBAR`, none is free for stores")]
    NoBarrier,
    /// The kernel cannot have one more parameter, by what is said of those that it has.
    #[error("a launch cannot tell the kernel anything: {why}")]
    Parameters {
        /// What is not understood.
        why: &'static str,
    },
    /// Its own parameters leave no room for one more.
    #[error(
        "a launch cannot tell the kernel anything: it has `{bytes}` bytes of parameters, and with what a launch tells `{total}`, more than the `{limit}` that are served"
    )]
    ParametersFull {
        /// Of its own.
        bytes: u32,
        /// With the new one.
        total: u32,
        /// Most.
        limit: u32,
    },
    /// Too many registers for the largest block that may be launched.
    #[error(
        "with `{registers}` registers a block of `{threads}` threads does not fit; the kernel's launch bounds allow it"
    )]
    Registers {
        /// Per thread, with the probe.
        registers: u32,
        /// Threads.
        threads: u32,
    },
    /// The probe's cubin has no such function, or not one that was compiled for this.
    #[error(
        "the probe's cubin has no function `{function}` that was assembled with `--compile-as-tools-patch`"
    )]
    NotAProbe {
        /// Its name.
        function: String,
    },
    /// Probe and kernel are for different architectures.
    #[error("the probe is for another architecture than the kernel")]
    ProbeArch,
    /// More registers than the calling convention of probes has.
    #[error("the probe needs `{registers}` registers, more than the `24` that it may use")]
    ProbeRegisters {
        /// How many.
        registers: u32,
    },
    /// More stack than there is local memory.
    #[error("the probe needs `{bytes}` bytes of stack, and a thread has 524288 of local memory")]
    ProbeStack {
        /// How many.
        bytes: u32,
    },
    /// A relocation in the probe that is not understood.
    #[error(
        "function `{function}` of the probe has a relocation of type `{kind:#x}` to `{symbol}` at `{at:#x}`, which cannot be resolved here"
    )]
    ProbeRelocation {
        /// The function.
        function: String,
        /// Its type.
        kind: u32,
        /// What it refers to.
        symbol: String,
        /// Offset in the function.
        at: u64,
    },
    /// Lanes that end one after the other cannot wait for each other.
    #[error("lanes wait for each other in the probe, which is served at the entry only")]
    ProbeMeets,
    /// The probe calls itself.
    #[error("function `{function}` of the probe can call itself, so that its stack has no bound")]
    ProbeRecursion {
        /// The function.
        function: String,
    },
    /// An instruction that a probe may not have.
    #[error(
        "function `{function}` of the probe has at `{at:#x}` an instruction (opcode `{opcode:#05x}`) that a probe may not have: {why}"
    )]
    ProbeInstruction {
        /// The function.
        function: String,
        /// Offset in it.
        at: u64,
        /// Its opcode.
        opcode: u16,
        /// The rule.
        why: &'static str,
    },
    /// Registers are saved around a probe in a form that is known for one architecture.
    #[error("probes at accesses are for `sm_90` only, and the kernel is for `sm_{sm}`")]
    AccessArch {
        /// The kernel's.
        sm: u32,
    },
    /// Nothing to put a probe before.
    #[error("the kernel has no load or store of global memory")]
    NoAccess,
    /// An access whose address, size or guard is not surely known.
    #[error("the access at `{at:#x}` (`{word:#034x}`) is of a form that is not known")]
    AccessForm {
        /// The instruction.
        at: u64,
        /// Its bits.
        word: u128,
    },
    /// Code of other sections has accesses of its own.
    #[error("the kernel calls code in other sections, whose accesses would get no probe")]
    CallsOut,
    /// Functions that call themselves.
    #[error(
        "the call at `{at:#x}` may lead to its own function again, so how deep the stack is, is not known"
    )]
    Recursion {
        /// The call, or a branch that may lead to one.
        at: u64,
    },
    /// The stack pointer is not only moved by numbers.
    #[error(
        "the instruction at `{at:#x}` (opcode `{opcode:#05x}`) writes the stack pointer, below which registers would be saved"
    )]
    StackPointer {
        /// The instruction.
        at: u64,
        /// Its opcode.
        opcode: u16,
    },
    /// A probe's own memory would not be aligned.
    #[error(
        "the instruction at `{at:#x}` moves the stack by no multiple of `16`, and the probe has a stack"
    )]
    StackUneven {
        /// The instruction.
        at: u64,
    },
    /// Warps may have fewer registers than a probe needs.
    #[error("the instruction at `{at:#x}` changes how many registers a warp has")]
    RegistersChange {
        /// The instruction.
        at: u64,
    },
    /// Code that lanes run for each other.
    #[error("the access at `{at:#x}` is in code that the lanes of a warp run together")]
    Collective {
        /// The instruction.
        at: u64,
    },
    /// All convergence barriers are in use.
    #[error(
        "the probe needs `{needed}` convergence barriers, and the kernel leaves `{free}` unused"
    )]
    NoRegion {
        /// By probe and stub.
        needed: u32,
        /// By the kernel.
        free: u32,
    },
    /// Where a kernel is in the middle of its work the probe must leave more as it is than at its
    /// ends.
    #[error(
        "the probe's instruction `{index}` (opcode `{opcode:#05x}`) cannot stand at an access: {why}"
    )]
    ProbeAtAccess {
        /// Which of its instructions.
        index: usize,
        /// Its opcode.
        opcode: u16,
        /// The rule.
        why: &'static str,
    },
    /// What was made does not pass the check. This is a bug in this crate.
    #[error("the edited cubin does not pass its check ({0}); this is a bug in warpbpf")]
    Check(#[from] CheckError),
}

/// What the check of an edited cubin found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// It cannot be read again.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// A section or segment is not where it was, moved by what was added.
    #[error("`{0}` is not where it must be")]
    Layout(String),
    /// Bytes changed that must not.
    #[error("`{0}` was changed")]
    Changed(String),
    /// An original instruction is another one.
    #[error("the instruction at `{at:#x}` is another one: `{was:#034x}` became `{is:#034x}`")]
    Instruction {
        /// Offset in the kernel's code.
        at: u64,
        /// Its bits before.
        was: u128,
        /// And after.
        is: u128,
    },
    /// An added instruction that is not what it must be there.
    #[error("the added instruction at `{at:#x}` is not {expected}")]
    Added {
        /// Offset in the kernel's code.
        at: u64,
        /// What must stand there.
        expected: &'static str,
    },
    /// A way out of the kernel without the probe.
    #[error("threads can leave at `{at:#x}` without the probe")]
    ExitLeft {
        /// Offset in the kernel's code.
        at: u64,
    },
    /// Metadata that does not fit the code.
    #[error("`{what}` says `{found}`, expected `{expected}`")]
    Metadata {
        /// Which.
        what: &'static str,
        /// What it says.
        found: String,
        /// What it must say.
        expected: String,
    },
}
