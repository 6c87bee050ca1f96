//! What a session works with on its machine, beside what the user chose.

use std::sync::Arc;

use warpbpf_sanitizer::Sanitizer;

use crate::code_cache::CodeCache;
use crate::plan::assembled::Assembled;

/// What the process and its tool have brought. By default nothing: programs go into PTX.
#[derive(Debug, Clone, Default)]
pub struct Means {
    /// Kernels of which there is only machine code get probes there, by these functions.
    pub assembled: Option<Arc<Assembled>>,
    /// Those are called by Compute Sanitizer, which was told of before the first context, and not
    /// out of the kernels' files.
    pub sanitizer: Option<&'static Sanitizer>,
    /// Where compiled code is kept from one process to the next.
    pub cache: Option<Arc<CodeCache>>,
    /// The application's calls of NVTX come to the agent, whether programs want them or not: such
    /// may come that do.
    pub nvtx_comes_to_us: bool,
}
