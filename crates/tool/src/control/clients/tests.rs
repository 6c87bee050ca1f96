//! Second tools, where the test is the agent.

use std::os::unix::net::UnixStream;

use warpbpf_wire::{Changed, Refusal, ToolConnection};

use super::*;

const LIMIT: Duration = Duration::from_secs(20);

/// A process whose agent the test is.
fn process() -> (Process, AgentConnection) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let connection = ToolConnection::new(ours).unwrap();
    let process = Process::new(0, Some(connection), None);
    (process, AgentConnection::trusted(theirs).unwrap())
}

/// The next request of programs: its token, and milliseconds that it may take.
fn asked(agent: &mut AgentConnection) -> (u64, u64) {
    match agent.recv(LIMIT).unwrap().expect("a message").message {
        ToAgent::Change {
            token, limit_ms, ..
        } => (token, limit_ms),
        other => panic!("{other:?}"),
    }
}

fn answer(agent: &mut AgentConnection, token: u64, errno: Option<i64>) {
    let refused = errno.map(|errno| Refusal {
        errno: errno as i32,
        message: "no".to_owned(),
    });
    let changed = Changed {
        token,
        refused,
        ..Changed::default()
    };
    agent
        .send(&ToTool::Changed(changed), &[], None, LIMIT)
        .unwrap();
}

/// Goes on until there is something.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "nothing comes");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn joining(process: &Process) -> Joining {
    let leave = Replacement::Leave { client: 1 };
    Joining {
        info: ClientInfo::default(),
        pending: Pending::of(process.clone(), leave, LIMIT).unwrap(),
        process: process.clone(),
        until: Instant::now() + LIMIT,
        again: None,
        notes: 0,
    }
}

fn client(process: &Process) -> Client {
    Client {
        info: ClientInfo::default(),
        process: process.clone(),
        connection: None,
        told: Told::new(1, 0),
        asked: Vec::new(),
        goes: false,
        stage: Stage::There,
    }
}

#[test]
fn who_comes_while_others_are_replaced_is_tried_again_after_a_while() {
    let (process, mut agent) = process();
    let (mut clients, mut joining) = (Clients::default(), joining(&process));
    let (token, _) = asked(&mut agent);
    let before = Instant::now();
    answer(&mut agent, token, Some(EBUSY));
    let again = until(|| {
        assert!(clients.join(&mut joining).is_none());
        joining.again
    });
    assert!(again >= before + BUSY);
    joining.again = Some(before);
    assert!(clients.join(&mut joining).is_none());
    let (token, left) = asked(&mut agent);
    assert!(u128::from(left) < LIMIT.as_millis(), "what is left of it");
    answer(&mut agent, token, None);
    let (reply, _) = until(|| clients.join(&mut joining));
    assert!(matches!(reply, Reply::Joined { .. }), "{reply:?}");
}

#[test]
fn who_comes_is_not_tried_again_for_ever() {
    let (process, mut agent) = process();
    let (mut clients, mut joining) = (Clients::default(), joining(&process));
    let (token, _) = asked(&mut agent);
    joining.until = Instant::now();
    answer(&mut agent, token, Some(EBUSY));
    let (reply, _) = until(|| clients.join(&mut joining));
    assert!(!matches!(reply, Reply::Joined { .. }), "{reply:?}");
}

#[test]
fn who_goes_while_others_are_replaced_is_tried_again_after_a_while() {
    let (process, mut agent) = process();
    let mut client = client(&process);
    client.leave();
    let (token, _) = asked(&mut agent);
    let before = Instant::now();
    answer(&mut agent, token, Some(EBUSY));
    let again = until(|| {
        client.go_on();
        match client.stage {
            Stage::Again(at) => Some(at),
            _ => None,
        }
    });
    assert!(again >= before + BUSY);
}

/// One that can be spoken to, and its end of that.
fn connected(process: &Process) -> (Client, std::os::fd::OwnedFd) {
    let (connection, theirs) = AgentConnection::pair().unwrap();
    let client = Client {
        connection: Some(connection),
        ..client(process)
    };
    (client, theirs)
}

#[test]
fn nothing_is_kept_of_who_is_gone() {
    let (process, mut agent) = process();
    let (mut client, theirs) = connected(&process);
    client.info.client = 7;
    let own = process.begin(|token| ToAgent::Snapshot { token }, &[]);
    client.asked.push((1, own.unwrap()));
    agent.recv(LIMIT).unwrap();
    drop(theirs);
    assert!(client.turn());
    let (token, _) = asked(&mut agent);
    let waited_for = process.lock().answers.keys().copied().collect::<Vec<_>>();
    assert_eq!(waited_for, [token]);
    answer(&mut agent, token, None);
    until(|| (!client.turn()).then_some(()));
    assert!(process.lock().answers.is_empty());
    let last = agent.recv(LIMIT).unwrap().unwrap().message;
    assert_eq!(last, ToAgent::Forget { client: 7 });
}

#[test]
fn who_stands_still_is_not_waited_for() {
    let (process, _agent) = process();
    let (mut client, _theirs) = connected(&process);
    client.note("long".repeat(1 << 20));
    client.gone();
    assert!(client.turn(), "it may read that");
    client.stage = Stage::Gone(Instant::now());
    assert!(!client.turn());
    let mut clients = Clients::default();
    let (client, _theirs) = connected(&process);
    clients.all.push(client);
    clients.all[0].note("long".repeat(1 << 20));
    clients.farewell(Duration::ZERO);
    assert!(clients.all.is_empty());
}
