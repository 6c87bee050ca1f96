//! What does not run, and why: the committed list. A case that is listed and runs after all is a
//! failure too, so that the list stays true.

/// A case of bpf_conformance that no GPU runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Name of the file, without `.data`.
    pub case: &'static str,
    /// Name of the verifier's rule that refuses it.
    pub rule: &'static str,
    /// Why that is right.
    pub reason: &'static str,
}

/// The list. The interpreter, which trusts nobody, runs all cases.
pub const REFUSED: &[Refused] = &[Refused {
    case: "callx",
    rule: "unsupported",
    reason: "RFC 9669 has no call through a register; the suite keeps it in a group of its own that runners leave out, \
             and what such a register holds (a helper's number there, an address for clang) is not agreed upon",
}];

/// The entry of a case, if it is listed.
pub fn find(case: &str) -> Option<&'static Refused> {
    REFUSED.iter().find(|refused| refused.case == case)
}
