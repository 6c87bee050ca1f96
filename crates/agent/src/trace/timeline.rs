//! When the device begins and ends each operation of the application: an event of ours in front of
//! it and one behind it, in its stream.
//!
//! Events need no multiprocessor, so they come to their turn where kernels that never end fill the
//! device, as a kernel that writes the time would not. The application's threads take them from a
//! store that was filled beforehand, and never wait: where it is empty an operation is counted as
//! untimed. The agent's thread asks what has ended. A stream that is being captured gets no event,
//! because a captured one would be a node of the application's graph.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use warpbpf_abi::cuda::OpKind;
use warpbpf_driver::sys::{self, CUevent, CUfunction, CUlibrary, CUresult, CUstream};
use warpbpf_driver::{Context, Stream};
use warpbpf_session::clock::monotonic_ns;
use warpbpf_wire::{GraphLaunch, GraphNode, GraphNodes, Operation, Operations, ToTool, Untimed};

use crate::runtime::agent::Agent;
use crate::sys::lock::lock;
use crate::trace::nvtx;

/// Events of a context: two for each operation that is under way.
const EVENTS: usize = 4096;
/// Operations that are kept until they have ended.
const MOST: usize = 1 << 16;
/// Kernels of graphs that are told in all lists together.
const MOST_NODES: usize = 1 << 18;
/// Operations in one message.
const BATCH: usize = 256;
/// Kernels of graphs in one message. Their names may be thousands of characters long.
const PART: usize = 4096;
/// How old the mark may be that others are measured from: their distance is a number of 24 bits.
const RENEWED: Duration = Duration::from_millis(500);
/// Tries to find out when such a mark was made; the shortest counts.
const TRIES: usize = 8;
/// How long one may take.
const PATIENCE: Duration = Duration::from_millis(20);

/// Functions of the driver that nothing else needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Functions {
    elapsed: Elapsed,
    func_name: Option<Ask<*mut *const c_char>>,
    kernel_name: Option<Ask<*mut *const c_char>>,
    kernel_library: Option<Ask<*mut CUlibrary>>,
}

type Elapsed = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;
type Ask<T> = unsafe extern "C" fn(T, CUfunction) -> CUresult;

impl Functions {
    /// Those of a driver; `None` if it lacks what is essential.
    ///
    /// # Safety
    /// `find` gives addresses of the driver's functions.
    pub(crate) unsafe fn new(find: impl Fn(&str) -> Option<usize>) -> Option<Functions> {
        let name = |symbol| -> Option<Ask<*mut *const c_char>> {
            // SAFETY: functions of these names have this signature.
            Some(unsafe { std::mem::transmute::<usize, Ask<*mut *const c_char>>(find(symbol)?) })
        };
        Some(Functions {
            // SAFETY: as above.
            elapsed: unsafe { std::mem::transmute::<usize, Elapsed>(find("cuEventElapsedTime")?) },
            func_name: name("cuFuncGetName"),
            kernel_name: name("cuKernelGetName"),
            kernel_library: find("cuKernelGetLibrary")
                // SAFETY: as above.
                .map(|at| unsafe { std::mem::transmute::<usize, Ask<*mut CUlibrary>>(at) }),
        })
    }

