//! Fills of rows of elements.

/// `CUDA_MEMSET_NODE_PARAMS`: rows of elements.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillParams {
    /// First byte.
    pub address: u64,
    /// Bytes from row to row; unused where there is one.
    pub pitch: usize,
    /// Its low bytes are an element.
    pub value: u32,
    /// Bytes of an element.
    pub element: u32,
    /// Elements of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// A fill that was checked.
#[derive(Clone, Copy)]
pub(crate) struct Fill {
    pub params: FillParams,
}

impl Fill {
    pub(crate) fn is_empty(&self) -> bool {
        self.params.width == 0 || self.params.height == 0
    }
}
