//! Where programs on the CPU are: at functions of files, known by their offset, or at functions of
//! the driver API, known by name.

use warpbpf_abi::cuda::{self, Api};
use wildmatch::WildMatch;

use super::error::CpuError;

/// Functions that a program is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPlace {
    /// One function of the application or a library.
    Function {
        /// File that it is in.
        path: String,
        /// Offset of its first instruction in the file.
        offset: u64,
    },
    /// Functions of the driver API, in all of their versions.
    Api {
        /// As the section says it.
        pattern: String,
        /// Their numbers (`cuda::apis`).
        numbers: Vec<usize>,
    },
}

impl HostPlace {
    /// For messages.
    pub fn text(&self) -> String {
        match self {
            HostPlace::Function { path, offset } => format!("{path}+{offset:#x}"),
            HostPlace::Api { pattern, .. } => pattern.clone(),
        }
    }
}

/// Section of a program for a function of the application.
pub fn section(path: &str, offset: u64, at_end: bool) -> String {
    let head = if at_end { "uretprobe" } else { "uprobe" };
    format!("{head}/{path}+{offset:#x}")
}

/// The section is of a program on the CPU.
pub fn is_on_cpu(section: &str) -> bool {
    !matches!(parse("", section), Ok(None))
}

/// Reads a section; `None` if it is not of a program on the CPU. True: at the function's end.
///
/// # Errors
/// [`CpuError::Api`]: there is no such function.
pub(super) fn parse(program: &str, section: &str) -> Result<Option<(HostPlace, bool)>, CpuError> {
    let Some((head, rest)) = section.split_once('/') else {
        return Ok(None);
    };
    Ok(match head {
        "uprobe" => function(rest).map(|place| (place, false)),
        "uretprobe" => function(rest).map(|place| (place, true)),
        "cuda" => Some((api(program, section, rest)?, false)),
        "cudaret" => Some((api(program, section, rest)?, true)),
        _ => None,
    })
}

/// What [`section`] has made.
fn function(text: &str) -> Option<HostPlace> {
    let (path, offset) = text.rsplit_once("+0x")?;
    Some(HostPlace::Function {
        path: path.to_owned(),
        offset: u64::from_str_radix(offset, 16).ok()?,
    })
}

fn api(program: &str, section: &str, pattern: &str) -> Result<HostPlace, CpuError> {
    let glob = WildMatch::new(pattern);
    let named = |(_, api): &(usize, Api)| glob.matches(api.name);
    let numbers: Vec<usize> = (cuda::apis().into_iter().enumerate())
        .filter(named)
        .map(|(number, _)| number)
        .collect();
    if numbers.is_empty() {
        let nearest = match cuda::is_glob(pattern) || pattern.is_empty() {
            true => Vec::new(),
            false => cuda::nearest(pattern),
        };
        return Err(CpuError::Api {
            program: program.to_owned(),
            section: section.to_owned(),
            nearest,
        });
    }
    Ok(HostPlace::Api {
        pattern: pattern.to_owned(),
        numbers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_functions() {
        let made = section("/lib/a+0x1.so", 0x40, true);
        let (place, at_end) = parse("p", &made).unwrap().unwrap();
        assert!(at_end);
        assert_eq!(place.text(), "/lib/a+0x1.so+0x40");
        for other in ["uprobe//bin/app:main", "gpu/entry/*", "uprobe", "kprobe/x"] {
            assert_eq!(parse("p", other), Ok(None), "{other}");
        }
    }

    #[test]
    fn who_runs_on_the_cpu_is_told_by_the_section() {
        let all = [
            section("/lib/a.so", 0x40, false),
            "cuda/cuLaunchKernel".into(),
            "cuda/none".into(),
        ];
        assert!(all.iter().all(|section| is_on_cpu(section)));
        for section in [
            "gpu/entry/k",
            "kprobe/__directly_run",
            "uprobe/nothing",
            "none",
        ] {
            assert!(!is_on_cpu(section), "{section}");
        }
    }

    #[test]
    fn sections_of_the_driver_api() {
        let names = |section: &str| -> Vec<&'static str> {
            let all = cuda::apis();
            match parse("p", section).unwrap().unwrap() {
                (HostPlace::Api { numbers, .. }, false) => {
                    numbers.iter().map(|number| all[*number].name).collect()
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(names("cuda/cuMemcpyHtoDAsync"), ["cuMemcpyHtoDAsync"]);
        let globbed = names("cuda/cuMemcpyHtoD*");
        assert_eq!(globbed, ["cuMemcpyHtoD", "cuMemcpyHtoDAsync"]);
        assert_eq!(names("cuda/*").len(), cuda::apis().len());
        let (_, at_end) = parse("p", "cudaret/cuCtxSynchronize").unwrap().unwrap();
        assert!(at_end);
    }

    #[test]
    fn what_there_is_not_is_answered_with_what_there_is() {
        let told = |section: &str| parse("count", section).unwrap_err().to_string();
        assert_eq!(
            told("cuda/cuMemCpyHtoDasync"),
            "`count`: the driver API has no function that section `cuda/cuMemCpyHtoDasync` names; it has `cuMemcpyHtoDAsync`, `cuMemcpyDtoDAsync` and `cuMemcpyHtoAAsync`"
        );
        assert_eq!(
            told("cudaret/cudaMalloc*"),
            "`count`: the driver API has no function that section `cudaret/cudaMalloc*` names; write a name of `cuda.h` without its version, or a glob such as `cuMemcpy*`"
        );
    }
}
