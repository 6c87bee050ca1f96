//! Tools and commands that stop or end at any moment: the application goes on, and others may come.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warpbpf_tool::{Object, Options, Tool};

use super::hostile::frame;
use super::{descriptors, told, until};
use crate::attach::{Application, Attached, until_counted};
use crate::library::failed;
use crate::process::Signal;
use crate::replace::start;
use crate::run::{Bench, Case, Told, is_deep, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case(
            "attacks: commands that end in the middle of a request",
            requests,
        ),
        case("attacks: a tool that stands still and is killed", stands),
        case("attacks: a tool that is told to quit", quits),
        case("attacks: descriptors of both after many tools", cycles),
    ]
}

/// Requests for a replacement, for a gate and for a second tool's programs, cut where a command may
/// be killed, or not waited for. The application computes on, and a command that is not killed is
/// served.
fn requests(bench: &Bench) -> Told {
    let object = bench.object("launchcount");
    let bytes = std::fs::read(&object).map_err(|e| e.to_string())?;
    let options = Options {
        gate: true,
        ..Options::default()
    };
    let tool = Tool::attach(Object::open(&object).map_err(failed)?, options).map_err(failed)?;
    tool.serve().map_err(failed)?;
    let mut application = start(bench, &tool, &["live"])?;
    application.launch(2)?;
    let socket = tool.socket().with_file_name("maps");
    let replace = json!({ "type": "replace", "process": 0, "change": { "change": "replace" }, "name": "launchcount", "limit_ms": 5000 });
    let gate = json!({ "type": "replace", "process": 0, "change": { "change": "gate", "open": true, "programs": [] }, "name": "", "limit_ms": 5000 });
    let own = descriptors(std::process::id());
    for (name, request, blob) in [("replace", &replace, &bytes[..]), ("gate", &gate, &[])] {
        let mut whole = frame(request.to_string().as_bytes(), blob.len() as u32, 0);
        whole.extend(blob);
        let step = if is_deep() { 97 } else { whole.len() / 6 };
        let cuts = (1..whole.len())
            .step_by(step)
            .chain([whole.len() - 1, whole.len()]);
        let mut count = 0;
        for cut in cuts {
            let mut stream = UnixStream::connect(&socket).map_err(|e| e.to_string())?;
            stream.write_all(&whole[..cut]).map_err(|e| e.to_string())?;
            drop(stream);
            application
                .launch(1)
                .map_err(|why| format!("{name} cut at {cut}: {why}"))?;
            count += 1;
        }
        // And one that waits for its answer, once those are through that were begun.
        let end = Instant::now() + super::PATIENCE;
        let answer = loop {
            let answer = asked(&socket, &whole).map_err(|why| format!("{name}: {why}"))?;
            let is_busy = answer["errno"].as_i64() == Some(-i64::from(libc::EBUSY));
            if !is_busy || Instant::now() > end {
                break answer;
            }
        };
        same("the answer", answer["type"].as_str(), Some("replaced"))
            .map_err(|why| format!("{name}: {why}: {answer}"))?;
        told(
            &format!("`{name}` killed in its request"),
            &format!("at {count} places"),
        );
    }
    application.launch(2)?;
    until("nobody is left", || descriptors(std::process::id()) <= own)?;
    application.end()?;
    Ok("the application computed on".into())
}

/// The answer to a request.
fn asked(socket: &std::path::Path, request: &[u8]) -> Result<Value, String> {
    let failed = |e: std::io::Error| e.to_string();
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    let limit = stream.set_read_timeout(Some(super::PATIENCE));
    limit
        .and_then(|()| stream.write_all(request))
        .map_err(failed)?;
    let mut header = [0; 16];
    stream.read_exact(&mut header).map_err(failed)?;
    let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let mut answer = vec![0; length as usize];
    stream.read_exact(&mut answer).map_err(failed)?;
    serde_json::from_slice(&answer).map_err(|e| e.to_string())
}

/// Stopped, it reads nothing, and the application goes on; killed then, it leaves an application to
/// which others may come.
fn stands(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    let before = application.driver_code()?;
    let attached = match Attached::start(bench, &application, "launchcount") {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        attached => attached?,
    };
    until_counted(bench, &mut application, "kernels")?;
    attached.signal(Signal::Stop)?;
    for _ in 0..50 {
        application.launch(4)?;
    }
    told("SIGSTOP for the tool", "200 launches beside it");
    attached.signal(Signal::Kill)?;
    drop(attached);
    application.launch(5)?;
    told(
        "SIGKILL for a tool that is stopped",
        "the application goes on",
    );
    let attached = Attached::start(bench, &application, "launchcount")?;
    until_counted(bench, &mut application, "kernels")?;
    let _ = attached.interrupt()?;
    let same_code = application.driver_code()? == before;
    same("the driver's code is as before", same_code, true)?;
    application.end()?;
    Ok("another tool came and went".into())
}

/// SIGQUIT ends a tool in order, and no core is written.
fn quits(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    let before = application.driver_code()?;
    let attached = match Attached::start(bench, &application, "launchcount") {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        attached => attached?,
    };
    until_counted(bench, &mut application, "kernels")?;
    attached.signal(Signal::Quit)?;
    let report = attached.report()?;
    same(
        "complete",
        report["processes"][0]["complete"].as_bool(),
        Some(true),
    )?;
    let same_code = application.driver_code()? == before;
    same("the driver's code is as before", same_code, true)?;
    application.launch(3)?;
    application.end()?;
    told(
        "SIGQUIT for `attach`",
        "it takes its programs out, and shows what they did",
    );
    Ok("in order".into())
}

/// Tools come, and are killed or end, one after the other: neither side has more descriptors than
/// after the first few.
fn cycles(bench: &Bench) -> Told {
    let rounds = if is_deep() { 60 } else { 6 };
    let mut application = Application::plain(bench)?;
    let pid: u32 = application.pid().parse().map_err(|_| "no number")?;
    let own = || descriptors(std::process::id());
    let mut first = None;
    for round in 0..rounds {
        let attached = match Attached::start(bench, &application, "launchcount") {
            Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
            attached => attached?,
        };
        application.launch(2)?;
        match round % 3 {
            0 => drop(attached.interrupt()?),
            1 => {
                attached.signal(Signal::Kill)?;
                drop(attached);
            }
            _ => {
                attached.signal(Signal::Stop)?;
                application.launch(1)?;
                attached.signal(Signal::Kill)?;
                drop(attached);
            }
        }
        application.launch(2)?;
        if round == 2 {
            std::thread::sleep(Duration::from_millis(500));
            first = Some((descriptors(pid), own()));
        }
    }
    let Some((theirs, ours)) = first else {
        return Err("no rounds".into());
    };
    until("the application's descriptors are as many", || {
        descriptors(pid) <= theirs
    })
    .map_err(|why| format!("{why}: {} and {theirs} before", descriptors(pid)))?;
    until("those of who looks are as many", || own() <= ours)?;
    application.end()?;
    told(
        "tools that end, are killed, and are killed while stopped",
        &format!("{rounds} of them leave nothing"),
    );
    Ok(format!("{theirs} descriptors"))
}
