//! Kernels of which there is only machine code: the functions that programs become for them, and the kernel with calls to those.
//!
//! Such a function is assembled by `ptxas`, which does not run in an application. It reads the addresses of maps and the kernel's number where
//! its argument points, so it depends on programs and architecture alone: whoever has the object has the text, the tool has it assembled, and the agent
//! takes for a text what was assembled of just that.
//!
//! What runs is a second copy of the kernel's file, loaded beside the first one: so kernels that share variables with others of their file are left
//! alone ([`warpbpf_sass::shared_data`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use warpbpf_abi::attach::Site;
use warpbpf_codegen::{Env, Input, SlotSpace, Target, compile};
use warpbpf_driver::sys::CUdeviceptr;
use warpbpf_driver::{Driver, DriverError, Module, Stream};
use warpbpf_patch::{Attachment, Select, tools_function};
use warpbpf_sass::{Arch, Hook, Probe, elf, shared_data, splice};

use crate::plan::Session;
use crate::prepare::{Code, PreparedKernel};

/// `.version` of the functions: what the kernels are of is not known.
const PTX_VERSION: (u32, u32) = (8, 0);
/// Globs of one kind of place of which each combination gets a function; of more, each alone and all together.
const MOST_COMBINED: usize = 3;
/// Where a function can be called.
const SITES: [Site; 2] = [Site::Entry, Site::Exit];
/// Name of the function in its text.
const FUNCTION: &str = "wbpf_probe";

/// Functions for machine code that `ptxas` has assembled: by their text, the cubin, or why there is none.
#[derive(Debug, Clone, Default)]
pub struct Assembled(BTreeMap<String, Result<Arc<[u8]>, String>>);

impl Assembled {
    /// Takes in what became of a text.
    pub fn add(&mut self, text: String, cubin: Result<Vec<u8>, String>) {
        self.0.insert(text, cubin.map(Arc::from));
    }
}

/// What runs in a kernel's place where it is only machine code.
#[derive(Debug, Clone)]
pub(crate) struct Spliced {
    /// The file that holds it.
    file: Arc<[u8]>,
    /// What is called at its entry and its exits.
    probes: [Option<Arc<Probe>>; 2],
    /// The slot of the kernel's number, in the session that the functions were made for.
    number_at: u32,
}

impl Session {
    /// Machine code without PTX gets probes.
    pub fn splices(&self) -> bool {
        self.options.assembled.is_some()
    }

    /// The texts that have to be assembled for kernels of which there is only machine code for `arch`, each once. Programs that cannot stand in such
    /// a kernel have none.
    pub fn probe_texts(&self, arch: Arch) -> Vec<String> {
        let texts = SITES.iter().flat_map(|site| {
            let sets = self.combinations(*site);
            sets.into_iter()
                .filter_map(|set| self.probe_text(*site, &set, arch).ok())
        });
        let texts: BTreeSet<String> = texts.collect();
        texts.into_iter().collect()
    }

