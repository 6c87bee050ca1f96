//! Flags by which a user leaves launches out.

use clap::Args;
use warpbpf_session::PlannedProgram;

use crate::term::error::CliError;
use warpbpf_tool::{Choice, ChoiceError, ChoiceRequest, Options, StreamPick, Tool};

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
    /// Probes only in launches inside of NVTX ranges whose path, as `step/forward`, one of these
    /// globs names
    #[arg(long, value_name = "GLOB")]
    pub nvtx: Vec<String>,
    /// Probes only in launches in these streams: `default`, `per-thread`, `other`, a number in the
    /// order in which they are made (timelines show it), or a glob over names that NVTX gave
    #[arg(long = "stream", value_name = "STREAM", value_parser = <StreamPick as std::str::FromStr>::from_str)]
    pub streams: Vec<StreamPick>,
    /// Have the application's NVTX ranges and names known, though no program needs them yet:
    /// programs that a replacement brings may
    #[arg(long)]
    pub ranges: bool,
    /// Launches that one program is in, if not those of the others: keys and values as in sections,
    /// as `PROGRAM:every=10,at_most=3`. What is not said of it is as its section says, and else as
    /// the other flags do; `gpus=all`, `nvtx=all` and `stream=all` lift what those say
    #[arg(long, value_name = "PROGRAM:KEY=VALUE,…", value_parser = of_program)]
    pub choose: Vec<(String, ChoiceRequest)>,
    /// No more probes in a kernel that takes longer with them by more than this, as `5%`: some of
    /// its launches are measured, with probes and without
    #[arg(long, value_name = "PERCENT", value_parser = parts)]
    pub max_overhead: Option<u32>,
    /// Most memory of each device for maps, rings and launch records: bytes, or with `K`, `M` or
    /// `G`. What does not fit is refused
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_device_memory: Option<u64>,
}

/// A program's name, and what is said of it.
fn of_program(text: &str) -> Result<(String, ChoiceRequest), String> {
    let (program, request) = text
        .split_once(':')
        .filter(|(program, _)| !program.is_empty())
        .ok_or_else(|| {
            "write a program's name, `:` and what launches it is in, as `count:every=10`".to_owned()
        })?;
    let request = request
        .parse()
        .map_err(|error: ChoiceError| error.to_string())?;
    Ok((program.to_owned(), request))
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

impl ChoiceFlags {
    /// What is said of programs is said of some that run in kernels.
    ///
    /// # Errors
    /// There is none of that name, or one thing is said twice.
    pub fn check_programs(&self, programs: &[PlannedProgram]) -> Result<(), CliError> {
        if let Some((program, key)) = ChoiceRequest::said_twice(&self.choose) {
            let key = key.word();
            return Err(CliError::Other(format!(
                "`--choose` says `{key}` of program `{program}` twice; say it once"
            )));
        }
        let is_there = |name: &str| programs.iter().any(|program| program.name() == name);
        match self.choose.iter().find(|(name, _)| !is_there(name)) {
            None => Ok(()),
            Some((name, _)) => {
                let there: Vec<String> =
                    programs.iter().map(|p| format!("`{}`", p.name())).collect();
                Err(CliError::Other(format!(
                    "`--choose` names program `{name}`, and no program in kernels has that name; there is {}",
                    match there.is_empty() {
                        true => "none".to_owned(),
                        false => there.join(", "),
                    }
                )))
            }
        }
    }

    /// Nothing goes by what NVTX tells, which is not known of an application that runs already.
    ///
    /// # Errors
    /// What does.
    pub fn check_late(&self, tool: &Tool) -> Result<(), CliError> {
        let all = self.choice();
        let program = || {
            let mut programs = tool.choices();
            let (program, choice) = programs.find(|(_, choice)| choice.needs_nvtx())?;
            Some(format!("program `{program}` ({choice})"))
        };
        let who = if self.ranges {
            Some("`--ranges`".to_owned())
        } else if !all.nvtx.is_empty() {
            Some("`--nvtx`".to_owned())
        } else if all.needs_nvtx() {
            Some("`--stream` with a name".to_owned())
        } else {
            program()
        };
        match who {
            None => Ok(()),
            Some(who) => Err(CliError::Other(format!(
                "{who} needs an application that is started with it, by `warpbpf run` or with what `warpbpf serve` says: one that runs already has decided who gets its NVTX calls"
            ))),
        }
    }

    /// `options` with what they choose.
    pub fn chosen(&self, options: Options) -> Options {
        Options {
            choice: self.choice(),
            choose: self.choose.clone(),
            ranges: self.ranges,
            max_overhead_ppm: self.max_overhead,
            max_device_memory: self.max_device_memory,
            ..options
        }
    }

    /// As the agent takes them.
    fn choice(&self) -> Choice {
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
    use super::{of_program, parts, size};

    #[test]
    fn programs_have_launches_of_their_own() {
        let (program, request) = of_program("count:every=3,at-most=2").unwrap();
        assert_eq!(
            (&*program, request.every, request.at_most),
            ("count", Some(3), Some(2))
        );
        let (_, request) = of_program("count:nvtx=a::b").unwrap();
        assert_eq!(request.nvtx, Some(vec!["a::b".to_owned()]));
        for (wrong, said) in [
            ("every=3", "write a program's name"),
            (":every=3", "write a program's name"),
            ("count:", "`` is not `key=value`"),
            ("count:often=3", "there is no key `often`"),
            ("count:every=0", "`every` cannot be `0`"),
        ] {
            let error = of_program(wrong).unwrap_err();
            assert!(error.starts_with(said), "{wrong}: {error}");
        }
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
