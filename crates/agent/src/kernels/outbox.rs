//! Messages that hooks want to be sent, until the thread that speaks with the tool takes them.

use std::sync::Mutex;

use warpbpf_wire::ToTool;

use crate::sys::descriptors::OwnDescriptor;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Outbox(pub(crate) Mutex<Vec<Outgoing>>);

/// Something to send.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) message: ToTool,
    pub(crate) fd: Option<OwnDescriptor>,
}
