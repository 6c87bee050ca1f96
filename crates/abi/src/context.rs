//! The context a program gets in `r1`: a read-only struct that exists nowhere in memory. A field
//! read becomes a special-register read (PTX ISA, "Special Registers"), a constant or a value
//! captured at the site, and an unread field costs nothing. Every struct begins with the fields of
//! [`KERNEL`], so one program text can serve several kinds of sites.

use alloc::format;
use alloc::string::String;

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
    /// Warp index in its block: linear thread index / 32 (`%warpid` may change while a thread
    /// runs).
    Warp,
    /// `%smid`
    Sm,
    /// The lanes that arrived at the site together (`activemask` taken there).
    ActiveMask,
    /// Number of this kernel, given by the host; the host knows its name.
    KernelId,
    /// `%gridid`: the same for all threads of a launch, different for each launch of a context, but
    /// the same each time for a kernel in a graph that is launched again.
    GridId,
    /// `%dynamic_smem_size`
    DynamicShared,
    /// `%cluster_ctarank`; 0 before `sm_90`.
    ClusterRank,
    /// `%cluster_nctaid`; 1 before `sm_90`.
    ClusterDim(u8),
    /// What the splicer puts into a register at the site.
    Captured(Capture),
}

/// Parameters that a context has room for.
pub const ARGS: usize = 16;

/// A value that the splicer knows or takes at a site and hands to the code in a register. Where a
/// site has no such value it is 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Capture {
    /// How many parameters the kernel has.
    ArgCount,
    /// Bits of the kernel's parameter of that number, of its first 8 bytes if it is longer; 0 in a
    /// device function, where PTX cannot read it.
    Arg(u8),
    /// Number of the launch among those of its kernel, from 1, with or without programs; a graph's
    /// launches all have that of their capture. 0 in a device function, as for [`Capture::Arg`].
    Launch,
    /// Number of the site; the host knows its name.
    Site,
    /// Source line by `.loc`; 0 if unknown.
    Line,
    /// Address as the instruction has it, in its space.
    Address,
    /// Bytes that one lane accesses.
    Bytes,
    /// [`crate::access::Kind`]
    Kind,
    /// [`crate::access::Space`]
    Space,
    /// [`crate::access::Cache`]
    Cache,
    /// Bits of what is stored, eight bytes each, the first element lowest; behind the access also
    /// of what was loaded.
    Value(u8),
    /// How many bytes of the value there are.
    ValueBytes,
    /// Where a copy goes.
    Target,
    /// [`crate::access::Space`] of where a copy goes.
    TargetSpace,
    /// [`crate::access::Barrier`]
    BarrierKind,
    /// Number of the barrier, 0 to 15.
    BarrierId,
    /// Threads that take part; 0 for all of the block.
    BarrierThreads,
    /// Clock cycles from before the barrier to behind it.
    Waited,
    /// Bits of a source operand; 0 for what is no register or number.
    Operand(u8),
    /// How many operands the instruction has.
    OperandCount,
    /// Lanes of the group that take the branch.
    TakenMask,
    /// This lane takes the branch: 1 or 0.
    Taken,
    /// The node of a graph that the launch is of ([`crate::layout::launch::graph_node`]); 0 outside
    /// of graphs, and in a device function, as for [`Capture::Arg`]. No field of a context: a
    /// helper gives it.
    Node,
}

impl Capture {
    /// Width of its register in bits: 32 or 64.
    pub const fn bits(self) -> u32 {
        match self {
            Capture::Arg(_)
            | Capture::Launch
            | Capture::Node
            | Capture::Address
            | Capture::Value(_)
            | Capture::Target
            | Capture::Waited
            | Capture::Operand(_) => 64,
            Capture::ArgCount
            | Capture::Site
            | Capture::Line
            | Capture::Bytes
            | Capture::Kind
            | Capture::Space
            | Capture::Cache
            | Capture::ValueBytes
            | Capture::TargetSpace
            | Capture::BarrierKind
            | Capture::BarrierId
            | Capture::BarrierThreads
            | Capture::OperandCount
            | Capture::TakenMask
            | Capture::Taken => 32,
        }
    }

