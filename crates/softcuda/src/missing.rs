//! Functions of CUDA that are not there. They are exported all the same, since a program that names
//! one, perhaps for a case that never comes, would not start otherwise; each says its name and
//! answers `CUDA_ERROR_NOT_SUPPORTED`, as a driver does on a device that lacks something.
//! docs/soft-gpu.md has the same list in words.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::error::{CuError, CuResult};
use crate::state::lock;

/// Says once per process that a function is not there.
pub(crate) fn refuse(name: &'static str) -> CuResult {
    static SAID: Mutex<Option<HashSet<&str>>> = Mutex::new(None);
    if lock(&SAID).get_or_insert_default().insert(name) {
        crate::say::say(&format!("`{name}` is not there"));
    }
    Err(CuError::NOT_SUPPORTED)
}

/// Functions by name.
pub struct Names(pub &'static [(&'static str, *const ())]);

// SAFETY: the addresses are those of functions, which every thread may call.
unsafe impl Sync for Names {}

/// Exports functions whatever their arguments are. `$guard` runs a body that returns `CuResult`.
macro_rules! missing {
    ($guard:path, $before:expr; $($name:ident)*) => {
        $(
            #[doc(hidden)]
            mod $name {
                pub(super) unsafe extern "C" fn body() -> u32 {
                    $guard(|| {
                        $before?;
                        $crate::missing::refuse(stringify!($name))
                    })
                }
            }

            #[doc = concat!("`", stringify!($name), "`: not there, whatever its arguments are.")]
            ///
            /// # Safety
            /// None is needed: nothing that it is given is looked at.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() -> u32 {
                $crate::stub::entry_point!($name::body)
            }
        )*

        /// All of them.
        pub static NAMES: $crate::missing::Names = $crate::missing::Names(&[$((stringify!($name), $name as *const ())),*]);
    };
}

/// Of the driver API.
pub mod driver {
    #![expect(non_snake_case, reason = "names are CUDA's")]

