//! The thread that answers programs which ask the host for keys. It is here, in the application's process, so nothing waits for
//! the tool; if the whole process is stopped, calls run out of time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpbpf_session::Calls;

use crate::thread;

/// How long it looks without a pause after a request: kernels that ask, ask again.
const EAGER: Duration = Duration::from_millis(2);
/// How long it then looks at the first pace, before it slows down.
const AWAKE: Duration = Duration::from_secs(2);
/// The pauses of both paces.
const SHORT: Duration = Duration::from_micros(50);
const LONG: Duration = Duration::from_millis(1);

/// Starts it. It ends when the maps are gone.
pub(crate) fn start(calls: Arc<Calls>) -> std::io::Result<()> {
    thread::start("warpbpf-calls", move || serve(&calls))
}

fn serve(calls: &Calls) {
    let mut asked = Instant::now();
    while let Some(served) = calls.serve() {
        if served != 0 {
            asked = Instant::now();
            continue;
        }
        let idle = asked.elapsed();
        if idle < EAGER {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(if idle < AWAKE { SHORT } else { LONG });
        }
    }
}
