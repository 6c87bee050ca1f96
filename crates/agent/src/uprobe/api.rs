//! Calls of the driver API with programs: the arguments by their names, the result, how long it
//! took, and which launch it is.
//!
//! A call that the driver makes of itself while it serves one of the application is not the
//! application's, and is not seen; nor is one that the agent makes. So each call is followed to its
//! end, also where no program runs there.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use warpbpf_abi::cuda::{
    API, ARG_COUNT, ARGS, ARGS_AT, CONTEXT_BYTES, DURATION, KERNEL, LAUNCH, PER_THREAD, RESULT,
    START,
};
use warpbpf_abi::cuda::{OpKind, bytes_of};
use warpbpf_driver::sys;
use warpbpf_session::clock::monotonic_ns;
use warpbpf_wire::GraphLaunch;

use super::registers::BYTES;
use crate::sys::guard::quietly;
use crate::trace::timeline::{Asked, Marked};
use crate::uprobe::function::Function;
use crate::uprobe::registers::Registers;
use crate::uprobe::run::{execute, expect_return, stack};
use crate::uprobe::sites::{Sites, sites};

/// Calls of one thread that are kept: the application's own one, and what a callback of it may
/// call.
const DEPTH: usize = 4;

/// A call that was made and has not ended.
#[derive(Debug, Clone, Copy)]
struct Call {
    /// Where its return address stands.
    slot: u64,
    /// What stands there.
    after: u64,
    start: u64,
    entered: u64,
    kernel: u64,
    launch: u64,
    args: [u64; ARGS],
    /// Its operation on the device, if that is timed.
    marked: Option<Marked>,
    stack: u32,
}

/// Those of one thread, in the order in which they began.
struct Calls {
    calls: [Call; DEPTH],
    count: usize,
}

thread_local! {
    /// None of them has a destructor, so they can be used while the thread ends.
    static CALLS: RefCell<Calls> = const { RefCell::new(Calls::new()) };
    /// The number that was given to the launch which is being made, and its kernel's handle.
    static NUMBERED: Cell<(usize, u64)> = const { Cell::new((0, 0)) };
    /// The launch of a graph that is being made.
    static GRAPH: Cell<Option<GraphLaunch>> = const { Cell::new(None) };
}

impl Calls {
    const fn new() -> Calls {
        let none = Call {
            slot: 0,
            after: 0,
            start: 0,
            entered: 0,
            kernel: 0,
            launch: 0,
            args: [0; ARGS],
            marked: None,
            stack: 0,
        };
        Calls {
            calls: [none; DEPTH],
            count: 0,
        }
    }

    /// One is being made at `slot`: is another under way? Those that were left without a return are
    /// forgotten.
    fn is_nested(&mut self, slot: u64, own: &Range<u64>) -> bool {
        let mut count = 0;
        for at in 0..self.count {
            let call = self.calls[at];
            // Nothing follows from addresses on other stacks than the thread's own.
            let around = own.contains(&slot) && own.contains(&call.slot) && call.slot > slot;
            // SAFETY: a word of the thread's own stack, in use.
            if around && unsafe { (call.slot as *const u64).read_volatile() } == call.after {
                self.calls[count] = call;
                count += 1;
            }
        }
        self.count = count;
        count > 0
    }

    fn push(&mut self, call: Call) {
        if let Some(place) = self.calls.get_mut(self.count) {
            *place = call;
            self.count += 1;
        }
    }

    fn pop(&mut self, slot: u64) -> Option<Call> {
        let at = self.calls[..self.count]
            .iter()
            .rposition(|call| call.slot == slot)?;
        self.count = at;
        Some(self.calls[at])
    }
}

/// The number of the launch that this thread is making, if it was given one before the agent's own
/// hook.
#[inline]
pub(crate) fn numbered(handle: usize) -> Option<u64> {
    // Without programs on the CPU a launch is not to look for a thread's variable.
    sites()?;
    let (of, number) = NUMBERED.replace((0, 0));
    (of == handle && number != 0).then_some(number)
}

