//! A driver, real or soft, and sessions with the probes: runs a mutant as it is, recompiled without
//! programs, and with them.

use std::path::Path;
use std::sync::Arc;

use warpbpf_driver::{DeviceInfo, Driver, DriverError, Function, JitOptions, Module, Stream};
use warpbpf_maps::{MapView, Value};
use warpbpf_patch::{Method, Options, Patcher};
use warpbpf_session::{Live, Session, inspect};

use super::subject::{Argument, Shape};
use crate::probes::{Counts, PROBES, Probe};

/// Probes that are put into every mutant.
const PUT_IN: &[&str] = &["entry+exit", "mem", "branch", "all", "out-of-line"];

/// Leaves a word in the shared memory of every processor: what a kernel reads there before it
/// writes is then seen.
const STAIN: &str = "\
.version 7.0
.target sm_75
.address_size 64
.visible .entry stain(.param .u32 word)
{
	.reg .pred %p<2>;
	.reg .b32 %r<5>;
	.shared .align 4 .b8 all[49152];
	ld.param.u32 %r1, [word];
	mov.u32 %r2, %tid.x;
	shl.b32 %r2, %r2, 2;
	mov.u32 %r3, all;
	add.u32 %r3, %r3, %r2;
AGAIN:
	st.volatile.shared.u32 [%r3], %r1;
	add.u32 %r3, %r3, 4096;
	add.u32 %r2, %r2, 4096;
	setp.lt.u32 %p1, %r2, 49152;
	@%p1 bra AGAIN;
	ret;
}
";

/// See the module.
pub struct Engine {
    driver: Driver,
    info: DeviceInfo,
    stream: Stream,
    probes: Vec<Put>,
    /// The kernel that stains shared memory, on a GPU.
    stain: Option<Function>,
}

/// A probe with its session.
struct Put {
    probe: &'static Probe,
    session: Arc<Session>,
    live: Live,
    counts: usize,
    /// What was counted up to now, with the kernel's number in the key.
    before: Counts,
}

/// A mutant that is loaded.
pub struct Loaded<'e> {
    engine: &'e Engine,
    module: Module,
}

/// What came of a run with a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// Name of the probe.
    pub probe: &'static str,
    /// Buffers after the run.
    pub buffers: Vec<Vec<u8>>,
    /// What it counted.
    pub counts: Counts,
    /// Places it did not get.
    pub left_out: Vec<(String, u32)>,
    /// Why it may not.
    pub may_miss: &'static [&'static str],
}

impl Engine {
    /// Opens a driver and loads the probes of a bundle.
    ///
    /// # Errors
    /// What is not there, or fails.
    pub fn open(bundle: &Path, soft: bool) -> Result<Engine, String> {
        let library = match soft {
            true => bundle.join("soft/libcuda.so.1").display().to_string(),
            false => "libcuda.so.1".to_owned(),
        };
        let driver = warpbpf_driver::open(&library).map_err(|e| e.to_string())?;
        let text = |e: DriverError| e.to_string();
        driver.init().map_err(text)?;
        let info = driver.device_info(0).map_err(text)?;
        let context = driver.retain_primary(0).map_err(text)?;
        driver.set_current(context).map_err(text)?;
        let stream = driver.stream().map_err(text)?;
        let mut probes = Vec::new();
        for probe in PROBES.iter().filter(|p| PUT_IN.contains(&p.name)) {
            let file = bundle.join(format!("objects/{}.bpf.o", probe.object));
            let object = std::fs::read(&file)
                .map_err(|e| format!("cannot read `{}`: {e}", file.display()))?;
            let options = warpbpf_session::Options {
                out_of_line: probe.flags.contains(&"--out-of-line"),
                ..warpbpf_session::Options::default()
            };
            let session = Session::new(&object, &options, &info).map_err(|e| e.to_string())?;
            let session = Arc::new(session);
            let live = Live::new(&driver, Arc::clone(&session)).map_err(|e| e.to_string())?;
            let counts = session.maps().iter().position(|map| map.name == "counts");
            probes.push(Put {
                probe,
                counts: counts.ok_or("a probe has no map `counts`")?,
                session,
                live,
                before: Counts::new(),
            });
        }
        let stain = match soft {
            true => None,
            false => {
                let module = driver.load_ptx(STAIN).map_err(text)?;
                Some(driver.function(module, "stain").map_err(text)?)
            }
        };
        Ok(Engine {
            driver,
            info,
            stream,
            probes,
            stain,
        })
    }

