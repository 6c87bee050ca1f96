//! Every lane-local operation of `ptx::eval` against a device, on random operands: bit by bit, or
//! within the error that the PTX ISA states for an approximation.

#[path = "../../../crates/ptx/tests/suite/ops.rs"]
#[expect(dead_code, reason = "the tests there make modules with parameters")]
mod forms;

use std::fmt::Write as _;

use half::{bf16, f16};
use warpbpf_abi::names::SLOTS;
use warpbpf_ptx::eval::{Op, SOURCES, eval};

use crate::device::{Device, RunError};
use crate::rng::Rng;
use forms::{Case, kernel};

/// Forms in one module: a driver takes long for one of all of them, and forgets none of it.
const MODULE: usize = 128;
const BLOCK: u32 = 128;
/// Bytes of a thread's sources and of its results, as the kernels read and write them.
const IN: usize = 8 * SOURCES;
const OUT: usize = 16;

/// How far an approximation may be off, PTX ISA "Floating Point Instructions".
#[derive(Clone, Copy, PartialEq, Debug)]
enum Bound {
    /// Units in the last place.
    Ulps(f64),
    /// Of the correct result.
    Relative(f64),
    Absolute(f64),
    /// The ISA states none.
    Unstated,
}

/// One operation's outcome.
struct Row {
    name: String,
    sets: usize,
    equal: usize,
    /// The largest error in the bound's terms.
    worst: f64,
    bound: Option<Bound>,
    /// A set that breaks the bound.
    wrong: Option<String>,
}

/// What was found on one device.
pub struct Report {
    device: String,
    rows: Vec<Row>,
}

impl Report {
    /// Operations that are not what the ISA says.
    pub fn failed(&self) -> usize {
        self.rows.iter().filter(|row| row.wrong.is_some()).count()
    }

    /// The table: each operation that is not always equal bit by bit, then the sum.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let differing = self.rows.iter().filter(|row| row.equal != row.sets);
        for row in differing {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:28} {:6} of {} equal, worst {:9.3e}  {}",
                row.name,
                row.equal,
                row.sets,
                row.worst,
                match (&row.wrong, row.bound) {
                    (Some(wrong), _) => format!("WRONG {wrong}"),
                    (None, Some(Bound::Ulps(n))) => format!("within {n} ulp"),
                    (None, Some(Bound::Relative(n))) => format!("within {n:.2e} of the result"),
                    (None, Some(Bound::Absolute(n))) => format!("within {n:.2e}"),
                    (None, Some(Bound::Unstated) | None) => "no error stated".to_owned(),
                }
            );
        }
        let equal = self.rows.iter().filter(|row| row.equal == row.sets).count();
        let _ = writeln!(
            text,
            "{}: {} operations, {equal} equal bit by bit, {} approximations within their errors, {} wrong",
            self.device,
            self.rows.len(),
            self.rows.len() - equal - self.failed(),
            self.failed()
        );
        text
    }
}

/// Runs every operation on `sets` operand sets, a multiple of 128.
///
/// # Errors
/// A device that cannot be used.
pub fn run<D: Device>(device: &mut D, seed: u64, sets: usize) -> Result<Report, RunError> {
    let cases = forms::all();
    let blocks = (sets as u32).div_ceil(BLOCK);
    let sets = (blocks * BLOCK) as usize;
    let (from, to) = (
        device.alloc((sets * IN) as u64)?,
        device.alloc((sets * OUT) as u64)?,
    );
    let mut rows = Vec::with_capacity(cases.len());
    for (part, cases) in cases.chunks(MODULE).enumerate() {
        device.load(&module(cases))?;
        let table: Vec<u8> = [from, to].iter().flat_map(|a| a.to_le_bytes()).collect();
        let slots = device.slots()?;
        device.write(slots, &table)?;
        for (number, case) in cases.iter().enumerate() {
            let mut rng = Rng::new(seed, (part * MODULE + number) as u64);
            let operands: Vec<[u64; SOURCES]> = (0..sets)
                .map(|_| std::array::from_fn(|at| operand(&mut rng, case, at)))
                .collect();
            let bytes: Vec<u8> = operands
                .iter()
                .flatten()
                .flat_map(|word| word.to_le_bytes())
                .collect();
            device.write(from, &bytes)?;
            device.launch(&format!("case_{number}"), blocks, BLOCK)?;
            let mut results = vec![0; sets * OUT];
            device.read(to, &mut results)?;
            rows.push(compare(case, &operands, &results));
        }
    }
    device.free(from)?;
    device.free(to)?;
    Ok(Report {
        device: device.name(),
        rows,
    })
}

