//! The text work for one image: which kernels are wanted, which way each can be instrumented, and the PTX for it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use warpbpf_codegen::{Env, Fragment, Input, SlotSpace, Target, compile};
use warpbpf_patch::{self as patch, Attachment, PatchError, Patcher, Variant, Way};
use warpbpf_ptx::ast::Module;

use crate::image::{ImageInfo, KernelSummary};
use crate::names::demangle;
use crate::plan::Session;

/// Result of [`Session::prepare`].
#[derive(Debug, Default)]
pub struct Prepared {
    /// PTX text to load instead of the image, if some kernels are instrumented as clones beside their originals.
    pub rewritten: Option<String>,
    /// Every kernel of the image.
    pub kernels: Vec<PreparedKernel>,
}

/// One kernel and what is to be done with it.
#[derive(Debug)]
pub struct PreparedKernel {
    /// Name as the driver knows it.
    pub mangled: String,
    /// Name as people write it.
    pub demangled: String,
    /// Its number, if programs want it.
    pub kernel_id: Option<u64>,
    /// Programs that want it, by index.
    pub programs: Vec<usize>,
    /// `slice`, `clone: reasons`, `not matched` or `refused: reason`.
    pub way: String,
    /// It will be instrumented.
    pub wanted: bool,
    /// The image holds machine code of it, which the driver would run.
    pub machine_code: bool,
    /// The instrumented code.
    pub(crate) code: Option<Code>,
}

impl PreparedKernel {
    /// Its launches carry a launch record.
    pub(crate) fn needs_launch_record(&self) -> bool {
        match &self.code {
            Some(Code::Slice { variant, .. } | Code::Clone { variant }) => variant.hidden.is_some(),
            None => false,
        }
    }
}

/// Instrumented code of a kernel.
#[derive(Debug)]
pub(crate) enum Code {
    /// A module of its own.
    Slice {
        /// Its text.
        ptx: String,
        /// How to load and launch it.
        variant: Variant,
    },
    /// A second entry in the rewritten module.
    Clone {
        /// How to launch it.
        variant: Variant,
    },
}

impl Session {
    /// Decides for each kernel of an image and makes the texts. Failures concern one kernel and stand in its `way`.
    ///
    /// A panic is a failure like any other: what it says stands in the `way` of the kernel, or of all of them if it
    /// concerns the image.
    pub fn prepare(&self, image: &ImageInfo) -> Prepared {
        caught(|| Ok(self.prepare_kernels(image))).unwrap_or_else(|reason| {
            let refused = |kernel: &KernelSummary| {
                let programs = self.matching(&kernel.mangled);
                let way = if programs.is_empty() {
                    "not matched".into()
                } else {
                    format!("refused: {reason}")
                };
                self.undone(&kernel.mangled, programs, way)
            };
            Prepared {
                rewritten: None,
                kernels: image.kernels.iter().map(refused).collect(),
            }
        })
    }

    fn prepare_kernels(&self, image: &ImageInfo) -> Prepared {
        let mut prepared = Prepared::default();
        let Some(ptx) = image.ptx.as_deref() else {
            let why = image.why_no_ptx.as_deref().unwrap_or("it has no PTX");
            for kernel in &image.kernels {
                let programs = self.matching(&kernel.mangled);
                let way = if programs.is_empty() {
                    "not matched".into()
                } else {
                    format!("refused: {why}")
                };
                prepared
                    .kernels
                    .push(self.undone(&kernel.mangled, programs, way));
            }
            return prepared;
        };
        let module = match warpbpf_ptx::index(ptx) {
            Ok(module) => module,
            Err(error) => {
                for kernel in &image.kernels {
                    let way = format!("refused: its PTX cannot be read: {error}");
                    prepared.kernels.push(self.undone(
                        &kernel.mangled,
                        self.matching(&kernel.mangled),
                        way,
                    ));
                }
                return prepared;
            }
        };
        let patcher = Patcher::new(&module);
        let mut clones = Vec::new();
        for kernel in &image.kernels {
            let machine_code = kernel.registers.is_some();
            let programs = self.matching(&kernel.mangled);
            if programs.is_empty() {
                prepared
                    .kernels
                    .push(self.undone(&kernel.mangled, programs, "not matched".into()));
                continue;
            }
            let decided = patcher.way(&kernel.mangled).map_err(|e| e.to_string());
            let made = decided.and_then(|way| {
                caught(|| self.make(&module, &patcher, &kernel.mangled, programs.clone(), way))
            });
            match made {
                Ok((mut done, None)) => {
                    done.machine_code = machine_code;
                    prepared.kernels.push(done);
                }
                Ok((done, Some(fragments))) => {
                    clones.push((prepared.kernels.len(), fragments));
                    prepared.kernels.push(done);
                }
                Err(reason) => {
                    prepared.kernels.push(self.undone(
                        &kernel.mangled,
                        programs,
                        format!("refused: {reason}"),
                    ));
                }
            }
        }
        if !clones.is_empty() {
            self.make_clones(&module, &patcher, clones, &mut prepared);
        }
        prepared
    }

    fn undone(&self, mangled: &str, programs: Vec<usize>, way: String) -> PreparedKernel {
        PreparedKernel {
            mangled: mangled.to_string(),
            demangled: demangle(mangled),
            kernel_id: None,
            programs,
            way,
            wanted: false,
            machine_code: false,
            code: None,
        }
    }

