//! Linux as it is asked: `bpf()`, `perf_event_open()`, and what else its programs need.
//!
//! System calls are made directly: in a tool under `warpbpf loader` libc's functions of these names
//! are the loader's own.

use std::ffi::{CString, c_long};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use rustix::io::Errno;
use warpbpf_abi::maps::MapType;

use crate::uapi::{Command, attr, perf};

/// Linux's `bpf()`, and what else its programs need.
pub trait Linux: Send + Sync {
    /// `bpf(command, fields)`; addresses are of this process.
    ///
    /// # Errors
    /// The kernel's.
    fn bpf(&self, command: Command, fields: &mut [u8]) -> Result<i64, Errno>;
    /// CPUs that a value per CPU has parts for.
    fn cpus(&self) -> u32;
    /// Another descriptor for the same object.
    ///
    /// # Errors
    /// The kernel's.
    fn duplicate(&self, fd: RawFd) -> Result<RawFd, Errno>;
    /// A program at a place, until the descriptor is closed.
    ///
    /// # Errors
    /// The kernel's; `ENOENT` if it has no such probes.
    fn probe(&self, prog: RawFd, place: &Place) -> Result<OwnedFd, Errno>;
    /// An event whose ring programs on this CPU write to by `bpf_perf_event_output`.
    ///
    /// # Errors
    /// The kernel's.
    fn output(&self, cpu: u32) -> Result<OwnedFd, Errno>;
    /// Turns such a probe on or off.
    fn enable(&self, event: &OwnedFd, enabled: bool);
}

/// Where a program of the kernel is wanted: at the start of a function or (true) at its end, or at
/// a tracepoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A function of the kernel, by name.
    Kernel(String, bool),
    /// One of this process, by file and offset in it.
    Own(String, u64, bool),
    /// One of a file, in whatever process.
    File(String, u64, bool),
    /// A tracepoint, by its number.
    Tracepoint(u64),
}

/// The fields of a command to Linux.
#[derive(Debug, Clone)]
pub struct Fields([u8; attr::SIZE]);

impl Fields {
    /// All zero.
    pub fn new() -> Fields {
        Fields([0; attr::SIZE])
    }

    fn put(mut self, at: usize, bytes: &[u8]) -> Fields {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// With a 32-bit field.
    pub fn u32(self, at: usize, value: u32) -> Fields {
        self.put(at, &value.to_ne_bytes())
    }

    /// With a 64-bit field.
    pub fn u64(self, at: usize, value: u64) -> Fields {
        self.put(at, &value.to_ne_bytes())
    }

    /// Where something of ours lies; null for nothing.
    pub fn address<T>(self, at: usize, of: &[T]) -> Fields {
        let address = if of.is_empty() { 0 } else { of.as_ptr() as u64 };
        self.u64(at, address)
    }

    /// With a name, of which Linux takes 15 bytes.
    pub fn name(self, at: usize, name: &str) -> Fields {
        // Linux takes letters, digits, `_` and `.`.
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
        let name: Vec<u8> = name.bytes().filter(fits).take(15).collect();
        self.put(at, &name)
    }

    /// All fields.
    pub fn bytes(&self) -> &[u8; attr::SIZE] {
        &self.0
    }

    /// Those that a tool gave.
    pub fn of(bytes: [u8; attr::SIZE]) -> Fields {
        Fields(bytes)
    }

    /// Asks Linux.
    ///
    /// # Errors
    /// Linux's.
    pub fn ask(mut self, linux: &dyn Linux, command: Command) -> Result<i64, Errno> {
        linux.bpf(command, &mut self.0)
    }

    /// Asks Linux for something that is behind a descriptor.
    ///
    /// # Errors
    /// Linux's.
    pub fn open(self, linux: &dyn Linux, command: Command) -> Result<OwnedFd, Errno> {
        let fd = self.ask(linux, command)? as RawFd;
        // SAFETY: the kernel has just given it to us, and nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl Default for Fields {
    fn default() -> Fields {
        Fields::new()
    }
}

/// `syscall(number, …)` as the kernel answers it: a result, or an error as a negative number.
pub fn raw(number: c_long, args: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    let result: i64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the tool's own system call, with its own arguments; the kernel checks them. Only the
    // registers named here are changed.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack)
        );
    }
    result
}

/// The kernel of this machine.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    cpus: u32,
}

impl Host {
    /// The kernel, if it lets this process use `bpf()`.
    pub fn permitted() -> Option<Host> {
        Host::ask().ok()
    }

    /// The same, or why it does not.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn ask() -> Result<Host, Errno> {
        let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible");
        let possible = possible.map_err(|_| Errno::NOSYS)?;
        let last = possible.trim().rsplit(['-', ',']).next();
        let last = last.and_then(|last| last.parse::<u32>().ok());
        let host = Host {
            cpus: last.ok_or(Errno::NOSYS)? + 1,
        };
        let mut fields = [0; attr::SIZE];
        for (at, value) in [
            (attr::map::TYPE, MapType::Array as u32),
            (attr::map::KEY_SIZE, 4),
            (attr::map::VALUE_SIZE, 4),
            (attr::map::MAX_ENTRIES, 1),
        ] {
            fields[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let fd = host.bpf(Command::MapCreate, &mut fields)?;
        raw(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]);
        Ok(host)
    }
}

