//! Matrices for tests: elements (small integers, which every type holds exactly), fragments,
//! products.

use super::Rig;

/// Element types by their PTX names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ty {
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    E4m3,
    E5m2,
    S8,
    U8,
    S4,
    U4,
    B1,
    S32,
}

pub fn bits_of(ty: Ty) -> usize {
    match ty {
        Ty::F64 => 64,
        Ty::F32 | Ty::Tf32 | Ty::S32 => 32,
        Ty::F16 | Ty::Bf16 => 16,
        Ty::E4m3 | Ty::E5m2 | Ty::S8 | Ty::U8 => 8,
        Ty::S4 | Ty::U4 => 4,
        Ty::B1 => 1,
    }
}

/// Sign, exponent and mantissa of a small integer in a binary format.
fn float(value: i64, exponent_bits: u32, mantissa_bits: u32) -> u64 {
    if value == 0 {
        return 0;
    }
    let size = value.unsigned_abs();
    let exponent = 63 - size.leading_zeros();
    assert!(
        size.trailing_zeros() + mantissa_bits >= exponent,
        "{value} is not exact"
    );
    let bias = (1 << (exponent_bits - 1)) - 1;
    let mantissa = if exponent <= mantissa_bits {
        size << (mantissa_bits - exponent)
    } else {
        size >> (exponent - mantissa_bits)
    };
    let mantissa = mantissa & ((1 << mantissa_bits) - 1);
    let sign = u64::from(value < 0) << (exponent_bits + mantissa_bits);
    sign | u64::from(exponent + bias) << mantissa_bits | mantissa
}

/// The bits of a number.
pub fn replicate(ty: Ty, value: i64) -> u64 {
    match ty {
        Ty::F16 => float(value, 5, 10),
        Ty::Bf16 => float(value, 8, 7),
        Ty::Tf32 | Ty::F32 => float(value, 8, 23),
        Ty::F64 => float(value, 11, 52),
        Ty::E4m3 => float(value, 4, 3),
        Ty::E5m2 => float(value, 5, 2),
        Ty::S8 | Ty::U8 => value as u64 & 0xff,
        Ty::S4 | Ty::U4 => value as u64 & 0xf,
        Ty::B1 => value as u64 & 1,
        Ty::S32 => value as u64 & 0xffff_ffff,
    }
}

/// The number that the low bits of an accumulator are.
pub fn number(ty: Ty, bits: u64) -> i64 {
    match ty {
        Ty::F32 => f32::from_bits(bits as u32) as i64,
        Ty::F64 => f64::from_bits(bits) as i64,
        Ty::S32 => i64::from(bits as i32),
        Ty::F16 => {
            let (sign, exponent, mantissa) =
                (bits >> 15 & 1, bits >> 10 & 31, (bits & 1023) as f64);
            let size = if exponent == 0 {
                mantissa * 2f64.powi(-24)
            } else {
                (1024.0 + mantissa) * 2f64.powi(exponent as i32 - 25)
            };
            (if sign == 1 { -size } else { size }) as i64
        }
        other => panic!("{other:?} is no accumulator"),
    }
}

/// Numbers all over a type's range (as far as sums stay exact), the same for the same seed.
pub fn random(ty: Ty, count: usize, seed: u64) -> Vec<i64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |low: i64, high: i64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        low + ((state >> 20) % (high - low + 1) as u64) as i64
    };
    let (low, high) = match ty {
        Ty::S8 => (-128, 127),
        Ty::U8 => (0, 255),
        Ty::S4 => (-8, 7),
        Ty::U4 => (0, 15),
        Ty::B1 => (0, 1),
        Ty::S32 => (-100_000, 100_000),
        Ty::E5m2 | Ty::E4m3 | Ty::F16 => (-4, 4),
        Ty::Bf16 | Ty::Tf32 | Ty::F32 | Ty::F64 => (-16, 16),
    };
    (0..count).map(|_| next(low, high)).collect()
}

/// Row and column of a lane's element `i`, by `groupID`, `threadID_in_group` and `i`, as the ISA's
/// formulas have it.
pub type Formula = fn(usize, usize, usize) -> (usize, usize);

/// Registers of all lanes, lane by lane, that hold a matrix of `width` columns by the formula.
pub fn fragment(ty: Ty, matrix: &[i64], width: usize, place: Formula) -> Vec<u64> {
    let (bits, count) = (bits_of(ty), matrix.len() / 32);
    let per = (32 / bits).max(1);
    let mut registers = Vec::new();
    for lane in 0..32 {
        for register in 0..count / per {
            let mut word = 0;
            for i in 0..per {
                let (row, column) = place(lane / 4, lane % 4, register * per + i);
                word |= replicate(ty, matrix[row * width + column]) << (i * bits);
            }
            registers.push(word);
        }
    }
    registers
}

/// The matrix in registers.
pub fn matrix_of(ty: Ty, registers: &[u64], size: usize, width: usize, place: Formula) -> Vec<i64> {
    let bits = bits_of(ty);
    let per = (32 / bits).max(1);
    let in_lane = registers.len() / 32;
    let mut matrix = vec![0; size];
    for (index, word) in registers.iter().enumerate() {
        let (lane, register) = (index / in_lane, index % in_lane);
        for i in 0..per {
            let (row, column) = place(lane / 4, lane % 4, register * per + i);
            matrix[row * width + column] = number(ty, word >> (i * bits));
        }
    }
    matrix
}

/// Memory with registers of a type, 4 or 8 bytes each.
pub fn upload(rig: &Rig, ty: Ty, registers: &[u64]) -> u64 {
    let words: Vec<u32> = if bits_of(ty) == 64 {
        registers
            .iter()
            .flat_map(|&r| [r as u32, (r >> 32) as u32])
            .collect()
    } else {
        registers.iter().map(|&r| r as u32).collect()
    };
    rig.u32s(&words)
}

pub fn download(rig: &Rig, ty: Ty, address: u64, count: usize) -> Vec<u64> {
    if bits_of(ty) == 64 {
        rig.read_u64(address, count)
    } else {
        rig.read_u32(address, count)
            .into_iter()
            .map(u64::from)
            .collect()
    }
}

pub fn registers_of(ty: Ty, elements: usize) -> usize {
    elements / 32 / (32 / bits_of(ty)).max(1)
}

/// `a · b + c`, and for `.xor.popc` the number of bits that differ.
pub fn product([m, n, k]: [usize; 3], a: &[i64], b: &[i64], c: &[i64], xor: bool) -> Vec<i64> {
    (0..m * n)
        .map(|at| {
            let (row, column) = (at / n, at % n);
            (0..k).fold(c[at], |sum, i| {
                let (x, y) = (a[row * k + i], b[i * n + column]);
                sum + if xor { x ^ y } else { x * y }
            })
        })
        .collect()
}

/// 32-bit words of elements one after the other.
pub fn packed(ty: Ty, values: &[i64]) -> Vec<u64> {
    let bits = bits_of(ty);
    if bits == 64 {
        let words = values.iter().map(|&v| replicate(ty, v));
        return words.flat_map(|w| [w & 0xffff_ffff, w >> 32]).collect();
    }
    values
        .chunks_exact(32 / bits)
        .map(|chunk| {
            let parts = chunk.iter().enumerate();
            parts.fold(0, |word, (i, &v)| word | replicate(ty, v) << (i * bits))
        })
        .collect()
}
