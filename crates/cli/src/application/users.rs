//! Applications that give up this command's user before they load CUDA code, as entry points of
//! containers do: their agents may not reach its socket, and can tell nobody.

use std::collections::VecDeque;

/// Most processes that are looked at in one go.
const MOST: usize = 256;

/// Users that the application's processes have had.
pub struct Users {
    own: u32,
    other: Option<u32>,
}

impl Users {
    /// None yet.
    pub fn new() -> Users {
        Users {
            own: rustix::process::geteuid().as_raw(),
            other: None,
        }
    }

    /// Looks at the application's process, which was not waited for, and at what it has started.
    pub fn look(&mut self, root: u32) {
        let mut left = VecDeque::from([root]);
        for _ in 0..MOST {
            let (None, Some(pid)) = (self.other, left.pop_front()) else {
                return;
            };
            // A process may call itself what it likes, in any bytes.
            let status = warpbpf_inject::text(format!("/proc/{pid}/status"));
            self.other = effective(&status.unwrap_or_default()).filter(|user| *user != self.own);
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let children = children.unwrap_or_default();
            left.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
    }

    /// Why nobody came, if that is the reason.
    pub fn reason(&self, program: &str) -> Option<String> {
        let (own, other) = (self.own, self.other?);
        Some(format!(
            "`{program}` goes on as user {other}, and this command is of user {own}: its socket is for user {own} alone, so the agent has no permission to \
             connect; start the command as user {other}, behind what changes the user (`setpriv … warpbpf run …`)"
        ))
    }
}

/// The user by whom Linux decides what a process may do.
fn effective(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_is_not_ours_is_the_reason() {
        assert_eq!(
            effective("Name:\tx\nUid:\t5\t65534\t7\t8\nGid:\t1"),
            Some(65534)
        );
        assert_eq!(effective(""), None);
        let own = std::process::id();
        let mut users = Users::new();
        users.look(own);
        assert_eq!(users.reason("app"), None);
        // As if this command were another user's.
        users.own += 1;
        users.look(own);
        let said = users.reason("app").unwrap_or_default();
        assert!(
            said.contains("the agent has no permission to connect"),
            "{said}"
        );
    }
}
