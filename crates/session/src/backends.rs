//! What could be done with kernels of which there is only machine code, told where there is no
//! program yet: which back ends would take each, and why others would not.

use warpbpf_sass::error::ElfError;
use warpbpf_sass::{Arch, File};

use crate::image::ImageInfo;

/// Where programs can be by `--backend splice`.
pub const SPLICE_AT: &str = "`entry` and `exit`";
/// Where by `--backend sanitizer`.
pub const SANITIZER_AT: &str = "`entry`, `exit`, `mem`, `barrier`, `func` and `funcret`";

/// The architecture of a GPU, if kernels without PTX can have programs there.
///
/// # Errors
/// Why not, as it is said of a kernel.
pub fn arch(sm: u32) -> Result<Arch, String> {
    Arch::of(sm).ok_or_else(|| ElfError::Arch { sm }.to_string())
}

/// The machine code of an image, read once.
struct Machine<'i> {
    file: File<'i>,
    /// Why it is not edited.
    untouchable: Option<&'i str>,
    /// Why Compute Sanitizer gets no copy of it.
    launches: Option<String>,
}

/// For each kernel of an image without PTX, in order, what `--backend splice` and `sanitizer` say
/// to it. Whether the code of the image may be read, it must say itself
/// ([`ImageInfo::untouchable`]).
pub fn without_ptx(image: &ImageInfo) -> Vec<String> {
    let bytes = image
        .machine_code
        .as_deref()
        .ok_or("its machine code is not there");
    let machine = bytes.map_err(str::to_owned).and_then(|bytes| {
        let file = File::parse(bytes).map_err(|error| error.to_string())?;
        let launches = file.launches().map(|name| {
            format!("its file uses `{name}`, by which the device launches kernels or graphs")
        });
        Ok(Machine {
            launches,
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

fn neither(why: &str) -> String {
    format!("neither `--backend splice` nor `sanitizer` takes it: {why}")
}

impl Machine<'_> {
    fn of(&self, kernel: &str) -> String {
        match (self.splice(kernel), self.sanitizer(kernel)) {
            (Err(splice), Err(sanitizer)) if splice == sanitizer => neither(&splice),
            (splice, sanitizer) => {
                let told = |backend: &str, at: Result<String, String>| match at {
                    Ok(places) => format!("`--backend {backend}` takes it at {places}"),
                    Err(why) => format!("`--backend {backend}` does not: {why}"),
                };
                format!(
                    "{}; {}",
                    told("splice", splice),
                    told("sanitizer", sanitizer)
                )
            }
        }
    }

    /// Where it could have programs by an edit.
    fn splice(&self, kernel: &str) -> Result<String, String> {
        if let Some(why) = self.untouchable {
            return Err(why.to_owned());
        }
        let flag = match self.file.shared_data(kernel) {
            None => "",
            Some(shared) => {
                let variables = self.file.variables(kernel);
                variables.map_err(|_| shared.to_string())?;
                ", with `--splice-variables`"
            }
        };
        let can = |entry, exit| {
            let can = self.file.can_have(kernel, entry, exit);
            can.map_err(|refusal| refusal.to_string())
        };
        can(true, false)?;
        Ok(match can(true, true) {
            Ok(()) => format!("{SPLICE_AT}{flag}"),
            Err(why) => format!("`entry`{flag}, not at `exit`: {why}"),
        })
    }

    /// Where by Compute Sanitizer.
    fn sanitizer(&self, kernel: &str) -> Result<String, String> {
        if let Some(launches) = &self.launches {
            return Err(launches.clone());
        }
        let shared = match self.untouchable {
            // Of somebody's who does not want it taken apart only tables are read.
            Some(_) => self.file.shared_tables(kernel),
            None => self.file.shared_data(kernel),
        };
        match shared {
            Some(shared) => Err(shared.to_string()),
            None => Ok(SANITIZER_AT.to_owned()),
        }
    }
}