    /// Programs that may meet at the entry, or the exits, of one kernel.
    fn combinations(&self, site: Site) -> BTreeSet<Vec<usize>> {
        let mut globs: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, program) in self.programs().iter().enumerate() {
            if program.spec.site == site {
                globs.entry(&program.spec.kernels).or_default().push(index);
            }
        }
        let of = |chosen: &dyn Fn(usize) -> bool| {
            let all = globs.values().enumerate().filter(|(at, _)| chosen(*at));
            let mut set: Vec<usize> = all.flat_map(|(_, programs)| programs.clone()).collect();
            set.sort_unstable();
            set
        };
        let count = globs.len();
        let mut sets: BTreeSet<Vec<usize>> = match count <= MOST_COMBINED {
            true => (1..1usize << count)
                .map(|bits| of(&|at| bits >> at & 1 == 1))
                .collect(),
            false => (0..count).map(|one| of(&|at| at == one)).collect(),
        };
        sets.insert(of(&|_| true));
        sets.remove(&Vec::new());
        sets
    }

    fn probe_text(&self, site: Site, programs: &[usize], arch: Arch) -> Result<String, String> {
        let fragments = programs.iter().map(|index| {
            let program = &self.programs()[*index];
            let named = |error: String| format!("program `{}`: {error}", program.name());
            if !program.spec.arguments.is_empty() {
                let error = "parameters by name are not to be had in a kernel without PTX";
                return Err(named(error.to_owned()));
            }
            let env = Env {
                target: Target {
                    ptx: PTX_VERSION,
                    sm: arch.number(),
                },
                site,
                scope: program.spec.scope,
                kernel_id: 0,
                maps: self.bindings(),
                printk: self.printk_binding(),
                slots: SlotSpace::Table {
                    kernel: self.first_free_slot(),
                },
                input: Input::Context,
                // A function for machine code cannot reach a kernel's registers.
                keep_sums: false,
                args: Vec::new(),
            };
            let fragment = compile(&program.verified, &env).map_err(|e| named(e.to_string()))?;
            Ok((program.spec.scope, fragment))
        });
        let fragments: Vec<_> = fragments.collect::<Result<_, String>>()?;
        let select = Select::default();
        let attachments = fragments.iter().map(|(scope, fragment)| Attachment {
            site,
            scope: *scope,
            select: &select,
            fragment,
            gate: None,
        });
        let attachments: Vec<_> = attachments.collect();
        let target = format!("sm_{}", arch.number());
        let target = (target.as_str(), arch.number());
        tools_function(FUNCTION, target, PTX_VERSION, site, &attachments)
            .map_err(|error| error.to_string())
    }
}

/// Puts calls into the kernels of one file. The file is read once, and so is each function.
pub(crate) struct Splicer<'s> {
    session: &'s Session,
    assembled: &'s Assembled,
    file: &'s Arc<[u8]>,
    image: elf::Image,
    functions: BTreeMap<(usize, Vec<usize>), Result<Arc<Probe>, String>>,
}

impl<'s> Splicer<'s> {
    /// # Errors
    /// Why no kernel of the file gets calls, for the user.
    pub(crate) fn new(session: &'s Session, file: &'s Arc<[u8]>) -> Result<Splicer<'s>, String> {
        let assembled = session.options.assembled.as_deref();
        let assembled = assembled.ok_or("it gets probes only with `--backend splice`")?;
        if session.has_gate() {
            return Err("programs behind a gate (`--gate`) are put into PTX only".to_owned());
        }
        Ok(Splicer {
            session,
            assembled,
            file,
            image: elf::Image::parse(file).map_err(|error| error.to_string())?,
            functions: BTreeMap::new(),
        })
    }

    /// A kernel with calls to its programs, and how often each stands in it.
    ///
    /// # Errors
    /// Why not, for the user.
    pub(crate) fn splice(
        &mut self,
        kernel: &PreparedKernel,
    ) -> Result<(Code, Vec<(usize, u32)>), String> {
        let of = |index: &usize| &self.session.programs()[*index];
        let mut programs = kernel.programs.iter().map(of);
        if let Some(program) = programs.find(|program| !SITES.contains(&program.spec.site)) {
            return Err(format!(
                "program `{}` is at places of kind `{}`, which are found in PTX only",
                program.name(),
                program.spec.site.word()
            ));
        }
        if let Some(shared) = shared_data(&self.image, &kernel.mangled) {
            return Err(format!(
                "{shared}, and would have its own ones in the copy that is loaded beside it"
            ));
        }
        let mut probes = [None, None];
        for (at, probe) in probes.iter_mut().enumerate() {
            let here = |index: &&usize| of(index).spec.site == SITES[at];
            let programs: Vec<usize> = kernel.programs.iter().filter(here).copied().collect();
            if !programs.is_empty() {
                *probe = Some(self.function(at, programs)?);
            }
        }
        let spliced = Spliced {
            file: Arc::clone(self.file),
            probes,
            number_at: self.session.first_free_slot(),
        };
        let tried = spliced.splice_into(self.file, &kernel.mangled, 0)?;
        let exits = tried.exits.len() as u32;
        let placed = kernel.programs.iter().map(|index| {
            let count = match self.session.programs()[*index].spec.site {
                Site::Exit => exits,
                _ => 1,
            };
            (*index, count)
        });
        Ok((Code::Splice(spliced), placed.collect()))
    }

    /// What was assembled of these programs at one kind of place.
    fn function(&mut self, at: usize, programs: Vec<usize>) -> Result<Arc<Probe>, String> {
        let (session, assembled, arch) = (self.session, self.assembled, self.image.arch);
        let key = (at, programs);
        if let Some(known) = self.functions.get(&key) {
            return known.clone();
        }
        let text = session.probe_text(SITES[at], &key.1, arch);
        let made = text.and_then(|text| match assembled.0.get(&text) {
            Some(Ok(cubin)) => Probe::parse(cubin, FUNCTION)
                .map(Arc::new)
                .map_err(|error| error.to_string()),
            Some(Err(reason)) => Err(reason.clone()),
            None => Err(
                "no function was assembled for just these programs; let them be for the same kernels"
                    .to_owned(),
            ),
        });
        self.functions.insert(key, made.clone());
        made
    }
}

