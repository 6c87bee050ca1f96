//! The text of a function for machine code.

use std::fmt::Write as _;

/// The label of who runs no program.
pub(crate) const NOBODY: &str = "wbpf_nobody";

/// PTX in the making, a line at a time.
#[derive(Default)]
pub(crate) struct Code(pub(crate) String);

impl Code {
    pub(crate) fn put(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "\t{text}");
    }

    /// Reads a parameter into a register of its name.
    pub(crate) fn read(&mut self, name: &str, bits: u32) {
        self.put(format_args!(".reg .b{bits} %wbpf_{name};"));
        self.put(format_args!(
            "ld.param.b{bits} %wbpf_{name}, [wbpf_{name}];"
        ));
    }
}
