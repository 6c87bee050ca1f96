//! Types that the tool has loaded.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Types of an object.
#[derive(Debug)]
pub struct Btf {
    /// As loaded.
    pub bytes: Arc<[u8]>,
    /// The same in Linux, if it was asked for.
    pub in_linux: Option<OwnedFd>,
}
