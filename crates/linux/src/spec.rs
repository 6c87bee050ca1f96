//! What a map is asked to be, and how large its values are for who asks and where they are kept.

use warpbpf_abi::maps::MapType;

/// A map's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of `union bpf_attr`")]
pub struct Spec {
    pub map_type: u32,
    pub key_size: u32,
    pub value_size: u32,
    pub max_entries: u32,
    pub flags: u32,
    pub extra: u64,
}

/// Every type that a number may mean; which of them the device serves is its business.
const TYPES: &[MapType] = &[
    MapType::Hash,
    MapType::Array,
    MapType::PerfEventArray,
    MapType::PercpuHash,
    MapType::PercpuArray,
    MapType::LruHash,
    MapType::LruPercpuHash,
    MapType::ArrayOfMaps,
    MapType::HashOfMaps,
    MapType::Queue,
    MapType::Stack,
    MapType::Ringbuf,
    MapType::BloomFilter,
    MapType::UserRingbuf,
    MapType::GpuHash,
    MapType::PerThreadArray,
    MapType::GpuArray,
    MapType::GpuKernelArray,
    MapType::PerThreadHostArray,
    MapType::GpuHostArray,
    MapType::GpuRingbuf,
];

impl Spec {
    /// The type; `None` for those of the host's programs only.
    pub fn kind(&self) -> Option<MapType> {
        TYPES.iter().copied().find(|t| *t as u32 == self.map_type)
    }

    /// Each key has a value per CPU.
    pub fn is_percpu(&self) -> bool {
        matches!(
            self.kind(),
            Some(MapType::PercpuArray | MapType::PercpuHash | MapType::LruPercpuHash)
        )
    }

    fn is_per_thread(&self) -> bool {
        matches!(
            self.kind(),
            Some(MapType::PerThreadArray | MapType::PerThreadHostArray)
        )
    }

    /// Keys are indices, all of which are there.
    pub fn has_indices(&self) -> bool {
        matches!(
            self.kind(),
            Some(
                MapType::Array
                    | MapType::PercpuArray
                    | MapType::GpuArray
                    | MapType::GpuKernelArray
                    | MapType::GpuHostArray
                    | MapType::PerThreadArray
                    | MapType::PerThreadHostArray
            )
        )
    }

    /// Values stand in a row, without keys.
    pub fn is_row(&self) -> bool {
        matches!(
            self.kind(),
            Some(MapType::Queue | MapType::Stack | MapType::BloomFilter)
        )
    }

    /// Bytes that user space gives and gets as a value; the largest number for more than there are.
    pub fn user_bytes(&self, cpus: u32, threads: u64) -> u64 {
        if self.is_percpu() {
            let stride = u64::from(self.value_size).next_multiple_of(8);
            stride.saturating_mul(u64::from(cpus))
        } else if self.is_per_thread() {
            let threads = if self.extra == 0 { threads } else { self.extra };
            u64::from(self.value_size).saturating_mul(threads)
        } else {
            u64::from(self.value_size)
        }
    }

    /// Bytes from one value to the next where they are kept here.
    pub fn slot(&self, cpus: u32, threads: u64) -> u64 {
        let bytes = self.user_bytes(cpus, threads);
        if self.has_indices() {
            bytes.checked_next_multiple_of(8).unwrap_or(u64::MAX)
        } else {
            bytes
        }
    }
}
