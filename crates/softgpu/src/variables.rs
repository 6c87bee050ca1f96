//! The variables of a module: their places in device memory, and what they begin with. Those of a
//! kernel's own shared memory are placed when the kernel is decoded, since the place depends on the
//! kernel.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use warpbpf_ptx::ast::{Linkage, Module, Variable};
use warpbpf_ptx::type_size;

use crate::device::Device;
use crate::load_error::LoadError;
use crate::memory::Memory;
use crate::{initialiser, windows};

/// As `cudaMalloc` promises; PTX asks for no more.
const MANAGED_ALIGNMENT: usize = 256;

/// A module-scope symbol.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Symbol {
    /// `.global` or `.const`: address in device memory and size.
    Memory { address: u64, size: u64 },
    /// `.shared`: its place depends on the kernel.
    Shared {
        size: u64,
        align: u64,
        external: bool,
    },
    /// Texture references and the like, which are not supported.
    Opaque,
}

/// See the module.
pub(crate) struct Variables {
    device: Arc<Device>,
    /// The module's number, and its functions by name, whose addresses initialisers may take.
    id: u32,
    functions: HashMap<String, u32>,
    /// By name, with the number among the module's variables.
    symbols: HashMap<String, (Symbol, usize)>,
    allocations: Mutex<Vec<u64>>,
    /// `.attribute(.managed)` variables: memory of the host's, at the same address on the device.
    managed: Vec<(u64, Layout)>,
    managed_names: HashSet<String>,
    /// Those that a function's body declares, by where their names stand in the text.
    in_bodies: Mutex<HashMap<usize, u64>>,
}

impl Drop for Variables {
    fn drop(&mut self) {
        let allocations = self.allocations.get_mut();
        for &mut address in allocations.unwrap_or_else(PoisonError::into_inner) {
            // Only this module freed or could free it; a failure would mean that it is gone
            // already.
            let _ = self.device.memory.free(address);
        }
        for &(address, layout) in &self.managed {
            // As above: nobody else ends this mapping.
            let _ = self.device.memory.unmap_host(address);
            // SAFETY: `place_managed` allocated it with this layout, and the device sees it no
            // longer.
            unsafe { dealloc(address as *mut u8, layout) };
        }
    }
}

impl Variables {
    /// Gives every module-scope variable its address and its first value.
    pub(crate) fn new(
        device: &Arc<Device>,
        module: &Module<'_>,
        functions: &HashMap<String, u32>,
        id: u32,
    ) -> Result<Variables, LoadError> {
        let mut variables = Variables {
            device: Arc::clone(device),
            id,
            functions: functions.clone(),
            symbols: HashMap::with_capacity(module.variables.len()),
            allocations: Mutex::default(),
            managed: Vec::new(),
            managed_names: HashSet::new(),
            in_bodies: Mutex::default(),
        };
        let external = |v: &&Variable<'_>| v.linkage == Linkage::Extern;
        let defined = module.variables.iter().filter(|v| !external(v));
        let defined: HashSet<&str> = match module.variables.iter().any(|v| external(&v)) {
            true => defined.map(|v| v.name).collect(),
            false => HashSet::new(),
        };
        for (number, variable) in module.variables.iter().enumerate() {
            if variable.linkage == Linkage::Extern && defined.contains(variable.name) {
                continue;
            }
            let symbol = variables.place(module, variable)?;
            let name = variable.name.to_owned();
            variables.symbols.insert(name, (symbol, number));
        }
        for variable in &module.variables {
            let skipped = variable.linkage == Linkage::Extern && defined.contains(variable.name);
            if let Some((Symbol::Memory { address, size }, _)) =
                variables.symbols.get(variable.name)
                && !skipped
            {
                variables.initialise(module, variable, *address, *size)?;
            }
        }
        Ok(variables)
    }

    /// A module-scope symbol.
    pub(crate) fn symbol(&self, name: &str) -> Option<Symbol> {
        self.symbols.get(name).map(|(symbol, _)| *symbol)
    }

    /// Address and size in bytes of a `.global` or `.const` variable.
    pub(crate) fn memory(&self, name: &str) -> Option<(u64, u64)> {
        match self.symbol(name)? {
            Symbol::Memory { address, size } => Some((address, size)),
            Symbol::Shared { .. } | Symbol::Opaque => None,
        }
    }

    pub(crate) fn managed(&self, name: &str) -> Option<(u64, u64)> {
        self.managed_names
            .contains(name)
            .then(|| self.memory(name))?
    }

