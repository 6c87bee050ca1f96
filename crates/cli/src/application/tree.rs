//! Which processes an attach is for, and which of them are new since it was last looked.

use std::collections::HashSet;

use warpbpf_tool::live::{CudaProcess, Lookout};

use crate::flags::AttachFlags;
use crate::term::error::CliError;
use crate::term::signals::Interrupted;

/// Whom programs are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// One process.
    One(u32),
    /// It and its descendants.
    Tree(u32),
    /// Processes of a user.
    User(u32),
    /// All that may be attached to.
    All,
}

impl Whom {
    /// As flags say.
    ///
    /// # Errors
    /// There is no such user.
    pub fn of(flags: &AttachFlags) -> Result<Whom, CliError> {
        match (flags.whom.pid, &flags.whom.user) {
            (Some(pid), _) if flags.children => Ok(Whom::Tree(pid)),
            (Some(pid), _) => Ok(Whom::One(pid)),
            (None, Some(name)) => {
                let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
                user(&users, name)
                    .map(Whom::User)
                    .ok_or_else(|| CliError::Other(format!("there is no user `{name}`")))
            }
            (None, None) => Ok(Whom::All),
        }
    }

    /// Others may come.
    pub fn grows(self) -> bool {
        !matches!(self, Whom::One(_))
    }

    /// The process without which there is nothing more to come.
    pub fn root(self) -> Option<u32> {
        match self {
            Whom::One(pid) | Whom::Tree(pid) => Some(pid),
            Whom::User(_) | Whom::All => None,
        }
    }
}

/// A user's number, by name or number.
fn user(users: &str, name: &str) -> Option<u32> {
    let by_name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    });
    by_name.or_else(|| name.parse().ok())
}

/// What is looked at, and what was seen of it already.
#[derive(Debug)]
pub struct Watch {
    whom: Whom,
    /// Handed out, by number and time of start: numbers are used again.
    seen: HashSet<(u32, u64)>,
    /// Left alone so far, which was told.
    told: HashSet<(u32, u64)>,
    lookout: Lookout,
}

impl Watch {
    /// Nothing was seen yet.
    pub fn new(whom: Whom) -> Watch {
        Watch {
            whom,
            seen: HashSet::new(),
            told: HashSet::new(),
            lookout: Lookout::default(),
        }
    }

    /// Processes that are wanted and were not told before, with reasons for those that are left
    /// alone.
    pub fn news(&mut self) -> Vec<Result<u32, String>> {
        let whom = self.whom;
        let mut news = Vec::new();
        for process in self.lookout.processes(&|| !Interrupted::was()) {
            let wanted = match whom {
                Whom::One(pid) => process.pid == pid,
                Whom::Tree(root) => is_below(process.pid, root, parent),
                Whom::User(user) => process.user == Some(user),
                Whom::All => true,
            };
            let id = (process.pid, process.started);
            // The agent that another tool put there serves that one.
            if !wanted || process.tool.is_some() || self.seen.contains(&id) {
                continue;
            }
            match left_alone(&process) {
                None => {
                    self.seen.insert(id);
                    news.push(Ok(process.pid));
                }
                // It may be otherwise the next time.
                Some(reason) if self.told.insert(id) => news.push(Err(reason)),
                Some(_) => {}
            }
        }
        news
    }
}

/// Why a process is not attached to.
fn left_alone(process: &CudaProcess) -> Option<String> {
    if let Some(obstacle) = &process.obstacle {
        return Some(obstacle.clone());
    }
    process.forked.then(|| {
        format!(
            "process {} was forked by a process with CUDA and has not started CUDA itself (a data loader?): it is left alone",
            process.pid
        )
    })
}

/// A process is `root` or one of its descendants.
fn is_below(pid: u32, root: u32, parent: impl Fn(u32) -> Option<u32>) -> bool {
    let mut at = Some(pid);
    // No tree is deeper; a number that is used again meanwhile could make a ring.
    for _ in 0..1000 {
        match at {
            Some(pid) if pid == root => return true,
            Some(pid) if pid > 1 => at = parent(pid),
            _ => return false,
        }
    }
    false
}

fn parent(pid: u32) -> Option<u32> {
    warpbpf_tool::live::parent(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_all_below_its_root() {
        let parent = |pid| match pid {
            7 => Some(5),
            5 => Some(3),
            3 => Some(1),
            9 => Some(1),
            // A number that was used again.
            20 => Some(21),
            21 => Some(20),
            _ => None,
        };
        let below = |pid, root| is_below(pid, root, parent);
        assert!(below(7, 3) && below(3, 3) && below(5, 3) && below(9, 1));
        assert!(!below(9, 3) && !below(3, 7) && !below(20, 3) && !below(100, 3));
    }

    #[test]
    fn users_have_names_and_numbers() {
        let users = "root:x:0:0:root:/root:/bin/sh\nana:x:1000:100::/home/ana:/bin/sh\n";
        assert_eq!(user(users, "ana"), Some(1000));
        assert_eq!(user(users, "1234"), Some(1234));
        assert_eq!(user(users, "an"), None);
    }

    #[test]
    fn what_has_only_been_forked_is_left_alone() {
        let process = CudaProcess {
            pid: 70,
            inner_pid: None,
            command: vec!["python".into()],
            has_device: true,
            has_agent: false,
            tool: None,
            obstacle: None,
            user: Some(0),
            started: 1,
            forked: true,
        };
        let reason = left_alone(&process).unwrap();
        assert!(
            reason.starts_with("process 70 was forked by a process with CUDA"),
            "{reason}"
        );
        let stopped = CudaProcess {
            obstacle: Some("it is stopped".into()),
            ..process.clone()
        };
        assert_eq!(left_alone(&stopped).unwrap(), "it is stopped");
        assert_eq!(
            left_alone(&CudaProcess {
                forked: false,
                ..process
            }),
            None
        );
    }
}