    /// All lanes that are at a site together have the same.
    pub const fn is_uniform(self) -> bool {
        match self {
            Capture::ArgCount
            | Capture::Arg(_)
            | Capture::Launch
            | Capture::Node
            | Capture::Site
            | Capture::Line
            | Capture::Kind
            | Capture::Space
            | Capture::Cache
            | Capture::ValueBytes
            | Capture::TargetSpace
            | Capture::BarrierKind
            | Capture::OperandCount
            | Capture::TakenMask => true,
            // A bulk copy's size is a register, as a barrier's number may be.
            Capture::Bytes
            | Capture::Address
            | Capture::Value(_)
            | Capture::Target
            | Capture::BarrierId
            | Capture::BarrierThreads
            | Capture::Waited
            | Capture::Operand(_)
            | Capture::Taken => false,
        }
    }

    /// Name of its register (`.b32` or `.b64`), which the splicer declares around the code.
    pub fn register(self) -> String {
        let name = match self {
            Capture::ArgCount => "argc",
            Capture::Arg(i) => return format!("%wbpf_v_arg{i}"),
            Capture::Launch => "launch",
            Capture::Site => "site",
            Capture::Line => "line",
            Capture::Address => "address",
            Capture::Bytes => "bytes",
            Capture::Kind => "kind",
            Capture::Space => "space",
            Capture::Cache => "cache",
            Capture::Value(i) => return format!("%wbpf_v_value{i}"),
            Capture::ValueBytes => "valuebytes",
            Capture::Target => "target",
            Capture::TargetSpace => "targetspace",
            Capture::BarrierKind => "barkind",
            Capture::BarrierId => "barid",
            Capture::BarrierThreads => "barthreads",
            Capture::Waited => "waited",
            Capture::Operand(i) => return format!("%wbpf_v_op{i}"),
            Capture::OperandCount => "opcount",
            Capture::TakenMask => "takenmask",
            Capture::Taken => "taken",
            Capture::Node => "node",
        };
        format!("%wbpf_v_{name}")
    }
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

/// Rows that every context begins with, then those given.
macro_rules! with_kernel {
    ($($extra:tt)*) => { fields! {
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
        "dynamic_shared" 80 4 FieldSource::DynamicShared, "bytes of dynamic shared memory of the launch";
        "cluster_rank" 84 4 FieldSource::ClusterRank, "rank of the block in its cluster";
        "cluster_dim[0]" 88 4 FieldSource::ClusterDim(0), "blocks of a cluster";
        "cluster_dim[1]" 92 4 FieldSource::ClusterDim(1), "blocks of a cluster";
        "cluster_dim[2]" 96 4 FieldSource::ClusterDim(2), "blocks of a cluster";
        "arg_count" 100 4 FieldSource::Captured(Capture::ArgCount), "parameters of the kernel";
        "args[0]" 104 8 FieldSource::Captured(Capture::Arg(0)), "bits of the kernel's parameters by position, of the first 8 bytes of longer ones. 0 in device functions";
        "args[1]" 112 8 FieldSource::Captured(Capture::Arg(1)), "bits of the kernel's parameters by position, of the first 8 bytes of longer ones. 0 in device functions";
        "args[2]" 120 8 FieldSource::Captured(Capture::Arg(2)), "bits of the kernel's parameters by position, of the first 8 bytes of longer ones. 0 in device functions";
        "args[3]" 128 8 FieldSource::Captured(Capture::Arg(3)), "bits of the kernel's parameters by position, of the first 8 bytes of longer ones. 0 in device functions";
        "args[4]" 136 8 FieldSource::Captured(Capture::Arg(4)), "bits of the kernel's parameters by position, of the first 8 bytes of longer ones. 0 in device functions";
        "args[5]" 144 8 FieldSource::Captured(Capture::Arg(5)), "bits of the kernel's parameters by position, of the first 8 bytes of longer ones. 0 in device functions";
        "args[6]" 152 8 FieldSource::Captured(Capture::Arg(6)), "bits of the kernel's parameters by position, of the first 8 bytes of longer ones. 0 in device functions";
        "args[7]" 160 8 FieldSource::Captured(Capture::Arg(7)), "bits of the kernel's parameters by position, of the first 8 bytes of longer ones. 0 in device functions";
        "args[8]" 168 8 FieldSource::Captured(Capture::Arg(8)), "bits of the kernel's parameters by position, of the first 8 bytes of longer ones. 0 in device functions";
        "args[9]" 176 8 FieldSource::Captured(Capture::Arg(9)), "bits of the kernel's parameters by position, of the first 8 bytes of longer ones. 0 in device functions";
        "args[10]" 184 8 FieldSource::Captured(Capture::Arg(10)), "bits of the kernel's parameters by position, of the first 8 bytes of longer ones. 0 in device functions";
        "args[11]" 192 8 FieldSource::Captured(Capture::Arg(11)), "bits of the kernel's parameters by position, of the first 8 bytes of longer ones. 0 in device functions";
        "args[12]" 200 8 FieldSource::Captured(Capture::Arg(12)), "bits of the kernel's parameters by position, of the first 8 bytes of longer ones. 0 in device functions";
        "args[13]" 208 8 FieldSource::Captured(Capture::Arg(13)), "bits of the kernel's parameters by position, of the first 8 bytes of longer ones. 0 in device functions";
        "args[14]" 216 8 FieldSource::Captured(Capture::Arg(14)), "bits of the kernel's parameters by position, of the first 8 bytes of longer ones. 0 in device functions";
        "args[15]" 224 8 FieldSource::Captured(Capture::Arg(15)), "bits of the kernel's parameters by position, of the first 8 bytes of longer ones. 0 in device functions";
        "launch_id" 232 8 FieldSource::Captured(Capture::Launch), "number of this launch among those of the kernel, from 1, as the application made them. 0 in device functions";
        $($extra)*
    } };
}

/// Rows of every site in the middle of a kernel, then those given.
macro_rules! with_site {
    ($($extra:tt)*) => { with_kernel! {
        "site" 240 4 FieldSource::Captured(Capture::Site), "number of this site; the tools print its name";
        "line" 244 4 FieldSource::Captured(Capture::Line), "source line, 0 if unknown";
        $($extra)*
    } };
}

/// Context of `entry` and `exit`.
pub static KERNEL: Context = Context {
    c_name: "wbpf_kernel_ctx",
    size: 240,
    fields: with_kernel! {},
};

/// Context of `func`, `funcret` and `line`.
pub static SITE: Context = Context {
    c_name: "wbpf_site_ctx",
    size: 248,
    fields: with_site! {},
};

/// Context of `mem`.
pub static MEM: Context = Context {
    c_name: "wbpf_mem_ctx",
    size: 320,
    fields: with_site! {
        "address" 248 8 FieldSource::Captured(Capture::Address), "address as the instruction has it; of a copy, what is read";
        "bytes" 256 4 FieldSource::Captured(Capture::Bytes), "bytes that this lane accesses; 0 if unknown";
        "kind" 260 4 FieldSource::Captured(Capture::Kind), "one of WBPF_KIND_*";
        "space" 264 4 FieldSource::Captured(Capture::Space), "one of WBPF_SPACE_*";
        "cache" 268 4 FieldSource::Captured(Capture::Cache), "one of WBPF_CACHE_*";
        "value[0]" 272 8 FieldSource::Captured(Capture::Value(0)), "bits stored (or operands of an atomic). With |when=after also what was loaded";
        "value[1]" 280 8 FieldSource::Captured(Capture::Value(1)), "bits stored (or operands of an atomic). With |when=after also what was loaded";
        "value[2]" 288 8 FieldSource::Captured(Capture::Value(2)), "bits stored (or operands of an atomic). With |when=after also what was loaded";
        "value[3]" 296 8 FieldSource::Captured(Capture::Value(3)), "bits stored (or operands of an atomic). With |when=after also what was loaded";
        "target" 304 8 FieldSource::Captured(Capture::Target), "where a copy goes";
        "target_space" 312 4 FieldSource::Captured(Capture::TargetSpace), "space of target";
        "value_bytes" 316 4 FieldSource::Captured(Capture::ValueBytes), "bytes of value that are there";
    },
};

/// Context of `barrier`.
pub static BARRIER: Context = Context {
    c_name: "wbpf_barrier_ctx",
    size: 280,
    fields: with_site! {
        "address" 248 8 FieldSource::Captured(Capture::Address), "address of an mbarrier, in its space";
        "waited" 256 8 FieldSource::Captured(Capture::Waited), "clock cycles spent in it, with |when=after";
        "kind" 264 4 FieldSource::Captured(Capture::BarrierKind), "one of WBPF_BARRIER_*";
        "barrier_id" 268 4 FieldSource::Captured(Capture::BarrierId), "number of a block's barrier, 0 to 15";
        "threads" 272 4 FieldSource::Captured(Capture::BarrierThreads), "threads that take part, 0 for all of the block";
        "space" 276 4 FieldSource::Captured(Capture::Space), "space of address";
    },
};

/// Context of `insn`.
pub static INSN: Context = Context {
    c_name: "wbpf_insn_ctx",
    size: 320,
    fields: with_site! {
        "operand[0]" 248 8 FieldSource::Captured(Capture::Operand(0)), "bits of source operands by position. 0 for what is no register or number";
        "operand[1]" 256 8 FieldSource::Captured(Capture::Operand(1)), "bits of source operands by position. 0 for what is no register or number";
        "operand[2]" 264 8 FieldSource::Captured(Capture::Operand(2)), "bits of source operands by position. 0 for what is no register or number";
        "operand[3]" 272 8 FieldSource::Captured(Capture::Operand(3)), "bits of source operands by position. 0 for what is no register or number";
        "operand[4]" 280 8 FieldSource::Captured(Capture::Operand(4)), "bits of source operands by position. 0 for what is no register or number";
        "operand[5]" 288 8 FieldSource::Captured(Capture::Operand(5)), "bits of source operands by position. 0 for what is no register or number";
        "operand[6]" 296 8 FieldSource::Captured(Capture::Operand(6)), "bits of source operands by position. 0 for what is no register or number";
        "operand[7]" 304 8 FieldSource::Captured(Capture::Operand(7)), "bits of source operands by position. 0 for what is no register or number";
        "operand_count" 312 4 FieldSource::Captured(Capture::OperandCount), "operands of the instruction";
    },
};

/// Context of `branch`.
pub static BRANCH: Context = Context {
    c_name: "wbpf_branch_ctx",
    size: 256,
    fields: with_site! {
        "taken_mask" 248 4 FieldSource::Captured(Capture::TakenMask), "lanes of active_mask that take the branch";
        "taken" 252 4 FieldSource::Captured(Capture::Taken), "1 if this lane takes it";
    },
};

/// All structs, with the places that have them.
pub static CONTEXTS: &[(&Context, &str)] = &[
    (&KERNEL, "`gpu/entry` and `gpu/exit`"),
    (&SITE, "`gpu/func`, `gpu/funcret` and `gpu/line`"),
    (&MEM, "`gpu/mem`"),
    (&BARRIER, "`gpu/barrier`"),
    (&INSN, "`gpu/insn`"),
    (&BRANCH, "`gpu/branch`"),
];

/// The context of a kind of site.
pub fn of(site: Site) -> &'static Context {
    match site {
        Site::Entry | Site::Exit => &KERNEL,
        Site::Func | Site::FuncRet | Site::Line => &SITE,
        Site::Mem => &MEM,
        Site::Barrier => &BARRIER,
        Site::Insn => &INSN,
        Site::Branch => &BRANCH,
    }
}
