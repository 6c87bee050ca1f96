//! Programs and objects that nobody wrote: bytes of good ones, damaged. Most are refused; what is
//! left is nearer to the edges than anything that is built to be right.

use warpbpf_ebpf::{Code, decode, encode};

use crate::rng::Rng;

/// Bytes of an instruction slot.
const SLOT: usize = 8;

/// A damaged copy of a program, or `None` if nothing decodes any more.
pub fn mutate(rng: &mut Rng, code: &Code) -> Option<Code> {
    let mut bytes = encode(code).ok()?;
    for _ in 0..=rng.below(3) {
        damage_slots(rng, &mut bytes);
    }
    decode(&bytes).ok()
}

/// Damages instructions: bits, fields, and their order.
fn damage_slots(rng: &mut Rng, bytes: &mut [u8]) {
    let slots = bytes.len() / SLOT;
    if slots < 2 {
        return;
    }
    let at = rng.below(slots) * SLOT;
    let other = rng.below(slots) * SLOT;
    match rng.below(8) {
        0 => {
            let bit = rng.below(64);
            bytes[at + bit / 8] ^= 1 << (bit % 8);
        }
        // A register: the field most likely to leave a program well formed.
        1 => bytes[at + 1] = bytes[at + 1] & 0xf0 | rng.below(11) as u8,
        2 => bytes[at + 1] = bytes[at + 1] & 0x0f | (rng.below(11) as u8) << 4,
        3 => {
            let off = rng.between(-80, 80) as i16;
            bytes[at + 2..at + 4].copy_from_slice(&off.to_le_bytes());
        }
        4 => {
            let imm = rng.number() as u32;
            bytes[at + 4..at + 8].copy_from_slice(&imm.to_le_bytes());
        }
        5 => {
            let (mut a, mut b) = ([0; SLOT], [0; SLOT]);
            a.copy_from_slice(&bytes[at..at + SLOT]);
            b.copy_from_slice(&bytes[other..other + SLOT]);
            bytes[at..at + SLOT].copy_from_slice(&b);
            bytes[other..other + SLOT].copy_from_slice(&a);
        }
        6 => {
            let slot: Vec<u8> = bytes[at..at + SLOT].to_vec();
            bytes[other..other + SLOT].copy_from_slice(&slot);
        }
        _ => {
            // An operation of the same class.
            bytes[at] = bytes[at] & 0x0f | (rng.below(16) as u8) << 4;
        }
    }
}

/// A damaged copy of any file.
pub fn damage_bytes(rng: &mut Rng, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=rng.below(6) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.below(bytes.len());
        match rng.below(6) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = rng.bits() as u8,
            2 => bytes[at] = rng.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            3 => {
                // A length or an offset, as a number of four bytes.
                let number = (rng.number() as u32).to_le_bytes();
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            4 if rng.one_in(4) => bytes.truncate(at),
            _ => {
                let from = rng.below(bytes.len());
                let len = rng.below(32).min(bytes.len() - at.max(from));
                bytes.copy_within(from..from + len, at);
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::generate;

    #[test]
    fn many_mutants_still_decode_and_differ() {
        let (mut decoded, mut differing) = (0, 0);
        for index in 0..300 {
            let mut rng = Rng::new(3, index);
            let code = generate(&mut rng).test.code;
            if let Some(mutant) = mutate(&mut rng, &code) {
                decoded += 1;
                differing += u32::from(mutant != code);
            }
        }
        assert!(decoded > 100 && differing > 80, "{decoded} {differing}");
    }

    #[test]
    fn damaged_bytes_are_no_longer_than_before() {
        let bytes: Vec<u8> = (0..200).map(|n| n as u8).collect();
        for index in 0..300 {
            assert!(damage_bytes(&mut Rng::new(5, index), &bytes).len() <= bytes.len());
        }
        assert_eq!(damage_bytes(&mut Rng::new(5, 0), &[]), []);
    }
}
