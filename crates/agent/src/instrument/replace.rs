//! Programs are replaced while the application runs: on a thread of its own, beside what is in
//! force.
//!
//! Proof, compilation and memory are done while launches go on with the old programs, and loads
//! while nothing runs (`launch_barrier`), which may never be: so the control thread gives up after
//! a while, tells the tool, and the thread here takes back what it made. Then the new programs are
//! put in force by one step (`generation`), and the tool is told.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use warpbpf_session::{Assembled, ProgramChange, ReplaceError, Session};
use warpbpf_wire::{Change, Changed, NoteLevel, ToTool};

use crate::instrument::describe::{map_infos, programs};
use crate::instrument::modules;
use crate::kernels::generation::Generation;
use crate::kernels::replacement;
use crate::kernels::replacement::{EAGAIN, EBUSY, EINVAL, EIO};
use crate::kernels::replacement::{ENOMEM, ETIMEDOUT, Phase, Running, refused};
use crate::runtime::agent::Agent;
use crate::sys::lock::lock;
use crate::sys::thread;
use crate::uprobe::run;

/// How long launches that began with the old programs may stay in the driver's functions, for what
/// is left of those to be unloaded.
const LEAVING: Duration = Duration::from_secs(1);

/// How often it is looked for images that came meanwhile.
const TURNS: u32 = 4;
/// Kernels with programs that are in force no more, which stay loaded because they were launched.
const MOST_KEPT: usize = 16384;

/// What was asked for.
struct Request {
    change: Change,
    object: Vec<u8>,
    /// Functions for machine code, of all programs that there will be.
    functions: Assembled,
}

/// The answer that these programs are in force.
pub(crate) fn in_force(agent: &Agent, token: u64, session: &Session) -> Changed {
    Changed {
        token,
        refused: None,
        generation: session.generation(),
        programs: programs(session),
        maps: map_infos(session),
        without: modules::without(agent, session.generation()),
        slots: session.in_slots_now(),
    }
}

impl Agent {
    pub(crate) fn refuse_change(&self, token: u64, errno: i32, message: String) {
        let generation = self.generations.now().number;
        let changed = refused(token, generation, errno, message);
        self.send(ToTool::Changed(changed), None);
    }

    /// Begins to replace programs; the tool is answered when that is done, or cannot be.
    pub(crate) fn change_programs(
        &'static self,
        token: u64,
        change: Change,
        object: Vec<u8>,
        limit: Duration,
    ) {
        match change {
            Change::Gate { open, programs } => return self.change_gate(token, open, programs),
            Change::Slots => return self.change_slots(token, Some(object), limit),
            Change::Clear => return self.change_slots(token, None, limit),
            Change::OnCpu { programs } => return self.change_on_cpu(token, programs),
            Change::Replace
            | Change::Add
            | Change::Remove { .. }
            | Change::Join { .. }
            | Change::Leave { .. } => {}
        }
        // If it is refused, nobody needs them.
        let functions = std::mem::take(&mut *lock(&self.replacement.functions));
        let Some(session) = self.generations.now().session.get() else {
            let message = "no programs are attached that could be replaced".to_owned();
            return self.refuse_change(token, EINVAL, message);
        };
        let mut running = self.replacement.lock();
        if let Some(running) = &*running {
            let message = match running.phase {
                Phase::Working | Phase::Done => "programs are being replaced just now",
                Phase::GivenUp => {
                    "a replacement of programs that was given up still takes back what it made"
                }
            };
            return self.refuse_change(token, EBUSY, message.to_owned());
        }
        let end = Instant::now() + limit;
        *running = Some(Running {
            token,
            limit,
            end,
            phase: Phase::Working,
        });
        drop(running);
        let before = Arc::clone(session);
        let request = Request {
            change,
            object,
            functions,
        };
        let started = thread::start_large("warpbpf-replace", move || {
            let _background = self.work_in_background_until(end);
            run(self, token, &before, request);
        });
        if let Err(error) = started {
            self.replacement.lock().take();
            let message = format!("no thread can be started that replaces programs: {error}");
            self.refuse_change(token, EAGAIN, message);
        }
    }

    /// Programs on the CPU run or do not; whoever runs one just now ends it first.
    fn change_on_cpu(&self, token: u64, names: Vec<String>) {
        run::choose(names);
        let session = self.generations.now().session.get();
        if let Some(session) = session {
            self.send(ToTool::Changed(in_force(self, token, session)), None);
        } else {
            let message = "no programs are attached that could end".to_owned();
            self.refuse_change(token, EINVAL, message);
        }
    }