/// This thread has launched a graph; the call that did so comes back now.
pub(crate) fn launched_graph(launch: GraphLaunch) {
    GRAPH.set(Some(launch));
}

/// A function of the driver is called.
pub(crate) fn called(sites: &Sites, index: usize, function: &Function, registers: &Registers) {
    if !sites.agent.is_on() {
        return;
    }
    // Inside ourselves nothing is wanted, and a panic is a fault of ours: the application goes on
    // either way.
    let _ = quietly(|| {
        let own = stack();
        let slot = registers.top();
        if CALLS.with(|calls| calls.borrow_mut().is_nested(slot, &own)) {
            return;
        }
        GRAPH.set(None);
        let site = &sites.all[index];
        let start = monotonic_ns();
        // SAFETY: the stub has saved the registers as the caller left them.
        let args = unsafe { function.read(registers) };
        let (kernel, launch) = number_launch(sites, function, &args).unwrap_or((0, 0));
        let mut call = Call {
            slot,
            after: site.after as u64,
            start,
            entered: start,
            kernel,
            launch,
            args,
            marked: None,
            stack: 0,
        };
        execute(
            sites,
            site,
            &site.starts,
            &context(function, &call, registers, None),
        );
        let timeline = sites.timeline.as_ref().filter(|_| site.timed);
        if let (Some(_), Some(stacks)) = (timeline, &sites.stacks) {
            // SAFETY: the stub has saved the registers as the caller left them, on this thread's
            // stack.
            let number = unsafe { stacks.number(registers.caller(), &own) };
            call.stack = number.unwrap_or(0);
        }
        // SAFETY: as above.
        let stream = || unsafe { function.stream(&args) };
        call.marked = timeline.and_then(|timeline| timeline.begin(sites.agent, stream()));
        if expect_return(sites, index, slot) {
            call.entered = monotonic_ns();
            CALLS.with(|calls| calls.borrow_mut().push(call));
        } else if let (Some(timeline), Some(marked)) = (timeline, call.marked) {
            timeline.end(sites.agent, marked, false, &asked(function, &call));
        }
    });
}

/// It has returned, to the address that stood at `slot`.
pub(crate) fn returned(sites: &Sites, index: usize, slot: u64, registers: &Registers) {
    let _ = quietly(|| {
        let end = monotonic_ns();
        NUMBERED.set((0, 0));
        let site = &sites.all[index];
        let call = CALLS.with(|calls| calls.borrow_mut().pop(slot));
        if let (Some(call), Some(function)) = (call, &site.api)
            && sites.agent.is_on()
        {
            let took = end.saturating_sub(call.entered);
            if let (Some(timeline), Some(marked)) = (&sites.timeline, call.marked) {
                let done = registers.result() as i32 == sys::SUCCESS;
                timeline.end(sites.agent, marked, done, &asked(function, &call));
                sites.agent.launch_happened();
            }
            execute(
                sites,
                site,
                &site.ends,
                &context(function, &call, registers, Some(took)),
            );
        }
    });
}

/// Gives a launch of a kernel with programs its number now, so that both sides have the same:
/// kernel and number.
fn number_launch(sites: &Sites, function: &Function, args: &[u64; ARGS]) -> Option<(u64, u64)> {
    let handle = args[function.kernel?] as usize;
    let entry = sites.agent.table.get(handle)?;
    let number = entry.next_launch();
    NUMBERED.set((handle, number));
    let kernel = sites.session.known_kernel(&entry.mangled)?;
    Some((kernel, number))
}

/// What a program gets; `ended` is how long the driver took.
fn context(
    function: &Function,
    call: &Call,
    registers: &Registers,
    ended: Option<u64>,
) -> [u8; CONTEXT_BYTES] {
    let mut bytes = [0; CONTEXT_BYTES];
    bytes[..BYTES].copy_from_slice(registers.bytes());
    let mut word = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    word(API, function.number as u32);
    word(ARG_COUNT, function.count);
    word(PER_THREAD, function.per_thread.into());
    if ended.is_some() {
        word(RESULT, registers.result() as u32);
    }
    let mut long = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    long(START, call.start);
    long(DURATION, ended.unwrap_or(0));
    long(KERNEL, call.kernel);
    long(LAUNCH, call.launch);
    for (slot, value) in call.args.iter().enumerate() {
        long(ARGS_AT + 8 * slot, *value);
    }
    bytes
}

