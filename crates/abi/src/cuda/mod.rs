//! The driver API as programs in sections `cuda/NAME` and `cudaret/NAME` see it: which symbols a name covers, where its
//! arguments are when it is called, and the context that a program gets.

mod ops;
mod table;

use alloc::vec::Vec;

pub use ops::{OPS, Op, OpKind, bytes_of, op_of, stream_of};
pub use table::SYMBOLS;

/// Arguments that a context has room for, which is as many as any function has.
pub const ARGS: usize = 16;

/// What an argument is. In a context each has 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An address of the host.
    Pointer,
    /// An address of the device.
    Device,
    /// Whatever the driver gave for a stream, a context, a function and so on.
    Handle,
    /// A number of bytes or of things.
    Size,
    /// Unsigned, or a small struct that is given in a register.
    U64,
    /// Unsigned.
    U32,
    /// Signed; constants too.
    I32,
    /// Unsigned.
    U16,
    /// Unsigned.
    U8,
    /// In a vector register, which programs do not see: 0.
    F32,
    /// A struct of 64 bytes on the stack; the context has its address.
    Block,
}

/// An exported symbol.
#[derive(Debug)]
pub struct Symbol {
    /// Without `_ptsz` and `_ptds`.
    pub name: &'static str,
    /// Arguments in order, by name.
    pub args: &'static [(&'static str, Kind)],
}

/// Where an argument is at the first instruction of a function, by the System V ABI for x86-64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the integer register of that number: `rdi`, `rsi`, `rdx`, `rcx`, `r8`, `r9`.
    Register(u8),
    /// In the word of that number above the return address.
    Stack(u16),
    /// Begins at that word.
    StackBlock(u16),
    /// Not where programs look.
    Vector,
}

/// Integer registers with arguments.
const REGISTERS: u8 = 6;
/// Words of a [`Kind::Block`].
const BLOCK_WORDS: u16 = 8;

impl Symbol {
    /// The function's name as people say it: without the version.
    pub fn api(&self) -> &'static str {
        match self.name.rsplit_once("_v") {
            Some((name, version))
                if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) =>
            {
                name
            }
            _ => self.name,
        }
    }

    /// `_v2` is 2, and a name without a version 1.
    fn version(&self) -> u32 {
        let digits = self.name.get(self.api().len() + 2..);
        digits.and_then(|digits| digits.parse().ok()).unwrap_or(1)
    }

    /// Where its arguments are.
    pub fn places(&self) -> Vec<Place> {
        let (mut registers, mut words) = (0, 0);
        let mut place = |kind: Kind| match kind {
            Kind::F32 => Place::Vector,
            Kind::Block => {
                let at = words;
                words += BLOCK_WORDS;
                Place::StackBlock(at)
            }
            _ if registers < REGISTERS => {
                registers += 1;
                Place::Register(registers - 1)
            }
            _ => {
                words += 1;
                Place::Stack(words - 1)
            }
        };
        self.args.iter().map(|(_, kind)| place(*kind)).collect()
    }
}

impl Kind {
    /// What of a register or a word of the stack is the argument; callers leave anything in the rest.
    pub const fn widen(self, raw: u64) -> u64 {
        match self {
            Kind::Pointer | Kind::Device | Kind::Handle | Kind::Size | Kind::U64 | Kind::Block => {
                raw
            }
            Kind::U32 => raw & 0xffff_ffff,
            Kind::I32 => raw as i32 as i64 as u64,
            Kind::U16 => raw & 0xffff,
            Kind::U8 => raw & 0xff,
            Kind::F32 => 0,
        }
    }

    /// Its type in a program.
    pub const fn c_type(self) -> &'static str {
        match self {
            Kind::I32 => "__s64",
            _ => "__u64",
        }
    }
}

/// A function of the driver API in all of its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    /// As people say it.
    pub name: &'static str,
    /// Arguments of the newest version, then those that only older ones have.
    pub args: Vec<(&'static str, Kind)>,
    /// Places of its symbols in [`SYMBOLS`], the newest version first.
    pub symbols: Vec<usize>,
}

/// All of them; the place of one is its number.
pub fn apis() -> Vec<Api> {
    let mut all: Vec<Api> = Vec::new();
    for (at, symbol) in SYMBOLS.iter().enumerate() {
        match all.iter_mut().find(|api| api.name == symbol.api()) {
            Some(api) => api.symbols.push(at),
            None => all.push(Api {
                name: symbol.api(),
                args: Vec::new(),
                symbols: [at].into(),
            }),
        }
    }
    for api in &mut all {
        api.symbols
            .sort_by_key(|at| core::cmp::Reverse(SYMBOLS[*at].version()));
        for (name, kind) in api.symbols.iter().flat_map(|at| SYMBOLS[*at].args) {
            if !api.args.iter().any(|(known, _)| known == name) {
                api.args.push((name, *kind));
            }
        }
    }
    all
}

