//! From what a section names to what Linux is asked for: numbers of tracepoints, offsets of
//! functions in files.

use std::path::{Path, PathBuf};

use object::LittleEndian as LE;
use object::elf::{FileHeader64, PT_LOAD, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC};
use object::read::elf::{FileHeader as _, ProgramHeader as _, Sym as _};

use crate::error::PlaceError;

/// Where tracefs is mounted, if it is.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Folders in which tracepoints are looked up.
#[derive(Debug, Clone)]
pub struct Tracefs(Vec<PathBuf>);

impl Default for Tracefs {
    fn default() -> Tracefs {
        Tracefs(TRACEFS.iter().map(PathBuf::from).collect())
    }
}

impl Tracefs {
    /// The number of a tracepoint.
    ///
    /// # Errors
    /// There is none of these names, or it is not shown.
    pub fn number(&self, category: &str, name: &str) -> Result<u64, PlaceError> {
        let events = |root: &PathBuf| root.join("events");
        let seen = self.0.iter().map(events).find(|folder| folder.is_dir());
        let folder = seen.ok_or(PlaceError::NoTracefs)?;
        let file = folder.join(category).join(name).join("id");
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(PlaceError::NoTracepoint {
                    category: category.to_owned(),
                    name: name.to_owned(),
                    folder,
                });
            }
            Err(source) => return Err(PlaceError::Unread { file, source }),
        };
        let number = text.trim().parse();
        number.map_err(|_| PlaceError::NoNumber { file })
    }
}

/// Where in a file a function of it begins.
///
/// # Errors
/// The file cannot be read, is no ELF file, or has no such function.
pub fn offset(file: &Path, function: &str) -> Result<u64, PlaceError> {
    let bytes = std::fs::read(file).map_err(|source| PlaceError::Unread {
        file: file.to_owned(),
        source,
    })?;
    let found = find(&bytes, function).map_err(|source| PlaceError::NoElf {
        file: file.to_owned(),
        source,
    })?;
    found.ok_or_else(|| PlaceError::NoSymbol {
        file: file.to_owned(),
        function: function.to_owned(),
    })
}

fn find(bytes: &[u8], function: &str) -> Result<Option<u64>, object::Error> {
    let header = FileHeader64::<LE>::parse(bytes)?;
    let sections = header.sections(LE, bytes)?;
    let segments = header.program_headers(LE, bytes)?;
    for table in [SHT_SYMTAB, SHT_DYNSYM] {
        let symbols = sections.symbols(LE, bytes, table)?;
        for symbol in symbols.iter() {
            let is_it = symbol.st_type() == STT_FUNC
                && !symbol.is_undefined(LE)
                && symbols.symbol_name(LE, symbol)? == function.as_bytes();
            if !is_it {
                continue;
            }
            let address = symbol.st_value(LE);
            let segment = segments.iter().find(|segment| {
                let inside = address.checked_sub(segment.p_vaddr(LE));
                segment.p_type(LE) == PT_LOAD
                    && inside.is_some_and(|inside| inside < segment.p_filesz(LE))
            });
            if let Some(segment) = segment {
                return Ok(Some(address - segment.p_vaddr(LE) + segment.p_offset(LE)));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_found_is_said() {
        let nowhere = Tracefs(vec!["/nowhere".into()]);
        let error = nowhere
            .number("syscalls", "sys_enter_ioctl")
            .unwrap_err()
            .to_string();
        assert!(error.contains("mount tracefs"), "{error}");
        let own = std::env::current_exe().unwrap();
        let error = offset(&own, "no such function").unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "`{}` has no symbol of a function `no such function`",
                own.display()
            )
        );
        let error = offset(Path::new("/nowhere"), "f").unwrap_err().to_string();
        assert!(
            error.starts_with("`/nowhere` cannot be read: No such file"),
            "{error}"
        );
        let error = offset(Path::new("/proc/self/cmdline"), "f")
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("`/proc/self/cmdline` is no ELF file: "),
            "{error}"
        );
    }

    #[unsafe(no_mangle)]
    extern "C" fn warpbpf_a_function_of_the_test(x: u64) -> u64 {
        std::hint::black_box(x) ^ 0x5eed_5eed_5eed_5eed
    }

    #[test]
    fn a_function_is_where_its_code_is_in_the_file() {
        let own = std::env::current_exe().unwrap();
        let at = offset(&own, "warpbpf_a_function_of_the_test").unwrap() as usize;
        let file = std::fs::read(&own).unwrap();
        let address = warpbpf_a_function_of_the_test as *const u8;
        // SAFETY: the first bytes of a function that is longer than that.
        let code = unsafe { std::slice::from_raw_parts(address, 8) };
        assert_eq!(&file[at..at + 8], code);
    }

    #[test]
    fn a_tracepoint_has_the_number_that_its_file_says() {
        let root = std::env::temp_dir().join(format!("warpbpf-tracefs-{}", std::process::id()));
        let folder = root.join("events/cat/there");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("id"), "417\n").unwrap();
        let tracefs = Tracefs(vec!["/nowhere".into(), root.clone()]);
        let answers = [
            tracefs.number("cat", "there"),
            tracefs.number("cat", "gone"),
        ];
        std::fs::remove_dir_all(&root).unwrap();
        let events = root.join("events").display().to_string();
        let gone =
            format!("Linux has no tracepoint `cat/gone`; `{events}` has those that there are");
        let answers = answers.map(|answer| answer.map_err(|error| error.to_string()));
        assert_eq!(answers, [Ok(417), Err(gone)]);
    }
}