    /// Tells the tool if a replacement takes too long. What it made is taken back when the driver
    /// lets us.
    pub(crate) fn give_up_change(&self, now: Instant) {
        let mut running = self.replacement.lock();
        let Some(running) = running.as_mut() else {
            return;
        };
        if running.phase != Phase::Working || now < running.end {
            return;
        }
        running.phase = Phase::GivenUp;
        let message = format!(
            "the new programs are not in after {:.1} s, and the old ones go on: code is loaded while no kernel runs, and kernels ran all the while",
            running.limit.as_secs_f64()
        );
        self.refuse_change(running.token, ETIMEDOUT, message);
    }
}

/// How far a replacement has come.
#[derive(Debug, Default)]
struct Progress {
    /// What comes into force: things may have been made for it.
    next: Option<Arc<Session>>,
    /// What was in force before: the step is done.
    old: Option<&'static Generation>,
}

/// What `work` gives, unless it panics.
fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    // Dropping a panic's payload may panic again.
    done.map_err(std::mem::forget).ok()
}

/// Does `work`. However that ends, either the new programs are in force, or nothing of them is
/// left, as the next ones have their number: the session and what was before, or why not.
fn done_or_taken_back(
    work: impl FnOnce(&mut Progress) -> Result<(), (i32, String)>,
    take_back: impl FnOnce(&Session),
) -> Result<(Arc<Session>, &'static Generation), (i32, String)> {
    let mut progress = Progress::default();
    let done = caught(|| work(&mut progress)).unwrap_or_else(|| {
        let message = "it failed internally; please report this with the program".to_owned();
        Err((EINVAL, message))
    });
    match (progress.next, progress.old) {
        // Nobody can take that step back.
        (Some(session), Some(old)) => Ok((session, old)),
        (made, _) => {
            if let Some(session) = made {
                caught(|| take_back(&session));
            }
            Err(done.err().unwrap_or((EINVAL, "it was not done".to_owned())))
        }
    }
}

fn run(agent: &'static Agent, token: u64, before: &Arc<Session>, request: Request) {
    let working = agent.replacement.working.lock();
    let _working = working.unwrap_or_else(PoisonError::into_inner);
    let done = done_or_taken_back(
        |progress| make_and_put_in_force(agent, before, request, progress),
        |session| {
            let _background = agent.work_in_background();
            modules::take_back(agent, session.generation());
        },
    );
    let phase = agent.replacement.lock().take().map(|running| running.phase);
    let mut left = None;
    match done {
        Ok((session, old)) => {
            left = Some(old);
            let changed = in_force(agent, token, &session);
            agent.send(ToTool::Changed(changed), None);
        }
        // The tool has its answer.
        Err(_) if phase == Some(Phase::GivenUp) => {}
        Err((errno, message)) => agent.refuse_change(token, errno, message),
    }
    agent.wake();
    // The tool does not wait for this.
    if let Some(old) = left {
        let _background = agent.work_in_background();
        let since = Instant::now();
        while !old.is_left() && since.elapsed() < LEAVING && agent.is_on() {
            std::thread::sleep(replacement::PAUSE);
        }
        if old.is_left() && agent.is_on() {
            modules::retire(agent, old.number);
        }
    }
}

