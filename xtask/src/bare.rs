//! Both commands of the README on a machine that has nothing: a Debian root made by `debootstrap`
//! with a compiler of C, Python, git and Rust, and in it a clone of what is committed.
//!
//! The root gets this machine's settings for registries, and its Rust; nothing else comes from
//! here. All mounts are in a namespace of their own, which ends with the commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::artifacts::target_dir;
use crate::jobs::{Plan, StepResult};
use crate::log::Log;
use crate::shell::{Failure, failure, output, root, succeeds};

/// What the README takes for granted, with the packages that Debian itself calls necessary.
const PACKAGES: &str = "ca-certificates,gcc,libc6-dev,python3,git";

/// Settings that say which registries there are, where a machine has them.
const SETTINGS: &[&str] = &[
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/apt/apt.conf.d",
    "/etc/apt/trusted.gpg.d",
    "/etc/apt/keyrings",
    "/etc/pip.conf",
    "/etc/ssl/certs",
    "/usr/local/share/ca-certificates",
];

/// Runs in the root, as its `init`: with the folders of the kernel, and nothing of this machine's
/// environment.
const INSIDE: &str = r#"
set -eu
root=$1
mount --make-rprivate /
# Whoever makes namespaces of mounts in there needs a root that is one.
mount --bind "$root" "$root"
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm" || true
mount -o bind,ro "$2" "$root/opt/rust"
exec chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/opt/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    sh -c 'cd /warpbpf && cargo xtask demo && cargo xtask test'
"#;

/// `cargo xtask bare`.
pub fn alone() -> Result<(), Failure> {
    let mut plan = Plan::new();
    plan.cargo("bare machine", &[], run);
    plan.run()
}

/// Makes the root, if there is none, and runs both commands there.
pub fn run(log: &Log) -> StepResult {
    if !succeeds(Command::new("test").args(["-w", "/etc/shadow"])) {
        return Ok("skipped: only root can make a root of its own".into());
    }
    if !succeeds(Command::new("apt-get").arg("--version")) {
        return Ok("skipped: not a Debian machine".into());
    }
    if !succeeds(Command::new("debootstrap").arg("--version")) {
        log.run(Command::new("apt-get").args(["update", "-qq"]))?;
        let mut install = Command::new("apt-get");
        install.env("DEBIAN_FRONTEND", "noninteractive");
        log.run(install.args(["install", "-y", "-qq", "debootstrap"]))?;
    }
    let folder = target_dir().join("bare");
    make_root(log, &folder)?;
    copy_settings(log, &folder)?;
    let clone = folder.join("warpbpf");
    remove(&clone)?;
    let mut git = Command::new("git");
    git.args(["clone", "--quiet"]).arg(root()).arg(&clone);
    log.run(&mut git)?;
    let rust = sysroot()?;
    make(&folder.join("opt/rust"))?;
    let mut inside = Command::new("unshare");
    // Not the numbers of processes: programs of Linux itself see those of the machine.
    inside.args(["--mount", "--fork", "--kill-child"]);
    inside.args(["sh", "-c", INSIDE, "sh"]).arg(&folder);
    log.run(inside.arg(rust))?;
    let text = log.text();
    let told = text.lines().rfind(|line| line.starts_with("suite: "));
    Ok(told.unwrap_or_default().to_owned())
}

fn make_root(log: &Log, folder: &Path) -> Result<(), Failure> {
    let stamp = folder.with_extension("made");
    if std::fs::read_to_string(&stamp).is_ok_and(|made| made == PACKAGES) {
        return Ok(());
    }
    remove(folder)?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.arg("--variant=minbase");
    debootstrap.arg(format!("--include={PACKAGES}"));
    let codename = codename()?;
    debootstrap.arg(&codename).arg(folder);
    if let Some(mirror) = mirror(&codename) {
        debootstrap.arg(mirror);
    }
    log.run(&mut debootstrap)?;
    crate::shell::write(&stamp, PACKAGES)
}

/// The release of this machine's Debian.
fn codename() -> Result<String, Failure> {
    let text = crate::shell::read(Path::new("/etc/os-release"))?;
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.map_or_else(
        || failure("/etc/os-release does not name a release"),
        |name| Ok(name.trim_matches('"').to_owned()),
    )
}

/// A file that says where apt has packages from.
struct Sources {
    path: PathBuf,
    text: String,
}

