//! A process with threads of many kinds is attached to, refused by its agent, and detached from: it
//! does not notice, and nothing stays behind that was not wanted.

use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use warpbpf_inject::{InjectError, Subject, detach, load};

use crate::target::{Target, compile, folder, permitted};

#[test]
fn a_running_process_is_attached_to_and_does_not_notice() {
    let folder = folder("attached");
    // It has the agent's name, so that it is found again.
    let agent = folder.join("libwarpbpf_agent.so");
    compile(&agent, "agent.c", &["-shared", "-fPIC"]);
    let mut target = Target::start(&folder);
    let before = target.look();
    let refused = detach(target.pid(), &|| true);
    if !permitted(&refused) {
        return;
    }
    let message = refused.unwrap_err().to_string();
    assert_eq!(
        message,
        format!("there is no agent in process {}", target.pid())
    );
    assert_eq!(target.look(), before);
    assert_eq!(target.given().1, 0);
    for round in 0..20 {
        let done = load(target.pid(), &agent).unwrap();
        assert_eq!(
            done.said,
            format!("call {} by a quiet process", round * 2 + 1)
        );
        assert_eq!(done.patches, 1);
        let mut hello = String::new();
        let mut socket = std::os::unix::net::UnixStream::from(done.socket.unwrap());
        socket.read_to_string(&mut hello).unwrap();
        assert_eq!(hello, "hello", "and nobody else has the other end");
        assert!(done.pause <= done.took);
        let (one, two) = target.given();
        assert!(one == 0 && two > 0, "{one} {two}");
        let done = detach(target.pid(), &|| true).unwrap();
        assert_eq!((done.patches, done.socket.is_none()), (1, true));
        assert_eq!(
            done.said,
            format!("call {} by a quiet process", round * 2 + 2)
        );
        let (one, two) = target.given();
        assert!(two == 0 && one > 0, "{one} {two}");
    }
    let after = target.look();
    assert_eq!(
        (after.0, after.1),
        (before.0, before.1),
        "threads and descriptors"
    );
    let ours = |line: &&String| line.contains("libwarpbpf_agent.so");
    let rest: Vec<String> = after.2.iter().filter(|l| !ours(l)).cloned().collect();
    assert_eq!(rest, before.2, "no code but the agent's came");
    assert!(after.2.iter().any(|line| ours(&line)), "which stays");
    let subject = Subject::look(target.pid()).unwrap();
    assert!(subject.agent().is_some() && !subject.has_driver());
    target.end();
}

#[test]
fn whatever_fails_leaves_the_process_as_it_was() {
    let folder = folder("refused");
    // Not the agent's name: so it is loaded anew each time.
    let agent = folder.join("other.so");
    compile(&agent, "agent.c", &["-shared", "-fPIC"]);
    let mut target = Target::start(&folder);
    let pid = target.pid();
    let before = target.look();
    let first = load(pid, Path::new("/no/such/agent.so"));
    if !permitted(&first) {
        return;
    }
    let message = first.unwrap_err().to_string();
    assert!(message.starts_with("the agent's file `/no/such/agent.so` cannot be read"));
    assert_eq!(target.look(), before);
    // A file that is no library, and a library that is no agent.
    let text = folder.join("text.so");
    std::fs::write(&text, "not a library").unwrap();
    let message = load(pid, &text).unwrap_err().to_string();
    let said = format!("the agent cannot be loaded into process {pid}: ");
    assert!(
        message.starts_with(&said) && message.contains("text.so"),
        "{message}"
    );
    assert_eq!(target.look(), before);
    target.order("1");
    let message = load(pid, &agent).unwrap_err().to_string();
    assert_eq!(
        message,
        format!("the agent in process {pid} refuses: not today")
    );
    // The library stays: a loader cannot know who else has come to use it.
    let loaded = target.look();
    assert_eq!((loaded.0, loaded.1), (before.0, before.1));
    target.order("2");
    let error = load(pid, &agent).unwrap_err();
    assert!(matches!(error, InjectError::Changed { .. }), "{error}");
    assert_eq!(target.look(), loaded);
    assert_eq!(target.given().1, 0, "its code is as it was");
    target.end();
}

#[test]
fn a_file_that_the_process_cannot_see_comes_as_memory() {
    let folder = folder("unseen");
    let agent = folder.join("seen.so");
    compile(&agent, "agent.c", &["-shared", "-fPIC"]);
    let mut target = Target::start(&folder);
    let first = warpbpf_inject::load_as_memory(target.pid(), &agent);
    if !permitted(&first) {
        return;
    }
    assert_eq!(first.unwrap().said, "call 1 by a quiet process");
    let subject = Subject::look(target.pid()).unwrap();
    assert!(subject.agent().is_some(), "it is found again");
    let fds = target.look().1;
    let done = detach(target.pid(), &|| true).unwrap();
    assert_eq!(done.said, "call 2 by a quiet process");
    assert_eq!(target.look().1, fds);
    assert_eq!(target.given().1, 0);
    target.end();
}

