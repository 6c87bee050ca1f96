//! How a kernel got its programs, or why it has none: what the agent finds out, and the column
//! *method* of a report.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// How a kernel got its programs, or why it has none. Its text, which is what JSON has, is a word,
/// or a word, a colon and a reason.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Method {
    /// No program's glob matches its name.
    #[default]
    NotMatched,
    /// It has no place that a program wants.
    NoSite,
    /// The agent had no time to tell of it.
    NotTold,
    /// A PTX text of this kernel alone, with programs in it, is loaded beside its module.
    Slice,
    /// Its whole module is loaded with a copy of it in which programs are.
    Clone {
        /// Why a slice would not do.
        reasons: String,
    },
    /// Machine code, in a copy of which calls of programs are.
    Splice,
    /// Machine code, whose programs are called by NVIDIA's Compute Sanitizer.
    Sanitizer,
    /// The program is the kernel.
    Run,
    /// It cannot have programs.
    Refused {
        /// Why, and what could be done.
        reason: String,
    },
    /// It could have programs, and its code could not be loaded.
    Failed {
        /// Why.
        reason: String,
    },
}

const NOT_MATCHED: &str = "not matched";
const NO_SITE: &str = "no site";
const NOT_TOLD: &str = "not known: the process ended before it was told";
const SLICE: &str = "slice";
const CLONE: &str = "clone: ";
const SPLICE: &str = "splice";
const SANITIZER: &str = "sanitizer";
const RUN: &str = "run";
const REFUSED: &str = "refused: ";
const FAILED: &str = "failed: ";

impl Method {
    /// A kernel that cannot have programs.
    pub fn refused(reason: impl Into<String>) -> Method {
        Method::Refused {
            reason: reason.into(),
        }
    }

    /// Why it has no programs although some match it.
    pub fn why_not(&self) -> Option<&str> {
        match self {
            Method::Refused { reason } | Method::Failed { reason } => Some(reason),
            _ => None,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, reason) = match self {
            Method::NotMatched => (NOT_MATCHED, ""),
            Method::NoSite => (NO_SITE, ""),
            Method::NotTold => (NOT_TOLD, ""),
            Method::Slice => (SLICE, ""),
            Method::Clone { reasons } => (CLONE, &**reasons),
            Method::Splice => (SPLICE, ""),
            Method::Sanitizer => (SANITIZER, ""),
            Method::Run => (RUN, ""),
            Method::Refused { reason } => (REFUSED, &**reason),
            Method::Failed { reason } => (FAILED, &**reason),
        };
        f.write_str(word)?;
        f.write_str(reason)
    }
}

/// A text that is no method's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoMethod(pub String);

impl fmt::Display for NoMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not how a kernel gets programs: it is {NOT_MATCHED:?}, {NO_SITE:?}, \
             {NOT_TOLD:?}, {SLICE:?}, {SPLICE:?}, {SANITIZER:?}, {RUN:?}, or begins with {CLONE:?}, \
             {REFUSED:?} or {FAILED:?}",
            self.0
        )
    }
}

impl core::error::Error for NoMethod {}

impl FromStr for Method {
    type Err = NoMethod;

    fn from_str(text: &str) -> Result<Method, NoMethod> {
        let reason = |word| text.strip_prefix(word).map(str::to_owned);
        Ok(match text {
            NOT_MATCHED => Method::NotMatched,
            NO_SITE => Method::NoSite,
            NOT_TOLD => Method::NotTold,
            SLICE => Method::Slice,
            SPLICE => Method::Splice,
            SANITIZER => Method::Sanitizer,
            RUN => Method::Run,
            _ => {
                if let Some(reasons) = reason(CLONE) {
                    Method::Clone { reasons }
                } else if let Some(reason) = reason(REFUSED) {
                    Method::Refused { reason }
                } else if let Some(reason) = reason(FAILED) {
                    Method::Failed { reason }
                } else {
                    return Err(NoMethod(text.to_owned()));
                }
            }
        })
    }
}

impl TryFrom<String> for Method {
    type Error = NoMethod;

    fn try_from(text: String) -> Result<Method, NoMethod> {
        text.parse()
    }
}

impl From<Method> for String {
    fn from(method: Method) -> String {
        alloc::string::ToString::to_string(&method)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn a_text_and_back() {
        for text in [
            "not matched",
            "no site",
            "not known: the process ended before it was told",
            "slice",
            "clone: it is big; it calls itself",
            "splice",
            "sanitizer",
            "run",
            "refused: why: because",
            "failed: ",
        ] {
            assert_eq!(text.parse::<Method>().unwrap().to_string(), text);
        }
        assert_eq!(Method::default().to_string(), "not matched");
    }

    #[test]
    fn what_is_none_is_named() {
        assert_eq!(
            "slices".parse::<Method>().unwrap_err().to_string(),
            "`slices` is not how a kernel gets programs: it is \"not matched\", \"no site\", \
             \"not known: the process ended before it was told\", \"slice\", \"splice\", \"sanitizer\", \"run\", or begins with \
             \"clone: \", \"refused: \" or \"failed: \""
        );
    }

    #[test]
    fn only_what_could_not_be_says_why() {
        assert_eq!(Method::refused("it is odd").why_not(), Some("it is odd"));
        assert_eq!("failed: x".parse::<Method>().unwrap().why_not(), Some("x"));
        assert_eq!(Method::Slice.why_not(), None);
    }
}
