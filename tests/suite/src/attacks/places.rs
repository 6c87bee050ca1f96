//! Sockets and folders that others have put where a tool, its commands and its applications look:
//! nobody of ours is led elsewhere, waits there, or takes away what is not its own.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{ARGUMENTS, ONLY_ROOT, SOMEBODY, Served, each, is_root, told};
use crate::run::{Bench, Case, Told, is_deep, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("attacks: a runtime folder full of traps", registry),
        case("attacks: what a killed tool left, and traps", sweep),
        case("attacks: places for `serve --socket`", posts),
        case("attacks: sockets that an application is given", sockets),
        case("attacks: a runtime folder of another user", others_folder),
    ]
}

fn failed(error: std::io::Error) -> String {
    error.to_string()
}

/// A folder for sockets, which have short names.
struct Runtime(PathBuf);

impl Runtime {
    fn new(name: &str) -> Result<Runtime, String> {
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).map_err(failed)?;
        Ok(Runtime(folder))
    }

    /// A folder in it that is nobody else's.
    fn folder(&self, name: impl AsRef<Path>) -> Result<PathBuf, String> {
        let folder = self.0.join(name);
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let own = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(&folder, own).map_err(failed)?;
        Ok(folder)
    }

    /// Somebody who listens, and whom nobody is to call.
    fn listener(&self, path: &Path) -> Result<UnixListener, String> {
        let listener = UnixListener::bind(path).map_err(|e| format!("{}: {e}", path.display()))?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(listener)
    }

    /// All names in it, and in its folders.
    fn names(&self) -> Vec<PathBuf> {
        let mut all = Vec::new();
        let mut left = vec![self.0.clone()];
        while let Some(folder) = left.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                all.push(entry.path());
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    left.push(entry.path());
                }
            }
        }
        all.sort();
        all
    }

    fn given(&self, command: &mut Command) {
        command
            .env("XDG_RUNTIME_DIR", &self.0)
            .env("TMPDIR", &self.0);
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn fifo(path: &Path) -> Result<(), String> {
    let made = Command::new("mkfifo").arg(path).status().map_err(failed)?;
    same("mkfifo", made.success(), true)
}

/// Nobody has called.
fn is_alone(name: &str, listener: &UnixListener) -> Result<(), String> {
    match listener.accept() {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            told(name, "nobody has called there");
            Ok(())
        }
        _ => Err(format!("{name}: somebody has called there")),
    }
}

/// `warpbpf maps list` finds the one tool that there is, and calls nobody else.
fn registry(bench: &Bench) -> Told {
    let runtime = Runtime::new("traps")?;
    let folder = |name: &str| runtime.folder(format!("warpbpf-{name}"));
    fifo(&folder("1-0")?.join("maps"))?;
    std::fs::create_dir(folder("2-0")?.join("maps")).map_err(failed)?;
    std::fs::write(folder("3-0")?.join("maps"), "mine").map_err(failed)?;
    // What else this user has that listens.
    let elsewhere = runtime.folder("elsewhere")?;
    let other = runtime.listener(&elsewhere.join("maps"))?;
    symlink(&elsewhere, runtime.0.join("warpbpf-4-0")).map_err(failed)?;
    symlink(elsewhere.join("maps"), folder("5-0")?.join("maps")).map_err(failed)?;
    let open = folder("6-0")?;
    let in_open = runtime.listener(&open.join("maps"))?;
    let mode = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&open, mode).map_err(failed)?;
    let of_somebody = match is_root() {
        false => None,
        true => {
            let folder = folder("7-0")?;
            let listener = runtime.listener(&folder.join("maps"))?;
            for path in [folder.join("maps"), folder] {
                chown(path, Some(SOMEBODY), None).map_err(failed)?;
            }
            Some(listener)
        }
    };
    drop(runtime.listener(&folder("8-0")?.join("maps"))?);
    std::fs::write(runtime.0.join("warpbpf-9-0"), "mine").map_err(failed)?;
    symlink("nowhere", runtime.0.join("warpbpf-10-0")).map_err(failed)?;
    symlink("warpbpf-11-0", runtime.0.join("warpbpf-11-0")).map_err(failed)?;
    for name in [&b"warpbpf-\x1b[2J\n"[..], b"warpbpf-\xff\xfe"] {
        let folder = runtime.folder(OsString::from_vec(name.to_vec()))?;
        drop(runtime.listener(&folder.join("maps"))?);
    }
    let tool = Served::with(bench, &["--json"], |command| runtime.given(command))?;
    let before = runtime.names();
    let mut command = bench.warpbpf("maps");
    runtime.given(command.args(["--json", "list"]));
    let output = command.output().map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    same(
        "status",
        (output.status.code(), said.as_str()),
        (Some(0), ""),
    )?;
    let found: Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
    let sessions = found["sessions"].as_array().into_iter().flatten();
    let tools: Vec<Option<u64>> = sessions.map(|session| session["tool"].as_u64()).collect();
    same("tools", tools, vec![Some(tool.pid().into())])?;
    same("what is there", runtime.names() == before, true)?;
    is_alone("links to a socket of this user's", &other)?;
    is_alone("a folder that others may write to", &in_open)?;
    match &of_somebody {
        Some(listener) => is_alone("a folder of another user's", listener)?,
        None => told("a folder of another user's", ONLY_ROOT),
    }
    for trap in [
        "a FIFO in place of a socket",
        "a folder in place of a socket",
        "a file in place of a socket",
        "a socket that nobody listens at",
        "a file, a loop and a link to nowhere in place of a folder",
        "names with escapes and of odd bytes",
    ] {
        told(trap, "not heard of");
    }
    drop(tool.end()?);
    Ok("the one tool was found".into())
}