    missing! {
        crate::stub::guard, crate::state::soft().map(|_| ());
        cuArrayGetMemoryRequirements cuArrayGetPlane cuArrayGetSparseProperties cuCheckpointProcessCheckpoint
        cuCheckpointProcessGetRestoreThreadId cuCheckpointProcessGetState cuCheckpointProcessLock
        cuCheckpointProcessRestore cuCheckpointProcessUnlock cuCoredumpGetAttribute cuCoredumpGetAttributeGlobal
        cuCoredumpSetAttribute cuCoredumpSetAttributeGlobal cuCtxAttach cuCtxDetach cuCtxFromGreenCtx cuCtxGetDevResource
        cuCtxGetExecAffinity cuCtxWaitEvent cuDestroyExternalMemory cuDestroyExternalSemaphore cuDevResourceGenerateDesc
        cuDevSmResourceSplitByCount cuDeviceGetDevResource cuDeviceGetGraphMemAttribute cuDeviceGetHostAtomicCapabilities
        cuDeviceGetLuid cuDeviceGetNvSciSyncAttributes cuDeviceGetP2PAtomicCapabilities cuDeviceGetProperties
        cuDeviceGraphMemTrim cuDeviceRegisterAsyncNotification cuDeviceSetGraphMemAttribute
        cuDeviceUnregisterAsyncNotification cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray
        cuFlushGPUDirectRDMAWrites cuFuncSetBlockShape cuFuncSetSharedSize cuGraphAddBatchMemOpNode
        cuGraphAddExternalSemaphoresSignalNode cuGraphAddExternalSemaphoresWaitNode cuGraphAddMemAllocNode
        cuGraphAddMemFreeNode cuGraphBatchMemOpNodeGetParams cuGraphBatchMemOpNodeSetParams cuGraphDebugDotPrint
        cuGraphExecBatchMemOpNodeSetParams cuGraphExecExternalSemaphoresSignalNodeSetParams
        cuGraphExecExternalSemaphoresWaitNodeSetParams cuGraphExternalSemaphoresSignalNodeGetParams
        cuGraphExternalSemaphoresSignalNodeSetParams cuGraphExternalSemaphoresWaitNodeGetParams
        cuGraphExternalSemaphoresWaitNodeSetParams cuGraphMemAllocNodeGetParams cuGraphMemFreeNodeGetParams
        cuGraphicsMapResources cuGraphicsMapResources_ptsz cuGraphicsResourceGetMappedMipmappedArray
        cuGraphicsResourceGetMappedPointer cuGraphicsResourceGetMappedPointer_v2 cuGraphicsResourceSetMapFlags
        cuGraphicsResourceSetMapFlags_v2 cuGraphicsSubResourceGetMappedArray cuGraphicsUnmapResources
        cuGraphicsUnmapResources_ptsz cuGraphicsUnregisterResource cuGreenCtxCreate cuGreenCtxDestroy
        cuGreenCtxGetDevResource cuGreenCtxGetId cuGreenCtxRecordEvent cuGreenCtxStreamCreate cuGreenCtxWaitEvent
        cuImportExternalMemory cuImportExternalSemaphore cuIpcCloseMemHandle cuIpcGetEventHandle cuIpcGetMemHandle
        cuIpcOpenEventHandle cuIpcOpenMemHandle cuIpcOpenMemHandle_v2 cuLaunch cuLaunchCooperativeKernelMultiDevice
        cuLaunchGrid cuLaunchGridAsync cuLogsCurrent cuLogsDumpToFile cuLogsDumpToMemory cuLogsRegisterCallback
        cuLogsUnregisterCallback cuMemBatchDecompressAsync cuMemBatchDecompressAsync_ptsz
        cuMemDiscardAndPrefetchBatchAsync cuMemDiscardAndPrefetchBatchAsync_ptsz cuMemDiscardBatchAsync
        cuMemDiscardBatchAsync_ptsz cuMemExportToShareableHandle cuMemGetAccess cuMemGetAllocationPropertiesFromHandle
        cuMemGetDefaultMemPool cuMemGetHandleForAddressRange cuMemGetMemPool cuMemImportFromShareableHandle
        cuMemMapArrayAsync cuMemMapArrayAsync_ptsz cuMemPoolExportPointer cuMemPoolExportToShareableHandle
        cuMemPoolImportFromShareableHandle cuMemPoolImportPointer cuMemPrefetchBatchAsync cuMemPrefetchBatchAsync_ptsz
        cuMemRetainAllocationHandle cuMemSetMemPool cuMemcpy3DBatchAsync cuMemcpy3DBatchAsync_ptsz cuMemcpy3DBatchAsync_v2
        cuMemcpy3DBatchAsync_v2_ptsz cuMemcpy3DPeer cuMemcpy3DPeerAsync cuMemcpy3DPeerAsync_ptsz cuMemcpy3DPeer_ptds
        cuMipmappedArrayDestroy cuMipmappedArrayGetLevel cuMipmappedArrayGetMemoryRequirements
        cuMipmappedArrayGetSparseProperties cuModuleGetSurfRef cuModuleGetTexRef cuMulticastAddDevice cuMulticastBindAddr
        cuMulticastBindMem cuMulticastCreate cuMulticastGetGranularity cuMulticastUnbind cuParamSetSize cuParamSetTexRef
        cuParamSetf cuParamSeti cuParamSetv cuSignalExternalSemaphoresAsync cuSignalExternalSemaphoresAsync_ptsz
        cuStreamBatchMemOp cuStreamBatchMemOp_ptsz cuStreamBatchMemOp_v2 cuStreamBatchMemOp_v2_ptsz cuStreamGetGreenCtx
        cuSurfRefGetArray cuSurfRefSetArray cuTexRefCreate cuTexRefDestroy cuTexRefGetAddress cuTexRefGetAddressMode
        cuTexRefGetAddress_v2 cuTexRefGetArray cuTexRefGetBorderColor cuTexRefGetFilterMode cuTexRefGetFlags
        cuTexRefGetFormat cuTexRefGetMaxAnisotropy cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias
        cuTexRefGetMipmapLevelClamp cuTexRefGetMipmappedArray cuTexRefSetAddress cuTexRefSetAddress2D
        cuTexRefSetAddress2D_v2 cuTexRefSetAddress2D_v3 cuTexRefSetAddressMode cuTexRefSetAddress_v2 cuTexRefSetArray
        cuTexRefSetBorderColor cuTexRefSetFilterMode cuTexRefSetFlags cuTexRefSetFormat cuTexRefSetMaxAnisotropy
        cuTexRefSetMipmapFilterMode cuTexRefSetMipmapLevelBias cuTexRefSetMipmapLevelClamp cuTexRefSetMipmappedArray
        cuWaitExternalSemaphoresAsync cuWaitExternalSemaphoresAsync_ptsz
    }
}

/// Of the runtime API.
pub mod runtime {
    #![expect(non_snake_case, reason = "names are CUDA's")]

