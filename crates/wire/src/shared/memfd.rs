//! Memory that is made to be shared: a memfd that is sealed against any change of size.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use warpbpf_descriptor::OwnDescriptor;

use super::error::{SharedError, os};
use crate::words::Words;

/// A new memfd of so many bytes, sealed against any change of size.
pub(super) fn sealed_file(name: &CStr, total: u64) -> Result<OwnDescriptor, SharedError> {
    let fault = |site, errno| warpbpf_faults::check(site, || errno);
    let fd = fault("shared/memfd", Errno::MFILE)
        .and_then(|()| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            memfd_create(name, flags)
        })
        .map_err(os("memfd_create"))?;
    let fd = OwnDescriptor::new(fd);
    fault("shared/size", Errno::NOSPC)
        .and_then(|()| fd.here())
        .and_then(|fd| ftruncate(fd, total))
        .map_err(|errno| match (errno, getrlimit(Resource::Fsize).current) {
            (Errno::FBIG, Some(limit)) => SharedError::Limit {
                bytes: total,
                limit,
            },
            _ => os("ftruncate")(errno),
        })?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fault("shared/seal", Errno::PERM)
        .and_then(|()| fd.here())
        .and_then(|fd| fcntl_add_seals(fd, seals))
        .map_err(os("fcntl(F_ADD_SEALS)"))?;
    Ok(fd)
}

/// The descriptor, which the caller gives away or keeps as its own at once.
pub(super) fn given(fd: OwnDescriptor) -> Result<OwnedFd, SharedError> {
    fd.into_fd().map_err(os("memfd_create"))
}

/// The same, and its mapping.
pub(super) fn sealed(name: &CStr, total: u64) -> Result<(Words, OwnDescriptor), SharedError> {
    let fd = sealed_file(name, total)?;
    let words = warpbpf_faults::check("shared/mmap", || Errno::NOMEM)
        .and_then(|()| fd.here())
        .and_then(|fd| Words::map(fd, total as usize))
        .map_err(os("mmap"))?;
    Ok((words, fd))
}
