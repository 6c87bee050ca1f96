//! A frame of 512 bytes: which bytes were written, and what is known of what was.
//!
//! A cell is a value written by one store. Cells do not overlap; a byte that was written but lies
//! in no cell holds an unknown number. A pointer is only ever stored whole, in an aligned 8-byte
//! cell.

use super::pointer::Value;
use super::scalar::Scalar;
use warpbpf_ebpf::AluOp;

/// Bytes of a frame, as in Linux.
pub const FRAME_BYTES: i64 = 512;

/// One function's stack. Offsets are from the frame pointer: -512 to -1.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stack {
    written: [u64; 8],
    /// By offset.
    cells: Vec<Cell>,
}

/// A stored value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// Where it starts.
    pub offset: i16,
    /// Its bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// A number of `size` bytes, zero-extended, or a pointer.
    pub value: Value,
}

impl Cell {
    fn is_at(&self, other: &Cell) -> bool {
        (self.offset, self.size) == (other.offset, other.size)
    }

    fn end(&self) -> i64 {
        i64::from(self.offset) + i64::from(self.size)
    }
}

/// Why bytes cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// The byte at this offset was never written.
    Unwritten(i64),
    /// They are part of the pointer stored at this offset.
    Pointer(i64),
}

impl Stack {
    fn bit(offset: i64) -> (usize, u64) {
        let at = (offset + FRAME_BYTES) as usize;
        (at / 64, 1 << (at % 64))
    }

    /// The byte at `offset`, which is inside the frame, was written.
    pub fn is_written(&self, offset: i64) -> bool {
        let (word, bit) = Stack::bit(offset);
        self.written[word] & bit != 0
    }

