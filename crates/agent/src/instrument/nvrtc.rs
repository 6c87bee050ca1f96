//! Machine code that NVRTC makes in this process. The compiler has the PTX that it was assembled
//! from as well, and gives it to whoever asks: so it is asked when the application takes the
//! machine code, and the text stands for just those bytes when they are loaded.
//!
//! The library comes when the application first compiles something, and nobody tells us. So it is
//! looked for where the application allocates device memory by `cuMemAlloc` and loads images, and
//! by the control thread; a look is a number compared. There is no control thread before the first
//! image, and a framework may load the compiler and ask it between two calls of the driver (CuPy),
//! so a thread looks from the first allocation until then. What is compiled before that has no PTX,
//! which the report says.
//!
//! Who looks reads the dynamic linker's list as a debugger does, and calls nothing of it: the
//! application loads and unloads meanwhile. Only a thread of ours, which holds nothing of the
//! application's, asks the linker for a compiler's functions, once: a thread of the application may
//! hold a lock that a library's constructor waits for.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use warpbpf_driver::loaded;
use warpbpf_hook::{HookError, Kind, Target, stage};
use warpbpf_wire::NoteLevel;

use crate::runtime::agent::{Agent, Mode};
use crate::runtime::published::agent;
use crate::sources::image;
use crate::sources::jit_outputs::{JitOutput, MOST_BYTES};
use crate::sys::guard::caught;
use crate::sys::lock::lock;
use crate::sys::symbols::{Library, code_of};
use crate::sys::thread;

/// `NVRTC_SUCCESS`
const SUCCESS: c_int = 0;
/// Compilers that one process may have: frameworks bring their own ones.
const MOST_COMPILERS: usize = 4;
/// How long a thread of the application waits, once, for a compiler that has come to be hooked.
const PATIENCE: Duration = Duration::from_millis(200);
/// Between two looks whether it is.
const TICK: Duration = Duration::from_micros(200);

/// `nvrtcGetCUBIN(prog, cubin)` and `nvrtcGetPTX(prog, ptx)`
type Get = unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int;
/// `nvrtcGetCUBINSize(prog, size)` and `nvrtcGetPTXSize(prog, size)`
type Size = unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int;

/// Functions of a library.
#[derive(Debug)]
struct Compiler {
    get_cubin: Get,
    cubin_size: Size,
    get_ptx: Get,
    ptx_size: Size,
}

/// By number; what is there is leaked.
static COMPILERS: [AtomicPtr<Compiler>; MOST_COMPILERS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_COMPILERS];

/// A compiler in memory: its file, and what its addresses are counted from.
type Place = (CString, usize);

/// One that was looked at. Its number is its place among all.
#[derive(Debug)]
struct Known {
    place: Place,
    /// It is hooked, or was tried to be.
    done: bool,
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());
/// The generation of libraries in which all compilers were done.
static LIBRARIES: AtomicU64 = AtomicU64::new(0);

/// That for which somebody last waited.
static WAITED: AtomicU64 = AtomicU64::new(0);
/// Compilers are being hooked.
static HOOKING: AtomicBool = AtomicBool::new(false);

/// A thread looks until the tool is asked.
static WATCHED: AtomicBool = AtomicBool::new(false);
/// It is to end.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Between two looks of it. No text is compiled in so short a time.
const WATCH: Duration = Duration::from_millis(5);

/// Has a thread look for compilers until there is a control thread, which does from then on. It
/// asks the tool as soon as one has come, and has that thread hook it; the one wait for that is
/// left to a thread of the application.
fn watch(to: &'static Agent) {
    let is_needed = !to.is_decided() && !ENDING.load(Ordering::Acquire);
    if !is_needed || WATCHED.swap(true, Ordering::AcqRel) {
        return;
    }
    // What the tool is told of is the device that the application uses.
    let context = to.driver.current();
    let started = context.is_some_and(|context| {
        let watching = move || {
            while to.is_on() && !to.is_decided() {
                std::thread::sleep(WATCH);
                if ENDING.load(Ordering::Acquire) {
                    break;
                }
                let has_come = compilers().is_some_and(|all| !all.is_empty());
                if !has_come {
                    continue;
                }
                // A context that is gone is no longer the one.
                if to.driver.set_current(context).is_err() {
                    break;
                }
                to.mode();
                to.wake();
            }
            WATCHED.store(false, Ordering::Release);
        };
        // The tool's programs are proved and compiled on it.
        thread::start_large("warpbpf-watch", watching).is_ok()
    });
    if !started {
        WATCHED.store(false, Ordering::Release);
    }
}

/// Has the thread that looks end, and waits for that, at most so long.
pub(crate) fn wait_until_idle(limit: Duration) {
    ENDING.store(true, Ordering::Release);
    let end = Instant::now() + limit;
    while WATCHED.load(Ordering::Acquire) && Instant::now() < end {
        std::thread::sleep(TICK);
    }
}

