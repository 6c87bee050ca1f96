//! Which stream a handle means.

use std::sync::Arc;

use crate::error::CuError;
use crate::objects::context::Context;
use crate::objects::handle::Handle;
use crate::objects::stream::Stream;
use crate::state::{Soft, current, soft};

/// `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`
const LEGACY: Handle = 1;

const PER_THREAD: Handle = 2;

/// The stream of a handle. NULL and the two constants mean the context's NULL stream: with work
/// that runs where it is submitted, a thread's own default stream needs no queue of its own.
pub(crate) fn find(
    soft: &Soft,
    context: &Arc<Context>,
    handle: Handle,
) -> Result<Arc<Stream>, CuError> {
    match handle {
        0 | LEGACY | PER_THREAD => Ok(Arc::clone(&context.null_stream)),
        handle => soft.streams.get(handle).ok_or(CuError::INVALID_HANDLE),
    }
}

pub(crate) fn known(handle: Handle) -> Result<(&'static Soft, Arc<Context>, Arc<Stream>), CuError> {
    let soft = soft()?;
    let context = current()?;
    let stream = find(soft, &context, handle)?;
    Ok((soft, context, stream))
}
