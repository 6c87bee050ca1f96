//! What shall fail: `WARPBPF_FAULT=SITE:PASS`, the pass counted from 1; `SITE:PASS+` for that pass
//! and all behind it; `SITE:PASS!` kills the process `WARPBPF_FAULT_TOOL` there instead, and the
//! site goes on.

use std::sync::OnceLock;

use crate::count;

/// A fault.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    site: String,
    pass: u64,
    how: How,
}

#[derive(Debug, PartialEq, Eq)]
enum How {
    Once,
    FromThenOn,
    /// The tool with this process number ends.
    Kill,
}

/// Read once, by [`arm`], and never inside a site: a site may be in an allocator.
static PLAN: OnceLock<Vec<Fault>> = OnceLock::new();

/// Reads what shall fail and opens the log file. Only the first call has an effect.
pub(crate) fn arm() {
    let text = std::env::var("WARPBPF_FAULT").ok();
    if count::open() || text.is_some() {
        PLAN.get_or_init(|| parse(&text.unwrap_or_default()));
    }
}

/// There is a plan, be it an empty one.
pub(crate) fn armed() -> bool {
    PLAN.get().is_some()
}

/// Counts a pass. No lock is taken and nothing allocated, because a site may be in code that runs
/// inside the application's allocator.
pub(crate) fn pass(site: &'static str) -> bool {
    let Some(plan) = PLAN.get() else {
        return false;
    };
    let Some(row) = count::row(site) else {
        return false;
    };
    let number = row.pass();
    let mut struck = false;
    for fault in plan.iter().filter(|fault| fault.site == site) {
        match fault.how {
            How::Once => struck |= fault.pass == number,
            How::FromThenOn => struck |= fault.pass <= number,
            How::Kill if fault.pass == number => kill_the_tool(),
            How::Kill => continue,
        }
        if fault.how == How::Kill || struck {
            row.strike();
        }
    }
    row.write();
    struck
}

fn parse(text: &str) -> Vec<Fault> {
    let fault = |word: &str| {
        let (site, pass) = word.rsplit_once(':')?;
        let (pass, how) = match pass.strip_suffix('+') {
            Some(pass) => (pass, How::FromThenOn),
            None => match pass.strip_suffix('!') {
                Some(pass) => (pass, How::Kill),
                None => (pass, How::Once),
            },
        };
        Some(Fault {
            site: site.to_owned(),
            pass: pass.parse().ok()?,
            how,
        })
    };
    text.split(',').filter_map(fault).collect()
}

fn kill_the_tool() {
    let tool = std::env::var("WARPBPF_FAULT_TOOL").ok();
    if let Some(tool) = tool
        .and_then(|tool| tool.parse().ok())
        .filter(|tool| *tool > 1)
    {
        // SAFETY: plain numbers.
        unsafe { libc::kill(tool, libc::SIGKILL) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        let fault = |site: &str, pass, how| Fault {
            site: site.into(),
            pass,
            how,
        };
        assert_eq!(
            parse("wire/poll:3,cuMemAlloc_v2:1+,a:b:2!,,no pass,x:y"),
            [
                fault("wire/poll", 3, How::Once),
                fault("cuMemAlloc_v2", 1, How::FromThenOn),
                fault("a:b", 2, How::Kill)
            ]
        );
    }

    #[test]
    fn passes_fail_by_number() {
        // SAFETY: no other test reads or writes the environment.
        unsafe { std::env::set_var("WARPBPF_FAULT", "first:2,second:2+") };
        assert!(!armed() && !pass("second"), "not before it is armed");
        arm();
        assert!(armed());
        let passes = |site| [0; 4].map(|_| pass(site));
        assert_eq!(passes("first"), [false, true, false, false]);
        assert_eq!(passes("second"), [false, true, true, true]);
        assert_eq!(passes("third"), [false; 4]);
    }
}
