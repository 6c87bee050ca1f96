//! The images in a file, as nobody has loaded it yet: an executable's sections hold its fatbins one
//! behind the other.

use object::elf::Machine;
use object::read::elf::{ElfFile64, FileHeader as _};
use object::{Endianness, Object as _, ObjectSection as _};
use warpbpf_fatbin::{FATBIN_HEADER_BYTES, FATBIN_MAGIC, ImageKind, fatbin_len, sniff};

/// Sections in which `nvcc` puts fatbins: of whole programs, and of code that the device linker
/// still has to link.
const SECTIONS: &[&str] = &[".nv_fatbin", "__nv_relfatbin"];
/// `e_machine` of machine code for GPUs.
const EM_CUDA: Machine = Machine(190);
/// A fatbin begins at a multiple of this.
const ALIGN: usize = 8;

/// Why a file has no images.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum FileError {
    #[error("it is neither PTX, nor a fatbin, nor a cubin, nor an ELF file")]
    Unknown,
    #[error("its ELF cannot be read: {reason}")]
    Elf { reason: String },
    #[error(
        "it holds no CUDA code: no section {}; code that a program loads from elsewhere is seen by `warpbpf kernels -- APP`",
        SECTIONS.iter().map(|s| format!("`{s}`")).collect::<Vec<_>>().join(" or ")
    )]
    NoCode,
}

/// The images in a file: itself if it is one, else those in its sections. Each can be given to
/// [`crate::inspect`].
///
/// # Errors
/// [`FileError`] if there are none.
pub fn images(file: &[u8]) -> Result<Vec<&[u8]>, FileError> {
    match sniff(file) {
        ImageKind::PtxText | ImageKind::Fatbin => return Ok(vec![file]),
        ImageKind::Cubin => {}
        ImageKind::FatbinWrapper | ImageKind::Unknown => return Err(FileError::Unknown),
    }
    let elf = |error: object::Error| FileError::Elf {
        reason: error.to_string(),
    };
    let parsed = ElfFile64::<Endianness>::parse(file).map_err(elf)?;
    if parsed.elf_header().e_machine(parsed.endian()) == EM_CUDA {
        return Ok(vec![file]);
    }
    let mut found = Vec::new();
    for section in parsed.sections() {
        if section.name().is_ok_and(|name| SECTIONS.contains(&name)) {
            found.extend(fatbins(section.data().map_err(elf)?));
        }
    }
    if found.is_empty() {
        return Err(FileError::NoCode);
    }
    Ok(found)
}

/// The fatbins of a section. What stands between them is padding.
fn fatbins(section: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = section
        .get(at..)
        .filter(|rest| rest.len() >= FATBIN_HEADER_BYTES)
    {
        let fatbin = rest
            .starts_with(&FATBIN_MAGIC.to_le_bytes())
            .then(|| fatbin_len(rest).ok())
            .flatten()
            .and_then(|length| rest.get(..length));
        match fatbin {
            Some(fatbin) => {
                found.push(fatbin);
                at += fatbin.len().next_multiple_of(ALIGN);
            }
            None => at += ALIGN,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fatbin(payload: usize) -> Vec<u8> {
        let mut bytes = FATBIN_MAGIC.to_le_bytes().to_vec();
        bytes.extend([1, 0, 16, 0]);
        bytes.extend((payload as u64).to_le_bytes());
        bytes.resize(16 + payload, 7);
        bytes
    }

    #[test]
    fn fatbins_stand_one_behind_the_other() {
        let (one, two) = (fatbin(24), fatbin(4));
        let mut section = vec![0; 8];
        section.extend(&one);
        section.extend([0; 16]);
        section.extend(&two);
        section.resize(section.len().next_multiple_of(8), 0);
        section.extend(&one);
        assert_eq!(fatbins(&section), [&one[..], &two, &one]);
        // One that is cut off is none.
        assert_eq!(fatbins(&section[..section.len() - 1]), [&one[..], &two]);
        assert_eq!(fatbins(&[]), Vec::<&[u8]>::new());
    }

    #[test]
    fn files_without_code_say_so() {
        let message = |file: &[u8]| images(file).unwrap_err().to_string();
        assert_eq!(
            message(b"hello"),
            "it is neither PTX, nor a fatbin, nor a cubin, nor an ELF file"
        );
        assert_eq!(
            message(b"\x7fELF"),
            "its ELF cannot be read: Invalid ELF header size or alignment"
        );
        let ourselves = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(
            message(&ourselves),
            "it holds no CUDA code: no section `.nv_fatbin` or `__nv_relfatbin`; code that a program loads from elsewhere is seen by `warpbpf kernels -- APP`"
        );
        let ptx = b"//\n.version 8.0\n.target sm_90\n";
        assert_eq!(images(ptx).unwrap(), [&ptx[..]]);
        let whole = fatbin(8);
        assert_eq!(images(&whole).unwrap(), [&whole[..]]);
    }
}
