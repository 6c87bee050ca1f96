//! What Triton keeps on disk of the kernels that it made: for each a folder, named by a hash of its
//! source and of everything else that it was made from, with the machine code and the PTX in files
//! that are called as the kernel is.
//!
//! The PTX belongs to the machine code beside it. Whoever has the machine code finds it by its
//! bytes, which is sure; whoever knows only a kernel's name may find several.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};
use warpbpf_cache::is_trusted;
use warpbpf_descriptor::{OwnDescriptor, open_folder};
use warpbpf_session::{ImageInfo, Session, inspect_compiled};

use crate::sources::jit_outputs::JitOutput;
use crate::sys::lock::lock;

/// Bytes of a file's name that Triton takes of a kernel's.
const NAME: usize = 150;
const CUBIN: &str = "cubin";
/// Variables that say who somebody is, in Python's order.
const USER: [&str; 4] = ["LOGNAME", "USER", "LNAME", "USERNAME"];
/// Larger files are none of Triton's.
const LARGEST: u64 = 64 << 20;

/// Machine code in a file, and the PTX that it was made from.
pub(crate) struct Artefact {
    pub(crate) path: PathBuf,
    pub(crate) cubin: Vec<u8>,
    pub(crate) known: JitOutput,
}

/// An image with the PTX that Triton keeps beside just this machine code, where it holds none and
/// programs want its kernel.
pub(crate) fn with_text(
    bytes: &[u8],
    info: ImageInfo,
    capability: (u32, u32),
    session: &Session,
) -> ImageInfo {
    // Triton makes a file of each kernel.
    let [kernel] = info.kernels.as_slice() else {
        return info;
    };
    let wanted = !session.matching(&kernel.mangled).is_empty();
    if info.ptx.is_some() || !wanted || !bytes.starts_with(b"\x7fELF") {
        return info;
    }
    let folders = folders(&|name| std::env::var_os(name));
    let kept = of_code(&folders, &kernel.mangled, bytes);
    let read = kept.and_then(|kept| {
        inspect_compiled(bytes, capability, Some(kept.known.compiled_from())).ok()
    });
    read.unwrap_or(info)
}

/// Where Triton has its folders, by the variables of a process; and `torch.compile`, which has it
/// keep them elsewhere.
pub(crate) fn folders(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let path = |name: &str| variable(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let mut all = BTreeSet::new();
    let home = path("TRITON_HOME").or_else(|| path("HOME"));
    all.extend(path("TRITON_CACHE_DIR").or_else(|| Some(home?.join(".triton/cache"))));
    let inductor = path("TORCHINDUCTOR_CACHE_DIR").or_else(|| {
        let user = USER
            .iter()
            .find_map(|name| variable(name).filter(|user| !user.is_empty()))?;
        let mut name = OsString::from("torchinductor_");
        name.push(user);
        Some(std::env::temp_dir().join(name))
    });
    // A folder for each device.
    let devices = inductor.map(|folder| inside(&folder.join("triton")));
    all.extend(devices.into_iter().flatten());
    all.into_iter().collect()
}

/// Folders in a folder. Its name in the folder for temporary files is known beforehand, so it may
/// be somebody else's, who may have put there as many as he likes.
fn inside(folder: &Path) -> Vec<PathBuf> {
    let parent = folder.parent().unwrap_or(folder);
    let (Some(_), Some(there)) = (trusted_folder(parent), trusted_folder(folder)) else {
        return Vec::new();
    };
    names(&there).iter().map(|name| folder.join(name)).collect()
}

fn names(folder: &OwnDescriptor) -> Vec<OsString> {
    folder.names().unwrap_or_default()
}

/// The folder, if nobody else can have put anything there.
fn trusted_folder(folder: &Path) -> Option<OwnDescriptor> {
    let folder = open_folder(folder).ok()?;
    is_trusted(folder.get()?).then_some(folder)
}

/// What is in a folder by this name.
fn open_in(folder: &OwnDescriptor, name: &OsStr, flags: OFlags) -> Option<OwnDescriptor> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = openat(folder.get()?, name, flags, Mode::empty()).ok()?;
    Some(OwnDescriptor::new(fd))
}

/// What is kept of kernels of this name.
pub(crate) fn of_kernel(folders: &[PathBuf], kernel: &str) -> impl Iterator<Item = Artefact> {
    files(folders, kernel).filter_map(|path| {
        let cubin = read(&path, None)?;
        artefact(path, cubin)
    })
}

