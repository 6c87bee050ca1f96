//! Loads a copy of a kernel's file and has Compute Sanitizer put calls into it: what was chosen in
//! [`crate::plan::patched`].

use warpbpf_driver::{Driver, Module};
use warpbpf_sanitizer::{Patch, Sanitizer};

use crate::plan::prepared::{Patched, PreparedKernel};
use crate::runtime::load_error::LoadError;

/// The functions of a patched module that Compute Sanitizer knows an argument for.
#[derive(Debug)]
pub(crate) struct PatchedFunctions {
    sanitizer: &'static Sanitizer,
    functions: Vec<usize>,
}

impl PatchedFunctions {
    /// The module is about to go.
    pub(crate) fn forget(&self) {
        for function in &self.functions {
            self.sanitizer.forget(*function);
        }
    }
}

/// Loads a copy of a file and has it patched; `kernels` are those that get launched out of it, with
/// their tables.
pub(crate) fn load(
    driver: &Driver,
    patched: &Patched,
    kernels: &[(&PreparedKernel, &Patched, u64)],
) -> Result<(Module, PatchedFunctions), LoadError> {
    let context = driver.current().ok_or(LoadError::NoContext)?;
    let module = driver.load_image(&patched.file)?;
    let mut registered = PatchedFunctions {
        sanitizer: patched.sanitizer,
        functions: Vec::new(),
    };
    let mut tell = || {
        let functions = patched.functions.iter();
        let patches: Vec<Patch<'_>> = functions
            .map(|function| Patch {
                instruction: function.instruction,
                name: &function.name,
                cubin: &function.cubin,
            })
            .collect();
        patched
            .sanitizer
            .patch(context.0 as usize, module.0 as usize, &patches)
            .map_err(LoadError::Sanitizer)?;
        for (kernel, own, table) in kernels {
            let function = driver.function(module, &kernel.mangled)?.0 as usize;
            let sanitizer = patched.sanitizer;
            // Whose launches have tables of their own runs no program without one.
            let table = if own.launch_args.is_some() { &0 } else { table };
            sanitizer
                .set_data(context.0 as usize, function, *table)
                .map_err(LoadError::Sanitizer)?;
            registered.functions.push(function);
        }
        Ok(())
    };
    match tell() {
        Ok(()) => Ok((module, registered)),
        Err(error) => {
            registered.forget();
            // The error that matters is the other one.
            let _ = driver.unload(module);
            Err(error)
        }
    }
}
