//! Raw types and the table of entry points that warpbpf itself calls (CUDA Driver API, 12.0 and
//! later).

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `CUresult`: 0 is success.
pub type CUresult = c_int;
/// `CUdevice`: an ordinal.
pub type CUdevice = c_int;
/// `CUdeviceptr`
pub type CUdeviceptr = u64;
/// `CUcontext`
pub type CUcontext = *mut c_void;
/// `CUmodule`
pub type CUmodule = *mut c_void;
/// `CUlibrary`
pub type CUlibrary = *mut c_void;
/// `CUfunction`; a `CUkernel` may be passed where one is expected.
pub type CUfunction = *mut c_void;
/// `CUkernel`
pub type CUkernel = *mut c_void;
/// `CUstream`
pub type CUstream = *mut c_void;
/// `CUevent`
pub type CUevent = *mut c_void;
/// `CUgraph`
pub type CUgraph = *mut c_void;
/// `CUgraphNode`
pub type CUgraphNode = *mut c_void;
/// `CUgraphExec`
pub type CUgraphExec = *mut c_void;

/// `CUlinkState`
pub type CUlinkState = *mut c_void;

/// `CUDA_SUCCESS`
pub const SUCCESS: CUresult = 0;
/// `CUDA_ERROR_INVALID_VALUE`
pub const INVALID_VALUE: CUresult = 1;
/// `CUDA_ERROR_NOT_READY`
pub const NOT_READY: CUresult = 600;
/// `CUDA_ERROR_NOT_FOUND`
pub const NOT_FOUND: CUresult = 500;
/// `CU_STREAM_NON_BLOCKING`
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_MEMHOSTALLOC_DEVICEMAP`
pub const HOSTALLOC_DEVICEMAP: c_uint = 2;
/// `CU_EVENT_DISABLE_TIMING`
pub const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`
pub const CAPTURE_MODE_RELAXED: c_int = 2;
/// `CU_JIT_INFO_LOG_BUFFER`
pub const JIT_INFO_LOG_BUFFER: c_int = 3;
/// `CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES`
pub const JIT_INFO_LOG_BUFFER_SIZE_BYTES: c_int = 4;
/// `CU_JIT_ERROR_LOG_BUFFER`
pub const JIT_ERROR_LOG_BUFFER: c_int = 5;
/// `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`
pub const JIT_ERROR_LOG_BUFFER_SIZE_BYTES: c_int = 6;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`
pub const ATTRIBUTE_MULTIPROCESSOR_COUNT: c_int = 16;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`
pub const ATTRIBUTE_CC_MAJOR: c_int = 75;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR`
pub const ATTRIBUTE_CC_MINOR: c_int = 76;
/// `CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK`
pub const FUNC_MAX_THREADS: c_int = 0;
/// `CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES`
pub const FUNC_SHARED: c_int = 1;
/// `CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES`
pub const FUNC_LOCAL: c_int = 3;
/// `CU_FUNC_ATTRIBUTE_NUM_REGS`
pub const FUNC_REGISTERS: c_int = 4;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`
pub const FUNC_MAX_DYNAMIC_SHARED: c_int = 8;
/// `CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`
pub const FUNC_CARVEOUT: c_int = 9;
/// `CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED`
pub const FUNC_NON_PORTABLE_CLUSTER: c_int = 14;
/// `CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE`
pub const FUNC_CLUSTER_POLICY: c_int = 15;

/// `CUlaunchConfig` (the attributes are passed through, not read).
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "field names are CUDA's")]
pub struct CUlaunchConfig {
    pub grid_dim_x: c_uint,
    pub grid_dim_y: c_uint,
    pub grid_dim_z: c_uint,
    pub block_dim_x: c_uint,
    pub block_dim_y: c_uint,
    pub block_dim_z: c_uint,
    pub shared_mem_bytes: c_uint,
    pub stream: CUstream,
    pub attrs: *mut c_void,
    pub num_attrs: c_uint,
}

