//! CUDA's error numbers: one table for both libraries, which share the numbers and differ in the
//! names.

use std::ffi::CStr;

/// A `CUresult` or `cudaError_t` other than success, as our own code passes it on. Whose fault each
/// is stands in CUDA's reference:
/// <https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html>.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("CUDA error `{0}`")]
pub struct CuError(pub u32);

/// What every function of the driver returns inside.
pub type CuResult = Result<(), CuError>;

impl CuError {
    /// A bad argument.
    pub const INVALID_VALUE: CuError = CuError(1);
    /// The device's memory, or the host's, is full.
    pub const OUT_OF_MEMORY: CuError = CuError(2);
    /// `cuInit` has not been called, or this is a child process of one that did.
    pub const NOT_INITIALIZED: CuError = CuError(3);
    /// Runtime only: a launch without a configuration or with an impossible one.
    pub const INVALID_CONFIGURATION: CuError = CuError(9);
    /// Runtime only: no such variable.
    pub const INVALID_SYMBOL: CuError = CuError(13);
    /// Runtime only: a copy direction that does not exist.
    pub const INVALID_COPY_DIRECTION: CuError = CuError(21);
    /// Runtime only: there is no driver.
    pub const INSUFFICIENT_DRIVER: CuError = CuError(35);
    /// Runtime only: no `<<<>>>` before the launch.
    pub const MISSING_CONFIGURATION: CuError = CuError(52);
    /// Runtime only: not a kernel of a registered program.
    pub const INVALID_DEVICE_FUNCTION: CuError = CuError(98);
    /// No such device.
    pub const INVALID_DEVICE: CuError = CuError(101);
    /// Neither PTX nor a fatbin nor a cubin.
    pub const INVALID_IMAGE: CuError = CuError(200);
    /// No context is current, or not a context.
    pub const INVALID_CONTEXT: CuError = CuError(201);
    /// The image holds nothing that runs here.
    pub const NO_BINARY_FOR_GPU: CuError = CuError(209);
    /// No such limit.
    pub const UNSUPPORTED_LIMIT: CuError = CuError(215);
    /// One device has no peers.
    pub const PEER_ACCESS_UNSUPPORTED: CuError = CuError(217);
    /// These two contexts have it already.
    pub const PEER_ACCESS_ALREADY_ENABLED: CuError = CuError(704);
    /// These two contexts do not have it.
    pub const PEER_ACCESS_NOT_ENABLED: CuError = CuError(705);
    /// The PTX does not compile.
    pub const INVALID_PTX: CuError = CuError(218);
    /// The PTX is newer than this driver.
    pub const UNSUPPORTED_PTX_VERSION: CuError = CuError(222);
    /// No such file.
    pub const FILE_NOT_FOUND: CuError = CuError(301);
    /// A library named by the environment lacks its entry point.
    pub const SHARED_OBJECT_INIT_FAILED: CuError = CuError(303);
    /// Not a live handle of its kind.
    pub const INVALID_HANDLE: CuError = CuError(400);
    /// Not now: a capture has begun, or none has.
    pub const ILLEGAL_STATE: CuError = CuError(401);
    /// Edges carry data, and there is no room for it.
    pub const LOSSY_QUERY: CuError = CuError(402);
    /// No such name.
    pub const NOT_FOUND: CuError = CuError(500);
    /// Work is still running.
    pub const NOT_READY: CuError = CuError(600);
    /// A kernel touched memory that is not its own.
    pub const ILLEGAL_ADDRESS: CuError = CuError(700);
    /// The block needs more than a multiprocessor has.
    pub const LAUNCH_OUT_OF_RESOURCES: CuError = CuError(701);
    /// The primary context is in use.
    pub const PRIMARY_CONTEXT_ACTIVE: CuError = CuError(708);
    /// The current context is gone.
    pub const CONTEXT_IS_DESTROYED: CuError = CuError(709);
    /// A device-side `assert` failed.
    pub const ASSERT: CuError = CuError(710);
    /// That host memory is registered already.
    pub const HOST_MEMORY_ALREADY_REGISTERED: CuError = CuError(712);
    /// That host memory is not registered.
    pub const HOST_MEMORY_NOT_REGISTERED: CuError = CuError(713);
    /// A stack ran over.
    pub const HARDWARE_STACK_ERROR: CuError = CuError(714);
    /// A kernel met an instruction that cannot run.
    pub const ILLEGAL_INSTRUCTION: CuError = CuError(715);
    /// A kernel's access was not aligned.
    pub const MISALIGNED_ADDRESS: CuError = CuError(716);
    /// An address is in the wrong space for its instruction.
    pub const INVALID_ADDRESS_SPACE: CuError = CuError(717);
    /// A jump to no instruction.
    pub const INVALID_PC: CuError = CuError(718);
    /// A kernel failed in another way.
    pub const LAUNCH_FAILED: CuError = CuError(719);
    /// A cooperative grid that cannot be resident at once.
    pub const COOPERATIVE_LAUNCH_TOO_LARGE: CuError = CuError(720);
    /// Not allowed now.
    pub const NOT_PERMITTED: CuError = CuError(800);
    /// The soft GPU does not have it.
    pub const NOT_SUPPORTED: CuError = CuError(801);
    /// A call that a captured stream, or any call during a capture, must not make.
    pub const STREAM_CAPTURE_UNSUPPORTED: CuError = CuError(900);
    /// Something went wrong earlier in this capture.
    pub const STREAM_CAPTURE_INVALIDATED: CuError = CuError(901);
    /// Two captures would become one.
    pub const STREAM_CAPTURE_MERGE: CuError = CuError(902);
    /// Not the stream that the capture began in.
    pub const STREAM_CAPTURE_UNMATCHED: CuError = CuError(903);
    /// A stream that was forked from the captured one was not joined again.
    pub const STREAM_CAPTURE_UNJOINED: CuError = CuError(904);
    /// A capture would wait for something outside.
    pub const STREAM_CAPTURE_ISOLATION: CuError = CuError(905);
    /// The legacy stream would wait for a captured one.
    pub const STREAM_CAPTURE_IMPLICIT: CuError = CuError(906);
    /// The event's last recording was captured.
    pub const CAPTURED_EVENT: CuError = CuError(907);
    /// Not the thread that the capture began in.
    pub const STREAM_CAPTURE_WRONG_THREAD: CuError = CuError(908);
    /// A graph has another shape than the executable one.
    pub const GRAPH_EXEC_UPDATE_FAILURE: CuError = CuError(910);
    /// A cluster that does not divide the grid or is too large.
    pub const INVALID_CLUSTER_SIZE: CuError = CuError(912);
    /// Our own fault.
    pub const UNKNOWN: CuError = CuError(999);
}

