//! Linux's clocks, as programs name them.

/// A clock of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Linux's")]
pub enum Clock {
    Monotonic,
    Boot,
    Tai,
}
