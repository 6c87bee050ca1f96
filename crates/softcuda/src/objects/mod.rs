//! What a program makes and what it describes, each by itself: without the tables in which it
//! stands.

pub mod handle;

pub(crate) mod context;
pub(crate) mod pool;
pub(crate) mod stream;

pub(crate) mod jit_log;
pub(crate) mod link;
pub(crate) mod module;

pub mod fill;
pub(crate) mod image;
pub mod transfer;

pub(crate) mod condition;
pub(crate) mod kernel_call;
pub(crate) mod user_object;

pub(crate) mod work;

pub(crate) mod executable;