    /// The values stored, by offset.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter()
    }

    /// Offset and size of each cell, in the order of [`values_mut`](Self::values_mut).
    pub fn places(&self) -> impl Iterator<Item = (i16, u8)> + '_ {
        self.cells.iter().map(|c| (c.offset, c.size))
    }

    /// The cells, to change their values (not their places).
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.cells.iter_mut().map(|c| &mut c.value)
    }

    fn overlapping(&self, start: i64, end: i64) -> impl Iterator<Item = &Cell> {
        let first = self.cells.partition_point(|c| c.end() <= start);
        self.cells[first..]
            .iter()
            .take_while(move |c| i64::from(c.offset) < end)
    }

    /// How many values are stored.
    pub fn count(&self) -> usize {
        self.cells.len()
    }

    /// Takes the values of the bytes `start..end` away: they stay written, with unknown numbers,
    /// except that what was part of a pointer may not be read any more. The caller checks that they
    /// are inside the frame.
    pub fn forget(&mut self, start: i64, end: i64) {
        let mut pointers = Vec::new();
        self.cells.retain(|c| {
            let hit = i64::from(c.offset) < end && start < c.end();
            if hit && matches!(c.value, Value::Pointer(_) | Value::Nothing(_)) {
                pointers.push((i64::from(c.offset), c.end()));
            }
            !hit
        });
        for (from, to) in pointers {
            for offset in from..to {
                let (word, bit) = Stack::bit(offset);
                self.written[word] &= !bit;
            }
        }
    }

    /// The bytes `start..end` hold nothing any more.
    pub fn unwrite(&mut self, start: i64, end: i64) {
        self.forget(start, end);
        for at in start..end {
            let (word, bit) = Stack::bit(at);
            self.written[word] &= !bit;
        }
    }

    /// Stores `value` in the `size` bytes at `offset`.
    pub fn write(&mut self, offset: i64, size: u32, value: Value) {
        self.forget(offset, offset + i64::from(size));
        self.mark_written(offset, size);
        let cell = Cell {
            offset: offset as i16,
            size: size as u8,
            value,
        };
        let at = self.cells.partition_point(|c| c.offset < cell.offset);
        self.cells.insert(at, cell);
    }

    /// The bytes hold unknown numbers now.
    pub fn write_unknown(&mut self, offset: i64, size: u32) {
        self.forget(offset, offset + i64::from(size));
        self.mark_written(offset, size);
    }

    fn mark_written(&mut self, offset: i64, size: u32) {
        for at in offset..offset + i64::from(size) {
            let (word, bit) = Stack::bit(at);
            self.written[word] |= bit;
        }
    }

    /// Some aligned `size` bytes inside `start..end` are overwritten, which ones is not known.
    pub fn write_somewhere(&mut self, start: i64, end: i64) {
        self.forget(start, end);
    }

    /// What the `size` bytes at `offset` hold: a number of that many bytes, zero-extended, or a
    /// pointer.
    pub fn read(&self, offset: i64, size: u32) -> Result<Value, Unreadable> {
        let end = offset + i64::from(size);
        for cell in self.overlapping(offset, end) {
            let inside = i64::from(cell.offset) <= offset && end <= cell.end();
            let whole = i64::from(cell.offset) == offset && end == cell.end();
            match cell.value {
                value if whole => return Ok(value),
                Value::Pointer(_) | Value::Nothing(_) => {
                    return Err(Unreadable::Pointer(i64::from(cell.offset)));
                }
                // Its low bytes are all that there is.
                Value::Number { scalar, .. }
                    if i64::from(cell.offset) == offset
                        && inside
                        && scalar.u64.max <= u64::MAX >> (64 - size * 8) =>
                {
                    return Ok(cell.value);
                }
                Value::Number { scalar, .. } if inside => {
                    let shift = Scalar::constant((offset - i64::from(cell.offset)) as u64 * 8);
                    let shifted = Scalar::alu(AluOp::Rsh, true, &scalar, &shift);
                    return Ok(Value::number(shifted.zero_extend(size * 8)));
                }
                Value::Number { .. } => {}
            }
        }
        self.readable(offset, end)?;
        Ok(Value::number(Scalar::loaded(size * 8, false)))
    }

    /// All bytes of `start..end` can be read as numbers.
    pub fn readable(&self, start: i64, end: i64) -> Result<(), Unreadable> {
        if let Some(at) = (start..end).find(|&at| !self.is_written(at)) {
            return Err(Unreadable::Unwritten(at));
        }
        match self
            .overlapping(start, end)
            .find(|c| c.value.scalar().is_none())
        {
            Some(cell) => Err(Unreadable::Pointer(i64::from(cell.offset))),
            None => Ok(()),
        }
    }

    /// The bytes from `start` on, before the first NUL and before `end`, and whether there is a
    /// NUL: bytes that are the same in all that this state stands for.
    ///
    /// # Errors
    /// The offset of the first byte that is not known.
    pub fn constant_string(&self, start: i64, end: i64) -> Result<(Vec<u8>, bool), i64> {
        let mut text = Vec::new();
        for at in start..end {
            match self.constant_byte(at).ok_or(at)? {
                0 => return Ok((text, true)),
                byte => text.push(byte),
            }
        }
        Ok((text, false))
    }

    fn constant_byte(&self, at: i64) -> Option<u8> {
        let cell = self.overlapping(at, at + 1).next()?;
        let bits = cell.value.scalar()?.bits;
        let shift = (at - i64::from(cell.offset)) as u32 * 8;
        (bits.mask >> shift & 0xff == 0).then_some((bits.value >> shift) as u8)
    }

    /// What can be read here is a superset of what can be read from `other`; `value_covers`
    /// compares two values.
    pub fn covers(
        &self,
        other: &Stack,
        mut value_covers: impl FnMut(&Value, &Value) -> bool,
    ) -> bool {
        // Every byte that may be read here can be read there.
        if self
            .written
            .iter()
            .zip(&other.written)
            .any(|(a, b)| a & !b != 0)
        {
            return false;
        }
        // Both lists are sorted: states that meet mostly have the same cells, which are found
        // without a search.
        let mut theirs = other.cells.iter().peekable();
        let known = self.cells.iter().all(|c| {
            while theirs.next_if(|their| their.offset < c.offset).is_some() {}
            match (c.value, theirs.peek()) {
                (Value::Nothing(_), _) => true,
                (value, Some(their)) if their.is_at(c) => value_covers(&value, &their.value),
                (value, _) => other
                    .read(i64::from(c.offset), u32::from(c.size))
                    .is_ok_and(|v| value_covers(&value, &v)),
            }
        });
        // What is an unknown number here must not be a pointer there.
        let mut mine = self.cells.iter().peekable();
        known
            && other.cells.iter().all(|c| {
                while mine.next_if(|mine| mine.offset < c.offset).is_some() {}
                c.value.scalar().is_some()
                    || mine.peek().is_some_and(|mine| mine.is_at(c))
                    || (i64::from(c.offset)..c.end()).all(|at| !self.is_written(at))
            })
    }
}
