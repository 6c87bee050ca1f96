//! Maps whose values have fixed places: read and written by copies of whole words, which go on
//! while kernels run.

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::{E2BIG, EINVAL, EIO, ENOENT, EPERM};
use warpbpf_driver::DriverError;
use warpbpf_maps::{MapPlan, MapView, merge, words};

use super::op::{Action, Answer, At, HostOp, flat};
use super::state::HostOps;
use crate::runtime::host_ops::Reduced;

impl HostOps {
    /// Operations on a map whose values have fixed places.
    pub(super) fn indexed(
        &mut self,
        at: &At<'_>,
        reduced: &Reduced,
        ops: &[HostOp],
    ) -> Vec<Answer> {
        let read_only = at.session.map_defs()[at.index].is_constant();
        let mut answers = Vec::with_capacity(ops.len());
        for op in ops {
            let plan = at.plan();
            let key: Option<[u8; 4]> = op.key.as_slice().try_into().ok();
            let inside = key
                .map(u32::from_le_bytes)
                .filter(|key| *key < plan.max_entries);
            answers.push(match (op.action, inside) {
                _ if key.is_none() => Err(EINVAL),
                (Action::Lookup, Some(key)) => self.read_value(at, reduced, key),
                (Action::Lookup, None) => Err(ENOENT),
                (Action::Update | Action::Words, _) if read_only => Err(EPERM),
                (Action::Update, Some(key)) => self.write_value(at, reduced, key, op),
                (Action::Words, Some(key)) => self.write_words(at, reduced, key, op),
                (Action::Update | Action::Words, None) => Err(E2BIG),
                (
                    Action::Delete
                    | Action::Push
                    | Action::Pop
                    | Action::Peek
                    | Action::LookupAndDelete,
                    _,
                ) => Err(EINVAL),
            });
        }
        answers
    }

    /// One copy, and none of a byte in between: the application's kernels may keep the copy engine
    /// busy.
    fn read_value(&mut self, at: &At<'_>, reduced: &Reduced, key: u32) -> Answer {
        let pieces = reduced.pieces(key);
        let mut bytes = vec![0; reduced.plan.bytes() as usize];
        let (first, last) = (
            pieces.first,
            pieces.first + pieces.stride * (pieces.count - 1),
        );
        let span = last + pieces.bytes - first;
        let copied = if at.in_host.is_none() && span <= self.values.bytes {
            self.stage(at, first, span).map(|staged| {
                for (i, to) in (0..pieces.count).zip(pieces.reduced(&reduced.plan)) {
                    let from = (i * pieces.stride) as usize;
                    let piece = &staged[from..from + pieces.bytes as usize];
                    bytes[to..to + piece.len()].copy_from_slice(piece);
                }
            })
        } else if at.in_host.is_none() && pieces.fits_rows(self.values.bytes) {
            self.stage_rows(at, &pieces).map(|staged| {
                let each = staged.chunks_exact(pieces.bytes as usize);
                for (piece, to) in each.zip(pieces.reduced(&reduced.plan)) {
                    bytes[to..to + piece.len()].copy_from_slice(piece);
                }
            })
        } else {
            let mut done = Ok(());
            for (i, to) in (0..pieces.count).zip(pieces.reduced(&reduced.plan)) {
                let from = first + i * pieces.stride;
                let into = &mut bytes[to..to + pieces.bytes as usize];
                done = done.and_then(|()| at.read(from, into, self.copies));
            }
            done
        };
        copied.map_err(|_| EIO)?;
        let view = MapView::new(&reduced.plan, &bytes).map_err(|error| error.errno())?;
        let value = view
            .lookup(&0u32.to_le_bytes())
            .map_err(|error| error.errno())?;
        value.map(|value| flat(&reduced.plan, value)).ok_or(ENOENT)
    }

    /// Copies bytes of a map into page-locked memory, by one copy.
    pub(super) fn stage(
        &mut self,
        at: &At<'_>,
        offset: u64,
        bytes: u64,
    ) -> Result<&[u8], DriverError> {
        // SAFETY: the span fits, and it is waited for below.
        unsafe {
            let into = self.values.pointer;
            at.driver
                .start_read(at.base() + offset, into, bytes, self.copies)?;
        }
        at.driver.wait(self.copies)?;
        // SAFETY: the copy has been waited for.
        Ok(unsafe { self.values.read(0, bytes) })
    }

    /// Copies all copies of a value into page-locked memory, by one copy.
    fn stage_rows(&mut self, at: &At<'_>, pieces: &Pieces) -> Result<&[u8], DriverError> {
        let (from, into) = (at.base() + pieces.first, self.values.pointer);
        let rows = (pieces.count, pieces.bytes);
        // SAFETY: the rows fit, and they are waited for below.
        unsafe {
            at.driver
                .start_read_rows((from, pieces.stride), into, rows, self.copies)?;
        }
        at.driver.wait(self.copies)?;
        // SAFETY: the copy has been waited for.
        Ok(unsafe { self.values.read(0, pieces.count * pieces.bytes) })
    }

