//! The proof that a program may run in a kernel of the GPU.

use crate::kernel::Kernel;

impl Kernel {
    /// Proves a program for a section, or for where it is likely to be.
    pub(crate) fn prove(&self, at: usize, section: Option<&str>) -> Result<(), String> {
        let prog = self.progs.get(at).ok_or("the program is gone")?;
        let section = section.unwrap_or_else(|| prog.likely_section());
        let gathered = self.gather(&[(at, section.to_owned())])?;
        let object =
            warpbpf_object::load_all(&gathered.object, &warpbpf_object::LoadOptions::default())
                .map_err(|error| error.to_string())?;
        match warpbpf_session::plan::prove(object, &self.config.options) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{error}\n")),
        }
    }
}
