//! The text work for one image: which kernels are wanted, how each can be instrumented, and the PTX
//! for it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use warpbpf_abi::method::Method;
use warpbpf_patch::{Method as InPtx, Patcher, Variant};

use crate::assembled::Unmade;
use crate::choices::Choices;
use crate::image::{ImageInfo, KernelSummary};
use crate::machine::{Spliced, Splicer};
use crate::names::demangle;
use crate::patched::{Chooser, Patched};
use crate::plan::Session;
use crate::sites;
use crate::texts::{Clone, Texts};

/// Result of [`Session::prepare`].
#[derive(Debug, Default)]
pub struct Prepared {
    /// PTX text to load instead of the image, if some kernels are instrumented as clones beside their originals.
    pub rewritten: Option<String>,
    /// The same, and the image's own text, where the compiler may have something to say of clones.
    pub(crate) commented: Option<CloneTexts>,
    /// Every kernel of the image.
    pub kernels: Vec<PreparedKernel>,
    /// What failed of machine code.
    pub(crate) unmade: Unmade,
}

/// What is compiled once more for what the compiler says of clones.
#[derive(Debug)]
pub(crate) struct CloneTexts {
    /// With clones.
    pub(crate) rewritten: String,
    /// Without.
    pub(crate) plain: String,
    /// The clones' entries.
    pub(crate) entries: Vec<String>,
}

/// One kernel and what is to be done with it.
#[derive(Debug, Clone)]
pub struct PreparedKernel {
    /// Name as the driver knows it.
    pub mangled: String,
    /// Name as people write it.
    pub demangled: String,
    /// Its number, if programs want it.
    pub kernel_id: Option<u64>,
    /// Programs that want it, by index.
    pub programs: Vec<usize>,
    /// How it gets them, or why it does not.
    pub method: Method,
    /// It will be instrumented.
    pub wanted: bool,
    /// The image holds machine code of it, which the driver would run.
    pub machine_code: bool,
    /// Sites in its middle, and in functions that it reaches, that have a program.
    pub sites: u32,
    /// Sites that a program wanted and did not get: how many, for each reason.
    pub left_out: Vec<(String, u32)>,
    /// Programs that match it, by index, and at how many places each stands in it; empty where nothing was made.
    pub placed: Vec<(usize, u32)>,
    /// Which launches its programs are in.
    pub(crate) choices: Choices,
    /// The instrumented code.
    pub(crate) code: Option<Code>,
}

impl Prepared {
    /// A kernel gets its probes in machine code: the image's is still needed.
    pub fn uses_machine_code(&self) -> bool {
        let splices = |kernel: &PreparedKernel| {
            matches!(kernel.code, Some(Code::Splice(_) | Code::Patched(_)))
        };
        self.kernels.iter().any(splices)
    }

    /// Why kernels of which there is only machine code have no programs although they could: a
    /// function that the assembler did not make, or a copy of their file that the driver did not
    /// load. Of a kernel that cannot have them only its `method` tells.
    pub fn unmade(&self) -> Option<&str> {
        self.unmade.why()
    }

    /// Leaves out the kernels whose code must be in the application's own module: that is loaded as it is, or was before.
    pub fn refuse_clones(&mut self, advice: &str) {
        self.rewritten = None;
        self.commented = None;
        for kernel in &mut self.kernels {
            if let Some(Code::Clone { .. }) = kernel.code {
                let reason = format!("it needs a {}; {advice}", kernel.method);
                refuse(kernel, &reason);
                kernel.code = None;
            }
        }
    }

    /// Takes kernels over whose programs are the same as `before`, with all that was made of them. `programs` says which those
    /// are, and the programs' numbers in this session.
    pub fn inherit(&mut self, before: &Prepared, programs: impl Fn(&str) -> Option<Vec<usize>>) {
        for (kernel, old) in self.kernels.iter_mut().zip(&before.kernels) {
            let Some(now) = programs(&kernel.mangled).filter(|_| kernel.mangled == old.mangled)
            else {
                continue;
            };
            let renumbered = |program: &usize| {
                let at = old.programs.iter().position(|p| p == program);
                at.and_then(|at| now.get(at).copied())
            };
            let placed = old.placed.iter();
            let placed = placed.filter_map(|(program, count)| Some((renumbered(program)?, *count)));
            let mut kept = PreparedKernel {
                placed: placed.collect(),
                ..old.clone()
            };
            // Those without a site wanted nothing of it.
            if !old.programs.is_empty() {
                kept.programs = now;
            }
            *kernel = kept;
        }
    }

