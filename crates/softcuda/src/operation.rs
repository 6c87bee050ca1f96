//! What a stream runs and what a node of a graph holds. It is one type, so that a call does the
//! same whether its stream runs it or captures it.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use warpbpf_softgpu::{Launch, Outcome, TrapKind};

use crate::conditional::Conditional;
use crate::driver::fill::Fill;
use crate::driver::module::Function;
use crate::driver::rows::Transfer;
use crate::error::CuError;
use crate::graph::Graph;
use crate::state::{Soft, lock};
use crate::stream::{Event, Run};

/// See the module.
#[derive(Clone)]
pub(crate) enum Operation {
    Kernel(Arc<KernelCall>),
    Copy(Arc<Transfer>),
    Fill(Fill),
    Host(HostCall),
    /// A graph in a graph.
    Graph(Arc<Graph>),
    /// Graphs of which a value chooses.
    Conditional(Conditional),
    Empty,
    Wait(Arc<Event>),
    Record(Arc<Event>),
}

/// A function of the program, and what it is called with.
#[derive(Clone, Copy)]
pub(crate) struct HostCall {
    pub function: unsafe extern "C" fn(*mut c_void),
    /// An address.
    pub data: usize,
}

/// The value of a launch attribute: a union of 64 bytes.
pub(crate) type AttributeValue = [u64; 8];

/// A launch, complete.
#[derive(Clone)]
pub(crate) struct KernelCall {
    pub function: Arc<Function>,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub shared: u32,
    pub cooperative: bool,
    /// Attributes of a node that mean nothing here, for who asks.
    pub attributes: BTreeMap<u32, AttributeValue>,
    pub values: Arc<Values>,
}

/// Parameters, and a list of pointers to them as a program gives and gets it.
pub(crate) struct Values {
    pub block: Box<[u8]>,
    /// Addresses in `block`.
    pub pointers: Box<[usize]>,
}

impl Values {
    pub(crate) fn new(function: &Function, block: Vec<u8>) -> Values {
        let block = block.into_boxed_slice();
        let start = block.as_ptr() as usize;
        let params = function.kernel.params().iter();
        let pointers = params.map(|param| start + param.offset).collect();
        Values { block, pointers }
    }
}

impl Operation {
    /// `CU_GRAPH_NODE_TYPE_…`
    pub(crate) fn kind(&self) -> u32 {
        match self {
            Operation::Kernel(_) => 0,
            Operation::Copy(_) => 1,
            Operation::Fill(_) => 2,
            Operation::Host(_) => 3,
            Operation::Graph(_) => 4,
            Operation::Empty => 5,
            Operation::Wait(_) => 6,
            Operation::Record(_) => 7,
            Operation::Conditional(_) => 13,
        }
    }

    /// Where it may run. A function of the program runs on the stream's thread, as with a driver:
    /// the program may hold a lock here that its function takes.
    pub(crate) fn place(&self) -> Run {
        match self {
            Operation::Host(_) | Operation::Wait(_) => Run::Elsewhere,
            Operation::Kernel(_)
            | Operation::Copy(_)
            | Operation::Fill(_)
            | Operation::Graph(_)
            | Operation::Conditional(_)
            | Operation::Empty
            | Operation::Record(_) => Run::Here,
        }
    }

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
