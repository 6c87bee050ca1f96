//! What could be done with kernels of which there is only machine code, told where there is no
//! program yet: which back ends would take each, and why others would not.

use warpbpf_sass::{Arch, ElfError, File, Refusal, SharedData};

use crate::plan::image::ImageInfo;

/// Where programs can be by `--backend splice`.
pub const SPLICE_AT: &str = "`entry` and `exit`";
/// Where by `--backend sanitizer`.
pub const SANITIZER_AT: &str = "`entry`, `exit`, `mem`, `barrier`, `func` and `funcret`";

/// The architecture of a GPU, if kernels without PTX can have programs there.
///
/// # Errors
/// Why not, as it is said of a kernel.
pub fn arch(sm: u32) -> Result<Arch, ElfError> {
    Arch::of(sm).ok_or(ElfError::Arch { sm })
}

/// Why a back end does not take a kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Refused {
    #[error("its machine code is not there")]
    NoMachineCode,
    #[error("{reason}")]
    Untouchable { reason: String },
    #[error("{0}")]
    Elf(ElfError),
    #[error("{0}")]
    Shared(SharedData),
    #[error("{0}")]
    Edit(Refusal),
    #[error("its file uses `{function}`, by which the device launches kernels or graphs")]
    DeviceLaunches { function: String },
}

/// The machine code of an image, read once.
struct Machine<'i> {
    file: File<'i>,
    /// Why it is not edited.
    untouchable: Option<&'i str>,
    /// The function by which it has the device launch kernels: Compute Sanitizer gets no copy of it
    /// then.
    launches: Option<String>,
}

/// For each kernel of an image without PTX, in order, what `--backend splice` and `sanitizer` say
/// to it. Whether the code of the image may be read, it must say itself
/// ([`ImageInfo::untouchable`]).
pub fn without_ptx(image: &ImageInfo) -> Vec<String> {
    let bytes = image.machine_code.as_deref().ok_or(Refused::NoMachineCode);
    let machine = bytes.and_then(|bytes| {
        let file = File::parse(bytes).map_err(Refused::Elf)?;
        Ok(Machine {
            launches: file.launches().map(str::to_owned),
            file,
            untouchable: image.untouchable.as_deref(),
        })
    });
    let kernels = image.kernels.iter().map(|kernel| match &machine {
        Ok(machine) => machine.of(&kernel.mangled),
        Err(why) => neither(why),
    });
    kernels.collect()
}

fn neither(why: &Refused) -> String {
    format!("neither `--backend splice` nor `sanitizer` takes it: {why}")
}

impl Machine<'_> {
    fn of(&self, kernel: &str) -> String {
        match (self.splice(kernel), self.sanitizer(kernel)) {
            (Err(splice), Err(sanitizer)) if splice == sanitizer => neither(&splice),
            (splice, sanitizer) => {
                let told = |backend: &str, at: Result<String, Refused>| match at {
                    Ok(places) => format!("`--backend {backend}` takes it at {places}"),
                    Err(why) => format!("`--backend {backend}` does not: {why}"),
                };
                format!(
                    "{}; {}",
                    told("splice", splice),
                    told("sanitizer", sanitizer.map(str::to_owned))
                )
            }
        }
    }

    /// Where it could have programs by an edit.
    fn splice(&self, kernel: &str) -> Result<String, Refused> {
        if let Some(reason) = self.untouchable {
            let reason = reason.to_owned();
            return Err(Refused::Untouchable { reason });
        }
        let flag = match self.file.shared_data(kernel) {
            None => "",
            Some(shared) => {
                let variables = self.file.variables(kernel);
                variables.map_err(|_| Refused::Shared(shared))?;
                ", with `--splice-variables`"
            }
        };
        let can = |entry, exit| self.file.can_have(kernel, entry, exit);
        can(true, false).map_err(Refused::Edit)?;
        Ok(match can(true, true) {
            Ok(()) => format!("{SPLICE_AT}{flag}"),
            Err(why) => format!("`entry`{flag}, not at `exit`: {why}"),
        })
    }

    /// Where by Compute Sanitizer.
    fn sanitizer(&self, kernel: &str) -> Result<&'static str, Refused> {
        if let Some(function) = self.launches.clone() {
            return Err(Refused::DeviceLaunches { function });
        }
        let shared = match self.untouchable {
            // Of somebody's who does not want it taken apart only tables are read.
            Some(_) => self.file.shared_tables(kernel),
            None => self.file.shared_data(kernel),
        };
        match shared {
            Some(shared) => Err(Refused::Shared(shared)),
            None => Ok(SANITIZER_AT),
        }
    }
}
