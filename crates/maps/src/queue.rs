//! QUEUE and STACK: nodes whose numbers stand in rings of cells or in a list, as `QueueLayout`
//! tells it. The host reads any snapshot, and pushes and pops while no kernel runs.

use warpbpf_abi::layout::{MapLayout, QueueLayout};
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, MapType};
use warpbpf_object::MapDef;

use crate::bytes::{slice, u32_at, u64_at};
use crate::checks::{check_bytes, check_filled, stride};
use crate::error::{AccessError, MapError};
use crate::map_plan::{MapPlan, Write};

pub(crate) fn plan(def: &MapDef, map_type: MapType, plan: &mut MapPlan) -> Result<(), MapError> {
    check_keyless(def, map_type)?;
    let lifo = map_type == MapType::Stack;
    let entries = u128::from(def.max_entries);
    let cells = (entries * 2 + 2).next_power_of_two().max(256) * 8;
    let lists = if lifo {
        cells + entries * u128::from(QueueLayout::LINK_BYTES)
    } else {
        cells * 2
    };
    let bytes = entries * stride(def.value_size) + lists + entries / 8 + 2048;
    let what = || {
        format!(
            "`max_entries` {} x value of {} bytes",
            def.max_entries, def.value_size
        )
    };
    check_bytes(def, what, bytes, "lower `max_entries` or `value_size`")?;
    if def.max_entries > QueueLayout::MAX_ENTRIES {
        return Err(MapError::TooLarge {
            map: def.name.clone(),
            what: what(),
            bytes,
            limit: crate::map_plan::MAX_BYTES,
            advice: "lower `max_entries` to 2^30 at most",
        });
    }
    plan.layout = MapLayout::Queue(QueueLayout {
        max_entries: def.max_entries,
        value_size: def.value_size,
        lifo,
    });
    Ok(())
}

/// No key, some entries, a value.
pub(crate) fn check_keyless(def: &MapDef, map_type: MapType) -> Result<(), MapError> {
    if def.key_size != 0 {
        return Err(MapError::KeySize {
            map: def.name.clone(),
            map_type: map_type.name(),
            found: def.key_size,
            wanted: "0 (it has no keys)",
        });
    }
    check_filled(def, map_type)
}

/// A ring of cells in a snapshot.
struct Ring<'a> {
    layout: &'a QueueLayout,
    bytes: &'a [u8],
    /// Where `HEAD` is.
    tickets: u64,
    /// Where the first cell is.
    cells: u64,
}

impl<'a> Ring<'a> {
    fn free(layout: &'a QueueLayout, bytes: &'a [u8]) -> Ring<'a> {
        Ring {
            layout,
            bytes,
            tickets: QueueLayout::FREE,
            cells: QueueLayout::CELLS,
        }
    }

    fn values(layout: &'a QueueLayout, bytes: &'a [u8]) -> Ring<'a> {
        Ring {
            layout,
            bytes,
            tickets: QueueLayout::VALUES,
            cells: layout.values_at(),
        }
    }

    fn head(&self) -> u64 {
        u64_at(self.bytes, self.tickets)
    }

    fn cell_at(&self, ticket: u64) -> u64 {
        self.cells + (ticket & (self.layout.cells() - 1)) * 8
    }

    /// Tickets with nodes, in order.
    fn nodes(&self) -> Vec<(u64, u64)> {
        let layout = self.layout;
        let mut found: Vec<(u64, u64)> = (0..layout.cells())
            .filter_map(|cell| {
                let word = u64_at(self.bytes, self.cells + cell * 8);
                let node = (word & layout.node_mask()).checked_sub(1)?;
                let cycle = word & !(layout.cells() - 1);
                let ticket = cycle.checked_sub(layout.cells())? + cell;
                (node < u64::from(layout.max_entries) && ticket >= self.head())
                    .then_some((ticket, node))
            })
            .collect();
        found.sort_unstable();
        found
    }

    /// The writes that put a node behind all others.
    fn put(&self, node: u64) -> Vec<Write> {
        let tail = u64_at(self.bytes, self.tickets + QueueLayout::TAIL);
        let mut ticket = tail.max(self.head());
        // Every second cell is empty at least, so this ends.
        while u64_at(self.bytes, self.cell_at(ticket)) & self.layout.node_mask() != 0 {
            ticket += 1;
        }
        vec![
            word(self.cell_at(ticket), self.layout.cycle(ticket) | (node + 1)),
            word(self.tickets + QueueLayout::TAIL, ticket + 1),
        ]
    }

    /// The first node, and the writes that take it out.
    fn take(&self) -> Option<(u64, Vec<Write>)> {
        let (ticket, node) = self.nodes().first().copied()?;
        let at = self.cell_at(ticket);
        let empty = u64_at(self.bytes, at) & !self.layout.node_mask();
        Some((node, vec![word(at, empty), word(self.tickets, ticket + 1)]))
    }
}

fn word(offset: u64, value: u64) -> Write {
    Write {
        offset,
        bytes: value.to_le_bytes().to_vec(),
    }
}

/// The values: of a queue the oldest first, of a stack the newest.
pub(crate) fn values<'a>(layout: &QueueLayout, bytes: &'a [u8]) -> Vec<&'a [u8]> {
    let nodes: Vec<u64> = if layout.lifo {
        stacked(layout, bytes)
    } else {
        let ring = Ring::values(layout, bytes);
        ring.nodes().into_iter().map(|(_, node)| node).collect()
    };
    nodes
        .into_iter()
        .map(|node| value(layout, bytes, node))
        .collect()
}

