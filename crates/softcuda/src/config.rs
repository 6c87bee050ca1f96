//! What the environment says about the soft GPU.

/// Settings, read once in `cuInit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// Multiprocessors of each device: there are as many devices.
    pub sms: Vec<u32>,
    pub seed: Option<u64>,
    pub memory: u64,
    pub background: bool,
    pub threads: usize,
    pub registers: Option<u32>,
}

/// The newest PTX text that this driver compiles, `WARPBPF_SOFT_PTX=8.0`: to try what happens where
/// a driver is older than an application's compiler. PTX in a fatbin is not held to it, since there
/// it stands for machine code.
pub(crate) fn newest_ptx_text() -> Option<(u32, u32)> {
    static NEWEST: std::sync::OnceLock<Option<(u32, u32)>> = std::sync::OnceLock::new();
    *NEWEST.get_or_init(|| {
        let text = std::env::var("WARPBPF_SOFT_PTX").ok()?;
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    })
}

/// The version that this driver says to be, `WARPBPF_SOFT_DRIVER=13010`: to try what happens when
/// another one is installed.
pub(crate) fn said_version() -> Option<i32> {
    std::env::var("WARPBPF_SOFT_DRIVER").ok()?.parse().ok()
}

const DEFAULT_SMS: u32 = 4;
/// More would not fit into the addresses that are free.
const MOST_DEVICES: u64 = 16;
const DEFAULT_MEMORY: u64 = 2 << 30;
const MOST_MEMORY: u64 = 1 << 40;

impl Config {
    /// From the process's environment; what cannot be understood is said on stderr and left at its
    /// default.
    pub(crate) fn from_environment() -> Config {
        let mut complaints = Vec::new();
        let config = Config::from_variables(|name| std::env::var(name).ok(), &mut complaints);
        for complaint in complaints {
            crate::say::say(&complaint);
        }
        config
    }

    fn from_variables(
        get: impl Fn(&str) -> Option<String>,
        complaints: &mut Vec<String>,
    ) -> Config {
        let mut checked = |name: &str, text: &str, least: u64, most: u64, default: u64| {
            let number = parse(text).filter(|n| (least..=most).contains(n));
            number.unwrap_or_else(|| {
                complaints.push(format!(
                    "{name}=`{text}` is not a number in {least}..{most}; using {default}"
                ));
                default
            })
        };
        // One number for all devices, or one for each; the last one is for the rest.
        let mut sms: Vec<u32> = get("WARPBPF_SOFT_SMS").map_or(vec![DEFAULT_SMS], |text| {
            let default = u64::from(DEFAULT_SMS);
            let each = text.split(',');
            each.map(|text| checked("WARPBPF_SOFT_SMS", text, 1, 1024, default) as u32)
                .collect()
        });
        let mut number = |name: &str, least: u64, most: u64, default: u64| {
            get(name).map_or(default, |text| checked(name, &text, least, most, default))
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let devices = number("WARPBPF_SOFT_DEVICES", 1, MOST_DEVICES, 1);
        let last = sms.last().copied().unwrap_or(DEFAULT_SMS);
        sms.resize(devices as usize, last);
        let memory = number("WARPBPF_SOFT_MEMORY", 1 << 20, MOST_MEMORY, DEFAULT_MEMORY);
        let threads = number(
            "WARPBPF_SOFT_THREADS",
            1,
            1024,
            cores.min(u64::from(sms[0])),
        );
        let background = number("WARPBPF_SOFT_ASYNC", 0, 1, 0) == 1;
        let seed = number("WARPBPF_SOFT_SEED", 0, u64::MAX, 0);
        let bound = u64::from(u32::MAX);
        let registers = number("WARPBPF_SOFT_REGISTERS", 256, bound, bound);
        Config {
            sms,
            seed: get("WARPBPF_SOFT_SEED").map(|_| seed),
            memory,
            background,
            threads: threads as usize,
            registers: (registers < bound).then_some(registers as u32),
        }
    }

    /// Of the device of this ordinal.
    pub(crate) fn device(&self, ordinal: usize) -> warpbpf_softgpu::Config {
        warpbpf_softgpu::Config {
            sms: self.sms[ordinal],
            threads: self.threads,
            seed: self.seed,
            memory: self.memory,
            start: warpbpf_softgpu::ARENA_BASE + ordinal as u64 * MOST_MEMORY,
            step_limit: None,
            clock: host_clock,
            registers: self.registers,
        }
    }
}

/// The time of day in nanoseconds, which is what `%globaltimer` of a GPU counts, too.
fn host_clock() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is writable; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A number, with `K`, `M` or `G` for powers of 1024.
fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, factor) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        _ => (text, 1u64),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Config, Vec<String>) {
        let mut complaints = Vec::new();
        let get = |name: &str| {
            variables
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, value)| (*value).to_owned())
        };
        let config = Config::from_variables(get, &mut complaints);
        (config, complaints)
    }

    #[test]
    fn numbers_are_read() {
        let (config, complaints) = read(&[
            ("WARPBPF_SOFT_SMS", "16"),
            ("WARPBPF_SOFT_MEMORY", "64M"),
            ("WARPBPF_SOFT_SEED", "0"),
            ("WARPBPF_SOFT_ASYNC", "1"),
            ("WARPBPF_SOFT_THREADS", "3"),
            ("WARPBPF_SOFT_REGISTERS", "64K"),
        ]);
        let expected = Config {
            sms: vec![16],
            seed: Some(0),
            memory: 64 << 20,
            background: true,
            threads: 3,
            registers: Some(64 << 10),
        };
        assert_eq!((config, complaints), (expected, vec![]));
    }

    #[test]
    fn devices_may_differ_in_size() {
        let of = |variables: &[(&str, &str)]| read(variables).0.sms;
        assert_eq!(of(&[("WARPBPF_SOFT_DEVICES", "2")]), [4, 4]);
        let two = ("WARPBPF_SOFT_DEVICES", "2");
        assert_eq!(of(&[two, ("WARPBPF_SOFT_SMS", "3")]), [3, 3]);
        assert_eq!(of(&[two, ("WARPBPF_SOFT_SMS", "3,5")]), [3, 5]);
        assert_eq!(of(&[("WARPBPF_SOFT_SMS", "3,5")]), [3]);
        let config = read(&[two]).0;
        let (first, second) = (config.device(0), config.device(1));
        assert!(first.start + first.memory <= second.start);
        let (config, complaints) = read(&[("WARPBPF_SOFT_DEVICES", "17")]);
        assert_eq!(config.sms, [4]);
        assert_eq!(
            complaints,
            ["WARPBPF_SOFT_DEVICES=`17` is not a number in 1..16; using 1"]
        );
    }

    #[test]
    fn nonsense_is_named_and_left() {
        let (config, complaints) =
            read(&[("WARPBPF_SOFT_SMS", "0"), ("WARPBPF_SOFT_MEMORY", "lots")]);
        assert_eq!(
            (config.sms, config.memory, config.seed),
            (vec![DEFAULT_SMS], DEFAULT_MEMORY, None)
        );
        assert_eq!(
            complaints,
            [
                "WARPBPF_SOFT_SMS=`0` is not a number in 1..1024; using 4",
                "WARPBPF_SOFT_MEMORY=`lots` is not a number in 1048576..1099511627776; using 2147483648"
            ]
        );
    }
}
