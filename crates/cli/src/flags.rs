//! The command line, one struct per verb.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use warpbpf::Options;

pub use crate::cache::CacheFlags;
pub use crate::choice::ChoiceFlags;
pub use crate::code::CodeFlags;
pub use crate::live::{AttachFlags, DetachFlags, ServeFlags, SessionFlags};
use crate::manual::{CompletionsFlags, ManFlags};
pub use crate::outlet::{Form, OutputFlags};
pub use crate::program_flags::{DeviceChoice, Inject, ProgramFlags};
use crate::replace::{GateFlags, ProgramsFlags, RemoveFlags, ReplaceFlags, SlotsFlags};
pub use crate::request::RequestFlags;
use crate::term::error::STATUSES;
use crate::trace_flags::TraceFlags;

/// eBPF programs inside GPU kernels.
#[derive(Debug, Parser)]
#[command(name = "warpbpf", version, about, max_term_width = 100, after_help = STATUSES)]
pub struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub command: Command,
}

/// Verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an application with a program inside its kernels
    Run(RunFlags),
    /// Run or attach to an application with a script of one line or some in its kernels, and print
    /// what it found
    Trace(TraceFlags),
    /// Put a program into the kernels of applications that others start with some variables in
    /// their environment, until Ctrl-C
    Serve(ServeFlags),
    /// Put a program into the kernels of an application that runs, until Ctrl-C or its end
    Attach(AttachFlags),
    /// Take programs out of an application that runs, whoever put them in
    Detach(DetachFlags),
    /// List the processes that have loaded the CUDA driver, and who has programs in them
    Ps(PsFlags),
    /// Run an application and list its kernels: where their code comes from, whether they can be
    /// instrumented
    Kernels(KernelsFlags),
    /// List what can be probed in a file: kernels, and in them accesses, barriers, lines,
    /// instructions
    Sites(SitesFlags),
    /// Run a tool that uses libbpf, with its GPU programs inside an application's kernels
    Loader(LoaderFlags),
    /// List, read, change and watch maps of applications that run under `warpbpf run`
    Maps(MapsFlags),
    /// List the programs in applications that run under `warpbpf run`
    Programs(ProgramsFlags),
    /// Put other programs in place of those in an application that runs, at one moment for all its
    /// launches
    Replace(ReplaceFlags),
    /// Put more programs into an application that runs
    Add(ReplaceFlags),
    /// Take some programs out of an application that runs
    Remove(RemoveFlags),
    /// Stop the programs in kernels that run, or let them go on, in an application under `warpbpf
    /// run --gate`
    Gate(GateFlags),
    /// Put programs into slots of kernels that run, without loading code, in an application under
    /// `warpbpf run --slots`
    Slots(SlotsFlags),
    /// Run programs that are kernels themselves (`gpu/run`, bpftime's `__directly_run`)
    Launch(LaunchFlags),
    /// Launch a program of a tool that runs under `warpbpf loader` as a kernel, with that tool's
    /// maps
    LaunchInside(LaunchInsideFlags),
    /// Prove a program safe, or say why it is not
    Verify(VerifyFlags),
    /// Show what a program becomes
    Compile(CompileFlags),
    /// Make one object file of several
    Link(LinkFlags),
    /// List, check and take away compiled code that is kept from one run to the next
    Cache(CacheFlags),
    /// Explain this machine: driver, soft GPU, injection, tools, and which back ends each device
    /// can have
    Doctor(DoctorFlags),
    /// Show a report saved by `run --json -o FILE`
    Report(ReportFlags),
    /// Write what a shell needs to complete this command line
    Completions(CompletionsFlags),
    /// Write manual pages, one for each verb
    Man(ManFlags),
}

/// Which program, and what is filled into it.
#[derive(Debug, Clone, Args)]
pub struct ObjectFlags {
    /// BPF object files; several are linked into one
    #[arg(value_name = "PROG.bpf.o", required = true)]
    pub objects: Vec<PathBuf>,
    #[command(flatten)]
    pub values: ValueFlags,
}

