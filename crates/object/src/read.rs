//! A cursor over little-endian bytes that reports where they ran out.

use crate::btf_types::BtfError;

pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Reader<'a> {
        Reader { bytes, at: 0, what }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Bytes that were read.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], BtfError> {
        let truncated = BtfError::Truncated {
            at: self.at,
            what: self.what,
        };
        let end = self.at.checked_add(len).ok_or(truncated.clone())?;
        let bytes = self.bytes.get(self.at..end).ok_or(truncated)?;
        self.at = end;
        Ok(bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, BtfError> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, BtfError> {
        let b = self.take(2)?;
        Ok(u16::from_le_bytes([b[0], b[1]]))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, BtfError> {
        let b = self.take(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }
}
