//! Places that a test can make fail: code that may fail says so with a name, its *site*, and fails
//! there if it is told to.
//!
//! A release build has no sites: each function here is a constant, nothing is left of a site in the
//! code that is made, and nobody can trigger one from outside (`tests/release.rs`). Every other
//! build has them, so that the agent is built once. There they do nothing before [`arm`], which the
//! agent calls at its start: tools have the same sites and never fail. The variable `WARPBPF_FAULT`
//! says which passes of which sites fail (`plan`), and the file `WARPBPF_FAULT_LOG` tells
//! afterwards which sites were passed, how often, and what failed (`count`).

#[cfg(debug_assertions)]
mod count;
#[cfg(debug_assertions)]
mod plan;

/// Reads the environment. Until then no pass is counted and none fails; without both variables that
/// stays so.
#[inline(always)]
pub fn arm() {
    #[cfg(debug_assertions)]
    plan::arm();
}

/// [`arm`] was called and found a variable: who puts sites into a table of functions can leave the
/// table alone otherwise.
#[inline(always)]
pub fn armed() -> bool {
    #[cfg(debug_assertions)]
    return plan::armed();
    #[cfg(not(debug_assertions))]
    false
}

/// This pass of the site shall fail.
#[inline(always)]
pub fn strikes(site: &'static str) -> bool {
    #[cfg(debug_assertions)]
    return plan::pass(site);
    #[cfg(not(debug_assertions))]
    {
        let _ = site;
        false
    }
}

/// The site's error, if this pass shall fail.
///
/// # Errors
/// What `error` makes, which must be what the real thing would say.
#[inline(always)]
pub fn check<E>(site: &'static str, error: impl FnOnce() -> E) -> Result<(), E> {
    match strikes(site) {
        true => Err(error()),
        false => Ok(()),
    }
}

/// Panics if this pass shall fail: an error of ours that nobody thought of.
#[inline(always)]
pub fn bug(site: &'static str) {
    assert!(!strikes(site), "the fault `{site}`");
}
