//! Map type numbers: Linux's own, and bpftime's GPU range (1501 to 1527) with the same meaning.

/// A map type that warpbpf serves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum MapType {
    /// BPF_MAP_TYPE_HASH: device-native; insert and delete by any lanes at once; no lane waits for
    /// another.
    Hash = 1,
    /// BPF_MAP_TYPE_ARRAY: fixed slots; sharded per SM by us where programs only add and the host
    /// only sums.
    Array = 2,
    /// BPF_MAP_TYPE_PERF_EVENT_ARRAY: records to the host, stored as in a ring buffer; the index is
    /// the multiprocessor.
    PerfEventArray = 4,
    /// BPF_MAP_TYPE_PERCPU_HASH: a hash with a value per SM and key.
    PercpuHash = 5,
    /// BPF_MAP_TYPE_PERCPU_ARRAY: one copy per SM; the host sees every copy.
    PercpuArray = 6,
    /// BPF_MAP_TYPE_LRU_HASH: a hash that drops keys not used lately when it is full.
    LruHash = 9,
    /// BPF_MAP_TYPE_LRU_PERCPU_HASH: as [`MapType::LruHash`], with a value per SM and key.
    LruPercpuHash = 10,
    /// BPF_MAP_TYPE_ARRAY_OF_MAPS: maps by index.
    ArrayOfMaps = 12,
    /// BPF_MAP_TYPE_HASH_OF_MAPS: maps by key.
    HashOfMaps = 13,
    /// BPF_MAP_TYPE_QUEUE: first in, first out.
    Queue = 22,
    /// BPF_MAP_TYPE_STACK: last in, first out.
    Stack = 23,
    /// BPF_MAP_TYPE_RINGBUF: device memory, one ring per SM, drained by DMA, losses counted.
    Ringbuf = 27,
    /// BPF_MAP_TYPE_BLOOM_FILTER: a set that may say yes to what was never put in, and never no to
    /// what was.
    BloomFilter = 30,
    /// BPF_MAP_TYPE_USER_RINGBUF: records from the host to programs.
    UserRingbuf = 31,
    /// bpftime's hash in device memory: as [`MapType::Hash`].
    GpuHash = 1501,
    /// bpftime's per-thread array: one value per key and linear global thread.
    PerThreadArray = 1502,
    /// bpftime's array in device memory, one copy: as [`MapType::Array`], never sharded.
    GpuArray = 1503,
    /// bpftime's array that host, kernel and GPU share: as [`MapType::GpuArray`], in host memory.
    GpuKernelArray = 1504,
    /// As [`MapType::PerThreadArray`], in host memory.
    PerThreadHostArray = 1512,
    /// As [`MapType::GpuArray`], in host memory.
    GpuHostArray = 1513,
    /// bpftime's ring of records by `bpf_perf_event_output`, in order per thread.
    GpuRingbuf = 1527,
}

/// All of them, with the names used in messages and tables.
pub const MAP_TYPES: &[(MapType, &str)] = &[
    (MapType::Hash, "hash"),
    (MapType::PercpuHash, "percpu_hash"),
    (MapType::LruHash, "lru_hash"),
    (MapType::LruPercpuHash, "lru_percpu_hash"),
    (MapType::GpuHash, "gpu_hash"),
    (MapType::Array, "array"),
    (MapType::PercpuArray, "percpu_array"),
    (MapType::Ringbuf, "ringbuf"),
    (MapType::PerThreadArray, "per_thread_array"),
    (MapType::PerfEventArray, "perf_event_array"),
    (MapType::ArrayOfMaps, "array_of_maps"),
    (MapType::HashOfMaps, "hash_of_maps"),
    (MapType::Queue, "queue"),
    (MapType::Stack, "stack"),
    (MapType::BloomFilter, "bloom_filter"),
    (MapType::UserRingbuf, "user_ringbuf"),
    (MapType::GpuArray, "gpu_array"),
    (MapType::GpuKernelArray, "gpu_kernel_array"),
    (MapType::PerThreadHostArray, "per_thread_host_array"),
    (MapType::GpuHostArray, "gpu_host_array"),
    (MapType::GpuRingbuf, "gpu_ringbuf"),
];

impl MapType {
    /// The type with this number, if we serve it.
    pub fn from_number(number: u32) -> Option<MapType> {
        MAP_TYPES
            .iter()
            .map(|(t, _)| *t)
            .find(|t| *t as u32 == number)
    }
    /// It holds keys that are put in, and keeps them in its memory: any of the hashes.
    pub fn is_hash(self) -> bool {
        matches!(
            self,
            MapType::Hash
                | MapType::PercpuHash
                | MapType::LruHash
                | MapType::LruPercpuHash
                | MapType::GpuHash
        )
    }
    /// Its name in messages and tables.
    pub fn name(self) -> &'static str {
        MAP_TYPES
            .iter()
            .find(|(t, _)| *t == self)
            .map_or("", |(_, n)| n)
    }
}

