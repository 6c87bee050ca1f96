//! `warpbpf new`: a folder to begin a program in, with what is needed to compile it.

use std::path::Path;

use crate::flags::NewFlags;
use crate::term::error::CliError;
use crate::term::output::say;

const PROGRAM: &str = include_str!("../skeleton/skeleton.bpf.c");
const MAKEFILE: &str = include_str!("../skeleton/Makefile");
/// The headers of programs.
const HEADERS: [(&str, &str); 2] = [
    ("warpbpf.h", include_str!("../../../../include/warpbpf.h")),
    (
        "warpbpf_cuda.h",
        include_str!("../../../../include/warpbpf_cuda.h"),
    ),
];

/// Makes the folder, and says how it goes on.
///
/// # Errors
/// The folder is there already, has no name that a program can have, or cannot be written.
pub fn run(flags: &NewFlags) -> Result<u8, CliError> {
    let folder = &flags.folder;
    let name = folder.file_name().and_then(|name| name.to_str());
    let is_word = |name: &&str| {
        let mut signs = name.chars();
        signs.next().is_some_and(|c| c.is_ascii_alphanumeric())
            && signs.all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    };
    let name = name.filter(is_word).ok_or_else(|| {
        CliError::Other(format!(
            "`{}` cannot name a program: use letters, digits, `-` and `_`",
            folder.display()
        ))
    })?;
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => CliError::Other(format!(
            "`{}` is there already, and stays as it is: choose another name",
            folder.display()
        )),
        _ => CliError::Write {
            path: folder.display().to_string(),
            source: error,
        },
    };
    if let Some(parent) = folder.parent().filter(|p| *p != Path::new("")) {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    std::fs::create_dir(folder).map_err(failed)?;
    std::fs::create_dir(folder.join("include")).map_err(failed)?;
    let program = format!("{name}.bpf.c");
    let mut files = vec![
        (program.clone(), PROGRAM),
        ("Makefile".to_owned(), MAKEFILE),
    ];
    files.extend(HEADERS.map(|(name, text)| (format!("include/{name}"), text)));
    for (name, text) in files {
        std::fs::write(folder.join(name), text).map_err(failed)?;
    }
    let shown = folder.display();
    say(&format!(
        "made `{shown}/{program}`; compile and run it:\n  make -C {shown}\n  warpbpf run {shown}/{name}.bpf.o -- ./your-application\n",
    ));
    Ok(0)
}
