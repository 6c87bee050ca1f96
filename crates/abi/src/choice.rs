//! Which launches of kernels get probes: what a user asks for, of all programs or of one, and how
//! it is written.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// Which launches get probes, of kernels that programs match; by default all. Others run the
/// original and are counted as skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Choice {
    /// One launch of so many of each kernel; 0 and 1 for each one.
    pub every: u64,
    /// None of the first so many launches of each kernel.
    pub after: u64,
    /// At most so many launches of each kernel.
    pub at_most: Option<u64>,
    /// Ordinals of devices; empty for all.
    pub gpus: Vec<u32>,
    /// Grids of at least so many blocks.
    pub min_blocks: u64,
    /// Grids of at most so many blocks.
    pub max_blocks: Option<u64>,
    /// Globs over paths of NVTX ranges, in one of which the launch must be made; empty for
    /// anywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nvtx: Vec<String>,
    /// Streams; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamPick>,
}

/// Streams that a user names.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamPick {
    /// The default stream, that of the whole context.
    Default,
    /// The default streams of threads.
    PerThread,
    /// Those that were made.
    Other,
    /// The one with this number, from 1, in the order in which the process makes them.
    Number(u64),
    /// Those with a name, given by NVTX, that this glob stands for.
    Named(String),
}

impl Choice {
    /// All launches.
    pub fn is_all(&self) -> bool {
        let rest = Choice {
            every: 0,
            ..self.clone()
        };
        self.every <= 1 && rest == Choice::default()
    }

    /// Only NVTX can say which launches are meant.
    pub fn needs_nvtx(&self) -> bool {
        !self.nvtx.is_empty() || self.streams.iter().any(StreamPick::is_named)
    }

    /// What the launches are of a program whose section says `section`, where this is what is said
    /// of all programs, and `said` what is said of some by name: that goes before the section, and
    /// the section before this.
    #[must_use]
    pub fn of_program(
        &self,
        program: &str,
        section: &ChoiceRequest,
        said: &[(String, ChoiceRequest)],
    ) -> Choice {
        let mut choice = section.over(self);
        for (_, request) in said.iter().filter(|(name, _)| name == program) {
            choice = request.over(&choice);
        }
        choice
    }

    /// It depends on the number of a launch.
    pub fn goes_by_number(&self) -> bool {
        self.every > 1 || self.after > 0 || self.at_most.is_some()
    }
}

impl StreamPick {
    fn is_named(&self) -> bool {
        matches!(self, StreamPick::Named(_))
    }
}

impl FromStr for StreamPick {
    type Err = &'static str;

    /// As people name streams.
    fn from_str(text: &str) -> Result<StreamPick, &'static str> {
        Ok(match text {
            "default" => StreamPick::Default,
            "per-thread" => StreamPick::PerThread,
            "other" => StreamPick::Other,
            "" => return Err("write `default`, `per-thread`, `other`, a number or a name"),
            ALL => {
                return Err(
                    "all streams are meant where none is named; a stream that has this name is `al?`",
                );
            }
            _ => match text.parse() {
                Ok(0) => {
                    return Err("streams are numbered from 1; the default one is `default`");
                }
                Ok(number) => StreamPick::Number(number),
                Err(_) => StreamPick::Named(text.to_owned()),
            },
        })
    }
}

impl fmt::Display for StreamPick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamPick::Default => f.write_str("default"),
            StreamPick::PerThread => f.write_str("per-thread"),
            StreamPick::Other => f.write_str("other"),
            StreamPick::Number(number) => write!(f, "{number}"),
            StreamPick::Named(glob) => f.write_str(glob),
        }
    }
}

/// What is said of one program: what is not said is as for the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct ChoiceRequest {
    /// See [`Choice::every`].
    pub every: Option<u64>,
    /// See [`Choice::after`].
    pub after: Option<u64>,
    /// See [`Choice::at_most`].
    pub at_most: Option<u64>,
    /// See [`Choice::gpus`].
    pub gpus: Option<Vec<u32>>,
    /// See [`Choice::min_blocks`].
    pub min_blocks: Option<u64>,
    /// See [`Choice::max_blocks`].
    pub max_blocks: Option<u64>,
    /// See [`Choice::nvtx`].
    pub nvtx: Option<Vec<String>>,
    /// See [`Choice::streams`].
    pub streams: Option<Vec<StreamPick>>,
}

