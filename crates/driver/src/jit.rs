//! Options of the driver's compiler that an application chose, so that they can be chosen again for
//! its kernels' variants.

use std::ffi::{c_int, c_uint, c_void};

/// `CU_JIT_MAX_REGISTERS`
pub const MAX_REGISTERS: c_int = 0;
/// `CU_JIT_OPTIMIZATION_LEVEL`
pub const OPTIMIZATION_LEVEL: c_int = 7;
/// `CU_JIT_GENERATE_DEBUG_INFO`
pub const GENERATE_DEBUG_INFO: c_int = 11;
/// `CU_JIT_GENERATE_LINE_INFO`
pub const GENERATE_LINE_INFO: c_int = 13;

/// Options that change the code and whose value is a number. Logs, times and targets belong to one
/// load only.
const REPEATED: [c_int; 4] = [
    MAX_REGISTERS,
    OPTIMIZATION_LEVEL,
    GENERATE_DEBUG_INFO,
    GENERATE_LINE_INFO,
];

/// Numeric options that change the generated code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JitOptions(Vec<(c_int, u32)>);

impl JitOptions {
    /// The options of a `cuModuleLoadDataEx` or `cuLibraryLoadData` call that can be repeated.
    ///
    /// # Safety
    /// `options` and `values` are null or have `count` elements.
    pub unsafe fn read(
        count: c_uint,
        options: *const c_int,
        values: *const *mut c_void,
    ) -> JitOptions {
        if options.is_null() || values.is_null() {
            return JitOptions::default();
        }
        let pairs = (0..count as usize).map(|i| {
            // SAFETY: the caller's promise. A number is passed in the place of the pointer, in its
            // low half.
            unsafe { (*options.add(i), *values.add(i) as usize as u32) }
        });
        JitOptions(pairs.filter(|(o, _)| REPEATED.contains(o)).collect())
    }

    /// The same with `option` at this value, whatever it was before.
    pub fn with(mut self, option: c_int, value: u32) -> JitOptions {
        self.0.retain(|(other, _)| *other != option);
        self.0.push((option, value));
        self
    }

    /// Option and value, in the application's order.
    pub fn pairs(&self) -> &[(c_int, u32)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    #[test]
    fn only_options_that_change_code_are_kept() {
        let mut log = [0u8; 4];
        let options = [
            sys::JIT_ERROR_LOG_BUFFER,
            MAX_REGISTERS,
            sys::JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            GENERATE_LINE_INFO,
            OPTIMIZATION_LEVEL,
        ];
        // Applications pass a pointer-sized copy of an int: what is above its 32 bits does not
        // count.
        let numbers = [0, 32, 4, 1, 0xffff_ffff_0000_0002_usize];
        let mut values = numbers.map(|n| n as *mut c_void);
        values[0] = log.as_mut_ptr().cast();
        // SAFETY: both arrays have five elements.
        let read = unsafe { JitOptions::read(5, options.as_ptr(), values.as_ptr()) };
        assert_eq!(
            read.pairs(),
            [
                (MAX_REGISTERS, 32),
                (GENERATE_LINE_INFO, 1),
                (OPTIMIZATION_LEVEL, 2)
            ]
        );
        let fewer = read.clone().with(MAX_REGISTERS, 24);
        assert_eq!(
            fewer.pairs(),
            [
                (GENERATE_LINE_INFO, 1),
                (OPTIMIZATION_LEVEL, 2),
                (MAX_REGISTERS, 24)
            ]
        );
        // SAFETY: null is allowed.
        let none = unsafe { JitOptions::read(5, std::ptr::null(), values.as_ptr()) };
        assert_eq!(none, JitOptions::default());
    }
}
