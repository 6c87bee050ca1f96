//! Programs that are kernels themselves (`gpu/run`): an empty kernel with the program at its start.

use warpbpf_abi::method::Method;

use crate::plan::image::{ImageError, ImageInfo, inspect};
use crate::plan::prepared::Prepared;
use crate::plan::ptx_version::ptx_version;
use crate::plan::section::Form;
use crate::plan::session::Session;

/// A kernel that consists of a program.
#[derive(Debug)]
pub struct OwnKernel {
    /// The empty kernel's module, to be loaded in the place of an application's.
    pub text: String,
    /// What [`crate::Live::instrument`] takes.
    pub prepared: Prepared,
}

/// Why no kernel can be made of a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum OwnKernelError {
    #[error("{0}")]
    Image(ImageError),
    #[error("{reason}")]
    NoPtx { reason: String },
    #[error("{method}")]
    NotMade { method: Method },
}

/// A module with a kernel of this name that does nothing.
pub fn empty_kernel(name: &str, capability: (u32, u32)) -> String {
    let sm = capability.0 * 10 + capability.1;
    let (major, minor) = ptx_version(sm);
    format!(
        ".version {major}.{minor}\n.target sm_{sm}\n.address_size 64\n.visible .entry {name}()\n{{\n\tret;\n}}\n"
    )
}

impl Session {
    /// The programs that are kernels, by index.
    pub fn own_kernels(&self) -> Vec<usize> {
        let programs = self.programs().iter().enumerate();
        programs
            .filter(|(_, p)| p.spec.form == Form::Run)
            .map(|(index, _)| index)
            .collect()
    }

    /// The kernel that program `index` is, for a device of this compute capability.
    ///
    /// # Errors
    /// Why no code can be made for it.
    pub fn own_kernel(
        &self,
        index: usize,
        capability: (u32, u32),
    ) -> Result<OwnKernel, OwnKernelError> {
        let text = empty_kernel(self.programs()[index].name(), capability);
        let image: ImageInfo =
            inspect(text.as_bytes(), capability).map_err(OwnKernelError::Image)?;
        let prepared = self.prepare_for(&image, &|_| vec![index]);
        match prepared.kernels.as_slice() {
            [kernel] if kernel.wanted => Ok(OwnKernel { text, prepared }),
            [kernel, ..] => Err(OwnKernelError::NotMade {
                method: kernel.method.clone(),
            }),
            [] => Err(OwnKernelError::NoPtx {
                reason: image.why_no_ptx.unwrap_or_default(),
            }),
        }
    }
}