/// A result of the kernel.
fn checked(result: i64) -> Result<i64, Errno> {
    if (-4095..0).contains(&result) {
        return Err(Errno::from_raw_os_error(-result as i32));
    }
    Ok(result)
}

impl Linux for Host {
    fn bpf(&self, command: Command, fields: &mut [u8]) -> Result<i64, Errno> {
        let (address, size) = (fields.as_mut_ptr() as u64, fields.len() as u64);
        checked(raw(libc::SYS_bpf, [command as u64, address, size, 0, 0, 0]))
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn duplicate(&self, fd: RawFd) -> Result<RawFd, Errno> {
        let command = libc::F_DUPFD_CLOEXEC as u64;
        checked(raw(libc::SYS_fcntl, [fd as u64, command, 3, 0, 0, 0])).map(|fd| fd as RawFd)
    }

    fn probe(&self, prog: RawFd, place: &Place) -> Result<OwnedFd, Errno> {
        let event = match place {
            Place::Tracepoint(id) => event(perf::TYPE_TRACEPOINT, &[(perf::CONFIG, *id)], -1, 0)?,
            // Of any process, which is asked for with a CPU.
            Place::Kernel(name, ret) => at_function("kprobe", name, 0, *ret, (-1, 0))?,
            Place::File(path, offset, ret) => at_function("uprobe", path, *offset, *ret, (-1, 0))?,
            // Of this process on any CPU.
            Place::Own(path, offset, ret) => {
                let whom = (std::process::id().cast_signed(), -1);
                at_function("uprobe", path, *offset, *ret, whom)?
            }
        };
        for (request, argument) in [(perf::IOC_SET_BPF, prog as u64), (perf::IOC_ENABLE, 0)] {
            control(&event, request, argument)?;
        }
        Ok(event)
    }

    fn output(&self, cpu: u32) -> Result<OwnedFd, Errno> {
        let words = [
            (perf::CONFIG, perf::COUNT_SW_BPF_OUTPUT),
            (perf::SAMPLE_PERIOD, 1),
            (perf::SAMPLE_TYPE, perf::SAMPLE_RAW),
        ];
        let event = event(perf::TYPE_SOFTWARE, &words, -1, cpu.cast_signed())?;
        control(&event, perf::IOC_ENABLE, 0)?;
        Ok(event)
    }

    fn enable(&self, event: &OwnedFd, enabled: bool) {
        let request = if enabled {
            perf::IOC_ENABLE
        } else {
            perf::IOC_DISABLE
        };
        // An event of ours takes both.
        let _ = control(event, request, 0);
    }
}

/// An event at a function that is named by a text, for a process and a CPU. `ENOENT` if the kernel
/// has no events of this kind.
fn at_function(
    kind: &str,
    text: &str,
    offset: u64,
    ret: bool,
    (pid, cpu): (i32, i32),
) -> Result<OwnedFd, Errno> {
    let path = format!("/sys/bus/event_source/devices/{kind}/type");
    let kind = std::fs::read_to_string(path);
    let kind = kind.ok().and_then(|kind| kind.trim().parse::<u32>().ok());
    let text = CString::new(text).map_err(|_| Errno::INVAL)?;
    let words = [
        (perf::CONFIG, u64::from(ret)),
        (perf::CONFIG1, text.as_ptr() as u64),
        (perf::CONFIG2, offset),
    ];
    event(kind.ok_or(Errno::NOENT)?, &words, pid, cpu)
}

/// `perf_event_open` with these words of its attributes.
fn event(kind: u32, words: &[(usize, u64)], pid: i32, cpu: i32) -> Result<OwnedFd, Errno> {
    let mut bytes = [0u8; perf::ATTR_SIZE];
    for (at, word) in words {
        bytes[*at..at + 8].copy_from_slice(&word.to_ne_bytes());
    }
    for (at, half) in [(perf::TYPE, kind), (perf::SIZE, perf::ATTR_SIZE as u32)] {
        bytes[at..at + 4].copy_from_slice(&half.to_ne_bytes());
    }
    let number = |value: i32| i64::from(value) as u64;
    let (address, alone) = (bytes.as_ptr() as u64, number(-1));
    let opened = raw(
        libc::SYS_perf_event_open,
        [
            address,
            number(pid),
            number(cpu),
            alone,
            perf::FD_CLOEXEC,
            0,
        ],
    );
    // SAFETY: the kernel has just given it to us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(checked(opened)? as RawFd) })
}

fn control(event: &OwnedFd, request: u64, argument: u64) -> Result<(), Errno> {
    let fd = event.as_raw_fd() as u64;
    checked(raw(libc::SYS_ioctl, [fd, request, argument, 0, 0, 0])).map(|_| ())
}