/// A key of a [`ChoiceRequest`], as sections and command lines have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChoiceKey {
    /// [`ChoiceRequest::every`]
    Every,
    /// [`ChoiceRequest::after`]
    After,
    /// [`ChoiceRequest::at_most`]
    AtMost,
    /// [`ChoiceRequest::min_blocks`]
    MinBlocks,
    /// [`ChoiceRequest::max_blocks`]
    MaxBlocks,
    /// [`ChoiceRequest::gpus`]
    Gpus,
    /// [`ChoiceRequest::nvtx`]
    Nvtx,
    /// [`ChoiceRequest::streams`]
    Stream,
}

/// Says of a key with several values that none is left out, whatever was said before.
const ALL: &str = "all";

/// What is wrong with a [`ChoiceRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChoiceError {
    /// There is no such key.
    Key {
        /// What stands there.
        key: String,
    },
    /// Not `key=value`.
    Shape {
        /// What stands there.
        part: String,
    },
    /// The key cannot have the value.
    Value {
        /// The key.
        key: &'static str,
        /// What stands there.
        value: String,
        /// What may.
        allowed: &'static str,
    },
    /// A key stands there twice.
    Twice {
        /// The key.
        key: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
}

impl ChoiceKey {
    /// All of them.
    pub const ALL: [ChoiceKey; 8] = [
        ChoiceKey::Every,
        ChoiceKey::After,
        ChoiceKey::AtMost,
        ChoiceKey::MinBlocks,
        ChoiceKey::MaxBlocks,
        ChoiceKey::Gpus,
        ChoiceKey::Nvtx,
        ChoiceKey::Stream,
    ];

    /// As it is written.
    pub const fn word(self) -> &'static str {
        match self {
            ChoiceKey::Every => "every",
            ChoiceKey::After => "after",
            ChoiceKey::AtMost => "at_most",
            ChoiceKey::MinBlocks => "min_blocks",
            ChoiceKey::MaxBlocks => "max_blocks",
            ChoiceKey::Gpus => "gpus",
            ChoiceKey::Nvtx => "nvtx",
            ChoiceKey::Stream => "stream",
        }
    }

    /// The one that is written so; `at-most`, as flags have it, is `at_most`.
    pub fn of(word: &str) -> Option<ChoiceKey> {
        let as_flag = |key: &ChoiceKey| {
            let words = key.word().split('_');
            words.eq(word.split(['_', '-']))
        };
        ChoiceKey::ALL.into_iter().find(as_flag)
    }

    const fn advice(self) -> &'static str {
        match self {
            ChoiceKey::Gpus | ChoiceKey::Nvtx | ChoiceKey::Stream => "join its words by `+`",
            ChoiceKey::Every
            | ChoiceKey::After
            | ChoiceKey::AtMost
            | ChoiceKey::MinBlocks
            | ChoiceKey::MaxBlocks => "it has one value",
        }
    }
}