    /// Where nothing can be made of a kernel that had programs before, it keeps those, if `programs` gives their numbers in this session: it is told the
    /// kernel and those before. Names of these kernels, and why they do not have the others too.
    pub fn fall_back(
        &mut self,
        before: &Prepared,
        programs: impl Fn(&str, &[usize]) -> Option<Vec<usize>>,
    ) -> Vec<(String, Method)> {
        let lost = |(kernel, old): (&PreparedKernel, &PreparedKernel)| {
            let lost = !kernel.wanted && !kernel.programs.is_empty() && old.wanted;
            let kept = lost.then(|| programs(&old.mangled, &old.programs));
            let kept = kept.flatten()?;
            Some((kernel.mangled.clone(), (kernel.method.clone(), kept)))
        };
        let lost = self.kernels.iter().zip(&before.kernels).filter_map(lost);
        let lost: HashMap<String, (Method, Vec<usize>)> = lost.collect();
        self.inherit(before, |mangled| Some(lost.get(mangled)?.1.clone()));
        lost.into_iter()
            .map(|(mangled, (method, _))| (mangled, method))
            .collect()
    }
}

impl PreparedKernel {
    /// Its launches carry a launch record, or need memory like it.
    pub(crate) fn needs_launch_record(&self) -> bool {
        match &self.code {
            Some(Code::Slice { variant, .. } | Code::Clone { variant }) => {
                variant.hidden.is_some_and(|hidden| hidden.counts())
            }
            Some(Code::Splice(spliced)) => spliced.hidden.is_some_and(|hidden| hidden.counts()),
            Some(Code::Patched(patched)) => patched.launch_args.is_some(),
            None => false,
        }
    }

    /// Takes over what the patcher says of the sites. False if there is none, and so nothing to run.
    pub(crate) fn take_sites(&mut self, variant: &Variant, only_sites: bool) -> bool {
        self.sites = variant.sites.len() as u32;
        self.left_out = sites::left_out(variant);
        let counts = variant.placed.iter().copied();
        self.placed = self.programs.iter().copied().zip(counts).collect();
        if !only_sites || self.sites > 0 {
            return true;
        }
        self.wanted = false;
        self.method = Method::NoSite;
        if self.left_out.is_empty() {
            self.programs.clear();
        }
        false
    }
}

/// Instrumented code of a kernel.
#[derive(Debug, Clone)]
pub(crate) enum Code {
    /// A module of its own.
    Slice {
        /// Its text.
        ptx: String,
        /// The same without programs, where the compiler may have something to say of both.
        plain: Option<String>,
        /// How to load and launch it.
        variant: Variant,
    },
    /// Its machine code with calls, in a copy of its file.
    Splice(Spliced),
    /// The same by Compute Sanitizer, in a loaded copy.
    Patched(Patched),
    /// A second entry in the rewritten module.
    Clone {
        /// How to launch it.
        variant: Variant,
    },
}

/// A kernel's code, and how often each program stands in it.
type Made = (Code, Vec<(usize, u32)>);

impl Session {
    /// Decides for each kernel of an image and makes the texts. Failures concern one kernel and
    /// stand in its `method`.
    ///
    /// A panic is a failure like any other: what it says stands in the `method` of the kernel, or
    /// of all of them if it concerns the image.
    pub fn prepare(&self, image: &ImageInfo) -> Prepared {
        self.prepare_for(image, &|mangled| self.matching(mangled))
    }

    /// As [`Session::prepare`], with the programs of each kernel as `programs` says.
    pub fn prepare_for(
        &self,
        image: &ImageInfo,
        programs: &dyn Fn(&str) -> Vec<usize>,
    ) -> Prepared {
        caught(|| {
            warpbpf_faults::bug("session/image-panics");
            let mut prepared = self.prepare_kernels(image, programs);
            if let Some(why) = &image.not_instead {
                prepared.refuse_clones(why);
            }
            Ok(prepared)
        })
        .unwrap_or_else(|reason| refuse_all(image, programs, &reason))
    }

