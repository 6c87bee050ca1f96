//! What an application handed to the driver: a fatbin, a cubin or PTX text, and which PTX of it
//! stands for the machine code that the driver would run.

use std::collections::HashMap;
use std::sync::Arc;

use warpbpf_fatbin as fatbin;

use crate::plan::embedded_ptx::{self, EmbeddedError};
use crate::plan::names::demangle;

/// An image, understood.
#[derive(Debug, Clone, Default)]
pub struct ImageInfo {
    /// The PTX to instrument, if there is one that may be used.
    pub ptx: Option<String>,
    /// Why there is none.
    pub why_no_ptx: Option<String>,
    /// The machine code that the driver would run, where that is to get probes: [`machine_code`].
    /// [`inspect`] does not keep it, as it may be large.
    pub machine_code: Option<Arc<[u8]>>,
    /// Why that gets no probes, whatever the user wants.
    pub untouchable: Option<String>,
    /// Why it is not edited nor taken apart, where it may have probes: of the file only its tables
    /// are read.
    pub unread: Option<String>,
    /// Why the text must not be loaded in the image's place, though kernels beside it may be made
    /// of it.
    pub not_instead: Option<String>,
    /// Kernels whose text says how many threads or registers they have.
    pub bounded: Vec<String>,
    /// Its kernels.
    pub kernels: Vec<KernelSummary>,
}

/// A kernel of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSummary {
    /// Name as the driver knows it.
    pub mangled: String,
    /// Name as people write it.
    pub demangled: String,
    /// Where its code comes from: `PTX compute_90 in fatbin (zstd), SASS sm_90`.
    pub source: String,
    /// Registers per thread of the machine code, if there is some.
    pub registers: Option<u32>,
}

/// What a cubin was compiled from, as a process knows it that made the cubin.
#[derive(Debug, Clone, Copy)]
pub struct CompiledFrom<'a> {
    /// By whom, as [`KernelSummary::source`] says it.
    pub by: &'a str,
    /// What it was assembled from, or why that is not known.
    pub text: Result<&'a str, &'a str>,
    /// Why the text must not be loaded in its place, though kernels beside it may be made of it.
    pub not_instead: Option<&'a str>,
}

/// Why an image cannot be read. The application's load goes on untouched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum ImageError {
    #[error("the image is neither a fatbin, a cubin nor PTX text (it starts with `{start}`)")]
    Unknown { start: String },
    #[error("the fatbin cannot be read: {source}")]
    Fatbin { source: fatbin::FatbinError },
    #[error("PTX text is not UTF-8 at byte {offset}")]
    NotUtf8 { offset: usize },
}

/// Reads an image. `capability` is the device's compute capability; it decides which entry the
/// driver runs, and so which PTX may be used in its place (`warpbpf_fatbin::choose`).
///
/// # Errors
/// [`ImageError`] when the bytes are nothing that a driver loads, or are damaged.
pub fn inspect(bytes: &[u8], capability: (u32, u32)) -> Result<ImageInfo, ImageError> {
    inspect_compiled(bytes, capability, None)
}

/// [`inspect`] of an image that may be a cubin which was made in the same process.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_compiled(
    bytes: &[u8],
    capability: (u32, u32),
    compiled_from: Option<CompiledFrom<'_>>,
) -> Result<ImageInfo, ImageError> {
    match fatbin::sniff(bytes) {
        fatbin::ImageKind::PtxText => from_ptx(text(bytes)?, "PTX text"),
        fatbin::ImageKind::Cubin => Ok(from_cubin(bytes, compiled_from)),
        fatbin::ImageKind::Fatbin => from_fatbin(bytes, capability),
        fatbin::ImageKind::FatbinWrapper | fatbin::ImageKind::Unknown => {
            let start = bytes
                .iter()
                .take(8)
                .map(|b| format!("{b:02x}"))
                .collect::<Vec<_>>()
                .join(" ");
            Err(ImageError::Unknown { start })
        }
    }
}

