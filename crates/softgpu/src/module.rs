//! Modules: symbols, variables in device memory and kernels. A body is decoded when its kernel is
//! first asked for.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use warpbpf_ptx::ast::{self, Function};

use crate::decode::kernel::program;
use crate::decode::summary;
use crate::device::Device;
use crate::load_error::LoadError;
use crate::loaded::Inner;
use crate::op::Op;
use crate::params::{ParamInfo, param_layout};
use crate::program::Program;
use crate::references;
use crate::variables::Variables;

/// Instructions of decoded kernels that are kept, some 200 MB: kernels that call the same functions
/// have a copy of them each.
const KEPT_INSTRUCTIONS: usize = 2 << 20;

/// A loaded PTX module. Its variables are freed when it and its kernels are dropped.
pub struct Module {
    inner: Arc<Inner>,
}

/// An entry of a module.
#[derive(Clone)]
pub struct Kernel {
    inner: Arc<Inner>,
    index: u32,
    name: Arc<str>,
    params: Arc<[ParamInfo]>,
    max_threads: Option<u32>,
    required_threads: Option<[u32; 3]>,
    required_cluster: Option<[u32; 3]>,
}

/// What the driver API tells of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelInfo {
    /// Mangled name.
    pub name: String,
    /// Parameters in order.
    pub params: Vec<ParamInfo>,
    /// Bytes of statically allocated shared memory.
    pub static_shared: u32,
    /// Bytes of local memory per thread.
    pub local: u32,
    /// From `.maxntid` or `.reqntid`: threads per block at most.
    pub max_threads: u32,
    /// `.reqntid`.
    pub required_threads: Option<[u32; 3]>,
    /// `.reqnctapercluster`: blocks per cluster.
    pub required_cluster: Option<[u32; 3]>,
    /// An estimate of the registers per thread, from the live ranges in text order.
    pub registers: u32,
    /// `.version`
    pub ptx_version: (u32, u32),
    /// `.target`, first word.
    pub target: String,
}

impl Module {
    pub(crate) fn load(device: Arc<Device>, ptx: &str) -> Result<Module, LoadError> {
        // A driver takes a C string: what follows a zero byte is not text.
        let text: Arc<str> = ptx.trim_end_matches('\0').into();
        // SAFETY: the bytes of an `Arc<str>` neither move nor change while it lives, and `Inner`
        // keeps it as long as what borrows from it, which is only lent out for the borrow of
        // `Inner` (`Inner::ast`).
        let borrowed: &'static str = unsafe { &*std::ptr::from_ref::<str>(&text) };
        let module = warpbpf_ptx::index(borrowed)?;
        if module.address_size != 64 {
            return Err(LoadError::AddressSize {
                bits: module.address_size,
            });
        }
        check_parameters(&module)?;
        let functions = function_numbers(&module);
        references::check(&module, &functions)?;
        let id = device.next_module_id();
        let variables = Variables::new(&device, &module, &functions, id)?;
        let files = module.files.iter();
        let files = files.map(|&(index, path)| (index, path.to_owned()));
        let inner = Inner {
            files: Arc::new(files.collect()),
            functions,
            variables,
            ast: module,
            text,
            id,
            lines: OnceLock::new(),
            summaries: Mutex::default(),
            programs: Mutex::default(),
            device,
        };
        Ok(Module {
            inner: Arc::new(inner),
        })
    }

    /// The kernel of that mangled name.
    pub fn kernel(&self, name: &str) -> Option<Kernel> {
        let &index = self.inner.functions.get(name)?;
        let function = self.inner.ast().functions.get(index as usize)?;
        (function.is_entry && function.body.is_some())
            .then(|| Kernel::new(Arc::clone(&self.inner), index, function))
    }

    /// The PTX text.
    pub fn text(&self) -> &str {
        &self.inner.text
    }

    /// Mangled names of the kernels, in text order.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.inner
            .ast()
            .functions
            .iter()
            .filter(|f| f.is_entry && f.body.is_some())
            .map(|f| f.name)
    }

    /// Address and size in bytes of a `.global` or `.const` variable.
    pub fn global(&self, name: &str) -> Option<(u64, u64)> {
        self.inner.variables.memory(name)
    }

    /// Address and size in bytes of a `.global` variable that the host reads and writes itself, at
    /// the same address.
    pub fn managed(&self, name: &str) -> Option<(u64, u64)> {
        self.inner.variables.managed(name)
    }

    /// Names of the `.global` and `.const` variables.
    pub fn globals(&self) -> impl Iterator<Item = &str> {
        self.inner.variables.names()
    }

    /// Decodes every kernel now, as a driver's compiler would, rather than when it is first used.
    ///
    /// # Errors
    /// The first body that cannot be decoded.
    pub fn decode_all(&self) -> Result<(), LoadError> {
        summary::check_all(&self.inner, self.inner.ast())
    }

    /// What the driver API tells of a kernel; `None` if there is none of that name.
    ///
    /// # Errors
    /// The kernel's body cannot be decoded.
    pub fn kernel_info(&self, name: &str) -> Option<Result<KernelInfo, LoadError>> {
        self.kernel(name).map(|kernel| kernel.info())
    }
}

