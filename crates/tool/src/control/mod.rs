//! How a second command reaches the maps of a session: a socket beside the one for agents, in the
//! folder that only this user may enter. The tool answers, and asks the agent where it must.

mod ask;
mod asked;
mod clients;
mod find;
mod protocol;
mod replace;
mod server;

pub use ask::Control;
pub(crate) use asked::Asker;
pub use asked::{Answered, Asked, TOOL_PATIENCE};
pub use protocol::{
    ClientInfo, JoinRequest, ProcessInfo, ProgramInfo, ReplaceRequest, Reply, Request, SessionInfo,
};
pub(crate) use server::Server;
pub use warpbpf_wire::Change as ProgramChange;
