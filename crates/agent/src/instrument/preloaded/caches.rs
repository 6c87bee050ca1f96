//! Preloaded kernels that lie in no mapped file: they are looked for among what Triton keeps on
//! disk, if the user wants that. What was loaded may be gone from there, and another kernel may
//! have its name. That is why the user must ask for it. A kernel with other parameters is never
//! taken.

use warpbpf_abi::names::SOFT_DEVICE;
use warpbpf_fatbin::Cubin;
use warpbpf_session::{ImageInfo, inspect_compiled};

use crate::instrument::preloaded::not_found::NotFound;
use crate::runtime::agent::Agent;
use crate::sources::artefacts;
use crate::sources::preloaded::jobs::{Job, are_same, registers};

/// The one that Triton keeps of this name, with PTX, and with the parameters and as many registers
/// as the driver says.
///
/// # Errors
/// Why there is none.
pub(super) fn find(
    agent: &Agent,
    job: &Job,
    device: &str,
    capability: (u32, u32),
) -> Result<ImageInfo, NotFound> {
    let name = &job.name;
    let questions = agent.preloaded.driver.get();
    let params = questions.and_then(|driver| driver.params(job));
    let params = params.ok_or(NotFound::Parameters)?;
    let registers = registers(&agent.driver, job);
    // The soft GPU counts those of its own code.
    let counts = device != SOFT_DEVICE;
    let is_like = |cubin: &[u8]| {
        let Ok(cubin) = Cubin::parse(cubin) else {
            return false;
        };
        let kernel = cubin.kernels.iter().find(|kernel| kernel.name == *name);
        kernel.is_some_and(|kernel| {
            let own = kernel.params.iter();
            let own = own.map(|param| (param.offset as usize, param.size as usize));
            own.eq(params.iter().copied())
                && (!counts || registers.is_some() && kernel.registers == registers)
        })
    };
    let folders = artefacts::folders(&|name| std::env::var_os(name));
    let mut found: Vec<ImageInfo> = Vec::new();
    for kept in artefacts::of_kernel(&folders, name).filter(|kept| is_like(&kept.cubin)) {
        let compiled_from = Some(kept.known.compiled_from());
        let Ok(mut info) = inspect_compiled(&kept.cubin, capability, compiled_from) else {
            continue;
        };
        if info.ptx.is_none() || found.iter().any(|other| are_same(other, &info)) {
            continue;
        }
        for kernel in &mut info.kernels {
            kernel.source = format!("{}, in `{}`", kernel.source, kept.path.display());
        }
        found.push(info);
    }
    match (found.len(), found.pop()) {
        (1, Some(info)) => Ok(info),
        (0, _) => Err(NotFound::NotInCaches { folders }),
        (kernels, _) => Err(NotFound::SeveralInCaches { kernels, folders }),
    }
}
