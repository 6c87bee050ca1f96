//! What a device has at most.

/// Local memory per thread: what CUDA allows at most.
pub(crate) const MAX_LOCAL: u32 = 512 << 10;

/// Threads per block that a kernel can have at most.
pub const MAX_THREADS_PER_BLOCK: u32 = 1024;
/// Threads that can be resident on an SM.
pub const MAX_THREADS_PER_SM: u32 = 2048;
/// Blocks that can be resident on an SM.
pub const MAX_BLOCKS_PER_SM: u32 = 32;
/// Bytes of shared memory per SM; a block can have 1 KiB less.
pub const SHARED_PER_SM: u32 = 228 << 10;

/// Bytes of shared memory per block, static and dynamic together.
pub const MAX_SHARED_PER_BLOCK: u32 = 227 << 10;
/// Bytes that system software has at the start of each block's shared memory, before what the
/// kernel declares (PTX ISA, "%reserved_smem_offset_begin"). Cooperative groups keep barriers
/// there.
pub const RESERVED_SHARED: u32 = 1 << 10;
/// Bytes of parameters that a kernel can have.
pub const MAX_PARAM_BYTES: usize = 32_764;
