//! The command line, one struct per verb.

mod attach;
mod cache;
mod choice;
mod cli;
mod code;
mod compile;
mod groups;
mod launch;
mod loader;
mod manual;
mod maps;
mod output;
mod program;
pub mod renamed;
mod replace;
mod request;
mod run;
mod tool;
mod trace;
mod work;

pub use attach::{AttachFlags, DetachFlags, ServeFlags, SessionFlags, WhomFlags};
pub use cache::{CacheAction, CacheFlags};
pub use cli::{Cli, Command};
pub use code::{Backend, CodeFlags};
pub use compile::{CompileFlags, Emit, LinkFlags, SitesFlags, VerifyFlags};
pub use groups::command;
pub use launch::{LaunchFlags, LaunchInsideFlags, Shape};
pub use loader::LoaderFlags;
pub use manual::{CompletionsFlags, ManFlags, NewFlags};
pub use maps::{MapsFlags, MapsVerb};
pub use output::{Form, OutputFlags};
pub use program::{DeviceChoice, Inject, ProgramFlags};
pub use replace::{
    GateFlags, GateState, ProgramsFlags, RemoveFlags, ReplaceFlags, SlotsVerb, ToFlags,
};
pub use request::RequestFlags;
pub use run::{DoctorFlags, KernelsFlags, PsFlags, ReportFlags, RunFlags};
pub use tool::{Colour, ToolCommand, ToolFlags};
pub use trace::{TraceFlags, TraceFormat};
pub use work::{ObjectFlags, TargetFlags, ValueFlags, WorkFlags};
