//! What there is of a shared area once its writer has ended and its events were read: the last
//! snapshots and the counts, without a mapping. Whoever watches thousands of applications come and
//! go has as many of these, so pages without contents take nothing.

use super::area::{DeviceLosses, PRINTK};
use super::error::SharedError;
use super::reader::SharedReader;

/// Bytes that are kept or left out together.
const PIECE: usize = 1024;

/// See above.
#[derive(Debug)]
pub struct Kept {
    maps: Vec<KeptMap>,
    printk: Losses,
    clock_error: Option<u64>,
}

#[derive(Debug)]
struct KeptMap {
    bytes: u64,
    sequence: u64,
    /// Pieces of the last snapshot that are not all zero, with their numbers.
    pieces: Vec<(usize, Box<[u8]>)>,
    losses: Losses,
}

#[derive(Debug, Clone, Copy, Default)]
struct Losses {
    here: u64,
    device: DeviceLosses,
}

impl Losses {
    fn of(reader: &SharedReader, map: u32) -> Losses {
        Losses {
            here: reader.lost(map),
            device: reader.device_losses(map),
        }
    }
}

impl Kept {
    /// Copies what is there.
    ///
    /// # Errors
    /// [`SharedError::Busy`]: somebody still writes.
    pub fn of(reader: &SharedReader) -> Result<Kept, SharedError> {
        let mut bytes = Vec::new();
        let mut maps = Vec::with_capacity(reader.maps());
        for map in 0..reader.maps() {
            let sequence = reader.snapshot(map, &mut bytes)?.unwrap_or(0);
            let pieces = bytes.chunks(PIECE).enumerate();
            let pieces = pieces.filter(|(_, piece)| piece.iter().any(|byte| *byte != 0));
            maps.push(KeptMap {
                bytes: reader.snapshot_bytes(map).unwrap_or(0),
                sequence,
                pieces: pieces.map(|(at, piece)| (at, piece.into())).collect(),
                losses: Losses::of(reader, u32::try_from(map).unwrap_or(u32::MAX - 1)),
            });
        }
        Ok(Kept {
            maps,
            printk: Losses::of(reader, PRINTK),
            clock_error: reader.clock_error(),
        })
    }

    /// As [`SharedReader::maps`].
    pub fn maps(&self) -> usize {
        self.maps.len()
    }

    /// As [`SharedReader::snapshot`].
    ///
    /// # Errors
    /// [`SharedError::Map`].
    pub fn snapshot(&self, map: usize, into: &mut Vec<u8>) -> Result<Option<u64>, SharedError> {
        let maps = self.maps.len();
        let kept = self.maps.get(map).ok_or(SharedError::Map { map, maps })?;
        into.clear();
        if kept.sequence == 0 {
            return Ok(None);
        }
        into.resize(kept.bytes as usize, 0);
        for (at, piece) in &kept.pieces {
            into[at * PIECE..][..piece.len()].copy_from_slice(piece);
        }
        Ok(Some(kept.sequence))
    }

    /// As [`SharedReader::snapshot_bytes`].
    pub fn snapshot_bytes(&self, map: usize) -> Option<u64> {
        Some(self.maps.get(map)?.bytes)
    }

    /// As [`SharedReader::sequence`].
    pub fn sequence(&self, map: usize) -> u64 {
        self.maps.get(map).map_or(0, |map| map.sequence)
    }

    /// As [`SharedReader::lost`].
    pub fn lost(&self, map: u32) -> u64 {
        self.losses(map).here
    }

    /// As [`SharedReader::device_losses`].
    pub fn device_losses(&self, map: u32) -> DeviceLosses {
        self.losses(map).device
    }

    /// As [`SharedReader::clock_error`].
    pub fn clock_error(&self) -> Option<u64> {
        self.clock_error
    }

    fn losses(&self, map: u32) -> Losses {
        match map {
            PRINTK => self.printk,
            map => (self.maps.get(map as usize)).map_or(Losses::default(), |map| map.losses),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SharedWriter;
    use super::*;

    #[test]
    fn what_is_kept_is_what_was_there() {
        let large = 3 * PIECE as u64 + 5;
        let (mut writer, fd) = SharedWriter::create(&[8, large, 0, 16], 4096).unwrap();
        let mut reader = SharedReader::open(&fd).unwrap();
        let mut contents = vec![0; large as usize];
        (contents[PIECE + 1], contents[large as usize - 1]) = (7, 9);
        writer.publish(0, &[1; 8]).unwrap();
        writer.publish(1, &[3; 3 * PIECE + 5]).unwrap();
        writer.publish(1, &contents).unwrap();
        writer.clock_error(12);
        writer.count_lost(1);
        writer.count_lost(PRINTK);
        let losses = DeviceLosses { full: 2, busy: 3 };
        writer.device_losses(0, losses);
        assert!(reader.is_drained());
        assert!(writer.push(0, 0, b"an event"));
        assert!(!reader.is_drained());
        reader.events(|_| {}).unwrap();
        assert!(reader.is_drained());
        let kept = Kept::of(&reader).unwrap();
        drop((reader, writer));
        let snapshot = |map| {
            let mut bytes = vec![4];
            let sequence = kept.snapshot(map, &mut bytes).unwrap();
            (sequence, bytes)
        };
        assert_eq!(snapshot(0), (Some(1), vec![1; 8]));
        assert_eq!(snapshot(1), (Some(2), contents));
        assert_eq!(snapshot(3), (None, vec![]));
        assert_eq!(kept.maps[1].pieces.len(), 2, "zeros take nothing");
        let bytes: Vec<_> = (0..5).map(|map| kept.snapshot_bytes(map)).collect();
        assert_eq!(bytes, [Some(8), Some(large), Some(0), Some(16), None]);
        assert_eq!([0, 1, 3, 9].map(|map| kept.sequence(map)), [1, 2, 0, 0]);
        assert_eq!([0, 1, PRINTK, 9].map(|map| kept.lost(map)), [0, 1, 1, 0]);
        assert_eq!(kept.device_losses(0), losses);
        assert_eq!((kept.clock_error(), kept.maps()), (Some(12), 4));
        kept.snapshot(4, &mut Vec::new()).unwrap_err();
    }
}
