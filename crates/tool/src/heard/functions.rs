//! Functions that programs become in kernels of which there is only machine code: who makes them
//! for applications that come, and after replacements of their programs.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use warpbpf_wire::{Changed, Device, ToAgent};

use crate::heard::replacement::Replacement;

/// A function for machine code: its text, and the cubin or why there is none.
pub type Function = (String, Result<Vec<u8>, String>);

/// Has functions assembled for one application, or for several that are on devices of one kind.
pub trait Functions: Send + Sync {
    /// Those of the programs that are in force, given one by one: somebody waits. What `give`
    /// answers says whether the others are still wanted.
    fn make(&self, give: &mut dyn FnMut(Function) -> ControlFlow<()>);

    /// What makes those of the programs that there will be after a replacement. `None` if there
    /// will be none: the agent then says why it refuses them, or kernels without PTX run their
    /// originals from then on.
    fn after(&self, replacement: &Replacement) -> Option<Arc<dyn Functions>>;
}

type Of = dyn Fn(&Device) -> Arc<dyn Functions> + Send + Sync;

/// Who makes functions for applications that come.
pub(crate) struct Assembler {
    pub(crate) of: Box<Of>,
    /// The library of Compute Sanitizer, if that is to call the functions.
    pub(crate) sanitizer: Option<PathBuf>,
}

impl std::fmt::Debug for Assembler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Assembler")
    }
}

/// Those that a tool makes without a thought of replacements.
pub(crate) struct AtStart<F> {
    pub(crate) assemble: Arc<F>,
    pub(crate) device: Device,
}

impl<F> Functions for AtStart<F>
where
    F: Fn(&Device, &mut dyn FnMut(Function)) + Send + Sync,
{
    fn make(&self, give: &mut dyn FnMut(Function) -> ControlFlow<()>) {
        let mut wanted = ControlFlow::Continue(());
        (self.assemble)(&self.device, &mut |function| {
            if wanted.is_continue() {
                wanted = give(function);
            }
        });
    }

    fn after(&self, _: &Replacement) -> Option<Arc<dyn Functions>> {
        None
    }
}

/// The functions of an application.
#[derive(Default)]
pub(crate) struct OfProcess {
    /// Those of the programs that are in force.
    pub(crate) now: Option<Arc<dyn Functions>>,
    /// Those of a replacement that is under way, with the request's number.
    pub(crate) next: Option<(u64, Option<Arc<dyn Functions>>)>,
}

impl std::fmt::Debug for OfProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OfProcess")
    }
}

impl OfProcess {
    /// Those that it begins with.
    pub(crate) fn begin(&mut self, functions: Arc<dyn Functions>) {
        self.now = Some(functions);
    }

    /// A replacement has come to its end.
    pub(crate) fn changed(&mut self, changed: &Changed) {
        let ended = self.next.take_if(|(token, _)| *token == changed.token);
        if let Some((_, functions)) = ended
            && changed.refused.is_none()
        {
            self.now = functions;
        }
    }
}

/// The message that brings a function, and its blob.
pub(crate) fn message((text, made): Function) -> (ToAgent, Vec<u8>) {
    let (cubin, error) = match made {
        Ok(cubin) => (cubin, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    (ToAgent::Probe { text, error }, cubin)
}
