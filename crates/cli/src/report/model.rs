//! The report: what a run found out, as data. Tables and JSON are two views of it, and a saved one
//! can be shown again.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use warpbpf_tool::Method;
use warpbpf_wire::Occupancy;

/// Raised when a field changes its meaning.
pub const VERSION: u32 = 1;

/// A whole run.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`VERSION`]
    pub version: u32,
    /// The application's command line.
    pub command: Vec<String>,
    /// Exit status as a shell would show it: 128 + signal for a killed process.
    pub status: Option<i32>,
    /// The programs, as they were proved before the application ran; the agent has proved them
    /// again.
    #[serde(default)]
    pub programs: Vec<Program>,
    /// One per process that used CUDA.
    pub processes: Vec<Process>,
    /// What all processes have of each map, as one, if there were several; events are only counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<Map>,
    /// Programs of the object that Linux ran, if there were some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux: Option<Linux>,
    /// What the user should know, most important first.
    pub notes: Vec<String>,
    /// What is worth knowing though nothing is wrong: that a map was compacted, and which launches
    /// met that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// A proved program.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Name of the C function.
    pub name: String,
    /// Its section.
    pub section: String,
    /// Most instructions that one invocation executes, helpers counted at their table cost.
    pub cost: u64,
    /// What it was allowed.
    pub budget: u64,
    /// That was the user's choice (`--budget`), not the attach point's default.
    pub budget_chosen: bool,
    /// It can change what the application computes.
    pub modifies: bool,
}

/// What Linux ran.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Linux {
    /// The programs, in the object's order.
    pub programs: Vec<LinuxProgram>,
    /// Maps that only they had.
    pub maps: Vec<Map>,
    /// Maps that programs in kernels or in the application had, too, with what all of them did,
    /// each change once. Of rings, what came from Linux; what came from kernels is with the
    /// processes.
    pub shared: Vec<Map>,
}

/// A program that Linux ran.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinuxProgram {
    /// Name of the C function.
    pub name: String,
    /// Its section.
    pub section: String,
    /// Where that is, for people.
    pub place: String,
}

/// A process that the agent was in.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// Its process id as it sees itself, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_pid: Option<u32>,
    /// Its executable.
    pub exe: String,
    /// Its device, `NVIDIA H200, sm_90, driver 13.0`.
    pub device: String,
    /// It ran on the soft GPU.
    pub soft: bool,
    /// Bound of the error of `bpf_ktime_get_ns` in its kernels, ns; absent where nothing was
    /// attached.
    #[serde(default)]
    pub clock_error_ns: Option<u64>,
    /// The contexts that had maps of their own, if there were several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<Context>,
    /// Bytes of devices' memory that maps, rings and launch records took, in all contexts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub device_bytes: u64,
    /// The data is complete: the agent said good-bye.
    pub complete: bool,
    /// Launches whose data are missing: those that were counted after the last copy of the data had
    /// begun; null where that is not known.
    #[serde(default)]
    pub missing_launches: Option<u64>,
    /// Kernels ran while that copy was made, which has a part of their data; null where that is not
    /// known.
    #[serde(default)]
    pub kernels_ran_at_last_copy: Option<bool>,
    /// Kernels in the order in which they were loaded.
    pub kernels: Vec<Kernel>,
    /// Maps in the object's order.
    pub maps: Vec<Map>,
    /// Messages of `bpf_printk`.
    pub messages: Vec<String>,
    /// Messages that were lost.
    pub messages_lost: u64,
    /// Messages that were received and are not among `messages`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub messages_left_out: u64,
    /// Programs that were ended in loops without a bound of their own (`--bound-loops`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<Stopped>,
}

/// A program that was ended in a loop.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// Name of the C function.
    pub program: String,
    /// How often.
    pub times: u64,
}