/// Those of this machine that are for its release alone, and not for somebody else's packages.
fn sources(codename: &str) -> Vec<Sources> {
    let mut paths = vec![PathBuf::from("/etc/apt/sources.list")];
    let folder = std::fs::read_dir("/etc/apt/sources.list.d").into_iter();
    paths.extend(folder.flatten().flatten().map(|entry| entry.path()));
    let read = paths.into_iter().filter_map(|path| {
        let text = std::fs::read_to_string(&path).ok()?;
        Some(Sources { path, text })
    });
    let ours = read.filter(|sources| {
        let suites: Vec<String> = entries(&sources.text)
            .into_iter()
            .flat_map(|e| e.1)
            .collect();
        !suites.is_empty() && suites.iter().all(|suite| suite.starts_with(codename))
    });
    ours.collect()
}

/// Each address in such a file with its suites: `deb [options] URI SUITE component…` on a line, or
/// `URIs:` and `Suites:` in a paragraph.
fn entries(text: &str) -> Vec<(String, Vec<String>)> {
    let mut all = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("deb ")) {
        let mut words = line
            .split_whitespace()
            .skip_while(|word| !word.contains("://"));
        if let (Some(address), Some(suite)) = (words.next(), words.next()) {
            all.push((address.to_owned(), vec![suite.to_owned()]));
        }
    }
    for paragraph in text.split("\n\n") {
        let field = |name: &str| paragraph.lines().find_map(|line| line.strip_prefix(name));
        if let (Some(addresses), Some(suites)) = (field("URIs: "), field("Suites: ")) {
            let suites: Vec<String> = suites.split_whitespace().map(str::to_owned).collect();
            let addresses = addresses.split_whitespace();
            all.extend(addresses.map(|address| (address.to_owned(), suites.clone())));
        }
    }
    all
}

/// Where this machine has the packages of its release from.
fn mirror(codename: &str) -> Option<String> {
    let all = sources(codename).into_iter().flat_map(|s| entries(&s.text));
    let mut of_release = all.filter(|(_, suites)| suites.iter().any(|suite| suite == codename));
    of_release.next().map(|(address, _)| address)
}

fn copy_settings(log: &Log, folder: &Path) -> Result<(), Failure> {
    let home = std::env::var("HOME").unwrap_or_else(|_| "/root".into());
    let cargo = std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{home}/.cargo"));
    let own = [
        (format!("{cargo}/config.toml"), "root/.cargo/config.toml"),
        (format!("{home}/.config/pip"), "root/.config/pip"),
        (format!("{home}/.pip"), "root/.pip"),
        (format!("{home}/.netrc"), "root/.netrc"),
    ];
    let inside = |path: &Path| folder.join(path.strip_prefix("/").unwrap_or(path));
    let sources = sources(&codename()?)
        .into_iter()
        .map(|sources| sources.path);
    let settings = SETTINGS.iter().map(PathBuf::from).chain(sources);
    let settings = settings.map(|path| (path.clone(), inside(&path)));
    let own = own
        .into_iter()
        .map(|(from, to)| (PathBuf::from(from), folder.join(to)));
    for (from, to) in settings.chain(own) {
        if !from.exists() {
            continue;
        }
        remove(&to)?;
        make(to.parent().unwrap_or(folder))?;
        let mut copy = Command::new("cp");
        log.run(copy.args(["-rL"]).arg(&from).arg(&to))?;
    }
    Ok(())
}

/// The folder of the Rust that runs this.
fn sysroot() -> Result<PathBuf, Failure> {
    let text = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    Ok(PathBuf::from(String::from_utf8_lossy(&text).trim()))
}

fn make(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .map_err(|e| Failure(format!("cannot make `{}`: {e}", folder.display())))
}

fn remove(path: &Path) -> Result<(), Failure> {
    let done = match path.is_dir() {
        true => std::fs::remove_dir_all(path),
        false if path.symlink_metadata().is_ok() => std::fs::remove_file(path),
        false => return Ok(()),
    };
    done.map_err(|e| Failure(format!("cannot remove `{}`: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::entries;

    #[test]
    fn both_forms_of_sources_are_read() {
        let lines = "# deb http://a/ b main\ndeb [arch=amd64 signed-by=/k] http://deb.debian.org/debian bookworm main\n";
        let paragraphs = "Types: deb\n# a comment\nURIs: http://x/debian\nSuites: bookworm bookworm-updates\n\nTypes: deb\nURIs: https://y\nSuites: nodistro\n";
        let entry = |address: &str, suites: &[&str]| {
            let suites = suites.iter().map(|s| (*s).to_owned());
            (address.to_owned(), suites.collect::<Vec<_>>())
        };
        assert_eq!(
            entries(lines),
            [entry("http://deb.debian.org/debian", &["bookworm"])]
        );
        let expected = [
            entry("http://x/debian", &["bookworm", "bookworm-updates"]),
            entry("https://y", &["nodistro"]),
        ];
        assert_eq!(entries(paragraphs), expected);
    }
}
