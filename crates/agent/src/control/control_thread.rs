//! The agent's own thread: talks to the tool, and moves data while kernels run.
//!
//! The application never waits for it, except at its end for the last data, and then not for ever.
//! If the tool goes away, all probes go off and the thread ends.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use warpbpf_driver::Context;
use warpbpf_session::Live;
use warpbpf_wire::{AgentConnection, HANDSHAKE, NoteLevel, ToAgent, ToTool, WireError};

use crate::contexts::compaction::Compaction;
use crate::contexts::{drain_wait, launch_memory, sanitizer};
use crate::control::ends;
use crate::control::poll_interval::{BUSY, DRAIN_SHORT, PollInterval};
use crate::control::signs::Signs;
use crate::device::context_registry::{ContextState, Shard};
use crate::device::drain;
use crate::device::host_ops::{Reply, Requests};
use crate::device::pump::Pump;
use crate::device::spread::Work;
use crate::hooks::graphs;
use crate::instrument::{modules, nvrtc, preloaded};
use crate::kernels::notes::internal_failure;
use crate::kernels::outbox::Outgoing;
use crate::runtime::agent::{Agent, Mode};
use crate::sys::anchor::driver_at;
use crate::sys::guard::{caught, said_by};
use crate::sys::thread;
use crate::trace::nvtx;
use crate::uprobe::sites::{stacks_of, timeline_of};

/// Time between two looks at operations of the tool that the device has not done yet.
const OPS: Duration = Duration::from_micros(200);
/// Bytes that the tool has not read from which on no operation on a map is begun and no answer is
/// sent. With one answer on top it stays far below what a connection keeps, so other messages find
/// room.
const BEHIND: usize = 16 << 20;
/// How long a kernel that has done its work may take to have ended.
const ALMOST_DONE: Duration = Duration::from_millis(20);
/// How long the last messages may take to be read.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long kernels are waited for at the end: less than who detaches waits for that.
const KERNELS: Duration = Duration::from_secs(55);
/// Between two looks at launches that are under way.
const LAUNCHES: Duration = Duration::from_micros(200);

/// The name of the thread in messages.
const THREAD: &str = "its thread `warpbpf`";

/// How far the thread is.
enum Step {
    /// It runs.
    Begun,
    /// What the tool wants, and whether the thread goes on.
    Asked(Result<Mode, WireError>, bool),
}

/// Starts the thread, which asks the tool what it wants, and waits for that. Where there is a
/// session, the thread goes on. Nothing of it is done on the caller's stack, which may be small.
pub(crate) fn ask(agent: &'static Agent) -> Result<Mode, WireError> {
    // What is current is so on the application's thread.
    let ordinal = agent.driver.current_device().unwrap_or(0);
    let devices = agent.ask_devices(ordinal);
    let (sender, receiver) = mpsc::sync_channel(2);
    let given_up = Arc::new(AtomicBool::new(false));
    let too_late = Arc::clone(&given_up);
    let work = move || {
        if too_late.swap(true, Ordering::AcqRel) {
            return;
        }
        let send = move |step| sender.send(step).is_ok();
        send(Step::Begun);
        match agent.handshake(ordinal, devices) {
            Ok((mode, Some(connection))) => {
                let _end = End(agent);
                ends::hook(agent);
                if send(Step::Asked(Ok(mode), true)) {
                    drop(send);
                    let _background = agent.work_in_background();
                    run(agent, connection);
                }
            }
            Ok((mode, None)) => {
                send(Step::Asked(Ok(mode), false));
            }
            Err(error) => {
                send(Step::Asked(Err(error), false));
            }
        }
    };
    let started = thread::start_large("warpbpf", work);
    started.map_err(|error| WireError::Os {
        call: "clone",
        errno: rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::AGAIN),
    })?;
    let nobody = WireError::Timeout {
        seconds: HANDSHAKE.as_secs(),
    };
    // It may have to wait for the dynamic loader, in a constructor of which the caller may be.
    let begun = receiver.recv_timeout(HANDSHAKE).is_ok();
    if !begun && !given_up.swap(true, Ordering::AcqRel) {
        return Err(nobody);
    }
    // From here on each of its steps ends in time; nothing comes where it panicked.
    let asked = receiver.into_iter().find_map(|step| match step {
        Step::Begun => None,
        Step::Asked(mode, goes_on) => Some((mode, goes_on)),
    });
    let (mode, goes_on) = asked.ok_or(nobody)?;
    if goes_on {
        agent.goes_on();
        ends::bring_home_at_exit();
    }
    mode
}

