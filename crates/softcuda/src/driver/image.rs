//! From a pointer without a length to PTX text: what a program hands to `cuModuleLoadData` or
//! `cuLibraryLoadData`.

use std::ffi::{CStr, c_void};

use warpbpf_fatbin::{
    CUBIN_HEADER_BYTES, Entry, EntryKind, FATBIN_HEADER_BYTES, FatbinError, FatbinWrapper,
    ImageKind, choose, cubin_len, embedded_ptx, entries, fatbin_len, sniff,
};

use crate::config::newest_ptx_text;
use crate::driver::device::CAPABILITY;
use crate::error::CuError;
use crate::objects::jit_log::Refusal;

/// The newest PTX that a driver of CUDA 13.0 takes.
const NEWEST_PTX: (u32, u32) = (9, 0);

fn refuse<T>(code: CuError, words: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal {
        code,
        words: words.into(),
    })
}

/// The PTX text of the image at `image`.
///
/// # Safety
/// `image` must be null or point to a NUL-terminated PTX text, a fatbin, a fatbin wrapper or a
/// cubin.
pub(crate) unsafe fn text_at(image: *const c_void) -> Result<String, Refusal> {
    if image.is_null() {
        return refuse(CuError::INVALID_VALUE, "the image is a null pointer");
    }
    let start = image.cast::<u8>();
    // A text may be shorter than a magic number: read no further than its NUL.
    let mut magic = Vec::new();
    for at in 0..4 {
        // SAFETY: every image has a first byte, and a further one unless the last was a text's NUL.
        let byte = unsafe { start.add(at).read() };
        magic.push(byte);
        if byte == 0 {
            break;
        }
    }
    match sniff(&magic) {
        ImageKind::FatbinWrapper => {
            // SAFETY: by its magic it is a wrapper, whose data pointer leads to a fatbin.
            let wrapper = unsafe { start.cast::<FatbinWrapper>().read_unaligned() };
            if wrapper.data.is_null() {
                return refuse(CuError::INVALID_IMAGE, "the fatbin wrapper has no data");
            }
            // SAFETY: as above.
            let fatbin = unsafe { fatbin_at(wrapper.data.cast())? };
            // SAFETY: as above; what is listed are fatbins.
            let parts = unsafe { wrapper.parts().into_iter().map(|part| fatbin_at(part)) };
            let parts: Vec<&[u8]> = parts.collect::<Result<_, Refusal>>()?;
            let joined = warpbpf_fatbin::join(fatbin, &parts).map_err(|error| Refusal {
                code: CuError::INVALID_PTX,
                words: error.to_string(),
            })?;
            from_fatbin(joined.as_deref().unwrap_or(fatbin))
        }
        // SAFETY: by its magic it is a fatbin.
        ImageKind::Fatbin => from_fatbin(unsafe { fatbin_at(start)? }),
        ImageKind::Cubin => {
            // SAFETY: an ELF begins with a header of this size.
            let header = unsafe { std::slice::from_raw_parts(start, CUBIN_HEADER_BYTES) };
            match cubin_len(header) {
                // SAFETY: the header says how much belongs to it.
                Some(length) => from_cubin(unsafe { std::slice::from_raw_parts(start, length) }),
                None => from_cubin(header),
            }
        }
        ImageKind::PtxText | ImageKind::Unknown => {
            // SAFETY: neither of the binary kinds: then it is text by the caller's promise.
            let text = unsafe { CStr::from_ptr(start.cast()) };
            from_bytes(text.to_bytes())
        }
    }
}

/// # Safety
/// `start` must point to a whole fatbin.
unsafe fn fatbin_at<'a>(start: *const u8) -> Result<&'a [u8], Refusal> {
    let bad = |error: FatbinError| Refusal {
        code: CuError::INVALID_IMAGE,
        words: error.to_string(),
    };
    // SAFETY: a fatbin begins with a header of this size.
    let header = unsafe { std::slice::from_raw_parts(start, FATBIN_HEADER_BYTES) };
    let length = fatbin_len(header).map_err(bad)?;
    // SAFETY: the header says how much belongs to it.
    Ok(unsafe { std::slice::from_raw_parts(start, length) })
}

/// The PTX text in an image of known length, as from a file.
pub(crate) fn from_bytes(bytes: &[u8]) -> Result<String, Refusal> {
    match sniff(bytes) {
        ImageKind::Fatbin => from_fatbin(bytes),
        ImageKind::PtxText => match str::from_utf8(bytes) {
            Ok(text) => {
                if let Some(newest) = newest_ptx_text()
                    && version(text).is_some_and(|v| v > newest)
                {
                    return refuse(
                        CuError::UNSUPPORTED_PTX_VERSION,
                        format!(
                            "the PTX text is newer than version {}.{} (WARPBPF_SOFT_PTX)",
                            newest.0, newest.1
                        ),
                    );
                }
                checked(text.trim_end_matches('\0'))
            }
            Err(error) => refuse(
                CuError::INVALID_PTX,
                format!("the PTX is not UTF-8: {error}"),
            ),
        },
        ImageKind::Cubin => from_cubin(bytes),
        ImageKind::FatbinWrapper | ImageKind::Unknown => refuse(
            CuError::INVALID_IMAGE,
            "the image is neither PTX, nor a fatbin, nor a cubin",
        ),
    }
}

