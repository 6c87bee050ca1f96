//! A number to write into a section.

/// A number in an attribute list that becomes another one.
#[derive(Debug, Clone)]
pub(crate) struct Number {
    pub(crate) section: usize,
    pub(crate) offset: usize,
    /// Four bytes of it, or two.
    pub(crate) value: u32,
    pub(crate) bytes: usize,
}

impl Number {
    pub(crate) fn new(section: usize, offset: usize, value: u32) -> Number {
        Number {
            section,
            offset,
            value,
            bytes: 4,
        }
    }

    /// One of two bytes.
    pub(crate) fn half(section: usize, offset: usize, value: u32) -> Number {
        Number {
            bytes: 2,
            ..Number::new(section, offset, value)
        }
    }
}
