//! Images are instrumented, programs replaced, and contexts get what belongs to a session.

pub(crate) mod context_ends;
pub(crate) mod context_life;
pub(crate) mod describe;
pub(crate) mod gate;
pub(crate) mod modules;
pub(crate) mod nvrtc;
pub(crate) mod observe;
pub(crate) mod preloaded;
pub(crate) mod replace;
pub(crate) mod slots;
pub(crate) mod watch;
