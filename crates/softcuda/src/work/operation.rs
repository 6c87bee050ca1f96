//! How operations run. It is one type, so that a call does the same whether its stream runs it or
//! captures it.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use warpbpf_softgpu::{Launch, Outcome, TrapKind};

use crate::error::CuError;
use crate::objects::handle::lock;
use crate::objects::kernel_call::KernelCall;
use crate::objects::work::Operation;
use crate::state::Soft;

impl Operation {
    pub(crate) fn run(&self, soft: &Soft) {
        match self {
            Operation::Kernel(call) => call.run(soft),
            Operation::Copy(copy) => copy.run(soft),
            Operation::Fill(fill) => fill.run(soft),
            // SAFETY: the program asked for this call.
            Operation::Host(call) => unsafe { (call.function)(call.data as *mut c_void) },
            // Who runs a graph runs what is in it.
            Operation::Graph(_) | Operation::Conditional(_) | Operation::Empty => {}
            Operation::Wait(event) => event.wait(),
            Operation::Record(event) => {
                let ticket = event.submit();
                event.complete(ticket);
            }
        }
    }
}

/// The error that a real GPU gives for the same mistake.
fn trap_code(kind: &TrapKind) -> CuError {
    match kind {
        TrapKind::OutOfBounds { .. } => CuError::ILLEGAL_ADDRESS,
        TrapKind::Misaligned { .. } => CuError::MISALIGNED_ADDRESS,
        TrapKind::Assert => CuError::ASSERT,
        TrapKind::StackOverflow => CuError::HARDWARE_STACK_ERROR,
        TrapKind::InvalidCall => CuError::INVALID_PC,
        TrapKind::InvalidSync | TrapKind::InvalidDescriptor | TrapKind::Unsupported => {
            CuError::ILLEGAL_INSTRUCTION
        }
        TrapKind::TrapInstruction
        | TrapKind::Breakpoint
        | TrapKind::Deadlock
        | TrapKind::InvalidFree => CuError::LAUNCH_FAILED,
    }
}

impl KernelCall {
    fn run(&self, soft: &Soft) {
        let Some(context) = soft.contexts.get(self.function.module.context) else {
            return;
        };
        if context.check().is_err() {
            return;
        }
        let mut printed = Vec::new();
        let outcome = soft.gpu(&context).launch(Launch {
            kernel: &self.function.kernel,
            grid: self.grid,
            block: self.block,
            cluster: self.cluster,
            dynamic_shared: self.shared,
            params: &self.values.block,
            grid_id: soft.next_grid.fetch_add(1, Ordering::Relaxed),
            stdout: Some(&mut |text: &[u8]| printed.extend_from_slice(text)),
        });
        lock(&context.printed).extend_from_slice(&printed);
        let failure = match outcome {
            Ok(Outcome::Done { .. }) => return,
            Ok(Outcome::Trapped(trap)) => {
                crate::say::say(&trap.to_string());
                trap_code(&trap.kind)
            }
            Err(error) => {
                crate::say::say(&error.to_string());
                CuError::LAUNCH_FAILED
            }
        };
        // The first failure stays.
        let _ = context
            .sticky
            .compare_exchange(0, failure.0, Ordering::AcqRel, Ordering::Acquire);
    }
}
