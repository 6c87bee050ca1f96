//! Strings: comparisons with constant ones, strings of the application, and texts that are made on
//! the device. Formats are known here, so that a text is a sequence of calls, one for each piece of
//! the format.

use warpbpf_abi::access::Space;
use warpbpf_abi::costs::WRITTEN_OUT_BYTES;
use warpbpf_abi::format::{Conversion, Piece, Spec, pieces};
use warpbpf_abi::layout::{env, slot};
use warpbpf_ebpf::Width;
use warpbpf_verify::{ArgFact, CallFact};

use super::spot::Spot;
use super::translator::Translator;
use crate::error::CodegenError;
use crate::ir::{BinOp, Cond, FenceOp, Mem, Op, TextOp, Ty, UnOp, Value};
use crate::text::Number;

/// Where a text is made, and how long it is so far.
struct Buffer {
    mem: Mem,
    address: Value,
    room: Value,
    /// Most that `room` can be.
    most: u64,
    at: Value,
}

impl<'a> Translator<'a> {
    /// Words are compared from the last to the first, so that the first difference decides. Bytes
    /// of a word are in the order of their weight once they are swapped.
    pub(super) fn strncmp(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let Some(text) = &call.text else {
            return self.missing("a constant string");
        };
        let spot = self.pointer_arg(call, 0)?;
        let (known, most) = self.size_arg(call, 1)?;
        let size = self.arg(1);
        // No byte behind the constant string's NUL decides.
        let bytes = most.min(text.len() as u64 + 1);
        let words = self.load_words(spot, bytes)?;
        let mut result = self.constant(0);
        let (less, more) = (self.constant(u64::MAX), self.constant(1));
        for (i, &word) in words.iter().enumerate().rev() {
            let start = i * 8;
            let mut constant = [0; 8];
            let end = text.len().min(start + 8).min(bytes as usize);
            if let (Some(part), Some(to)) = (
                text.get(start..end),
                constant.get_mut(..end.saturating_sub(start)),
            ) {
                to.copy_from_slice(part);
            }
            let mut other = self.constant(u64::from_le_bytes(constant));
            let mut word = word;
            if known.is_none() {
                // Bytes from `size` on do not count: of this word, those of the mask do.
                let start = start as u64;
                let left = self.bin_const(BinOp::Sub, size, start);
                let eight = self.constant(8);
                let left = self.bin(BinOp::UMin, left, eight);
                let unused = self.bin(BinOp::Sub, eight, left);
                let bits = self.bin_const(BinOp::Mul, unused, 8);
                let bits = self.trunc(bits);
                let all = self.constant(u64::MAX);
                let mask = self.bin(BinOp::Shr, all, bits);
                let none = self.constant(0);
                let outside = self.cmp_const(Cond::Ule, size, start);
                let mask = self.select(outside, none, mask);
                word = self.bin(BinOp::And, word, mask);
                other = self.bin(BinOp::And, other, mask);
            }
            let (a, b) = (
                self.push(Ty::B64, Op::Un(UnOp::Swap64, word)),
                self.push(Ty::B64, Op::Un(UnOp::Swap64, other)),
            );
            let (differ, below) = (self.cmp(Cond::Ne, a, b), self.cmp(Cond::Ult, a, b));
            let sign = self.select(below, less, more);
            result = self.select(differ, sign, result);
        }
        Ok(result)
    }

    /// `bpf_probe_read_str` and its like.
    pub(super) fn application_string(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let to = self.pointer_arg(call, 0)?;
        if call.own_source().is_some() {
            let from = self.pointer_arg(call, 2)?;
            return match self.size_arg(call, 1)? {
                (Some(0), _) => Ok(self.constant(0)),
                (Some(bytes), _) if bytes <= WRITTEN_OUT_BYTES => {
                    self.own_string_written_out(from, to, bytes)
                }
                _ => self.own_string(from, to),
            };
        }
        let (size, from) = (self.arg(1), self.arg(2));
        let (mem, address) = self.buffer_of(to)?;
        let (fence, reader) = self.enter_fence();
        let lives = self.living(fence, from, size);
        let result = self.push(
            Ty::B64,
            Op::Text {
                op: TextOp::Read,
                mem,
                args: vec![address, from, lives, size],
            },
        );
        self.leave_fence(reader);
        Ok(result)
    }

