//! What calls that are made to fail say: the code that a driver gives when just that goes wrong.

use crate::sys::{self, CUresult};

/// `CUDA_ERROR_OUT_OF_MEMORY`
const OUT_OF_MEMORY: CUresult = 2;
/// `CUDA_ERROR_INVALID_CONTEXT`
const INVALID_CONTEXT: CUresult = 201;
/// `CUDA_ERROR_INVALID_PTX`
const INVALID_PTX: CUresult = 218;
/// `CUDA_ERROR_NOT_FOUND`
const NOT_FOUND: CUresult = 500;
/// `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`
const OUT_OF_RESOURCES: CUresult = 701;
/// `CUDA_ERROR_UNKNOWN`
const UNKNOWN: CUresult = 999;

/// The code of a call that is made to fail.
pub(crate) fn code_of(symbol: &str) -> CUresult {
    match symbol {
        "cuMemAlloc_v2"
        | "cuMemAddressReserve"
        | "cuMemCreate"
        | "cuMemHostAlloc"
        | "cuMemHostRegister_v2"
        | "cuStreamCreate"
        | "cuEventCreate" => OUT_OF_MEMORY,
        "cuModuleLoadDataEx" | "cuLinkAddData_v2" | "cuLinkComplete" => INVALID_PTX,
        "cuModuleGetFunction"
        | "cuModuleGetGlobal_v2"
        | "cuLibraryGetKernel"
        | "cuLibraryGetGlobal" => NOT_FOUND,
        "cuCtxSetCurrent" | "cuCtxPushCurrent_v2" | "cuCtxPopCurrent_v2" | "cuCtxGetDevice" => {
            INVALID_CONTEXT
        }
        "cuLaunchKernel" => OUT_OF_RESOURCES,
        "cuGetErrorName" | "cuGetErrorString" | "cuFuncGetAttribute" | "cuFuncSetAttribute" => {
            sys::INVALID_VALUE
        }
        _ => UNKNOWN,
    }
}
