//! Memory that is made to be shared: a memfd that is sealed against any change of size.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::error::{SharedError, os};
use crate::words::Words;

/// A new memfd of so many bytes, sealed against any change of size.
pub(super) fn sealed_file(name: &CStr, total: u64) -> Result<OwnedFd, SharedError> {
    let fault = |site, errno| warpbpf_faults::check(site, || errno);
    let fd = fault("shared/memfd", Errno::MFILE)
        .and_then(|()| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            memfd_create(name, flags)
        })
        .map_err(os("memfd_create"))?;
    fault("shared/size", Errno::NOSPC)
        .and_then(|()| ftruncate(&fd, total))
        .map_err(|errno| match (errno, getrlimit(Resource::Fsize).current) {
            (Errno::FBIG, Some(limit)) => SharedError::Limit {
                bytes: total,
                limit,
            },
            _ => os("ftruncate")(errno),
        })?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fault("shared/seal", Errno::PERM)
        .and_then(|()| fcntl_add_seals(&fd, seals))
        .map_err(os("fcntl(F_ADD_SEALS)"))?;
    Ok(fd)
}

/// The same, and its mapping.
pub(super) fn sealed(name: &CStr, total: u64) -> Result<(Words, OwnedFd), SharedError> {
    let fd = sealed_file(name, total)?;
    let words = warpbpf_faults::check("shared/mmap", || Errno::NOMEM)
        .and_then(|()| Words::map(&fd, total as usize))
        .map_err(os("mmap"))?;
    Ok((words, fd))
}