fn value<'a>(layout: &QueueLayout, bytes: &'a [u8], node: u64) -> &'a [u8] {
    slice(bytes, layout.node(node), u64::from(layout.value_size))
}

/// A stack's nodes from its top on. A list that does not end within the nodes was changed while it
/// was copied.
fn stacked(layout: &QueueLayout, bytes: &[u8]) -> Vec<u64> {
    let mut nodes = Vec::new();
    let mut next = u64_at(bytes, QueueLayout::VALUES) & 0xffff_ffff;
    while let Some(node) = next.checked_sub(1)
        && node < u64::from(layout.max_entries)
        && nodes.len() < layout.max_entries as usize
    {
        nodes.push(node);
        next = u64::from(u32_at(bytes, layout.link(node) + QueueLayout::BELOW));
    }
    nodes
}

/// The value that a pop would take.
pub(crate) fn peek<'a>(layout: &QueueLayout, bytes: &'a [u8]) -> Option<&'a [u8]> {
    values(layout, bytes).first().copied()
}

/// Pushes refused because the map was full, and operations given up because a bound was reached.
pub(crate) fn counters(bytes: &[u8]) -> (u64, u64) {
    (
        u64_at(bytes, QueueLayout::COUNT_FULL),
        u64_at(bytes, QueueLayout::COUNT_BUSY),
    )
}

/// The writes that push a value in a quiet map.
pub(crate) fn push(
    plan: &MapPlan,
    layout: &QueueLayout,
    bytes: &[u8],
    value: &[u8],
    flags: u64,
) -> Result<Vec<Write>, AccessError> {
    if flags != BPF_ANY && flags != BPF_EXIST {
        return Err(AccessError::Unsupported {
            map: plan.name.clone(),
            map_type: plan.map_type.name(),
            what: format!("a push with flags {flags:#x}"),
        });
    }
    let overwrites = flags == BPF_EXIST && !layout.lifo;
    let taken = node_for_push(layout, bytes).or_else(|| {
        overwrites
            .then(|| Ring::values(layout, bytes).take())
            .flatten()
    });
    let Some((node, mut writes)) = taken else {
        return Err(AccessError::Full {
            map: plan.name.clone(),
            why: format!("`max_entries` is {}", layout.max_entries),
        });
    };
    writes.push(Write {
        offset: layout.node(node),
        bytes: value.to_vec(),
    });
    if layout.lifo {
        let top = u64_at(bytes, QueueLayout::VALUES);
        // A run of its own.
        let link = [
            (QueueLayout::BELOW, top as u32),
            (QueueLayout::BELOW_RUN, top as u32),
            (QueueLayout::LEFT, 1),
        ];
        writes.extend(link.map(|(at, value)| Write {
            offset: layout.link(node) + at,
            bytes: value.to_le_bytes().to_vec(),
        }));
        writes.push(word(QueueLayout::VALUES, newer(top) | (node + 1)));
    } else {
        writes.extend(Ring::values(layout, bytes).put(node));
    }
    Ok(writes)
}

/// The next version of a stack's top, without a node.
fn newer(top: u64) -> u64 {
    ((top >> 32).wrapping_add(1)) << 32
}

/// A node that holds nothing, and the writes that take it.
fn node_for_push(layout: &QueueLayout, bytes: &[u8]) -> Option<(u64, Vec<Write>)> {
    let next = u32_at(bytes, QueueLayout::NEXT_NODE);
    if next < layout.max_entries {
        let write = Write {
            offset: QueueLayout::NEXT_NODE,
            bytes: (next + 1).to_le_bytes().to_vec(),
        };
        return Some((u64::from(next), vec![write]));
    }
    Ring::free(layout, bytes)
        .take()
        .or_else(|| spare(layout, bytes))
}

fn spare(layout: &QueueLayout, bytes: &[u8]) -> Option<(u64, Vec<Write>)> {
    (0..layout.spare_words()).find_map(|index| {
        let at = layout.spare_at() + index * 4;
        let free = u32_at(bytes, at);
        let bit = free.trailing_zeros();
        let rest = free.checked_sub(1)? & free;
        let left = u32_at(bytes, QueueLayout::SPARES).wrapping_sub(1);
        let write = |offset, value: u32| Write {
            offset,
            bytes: value.to_le_bytes().to_vec(),
        };
        Some((
            index * 32 + u64::from(bit),
            vec![write(at, rest), write(QueueLayout::SPARES, left)],
        ))
    })
}

/// The value that comes out next, and the writes that take it out of a quiet map.
pub(crate) fn pop(layout: &QueueLayout, bytes: &[u8]) -> Option<(Vec<u8>, Vec<Write>)> {
    let (node, mut writes) = if layout.lifo {
        let top = u64_at(bytes, QueueLayout::VALUES);
        let node = stacked(layout, bytes).first().copied()?;
        let below = u32_at(bytes, layout.link(node) + QueueLayout::BELOW);
        (
            node,
            vec![word(QueueLayout::VALUES, newer(top) | u64::from(below))],
        )
    } else {
        Ring::values(layout, bytes).take()?
    };
    writes.extend(Ring::free(layout, bytes).put(node));
    Some((value(layout, bytes, node).to_vec(), writes))
}
