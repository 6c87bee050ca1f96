//! What programs attach to graphs.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crate::objects::handle::Handle;

/// Of a user object: what is called when nobody holds it any more.
pub(crate) struct UserObject {
    pub(crate) handle: Handle,
    pub(crate) holders: AtomicU32,
    pub(crate) destroy: unsafe extern "C" fn(*mut c_void),
    pub(crate) data: usize,
}

/// Holds of a graph on an object; what is copied holds it, too.
pub(crate) struct Held {
    pub(crate) object: Arc<UserObject>,
    pub(crate) count: u32,
}
