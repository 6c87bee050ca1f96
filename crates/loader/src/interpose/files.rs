//! Files that libbpf reads to find out how to ask for probes. What they say here is what
//! [`crate::syscall::perf_event`] understands.

use std::path::Path;

use crate::objects::perf::ProbeTypes;

/// No event type of the kernel has these numbers: its own count up from 0.
pub const PROBE_TYPES: ProbeTypes = ProbeTypes {
    kprobe: 0x7762_0001,
    uprobe: 0x7762_0002,
};
/// Number of every tracepoint.
pub const TRACEPOINT: u64 = 0x7762_0003;

const TRACING: &[&str] = &["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// What a file says; `None` for those that are as they are. `linux` if programs may be given to
/// Linux.
pub fn contents(path: &str, cpus: u32, linux: bool) -> Option<String> {
    let devices = path.strip_prefix("/sys/bus/event_source/devices/");
    match devices {
        Some("kprobe/type") => return Some(format!("{}\n", PROBE_TYPES.kprobe)),
        Some("uprobe/type") => return Some(format!("{}\n", PROBE_TYPES.uprobe)),
        Some("kprobe/format/retprobe" | "uprobe/format/retprobe") => {
            return Some("config:0\n".to_owned());
        }
        Some("uprobe/format/ref_ctr_offset") => return Some("config:32-63\n".to_owned()),
        _ => {}
    }
    if path == "/sys/devices/system/cpu/possible" {
        return Some(format!("0-{}\n", cpus.saturating_sub(1)));
    }
    let event = TRACING.iter().find_map(|root| {
        let event = path.strip_prefix(root)?.strip_prefix("/events/")?;
        event.strip_suffix("/id").map(|_| *root)
    });
    // Where tracepoints can be seen, one that does not exist stays so; and if Linux takes programs,
    // they are attached there.
    let hidden = |root: &str| {
        !Path::new(root).join("events").is_dir() || (!linux && Path::new(path).exists())
    };
    event
        .filter(|root| hidden(root))
        .map(|_| format!("{TRACEPOINT}\n"))
}

#[cfg(test)]
mod tests {
    use super::contents;

    #[test]
    fn libbpf_finds_its_probes() {
        let kprobe = contents("/sys/bus/event_source/devices/kprobe/type", 8, false);
        assert_eq!(kprobe.as_deref(), Some("2002911233\n"));
        let retprobe = contents(
            "/sys/bus/event_source/devices/kprobe/format/retprobe",
            8,
            false,
        );
        assert_eq!(retprobe.as_deref(), Some("config:0\n"));
        let cpus = contents("/sys/devices/system/cpu/possible", 256, false);
        assert_eq!(cpus.as_deref(), Some("0-255\n"));
        assert_eq!(
            contents("/sys/bus/event_source/devices/msr/type", 8, false),
            None
        );
        assert_eq!(contents("/etc/passwd", 8, false), None);
    }
}
