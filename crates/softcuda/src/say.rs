//! What the emulator says to whoever runs a program on it.

/// One line on stderr. A library has no business there; a program that runs on an emulator wants to
/// know what the emulator saw, and CUDA has no other place for words.
pub(crate) fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "warpbpf soft GPU: {text}");
}
