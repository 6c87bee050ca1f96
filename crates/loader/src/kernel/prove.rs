//! The proof that a program may run in a kernel of the GPU.

use warpbpf_object::LoadOptions;

use crate::kernel::Kernel;
use crate::kernel::program_error::ProveError;

impl Kernel {
    /// Proves a program for a section, or for where it is likely to be.
    pub(crate) fn prove(&self, at: usize, section: Option<&str>) -> Result<(), ProveError> {
        let gone = ProveError::Gone { program: at };
        let prog = self.progs.get(at).ok_or(gone)?;
        let section = section.unwrap_or_else(|| prog.likely_section());
        let gathered = self.gather(&[(at, section.to_owned())])?;
        let object = warpbpf_object::load_all(&gathered.object, &LoadOptions::default())?;
        warpbpf_session::plan::prove(object, &self.config.options)?;
        Ok(())
    }
}