impl Spliced {
    fn splice_into(
        &self,
        file: &[u8],
        kernel: &str,
        table: u64,
    ) -> Result<warpbpf_sass::Spliced, String> {
        let hook = |probe: &Option<Arc<Probe>>| probe.clone();
        let [entry, exit] = [hook(&self.probes[0]), hook(&self.probes[1])];
        let hook = |probe| Hook {
            probe,
            userdata: table,
        };
        splice(
            file,
            kernel,
            entry.as_deref().map(hook),
            exit.as_deref().map(hook),
        )
        .map_err(|error| error.to_string())
    }
}

/// A file with calls in its kernels, loaded for all of them together. It goes when the last of those goes.
#[derive(Debug)]
pub(crate) struct Duplicate {
    pub(crate) module: Module,
    /// What its kernels' functions read.
    tables: CUdeviceptr,
}

/// The copy of an image in a context, made when the first of its kernels is loaded.
#[derive(Debug, Default)]
pub(crate) struct Once(OnceLock<Result<Arc<Duplicate>, String>>);

impl Once {
    /// The copy with calls in all of `kernels` that get them, which are of one file. `slots` are what every kernel's table has, and the
    /// kernel's number.
    ///
    /// # Errors
    /// Why there is none, for the user.
    pub(crate) fn get(
        &self,
        on: (&Driver, Stream),
        kernels: &[&PreparedKernel],
        slots: &[u64],
    ) -> Result<Arc<Duplicate>, String> {
        let made = self.0.get_or_init(|| {
            let spliced = kernels.iter().filter_map(|kernel| match &kernel.code {
                Some(Code::Splice(spliced)) => Some((*kernel, spliced)),
                _ => None,
            });
            let spliced: Vec<_> = spliced.collect();
            load(on, &spliced, slots).map(Arc::new)
        });
        made.clone()
    }
}

fn load(
    (driver, stream): (&Driver, Stream),
    kernels: &[(&PreparedKernel, &Spliced)],
    slots: &[u64],
) -> Result<Duplicate, String> {
    let say = |error: DriverError| error.to_string();
    let numbers = kernels
        .iter()
        .map(|(_, spliced)| spliced.number_at as usize);
    let words = numbers.max().map_or(0, |last| last + 1).max(slots.len());
    let tables: Vec<u64> = kernels
        .iter()
        .flat_map(|(kernel, spliced)| {
            let mut table = slots.to_vec();
            table.resize(words, 0);
            table[spliced.number_at as usize] = kernel.kernel_id.unwrap_or(0);
            table
        })
        .collect();
    let bytes: Vec<u8> = tables.iter().flat_map(|word| word.to_le_bytes()).collect();
    let base = driver
        .alloc_zeroed(bytes.len() as u64, stream)
        .map_err(say)?;
    let made = driver
        .write(base, &bytes, stream)
        .map_err(say)
        .and_then(|()| {
            let mut file: Option<Vec<u8>> = None;
            for (at, (kernel, spliced)) in kernels.iter().enumerate() {
                let table = base + (at * words * 8) as u64;
                let before = file.as_deref().unwrap_or(&spliced.file);
                file = Some(spliced.splice_into(before, &kernel.mangled, table)?.cubin);
            }
            driver.load_image(&file.unwrap_or_default()).map_err(say)
        });
    match made {
        Ok(module) => Ok(Duplicate {
            module,
            tables: base,
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
        driver.unload(self.module)?;
        driver.free(self.tables)
    }
}
