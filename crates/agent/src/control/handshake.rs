//! The handshake: the tool is asked what it wants, and a session is made of that.

use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use warpbpf_driver::{DeviceInfo, DriverError};
use warpbpf_session::{Assembled, Means, Sanitizer, Session};
use warpbpf_wire::connect_to_own;
use warpbpf_wire::{
    AgentConnection, CacheRequest, HANDSHAKE, NoteLevel, ToAgent, ToTool, WireError,
};

use crate::contexts::sanitizer;
use crate::control::code_cache;
use crate::device::host_ops;
use crate::hooks::hook_rows::hook_asked;
use crate::instrument::describe::hello;
use crate::kernels::replacement;
use crate::runtime::agent::{Agent, Mode, Tool};
use crate::sys::descriptors::{Identity, keep};
use crate::sys::lock::lock;
use crate::trace::nvtx;

impl Agent {
    /// Asks the tool what it wants, on a thread of ours, where the application uses the device
    /// `ordinal` of these. The connection goes on if there is a session.
    pub(crate) fn handshake(
        &'static self,
        ordinal: i32,
        devices: Result<Vec<DeviceInfo>, DriverError>,
    ) -> Result<(Mode, Option<AgentConnection>), WireError> {
        let mut connection = self.connect()?;
        let nothing = (Mode::PassThrough, None);
        let devices = match devices {
            Ok(devices) => self.devices.get_or_init(|| devices),
            Err(error) => {
                hello(&mut connection, None)?;
                let message = format!("the device cannot be asked what it is: {error}");
                self.refuse(&mut connection, message)?;
                return Ok(nothing);
            }
        };
        let device = &devices[ordinal as usize];
        hello(&mut connection, Some((device, self.cpus())))?;
        // One layout of maps serves all devices, so that what they hold can be put together: that
        // of the largest.
        let largest = DeviceInfo {
            sms: self.cpus(),
            ..device.clone()
        };
        let mut end = Instant::now() + HANDSHAKE;
        let mut presets: Vec<(String, Vec<u8>)> = Vec::new();
        let mut assembled = Assembled::default();
        let mut by_sanitizer = false;
        let mut cache = CacheRequest::default();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let frame = connection.recv(left)?.ok_or(WireError::Timeout {
                seconds: HANDSHAKE.as_secs(),
            })?;
            warpbpf_faults::check("agent/no-request", || WireError::Timeout {
                seconds: HANDSHAKE.as_secs(),
            })?;
            let mode = match frame.message {
                ToAgent::Observe => Mode::Observe,
                ToAgent::Attach { options } => {
                    if let Some(bytes) = options.ring_bytes {
                        self.ring_bytes.store(bytes as usize, Ordering::Relaxed);
                    }
                    self.stacks.store(options.stacks, Ordering::Relaxed);
                    self.preloaded.look_into_caches(options.caches);
                    self.bound.set(options.max_device_memory);
                    if let Some(ppm) = options.max_overhead_ppm
                        && !self.watchdog.set(ppm, self.elapsed)
                    {
                        let text = "`--max-overhead` has no effect: the driver has no `cuEventElapsedTime`";
                        self.note(NoteLevel::Warning, text.into());
                    }
                    let instrumented = options.occupancy_instrumented;
                    let sanitizer =
                        by_sanitizer.then(|| sanitizer::subscribed(self, options.splice_first));
                    let sanitizer: Option<Option<&Sanitizer>> = sanitizer;
                    let edits = sanitizer.is_none() || options.splice_first;
                    let by_functions = options.splice && edits || sanitizer.flatten().is_some();
                    let means = Means {
                        assembled: by_functions.then(|| Arc::new(assembled)),
                        sanitizer: sanitizer.flatten(),
                        cache: code_cache::open(self, device, &cache),
                        nvtx_comes_to_us: nvtx::comes_to_us(matches!(self.tool, Tool::Path(_))),
                    };
                    // An object that is cut short is refused as any that is damaged.
                    let cut = usize::from(warpbpf_faults::strikes("agent/object"));
                    let object = &frame.blob[..frame.blob.len() >> cut];
                    let made = Session::with(object, &options, means, &largest)
                        .map_err(|error| error.to_string())
                        .and_then(|session| {
                            let preset = host_ops::preset(session, &presets);
                            preset.map_err(|error| error.to_string())
                        });
                    match made {
                        Ok(session) => {
                            self.answer_for_variants(instrumented);
                            self.share_launches(&mut connection)?;
                            self.attached(session)
                        }
                        Err(message) => {
                            self.refuse(&mut connection, message)?;
                            return Ok(nothing);
                        }
                    }
                }
                ToAgent::Detach => {
                    self.turn_off();
                    return Ok(nothing);
                }
                ToAgent::Cache(request) => {
                    cache = request;
                    continue;
                }
                ToAgent::Sanitize => {
                    by_sanitizer = true;
                    continue;
                }
                ToAgent::Preset { map } => {
                    presets.push((map, frame.blob));
                    continue;
                }
                ToAgent::Probe { text, error } => {
                    assembled.add(text, error.map_or(Ok(frame.blob), Err));
                    // The tool is at it.
                    end = Instant::now() + HANDSHAKE;
                    continue;
                }
                ToAgent::Forget { .. } => continue,
                ToAgent::Snapshot { token } | ToAgent::Drain { token } => {
                    // There is nothing yet that could be out of date.
                    connection.queue(&ToTool::Snapshotted { token }, &[], None)?;
                    connection.flush()?;
                    continue;
                }
                ToAgent::Change { token, .. } => {
                    let message = "there are no programs before an object is attached";
                    let refused =
                        replacement::refused(token, 0, replacement::EINVAL, message.into());
                    connection.queue(&ToTool::Changed(refused), &[], None)?;
                    connection.flush()?;
                    continue;
                }
                ToAgent::MapOps { token, .. } => {
                    let error = Some("there are no maps before an object is attached".into());
                    connection.queue(&ToTool::MapOps { token, error }, &[], None)?;
                    connection.flush()?;
                    continue;
                }
            };
            let socket = connection.socket()?;
            let _ = self.socket.set((socket.as_raw_fd(), Identity::of(socket)));
            return Ok((mode, Some(connection)));
        }
    }

    /// The session is the first one.
    fn attached(&self, session: Session) -> Mode {
        let session = Arc::new(session);
        // Nothing was launched by it before.
        let _ = self.generations.now().session.set(Arc::clone(&session));
        Mode::Attached(session)
    }

    fn connect(&self) -> Result<AgentConnection, WireError> {
        match &self.tool {
            Tool::Path(path) => AgentConnection::new(keep(connect_to_own(path)?)),
            Tool::Socket(socket) => {
                let socket = lock(socket).take();
                let socket = socket.ok_or(WireError::Closed)?;
                // Whoever could put it into this process could do anything here.
                AgentConnection::trusted(socket)
            }
        }
    }

    fn refuse(&self, connection: &mut AgentConnection, message: String) -> Result<(), WireError> {
        self.turn_off();
        let second = Duration::from_secs(1);
        connection.send(&ToTool::Refused { message }, &[], None, second)?;
        let reason = "nothing was injected".into();
        connection.send(&ToTool::Bye { reason }, &[], None, second)
    }

    /// Says hello and why nothing will happen, where not even the hooks could be set.
    pub(crate) fn refuse_at_once(&self, message: String) {
        self.files.run(|| {
            if let Ok(mut connection) = self.connect() {
                let said = hello(&mut connection, None);
                // Nobody to tell it to if this fails.
                let _ = said.and_then(|()| self.refuse(&mut connection, message));
            }
        });
        self.turn_off();
    }

    /// Asks what devices there are. The one with ordinal `used` must say what it is.
    pub(crate) fn ask_devices(&self, used: i32) -> Result<Vec<DeviceInfo>, DriverError> {
        let used_info = self.driver.device_info(used)?;
        let info = |ordinal: i32| match ordinal == used {
            true => Some(used_info.clone()),
            false => self.driver.device_info(ordinal).ok(),
        };
        let count = self.driver.device_count().unwrap_or(0) as i32;
        let count = count.max(used + 1);
        // One that does not say what it is is taken for one like the one that does.
        let all = (0..count).map(|n| info(n).unwrap_or_else(|| used_info.clone()));
        Ok(all.collect())
    }

    /// Questions are answered for variants from now on, if that is wanted.
    pub(crate) fn answer_for_variants(&self, wanted: bool) {
        if wanted {
            hook_asked(self);
            self.occupancy_of_variants.store(true, Ordering::Relaxed);
        }
    }
}
