//! Numbers and structures of the API.
//!
//! The structures have the same layout from CUDA 12.0 on, as far as they are declared here: later
//! versions add fields behind those.

use std::ffi::{c_char, c_void};

/// `SanitizerResult`.
pub type SanitizerResult = u32;
/// `SANITIZER_SUCCESS`
pub const SUCCESS: SanitizerResult = 0;

/// `Sanitizer_CallbackFunc`.
pub type CallbackFunc = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// `SANITIZER_CB_DOMAIN_RESOURCE`
pub const DOMAIN_RESOURCE: u32 = 3;
/// `SANITIZER_CB_DOMAIN_LAUNCH`
pub const DOMAIN_LAUNCH: u32 = 5;
/// `SANITIZER_CB_DOMAIN_GRAPHS`
pub const DOMAIN_GRAPHS: u32 = 10;
/// `SANITIZER_CBID_RESOURCE_CONTEXT_DESTROY_STARTING`
pub const CONTEXT_DESTROY_STARTING: u32 = 4;
/// `SANITIZER_CBID_LAUNCH_BEGIN`
pub const LAUNCH_BEGIN: u32 = 1;
/// `SANITIZER_CBID_GRAPHS_NODE_LAUNCH_BEGIN`
pub const NODE_LAUNCH_BEGIN: u32 = 4;
/// `CU_GRAPH_NODE_TYPE_KERNEL`
pub const NODE_KERNEL: u32 = 0;

/// `Sanitizer_InstructionId`: where a function can be called, as far as programs can be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Instruction {
    /// `SANITIZER_INSTRUCTION_BLOCK_ENTER`: in each thread, where it begins.
    BlockEnter = 1,
    /// `SANITIZER_INSTRUCTION_BLOCK_EXIT`: in each thread, where it ends.
    BlockExit = 2,
    /// `SANITIZER_INSTRUCTION_GLOBAL_MEMORY_ACCESS`
    GlobalMemoryAccess = 3,
    /// `SANITIZER_INSTRUCTION_SHARED_MEMORY_ACCESS`
    SharedMemoryAccess = 4,
    /// `SANITIZER_INSTRUCTION_LOCAL_MEMORY_ACCESS`
    LocalMemoryAccess = 5,
    /// `SANITIZER_INSTRUCTION_BARRIER`
    Barrier = 6,
    /// `SANITIZER_INSTRUCTION_SYNCWARP`
    Syncwarp = 7,
    /// `SANITIZER_INSTRUCTION_CALL`
    Call = 9,
    /// `SANITIZER_INSTRUCTION_RET`
    Ret = 10,
    /// `SANITIZER_INSTRUCTION_CUDA_BARRIER`
    CudaBarrier = 13,
    /// `SANITIZER_INSTRUCTION_MEMCPY_ASYNC`
    MemcpyAsync = 14,
    /// `SANITIZER_INSTRUCTION_PIPELINE_WAIT`
    PipelineWait = 16,
    /// `SANITIZER_INSTRUCTION_REMOTE_SHARED_MEMORY_ACCESS`
    RemoteSharedMemoryAccess = 17,
    /// `SANITIZER_INSTRUCTION_MATRIX_MEMORY_ACCESS`
    MatrixMemoryAccess = 19,
    /// `SANITIZER_INSTRUCTION_CACHE_CONTROL`
    CacheControl = 20,
    /// `SANITIZER_INSTRUCTION_CLUSTER_BARRIER_ARRIVE`
    ClusterBarrierArrive = 21,
    /// `SANITIZER_INSTRUCTION_CLUSTER_BARRIER_WAIT`
    ClusterBarrierWait = 22,
    /// `SANITIZER_INSTRUCTION_WARPGROUP_WAIT_GROUP`
    WarpgroupWaitGroup = 24,
}

impl Instruction {
    /// The last one that the library of CUDA 12.0 knows; that of 12.2 knows all of these.
    const FIRST_VERSION: u32 = 20;

    /// Only later versions of the library ([`super::Table::later`]) tell of it.
    pub(crate) fn came_later(self) -> bool {
        self as u32 > Instruction::FIRST_VERSION
    }
}

/// The beginning of `Sanitizer_LaunchData`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct LaunchData {
    /// `context`
    pub context: *mut c_void,
    /// `stream`
    pub stream: *mut c_void,
    /// `hStream`
    pub stream_handle: *mut c_void,
    /// `module`
    pub module: *mut c_void,
    /// `function`
    pub function: *mut c_void,
    /// `functionName`
    pub function_name: *const c_char,
    /// `gridDim_x` and so on, `blockDim_x` and so on, `clusterDim_x` and so on.
    pub dimensions: [u32; 9],
    /// `gridId`
    pub grid_id: u64,
    /// `hLaunch`
    pub launch: *mut c_void,
}

/// The beginning of `Sanitizer_GraphNodeLaunchData`, of a node that is a kernel.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct GraphNodeLaunchData {
    /// `graphExec`
    pub graph_exec: *mut c_void,
    /// `launchId`
    pub launch_id: u32,
    /// `node`
    pub node: *mut c_void,
    /// `nodeType`
    pub node_type: u32,
    /// `launchData`, valid if the node is a kernel.
    pub launch: LaunchData,
}
