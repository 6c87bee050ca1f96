//! Loads under observation: every kernel is reported once, and what cannot be read does not disturb
//! the application.

use std::time::Duration;

use warpbpf_wire::{Kernel, NoteLevel, ToAgent, ToTool, ToolConnection};

use super::fake::{LOADED, agent, load_module};

const SECOND: Duration = Duration::from_secs(1);

const TWO_KERNELS: &str = "\
.version 8.0
.target sm_90
.address_size 64
.visible .entry _Z3addPf(.param .u64 _Z3addPf_param_0)
{
ret;
}
.visible .entry plain()
{
ret;
}
";

fn observing() -> (&'static crate::runtime::agent::Agent, ToolConnection) {
    let (agent, mut tool) = agent();
    tool.send(&ToAgent::Observe, &[], None, SECOND).unwrap();
    (agent, tool)
}

/// Everything but hello and the last counts, until good-bye.
fn said(agent: &'static crate::runtime::agent::Agent, tool: &mut ToolConnection) -> Vec<ToTool> {
    agent.finish("exit", 5 * SECOND);
    let mut said = Vec::new();
    loop {
        match tool.recv(5 * SECOND).unwrap().unwrap().message {
            ToTool::Bye { .. } => return said,
            ToTool::Hello(_) | ToTool::Counts(_) => {}
            message => said.push(message),
        }
    }
}

#[test]
fn kernels_are_reported_once() {
    let (agent, mut tool) = observing();
    let (first, one) = load_module(agent, TWO_KERNELS);
    let (second, two) = load_module(agent, TWO_KERNELS);
    assert_eq!((first, second), (0, 0));
    assert_ne!(one, two);
    let kernel = |mangled: &str, demangled: &str| {
        ToTool::Kernel(Kernel {
            kernel_id: None,
            mangled: mangled.into(),
            demangled: demangled.into(),
            source: "PTX text 8.0 sm_90".into(),
            registers_before: None,
            registers_after: None,
            occupancy: None,
            local_bytes: None,
            shared_bytes: None,
            compiler_warnings: vec![],
            cached: None,
            loaded_us: None,
            sites: 0,
            left_out: vec![],
            placed: vec![],
            method: warpbpf_wire::Method::Slice,
            instrumented: false,
            programs: vec![],
            generation: 0,
            client: 0,
        })
    };
    let messages = said(agent, &mut tool);
    assert_eq!(
        messages,
        [kernel("_Z3addPf", "add"), kernel("plain", "plain")]
    );
    let loaded = LOADED.lock().unwrap();
    let ours = loaded.iter().filter(|t| *t == TWO_KERNELS).count();
    assert_eq!(ours, 2, "the driver got the application's own text");
}

#[test]
fn an_unreadable_image_is_a_note() {
    let (agent, mut tool) = observing();
    let (code, module) = load_module(agent, "what is this");
    assert_eq!(code, 0);
    assert_ne!(module, 0);
    let note = ToTool::Note {
        level: NoteLevel::Warning,
        text: "an image was loaded that cannot be read: the image is neither a fatbin, a cubin nor PTX text (it starts with `77 68 61 74 20 69 73 20`)".into(),
        clients: Vec::new(),
    };
    assert_eq!(said(agent, &mut tool), [note]);
}

#[test]
fn a_load_that_the_driver_refuses_stays_refused() {
    let (agent, mut tool) = observing();
    let (code, module) = load_module(agent, ".version 8.0\n.target sm_90\n// refuse\n");
    assert_eq!((code, module), (218, 0));
    assert_eq!(said(agent, &mut tool), []);
}
