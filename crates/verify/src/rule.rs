//! The rules, one variant each: what the message says, and what to do about it.

use thiserror::Error;
use warpbpf_ebpf::Pc;

/// The rule that a program broke.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[expect(
    missing_docs,
    reason = "the message above each variant says what its fields are; all are texts for it"
)]
#[non_exhaustive]
pub enum Rule {
    #[error("`{reg}` is read but holds nothing: {why}")]
    Uninitialised { reg: String, why: String },
    #[error("`r10` is the frame pointer and cannot be written")]
    FramePointerWritten,
    #[error("`{op}` on `{reg}`, which is {pointer}")]
    PointerArithmetic {
        op: &'static str,
        reg: String,
        pointer: String,
    },
    #[error("`{reg}` is used as an address but holds a number: {value}")]
    NotAPointer { reg: String, value: String },
    #[error("`{reg}` may be null here: it is {pointer}")]
    MaybeNull { reg: String, pointer: String },
    #[error("{access} at {place}, which has {size} bytes")]
    OutOfBounds {
        access: String,
        place: String,
        size: u64,
    },
    #[error("{access} at {place}: the address must be a multiple of {align}")]
    Misaligned {
        access: String,
        place: String,
        align: u32,
    },
    #[error("{access} at {place}: the byte at r10{byte:+} was never written")]
    StackUninitialised {
        access: String,
        place: String,
        byte: i64,
    },
    #[error("{access} at {place}: these bytes are part of the pointer stored at r10{at:+}")]
    PointerBytes {
        access: String,
        place: String,
        at: i64,
    },
    #[error("{access} at {place} is no field of `{context}`")]
    NoSuchField {
        access: String,
        place: String,
        context: &'static str,
        fields: String,
    },
    #[error("{access} at {place}: the context can only be read")]
    ContextWritten { access: String, place: String },
    #[error("{access} at {place}: a map itself has no bytes")]
    MapAccess { access: String, place: String },
    #[error("{access} at {place}: map `{map}` is read-only data")]
    ReadOnly {
        access: String,
        place: String,
        map: String,
    },
    #[error("{access} at {place}: map `{map}` is write-only for programs")]
    WriteOnly {
        access: String,
        place: String,
        map: String,
    },
    #[error("{access} at a key of map `{map}`: a callback may only read it")]
    KeyWritten { access: String, map: String },
    #[error("{access} at the number that an iterator gave: it may only be read")]
    NumberWritten { access: String },
    #[error("{access} at {place}: these bytes are part of the iterator made at instruction {slot}")]
    IteratorBytes {
        access: String,
        place: String,
        slot: u32,
    },
    #[error("{access} at {place}: these bytes are part of the dynptr made at instruction {slot}")]
    DynptrBytes {
        access: String,
        place: String,
        slot: u32,
    },
    #[error("the iterator made at instruction {slot} is not destroyed {how}")]
    IteratorHeld { slot: u32, how: &'static str },
    #[error("argument 1 of `{function}` must be {expected}; `r1` is {found}")]
    IteratorArgument {
        function: &'static str,
        expected: &'static str,
        found: String,
    },
    #[error("the callback returns {found}; it must return 0 to go on or 1 to stop")]
    CallbackResult { found: String },
    #[error("the pointer in `{reg}` ({pointer}) would be stored to {place}")]
    PointerStored {
        reg: String,
        pointer: String,
        place: String,
    },
    #[error("`{reg}` is {pointer}; only `==` and `!=` with 0 compare pointers")]
    PointerCompared { reg: String, pointer: String },
    #[error("`r0` is {pointer} at exit; a program returns a number")]
    PointerReturned { pointer: String },
    #[error("`r0` is a pointer into the stack of the function that returns")]
    StackReturned,
    #[error("helper {id} is not known")]
    UnknownHelper { id: u32, known: String },
    #[error("`bpf_{name}` of Linux (helper {id}) is not served")]
    LinuxHelper {
        id: u32,
        name: &'static str,
        advice: &'static str,
    },
    #[error("{what}")]
    Unresolved { what: String },
    #[error("`bpf_{helper}` can change what the application computes")]
    Modifies { helper: &'static str },
    #[error("argument {index} of `bpf_{helper}` must be {expected}; `{reg}` is {found}")]
    Argument {
        helper: &'static str,
        index: usize,
        reg: String,
        expected: String,
        found: String,
        advice: &'static str,
    },
    #[error(
        "argument {index} of `bpf_{helper}` points to {has} bytes, but a {what} of map `{map}` has {wants}"
    )]
    WrongSize {
        helper: &'static str,
        index: usize,
        what: &'static str,
        map: String,
        has: u64,
        wants: u64,
    },
    #[error(
        "argument {index} of `bpf_{helper}` has a gap that was never written: {bytes} bytes at r10{offset:+}{}",
        if caller.is_some() { " of a caller" } else { "" }
    )]
    Padding {
        helper: &'static str,
        index: usize,
        offset: i64,
        bytes: u64,
        /// The variable is one of the function that this instruction belongs to, which called the
        /// running one.
        caller: Option<Pc>,
    },
    #[error("argument {index} of `bpf_{helper}` must be {expected}: {problem}")]
    Memory {
        helper: &'static str,
        index: usize,
        expected: String,
        problem: Box<Rule>,
    },
    #[error("`bpf_{helper}` does not take map `{map}`, a map of type {map_type}")]
    WrongMapType {
        helper: &'static str,
        map: String,
        map_type: &'static str,
        expected: String,
    },
    #[error("`bpf_{helper}` does not take map `{map}`, which lies on the host")]
    MapOnHost { helper: &'static str, map: String },
    #[error("map `{map}` has type {number}, which is not served")]
    UnknownMapType {
        map: String,
        number: u32,
        served: String,
    },
    #[error("map `{map}` has Linux's type {name} ({number}), which is not served")]
    LinuxMapType {
        map: String,
        number: u32,
        name: &'static str,
        advice: &'static str,
    },
    #[error("map `{map}` of type {map_type} {problem}")]
    MapShape {
        map: String,
        map_type: &'static str,
        problem: String,
    },
    #[error("map {index} does not exist, the object has {count}")]
    NoSuchMap { index: u32, count: usize },
    #[error(
        "the record reserved at instruction {slot} in map `{map}` is neither submitted nor discarded {how}"
    )]
    RecordHeld {
        slot: u32,
        map: String,
        how: &'static str,
    },
    #[error("a record of {size} bytes does not fit into map `{map}`: at most {max}")]
    RecordTooLarge { size: u64, map: String, max: u64 },
    #[error(
        "`bpf_{helper}` passes {bytes} bytes of key and value of map `{map}` to a function of the device, which takes {limit} at most"
    )]
    ValueTooLarge {
        helper: &'static str,
        map: String,
        bytes: u64,
        limit: u64,
    },
    #[error("the constant string of `bpf_{helper}` has {bytes} bytes; at most {limit}")]
    TextTooLong {
        helper: &'static str,
        bytes: usize,
        limit: u64,
    },
    #[error("the format has {conversions} conversions; `bpf_{helper}` {takes}")]
    FormatArguments {
        helper: &'static str,
        conversions: usize,
        takes: String,
    },
    #[error("`{conversion}` in the format is not served")]
    FormatConversion { conversion: String },
    #[error(
        "the value of `{conversion}` in the format of `bpf_{helper}` must be a constant string (in `.rodata`); it is {found}"
    )]
    FormatMemory {
        helper: &'static str,
        conversion: String,
        found: String,
    },
    #[error("control falls off the end of the function")]
    FallsOff,
    #[error("the jump goes to instruction {target}, outside its function")]
    JumpsOut { target: u32 },
    #[error("a call to instruction {target}, where there is none")]
    CallsNowhere { target: u32 },
    #[error("`{function}` calls itself, directly or through others")]
    Recursion { function: String },
    #[error("calls are nested {depth} deep; at most 8")]
    TooManyFrames { depth: usize },
    #[error("this chain of calls uses {bytes} bytes of stack; at most 512")]
    StackTooDeep { bytes: u32 },
    #[error("inlining all calls gives more than {limit} instructions")]
    TooLarge { limit: usize },
    #[error("the loop may not end: nothing changes between two rounds of it")]
    MayNotEnd,
    #[error(
        "the loop may not end, or not soon: after {rounds} rounds the budget of {budget} instructions is used up"
    )]
    LoopBudget { rounds: u64, budget: u64 },
    #[error("one invocation may execute {cost} instructions on this path; the budget is {budget}")]
    Budget { cost: u64, budget: u64 },
    #[error(
        "`bpf_for_each_map_elem` looks at {slots} slots of map `{map}`, with which one invocation may execute {cost} instructions on this path; the budget is {budget}"
    )]
    WalkBudget {
        map: String,
        slots: u64,
        cost: u64,
        budget: u64,
    },
    #[error("the proof needs more than {limit} steps")]
    TooComplex { limit: u64 },
    #[error("{what} is not served")]
    Unsupported { what: String, advice: &'static str },
    #[error(
        "`bpf_{helper}` needs all lanes that arrived together, but the branch at instruction {branch} sends some of them another way"
    )]
    NotTogether { helper: &'static str, branch: u32 },
    #[error(
        "argument {index} of `bpf_{helper}` must be the same in all lanes; `{reg}` can differ between them"
    )]
    NotAlike {
        helper: &'static str,
        index: usize,
        reg: String,
    },
    #[error("{what} can differ between lanes of a warp, which `--strict-uniform` refuses")]
    Varies { what: &'static str },
    #[error("each thread of the block must call `bpf_{helper}` exactly once, {why}")]
    NotOnce {
        helper: &'static str,
        why: String,
        advice: &'static str,
    },
    #[error(
        "argument 2 of `bpf_{helper}` must be 8 bytes of the stack, because every thread of the block writes them; `{reg}` is {pointer}"
    )]
    TotalShared {
        helper: &'static str,
        reg: String,
        pointer: String,
    },
    #[error("this loop waits for {whom}: it ends only when {what} gives another answer")]
    Spin { whom: &'static str, what: String },
    #[error(
        "{what}: a lane that holds a lock waits for the lanes of its warp that wait for the lock"
    )]
    Lock { what: String },
    #[error("this instruction works on {first} on one path and on {second} on another")]
    Mixed { first: String, second: String },
    #[error("the instruction is malformed: {problem}")]
    Malformed { problem: &'static str },
}

