//! What is made of an image for its programs, before any of it is loaded.

use std::collections::HashMap;
use std::sync::Arc;

use warpbpf_abi::method::Method;
use warpbpf_patch::{HiddenParam, ParamLayout, Variant};
use warpbpf_sanitizer::Sanitizer;
use warpbpf_sanitizer::sys::Instruction;
use warpbpf_sass::{Edit, Variable};

use crate::plan::assembled::Unmade;
use crate::plan::choices::Choices;
use crate::plan::sites;

/// Functions by the places that they are called at.
pub(crate) type Calls = Vec<(u32, String)>;

/// Result of [`crate::Session::prepare`].
#[derive(Debug, Default)]
pub struct Prepared {
    /// PTX text to load instead of the image, if some kernels are instrumented as clones beside
    /// their originals.
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
    /// Programs that match it, by index, and at how many places each stands in it; empty where
    /// nothing was made.
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

    /// Leaves out the kernels whose code must be in the application's own module: that is loaded as
    /// it is, or was before.
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

    /// Takes kernels over whose programs are the same as `before`, with all that was made of them.
    /// `programs` says which those are, and the programs' numbers in this session.
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

    /// Where nothing can be made of a kernel that had programs before, it keeps those, if
    /// `programs` gives their numbers in this session: it is told the kernel and those before.
    /// Names of these kernels, and why they do not have the others too.
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

    /// Takes over what the patcher says of the sites. False if there is none, and so nothing to
    /// run.
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

pub(crate) fn refuse(kernel: &mut PreparedKernel, reason: &str) {
    kernel.method = Method::refused(reason);
    kernel.wanted = false;
}

/// What runs in a kernel's place where it is only machine code.
#[derive(Debug, Clone)]
pub(crate) struct Spliced {
    /// The file that holds it.
    pub(crate) file: Arc<[u8]>,
    /// Its edit, but for where its table is.
    pub(crate) edit: Arc<Edit>,
    /// Variables of the application's module that it uses.
    pub(crate) variables: Vec<Variable>,
    /// The slot of the kernel's number, in the session that the functions were made for.
    pub(crate) number_at: u32,
    /// The parameter that launches append, and the kernel's own.
    pub(crate) hidden: Option<HiddenParam>,
    pub(crate) params: Vec<ParamLayout>,
}

/// What runs in a kernel's place.
#[derive(Debug, Clone)]
pub(crate) struct Patched {
    pub(crate) sanitizer: &'static Sanitizer,
    /// The file that holds it.
    pub(crate) file: Arc<[u8]>,
    pub(crate) functions: Vec<CalledFunction>,
    /// The slot of the kernel's number, in the session that the functions were made for.
    pub(crate) number_at: u32,
    /// Launch arguments of the functions, if they need any: then each launch has a table of its own
    /// ([`crate::runtime::launch_args`]).
    pub(crate) launch_args: Option<HiddenParam>,
}

/// A function that is called at places of one kind.
#[derive(Debug, Clone)]
pub(crate) struct CalledFunction {
    pub(crate) instruction: Instruction,
    pub(crate) name: String,
    pub(crate) cubin: Arc<[u8]>,
}

impl Patched {
    /// What is called where, by which copies are told apart.
    pub(crate) fn calls(&self) -> Calls {
        let calls = self.functions.iter();
        let calls = calls.map(|function| (function.instruction as u32, function.name.clone()));
        calls.collect()
    }
}
