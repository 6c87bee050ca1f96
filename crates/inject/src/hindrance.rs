//! Why no thread of a process can be borrowed, in words for who has to do something about it.

use std::fmt::Write as _;

/// Why a thread is not borrowed where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hindrance {
    /// It is in a call that cannot be interrupted, or ends.
    Uninterruptible,
    /// It runs 32-bit code, or is in a restartable sequence, or in a wait that would begin anew.
    Moment,
    /// Its stack is not the one that it was made with.
    Stack,
    /// It is in the C library, the loader or an allocator, and waits for none of the things that
    /// are known to be safe.
    Place,
    /// On its stack are words of calls that may be under way, of an allocator, the loader or libc.
    Words,
}

/// All of them, with what each means.
const ALL: [(Hindrance, &str); 5] = [
    (Hindrance::Uninterruptible, "in an uninterruptible call"),
    (
        Hindrance::Moment,
        "in 32-bit code, a restartable sequence, or a wait that cannot be moved",
    ),
    (
        Hindrance::Stack,
        "on a stack that the application made itself, as coroutines have",
    ),
    (Hindrance::Place, "in libc, the loader or an allocator"),
    (
        Hindrance::Words,
        "with words of an allocator, the loader or libc on the stack, of calls that may be under way",
    ),
];

/// What was found at the last look, of each thread.
pub(crate) fn told(found: &[Hindrance]) -> String {
    let mut text = match found.len() {
        0 => return "it has no thread but the agent's".to_owned(),
        1 => "its thread is".to_owned(),
        count => format!("of its {count} threads"),
    };
    let mut first = true;
    for (hindrance, what) in ALL {
        let count = found.iter().filter(|f| **f == hindrance).count();
        if count == 0 {
            continue;
        }
        let comma = if first { "" } else { "," };
        // A text takes all that is written.
        let _ = match found.len() {
            1 => write!(text, " {what}"),
            _ => write!(
                text,
                "{comma} {count} {} {what}",
                if count == 1 { "is" } else { "are" }
            ),
        };
        first = false;
    }
    text.push_str("; try again, or start it under `warpbpf run`");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told_with_its_number() {
        assert_eq!(
            told(&[Hindrance::Stack]),
            "its thread is on a stack that the application made itself, as coroutines have; try again, or start it under `warpbpf run`"
        );
        assert_eq!(
            told(&[Hindrance::Place, Hindrance::Words, Hindrance::Place]),
            "of its 3 threads 2 are in libc, the loader or an allocator, 1 is with words of an allocator, the loader or libc on the stack, of calls that may be under way; try again, or start it under `warpbpf run`"
        );
        assert_eq!(told(&[]), "it has no thread but the agent's");
    }
}
