//! The file of kernels with calls to functions of programs, loaded beside the application's:
//! written with the calls in it ([`warpbpf_sass`]), or patched after it was loaded
//! ([`crate::runtime::patched_functions`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use warpbpf_driver::sys::CUdeviceptr;
use warpbpf_driver::{Driver, DriverError, Module, Stream};
use warpbpf_sass::{Addresses, File, Variable};

use crate::plan::assembled::Unmade;
use crate::plan::prepared::{Calls, Code, Patched, Prepared, PreparedKernel, Spliced};
use crate::runtime::load_error::LoadError;
use crate::runtime::patched_functions::{self, PatchedFunctions};

/// Where a variable of the application's module is, and its bytes.
pub type Find<'f> = dyn Fn(&str) -> Result<(u64, u64), LoadError> + 'f;

/// The addresses of variables, each looked for once.
struct Found<'f> {
    find: &'f Find<'f>,
    known: BTreeMap<String, Result<u64, LoadError>>,
}

impl Found<'_> {
    /// Those of one kernel.
    fn all(&mut self, variables: &[Variable]) -> Result<Addresses, LoadError> {
        let address = |variable: &Variable| {
            let found = self.known.entry(variable.name.clone());
            let found = found.or_insert_with(|| {
                let (address, size) = (self.find)(&variable.name)?;
                match size == variable.size {
                    true => Ok(address),
                    false => Err(LoadError::Variable {
                        name: variable.name.clone(),
                        in_file: variable.size,
                        in_driver: size,
                    }),
                }
            });
            Ok((variable.name.clone(), found.clone()?))
        };
        variables.iter().map(address).collect()
    }
}

/// The file with calls in these kernels, each with the address of its table, in one pass; and those
/// that got none, and why.
fn with_calls(
    kernels: &[(&str, &Spliced, u64)],
    find: &Find<'_>,
) -> Result<(Vec<u8>, Failed), LoadError> {
    let Some((_, first, _)) = kernels.first() else {
        return Err(LoadError::NoKernel);
    };
    let file = File::parse(&first.file).map_err(LoadError::Elf)?;
    let known = BTreeMap::new();
    let mut found = Found { find, known };
    let mut addresses = Addresses::new();
    let mut failed = Failed::new();
    let mut edits = Vec::new();
    let mut names = Vec::new();
    for (kernel, spliced, table) in kernels {
        match found.all(&spliced.variables) {
            Ok(own) => {
                addresses.extend(own);
                edits.push(spliced.edit.with_userdata(*table));
                names.push(*kernel);
            }
            Err(error) => {
                failed.insert((*kernel).to_owned(), error);
            }
        }
    }
    let written = file
        .write(&edits, &addresses)
        .map_err(|why| LoadError::Edit(Box::new(why)))?;
    let left_out = written.left_out.into_iter();
    failed.extend(left_out.map(|(at, why)| (names[at].to_owned(), LoadError::Edit(Box::new(why)))));
    // Else the file would be loaded for nobody.
    match failed
        .first_key_value()
        .filter(|_| failed.len() == kernels.len())
    {
        Some((_, error)) if kernels.len() == 1 => Err(error.clone()),
        Some((kernel, error)) => Err(LoadError::NoneOf {
            kernel: kernel.clone(),
            source: Box::new(error.clone()),
        }),
        None => Ok((written.cubin, failed)),
    }
}

/// Kernels without calls in a file with some, and why.
pub type Failed = BTreeMap<String, LoadError>;

impl Prepared {
    /// The machine code as it would be loaded, with calls in all kernels that get some by
    /// `--backend splice`, each with the table at this address and the variables of its module, if
    /// it uses some, where `find` says, and of how many bytes they are; and kernels that got none
    /// in the end, and why.
    ///
    /// # Errors
    /// Why there is no such file.
    pub fn edited_machine_code(
        &self,
        table: u64,
        find: &Find<'_>,
    ) -> Result<(Vec<u8>, Failed), LoadError> {
        let kernels = self.kernels.iter().filter_map(|kernel| match &kernel.code {
            Some(Code::Splice(code)) => Some((kernel.mangled.as_str(), code, table)),
            _ => None,
        });
        let kernels: Vec<_> = kernels.collect();
        with_calls(&kernels, find)
    }
}

/// A file with calls in its kernels, loaded for all of them together. It goes when the last of
/// those goes.
#[derive(Debug)]
pub(crate) struct Duplicate {
    pub(crate) module: Module,
    /// What its kernels' functions read.
    tables: CUdeviceptr,
    /// It was patched after it was loaded.
    patched: Option<PatchedFunctions>,
    failed: Failed,
}

/// The copies of an image in a context, each made when the first of its kernels is loaded.
#[derive(Debug, Default)]
pub(crate) struct Once(Mutex<BTreeMap<Calls, Result<Arc<Duplicate>, LoadError>>>);

