//! Places that a test can make fail: code that may fail says so with a name, its *site*, and fails there if it is told to.
//!
//! Without the feature `on` nothing is ever told to: each function here is a constant, nothing is left of a site in the
//! code that is made, and nobody can trigger one from outside. With it, the variable `WARPBPF_FAULT` says which passes of
//! which sites fail (`plan`), and a file tells afterwards which sites were passed, how often, and what failed (`count`).

#[cfg(feature = "on")]
mod count;
#[cfg(feature = "on")]
mod plan;

/// This pass of the site shall fail.
#[inline(always)]
pub fn strikes(site: &'static str) -> bool {
    #[cfg(feature = "on")]
    return plan::pass(site);
    #[cfg(not(feature = "on"))]
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

#[cfg(all(test, not(feature = "on")))]
mod tests {
    use super::*;

    #[test]
    fn nothing_fails_in_a_build_that_is_not_for_it() {
        // SAFETY: no other thread of this test reads or writes the environment.
        unsafe { std::env::set_var("WARPBPF_FAULT", "a:1+") };
        assert!(!strikes("a"));
        assert_eq!(check("a", || 1), Ok(()));
        bug("a");
    }
}