/// A kernel.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// What programs read as `kernel_id`, if one wants it.
    pub id: Option<u32>,
    /// Readable name.
    pub name: String,
    /// Name in the image.
    pub mangled: String,
    /// Where its code came from.
    pub source: String,
    /// How it is instrumented, or why not.
    pub method: Method,
    /// It runs with probes.
    pub instrumented: bool,
    /// Registers per thread before and after.
    pub registers: Option<(u32, u32)>,
    /// Bytes of local memory per thread, stack frame and spills, before and after.
    #[serde(default)]
    pub local_bytes: Option<(u32, u32)>,
    /// Bytes of static shared memory of a block before and after.
    #[serde(default)]
    pub shared_bytes: Option<(u32, u32)>,
    /// Blocks that one SM runs at once before and after.
    #[serde(default)]
    pub occupancy: Option<Occupancy>,
    /// What the compiler warns of only with probes.
    #[serde(default)]
    pub compiler_warnings: Vec<String>,
    /// Its code with probes was in the cache of compiled code; absent without a cache, and for
    /// clones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<bool>,
    /// Microseconds that it took to make its code machine code and load it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_us: Option<u64>,
    /// Sites in its middle that have a program.
    #[serde(default)]
    pub sites: u32,
    /// Sites that a program wanted and did not get: how many, for each reason.
    #[serde(default)]
    pub left_out: Vec<(String, u32)>,
    /// Programs that match it, by index, and at how many places each stands in it; empty where no
    /// code was made for it.
    #[serde(default)]
    pub placed: Vec<(usize, u32)>,
    /// Launches with probes.
    pub launches: u64,
    /// Launches of the original although a program matches.
    pub uninstrumented: u64,
    /// Launches of the original because the user wanted no probes in them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u64,
    /// Launches of the original because no program that was in force wanted it, where programs were
    /// replaced.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unwanted: u64,
    /// Launches with probes by the context's number, if there were several contexts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<(u32, u64)>,
    /// Launches that each program was in, by its name, if programs are in different ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<(String, u64)>,
    /// The same by the context's number, if there were several contexts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context_programs: Vec<(u32, Vec<(String, u64)>)>,
}

impl Kernel {
    /// Launches that each program was in, in one context.
    fn programs_in(&self, context: u32) -> Vec<(String, u64)> {
        let mut all = self.context_programs.iter();
        let found = all.find(|(number, _)| *number == context);
        found.map_or_else(Vec::new, |(_, programs)| programs.clone())
    }
}

/// A context with maps of its own.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// In the order in which contexts came, from 0.
    pub number: u32,
    /// Ordinal of its device.
    pub device: u32,
    /// The device's name.
    pub name: String,
    /// The device's multiprocessors.
    pub sms: u32,
    /// The CPU number of the first of them in events and in lists of values.
    pub first_cpu: u32,
}

/// What one context has of a map.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The context's number.
    pub context: u32,
    /// Ordinal of its device.
    pub device: u32,
    /// As in the map.
    pub entries: Vec<Entry>,
    /// As in the map.
    pub threads: Option<Threads>,
    /// As in the map.
    pub sum: Option<u128>,
}

impl Context {
    /// What the library says of it.
    pub fn of(info: &warpbpf_tool::ContextInfo) -> Context {
        Context {
            number: info.number,
            device: info.device,
            name: info.name.clone(),
            sms: info.sms,
            first_cpu: info.number * info.cpus,
        }
    }
}

impl Report {
    /// Of one map alone.
    pub fn of_map(map: Map) -> Report {
        let process = Process {
            maps: vec![map],
            ..Process::default()
        };
        Report {
            processes: vec![process],
            ..Report::default()
        }
    }

    /// All maps of all processes.
    pub fn maps(&self) -> impl Iterator<Item = &Map> {
        self.processes.iter().flat_map(|process| &process.maps)
    }

    /// The same with each context's kernels and maps by themselves, where there are several.
    pub fn per_device(&self) -> Report {
        let mut report = self.clone();
        for process in &mut report.processes {
            process.take_apart();
        }
        report
    }
}

impl Process {
    fn take_apart(&mut self) {
        let name = |name: &str, context: u32, device: u32| {
            format!("{name} on device {device} (context {context})")
        };
        let maps = std::mem::take(&mut self.maps);
        for map in maps {
            for part in &map.contexts {
                self.maps.push(Map {
                    name: name(&map.name, part.context, part.device),
                    entries: part.entries.clone(),
                    threads: part.threads.clone(),
                    sum: part.sum,
                    contexts: Vec::new(),
                    warnings: Vec::new(),
                    ..map.clone()
                });
            }
            if map.contexts.is_empty() {
                self.maps.push(map);
            }
        }
        let kernels = std::mem::take(&mut self.kernels);
        for kernel in kernels {
            for (context, launches) in &kernel.contexts {
                let found = self.contexts.iter().find(|c| c.number == *context);
                self.kernels.push(Kernel {
                    name: name(&kernel.name, *context, found.map_or(0, |c| c.device)),
                    launches: *launches,
                    uninstrumented: 0,
                    skipped: 0,
                    unwanted: 0,
                    contexts: Vec::new(),
                    programs: kernel.programs_in(*context),
                    context_programs: Vec::new(),
                    ..kernel.clone()
                });
            }
            let without = kernel.uninstrumented + kernel.skipped + kernel.unwanted;
            if kernel.contexts.is_empty() || without > 0 {
                self.kernels.push(Kernel {
                    launches: match kernel.contexts.is_empty() {
                        true => kernel.launches,
                        false => 0,
                    },
                    // Those without probes had no programs.
                    programs: match kernel.contexts.is_empty() {
                        true => kernel.programs,
                        false => Vec::new(),
                    },
                    contexts: Vec::new(),
                    context_programs: Vec::new(),
                    ..kernel
                });
            }
        }
    }
}

