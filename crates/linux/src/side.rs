//! Linux's side of an object: the programs of it that Linux runs, and the maps that those have,
//! alone or with programs elsewhere.
//!
//! Each application has maps of its own on its devices, and Linux has one of each. What a shared
//! map holds is what Linux's map holds and, of each application, what its devices have changed
//! since Linux's values and theirs were last brought together ([`Ledger`]): each word of 8 bytes is
//! a sum.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use warpbpf_abi::maps::{BPF_ANY, MOST_PRESET, MapType};
use warpbpf_maps::{MapView, Value};
use warpbpf_object::{Btf, InitialValue, MapDef, MapKind, Object, Program, SectionVar, Type};

use crate::carry::{self, Look, Write};
use crate::define::{maps_of_all, spec_of, unshared};
use crate::drawn::{AllDrawn, Drawn};
use crate::error::{LinuxError, PlaceError};
use crate::ledger::{Ledger, combine};
use crate::map::{Entries, LinuxMap};
use crate::place::Tracefs;
use crate::program::{Loaded, Maps, Needs};
use crate::records::{Into, Records};
use crate::spec::Spec;
use crate::sys::Linux;
use crate::types::{KernelTypes, ObjectTypes};
use crate::variable::Variable;

/// What programs that are not Linux's do with a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// They read it.
    Read,
    /// They may write to it.
    Written,
}

/// Most bytes that a map may begin with: they go to the application in one message, and it waits
/// for them.
const MOST_BEGUN: usize = 128 << 20;
/// What an entry takes beside its key and its value.
const PER_ENTRY: usize = 32;

/// What the maps of an application begin with.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Begun<'s> {
    /// By map.
    pub contents: Vec<(&'s str, Entries)>,
    /// Maps that begin with nothing although Linux's hold something, and why.
    pub without: Vec<(&'s str, String)>,
}

/// Why an application's map cannot begin with these entries, if so. Without any it can.
fn too_much(def: &MapDef, entries: &Entries) -> Option<String> {
    // Shared maps have no copies that would make this depend on the device.
    let bytes = warpbpf_maps::plan(def, 1, &[]).map_or(0, |plan| plan.bytes());
    if bytes > MOST_PRESET {
        return Some(format!(
            "it has {bytes} bytes on the device, and at most {MOST_PRESET} can be given first contents"
        ));
    }
    let of_entry = |(key, value): &(Vec<u8>, Vec<u8>)| key.len() + value.len() + PER_ENTRY;
    let bytes = entries.iter().map(of_entry).sum::<usize>();
    (bytes > MOST_BEGUN).then(|| {
        format!("Linux's map holds {bytes} bytes of entries, and at most {MOST_BEGUN} can be brought to an application that starts")
    })
}

/// A map of an object in Linux.
#[derive(Debug)]
pub struct SideMap {
    /// Its definition.
    pub def: MapDef,
    map: LinuxMap,
    other: Option<Use>,
    records: Option<Arc<Records>>,
}

impl SideMap {
    /// Programs that are not Linux's have it, too.
    pub fn is_shared(&self) -> bool {
        self.other.is_some()
    }

    /// What programs that are not Linux's do with it, if they have it.
    pub fn other(&self) -> Option<Use> {
        self.other
    }

    /// The map itself.
    pub fn linux(&self) -> &LinuxMap {
        &self.map
    }

    /// Its records, if it is a ring, that came since the last call, and how many were lost
    /// meanwhile.
    pub fn take_records(&self) -> Option<(VecDeque<Vec<u8>>, u64)> {
        self.records.as_ref().map(|records| records.take())
    }

    /// Values go from one side to the other.
    fn is_carried(&self) -> bool {
        self.is_shared() && self.records.is_none() && !self.def.is_constant()
    }

    /// An application begins with what Linux has.
    fn is_adopted(&self) -> bool {
        self.is_carried() && !self.map.spec().is_percpu()
    }
}

/// The programs of an object that Linux runs, and their maps.
pub struct Side {
    maps: BTreeMap<u32, SideMap>,
    programs: Vec<(Program, Loaded)>,
    links: Vec<OwnedFd>,
    drawn: AllDrawn,
    /// Of each application, by its number: of each map.
    applications: Mutex<BTreeMap<u64, BTreeMap<u32, Ledger>>>,
    tracefs: Tracefs,
    license: String,
    linux: Arc<dyn Linux>,
}

impl std::fmt::Debug for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Side")
            .field("maps", &self.maps)
            .field("programs", &self.programs.len())
            .finish_non_exhaustive()
    }
}