    /// The device, in words.
    pub fn device(&self) -> &str {
        &self.info.name
    }

    /// Loads a mutant.
    ///
    /// # Errors
    /// What the driver says of it.
    pub fn load(&self, text: &str) -> Result<Loaded<'_>, String> {
        let module = self.driver.load_ptx(text).map_err(|e| e.to_string())?;
        Ok(Loaded {
            engine: self,
            module,
        })
    }

    /// Runs it with each probe.
    ///
    /// # Errors
    /// The probe, and what fails: it is not instrumented, not accepted, or ends with a fault.
    pub fn probed(
        &mut self,
        text: &str,
        kernel: &str,
        shape: &Shape,
    ) -> Result<Vec<Probed>, String> {
        let (driver, info, stream) = (self.driver, self.info.clone(), self.stream);
        let mut all = Vec::new();
        for put in &mut self.probes {
            let named = |e: String| format!("{}: {e}", put.probe.name);
            let done = put.run(&driver, &info, stream, (text, kernel), shape);
            all.push(done.map_err(named)?);
        }
        Ok(all)
    }
}

impl Loaded<'_> {
    /// As it is. With a word, after that was left in shared memory, where the engine can do so.
    ///
    /// # Errors
    /// What fails.
    pub fn plain(
        &self,
        kernel: &str,
        shape: &Shape,
        word: Option<u32>,
    ) -> Result<Vec<Vec<u8>>, String> {
        let engine = self.engine;
        let driver = &engine.driver;
        let text = |e: DriverError| e.to_string();
        let function = driver.function(self.module, kernel).map_err(text)?;
        if let (Some(word), Some(stain)) = (word, engine.stain) {
            let blocks = engine.info.sms * 8;
            let mut arguments = [u64::from(word)];
            // SAFETY: the kernel takes one number and writes its own shared memory.
            let done = unsafe {
                driver.launch(
                    stain,
                    [blocks, 1, 1],
                    [1024, 1, 1],
                    engine.stream,
                    &mut arguments,
                )
            };
            done.and_then(|()| driver.wait(engine.stream))
                .map_err(text)?;
        }
        launch(driver, engine.stream, function, shape, &[])
    }

    /// The stain can be made, so that two words tell something.
    pub fn can_stain(&self) -> bool {
        self.engine.stain.is_some()
    }

    /// The kernel that programs are put into, made from the same text, without programs.
    ///
    /// # Errors
    /// What fails.
    pub fn recompiled(
        &self,
        text: &str,
        kernel: &str,
        shape: &Shape,
    ) -> Result<Vec<Vec<u8>>, String> {
        let driver = &self.engine.driver;
        let failed = |e: DriverError| e.to_string();
        let module = warpbpf_ptx::index(text).map_err(|e| e.to_string())?;
        let patcher = Patcher::new(&module);
        let options = Options::default();
        let method = patcher.method(kernel).map_err(|e| e.to_string())?;
        let (made, variant) = match method {
            Method::Slice => patcher
                .slice(kernel, &[], &options)
                .map_err(|e| e.to_string())?,
            Method::Clone { .. } => {
                let made = patcher.clone_in_module(&[(kernel, Vec::new())], &options);
                let (made, mut variants) = made.map_err(|e| e.to_string())?;
                (made, variants.pop().ok_or("no clone was made")?)
            }
            Method::Refused { reason, .. } => return Err(reason),
        };
        let made = match method {
            Method::Slice => {
                let mut slots = vec![0; variant.slot_count as usize];
                for (slot, name) in &variant.globals {
                    slots[*slot as usize] = driver.global(self.module, name).map_err(failed)?.0;
                }
                warpbpf_patch::bake(&made, &slots).map_err(|e| e.to_string())?
            }
            Method::Clone { .. } | Method::Refused { .. } => made,
        };
        let loaded = self.engine.load(&made)?;
        let function = driver
            .function(loaded.module, &variant.entry)
            .map_err(failed)?;
        launch(driver, self.engine.stream, function, shape, &[])
    }
}

impl Drop for Loaded<'_> {
    fn drop(&mut self) {
        // It costs memory if it stays, and fails only where everything does.
        let _ = self.engine.driver.unload(self.module);
    }
}