/// The kernels take no parameters: a [`Device`] has a slot table for addresses.
fn module(cases: &[Case]) -> String {
    let mut text = format!(
        ".version 8.8\n.target sm_90\n.address_size 64\n.visible .const .align 8 .b64 {SLOTS}[2];\n"
    );
    for (number, case) in cases.iter().enumerate() {
        text += &kernel(number, case)
            .replace("(.param .u64 in, .param .u64 out)", "()")
            .replace(
                "ld.param.u64 %in, [in];",
                &format!("ld.const.u64 %in, [{SLOTS}];"),
            )
            .replace(
                "ld.param.u64 %out, [out];",
                &format!("ld.const.u64 %out, [{SLOTS}+8];"),
            );
    }
    text
}

/// Corners and random bits; for floating point also numbers of ordinary size, which random bits
/// rarely are.
fn operand(rng: &mut Rng, case: &Case, at: usize) -> u64 {
    let Some(kind) = case.src.chars().nth(at) else {
        return 0;
    };
    if kind == 'i' {
        return case.immediate.unwrap_or(0).into();
    }
    // Results need not be told where the ISA leaves them open: see `ptx::eval`.
    if case.name.starts_with("fns") && at == 2 {
        return rng.between(-40, 40) as u64;
    }
    let ty = case.name.rsplit('.').next().unwrap_or_default();
    let is_float = ty.starts_with('f') || ty.starts_with("bf");
    let near = |rng: &mut Rng| (rng.bits() as i64 as f64) / (1u64 << (31 + rng.below(32))) as f64;
    match (kind, rng.below(4)) {
        ('h', 0) if is_float && ty.starts_with('b') => bf16::from_f64(near(rng)).to_bits().into(),
        ('h', 0) if is_float => f16::from_f64(near(rng)).to_bits().into(),
        ('r', 0) if ty == "f32" => (near(rng) as f32).to_bits().into(),
        ('r', 0) if is_float => {
            let mut half = || match ty.starts_with('b') {
                true => u64::from(bf16::from_f64(near(rng)).to_bits()),
                false => u64::from(f16::from_f64(near(rng)).to_bits()),
            };
            half() | half() << 16
        }
        ('d', 0) if is_float => near(rng).to_bits(),
        (_, 1) if is_float => corner(rng, kind),
        (_, 1) => rng.number(),
        _ => rng.bits(),
    }
}

fn corner(rng: &mut Rng, kind: char) -> u64 {
    match kind {
        'd' => rng.pick(&[
            0.0f64.to_bits(),
            (-0.0f64).to_bits(),
            1.0f64.to_bits(),
            f64::MAX.to_bits(),
            f64::MIN_POSITIVE.to_bits(),
            1,
            f64::INFINITY.to_bits(),
            f64::NEG_INFINITY.to_bits(),
            f64::NAN.to_bits(),
        ]),
        'r' => rng
            .pick(&[
                0.0f32.to_bits(),
                (-0.0f32).to_bits(),
                1.0f32.to_bits(),
                f32::MAX.to_bits(),
                f32::MIN_POSITIVE.to_bits(),
                1,
                f32::INFINITY.to_bits(),
                f32::NEG_INFINITY.to_bits(),
                f32::NAN.to_bits(),
            ])
            .into(),
        _ => rng.pick(&[
            0, 0x8000, 1, 0x3c00, 0x3f80, 0x7bff, 0x7c00, 0x7e00, 0x7f7f, 0x7f80, 0xff80,
        ]),
    }
}

