//! What a script's maps hold in all processes and on all their devices.

use warpbpf_maps::Value;
use warpbpf_script::results::{Part, Results, word_of};
use warpbpf_script::typed::{Checked, Type};
use warpbpf_script::{Compiled, layout};
use warpbpf_tool::Process;

/// What numbers are called in one process.
pub struct Called<'s> {
    script: &'s Checked,
    kernels: Vec<String>,
    sites: Vec<String>,
}

impl<'s> Called<'s> {
    /// In this process; in none, only what the script itself tells.
    pub fn new(script: &'s Checked, process: Option<&Process>) -> Called<'s> {
        Called {
            script,
            kernels: process.map(Process::kernel_names).unwrap_or_default(),
            sites: process.map(Process::site_names).unwrap_or_default(),
        }
    }

    /// A value as people read it; `device` is where it comes from.
    pub fn part(&self, ty: Type, number: u64, device: u32) -> Part {
        let at = usize::try_from(number).ok();
        let of = |names: &[String]| {
            let name = at.and_then(|at| names.get(at));
            name.filter(|name| !name.is_empty()).cloned()
        };
        let name = match ty {
            Type::Number => None,
            Type::Device => return Part::Number(device.into()),
            Type::Kernel => of(&self.kernels),
            Type::Site => of(&self.sites),
            Type::File => of(&self.sites).map(|site| file(&site).to_owned()),
            Type::Access | Type::Space | Type::Barrier | Type::Text | Type::Api | Type::Str(_) => {
                word_of(self.script, ty, number)
            }
        };
        name.map_or(Part::Number(number as i64), Part::Name)
    }

    /// The same for a line of `printf`.
    pub fn text(&self, ty: Type, number: u64) -> String {
        self.part(ty, number, 0).to_string()
    }
}

/// The file of a place: of `k at a.cu:7 ld.global.f32` it is `a.cu`.
fn file(site: &str) -> &str {
    let place = site.split_once(" at ").map_or(site, |(_, place)| place);
    let place = place.split(' ').next().unwrap_or(place);
    place.rsplit_once(':').map_or(place, |(file, _)| file)
}

/// What all maps hold, and how many lines of `printf` were lost; `now` asks the processes,
/// otherwise the last copies are taken.
pub fn gather(compiled: &Compiled, processes: &[Process], now: bool) -> (Results, u64) {
    let mut results = Results::new(&compiled.script);
    let mut lost = 0;
    for process in processes.iter().filter(|process| process.is_ready()) {
        if now {
            // One that ended has its last copies.
            let _ = process.snapshot();
        }
        let called = Called::new(&compiled.script, Some(process));
        for map in process.maps() {
            if map.name() == layout::RECORDS {
                lost += map.lost();
            }
            let mut laid = compiled.layout.maps.iter();
            let Some(index) = laid.position(|laid| laid.name == map.name()) else {
                continue;
            };
            // Nothing was copied of one that no kernel had.
            for (context, snapshot) in map.contexts().unwrap_or_default() {
                let Ok(view) = snapshot.view() else { continue };
                for entry in view.entries() {
                    let Value::One(value) = &entry.value else {
                        continue;
                    };
                    let names = |ty, number| called.part(ty, number, context.device);
                    results.add(
                        &compiled.script,
                        &compiled.layout,
                        index,
                        (&entry.key, value),
                        &names,
                    );
                }
            }
        }
    }
    (results, lost)
}

#[cfg(test)]
mod tests {
    use super::file;

    #[test]
    fn the_file_of_a_place() {
        assert_eq!(file("k at a.cu:7 ld.global.f32"), "a.cu");
        assert_eq!(file("f(int) at dir/b.cuh:12"), "dir/b.cuh");
        assert_eq!(file("k"), "k");
    }
}