/// Names of the kernels that a driver finds in an image: of all that [`inspect`] says what can be
/// had in a fraction of the time.
///
/// # Errors
/// As [`inspect`].
pub fn kernel_names(bytes: &[u8], capability: (u32, u32)) -> Result<Vec<String>, ImageError> {
    match fatbin::sniff(bytes) {
        fatbin::ImageKind::Cubin => return Ok(names_in_cubin(bytes)),
        fatbin::ImageKind::Fatbin => {
            let damaged = |source| ImageError::Fatbin { source };
            let entries = fatbin::entries(bytes).map_err(damaged)?;
            if let Some(chosen) = fatbin::machine_code(&entries, capability) {
                return Ok(names_in_cubin(&entries[chosen].payload().map_err(damaged)?));
            }
        }
        _ => {}
    }
    let kernels = inspect(bytes, capability)?.kernels.into_iter();
    Ok(kernels.map(|kernel| kernel.mangled).collect())
}

fn names_in_cubin(bytes: &[u8]) -> Vec<String> {
    let cubin = fatbin::Cubin::parse(bytes).ok();
    let kernels = cubin.into_iter().flat_map(|cubin| cubin.kernels);
    kernels.map(|kernel| kernel.name).collect()
}

/// The cubin that a driver would run of an image that [`inspect`] has understood.
pub fn machine_code(bytes: &[u8], capability: (u32, u32)) -> Option<Arc<[u8]>> {
    match fatbin::sniff(bytes) {
        fatbin::ImageKind::Cubin => Some(Arc::from(bytes)),
        fatbin::ImageKind::Fatbin => {
            let entries = fatbin::entries(bytes).ok()?;
            let chosen = fatbin::machine_code(&entries, capability)?;
            Some(Arc::from(&entries[chosen].payload().ok()?[..]))
        }
        _ => None,
    }
}

fn text(bytes: &[u8]) -> Result<String, ImageError> {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end])
        .map(str::to_owned)
        .map_err(|e| ImageError::NotUtf8 {
            offset: e.valid_up_to(),
        })
}

/// Directives that limit a kernel's registers, by themselves or by its threads.
const BOUNDS: [&str; 5] = [
    ".maxnreg",
    ".maxntid",
    ".reqntid",
    ".minnctapersm",
    ".maxnctapersm",
];

fn from_ptx(ptx: String, source: &str) -> Result<ImageInfo, ImageError> {
    let mut info = ImageInfo::default();
    match warpbpf_ptx::index(&ptx) {
        Ok(module) => {
            let target = module.targets.first().copied().unwrap_or("unknown");
            let source = format!(
                "{source} {}.{} {target}",
                module.version.0, module.version.1
            );
            for function in module
                .functions
                .iter()
                .filter(|f| f.is_entry && f.body.is_some())
            {
                let says = |d: &&str| BOUNDS.iter().any(|bound| d.trim_start().starts_with(bound));
                if function.directives.iter().any(says) {
                    info.bounded.push(function.name.to_string());
                }
                info.kernels.push(KernelSummary {
                    mangled: function.name.to_string(),
                    demangled: demangle(function.name),
                    source: source.clone(),
                    registers: None,
                });
            }
            info.ptx = Some(ptx);
        }
        Err(error) => info.why_no_ptx = Some(format!("its PTX cannot be read: {error}")),
    }
    Ok(info)
}

fn from_cubin(bytes: &[u8], compiled_from: Option<CompiledFrom<'_>>) -> ImageInfo {
    let why = "the image is a cubin: machine code without PTX";
    let mut info = match compiled_from.map(|from| (from, stands_for(from, bytes))) {
        Some((from, Ok(text))) => from_ptx(text.to_owned(), &format!("{}, PTX", from.by))
            .map(|info| ImageInfo {
                not_instead: from.not_instead.map(str::to_owned),
                ..info
            })
            .unwrap_or_else(|error| from_embedded_ptx(bytes, || error.to_string())),
        Some((_, Err(other))) => from_embedded_ptx(bytes, || format!("{why}; {other}")),
        None => from_embedded_ptx(bytes, || why.to_owned()),
    };
    add_machine_code(&mut info, bytes, "cubin");
    info
}