    fn prepare_kernels(
        &self,
        image: &ImageInfo,
        programs: &dyn Fn(&str) -> Vec<usize>,
    ) -> Prepared {
        let Some(ptx) = image.ptx.as_deref() else {
            let why = image.why_no_ptx.as_deref().unwrap_or("it has no PTX");
            let mut refused = refuse_all(image, programs, why);
            if self.splices() {
                self.splice_kernels(image, &mut refused);
            }
            return refused;
        };
        // Text that begins in the middle of a string.
        let damaged = warpbpf_faults::strikes("session/ptx");
        let module = match warpbpf_ptx::index(if damaged { "\"" } else { ptx }) {
            Ok(module) => module,
            Err(error) => {
                let why = format!("its PTX cannot be read: {error}");
                return refuse_all(image, programs, &why);
            }
        };
        let patcher = Patcher::new(&module);
        let texts = Texts::new(self, &module, &patcher, self.hash(ptx));
        let mut prepared = Prepared::default();
        let mut clones: Vec<Clone> = Vec::new();
        for kernel in &image.kernels {
            let mut done = undone(kernel, programs(&kernel.mangled));
            if !done.programs.is_empty() {
                done.machine_code = kernel.registers.is_some();
                let made = patcher
                    .method(&kernel.mangled)
                    .map_err(|e| e.to_string())
                    .and_then(|method| {
                        caught(|| make(self, &texts, kernel, &done.programs, method))
                    });
                match made {
                    Ok((made, None)) => {
                        done = PreparedKernel {
                            machine_code: done.machine_code,
                            ..made
                        };
                    }
                    Ok((made, Some(fragments))) => {
                        done = made;
                        clones.push(Clone {
                            at: prepared.kernels.len(),
                            fragments,
                        });
                    }
                    Err(reason) => refuse(&mut done, &reason),
                }
            }
            prepared.kernels.push(done);
        }
        if !clones.is_empty() {
            texts.make_clones(clones, &mut prepared);
        }
        prepared
    }

    /// Puts calls into the machine code of kernels that are refused for lack of PTX, where that is possible.
    fn splice_kernels(&self, image: &ImageInfo, refused: &mut Prepared) {
        let (edited, patched) = (Unmade::default(), Unmade::default());
        let mut splicer = self.edits().then(|| Splicer::new(self, image, &edited));
        let chooser = self.means.sanitizer;
        let chooser = chooser.map(|sanitizer| Chooser::new(self, sanitizer, image, &patched));
        let mut missed = false;
        for kernel in &mut refused.kernels {
            if kernel.programs.is_empty() {
                continue;
            }
            kernel.kernel_id = Some(self.kernel_id(&kernel.demangled));
            kernel.choices = self.choices_in_machine_code(&kernel.programs);
            let splice = splicer.as_mut().map(|splicer| {
                caught(|| match splicer {
                    Ok(splicer) => splicer.splice(kernel),
                    Err(why) => Err(why.clone()),
                })
            });
            let sanitize = || {
                let chooser = chooser.as_ref()?;
                Some(caught(|| match chooser {
                    Ok(chooser) => chooser.choose(kernel),
                    Err(why) => Err(why.clone()),
                }))
            };
            match by_one_of(splice, sanitize) {
                Ok((method, (code, placed))) => {
                    kernel.method = method;
                    kernel.wanted = true;
                    kernel.machine_code = true;
                    kernel.placed = placed;
                    kernel.code = Some(code);
                }
                Err(reason) => {
                    // Of a kernel that could not have any, another reason tells.
                    missed |= edited.why().is_some_and(|why| reason.contains(why));
                    let first = kernel.method.why_not().unwrap_or_default();
                    kernel.method = Method::refused(format!("{first}; {reason}"));
                }
            }
        }
        drop((splicer, chooser));
        // Where the other one has taken all that the one could not, nothing is missing.
        refused.unmade = match patched.why().is_none() && missed {
            true => edited,
            false => patched,
        };
    }