impl Once {
    /// The copy with calls in all of `kernels` that get them and are in one copy with `kernel`; all
    /// are of one file. `slots` are what every kernel's table has, and the kernel's number. `find`
    /// knows the variables of the application's own module; where the driver does not load it,
    /// `unmade` keeps why.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn get(
        &self,
        on: (&Driver, Stream),
        (kernel, kernels): (&PreparedKernel, &[&PreparedKernel]),
        slots: &[u64],
        (find, unmade): (&Find<'_>, &Unmade),
    ) -> Result<Arc<Duplicate>, LoadError> {
        let key = together(kernel);
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = made.entry(key).or_insert_with_key(|key| {
            let kernels = kernels.iter().copied();
            let kernels: Vec<_> = kernels.filter(|kernel| together(kernel) == *key).collect();
            load(on, &kernels, slots, find, unmade).map(Arc::new)
        });
        let copy = copy.clone()?;
        match copy.failed.get(&kernel.mangled) {
            Some(error) => Err(error.clone()),
            None => Ok(copy),
        }
    }
}

impl Once {
    /// Copies that no kernel has come to use go again.
    pub(crate) fn let_go(self, driver: &Driver) {
        let made = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        for copy in made.into_values().flatten().filter_map(Arc::into_inner) {
            // What cannot be unloaded costs memory until the context ends.
            let _ = copy.unload(driver);
        }
    }
}

/// What kernels that can be in one copy have in common: Compute Sanitizer calls the same functions
/// in all of a module.
fn together(kernel: &PreparedKernel) -> Calls {
    match &kernel.code {
        Some(Code::Patched(patched)) => patched.calls(),
        _ => Vec::new(),
    }
}

/// What a kernel's functions read: addresses, and its number behind them.
pub(crate) fn table_of(kernel: &PreparedKernel, number_at: u32, slots: &[u64]) -> Vec<u64> {
    let mut table = slots.to_vec();
    table.resize(slots.len().max(number_at as usize + 1), 0);
    table[number_at as usize] = kernel.kernel_id.unwrap_or(0);
    table
}

/// The slot of a kernel's number in its table, if it has one.
fn number_at(kernel: &PreparedKernel) -> Option<u32> {
    match &kernel.code {
        Some(
            Code::Splice(Spliced { number_at, .. }) | Code::Patched(Patched { number_at, .. }),
        ) => Some(*number_at),
        _ => None,
    }
}

fn load(
    (driver, stream): (&Driver, Stream),
    kernels: &[&PreparedKernel],
    slots: &[u64],
    find: &Find<'_>,
    unmade: &Unmade,
) -> Result<Duplicate, LoadError> {
    let say = |error: DriverError| {
        let error = LoadError::Copy(error);
        unmade.keep(&error.to_string());
        error
    };
    let kernels = kernels.iter().copied();
    let kernels = kernels.filter_map(|kernel| Some((kernel, number_at(kernel)?)));
    let kernels: Vec<(&PreparedKernel, u32)> = kernels.collect();
    let numbers = kernels.iter().map(|(_, number_at)| *number_at as usize);
    let words = numbers.max().map_or(0, |last| last + 1).max(slots.len());
    let tables: Vec<u64> = kernels
        .iter()
        .flat_map(|(kernel, number_at)| {
            let mut table = table_of(kernel, *number_at, slots);
            table.resize(words, 0);
            table
        })
        .collect();
    let bytes: Vec<u8> = tables.iter().flat_map(|word| word.to_le_bytes()).collect();
    let base = driver
        .alloc_zeroed(bytes.len() as u64, stream)
        .map_err(say)?;
    let made = driver.write(base, &bytes, stream).map_err(say);
    let made = made.and_then(|()| {
        let mut spliced = Vec::new();
        let mut patched_kernels = Vec::new();
        for (at, (kernel, _)) in kernels.iter().enumerate() {
            let table = base + (at * words * 8) as u64;
            match &kernel.code {
                Some(Code::Splice(code)) => spliced.push((kernel.mangled.as_str(), code, table)),
                Some(Code::Patched(patched)) => patched_kernels.push((*kernel, patched, table)),
                _ => {}
            }
        }
        let Some((_, patched, _)) = patched_kernels.first() else {
            let (file, failed) = with_calls(&spliced, find)?;
            let module = driver.load_image(&file).map_err(say)?;
            return Ok((module, None, failed));
        };
        let loaded = patched_functions::load(driver, patched, &patched_kernels);
        let (module, functions) = loaded.inspect_err(|error| unmade.keep(&error.to_string()))?;
        Ok((module, Some(functions), Failed::new()))
    });
    match made {
        Ok((module, patched, failed)) => Ok(Duplicate {
            module,
            tables: base,
            patched,
            failed,
        }),
        Err(reason) => {
            // It costs memory if it stays.
            let _ = driver.free(base);
            Err(reason)
        }
    }
}

impl Duplicate {
    /// Gives the driver back what it took.
    pub(crate) fn unload(&self, driver: &Driver) -> Result<(), DriverError> {
        if let Some(functions) = &self.patched {
            functions.forget();
        }
        driver.unload(self.module)?;
        driver.free(self.tables)
    }
}
