//! The wrapper by which programs name their fatbins.

/// First four bytes of a wrapper, the structure that `nvcc` gives to `__cudaRegisterFatBinary` and
/// the runtime to `cuLibraryLoadData`.
pub const WRAPPER_MAGIC: u32 = 0x4662_43b1;

/// The structure in section `.nvFatBinSegment` of a program built by `nvcc`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FatbinWrapper {
    /// [`WRAPPER_MAGIC`].
    pub magic: u32,
    /// 1: `filename_or_fatbins` is unused. 2: it is a NULL-terminated list of fatbins that the
    /// device linker made.
    pub version: u32,
    /// The fatbin.
    pub data: *const u64,
    /// See `version`.
    pub filename_or_fatbins: *const core::ffi::c_void,
}

impl FatbinWrapper {
    /// The fatbins that [`FatbinWrapper::filename_or_fatbins`] lists; none of version 1.
    ///
    /// # Safety
    /// It is a wrapper as the device linker makes them.
    pub unsafe fn parts(&self) -> Vec<*const u8> {
        /// More than any program has.
        const MOST: usize = 1 << 16;
        let list = self.filename_or_fatbins.cast::<*const u8>();
        if self.version != 2 || list.is_null() {
            return Vec::new();
        }
        // SAFETY: the caller's promise: a null pointer ends the list.
        let parts = (0..MOST).map(|at| unsafe { list.add(at).read_unaligned() });
        parts.take_while(|part| !part.is_null()).collect()
    }
}