/// What is put into objects before they are loaded.
#[derive(Debug, Clone, Args)]
pub struct ValueFlags {
    /// Give a global variable (`const volatile` or not) this value before loading: `limit=3`,
    /// `config.size[0]=0x40`
    #[arg(long, value_name = "VAR=VALUE")]
    pub set: Vec<String>,
    /// Types of the target for CO-RE relocations: raw BTF or an ELF file with it; else the
    /// program's own
    #[arg(long, value_name = "FILE")]
    pub btf: Option<PathBuf>,
}

/// How an application is started.
#[derive(Debug, Clone, Args)]
pub struct TargetFlags {
    /// Where kernels run
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceChoice,
    /// How the agent gets in
    #[arg(long, value_enum, default_value = "auto")]
    pub inject: Inject,
    /// The application and its arguments
    #[arg(last = true, required = true, value_name = "APP")]
    pub command: Vec<OsString>,
}

/// How programs are put into kernels, and what is shown of them.
#[derive(Debug, Args)]
pub struct WorkFlags {
    #[command(flatten)]
    pub program: ProgramFlags,
    #[command(flatten)]
    pub code: CodeFlags,
    #[command(flatten)]
    pub choice: ChoiceFlags,
    /// Let `warpbpf maps` change hashes, queues and the like while kernels run; arrays and
    /// variables it always can
    #[arg(long)]
    pub host_ops: bool,
    /// Leave out the programs that are for Linux (`tracepoint/`, `fentry/`, …), and say so
    #[arg(long)]
    pub skip_linux: bool,
    /// End with exit status 123 instead of 0 if no launch had programs; the report says why first
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub output: OutputFlags,
    /// Events of each ring that the report has; all are counted. If not said, 20 in tables and a
    /// million in JSON, which says how many are left out; with `--json=lines` each is written as it
    /// comes
    #[arg(long, value_name = "N")]
    pub events: Option<u64>,
    /// Rows to print per map; all are in the JSON
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,
    /// Where the application uses several GPUs, show what each has; the JSON has both
    #[arg(long)]
    pub per_device: bool,
    /// Seconds between live summaries on a terminal, where events are shown as they come; 0 for
    /// neither
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub interval: f64,
}

impl WorkFlags {
    /// All that they choose.
    pub fn options(&self) -> Options {
        let options = self.choice.chosen(self.code.chosen(self.program.options()));
        Options {
            host_ops: self.host_ops,
            ..options
        }
    }
}

/// `warpbpf run`
#[derive(Debug, Args)]
pub struct RunFlags {
    #[command(flatten)]
    pub request: RequestFlags,
    #[command(flatten)]
    pub work: WorkFlags,
    #[command(flatten)]
    pub target: TargetFlags,
}