/// A tool that begins takes away what is its user's, and nothing that a link leads to.
fn sweep(bench: &Bench) -> Told {
    let runtime = Runtime::new("swept")?;
    let precious = runtime.folder("precious")?;
    for name in ["control", "maps"] {
        drop(runtime.listener(&precious.join(name))?);
    }
    std::fs::write(precious.join("file"), "mine").map_err(failed)?;
    symlink(&precious, runtime.0.join("warpbpf-1-0")).map_err(failed)?;
    let folder = |name: &str| runtime.folder(format!("warpbpf-{name}"));
    // Links in a folder that a tool seems to have left.
    let linked = folder("2-0")?;
    drop(runtime.listener(&linked.join("control"))?);
    symlink(precious.join("file"), linked.join("maps")).map_err(failed)?;
    let with_fifo = folder("3-0")?;
    fifo(&with_fifo.join("control"))?;
    std::fs::create_dir(folder("4-0")?.join("control")).map_err(failed)?;
    let lives = folder("5-0")?;
    let listener = runtime.listener(&lives.join("control"))?;
    // This one a tool has left.
    drop(runtime.listener(&folder("6-0")?.join("control"))?);
    if is_root() {
        let folder = folder("7-0")?;
        drop(runtime.listener(&folder.join("control"))?);
        for path in [folder.join("control"), folder] {
            chown(path, Some(SOMEBODY), None).map_err(failed)?;
        }
    }
    let left = [
        runtime.0.join("warpbpf-6-0"),
        runtime.0.join("warpbpf-6-0/control"),
        linked.join("control"),
    ];
    let mut expected = runtime.names();
    expected.retain(|path| !left.contains(path));
    let mut command = bench.warpbpf("run");
    runtime.given(
        command
            .arg(bench.object("launchcount"))
            .args(["--", "true"]),
    );
    let output = command.output().map_err(failed)?;
    same("status", output.status.code(), Some(0))?;
    same("what is there", runtime.names(), expected)?;
    let kept = std::fs::read(precious.join("file")).map_err(failed)?;
    same("the file", kept.as_slice(), &b"mine"[..])?;
    is_alone("a tool that lives", &listener)?;
    told(
        "links in place of a folder and in it",
        "what they lead to is there",
    );
    told(
        "a FIFO and a folder in place of a socket",
        "left as they are",
    );
    Ok("one folder was taken away".into())
}

/// What is there is not replaced, unless it is a link that a killed tool has left.
fn posts(bench: &Bench) -> Told {
    let runtime = Runtime::new("posts")?;
    let place = |name: &str| runtime.0.join(name);
    std::fs::write(place("file"), "mine").map_err(failed)?;
    std::fs::create_dir(place("folder")).map_err(failed)?;
    fifo(&place("fifo"))?;
    let listener = runtime.listener(&place("socket"))?;
    symlink(place("socket"), place("link")).map_err(failed)?;
    std::fs::write(place("new\x1b[2J\nline"), "mine").map_err(failed)?;
    for name in [
        "file",
        "folder",
        "fifo",
        "socket",
        "link",
        "new\x1b[2J\nline",
    ] {
        let mut command = bench.warpbpf("serve");
        command
            .arg("--socket")
            .arg(place(name))
            .arg(bench.object("launchcount"));
        runtime.given(&mut command);
        let before = runtime.names();
        let output = command.output().map_err(failed)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        same(name, output.status.code(), Some(125))?;
        says(
            &said,
            "is there already: another tool is found by it, or it is no link to one",
        )?;
        let acts = |c: char| c.is_control() && c != '\n';
        same("what a terminal acts on", said.find(acts), None)?;
        let forged = said.lines().find(|line| line.starts_with("line"));
        same("a line of its own", forged, None)?;
        same("what is there", runtime.names() == before, true)?;
        told(
            &format!("`serve --socket` at a {}", name.escape_debug()),
            "refused",
        );
    }
    is_alone("whoever listens at the place", &listener)?;
    same(
        "the file",
        std::fs::read(place("file")).map_err(failed)?.as_slice(),
        &b"mine"[..],
    )?;
    Ok("six places".into())
}

