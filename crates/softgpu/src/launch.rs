//! Launches: what they are asked with, and how they end.

use crate::limits::MAX_THREADS_PER_BLOCK;
use crate::load_error::LoadError;
use crate::module::Kernel;
use crate::trap::Trap;

/// Takes what a kernel printed.
pub type Print<'a> = &'a mut (dyn FnMut(&[u8]) + 'a);

/// A kernel launch.
pub struct Launch<'a> {
    /// What to run; of a module of the same `Gpu`.
    pub kernel: &'a Kernel,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads per block.
    pub block: [u32; 3],
    /// Blocks per cluster, `[1, 1, 1]` for what the kernel requires, if anything.
    pub cluster: [u32; 3],
    /// Bytes of dynamic shared memory per block.
    pub dynamic_shared: u32,
    /// Parameters, laid out as `KernelInfo::params` says.
    pub params: &'a [u8],
    /// `%gridid`.
    pub grid_id: u64,
    /// Gets what the kernel printed, block by block, after the last block is done.
    pub stdout: Option<Print<'a>>,
}

/// How a launch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Every thread exited.
    Done {
        /// Warp instructions executed.
        steps: u64,
    },
    /// A thread did what it must not. With several host threads, the trap of the lowest block that
    /// was seen.
    Trapped(Box<Trap>),
}

/// A launch that could not be started or was given up. The caller's fault, not the guest's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// Grid, block or cluster size out of range.
    #[error("kernel `{kernel}` cannot be launched: {reason}")]
    Geometry {
        /// Mangled kernel name.
        kernel: String,
        /// Which size is wrong and why.
        reason: String,
    },
    /// More shared memory than a block can have.
    #[error(
        "kernel `{kernel}` needs `{bytes}` bytes of shared memory per block, the device has `{available}`"
    )]
    SharedMemory {
        /// Mangled kernel name.
        kernel: String,
        /// Static and dynamic bytes.
        bytes: u64,
        /// What a block can have.
        available: u32,
    },
    /// The parameter block is shorter than the kernel's parameters.
    #[error("kernel `{kernel}` takes `{expected}` bytes of parameters, `{found}` were given")]
    Params {
        /// Mangled kernel name.
        kernel: String,
        /// Bytes it takes.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// The kernel's body cannot be decoded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// `Config::step_limit` was reached.
    #[error(
        "kernel `{kernel}` ran for more than `{limit}` warp instructions on one host thread and was given up"
    )]
    StepLimit {
        /// Mangled kernel name.
        kernel: String,
        /// The limit.
        limit: u64,
    },
    /// Kernel and device do not belong together.
    #[error("kernel `{kernel}` belongs to another device")]
    OtherDevice {
        /// Mangled kernel name.
        kernel: String,
    },
}

pub(crate) fn check_geometry(
    kernel: &Kernel,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: [u32; 3],
) -> Result<(), LaunchError> {
    let bad = |reason: String| {
        Err(LaunchError::Geometry {
            kernel: kernel.name().to_owned(),
            reason,
        })
    };
    let say = |[x, y, z]: [u32; 3]| format!("({x},{y},{z})");
    if grid.contains(&0) || grid[0] > i32::MAX as u32 || grid[1] > 65_535 || grid[2] > 65_535 {
        return bad(format!(
            "grid {} is outside of (1..2147483647, 1..65535, 1..65535)",
            say(grid)
        ));
    }
    if block.contains(&0) || block[0] > 1024 || block[1] > 1024 || block[2] > 64 {
        return bad(format!(
            "block {} is outside of (1..1024, 1..1024, 1..64)",
            say(block)
        ));
    }
    let threads = block.iter().product::<u32>();
    if threads > MAX_THREADS_PER_BLOCK {
        return bad(format!(
            "block {} has {threads} threads, the device allows {MAX_THREADS_PER_BLOCK}",
            say(block)
        ));
    }
    if let Some(max) = kernel.max_threads().filter(|&max| threads > max) {
        return bad(format!(
            "block {} has {threads} threads, the kernel's `.maxntid` allows {max}",
            say(block)
        ));
    }
    let blocks = cluster
        .iter()
        .fold(1u64, |n, &m| n.saturating_mul(u64::from(m)));
    if blocks == 0 || blocks > 16 || (0..3).any(|i| !grid[i].is_multiple_of(cluster[i])) {
        let text = format!(
            "cluster {} must divide grid {} and have at most 16 blocks",
            say(cluster),
            say(grid)
        );
        return bad(text);
    }
    Ok(())
}
