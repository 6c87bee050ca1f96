//! A program of the tool at its place.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A program at a place.
#[derive(Debug, Clone)]
pub struct Link {
    /// The program, by place.
    pub prog: usize,
    /// The event, by place.
    pub perf: usize,
    /// Set if the link has no descriptor of its own and lives as long as its event.
    pub event: Option<usize>,
    /// Section that the GPU's session gets it by; `None` if it does not run.
    pub section: Option<String>,
    /// It was not disabled by `ioctl`.
    pub enabled: bool,
    /// It is for nothing any more (`BPF_LINK_DETACH`).
    pub detached: bool,
    /// The event of Linux that has the program instead.
    pub(crate) in_linux: Option<Arc<OwnedFd>>,
}

impl Link {
    /// The section, if the program is to run now.
    pub fn active(&self) -> Option<&str> {
        self.section
            .as_deref()
            .filter(|_| self.enabled && !self.detached)
    }
}
