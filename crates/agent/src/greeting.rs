//! What the agent says of the process and of its session.

use std::time::Duration;

use warpbpf_driver::DeviceInfo;
use warpbpf_session::{Live, Session};
use warpbpf_wire::{AgentConnection, Device, Hello, PROTOCOL, Ready, ToTool, WireError};

/// Says who we are, and on what device unless that is unknown.
pub(crate) fn hello(
    connection: &mut AgentConnection,
    device: Option<&DeviceInfo>,
) -> Result<(), WireError> {
    let exe = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let arguments = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let mut argv: Vec<String> = arguments
        .split(|b| *b == 0)
        .map(|a| String::from_utf8_lossy(a).into_owned())
        .collect();
    // The list ends with a NUL.
    argv.pop();
    let hello = Hello {
        protocol: PROTOCOL,
        pid: std::process::id(),
        exe: exe.display().to_string(),
        argv,
        device: device.map(|d| Device {
            name: d.name.clone(),
            capability: d.capability,
            sms: d.sms,
            driver_version: d.driver_version,
            soft: d.name == warpbpf_abi::names::SOFT_DEVICE,
        }),
    };
    connection.send(&ToTool::Hello(hello), &[], None, Duration::from_secs(1))
}

/// What the session is made of.
pub(crate) fn ready(session: &Session, live: &Live) -> Ready {
    let maps = live.layouts().into_iter().map(|map| warpbpf_wire::MapInfo {
        name: map.name,
        map_type: map.map_type,
        key_size: map.key_size,
        value_size: map.value_size,
        max_entries: map.max_entries,
        layout: map.layout.into(),
        summed: map.sum_fields.into_iter().map(Into::into).collect(),
        bytes: map.snapshot_bytes,
    });
    let programs = session.programs().iter().map(|p| warpbpf_wire::Program {
        name: p.name().into(),
        section: p.section().into(),
        glob: p.spec.kernels.clone(),
    });
    Ready {
        maps: maps.collect(),
        programs: programs.collect(),
    }
}
