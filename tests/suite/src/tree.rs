//! What `/proc` says of processes that a case has started: who descends from whom, and what each
//! waits for.

use std::collections::BTreeMap;

use crate::process::{Signal, signal};

/// A process that runs or is a zombie.
#[derive(Debug, Clone)]
struct Process {
    parent: u32,
    is_zombie: bool,
}

/// All processes that may be seen, by number.
fn all() -> BTreeMap<u32, Process> {
    let folders = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = folders.filter_map(|folder| folder.file_name().to_str()?.parse().ok());
    let with_parent = numbers.filter_map(|pid| Some((pid, process(pid)?)));
    with_parent.collect()
}

fn process(pid: u32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may have anything in it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_whitespace();
    let is_zombie = words.next()? == "Z";
    let parent = words.next()?.parse().ok()?;
    Some(Process { parent, is_zombie })
}

/// Processes whose parent this one is, and that live.
pub fn children(of: u32) -> Vec<u32> {
    let all = all().into_iter();
    let own = all.filter(|(_, process)| process.parent == of && !process.is_zombie);
    own.map(|(pid, _)| pid).collect()
}

/// A child of this process that has ended and has not been waited for yet. It stays so.
pub fn ended_child() -> Option<u32> {
    // SAFETY: zeroes are a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: a writable local.
    let done = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) };
    // SAFETY: what `waitid` filled, or zeroes.
    let pid = unsafe { info.si_pid() };
    (done == 0 && pid > 0).then_some(pid.cast_unsigned())
}

/// The process was started with this variable, `NAME=VALUE`.
pub fn has_variable(pid: u32, variable: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut variables = environment.split(|byte| *byte == 0);
    variables.any(|there| there == variable.as_bytes())
}

/// Ends a process. One that has ended meanwhile is as well.
pub fn kill(pid: u32) {
    let _ = signal(pid, Signal::Kill);
}

/// Processes that live and descend from this one.
pub fn descendants(of: u32) -> Vec<u32> {
    let all = all();
    let descends = |pid: u32| {
        // No chain of parents is longer than that.
        let mut pid = pid;
        for _ in 0..all.len() {
            match all.get(&pid) {
                Some(process) if process.parent == of => return true,
                Some(process) => pid = process.parent,
                None => return false,
            }
        }
        false
    };
    let living = all.iter().filter(|(_, process)| !process.is_zombie);
    let found = living.filter(|(pid, _)| descends(**pid));
    found.map(|(pid, _)| *pid).collect()
}

/// Ends all that descend from a process, however they came about.
pub fn end_descendants(of: u32) {
    // One that is ending may have started another.
    for _ in 0..100 {
        let all = descendants(of);
        if all.is_empty() {
            break;
        }
        all.into_iter().for_each(kill);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// What each of these waits for, a line each.
pub fn waits(processes: &[u32]) -> String {
    let lines = processes.iter().map(|pid| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = command
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty())
            .map(String::from_utf8_lossy)
            .collect();
        format!("  {pid} {} `{}`\n", wait(*pid), words.join(" "))
    });
    lines.collect()
}

/// The call that the process' first thread is in.
fn wait(pid: u32) -> String {
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let words: Vec<&str> = call.split_whitespace().collect();
    let number = words.first().and_then(|word| word.parse::<i64>().ok());
    let argument = |at: usize| {
        let word = words.get(at + 1).and_then(|word| word.strip_prefix("0x"));
        word.and_then(|word| u64::from_str_radix(word, 16).ok())
    };
    let (first, second) = (argument(0).unwrap_or(0), argument(1).unwrap_or(0));
    let file = |descriptor: u64| {
        let link = std::fs::read_link(format!("/proc/{pid}/fd/{descriptor}"));
        link.map_or_else(
            |_| descriptor.to_string(),
            |path| path.display().to_string(),
        )
    };
    match number {
        Some(libc::SYS_wait4) => match first as u32 as i32 {
            -1 => "waits for any child".to_owned(),
            child => format!("waits for process {child}"),
        },
        Some(libc::SYS_waitid) => format!("waits for process {second}"),
        Some(libc::SYS_read | libc::SYS_readv) => format!("reads {}", file(first)),
        Some(libc::SYS_recvmsg | libc::SYS_recvfrom) => format!("receives from {}", file(first)),
        Some(libc::SYS_ppoll) => "polls".to_owned(),
        #[cfg(target_arch = "x86_64")]
        Some(libc::SYS_poll) => "polls".to_owned(),
        Some(libc::SYS_futex) => "waits for a thread".to_owned(),
        Some(libc::SYS_clock_nanosleep | libc::SYS_nanosleep) => "sleeps".to_owned(),
        Some(number) => format!("is in system call {number}"),
        None => match words.first() {
            Some(&"running") => "runs".to_owned(),
            _ => "is there".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn descendants_are_found_told_of_and_ended() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 1000 & sleep 1001; true"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        let started = || descendants(pid).len() == 2;
        while !started() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(children(std::process::id()).contains(&pid));
        let text = waits(&descendants(pid));
        assert!(
            text.contains("`sleep 1000`") && text.contains("`sleep 1001`"),
            "{text}"
        );
        end_descendants(pid);
        assert!(descendants(pid).is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        let text = waits(&[std::process::id()]);
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}