/// `CUDA_KERNEL_NODE_PARAMS_v1`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "field names are CUDA's")]
pub struct KernelNodeParams {
    pub func: CUfunction,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_mem_bytes: c_uint,
    pub kernel_params: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2` and `_v3`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "field names are CUDA's")]
pub struct KernelNodeParams2 {
    pub first: KernelNodeParams,
    pub kern: CUkernel,
    pub ctx: CUcontext,
}

/// `CUgraphNodeParams`: a union by type.
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "field names are CUDA's")]
pub struct GraphNodeParams {
    pub kind: c_int,
    pub reserved0: [c_int; 3],
    pub value: [u64; 29],
    pub reserved2: u64,
}
const _: () = assert!(size_of::<GraphNodeParams>() == 256 && size_of::<KernelNodeParams2>() == 72);

/// `CUDA_MEMCPY2D`: rows of bytes. Types are of `CUmemorytype`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "field names are CUDA's")]
pub struct CUDA_MEMCPY2D {
    pub src_x_in_bytes: usize,
    pub src_y: usize,
    pub src_memory_type: c_uint,
    pub src_host: *const c_void,
    pub src_device: CUdeviceptr,
    pub src_array: *mut c_void,
    pub src_pitch: usize,
    pub dst_x_in_bytes: usize,
    pub dst_y: usize,
    pub dst_memory_type: c_uint,
    pub dst_host: *mut c_void,
    pub dst_device: CUdeviceptr,
    pub dst_array: *mut c_void,
    pub dst_pitch: usize,
    pub width_in_bytes: usize,
    pub height: usize,
}
const _: () = assert!(size_of::<CUDA_MEMCPY2D>() == 128);

/// `CU_MEMORYTYPE_HOST`
pub const MEMORYTYPE_HOST: c_uint = 1;
/// `CU_MEMORYTYPE_DEVICE`
pub const MEMORYTYPE_DEVICE: c_uint = 2;

/// `CUmemAllocationProp`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "field names are CUDA's")]
pub struct MemoryProperties {
    pub kind: c_int,
    pub handle_types: c_int,
    pub location_kind: c_int,
    pub location: c_int,
    pub windows: *const c_void,
    pub flags: [u8; 8],
}

/// `CUmemAccessDesc`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "field names are CUDA's")]
pub struct MemoryAccess {
    pub location_kind: c_int,
    pub location: c_int,
    pub flags: c_int,
}
const _: () = assert!(size_of::<MemoryProperties>() == 32 && size_of::<MemoryAccess>() == 12);

/// `CU_MEM_ALLOCATION_TYPE_PINNED`
pub const MEMORY_PINNED: c_int = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`
pub const MEMORY_ON_DEVICE: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
pub const MEMORY_READ_WRITE: c_int = 3;
/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`
pub const GRANULARITY_MINIMUM: c_int = 0;
/// `CU_JIT_INPUT_PTX`
pub const INPUT_PTX: c_int = 1;

/// `CU_GRAPH_NODE_TYPE_KERNEL`
pub const NODE_KERNEL: c_int = 0;
/// `CU_GRAPH_NODE_TYPE_GRAPH`
pub const NODE_GRAPH: c_int = 4;
/// `CU_GRAPH_NODE_TYPE_CONDITIONAL`
pub const NODE_CONDITIONAL: c_int = 13;

/// `CUDA_ERROR_NOT_SUPPORTED`
pub const NOT_SUPPORTED: CUresult = 801;

/// Functions that a library which stands for a driver may lack, or an older driver: without them
/// compiled code is not kept, and kernels are waited for by waiting for their context.
pub const DISPENSABLE: &[&str] = &[
    "cuLinkCreate_v2",
    "cuLinkAddData_v2",
    "cuLinkComplete",
    "cuLinkDestroy",
    "cuCtxRecordEvent",
    "cuMemGetAllocationGranularity",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
];

macro_rules! api {
    ($( $field:ident = $symbol:literal ( $($arg:ident : $ty:ty),* ); )*) => {
        /// The table. Every function returns a `CUresult`.
        #[derive(Clone, Copy)]
        #[expect(missing_docs, reason = "each field is the driver function of its symbol")]
        pub struct Api { $( pub $field: unsafe extern "C" fn($($ty),*) -> CUresult, )* }

        impl Api {
            /// The symbols, as exported by `libcuda.so.1`.
            pub const SYMBOLS: &'static [&'static str] = &[$($symbol),*];

            /// Fills the table; the first symbol that `resolve` does not know is the error, unless
            /// it is of [`DISPENSABLE`].
            ///
            /// # Safety
            /// `resolve` must return null or the address of a function with the CUDA Driver API's
            /// signature of that name.
            pub unsafe fn resolve(mut resolve: impl FnMut(&'static str) -> *const c_void) -> Result<Api, &'static str> {
                Ok(Api { $( $field: {
                    let address = resolve($symbol);
                    if !address.is_null() {
                        // SAFETY: the caller promises the address is that function's.
                        unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($ty),*) -> CUresult>(address) }
                    } else if DISPENSABLE.contains(&$symbol) {
                        absent::$field
                    } else {
                        return Err($symbol);
                    }
                }, )* })
            }

            /// The same table, each function of which can be made to fail. There is one driver in a
            /// process with an agent, so the first table is the real one.
            #[cfg(debug_assertions)]
            pub(crate) fn faulty(self) -> Api {
                REAL.get_or_init(|| self);
                Api { $( $field: faulty::$field, )* }
            }
        }

        /// Functions that answer that there are none.
        mod absent {
            use super::*;

            $( pub(super) unsafe extern "C" fn $field($(_: $ty),*) -> CUresult {
                NOT_SUPPORTED
            } )*
        }

        #[cfg(debug_assertions)]
        static REAL: std::sync::OnceLock<Api> = std::sync::OnceLock::new();

        /// Each function of the table as a site, named after its symbol.
        #[cfg(debug_assertions)]
        mod faulty {
            use super::*;

            $( pub(super) unsafe extern "C" fn $field($($arg: $ty),*) -> CUresult {
                match REAL.get() {
                    // SAFETY: the caller's own arguments.
                    Some(real) if !warpbpf_faults::strikes($symbol) => unsafe { (real.$field)($($arg),*) },
                    _ => crate::faults::code_of($symbol),
                }
            } )*
        }
    };
}

api! {
    init = "cuInit"(flags: c_uint);
    driver_version = "cuDriverGetVersion"(version: *mut c_int);
    error_name = "cuGetErrorName"(error: CUresult, name: *mut *const c_char);
    error_string = "cuGetErrorString"(error: CUresult, text: *mut *const c_char);
    device_count = "cuDeviceGetCount"(count: *mut c_int);
    device_get = "cuDeviceGet"(device: *mut CUdevice, ordinal: c_int);
    device_name = "cuDeviceGetName"(name: *mut c_char, len: c_int, device: CUdevice);
    device_attribute = "cuDeviceGetAttribute"(value: *mut c_int, attribute: c_int, device: CUdevice);
    primary_retain = "cuDevicePrimaryCtxRetain"(context: *mut CUcontext, device: CUdevice);
    primary_release = "cuDevicePrimaryCtxRelease_v2"(device: CUdevice);
    ctx_get_current = "cuCtxGetCurrent"(context: *mut CUcontext);
    ctx_set_current = "cuCtxSetCurrent"(context: CUcontext);
    ctx_push = "cuCtxPushCurrent_v2"(context: CUcontext);
    ctx_pop = "cuCtxPopCurrent_v2"(context: *mut CUcontext);
    ctx_get_device = "cuCtxGetDevice"(device: *mut CUdevice);
    ctx_synchronize = "cuCtxSynchronize"();
    ctx_record_event = "cuCtxRecordEvent"(context: CUcontext, event: CUevent);
    capture_mode = "cuThreadExchangeStreamCaptureMode"(mode: *mut c_int);
    module_load = "cuModuleLoadDataEx"(module: *mut CUmodule, image: *const c_void, n: c_uint, options: *mut c_int, values: *mut *mut c_void);
    link_create = "cuLinkCreate_v2"(n: c_uint, options: *mut c_int, values: *mut *mut c_void, link: *mut CUlinkState);
    link_add = "cuLinkAddData_v2"(link: CUlinkState, kind: c_int, data: *mut c_void, bytes: usize, name: *const c_char,
        n: c_uint, options: *mut c_int, values: *mut *mut c_void);
    link_complete = "cuLinkComplete"(link: CUlinkState, image: *mut *mut c_void, bytes: *mut usize);
    link_destroy = "cuLinkDestroy"(link: CUlinkState);
    module_unload = "cuModuleUnload"(module: CUmodule);
    module_function = "cuModuleGetFunction"(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    module_global = "cuModuleGetGlobal_v2"(address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char);
    library_kernel = "cuLibraryGetKernel"(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
    library_module = "cuLibraryGetModule"(module: *mut CUmodule, library: CUlibrary);
    library_global = "cuLibraryGetGlobal"(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char);
    kernel_function = "cuKernelGetFunction"(function: *mut CUfunction, kernel: CUkernel);
    func_attribute = "cuFuncGetAttribute"(value: *mut c_int, attribute: c_int, function: CUfunction);
    func_set_attribute = "cuFuncSetAttribute"(function: CUfunction, attribute: c_int, value: c_int);
    occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor"(blocks: *mut c_int, function: CUfunction, block: c_int, shared: usize);
    mem_alloc = "cuMemAlloc_v2"(address: *mut CUdeviceptr, bytes: usize);
    mem_free = "cuMemFree_v2"(address: CUdeviceptr);
    mem_granularity = "cuMemGetAllocationGranularity"(bytes: *mut usize, properties: *const MemoryProperties, which: c_int);
    mem_reserve = "cuMemAddressReserve"(address: *mut CUdeviceptr, bytes: usize, alignment: usize, hint: CUdeviceptr, flags: u64);
    mem_unreserve = "cuMemAddressFree"(address: CUdeviceptr, bytes: usize);
    mem_create = "cuMemCreate"(memory: *mut u64, bytes: usize, properties: *const MemoryProperties, flags: u64);
    mem_release = "cuMemRelease"(memory: u64);
    mem_map = "cuMemMap"(address: CUdeviceptr, bytes: usize, offset: usize, memory: u64, flags: u64);
    mem_unmap = "cuMemUnmap"(address: CUdeviceptr, bytes: usize);
    mem_access = "cuMemSetAccess"(address: CUdeviceptr, bytes: usize, access: *const MemoryAccess, count: usize);
    host_alloc = "cuMemHostAlloc"(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
    host_free = "cuMemFreeHost"(pointer: *mut c_void);
    host_register = "cuMemHostRegister_v2"(pointer: *mut c_void, bytes: usize, flags: c_uint);
    host_unregister = "cuMemHostUnregister"(pointer: *mut c_void);
    host_device_pointer = "cuMemHostGetDevicePointer_v2"(address: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint);
    memset_d8 = "cuMemsetD8Async"(address: CUdeviceptr, value: u8, bytes: usize, stream: CUstream);
    copy_to_device = "cuMemcpyHtoDAsync_v2"(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    copy_to_host = "cuMemcpyDtoHAsync_v2"(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    copy_rows = "cuMemcpy2DAsync_v2"(copy: *const CUDA_MEMCPY2D, stream: CUstream);
    stream_create = "cuStreamCreate"(stream: *mut CUstream, flags: c_uint);
    stream_destroy = "cuStreamDestroy_v2"(stream: CUstream);
    stream_query = "cuStreamQuery"(stream: CUstream);
    stream_synchronize = "cuStreamSynchronize"(stream: CUstream);
    tensor_map_tiled = "cuTensorMapEncodeTiled"(to: *mut c_void, element: c_uint, rank: c_uint, address: *mut c_void,
        size: *const u64, pitch: *const u64, moved: *const u32, strides: *const u32, interleave: c_uint, swizzle: c_uint,
        promotion: c_uint, fill: c_uint);
    tensor_map_im2col = "cuTensorMapEncodeIm2col"(to: *mut c_void, element: c_uint, rank: c_uint, address: *mut c_void,
        size: *const u64, pitch: *const u64, lower: *const c_int, upper: *const c_int, channels: u32, pixels: u32,
        strides: *const u32, interleave: c_uint, swizzle: c_uint, promotion: c_uint, fill: c_uint);
    event_create = "cuEventCreate"(event: *mut CUevent, flags: c_uint);
    event_record = "cuEventRecord"(event: CUevent, stream: CUstream);
    event_query = "cuEventQuery"(event: CUevent);
    event_destroy = "cuEventDestroy_v2"(event: CUevent);
    stream_capturing = "cuStreamIsCapturing"(stream: CUstream, status: *mut c_int);
    capture_info = "cuStreamGetCaptureInfo_v2"(stream: CUstream, status: *mut c_int, id: *mut u64, graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode, count: *mut usize);
    graph_nodes = "cuGraphGetNodes"(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    graph_edges = "cuGraphGetEdges"(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize);
    node_type = "cuGraphNodeGetType"(node: CUgraphNode, kind: *mut c_int);
    node_graph = "cuGraphChildGraphNodeGetGraph"(node: CUgraphNode, graph: *mut CUgraph);
    kernel_node = "cuGraphKernelNodeGetParams_v2"(node: CUgraphNode, params: *mut KernelNodeParams2);
    set_kernel_node = "cuGraphKernelNodeSetParams_v2"(node: CUgraphNode, params: *const KernelNodeParams2);
    launch = "cuLaunchKernel"(function: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void);
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn there() -> CUresult {
        0
    }

    #[test]
    fn what_can_be_done_without_may_be_missing() {
        let without = |missing: &'static [&'static str]| {
            // SAFETY: none of them is called, but those that are missing.
            unsafe {
                Api::resolve(|symbol| match missing.contains(&symbol) {
                    true => std::ptr::null(),
                    false => there as *const c_void,
                })
            }
        };
        assert_eq!(without(&["cuMemAlloc_v2"]).err(), Some("cuMemAlloc_v2"));
        let api = without(DISPENSABLE).ok().unwrap();
        let (mut image, mut bytes) = (std::ptr::null_mut(), 0);
        // SAFETY: it looks at nothing.
        let code = unsafe { (api.link_complete)(std::ptr::null_mut(), &mut image, &mut bytes) };
        assert_eq!(code, NOT_SUPPORTED);
    }
}
