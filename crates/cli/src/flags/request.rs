//! What is wanted of applications, however they are reached: programs in them, a timeline, or both.

use std::path::PathBuf;

use clap::Args;

use super::work::{ObjectFlags, ValueFlags};

/// What is put into applications, and what is to be known of the device meanwhile.
#[derive(Debug, Args)]
pub struct RequestFlags {
    /// BPF object files; several are linked into one. None with `--timeline` or `--folded`, if
    /// there are to be no programs
    #[arg(value_name = "PROG.bpf.o", required_unless_present_any = ["timeline", "folded"])]
    pub objects: Vec<PathBuf>,
    #[command(flatten)]
    pub values: ValueFlags,
    /// Write when the device began and ended each copy, fill, kernel and other operation to this
    /// file, which Perfetto and chrome://tracing open
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,
    /// In the timeline: from where on the CPU each operation was asked for
    #[arg(long, requires = "timeline")]
    pub stacks: bool,
    /// Write from where on the CPU each operation was asked for, with the kernel or other operation
    /// and its nanoseconds on the device, to this file, as flame graphs are made of
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
}

impl RequestFlags {
    /// What the device does is to be known, and with stacks of the CPU.
    pub fn recorded(&self) -> (bool, bool) {
        let folded = self.folded.is_some();
        (self.timeline.is_some() || folded, self.stacks || folded)
    }

    /// The program.
    pub fn object(&self) -> ObjectFlags {
        ObjectFlags {
            objects: self.objects.clone(),
            values: self.values.clone(),
        }
    }
}
