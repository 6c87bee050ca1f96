//! What the tool and we both have: its memory, the arguments of its calls, the files that it polls
//! and the rings that it reads and fills by itself.

pub mod user;

pub mod announced_section;
pub mod attr;
pub mod log;

pub mod notify;
pub mod ring;
pub mod user_ring;