/// Names that are most like one that there is not.
pub fn nearest(name: &str) -> Vec<&'static str> {
    let mut scored: Vec<(usize, &'static str)> = apis()
        .iter()
        .map(|api| {
            (
                distance(&name.to_lowercase(), &api.name.to_lowercase()),
                api.name,
            )
        })
        .collect();
    scored.sort_unstable();
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

/// How many letters must be put in, taken out or exchanged.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, have) in from.chars().enumerate() {
        let mut above_left = row[0];
        row[0] = line + 1;
        for (at, want) in to.iter().enumerate() {
            let exchanged = above_left + usize::from(have != *want);
            above_left = row[at + 1];
            row[at + 1] = exchanged.min(above_left + 1).min(row[at] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

/// The context of a program at a function of the driver API: a field's offset and bytes, and what it is. It begins with Linux's
/// `struct pt_regs` of x86-64, so what programs at functions do with that works here too.
#[derive(Debug)]
pub struct Field {
    /// Name in C.
    pub name: &'static str,
    /// Where.
    pub offset: usize,
    /// Bytes of one element.
    pub size: usize,
    /// How many elements.
    pub count: usize,
    /// For people.
    pub doc: &'static str,
}

macro_rules! fields {
    ($( $constant:ident = $name:literal $offset:literal $size:literal x $count:expr, $doc:literal; )*) => {
        $( #[doc = $doc] pub const $constant: usize = $offset; )*
        /// All fields of the context, in order and without gaps.
        pub static FIELDS: &[Field] = &[ $( Field { name: $name, offset: $offset, size: $size, count: $count, doc: $doc } ),* ];
    };
}

fields! {
    REGS = "regs" 0 8 x 21, "struct pt_regs of x86-64, for PT_REGS_PARM1 and its like; at the end of the function those that it returns with";
    API = "api" 168 4 x 1, "WBPF_API_NAME of this function";
    ARG_COUNT = "arg_count" 172 4 x 1, "how many arguments it has";
    RESULT = "result" 176 4 x 1, "the CUresult, in cudaret; 0 in cuda";
    PER_THREAD = "per_thread" 180 4 x 1, "1 if it was called by a name for which stream 0 is the thread's own (_ptsz, _ptds)";
    START = "start_ns" 184 8 x 1, "when it was called, by bpf_ktime_get_ns";
    DURATION = "duration_ns" 192 8 x 1, "how long the driver took, in cudaret; 0 in cuda";
    KERNEL = "kernel_id" 200 8 x 1, "the kernel that is launched, if programs are in it";
    LAUNCH = "launch_id" 208 8 x 1, "number of this launch among those of its kernel, the same that programs in it have; 0 if it launches none, or one without programs";
    ARGS_AT = "args" 216 8 x ARGS, "the arguments, as they were given: by name with WBPF_ARGS";
}

/// Bytes of the context.
pub const CONTEXT_BYTES: usize = ARGS_AT + 8 * ARGS;

/// It stands for any number of names, as `cuMemcpy*` does.
pub fn is_glob(name: &str) -> bool {
    name.contains(['*', '?'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(name: &str) -> Api {
        apis().into_iter().find(|api| api.name == name).unwrap()
    }

    #[test]
    fn symbols_are_unique_and_arguments_fit() {
        let mut names: Vec<&str> = SYMBOLS.iter().map(|symbol| symbol.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for api in apis() {
            assert!(api.args.len() <= ARGS, "{}", api.name);
            assert!(api.name.starts_with("cu") && !is_glob(api.name));
        }
        let mut end = 0;
        for field in FIELDS {
            assert_eq!(field.offset, end, "{}", field.name);
            end += field.size * field.count;
        }
        assert_eq!(end, CONTEXT_BYTES);
    }

    #[test]
    fn a_name_covers_its_versions() {
        let names = |of: &str| -> Vec<&str> {
            let symbols = api(of).symbols;
            symbols.iter().map(|at| SYMBOLS[*at].name).collect()
        };
        assert_eq!(
            names("cuMemcpyHtoDAsync"),
            ["cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync"]
        );
        assert_eq!(names("cuLaunchKernel"), ["cuLaunchKernel"]);
        assert_eq!(
            names("cuCtxCreate"),
            [
                "cuCtxCreate_v4",
                "cuCtxCreate_v3",
                "cuCtxCreate_v2",
                "cuCtxCreate"
            ]
        );
        let args: Vec<&str> = api("cuCtxCreate")
            .args
            .iter()
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(
            args,
            [
                "pctx",
                "ctxCreateParams",
                "flags",
                "dev",
                "paramsArray",
                "numParams"
            ]
        );
    }

    #[test]
    fn arguments_are_in_registers_then_on_the_stack() {
        let places = |name: &str| {
            let symbol = SYMBOLS.iter().find(|symbol| symbol.name == name);
            symbol.unwrap().places()
        };
        let launch = places("cuLaunchKernel");
        assert_eq!(launch.len(), 11);
        assert_eq!(launch[5], Place::Register(5));
        assert_eq!(launch[6], Place::Stack(0));
        assert_eq!(launch[10], Place::Stack(4));
        assert_eq!(
            places("cuIpcOpenMemHandle_v2"),
            [Place::Register(0), Place::StackBlock(0), Place::Register(1)]
        );
        assert_eq!(Kind::I32.widen(0xdead_beef_ffff_fffe), -2i64 as u64);
        assert_eq!(Kind::U32.widen(0xdead_beef_ffff_fffe), 0xffff_fffe);
        assert_eq!(Kind::U8.widen(0x1234), 0x34);
        assert_eq!(Kind::Handle.widen(u64::MAX), u64::MAX);
    }

    #[test]
    fn what_is_meant_is_found() {
        assert_eq!(nearest("cuMemCpyHtoDasync")[0], "cuMemcpyHtoDAsync");
        assert_eq!(nearest("cuLaunchKernels")[0], "cuLaunchKernel");
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
