//! What can be wrong with a map's definition, and with an access from the host.

use warpbpf_abi::maps::{E2BIG, EBUSY, EEXIST, EINVAL, EIO, ENOENT};

/// A definition that cannot be served. The author of the program is at fault.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MapError {
    /// A map type without an implementation.
    #[error("map `{map}`: type {number} is not served; served are {served}")]
    UnknownType {
        /// Map name.
        map: String,
        /// Its type number.
        number: u32,
        /// The types that exist, `name (number)`.
        served: String,
    },
    /// A map type of Linux without an implementation.
    #[error("map `{map}`: Linux's type {name} ({number}) is not served: {advice}")]
    LinuxType {
        /// Map name.
        map: String,
        /// Its type number.
        number: u32,
        /// Its type.
        name: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
    /// A size that must not be zero.
    #[error("map `{map}`: `{what}` is 0 but type {map_type} needs at least 1")]
    Zero {
        /// Map name.
        map: String,
        /// Attribute.
        what: &'static str,
        /// Type name.
        map_type: &'static str,
    },
    /// A key size the type does not allow.
    #[error("map `{map}`: `key_size` is {found} but type {map_type} needs {wanted}")]
    KeySize {
        /// Map name.
        map: String,
        /// Type name.
        map_type: &'static str,
        /// As declared, in bytes.
        found: u32,
        /// What it must be.
        wanted: &'static str,
    },
    /// More than one map may take of the device.
    #[error(
        "map `{map}`: {what} would take {bytes} bytes of device memory, more than the limit of {limit}; {advice}"
    )]
    TooLarge {
        /// Map name.
        map: String,
        /// The product that is too large, in words.
        what: String,
        /// Bytes needed.
        bytes: u128,
        /// Bytes allowed.
        limit: u64,
        /// What to change.
        advice: &'static str,
    },
    /// Flags with no meaning here.
    #[error(
        "map `{map}`: flags {bits:#x} are not served for type {map_type}; remove them from `map_flags`"
    )]
    Flags {
        /// Map name.
        map: String,
        /// Type name.
        map_type: &'static str,
        /// The bits that are not understood.
        bits: u32,
    },
    /// An attribute with no meaning here.
    #[error(
        "map `{map}`: attribute `{attribute}` = {value} is not served for type {map_type}; remove it"
    )]
    Attribute {
        /// Map name.
        map: String,
        /// Type name.
        map_type: &'static str,
        /// Attribute name.
        attribute: String,
        /// Its value.
        value: u64,
    },
    /// A map of maps or a program array in disguise.
    #[error(
        "map `{map}`: initial entries and inner maps are not served for type {map_type}; fill the map after loading"
    )]
    Initial {
        /// Map name.
        map: String,
        /// Type name.
        map_type: &'static str,
    },
    /// Sizes that an array of events does not have.
    #[error("map `{map}`: `{what}` is {found} but type {map_type} needs 4, or none")]
    EventSize {
        /// Map name.
        map: String,
        /// Type name.
        map_type: &'static str,
        /// Attribute.
        what: &'static str,
        /// As declared, in bytes.
        found: u32,
    },
    /// A map of maps that cannot be made.
    #[error("map `{map}`: {problem}")]
    Inner {
        /// Map name.
        map: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A map in a map of maps that is not like the others.
    #[error(
        "map `{map}` cannot be in `{outer}`: its `{what}` is {found} but `{outer}` declares {wanted}; make them equal"
    )]
    InnerMismatch {
        /// The map of maps.
        outer: String,
        /// The map in it.
        map: String,
        /// Attribute.
        what: &'static str,
        /// As `outer` declares.
        wanted: u64,
        /// As the map has it.
        found: u64,
    },
    /// A type that cannot be forced to the host.
    #[error(
        "map `{map}` cannot be placed on the host: it is a {map_type}, possible are {possible}; leave it on the device"
    )]
    Host {
        /// Map name.
        map: String,
        /// Type name.
        map_type: &'static str,
        /// Names of the types that can.
        possible: String,
    },
    /// `map_extra` of a bloom filter asks for too many hash functions.
    #[error(
        "map `{map}`: `map_extra` is {found} but a bloom filter has 1 to {most} hash functions there, or 0 for 5"
    )]
    Hashes {
        /// Map name.
        map: String,
        /// As declared.
        found: u64,
        /// The most there can be.
        most: u32,
    },
    /// A ring whose writers would wait too long.
    #[error(
        "map `{map}`: `map_extra` of a {map_type} is how many microseconds a writer waits for room, at most {most}, not {found}"
    )]
    Wait {
        /// Map name.
        map: String,
        /// Its type.
        map_type: &'static str,
        /// As declared.
        found: u64,
        /// Longest wait.
        most: u32,
    },
    /// A data section whose image and size differ: a bug of the loader, not of the program.
    #[error("map `{map}`: the image has {image} bytes but the value has {value_size}")]
    Image {
        /// Map name.
        map: String,
        /// Bytes of the image.
        image: usize,
        /// Declared value size.
        value_size: u32,
    },
}

