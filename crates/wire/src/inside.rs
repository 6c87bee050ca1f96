//! What other processes ask a tool that `warpbpf loader` runs, over a socket beside its control
//! socket: a request of fixed length, and a number as the answer, negative for an error as in
//! Linux.

use std::io::{Read, Write};

use rustix::io::Errno;

/// What is appended to the name of a tool's control socket.
pub const SUFFIX: &str = "-bpf";
/// Bytes of a request: what, a descriptor, and three numbers.
pub const BYTES: usize = 32;

/// `bpf()`: command, address and size in the memory of who asks.
pub const BPF: u32 = 1;
/// It has closed the descriptor.
pub const CLOSED: u32 = 2;
/// It has duplicated the descriptor to the first number.
pub const DUPLICATED: u32 = 3;
/// It will launch the program whose name follows, of as many bytes as the first number says, as a
/// kernel of that name.
pub const LAUNCH: u32 = 4;
/// It has done so; did that run the program?
pub const LAUNCHED: u32 = 5;
/// Most bytes of a name.
pub const LONGEST_NAME: u64 = 4096;

/// A request's bytes.
pub fn request(what: u32, fd: i32, numbers: [u64; 3]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..4].copy_from_slice(&what.to_ne_bytes());
    bytes[4..8].copy_from_slice(&fd.to_ne_bytes());
    for (place, number) in bytes[8..].chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    bytes
}

/// Reads one: what, the descriptor, the numbers.
pub fn read(bytes: &[u8; BYTES]) -> (u32, i32, [u64; 3]) {
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(word)
    };
    let first = word(0).to_ne_bytes();
    let half =
        |at: usize| u32::from_ne_bytes([first[at], first[at + 1], first[at + 2], first[at + 3]]);
    (half(0), half(4) as i32, [word(8), word(16), word(24)])
}

/// Asks, and waits for the answer.
///
/// # Errors
/// The tool's, or `EIO` if it is gone.
pub fn ask(stream: &mut (impl Read + Write), request: &[u8]) -> Result<i64, Errno> {
    let mut answer = [0; 8];
    let asked = stream.write_all(request);
    let answered = asked.and_then(|()| stream.read_exact(&mut answer));
    answered.map_err(|_| Errno::IO)?;
    let answer = i64::from_ne_bytes(answer);
    if (-4095..0).contains(&answer) {
        return Err(Errno::from_raw_os_error(-answer as i32));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_made_and_errors_have_their_numbers() {
        let bytes = request(LAUNCH, -1, [7, u64::MAX, 9]);
        assert_eq!(read(&bytes), (LAUNCH, -1, [7, u64::MAX, 9]));
        for (answer, expected) in [(3i64, Ok(3)), (-2, Err(Errno::NOENT))] {
            let (mut ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(&answer.to_ne_bytes()).unwrap();
            assert_eq!(ask(&mut ours, &bytes), expected);
            let mut heard = [0; BYTES];
            theirs.read_exact(&mut heard).unwrap();
            assert_eq!(heard, bytes);
        }
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert_eq!(ask(&mut ours, &bytes), Err(Errno::IO));
    }
}