/// What is kept of just this machine code, which holds a kernel of this name.
fn of_code(folders: &[PathBuf], kernel: &str, cubin: &[u8]) -> Option<Artefact> {
    let length = cubin.len() as u64;
    let mut all = files(folders, kernel);
    all.find_map(|path| {
        let there = read(&path, Some(length)).filter(|there| there == cubin)?;
        artefact(path, there)
    })
}

fn artefact(path: PathBuf, cubin: Vec<u8>) -> Option<Artefact> {
    let text = String::from_utf8(read(&path.with_extension("ptx"), None)?).ok()?;
    let known = JitOutput {
        by: "Triton's cache",
        text: Ok(Arc::from(text)),
        jit: None,
        not_instead: None,
    };
    Some(Artefact { path, cubin, known })
}

fn files(folders: &[PathBuf], kernel: &str) -> impl Iterator<Item = PathBuf> {
    static INDEX: Mutex<Index> = Mutex::new(BTreeMap::new());
    let name = kernel.get(..NAME).unwrap_or(kernel);
    let file = OsString::from(format!("{name}.{CUBIN}"));
    let mut index = lock(&INDEX);
    let mut all = Vec::new();
    for folder in folders {
        let known = index.entry(folder.clone()).or_default();
        known.update(folder);
        let holders = known.holders.get(&file).into_iter().flatten();
        all.extend(holders.map(|holder| folder.join(holder).join(&file)));
    }
    all.into_iter()
}

/// When a folder was last changed: seconds and nanoseconds.
type Changed = (i64, i64);