    /// Copies a string of the program's own memory through registers: of each word, the bytes
    /// before the first NUL. The last of all bytes is a NUL in any case.
    fn own_string_written_out(
        &mut self,
        from: Spot,
        to: Spot,
        bytes: u64,
    ) -> Result<Value, CodegenError> {
        let mut words = self.load_words(from, bytes)?;
        let last = (bytes - 1) % 8;
        if let Some(word) = words.last_mut() {
            *word = self.bin_const(BinOp::And, *word, (1 << (last * 8)) - 1);
        }
        let none = self.constant(0);
        // All bits as long as there was no NUL.
        let mut goes_on = self.constant(u64::MAX);
        let mut lengths = Vec::new();
        for (i, word) in words.iter_mut().enumerate() {
            let (before, end) = self.until_nul(*word);
            let kept = self.bin(BinOp::And, *word, before);
            *word = self.bin(BinOp::And, kept, goes_on);
            let found = self.cmp_const(Cond::Ne, end, 0);
            goes_on = self.select(found, none, goes_on);
            // The highest byte of the product is which byte it is, counted from 1.
            let unit = self.bin_const(BinOp::Shr, end, 7);
            let product = self.bin_const(BinOp::Mul, unit, 0x0102_0304_0506_0708);
            let place = self.bin_const(BinOp::Shr, product, 56);
            lengths.push((found, self.bin_const(BinOp::Add, place, i as u64 * 8)));
        }
        let mut result = none;
        for (found, length) in lengths.into_iter().rev() {
            result = self.select(found, length, result);
        }
        self.store_words(to, bytes, &words)?;
        Ok(result)
    }

    /// The bits of the bytes before the first zero byte of a word, and the highest bit of that
    /// byte: all bits that matter, and 0, if there is none.
    fn until_nul(&mut self, word: Value) -> (Value, Value) {
        const LOW: u64 = 0x0101_0101_0101_0101;
        let less = self.bin_const(BinOp::Sub, word, LOW);
        let unset = self.bin_const(BinOp::Xor, word, u64::MAX);
        let borrowed = self.bin(BinOp::And, less, unset);
        // Right for the first zero byte, which is all that is asked for.
        let zeros = self.bin_const(BinOp::And, borrowed, LOW << 7);
        let below = self.bin_const(BinOp::Sub, zeros, 1);
        let rest = self.bin(BinOp::And, zeros, below);
        let first = self.bin(BinOp::Xor, zeros, rest);
        (self.bin_const(BinOp::Sub, first, 1), first)
    }

    /// The same in loops, for what is long or of a size that is only known as it runs: one looks
    /// for the NUL, one copies what is before it, one zeroes the rest. If another thread shortens
    /// the string in between, the copy is as short, and the result is not.
    fn own_string(&mut self, from: Spot, to: Spot) -> Result<Value, CodegenError> {
        let size = self.arg(1);
        let none = self.constant(0);
        let is_empty = self.cmp_const(Cond::Eq, size, 0);
        let less = self.bin_const(BinOp::Sub, size, 1);
        let most = self.select(is_empty, none, less);
        let length = self.bytes_before_nul(from, most)?;
        self.copy_bytes(from, to, length)?;
        self.zero_from(to, length, size)?;
        let with_nul = self.bin_const(BinOp::Add, length, 1);
        Ok(self.select(is_empty, none, with_nul))
    }

    /// `bpf_snprintf`: the length with the NUL.
    pub(super) fn snprintf(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let Some(format) = &call.text else {
            return self.missing("a constant format");
        };
        let to = self.pointer_arg(call, 0)?;
        let (_, most) = self.size_arg(call, 1)?;
        // The values are read before anything is written: they may lie in the buffer.
        let mut values = self.format_values(call, 3)?.into_iter();
        let (mem, address) = self.buffer_of(to)?;
        let mut buffer = Buffer {
            mem,
            address,
            room: self.arg(1),
            most,
            at: self.constant(0),
        };
        for piece in pieces(format) {
            match piece {
                Piece::Text(text) => self.put(&mut buffer, text),
                Piece::Value { spec, .. } => {
                    let Some(value) = values.next() else {
                        return self.missing("a value of the format");
                    };
                    self.put_value(&mut buffer, &spec, value);
                }
                Piece::Refused { .. } => return self.missing("a conversion that is served"),
            }
        }
        let args = vec![buffer.address, buffer.room, buffer.at];
        self.push_effect(Op::Text {
            op: TextOp::End,
            mem,
            args,
        });
        Ok(self.bin_const(BinOp::Add, buffer.at, 1))
    }

    /// The values of a format in the memory of argument `i`.
    pub(super) fn format_values(
        &mut self,
        call: &CallFact,
        i: usize,
    ) -> Result<Vec<Value>, CodegenError> {
        if call.args[i] == ArgFact::Unused {
            return Ok(Vec::new());
        }
        // There may be more of them than the format has, and how many more may depend on the path.
        let count = call.text.as_deref().map_or(0, |text| {
            let is_value = |piece: &Piece<'_>| matches!(piece, Piece::Value { .. });
            pieces(text).filter(is_value).count() as i64
        });
        let spot = self.pointer_arg(call, i)?;
        let mut values = (0..count)
            .map(|n| self.load(spot.plus(n * 8), Width::W64, false, false))
            .collect::<Result<Vec<Value>, CodegenError>>()?;
        let maps = call.strings.iter().flat_map(|maps| maps.iter());
        let text = call.text.as_deref().unwrap_or_default();
        for (map, n) in maps.zip(strings_of(text)) {
            values[n] = self.string_place(*map, values[n])?;
        }
        Ok(values)
    }