/// Where a program of Linux is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Name of the C function.
    pub name: String,
    /// Its section.
    pub section: String,
    /// Where that is, for people.
    pub place: String,
}

impl Side {
    /// Makes the maps, and has Linux prove the programs, which are all that the object has.
    /// `others` are the maps, by index, that programs elsewhere have, and `kernel` Linux's types,
    /// or why there are none. Nothing runs before [`Side::attach`].
    ///
    /// # Errors
    /// [`LinuxError`]; then nothing is left behind.
    pub fn load(
        linux: Arc<dyn Linux>,
        object: &Object,
        others: &BTreeMap<u32, Use>,
        kernel: Result<&KernelTypes, &PlaceError>,
        tracefs: Tracefs,
    ) -> Result<Side, LinuxError> {
        let types = ObjectTypes::load(&*linux, object);
        let mut side = Side {
            maps: BTreeMap::new(),
            programs: Vec::new(),
            links: Vec::new(),
            drawn: AllDrawn::default(),
            applications: Mutex::default(),
            tracefs,
            license: object.license.clone().unwrap_or_default(),
            linux,
        };
        for index in maps_of_all(object, &object.programs) {
            let Some(def) = object.maps.get(index as usize) else {
                continue;
            };
            let user = (object.programs.iter()).find(|p| p.maps().any(|map| map == index));
            let user = user.map_or("", |program| &program.name);
            let map = side.make(def, others.get(&index).copied(), types.as_ref(), user)?;
            side.maps.insert(index, map);
        }
        side.fill_maps_of_maps()?;
        for program in &object.programs {
            let loaded = side.needs(types.as_ref(), kernel).load(program)?;
            side.programs.push((program.clone(), loaded));
        }
        side.fill_arrays_of_programs()?;
        Ok(side)
    }

