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
    /// A device; programs do not know it, and the tool fills it in.
    Device,
}

impl Type {
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
            Type::Device => "a device",
        }
    }
}
