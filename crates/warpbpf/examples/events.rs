//! Prints the records of a ring as they come: `events PROG.bpf.o RING APP [ARGUMENT…]`.
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::time::Duration;

use warpbpf::{Error, Launch, Object, Options, Tool};

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [object, ring, application @ ..] = arguments.as_slice() else {
        println!("usage: events PROG.bpf.o RING APP [ARGUMENT…]");
        return Ok(());
    };
    let tool = Tool::attach(Object::open(object)?, Options::default())?;
    let mut app = tool.start(&Launch::new(application))?;
    let process = app.wait_ready(Duration::from_secs(60))?;
    let ring = process.map(ring)?;
    let mut events = 0;
    loop {
        let connected = process.is_connected();
        events += ring.poll(Duration::from_millis(100), |event| {
            println!("SM {}: {} bytes", event.shard, event.payload.len());
        });
        if !connected {
            break;
        }
    }
    for message in process.messages(Duration::ZERO) {
        println!("{message}");
    }
    println!("{events} events, {} lost", ring.lost());
    Ok(())
}