/// An application whose variable leads to something else runs as without it, and says nothing.
fn sockets(bench: &Bench) -> Told {
    let tool = Served::start(bench)?;
    let runtime = Runtime::new("given")?;
    let place = |name: &str| runtime.0.join(name);
    std::fs::create_dir(place("folder")).map_err(failed)?;
    std::fs::write(place("file"), "mine").map_err(failed)?;
    fifo(&place("fifo"))?;
    symlink("loop", place("loop")).map_err(failed)?;
    let _datagram = UnixDatagram::bind(place("datagram")).map_err(failed)?;
    drop(runtime.listener(&place("left"))?);
    let long = place(&"x".repeat(200));
    let odd = runtime.0.join(std::ffi::OsStr::from_bytes(b"odd\xff\n"));
    let mut given: Vec<(&str, PathBuf)> = vec![
        ("nothing", place("nothing")),
        ("a folder", place("folder")),
        ("a file", place("file")),
        ("a FIFO", place("fifo")),
        ("a link to itself", place("loop")),
        ("a socket for datagrams", place("datagram")),
        ("a socket that a tool left", place("left")),
        ("a name that is too long", long),
        ("a name of odd bytes", odd),
        ("an empty name", PathBuf::new()),
    ];
    // Tools that are none: what they answer who calls.
    let handshakes: [(&str, &'static [u8]); 4] = [
        ("hangs up", b""),
        ("garbage", b"220 mail.example.org ESMTP\r\n"),
        ("huge", b"WBPF\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0"),
        ("half", b"WBPF\x10\0\0\0\0\0\0\0\0\0\0\0{\"type\""),
    ];
    for (name, handshake) in handshakes {
        let listener = UnixListener::bind(place(name)).map_err(failed)?;
        std::thread::spawn(move || {
            use std::io::Write as _;
            for stream in listener.incoming().flatten() {
                let _ = (&stream).write_all(handshake);
            }
        });
        given.push((name, place(name)));
    }
    let _somebodys = match is_root() {
        true => {
            let listener = runtime.listener(&place("somebodys"))?;
            chown(place("somebodys"), Some(SOMEBODY), None).map_err(failed)?;
            given.push(("a socket of another user's", place("somebodys")));
            Some(listener)
        }
        false => None,
    };
    // It says nothing at all, for which an agent waits ten seconds.
    let silent = runtime.listener(&place("silent"))?;
    if is_deep() {
        given.push(("a tool that says nothing", place("silent")));
    }
    let expected = bench.plain("vectoradd", ARGUMENTS)?;
    for (name, path) in given {
        let mut command = Command::new(bench.app("vectoradd"));
        command.args(ARGUMENTS).envs(tool.variables.iter().cloned());
        let output = command
            .env("WARPBPF_SOCKET", &path)
            .output()
            .map_err(failed)?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        same(name, (output.status.code(), errors.as_str()), (Some(0), ""))?;
        same("output", output.stdout == expected, true).map_err(|why| format!("{name}: {why}"))?;
        told(
            &format!("an application that is given {name}"),
            "runs as without it",
        );
    }
    drop(silent);
    drop(tool.end()?);
    Ok("they run as without".into())
}

/// The variable that `su` leaves: no folder is made there.
fn others_folder(bench: &Bench) -> Told {
    if !is_root() {
        return Ok(ONLY_ROOT.into());
    }
    let (theirs, own) = (Runtime::new("theirs")?, Runtime::new("own")?);
    chown(&theirs.0, Some(SOMEBODY), None).map_err(failed)?;
    let given = |command: &mut Command| {
        command
            .env("XDG_RUNTIME_DIR", &theirs.0)
            .env("TMPDIR", &own.0);
    };
    let run = || {
        let mut command = bench.warpbpf("run");
        command.arg(bench.object("launchcount"));
        command.args([
            "--",
            "sh",
            "-c",
            "echo $WARPBPF_SOCKET; ls -A \"$XDG_RUNTIME_DIR\"",
        ]);
        given(&mut command);
        let output = command.output().map_err(failed)?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let own = own.0.display().to_string();
        same("where its socket is", said.starts_with(&own), true)
            .map_err(|why| format!("{why}: {said}"))?;
        same("lines", said.lines().count(), 1)?;
        Ok("it is in the folder for temporary files".to_owned())
    };
    each(&[("the runtime folder of who has called `su`", &run)])
}
