//! What the agent says of the process and of its session.

use std::time::Duration;

use warpbpf_driver::DeviceInfo;
use warpbpf_session::{MapLayoutInfo, PlannedProgram, Session};
use warpbpf_wire::{
    AgentConnection, ContextInfo, Device, Hello, MapInfo, PROTOCOL, Program, Ready, ToTool,
    WireError,
};

use crate::runtime::agent::Agent;

/// Says who we are, and on what device unless that is unknown; with it, how many multiprocessors
/// the largest one has.
pub(crate) fn hello(
    connection: &mut AgentConnection,
    device: Option<(&DeviceInfo, u32)>,
) -> Result<(), WireError> {
    let readable = !warpbpf_faults::strikes("agent/who");
    let exe = std::fs::read_link("/proc/thread-self/exe")
        .ok()
        .filter(|_| readable)
        .unwrap_or_default();
    let arguments = warpbpf_descriptor::read_file("/proc/thread-self/cmdline")
        .ok()
        .filter(|_| readable)
        .unwrap_or_default();
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
        device: device.map(|(d, cpus)| Device {
            cpus,
            name: d.name.clone(),
            capability: d.capability,
            sms: d.sms,
            driver_version: d.driver_version,
            soft: d.name == warpbpf_abi::names::SOFT_DEVICE,
        }),
    };
    connection.send(&ToTool::Hello(hello), &[], None, Duration::from_secs(1))
}

/// What the current context is, whose maps have this number.
pub(crate) fn context_info(agent: &Agent, number: u32) -> ContextInfo {
    let ordinal = agent.driver.current_device().unwrap_or(0);
    let context = agent.driver.current().map_or(0, |c| c.0 as usize);
    let device = agent.device();
    ContextInfo {
        number,
        device: u32::try_from(ordinal).unwrap_or(0),
        name: device.map_or_else(String::new, |d| d.name.clone()),
        sms: device.map_or(0, |d| d.sms),
        cpus: agent.cpus(),
        device_bytes: agent.bound.of(context),
    }
}

/// What the session is made of.
pub(crate) fn ready(session: &Session, context: ContextInfo) -> Ready {
    Ready {
        maps: map_infos(session),
        programs: programs(session),
        areas: Vec::new(),
        context,
    }
}

fn map_info(map: MapLayoutInfo) -> MapInfo {
    MapInfo {
        name: map.name,
        client: map.client,
        map_type: map.map_type,
        key_size: map.key_size,
        value_size: map.value_size,
        max_entries: map.max_entries,
        layout: map.layout.into(),
        summed: map.sum_fields.into_iter().map(Into::into).collect(),
        added: map.added.into_iter().map(Into::into).collect(),
        bytes: map.snapshot_bytes,
    }
}

/// The maps of a session.
pub(crate) fn map_infos(session: &Session) -> Vec<MapInfo> {
    session.layouts().into_iter().map(map_info).collect()
}

/// The programs of a session.
pub(crate) fn programs(session: &Session) -> Vec<Program> {
    let program = |p: &PlannedProgram| Program {
        name: p.name().into(),
        client: p.client,
        section: p.section().into(),
        glob: p.spec.kernels.clone(),
    };
    session.programs().iter().map(program).collect()
}