fn compare(case: &Case, operands: &[[u64; SOURCES]], results: &[u8]) -> Row {
    let mut row = Row {
        name: case.name.clone(),
        sets: operands.len(),
        equal: 0,
        worst: 0.0,
        bound: bound(&case.name),
        wrong: None,
    };
    let mut words = case.name.split('.');
    let opcode = words.next().unwrap_or_default();
    let Some(op) = Op::decode(opcode, &words.collect::<Vec<_>>()) else {
        row.wrong = Some("it is not decoded".to_owned());
        return row;
    };
    for (set, result) in operands.iter().zip(results.as_chunks::<OUT>().0) {
        let sources: Vec<u64> = case
            .src
            .chars()
            .zip(set)
            .map(|(kind, bits)| {
                if matches!(kind, 'p' | 'c') {
                    bits & 1
                } else {
                    *bits
                }
            })
            .collect();
        let mut expected = eval(op, &sources);
        let second = case.dst.chars().nth(1);
        // Without `.cc` the flag is not told of.
        if second.is_none() || (second == Some('c') && !case.name.contains(".cc")) {
            expected[1] = 0;
        }
        // What does not fit its register is cut off: `cvt` to `.s8` fills a wider one.
        for (bits, kind) in expected.iter_mut().zip(case.dst.chars()) {
            *bits &= match kind {
                'p' | 'c' => 1,
                'h' => 0xffff,
                'r' => 0xffff_ffff,
                _ => u64::MAX,
            };
        }
        let (first, rest) = result.split_at(8);
        let word = |bytes: &[u8]| {
            bytes
                .iter()
                .rev()
                .fold(0, |word, b| word << 8 | u64::from(*b))
        };
        let got = [word(first), word(rest)];
        if got == expected {
            row.equal += 1;
            continue;
        }
        let error = row
            .bound
            .and_then(|bound| off(&case.name, bound, &sources, expected[0], got[0]));
        match (error, row.bound) {
            (Some(error), Some(bound)) => {
                row.worst = row.worst.max(error);
                let most = match bound {
                    Bound::Ulps(n) | Bound::Relative(n) | Bound::Absolute(n) => n,
                    Bound::Unstated => f64::INFINITY,
                };
                if error <= most {
                    continue;
                }
            }
            // Outside the range that the ISA speaks of.
            (None, Some(_)) => continue,
            (_, None) => {}
        }
        row.wrong
            .get_or_insert_with(|| format!("{sources:x?} gives {got:x?}, `eval` {expected:x?}"));
    }
    row
}

/// The error that the ISA allows, for operations that need not be exact.
fn bound(name: &str) -> Option<Bound> {
    let (op, ty) = (name.split('.').next()?, name.rsplit('.').next()?);
    if op == "div" && name.contains(".full") {
        return Some(Bound::Ulps(2.0));
    }
    if !name.contains(".approx") {
        return None;
    }
    let two = |power: f64| power.exp2();
    Some(match (op, ty) {
        ("div", "f32") | ("ex2", "f32") => Bound::Ulps(2.0),
        ("rcp", "f32") => Bound::Ulps(1.0),
        ("sqrt", "f32") => Bound::Relative(two(-23.0)),
        ("rsqrt", "f32") => Bound::Relative(two(-22.9)),
        ("sin" | "cos", "f32") => Bound::Absolute(two(-20.5)),
        ("lg2", "f32") => Bound::Relative(two(-22.0)),
        ("tanh", "f32") => Bound::Relative(two(-11.0)),
        ("ex2", "f16" | "f16x2") => Bound::Relative(two(-9.9)),
        ("ex2", "bf16" | "bf16x2") => Bound::Relative(two(-7.0)),
        ("tanh", "f16" | "f16x2") => Bound::Absolute(two(-10.987)),
        ("tanh", "bf16" | "bf16x2") => Bound::Absolute(two(-8.0)),
        _ => Bound::Unstated,
    })
}