/// A map's contents.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// Name.
    pub name: String,
    /// Type name.
    pub kind: String,
    /// Size of the declared map, entries or bytes.
    pub max_entries: u32,
    /// Entries; of arrays only those that are not zero.
    pub entries: Vec<Entry>,
    /// Per-thread arrays of one key: how many threads have which value. Of several keys each is an
    /// entry, in short.
    pub threads: Option<Threads>,
    /// Rings.
    pub events: Option<Events>,
    /// User rings: bytes of records that nobody has drained yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undrained: Option<u64>,
    /// Sum of all values, where they are numbers.
    pub sum: Option<u128>,
    /// What was refused or given up on the device.
    pub warnings: Vec<String>,
    /// What each context has, if there were several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<Part>,
}

impl Map {
    /// This is what one context has.
    pub fn into_part(self, context: u32, device: u32) -> Part {
        Part {
            context,
            device,
            entries: self.entries,
            threads: self.threads,
            sum: self.sum,
        }
    }
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Key.
    pub key: Value,
    /// Value; of per-SM maps the list of the SMs' values.
    pub value: Value,
}

/// A per-thread array in short.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Threads {
    /// Threads with a value other than zero.
    pub count: u64,
    /// Smallest of these values.
    pub min: u64,
    /// Largest.
    pub max: u64,
    /// `(value, threads)`, by value.
    pub histogram: Vec<(u64, u64)>,
}

/// A ring's traffic.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// Records received.
    pub received: u64,
    /// Records that did not reach this tool, for any reason.
    pub lost: u64,
    /// Of these: there was no room on the device.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost_full: u64,
    /// Of these: a bounded retry ran out on the device.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost_busy: u64,
    /// Of these: this tool did not take them in time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost_unread: u64,
    /// The first ones.
    pub first: Vec<Value>,
    /// Records that were received and are not among `first`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

impl Events {
    /// A record has come, of which so many are kept.
    pub fn take(&mut self, kept: usize, value: impl FnOnce() -> Value) {
        self.received += 1;
        match self.first.len() < kept {
            true => self.first.push(value()),
            false => self.left_out += 1,
        }
    }
}

/// For fields that are left away where they say nothing.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_of_programs_are_taken_apart_too() {
        let of = |all: &[(&str, u64)]| -> Vec<(String, u64)> {
            all.iter().map(|(name, n)| (name.to_string(), *n)).collect()
        };
        let device = |number, device| Context {
            number,
            device,
            ..Context::default()
        };
        let apart = |contexts: &[(u32, u64)], by_context: &[(u32, Vec<(String, u64)>)]| {
            let kernel = Kernel {
                name: "k".into(),
                launches: 5,
                uninstrumented: 1,
                contexts: contexts.to_vec(),
                programs: of(&[("a", 5), ("b", 2)]),
                context_programs: by_context.to_vec(),
                ..Kernel::default()
            };
            let process = Process {
                contexts: vec![device(0, 0), device(1, 3)],
                kernels: vec![kernel],
                ..Process::default()
            };
            let report = Report {
                processes: vec![process],
                ..Report::default()
            };
            let kernels = report.per_device().processes.remove(0).kernels;
            assert!(kernels.iter().all(|k| k.context_programs.is_empty()));
            let kernels = kernels.into_iter();
            let shown = kernels.map(|k| (k.name, k.launches, k.uninstrumented, k.programs));
            shown.collect::<Vec<_>>()
        };
        let both = [
            (0, of(&[("a", 3), ("b", 0)])),
            (1, of(&[("a", 2), ("b", 2)])),
        ];
        assert_eq!(
            apart(&[(0, 3), (1, 2)], &both),
            [
                (
                    "k on device 0 (context 0)".to_owned(),
                    3,
                    0,
                    of(&[("a", 3), ("b", 0)])
                ),
                (
                    "k on device 3 (context 1)".to_owned(),
                    2,
                    0,
                    of(&[("a", 2), ("b", 2)])
                ),
                ("k".to_owned(), 0, 1, Vec::new()),
            ]
        );
        let one = [("k".to_owned(), 5, 1, of(&[("a", 5), ("b", 2)]))];
        assert_eq!(apart(&[], &[]), one);
    }
}
