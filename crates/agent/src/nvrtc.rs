//! Machine code that NVRTC makes in this process. The compiler has the PTX that it was assembled from as well, and gives it to whoever asks: so it is asked
//! when the application takes the machine code, and the text stands for just those bytes when they are loaded.
//!
//! The library comes when the application first compiles something, and nobody tells us. So it is looked for where the application calls the driver for memory,
//! for contexts and for images, and now and then by our own thread; a look is a number compared. What is compiled before that has no PTX, which the report says.

use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSymbol as _, ReadCache};
use warpbpf_wire::NoteLevel;

use crate::agent::{Agent, Mode};
use crate::exports::agent;
use crate::hook::{Target, stage};
use crate::image;
use crate::lock::lock;

/// `NVRTC_SUCCESS`
const SUCCESS: c_int = 0;
/// Compilers that one process may have: frameworks bring their own ones.
const MOST_COMPILERS: usize = 4;
/// Bytes of text that are kept; the oldest go.
const MOST_BYTES: usize = 64 << 20;

/// `nvrtcGetCUBIN(prog, cubin)` and `nvrtcGetPTX(prog, ptx)`
type Get = unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int;
/// `nvrtcGetCUBINSize(prog, size)` and `nvrtcGetPTXSize(prog, size)`
type Size = unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int;

/// Functions of a library.
#[derive(Debug, Clone, Copy)]
struct Compiler {
    get_cubin: Get,
    cubin_size: Size,
    get_ptx: Get,
    ptx_size: Size,
}

static COMPILERS: [OnceLock<Compiler>; MOST_COMPILERS] =
    [const { OnceLock::new() }; MOST_COMPILERS];

/// A compiler in memory: its file, and what its addresses are counted from.
type Place = (Vec<u8>, usize);

/// Those that were looked at.
static KNOWN: Mutex<Vec<Place>> = Mutex::new(Vec::new());

/// Looks for compilers that have come, if a library has.
pub(crate) fn look(to: &'static Agent) {
    static LIBRARIES: AtomicU64 = AtomicU64::new(0);
    let libraries = count_libraries();
    if LIBRARIES.load(Ordering::Acquire) == libraries || matches!(to.mode(), Mode::PassThrough) {
        return;
    }
    // Others wait: the next thing that they do may be to compile.
    let mut known = lock(&KNOWN);
    for place in compilers() {
        if known.contains(&place) {
            continue;
        }
        if let Err(reason) = hook(&place) {
            let file = String::from_utf8_lossy(&place.0).into_owned();
            to.note(
                NoteLevel::Warning,
                format!(
                    "kernels that `{file}` compiles to machine code run without probes: {reason}"
                ),
            );
        }
        known.push(place);
    }
    LIBRARIES.store(libraries, Ordering::Release);
}

/// Libraries that were loaded so far, those that are gone among them.
fn count_libraries() -> u64 {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _: usize,
        count: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker gives a valid info; `count` is the number below.
        unsafe { *count.cast::<u64>() = (*info).dlpi_adds };
        // One says it for all.
        1
    }
    let mut count = 0u64;
    // SAFETY: the callback gets the number, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), std::ptr::from_mut(&mut count).cast()) };
    count
}

/// Those that are loaded now.
fn compilers() -> Vec<Place> {
    unsafe extern "C" fn collect(
        info: *mut libc::dl_phdr_info,
        _: usize,
        all: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker gives a valid info; `all` is the vector below.
        unsafe {
            let name = (*info).dlpi_name;
            if !name.is_null() && is_compiler(CStr::from_ptr(name)) {
                let place = (
                    CStr::from_ptr(name).to_bytes().to_vec(),
                    (*info).dlpi_addr as usize,
                );
                (*all.cast::<Vec<Place>>()).push(place);
            }
        }
        0
    }
    let mut all: Vec<Place> = Vec::new();
    // SAFETY: the callback gets the vector, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), std::ptr::from_mut(&mut all).cast()) };
    all
}

/// Packages rename it: `libnvrtc.so.13`, `libnvrtc.alt.so.13`, `libnvrtc-1a2b3c4d.so.12`.
fn is_compiler(path: &CStr) -> bool {
    let bytes = path.to_bytes();
    let name = bytes.rsplit(|b| *b == b'/').next().unwrap_or(bytes);
    name.starts_with(b"libnvrtc") && !name.starts_with(b"libnvrtc-builtins")
}

/// Stands in front of a compiler's `nvrtcGetCUBIN`.
fn hook((path, base): &Place) -> Result<(), String> {
    let Some(free) = COMPILERS.iter().position(|one| one.get().is_none()) else {
        return Err(format!(
            "this process has {MOST_COMPILERS} of its kind already"
        ));
    };
    let names = [
        "nvrtcGetCUBIN",
        "nvrtcGetCUBINSize",
        "nvrtcGetPTX",
        "nvrtcGetPTXSize",
    ];
    let file = File::open(OsStr::from_bytes(path)).map_err(|error| error.to_string())?;
    let [cubin, cubin_size, ptx, ptx_size] = functions(file, *base, names)?;
    let target = Target {
        address: cubin.0,
        // SAFETY: a function of a library that is loaded, as long as its symbol says.
        code: unsafe { std::slice::from_raw_parts(cubin.0 as *const u8, cubin.1) }.to_vec(),
        replacement: REPLACEMENTS[free] as usize,
        may_throw: false,
    };
    let staged = stage(&[target]);
    let original = staged.originals.first().cloned();
    let original = original.ok_or("there is no trampoline")?;
    let original = original.map_err(|error| error.to_string())?;
    // SAFETY: functions of NVRTC, whose signatures these are, the first by its trampoline.
    let compiler = unsafe {
        Compiler {
            get_cubin: std::mem::transmute::<usize, Get>(original),
            cubin_size: std::mem::transmute::<usize, Size>(cubin_size.0),
            get_ptx: std::mem::transmute::<usize, Get>(ptx.0),
            ptx_size: std::mem::transmute::<usize, Size>(ptx_size.0),
        }
    };
    // Only who has `KNOWN` does that.
    let _ = COMPILERS[free].set(compiler);
    // SAFETY: the replacement has the function's signature. The library has come since the last look: that no thread is in the function's first
    // instructions now is what is assumed of functions with programs, too (docs/attach.md).
    let done = unsafe { staged.commit() };
    done.into_iter()
        .try_for_each(|one| one.map(|_| ()))
        .map_err(|error| error.to_string())
}

