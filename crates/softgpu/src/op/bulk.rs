//! Bulk copies: `cp.async.bulk`, `cp.reduce.async.bulk` and those of tensors.

use super::operand::{Address, AtomicOp, Row, Space, Type};

/// A bulk copy.
#[derive(Debug)]
pub(crate) enum Bulk {
    Range(RangeCopy),
    Tensor(TensorCopy),
}

/// A place in memory, and how its address counts.
pub(crate) type Place = (Space, Address);

/// A copy of, or reduction by, bytes in a row.
#[derive(Debug)]
pub(crate) struct RangeCopy {
    pub to: Place,
    pub from: Place,
    pub bytes: Row,
    pub barrier: Option<Place>,
    /// Blocks of the cluster that get the bytes, `NOWHERE` if it is the one of the address.
    pub multicast: Row,
    pub reduce: Option<Reduction>,
}

/// What becomes of what is there already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reduction {
    pub op: AtomicOp,
    pub ty: Type,
    /// f32 subnormals count as zeroes.
    pub flush: bool,
}

/// Where to and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the tensor to shared memory.
    Load,
    /// From shared memory to the tensor.
    Store,
    /// Into the tensor by this operation.
    Reduce(AtomicOp),
}

/// `cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor`
#[derive(Debug)]
pub(crate) struct TensorCopy {
    pub direction: Direction,
    pub map: Place,
    /// Innermost first.
    pub coordinates: Box<[Row]>,
    pub im2col: bool,
    /// Of im2col: the place in the filter, from the second dimension on.
    pub offsets: Box<[Row]>,
    pub shared: Place,
    pub barrier: Option<Place>,
    pub multicast: Row,
}