    /// A kernel's name in its image. A handle may be a function of a context, or a library's
    /// kernel.
    fn name(&self, handle: u64) -> Option<String> {
        let handle = handle as CUfunction;
        let is_kernel = self.kernel_library.is_some_and(|library_of| {
            let mut library: CUlibrary = std::ptr::null_mut();
            // SAFETY: a handle that the application launches by, and a writable local. The driver
            // knows handles of each kind.
            unsafe { library_of(&mut library, handle) == sys::SUCCESS && !library.is_null() }
        });
        let ask = match is_kernel {
            true => self.kernel_name?,
            false => self.func_name?,
        };
        let mut text = std::ptr::null();
        // SAFETY: as above.
        if unsafe { ask(&mut text, handle) } != sys::SUCCESS || text.is_null() {
            return None;
        }
        // SAFETY: the driver's text, which lives as long as the kernel.
        let text = unsafe { CStr::from_ptr(text) };
        Some(text.to_string_lossy().into_owned())
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Timeline {
    functions: Functions,
    contexts: Mutex<Vec<Arc<InContext>>>,
    /// Operations that were put into streams, with their events.
    under_way: Mutex<Vec<(Marked, Operation)>>,
    asked: AtomicU64,
    crowded: AtomicU64,
    captured: AtomicU64,
    refused: AtomicU64,
    error: AtomicU64,
    graphs: Mutex<Graphs>,
    /// Held by who sends a message.
    telling: Mutex<()>,
}

/// What is told of graphs.
#[derive(Debug)]
struct Graphs {
    /// Lists that nobody was told yet, or not to their end.
    new: VecDeque<GraphNodes>,
    /// Lists so far.
    count: u32,
    /// Nodes that there is room for.
    room: usize,
    unlisted: u64,
}

/// What there is in a context.
#[derive(Debug)]
struct InContext {
    context: usize,
    number: u32,
    stream: Stream,
    /// Events that nobody uses, as numbers.
    free: Mutex<Vec<usize>>,
    base: Mutex<Option<Base>>,
}

/// An event whose time on the host is known.
#[derive(Debug, Clone, Copy)]
struct Base {
    event: usize,
    at: u64,
    made: Instant,
}

/// The events of one operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marked {
    context: usize,
    number: u32,
    stream: u64,
    id: u64,
    events: Option<(usize, usize)>,
}

/// An operation that is being asked for.
pub(crate) struct Asked<'a> {
    pub(crate) api: &'a str,
    pub(crate) kind: &'static str,
    pub(crate) called: u64,
    pub(crate) bytes: Option<u64>,
    /// The kernel's handle.
    pub(crate) kernel: Option<u64>,
    pub(crate) launch: u64,
    /// Number of the stack that it was called from; 0 if that is not known.
    pub(crate) stack: u32,
    pub(crate) graph: Option<GraphLaunch>,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What a list takes of the room that there is: one without kernels is something, too.
fn weight(nodes: &[GraphNode]) -> usize {
    nodes.len().max(1)
}

impl Timeline {
    pub(crate) fn new(functions: Functions) -> Timeline {
        Timeline {
            functions,
            contexts: Mutex::default(),
            under_way: Mutex::default(),
            asked: AtomicU64::new(0),
            crowded: AtomicU64::new(0),
            captured: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            error: AtomicU64::new(0),
            graphs: Mutex::new(Graphs {
                new: VecDeque::new(),
                count: 0,
                room: MOST_NODES,
                unlisted: 0,
            }),
            telling: Mutex::default(),
        }
    }

    /// One without a driver, with room for so many nodes of graphs.
    #[cfg(test)]
    pub(crate) fn for_tests(room: usize) -> Timeline {
        unsafe extern "C" fn elapsed(_: *mut f32, _: CUevent, _: CUevent) -> CUresult {
            sys::NOT_READY
        }
        let timeline = Timeline::new(Functions {
            elapsed,
            func_name: None,
            kernel_name: None,
            kernel_library: None,
        });
        lock(&timeline.graphs).room = room;
        timeline
    }

    /// A kernel's name in its image.
    pub(crate) fn kernel_name(&self, handle: u64) -> Option<String> {
        self.functions.name(handle)
    }

    /// The number of a new list of a graph's kernels; 0 if there is no room for it.
    pub(crate) fn list(&self, graph: u32, nodes: &[GraphNode]) -> u32 {
        let mut graphs = lock(&self.graphs);
        let Some(room) = graphs.room.checked_sub(weight(nodes)) else {
            graphs.unlisted += 1;
            return 0;
        };
        graphs.room = room;
        graphs.count += 1;
        let number = graphs.count;
        graphs.new.push_back(GraphNodes {
            number,
            graph,
            nodes: nodes.to_vec(),
        });
        number
    }

