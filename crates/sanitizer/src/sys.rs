//! What is used of the API, named as its documentation names it, and the table of its functions.
//!
//! The structures have the same layout from CUDA 12.0 on, as far as they are declared here: later versions add fields behind those.

use std::ffi::{CStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::SanitizerError;

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

    /// Only later versions of the library ([`Table::later`]) tell of it.
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

macro_rules! table {
    ($($field:ident $symbol:literal: fn($($arg:ty),*);)*) => {
        /// The library's functions.
        #[derive(Debug, Clone, Copy)]
        pub struct Table {
            $(#[doc = concat!("`", $symbol, "`")] pub $field: unsafe extern "C" fn($($arg),*) -> SanitizerResult,)*
            /// The library is of CUDA 12.2 or newer. It takes any number of an instruction, and never tells of those that it does not know.
            pub later: bool,
        }

        impl Table {
            /// Fills the table.
            ///
            /// # Errors
            /// [`SanitizerError::Symbol`]: one is missing.
            ///
            /// # Safety
            /// What `find` gives are functions of these names with the API's signatures, which stay.
            pub unsafe fn resolve(find: impl Fn(&CStr) -> *const c_void) -> Result<Table, SanitizerError> {
                $(
                    const _: () = assert!($symbol.len() < 64);
                    let name = concat!($symbol, "\0");
                    // The macro ends it so.
                    let name = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or(c"");
                    let address = find(name);
                    if address.is_null() {
                        return Err(SanitizerError::Symbol { symbol: $symbol });
                    }
                    // SAFETY: the caller's promise.
                    let $field = unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($arg),*) -> SanitizerResult>(address) };
                )*
                // The only function that came with such a version.
                let later = !find(c"sanitizerSetDeviceGraphData").is_null();
                Ok(Table { $($field,)* later })
            }
        }
    };
}

table! {
    subscribe "sanitizerSubscribe": fn(*mut *mut c_void, CallbackFunc, *mut c_void);
    unsubscribe "sanitizerUnsubscribe": fn(*mut c_void);
    enable_callback "sanitizerEnableCallback": fn(u32, *mut c_void, u32, u32);
    add_patches "sanitizerAddPatches": fn(*const c_void, *mut c_void);
    patch_instructions "sanitizerPatchInstructions": fn(u32, *mut c_void, *const c_char);
    patch_module "sanitizerPatchModule": fn(*mut c_void);
    set_callback_data "sanitizerSetCallbackData": fn(*mut c_void, *const c_void);
    set_launch_callback_data "sanitizerSetLaunchCallbackData": fn(*mut c_void, *mut c_void, *mut c_void, *const c_void);
}

impl Table {
    /// Loads the library, for good.
    ///
    /// # Errors
    /// [`SanitizerError`]: it cannot be loaded, or lacks a function.
    pub fn open(path: &Path) -> Result<Table, SanitizerError> {
        let why = |why: String| SanitizerError::Library {
            path: path.to_owned(),
            why,
        };
        let name = std::ffi::CString::new(path.as_os_str().as_bytes())
            .map_err(|_| why("its path holds a NUL byte".into()))?;
        // SAFETY: a NUL-terminated path; the library's constructors are NVIDIA's.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: after a failure the loader has a NUL-terminated text of this thread, or none.
            let said = unsafe {
                let said = libc::dlerror();
                (!said.is_null()).then(|| CStr::from_ptr(said).to_string_lossy().into_owned())
            };
            return Err(why(
                said.unwrap_or_else(|| "the loader does not say why".into())
            ));
        }
        // SAFETY: a live handle that is never closed, and the API's own names.
        unsafe { Table::resolve(|name| libc::dlsym(handle, name.as_ptr())) }
    }
}