    fn write_value(&mut self, at: &At<'_>, reduced: &Reduced, key: u32, op: &HostOp) -> Answer {
        for (offset, words) in reduced.writes(key, &op.value, op.flags)? {
            self.write(at, offset, &words)?;
        }
        Ok(Vec::new())
    }

    /// Some words of a value. What kernels count into the others meanwhile stays.
    fn write_words(&mut self, at: &At<'_>, reduced: &Reduced, key: u32, op: &HostOp) -> Answer {
        if merge::is_side_by_side(&reduced.plan) {
            return Err(EINVAL);
        }
        let size = reduced.plan.value_size as usize;
        let (value, marks) = words::unpack(&op.value, size).ok_or(EINVAL)?;
        let runs = words::runs(marks);
        for (offset, words) in reduced.writes(key, &value[..size], op.flags)? {
            for run in &runs {
                self.write(at, offset + run.start as u64, &words[run.clone()])?;
            }
        }
        Ok(Vec::new())
    }

    /// Copies whole words into a map.
    pub(super) fn write(&mut self, at: &At<'_>, offset: u64, words: &[u8]) -> Result<(), i64> {
        let to = at.base() + offset;
        let staged = words.len() as u64 <= self.values.bytes;
        let done = if staged {
            // SAFETY: every copy was waited for.
            unsafe { self.values.write(0, words) };
            // SAFETY: the copy is waited for before the memory is used again.
            let from = unsafe { self.values.read(0, words.len() as u64) };
            at.driver.write(to, from, self.copies)
        } else {
            at.driver.write(to, words, self.copies)
        };
        done.map_err(|_| EIO)
    }
}

/// Where the copies of one value lie.
#[derive(Debug, Clone, Copy)]
struct Pieces {
    first: u64,
    stride: u64,
    count: u64,
    /// Bytes of one, whole words.
    bytes: u64,
}

/// Rows may lie so far apart: what every device allows (`CU_DEVICE_ATTRIBUTE_MAX_PITCH`).
const MOST_APART: u64 = i32::MAX as u64;

impl Reduced {
    /// `None` for maps whose values have no fixed place.
    pub(super) fn new(plan: &MapPlan) -> Option<Reduced> {
        let layout = plan.layout;
        let reduced = match layout {
            MapLayout::Array(mut l) => {
                l.max_entries = 1;
                MapLayout::Array(l)
            }
            MapLayout::PerThread(mut l) => {
                l.max_entries = 1;
                MapLayout::PerThread(l)
            }
            _ => return None,
        };
        let plan = MapPlan {
            max_entries: 1,
            layout: reduced,
            image: Vec::new(),
            ..plan.clone()
        };
        Some(Reduced { layout, plan })
    }

    /// Where in the map which words have to stand for a value: each of its copies whole, from its
    /// first word on.
    fn writes(&self, key: u32, value: &[u8], flags: u64) -> Result<Vec<(u64, Vec<u8>)>, i64> {
        let bytes = vec![0; self.plan.bytes() as usize];
        let at_zero = 0u32.to_le_bytes();
        let writes = warpbpf_maps::update(&self.plan, &bytes, &at_zero, value, flags);
        let writes = writes.map_err(|error| error.errno())?;
        let pieces = self.pieces(key);
        let in_words = writes.into_iter().map(|write| {
            // Whole words, so that a lane sees the old one or the new one.
            let mut words = write.bytes;
            words.resize(words.len().next_multiple_of(8), 0);
            (pieces.original(&self.plan, write.offset), words)
        });
        Ok(in_words.collect())
    }

    fn pieces(&self, key: u32) -> Pieces {
        match self.layout {
            MapLayout::Array(l) => Pieces {
                first: l.value(0, key),
                stride: l.shard_stride(),
                count: u64::from(l.shards),
                bytes: l.value_stride(),
            },
            MapLayout::PerThread(l) => Pieces {
                first: l.value(key, 0),
                stride: 0,
                count: 1,
                bytes: l.threads * l.value_stride(),
            },
            // There is no such `Reduced`.
            _ => Pieces {
                first: 0,
                stride: 0,
                count: 0,
                bytes: 0,
            },
        }
    }
}

impl Pieces {
    /// They can be copied at once, into so many bytes.
    fn fits_rows(self, bytes: u64) -> bool {
        self.count > 1 && self.count * self.bytes <= bytes && self.stride <= MOST_APART
    }

    /// Where they lie in the reduced map.
    fn reduced(self, plan: &MapPlan) -> impl Iterator<Item = usize> + use<> {
        let (first, stride) = match plan.layout {
            MapLayout::Array(l) => (l.value(0, 0), l.shard_stride()),
            MapLayout::PerThread(l) => (l.value(0, 0), 0),
            _ => (0, 0),
        };
        (0..self.count).map(move |i| (first + i * stride) as usize)
    }

    /// Where a value of the reduced map lies in the map itself.
    fn original(self, plan: &MapPlan, offset: u64) -> u64 {
        match plan.layout {
            MapLayout::Array(l) => self.first + offset / l.shard_stride() * self.stride,
            _ => self.first,
        }
    }
}
