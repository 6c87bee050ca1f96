//! Starts an application with a program in its kernels, watches a map of counters while it runs,
//! and prints what it held at the end: `counter PROG.bpf.o MAP APP [ARGUMENT…]`. Keys are u32,
//! values u64.
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::time::Duration;

use warpbpf::{Error, Launch, Object, Options, Tool};

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [object, map, application @ ..] = arguments.as_slice() else {
        println!("usage: counter PROG.bpf.o MAP APP [ARGUMENT…]");
        return Ok(());
    };
    let tool = Tool::attach(Object::open(object)?, Options::default())?;
    let mut app = tool.start(&Launch::new(application))?;
    let process = app.wait_ready(Duration::from_secs(60))?;
    let counts = process.map(map)?.typed::<u32, u64>()?;
    println!("{}: key 0 is {:?}", process.exe(), counts.get(&0)?);
    let status = app.wait()?;
    // The application has ended; what it left can still be read.
    for (key, count) in counts.entries()? {
        println!("{key}: {count}");
    }
    println!("exit status {status}");
    Ok(())
}
