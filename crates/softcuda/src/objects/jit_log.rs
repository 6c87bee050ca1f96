//! Why an image cannot be loaded, and where a program wants to read that.

use std::ffi::{c_int, c_void};

use crate::error::{CuError, CuResult};

/// Why an image is refused: the number for the program, the words for its log or for stderr.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub code: CuError,
    pub words: String,
}

/// The log buffers among the JIT options of a load.
pub(crate) struct JitLog {
    pub(crate) error: Option<Buffer>,
    pub(crate) info: Option<Buffer>,
}

#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) start: *mut u8,
    pub(crate) room: usize,
    /// Where the program wrote the size and reads how much of it was used.
    pub(crate) used: *mut usize,
}

// SAFETY: the buffers are the program's, given to be written by whichever of its threads calls; a
// link under way has its log behind a lock.
unsafe impl Send for JitLog {}

impl JitLog {
    /// Options by number: where the text goes and how long it may be, for information and for
    /// errors.
    const INFO: c_int = 3;
    const INFO_BYTES: c_int = 4;
    const ERROR: c_int = 5;
    const ERROR_BYTES: c_int = 6;

    /// # Safety
    /// `options` and `values` must be valid for `count` elements, or `count` 0; the log buffers
    /// among them as long as their sizes say.
    pub(crate) unsafe fn new(
        count: u32,
        options: *const c_int,
        values: *mut *mut c_void,
    ) -> Result<JitLog, CuError> {
        if count > 0 && (options.is_null() || values.is_null()) {
            return Err(CuError::INVALID_VALUE);
        }
        let value_of = |wanted: c_int| {
            // SAFETY: `at` is below `count`.
            let found = (0..count as usize).find(|&at| unsafe { *options.add(at) } == wanted)?;
            // SAFETY: as above.
            Some(unsafe { values.add(found) })
        };
        let buffer = |text: c_int, bytes: c_int| {
            let (text, bytes) = (value_of(text)?, value_of(bytes)?);
            let used = bytes.cast::<usize>();
            // SAFETY: both lie in the array of values. A program may have written an `unsigned int`
            // over the low half.
            let (start, room) = unsafe { ((*text).cast::<u8>(), *used & 0xffff_ffff) };
            (!start.is_null()).then_some(Buffer { start, room, used })
        };
        let error = buffer(Self::ERROR, Self::ERROR_BYTES);
        Ok(JitLog {
            error,
            info: buffer(Self::INFO, Self::INFO_BYTES),
        })
    }

    /// Tells why the load failed: in the program's buffer, or on stderr if it gave none.
    pub(crate) fn refused(&self, refusal: Refusal) -> CuError {
        self.write(self.info, "");
        if self.error.is_some() {
            self.write(self.error, &refusal.words);
        } else {
            crate::say::say(&format!("a module cannot be loaded: {}", refusal.words));
        }
        refusal.code
    }

    pub(crate) fn succeeded(&self) -> CuResult {
        self.write(self.info, "");
        self.write(self.error, "");
        Ok(())
    }

    fn write(&self, buffer: Option<Buffer>, text: &str) {
        let Some(Buffer { start, room, used }) = buffer else {
            return;
        };
        let shown = text.len().min(room.saturating_sub(1));
        // SAFETY: by the promise of `new`, the buffer has `room` bytes and the value slot is still
        // there.
        unsafe {
            if room > 0 {
                start.copy_from_nonoverlapping(text.as_ptr(), shown);
                start.add(shown).write(0);
            }
            used.write(shown);
        }
    }
}