impl Rule {
    /// A short name that does not change when the wording does, for tests and `--json`.
    pub fn name(&self) -> &'static str {
        match self {
            Rule::Uninitialised { .. } => "uninitialised",
            Rule::FramePointerWritten => "frame-pointer-written",
            Rule::PointerArithmetic { .. } => "pointer-arithmetic",
            Rule::NotAPointer { .. } => "not-a-pointer",
            Rule::MaybeNull { .. } => "maybe-null",
            Rule::OutOfBounds { .. } => "out-of-bounds",
            Rule::Misaligned { .. } => "misaligned",
            Rule::StackUninitialised { .. } => "stack-uninitialised",
            Rule::PointerBytes { .. } => "pointer-bytes",
            Rule::NoSuchField { .. } => "no-such-field",
            Rule::ContextWritten { .. } => "context-written",
            Rule::MapAccess { .. } => "map-access",
            Rule::ReadOnly { .. } => "read-only",
            Rule::WriteOnly { .. } => "write-only",
            Rule::KeyWritten { .. } => "key-written",
            Rule::NumberWritten { .. } => "number-written",
            Rule::IteratorBytes { .. } => "iterator-bytes",
            Rule::DynptrBytes { .. } => "dynptr-bytes",
            Rule::IteratorHeld { .. } => "iterator-held",
            Rule::IteratorArgument { .. } => "iterator-argument",
            Rule::CallbackResult { .. } => "callback-result",
            Rule::PointerStored { .. } => "pointer-stored",
            Rule::PointerCompared { .. } => "pointer-compared",
            Rule::PointerReturned { .. } => "pointer-returned",
            Rule::StackReturned => "stack-returned",
            Rule::UnknownHelper { .. } | Rule::LinuxHelper { .. } => "unknown-helper",
            Rule::Unresolved { .. } => "unresolved",
            Rule::Modifies { .. } => "modifies",
            Rule::Argument { .. } => "argument",
            Rule::WrongSize { .. } => "wrong-size",
            Rule::Padding { .. } => "padding",
            Rule::Memory { .. } => "argument-memory",
            Rule::WrongMapType { .. } => "wrong-map-type",
            Rule::MapOnHost { .. } => "map-on-host",
            Rule::UnknownMapType { .. } | Rule::LinuxMapType { .. } => "unknown-map-type",
            Rule::MapShape { .. } => "map-shape",
            Rule::NoSuchMap { .. } => "no-such-map",
            Rule::RecordHeld { .. } => "record-held",
            Rule::RecordTooLarge { .. } => "record-too-large",
            Rule::ValueTooLarge { .. } => "value-too-large",
            Rule::TextTooLong { .. } => "text-too-long",
            Rule::FormatArguments { .. } => "format-arguments",
            Rule::FormatConversion { .. } | Rule::FormatMemory { .. } => "format-conversion",
            Rule::FallsOff => "falls-off",
            Rule::JumpsOut { .. } => "jumps-out",
            Rule::CallsNowhere { .. } => "calls-nowhere",
            Rule::Recursion { .. } => "recursion",
            Rule::TooManyFrames { .. } => "too-many-frames",
            Rule::StackTooDeep { .. } => "stack-too-deep",
            Rule::TooLarge { .. } => "too-large",
            Rule::MayNotEnd => "may-not-end",
            Rule::LoopBudget { .. } => "loop-budget",
            Rule::Budget { .. } | Rule::WalkBudget { .. } => "budget",
            Rule::TooComplex { .. } => "too-complex",
            Rule::NotTogether { .. } => "not-together",
            Rule::NotAlike { .. } => "not-alike",
            Rule::Varies { .. } => "varies",
            Rule::NotOnce { .. } => "not-once",
            Rule::TotalShared { .. } => "total-shared",
            Rule::Spin { .. } => "spin",
            Rule::Lock { .. } => "lock",
            Rule::Unsupported { .. } => "unsupported",
            Rule::Mixed { .. } => "mixed",
            Rule::Malformed { .. } => "malformed",
        }
    }

    /// A bound of the loop may help.
    pub(crate) fn is_about_a_loop(&self) -> bool {
        matches!(
            self,
            Rule::LoopBudget { .. } | Rule::MayNotEnd | Rule::TooComplex { .. }
        )
    }

    /// What to change.
    pub fn help(&self) -> String {
        let text = match self {
            Rule::Uninitialised { .. } => "set it on every path that leads here",
            Rule::FramePointerWritten => "copy `r10` to another register and change that",
            Rule::PointerArithmetic { .. } => {
                "only 64-bit `+=` and `-=` of a number work on a pointer that is not null"
            }
            Rule::NotAPointer { .. } => {
                "application memory cannot be read directly: copy it with `bpf_probe_read_user(&x, sizeof x, address)`; pointers to use are those from `r1`, `r10`, maps and helpers"
            }
            Rule::MaybeNull { .. } => "compare it with NULL first and use it only where it is not",
            Rule::OutOfBounds { .. } => {
                "check the offset against the size before the access, on this path"
            }
            Rule::Misaligned { .. } => {
                "align the field: atomics, ordered accesses and stored pointers cannot be split"
            }
            Rule::Padding { .. } | Rule::StackUninitialised { .. } => {
                "initialise the variable, padding included (`= {}`)"
            }
            Rule::PointerBytes { .. } => "read a stored pointer whole, as 8 bytes",
            Rule::NoSuchField { fields, .. } if fields.is_empty() => "there is no field here",
            Rule::NoSuchField { fields, .. } => return format!("read a whole field: {fields}"),
            Rule::ContextWritten { .. } => "copy the field to a variable and change that",
            Rule::MapAccess { .. } => "get a value with `bpf_map_lookup_elem`",
            Rule::ReadOnly { .. } => {
                "make the variable non-const, so that it is in `.data` or `.bss`"
            }
            Rule::NumberWritten { .. } => "copy the number to a variable and change that",
            Rule::IteratorBytes { .. } => {
                "use an iterator only with `bpf_iter_num_next` and `bpf_iter_num_destroy`"
            }
            Rule::DynptrBytes { .. } => {
                "use a dynptr only with helpers; what it stands for is read by `bpf_dynptr_data` or `bpf_dynptr_read`"
            }
            Rule::IteratorHeld { .. } => {
                "call `bpf_iter_num_destroy` on every path, or use `bpf_for`"
            }
            Rule::IteratorArgument { .. } => {
                "an iterator is 8 bytes of the stack at a multiple of 8; make it once before its use"
            }
            Rule::CallbackResult { .. } => "return 0 or 1 on every path of the callback",
            Rule::WriteOnly { .. } => "remove `BPF_F_WRONLY_PROG` from the map's flags",
            Rule::KeyWritten { .. } => "copy the key to the stack and change that",
            Rule::PointerStored { .. } => {
                "store a number: pointers mean nothing outside this invocation"
            }
            Rule::PointerCompared { .. } => "compare offsets or indices instead",
            Rule::PointerReturned { .. } => "return 0",
            Rule::StackReturned => "return a number, or let the caller pass the buffer",
            Rule::UnknownHelper { known, .. } => return format!("these are served: {known}"),
            Rule::LinuxHelper { advice, .. } => advice,
            Rule::Unresolved { .. } => {
                "ask first whether it exists: `bpf_core_field_exists`, `bpf_core_type_exists`, `bpf_core_enum_value_exists`, `bpf_ksym_exists`"
            }
            Rule::Modifies { .. } => "pass --allow-modify if that is wanted",
            Rule::Argument { advice, .. } => advice,
            Rule::WrongSize { what, wants, .. } => {
                return format!(
                    "pass a variable of the type that the map is defined with for its {what} ({wants} bytes)"
                );
            }
            Rule::Memory { problem, .. } => return problem.help(),
            Rule::WrongMapType { expected, .. } => return format!("it takes {expected}"),
            Rule::MapOnHost { .. } => {
                "the host is asked for one key at a time: leave the map on the device, or walk over it on the host"
            }
            Rule::LinuxMapType { advice, .. } => advice,
            Rule::UnknownMapType { served, .. } => return format!("these are served: {served}"),
            Rule::MapShape { .. } => "correct the map's definition",
            Rule::NoSuchMap { .. } => "the code was not relocated against this list of maps",
            Rule::RecordHeld { .. } => {
                "call `bpf_ringbuf_submit` or `bpf_ringbuf_discard` on every path on which the record is not null; of a dynptr their `_dynptr` forms, on every path"
            }
            Rule::RecordTooLarge { .. } => "make the record smaller or `max_entries` larger",
            Rule::ValueTooLarge { .. } => {
                "use a smaller key or value; or keep large values in an array, and their indices in this map"
            }
            Rule::TextTooLong { .. } => {
                "it becomes part of the code: make it shorter, or use several calls"
            }
            Rule::FormatArguments { .. } => {
                "give each conversion a value, or split the message; `bpf_printk` with more than 3 values becomes `bpf_trace_vprintk`, which takes 12"
            }
            Rule::FormatMemory { .. } => {
                "the host makes the text when the program has gone on: format other strings with `bpf_snprintf` and send them through a ring"
            }
            Rule::FormatConversion { .. } => {
                "use %d, %i, %u, %x, %X or %o with hh, h, l, ll or z, %p, %c or %s; flags and a width, no precision"
            }
            Rule::FallsOff => "end every path with `exit`",
            Rule::JumpsOut { .. } => "jump inside the function, or call the other one",
            Rule::CallsNowhere { .. } => "the call's offset is wrong",
            Rule::Recursion { .. } => "use a loop with a constant bound",
            Rule::TooManyFrames { .. } | Rule::TooLarge { .. } => {
                "merge functions or call fewer of them"
            }
            Rule::StackTooDeep { .. } => "use smaller buffers, or a per-thread map for them",
            Rule::MayNotEnd => "give the loop a constant bound that the program counts up to",
            Rule::LoopBudget { .. } => {
                "give the loop a constant bound that the program counts up to, beside one that a map holds (`k < 32 && k < n`); where it ends later than this budget, raise that (`--budget N`); or have it ended when it runs, which is counted (`--bound-loops`; not in functions that are called, but in those that are `__always_inline`)"
            }
            Rule::Budget { .. } => {
                "do less per invocation, attach with a wider scope, or raise the budget (`--budget N`); an array that is keyed by a small number such as `ctx->site` costs a tenth of a hash"
            }
            Rule::WalkBudget { .. } => {
                "raise the budget (`--budget N`), or make the map smaller: it has at least 2 slots for each of `max_entries`, and a hash at least 256"
            }
            Rule::TooComplex { .. } => "give loops smaller bounds, or fewer branches inside them",
            Rule::NotTogether { .. } => {
                "make the call before the branch, with a value that changes nothing where it is not wanted (`wanted ? x : 0`), or branch on what all lanes share (`block_idx`, `warp`, a constant)"
            }
            Rule::NotAlike { .. } => {
                "pass a constant, or what all lanes share (`block_idx`, `warp`, `kernel_id`)"
            }
            Rule::Varies { .. } => {
                "use what all lanes share (`block_idx`, `warp`, a constant), or attach with a wider scope; without `--strict-uniform` it is allowed and safe"
            }
            Rule::NotOnce { advice, .. } => advice,
            Rule::TotalShared { .. } => {
                "let it write a local variable, and store that where the helper returned 1"
            }
            Rule::Spin { .. } => {
                "look once and go on: count with atomics, hand data to the host through a ring, and let the host do what must wait"
            }
            Rule::Lock { .. } => {
                "use `__sync_fetch_and_add` and its like, or a value per thread (map type 1502)"
            }
            Rule::Unsupported { advice, .. } => advice,
            Rule::Mixed { .. } => "duplicate the instruction: do the access inside each branch",
            Rule::Malformed { .. } => "assemble it again with a known assembler",
        };
        text.to_owned()
    }
}