/// Addresses and sizes of functions that a library exports.
fn functions<const N: usize>(
    file: File,
    base: usize,
    names: [&str; N],
) -> Result<[(usize, usize); N], String> {
    let cache = ReadCache::new(file);
    let elf: ElfFile64<'_, object::Endianness, _> =
        ElfFile64::parse(&cache).map_err(|error| error.to_string())?;
    let mut found = [(0, 0); N];
    for symbol in elf
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
    {
        let name = symbol.name().unwrap_or_default();
        if let Some(at) = names.iter().position(|wanted| *wanted == name) {
            found[at] = (
                base.wrapping_add(symbol.address() as usize),
                symbol.size() as usize,
            );
        }
    }
    match names.iter().zip(&found).find(|(_, (_, size))| *size == 0) {
        Some((name, _)) => Err(format!("it has no `{name}`")),
        None => Ok(found),
    }
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
    let Some(compiler) = COMPILERS[N].get() else {
        // There is no way here before it is set.
        return -1;
    };
    // SAFETY: the application's own arguments.
    let code = unsafe { (compiler.get_cubin)(program, cubin) };
    let wanted = || agent().is_some_and(|agent| !matches!(agent.mode(), Mode::PassThrough));
    if code == SUCCESS && !cubin.is_null() {
        // Whatever goes wrong with us is no affair of the application's.
        let caught = std::panic::catch_unwind(|| {
            if wanted() {
                // SAFETY: a program that has just given its machine code, which lies there.
                unsafe { keep(compiler, program, cubin) };
            }
        });
        if let Err(payload) = caught {
            std::mem::forget(payload);
        }
    }
    code
}

/// Asks for the text of what was given.
///
/// # Safety
/// `program` is one of the compiler's, and `cubin` its machine code.
unsafe fn keep(compiler: &Compiler, program: *mut c_void, cubin: *mut c_char) {
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
        lock(&MADE).get_or_insert_default().add(image, text);
    }
}

/// Texts by the machine code that was made of them.
#[derive(Debug, Default)]
struct Made {
    texts: HashMap<(u64, usize), Arc<str>>,
    /// In the order in which they came.
    order: VecDeque<(u64, usize)>,
    bytes: usize,
}

static MADE: Mutex<Option<Made>> = Mutex::new(None);

impl Made {
    fn add(&mut self, image: &[u8], text: String) {
        let key = key(image);
        self.bytes += text.len();
        match self.texts.insert(key, text.into()) {
            Some(old) => self.bytes -= old.len(),
            None => self.order.push_back(key),
        }
        while self.bytes > MOST_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self.texts.remove(&oldest).map_or(0, |text| text.len());
        }
    }
}

/// What tells images apart. That the text has the kernels of the image is looked at besides.
fn key(image: &[u8]) -> (u64, usize) {
    let mut hasher = DefaultHasher::new();
    image.hash(&mut hasher);
    (hasher.finish(), image.len())
}

/// What an image was assembled from, if a compiler of this process has made it.
pub(crate) fn text_of(image: &[u8]) -> Option<Arc<str>> {
    let made = lock(&MADE);
    let texts = &made.as_ref().filter(|made| !made.texts.is_empty())?.texts;
    texts.get(&key(image)).cloned()
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
    fn a_text_belongs_to_its_bytes_and_the_oldest_go() {
        let mut made = Made::default();
        made.add(b"first", "a".repeat(10));
        made.add(b"first", "b".repeat(20));
        assert_eq!((made.bytes, made.order.len()), (20, 1));
        assert_eq!(made.texts[&key(b"first")].as_ref(), "b".repeat(20));
        assert!(!made.texts.contains_key(&key(b"firsu")));
        made.add(b"second", "c".repeat(MOST_BYTES - 10));
        assert!(!made.texts.contains_key(&key(b"first")));
        assert_eq!((made.bytes, made.order.len()), (MOST_BYTES - 10, 1));
    }

    #[test]
    fn functions_are_found_by_what_a_file_exports() {
        let getppid = libc::getppid as *const () as usize;
        // SAFETY: zeroes are a valid Dl_info.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: an address of libc and a local.
        let known = unsafe { libc::dladdr(getppid as *const c_void, &mut info) };
        assert_ne!(known, 0);
        // SAFETY: the linker's own name of the file.
        let path = unsafe { CStr::from_ptr(info.dli_fname) };
        let open = || File::open(OsStr::from_bytes(path.to_bytes())).unwrap();
        let base = info.dli_fbase as usize;
        let found = functions(open(), base, ["getppid"]).unwrap();
        assert_eq!(found[0].0, getppid);
        let missing = functions(open(), base, ["getppid", "nvrtcGetCUBIN"]);
        assert_eq!(missing.unwrap_err(), "it has no `nvrtcGetCUBIN`");
        assert!(count_libraries() > 1);
        assert!(compilers().is_empty());
    }
}