#[test]
fn refusals_come_before_anything_is_touched() {
    let folder = folder("none");
    // Nothing is loaded into a program without a C library of its own to load it with.
    let program = folder.join("static");
    compile(&program, "target.c", &["-static"]);
    let target = Target::run(Command::new(&program));
    let refused = load(target.pid(), Path::new("/x.so"));
    if !permitted(&refused) {
        return;
    }
    assert_eq!(
        refused.unwrap_err().to_string(),
        format!(
            "process {} has not loaded the C library (it is statically linked): start it under `warpbpf run`",
            target.pid()
        )
    );
    target.end();
    let target = Target::start(&folder);
    let error = warpbpf_inject::attach(target.pid(), Path::new("/x.so"), &|| true).unwrap_err();
    assert!(matches!(error, InjectError::NoDriver { .. }), "{error}");
    target.end();
}

#[test]
fn a_process_that_is_traced_is_refused_by_its_tracers_name() {
    let folder = folder("traced");
    let target = Target::start(&folder);
    let pid = target.pid();
    // SAFETY: a child of ours is seized, and let go at the end of this thread.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid as i32, 0, 0) };
    if seized != 0 {
        eprintln!("skipped: ptrace is not permitted");
        return;
    }
    let began = Instant::now();
    let message = load(pid, Path::new("/x.so")).unwrap_err().to_string();
    assert_eq!(
        message,
        format!(
            "process {pid} is traced by process {} (a debugger or `strace`): detach that first",
            // SAFETY: it only answers.
            unsafe { libc::gettid() }
        )
    );
    assert!(began.elapsed() < Duration::from_secs(2));
    // SAFETY: as above; it must be stopped for that.
    unsafe {
        libc::ptrace(libc::PTRACE_INTERRUPT, pid as i32, 0, 0);
        libc::waitpid(pid as i32, std::ptr::null_mut(), libc::__WALL);
        libc::ptrace(libc::PTRACE_DETACH, pid as i32, 0, 0);
    }
    target.end();
}

#[test]
fn names_that_are_no_text_and_a_main_thread_that_has_ended_are_no_obstacle() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let folder = folder("odd");
    let agent = folder.join("libwarpbpf_agent.so");
    compile(&agent, "agent.c", &["-shared", "-fPIC"]);
    let odd = folder.join(OsStr::from_bytes(b"m\xff\xfe\nx"));
    std::fs::write(&odd, [0; 4096]).unwrap();
    // Its own name is none either.
    let program = folder.join(OsStr::from_bytes(b"alone\xff\n"));
    compile(&program, "alone.c", &["-rdynamic", "-lm"]);
    let mut command = Command::new(program);
    command.arg("sleeps").arg(&odd);
    let mut target = Target::run(command);
    let pid = target.pid();
    while warpbpf_inject::folder(pid) == Path::new("/proc").join(pid.to_string()) {
        std::thread::yield_now();
    }
    let done = load(pid, &agent);
    if matches!(done, Err(InjectError::MainThread { .. })) || !permitted(&done) {
        // Before Linux 6.9 nothing gives the descriptors of such a process, which is said.
        target.child.kill().unwrap();
        target.child.wait().unwrap();
        return;
    }
    assert_eq!(done.unwrap().said, "call 1 by a quiet process");
    assert_eq!(
        detach(pid, &|| true).unwrap().said,
        "call 2 by a quiet process"
    );
    assert!(warpbpf_inject::lives(pid));
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGUSR1) }, 0);
    assert_eq!(target.line(), "errors 0");
    assert!(target.child.wait().unwrap().success());
    assert!(!warpbpf_inject::lives(pid));
}

#[test]
fn old_words_of_the_allocator_and_the_loader_are_no_obstacle() {
    let folder = folder("words");
    let agent = folder.join("libwarpbpf_agent.so");
    compile(&agent, "agent.c", &["-shared", "-fPIC"]);
    let program = folder.join("alone");
    compile(&program, "alone.c", &["-rdynamic", "-lm"]);
    let mut command = Command::new(program);
    command.arg("keeps");
    let mut target = Target::run(command);
    let done = load(target.pid(), &agent);
    if !permitted(&done) {
        return;
    }
    assert_eq!(done.unwrap().said, "call 1 by a quiet process");
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::kill(target.pid() as i32, libc::SIGUSR1) }, 0);
    assert_eq!(target.line(), "errors 0");
    assert!(target.child.wait().unwrap().success());
}