/// The thread's end, or that it never began: nobody would fetch data any more, and nobody waits for
/// it.
struct End(&'static Agent);

impl Drop for End {
    fn drop(&mut self) {
        self.0.nobody_listens();
        if !self.0.is_late() {
            launch_memory::give_back(self.0);
        }
        let mut finish = self.0.finish.lock().unwrap_or_else(PoisonError::into_inner);
        finish.done = true;
        self.0.finished.notify_all();
    }
}

fn run(agent: &'static Agent, connection: AgentConnection) {
    let _ = caught(THREAD, || {
        let mut thread = Control {
            agent,
            connection,
            context: None,
            copied: 0,
            steps: 0,
            told: 0,
            poll_interval: PollInterval::new(Instant::now()),
            next_snapshot: Instant::now(),
            next_drain: Instant::now(),
            waiting: false,
            tokens: Vec::new(),
            requests: Requests::default(),
            replies: VecDeque::new(),
            compaction: Compaction::new(),
        };
        let ended = catch_unwind(AssertUnwindSafe(|| thread.run()));
        // The tool is gone, or nobody speaks with it any more: what it asked for does not go on in
        // kernels that never end.
        let in_order = matches!(ended, Ok(Ok(())));
        if !in_order {
            agent.table.close();
            agent.shut_gates();
        }
        if let Err(payload) = ended {
            let said = said_by(&*payload);
            // Dropping a panic's payload may panic again.
            std::mem::forget(payload);
            thread.report_failure(&said);
        }
        // The application may live on: its memory shall not be ours.
        thread.each_context(|agent, pump, _| {
            agent.driver.relaxed(|| pump.unlock_pages(&agent.driver));
        });
        let is_late = in_order && agent.is_at_exit() && thread.has_socket();
        if is_late {
            agent.begin_late();
        }
        // The tool learns by its end that the process has ended.
        if is_late {
            std::mem::forget(thread);
        }
    });
}

struct Control {
    agent: &'static Agent,
    connection: AgentConnection,
    /// Current on this thread, with the number of its maps: a handle may come again for another
    /// context.
    context: Option<(Context, u32)>,
    /// Contexts whose maps were copied the last time.
    copied: u32,
    /// What [`Agent::launch_steps`] said last.
    steps: u64,
    /// Launches that the tool knows of.
    told: u64,
    poll_interval: PollInterval,
    next_snapshot: Instant,
    next_drain: Instant,
    /// The tool has not made room for what is in the rings.
    waiting: bool,
    /// Snapshots that were asked for.
    tokens: Vec<u64>,
    /// Operations on maps that were asked for.
    requests: Requests,
    /// Answers to them that wait until the tool has read others.
    replies: VecDeque<Reply>,
    compaction: Compaction,
}

impl Control {
    fn run(&mut self) -> Result<(), WireError> {
        loop {
            self.wait()?;
            warpbpf_faults::bug("agent/control-panics");
            while let Some(frame) = self.connection.try_recv()? {
                match frame.message {
                    ToAgent::Detach => {
                        self.agent.table.close();
                        self.agent.shut_gates();
                        self.last_round();
                        return self.farewell("detached");
                    }
                    ToAgent::Snapshot { token } => self.tokens.push(token),
                    ToAgent::Drain { token } => drain_wait::wait(self.agent, token),
                    ToAgent::Forget { client } => {
                        self.agent.kernel_registry.forget(client);
                        self.agent.said.forget(client);
                    }
                    // One request per connection.
                    ToAgent::Attach { .. }
                    | ToAgent::Observe
                    | ToAgent::Cache(_)
                    | ToAgent::Preset { .. }
                    | ToAgent::Sanitize => {}
                    ToAgent::Probe { text, error } => {
                        let made = error.map_or(Ok(frame.blob), Err);
                        self.agent.replacement.take_function(text, made);
                    }
                    ToAgent::Change {
                        token,
                        change,
                        limit_ms,
                    } => {
                        let limit = Duration::from_millis(limit_ms);
                        self.agent.change_programs(token, change, frame.blob, limit);
                    }
                    ToAgent::MapOps { token, map } => {
                        let reply = self.requests.push(token, map, frame.blob);
                        self.reply(reply)?;
                    }
                }
            }
            let wanted = {
                let finish = &self.agent.finish;
                let mut finish = finish.lock().unwrap_or_else(PoisonError::into_inner);
                finish.wanted.take()
            };
            if let Some(reason) = wanted {
                self.last_round();
                return self.farewell(&reason);
            }
            if let Some(asked) = self.agent.ends.asked() {
                let done = self.bring_home_at_once();
                self.agent.ends.answer(asked);
                if done? {
                    return Ok(());
                }
                // What is known of the last copy is not to be overwritten by another one: the
                // process ends now.
                while self.agent.ends.is_last() && !cfg!(test) {
                    std::thread::park();
                }
            }
            self.work()?;
        }
    }

    /// Sleeps until the next look at maps or rings, a message, a launch after a pause, or the
    /// application's end.
    fn wait(&mut self) -> Result<(), WireError> {
        if !self.has_socket() {
            return Err(WireError::Closed);
        }
        self.reply([])?;
        let everything_sent = self.connection.flush()?;
        let now = Instant::now();
        let mut next = self.next_snapshot.min(self.next_drain);
        if let Some(due) = self.compaction.due(self.agent) {
            next = next.min(due);
        }
        if let Some(due) = self.agent.replacement.due() {
            next = next.min(due);
        }
        let mut left = next.saturating_duration_since(now).min(BUSY);
        if self.requests.pending() && !self.behind() {
            left = left.min(OPS);
        }
        // While launches go on, the next look comes soon enough: to be woken by each of them would
        // cost the application more than all else that a launch does here.
        if left > DRAIN_SHORT && self.poll_interval.idle(now).is_none_or(|idle| idle > BUSY) {
            self.agent.set_drowsy();
        }
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut interest = PollFlags::IN;
        if !everything_sent {
            interest |= PollFlags::OUT;
        }
        let notify = self.agent.files.notify().ok_or(WireError::Closed)?;
        let mut set = [
            PollFd::from_borrowed_fd(self.connection.socket()?, interest),
            PollFd::from_borrowed_fd(notify, PollFlags::IN),
        ];
        let polled = warpbpf_faults::check("agent/poll", || rustix::io::Errno::NOMEM)
            .and_then(|()| {
                warpbpf_faults::check("agent/poll-interrupted", || rustix::io::Errno::INTR)
            })
            .and_then(|()| poll(&mut set, Some(&timeout)));
        match polled {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => {
                return Err(WireError::Os {
                    call: "poll",
                    errno,
                });
            }
        }
        let mut rings = [0; 8];
        if let Some(notify) = self.agent.files.notify() {
            // Nothing to read is the usual case.
            let _ = rustix::io::read(notify, &mut rings);
        }
        match self.has_socket() {
            true => Ok(()),
            false => Err(WireError::Closed),
        }
    }

    /// The application has not closed it.
    fn has_socket(&self) -> bool {
        self.connection.socket().is_ok()
    }

    fn work(&mut self) -> Result<(), WireError> {
        self.operate()?;
        nvrtc::serve(self.agent);
        look_for_drivers(self.agent);
        self.tokens.extend(self.agent.drain.take());
        let now = Instant::now();
        self.agent.give_up_change(now);
        let steps = self.agent.launch_steps();
        if steps != self.steps {
            self.steps = steps;
            self.next_snapshot = self.next_snapshot.min(now + BUSY);
            if self.poll_interval.launch(now) {
                self.next_drain = now;
            }
        }
        let asked = !self.tokens.is_empty();
        if asked || now >= self.next_snapshot {
            self.snapshot(now);
            self.calibrate(now);
            if self.agent.watchdog.is_on() {
                self.each_context(|agent, _, live| {
                    let context = live.context().0 as usize;
                    let dog = &agent.watchdog;
                    for text in agent.driver.relaxed(|| dog.tend(&agent.driver, context)) {
                        agent.note(NoteLevel::Warning, text);
                    }
                });
            }
            let launches = self.agent.kernel_registry.launched();
            if self.told != launches {
                self.told = launches;
                let counts = ToTool::Counts(self.agent.kernel_registry.counts());
                self.connection.queue(&counts, &[], None)?;
            }
        }
        if asked || now >= self.next_drain {
            self.drain(now);
        }
        if let Some(timeline) = timeline_of(self.agent) {
            self.each_context(|agent, _, live| timeline.turn(agent, live.context(), false));
        }
        nvtx::turn(self.agent, false);
        if let Some(stacks) = stacks_of(self.agent) {
            stacks.turn(self.agent);
        }
        // What a batch of the tool has begun is on the device.
        if !self.requests.pending() && self.compaction.is_worth_it(self.agent, now) {
            let mut compaction = std::mem::replace(&mut self.compaction, Compaction::new());
            self.each_context(|agent, _, live| compaction.turn(agent, live));
            self.compaction = compaction;
        }
        self.post()?;
        for token in std::mem::take(&mut self.tokens) {
            let message = ToTool::Snapshotted { token };
            self.connection.queue(&message, &[], None)?;
        }
        Ok(())
    }

    /// Goes on with operations on maps.
    fn operate(&mut self) -> Result<(), WireError> {
        if !self.requests.pending() || self.behind() {
            return Ok(());
        }
        let mut requests = std::mem::take(&mut self.requests);
        let agent = self.agent;
        let shards = agent.context_registry.all();
        let mut each = |work: &mut Work<'_>| {
            for shard in &shards {
                self.in_context(shard, true, |_, number, pump, live| {
                    work(number, pump, live)
                });
            }
        };
        let replies = requests.turn(&mut each, &agent.context_registry, BEHIND).unwrap_or_else(|| {
            let why = match shards.first().map(|shard| shard.read()).as_deref() {
                Some(ContextState::Gone(why)) => why,
                _ if self.agent.context_registry.made() > 0 => "the context of the maps was destroyed",
                _ => "there are no maps yet: they are made when the application loads its first kernel",
            };
            requests.refuse_all(why)
        });
        self.requests = requests;
        self.reply(replies)
    }

    /// The tool has much to read before it gets more.
    fn behind(&self) -> bool {
        !self.replies.is_empty() || self.connection.backlog() >= BEHIND
    }

    /// Sends answers, as many as the tool keeps up with; the others follow as it reads.
    fn reply(&mut self, replies: impl IntoIterator<Item = Reply>) -> Result<(), WireError> {
        self.replies.extend(replies);
        while self.connection.backlog() < BEHIND || self.connection.flush()? {
            let Some(Reply { token, error, blob }) = self.replies.pop_front() else {
                break;
            };
            let message = ToTool::MapOps { token, error };
            match self.connection.queue(&message, &blob, None) {
                // The probes are worth more than one answer.
                Err(error @ WireError::TooLong { .. }) => {
                    let error = Some(error.to_string());
                    let message = ToTool::MapOps { token, error };
                    self.connection.queue(&message, &[], None)?;
                }
                done => done?,
            }
        }
        Ok(())
    }

    /// Copies the maps, if they may have changed.
    fn snapshot(&mut self, now: Instant) {
        let launched = self.poll_interval.idle(now).is_some();
        // Before the first launch only what was there from the start, which one round brings.
        if launched || !self.tokens.is_empty() || self.copied != self.agent.context_registry.made()
        {
            self.copied = self.each_context(|agent, pump, live| {
                // What cannot be copied now is tried again the next time, and told at the end.
                agent.driver.relaxed(|| pump.snapshot(live));
            });
        }
        self.next_snapshot = now + self.poll_interval.until_snapshot(now, now.elapsed());
    }

    /// Looks at the rings: again at once while they yield something, ever later while they do not.
    fn drain(&mut self, now: Instant) {
        let (mut waiting, mut bytes) = (0, 0);
        if self.waiting || self.poll_interval.idle(now).is_some() {
            self.each_context(|agent, pump, live| {
                // As above.
                let stats = agent
                    .driver
                    .relaxed(|| pump.drain(live))
                    .unwrap_or_default();
                waiting += stats.waiting;
                bytes += stats.bytes;
            });
        }
        self.waiting = waiting > 0;
        self.next_drain = now + self.poll_interval.until_drain(now, bytes);
    }

    fn calibrate(&mut self, now: Instant) {
        if self.poll_interval.calibrates(now) {
            self.each_context(|agent, _, live| {
                // The old calibration drifts a little further if this fails.
                let _ = agent.driver.relaxed(|| live.recalibrate());
            });
        }
    }

    /// Waits for the kernels and brings everything home.
    fn last_round(&mut self) {
        let agent = self.agent;
        let mut before = agent.counted();
        let ends = match agent.is_at_exit() {
            true => None,
            false => {
                let until = Instant::now() + KERNELS;
                let mut signs = Signs::new(&mut self.connection);
                let mut goes_on = |blocks| {
                    signs.turn(blocks);
                    !agent.is_at_exit()
                };
                // No new one has programs. One that has is in no stream yet, or not counted yet.
                let mut begun = agent.generations.begun();
                while !begun.are_over() && goes_on(false) && Instant::now() < until {
                    std::thread::sleep(LAUNCHES);
                }
                before = agent.counted();
                Some(drain_wait::wait_for(agent, until, goes_on))
            }
        };
        let mut ends = ends.filter(|_| !agent.is_at_exit());
        for shard in agent.context_registry.all() {
            if ends.is_none() {
                // What is waited for then is waited for in the driver.
                Signs::new(&mut self.connection).turn(true);
            }
            self.in_context(&shard, true, |agent, number, pump, live| {
                let before = before.get(number as usize).copied().unwrap_or(0);
                let known = ends.as_mut().map(|ends| ends.remove(&shard.context.0));
                // One that came meanwhile has nothing that counts.
                let waited = known.map_or_else(|| agent.wait_at_end(), |end| end.unwrap_or(Ok(())));
                agent.bring_home(live, pump, (before, waited));
            });
        }
        look_for_drivers(self.agent);
        modules::report_never_instrumented(self.agent);
        preloaded::report_waiting(self.agent);
        graphs::report(self.agent);
        sanitizer::tell_refused(self.agent);
        if let Some(timeline) = timeline_of(self.agent) {
            timeline.finish(self.agent);
        }
        nvtx::turn(self.agent, true);
        if let Some(stacks) = stacks_of(self.agent) {
            stacks.turn(self.agent);
        }
    }

    /// The process is about to end without handlers, or to become another program: what there is
    /// goes to the tool. Kernels that still run are not waited for; where there are none, that is
    /// all, and true.
    fn bring_home_at_once(&mut self) -> Result<bool, WireError> {
        let until = Instant::now() + ALMOST_DONE;
        let before = self.agent.counted();
        let ends = drain_wait::wait_for(self.agent, until, |_| true);
        let is_all = self.agent.ends.is_last() && ends.values().all(Result::is_ok);
        for shard in self.agent.context_registry.all() {
            self.in_context(&shard, false, |agent, number, pump, live| {
                agent.driver.relaxed(|| {
                    pump.snapshot(live);
                    let _ = pump.drain(live);
                });
                let end = ends.get(&live.context().0);
                let before = before.get(number as usize).copied().unwrap_or(0);
                pump.came_home(live, before, end.and_then(drain::kernels_ran));
            });
        }
        if let Some(timeline) = timeline_of(self.agent) {
            self.each_context(|agent, _, live| timeline.turn(agent, live.context(), is_all));
        }
        nvtx::turn(self.agent, is_all);
        if let Some(stacks) = stacks_of(self.agent) {
            stacks.turn(self.agent);
        }
        if is_all {
            self.farewell("exit")?;
            return Ok(true);
        }
        self.post()?;
        let counts = ToTool::Counts(self.agent.kernel_registry.counts());
        self.connection.queue(&counts, &[], None)?;
        self.connection.flush()?;
        Ok(false)
    }

    fn farewell(&mut self, reason: &str) -> Result<(), WireError> {
        crate::uprobe::report(self.agent);
        nvtx::report(self.agent);
        // What was not done is answered by the farewell itself: the tool then looks at what is
        // left.
        for Reply { token, error, blob } in std::mem::take(&mut self.replies) {
            let message = ToTool::MapOps { token, error };
            self.connection.send(&message, &blob, None, FAREWELL)?;
        }
        // The last of a timeline may be more than what may wait.
        for outgoing in self.agent.take_outbox() {
            let Outgoing { message, fd } = outgoing;
            match self.connection.backlog() < BEHIND {
                true => self.connection.queue(&message, &[], fd)?,
                false => self.connection.send(&message, &[], fd, FAREWELL)?,
            }
        }
        let counts = ToTool::Counts(self.agent.kernel_registry.counts());
        self.connection.queue(&counts, &[], None)?;
        let reason = reason.into();
        self.connection
            .send(&ToTool::Bye { reason }, &[], None, FAREWELL)
    }

    /// Tells the tool that this thread panicked. No `Bye` follows, because data may be missing.
    fn report_failure(&mut self, said: &str) {
        if !self.has_socket() {
            return;
        }
        let note = ToTool::Note {
            level: NoteLevel::Error,
            text: internal_failure(THREAD, said),
            clients: Vec::new(),
        };
        // A tool that gets neither message sees the connection close without `Bye`.
        for message in [note, ToTool::Failed] {
            let _ = self.connection.send(&message, &[], None, FAREWELL);
        }
    }

    /// Hands over what hooks wanted to be sent.
    fn post(&mut self) -> Result<(), WireError> {
        for outgoing in self.agent.take_outbox() {
            self.connection.queue(&outgoing.message, &[], outgoing.fd)?;
        }
        Ok(())
    }

    /// Runs `work` with what is in each context, which is current on this thread meanwhile and
    /// cannot go away. Contexts that are about to end, and bring their data home themselves, do not
    /// hold up the others. Returns how many there were.
    fn each_context(&mut self, mut work: impl FnMut(&Agent, &mut Pump, &Live)) -> u32 {
        let shards = self.agent.context_registry.all();
        let done = shards.iter().filter_map(|shard| {
            self.in_context(shard, false, |agent, _, pump, live| work(agent, pump, live))
        });
        done.count() as u32
    }

    /// The same for one of them.
    fn in_context<T>(
        &mut self,
        shard: &Shard,
        wait: bool,
        work: impl FnOnce(&Agent, u32, &mut Pump, &Live) -> T,
    ) -> Option<T> {
        let (agent, context) = (self.agent, &mut self.context);
        let done = shard.with(wait, |number, pump, live| {
            let wanted = (live.context(), number);
            if *context != Some(wanted) {
                agent.driver.set_current(live.context()).ok()?;
                *context = Some(wanted);
            }
            Some(work(agent, number, pump, live))
        });
        done.flatten()
    }
}

/// Says which drivers have come that are not hooked.
fn look_for_drivers(agent: &Agent) {
    for path in agent.drivers.look(driver_at()) {
        agent.note(
            NoteLevel::Warning,
            format!(
                "`{path}` is a second CUDA driver in this process: what is launched by it runs without programs and is not counted"
            ),
        );
    }
}