    fn needs<'a>(
        &'a self,
        types: Option<&'a ObjectTypes>,
        kernel: Result<&'a KernelTypes, &'a PlaceError>,
    ) -> Needs<'a> {
        Needs {
            linux: &*self.linux,
            license: &self.license,
            types,
            kernel,
            tracefs: &self.tracefs,
            map: self,
        }
    }

    fn make(
        &self,
        def: &MapDef,
        other: Option<Use>,
        types: Option<&ObjectTypes>,
        user: &str,
    ) -> Result<SideMap, LinuxError> {
        let spec = spec_of(def, self.linux.cpus());
        if !LinuxMap::can_be(&spec) {
            return Err(LinuxError::NoSuchMap {
                map: def.name.clone(),
                program: user.to_owned(),
            });
        }
        if other.is_some()
            && let Some(what) = unshared(&spec)
        {
            let map = def.name.clone();
            return Err(LinuxError::Share { map, what });
        }
        let fails = |errno| LinuxError::Create {
            map: def.name.clone(),
            errno,
        };
        let inner = def.inner.as_ref().map(|inner| {
            let spec = spec_of(inner, self.linux.cpus());
            LinuxMap::create(&self.linux, &spec, &inner.name, None, None)
        });
        let inner = inner.transpose().map_err(fails)?;
        let ids = (def.key_type, def.value_type);
        let types = types.and_then(|types| {
            let declared = matches!(def.kind, MapKind::User);
            let (key, value) = (ids.0.unwrap_or_default(), ids.1?);
            // Of a data section its own type, for which there is no key's.
            let named = ids.0.is_some() || !declared;
            named.then_some((types.fd(), key.0, value.0))
        });
        let create = |types| LinuxMap::create(&self.linux, &spec, &def.name, types, inner.as_ref());
        // Maps of some kinds have no types.
        let map = create(types).or_else(|errno| match types {
            Some(_) => create(None),
            None => Err(errno),
        });
        let mut map = map.map_err(fails)?;
        if let MapKind::Data { image, .. } = &def.kind {
            let put = map.put(&0u32.to_ne_bytes(), image, BPF_ANY);
            put.map_err(|errno| fill(def, errno))?;
        }
        match def.is_constant() {
            true => map.freeze().map_err(|errno| fill(def, errno))?,
            false => map.share(),
        }
        let records = self.draw(&spec, &map).map_err(fails)?;
        Ok(SideMap {
            def: def.clone(),
            map,
            other,
            records,
        })
    }

    /// Of a ring, has its records taken out.
    fn draw(&self, spec: &Spec, map: &LinuxMap) -> Result<Option<Arc<Records>>, Errno> {
        let records = Arc::new(Records::default());
        let into = || Box::new(Into(records.clone()));
        match spec.kind() {
            Some(MapType::Ringbuf) => {
                let size = u64::from(spec.max_entries);
                self.drawn
                    .add(Drawn::of_ring(map.another()?, size, into())?);
            }
            Some(MapType::PerfEventArray) => {
                for cpu in 0..self.linux.cpus().min(spec.max_entries) {
                    let event = match self.linux.output(cpu) {
                        // It is not there, or not now.
                        Err(Errno::NODEV) => continue,
                        event => event?,
                    };
                    let number = event.as_raw_fd() as u32;
                    self.drawn.add(Drawn::of_output(event, into())?);
                    map.put(&cpu.to_ne_bytes(), &number.to_ne_bytes(), BPF_ANY)?;
                }
            }
            _ => return Ok(None),
        }
        Ok(Some(records))
    }

    fn fill_maps_of_maps(&self) -> Result<(), LinuxError> {
        for side in self.maps.values() {
            for entry in &side.def.initial {
                let InitialValue::Map(held) = entry.value else {
                    continue;
                };
                let Some(held) = self.maps.get(&held) else {
                    continue;
                };
                let fd = held.map.fd().to_ne_bytes();
                let put = side.map.put(&entry.index.to_ne_bytes(), &fd, BPF_ANY);
                put.map_err(|errno| fill(&side.def, errno))?;
            }
        }
        Ok(())
    }

    /// Programs that others go on to.
    fn fill_arrays_of_programs(&self) -> Result<(), LinuxError> {
        for side in self.maps.values() {
            for entry in &side.def.initial {
                let InitialValue::Program(name) = &entry.value else {
                    continue;
                };
                let program = self.programs.iter().find(|(p, _)| p.name == *name);
                let Some((_, loaded)) = program else { continue };
                let fd = loaded.fd.as_raw_fd().to_ne_bytes();
                let put = side.map.put(&entry.index.to_ne_bytes(), &fd, BPF_ANY);
                put.map_err(|errno| fill(&side.def, errno))?;
            }
        }
        Ok(())
    }

    /// Has Linux run the programs from now on, until this is dropped. The process may be killed:
    /// links are its descriptors.
    ///
    /// # Errors
    /// [`LinuxError`]; then none runs.
    pub fn attach(&mut self) -> Result<(), LinuxError> {
        let mut links = Vec::new();
        let needs = self.needs(None, Err(&PlaceError::Asked));
        for (program, loaded) in &self.programs {
            links.push(needs.attach(program, loaded)?);
        }
        self.links = links;
        Ok(())
    }

    /// The programs and where they are.
    pub fn programs(&self) -> Vec<Standing> {
        let standing = |(program, loaded): &(Program, Loaded)| Standing {
            name: program.name.clone(),
            section: program.section.clone(),
            place: loaded.attach.text(),
        };
        self.programs.iter().map(standing).collect()
    }

    /// The maps, by index in the object.
    pub fn maps(&self) -> impl Iterator<Item = (u32, &SideMap)> {
        self.maps.iter().map(|(index, map)| (*index, map))
    }

    /// Where a global variable that Linux's programs have stands: in which map's memory, at which
    /// byte, and how many bytes it has. `None` if there is none, or it is a constant.
    pub fn variable(&self, types: &Btf, name: &str) -> Option<Variable<'_>> {
        let place = |side: &SideMap| {
            let ty = side.def.value_type.filter(|_| !side.def.is_constant())?;
            let Some(Type::DataSec { vars, .. }) = types.type_by_id(ty) else {
                return None;
            };
            let is_it = |var: &&SectionVar| matches!(types.type_by_id(var.ty), Some(Type::Var { name: n, .. }) if n == name);
            let var = vars.iter().find(is_it)?;
            Some((u64::from(var.offset), var.size as usize))
        };
        self.maps.values().find_map(|side| {
            let (at, bytes) = place(side)?;
            let memory = side.map.memory()?;
            Some(Variable { memory, at, bytes })
        })
    }

    /// Takes records out of all rings; true if some came.
    pub fn draw_records(&self) -> bool {
        self.drawn.draw()
    }

    /// Linux's writes to some hash must reach devices while kernels run.
    pub fn writes_to_devices(&self) -> bool {
        let keyed = |map: &SideMap| map.other == Some(Use::Read) && !map.map.spec().has_indices();
        self.maps.values().any(|map| map.is_adopted() && keyed(map))
    }

    fn applications(&self) -> MutexGuard<'_, BTreeMap<u64, BTreeMap<u32, Ledger>>> {
        self.applications
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What the maps of an application, known by this number from now on, begin with: what Linux's
    /// hold now.
    ///
    /// # Errors
    /// Linux's.
    pub fn begin(&self, number: u64) -> Result<Begun<'_>, Errno> {
        let mut ledgers = BTreeMap::new();
        let mut begun = Begun::default();
        for (index, side) in &self.maps {
            if !side.is_carried() {
                continue;
            }
            let mut ledger = Ledger::default();
            if side.is_adopted() {
                let bytes = side.map.value_bytes();
                let mut entries = carry::adopt(&side.map, &mut ledger, bytes)?;
                entries.retain(|(key, value)| match &side.def.kind {
                    MapKind::Data { image, .. } => value != image,
                    MapKind::User => ledger.knows(key),
                });
                let name = side.def.name.as_str();
                match too_much(&side.def, &entries) {
                    _ if entries.is_empty() => {}
                    None => begun.contents.push((name, entries)),
                    Some(why) => {
                        ledger.clear();
                        begun.without.push((name, why));
                    }
                }
            }
            ledgers.insert(*index, ledger);
        }
        self.applications().insert(number, ledgers);
        Ok(begun)
    }

    /// Brings values of one map from one side to the other, for an application that lives: by
    /// `write` to its device where programs there only read, and else from `device` to Linux's
    /// words, where those can be added to.
    ///
    /// # Errors
    /// Linux's, and those of `write` and `device`.
    pub fn carry(
        &self,
        number: u64,
        index: u32,
        write: &mut Write<'_>,
        device: &mut Look<'_>,
    ) -> Result<(), Errno> {
        let Some(side) = self.maps.get(&index).filter(|side| side.is_adopted()) else {
            return Ok(());
        };
        // Not kept from others while the application is asked.
        let mut applications = self.applications();
        let ledgers = applications.get_mut(&number);
        let Some(mut ledger) = ledgers.and_then(|ledgers| ledgers.remove(&index)) else {
            return Ok(());
        };
        drop(applications);
        let carried = match side.other {
            Some(Use::Read) => carry::to_device(&side.map, &mut ledger, write),
            Some(Use::Written) if side.map.memory().is_some() => {
                device(&mut |view| carry::to_linux(&side.map, &mut ledger, view))
            }
            Some(Use::Written) | None => Ok(()),
        };
        let mut applications = self.applications();
        applications
            .entry(number)
            .or_default()
            .insert(index, ledger);
        carried
    }

    /// What Linux's map holds, and what devices of these applications have changed beside that: key
    /// and values, of which there are several where each CPU or multiprocessor has its own.
    ///
    /// # Errors
    /// Linux's.
    pub fn together(
        &self,
        index: u32,
        devices: &[(u64, MapView<'_>)],
    ) -> Result<BTreeMap<Vec<u8>, Vec<Vec<u8>>>, Errno> {
        let Some(side) = self.maps.get(&index) else {
            return Ok(BTreeMap::new());
        };
        let spec = side.map.spec();
        let bytes = spec.value_size as usize;
        let mut sums: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
        for (key, value) in side.map.entries()? {
            let stride = match spec.is_percpu() {
                true => bytes.next_multiple_of(8),
                false => value.len().max(1),
            };
            let parts = value.chunks(stride);
            sums.insert(key, parts.map(|part| part[..bytes].to_vec()).collect());
        }
        let applications = self.applications();
        for (number, device) in devices {
            let ledger = applications.get(number).and_then(|all| all.get(&index));
            for entry in device.entries() {
                let values = match entry.value {
                    Value::One(value) => vec![value],
                    Value::PerSm(values) => values,
                    Value::PerThread(_) => continue,
                };
                add(&mut sums, entry.key, values, ledger, bytes);
            }
        }
        Ok(sums)
    }
}

impl Maps for Side {
    fn descriptor(&self, index: u32) -> Option<i32> {
        self.maps.get(&index).map(|side| side.map.fd())
    }
}

/// Adds what a device has changed of a key. One that Linux does not have counts whole.
fn add(
    sums: &mut BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    key: Vec<u8>,
    values: Vec<Vec<u8>>,
    ledger: Option<&Ledger>,
    bytes: usize,
) {
    let Some(known) = sums.get_mut(&key) else {
        sums.insert(key, values);
        return;
    };
    let begun = ledger.map(|ledger| ledger.given(&key, bytes));
    if known.len() < values.len() {
        known.resize(values.len(), vec![0; bytes]);
    }
    for (known, mut value) in known.iter_mut().zip(values) {
        value.resize(bytes, 0);
        let zeros = vec![0; bytes];
        let begun = begun.as_ref().unwrap_or(&zeros);
        combine(known, &value, begun);
    }
}

fn fill(def: &MapDef, errno: Errno) -> LinuxError {
    LinuxError::Fill {
        map: def.name.clone(),
        errno,
    }
}

#[cfg(test)]
mod tests;
