//! What is kept of a target between runs: inputs, each under a hash of its bytes, and how far the
//! mutants have come.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How far a target has come.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    /// Index of the next mutant.
    pub(crate) next: u64,
    /// CPU time of all runs.
    pub(crate) spent: Duration,
}

impl State {
    fn text(self) -> String {
        format!("next {}\nspent-ms {}\n", self.next, self.spent.as_millis())
    }

    fn of(text: &str) -> State {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
        };
        State {
            next: field("next "),
            spent: Duration::from_millis(field("spent-ms ")),
        }
    }
}

/// The folder of a target.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes it.
    pub(crate) fn open(all: &Path, target: &str) -> io::Result<Folder> {
        let folder = all.join(target);
        fs::create_dir_all(folder.join("corpus"))?;
        Ok(Folder(folder))
    }

    pub(crate) fn state(&self) -> State {
        let text = fs::read_to_string(self.0.join("state"));
        State::of(&text.unwrap_or_default())
    }

    /// A run that is ended meanwhile leaves the state of before.
    pub(crate) fn keep_state(&self, state: State) -> io::Result<()> {
        let beside = self.0.join("state.new");
        fs::write(&beside, state.text())?;
        fs::rename(beside, self.0.join("state"))
    }

    pub(crate) fn inputs(&self) -> Vec<Vec<u8>> {
        inputs(&self.0.join("corpus"))
    }

    pub(crate) fn keep(&self, input: &[u8]) -> io::Result<()> {
        let name = format!("{:016x}", hash(input));
        fs::write(self.0.join("corpus").join(name), input)
    }
}

/// All files of a folder, in the order of their names; none if it is not there.
pub(crate) fn inputs(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(there) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = there.flatten().map(|file| file.path()).collect();
    paths.sort();
    paths
        .iter()
        .filter_map(|path| fs::read(path).ok())
        .collect()
}

/// FNV-1a.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_where_the_last_one_ended() {
        let all = std::env::temp_dir().join(format!("warpbpf-fuzz-{}", std::process::id()));
        let folder = Folder::open(&all, "any").unwrap();
        assert_eq!(
            (folder.state(), folder.inputs()),
            (State::default(), vec![])
        );
        let state = State {
            next: 12,
            spent: Duration::from_millis(3456),
        };
        folder.keep_state(state).unwrap();
        folder.keep(b"one").unwrap();
        folder.keep(b"one").unwrap();
        let again = Folder::open(&all, "any").unwrap();
        assert_eq!(
            (again.state(), again.inputs()),
            (state, vec![b"one".to_vec()])
        );
        fs::remove_dir_all(all).unwrap();
    }
}