macro_rules! errors {
    ($($code:literal, $driver:literal, $runtime:literal, $text:literal;)*) => {
        const TABLE: &[(u32, &str, &str, &str)] = &[
            $(($code, concat!($driver, "\0"), concat!($runtime, "\0"), concat!($text, "\0"))),*
        ];
    };
}

fn c_string(text: &'static str) -> Option<&'static CStr> {
    CStr::from_bytes_with_nul(text.as_bytes())
        .ok()
        .filter(|text| !text.is_empty())
}

fn row(code: u32) -> Option<&'static (u32, &'static str, &'static str, &'static str)> {
    TABLE
        .binary_search_by_key(&code, |row| row.0)
        .ok()
        .map(|index| &TABLE[index])
}

/// `CUDA_ERROR_…`, for numbers that the driver has.
pub fn driver_name(code: u32) -> Option<&'static CStr> {
    row(code).and_then(|row| c_string(row.1))
}

/// `cudaError…`, for numbers that the runtime has.
pub fn runtime_name(code: u32) -> Option<&'static CStr> {
    row(code).and_then(|row| c_string(row.2))
}

/// The error in words.
pub fn text(code: u32) -> Option<&'static CStr> {
    row(code).and_then(|row| c_string(row.3))
}

errors! {
    0, "CUDA_SUCCESS", "cudaSuccess", "no error";
    1, "CUDA_ERROR_INVALID_VALUE", "cudaErrorInvalidValue", "invalid argument";
    2, "CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation", "out of memory";
    3, "CUDA_ERROR_NOT_INITIALIZED", "cudaErrorInitializationError", "initialization error";
    4, "CUDA_ERROR_DEINITIALIZED", "cudaErrorCudartUnloading", "driver shutting down";
    5, "CUDA_ERROR_PROFILER_DISABLED", "cudaErrorProfilerDisabled", "profiler disabled while using external profiling tool";
    6, "CUDA_ERROR_PROFILER_NOT_INITIALIZED", "cudaErrorProfilerNotInitialized", "profiler not initialized: call cudaProfilerInitialize()";
    7, "CUDA_ERROR_PROFILER_ALREADY_STARTED", "cudaErrorProfilerAlreadyStarted", "profiler already started";
    8, "CUDA_ERROR_PROFILER_ALREADY_STOPPED", "cudaErrorProfilerAlreadyStopped", "profiler already stopped";
    9, "", "cudaErrorInvalidConfiguration", "invalid configuration argument";
    12, "", "cudaErrorInvalidPitchValue", "invalid pitch argument";
    13, "", "cudaErrorInvalidSymbol", "invalid device symbol";
    16, "", "cudaErrorInvalidHostPointer", "invalid host pointer";
    17, "", "cudaErrorInvalidDevicePointer", "invalid device pointer";
    18, "", "cudaErrorInvalidTexture", "invalid texture reference";
    19, "", "cudaErrorInvalidTextureBinding", "invalid texture binding";
    20, "", "cudaErrorInvalidChannelDescriptor", "invalid channel descriptor";
    21, "", "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy";
    22, "", "cudaErrorAddressOfConstant", "address of constant";
    23, "", "cudaErrorTextureFetchFailed", "texture fetch failed";
    24, "", "cudaErrorTextureNotBound", "texture not bound";
    25, "", "cudaErrorSynchronizationError", "synchronization error";
    26, "", "cudaErrorInvalidFilterSetting", "invalid filter setting";
    27, "", "cudaErrorInvalidNormSetting", "invalid norm setting";
    28, "", "cudaErrorMixedDeviceExecution", "mixed device execution";
    31, "", "cudaErrorNotYetImplemented", "not yet implemented";
    32, "", "cudaErrorMemoryValueTooLarge", "memory value too large";
    34, "CUDA_ERROR_STUB_LIBRARY", "cudaErrorStubLibrary", "CUDA driver is a stub library";
    35, "", "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version";
    36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "cudaErrorCallRequiresNewerDriver", "API call is not supported in the installed CUDA driver";
    37, "", "cudaErrorInvalidSurface", "invalid surface";
    43, "", "cudaErrorDuplicateVariableName", "duplicate variable name";
    44, "", "cudaErrorDuplicateTextureName", "duplicate texture name";
    45, "", "cudaErrorDuplicateSurfaceName", "duplicate surface name";
    46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable";
    49, "", "cudaErrorIncompatibleDriverContext", "incompatible driver context";
    52, "", "cudaErrorMissingConfiguration", "__global__ function call is not configured";
    53, "", "cudaErrorPriorLaunchFailure", "prior launch failure";
    65, "", "cudaErrorLaunchMaxDepthExceeded", "launch max depth exceeded";
    66, "", "cudaErrorLaunchFileScopedTex", "launch file scoped tex";
    67, "", "cudaErrorLaunchFileScopedSurf", "launch file scoped surf";
    68, "", "cudaErrorSyncDepthExceeded", "sync depth exceeded";
    69, "", "cudaErrorLaunchPendingCountExceeded", "launch pending count exceeded";
    98, "", "cudaErrorInvalidDeviceFunction", "invalid device function";
    100, "CUDA_ERROR_NO_DEVICE", "cudaErrorNoDevice", "no CUDA-capable device is detected";
    101, "CUDA_ERROR_INVALID_DEVICE", "cudaErrorInvalidDevice", "invalid device ordinal";
    102, "CUDA_ERROR_DEVICE_NOT_LICENSED", "cudaErrorDeviceNotLicensed", "device not licensed";
    103, "", "cudaErrorSoftwareValidityNotEstablished", "software validity not established";
    127, "", "cudaErrorStartupFailure", "startup failure";
    200, "CUDA_ERROR_INVALID_IMAGE", "cudaErrorInvalidKernelImage", "device kernel image is invalid";
    201, "CUDA_ERROR_INVALID_CONTEXT", "cudaErrorDeviceUninitialized", "invalid device context";
    202, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "", "context already current";
    205, "CUDA_ERROR_MAP_FAILED", "cudaErrorMapBufferObjectFailed", "mapping of buffer object failed";
    206, "CUDA_ERROR_UNMAP_FAILED", "cudaErrorUnmapBufferObjectFailed", "unmapping of buffer object failed";
    207, "CUDA_ERROR_ARRAY_IS_MAPPED", "cudaErrorArrayIsMapped", "array is mapped";
    208, "CUDA_ERROR_ALREADY_MAPPED", "cudaErrorAlreadyMapped", "resource already mapped";
    209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device";
    210, "CUDA_ERROR_ALREADY_ACQUIRED", "cudaErrorAlreadyAcquired", "resource already acquired";
    211, "CUDA_ERROR_NOT_MAPPED", "cudaErrorNotMapped", "resource not mapped";
    212, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "cudaErrorNotMappedAsArray", "not mapped as array";
    213, "CUDA_ERROR_NOT_MAPPED_AS_POINTER", "cudaErrorNotMappedAsPointer", "not mapped as pointer";
    214, "CUDA_ERROR_ECC_UNCORRECTABLE", "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered";
    215, "CUDA_ERROR_UNSUPPORTED_LIMIT", "cudaErrorUnsupportedLimit", "limit is not supported on this architecture";
    216, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "cudaErrorDeviceAlreadyInUse", "exclusive-thread device already in use by a different thread";
    217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "cudaErrorPeerAccessUnsupported", "peer access is not supported between these two devices";
    218, "CUDA_ERROR_INVALID_PTX", "cudaErrorInvalidPtx", "a PTX JIT compilation failed";
    219, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "cudaErrorInvalidGraphicsContext", "invalid OpenGL or DirectX context";
    220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "cudaErrorNvlinkUncorrectable", "uncorrectable NVLink error detected during the execution";
    221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "cudaErrorJitCompilerNotFound", "PTX JIT compiler library not found";
    222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "cudaErrorUnsupportedPtxVersion", "the provided PTX was compiled with an unsupported toolchain.";
    223, "CUDA_ERROR_JIT_COMPILATION_DISABLED", "cudaErrorJitCompilationDisabled", "PTX JIT compilation was disabled";
    224, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", "cudaErrorUnsupportedExecAffinity", "unsupported exec affinity";
    225, "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", "cudaErrorUnsupportedDevSideSync", "unsupported dev side sync";
    226, "CUDA_ERROR_CONTAINED", "cudaErrorContained", "contained";
    300, "CUDA_ERROR_INVALID_SOURCE", "cudaErrorInvalidSource", "device kernel image is invalid";
    301, "CUDA_ERROR_FILE_NOT_FOUND", "cudaErrorFileNotFound", "file not found";
    302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "cudaErrorSharedObjectSymbolNotFound", "shared object symbol not found";
    303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "cudaErrorSharedObjectInitFailed", "shared object initialization failed";
    304, "CUDA_ERROR_OPERATING_SYSTEM", "cudaErrorOperatingSystem", "OS call failed or operation not supported on this OS";
    400, "CUDA_ERROR_INVALID_HANDLE", "cudaErrorInvalidResourceHandle", "invalid resource handle";
    401, "CUDA_ERROR_ILLEGAL_STATE", "cudaErrorIllegalState", "the operation cannot be performed in the present state";
    402, "CUDA_ERROR_LOSSY_QUERY", "cudaErrorLossyQuery", "lossy query";
    500, "CUDA_ERROR_NOT_FOUND", "cudaErrorSymbolNotFound", "named symbol not found";
    600, "CUDA_ERROR_NOT_READY", "cudaErrorNotReady", "device not ready";
    700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cudaErrorIllegalAddress", "an illegal memory access was encountered";
    701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "cudaErrorLaunchOutOfResources", "too many resources requested for launch";
    702, "CUDA_ERROR_LAUNCH_TIMEOUT", "cudaErrorLaunchTimeout", "the launch timed out and was terminated";
    703, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "cudaErrorLaunchIncompatibleTexturing", "launch incompatible texturing";
    704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled";
    705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled";
    708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "cudaErrorSetOnActiveProcess", "cannot set while device is active in this process";
    709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "cudaErrorContextIsDestroyed", "context is destroyed";
    710, "CUDA_ERROR_ASSERT", "cudaErrorAssert", "device-side assert triggered";
    711, "CUDA_ERROR_TOO_MANY_PEERS", "cudaErrorTooManyPeers", "too many peers";
    712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "cudaErrorHostMemoryAlreadyRegistered", "part or all of the requested memory range is already mapped";
    713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "cudaErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region";
    714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "cudaErrorHardwareStackError", "hardware stack error";
    715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "cudaErrorIllegalInstruction", "an illegal instruction was encountered";
    716, "CUDA_ERROR_MISALIGNED_ADDRESS", "cudaErrorMisalignedAddress", "misaligned address";
    717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "cudaErrorInvalidAddressSpace", "operation not supported on global/shared address space";
    718, "CUDA_ERROR_INVALID_PC", "cudaErrorInvalidPc", "invalid program counter";
    719, "CUDA_ERROR_LAUNCH_FAILED", "cudaErrorLaunchFailure", "unspecified launch failure";
    720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch";
    721, "CUDA_ERROR_TENSOR_MEMORY_LEAK", "cudaErrorTensorMemoryLeak", "tensor memory leak";
    800, "CUDA_ERROR_NOT_PERMITTED", "cudaErrorNotPermitted", "operation not permitted";
    801, "CUDA_ERROR_NOT_SUPPORTED", "cudaErrorNotSupported", "operation not supported";
    802, "CUDA_ERROR_SYSTEM_NOT_READY", "cudaErrorSystemNotReady", "system not yet initialized";
    803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "cudaErrorSystemDriverMismatch", "system driver mismatch";
    804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "cudaErrorCompatNotSupportedOnDevice", "compat not supported on device";
    805, "CUDA_ERROR_MPS_CONNECTION_FAILED", "cudaErrorMpsConnectionFailed", "mps connection failed";
    806, "CUDA_ERROR_MPS_RPC_FAILURE", "cudaErrorMpsRpcFailure", "mps rpc failure";
    807, "CUDA_ERROR_MPS_SERVER_NOT_READY", "cudaErrorMpsServerNotReady", "mps server not ready";
    808, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "cudaErrorMpsMaxClientsReached", "mps max clients reached";
    809, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "cudaErrorMpsMaxConnectionsReached", "mps max connections reached";
    810, "CUDA_ERROR_MPS_CLIENT_TERMINATED", "cudaErrorMpsClientTerminated", "mps client terminated";
    811, "CUDA_ERROR_CDP_NOT_SUPPORTED", "cudaErrorCdpNotSupported", "cdp not supported";
    812, "CUDA_ERROR_CDP_VERSION_MISMATCH", "cudaErrorCdpVersionMismatch", "cdp version mismatch";
    900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing";
    901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture";
    902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "cudaErrorStreamCaptureMerge", "stream capture merge";
    903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "cudaErrorStreamCaptureUnmatched", "stream capture unmatched";
    904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "cudaErrorStreamCaptureUnjoined", "stream capture unjoined";
    905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "cudaErrorStreamCaptureIsolation", "stream capture isolation";
    906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "cudaErrorStreamCaptureImplicit", "stream capture implicit";
    907, "CUDA_ERROR_CAPTURED_EVENT", "cudaErrorCapturedEvent", "captured event";
    908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "cudaErrorStreamCaptureWrongThread", "stream capture wrong thread";
    909, "CUDA_ERROR_TIMEOUT", "cudaErrorTimeout", "wait operation timed out";
    910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "cudaErrorGraphExecUpdateFailure", "graph exec update failure";
    911, "CUDA_ERROR_EXTERNAL_DEVICE", "cudaErrorExternalDevice", "external device";
    912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "cudaErrorInvalidClusterSize", "invalid cluster size";
    913, "CUDA_ERROR_FUNCTION_NOT_LOADED", "cudaErrorFunctionNotLoaded", "function not loaded";
    914, "CUDA_ERROR_INVALID_RESOURCE_TYPE", "cudaErrorInvalidResourceType", "invalid resource type";
    915, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", "cudaErrorInvalidResourceConfiguration", "invalid resource configuration";
    916, "CUDA_ERROR_KEY_ROTATION", "", "key rotation";
    999, "CUDA_ERROR_UNKNOWN", "cudaErrorUnknown", "unknown error";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_names_both_libraries() {
        assert!(TABLE.is_sorted_by_key(|row| row.0));
        assert_eq!(driver_name(700), Some(c"CUDA_ERROR_ILLEGAL_ADDRESS"));
        assert_eq!(runtime_name(700), Some(c"cudaErrorIllegalAddress"));
        assert_eq!(text(700), Some(c"an illegal memory access was encountered"));
        assert_eq!(
            (driver_name(13), runtime_name(13)),
            (None, Some(c"cudaErrorInvalidSymbol"))
        );
        assert_eq!((runtime_name(202), driver_name(5000)), (None, None));
    }
}
