//! A link under way.

use std::ffi::CString;
use std::sync::Mutex;

use crate::objects::jit_log::JitLog;

/// A link under way.
pub(crate) struct Link {
    pub(crate) log: Mutex<JitLog>,
    pub(crate) texts: Mutex<Vec<String>>,
    /// What a completed link gave.
    pub(crate) image: Mutex<Option<CString>>,
}