/// Makes the next session and puts it in force. Where it fails, what was made is still there.
fn make_and_put_in_force(
    agent: &'static Agent,
    before: &Arc<Session>,
    request: Request,
    progress: &mut Progress,
) -> Result<(), (i32, String)> {
    let kept = modules::n_kept(agent);
    // A second tool can always go.
    if kept > MOST_KEPT && !matches!(request.change, Change::Leave { .. }) {
        let message = format!(
            "{kept} kernels of earlier programs are still loaded, since the driver does not tell when their last launches end: begin a new session"
        );
        return Err((ENOMEM, message));
    }
    let none = warpbpf_session::Options::default();
    let requested = match &request.change {
        Change::Join { options, .. } => options,
        _ => &none,
    };
    let change = match &request.change {
        Change::Join { client, .. } => ProgramChange::Join {
            client: *client,
            object: &request.object,
            options: requested,
        },
        Change::Leave { client } => ProgramChange::Leave { client: *client },
        Change::Replace => ProgramChange::Replace(&request.object),
        Change::Add => ProgramChange::Add(&request.object),
        Change::Remove { programs } => ProgramChange::Remove(programs),
        Change::Gate { .. } | Change::Slots | Change::Clear | Change::OnCpu { .. } => {
            return Err((EINVAL, "it is no replacement".to_owned()));
        }
    };
    let session = before.replaced(change);
    let told = |error: ReplaceError| match &request.change {
        Change::Join { client, .. } => error.told_to(*client),
        _ => error.to_string(),
    };
    let session = session.map_err(|error| (EINVAL, told(error)))?;
    let session = Arc::new(session.with_functions(request.functions));
    progress.next = Some(Arc::clone(&session));
    // The control thread may not have come to look yet.
    let goes_on = || {
        agent.give_up_change(Instant::now());
        agent.is_on() && agent.replacement.phase() == Some(Phase::Working)
    };
    modules::make_maps(agent, &session).map_err(|error| (ENOMEM, error.to_string()))?;
    let mut turns = 0;
    let old = loop {
        let ready = modules::make_ready(agent, &session, &goes_on);
        if !goes_on() {
            return Err((ETIMEDOUT, "it was given up".to_owned()));
        }
        if let Some(why) = modules::unmade(agent, session.generation()) {
            return Err((EIO, why));
        }
        // Each turn finds the images that came in the one before. Where they come all the time, the
        // last ones have their kernels launched without programs for a moment.
        turns += 1;
        let patient = turns < TURNS;
        if patient && !ready {
            continue;
        }
        let agreed = || match agent.replacement.lock().as_mut() {
            Some(running)
                if running.phase == Phase::Working
                    && Instant::now() < running.end
                    && agent.is_on() =>
            {
                running.phase = Phase::Done;
                true
            }
            _ => false,
        };
        if let Some(old) = modules::put_in_force(agent, &session, patient, agreed) {
            break old;
        }
    };
    progress.old = Some(old);
    // What is left to do is not bound by the tool's limit.
    let _background = agent.work_in_background();
    agent.drain.leave(old);
    match &request.change {
        Change::Join { client, .. } => agent.kernel_registry.welcome(*client),
        Change::Leave { client } => agent.kernel_registry.farewell(*client),
        _ => {}
    }
    agent.adopt_all();
    agent.close_gates(before, &session);
    modules::catch_up(agent, &session, old.number);
    agent.preloaded.ask_again();
    if modules::forgot_images(agent) {
        agent.note(
            NoteLevel::Info,
            "more images were loaded than are kept while no program wants a kernel of them: programs that came since find kernels of those only when they are loaded again".into(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use warpbpf_driver::DeviceInfo;
    use warpbpf_session::Options;

    use super::*;
    use crate::kernels::generation::Generations;

    fn session() -> Arc<Session> {
        let info = DeviceInfo {
            name: String::new(),
            capability: (9, 0),
            sms: 4,
            driver_version: 13000,
        };
        let options = Options {
            timeline: true,
            ..Options::default()
        };
        Arc::new(Session::new(&[], &options, &info).unwrap())
    }

    #[test]
    fn a_replacement_that_panics_is_taken_back_or_done() {
        let taken = Cell::new(0);
        let take_back = |_: &Session| taken.set(taken.get() + 1);
        let internal = Err((
            EINVAL,
            "it failed internally; please report this with the program".to_owned(),
        ));
        // Nothing was made yet.
        let done = done_or_taken_back(|_| panic!("at once"), take_back);
        assert_eq!((done.map(|_| ()), taken.get()), (internal.clone(), 0));
        let done = done_or_taken_back(
            |progress| {
                progress.next = Some(session());
                panic!("before the step")
            },
            take_back,
        );
        assert_eq!((done.map(|_| ()), taken.get()), (internal, 1));
        let done = done_or_taken_back(
            |progress| {
                progress.next = Some(session());
                Err((ENOMEM, "full".to_owned()))
            },
            take_back,
        );
        let full = Err((ENOMEM, "full".to_owned()));
        assert_eq!((done.map(|_| ()), taken.get()), (full, 2));
        let generations = Generations::default();
        let done = done_or_taken_back(
            |progress| {
                let next = session();
                progress.next = Some(Arc::clone(&next));
                progress.old = Some(generations.switch(next));
                panic!("after the step")
            },
            take_back,
        );
        assert_eq!((done.unwrap().1.number, taken.get()), (1, 2));
    }
}