    /// Lists that are new, up to so many kernels, and how many there was no room for. What is left
    /// of a list comes the next time, under the same number.
    pub(crate) fn take_lists(&self, most: usize) -> (Vec<GraphNodes>, u64) {
        let mut graphs = lock(&self.graphs);
        let (mut taken, mut room) = (Vec::new(), most);
        while room > 0
            && let Some(list) = graphs.new.front_mut()
        {
            if list.nodes.len() > room {
                let rest = list.nodes.split_off(room);
                taken.push(GraphNodes {
                    nodes: std::mem::replace(&mut list.nodes, rest),
                    ..*list
                });
                break;
            }
            room -= weight(&list.nodes);
            taken.extend(graphs.new.pop_front());
        }
        (taken, graphs.unlisted)
    }

    /// All lists were told.
    fn has_told_lists(&self) -> bool {
        lock(&self.graphs).new.is_empty()
    }

    fn of(&self, context: usize) -> Option<Arc<InContext>> {
        lock(&self.contexts)
            .iter()
            .find(|it| it.context == context)
            .cloned()
    }

    /// In front of an operation in `stream`. `None` if it will not be told of.
    pub(crate) fn begin(&self, agent: &Agent, stream: u64) -> Option<Marked> {
        let api = &agent.driver.api;
        let context = agent.driver.current()?.0 as usize;
        let mut status = 0;
        // SAFETY: the application's stream and a writable local.
        let code = unsafe { (api.stream_capturing)(stream as CUstream, &mut status) };
        if code != sys::SUCCESS || status != 0 {
            count(&self.captured);
            return None;
        }
        let id = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let mut marked = Marked {
            context,
            number: u32::MAX,
            stream,
            id,
            events: None,
        };
        let Some(there) = self.of(context) else {
            count(&self.refused);
            return Some(marked);
        };
        marked.number = there.number;
        let events = {
            let mut free = lock(&there.free);
            free.len().checked_sub(2).map(|left| {
                let events = (free[left], free[left + 1], left);
                free.truncate(left);
                events
            })
        };
        let Some((begin, end, left)) = events else {
            count(&self.crowded);
            return Some(marked);
        };
        // By twos, from an even number or an odd one.
        if left / 2 == EVENTS / 4 {
            agent.wake();
        }
        // SAFETY: an event of ours of the current context, and the application's stream.
        if unsafe { (api.event_record)(begin as CUevent, stream as CUstream) } == sys::SUCCESS {
            marked.events = Some((begin, end));
        } else {
            count(&self.refused);
            lock(&there.free).extend([begin, end]);
        }
        Some(marked)
    }

    /// Behind it. `done`: the driver took it.
    pub(crate) fn end(&self, agent: &Agent, mut marked: Marked, done: bool, asked: &Asked<'_>) {
        let give_back = |events: Option<(usize, usize)>| {
            if let (Some((begin, end)), Some(there)) = (events, self.of(marked.context)) {
                lock(&there.free).extend([begin, end]);
            }
        };
        if !done {
            return give_back(marked.events);
        }
        let api = &agent.driver.api;
        let stream = marked.stream as CUstream;
        let mut status = 0;
        // A wait for a stream that is being captured has this one captured, too: an event would be
        // a node of the graph, and to ask for it would spoil the capture.
        let joined = asked.kind == OpKind::Order.word()
            // SAFETY: the application's stream and a writable local.
            && unsafe { (api.stream_capturing)(stream, &mut status) } == sys::SUCCESS
            && status != 0;
        if joined {
            count(&self.captured);
            return give_back(marked.events);
        }
        if let Some((_, end)) = marked.events {
            // SAFETY: an event of ours of the current context, and the application's stream.
            if unsafe { (api.event_record)(end as CUevent, stream) } != sys::SUCCESS {
                count(&self.refused);
                give_back(marked.events.take());
            }
        }
        let operation = Operation {
            id: marked.id,
            api: asked.api.to_owned(),
            kind: asked.kind.to_owned(),
            // SAFETY: no preconditions.
            thread: unsafe { libc::gettid() }.cast_unsigned(),
            context: marked.number,
            stream: marked.stream,
            stream_number: agent.streams.number(marked.stream as usize),
            called: (asked.called, monotonic_ns()),
            device: None,
            bytes: asked.bytes,
            kernel: asked.kernel.and_then(|handle| self.functions.name(handle)),
            launch: asked.launch,
            nvtx: nvtx::path(),
            stack: asked.stack,
            graph: asked.graph,
        };
        let mut under_way = lock(&self.under_way);
        if under_way.len() < MOST {
            under_way.push((marked, operation));
        } else {
            drop(under_way);
            count(&self.crowded);
            give_back(marked.events);
        }
    }

