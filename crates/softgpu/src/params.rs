//! How parameters of a kernel are laid out.

use warpbpf_ptx::ast::{self, Function};

/// A kernel parameter's place in the parameter block, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamInfo {
    /// From the start of the block.
    pub offset: usize,
    /// Its size.
    pub size: usize,
    /// Its alignment.
    pub align: usize,
}

/// The parameter block: each parameter at the next multiple of its alignment.
pub(crate) fn param_layout(function: &Function<'_>) -> Vec<ParamInfo> {
    let mut end = 0usize;
    let place = |param: &ast::Param<'_>| {
        let align = (param.align as usize).max(1);
        let size = param.size().unwrap_or(u64::MAX) as usize;
        let offset = end.checked_next_multiple_of(align).unwrap_or(usize::MAX);
        end = offset.saturating_add(size);
        ParamInfo {
            offset,
            size,
            align,
        }
    };
    function.params.iter().map(place).collect()
}
