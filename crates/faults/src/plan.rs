//! What shall fail: `WARPBPF_FAULT=SITE:PASS`, the pass counted from 1; `SITE:PASS+` for that pass and all behind it;
//! `SITE:PASS!` kills the process `WARPBPF_FAULT_TOOL` there instead, and the site goes on.

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

/// Read before the first site and never again. It must not be read inside a site that is in an allocator: see [`pass`].
static PLAN: OnceLock<Vec<Fault>> = OnceLock::new();

/// Counts a pass. No lock is taken and nothing allocated but at the first pass of all, because a site may be in code that
/// runs inside the application's allocator.
pub(crate) fn pass(site: &'static str) -> bool {
    let plan = PLAN.get_or_init(|| {
        std::env::var("WARPBPF_FAULT").map_or_else(|_| Vec::new(), |text| parse(&text))
    });
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
        let passes = |site| [0; 4].map(|_| pass(site));
        assert_eq!(passes("first"), [false, true, false, false]);
        assert_eq!(passes("second"), [false, true, true, true]);
        assert_eq!(passes("third"), [false; 4]);
    }
}