/// A thread of the application is about to do something that comes before compiling: if a compiler
/// has come, it waits until that is hooked.
pub(crate) fn look(to: &'static Agent) {
    if !to.is_on() {
        return;
    }
    watch(to);
    let Some(libraries) = loaded::generation().filter(|count| !is_done(*count)) else {
        return;
    };
    let Some(compilers) = compilers() else { return };
    if compilers.iter().all(is_known) {
        LIBRARIES.fetch_max(libraries, Ordering::AcqRel);
        return;
    }
    // Once for all: who hooks it may be waiting for this very thread.
    if WAITED.fetch_max(libraries, Ordering::AcqRel) >= libraries {
        return;
    }
    if matches!(to.mode(), Mode::PassThrough) {
        return;
    }
    to.wake();
    let end = Instant::now() + PATIENCE;
    while !is_done(libraries) && Instant::now() < end {
        std::thread::sleep(TICK);
    }
}

/// The control thread looks for compilers that have come. A thread of its own hooks them: the
/// loader may let it wait as long as a library's constructor runs.
pub(crate) fn serve(to: &'static Agent) {
    let libraries = loaded::generation().filter(|count| !is_done(*count));
    let Some((libraries, compilers)) = libraries.zip(compilers()) else {
        return;
    };
    if compilers.iter().all(is_known) {
        LIBRARIES.fetch_max(libraries, Ordering::AcqRel);
        return;
    }
    if !to.is_on() || HOOKING.swap(true, Ordering::AcqRel) {
        return;
    }
    let started = thread::start("warpbpf-nvrtc", move || {
        for place in compilers.iter().filter(|place| !is_known(place)) {
            hook_one(to, place);
        }
        LIBRARIES.fetch_max(libraries, Ordering::AcqRel);
        HOOKING.store(false, Ordering::Release);
    });
    if started.is_err() {
        // It is tried again with the next look.
        HOOKING.store(false, Ordering::Release);
    }
}

fn hook_one(to: &'static Agent, place: &Place) {
    let number = {
        let mut known = lock(&KNOWN);
        let there = known.iter().position(|known| known.place == *place);
        there.unwrap_or_else(|| {
            known.push(Known {
                place: place.clone(),
                done: false,
            });
            known.len() - 1
        })
    };
    if let Err(reason) = hook(to, number, place) {
        let file = place.0.to_string_lossy();
        to.note(
            NoteLevel::Warning,
            format!("kernels that `{file}` compiles to machine code run without probes: {reason}"),
        );
    }
    lock(&KNOWN)[number].done = true;
}

/// A detach has taken out all hooks: the next attach finds compilers unhooked.
pub(crate) fn taken_out() {
    lock(&KNOWN).iter_mut().for_each(|known| known.done = false);
    LIBRARIES.store(0, Ordering::Release);
    WAITED.store(0, Ordering::Release);
    ENDING.store(false, Ordering::Release);
}

fn is_done(libraries: u64) -> bool {
    LIBRARIES.load(Ordering::Acquire) >= libraries
}

fn is_known(place: &Place) -> bool {
    let known = lock(&KNOWN);
    known
        .iter()
        .any(|known| known.done && known.place == *place)
}

/// In a forked child, which has no thread of ours.
pub(crate) fn forked() {
    WATCHED.store(false, Ordering::Release);
    ENDING.store(false, Ordering::Release);
}

/// Those that are loaded now. `None`: that cannot be said just now.
fn compilers() -> Option<Vec<Place>> {
    let all = loaded::loaded()?.into_iter();
    let compilers = all.filter(|file| is_compiler(&file.path));
    Some(compilers.map(|file| (file.path, file.base)).collect())
}

/// Packages rename it: `libnvrtc.so.13`, `libnvrtc.alt.so.13`, `libnvrtc-1a2b3c4d.so.12`.
fn is_compiler(path: &CStr) -> bool {
    let bytes = path.to_bytes();
    let name = bytes.rsplit(|b| *b == b'/').next().unwrap_or(bytes);
    name.starts_with(b"libnvrtc") && !name.starts_with(b"libnvrtc-builtins")
}

