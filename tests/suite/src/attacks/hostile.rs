//! Somebody who speaks to a tool as an agent does, and lies: frames and memory byte by byte, as
//! nothing of ours would make them.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use super::PATIENCE;

/// One end of a connection.
pub(crate) struct Hostile {
    pub(crate) stream: UnixStream,
}

/// A frame that announces what it likes.
pub(crate) fn frame(text: &[u8], blob: u32, descriptors: u32) -> Vec<u8> {
    let mut bytes = b"WBPF".to_vec();
    for word in [text.len() as u32, blob, descriptors] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(text);
    bytes
}

/// The same with a text.
pub(crate) fn said(message: &Value) -> Vec<u8> {
    frame(message.to_string().as_bytes(), 0, 0)
}

/// Who an agent says it is.
pub(crate) fn hello() -> Value {
    let device = json!({ "name": "warpbpf soft GPU", "capability": [9, 0], "sms": 4, "cpus": 4,
                         "driver_version": 13000, "soft": true });
    json!({ "type": "hello", "protocol": warpbpf_wire::PROTOCOL, "pid": std::process::id(), "exe": "/bin/hostile",
            "argv": ["hostile"], "device": device })
}

impl Hostile {
    /// Connects.
    pub(crate) fn come(path: &Path) -> Result<Hostile, String> {
        let stream = UnixStream::connect(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let limit = stream.set_read_timeout(Some(PATIENCE));
        limit
            .and(stream.set_write_timeout(Some(PATIENCE)))
            .map_err(|e| e.to_string())?;
        Ok(Hostile { stream })
    }

    /// The same, and says who it is.
    pub(crate) fn agent(path: &Path) -> Result<Hostile, String> {
        let mut hostile = Hostile::come(path)?;
        hostile.say(&hello())?;
        Ok(hostile)
    }

    pub(crate) fn say(&mut self, message: &Value) -> Result<(), String> {
        self.write(&said(message))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        match self.stream.write_all(bytes) {
            // It may be hung up on in the middle.
            Err(error) if is_hung_up(&error) => Ok(()),
            done => done.map_err(|e| e.to_string()),
        }
    }

    /// Bytes, and descriptors with the first of them.
    pub(crate) fn write_with(&mut self, bytes: &[u8], descriptors: &[RawFd]) -> Result<(), String> {
        let mut control = [0u64; 32];
        let mut part = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let size = size_of_val(descriptors);
        // SAFETY: the message and all that it leads to live until the call is over, and the room
        // for descriptors is long enough.
        let sent = unsafe {
            assert!(libc::CMSG_SPACE(size as u32) as usize <= size_of_val(&control));
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size as u32) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size as u32) as _;
            let to: *mut RawFd = libc::CMSG_DATA(header).cast();
            std::ptr::copy_nonoverlapping(descriptors.as_ptr(), to, descriptors.len());
            libc::sendmsg(
                self.stream.as_raw_fd(),
                &raw const message,
                libc::MSG_NOSIGNAL,
            )
        };
        match usize::try_from(sent) {
            Ok(sent) => self.write(&bytes[sent..]),
            Err(_) => Err(io::Error::last_os_error().to_string()),
        }
    }

    /// The tool hangs up, whatever it said before.
    pub(crate) fn is_hung_up_on(&mut self) -> Result<(), String> {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if is_hung_up(&error) => return Ok(()),
                Err(error) => return Err(format!("it is not hung up on: {error}")),
            }
        }
    }
}

fn is_hung_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

/// Memory as an agent shares it, in which every number may be a lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lies {
    pub(crate) bytes: u64,
    pub(crate) maps: u64,
    pub(crate) ring: u64,
    pub(crate) ring_bytes: u64,
    /// Offset, bytes and distance of the first map.
    pub(crate) area: [u64; 3],
    pub(crate) flags: u32,
    pub(crate) seals: i32,
}

/// Nothing is wrong with it, and no map is in it.
pub(crate) const HONEST: Lies = Lies {
    bytes: 12288,
    maps: 0,
    ring: 8192,
    ring_bytes: 4096,
    area: [0; 3],
    flags: 0,
    seals: libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL,
};

impl Lies {
    /// Makes it. `None` where this system has no such memory.
    pub(crate) fn make(self) -> Result<Option<OwnedFd>, String> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | self.flags;
        // SAFETY: a NUL-terminated name; the descriptor is ours.
        let memory = unsafe {
            let made = libc::memfd_create(c"hostile".as_ptr(), flags);
            if made < 0 {
                return Ok(None);
            }
            OwnedFd::from_raw_fd(made)
        };
        let failed = || io::Error::last_os_error().to_string();
        // SAFETY: a descriptor of ours.
        if unsafe { libc::ftruncate(memory.as_raw_fd(), self.bytes.cast_signed()) } != 0 {
            return Err(failed());
        }
        if self.flags & libc::MFD_HUGETLB == 0 {
            let header = [
                u64::from_le_bytes(*b"wbpfshm\0"),
                2,
                self.maps,
                self.ring,
                self.ring_bytes,
                self.bytes,
            ];
            put(&memory, 0, &header)?;
            put(&memory, 4096, &self.area)?;
        }
        // SAFETY: as above.
        match unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, self.seals) } {
            0 => Ok(Some(memory)),
            _ => Err(failed()),
        }
    }
}

/// Writes numbers into memory, as far as it reaches.
pub(crate) fn put(memory: &OwnedFd, at: u64, words: &[u64]) -> Result<(), String> {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::from(memory.try_clone().map_err(|e| e.to_string())?);
    let length = file.metadata().map_err(|e| e.to_string())?.len();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let fits = length.saturating_sub(at).min(bytes.len() as u64) as usize;
    file.write_all_at(&bytes[..fits], at)
        .map_err(|e| e.to_string())
}

/// The message that comes with the memory of a context.
pub(crate) fn context(number: u32) -> Value {
    json!({ "type": "context", "number": number, "device": 0, "name": "d", "sms": 4, "cpus": 4, "device_bytes": 1 })
}

/// The same with maps.
pub(crate) fn ready(maps: &[Value]) -> Value {
    let mut context = context(0);
    if let Some(context) = context.as_object_mut() {
        context.remove("type");
    }
    let program = json!({ "name": "launchcount", "section": "gpu/entry.block/*", "glob": "*" });
    json!({ "type": "ready", "maps": maps, "programs": [program], "context": context })
}

/// The map of `launchcount`, with some of it said otherwise.
pub(crate) fn map(otherwise: Value) -> Value {
    let layout = json!({ "kind": "hash", "max_entries": 1024, "key_size": 4, "value_size": 24, "copies": 1, "dense": false });
    let mut map = json!({ "name": "kernels", "map_type": 1, "key_size": 4, "value_size": 24, "max_entries": 1024,
                          "layout": layout, "summed": [], "added": [], "bytes": 0 });
    if let (Some(map), Value::Object(otherwise)) = (map.as_object_mut(), otherwise) {
        map.extend(otherwise);
    }
    map
}
