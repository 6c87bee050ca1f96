//! Copies and fills that are too long to be written out one instruction after the other: loops over
//! pieces. What is that long does not lie on a stack, which has 512 bytes, so both sides are
//! addresses.

use warpbpf_ebpf::Width;
use warpbpf_verify::Place;

use super::spot::Spot;
use super::translator::Translator;
use crate::error::CodegenError;
use crate::ir::{BinOp, Cond, Edge, Term, Ty, Value};

/// Whether the two sides of a copy may share bytes without being the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Overlap {
    /// They may not.
    Never,
    /// They may: the result is as if all had been read before anything was written.
    Possible,
}

impl Translator<'_> {
    /// Copies `size` bytes.
    pub(super) fn copy_long(
        &mut self,
        from: Spot,
        to: Spot,
        size: u64,
        overlap: Overlap,
    ) -> Result<(), CodegenError> {
        let width = piece(from.place.alignment().min(to.place.alignment()));
        let step = u64::from(width.bytes());
        let (rest, looped) = (size % step, size - size % step);
        // The last bytes are read before and written behind the loop, so that it touches only whole
        // pieces.
        let (from_rest, to_rest) = (self.further(from, looped), self.further(to, looped));
        let words = self.load_words(from_rest, rest)?;
        let (from, to) = (self.anywhere(from, step), self.anywhere(to, step));
        let end = self.constant(looped);
        self.copy_pieces(from, to, width, end, overlap)?;
        self.store_words(to_rest, rest, &words)
    }

    /// Copies `size` bytes, a number that is only known as it runs, one by one. Both sides are in
    /// memory: nothing is known of where on a stack they are.
    pub(super) fn copy_bytes(
        &mut self,
        from: Spot,
        to: Spot,
        size: Value,
    ) -> Result<(), CodegenError> {
        let (from, to) = (self.anywhere(from, 1), self.anywhere(to, 1));
        self.copy_pieces(from, to, Width::W8, size, Overlap::Possible)
    }

    /// Copies pieces until `end` bytes are copied. Where the target begins behind the source and
    /// they may overlap, the last piece goes first.
    fn copy_pieces(
        &mut self,
        from: Spot,
        to: Spot,
        width: Width,
        end: Value,
        overlap: Overlap,
    ) -> Result<(), CodegenError> {
        let step = u64::from(width.bytes());
        let backwards =
            (overlap == Overlap::Possible).then(|| self.cmp(Cond::Ugt, to.pointer, from.pointer));
        self.each_piece(end, step, |t, at| {
            let at = match backwards {
                None => at,
                Some(backwards) => {
                    let last = t.bin_const(BinOp::Sub, end, step);
                    let other = t.bin(BinOp::Sub, last, at);
                    t.select(backwards, other, at)
                }
            };
            let spot = t.moved(from, at);
            let value = t.load(spot, width, false, false)?;
            let spot = t.moved(to, at);
            t.store(spot, width, value, false)
        })
    }

    /// Fills `size` bytes with zeros.
    pub(super) fn zero_long(&mut self, to: Spot, size: u64) -> Result<(), CodegenError> {
        let width = piece(to.place.alignment());
        let step = u64::from(width.bytes());
        let (rest, looped) = (size % step, size - size % step);
        let zero = self.constant(0);
        let to_rest = self.further(to, looped);
        let to = self.anywhere(to, step);
        let end = self.constant(looped);
        self.each_piece(end, step, |t, at| {
            let spot = t.moved(to, at);
            t.store(spot, width, zero, false)
        })?;
        self.store_words(to_rest, rest, &[zero])
    }

    /// Fills the bytes from offset `start` to below `end` with zeros, one by one.
    pub(super) fn zero_from(
        &mut self,
        to: Spot,
        start: Value,
        end: Value,
    ) -> Result<(), CodegenError> {
        let to = self.anywhere(to, 1);
        let zero = self.constant(0);
        self.each_piece_from(start, end, 1, |t, at| {
            let spot = t.moved(to, at);
            t.store(spot, Width::W8, zero, false)
        })
    }

    /// How many bytes come before the first zero byte, at most `most`.
    pub(super) fn bytes_before_nul(
        &mut self,
        from: Spot,
        most: Value,
    ) -> Result<Value, CodegenError> {
        let from = self.anywhere(from, 1);
        let [head, look, more, after] = [(); 4].map(|()| self.func.add_block());
        let at = self.func.add_param(head, Ty::B64);
        let zero = self.constant(0);
        self.jump(head, vec![zero]);
        self.at = head;
        let done = self.cmp(Cond::Uge, at, most);
        self.branch(done, after, look);
        self.at = look;
        let spot = self.moved(from, at);
        let byte = self.load(spot, Width::W8, false, false)?;
        let ends = self.cmp_const(Cond::Eq, byte, 0);
        self.branch(ends, after, more);
        self.at = more;
        let next = self.bin_const(BinOp::Add, at, 1);
        self.jump(head, vec![next]);
        self.at = after;
        Ok(at)
    }

    /// A loop with an offset from 0 to below `end`, in steps.
    fn each_piece(
        &mut self,
        end: Value,
        step: u64,
        body: impl FnOnce(&mut Self, Value) -> Result<(), CodegenError>,
    ) -> Result<(), CodegenError> {
        let zero = self.constant(0);
        self.each_piece_from(zero, end, step, body)
    }

    /// A loop with an offset from `start` to below `end`, in steps.
    fn each_piece_from(
        &mut self,
        start: Value,
        end: Value,
        step: u64,
        body: impl FnOnce(&mut Self, Value) -> Result<(), CodegenError>,
    ) -> Result<(), CodegenError> {
        let (head, round, after) = (
            self.func.add_block(),
            self.func.add_block(),
            self.func.add_block(),
        );
        let at = self.func.add_param(head, Ty::B64);
        self.jump(head, vec![start]);
        self.at = head;
        let done = self.cmp(Cond::Uge, at, end);
        self.branch(done, after, round);
        self.at = round;
        body(self, at)?;
        let next = self.bin_const(BinOp::Add, at, step);
        self.end(Term::Jump(Edge {
            to: head,
            args: vec![next],
        }));
        self.at = after;
        Ok(())
    }

    /// The spot at an offset that is only known as it runs, a multiple of what the spot is aligned
    /// to.
    fn moved(&mut self, spot: Spot, at: Value) -> Spot {
        let pointer = self.bin(BinOp::Add, spot.pointer, at);
        Spot { pointer, ..spot }
    }

    /// The spot, of which nothing is known but that it is a multiple of `align`; its pointer is all
    /// of its address.
    fn anywhere(&mut self, spot: Spot, align: u64) -> Spot {
        Spot {
            place: Place {
                offset: None,
                align: align as u32,
                ..spot.place
            },
            pointer: self.whole_pointer(spot),
            off: 0,
        }
    }

    /// The spot `bytes` further on, however far that is.
    pub(super) fn further(&mut self, spot: Spot, bytes: u64) -> Spot {
        let aligned = 1 << (bytes | 8).trailing_zeros();
        let pointer = self.whole_pointer(spot);
        Spot {
            place: Place {
                region: spot.place.region,
                offset: spot
                    .place
                    .offset
                    .map(|at| at.saturating_add_unsigned(bytes)),
                align: spot.place.align.min(aligned),
            },
            pointer: self.bin_const(BinOp::Add, pointer, bytes),
            off: 0,
        }
    }

    fn whole_pointer(&mut self, spot: Spot) -> Value {
        match spot.off {
            0 => spot.pointer,
            off => self.bin_const(BinOp::Add, spot.pointer, i64::from(off) as u64),
        }
    }
}

/// The width of so many bytes.
fn piece(align: u64) -> Width {
    match align {
        8 => Width::W64,
        4 => Width::W32,
        2 => Width::W16,
        _ => Width::W8,
    }
}
