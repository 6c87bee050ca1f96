//! How a kernel of PTX could be instrumented, as reports have it.

use warpbpf_abi::method::Method;
use warpbpf_patch::{Method as InPtx, PatchError};

/// What the patcher says of a kernel, in a report's words.
pub fn method(found: Result<InPtx, PatchError>) -> Method {
    match found {
        Ok(InPtx::Slice) => Method::Slice,
        Ok(InPtx::Clone { reasons }) => Method::Clone {
            reasons: reasons.join("; "),
        },
        Ok(InPtx::Refused { reason, advice }) => Method::refused(format!("{reason}; {advice}")),
        Err(error) => Method::refused(error.to_string()),
    }
}
