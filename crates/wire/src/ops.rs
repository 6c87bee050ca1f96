//! Operations of the host on a live map, many in one message: the blob of `MapOps` and of its
//! answer.
//!
//! All numbers are little-endian. A batch is a count (u32), then for each operation: code (u8),
//! three zero bytes, key bytes (u32), value bytes (u32), flags (u64), the key, the value. An answer
//! is a count (u32), then for each operation: errno (i32, 0 or negative), result bytes (u32), the
//! result. Operations on one key are done in their order (all of a queue, stack or filter have the
//! same, empty key); those on different keys may be done at once.

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OpCode {
    /// The value of a key. Of a queue or stack, as [`OpCode::Peek`].
    Lookup = 1,
    /// Gives a key a value. Of a queue, stack or bloom filter, as [`OpCode::Push`].
    Update = 2,
    /// Removes a key.
    Delete = 3,
    /// Adds a value.
    Push = 4,
    /// Takes the next value out.
    Pop = 5,
    /// The next value, which stays. Of a bloom filter: is the operation's value in it?
    Peek = 6,
    /// The value of a key, which is removed. Of a queue or stack, as [`OpCode::Pop`].
    LookupAndDelete = 7,
    /// Brings the shared area's snapshot of this map up to date. The result is its sequence (u64).
    Snapshot = 8,
    /// Changes some words of the value of a key of an array, or of variables, and leaves the others
    /// as the device has them. The operation's value is what `warpbpf_maps::words::pack` makes.
    Words = 9,
}

impl OpCode {
    const ALL: [OpCode; 9] = [
        OpCode::Lookup,
        OpCode::Update,
        OpCode::Delete,
        OpCode::Push,
        OpCode::Pop,
        OpCode::Peek,
        OpCode::LookupAndDelete,
        OpCode::Snapshot,
        OpCode::Words,
    ];

    fn from_number(number: u8) -> Option<OpCode> {
        OpCode::ALL.into_iter().find(|code| *code as u8 == number)
    }
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapOp<'a> {
    /// What.
    pub code: OpCode,
    /// `BPF_ANY`, `BPF_NOEXIST`, `BPF_EXIST`, as the operation takes them.
    pub flags: u64,
    /// Key bytes; empty where the map has no keys.
    pub key: &'a [u8],
    /// Value bytes; empty where the operation takes none.
    pub value: &'a [u8],
}

/// What became of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// 0, or Linux's number, negative.
    pub errno: i32,
    /// What was looked up; empty for operations that give nothing.
    pub bytes: Vec<u8>,
}

impl Outcome {
    /// A result.
    pub fn done(bytes: Vec<u8>) -> Outcome {
        Outcome { errno: 0, bytes }
    }

    /// A failure; `errno` is negative.
    pub fn failed(errno: i32) -> Outcome {
        Outcome {
            errno,
            bytes: Vec::new(),
        }
    }
}

/// What is wrong with a blob. The sender is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum OpsError {
    #[error("the operations end at byte {at}, in the middle of number {number}")]
    Short { number: u32, at: usize },
    #[error("operation {number} has the code {code}, which is none")]
    Code { number: u32, code: u8 },
    #[error("{bytes} bytes follow the last operation")]
    Rest { bytes: usize },
    #[error("{announced} operations are announced in {bytes} bytes")]
    Count { announced: u32, bytes: usize },
}

/// Bytes before the key of an operation.
const OP_HEADER: usize = 20;
/// Bytes before the result of an answer.
const OUTCOME_HEADER: usize = 8;

/// The blob of a batch.
pub fn encode_ops(ops: &[MapOp<'_>]) -> Vec<u8> {
    let bytes = ops
        .iter()
        .map(|op| OP_HEADER + op.key.len() + op.value.len());
    let mut blob = Vec::with_capacity(4 + bytes.sum::<usize>());
    blob.extend((ops.len() as u32).to_le_bytes());
    for op in ops {
        blob.extend([op.code as u8, 0, 0, 0]);
        blob.extend((op.key.len() as u32).to_le_bytes());
        blob.extend((op.value.len() as u32).to_le_bytes());
        blob.extend(op.flags.to_le_bytes());
        blob.extend_from_slice(op.key);
        blob.extend_from_slice(op.value);
    }
    blob
}

/// The batch of a blob.
///
/// # Errors
/// [`OpsError`]: it is none. Nothing was done then.
pub fn decode_ops(blob: &[u8]) -> Result<Vec<MapOp<'_>>, OpsError> {
    let mut reader = Reader::new(blob, OP_HEADER)?;
    let mut ops = Vec::with_capacity(reader.count as usize);
    for number in 0..reader.count {
        reader.number = number;
        let header: [u8; OP_HEADER] = reader.array()?;
        let code = OpCode::from_number(header[0]).ok_or(OpsError::Code {
            number,
            code: header[0],
        })?;
        let [_, keys, values, low, high] = words(&header);
        ops.push(MapOp {
            code,
            flags: u64::from(high) << 32 | u64::from(low),
            key: reader.take(keys as usize)?,
            value: reader.take(values as usize)?,
        });
    }
    reader.end()?;
    Ok(ops)
}

