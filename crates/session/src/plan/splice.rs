//! A kernel before and after, for people who want to see what is put into it.

use std::collections::BTreeMap;

use warpbpf_abi::method::Method;
use warpbpf_abi::names::PREFIX;
use warpbpf_ptx::PtxError;
use warpbpf_ptx::ast::{Function, Module};

use crate::plan::image::ImageInfo;
use crate::plan::names;
use crate::plan::prepared::{Code, Prepared, PreparedKernel};
use crate::plan::session::Session;

/// What instrumenting a kernel makes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splice {
    /// The kernel's name as the driver knows it.
    pub mangled: String,
    /// `slice` or `clone: reasons`.
    pub method: Method,
    /// The functions that change, the kernel among them, and those of the programs.
    pub functions: Vec<SplicedFunction>,
    /// The module that holds the kernel with its programs, as it is before addresses are baked in.
    pub text: String,
    /// How many sites in its middle got code.
    pub site_count: u32,
    /// Names of the sites in its middle, by their order, and of those of kernels that were spliced
    /// before.
    pub sites: Vec<String>,
    /// Sites that a program wanted and did not get: how many, for each reason.
    pub left_out: Vec<(String, u32)>,
}

/// A function's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplicedFunction {
    /// Its name in the original, or that of a function of ours.
    pub name: String,
    /// As it was; empty for a function of ours.
    pub before: String,
    /// As it is in the variant.
    pub after: String,
}

/// Why there is nothing to show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum SpliceError {
    #[error("`{glob}` names no kernel; there are {}", list(known))]
    NoKernel { glob: String, known: Vec<String> },
    #[error(
        "`{glob}` names several kernels: {}; write the mangled name of one",
        list(kernels)
    )]
    SeveralKernels { glob: String, kernels: Vec<String> },
    #[error(
        "no program is for kernel `{kernel}`; the sections are {}",
        sections.iter().map(|section| format!("`{section}`")).collect::<Vec<_>>().join(", ")
    )]
    NoProgram {
        kernel: String,
        sections: Vec<String>,
    },
    #[error("kernel `{kernel}`: {method}")]
    NotMade { kernel: String, method: Method },
    #[error(
        "kernel `{kernel}`: no site that a program wants is in it{}",
        left_out.iter().map(|(why, count)| format!("; {count} left out: {why}")).collect::<String>()
    )]
    NoSite {
        kernel: String,
        left_out: Vec<(String, u32)>,
    },
    /// The text of the image or of the variant cannot be read.
    #[error("{0}")]
    Ptx(PtxError),
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}

impl Session {
    /// Instruments the one kernel of `image` that `glob` names.
    ///
    /// # Errors
    /// No or several kernels of that name, no program for it, or why it cannot be instrumented.
    pub fn splice(&self, image: &ImageInfo, glob: &str) -> Result<Splice, SpliceError> {
        let mangled = one_kernel(image, glob)?;
        if self.matching(mangled).is_empty() {
            let programs = self.programs().iter();
            return Err(SpliceError::NoProgram {
                kernel: names::demangle(mangled),
                sections: programs.map(|p| p.section().to_owned()).collect(),
            });
        }
        let prepared = self.prepare_for(image, &|kernel| {
            if kernel == mangled {
                self.matching(kernel)
            } else {
                Vec::new()
            }
        });
        let kernel = prepared.kernels.iter().find(|k| k.mangled == mangled);
        let kernel = kernel.ok_or_else(|| no_kernel(image, glob))?;
        let code = kernel.code.as_ref();
        let Some(text) = code.and_then(|code| text_of(code, &prepared)) else {
            return Err(why_not(kernel));
        };
        let read = |text| warpbpf_ptx::index(text).map_err(SpliceError::Ptx);
        let before = read(image.ptx.as_deref().unwrap_or_default())?;
        let after = read(text)?;
        let sites = self
            .site_names()
            .into_iter()
            .filter(|name| !name.is_empty());
        Ok(Splice {
            mangled: mangled.to_owned(),
            method: kernel.method.clone(),
            functions: changes(&before, &after),
            text: text.to_owned(),
            site_count: kernel.sites,
            sites: sites.collect(),
            left_out: kernel.left_out.clone(),
        })
    }
}

/// Why there is nothing to show.
fn why_not(done: &PreparedKernel) -> SpliceError {
    let kernel = done.demangled.clone();
    match &done.method {
        Method::NoSite => SpliceError::NoSite {
            kernel,
            left_out: done.left_out.clone(),
        },
        method => SpliceError::NotMade {
            kernel,
            method: method.clone(),
        },
    }
}

fn text_of<'p>(code: &'p Code, prepared: &'p Prepared) -> Option<&'p str> {
    match code {
        Code::Slice { ptx, .. } => Some(ptx),
        Code::Splice(_) | Code::Patched(_) => None,
        Code::Clone { .. } => prepared.rewritten.as_deref(),
    }
}

fn one_kernel<'i>(image: &'i ImageInfo, glob: &str) -> Result<&'i str, SpliceError> {
    let named: Vec<&str> = (image.kernels.iter())
        .filter(|k| names::matches(glob, &k.mangled))
        .map(|k| k.mangled.as_str())
        .collect();
    match named.as_slice() {
        [one] => Ok(one),
        [] => Err(no_kernel(image, glob)),
        several => Err(SpliceError::SeveralKernels {
            glob: glob.to_owned(),
            kernels: several.iter().map(|name| (*name).to_owned()).collect(),
        }),
    }
}

fn no_kernel(image: &ImageInfo, glob: &str) -> SpliceError {
    let known = image.kernels.iter();
    SpliceError::NoKernel {
        glob: glob.to_owned(),
        known: known.map(|kernel| kernel.demangled.clone()).collect(),
    }
}

/// The functions of `after` that are not in `before` as they are.
fn changes(before: &Module<'_>, after: &Module<'_>) -> Vec<SplicedFunction> {
    let text = |module: &Module<'_>, function: &Function<'_>| {
        module.text[function.span.clone()].to_owned()
    };
    let originals: BTreeMap<&str, &Function<'_>> = before
        .functions
        .iter()
        .filter(|f| f.body.is_some())
        .map(|f| (f.name, f))
        .collect();
    let mut changed = Vec::new();
    for function in after.functions.iter().filter(|f| f.body.is_some()) {
        let name = original_name(function.name, &originals);
        let was = originals.get(name).map(|f| text(before, f));
        let is = text(after, function);
        if was.as_deref() != Some(&is) {
            changed.push(SplicedFunction {
                name: name.to_owned(),
                before: was.unwrap_or_default(),
                after: is,
            });
        }
    }
    // The kernel is what one looks for.
    changed.sort_by_key(|f| !originals.get(f.name.as_str()).is_some_and(|f| f.is_entry));
    changed
}

/// `wbpf_kernel` and `wbpf_0_function`, as copies are called, to the name of what they are a copy
/// of.
fn original_name<'n>(name: &'n str, originals: &BTreeMap<&str, &Function<'_>>) -> &'n str {
    let Some(rest) = name.strip_prefix(PREFIX) else {
        return name;
    };
    let numbered = rest
        .split_once('_')
        .filter(|(number, _)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        .map(|(_, name)| name);
    [Some(rest), numbered]
        .into_iter()
        .flatten()
        .find(|candidate| originals.contains_key(candidate))
        .unwrap_or(name)
}
