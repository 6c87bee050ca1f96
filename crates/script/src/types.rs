//! What values are.

/// What a number means. All values have 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Type {
    /// A signed number.
    Number,
    /// A kernel, by its number.
    Kernel,
    /// A place in a kernel, by its number.
    Site,
    /// The source file of a place, by the number of the place.
    File,
    /// What an access does (`abi::access::Kind`).
    Access,
    /// A state space (`abi::access::Space`).
    Space,
    /// A barrier (`abi::access::Barrier`).
    Barrier,
    /// A string of the script, by its index.
    Text,
    /// A function of the driver API (`abi::cuda`).
    Api,
    /// Text that a program has read, in so many words of 8 bytes, with zeros behind it.
    Str(u8),
    /// A device; programs do not know it, and the tool fills it in.
    Device,
}

impl Type {
    /// Words of 8 bytes that a value has.
    pub const fn words(self) -> usize {
        match self {
            Type::Str(words) => words as usize,
            _ => 1,
        }
    }

    /// For messages.
    pub const fn name(self) -> &'static str {
        match self {
            Type::Number => "a number",
            Type::Kernel => "a kernel",
            Type::Site => "a place in a kernel",
            Type::File => "a source file",
            Type::Access => "a kind of access",
            Type::Space => "a state space",
            Type::Barrier => "a kind of barrier",
            Type::Text => "a string",
            Type::Api => "a function of the driver",
            Type::Str(_) => "text that is read",
            Type::Device => "a device",
        }
    }
}

/// Text up to its NUL.
pub fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}
