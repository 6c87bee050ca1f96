//! Which launches of kernels get probes: what a user wishes, of all programs or of one, and how it is written.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// Which launches get probes, of kernels that programs match; by default all. Others run the original and are counted as skipped.
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
    /// Globs over paths of NVTX ranges, in one of which the launch must be made; empty for anywhere.
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

    /// What the launches are of a program whose section says `section`, where this is what is said of all programs, and `said` what is said of
    /// some by name: that goes before the section, and the section before this.
    #[must_use]
    pub fn of_program(&self, program: &str, section: &Wish, said: &[(String, Wish)]) -> Choice {
        let mut choice = section.over(self);
        for (_, wish) in said.iter().filter(|(name, _)| name == program) {
            choice = wish.over(&choice);
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
pub struct Wish {
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

/// A key of a [`Wish`], as sections and command lines have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WishKey {
    /// [`Wish::every`]
    Every,
    /// [`Wish::after`]
    After,
    /// [`Wish::at_most`]
    AtMost,
    /// [`Wish::min_blocks`]
    MinBlocks,
    /// [`Wish::max_blocks`]
    MaxBlocks,
    /// [`Wish::gpus`]
    Gpus,
    /// [`Wish::nvtx`]
    Nvtx,
    /// [`Wish::streams`]
    Stream,
}

/// Says of a key with several values that none is left out, whatever was said before.
const ALL: &str = "all";

/// What is wrong with a [`Wish`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WishError {
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

impl WishKey {
    /// All of them.
    pub const ALL: [WishKey; 8] = [
        WishKey::Every,
        WishKey::After,
        WishKey::AtMost,
        WishKey::MinBlocks,
        WishKey::MaxBlocks,
        WishKey::Gpus,
        WishKey::Nvtx,
        WishKey::Stream,
    ];

    /// As it is written.
    pub const fn word(self) -> &'static str {
        match self {
            WishKey::Every => "every",
            WishKey::After => "after",
            WishKey::AtMost => "at_most",
            WishKey::MinBlocks => "min_blocks",
            WishKey::MaxBlocks => "max_blocks",
            WishKey::Gpus => "gpus",
            WishKey::Nvtx => "nvtx",
            WishKey::Stream => "stream",
        }
    }

    /// The one that is written so; `at-most`, as flags have it, is `at_most`.
    pub fn of(word: &str) -> Option<WishKey> {
        let as_flag = |key: &WishKey| {
            let words = key.word().split('_');
            words.eq(word.split(['_', '-']))
        };
        WishKey::ALL.into_iter().find(as_flag)
    }

    const fn advice(self) -> &'static str {
        match self {
            WishKey::Gpus | WishKey::Nvtx | WishKey::Stream => "join its words by `+`",
            WishKey::Every
            | WishKey::After
            | WishKey::AtMost
            | WishKey::MinBlocks
            | WishKey::MaxBlocks => "it has one value",
        }
    }
}

