//! An exported symbol of the driver: its arguments by name and kind, and where each is when it is
//! called.

use alloc::vec::Vec;

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
    pub(super) fn version(&self) -> u32 {
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
    /// What of a register or a word of the stack is the argument; callers leave anything in the
    /// rest.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::SYMBOLS;

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
}