    /// Makes ready for a context, which is current. Not in a launch: it makes some thousand events.
    pub(crate) fn open(&self, agent: &Agent, context: Context, number: u32) {
        let api = &agent.driver.api;
        let made = agent.driver.relaxed(|| {
            let stream = agent.driver.stream().ok()?;
            let mut events = Vec::with_capacity(EVENTS);
            for _ in 0..EVENTS {
                let mut event: CUevent = std::ptr::null_mut();
                // SAFETY: a writable local.
                if unsafe { (api.event_create)(&mut event, 0) } != sys::SUCCESS {
                    break;
                }
                events.push(event as usize);
            }
            Some((stream, events))
        });
        let Some((stream, events)) = made else { return };
        let new = Arc::new(InContext {
            context: context.0 as usize,
            number,
            stream,
            free: Mutex::new(events),
            base: Mutex::default(),
        });
        agent.driver.relaxed(|| self.renew(agent, &new));
        lock(&self.contexts).push(new);
    }

    /// A context has ended, and with it all that was in it.
    pub(crate) fn close(&self, context: Context) {
        let context = context.0 as usize;
        lock(&self.contexts).retain(|it| it.context != context);
        let mut under_way = lock(&self.under_way);
        for (marked, _) in under_way.iter_mut() {
            if marked.context == context && marked.events.take().is_some() {
                count(&self.refused);
            }
        }
    }

    /// The context goes on without us: its events and its stream go back to the driver. It is
    /// current, and nothing of ours is in its streams any more.
    pub(crate) fn give_back(&self, agent: &Agent, context: Context) {
        let Some(there) = self.of(context.0 as usize) else {
            return;
        };
        self.close(context);
        let mut events = std::mem::take(&mut *lock(&there.free));
        events.extend(lock(&there.base).take().map(|base| base.event));
        let api = &agent.driver.api;
        for event in events {
            // SAFETY: an event of ours that nobody has any more.
            unsafe { (api.event_destroy)(event as CUevent) };
        }
        // What cannot be destroyed costs memory until the context ends.
        let _ = agent.driver.relaxed(|| agent.driver.destroy(there.stream));
    }

    /// Finds out when a mark is made on the device, by a time before it and one behind it.
    fn renew(&self, agent: &Agent, there: &InContext) {
        let api = &agent.driver.api;
        let mut base = lock(&there.base);
        if base.is_some_and(|base| base.made.elapsed() < RENEWED) {
            return;
        }
        let mut best: Option<(usize, u64, u64)> = None;
        for _ in 0..TRIES {
            let Some(event) = lock(&there.free).pop() else {
                break;
            };
            let (before, stop) = (monotonic_ns(), Instant::now() + PATIENCE);
            // SAFETY: an event and a stream of ours, of the current context.
            let recorded = unsafe { (api.event_record)(event as CUevent, there.stream.0) };
            let done = recorded == sys::SUCCESS
                && loop {
                    // SAFETY: as above.
                    match unsafe { (api.event_query)(event as CUevent) } {
                        sys::SUCCESS => break true,
                        sys::NOT_READY if Instant::now() < stop => std::hint::spin_loop(),
                        _ => break false,
                    }
                };
            let took = monotonic_ns() - before;
            let beaten = best.is_some_and(|(.., shortest)| shortest <= took);
            match (done, beaten) {
                (true, false) => {
                    if let Some((worse, ..)) = best.replace((event, before + took / 2, took)) {
                        lock(&there.free).push(worse);
                    }
                }
                _ => lock(&there.free).push(event),
            }
        }
        if let Some((event, at, took)) = best {
            self.error.fetch_max(took.div_ceil(2), Ordering::Relaxed);
            let new = Base {
                event,
                at,
                made: Instant::now(),
            };
            if let Some(old) = base.replace(new) {
                lock(&there.free).push(old.event);
            }
        }
    }

