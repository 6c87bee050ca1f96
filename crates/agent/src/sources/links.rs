//! What the application has the driver's linker make of PTX (`cuLink…`, as numba does): the machine
//! code that comes out has none. Where one text went in and nothing else, it stands for just the
//! bytes that came out when they are loaded; else it is told why none does.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex};

use warpbpf_driver::{JitOptions, jit, sys};

use crate::sources::jit_outputs::{JitOutput, MOST_BYTES};
use crate::sys::lock::lock;

/// Links that are watched at once. Of others nothing is known.
const MOST: usize = 1024;

/// Why no text stands for what is linked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("its link was given nothing")]
    Nothing,
    #[error("its link was given {inputs} inputs")]
    Several { inputs: usize },
    #[error("its link was given {kind}, not PTX text")]
    Kind { kind: &'static str },
    #[error("the driver refused what its link was given")]
    Refused,
    #[error("the PTX of its link is longer than what is kept")]
    TooLong,
    #[error("the PTX of its link is not UTF-8")]
    NotUtf8,
    #[error("the PTX of its link, `{path}`: {error}")]
    Unread { path: String, error: String },
    #[error("the PTX of its link, `{path}`, is no file")]
    NoFile { path: String },
}

/// Links that have begun and were not destroyed.
#[derive(Debug, Default)]
pub(crate) struct Links(pub(crate) Mutex<Open>);

#[derive(Debug, Default)]
pub(crate) struct Open {
    pub(crate) links: HashMap<usize, Link>,
    /// Of all their texts: at most [`MOST_BYTES`].
    pub(crate) bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Link {
    /// What the linker was told, by the link or with an input.
    jit: JitOptions,
    /// The inputs so far, those that were refused among them.
    n_inputs: usize,
    /// The one text, or why there is none.
    text: Result<Arc<str>, LinkError>,
}

impl Link {
    pub(crate) fn bytes(&self) -> usize {
        self.text.as_ref().map_or(0, |text| text.len())
    }

    /// What is known of the machine code that it gives.
    pub(crate) fn known(&self) -> JitOutput {
        let changes_code = |(option, _): &(c_int, u32)| *option != jit::GENERATE_LINE_INFO;
        let changes_code = self.jit.pairs().iter().any(changes_code);
        JitOutput {
            by: "linked",
            text: self.text.clone().map_err(|error| error.to_string()),
            jit: Some(self.jit.clone()),
            not_instead: changes_code
                .then_some("it was linked with options, which a load of its PTX would be without"),
        }
    }
}

impl Open {
    pub(crate) fn begin(&mut self, link: usize, jit: JitOptions) {
        // Its handle may have been that of one whose end nobody saw.
        self.end(link);
        if self.links.len() < MOST {
            let link_of = Link {
                jit,
                n_inputs: 0,
                text: Err(LinkError::Nothing),
            };
            self.links.insert(link, link_of);
        }
    }

    pub(crate) fn add(&mut self, link: usize, jit: &JitOptions, input: Result<String, LinkError>) {
        let Some(link) = self.links.get_mut(&link) else {
            return;
        };
        self.bytes -= link.bytes();
        link.n_inputs += 1;
        let pairs = jit.pairs().iter();
        link.jit = pairs.fold(std::mem::take(&mut link.jit), |all, (option, value)| {
            all.with(*option, *value)
        });
        let room = MOST_BYTES - self.bytes;
        link.text = match input {
            _ if link.n_inputs > 1 => Err(LinkError::Several {
                inputs: link.n_inputs,
            }),
            Ok(text) if text.len() > room => Err(LinkError::TooLong),
            input => input.map(Arc::from),
        };
        self.bytes += link.bytes();
    }