    fn put(&mut self, buffer: &mut Buffer, text: &[u8]) {
        for part in text.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(part) {
                *to = *from;
            }
            let word = self.constant(u64::from_le_bytes(word));
            let count = self.constant(part.len() as u64);
            self.step(buffer, TextOp::Put, &[word, count]);
        }
    }

    fn put_value(&mut self, buffer: &mut Buffer, spec: &Spec, value: Value) {
        let how = self.constant(Number::of(spec));
        match spec.conversion {
            Conversion::Char => {
                let fill = vec![b' '; spec.width.saturating_sub(1) as usize];
                if !spec.left {
                    self.put(buffer, &fill);
                }
                let one = self.constant(1);
                self.step(buffer, TextOp::Put, &[value, one]);
                if spec.left {
                    self.put(buffer, &fill);
                }
            }
            Conversion::String => {
                let most = self.constant(buffer.most);
                let (fence, reader) = self.enter_fence();
                let lives = self.living(fence, value, most);
                self.step(buffer, TextOp::String, &[value, lives, most, how]);
                self.leave_fence(reader);
            }
            Conversion::Signed => {
                let value = self.narrow(value, spec.bits, true);
                self.step(buffer, TextOp::Number, &[value, how]);
            }
            Conversion::Pointer
            | Conversion::Unsigned
            | Conversion::Octal
            | Conversion::Hex
            | Conversion::HexUpper => {
                let value = self.narrow(value, spec.bits, false);
                self.step(buffer, TextOp::Number, &[value, how]);
            }
        }
    }

    /// The low bits of a value, extended again.
    fn narrow(&mut self, value: Value, bits: u32, signed: bool) -> Value {
        let width = match bits {
            8 => Width::W8,
            16 => Width::W16,
            32 => Width::W32,
            _ => return value,
        };
        let low = self.trunc(value);
        self.extend(low, width, signed)
    }

    fn step(&mut self, buffer: &mut Buffer, op: TextOp, rest: &[Value]) {
        let mut args = vec![buffer.address, buffer.room, buffer.at];
        args.extend_from_slice(rest);
        let mem = buffer.mem;
        buffer.at = self.push(Ty::B64, Op::Text { op, mem, args });
    }

    /// Memory class and address of a buffer.
    fn buffer_of(&mut self, to: Spot) -> Result<(Mem, Value), CodegenError> {
        let mem = self.writable(to)?;
        let address = self.address(mem, to.pointer);
        let address = match to.off {
            0 => address,
            off => self.bin_const(BinOp::Add, address, i64::from(off) as u64),
        };
        Ok((mem, address))
    }

    /// The fence block's address, and where this lane is counted in.
    fn enter_fence(&mut self) -> (Value, Value) {
        let base = self.push(Ty::B64, Op::Slot(slot::ENV));
        let fence = self.env_field(Mem::Env, base, env::FENCE);
        let reader = self.fence(FenceOp::Enter, vec![fence]);
        (fence, reader)
    }

    /// How many bytes live from a generic address on, at most `most`.
    fn living(&mut self, fence: Value, address: Value, most: Value) -> Value {
        let space = self.constant(Space::Generic as u64);
        self.fence(FenceOp::Room, vec![fence, address, most, space])
    }

    /// What is known of the size in argument `i`: its value, and the most it can be.
    fn size_arg(&self, call: &CallFact, i: usize) -> Result<(Option<u64>, u64), CodegenError> {
        match call.args[i] {
            ArgFact::Scalar { value, max } => Ok((value, max)),
            ArgFact::Unused
            | ArgFact::Map(_)
            | ArgFact::Pointer(_)
            | ArgFact::Callback
            | ArgFact::Sample => self.missing("a size"),
        }
    }
}

/// Which of a format's values are strings.
fn strings_of(text: &[u8]) -> impl Iterator<Item = usize> {
    let specs = pieces(text).filter_map(|piece| match piece {
        Piece::Value { spec, .. } => Some(spec),
        Piece::Text(_) | Piece::Refused { .. } => None,
    });
    let strings = specs
        .enumerate()
        .filter(|(_, spec)| spec.conversion == Conversion::String);
    strings.map(|(n, _)| n)
}