impl Wish {
    /// Nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Wish::default()
    }

    /// Only NVTX can say which launches are meant.
    pub fn needs_nvtx(&self) -> bool {
        let globs = self.nvtx.as_ref().is_some_and(|globs| !globs.is_empty());
        let streams = self.streams.iter().flatten();
        globs || { streams }.any(StreamPick::is_named)
    }

    /// What a section says of launches, as far as it can be read: what is wrong with one that is refused later is said then.
    #[must_use]
    pub fn of_section(section: &str) -> Wish {
        let (_, selectors) = section.split_once('|').unwrap_or_default();
        let mut wish = Wish::default();
        for part in selectors.split(',') {
            let (key, value) = part.split_once('=').unwrap_or_default();
            if let Some(key) = WishKey::of(key.trim()) {
                // Not for us to tell.
                let _ = wish.set(key, value.trim());
            }
        }
        wish
    }

    /// The keys of which something is said.
    pub fn keys(&self) -> impl Iterator<Item = WishKey> {
        let is_said = |key: &WishKey| match key {
            WishKey::Every => self.every.is_some(),
            WishKey::After => self.after.is_some(),
            WishKey::AtMost => self.at_most.is_some(),
            WishKey::MinBlocks => self.min_blocks.is_some(),
            WishKey::MaxBlocks => self.max_blocks.is_some(),
            WishKey::Gpus => self.gpus.is_some(),
            WishKey::Nvtx => self.nvtx.is_some(),
            WishKey::Stream => self.streams.is_some(),
        };
        WishKey::ALL.into_iter().filter(is_said)
    }

    /// A program of which one thing is said twice in such a list, and what; who is right cannot be told.
    pub fn said_twice(said: &[(String, Wish)]) -> Option<(&str, WishKey)> {
        said.iter().enumerate().find_map(|(at, (program, wish))| {
            let before = said[..at].iter().filter(|(name, _)| name == program);
            let mut before = before.flat_map(|(_, wish)| wish.keys());
            let twice = before.find(|key| wish.keys().any(|own| own == *key));
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
    /// [`WishError::Value`], [`WishError::Twice`].
    pub fn set(&mut self, key: WishKey, value: &str) -> Result<(), WishError> {
        let wrong = |allowed| WishError::Value {
            key: key.word(),
            value: value.to_owned(),
            allowed,
        };
        let number = || value.parse().map_err(|_| wrong("a number"));
        let words = || value.split('+').filter(|_| value != ALL);
        let was_said = match key {
            WishKey::Every => {
                let every = number()?;
                if every == 0 {
                    return Err(wrong("a number from 1"));
                }
                self.every.replace(every).is_some()
            }
            WishKey::After => self.after.replace(number()?).is_some(),
            WishKey::AtMost => self.at_most.replace(number()?).is_some(),
            WishKey::MinBlocks => self.min_blocks.replace(number()?).is_some(),
            WishKey::MaxBlocks => self.max_blocks.replace(number()?).is_some(),
            WishKey::Gpus => {
                let gpus = words().map(str::parse).collect::<Result<_, _>>();
                let allowed = "numbers of GPUs, joined by `+`, for example `0+2`, or `all` alone";
                let gpus = gpus.map_err(|_| wrong(allowed))?;
                self.gpus.replace(gpus).is_some()
            }
            WishKey::Nvtx => {
                if words().any(|glob| glob.is_empty() || glob == ALL) {
                    return Err(wrong(
                        "globs over paths of NVTX ranges, joined by `+`, for example `step/*`, or `all` alone",
                    ));
                }
                let globs = words().map(str::to_owned).collect();
                self.nvtx.replace(globs).is_some()
            }
            WishKey::Stream => {
                let streams = words().map(str::parse).collect::<Result<_, _>>();
                let allowed = "streams, joined by `+`: `default`, `per-thread`, `other`, a number from 1, or a glob over names; or `all` alone";
                let streams = streams.map_err(|_| wrong(allowed))?;
                self.streams.replace(streams).is_some()
            }
        };
        match was_said {
            false => Ok(()),
            true => Err(WishError::Twice {
                key: key.word(),
                advice: key.advice(),
            }),
        }
    }
}

impl FromStr for Wish {
    type Err = WishError;

    /// `key=value,…`
    fn from_str(text: &str) -> Result<Wish, WishError> {
        let mut wish = Wish::default();
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(|| WishError::Shape {
                part: part.to_owned(),
            })?;
            let key = WishKey::of(key).ok_or_else(|| WishError::Key {
                key: key.to_owned(),
            })?;
            wish.set(key, value)?;
        }
        Ok(wish)
    }
}

impl fmt::Display for WishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WishError::Key { key } => {
                write!(f, "there is no key `{key}`; keys are ")?;
                for (at, key) in WishKey::ALL.into_iter().enumerate() {
                    let between = match at {
                        0 => "",
                        _ if at + 1 == WishKey::ALL.len() => " and ",
                        _ => ", ",
                    };
                    write!(f, "{between}`{}`", key.word())?;
                }
                Ok(())
            }
            WishError::Shape { part } => {
                write!(f, "`{part}` is not `key=value`, for example `every=10`")
            }
            WishError::Value {
                key,
                value,
                allowed,
            } => write!(f, "`{key}` cannot be `{value}`; it is {allowed}"),
            WishError::Twice { key, advice } => write!(f, "`{key}` is given twice; {advice}"),
        }
    }
}

