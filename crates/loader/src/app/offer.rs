//! What an application is given: the object, and what its maps hold at first, made when it
//! connects.

use rustix::io::Errno;
use warpbpf_object::{LoadOptions, MapDef, MapKind, Object, ObjectErrors};
use warpbpf_wire::Options;

use crate::app::feed::Feed;
use crate::kernel::Kernel;
use crate::kernel::gather::{Gathered, MapNames};
use crate::kernel::program_error::GatherError;
use crate::objects::contents::Contents;
use crate::objects::prog::Programs;
use crate::objects::sink::Sink;

/// What an agent is given, made when it connects: values may change until then.
pub struct Offer {
    /// The kernel's version that this is of.
    pub version: u64,
    /// It is for a process that launches a program itself.
    pub launches: bool,
    /// The programs, in the object's order.
    pub programs: Programs,
    /// The object and what became of the tool's maps in it.
    pub gathered: Gathered,
    /// The object, read.
    pub object: Object,
    /// Values for maps, by name: updates without what depends on the device.
    pub presets: Vec<Preset>,
    /// Where events go, by the session's number of their map.
    pub sinks: Vec<Sink>,
    /// Where records of the tool come from.
    pub feeds: Vec<Feed>,
    /// What programs may do, as they were proved here.
    pub options: Options,
    /// CPUs that the tool believes in.
    pub cpus: u32,
}

/// Values of a map.
pub struct Preset {
    /// Its name.
    pub map: String,
    /// Key and value; the value has a part for each CPU if the map has.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes from one CPU's part to the next; `None` if there is one value.
    pub percpu: Option<usize>,
}

/// Why an application is given nothing: text for the tool's author.
#[derive(Debug, thiserror::Error)]
pub enum OfferError {
    /// What shadow maps hold is unknown.
    #[error("the maps of Linux cannot be read: {error}")]
    Shadows {
        /// What Linux says.
        error: Errno,
    },
    /// The programs cannot be made one object.
    #[error(transparent)]
    Gather(#[from] GatherError),
    /// The object that was made of them is wrong.
    #[error(transparent)]
    Load(#[from] ObjectErrors),
    /// A program is not launched after all.
    #[error("`launch-inside` gets no program: an application has come, which has maps of its own")]
    NotAlone {
        /// The process that was to launch it.
        pid: Option<u32>,
    },
}

impl Offer {
    /// Makes it for the process with this number, if that is known: from what is attached now, or
    /// from what it will launch.
    ///
    /// # Errors
    /// What keeps it from being made.
    pub fn new(kernel: &mut Kernel, pid: Option<u32>) -> Result<Offer, OfferError> {
        let adopted = kernel.adopt_shadows();
        adopted.map_err(|error| OfferError::Shadows { error })?;
        let (programs, launches) = kernel.programs_for(pid);
        if kernel.maps.iter().any(|(_, map)| map.shadow.is_some()) {
            kernel.note_written(&programs);
        }
        // The tool goes on to see the maps of what is attached.
        let others = match launches {
            true => kernel.attached().into_iter().map(|(at, _)| at).collect(),
            false => Vec::new(),
        };
        let (gathered, object) = with_maps_of_all(kernel, &programs, &others)?;
        let mut sinks = vec![Sink::Nowhere; gathered.names.len()];
        let mut feeds = Vec::new();
        let mut presets = Vec::new();
        for (at, number) in &gathered.numbers {
            let Some(map) = kernel.maps.get(*at) else {
                continue;
            };
            let name = &gathered.names[*number as usize];
            sinks[*number as usize] = Sink::of(&map.contents);
            if let Contents::UserRing(ring) = &map.contents {
                feeds.push(Feed::new(*number, name.clone(), ring.clone()));
            }
            let data = object.maps.get(*number as usize).map(|def| &def.kind);
            let entries = match launches {
                true => kernel.seen(*at),
                false => map.contents.entries(&map.spec, kernel.slot(&map.spec)),
            };
            if matches!(data, Some(MapKind::User)) && !entries.is_empty() {
                let stride = map.spec.value_size as usize;
                let entries = entries.into_iter().map(|(key, mut value)| {
                    if !map.spec.is_percpu() {
                        value.truncate(stride);
                    }
                    (key, value)
                });
                presets.push(Preset {
                    map: name.clone(),
                    entries: entries.collect(),
                    percpu: map.spec.is_percpu().then(|| stride.next_multiple_of(8)),
                });
            }
        }
        kernel.note_mapped();
        Ok(Offer {
            version: kernel.version,
            launches,
            programs,
            gathered,
            object,
            presets,
            sinks,
            feeds,
            cpus: kernel.config.cpus,
            options: Options {
                host_ops: true,
                allow_modify: kernel.config.options.allow_modify,
                budget: kernel.config.options.budget,
                bound_loops: kernel.config.options.bound_loops,
                ..Options::default()
            },
        })
    }
}

/// Programs as an object with the maps of these others, and of all that are loaded and may come
/// later. If one of the latter cannot be had, it keeps nothing out that is attached.
fn with_maps_of_all(
    kernel: &Kernel,
    programs: &Programs,
    others: &[usize],
) -> Result<(Gathered, Object), OfferError> {
    let with = |others: &[usize]| {
        let gathered = kernel.gather_beside(programs, others, &MapNames::new())?;
        let object = warpbpf_object::load_all(&gathered.object, &LoadOptions::default())?;
        Ok::<_, OfferError>((gathered, object))
    };
    let all = with(&[others, &kernel.loaded_for_gpu()].concat());
    let fits = |def: &MapDef| warpbpf_maps::plan(def, 1, &[]).is_ok();
    all.ok()
        .filter(|(_, object)| object.maps.iter().all(fits))
        .map_or_else(|| with(others), Ok)
}
