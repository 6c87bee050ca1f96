//! A folder in which one can type what the documents show: the applications by their names, the
//! objects, and the headers.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::artifacts::Artifacts;
use crate::shell::{Failure, root};

/// How names of applications end that use the shared runtime, which the soft GPU needs.
const SHARED: &str = "-shared";

/// Makes the folder beside what was built, and says how it is used.
///
/// # Errors
/// A link cannot be made.
pub fn make(artifacts: &Artifacts) -> Result<(), Failure> {
    let built = parent(&artifacts.warpbpf);
    let folder = built.join("try");
    let failed = |e: std::io::Error| Failure(format!("`{}`: {e}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(failed)?;
    // On a GPU the static runtime, as its machine may have no other.
    let has_gpu = Path::new("/dev/nvidiactl").exists();
    for app in std::fs::read_dir(&artifacts.apps).map_err(failed)? {
        let app = app.map_err(failed)?.path();
        let name = app.file_name().unwrap_or_default().to_string_lossy();
        let wanted = match name.strip_suffix(SHARED) {
            Some(name) if !has_gpu => Some(name.to_owned()),
            None if has_gpu => Some(name.into_owned()),
            _ => None,
        };
        if let Some(name) = wanted {
            file(&app, &folder.join(name)).map_err(failed)?;
        }
    }
    for example in std::fs::read_dir(root().join("examples")).map_err(failed)? {
        let example = example.map_err(failed)?.path();
        for source in std::fs::read_dir(&example).into_iter().flatten().flatten() {
            if source.path().extension().is_some_and(|end| end == "c") {
                link(&source.path(), &folder.join(source.file_name())).map_err(failed)?;
            }
        }
    }
    link(&artifacts.objects, &folder.join("objects")).map_err(failed)?;
    link(&root().join("include"), &folder.join("include")).map_err(failed)?;
    say!("\nto type what the documents show:");
    say!("  export PATH=\"{}:$PATH\"", built.display());
    say!("  cd \"{}\"", folder.display());
    Ok(())
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).to_owned()
}

/// A name of its own, as a report calls an application by its file.
fn file(from: &Path, to: &Path) -> std::io::Result<()> {
    free(to)?;
    std::fs::hard_link(from, to)
}

fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    free(to)?;
    symlink(from, to)
}

fn free(place: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
