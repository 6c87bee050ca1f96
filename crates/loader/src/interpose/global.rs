//! What this process has one of: the kernel, and the applications.

use std::os::fd::{AsFd as _, IntoRawFd as _, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::Errno;
use warpbpf_linux::sys::{Host, Linux};

use super::tell::tell;
use super::{guard, marks, variables};
use crate::app::live::Live;
use crate::kernel::{Descriptors, Kernel};
use crate::tool::notify::Notify;

static KERNEL: OnceLock<Mutex<Kernel>> = OnceLock::new();
static LIVE: OnceLock<Arc<Live>> = OnceLock::new();

struct Real;

impl Descriptors for Real {
    fn make(&mut self, notify: Option<&Notify>) -> Result<RawFd, Errno> {
        let fd = match notify {
            Some(notify) => rustix::io::fcntl_dupfd_cloexec(notify.as_fd(), 3)?,
            None => Notify::new()?.into_fd(),
        };
        let fd = fd.into_raw_fd();
        marks::mark(fd);
        Ok(fd)
    }
}

/// The kernel, if the tool has asked for anything yet.
pub fn existing() -> Option<MutexGuard<'static, Kernel>> {
    Some(KERNEL.get()?.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The tool has called `bpf()`.
pub fn exists() -> bool {
    KERNEL.get().is_some()
}

/// The kernel.
pub fn kernel() -> MutexGuard<'static, Kernel> {
    let kernel = KERNEL.get_or_init(|| {
        guard::own_process();
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        for text in variables::not_served(is_set) {
            tell(&text);
        }
        let mut kernel = Kernel::new(variables::config(is_kernel_symbol, tell), Box::new(Real));
        kernel.session = Some(live().clone());
        kernel.linux = host().map(|host| Arc::new(host) as Arc<dyn Linux>);
        Mutex::new(kernel)
    });
    kernel.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Linux, if it lets us use `bpf()`.
fn host() -> Option<Host> {
    static HOST: OnceLock<Option<Host>> = OnceLock::new();
    *HOST.get_or_init(Host::permitted)
}

/// Programs may be given to Linux.
pub fn permitted() -> bool {
    host().is_some()
}

/// The applications.
pub fn live() -> &'static Arc<Live> {
    LIVE.get_or_init(|| Arc::new(Live::new(tell)))
}

/// The same, if anybody has asked for them yet.
pub fn existing_live() -> Option<&'static Arc<Live>> {
    LIVE.get()
}

/// Whether Linux has a function of this name. Names of C++ are never its.
fn is_kernel_symbol(name: &str) -> bool {
    static NAMES: OnceLock<std::collections::HashSet<String>> = OnceLock::new();
    if name.starts_with("_Z") {
        return false;
    }
    let names = NAMES.get_or_init(|| {
        let all = std::fs::read("/proc/kallsyms").unwrap_or_default();
        all.split(|byte| *byte == b'\n')
            .filter_map(|line| line.split(|byte| *byte == b' ').nth(2))
            .filter_map(|word| word.split(|byte| *byte == b'\t').next())
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect()
    });
    names.contains(name)
}