/// `warpbpf ps`
#[derive(Debug, Args)]
pub struct PsFlags {
    /// JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// `warpbpf kernels`
#[derive(Debug, Args)]
pub struct KernelsFlags {
    #[command(flatten)]
    pub output: OutputFlags,
    #[command(flatten)]
    pub target: TargetFlags,
}

/// `warpbpf sites`
#[derive(Debug, Args)]
pub struct SitesFlags {
    /// An executable, a shared library, PTX text, a fatbin or a cubin
    #[arg(value_name = "APP|FILE.ptx")]
    pub file: PathBuf,
    /// Only kernels that this glob names, mangled or not
    #[arg(long, value_name = "GLOB", default_value = "*")]
    pub kernel: String,
    /// Source lines that have code, as `|at=FILE:LINE` takes them, with the places on each
    #[arg(long)]
    pub lines: bool,
    /// Opcodes with how many instructions have them, as `|op=GLOB` takes them
    #[arg(long)]
    pub insns: bool,
    /// Of a file with code for several architectures: what runs on this one
    #[arg(long, value_name = "sm_NN", default_value = "sm_90")]
    pub target: String,
    /// JSON with everything instead of tables
    #[arg(long)]
    pub json: bool,
}

/// `warpbpf loader`
#[derive(Debug, Args)]
pub struct LoaderFlags {
    /// Accept programs that can change what the application computes
    #[arg(long)]
    pub allow_modify: bool,
    /// Instructions that one invocation may execute, instead of the attach point's default
    #[arg(long, value_name = "N")]
    pub budget: Option<u64>,
    /// Accept loops that nothing bounds: one that uses up the budget ends its program, which is
    /// counted and told
    #[arg(long)]
    pub bound_loops: bool,
    /// Have the application's NVTX ranges and names known, though no program that the tool has
    /// attached by then needs them: such that it attaches later may
    #[arg(long)]
    pub ranges: bool,
    /// A file name for the control socket, the same each time, for applications that are started by
    /// others
    #[arg(long, value_name = "FILE")]
    pub socket: Option<PathBuf>,
    /// Let the tool's `bpf()` be answered by another tool that runs, by its control socket
    /// (`--socket`): for `bpftool`
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    pub inside: Option<PathBuf>,
    /// Put the tool's programs into the process with this number, which runs already, when the tool
    /// has attached them; can be given several times. Programs are taken out again when the tool
    /// ends
    #[arg(short, long, value_name = "PID", conflicts_with = "inside")]
    pub pid: Vec<u32>,
    /// End with exit status 123 instead of 0 if no kernel of the application had one of the tool's
    /// programs
    #[arg(long)]
    pub strict: bool,
    /// Seconds that the tool gets to show what it has after the application has ended; then it is
    /// interrupted
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub linger: f64,
    /// Where kernels run
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceChoice,
    /// How the agent gets in
    #[arg(long, value_enum, default_value = "auto")]
    pub inject: Inject,
    /// The tool and its arguments; behind `--` the application and its own, started when the tool
    /// has attached its programs. Without an application or `--pid`, what to set in its environment
    /// is said instead
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "TOOL [ARGS] [-- APP [ARGS]]"
    )]
    pub command: Vec<OsString>,
}

impl LoaderFlags {
    /// The tool's words and the application's.
    pub fn tool_and_app(&self) -> (&[OsString], &[OsString]) {
        match self.command.iter().position(|word| word == "--") {
            Some(at) => (&self.command[..at], &self.command[at + 1..]),
            None => (&self.command, &[]),
        }
    }
}

/// `warpbpf maps`
#[derive(Debug, Args)]
pub struct MapsFlags {
    /// Only the session with this process id, of the application or of its `warpbpf run`
    #[arg(long, value_name = "PID", global = true)]
    pub pid: Option<u32>,
    /// JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do
    #[command(subcommand)]
    pub verb: MapsVerb,
}

/// What `maps` does. Keys and values are numbers, `hex:…` bytes, or fields by their names: `pid=3
/// config.level=2`.
#[derive(Debug, Subcommand)]
pub enum MapsVerb {
    /// Name the maps of all sessions
    List,
    /// Show everything in a map
    Dump {
        /// Its name
        map: String,
        /// Where an application uses several GPUs, what each has; the JSON has both
        #[arg(long)]
        per_device: bool,
    },
    /// Show the value of a key
    Lookup {
        /// Its name
        map: String,
        /// A number, `hex:…`, or `field=value` for each field
        #[arg(required = true, allow_negative_numbers = true)]
        key: Vec<String>,
    },
    /// Give a key a value
    Update {
        /// Its name
        map: String,
        /// The key in one word: a number, `hex:…`, or `field=value,field=value`
        #[arg(allow_negative_numbers = true)]
        key: String,
        /// A number, `hex:…`, or `field=value` for each field that changes; others stay as they are
        #[arg(required = true, allow_negative_numbers = true)]
        value: Vec<String>,
        /// Only if the key is not there yet
        #[arg(long, conflicts_with = "exist")]
        noexist: bool,
        /// Only if the key is there
        #[arg(long)]
        exist: bool,
    },
    /// Remove a key
    Delete {
        /// Its name
        map: String,
        /// A number, `hex:…`, or `field=value` for each field
        #[arg(required = true, allow_negative_numbers = true)]
        key: Vec<String>,
    },
    /// Add a value to a queue, stack, bloom filter or user ring buffer
    Push {
        /// Its name
        map: String,
        /// A number, `hex:…`, or `field=value` for each field
        #[arg(required = true, allow_negative_numbers = true)]
        value: Vec<String>,
    },
    /// Take the next value out of a queue or stack
    Pop {
        /// Its name
        map: String,
    },
    /// Show the next value of a queue or stack
    Peek {
        /// Its name
        map: String,
    },
    /// Show what changes in a map, until it is interrupted or the application ends
    Watch {
        /// Its name
        map: String,
        /// Seconds between two looks
        #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
        interval: f64,
        /// End after so many looks
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
}

/// `warpbpf launch`
#[derive(Debug, Args)]
pub struct LaunchFlags {
    #[command(flatten)]
    pub object: ObjectFlags,
    #[command(flatten)]
    pub program: ProgramFlags,
    #[command(flatten)]
    pub output: OutputFlags,
    /// Only this program; else all, in the object's order
    #[arg(long, value_name = "NAME")]
    pub program_name: Option<String>,
    /// Blocks of the grid
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "1", value_parser = shape)]
    pub grid: Shape,
    /// Threads of a block
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "1", value_parser = shape)]
    pub block: Shape,
    /// Launches of each program, one after the other
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub count: u32,
    /// Events of each ring that the report has; all are counted. If not said, 20 in tables and a
    /// million in JSON, which says how many are left out
    #[arg(long, value_name = "N")]
    pub events: Option<u64>,
    /// Rows to print per map; all are in the JSON
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,
    /// Where it runs
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceChoice,
}

