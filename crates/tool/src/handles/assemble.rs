//! Functions for kernels of which there is only machine code, made before programs are replaced.
//! That takes as long as an assembler runs.

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use warpbpf_abi::maps::{EAGAIN, EBUSY, EIO, ETIMEDOUT};
use warpbpf_wire::{Changed, Refusal};

use crate::error::Error;
use crate::handles::process::Process;
use crate::heard::functions::{Function, Functions, message};
use crate::heard::replacement::Replacement;
use crate::heard::state::{Answer, State};
use crate::object::Object;

/// What comes of making functions for a replacement.
enum Step {
    Function(Function),
    /// All are made, by this.
    All(Option<Arc<dyn Functions>>),
}

/// Makes functions for a replacement, as long as somebody waits for them.
fn make(functions: &dyn Functions, replacement: &Replacement, tell: &mpsc::Sender<Step>) {
    let next = functions.after(replacement);
    if let Some(next) = &next {
        next.make(&mut |function| match tell.send(Step::Function(function)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        });
    }
    // Who does not wait any more has said so to the user.
    let _ = tell.send(Step::All(next));
}

fn in_a_thread(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("warpbpf-assembler".into());
    thread.spawn(work).map(drop)
}

impl Process {
    /// Has functions made for a replacement, and then asks for it: the request's number, for which
    /// [`Process::take_answer`] has an answer when either has failed, or all is done. `None` if no
    /// function is needed.
    ///
    /// # Errors
    /// [`Error::Replace`]: another replacement is under way, or no thread can be started;
    /// [`Error::Ended`].
    pub(crate) fn begin_with_functions(
        &self,
        replacement: &Replacement,
        limit: Duration,
    ) -> Result<Option<u64>, Error> {
        if !matches!(
            replacement,
            Replacement::Replace(_)
                | Replacement::Add(_)
                | Replacement::Remove(_)
                | Replacement::Join { .. }
                | Replacement::Leave { .. }
        ) {
            return Ok(None);
        }
        let begun = Instant::now();
        let mut state = self.lock();
        state.pump();
        let Some(functions) = state.functions.now.clone() else {
            return Ok(None);
        };
        let pid = state.pid;
        let refused = |errno: i64, message: String| Error::Replace {
            pid,
            message,
            errno: errno as i32,
        };
        if state.complete || state.connection.is_none() {
            return Err(Error::Ended { pid });
        }
        if state.functions.next.is_some() {
            let message = "programs are being replaced just now".to_owned();
            return Err(refused(EBUSY, message));
        }
        let token = state.next_token;
        state.next_token += 1;
        state.answers.insert(token, Answer::Waiting);
        state.functions.next = Some((token, None));
        let (process, wanted) = (self.clone(), replacement.clone());
        // What makes them is the caller's: it may panic or not come to its end, and must not keep
        // other replacements out.
        let (tell, made) = mpsc::channel();
        let of = replacement.clone();
        let making = in_a_thread(move || make(functions.as_ref(), &of, &tell));
        // The thread's first look at the state waits until this is done.
        let started = making.and_then(|()| {
            in_a_thread(move || process.gather_and_ask(&made, (token, &wanted), begun, limit))
        });
        if let Err(error) = started {
            state.functions.next = None;
            state.answers.remove(&token);
            let message = format!("no thread can be started that has functions made: {error}");
            return Err(refused(EAGAIN, message));
        }
        Ok(Some(token))
    }

