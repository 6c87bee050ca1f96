//! The handshake with agents that connect: each by a thread of its own, because one may be slow to
//! say who it is, or must wait for functions to be assembled, and no other is to wait for that.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use warpbpf_wire::{Hello, Options, ToAgent, ToTool, ToolConnection, WireError, encode_ops};

use crate::handles::process::Process;
use crate::heard::functions;
use crate::lock::lock;
use crate::tool::shared::{Beginning, Shared};

/// How long a message to an agent may take to be read.
const SEND: Duration = Duration::from_secs(10);
/// Connections that a process may have at once: an agent has one.
const MOST_OF_ONE: usize = 16;
/// Connections that may be silent for longer than this.
const MOST_SILENT: usize = 32;
const SILENT: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 2000 });

impl Shared {
    /// Welcomes an agent in a thread of its own.
    pub(crate) fn begin_handshake(self: &Arc<Shared>, connection: ToolConnection) {
        if self.comes_too_often(&connection) {
            return;
        }
        // In the order in which they come.
        let number = self.next_number();
        let waiting = Arc::new(Mutex::new(Some(connection)));
        let (shared, given) = (Arc::clone(self), Arc::clone(&waiting));
        let work = move || {
            let connection = lock(&given).take();
            if let Some(connection) = connection {
                shared.welcome(number, connection);
            }
        };
        let handshake = std::thread::Builder::new().name("warpbpf-hello".into());
        // Nobody looks between its begin and its place in the list.
        let mut handshakes = lock(&self.handshakes.0);
        match handshake.spawn(work) {
            Ok(handshake) => handshakes.push(handshake),
            Err(_) => {
                drop(handshakes);
                // Without a thread the handshake is here, and others wait.
                if let Some(connection) = lock(&waiting).take() {
                    self.welcome(number, connection);
                }
            }
        }
    }

    /// The process at the other end has as many connections as one may have: others need
    /// descriptors, too. Those that say nothing are let go otherwise.
    fn comes_too_often(&self, connection: &ToolConnection) -> bool {
        let Some(pid) = connection.process() else {
            return false;
        };
        let processes = lock(&self.processes);
        let mut own = processes.iter().filter(|process| process.is_of(pid));
        let Some(first) = own.next() else {
            return false;
        };
        let too_often = own.count() + 1 >= MOST_OF_ONE;
        if too_often {
            first.lock().note_once(format!(
                "process {pid} is connected {MOST_OF_ONE} times, and is not let in again"
            ));
        }
        too_often
    }

    /// Lets those go that have connected and say nothing, from the first on, if there are many:
    /// each has a descriptor, which others lack.
    pub(crate) fn part_with_silent(&self) {
        let mut processes = lock(&self.processes);
        let silent = processes.iter().filter(|p| p.is_silent_for(SILENT));
        let mut surplus = silent.count().saturating_sub(MOST_SILENT);
        processes.retain(|process| {
            let goes = surplus > 0 && process.is_silent_for(SILENT);
            if goes {
                surplus -= 1;
                process.hang_up();
            }
            !goes
        });
    }

