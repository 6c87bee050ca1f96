//! Which passes of which sites are made to fail.

/// A site that was passed, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    pub name: String,
    pub passes: u64,
}

/// A fault as the agent reads it (`WARPBPF_FAULT`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub site: String,
    pub text: String,
}

impl Fault {
    pub fn new(text: &str) -> Fault {
        let site = text.rsplit_once(':').map_or(text, |(site, _)| site);
        Fault {
            site: site.to_owned(),
            text: text.to_owned(),
        }
    }

    /// The tool is killed, and nothing fails.
    pub fn kills(&self) -> bool {
        self.text.ends_with('!')
    }
}

/// What does not fail for good. If a driver does not undo what was done just before, nobody can do
/// anything about it; and no kernel interrupts a call for ever.
fn only_passes(site: &str) -> bool {
    site == "cuCtxPopCurrent_v2" || site.ends_with("-interrupted")
}

/// The sites of a log that the agent wrote: `PASSES FAULTS NAME` on each line.
pub fn sites(log: &str) -> Vec<Site> {
    let site = |line: &str| {
        let mut words = line.split_whitespace();
        let (passes, _, name) = (words.next()?, words.next()?, words.next()?);
        Some(Site {
            name: name.to_owned(),
            passes: passes.parse().ok()?,
        })
    };
    let mut all: Vec<Site> = log.lines().filter_map(site).collect();
    // Threads may reach sites in another order.
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// The fault that was to happen did, by such a log.
pub fn has_struck(log: &str, fault: &Fault) -> bool {
    log.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        matches!(words[..], [_, struck, name] if name == fault.site && struck != "0")
    })
}

/// For each site its first passes, one in the middle and the last one; all of them from the first
/// and from the middle on; and at some the tool's end.
pub fn faults(sites: &[Site]) -> Vec<Fault> {
    let mut all = Vec::new();
    for (number, site) in sites.iter().enumerate() {
        let Site { name, passes } = site;
        let middle = passes.div_ceil(2);
        let mut single = vec![1, 2.min(*passes), middle, *passes];
        single.dedup();
        single.sort_unstable();
        single.dedup();
        let mut texts: Vec<String> = single.iter().map(|n| format!("{name}:{n}")).collect();
        if !only_passes(name) {
            if *passes > 1 {
                texts.push(format!("{name}:1+"));
            }
            if middle > 2 {
                texts.push(format!("{name}:{middle}+"));
            }
        }
        // Each moment is one of some site: not all of them, as many are the same.
        match number % 3 {
            0 => texts.push(format!("{name}:1!")),
            1 => texts.push(format!("{name}:{middle}!")),
            _ => {}
        }
        all.extend(texts.iter().map(|text| Fault::new(text)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_and_faults_are_made_of_it() {
        let log =
            "           7            0 wire/poll\n           1            1 cuInit\n\nbroken\n";
        let sites = sites(log);
        assert_eq!(sites.len(), 2);
        assert_eq!((sites[1].name.as_str(), sites[1].passes), ("wire/poll", 7));
        assert!(has_struck(log, &Fault::new("cuInit:1")));
        assert!(!has_struck(log, &Fault::new("wire/poll:1")));
        let texts: Vec<String> = faults(&sites).into_iter().map(|fault| fault.text).collect();
        assert_eq!(
            texts,
            [
                "cuInit:1",
                "cuInit:1!",
                "wire/poll:1",
                "wire/poll:2",
                "wire/poll:4",
                "wire/poll:7",
                "wire/poll:1+",
                "wire/poll:4+",
                "wire/poll:4!"
            ]
        );
        let pop = Site {
            name: "cuCtxPopCurrent_v2".into(),
            passes: 9,
        };
        assert!(
            faults(&[pop])
                .iter()
                .all(|fault| !fault.text.ends_with('+'))
        );
    }
}