impl ChoiceRequest {
    /// Nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == ChoiceRequest::default()
    }

    /// Only NVTX can say which launches are meant.
    pub fn needs_nvtx(&self) -> bool {
        let globs = self.nvtx.as_ref().is_some_and(|globs| !globs.is_empty());
        let streams = self.streams.iter().flatten();
        globs || { streams }.any(StreamPick::is_named)
    }

    /// What a section says of launches, as far as it can be read: what is wrong with one that is
    /// refused later is said then.
    #[must_use]
    pub fn of_section(section: &str) -> ChoiceRequest {
        let (_, selectors) = section.split_once('|').unwrap_or_default();
        let mut request = ChoiceRequest::default();
        for part in selectors.split(',') {
            let (key, value) = part.split_once('=').unwrap_or_default();
            if let Some(key) = ChoiceKey::of(key.trim()) {
                // Not for us to tell.
                let _ = request.set(key, value.trim());
            }
        }
        request
    }

    /// The keys of which something is said.
    pub fn keys(&self) -> impl Iterator<Item = ChoiceKey> {
        let is_said = |key: &ChoiceKey| match key {
            ChoiceKey::Every => self.every.is_some(),
            ChoiceKey::After => self.after.is_some(),
            ChoiceKey::AtMost => self.at_most.is_some(),
            ChoiceKey::MinBlocks => self.min_blocks.is_some(),
            ChoiceKey::MaxBlocks => self.max_blocks.is_some(),
            ChoiceKey::Gpus => self.gpus.is_some(),
            ChoiceKey::Nvtx => self.nvtx.is_some(),
            ChoiceKey::Stream => self.streams.is_some(),
        };
        ChoiceKey::ALL.into_iter().filter(is_said)
    }

    /// A program of which one thing is said twice in such a list, and what: one cannot know which
    /// of the two is meant.
    pub fn said_twice(said: &[(String, ChoiceRequest)]) -> Option<(&str, ChoiceKey)> {
        said.iter()
            .enumerate()
            .find_map(|(at, (program, request))| {
                let before = said[..at].iter().filter(|(name, _)| name == program);
                let mut before = before.flat_map(|(_, request)| request.keys());
                let twice = before.find(|key| request.keys().any(|own| own == *key));
                Some((program.as_str(), twice?))
            })
    }

    /// What launches are meant, where `others` is what all programs have that say nothing.
    #[must_use]
    pub fn over(&self, others: &Choice) -> Choice {
        let every = self.every.unwrap_or(others.every);
        Choice {
            // One of one is each one, however that is said.
            every: if every == 1 { 0 } else { every },
            after: self.after.unwrap_or(others.after),
            at_most: self.at_most.or(others.at_most),
            gpus: self.gpus.clone().unwrap_or_else(|| others.gpus.clone()),
            min_blocks: self.min_blocks.unwrap_or(others.min_blocks),
            max_blocks: self.max_blocks.or(others.max_blocks),
            nvtx: self.nvtx.clone().unwrap_or_else(|| others.nvtx.clone()),
            streams: (self.streams.clone()).unwrap_or_else(|| others.streams.clone()),
        }
    }

    /// Says one thing.
    ///
    /// # Errors
    /// [`ChoiceError::Value`], [`ChoiceError::Twice`].
    pub fn set(&mut self, key: ChoiceKey, value: &str) -> Result<(), ChoiceError> {
        let wrong = |allowed| ChoiceError::Value {
            key: key.word(),
            value: value.to_owned(),
            allowed,
        };
        let number = || value.parse().map_err(|_| wrong("a number"));
        let words = || value.split('+').filter(|_| value != ALL);
        let was_said = match key {
            ChoiceKey::Every => {
                let every = number()?;
                if every == 0 {
                    return Err(wrong("a number from 1"));
                }
                self.every.replace(every).is_some()
            }
            ChoiceKey::After => self.after.replace(number()?).is_some(),
            ChoiceKey::AtMost => self.at_most.replace(number()?).is_some(),
            ChoiceKey::MinBlocks => self.min_blocks.replace(number()?).is_some(),
            ChoiceKey::MaxBlocks => self.max_blocks.replace(number()?).is_some(),
            ChoiceKey::Gpus => {
                let gpus = words().map(str::parse).collect::<Result<_, _>>();
                let allowed = "numbers of GPUs, joined by `+`, for example `0+2`, or `all` alone";
                let gpus = gpus.map_err(|_| wrong(allowed))?;
                self.gpus.replace(gpus).is_some()
            }
            ChoiceKey::Nvtx => {
                if words().any(|glob| glob.is_empty() || glob == ALL) {
                    return Err(wrong(
                        "globs over paths of NVTX ranges, joined by `+`, for example `step/*`, or `all` alone",
                    ));
                }
                let globs = words().map(str::to_owned).collect();
                self.nvtx.replace(globs).is_some()
            }
            ChoiceKey::Stream => {
                let streams = words().map(str::parse).collect::<Result<_, _>>();
                let allowed = "streams, joined by `+`: `default`, `per-thread`, `other`, a number from 1, or a glob over names; or `all` alone";
                let streams = streams.map_err(|_| wrong(allowed))?;
                self.streams.replace(streams).is_some()
            }
        };
        match was_said {
            false => Ok(()),
            true => Err(ChoiceError::Twice {
                key: key.word(),
                advice: key.advice(),
            }),
        }
    }
}

impl FromStr for ChoiceRequest {
    type Err = ChoiceError;

