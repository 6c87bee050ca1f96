//! The context a program gets in `r1`: a read-only struct that exists nowhere in memory. A field read becomes a
//! special-register read (PTX ISA, "Special Registers") or a constant, and an unread field costs nothing.

use crate::attach::Site;

/// Where a field's value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FieldSource {
    /// `%ctaid`, component 0 to 2.
    BlockIdx(u8),
    /// `%ntid`
    BlockDim(u8),
    /// `%tid`
    ThreadIdx(u8),
    /// `%nctaid`
    GridDim(u8),
    /// `%laneid`
    Lane,
    /// Warp index in its block: linear thread index / 32 (`%warpid` may change while a thread runs).
    Warp,
    /// `%smid`
    Sm,
    /// The lanes that arrived at the site together (`activemask` taken there).
    ActiveMask,
    /// Number of this kernel, given by the host; the host knows its name.
    KernelId,
    /// `%gridid`: the same for all threads of a launch, different for each launch of a context.
    GridId,
}

/// A scalar field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// C name; an element of an array field is written `thread_idx[1]`.
    pub name: &'static str,
    /// Byte offset in the struct.
    pub offset: u32,
    /// 4 or 8. A read must have exactly this size and offset.
    pub size: u32,
    /// Its value.
    pub source: FieldSource,
    /// One line for the header.
    pub doc: &'static str,
}

/// A context struct.
#[derive(Debug)]
pub struct Context {
    /// C struct name.
    pub c_name: &'static str,
    /// Size in bytes.
    pub size: u32,
    /// Fields by offset.
    pub fields: &'static [Field],
}

impl Context {
    /// The field of exactly this offset and size.
    pub fn field(&self, offset: u32, size: u32) -> Option<&'static Field> {
        self.fields
            .iter()
            .find(|f| f.offset == offset && f.size == size)
    }

    /// The field that holds all of the `size` bytes from `offset` on.
    pub fn containing(&self, offset: u32, size: u32) -> Option<&'static Field> {
        let end = offset.checked_add(size)?;
        self.fields
            .iter()
            .find(|f| f.offset <= offset && end <= f.offset + f.size)
    }
}

macro_rules! fields {
    ($($name:literal $offset:literal $size:literal $source:expr, $doc:literal;)*) => {
        &[$(Field { name: $name, offset: $offset, size: $size, source: $source, doc: $doc }),*]
    };
}

/// Context of `entry` and `exit`.
pub static KERNEL: Context = Context {
    c_name: "wbpf_kernel_ctx",
    size: 80,
    fields: fields! {
        "block_idx[0]" 0 4 FieldSource::BlockIdx(0), "blockIdx.x";
        "block_idx[1]" 4 4 FieldSource::BlockIdx(1), "blockIdx.y";
        "block_idx[2]" 8 4 FieldSource::BlockIdx(2), "blockIdx.z";
        "block_dim[0]" 12 4 FieldSource::BlockDim(0), "blockDim.x";
        "block_dim[1]" 16 4 FieldSource::BlockDim(1), "blockDim.y";
        "block_dim[2]" 20 4 FieldSource::BlockDim(2), "blockDim.z";
        "thread_idx[0]" 24 4 FieldSource::ThreadIdx(0), "threadIdx.x";
        "thread_idx[1]" 28 4 FieldSource::ThreadIdx(1), "threadIdx.y";
        "thread_idx[2]" 32 4 FieldSource::ThreadIdx(2), "threadIdx.z";
        "grid_dim[0]" 36 4 FieldSource::GridDim(0), "gridDim.x";
        "grid_dim[1]" 40 4 FieldSource::GridDim(1), "gridDim.y";
        "grid_dim[2]" 44 4 FieldSource::GridDim(2), "gridDim.z";
        "lane" 48 4 FieldSource::Lane, "lane in the warp, 0 to 31";
        "warp" 52 4 FieldSource::Warp, "warp in the block: linear thread index / 32";
        "sm" 56 4 FieldSource::Sm, "multiprocessor that runs the block";
        "active_mask" 60 4 FieldSource::ActiveMask, "lanes that arrived here together";
        "kernel_id" 64 8 FieldSource::KernelId, "number of this kernel; the tools print its name";
        "grid_id" 72 8 FieldSource::GridId, "number of this launch in its context (%gridid)";
    },
};

/// The context of a kind of site.
pub fn of(site: Site) -> &'static Context {
    match site {
        Site::Entry | Site::Exit => &KERNEL,
    }
}
