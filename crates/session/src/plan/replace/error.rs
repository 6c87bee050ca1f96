//! Why programs are not replaced.

use std::sync::Arc;

use warpbpf_abi::choice::Choice;

use crate::plan::session_error::SessionError;

/// Most maps that a session comes to have: each version of constants is one.
pub(super) const MOST_MAPS: usize = 4096;

/// Why programs are not replaced. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum ReplaceError {
    #[error("{0}")]
    Session(#[from] SessionError),
    #[error(
        "map `{map}` is there already with another {what} ({was}, and {is} in the new object): its contents could not be kept; give the map another name, or declare it as it was"
    )]
    Shape {
        map: String,
        what: &'static str,
        was: String,
        is: String,
    },
    #[error(
        "map `{map}` has a copy for each multiprocessor, because programs only added to it so far, and now one does more ({reason}); use another map for that, or begin with this program"
    )]
    Summed { map: String, reason: String },
    #[error("map `{map}` is new, and {why}: begin with an object that has it")]
    New { map: String, why: &'static str },
    #[error(
        "map `{map}` is new, and programs in slots use maps that are there: bring it by a replacement first (`warpbpf add`), or begin with an object that has it"
    )]
    NewBeside { map: String },
    #[error(
        "the session would have {maps} maps; {MOST_MAPS} are the most. Each version of constants counts: begin a new session"
    )]
    Maps { maps: usize },
    #[error(
        "program `{program}` prints, and no program did when the session began: its ring of messages is made then"
    )]
    Printk { program: String },
    #[error(
        "program `{program}` has a loop that is ended when it runs, which no program of this name had when the session began: what counts that is made then"
    )]
    Stops { program: String },
    #[error(
        "program `{program}` reads the application's memory, and no program did when the session began: what memory there is was not followed"
    )]
    Reads { program: String },
    #[error(
        "program `{program}` is for launches that NVTX tells of ({choice}), and the application's calls of NVTX do not come to us: that is decided when it starts; start it with `--ranges`"
    )]
    Ranges {
        program: String,
        choice: Arc<Choice>,
    },
    #[error(
        "program `{program}` is for the CPU (`{section}`), and only programs of kernels are replaced: leave it out of the object; those that run there go on"
    )]
    OnCpu { program: String, section: String },
    #[error("there is no program `{program}`; there {there}")]
    NoProgram { program: String, there: String },
    #[error("program `{program}` is there already: replace it, or give the new one another name")]
    Twice { program: String },
    #[error(
        "map `{map}` cannot come with a second tool: {why}; begin the first tool with an object that has it, or attach when that has ended"
    )]
    ClientMap { map: String, why: &'static str },
    #[error(
        "program `{program}` prints, and what is printed goes to the first tool: attach when that has ended, or count in a map"
    )]
    ClientPrints { program: String },
    #[error("no programs of a second tool of number {client} are there")]
    NoClient { client: u32 },
}
