//! The functions of the driver API, each with all of its versions.

use alloc::vec::Vec;

use super::symbol::Kind;
use super::table::SYMBOLS;

/// A function of the driver API in all of its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    /// As people say it.
    pub name: &'static str,
    /// Arguments of the newest version, then those that only older ones have.
    pub args: Vec<(&'static str, Kind)>,
    /// Places of its symbols in [`SYMBOLS`], the newest version first.
    pub symbols: Vec<usize>,
}

/// All of them; the place of one is its number.
pub fn apis() -> Vec<Api> {
    let mut all: Vec<Api> = Vec::new();
    for (at, symbol) in SYMBOLS.iter().enumerate() {
        match all.iter_mut().find(|api| api.name == symbol.api()) {
            Some(api) => api.symbols.push(at),
            None => all.push(Api {
                name: symbol.api(),
                args: Vec::new(),
                symbols: [at].into(),
            }),
        }
    }
    for api in &mut all {
        api.symbols
            .sort_by_key(|at| core::cmp::Reverse(SYMBOLS[*at].version()));
        for (name, kind) in api.symbols.iter().flat_map(|at| SYMBOLS[*at].args) {
            if !api.args.iter().any(|(known, _)| known == name) {
                api.args.push((name, *kind));
            }
        }
    }
    all
}

/// Names that are most like one that there is not.
pub fn nearest(name: &str) -> Vec<&'static str> {
    let mut scored: Vec<(usize, &'static str)> = apis()
        .iter()
        .map(|api| {
            (
                distance(&name.to_lowercase(), &api.name.to_lowercase()),
                api.name,
            )
        })
        .collect();
    scored.sort_unstable();
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

/// How many letters must be put in, taken out or exchanged.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, have) in from.chars().enumerate() {
        let mut above_left = row[0];
        row[0] = line + 1;
        for (at, want) in to.iter().enumerate() {
            let exchanged = above_left + usize::from(have != *want);
            above_left = row[at + 1];
            row[at + 1] = exchanged.min(above_left + 1).min(row[at] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

/// It stands for any number of names, as `cuMemcpy*` does.
pub fn is_glob(name: &str) -> bool {
    name.contains(['*', '?'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::ARGS;

    fn api(name: &str) -> Api {
        apis().into_iter().find(|api| api.name == name).unwrap()
    }

    #[test]
    fn symbols_are_unique_and_arguments_fit() {
        let mut names: Vec<&str> = SYMBOLS.iter().map(|symbol| symbol.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for api in apis() {
            assert!(api.args.len() <= ARGS, "{}", api.name);
            assert!(api.name.starts_with("cu") && !is_glob(api.name));
        }
    }

    #[test]
    fn a_name_covers_its_versions() {
        let names = |of: &str| -> Vec<&str> {
            let symbols = api(of).symbols;
            symbols.iter().map(|at| SYMBOLS[*at].name).collect()
        };
        assert_eq!(
            names("cuMemcpyHtoDAsync"),
            ["cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync"]
        );
        assert_eq!(names("cuLaunchKernel"), ["cuLaunchKernel"]);
        assert_eq!(
            names("cuCtxCreate"),
            [
                "cuCtxCreate_v4",
                "cuCtxCreate_v3",
                "cuCtxCreate_v2",
                "cuCtxCreate"
            ]
        );
        let args: Vec<&str> = api("cuCtxCreate")
            .args
            .iter()
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(
            args,
            [
                "pctx",
                "ctxCreateParams",
                "flags",
                "dev",
                "paramsArray",
                "numParams"
            ]
        );
    }

    #[test]
    fn what_is_meant_is_found() {
        assert_eq!(nearest("cuMemCpyHtoDasync")[0], "cuMemcpyHtoDAsync");
        assert_eq!(nearest("cuLaunchKernels")[0], "cuLaunchKernel");
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