    /// `key=value,…`
    fn from_str(text: &str) -> Result<ChoiceRequest, ChoiceError> {
        let mut request = ChoiceRequest::default();
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(|| ChoiceError::Shape {
                part: part.to_owned(),
            })?;
            let key = ChoiceKey::of(key).ok_or_else(|| ChoiceError::Key {
                key: key.to_owned(),
            })?;
            request.set(key, value)?;
        }
        Ok(request)
    }
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChoiceError::Key { key } => {
                write!(f, "there is no key `{key}`; keys are ")?;
                for (at, key) in ChoiceKey::ALL.into_iter().enumerate() {
                    let between = match at {
                        0 => "",
                        _ if at + 1 == ChoiceKey::ALL.len() => " and ",
                        _ => ", ",
                    };
                    write!(f, "{between}`{}`", key.word())?;
                }
                Ok(())
            }
            ChoiceError::Shape { part } => {
                write!(f, "`{part}` is not `key=value`, for example `every=10`")
            }
            ChoiceError::Value {
                key,
                value,
                allowed,
            } => write!(f, "`{key}` cannot be `{value}`; it is {allowed}"),
            ChoiceError::Twice { key, advice } => write!(f, "`{key}` is given twice; {advice}"),
        }
    }
}

impl core::error::Error for ChoiceError {}