/// What is told of a call's operation.
fn asked<'a>(function: &'a Function, call: &Call) -> Asked<'a> {
    Asked {
        api: function.api.name,
        kind: function.op.map_or("", OpKind::word),
        called: call.start,
        bytes: bytes_of(&function.api, &call.args),
        kernel: function.kernel.map(|at| call.args[at]),
        launch: call.launch,
        stack: call.stack,
        graph: GRAPH.take(),
    }
}

#[cfg(test)]
mod tests {
    use warpbpf_abi::cuda::SYMBOLS;

    use super::*;

    fn call(slot: &u64) -> Call {
        Call {
            slot: std::ptr::from_ref(slot) as u64,
            after: *slot,
            ..Calls::new().calls[0]
        }
    }

    #[test]
    fn the_drivers_own_calls_are_told_from_the_applications() {
        // A stack, whose deeper frames have lower addresses.
        let mut frames = [0x11u64; 8];
        let own = frames.as_ptr() as u64..frames.as_ptr() as u64 + 64;
        let at = |frame: usize| own.start + 8 * frame as u64;
        let mut calls = Calls::new();
        assert!(!calls.is_nested(at(6), &own));
        calls.push(call(&frames[6]));
        assert!(
            calls.is_nested(at(3), &own),
            "deeper, and the outer one waits"
        );
        assert!(
            !calls.is_nested(at(7), &own),
            "less deep: the other was left by a jump"
        );
        assert!(calls.pop(at(6)).is_none());
        calls.push(call(&frames[6]));
        frames[6] = 0x22;
        assert!(!calls.is_nested(at(3), &own), "its return address is gone");
        calls.push(call(&frames[5]));
        assert!(!calls.is_nested(0x1000, &own), "another stack");
        calls.push(call(&frames[5]));
        assert_eq!(calls.pop(at(5)).unwrap().after, 0x11);
        assert!(calls.pop(at(5)).is_none());
        for _ in 0..2 * DEPTH {
            calls.push(call(&frames[1]));
        }
        assert_eq!(calls.count, DEPTH);
    }

    #[test]
    fn older_versions_have_their_arguments_at_the_names_of_the_newest() {
        let all = warpbpf_abi::cuda::apis();
        let number = all
            .iter()
            .position(|api| api.name == "cuCtxCreate")
            .unwrap();
        let api = &all[number];
        let symbol = |name: &str| SYMBOLS.iter().position(|s| s.name == name).unwrap();
        let function = Function::new(number, api, symbol("cuCtxCreate_v3"), false);
        let slots: Vec<usize> = function.arguments.iter().map(|(slot, ..)| *slot).collect();
        // pctx, paramsArray, numParams, flags, dev
        assert_eq!(slots, [0, 4, 5, 2, 3]);
        assert_eq!(function.kernel, None);
    }

    #[test]
    fn a_context_says_what_the_call_was() {
        let all = warpbpf_abi::cuda::apis();
        let number = all
            .iter()
            .position(|api| api.name == "cuLaunchKernel")
            .unwrap();
        let symbol = SYMBOLS
            .iter()
            .position(|s| s.name == "cuLaunchKernel")
            .unwrap();
        let function = Function::new(number, &all[number], symbol, true);
        assert_eq!(function.kernel, Some(0));
        let mut made = Calls::new().calls[0];
        (made.launch, made.start) = (7, 9);
        made.args = std::array::from_fn(|at| at as u64);
        let bytes = context(&function, &made, &Registers::default(), Some(5));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!((long(LAUNCH), long(START), long(DURATION)), (7, 9, 5));
        assert_eq!(long(ARGS_AT + 8 * 10), 10);
        assert_eq!(bytes[API..API + 4], (number as u32).to_le_bytes());
        assert_eq!(bytes[ARG_COUNT], 11);
        assert_eq!(bytes[PER_THREAD], 1);
    }
}