/// Why a compiler is not watched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum CompilerError {
    #[error("it is gone")]
    Gone,
    #[error("it has no `{function}`")]
    NoFunction { function: &'static str },
    #[error("this process has {MOST_COMPILERS} of its kind already")]
    TooMany,
    #[error("there is no trampoline")]
    NoTrampoline,
    #[error("the tool has gone")]
    NoTool,
    #[error("{0}")]
    Hook(#[from] HookError),
}

/// Where a compiler's functions are. It stays from then on, as code of ours leads there.
fn functions(path: &CStr, base: usize) -> Result<[usize; 4], CompilerError> {
    let library = Library::kept(path).ok_or(CompilerError::Gone)?;
    let mut found = [0; 4];
    let names = [
        "nvrtcGetCUBIN",
        "nvrtcGetCUBINSize",
        "nvrtcGetPTX",
        "nvrtcGetPTXSize",
    ];
    for (to, function) in found.iter_mut().zip(names) {
        let address = library.address(function).filter(|at| *at >= base);
        *to = address.ok_or(CompilerError::NoFunction { function })?;
    }
    Ok(found)
}

/// Stands in front of a compiler's `nvrtcGetCUBIN`.
fn hook(to: &Agent, number: usize, (path, base): &Place) -> Result<(), CompilerError> {
    let replacement = REPLACEMENTS.get(number).ok_or(CompilerError::TooMany)?;
    let [address, cubin_size, get_ptx, ptx_size] = functions(path, *base)?;
    let target = Target {
        address,
        // SAFETY: a function of a library that stays loaded.
        code: unsafe { code_of(address) },
        replacement: *replacement as usize,
        kind: Kind::Function,
    };
    let staged = stage(&[target]);
    let original = staged.originals.first().cloned();
    let original = original.ok_or(CompilerError::NoTrampoline)??;
    // SAFETY: functions of NVRTC, whose signatures these are, the first by its trampoline.
    let compiler = unsafe {
        Compiler {
            get_cubin: std::mem::transmute::<usize, Get>(original),
            cubin_size: std::mem::transmute::<usize, Size>(cubin_size),
            get_ptx: std::mem::transmute::<usize, Get>(get_ptx),
            ptx_size: std::mem::transmute::<usize, Size>(ptx_size),
        }
    };
    COMPILERS[number].store(Box::leak(Box::new(compiler)), Ordering::Release);
    if !to.is_on() {
        return Err(CompilerError::NoTool);
    }
    // SAFETY: the replacement has the function's signature. That no thread is in the function's
    // first instructions just now is assumed, as of functions with programs (docs/attach.md).
    let done = unsafe { staged.commit() };
    done.into_iter().try_for_each(|one| one.map(|_| ()))?;
    Ok(())
}

/// One for each compiler.
const REPLACEMENTS: [Get; MOST_COMPILERS] = [
    get_cubin::<0>,
    get_cubin::<1>,
    get_cubin::<2>,
    get_cubin::<3>,
];

/// # Safety
/// As `nvrtcGetCUBIN`.
unsafe extern "C" fn get_cubin<const N: usize>(program: *mut c_void, cubin: *mut c_char) -> c_int {
    // SAFETY: null, or leaked by `hook`.
    let Some(compiler) = (unsafe { COMPILERS[N].load(Ordering::Acquire).as_ref() }) else {
        // There is no way here before it is set.
        return -1;
    };
    // SAFETY: the application's own arguments.
    let code = unsafe { (compiler.get_cubin)(program, cubin) };
    if code == SUCCESS && !cubin.is_null() {
        // Whatever goes wrong with us is no affair of the application's.
        let _ = caught("`nvrtcGetCUBIN`", || {
            // Not in a forked child, nor when the tool has gone.
            if let Some(to) = agent().filter(|agent| agent.is_on()) {
                // SAFETY: a program that has just given its machine code, which lies there.
                unsafe { keep(to, compiler, program, cubin) };
            }
        });
    }
    code
}

/// Asks for the text of what was given.
///
/// # Safety
/// `program` is one of the compiler's, and `cubin` its machine code.
unsafe fn keep(to: &Agent, compiler: &Compiler, program: *mut c_void, cubin: *mut c_char) {
    let (mut bytes, mut length) = (0usize, 0usize);
    // SAFETY: the caller's promise.
    let said = unsafe {
        let said = (compiler.cubin_size)(program, &mut bytes);
        said.max((compiler.ptx_size)(program, &mut length))
    };
    if said != SUCCESS || length > MOST_BYTES {
        return;
    }
    let mut text = vec![0u8; length];
    // SAFETY: as above, and there is room for as much as it said.
    let said = unsafe { (compiler.get_ptx)(program, text.as_mut_ptr().cast()) };
    // SAFETY: as above.
    let whole = unsafe { image::bytes(cubin.cast()) }.filter(|image| image.len() <= bytes);
    let end = text.iter().position(|byte| *byte == 0);
    text.truncate(end.unwrap_or(length));
    if let (SUCCESS, Some(image), Ok(text)) = (said, whole, String::from_utf8(text)) {
        let known = JitOutput {
            by: "NVRTC",
            text: Ok(text.into()),
            jit: None,
            not_instead: None,
        };
        to.jit_outputs.add(&image, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_compilers() {
        for name in [
            c"/x/libnvrtc.so.13",
            c"libnvrtc.alt.so.13",
            c"/y/libnvrtc-8e7c2a10.so.12",
        ] {
            assert!(is_compiler(name), "{name:?}");
        }
        for name in [
            c"/x/libnvrtc-builtins.so.13.0",
            c"libcuda.so.1",
            c"/libnvrtc/x.so",
            c"",
        ] {
            assert!(!is_compiler(name), "{name:?}");
        }
    }

    #[test]
    fn what_is_no_compiler_is_refused() {
        let of = |path: &CStr| functions(path, 0).unwrap_err().to_string();
        assert_eq!(of(c"libnvrtc-is-not-here.so.1"), "it is gone");
        assert_eq!(of(c"libc.so.6"), "it has no `nvrtcGetCUBIN`");
    }
}