/// The text that stands for a cubin, or why there is none.
fn stands_for<'a>(from: CompiledFrom<'a>, cubin: &[u8]) -> Result<&'a str, EmbeddedError> {
    let why = |why: &str| EmbeddedError::NotKnown {
        why: why.to_owned(),
    };
    let text = from.text.map_err(why)?;
    embedded_ptx::stands_for(text, cubin).map(|()| text)
}

/// The PTX that machine code holds; if there is none that may be used, `why` says what the user is
/// told.
fn from_embedded_ptx(cubin: &[u8], why: impl FnOnce() -> String) -> ImageInfo {
    let refused = |why| ImageInfo {
        why_no_ptx: Some(why),
        ..ImageInfo::default()
    };
    match embedded_ptx::of(cubin) {
        Ok(Some(text)) => from_ptx(text, "line information, PTX")
            .unwrap_or_else(|error| refused(error.to_string())),
        Ok(None) => refused(why()),
        Err(other) => refused(format!("{}; {other}", why())),
    }
}

fn from_fatbin(bytes: &[u8], capability: (u32, u32)) -> Result<ImageInfo, ImageError> {
    let damaged = |source| ImageError::Fatbin { source };
    let entries = fatbin::entries(bytes).map_err(damaged)?;
    // Most of the time goes into decompression: once is enough.
    let sass = fatbin::machine_code(&entries, capability);
    let cubin = sass.map(|index| entries[index].payload()).transpose();
    let cubin = cubin.map_err(damaged)?;
    let choice = fatbin::choose_unpacked(&entries, capability, cubin.as_deref());
    let mut info = ImageInfo::default();
    if let Some(index) = choice.ptx {
        let payload = entries[index].payload().map_err(damaged)?;
        info = from_ptx(text(&payload)?, "fatbin, PTX")?;
    }
    if info.ptx.is_none() && info.why_no_ptx.is_none() {
        info.why_no_ptx = choice.why_no_ptx.clone();
    }
    if let (Some(index), Some(cubin)) = (sass, cubin) {
        let name = format!("fatbin, SASS {}", entries[index].arch_name());
        if choice.ptx.is_none() {
            info = from_embedded_ptx(&cubin, || choice.why_no_ptx.unwrap_or_default());
        }
        add_machine_code(&mut info, &cubin, &name);
    }
    Ok(info)
}

/// Adds what the machine code says: registers, and kernels that have no PTX.
fn add_machine_code(info: &mut ImageInfo, bytes: &[u8], name: &str) {
    let Ok(cubin) = fatbin::Cubin::parse(bytes) else {
        return;
    };
    let known = info.kernels.iter().enumerate();
    let known: HashMap<String, usize> = known.map(|(at, k)| (k.mangled.clone(), at)).collect();
    for kernel in cubin.kernels {
        if let Some(most) = kernel.max_registers
            && info.ptx.is_some()
            && !info.bounded.contains(&kernel.name)
        {
            info.not_instead.get_or_insert_with(|| {
                format!(
                    "its machine code was compiled for at most {most} registers (`-maxrregcount`), which its PTX does not say"
                )
            });
        }
        match known.get(&kernel.name).map(|at| &mut info.kernels[*at]) {
            Some(known) => {
                known.registers = kernel.registers;
                known.source = format!("{}; {name}", known.source);
            }
            None => info.kernels.push(KernelSummary {
                demangled: demangle(&kernel.name),
                mangled: kernel.name,
                source: name.to_string(),
                registers: kernel.registers,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_text_lists_its_kernels() {
        let ptx = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry _Z9vectorAddPKfS0_Pfi()\n{\n\tret;\n}\n\0tail";
        let info = inspect(ptx.as_bytes(), (9, 0)).unwrap();
        assert_eq!(info.kernels.len(), 1);
        assert_eq!(info.kernels[0].demangled, "vectorAdd");
        assert_eq!(info.kernels[0].source, "PTX text 8.0 sm_90");
        assert_eq!(
            info.ptx.as_deref(),
            Some(ptx.trim_end_matches("tail").trim_end_matches('\0'))
        );
    }

    #[test]
    fn unknown_bytes_are_named() {
        let error = inspect(&[1, 2, 3, 4], (9, 0)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the image is neither a fatbin, a cubin nor PTX text (it starts with `01 02 03 04`)"
        );
    }
}