impl core::error::Error for WishError {}

/// As a [`Wish`] is written; `all launches` if nothing is left out.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("all launches");
        }
        let said = |number: u64, least| (number > least).then(|| number.to_string());
        let joined = |words: Vec<String>| (!words.is_empty()).then(|| words.join("+"));
        let text = |number: &u64| number.to_string();
        let parts = [
            (WishKey::Every, said(self.every, 1)),
            (WishKey::After, said(self.after, 0)),
            (WishKey::AtMost, self.at_most.as_ref().map(text)),
            (WishKey::MinBlocks, said(self.min_blocks, 0)),
            (WishKey::MaxBlocks, self.max_blocks.as_ref().map(text)),
            (
                WishKey::Gpus,
                joined(self.gpus.iter().map(u32::to_string).collect()),
            ),
            (WishKey::Nvtx, joined(self.nvtx.clone())),
            (
                WishKey::Stream,
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

    fn wish(text: &str) -> Wish {
        text.parse().unwrap()
    }

    #[test]
    fn a_wish_is_read_and_goes_over_what_all_have() {
        let all = "every=3,after=2,at-most=9,min_blocks=1,max-blocks=64,gpus=0+2,nvtx=step/*+warm up,stream=default+3+cop*";
        let others = Choice {
            every: 7,
            gpus: vec![5],
            nvtx: vec!["epoch".into()],
            ..Choice::default()
        };
        let choice = wish(all).over(&others);
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
            Ok(wish(all)),
            "it is written as it is read"
        );
        assert_eq!(Wish::default().over(&others), others);
        let partly = wish("every=1").over(&others);
        assert_eq!((partly.every, partly.gpus), (0, vec![5]));
        assert!(wish("every=1").over(&Choice::default()).is_all());
        assert_eq!(
            wish("every=1").over(&Choice::default()).to_string(),
            "all launches"
        );
    }

    #[test]
    fn what_only_nvtx_knows() {
        let needs = |text: &str| {
            (
                wish(text).needs_nvtx(),
                wish(text).over(&Choice::default()).needs_nvtx(),
            )
        };
        assert_eq!(needs("nvtx=step"), (true, true));
        assert_eq!(needs("stream=copies"), (true, true));
        assert_eq!(needs("stream=default+2,every=3"), (false, false));
        let section_needs = |section: &str| Wish::of_section(section).needs_nvtx();
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
        let section = Wish::of_section("gpu/entry/*|every=3,nvtx=step,stream=2,gpus=0");
        let of = |said: &str| {
            let said = [
                ("other".to_string(), wish("after=7")),
                ("own".to_string(), wish(said)),
            ];
            all.of_program("own", &section, &said).to_string()
        };
        assert_eq!(of("every=2"), "every=2,gpus=0,nvtx=step,stream=2");
        assert_eq!(of("gpus=all"), "every=3,nvtx=step,stream=2");
        assert_eq!(of("nvtx=all"), "every=3,gpus=0,stream=2");
        assert_eq!(of("stream=all,every=1,nvtx=all,gpus=all"), "all launches");
        assert_eq!(
            all.of_program("another", &Wish::default(), &[]).to_string(),
            "gpus=1"
        );
    }

    #[test]
    fn what_is_said_twice_of_a_program_is_found() {
        let said = |all: &[(&str, &str)]| -> Vec<(String, Wish)> {
            let all = all
                .iter()
                .map(|(name, text)| (name.to_string(), wish(text)));
            all.collect()
        };
        let all = said(&[
            ("a", "every=2"),
            ("b", "every=3"),
            ("a", "after=1,gpus=all"),
        ]);
        assert_eq!(Wish::said_twice(&all), None);
        let all = said(&[("a", "every=2"), ("b", "gpus=1"), ("b", "after=1,gpus=all")]);
        assert_eq!(Wish::said_twice(&all), Some(("b", WishKey::Gpus)));
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
        let said = |text: &str| text.parse::<Wish>().unwrap_err().to_string();
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