    /// Tells texts apart where numbers are given to their sites.
    fn hash(&self, ptx: &str) -> u64 {
        if !self.programs().iter().any(|p| p.has_sites()) {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        ptx.hash(&mut hasher);
        hasher.finish()
    }
}

/// A slice, ready; or what a clone needs, to be made together with the image's other clones.
fn make(
    session: &Session,
    texts: &Texts<'_, '_>,
    kernel: &KernelSummary,
    programs: &[usize],
    method: InPtx,
) -> Result<(PreparedKernel, Option<Vec<warpbpf_codegen::Fragment>>), String> {
    warpbpf_faults::bug("session/kernel-panics");
    warpbpf_faults::check("session/kernel", || "its code cannot be made".to_owned())?;
    let mut done = undone(kernel, programs.to_vec());
    let kernel_id = session.kernel_id(&done.demangled);
    done.kernel_id = Some(kernel_id);
    done.choices = session.choices_of(programs);
    if session.has_slots()
        && let Some(why) = done
            .choices
            .against("what is in slots cannot be told apart")
    {
        return Err(why);
    }
    if let Some(why) = done.choices.too_many() {
        return Err(why);
    }
    let reasons = match method {
        InPtx::Slice => None,
        InPtx::Clone { reasons } => Some(reasons),
        InPtx::Refused { reason, advice } => return Err(format!("{reason}; {advice}")),
    };
    let fragments = texts.fragments(&kernel.mangled, programs, kernel_id)?;
    done.wanted = true;
    match reasons {
        None => {
            let (ptx, variant) = texts.slice(&kernel.mangled, programs, &fragments)?;
            done.method = Method::Slice;
            if done.take_sites(&variant, texts.only_sites(programs)) {
                let plain = texts.plain(&kernel.mangled, &ptx);
                done.code = Some(Code::Slice {
                    ptx,
                    plain,
                    variant,
                });
            }
            Ok((done, None))
        }
        Some(reasons) => {
            done.method = Method::Clone {
                reasons: reasons.join("; "),
            };
            Ok((done, Some(fragments)))
        }
    }
}

/// The first that can be had of an edit and of what Compute Sanitizer calls, of those that are there, and its word.
///
/// # Errors
/// Why neither, for the user.
fn by_one_of(
    splice: Option<Result<Made, String>>,
    sanitize: impl FnOnce() -> Option<Result<Made, String>>,
) -> Result<(Method, Made), String> {
    let why = match splice {
        Some(Ok(made)) => return Ok((Method::Splice, made)),
        Some(Err(why)) => Some(why),
        None => None,
    };
    match (sanitize(), why) {
        (Some(Ok(made)), _) => Ok((Method::Sanitizer, made)),
        (Some(Err(other)), Some(why)) if why != other => {
            Err(format!("by `splice`: {why}; by `sanitizer`: {other}"))
        }
        (Some(Err(why)), _) | (None, Some(why)) => Err(why),
        (None, None) => Err("it has no back end".to_owned()),
    }
}

fn undone(kernel: &KernelSummary, programs: Vec<usize>) -> PreparedKernel {
    PreparedKernel {
        mangled: kernel.mangled.clone(),
        demangled: demangle(&kernel.mangled),
        kernel_id: None,
        programs,
        method: Method::NotMatched,
        wanted: false,
        machine_code: false,
        sites: 0,
        left_out: Vec::new(),
        placed: Vec::new(),
        choices: Choices::default(),
        code: None,
    }
}

fn refuse_all(image: &ImageInfo, programs: &dyn Fn(&str) -> Vec<usize>, reason: &str) -> Prepared {
    let refused = |kernel: &KernelSummary| {
        let mut done = undone(kernel, programs(&kernel.mangled));
        if !done.programs.is_empty() {
            refuse(&mut done, reason);
        }
        done
    };
    Prepared {
        kernels: image.kernels.iter().map(refused).collect(),
        ..Prepared::default()
    }
}

pub(crate) fn refuse(kernel: &mut PreparedKernel, reason: &str) {
    kernel.method = Method::refused(reason);
    kernel.wanted = false;
}

/// What `work` gives; a panic becomes a reason that a user can read and report.
fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // Nothing that `work` changes outlives a panic in it.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let said = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a message".to_owned());
        // Dropping a panic's payload may panic again.
        std::mem::forget(payload);
        Err(format!(
            "warpbpf failed internally: `{said}`; please report this with the program"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_reasons() {
        assert_eq!(caught(|| Ok(3)), Ok(3));
        assert_eq!(
            caught::<u32>(|| Err("its own".to_owned())),
            Err("its own".to_owned())
        );
        let reason = |said| {
            Err(format!(
                "warpbpf failed internally: `{said}`; please report this with the program"
            ))
        };
        assert_eq!(caught::<u32>(|| panic!("plain")), reason("plain"));
        assert_eq!(caught::<u32>(|| panic!("block {}", 7)), reason("block 7"));
        assert_eq!(
            caught::<u32>(|| std::panic::panic_any(7)),
            reason("a panic without a message")
        );
    }
}