/// How far `got` is off, in the terms of `bound`; `None` where the ISA states nothing for such
/// operands.
fn off(name: &str, bound: Bound, sources: &[u64], expected: u64, got: u64) -> Option<f64> {
    let ty = name.rsplit('.').next()?;
    if ty.ends_with("x2") {
        let single = name.strip_suffix("x2")?;
        return [0, 16]
            .map(|shift| {
                let half = |word: u64| word >> shift & 0xffff;
                off(
                    single,
                    bound,
                    &sources.iter().map(|s| half(*s)).collect::<Vec<_>>(),
                    half(expected),
                    half(got),
                )
            })
            .into_iter()
            .try_fold(0.0f64, |worst, error| Some(worst.max(error?)));
    }
    let number = |bits: u64| match ty {
        "f32" => f64::from(f32::from_bits(bits as u32)),
        "f16" => f16::from_bits(bits as u16).to_f64(),
        "bf16" => bf16::from_bits(bits as u16).to_f64(),
        _ => f64::from_bits(bits),
    };
    let (right, seen) = (number(expected), number(got));
    if right.to_bits() == seen.to_bits() || right == seen || (right.is_nan() && seen.is_nan()) {
        return Some(0.0);
    }
    let x = sources.first().copied().map_or(0.0, number);
    let divisor = sources.get(1).copied().map_or(1.0, number).abs();
    match name.split('.').next()? {
        "sin" | "cos" if x.abs() > std::f64::consts::TAU => return None,
        // Outside the result is 0 or NaN.
        "div"
            if name.contains(".approx")
                && !(126f64.exp2().recip()..=126f64.exp2()).contains(&divisor) =>
        {
            return None;
        }
        // Near 1 the error is absolute.
        "lg2" if (0.5..=2.0).contains(&x) => return Some((right - seen).abs()),
        _ => {}
    }
    if right.is_nan() || seen.is_nan() {
        return Some(f64::INFINITY);
    }
    // What is near the largest number may become infinite by one unit.
    let finite = |value: f64| {
        if value.is_finite() {
            value
        } else {
            f64::from(f32::MAX).copysign(value)
        }
    };
    let (right, seen) = (finite(right), finite(seen));
    // Subnormal numbers are all one unit apart.
    let (digits, smallest) = match ty {
        "f32" => (23, -149),
        "f16" => (10, -24),
        "bf16" => (7, -133),
        _ => (52, -1074),
    };
    let unit =
        |value: f64| f64::from((value.abs().log2().floor() as i32 - digits).max(smallest)).exp2();
    let distance = (right - seen).abs();
    match bound {
        Bound::Ulps(_) => Some(distance / unit(right)),
        Bound::Relative(_) if distance <= f64::from(smallest).exp2() => Some(0.0),
        Bound::Relative(_) | Bound::Unstated => Some(distance / right.abs()),
        Bound::Absolute(_) => Some(distance),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_measured_in_the_terms_of_their_bound() {
        let one = u64::from(1f32.to_bits());
        let ulps = |got| off("ex2.approx.f32", Bound::Ulps(2.0), &[0], one, got);
        assert_eq!(ulps(one), Some(0.0));
        assert_eq!(ulps(one + 3), Some(3.0));
        assert_eq!(ulps(u64::from(f32::NAN.to_bits())), Some(f64::INFINITY));
        let sine = |x: f32| {
            off(
                "sin.approx.f32",
                Bound::Absolute(0.1),
                &[x.to_bits().into()],
                one,
                0,
            )
        };
        assert_eq!(sine(1.0), Some(1.0));
        assert_eq!(sine(1e6), None);
        // The upper half is one unit off.
        let pair = off(
            "tanh.approx.f16x2",
            Bound::Absolute(0.1),
            &[0],
            0x3c00_3c00,
            0x3c01_3c00,
        );
        assert_eq!(pair, Some(1.0 / 1024.0));
        assert_eq!(bound("div.rn.f32"), None);
        assert_eq!(bound("div.full.ftz.f32"), Some(Bound::Ulps(2.0)));
    }
}