/// A map type of Linux that we do not serve: its name, and what to do instead.
pub fn unserved(number: u32) -> Option<(&'static str, &'static str)> {
    const HOST: &str = "it is about the host's kernel; keep what the program knows in a hash, keyed by what it counts";
    const PACKETS: &str = "it forwards packets, and a GPU kernel has none";
    Some(match number {
        3 => (
            "prog_array",
            "there are no tail calls: make the programs functions of one program, or attach them one beside the other",
        ),
        7 => (
            "stack_trace",
            "a GPU thread has no stack that can be walked: send block, thread and `site` of the context through a ring buffer",
        ),
        11 => (
            "lpm_trie",
            "use a hash for each length of prefix, and look from the longest on",
        ),
        33 => (
            "arena",
            "use an array, or global variables: their addresses are the same in all threads",
        ),
        14 => ("devmap", PACKETS),
        15 => ("sockmap", PACKETS),
        16 => ("cpumap", PACKETS),
        17 => ("xskmap", PACKETS),
        18 => ("sockhash", PACKETS),
        20 => ("reuseport_sockarray", PACKETS),
        24 => ("sk_storage", PACKETS),
        25 => ("devmap_hash", PACKETS),
        8 => ("cgroup_array", HOST),
        19 => ("cgroup_storage", HOST),
        21 => ("percpu_cgroup_storage", HOST),
        26 => ("struct_ops", HOST),
        28 => ("inode_storage", HOST),
        29 => ("task_storage", HOST),
        32 => ("cgrp_storage", HOST),
        _ => return None,
    })
}

/// Whose memory a map lies in.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// The device's.
    Device,
    /// Page-locked memory of the host that the device reaches.
    Host,
}

/// Attribute of a map's definition that the user's request for a [`Placement`] becomes: 1 for the
/// device, 2 for the host. The code generator, the verifier and the layouts follow it.
pub const PLACE: &str = "warpbpf_place";

impl Placement {
    /// Its number in [`PLACE`].
    pub const fn number(self) -> u64 {
        match self {
            Placement::Device => 1,
            Placement::Host => 2,
        }
    }
    /// What [`PLACE`] asks for; nothing for 0, and for numbers that mean nothing.
    pub const fn from_number(number: u64) -> Option<Placement> {
        match number {
            1 => Some(Placement::Device),
            2 => Some(Placement::Host),
            _ => None,
        }
    }
}

/// Largest map, in bytes, that can be given first contents: they are made in memory of the
/// application.
pub const MOST_PRESET: u64 = 1 << 30;

/// `BPF_F_RDONLY_PROG`, a flag of a map: programs may only read it.
pub const BPF_F_RDONLY_PROG: u32 = 1 << 7;
/// `BPF_F_WRONLY_PROG`, a flag of a map: programs may only write it.
pub const BPF_F_WRONLY_PROG: u32 = 1 << 8;

/// `BPF_RB_NO_WAKEUP` and `BPF_RB_FORCE_WAKEUP`: the flags that `bpf_user_ringbuf_drain` takes. The
/// host asks for the consumer's position when it needs room, so there is nobody to wake.
pub const BPF_RB_WAKEUPS: u64 = 3;

/// `BPF_RB_AVAIL_DATA`, asked of `bpf_ringbuf_query`: bytes reserved and not yet taken by the host.
pub const BPF_RB_AVAIL_DATA: u64 = 0;
/// `BPF_RB_RING_SIZE`: bytes of the ring.
pub const BPF_RB_RING_SIZE: u64 = 1;
/// `BPF_RB_CONS_POS`: bytes that the host has taken since the ring was made.
pub const BPF_RB_CONS_POS: u64 = 2;
/// `BPF_RB_PROD_POS`: bytes that were reserved since the ring was made.
pub const BPF_RB_PROD_POS: u64 = 3;

/// `BPF_ANY`: create or overwrite.
pub const BPF_ANY: u64 = 0;
/// `BPF_NOEXIST`: only create.
pub const BPF_NOEXIST: u64 = 1;
/// `BPF_EXIST`: only overwrite.
pub const BPF_EXIST: u64 = 2;

/// `-EPERM`
pub const EPERM: i64 = -1;
/// `-ENOENT`
pub const ENOENT: i64 = -2;
/// `-EIO`
pub const EIO: i64 = -5;
/// `-E2BIG`: the map is full, or the key is outside an array.
pub const E2BIG: i64 = -7;
/// `-EAGAIN`
pub const EAGAIN: i64 = -11;
/// `-ENOMEM`: an LRU map found no key to drop; the map counts it.
pub const ENOMEM: i64 = -12;
/// `-EFAULT`
pub const EFAULT: i64 = -14;
/// `-EBUSY`: a bounded retry ran out; the map counts it.
pub const EBUSY: i64 = -16;
/// `-EEXIST`
pub const EEXIST: i64 = -17;
/// `-ENOSPC`: there is no room in a ring.
pub const ENOSPC: i64 = -28;
/// `BPF_F_INDEX_MASK` of `bpf_perf_event_output`, and `BPF_F_CURRENT_CPU`, which is all of it.
pub const BPF_F_INDEX_MASK: u64 = 0xffff_ffff;
/// `-EINVAL`
pub const EINVAL: i64 = -22;
/// `-EOPNOTSUPP`
pub const EOPNOTSUPP: i64 = -95;
/// `-ETIMEDOUT`: a bounded wait for the host, or of the host, ran out.
pub const ETIMEDOUT: i64 = -110;
/// Default number of threads of a [`MapType::PerThreadArray`] when `map_extra` is 0.
pub const PER_THREAD_DEFAULT: u64 = 1 << 20;
