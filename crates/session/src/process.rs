//! What programs can ask about the application's process: the fields of the environment block that
//! hold it.

use rustix::process::{getgid, getuid};
use warpbpf_abi::layout::env;

/// Fields, each with its offset in the environment block.
pub(crate) type ProcessFields = [(u64, Vec<u8>); 3];

/// Offsets in the environment block, and the bytes there.
pub(crate) fn of_process() -> ProcessFields {
    let pid = u64::from(std::process::id());
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    [
        (env::PID_TGID, (pid << 32 | pid).to_le_bytes().to_vec()),
        (
            env::UID_GID,
            (u64::from(gid) << 32 | u64::from(uid))
                .to_le_bytes()
                .to_vec(),
        ),
        (env::COMM, comm()),
    ]
}

/// The name of the process, which is its main thread's: where it cannot be read, none.
fn comm() -> Vec<u8> {
    let mut name = warpbpf_descriptor::read_file("/proc/self/comm").unwrap_or_default();
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    name.truncate(env::COMM_BYTES as usize - 1);
    name.resize(env::COMM_BYTES as usize, 0);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_and_fit() {
        let name = comm();
        assert_eq!(name.len(), 16);
        assert_eq!(name[15], 0);
        // The test binary is called after its crate.
        assert!(name.starts_with(b"warpbpf_session"), "{name:?}");
    }

    #[test]
    fn fields_do_not_overlap() {
        let fields = of_process();
        for (at, bytes) in &fields {
            assert!(at + bytes.len() as u64 <= env::SIZE);
        }
        assert_eq!(fields[0].1.len() + fields[1].1.len(), 16);
        const { assert!(env::UID_GID + 8 <= env::COMM) };
        const { assert!(env::COMM + env::COMM_BYTES <= env::BOOT_OFFSET) };
    }
}