    /// A slice, ready; or what a clone needs, to be made together with the image's other clones.
    fn make(
        &self,
        module: &Module<'_>,
        patcher: &Patcher<'_, '_>,
        mangled: &str,
        programs: Vec<usize>,
        way: Way,
    ) -> Result<(PreparedKernel, Option<Vec<Fragment>>), String> {
        let mut done = self.undone(mangled, programs, String::new());
        let kernel_id = self.kernel_id(&done.demangled);
        done.kernel_id = Some(kernel_id);
        let reasons = match way {
            Way::Slice => None,
            Way::Clone { reasons } => Some(reasons),
            Way::Refused { reason, advice } => return Err(format!("{reason}; {advice}")),
        };
        let fragments = self.fragments(module, &done.programs, kernel_id, SlotSpace::Const)?;
        done.wanted = true;
        match reasons {
            None => {
                let attachments = self.attachments(&done.programs, &fragments);
                let (ptx, variant) = patcher
                    .slice(mangled, &attachments, &self.patch_options(SlotSpace::Const))
                    .map_err(|e| e.to_string())?;
                done.way = "slice".into();
                done.code = Some(Code::Slice { ptx, variant });
                Ok((done, None))
            }
            Some(reasons) => {
                done.way = format!("clone: {}", reasons.join("; "));
                Ok((done, Some(fragments)))
            }
        }
    }

    /// Clones of one image are made together. Where that fails, each is tried alone and those that fail are dropped.
    fn make_clones(
        &self,
        module: &Module<'_>,
        patcher: &Patcher<'_, '_>,
        mut clones: Vec<(usize, Vec<Fragment>)>,
        prepared: &mut Prepared,
    ) {
        let mut space = SlotSpace::Const;
        loop {
            match self.try_clones(patcher, &clones, space, prepared) {
                Ok((text, variants)) => {
                    prepared.rewritten = Some(text);
                    for ((at, _), variant) in clones.iter().zip(variants) {
                        prepared.kernels[*at].code = Some(Code::Clone { variant });
                    }
                    return;
                }
                Err(PatchError::ConstantBank { .. }) if space == SlotSpace::Const => {
                    space = SlotSpace::Global;
                    for (at, fragments) in &mut clones {
                        let kernel = &prepared.kernels[*at];
                        if let Ok(again) = self.fragments(
                            module,
                            &kernel.programs,
                            kernel.kernel_id.unwrap_or(0),
                            space,
                        ) {
                            *fragments = again;
                        }
                    }
                }
                Err(together) => {
                    let whole = clones.len();
                    clones.retain(|clone| {
                        let alone =
                            self.try_clones(patcher, std::slice::from_ref(clone), space, prepared);
                        if let Err(error) = &alone {
                            refuse(&mut prepared.kernels[clone.0], &error.to_string());
                        }
                        alone.is_ok()
                    });
                    if clones.is_empty() {
                        return;
                    }
                    if clones.len() == whole {
                        for (at, _) in &clones {
                            refuse(&mut prepared.kernels[*at], &together.to_string());
                        }
                        return;
                    }
                }
            }
        }
    }

    fn try_clones(
        &self,
        patcher: &Patcher<'_, '_>,
        clones: &[(usize, Vec<Fragment>)],
        space: SlotSpace,
        prepared: &Prepared,
    ) -> Result<(String, Vec<Variant>), PatchError> {
        let requests: Vec<(&str, Vec<Attachment<'_>>)> = clones
            .iter()
            .map(|(at, fragments)| {
                let kernel = &prepared.kernels[*at];
                (
                    kernel.mangled.as_str(),
                    self.attachments(&kernel.programs, fragments),
                )
            })
            .collect();
        patcher.clone_in_module(&requests, &self.patch_options(space))
    }

    fn fragments(
        &self,
        module: &Module<'_>,
        programs: &[usize],
        kernel_id: u64,
        slots: SlotSpace,
    ) -> Result<Vec<Fragment>, String> {
        let sm = module
            .targets
            .first()
            .and_then(|t| sm_number(t))
            .ok_or("its `.target` is not an `sm_NN`")?;
        let target = Target {
            ptx: module.version,
            sm,
        };
        let compile_one = |index: &usize| {
            let program = &self.programs()[*index];
            let env = Env {
                target,
                site: program.spec.site,
                scope: program.spec.scope,
                kernel_id,
                maps: self.bindings(),
                printk: self.printk_binding(),
                slots,
                input: Input::Context,
            };
            compile(&program.verified, &env)
                .map_err(|e| format!("program `{}`: {e}", program.name()))
        };
        programs.iter().map(compile_one).collect()
    }

    fn attachments<'f>(
        &self,
        programs: &[usize],
        fragments: &'f [Fragment],
    ) -> Vec<Attachment<'f>> {
        let attach = |(index, fragment): (&usize, &'f Fragment)| {
            let spec = &self.programs()[*index].spec;
            Attachment {
                site: spec.site,
                scope: spec.scope,
                fragment,
            }
        };
        programs.iter().zip(fragments).map(attach).collect()
    }

    fn patch_options(&self, slot_space: SlotSpace) -> patch::Options {
        patch::Options {
            first_global_slot: self.first_free_slot(),
            slot_space,
        }
    }
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

fn refuse(kernel: &mut PreparedKernel, reason: &str) {
    kernel.way = format!("refused: {reason}");
    kernel.wanted = false;
}

/// `sm_90a` → 90.
fn sm_number(target: &str) -> Option<u32> {
    let digits = target.strip_prefix("sm_")?;
    digits
        .trim_end_matches(|c: char| c.is_ascii_alphabetic())
        .parse()
        .ok()
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
