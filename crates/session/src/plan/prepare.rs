//! The text work for one image: which kernels are wanted, how each can be instrumented, and the PTX
//! for it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use warpbpf_abi::method::Method;
use warpbpf_patch::{Method as InPtx, Patcher};

use crate::plan::assembled::Unmade;
use crate::plan::choices::Choices;
use crate::plan::image::{ImageInfo, KernelSummary};
use crate::plan::kernel_error::KernelError;
use crate::plan::machine::Splicer;
use crate::plan::names::demangle;
use crate::plan::patched::Chooser;
use crate::plan::prepared::{Code, Prepared, PreparedKernel, refuse};
use crate::plan::session::Session;
use crate::plan::texts::{Clone, Texts};
use crate::plan::without_ptx::Made;

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
        .unwrap_or_else(|error| refuse_all(image, programs, &error.to_string()))
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
                    .map_err(KernelError::Patch)
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
                    Err(error) => refuse(&mut done, &error.to_string()),
                }
            }
            prepared.kernels.push(done);
        }
        if !clones.is_empty() {
            texts.make_clones(clones, &mut prepared);
        }
        prepared
    }

    /// Puts calls into the machine code of kernels that are refused for lack of PTX, where that is
    /// possible.
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
                Ok((method, made)) => {
                    kernel.method = method;
                    kernel.wanted = true;
                    kernel.machine_code = true;
                    kernel.placed = made.placed;
                    kernel.left_out = made.left_out;
                    kernel.code = Some(made.code);
                }
                Err(error) => {
                    let reason = error.to_string();
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
) -> Result<(PreparedKernel, Option<Vec<warpbpf_codegen::Fragment>>), KernelError> {
    warpbpf_faults::bug("session/kernel-panics");
    warpbpf_faults::check("session/kernel", || KernelError::Fault)?;
    let mut done = undone(kernel, programs.to_vec());
    let kernel_id = session.kernel_id(&done.demangled);
    done.kernel_id = Some(kernel_id);
    done.choices = session.choices_of(programs);
    if session.has_slots() {
        done.choices.check_in_slots()?;
    }
    done.choices.check_count()?;
    let reasons = match method {
        InPtx::Slice => None,
        InPtx::Clone { reasons } => Some(reasons),
        InPtx::Refused { reason, advice } => return Err(KernelError::Method { reason, advice }),
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

/// An edit, or what Compute Sanitizer calls, of those that are there: the first with all programs,
/// else the first with some; and its word.
///
/// # Errors
/// Why neither.
fn by_one_of(
    splice: Option<Result<Made, KernelError>>,
    sanitize: impl FnOnce() -> Option<Result<Made, KernelError>>,
) -> Result<(Method, Made), KernelError> {
    let why = match splice {
        Some(Ok(made)) if made.left_out.is_empty() => return Ok((Method::Splice, made)),
        Some(Ok(some)) => {
            return Ok(match sanitize() {
                Some(Ok(more)) if more.left_out.len() < some.left_out.len() => {
                    (Method::Sanitizer, more)
                }
                _ => (Method::Splice, some),
            });
        }
        Some(Err(why)) => Some(why),
        None => None,
    };
    match (sanitize(), why) {
        (Some(Ok(made)), _) => Ok((Method::Sanitizer, made)),
        (Some(Err(sanitizer)), Some(splice)) if splice != sanitizer => Err(KernelError::BackEnds {
            splice: Box::new(splice),
            sanitizer: Box::new(sanitizer),
        }),
        (Some(Err(why)), _) | (None, Some(why)) => Err(why),
        (None, None) => Err(KernelError::NoBackEnd),
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

/// What `work` gives; a panic becomes a reason that a user can read and report.
fn caught<T>(work: impl FnOnce() -> Result<T, KernelError>) -> Result<T, KernelError> {
    // Nothing that `work` changes outlives a panic in it.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let said = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a message".to_owned());
        // Dropping a panic's payload may panic again.
        std::mem::forget(payload);
        Err(KernelError::Panicked { said })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_reasons() {
        assert_eq!(caught(|| Ok(3)), Ok(3));
        assert_eq!(
            caught::<u32>(|| Err(KernelError::Target)),
            Err(KernelError::Target)
        );
        let said = |work: fn() -> u32| caught(|| Ok(work())).unwrap_err().to_string();
        let reason = |said| {
            format!("warpbpf failed internally: `{said}`; please report this with the program")
        };
        assert_eq!(said(|| panic!("plain")), reason("plain"));
        assert_eq!(said(|| panic!("block {}", 7)), reason("block 7"));
        assert_eq!(
            said(|| std::panic::panic_any(7)),
            reason("a panic without a message")
        );
    }
}