/// `warpbpf launch-inside`
#[derive(Debug, Args)]
pub struct LaunchInsideFlags {
    /// The tool's control socket: the file that `warpbpf loader --socket` was given
    #[arg(value_name = "SOCKET")]
    pub socket: PathBuf,
    /// The program's C function, such as one of `SEC("kprobe/__directly_run")`
    #[arg(value_name = "PROGRAM")]
    pub program: String,
    /// Blocks of the grid
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "1", value_parser = shape)]
    pub grid: Shape,
    /// Threads of a block
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "1", value_parser = shape)]
    pub block: Shape,
    /// Launches, one after the other
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub count: u32,
    /// Where it runs
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceChoice,
}

/// Extents of a grid or a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape(pub [u32; 3]);

/// `4`, `4,2` or `4,2,1`.
fn shape(text: &str) -> Result<Shape, String> {
    let mut extents = [1; 3];
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > extents.len() {
        return Err("there are three dimensions at most".to_owned());
    }
    for (extent, part) in extents.iter_mut().zip(parts) {
        *extent = part
            .trim()
            .parse()
            .ok()
            .filter(|n| *n > 0)
            .ok_or_else(|| format!("`{part}` is not a number of at least 1"))?;
    }
    Ok(Shape(extents))
}

/// `warpbpf verify`
#[derive(Debug, Args)]
pub struct VerifyFlags {
    #[command(flatten)]
    pub object: ObjectFlags,
    #[command(flatten)]
    pub program: ProgramFlags,
    /// Print what the proof knows before each instruction, on each path that it follows
    #[arg(long)]
    pub log: bool,
    /// JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// What `compile` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Emit {
    /// eBPF assembly
    Ebpf,
    /// The code generator's intermediate representation
    Ir,
    /// PTX
    Ptx,
    /// PTX of a function for kernels that have none (`ptxas --compile-as-tools-patch`)
    Probe,
}

