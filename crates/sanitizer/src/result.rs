//! Why something of Compute Sanitizer did not work.

use std::path::PathBuf;

use crate::sys::declared::{Instruction, SanitizerResult};

/// Why the library is not to be used, or does not do what it is asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum SanitizerError {
    #[error("`{}` cannot be loaded: {why}", path.display())]
    Library { path: PathBuf, why: String },
    #[error(
        "the library has no `{symbol}`; it must be of CUDA 12 or newer, use that of `pip install nvidia-cuda-sanitizer-api`"
    )]
    Symbol { symbol: &'static str },
    #[error(
        "another tool subscribed to Compute Sanitizer in this application before; there can be one, run it without that tool"
    )]
    Taken,
    #[error(
        "`{call}` says that the library does not fit the driver; use that of the driver's own CUDA version (`pip install nvidia-cuda-sanitizer-api`)"
    )]
    Version { call: &'static str },
    #[error("`{call}` failed: {name} ({code})")]
    Call {
        call: &'static str,
        name: &'static str,
        code: SanitizerResult,
    },
    #[error(
        "this version of the library does not tell of `{place:?}` (instruction {}): use that of CUDA 12.2 or newer (`pip install nvidia-cuda-sanitizer-api`), or leave such places out by `kind=`", *place as u32
    )]
    Unknown { place: Instruction },
    #[error("no device function can be found by a name that holds a NUL byte")]
    Name,
}

/// `SANITIZER_ERROR_MAX_LIMIT_REACHED`, of a second subscriber.
const MAX_LIMIT_REACHED: SanitizerResult = 10;
/// `SANITIZER_ERROR_NOT_INITIALIZED`, also where library and driver do not fit.
const NOT_INITIALIZED: SanitizerResult = 13;

impl SanitizerError {
    /// What a call of the API gave back.
    pub(crate) fn check(call: &'static str, code: SanitizerResult) -> Result<(), SanitizerError> {
        match code {
            0 => Ok(()),
            MAX_LIMIT_REACHED => Err(SanitizerError::Taken),
            NOT_INITIALIZED => Err(SanitizerError::Version { call }),
            code => Err(SanitizerError::Call {
                call,
                name: name(code),
                code,
            }),
        }
    }
}

fn name(code: SanitizerResult) -> &'static str {
    match code {
        1 => "SANITIZER_ERROR_INVALID_PARAMETER",
        2 => "SANITIZER_ERROR_INVALID_DEVICE",
        3 => "SANITIZER_ERROR_INVALID_CONTEXT",
        4 => "SANITIZER_ERROR_INVALID_DOMAIN_ID",
        5 => "SANITIZER_ERROR_INVALID_CALLBACK_ID",
        6 => "SANITIZER_ERROR_INVALID_OPERATION",
        7 => "SANITIZER_ERROR_OUT_OF_MEMORY",
        8 => "SANITIZER_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT",
        9 => "SANITIZER_ERROR_API_NOT_IMPLEMENTED",
        11 => "SANITIZER_ERROR_NOT_READY",
        12 => "SANITIZER_ERROR_NOT_COMPATIBLE",
        14 => "SANITIZER_ERROR_NOT_SUPPORTED",
        15 => "SANITIZER_ERROR_ADDRESS_NOT_IN_DEVICE_MEMORY",
        999 => "SANITIZER_ERROR_UNKNOWN",
        _ => "an error without a known name",
    }
}
