//! What is read out of a map: entries, values, counts.

/// What a key stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// One value; of a summed array, the sum.
    One(Vec<u8>),
    /// One per multiprocessor, in their order.
    PerSm(Vec<Vec<u8>>),
    /// The values that are not all zero: linear global thread, value.
    PerThread(Vec<(u64, Vec<u8>)>),
}

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Key bytes.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Value,
}

/// What the device counted about a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Updates refused because the map was full.
    pub full: u64,
    /// Operations given up because a bounded retry ran out.
    pub busy: u64,
    /// Lookups by threads that have no value.
    pub refused: u64,
    /// Calls to the host that ran out of time.
    pub timed_out: u64,
    /// Drainers of a user ring that ended or were stopped while they drained: another one went on.
    pub taken_over: u64,
    /// Times that a user ring held what no producer writes: what it held was skipped.
    pub broken: u64,
}