impl Put {
    fn run(
        &mut self,
        driver: &Driver,
        info: &DeviceInfo,
        stream: Stream,
        (text, kernel): (&str, &str),
        shape: &Shape,
    ) -> Result<Probed, String> {
        let failed = |e: DriverError| e.to_string();
        let image = inspect(text.as_bytes(), info.capability).map_err(|e| e.to_string())?;
        let prepared = self.session.prepare(&image);
        let found = prepared.kernels.iter().find(|k| k.mangled == kernel);
        let found = found.ok_or("the kernel is not in the image")?;
        if found.method == warpbpf_session::Method::NoSite {
            let plain = driver.load_ptx(text).map_err(failed)?;
            let function = driver.function(plain, kernel).map_err(failed)?;
            let buffers = launch(driver, stream, function, shape, &[]);
            driver.unload(plain).map_err(failed)?;
            return Ok(self.told(buffers?, Counts::new(), found.left_out.clone()));
        }
        let id = found
            .kernel_id
            .filter(|_| found.wanted)
            .ok_or_else(|| found.method.to_string())?;
        let left_out = found.left_out.clone();
        let loaded = prepared.rewritten.as_deref().unwrap_or(text);
        let original = driver.load_ptx(loaded).map_err(failed)?;
        let mut made = self
            .live
            .instrument(&prepared, original, &JitOptions::default());
        let (_, variant) = made.pop().ok_or("no code was made for it")?;
        let variant = variant.map_err(|error| error.to_string())?;
        let mut hidden = Vec::new();
        if variant.hidden.is_some() {
            let record = variant.launch_record(stream, shape.grid, shape.block);
            // The record, and the number of the launch, lie side by side in one parameter.
            hidden = vec![record.ok_or("there is no room for a launch record")?, 1];
        }
        let buffers = launch(driver, stream, variant.function, shape, &hidden)?;
        variant.unload(driver).map_err(failed)?;
        driver.unload(original).map_err(failed)?;
        let now = self.read().map_err(|e| format!("reading counts: {e}"))?;
        let mut counts = Counts::new();
        for (key, count) in &now {
            let new = count - self.before.get(key).copied().unwrap_or(0);
            let Some(what) = key.checked_sub(id * self.probe.stride) else {
                continue;
            };
            if new > 0 && what < self.probe.stride {
                counts.insert(what, new);
            }
        }
        self.before = now;
        Ok(self.told(buffers, counts, left_out))
    }

    fn told(&self, buffers: Vec<Vec<u8>>, counts: Counts, left_out: Vec<(String, u32)>) -> Probed {
        Probed {
            probe: self.probe.name,
            buffers,
            counts,
            left_out,
            may_miss: self.probe.may_miss,
        }
    }

    fn read(&self) -> Result<Counts, String> {
        let plan = &self.session.maps()[self.counts];
        let mut bytes = vec![0; plan.bytes() as usize];
        self.live
            .snapshot(self.counts, 0, &mut bytes)
            .map_err(|e| e.to_string())?;
        let view = MapView::new(plan, &bytes).map_err(|e| e.to_string())?;
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let entries = view.entries().filter_map(|entry| {
            let key = entry.key.try_into().map(u32::from_le_bytes).ok()?;
            let value = match &entry.value {
                Value::One(value) => word(value),
                Value::PerSm(each) => each.iter().map(|value| word(value)).sum(),
                Value::PerThread(_) => return None,
            };
            (value > 0).then_some((u64::from(key), value))
        });
        Ok(entries.collect())
    }
}

/// Launches with fresh buffers and reads them back.
fn launch(
    driver: &Driver,
    stream: Stream,
    function: Function,
    shape: &Shape,
    hidden: &[u64],
) -> Result<Vec<Vec<u8>>, String> {
    let text = |e: DriverError| e.to_string();
    let mut arguments = Vec::new();
    let mut buffers: Vec<(u64, usize)> = Vec::new();
    for argument in &shape.arguments {
        arguments.push(match argument {
            Argument::Buffer(bytes) => {
                let address = driver
                    .alloc_zeroed(bytes.len() as u64, stream)
                    .map_err(text)?;
                driver.write(address, bytes, stream).map_err(text)?;
                buffers.push((address, bytes.len()));
                address
            }
            Argument::Number(number) => *number,
        });
    }
    arguments.extend(hidden);
    // SAFETY: the arguments are as the kernel's own, and the soft GPU ran it within its memory.
    let done = unsafe { driver.launch(function, shape.grid, shape.block, stream, &mut arguments) };
    done.and_then(|()| driver.wait(stream)).map_err(text)?;
    let mut read = Vec::new();
    for (address, bytes) in buffers {
        let mut into = vec![0; bytes];
        driver.read(address, &mut into, stream).map_err(text)?;
        driver.free(address).map_err(text)?;
        read.push(into);
    }
    Ok(read)
}
