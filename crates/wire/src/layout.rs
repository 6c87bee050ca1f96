//! Layouts of maps as they travel: mirrors of those in `abi`, which is no place for JSON.

use serde::{Deserialize, Serialize};
use warpbpf_abi::layout::{self, MapLayout};

/// Mirror of [`layout::SumField`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SumField {
    /// Byte offset in the value.
    pub offset: u32,
    /// 4 or 8.
    pub size: u32,
}

/// Mirror of [`MapLayout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are those of `warpbpf_abi::layout`")]
pub enum Layout {
    Array {
        max_entries: u32,
        value_size: u32,
        shards: u32,
        summed: bool,
    },
    Hash {
        max_entries: u32,
        key_size: u32,
        value_size: u32,
        copies: u32,
        #[serde(default)]
        dense: bool,
    },
    Lru {
        max_entries: u32,
        key_size: u32,
        value_size: u32,
        copies: u32,
    },
    Ring {
        shards: u32,
        shard_bytes: u64,
        wait_us: u32,
    },
    PerThread {
        max_entries: u32,
        value_size: u32,
        threads: u64,
    },
    Queue {
        max_entries: u32,
        value_size: u32,
        lifo: bool,
    },
    Bloom {
        max_entries: u32,
        value_size: u32,
        hashes: u32,
    },
    Hosted {
        max_entries: u32,
        key_size: u32,
        value_size: u32,
    },
    UserRing {
        bytes: u32,
    },
}

impl From<MapLayout> for Layout {
    fn from(layout: MapLayout) -> Layout {
        match layout {
            MapLayout::Array(l) => Layout::Array {
                max_entries: l.max_entries,
                value_size: l.value_size,
                shards: l.shards,
                summed: l.summed,
            },
            MapLayout::Hash(l) => Layout::Hash {
                max_entries: l.max_entries,
                key_size: l.key_size,
                value_size: l.value_size,
                copies: l.copies,
                dense: l.dense,
            },
            MapLayout::Lru(l) => Layout::Lru {
                max_entries: l.max_entries,
                key_size: l.key_size,
                value_size: l.value_size,
                copies: l.copies,
            },
            MapLayout::Ring(l) => Layout::Ring {
                shards: l.shards,
                shard_bytes: l.shard_bytes,
                wait_us: l.wait_us,
            },
            MapLayout::Queue(l) => Layout::Queue {
                max_entries: l.max_entries,
                value_size: l.value_size,
                lifo: l.lifo,
            },
            MapLayout::Bloom(l) => Layout::Bloom {
                max_entries: l.max_entries,
                value_size: l.value_size,
                hashes: l.hashes,
            },
            MapLayout::Hosted(l) => Layout::Hosted {
                max_entries: l.max_entries,
                key_size: l.key_size,
                value_size: l.value_size,
            },
            MapLayout::UserRing(l) => Layout::UserRing { bytes: l.bytes },
            MapLayout::PerThread(l) => Layout::PerThread {
                max_entries: l.max_entries,
                value_size: l.value_size,
                threads: l.threads,
            },
        }
    }
}

impl From<Layout> for MapLayout {
    fn from(mirror: Layout) -> MapLayout {
        match mirror {
            Layout::Array {
                max_entries,
                value_size,
                shards,
                summed,
            } => MapLayout::Array(layout::ArrayLayout {
                max_entries,
                value_size,
                shards,
                summed,
            }),
            Layout::Hash {
                max_entries,
                key_size,
                value_size,
                copies,
                dense,
            } => MapLayout::Hash(layout::HashLayout {
                max_entries,
                key_size,
                value_size,
                copies,
                dense,
            }),
            Layout::Lru {
                max_entries,
                key_size,
                value_size,
                copies,
            } => MapLayout::Lru(layout::LruLayout {
                max_entries,
                key_size,
                value_size,
                copies,
            }),
            Layout::Ring {
                shards,
                shard_bytes,
                wait_us,
            } => MapLayout::Ring(layout::RingLayout {
                shards,
                shard_bytes,
                wait_us,
            }),
            Layout::Queue {
                max_entries,
                value_size,
                lifo,
            } => MapLayout::Queue(layout::QueueLayout {
                max_entries,
                value_size,
                lifo,
            }),
            Layout::Bloom {
                max_entries,
                value_size,
                hashes,
            } => MapLayout::Bloom(layout::BloomLayout {
                max_entries,
                value_size,
                hashes,
            }),
            Layout::Hosted {
                max_entries,
                key_size,
                value_size,
            } => MapLayout::Hosted(layout::HostedLayout {
                max_entries,
                key_size,
                value_size,
            }),
            Layout::UserRing { bytes } => MapLayout::UserRing(layout::UserRingLayout { bytes }),
            Layout::PerThread {
                max_entries,
                value_size,
                threads,
            } => MapLayout::PerThread(layout::PerThreadLayout {
                max_entries,
                value_size,
                threads,
            }),
        }
    }
}

impl From<layout::SumField> for SumField {
    fn from(field: layout::SumField) -> SumField {
        SumField {
            offset: field.offset,
            size: field.size,
        }
    }
}

impl From<SumField> for layout::SumField {
    fn from(mirror: SumField) -> layout::SumField {
        layout::SumField {
            offset: mirror.offset,
            size: mirror.size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_survive_the_mirror() {
        let layouts = [
            MapLayout::Array(layout::ArrayLayout {
                max_entries: 3,
                value_size: 12,
                shards: 132,
                summed: true,
            }),
            MapLayout::Hash(layout::HashLayout {
                max_entries: 5,
                key_size: 4,
                value_size: 8,
                copies: 1,
                dense: true,
            }),
            MapLayout::Lru(layout::LruLayout {
                max_entries: 5,
                key_size: 4,
                value_size: 8,
                copies: 132,
            }),
            MapLayout::Ring(layout::RingLayout::new(1 << 20, 4).with_wait(7)),
            MapLayout::Queue(layout::QueueLayout {
                max_entries: 7,
                value_size: 12,
                lifo: true,
            }),
            MapLayout::Hosted(layout::HostedLayout {
                max_entries: 3,
                key_size: 12,
                value_size: 20,
            }),
            MapLayout::Bloom(layout::BloomLayout {
                max_entries: 9,
                value_size: 4,
                hashes: 5,
            }),
            MapLayout::UserRing(layout::UserRingLayout { bytes: 8192 }),
            MapLayout::PerThread(layout::PerThreadLayout {
                max_entries: 1,
                value_size: 8,
                threads: 1 << 20,
            }),
        ];
        for layout in layouts {
            let mirror = Layout::from(layout);
            let text = serde_json::to_string(&mirror).unwrap();
            let back: Layout = serde_json::from_str(&text).unwrap();
            assert_eq!(MapLayout::from(back), layout);
        }
        let field = layout::SumField { offset: 8, size: 4 };
        assert_eq!(layout::SumField::from(SumField::from(field)), field);
    }
}
