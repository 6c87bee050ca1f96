//! Maps of maps: what is put in and taken out while programs look into them. Programs cannot change
//! such a map, so the host is the only one who does, and copies in the right order are enough
//! (`warpbpf_maps::inner`).

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::{EINVAL, EIO, MapType};
use warpbpf_maps::{MapView, inner};

use super::op::{Action, Answer, At, HostOp, answered, fail_all};
use super::state::HostOps;

impl HostOps {
    /// Operations on a map of maps, in their order.
    pub(super) fn outer(&mut self, at: &At<'_>, ops: &[HostOp]) -> Vec<Answer> {
        let mut bytes = vec![0; at.plan().bytes() as usize];
        if self.fetch(at, 0, &mut bytes).is_err() {
            return fail_all(ops, EIO);
        }
        let one = |op| self.on_outer(at, &mut bytes, op);
        ops.iter().map(one).collect()
    }

    fn on_outer(&mut self, at: &At<'_>, bytes: &mut [u8], op: &HostOp) -> Answer {
        let plan = at.plan();
        let look = |bytes: &[u8]| {
            let view = MapView::new(plan, bytes).map_err(|error| error.errno())?;
            answered(plan, view.lookup(&op.key))
        };
        let (given, writes) = match op.action {
            Action::Lookup => return look(bytes),
            Action::Update => {
                let map = named(at, &op.value)?;
                let stored = inner::store_live(plan, bytes, &op.key, map, op.flags);
                (Vec::new(), stored)
            }
            Action::Delete => (Vec::new(), warpbpf_maps::delete(plan, bytes, &op.key)),
            Action::LookupAndDelete => (look(bytes)?, warpbpf_maps::delete(plan, bytes, &op.key)),
            Action::Push | Action::Pop | Action::Peek | Action::Words => return Err(EINVAL),
        };
        for write in writes.map_err(|error| error.errno())? {
            self.write(at, write.offset, &write.bytes)?;
            let place = write.offset as usize;
            bytes[place..place + write.bytes.len()].copy_from_slice(&write.bytes);
        }
        Ok(given)
    }
}

/// The map that a value names, an index plus one, and where it lies. It must be like the declared
/// one: programs were proved for that.
fn named(at: &At<'_>, value: &[u8]) -> Result<(u32, u64), i64> {
    let value = value
        .try_into()
        .map(u32::from_le_bytes)
        .map_err(|_| EINVAL)?;
    let index = value.checked_sub(1).ok_or(EINVAL)? as usize;
    let defs = at.session.map_defs();
    let (def, base) = defs.get(index).zip(at.bases.get(index)).ok_or(EINVAL)?;
    inner::check(&defs[at.index], def).map_err(|_| EINVAL)?;
    // A map that a replacement brought may have copies where none that began with this one has.
    match at.session.maps()[index].layout {
        MapLayout::Array(l) if l.shards > 1 && def.map_type != MapType::PercpuArray as u32 => {
            Err(EINVAL)
        }
        _ => Ok((value, *base)),
    }
}
