//! A map of Linux that stands for one of the tool's, because programs of Linux use it.

use std::os::fd::RawFd;

use warpbpf_linux::ledger::Ledger;
use warpbpf_linux::map::LinuxMap;

use crate::memory::Memory;

/// A map of the kernel that stands for one of ours.
#[derive(Debug)]
pub struct Shadow {
    pub(crate) map: LinuxMap,
    /// With the application, or with the tool before there is one.
    pub(crate) ledger: Ledger,
}

impl Shadow {
    /// Its descriptor.
    pub(crate) fn fd(&self) -> RawFd {
        self.map.fd()
    }

    pub(crate) fn memory(&self) -> Option<&Memory> {
        self.map.memory()
    }
}
