//! `warpbpf launch`: programs that are kernels themselves, run in this process, and what they leave
//! in their maps.

use std::sync::Arc;

use warpbpf_driver::{Driver, DriverError, JitOptions};
use warpbpf_maps::stops;
use warpbpf_object::Object;
use warpbpf_session::{Calls, Live, LoadedVariant, PlannedProgram, RingEvent, Session};
use warpbpf_tool::Method;

use crate::application::machine::{self, Device};
use crate::flags::LaunchFlags;
use crate::programs::objects;
use crate::report::contents::{fill, printk};
use crate::report::model::{self, Report};
use crate::report::news::Records;
use crate::report::outlet::Outlet;
use crate::report::pretty::Printer;
use crate::report::render;
use crate::term::error::CliError;

/// Launches the programs and reports.
pub fn run(flags: &LaunchFlags) -> Result<u8, CliError> {
    let mut outlet = Outlet::open(&flags.output)?;
    let loaded = objects::bring(&flags.object)?;
    let device = machine::choose(flags.device)?;
    machine::tell_of(&device, flags.device);
    let (library, soft) = match &device {
        Device::Gpu(_) => ("libcuda.so.1".to_owned(), false),
        Device::Soft { folder, .. } => (folder.join("libcuda.so.1").display().to_string(), true),
    };
    let driver = warpbpf_driver::open(&library).map_err(|e| CliError::Other(e.to_string()))?;
    let failed = |e: DriverError| CliError::Other(e.to_string());
    driver.init().map_err(failed)?;
    let info = driver.device_info(0).map_err(failed)?;
    let session = Session::new(&loaded.bytes, &flags.program.options(), &info)
        .map_err(|error| loaded.rejected(error))?;
    let chosen = chosen(&session, flags.program_name.as_deref())?;
    let context = driver.retain_primary(0).map_err(failed)?;
    driver.set_current(context).map_err(failed)?;
    let session = Arc::new(session);
    let live = Live::new(&driver, Arc::clone(&session)).map_err(|e| loaded.rejected(e))?;
    let _serving = Serving::start(&live).map_err(|e| CliError::Other(e.to_string()))?;
    let mut found = Found {
        rings: vec![model::Events::default(); session.map_count()],
        messages: Vec::new(),
        kept: Records::requested(flags.events, flags.output.form()).most(),
    };
    let mut process = model::Process {
        pid: std::process::id(),
        exe: loaded.name.clone(),
        device: format!(
            "{}, sm_{}{}, {} SMs",
            info.name, info.capability.0, info.capability.1, info.sms
        ),
        soft,
        complete: true,
        missing_launches: Some(0),
        kernels_ran_at_last_copy: Some(false),
        ..model::Process::default()
    };
    for index in chosen {
        let refused = |reason: String| {
            loaded.refused(format!(
                "program `{}`: {reason}",
                session.programs()[index].name()
            ))
        };
        let (variant, kernel) = load(&driver, &live, index, info.capability).map_err(refused)?;
        for _ in 0..flags.count {
            launch(&driver, &live, &variant, flags).map_err(failed)?;
            found
                .drain(&live, &session, &loaded.object)
                .map_err(failed)?;
        }
        process.kernels.push(model::Kernel {
            launches: flags.count.into(),
            ..kernel
        });
    }
    process.maps = maps(&live, &session, &loaded.object, &found).map_err(failed)?;
    process.stopped = stopped(&live, &session).map_err(failed)?;
    process.messages = found.messages;
    process.messages_lost = lost(&live, RingEvent::PRINTK);
    process.clock_error_ns = Some(live.clock().error);
    let report = Report {
        version: model::VERSION,
        command: vec![loaded.name.clone()],
        status: Some(0),
        programs: Vec::new(),
        processes: vec![process],
        together: Vec::new(),
        linux: None,
        notes: Vec::new(),
        remarks: Vec::new(),
    };
    outlet.write(&report, &|report| render::report(report, flags.rows));
    Ok(0)
}

/// Answers programs that ask the host for keys, while it lives.
struct Serving(Option<Arc<Calls>>);

impl Serving {
    fn start(live: &Live) -> std::io::Result<Serving> {
        let calls = live.calls().cloned();
        if let Some(calls) = calls.clone() {
            let thread = std::thread::Builder::new().name("warpbpf-calls".into());
            thread.spawn(move || calls.keep_serving())?;
        }
        Ok(Serving(calls))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(calls) = &self.0 {
            calls.pause().close();
        }
    }
}

/// Programs that are kernels, by index.
fn chosen(session: &Session, name: Option<&str>) -> Result<Vec<usize>, CliError> {
    let all = session.own_kernels();
    let programs = session.programs();
    let names = || {
        let names: Vec<&str> = all.iter().map(|i| programs[*i].name()).collect();
        names.join(", ")
    };
    if all.is_empty() {
        let sections: Vec<&str> = programs.iter().map(PlannedProgram::section).collect();
        return Err(CliError::Other(format!(
            "no program of the object is a kernel itself: write `SEC(\"gpu/run\")`; it has {}",
            sections.join(", ")
        )));
    }
    let wanted = |index: &usize| name.is_none_or(|name| programs[*index].name() == name);
    let chosen: Vec<usize> = all.iter().copied().filter(wanted).collect();
    if chosen.is_empty() {
        return Err(CliError::Other(format!(
            "no such program; those that are kernels are {}",
            names()
        )));
    }
    Ok(chosen)
}

