//! Functions of the driver API that have probes.

use warpbpf_abi::cuda::{ARGS, Api, Kind, OpKind, Place, SYMBOLS, op_of, stream_of};
use warpbpf_driver::sys::CUlaunchConfig;

use crate::kernels::stream_name::{LEGACY_STREAM, PER_THREAD_STREAM};
use crate::uprobe::registers::Registers;

/// Functions that launch one kernel, by the argument that says which.
pub(crate) const LAUNCHES: &[(&str, &str)] = &[
    ("cuLaunchKernel", "f"),
    ("cuLaunchKernelEx", "f"),
    ("cuLaunchCooperativeKernel", "f"),
];

/// What is known of a function with programs.
#[derive(Debug)]
pub(crate) struct Function {
    /// The API's number.
    pub(crate) number: usize,
    pub(crate) per_thread: bool,
    pub(crate) count: u32,
    /// Where each argument is, and where it goes.
    pub(crate) arguments: Vec<(usize, Place, Kind)>,
    /// The argument that is the kernel.
    pub(crate) kernel: Option<usize>,
    pub(crate) api: Api,
    pub(crate) op: Option<OpKind>,
}

impl Function {
    /// Of one symbol of an API.
    pub(crate) fn new(number: usize, api: &Api, symbol: usize, per_thread: bool) -> Function {
        let symbol = &SYMBOLS[symbol];
        let slot = |name: &str| api.args.iter().position(|(known, _)| *known == name);
        let arguments = (symbol.args.iter().zip(symbol.places()))
            .filter_map(|((name, kind), place)| Some((slot(name)?, place, *kind)))
            .collect();
        let launches = LAUNCHES.iter().find(|(name, _)| *name == api.name);
        Function {
            number,
            per_thread,
            count: symbol.args.len() as u32,
            arguments,
            kernel: launches.and_then(|(_, argument)| slot(argument)),
            api: api.clone(),
            op: op_of(api.name),
        }
    }

    /// # Safety
    /// The function's first instruction is about to be executed with these registers.
    pub(crate) unsafe fn read(&self, registers: &Registers) -> [u64; ARGS] {
        let mut args = [0; ARGS];
        // Above the return address.
        let words = (registers.top() as *const u64).wrapping_add(1);
        for (slot, place, kind) in &self.arguments {
            let raw = match place {
                Place::Register(number) => registers.argument(*number),
                // SAFETY: the caller has put the function's arguments there.
                Place::Stack(word) => unsafe { words.add(usize::from(*word)).read() },
                Place::StackBlock(word) => words.wrapping_add(usize::from(*word)) as u64,
                Place::Vector => 0,
            };
            args[*slot] = kind.widen(raw);
        }
        args
    }
}

impl Function {
    /// The stream that a call puts its operation into; stream 0 by the name that it stands for.
    ///
    /// # Safety
    /// The arguments are those that the application gave.
    pub(crate) unsafe fn stream(&self, args: &[u64; ARGS]) -> u64 {
        let config = || {
            let at = self
                .api
                .args
                .iter()
                .position(|(name, _)| *name == "config")?;
            // SAFETY: the application's launch configuration, or null.
            let config = unsafe { (args[at] as *const CUlaunchConfig).as_ref() }?;
            Some(config.stream as u64)
        };
        let stream = stream_of(&self.api).map(|at| args[at]).or_else(config);
        match (stream.unwrap_or(0), self.per_thread) {
            (0, true) => PER_THREAD_STREAM as u64,
            (0, false) => LEGACY_STREAM as u64,
            (stream, _) => stream,
        }
    }
}
