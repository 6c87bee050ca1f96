//! Opens the cache of compiled code for a session: where the tool says, or else where this
//! process's environment does, because the folder is to be its user's own. Without one everything
//! is compiled, as ever.

use std::path::Path;
use std::sync::Arc;

use warpbpf_abi::names::SOFT_DEVICE;
use warpbpf_cache::{DEFAULT_BYTES, Place, Store};
use warpbpf_driver::DeviceInfo;
use warpbpf_session::CodeCache;
use warpbpf_wire::{CacheRequest, NoteLevel};

use crate::runtime::agent::Agent;

/// The build of the driver that the kernel has, which `libcuda` must be of too.
const BUILD: &str = "/sys/module/nvidia/version";

/// The cache that is wanted; `None` if none is, or it cannot be used, which is told.
pub(crate) fn open(
    agent: &Agent,
    device: &DeviceInfo,
    request: &CacheRequest,
) -> Option<Arc<CodeCache>> {
    let variable = |name: &str| std::env::var_os(name);
    let place = match &request.place {
        Some(named) => Place::named(Path::new(named), variable),
        None => Place::of_environment(variable),
    };
    let place = place.map_err(|error| error.to_string());
    let opened = place.and_then(|place| match place {
        Place::Off => Ok(None),
        Place::Folder(path) => {
            let bytes = request.bytes.unwrap_or(DEFAULT_BYTES);
            let opened = agent.files.run(|| Store::open(&path, bytes));
            opened.map(Some).map_err(|error| error.to_string())
        }
    });
    let thread = Arc::clone(&agent.files);
    let elsewhere = move |work: &mut (dyn FnMut() + Send)| thread.run(work);
    match opened {
        Ok(store) => Some(Arc::new(CodeCache::new(
            store?,
            driver_of(device),
            Box::new(elsewhere),
        ))),
        Err(error) => {
            let text = format!("{error}; kernels are compiled anew each time");
            agent.note(NoteLevel::Warning, text);
            None
        }
    }
}

/// What tells compilers apart: a version of the API has many builds of the driver.
fn driver_of(device: &DeviceInfo) -> String {
    let build = match device.name == SOFT_DEVICE {
        true => "soft".to_owned(),
        false => String::from_utf8(warpbpf_descriptor::read_file(BUILD).unwrap_or_default())
            .unwrap_or_default(),
    };
    format!("{} {}", device.driver_version, build.trim())
}