/// `warpbpf compile`
#[derive(Debug, Args)]
pub struct CompileFlags {
    #[command(flatten)]
    pub object: ObjectFlags,
    /// What to print
    #[arg(long, value_enum, default_value = "ptx")]
    pub emit: Emit,
    /// Only this program
    #[arg(long, value_name = "NAME")]
    pub program_name: Option<String>,
    /// With `--emit ir`: print it as it is after this pass instead of the last one; `all` for every
    /// pass
    #[arg(long, value_name = "PASS")]
    pub after: Option<String>,
    /// With `--emit probe`: addresses of the environment block and the maps, in the order of the
    /// object, as hexadecimal numbers
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub slots: Vec<String>,
    /// Show this kernel of this file (PTX, or anything that `warpbpf sites` reads) before and
    /// after, as a unified diff
    #[arg(long, num_args = 2, value_names = ["KERNEL", "FILE.ptx"], conflicts_with_all = ["emit", "after", "program_name"])]
    pub show_splice: Option<Vec<OsString>>,
    /// With `--show-splice`: each program once, as a function that its sites call
    #[arg(long, requires = "show_splice")]
    pub out_of_line: bool,
    /// Target architecture; of a file with code for several, what runs on it
    #[arg(long, value_name = "sm_NN", default_value = "sm_90")]
    pub target: String,
    #[command(flatten)]
    pub program: ProgramFlags,
    /// JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// `warpbpf link`
#[derive(Debug, Args)]
pub struct LinkFlags {
    /// BPF object files
    #[arg(value_name = "PROG.bpf.o", required = true)]
    pub objects: Vec<PathBuf>,
    /// File to write
    #[arg(short, long, value_name = "OUT.bpf.o")]
    pub output: PathBuf,
    /// JSON on standard output: what was written, or why nothing was
    #[arg(long)]
    pub json: bool,
}

/// `warpbpf doctor`
#[derive(Debug, Args)]
pub struct DoctorFlags {
    /// JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// `warpbpf report`
#[derive(Debug, Args)]
pub struct ReportFlags {
    /// File written by `run --json -o FILE`
    pub file: PathBuf,
    /// Rows to print per map
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,
    /// Where the application used several GPUs, show what each had
    #[arg(long)]
    pub per_device: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::{Cli, STATUSES, Shape, shape};

    #[test]
    fn shapes_have_up_to_three_extents() {
        assert_eq!(shape("7"), Ok(Shape([7, 1, 1])));
        assert_eq!(shape("7, 2,3"), Ok(Shape([7, 2, 3])));
        let refused = |text: &str| shape(text).unwrap_err();
        assert_eq!(refused("1,0"), "`0` is not a number of at least 1");
        assert_eq!(refused("x"), "`x` is not a number of at least 1");
        assert_eq!(refused("1,1,1,1"), "there are three dimensions at most");
    }

    #[test]
    fn a_tool_and_an_application_stand_on_one_line() {
        use clap::Parser as _;
        let split = |words: &[&str]| {
            let cli = Cli::parse_from([&["warpbpf", "loader"], words].concat());
            let super::Command::Loader(flags) = cli.command else {
                panic!("another verb");
            };
            let text = |words: &[std::ffi::OsString]| {
                let words: Vec<_> = words.iter().map(|w| w.to_string_lossy()).collect();
                words.join(" ")
            };
            let (tool, app) = flags.tool_and_app();
            (flags.allow_modify, flags.pid.clone(), text(tool), text(app))
        };
        let expect = |modify: bool, tool: &str, app: &str| {
            (modify, Vec::new(), tool.to_owned(), app.to_owned())
        };
        assert_eq!(
            split(&["--allow-modify", "./tool", "-v", "--", "./app", "--", "x"]),
            expect(true, "./tool -v", "./app -- x")
        );
        assert_eq!(
            split(&["./tool", "--linger", "1"]),
            expect(false, "./tool --linger 1", "")
        );
        assert_eq!(
            split(&["-p", "5", "--pid", "6", "./tool", "-p", "7"]),
            (false, vec![5, 6], "./tool -p 7".to_owned(), String::new())
        );
    }

    /// `docs/cli.md` is what `--help` prints; `WARPBPF_BLESS=1` rewrites it.
    #[test]
    fn the_reference_is_the_help() {
        let mut cli = Cli::command();
        cli.build();
        let mut text = String::from(
            "# Command line\n\nWhat `warpbpf VERB --help` prints. Written by the tests of `warpbpf-cli`.\n\n",
        );
        text += &format!("```\n{STATUSES}\n```\n");
        for verb in cli.get_subcommands_mut() {
            if verb.get_name() != "help" {
                let help = verb
                    .clone()
                    .bin_name(format!("warpbpf {}", verb.get_name()))
                    .render_long_help()
                    .to_string();
                let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
                let lines = lines.join("\n");
                let (name, help) = (verb.get_name(), lines.trim_end());
                text += &format!("\n## warpbpf {name}\n\n```\n{help}\n```\n");
            }
        }
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
        if std::env::var_os("WARPBPF_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            found, text,
            "docs/cli.md is out of date: run the tests of warpbpf-cli with WARPBPF_BLESS=1"
        );
    }
}
