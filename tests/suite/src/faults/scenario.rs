//! What runs while something fails: each path through the agent is in one of these.

/// An application with programs in it.
#[derive(Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub object: &'static str,
    pub app: &'static str,
    pub arguments: &'static [&'static str],
    /// For `warpbpf run`.
    pub flags: &'static [&'static str],
    /// For all that runs on the soft GPU.
    pub variables: &'static [(&'static str, &'static str)],
    pub counts: Counts,
    pub how: How,
    /// Compiled code is kept, and some of it is there already.
    pub keeps: bool,
    /// It is in the small set.
    pub is_quick: bool,
    /// On a GPU, where the application goes on meanwhile, launches fall back without a fault, too:
    /// how many is chance.
    pub falls_back: bool,
}

/// What is counted on the device, and has to agree with the launches that the agent says had
/// probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// `launchcount`: launches by kernel.
    Launches,
    /// `scopes`: threads, warps and blocks; each kernel is launched in one shape only, but for
    /// those named.
    Scopes(&'static [&'static str]),
    /// `replace`: launches by version, at their start and at their end.
    Versions,
    /// Records of this map, one for each thread.
    Events(&'static str),
    /// The report alone is looked at.
    Report,
}

/// How the programs come into the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It is started with them.
    Run,
    /// The same, and the tool asks for operations on this map meanwhile.
    Operations,
    /// The same, and the tool puts other programs into slots meanwhile.
    Slots,
    /// The same, and the tool replaces the programs meanwhile.
    Replace,
    /// They come while it runs, and go again.
    Attach,
}

const PLAIN: Scenario = Scenario {
    name: "",
    object: "scopes",
    app: "vectoradd",
    arguments: &[],
    flags: &[],
    variables: &[],
    counts: Counts::Report,
    how: How::Run,
    keeps: false,
    is_quick: false,
    falls_back: false,
};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "simple",
        arguments: &["1000", "4"],
        counts: Counts::Scopes(&[]),
        is_quick: true,
        ..PLAIN
    },
    // Clones, a library, device variables, attributes.
    Scenario {
        name: "variants",
        app: "variants",
        counts: Counts::Scopes(&["addToGlobal"]),
        is_quick: true,
        ..PLAIN
    },
    // Programs on the CPU, at calls of the driver.
    Scenario {
        name: "calls",
        object: "driverapi",
        app: "driverapi",
        arguments: &["2", "2"],
        ..PLAIN
    },
    // Code from the cache and code that goes there, in a cache that is too small.
    Scenario {
        name: "cache",
        app: "variants",
        counts: Counts::Scopes(&["addToGlobal"]),
        keeps: true,
        is_quick: true,
        ..PLAIN
    },
    Scenario {
        name: "graphs",
        object: "launchcount",
        app: "graphs",
        counts: Counts::Launches,
        is_quick: true,
        ..PLAIN
    },
    Scenario {
        name: "rings",
        object: "kernelretsnoop",
        arguments: &["1000", "3"],
        flags: &["--events", "5000"],
        counts: Counts::Events("events"),
        is_quick: true,
        ..PLAIN
    },
    // A text that the driver links.
    Scenario {
        name: "linked",
        object: "launchcount",
        app: "linked",
        arguments: &["data", "5"],
        counts: Counts::Launches,
        ..PLAIN
    },
    // A hash that is compacted between launches.
    Scenario {
        name: "hash",
        object: "churn",
        app: "rounds",
        arguments: &["40", "20"],
        flags: &["--budget", "20000"],
        falls_back: true,
        ..PLAIN
    },
    Scenario {
        name: "fenced",
        object: "fenced",
        app: "fenced",
        flags: &["--budget", "2048"],
        ..PLAIN
    },
    Scenario {
        name: "devices",
        object: "twogpus",
        app: "twogpus",
        arguments: &["2"],
        variables: &[("WARPBPF_SOFT_DEVICES", "2"), ("WARPBPF_SOFT_SMS", "4")],
        counts: Counts::Report,
        ..PLAIN
    },
    Scenario {
        name: "host-maps",
        object: "maps_host",
        arguments: &["1000", "3"],
        flags: &[
            "--budget",
            "8192",
            "--map-memory",
            "asked=host",
            "--map-memory",
            "pairs=host",
            "--map-memory",
            "counts=host",
            "--hostcall-timeout",
            "20",
        ],
        ..PLAIN
    },
    Scenario {
        name: "tensors",
        object: "sites_mem",
        app: "tensors",
        ..PLAIN
    },
    Scenario {
        name: "operations",
        object: "longrun",
        app: "longrun",
        arguments: &["700"],
        flags: &[
            "--allow-modify",
            "--budget",
            "20000",
            "--live-sums",
            "--host-ops",
        ],
        how: How::Operations,
        ..PLAIN
    },
    // Operations, their stacks and ranges.
    Scenario {
        name: "timeline",
        object: "launchcount",
        app: "ranges",
        flags: &["--timeline", "/dev/null", "--stacks"],
        ..PLAIN
    },
    // Kernels that ask before each program.
    Scenario {
        name: "gate",
        arguments: &["1000", "4"],
        flags: &["--gate"],
        counts: Counts::Scopes(&[]),
        ..PLAIN
    },
    Scenario {
        name: "slots",
        object: "gate",
        app: "longrun",
        arguments: &["1200"],
        flags: &["--allow-modify", "--slots"],
        how: How::Slots,
        ..PLAIN
    },
    Scenario {
        name: "replace",
        object: "replace",
        app: "rounds",
        arguments: &["60", "20"],
        counts: Counts::Versions,
        how: How::Replace,
        ..PLAIN
    },
    Scenario {
        name: "attach",
        app: "live",
        how: How::Attach,
        ..PLAIN
    },
];