    pub(crate) fn end(&mut self, link: usize) {
        if let Some(link) = self.links.remove(&link) {
            self.bytes -= link.bytes();
        }
    }
}

impl Links {
    /// Nobody asks any more.
    pub(crate) fn forget(&self) {
        *lock(&self.0) = Open::default();
    }
}

/// The text of an input that the driver took.
pub(crate) fn text(
    kind: c_int,
    bytes: impl FnOnce() -> Result<Vec<u8>, LinkError>,
) -> Result<String, LinkError> {
    // The numbers are those of `CUjitInputType`.
    let other = match kind {
        sys::INPUT_PTX => None,
        0 => Some("a cubin"),
        2 => Some("a fatbin"),
        3 => Some("an object"),
        4 => Some("a library"),
        _ => Some("an input of another kind"),
    };
    if let Some(kind) = other {
        return Err(LinkError::Kind { kind });
    }
    let mut bytes = bytes()?;
    let end = bytes.iter().position(|byte| *byte == 0);
    // Half a text is none.
    let cut = usize::from(warpbpf_faults::strikes("agent/linked-text"));
    bytes.truncate(end.unwrap_or(bytes.len()) >> cut);
    String::from_utf8(bytes).map_err(|_| LinkError::NotUtf8)
}

/// A file's bytes. The driver has read it, so that it is there.
pub(crate) fn of_file(path: &CStr) -> Result<Vec<u8>, LinkError> {
    let path = std::path::Path::new(OsStr::from_bytes(path.to_bytes()));
    let named = || path.display().to_string();
    let missing = |error: std::io::Error| LinkError::Unread {
        path: named(),
        error: error.to_string(),
    };
    let about = std::fs::metadata(path).map_err(missing)?;
    if !about.is_file() {
        // It may let a reader wait.
        return Err(LinkError::NoFile { path: named() });
    }
    if about.len() > MOST_BYTES as u64 {
        return Err(LinkError::TooLong);
    }
    warpbpf_descriptor::read_file(path).map_err(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(open: &Open, link: usize) -> Result<&str, String> {
        let text = open.links[&link].text.as_deref();
        text.map_err(ToString::to_string)
    }

    #[test]
    fn one_text_and_nothing_else_stands_for_what_is_linked() {
        let none = JitOptions::default();
        let mut open = Open::default();
        for link in 1..=4 {
            open.begin(link, JitOptions::default());
        }
        assert_eq!(told(&open, 1), Err("its link was given nothing".to_owned()));
        open.add(1, &none, Ok("one".to_owned()));
        assert_eq!((told(&open, 1), open.bytes), (Ok("one"), 3));
        open.add(2, &none, Ok("first".to_owned()));
        open.add(2, &none, Ok("second".to_owned()));
        open.add(2, &none, Err(LinkError::NotUtf8));
        assert_eq!(
            told(&open, 2),
            Err("its link was given 3 inputs".to_owned())
        );
        open.add(3, &none, Ok("a".repeat(MOST_BYTES - 2)));
        let long = "the PTX of its link is longer than what is kept";
        assert_eq!((told(&open, 3), open.bytes), (Err(long.to_owned()), 3));
        open.add(4, &none, Ok("a".repeat(MOST_BYTES - 3)));
        assert_eq!(open.bytes, MOST_BYTES);
        // A handle that comes again is of another link, and one that was not seen to begin is of
        // none.
        open.begin(4, JitOptions::default());
        assert_eq!(told(&open, 4), Err("its link was given nothing".to_owned()));
        open.add(5, &none, Ok("five".to_owned()));
        open.end(1);
        open.end(1);
        assert_eq!((open.bytes, open.links.len()), (0, 3));
    }

    #[test]
    fn links_that_are_not_destroyed_are_bounded() {
        let mut open = Open::default();
        for link in 0..2 * MOST {
            open.begin(link, JitOptions::default());
        }
        assert_eq!(open.links.len(), MOST);
        open.end(0);
        open.begin(2 * MOST, JitOptions::default());
        assert!(open.links.contains_key(&(2 * MOST)));
    }

    #[test]
    fn options_of_inputs_are_the_links() {
        let with = |option, value| JitOptions::default().with(option, value);
        let mut open = Open::default();
        open.begin(1, with(jit::MAX_REGISTERS, 64));
        open.begin(2, with(jit::GENERATE_LINE_INFO, 1));
        let added = with(jit::MAX_REGISTERS, 32).with(jit::OPTIMIZATION_LEVEL, 1);
        open.add(1, &added, Ok("text".to_owned()));
        let known = open.links[&1].known();
        assert_eq!((known.by, known.text), ("linked", Ok("text".into())));
        assert_eq!(known.jit, Some(added));
        assert!(known.not_instead.is_some());
        // These do not change the code.
        assert_eq!(open.links[&2].known().not_instead, None);
    }

    #[test]
    fn an_input_is_a_text_or_says_what_it_is() {
        let of = |kind, bytes: &[u8]| text(kind, || Ok(bytes.to_vec()));
        assert_eq!(of(sys::INPUT_PTX, b".version\0\xff"), Ok(".version".into()));
        let why = |kind| of(kind, b"").unwrap_err().to_string();
        assert_eq!(why(0), "its link was given a cubin, not PTX text");
        assert_eq!(why(4), "its link was given a library, not PTX text");
        assert_eq!(
            why(9),
            "its link was given an input of another kind, not PTX text"
        );
        let damaged = of(sys::INPUT_PTX, b"\xff").unwrap_err();
        assert_eq!(damaged, LinkError::NotUtf8);
        let missing = "the PTX of its link, `/nowhere/x`: No such file or directory (os error 2)";
        assert_eq!(of_file(c"/nowhere/x").unwrap_err().to_string(), missing);
        assert_eq!(
            of_file(c"/").unwrap_err().to_string(),
            "the PTX of its link, `/`, is no file"
        );
    }
}