    /// Names of the `.global` and `.const` variables.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let symbols = self.symbols.iter();
        let memory = symbols.filter(|(_, (symbol, _))| matches!(symbol, Symbol::Memory { .. }));
        memory.map(|(name, _)| name.as_str())
    }

    /// Bytes between elements of a module-scope variable, for each dimension.
    pub(crate) fn strides(&self, module: &Module<'_>, name: &str) -> Option<Vec<u64>> {
        let &(_, number) = self.symbols.get(name)?;
        strides(module.variables.get(number)?)
    }

    /// The address of a `.global` or `.const` variable that a body declares: one for all that run
    /// the body.
    pub(crate) fn in_body(
        &self,
        module: &Module<'_>,
        variable: &Variable<'_>,
    ) -> Result<u64, LoadError> {
        let place = variable.name.as_ptr() as usize - module.text.as_ptr() as usize;
        let mut known = self
            .in_bodies
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(&address) = known.get(&place) {
            return Ok(address);
        }
        let (address, size) = self.allocate(module, variable)?;
        self.initialise(module, variable, address, size)?;
        known.insert(place, address);
        Ok(address)
    }

    fn place(&mut self, module: &Module<'_>, variable: &Variable<'_>) -> Result<Symbol, LoadError> {
        let external = variable.linkage == Linkage::Extern;
        Ok(match variable.space {
            "global" | "const" if matches!(variable.ty, "texref" | "samplerref" | "surfref") => {
                Symbol::Opaque
            }
            // As ptxas does, which warns that it ignores the `.extern`.
            "global" | "const" if external && variable.dims.first() == Some(&0) => {
                return Err(LoadError::ExternVariable {
                    name: variable.name.to_owned(),
                    line: module.line_of(variable.span.start),
                });
            }
            "global" | "const" => {
                let (address, size) = if is_managed(variable) {
                    let size = Variables::size(module, variable)?;
                    let placed = place_managed(&self.device.memory, size);
                    let (address, layout) = placed.ok_or_else(|| no_room(variable, size))?;
                    self.managed.push((address, layout));
                    self.managed_names.insert(variable.name.to_owned());
                    (address, size)
                } else {
                    self.allocate(module, variable)?
                };
                Symbol::Memory { address, size }
            }
            "shared" => Symbol::Shared {
                size: variable.size().unwrap_or(0),
                align: variable.align,
                external: external || variable.dims.first() == Some(&0),
            },
            _ => Symbol::Opaque,
        })
    }

    fn size(module: &Module<'_>, variable: &Variable<'_>) -> Result<u64, LoadError> {
        initialiser::size(variable).ok_or_else(|| LoadError::VariableSize {
            name: variable.name.to_owned(),
            line: module.line_of(variable.span.start),
        })
    }

    fn allocate(
        &self,
        module: &Module<'_>,
        variable: &Variable<'_>,
    ) -> Result<(u64, u64), LoadError> {
        let size = Variables::size(module, variable)?;
        let address = self.device.memory.alloc(size);
        let address = address.ok_or_else(|| no_room(variable, size))?;
        let mut allocations = self
            .allocations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        allocations.push(address);
        Ok((address, size))
    }

    fn initialise(
        &self,
        module: &Module<'_>,
        variable: &Variable<'_>,
        address: u64,
        size: u64,
    ) -> Result<(), LoadError> {
        let Some(text) = variable.init else {
            // Memory that was freed before holds what was there: variables without initialiser are
            // zero.
            let _ = self.device.memory.fill(address, 0, size);
            return Ok(());
        };
        let mut bytes = vec![0u8; size as usize];
        let mut resolve = |name: &str| match self.symbol(name) {
            Some(Symbol::Memory { address, .. }) => Some(address),
            Some(Symbol::Shared { .. } | Symbol::Opaque) => None,
            None => {
                let &index = self.functions.get(name)?;
                let function = module.functions.get(index as usize)?;
                let defined = function.body.is_some();
                defined.then(|| windows::function(self.id, index))
            }
        };
        // An initialiser names no elements.
        let strides = |_: &str| None;
        initialiser::evaluate(variable, text, &strides, &mut resolve, &mut bytes).map_err(
            |source| LoadError::Initialiser {
                name: variable.name.to_owned(),
                line: module.line_of(variable.span.start),
                source,
            },
        )?;
        let _ = self.device.memory.write(address, &bytes);
        Ok(())
    }
}

/// Bytes between elements, for each dimension, the outermost first; `None` of what is no array.
pub(crate) fn strides(variable: &Variable<'_>) -> Option<Vec<u64>> {
    if variable.dims.is_empty() {
        return None;
    }
    let mut stride = type_size(variable.ty)?;
    let mut strides = vec![stride];
    for &dim in variable.dims.iter().skip(1).rev() {
        stride = stride.checked_mul(dim)?;
        strides.push(stride);
    }
    strides.reverse();
    Some(strides)
}

/// Host and device have it at one address.
fn is_managed(variable: &Variable<'_>) -> bool {
    variable
        .attribute
        .is_some_and(|text| text.contains(".managed"))
}

fn no_room(variable: &Variable<'_>, bytes: u64) -> LoadError {
    LoadError::OutOfMemory {
        name: variable.name.to_owned(),
        bytes,
    }
}

/// Memory of the host's that the device has at the same address; how it was allocated comes along.
fn place_managed(memory: &Memory, size: u64) -> Option<(u64, Layout)> {
    let bytes = usize::try_from(size.max(1)).ok()?;
    let layout = Layout::from_size_align(bytes, MANAGED_ALIGNMENT).ok()?;
    // SAFETY: the size is not zero.
    let at = unsafe { alloc_zeroed(layout) };
    if at.is_null() {
        return None;
    }
    // SAFETY: it stays until the variables are dropped, which the kernels' launches hold, and
    // `Drop` unmaps it first.
    let address = unsafe { memory.map_host(at, size.max(1)) };
    Some((address, layout))
}
