//! Both commands of the README on a machine that has nothing: a Debian root made by `debootstrap` with a compiler of C, Python, git
//! and Rust, and in it a clone of what is committed.
//!
//! The root gets this machine's settings for registries, and its Rust; nothing else comes from here. All mounts are in a
//! namespace of their own, which ends with the commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::artifacts::target_dir;
use crate::jobs::{Plan, Told};
use crate::log::Log;
use crate::shell::{Failure, failure, output, root, succeeds};

/// What the README takes for granted, with the packages that Debian itself calls necessary.
const PACKAGES: &str = "ca-certificates,gcc,libc6-dev,python3,git";

/// Settings that say which registries there are, where a machine has them.
const SETTINGS: &[&str] = &[
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d",
    "/etc/apt/apt.conf.d",
    "/etc/apt/trusted.gpg.d",
    "/etc/apt/keyrings",
    "/etc/pip.conf",
    "/etc/ssl/certs",
    "/usr/local/share/ca-certificates",
];

/// Runs in the root, as its `init`: with the folders of the kernel, and nothing of this machine's environment.
const INSIDE: &str = r#"
set -eu
root=$1
mount --make-rprivate /
mount -t proc proc "$root/proc"
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
pub fn run(log: &Log) -> Told {
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
    inside.args(["--mount", "--pid", "--fork", "--kill-child"]);
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
    debootstrap.arg(codename()?).arg(folder);
    if let Some(mirror) = mirror() {
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

/// Where this machine has its packages from, if that is not Debian's own place.
fn mirror() -> Option<String> {
    let list = std::fs::read_to_string("/etc/apt/sources.list").unwrap_or_default();
    let lines = list.lines().filter(|line| line.starts_with("deb "));
    let mut addresses = lines.flat_map(str::split_whitespace);
    let old = addresses
        .find(|word| word.contains("://"))
        .map(str::to_owned);
    let folder = std::fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten();
    let texts = folder
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let new = texts.into_iter().find_map(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("URIs: "));
        line.map(|line| line.trim().to_owned())
    });
    old.or(new)
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
    let settings = SETTINGS
        .iter()
        .map(|path| (PathBuf::from(path), folder.join(&path[1..])));
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