/// Refuses functions in which a name stands for two parameters, as ptxas does; it takes prototypes
/// of that kind.
fn check_parameters(module: &ast::Module<'_>) -> Result<(), LoadError> {
    for function in module.functions.iter().filter(|f| f.body.is_some()) {
        let mut names = HashSet::new();
        for param in function.returns.iter().chain(&function.params) {
            if !names.insert(param.name) {
                return Err(LoadError::Body {
                    function: function.name.to_owned(),
                    line: module.line_of(param.span.start),
                    reason: format!("two of its parameters are called `{}`", param.name),
                });
            }
        }
    }
    Ok(())
}

/// Function numbers by name; a definition wins over its prototypes.
fn function_numbers(module: &ast::Module<'_>) -> HashMap<String, u32> {
    let mut functions: HashMap<String, u32> = HashMap::new();
    for (i, function) in module.functions.iter().enumerate() {
        if function.body.is_some() || !functions.contains_key(function.name) {
            functions.insert(function.name.to_owned(), i as u32);
        }
    }
    for alias in &module.aliases {
        let declared = functions.contains_key(alias.name);
        if let Some(&target) = functions.get(alias.target).filter(|_| declared) {
            functions.insert(alias.name.to_owned(), target);
        }
    }
    functions
}

/// Numbers of a directive such as `.maxntid 256, 1, 1`.
fn directive_numbers(function: &Function<'_>, name: &str) -> Option<Vec<u32>> {
    let text = function
        .directives
        .iter()
        .find_map(|d| d.trim().strip_prefix(name))?;
    Some(
        text.split(',')
            .filter_map(|n| n.trim().parse().ok())
            .collect(),
    )
}

impl Kernel {
    fn new(inner: Arc<Inner>, index: u32, function: &Function<'_>) -> Kernel {
        let three = |name| {
            let list = directive_numbers(function, name)?;
            let at = |i: usize| list.get(i).copied().unwrap_or(1);
            Some([at(0), at(1), at(2)])
        };
        let (required_threads, required_cluster) = (three(".reqntid"), three(".reqnctapercluster"));
        let product = |list: &[u32]| list.iter().fold(1u32, |n, &m| n.saturating_mul(m));
        let most = directive_numbers(function, ".maxntid").map(|list| product(&list));
        let max_threads = most.or(required_threads.map(|list| product(&list)));
        let (name, params) = (Arc::from(function.name), param_layout(function).into());
        Kernel {
            inner,
            index,
            name,
            params,
            max_threads,
            required_threads,
            required_cluster,
        }
    }

    /// Mangled name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Parameters in order.
    pub fn params(&self) -> &[ParamInfo] {
        &self.params
    }

    /// Bytes of the parameter block.
    pub fn param_bytes(&self) -> usize {
        self.params
            .last()
            .map_or(0, |last| last.offset.saturating_add(last.size))
    }

    /// `.maxntid` or `.reqntid` as a number of threads.
    pub fn max_threads(&self) -> Option<u32> {
        self.max_threads
    }

    /// `.reqnctapercluster`: a launch that names no cluster gets this one.
    pub fn required_cluster(&self) -> Option<[u32; 3]> {
        self.required_cluster
    }

    /// Another kernel of its module, by number.
    pub(crate) fn sibling(&self, index: u32) -> Option<Kernel> {
        let function = self.inner.ast().functions.get(index as usize)?;
        (function.is_entry && function.body.is_some())
            .then(|| Kernel::new(Arc::clone(&self.inner), index, function))
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.inner.device
    }

    pub(crate) fn module_id(&self) -> u32 {
        self.inner.id
    }

    /// The decoded kernel; the first call decodes it.
    pub(crate) fn program(&self) -> Result<Arc<Program>, LoadError> {
        let mut programs = self
            .inner
            .programs
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = programs.known.get(&self.index) {
            return Ok(Arc::clone(program));
        }
        let program = Arc::new(program(&self.inner, self.inner.ast(), self.index)?);
        programs.instructions += program
            .functions
            .iter()
            .map(|f| f.code.len())
            .sum::<usize>();
        if programs.instructions > KEPT_INSTRUCTIONS {
            // Those that run go on; the others are decoded anew.
            programs.known.clear();
            programs.instructions = 0;
        }
        programs.known.insert(self.index, Arc::clone(&program));
        Ok(program)
    }

    /// Instructions of the kernel, and of what it can reach, that the emulator does not have: PTX
    /// line and message of the trap that each would be.
    ///
    /// # Errors
    /// The kernel's body cannot be decoded.
    pub fn unsupported(&self) -> Result<Vec<(u32, String)>, LoadError> {
        let program = self.program()?;
        let code = program.functions.iter().flat_map(|function| &function.code);
        Ok(code
            .filter_map(|inst| match &inst.op {
                Op::Unsupported(message) => Some((inst.line, message.to_string())),
                _ => None,
            })
            .collect())
    }

    /// What the driver API tells of the kernel.
    ///
    /// # Errors
    /// The kernel's body cannot be decoded.
    pub fn info(&self) -> Result<KernelInfo, LoadError> {
        let facts = summary::facts(&self.inner, self.inner.ast(), self.index)?;
        Ok(KernelInfo {
            name: self.name.to_string(),
            params: self.params.to_vec(),
            static_shared: facts.static_shared,
            local: facts.local,
            max_threads: self
                .max_threads
                .unwrap_or(crate::limits::MAX_THREADS_PER_BLOCK),
            required_threads: self.required_threads,
            required_cluster: self.required_cluster,
            registers: facts.registers,
            ptx_version: self.inner.ast().version,
            target: self
                .inner
                .ast()
                .targets
                .first()
                .map_or_else(String::new, |t| (*t).to_owned()),
        })
    }
}