/// A host access that cannot be done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AccessError {
    /// The snapshot is not of this map: the caller's bug.
    #[error("map `{map}`: the snapshot has {found} bytes but the layout has {expected}")]
    Snapshot {
        /// Map name.
        map: String,
        /// Bytes of the layout.
        expected: u64,
        /// Bytes given.
        found: u64,
    },
    /// The snapshot holds what no map of this layout can: the application wrote into it.
    #[error("map `{map}`: {why}")]
    Corrupt {
        /// Map name.
        map: String,
        /// What cannot be.
        why: String,
    },
    /// Key of another size.
    #[error("map `{map}`: the key has {found} bytes but `key_size` is {expected}")]
    Key {
        /// Map name.
        map: String,
        /// `key_size`.
        expected: u32,
        /// Bytes given.
        found: usize,
    },
    /// Value of another size.
    #[error("map `{map}`: the value has {found} bytes but {expected} are needed")]
    Value {
        /// Map name.
        map: String,
        /// Bytes needed.
        expected: u64,
        /// Bytes given.
        found: usize,
    },
    /// A key beyond the end of an array.
    #[error("map `{map}`: the key is not below `max_entries`, {max_entries}")]
    Outside {
        /// Map name.
        map: String,
        /// Entries.
        max_entries: u32,
    },
    /// One key more than a hash holds, or a value or record for which there is no place.
    #[error("map `{map}`: no room: {why}")]
    Full {
        /// Map name.
        map: String,
        /// What is full.
        why: String,
    },
    /// `BPF_NOEXIST` on a key that is there.
    #[error("map `{map}`: the key exists")]
    Exists {
        /// Map name.
        map: String,
    },
    /// `BPF_EXIST`, or a delete, of a key that is not there.
    #[error("map `{map}`: no such key")]
    Missing {
        /// Map name.
        map: String,
    },
    /// A pop of an empty queue or stack.
    #[error("map `{map}`: it is empty")]
    Empty {
        /// Map name.
        map: String,
    },
    /// More keys meet in one stretch of slots than a bounded probe reaches.
    #[error("map `{map}`: more than {probes} keys collide; raise `max_entries`")]
    Busy {
        /// Map name.
        map: String,
        /// Slots that a probe visits.
        probes: u32,
    },
    /// The operation or flag does not exist for this type.
    #[error("map `{map}`: {what} is not possible on type {map_type}")]
    Unsupported {
        /// Map name.
        map: String,
        /// Type name.
        map_type: &'static str,
        /// The operation.
        what: String,
    },
}

impl AccessError {
    /// The negative errno that Linux gives for the same.
    pub fn errno(&self) -> i64 {
        match self {
            AccessError::Snapshot { .. }
            | AccessError::Key { .. }
            | AccessError::Value { .. }
            | AccessError::Unsupported { .. } => EINVAL,
            AccessError::Corrupt { .. } => EIO,
            AccessError::Full { .. } | AccessError::Outside { .. } => E2BIG,
            AccessError::Exists { .. } => EEXIST,
            AccessError::Missing { .. } | AccessError::Empty { .. } => ENOENT,
            AccessError::Busy { .. } => EBUSY,
        }
    }
}
