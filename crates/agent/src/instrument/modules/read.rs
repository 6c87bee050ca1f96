//! Reading images that the application loads.

use std::ffi::CString;
use std::sync::Arc;

use warpbpf_hook::maps;
use warpbpf_session::{ImageInfo, Prepared, Session};
use warpbpf_session::{inspect_compiled, machine_code};
use warpbpf_wire::NoteLevel;

use crate::instrument::modules::report::send_site_names;
use crate::instrument::observe;
use crate::runtime::agent::{Agent, Mode};
use crate::sources::jit_outputs::JitOutput;
use crate::sources::{artefacts, vendor_check};

/// An image about to be loaded.
pub(crate) struct Incoming {
    pub(crate) session: Arc<Session>,
    pub(crate) capability: (u32, u32),
    pub(crate) info: ImageInfo,
    pub(crate) prepared: Prepared,
    pub(crate) text: Option<CString>,
    /// It was loaded before we came, and is launched without probes for a while: that is no news.
    pub(crate) late: bool,
}

/// Reads an image. `None` when the load is none of our business.
pub(crate) fn read(
    agent: &'static Agent,
    bytes: Option<&[u8]>,
    output: Option<&JitOutput>,
) -> Option<Incoming> {
    let mode = agent.mode();
    let capability = agent.device()?.capability;
    let session = match mode {
        Mode::PassThrough => return None,
        Mode::Observe => None,
        Mode::Attached(_) => agent.generations.now().session.get(),
    };
    let Some(bytes) = bytes else {
        agent.note(
            NoteLevel::Warning,
            "an image with a damaged header was loaded; its kernels run without probes".into(),
        );
        return None;
    };
    warpbpf_faults::bug("agent/read-panics");
    // Half an image cannot be read.
    let cut = usize::from(warpbpf_faults::strikes("agent/image"));
    let compiled_from = output.map(JitOutput::compiled_from);
    let read = inspect_compiled(&bytes[..bytes.len() >> cut], capability, compiled_from);
    let info = match read {
        Ok(info) => info,
        Err(error) => {
            agent.note(
                NoteLevel::Warning,
                format!("an image was loaded that cannot be read: {error}"),
            );
            return None;
        }
    };
    let Some(session) = session else {
        observe::report(agent, &with_machine_code(agent, bytes, info));
        return None;
    };
    let info = artefacts::with_text(bytes, info, capability, session);
    Some(prepare(
        agent,
        session,
        with_vendor_check(agent, session, bytes, info),
    ))
}

/// Notes what machine code an image is and whose, where that may get probes.
fn with_vendor_check(agent: &Agent, session: &Session, bytes: &[u8], info: ImageInfo) -> ImageInfo {
    if !session.splices() {
        return info;
    }
    let mut info = with_machine_code(agent, bytes, info);
    if session.sanitizes() {
        // It does not read it, and Compute Sanitizer is NVIDIA's.
        info.unread = info.untouchable.take();
    }
    info
}

/// The same where nothing else is to be had.
fn with_machine_code(agent: &Agent, bytes: &[u8], mut info: ImageInfo) -> ImageInfo {
    if info.ptx.is_none() {
        let capability = agent.device().map_or((0, 0), |device| device.capability);
        info.machine_code = machine_code(bytes, capability);
        let maps = maps::own().unwrap_or_default();
        info.untouchable = vendor_check::untouchable(bytes.as_ptr() as usize, &maps, &info);
    }
    info
}

/// Makes the texts for an image, which is for the current device.
pub(crate) fn prepare(agent: &Agent, session: &Arc<Session>, info: ImageInfo) -> Incoming {
    let capability = agent.device().map_or((0, 0), |device| device.capability);
    let copies_tensors =
        |ptx: &String| ptx.contains(".bulk.tensor.") || ptx.contains(".prefetch.tensor.");
    if info.ptx.as_ref().is_some_and(copies_tensors)
        && !session.learn_tensor_maps(&agent.driver, agent.some_live_context())
    {
        agent.note(
            NoteLevel::Warning,
            "the driver's tensor maps are not understood; tensor copies are said to move 0 bytes"
                .into(),
        );
    }
    let mut prepared = session.prepare(&info);
    let mut info = info;
    if info.untouchable.is_some() {
        // It may be large, and nobody will want it.
        info.machine_code = None;
    }
    send_site_names(agent, session);
    // A library with our text in place of machine code for each kind of device would run on one
    // kind only.
    let alike = agent.devices().iter().all(|d| d.capability == capability);
    let text = prepared.rewritten.take().filter(|_| alike);
    let text = text.and_then(|text| {
        let text = CString::new(text);
        if text.is_err() {
            agent.note(
                NoteLevel::Warning,
                "an image's PTX holds a NUL byte; it is loaded unchanged".into(),
            );
        }
        text.ok()
    });
    Incoming {
        session: Arc::clone(session),
        capability,
        info,
        prepared,
        text,
        late: false,
    }
}
