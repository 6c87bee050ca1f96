//! Messages that hooks want to be sent, until the thread that speaks with the tool takes them.

use std::sync::Mutex;

use warpbpf_wire::ToTool;

use crate::agent::Agent;
use crate::descriptors::OwnDescriptor;
use crate::lock::lock;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Mutex<Vec<Outgoing>>);

/// Something to send.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) message: ToTool,
    pub(crate) fd: Option<OwnDescriptor>,
}

impl Agent {
    /// Has the control thread send a message.
    pub(crate) fn send(&self, message: ToTool, fd: Option<OwnDescriptor>) {
        // In a forked child nobody lets go of the lock.
        if !self.is_on() {
            return;
        }
        let mut outbox = lock(&self.outbox.0);
        // Who ends the session empties it behind this.
        if self.is_on() {
            outbox.push(Outgoing { message, fd });
        }
    }

    pub(crate) fn take_outbox(&self) -> Vec<Outgoing> {
        std::mem::take(&mut lock(&self.outbox.0))
    }

    /// Nobody speaks with a tool any more, and no tool will look at what a context leaves. An agent
    /// may live on as long as the process, and there may be many one after the other: what of it has
    /// a descriptor ends here.
    pub(crate) fn nobody_listens(&self) {
        self.turn_off();
        self.files.close();
        drop(self.take_outbox());
        for shard in self.context_registry.all() {
            shard.keep_no_memory();
        }
    }
}