    /// Tells of what has ended in a context, which is current; all of it if `last`, for nothing
    /// more will be known.
    pub(crate) fn turn(&self, agent: &Agent, context: Context, last: bool) {
        let Some(there) = self.of(context.0 as usize) else {
            return;
        };
        if lock(&self.under_way).is_empty() {
            return;
        }
        agent.driver.relaxed(|| self.renew(agent, &there));
        let Some(base) = *lock(&there.base) else {
            return;
        };
        let all = std::mem::take(&mut *lock(&self.under_way));
        let (mut left, mut ended) = (Vec::new(), Vec::new());
        for (marked, mut operation) in all {
            match marked.events {
                Some(events) if marked.number == there.number => {
                    let asked = agent.driver.relaxed(|| self.times(agent, base, events));
                    match asked {
                        Err(sys::NOT_READY) if !last => {
                            left.push((marked, operation));
                            continue;
                        }
                        Err(_) => count(&self.refused),
                        Ok(times) => operation.device = Some(times),
                    }
                    lock(&there.free).extend([events.0, events.1]);
                    ended.push(operation);
                }
                Some(_) => left.push((marked, operation)),
                None => ended.push(operation),
            }
        }
        {
            // Those that came meanwhile are behind them.
            let mut under_way = lock(&self.under_way);
            for (marked, _) in &mut left {
                // `close` did not see it. What is gone after this look, it will see.
                let there = self.of(marked.context);
                let same = there.is_some_and(|there| there.number == marked.number);
                if marked.events.is_some() && !same {
                    marked.events = None;
                    count(&self.refused);
                }
            }
            left.append(&mut under_way);
            *under_way = left;
        }
        for part in ended.chunks(BATCH) {
            self.tell(agent, part.to_vec());
        }
    }

    /// Parts of a list go in their order, whichever thread tells them.
    fn tell(&self, agent: &Agent, operations: Vec<Operation>) {
        let _one = lock(&self.telling);
        agent.send(ToTool::Operations(self.message(operations)), None);
    }

    fn message(&self, operations: Vec<Operation>) -> Operations {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (graphs, unlisted) = self.take_lists(PART);
        Operations {
            operations,
            graphs,
            unlisted,
            error: load(&self.error),
            untimed: Untimed {
                crowded: load(&self.crowded),
                captured: load(&self.captured),
                refused: load(&self.refused),
            },
        }
    }

    /// What is left, of contexts that are gone too, and the final counts.
    pub(crate) fn finish(&self, agent: &Agent) {
        let all = std::mem::take(&mut *lock(&self.under_way));
        let mut rest: Vec<Operation> = Vec::new();
        for (marked, operation) in all {
            if marked.events.is_some() {
                count(&self.refused);
            }
            rest.push(operation);
        }
        for part in rest.chunks(BATCH) {
            self.tell(agent, part.to_vec());
        }
        loop {
            self.tell(agent, Vec::new());
            if self.has_told_lists() {
                return;
            }
        }
    }

    /// When the device came past both events.
    fn times(
        &self,
        agent: &Agent,
        base: Base,
        events: (usize, usize),
    ) -> Result<(u64, u64), CUresult> {
        let api = &agent.driver.api;
        // SAFETY: an event of ours.
        match unsafe { (api.event_query)(events.1 as CUevent) } {
            sys::SUCCESS => {}
            other => return Err(other),
        }
        let at = |event: usize| {
            let mut ms = 0f32;
            // SAFETY: events of ours that were recorded with times, and a writable local.
            let code = unsafe {
                (self.functions.elapsed)(&mut ms, base.event as CUevent, event as CUevent)
            };
            let ns = (f64::from(ms) * 1e6).round() as i64;
            match code {
                sys::SUCCESS => Ok(base.at.saturating_add_signed(ns)),
                other => Err(other),
            }
        };
        let (begin, end) = (at(events.0)?, at(events.1)?);
        Ok((begin, end.max(begin)))
    }
}
