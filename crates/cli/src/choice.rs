//! Flags by which a user leaves launches out.

use clap::Args;
use warpbpf::{Choice, StreamPick};

/// Which launches get probes. Others run as they are, and are counted as skipped.
#[derive(Debug, Clone, Args)]
pub struct ChoiceFlags {
    /// Probes in one launch of N of each kernel: the first, and each Nth after it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub every: u64,
    /// No probes in the first N launches of each kernel
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub after: u64,
    /// Probes in at most N launches of each kernel
    #[arg(long, value_name = "N")]
    pub at_most: Option<u64>,
    /// Probes only in launches on these GPUs, by their numbers in the application
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub gpus: Vec<u32>,
    /// Probes only in grids of at least N blocks
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub min_blocks: u64,
    /// Probes only in grids of at most N blocks
    #[arg(long, value_name = "N")]
    pub max_blocks: Option<u64>,
    /// Probes only in launches inside of NVTX ranges whose path, as `step/forward`, one of these globs names
    #[arg(long, value_name = "GLOB")]
    pub nvtx: Vec<String>,
    /// Probes only in launches in these streams: `default`, `per-thread`, `other`, a number in the order in which they are made (timelines
    /// show it), or a glob over names that NVTX gave
    #[arg(long = "stream", value_name = "STREAM", value_parser = stream)]
    pub streams: Vec<StreamPick>,
    /// No more probes in a kernel that takes longer with them by more than this, as `5%`: some of its launches are measured, with
    /// probes and without
    #[arg(long, value_name = "PERCENT", value_parser = parts)]
    pub max_overhead: Option<u32>,
    /// Most memory of each device for maps, rings and launch records: bytes, or with `K`, `M` or `G`. What does not fit is refused
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_device_memory: Option<u64>,
}

/// A percentage in parts per million.
fn parts(text: &str) -> Result<u32, String> {
    let percent: f64 = text
        .trim_end_matches('%')
        .parse()
        .map_err(|_| "write a percentage, as `5%`".to_owned())?;
    match percent {
        0.01..=100_000.0 => Ok((percent * 1e4).round() as u32),
        _ => Err("a percentage lies between 0.01% and 100000%".to_owned()),
    }
}

/// A number of bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) if text.ends_with('K') => (digits, 1 << 10),
        Some(digits) if text.ends_with('M') => (digits, 1 << 20),
        Some(digits) => (digits, 1 << 30),
        None => (text, 1u64),
    };
    let number = digits.parse::<u64>().ok().filter(|number| *number > 0);
    number
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| "write a number of bytes, as `65536`, `512K`, `64M` or `2G`".to_owned())
}

/// Streams as people name them.
fn stream(text: &str) -> Result<StreamPick, String> {
    Ok(match text {
        "default" => StreamPick::Default,
        "per-thread" => StreamPick::PerThread,
        "other" => StreamPick::Other,
        "" => return Err("write `default`, `per-thread`, `other`, a number or a name".to_owned()),
        _ => match text.parse() {
            Ok(0) => {
                return Err("streams are numbered from 1; the default one is `default`".to_owned());
            }
            Ok(number) => StreamPick::Number(number),
            Err(_) => StreamPick::Named(text.to_owned()),
        },
    })
}

impl ChoiceFlags {
    /// As the agent takes them.
    pub fn choice(&self) -> Choice {
        Choice {
            // One of one is all.
            every: if self.every == 1 { 0 } else { self.every },
            after: self.after,
            at_most: self.at_most,
            gpus: self.gpus.clone(),
            min_blocks: self.min_blocks,
            max_blocks: self.max_blocks,
            nvtx: self.nvtx.clone(),
            streams: self.streams.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{StreamPick, parts, size, stream};

    #[test]
    fn streams_are_kinds_numbers_and_names() {
        assert_eq!(stream("default"), Ok(StreamPick::Default));
        assert_eq!(stream("per-thread"), Ok(StreamPick::PerThread));
        assert_eq!(stream("other"), Ok(StreamPick::Other));
        assert_eq!(stream("3"), Ok(StreamPick::Number(3)));
        assert_eq!(stream("copy*"), Ok(StreamPick::Named("copy*".into())));
        assert!(stream("0").unwrap_err().contains("`default`"));
        assert!(stream("").is_err());
    }

    #[test]
    fn sizes_and_percentages_are_read() {
        assert_eq!((parts("5%"), parts("0.5")), (Ok(50_000), Ok(5_000)));
        assert_eq!(
            (size("4096"), size("64M"), size("2G")),
            (Ok(4096), Ok(64 << 20), Ok(2 << 30))
        );
        for wrong in ["", "0%", "-1", "x%", "200000%"] {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "0", "-1", "1T", "99999999999G", "M"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