    fn gather_and_ask(
        &self,
        steps: &mpsc::Receiver<Step>,
        (token, replacement): (u64, &Replacement),
        begun: Instant,
        limit: Duration,
    ) {
        let left = || limit.checked_sub(begun.elapsed());
        let mut made = Vec::new();
        let next = loop {
            let step = steps.recv_timeout(left().unwrap_or_default());
            match step {
                Ok(Step::Function(function)) => made.push(function),
                Ok(Step::All(next)) => break Ok(next),
                Err(mpsc::RecvTimeoutError::Timeout) => break Err(ETIMEDOUT),
                // Its sender is gone without a last word.
                Err(mpsc::RecvTimeoutError::Disconnected) => break Err(EIO),
            }
        };
        let mut state = self.lock();
        state.pump();
        let (next, left) = match (next, left()) {
            (Ok(next), Some(left)) => (next, left),
            (Err(EIO), _) => {
                let message =
                    "making functions for kernels without PTX panicked, and the old programs go on";
                return state.refuse(token, EIO as i32, message.to_owned());
            }
            (Ok(_) | Err(_), _) => {
                let refused = made.iter().find_map(|(_, made)| made.as_ref().err());
                let message = format!(
                    "functions for kernels without PTX, which `ptxas` makes, are not assembled after {:.1} s, and the old programs go on{}",
                    limit.as_secs_f64(),
                    refused.map(|why| format!(": {why}")).unwrap_or_default()
                );
                return state.refuse(token, ETIMEDOUT as i32, message);
            }
        };
        state.functions.next = Some((token, next));
        let object = replacement.object().map_or(&[][..], Object::bytes);
        let mut sent = Ok(true);
        let functions = made.into_iter().map(message);
        for (message, blob) in functions {
            sent = sent.and_then(|_| state.send(&message, &blob));
        }
        let change = replacement.message(token, left);
        // Nobody who is gone needs an answer: who waits sees that.
        if let Err(error) = sent.and_then(|_| state.send(&change, object)) {
            state.refuse(token, EAGAIN as i32, error.to_string());
        }
    }
}