/// As a [`ChoiceRequest`] is written; `all launches` if nothing is left out.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("all launches");
        }
        let said = |number: u64, least| (number > least).then(|| number.to_string());
        let joined = |words: Vec<String>| (!words.is_empty()).then(|| words.join("+"));
        let text = |number: &u64| number.to_string();
        let parts = [
            (ChoiceKey::Every, said(self.every, 1)),
            (ChoiceKey::After, said(self.after, 0)),
            (ChoiceKey::AtMost, self.at_most.as_ref().map(text)),
            (ChoiceKey::MinBlocks, said(self.min_blocks, 0)),
            (ChoiceKey::MaxBlocks, self.max_blocks.as_ref().map(text)),
            (
                ChoiceKey::Gpus,
                joined(self.gpus.iter().map(u32::to_string).collect()),
            ),
            (ChoiceKey::Nvtx, joined(self.nvtx.clone())),
            (
                ChoiceKey::Stream,
                joined(self.streams.iter().map(StreamPick::to_string).collect()),
            ),
        ];
        let mut between = "";
        for (key, value) in parts {
            if let Some(value) = value {
                write!(f, "{between}{}={value}", key.word())?;
                between = ",";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn request(text: &str) -> ChoiceRequest {
        text.parse().unwrap()
    }

    #[test]
    fn a_request_is_read_and_goes_over_what_all_have() {
        let all = "every=3,after=2,at-most=9,min_blocks=1,max-blocks=64,gpus=0+2,nvtx=step/*+warm up,stream=default+3+cop*";
        let others = Choice {
            every: 7,
            gpus: vec![5],
            nvtx: vec!["epoch".into()],
            ..Choice::default()
        };
        let choice = request(all).over(&others);
        assert_eq!(
            choice,
            Choice {
                every: 3,
                after: 2,
                at_most: Some(9),
                gpus: vec![0, 2],
                min_blocks: 1,
                max_blocks: Some(64),
                nvtx: vec!["step/*".into(), "warm up".into()],
                streams: vec![
                    StreamPick::Default,
                    StreamPick::Number(3),
                    StreamPick::Named("cop*".into()),
                ],
            }
        );
        assert_eq!(
            choice.to_string().parse(),
            Ok(request(all)),
            "it is written as it is read"
        );
        assert_eq!(ChoiceRequest::default().over(&others), others);
        let partly = request("every=1").over(&others);
        assert_eq!((partly.every, partly.gpus), (0, vec![5]));
        assert!(request("every=1").over(&Choice::default()).is_all());
        assert_eq!(
            request("every=1").over(&Choice::default()).to_string(),
            "all launches"
        );
    }

    #[test]
    fn what_only_nvtx_knows() {
        let needs = |text: &str| {
            (
                request(text).needs_nvtx(),
                request(text).over(&Choice::default()).needs_nvtx(),
            )
        };
        assert_eq!(needs("nvtx=step"), (true, true));
        assert_eq!(needs("stream=copies"), (true, true));
        assert_eq!(needs("stream=default+2,every=3"), (false, false));
        let section_needs = |section: &str| ChoiceRequest::of_section(section).needs_nvtx();
        assert!(section_needs("gpu/mem/*|kind=load,nvtx=step"));
        assert!(section_needs("gpu/entry/a<b,c>|stream=copies"));
        for none in [
            "gpu/entry/nvtx=step",
            "gpu/entry/*|stream=2",
            "gpu/entry/*",
            "gpu/entry/k|nvtx=",
            "gpu/entry/k|nvtx=all",
        ] {
            assert!(!section_needs(none), "{none}");
        }
    }

    #[test]
    fn what_is_said_by_name_goes_before_the_section() {
        let all = Choice {
            gpus: vec![1],
            ..Choice::default()
        };
        let section = ChoiceRequest::of_section("gpu/entry/*|every=3,nvtx=step,stream=2,gpus=0");
        let of = |said: &str| {
            let said = [
                ("other".to_string(), request("after=7")),
                ("own".to_string(), request(said)),
            ];
            all.of_program("own", &section, &said).to_string()
        };
        assert_eq!(of("every=2"), "every=2,gpus=0,nvtx=step,stream=2");
        assert_eq!(of("gpus=all"), "every=3,nvtx=step,stream=2");
        assert_eq!(of("nvtx=all"), "every=3,gpus=0,stream=2");
        assert_eq!(of("stream=all,every=1,nvtx=all,gpus=all"), "all launches");
        assert_eq!(
            all.of_program("another", &ChoiceRequest::default(), &[])
                .to_string(),
            "gpus=1"
        );
    }

    #[test]
    fn what_is_said_twice_of_a_program_is_found() {
        let said = |all: &[(&str, &str)]| -> Vec<(String, ChoiceRequest)> {
            let all = all
                .iter()
                .map(|(name, text)| (name.to_string(), request(text)));
            all.collect()
        };
        let all = said(&[
            ("a", "every=2"),
            ("b", "every=3"),
            ("a", "after=1,gpus=all"),
        ]);
        assert_eq!(ChoiceRequest::said_twice(&all), None);
        let all = said(&[("a", "every=2"), ("b", "gpus=1"), ("b", "after=1,gpus=all")]);
        assert_eq!(
            ChoiceRequest::said_twice(&all),
            Some(("b", ChoiceKey::Gpus))
        );
    }

    #[test]
    fn streams_are_kinds_numbers_and_names() {
        assert_eq!("default".parse(), Ok(StreamPick::Default));
        assert_eq!("per-thread".parse(), Ok(StreamPick::PerThread));
        assert_eq!("other".parse(), Ok(StreamPick::Other));
        assert_eq!("3".parse(), Ok(StreamPick::Number(3)));
        assert_eq!("copy*".parse(), Ok(StreamPick::Named("copy*".into())));
        assert!(StreamPick::from_str("0").unwrap_err().contains("`default`"));
        assert!(StreamPick::from_str("").is_err());
        assert!(StreamPick::from_str("all").unwrap_err().contains("`al?`"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let said = |text: &str| text.parse::<ChoiceRequest>().unwrap_err().to_string();
        for (text, expected) in [
            (
                "often=3",
                "there is no key `often`; keys are `every`, `after`, `at_most`, `min_blocks`, `max_blocks`, `gpus`, `nvtx` and `stream`",
            ),
            (
                "every",
                "`every` is not `key=value`, for example `every=10`",
            ),
            ("", "`` is not `key=value`, for example `every=10`"),
            ("every=0", "`every` cannot be `0`; it is a number from 1"),
            ("after=-1", "`after` cannot be `-1`; it is a number"),
            ("gpus=0,1", "`1` is not `key=value`, for example `every=10`"),
            (
                "gpus=a",
                "`gpus` cannot be `a`; it is numbers of GPUs, joined by `+`, for example `0+2`, or `all` alone",
            ),
            (
                "gpus=all+1",
                "`gpus` cannot be `all+1`; it is numbers of GPUs, joined by `+`, for example `0+2`, or `all` alone",
            ),
            (
                "nvtx=",
                "`nvtx` cannot be ``; it is globs over paths of NVTX ranges, joined by `+`, for example `step/*`, or `all` alone",
            ),
            (
                "nvtx=step+all",
                "`nvtx` cannot be `step+all`; it is globs over paths of NVTX ranges, joined by `+`, for example `step/*`, or `all` alone",
            ),
            (
                "stream=0",
                "`stream` cannot be `0`; it is streams, joined by `+`: `default`, `per-thread`, `other`, a number from 1, or a glob over names; or `all` alone",
            ),
            (
                "stream=all+2",
                "`stream` cannot be `all+2`; it is streams, joined by `+`: `default`, `per-thread`, `other`, a number from 1, or a glob over names; or `all` alone",
            ),
            (
                "gpus=all,gpus=0",
                "`gpus` is given twice; join its words by `+`",
            ),
            (
                "every=2,every=3",
                "`every` is given twice; it has one value",
            ),
            (
                "gpus=0,gpus=1",
                "`gpus` is given twice; join its words by `+`",
            ),
        ] {
            assert_eq!(said(text), expected);
        }
    }
}
