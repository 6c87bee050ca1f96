//! When what is done to a process is given up.

/// Says whether somebody still waits for what is done to a process: it is asked often, and what is
/// not done by then is left.
pub type GoesOn<'g> = &'g (dyn Fn() -> bool + Sync);
