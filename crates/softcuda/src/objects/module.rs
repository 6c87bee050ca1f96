//! Modules, libraries, kernels and functions ([`crate::driver::module`]).

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, c_int};
use std::sync::{Arc, Mutex, OnceLock};

use warpbpf_softgpu::{Kernel, KernelInfo, LoadError, Module};

use crate::error::CuError;
use crate::objects::handle::Handle;

pub(crate) struct LoadedModule {
    pub handle: Handle,
    pub context: Handle,
    pub image: Module,
    pub(crate) functions: Mutex<HashMap<String, Handle>>,
}

pub(crate) struct Function {
    pub handle: Handle,
    pub module: Arc<LoadedModule>,
    pub kernel: Kernel,
    pub name: CString,
    pub settings: Arc<Mutex<Settings>>,
    pub(crate) info: OnceLock<Result<KernelInfo, LoadError>>,
}

pub(crate) struct Library {
    pub handle: Handle,
    pub(crate) text: String,
    /// Or what is wrong with the text.
    pub(crate) kernel_names: Result<KernelNames, CuError>,
    pub(crate) kernels: Mutex<HashMap<String, Handle>>,
    pub(crate) modules: Mutex<HashMap<Handle, Handle>>,
}

/// Kernels in text order, and by name.
pub(crate) struct KernelNames {
    pub(crate) list: Vec<String>,
    pub(crate) known: HashSet<String>,
}

impl KernelNames {
    pub(crate) fn new(names: impl Iterator<Item = String>) -> KernelNames {
        let list: Vec<String> = names.collect();
        let known = list.iter().cloned().collect();
        KernelNames { list, known }
    }
}

pub(crate) struct KernelObject {
    pub handle: Handle,
    pub library: Handle,
    pub name: CString,
    pub settings: Arc<Mutex<Settings>>,
}

impl Function {
    /// Decoded facts. A kernel that the emulator cannot decode is an error here and at its launch,
    /// not at load.
    pub(crate) fn info(&self) -> Result<&KernelInfo, CuError> {
        self.info
            .get_or_init(|| self.kernel.info())
            .as_ref()
            .map_err(|error| {
                crate::say::say(&format!(
                    "kernel `{}` cannot be run: {error}",
                    self.kernel.name()
                ));
                CuError::NOT_SUPPORTED
            })
    }
}

/// What `cuFuncSetAttribute` sets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Dynamic shared memory that a launch may ask for; without a setting, what is left of 48 KiB.
    pub max_dynamic_shared: Option<u32>,
    pub(crate) carveout: c_int,
    pub(crate) non_portable_cluster: c_int,
    pub(crate) cluster_policy: c_int,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            max_dynamic_shared: None,
            carveout: -1,
            non_portable_cluster: 0,
            cluster_policy: 0,
        }
    }
}
