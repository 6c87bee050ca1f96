//! Map type numbers: Linux's own, and bpftime's GPU range (1501 to 1527) with the same meaning.

/// A map type that warpbpf serves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum MapType {
    /// BPF_MAP_TYPE_HASH: device-native; insert and delete by any lanes at once; no lane waits for another.
    Hash = 1,
    /// BPF_MAP_TYPE_ARRAY: fixed slots; sharded per SM by us where programs only add and the host only sums.
    Array = 2,
    /// BPF_MAP_TYPE_PERCPU_ARRAY: one copy per SM; the host sees every copy.
    PercpuArray = 6,
    /// BPF_MAP_TYPE_RINGBUF: device memory, one ring per SM, drained by DMA, losses counted.
    Ringbuf = 27,
    /// bpftime's per-thread array: one value per key and linear global thread.
    PerThreadArray = 1502,
}

/// All of them, with the names used in messages and tables.
pub const MAP_TYPES: &[(MapType, &str)] = &[
    (MapType::Hash, "hash"),
    (MapType::Array, "array"),
    (MapType::PercpuArray, "percpu_array"),
    (MapType::Ringbuf, "ringbuf"),
    (MapType::PerThreadArray, "per_thread_array"),
];

impl MapType {
    /// The type with this number, if we serve it.
    pub fn from_number(number: u32) -> Option<MapType> {
        MAP_TYPES
            .iter()
            .map(|(t, _)| *t)
            .find(|t| *t as u32 == number)
    }
    /// Its name in messages and tables.
    pub fn name(self) -> &'static str {
        MAP_TYPES
            .iter()
            .find(|(t, _)| *t == self)
            .map_or("", |(_, n)| n)
    }
}

/// `BPF_F_RDONLY_PROG`, a flag of a map: programs may only read it.
pub const BPF_F_RDONLY_PROG: u32 = 1 << 7;
/// `BPF_F_WRONLY_PROG`, a flag of a map: programs may only write it.
pub const BPF_F_WRONLY_PROG: u32 = 1 << 8;

/// `BPF_ANY`: create or overwrite.
pub const BPF_ANY: u64 = 0;
/// `BPF_NOEXIST`: only create.
pub const BPF_NOEXIST: u64 = 1;
/// `BPF_EXIST`: only overwrite.
pub const BPF_EXIST: u64 = 2;

/// `-ENOENT`
pub const ENOENT: i64 = -2;
/// `-E2BIG`: the map is full, or the key is outside an array.
pub const E2BIG: i64 = -7;
/// `-EAGAIN`
pub const EAGAIN: i64 = -11;
/// `-EFAULT`
pub const EFAULT: i64 = -14;
/// `-EBUSY`: a bounded retry ran out; the map counts it.
pub const EBUSY: i64 = -16;
/// `-EEXIST`
pub const EEXIST: i64 = -17;
/// `-EINVAL`
pub const EINVAL: i64 = -22;
/// Default number of threads of a [`MapType::PerThreadArray`] when `map_extra` is 0.
pub const PER_THREAD_DEFAULT: u64 = 1 << 20;