    /// Tells an agent what to do, and keeps what it says from then on. It is the application of
    /// this number.
    pub(crate) fn welcome(&self, number: u64, mut connection: ToolConnection) -> Process {
        let (mut first, mut functions) = (None, None);
        let sent = match &self.object {
            Some(object) => {
                let mut sent = Ok(());
                let mut splice = false;
                if let Some(assembler) = self.assembler.get()
                    && let Ok(Some(frame)) = connection.recv(SEND)
                {
                    if let ToTool::Hello(Hello {
                        device: Some(device),
                        ..
                    }) = &frame.message
                    {
                        splice = true;
                        let mut result = Ok(());
                        let made = (assembler.of)(device);
                        made.make(&mut |function| {
                            let (message, cubin) = functions::message(function);
                            result = connection.send(&message, &cubin, None, SEND);
                            match result {
                                Ok(()) => ControlFlow::Continue(()),
                                Err(_) => ControlFlow::Break(()),
                            }
                        });
                        functions = Some(made);
                        if result.is_ok() && assembler.sanitizer.is_some() {
                            result = connection.send(&ToAgent::Sanitize, &[], None, SEND);
                        }
                        sent = sent.and(result);
                    }
                    first = Some(frame);
                }
                let mut presets = lock(&self.presets).clone();
                if let Some(Beginning(begin)) = self.beginning.get() {
                    begin(number, &mut |map, ops| {
                        presets.push((map.to_owned(), encode_ops(ops)));
                    });
                }
                for (map, ops) in presets {
                    let message = ToAgent::Preset { map };
                    sent = sent.and_then(|()| connection.send(&message, &ops, None, SEND));
                }
                if let Some(request) = lock(&self.cache).clone() {
                    let message = ToAgent::Cache(request);
                    sent = sent.and_then(|()| connection.send(&message, &[], None, SEND));
                }
                let options = Options {
                    splice,
                    ..self.options.clone()
                };
                let attach = ToAgent::Attach { options };
                sent.and_then(|()| connection.send(&attach, object.bytes(), None, SEND))
            }
            None if self.options.timeline => {
                let options = self.options.clone();
                connection.send(&ToAgent::Attach { options }, &[], None, SEND)
            }
            None => connection.send(&ToAgent::Observe, &[], None, SEND),
        };
        // Who is gone may have said something before.
        let connection = match sent {
            Ok(()) | Err(WireError::Closed) => Some(connection),
            Err(_) => None,
        };
        let process = Process::new(number, connection, self.object.clone());
        if let Some(functions) = functions {
            process.lock().functions.begin(functions);
        }
        process.lock().expect(&self.options);
        if let Some(frame) = first {
            process.lock().hear(frame);
        }
        process.pump();
        lock(&self.processes).push(process.clone());
        process
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use warpbpf_wire::{AgentConnection, Device, PROTOCOL};

    use super::*;
    use crate::object::Object;
    use crate::tool::Tool;
    use crate::tool::handshakes::{Handshakes, MOST};

    const LIMIT: Duration = Duration::from_secs(60);

    fn come(tool: &Tool, device: &str) -> AgentConnection {
        let mut agent = AgentConnection::connect(tool.socket()).unwrap();
        agent.send(&hello(device), &[], None, LIMIT).unwrap();
        agent
    }

    fn hello(device: &str) -> ToTool {
        ToTool::Hello(Hello {
            protocol: PROTOCOL,
            pid: 1,
            exe: String::new(),
            argv: Vec::new(),
            device: Some(Device {
                name: device.into(),
                capability: (9, 0),
                sms: 4,
                cpus: 4,
                driver_version: 13000,
                soft: true,
            }),
        })
    }

    fn until(is_so: &dyn Fn() -> bool) {
        let end = std::time::Instant::now() + LIMIT;
        while !is_so() {
            assert!(std::time::Instant::now() < end);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Names of the functions that come before the programs.
    fn hears(agent: &mut AgentConnection) -> Vec<String> {
        let mut functions = Vec::new();
        loop {
            let frame = agent.recv(LIMIT).unwrap().expect("a message");
            match frame.message {
                ToAgent::Probe { text, .. } => functions.push(text),
                ToAgent::Attach { options } => {
                    assert!(options.splice);
                    return functions;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn nobody_waits_for_who_is_slow_in_its_handshake() {
        let object = Object::from_parsed("empty", *b"an object", warpbpf_object::Object::default());
        let tool = Tool::attach(object, Options::default()).unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel();
        let goes_on = Mutex::new(goes_on);
        tool.splice(move |device, give| {
            if device.name == "slow" {
                begun.send(()).unwrap();
                lock(&goes_on).recv_timeout(LIMIT).unwrap();
            }
            give((device.name.clone(), Ok(Vec::new())));
        });
        let mut slow = come(&tool, "slow");
        // This one never says who it is.
        let silent = AgentConnection::connect(tool.socket()).unwrap();
        has_begun.recv_timeout(LIMIT).unwrap();
        for _ in 0..3 {
            assert_eq!(hears(&mut come(&tool, "quick")), ["quick"]);
        }
        go_on.send(()).unwrap();
        assert_eq!(hears(&mut slow), ["slow"]);
        drop((slow, silent));
        assert!(tool.wait_last_words(LIMIT), "all have gone");
        let numbers: Vec<u64> = tool.processes().iter().map(Process::number).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4], "{numbers:?}");
    }

    #[test]
    fn who_says_nothing_is_let_go_if_there_are_many() {
        let tool = Tool::observe().unwrap();
        let connect = || AgentConnection::connect(tool.socket()).unwrap();
        let mut silent: Vec<AgentConnection> = (0..MOST_SILENT + 3).map(|_| connect()).collect();
        let mut good = come(&tool, "good");
        let ended = |agent: &mut AgentConnection| {
            // What comes first is what to do.
            while agent.try_recv()?.is_some() {}
            Ok::<_, WireError>(())
        };
        let end = std::time::Instant::now() + LIMIT;
        let gone = loop {
            let gone = silent
                .iter_mut()
                .filter_map(|agent| ended(agent).err())
                .count();
            if gone >= 3 || std::time::Instant::now() > end {
                break gone;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(gone, 3);
        std::thread::sleep(2 * SILENT);
        let gone = silent
            .iter_mut()
            .filter_map(|agent| ended(agent).err())
            .count();
        assert_eq!(gone, 3, "and no more");
        ended(&mut good).unwrap();
        assert_eq!(tool.processes().len(), MOST_SILENT + 1);
    }

    #[test]
    fn one_process_does_not_take_all_descriptors() {
        let tool = Tool::observe().unwrap();
        let mut agents: Vec<AgentConnection> = Vec::new();
        let mut refused = 0;
        for _ in 0..MOST_OF_ONE + 5 {
            let mut agent = AgentConnection::connect(tool.socket()).unwrap();
            // It is told what to do, or hung up on.
            let _ = agent.send(&hello("many"), &[], None, LIMIT);
            match agent.recv(LIMIT) {
                Ok(message) => {
                    assert_eq!(message.expect("a message").message, ToAgent::Observe);
                    agents.push(agent);
                    until(&|| {
                        tool.processes().iter().filter(|p| p.pid() != 0).count() == agents.len()
                    });
                }
                Err(WireError::Closed) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!((agents.len(), refused), (MOST_OF_ONE, 5));
        let why = format!(
            "process {} is connected {MOST_OF_ONE} times, and is not let in again",
            std::process::id()
        );
        let notes = tool.processes().into_iter().flat_map(|p| p.notes());
        let notes: Vec<String> = notes.map(|note| note.text).collect();
        assert_eq!(notes, [why]);
        // Where one goes, another may come.
        drop(agents.pop());
        until(&|| tool.processes().iter().filter(|p| p.is_connected()).count() < MOST_OF_ONE);
        assert!(come(&tool, "again").recv(LIMIT).unwrap().is_some());
    }

    #[test]
    fn more_than_so_many_wait_their_turn() {
        let handshakes = Handshakes::default();
        assert!(handshakes.have_room() && !handshakes.are_there());
        let (go_on, goes_on) = mpsc::channel::<()>();
        let goes_on = Arc::new(Mutex::new(goes_on));
        for _ in 0..MOST {
            assert!(handshakes.have_room());
            let goes_on = Arc::clone(&goes_on);
            let work = move || {
                let _ = lock(&goes_on).recv();
            };
            lock(&handshakes.0).push(std::thread::spawn(work));
        }
        assert!(!handshakes.have_room());
        drop(go_on);
        handshakes.join();
        assert!(handshakes.have_room() && !handshakes.are_there());
    }
}