fn changed(folder: &OwnDescriptor, name: &OsStr) -> Option<Changed> {
    let there = statat(folder.get()?, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some((there.st_mtime, there.st_mtime_nsec as i64))
}

type Index = BTreeMap<PathBuf, Kept>;

/// What is in one of Triton's folders. Each of those in it is looked into once, and again when it
/// has changed if it held nothing then.
#[derive(Default)]
struct Kept {
    /// Names of files, and the folders that hold one.
    holders: HashMap<OsString, Vec<OsString>>,
    /// Folders that were looked into, and of those that held nothing when they had been changed.
    seen: HashMap<OsString, Option<Changed>>,
}

impl Kept {
    fn update(&mut self, folder: &Path) {
        let Some(folder) = trusted_folder(folder) else {
            return;
        };
        for name in names(&folder) {
            let before = self.seen.get(&name).copied();
            if before == Some(None) {
                continue;
            }
            let changed = changed(&folder, &name);
            if changed.is_none() || before == Some(changed) {
                continue;
            }
            let files = open_in(&folder, &name, OFlags::DIRECTORY);
            let files = files.map_or_else(Vec::new, |files| names(&files));
            let cubins = files
                .into_iter()
                .filter(|file| Path::new(file).extension() == Some(CUBIN.as_ref()));
            let mut empty = true;
            for file in cubins {
                empty = false;
                self.holders.entry(file).or_default().push(name.clone());
            }
            self.seen.insert(name, changed.filter(|_| empty));
        }
    }
}

/// A file, if it has so many bytes. What is in it runs in the application, so nobody else may have
/// put it there.
fn read(path: &Path, length: Option<u64>) -> Option<Vec<u8>> {
    warpbpf_faults::check("agent/artefact", || ()).ok()?;
    let folder = trusted_folder(path.parent()?)?;
    // What is looked at is what is read, whatever has its name by then. One that lets its reader
    // wait is no file.
    let file = open_in(&folder, path.file_name()?, OFlags::NONBLOCK)?;
    let there = file.stat().ok()?;
    let is_file = FileType::from_raw_mode(there.st_mode) == FileType::RegularFile;
    let bytes = u64::try_from(there.st_size).ok()?;
    let fits = length.is_none_or(|length| length == bytes);
    if !is_trusted(file.get()?) || !is_file || !fits || bytes > LARGEST {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let name = format!("warpbpf-artefacts-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            Scratch(folder)
        }

        fn put(&self, path: &str, bytes: &[u8]) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn found(set: &[(&str, &str)]) -> Vec<PathBuf> {
        folders(&|name: &str| {
            let found = set.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn folders_are_where_the_variables_say() {
        let none = found(&[]);
        assert_eq!(none, [] as [PathBuf; 0]);
        for (set, folder) in [
            (&[("HOME", "/h")][..], "/h/.triton/cache"),
            (&[("HOME", "/h"), ("TRITON_HOME", "/t")], "/t/.triton/cache"),
            (&[("HOME", "/h"), ("TRITON_CACHE_DIR", "/c")], "/c"),
            (
                &[("HOME", "/h"), ("TRITON_CACHE_DIR", "")],
                "/h/.triton/cache",
            ),
        ] {
            assert_eq!(found(set), [PathBuf::from(folder)]);
        }
        let scratch = Scratch::new("folders");
        scratch.put("triton/0/hash/k.cubin", b"");
        let inductor = scratch.0.to_str().unwrap();
        let all = found(&[("TORCHINDUCTOR_CACHE_DIR", inductor), ("HOME", "/h")]);
        let expected = [
            PathBuf::from("/h/.triton/cache"),
            scratch.0.join("triton/0"),
        ];
        assert_eq!(all.len(), 2);
        assert!(
            expected.iter().all(|folder| all.contains(folder)),
            "{all:?}"
        );
        // Where others may write they may have put what they like.
        for folder in ["triton", ""] {
            let folder = scratch.0.join(folder);
            let set =
                |mode| std::fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            set(0o777);
            let all = found(&[("TORCHINDUCTOR_CACHE_DIR", inductor), ("HOME", "/h")]);
            assert_eq!(all, [PathBuf::from("/h/.triton/cache")]);
            set(0o755);
        }
    }

    #[test]
    fn machine_code_is_found_by_its_bytes_and_kernels_by_their_names() {
        let scratch = Scratch::new("files");
        let long = "n".repeat(200);
        for (hash, kernel, cubin) in [
            ("a", "add", "one"),
            ("b", "add", "two"),
            ("c", "mul", "one"),
        ] {
            scratch.put(&format!("{hash}/{kernel}.cubin"), cubin.as_bytes());
            let text = format!("{kernel} of {hash}");
            scratch.put(&format!("{hash}/{kernel}.ptx"), text.as_bytes());
        }
        scratch.put(&format!("d/{}.cubin", &long[..NAME]), b"one");
        scratch.put(&format!("d/{}.ptx", &long[..NAME]), b"long");
        // Without its text, and with one that is none.
        scratch.put("e/add.cubin", b"three");
        scratch.put("f/add.cubin", b"four");
        scratch.put("f/add.ptx", &[0xff]);
        let folders = [scratch.0.join("nothing"), scratch.0.clone()];
        let of = |kernel: &str, cubin: &str| {
            let found = of_code(&folders, kernel, cubin.as_bytes());
            found.map(|artefact| artefact.known.text.unwrap().to_string())
        };
        assert_eq!(of("add", "two").as_deref(), Some("add of b"));
        assert_eq!(of("mul", "one").as_deref(), Some("mul of c"));
        assert_eq!(of(&long, "one").as_deref(), Some("long"));
        for (kernel, cubin) in [
            ("add", "tw"),
            ("add", "six"),
            ("mul", "two"),
            ("sub", "one"),
            ("add", "three"),
            ("add", "four"),
            ("", "one"),
            ("../a/add", "one"),
        ] {
            assert_eq!(of(kernel, cubin), None, "{kernel} {cubin}");
        }
        // What comes later, to a folder that was empty, is found; what others may write to is not
        // taken.
        std::fs::create_dir(scratch.0.join("g")).unwrap();
        assert_eq!(of("later", "five"), None);
        scratch.put("g/later.ptx", b"later of g");
        scratch.put("g/later.cubin", b"five");
        assert_eq!(of("later", "five").as_deref(), Some("later of g"));
        for (path, mode, back) in [("g", 0o777, 0o755), ("g/later.ptx", 0o666, 0o644)] {
            let path = scratch.0.join(path);
            let set = |mode| std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            set(mode);
            assert_eq!(of("later", "five"), None);
            set(back);
            assert!(of("later", "five").is_some());
        }
        let mut named: Vec<(PathBuf, Vec<u8>)> = of_kernel(&folders, "add")
            .map(|artefact| (artefact.path, artefact.cubin))
            .collect();
        named.sort();
        let expected = [("a", "one"), ("b", "two")].map(|(hash, cubin)| {
            let path = scratch.0.join(format!("{hash}/add.cubin"));
            (path, cubin.as_bytes().to_vec())
        });
        assert_eq!(named, expected);
    }
}