/// A program as a kernel on the device, and what is to be said of it.
fn load(
    driver: &Driver,
    live: &Live,
    index: usize,
    capability: (u32, u32),
) -> Result<(Arc<LoadedVariant>, model::Kernel), String> {
    let own = live.session().own_kernel(index, capability);
    let own = own.map_err(|error| error.to_string())?;
    let module = driver.load_ptx(&own.text).map_err(|e| e.to_string())?;
    let mut made = live.instrument(&own.prepared, module, &JitOptions::default());
    let (mangled, variant) = made.pop().ok_or("no code was made for it")?;
    let variant = variant.map_err(|error| error.to_string())?;
    if variant.hidden.is_some() {
        return Err("it needs a launch record, which programs that are kernels do not have".into());
    }
    let kernel = model::Kernel {
        id: Some(variant.kernel_id as u32),
        name: mangled.clone(),
        mangled,
        source: "the program itself".into(),
        method: Method::Run,
        instrumented: true,
        registers: Some((
            variant.resources.after.registers,
            variant.resources.after.registers,
        )),
        ..model::Kernel::default()
    };
    Ok((variant, kernel))
}

fn launch(
    driver: &Driver,
    live: &Live,
    variant: &LoadedVariant,
    flags: &LaunchFlags,
) -> Result<(), DriverError> {
    let stream = live.stream();
    // SAFETY: the kernel takes no parameters, and what it touches was proved.
    unsafe {
        driver.launch(
            variant.function,
            flags.grid.0,
            flags.block.0,
            stream,
            &mut [],
        )?;
    }
    driver.wait(stream)
}

/// What came out of rings.
struct Found {
    /// By map.
    rings: Vec<model::Events>,
    messages: Vec<String>,
    /// Events to keep per ring.
    kept: usize,
}

impl Found {
    fn drain(
        &mut self,
        live: &Live,
        session: &Session,
        object: &Object,
    ) -> Result<(), DriverError> {
        let (kernels, sites) = (session.kernel_names(), session.site_names());
        let printer = Printer {
            btf: object.btf.as_ref(),
            kernels: &kernels,
            sites: &sites,
        };
        live.drain(&mut |event| {
            if event.map == RingEvent::PRINTK {
                self.messages.extend(printk(object, event.payload));
            } else if let Some(ring) = self.rings.get_mut(event.map as usize) {
                let def = object.maps.get(event.map as usize);
                let ty = def.and_then(|m| m.value_type);
                ring.take(self.kept, || printer.json(ty, event.payload));
            }
        })?;
        Ok(())
    }
}

fn lost(live: &Live, map: u32) -> u64 {
    let losses = live.losses();
    let of_map = losses.iter().filter(|(ring, _)| *ring == map);
    of_map.map(|(_, lost)| lost.full + lost.busy).sum()
}

fn maps(
    live: &Live,
    session: &Session,
    object: &Object,
    found: &Found,
) -> Result<Vec<model::Map>, DriverError> {
    let (kernels, sites) = (session.kernel_names(), session.site_names());
    let printer = Printer {
        btf: object.btf.as_ref(),
        kernels: &kernels,
        sites: &sites,
    };
    let layouts = live.layouts();
    let mut maps = Vec::new();
    for (index, (plan, def)) in session.maps().iter().zip(session.map_defs()).enumerate() {
        if def.is_constant() || stops::program_of(&plan.name).is_some() {
            continue;
        }
        let mut map = model::Map {
            name: plan.name.clone(),
            kind: plan.map_type.name().into(),
            max_entries: plan.max_entries,
            ..model::Map::default()
        };
        let bytes = layouts[index].snapshot_bytes;
        if bytes == 0 {
            let mut events = found.rings[index].clone();
            events.lost = lost(live, index as u32);
            map.events = Some(events);
        } else {
            fill(&mut map, plan, def, &[copy(live, index)?], &printer);
        }
        maps.push(map);
    }
    Ok(maps)
}

/// Programs that were ended in loops.
fn stopped(live: &Live, session: &Session) -> Result<Vec<model::Stopped>, DriverError> {
    let mut stopped = Vec::new();
    for (index, plan) in session.maps().iter().enumerate() {
        let Some(program) = stops::program_of(&plan.name) else {
            continue;
        };
        let times = stops::count(plan, &[copy(live, index)?]);
        if times > 0 {
            stopped.push(model::Stopped {
                program: program.to_owned(),
                times,
            });
        }
    }
    Ok(stopped)
}

/// What is in a map now.
fn copy(live: &Live, map: usize) -> Result<Vec<u8>, DriverError> {
    let mut snapshot = vec![0; live.layouts()[map].snapshot_bytes as usize];
    live.snapshot(map, 0, &mut snapshot)?;
    Ok(snapshot)
}