/// The blob of an answer.
pub fn encode_outcomes(outcomes: &[Outcome]) -> Vec<u8> {
    let bytes = outcomes.iter().map(|o| OUTCOME_HEADER + o.bytes.len());
    let mut blob = Vec::with_capacity(4 + bytes.sum::<usize>());
    blob.extend((outcomes.len() as u32).to_le_bytes());
    for outcome in outcomes {
        blob.extend(outcome.errno.to_le_bytes());
        blob.extend((outcome.bytes.len() as u32).to_le_bytes());
        blob.extend_from_slice(&outcome.bytes);
    }
    blob
}

/// The answer of a blob.
///
/// # Errors
/// [`OpsError`]: it is none.
pub fn decode_outcomes(blob: &[u8]) -> Result<Vec<Outcome>, OpsError> {
    let mut reader = Reader::new(blob, OUTCOME_HEADER)?;
    let mut outcomes = Vec::with_capacity(reader.count as usize);
    for number in 0..reader.count {
        reader.number = number;
        let header: [u8; OUTCOME_HEADER] = reader.array()?;
        let [errno, bytes] = words(&header);
        outcomes.push(Outcome {
            errno: errno as i32,
            bytes: reader.take(bytes as usize)?.to_vec(),
        });
    }
    reader.end()?;
    Ok(outcomes)
}

/// Little-endian u32s; `bytes` has four times as many.
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let (words, _) = bytes.as_chunks::<4>();
    std::array::from_fn(|i| u32::from_le_bytes(words[i]))
}

struct Reader<'a> {
    blob: &'a [u8],
    at: usize,
    count: u32,
    /// The element being read.
    number: u32,
}

impl<'a> Reader<'a> {
    /// Reads the count, which must not be more than `least` bytes for each leave room for: it is
    /// allocated for.
    fn new(blob: &'a [u8], least: usize) -> Result<Reader<'a>, OpsError> {
        let mut reader = Reader {
            blob,
            at: 0,
            count: 0,
            number: 0,
        };
        reader.count = u32::from_le_bytes(reader.array()?);
        if reader.count as usize > blob.len() / least {
            return Err(OpsError::Count {
                announced: reader.count,
                bytes: blob.len(),
            });
        }
        Ok(reader)
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], OpsError> {
        let taken = self
            .at
            .checked_add(bytes)
            .and_then(|end| self.blob.get(self.at..end));
        let taken = taken.ok_or(OpsError::Short {
            number: self.number,
            at: self.blob.len(),
        })?;
        self.at += bytes;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], OpsError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn end(&self) -> Result<(), OpsError> {
        match self.blob.len() - self.at {
            0 => Ok(()),
            bytes => Err(OpsError::Rest { bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Vec<MapOp<'static>> {
        let op = |code, flags, key, value| MapOp {
            code,
            flags,
            key,
            value,
        };
        vec![
            op(OpCode::Update, 1, b"key!", b"a value"),
            op(OpCode::Lookup, 0, b"key!", b""),
            op(OpCode::Push, u64::MAX, b"", b"x"),
            op(OpCode::Snapshot, 0, b"", b""),
        ]
    }

    #[test]
    fn batches_and_answers_survive() {
        let ops = batch();
        let blob = encode_ops(&ops);
        assert_eq!(decode_ops(&blob), Ok(ops));
        assert_eq!(blob.len(), 4 + 4 * 20 + 4 + 7 + 4 + 1);
        assert_eq!(&blob[..8], [4, 0, 0, 0, 2, 0, 0, 0]);
        let outcomes = vec![Outcome::done(b"abc".to_vec()), Outcome::failed(-2)];
        let blob = encode_outcomes(&outcomes);
        assert_eq!(decode_outcomes(&blob), Ok(outcomes));
        assert_eq!(decode_ops(&encode_ops(&[])), Ok(Vec::new()));
        assert_eq!(decode_outcomes(&[0; 4]), Ok(Vec::new()));
        for code in OpCode::ALL {
            assert_eq!(OpCode::from_number(code as u8), Some(code));
        }
    }

    #[test]
    fn malformed_blobs_are_refused() {
        let said = |blob: &[u8]| decode_ops(blob).unwrap_err().to_string();
        assert_eq!(
            said(b"ab"),
            "the operations end at byte 2, in the middle of number 0"
        );
        let good = encode_ops(&batch());
        assert_eq!(
            said(&good[..good.len() - 1]),
            "the operations end at byte 99, in the middle of number 3"
        );
        let mut bad = good.clone();
        bad[4] = 10;
        assert_eq!(said(&bad), "operation 0 has the code 10, which is none");
        let mut bad = good.clone();
        bad.push(0);
        assert_eq!(said(&bad), "1 bytes follow the last operation");
        // Nothing is allocated for a count that cannot be.
        let mut bad = good.clone();
        bad[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(
            said(&bad),
            "4294967295 operations are announced in 100 bytes"
        );
        let mut bad = good;
        bad[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(
            said(&bad),
            "the operations end at byte 100, in the middle of number 0"
        );
        let answer = encode_outcomes(&[Outcome::done(vec![1; 9])]);
        for cut in 0..answer.len() {
            assert!(decode_outcomes(&answer[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn no_blob_makes_it_panic() {
        // Each byte of a good blob changed to each of some values.
        let good = encode_ops(&batch());
        for at in 0..good.len() {
            for value in [0, 1, 8, 127, 128, 255] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = (decode_ops(&bad), decode_outcomes(&bad));
            }
        }
    }
}
