//! Kernels as a list, without a program: what could be done with each, and by which back end.

use warpbpf_patch::Patcher;
use warpbpf_session::backends::without_ptx;
use warpbpf_session::{ImageInfo, in_ptx};
use warpbpf_wire::{Kernel, Method};

use crate::instrument::modules::report::send_kernel;
use crate::runtime::agent::Agent;

/// Reports every kernel of an image.
pub(crate) fn report(agent: &Agent, info: &ImageInfo) {
    let module = info.ptx.as_deref().map(warpbpf_ptx::index);
    let patcher = module.as_ref().map(|m| m.as_ref().map(Patcher::new));
    let others = match &module {
        None => without_ptx(info),
        Some(_) => Vec::new(),
    };
    for (index, kernel) in info.kernels.iter().enumerate() {
        let method = match &patcher {
            None => {
                let why = info.why_no_ptx.as_deref().unwrap_or("the image has no PTX");
                match others.get(index) {
                    Some(others) => Method::refused(format!("{why}; {others}")),
                    None => Method::refused(why),
                }
            }
            Some(Err(error)) => Method::refused(format!("its PTX cannot be read: {error}")),
            Some(Ok(patcher)) => in_ptx::method(patcher.method(&kernel.mangled)),
        };
        send_kernel(
            agent,
            Kernel {
                mangled: kernel.mangled.clone(),
                demangled: kernel.demangled.clone(),
                source: kernel.source.clone(),
                registers_before: kernel.registers,
                method,
                ..Kernel::default()
            },
        );
    }
}