/// Machine code is not run, but it may hold the text that it was made from.
fn from_cubin(bytes: &[u8]) -> Result<String, Refusal> {
    if let Some(text) = embedded_ptx(bytes) {
        return checked(&text);
    }
    let what = if bytes.get(18) == Some(&190) {
        "machine code for a GPU without line information"
    } else {
        "an ELF that is no cubin"
    };
    refuse(
        CuError::NO_BINARY_FOR_GPU,
        format!("the image is {what}; the soft GPU runs PTX only"),
    )
}

fn from_fatbin(bytes: &[u8]) -> Result<String, Refusal> {
    let bad = |error: FatbinError| Refusal {
        code: CuError::INVALID_IMAGE,
        words: error.to_string(),
    };
    let all = entries(bytes).map_err(bad)?;
    let choice = choose(&all, CAPABILITY);
    if let (None, Some(index)) = (choice.ptx, choice.sass)
        && let Some(text) = embedded_ptx(&all[index].payload().map_err(bad)?)
    {
        return checked(&text);
    }
    // Where a driver would run machine code that no PTX of the file belongs to, we still need PTX:
    // the best there is.
    let entry: &Entry<'_> = match choice.ptx {
        Some(index) => &all[index],
        None => {
            let texts: Vec<Entry<'_>> = all
                .iter()
                .filter(|entry| entry.kind == EntryKind::Ptx)
                .cloned()
                .collect();
            let fallback = choose(&texts, CAPABILITY);
            match fallback
                .ptx
                .and_then(|index| all.get(all.iter().position(|e| e.index == texts[index].index)?))
            {
                Some(entry) => entry,
                None => {
                    let why = choice
                        .why_no_ptx
                        .or(fallback.why_no_ptx)
                        .unwrap_or_default();
                    return refuse(
                        CuError::NO_BINARY_FOR_GPU,
                        format!("the soft GPU runs PTX only: {why}"),
                    );
                }
            }
        }
    };
    let payload = entry.payload().map_err(bad)?;
    match str::from_utf8(&payload) {
        Ok(text) => checked(text),
        Err(error) => refuse(
            CuError::INVALID_PTX,
            format!("the PTX is not UTF-8: {error}"),
        ),
    }
}

/// Refuses what a driver of this version and a device of this capability refuse.
fn checked(text: &str) -> Result<String, Refusal> {
    if let Some((major, minor)) = version(text)
        && (major, minor) > NEWEST_PTX
    {
        let newest = format!("{}.{}", NEWEST_PTX.0, NEWEST_PTX.1);
        return refuse(
            CuError::UNSUPPORTED_PTX_VERSION,
            format!(
                "`.version {major}.{minor}` is newer than `{newest}`, the newest that this driver takes"
            ),
        );
    }
    let (major, minor) = CAPABILITY;
    if let Some(target) = target(text)
        && target > major * 10 + minor
    {
        return refuse(
            CuError::NO_BINARY_FOR_GPU,
            format!(
                "`.target sm_{target}` needs a newer device than compute capability `{major}.{minor}`"
            ),
        );
    }
    Ok(text.to_owned())
}

fn after<'t>(text: &'t str, directive: &str) -> Option<&'t str> {
    text.lines()
        .find_map(|line| line.trim_start().strip_prefix(directive))
        .map(str::trim)
}

fn version(text: &str) -> Option<(u32, u32)> {
    let number = after(text, ".version")?
        .split(|c: char| c.is_whitespace() || c == ';' || c == '/')
        .next()?;
    let (major, minor) = number.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn target(text: &str) -> Option<u32> {
    let digits: String = after(text, ".target")?
        .strip_prefix("sm_")?
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> (u32, String) {
        let refusal = from_bytes(text.as_bytes()).expect_err("refused");
        (refusal.code.0, refusal.words)
    }

    #[test]
    fn what_a_driver_refuses_is_refused() {
        assert_eq!(
            code(".version 9.1\n.target sm_90"),
            (
                222,
                "`.version 9.1` is newer than `9.0`, the newest that this driver takes".into()
            )
        );
        assert_eq!(
            code(".version 9.0\n.target sm_100a, debug"),
            (
                209,
                "`.target sm_100` needs a newer device than compute capability `9.0`".into()
            )
        );
        assert_eq!(
            code("hello"),
            (
                200,
                "the image is neither PTX, nor a fatbin, nor a cubin".into()
            )
        );
        assert_eq!(
            from_bytes(b".version 9.0\n.target sm_90a\n\0"),
            Ok(".version 9.0\n.target sm_90a\n".to_owned())
        );
    }
}