    missing! {
        crate::runtime::guard, crate::runtime::link::driver().map(|_| ());
    cudaArrayGetMemoryRequirements cudaArrayGetPlane cudaArrayGetSparseProperties cudaDestroyExternalMemory
        cudaDestroyExternalSemaphore cudaDeviceFlushGPUDirectRDMAWrites cudaDeviceGetGraphMemAttribute
        cudaDeviceGetHostAtomicCapabilities cudaDeviceGetNvSciSyncAttributes cudaDeviceGetP2PAtomicCapabilities
        cudaDeviceGraphMemTrim cudaDeviceRegisterAsyncNotification cudaDeviceSetGraphMemAttribute
        cudaDeviceUnregisterAsyncNotification cudaExternalMemoryGetMappedBuffer cudaExternalMemoryGetMappedMipmappedArray
        cudaFreeMipmappedArray cudaGetMipmappedArrayLevel cudaGetTextureObjectResourceViewDesc
        cudaGraphAddExternalSemaphoresSignalNode cudaGraphAddExternalSemaphoresWaitNode cudaGraphAddMemAllocNode
        cudaGraphAddMemFreeNode cudaGraphDebugDotPrint cudaGraphExecExternalSemaphoresSignalNodeSetParams
        cudaGraphExecExternalSemaphoresWaitNodeSetParams cudaGraphExecMemcpyNodeSetParamsFromSymbol
        cudaGraphExecMemcpyNodeSetParamsToSymbol cudaGraphExternalSemaphoresSignalNodeGetParams
        cudaGraphExternalSemaphoresSignalNodeSetParams cudaGraphExternalSemaphoresWaitNodeGetParams
        cudaGraphExternalSemaphoresWaitNodeSetParams cudaGraphMemAllocNodeGetParams cudaGraphMemFreeNodeGetParams
        cudaGraphMemcpyNodeGetParams cudaGraphMemcpyNodeSetParamsFromSymbol cudaGraphMemcpyNodeSetParamsToSymbol
        cudaGraphicsMapResources cudaGraphicsResourceGetMappedMipmappedArray cudaGraphicsResourceGetMappedPointer
        cudaGraphicsResourceSetMapFlags cudaGraphicsSubResourceGetMappedArray cudaGraphicsUnmapResources
        cudaGraphicsUnregisterResource cudaImportExternalMemory cudaImportExternalSemaphore cudaIpcCloseMemHandle
        cudaIpcGetEventHandle cudaIpcGetMemHandle cudaIpcOpenEventHandle cudaIpcOpenMemHandle cudaLogsCurrent
        cudaLogsDumpToFile cudaLogsDumpToMemory cudaLogsRegisterCallback cudaLogsUnregisterCallback
        cudaMemDiscardAndPrefetchBatchAsync cudaMemDiscardAndPrefetchBatchAsync_ptsz cudaMemDiscardBatchAsync
        cudaMemDiscardBatchAsync_ptsz cudaMemGetDefaultMemPool cudaMemGetMemPool cudaMemPoolExportPointer
        cudaMemPoolExportToShareableHandle cudaMemPoolImportFromShareableHandle cudaMemPoolImportPointer
        cudaMemPrefetchBatchAsync cudaMemPrefetchBatchAsync_ptsz cudaMemSetMemPool cudaMemcpy3DBatchAsync
        cudaMemcpy3DBatchAsync_ptsz cudaMemcpy3DPeer cudaMemcpy3DPeerAsync cudaMemcpy3DPeerAsync_ptsz
        cudaMemcpy3DPeer_ptds cudaMemcpyArrayToArray cudaMemcpyArrayToArray_ptds cudaMipmappedArrayGetMemoryRequirements
        cudaMipmappedArrayGetSparseProperties cudaSignalExternalSemaphoresAsync cudaSignalExternalSemaphoresAsync_ptsz
        cudaWaitExternalSemaphoresAsync cudaWaitExternalSemaphoresAsync_ptsz
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_documentation_names_each() {
        let page = include_str!("../../../docs/soft-gpu.md");
        let lists = [super::driver::NAMES.0, super::runtime::NAMES.0].concat();
        assert!(lists.len() > 200);
        for (name, _) in &lists {
            // Versions and forms for the thread's own stream are not listed.
            let name = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
            let name = ["_v2", "_v3"]
                .iter()
                .find_map(|v| name.strip_suffix(v))
                .unwrap_or(name);
            assert!(
                page.contains(&format!("`{name}`")),
                "docs/soft-gpu.md does not name `{name}`"
            );
        }
    }
}