impl State {
    /// A replacement that the agent was not asked for.
    fn refuse(&mut self, token: u64, errno: i32, message: String) {
        let refused = Changed {
            token,
            refused: Some(Refusal { errno, message }),
            ..Changed::default()
        };
        self.functions.changed(&refused);
        self.answer(token, Answer::Changed(Box::new(refused)));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;

    use warpbpf_wire::{AgentConnection, Change, Device, ToAgent, ToTool, ToolConnection};

    use super::*;
    use crate::heard::functions::AtStart;

    const LIMIT: Duration = Duration::from_secs(20);

    /// One function, whose text tells of all replacements so far.
    struct Traced(String);

    impl Functions for Traced {
        fn make(&self, give: &mut dyn FnMut(Function) -> ControlFlow<()>) {
            let refused = Err("too long".to_owned());
            if give((self.0.clone(), Ok(b"cubin".to_vec()))).is_continue() {
                let _ = give((format!("{} refused", self.0), refused));
            }
        }

        fn after(&self, replacement: &Replacement) -> Option<Arc<dyn Functions>> {
            let Replacement::Remove(programs) = replacement else {
                return None;
            };
            Some(Arc::new(Traced(format!(
                "{} {}",
                self.0,
                programs.join(",")
            ))))
        }
    }

    /// A process whose agent the test is.
    fn process(functions: impl Functions + 'static) -> (Process, AgentConnection) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let connection = ToolConnection::new(ours).unwrap();
        let process = Process::new(0, Some(connection), None);
        process.lock().functions.begin(Arc::new(functions));
        (process, AgentConnection::trusted(theirs).unwrap())
    }

    fn removes(program: &str) -> Replacement {
        Replacement::Remove(vec![program.to_owned()])
    }

    /// What the agent is sent up to a change: texts of functions, each with its cubin or why there
    /// is none; and the change's token.
    fn sent(agent: &mut AgentConnection) -> (Vec<Function>, u64) {
        let mut functions = Vec::new();
        loop {
            let frame = agent.recv(LIMIT).unwrap().expect("a message");
            match frame.message {
                ToAgent::Probe { text, error } => {
                    functions.push((text, error.map_or(Ok(frame.blob), Err)));
                }
                ToAgent::Change { token, change, .. } => {
                    assert!(matches!(change, Change::Remove { .. } | Change::Clear));
                    return (functions, token);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn answer(agent: &mut AgentConnection, token: u64, refused: bool) {
        let refusal = || Refusal {
            errno: -22,
            message: "no".to_owned(),
        };
        let changed = Changed {
            token,
            refused: refused.then(refusal),
            ..Changed::default()
        };
        agent
            .send(&ToTool::Changed(changed), &[], None, LIMIT)
            .unwrap();
    }

    fn of(name: &str) -> Vec<Function> {
        let refused = (format!("{name} refused"), Err("too long".to_owned()));
        vec![(name.to_owned(), Ok(b"cubin".to_vec())), refused]
    }

    #[test]
    fn functions_come_before_the_change_and_follow_what_is_in_force() {
        let (process, mut agent) = process(Traced("first".to_owned()));
        for (program, refused, text) in [
            ("a", false, "first a"),
            ("b", true, "first a b"),
            ("c", false, "first a c"),
        ] {
            let token = process.begin_replacement(&removes(program), LIMIT).unwrap();
            assert_eq!(sent(&mut agent), (of(text), token));
            // While it is under way nobody else gets functions.
            let second = process.begin_replacement(&removes("d"), LIMIT).unwrap_err();
            assert_eq!(second.errno(), EBUSY as i32);
            answer(&mut agent, token, refused);
            let answer = process.await_answer(token, LIMIT).unwrap();
            let done = process.replaced(&removes(program), answer);
            assert_eq!(done.is_err(), refused);
        }
        // What changes no programs needs no functions.
        let token = process
            .begin_replacement(&Replacement::Clear, LIMIT)
            .unwrap();
        assert_eq!(sent(&mut agent), (Vec::new(), token));
    }

    #[test]
    fn what_is_not_made_in_time_is_not_asked_for() {
        let (process, mut agent) = process(Traced("first".to_owned()));
        let late = process
            .replace_within(&removes("a"), Duration::ZERO)
            .unwrap_err();
        assert_eq!(late.errno(), ETIMEDOUT as i32);
        assert!(
            late.to_string().contains("the old programs go on"),
            "{late}"
        );
        let token = process.begin_replacement(&removes("b"), LIMIT).unwrap();
        assert_eq!(sent(&mut agent), (of("first b"), token));
    }

    /// Comes to no end, until somebody lets it.
    struct Hangs(Mutex<mpsc::Receiver<()>>);

    impl Functions for Hangs {
        fn make(&self, give: &mut dyn FnMut(Function) -> ControlFlow<()>) {
            Traced("first".to_owned()).make(give);
        }

        fn after(&self, replacement: &Replacement) -> Option<Arc<dyn Functions>> {
            if matches!(replacement, Replacement::Remove(programs) if programs == &["hangs"]) {
                // The test drops the other end.
                let _ = self.0.lock().unwrap().recv();
            }
            Traced("first".to_owned()).after(replacement)
        }
    }

    #[test]
    fn what_hangs_is_given_up_and_keeps_nobody_out() {
        let (go_on, hangs) = mpsc::channel();
        let (process, mut agent) = process(Hangs(Mutex::new(hangs)));
        let late = process
            .replace_within(&removes("hangs"), Duration::from_millis(20))
            .unwrap_err();
        assert_eq!(late.errno(), ETIMEDOUT as i32);
        assert!(
            late.to_string()
                .contains("which `ptxas` makes, are not assembled after 0.0 s"),
            "{late}"
        );
        let token = process.begin_replacement(&removes("b"), LIMIT).unwrap();
        assert_eq!(sent(&mut agent), (of("first b"), token));
        drop(go_on);
    }

    struct Panics;

    impl Functions for Panics {
        fn make(&self, _: &mut dyn FnMut(Function) -> ControlFlow<()>) {}

        fn after(&self, _: &Replacement) -> Option<Arc<dyn Functions>> {
            panic!("for the test")
        }
    }

    #[test]
    fn what_panics_is_refused_and_keeps_nobody_out() {
        let (process, _agent) = process(Panics);
        for program in ["a", "b"] {
            let refused = process
                .replace_within(&removes(program), LIMIT)
                .unwrap_err();
            assert_eq!(refused.errno(), EIO as i32);
            assert!(refused.to_string().contains("panicked"), "{refused}");
        }
    }

    #[test]
    fn functions_of_the_start_alone_are_none_for_others() {
        let device = Device {
            name: String::new(),
            capability: (9, 0),
            sms: 4,
            cpus: 4,
            driver_version: 13000,
            soft: false,
        };
        let assemble = Arc::new(|_: &Device, give: &mut dyn FnMut(Function)| {
            give(("text".to_owned(), Ok(Vec::new())));
            give(("more".to_owned(), Ok(Vec::new())));
        });
        let functions = AtStart { assemble, device };
        let mut texts = Vec::new();
        functions.make(&mut |(text, _)| {
            texts.push(text);
            ControlFlow::Break(())
        });
        assert_eq!(texts, ["text"]);
        let (process, mut agent) = process(functions);
        for program in ["a", "b"] {
            let token = process.begin_replacement(&removes(program), LIMIT).unwrap();
            assert_eq!(sent(&mut agent), (Vec::new(), token));
            answer(&mut agent, token, false);
            process.await_answer(token, LIMIT).unwrap();
        }
    }
}
