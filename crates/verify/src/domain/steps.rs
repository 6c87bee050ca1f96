//! The domain at 64 bits by long random walks: what operations make is used by the next ones, so
//! that values come up which no list has.

use warpbpf_ebpf::AluOp;

use super::compare::refine;
use super::interval::Interval;
use super::scalar::Scalar;
use super::tests::{ALU, JUMPS, concrete, corners, holds};
use super::tnum::Tnum;
use super::widen::{Step, join};

/// A generator of numbers that needs nothing but its last one (xorshift, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Numbers near corners, small ones and any.
    fn number(&mut self, corners: &[u64]) -> u64 {
        match self.below(4) {
            0 => self.of(corners),
            1 => self
                .of(corners)
                .wrapping_add(self.next() & 15)
                .wrapping_sub(8),
            2 => self.next() & 127,
            _ => self.next() >> self.below(64),
        }
    }

    /// A number and a value that holds it.
    fn fresh(&mut self, corners: &[u64]) -> (u64, Scalar) {
        let x = self.number(corners);
        let mut set = Scalar::UNKNOWN;
        for _ in 0..=self.below(3) {
            let (a, b) = (self.number(corners), self.number(corners));
            let any = Scalar::UNKNOWN;
            let part = match self.below(6) {
                0 => {
                    let (min, max) = (a.min(b).min(x), a.max(b).max(x));
                    Scalar {
                        u64: Interval { min, max },
                        ..any
                    }
                }
                1 => {
                    let (a, b, x) = (a as i64, b as i64, x as i64);
                    let (min, max) = (a.min(b).min(x), a.max(b).max(x));
                    Scalar {
                        s64: Interval { min, max },
                        ..any
                    }
                }
                2 => {
                    let (a, b, x) = (a as u32, b as u32, x as u32);
                    let (min, max) = (a.min(b).min(x), a.max(b).max(x));
                    Scalar {
                        u32: Interval { min, max },
                        ..any
                    }
                }
                3 => {
                    let (a, b, x) = (a as i32, b as i32, x as i32);
                    let (min, max) = (a.min(b).min(x), a.max(b).max(x));
                    Scalar {
                        s32: Interval { min, max },
                        ..any
                    }
                }
                4 => Scalar {
                    bits: Tnum {
                        value: x & !a,
                        mask: a,
                    },
                    ..any
                },
                _ => Scalar::constant(x),
            };
            set = set.meet(&part).expect("both hold the number");
        }
        (x, set)
    }
}

const fn op_name(op: AluOp) -> &'static str {
    match op {
        AluOp::Add => "Add",
        AluOp::Sub => "Sub",
        AluOp::Mul => "Mul",
        AluOp::Div => "Div",
        AluOp::SDiv => "SDiv",
        AluOp::Or => "Or",
        AluOp::And => "And",
        AluOp::Lsh => "Lsh",
        AluOp::Rsh => "Rsh",
        AluOp::Mod => "Mod",
        AluOp::SMod => "SMod",
        AluOp::Xor => "Xor",
        AluOp::Mov => "Mov",
        AluOp::Arsh => "Arsh",
    }
}

fn walk(seed: u64, steps: u64) {
    let mut random = Random(seed);
    let corners = corners();
    let mut pool: Vec<(u64, Scalar)> = (0..16).map(|_| random.fresh(&corners)).collect();
    for step in 0..steps {
        let (i, j) = (random.below(16), random.below(16));
        let ((x, a), (y, b)) = (pool[i], pool[j]);
        let wide = random.below(2) == 0;
        let (what, (number, set)) = match random.below(8) {
            0 => ("fresh", random.fresh(&corners)),
            1..4 => {
                let op = random.of(&ALU);
                let set = Scalar::alu(op, wide, &a, &b);
                (op_name(op), (concrete(op, wide, x, y), set))
            }
            4 | 5 => {
                let op = random.of(&JUMPS);
                let side = holds(op, wide, x, y);
                let Some((a, b)) = refine(op, wide, &a, &b, side) else {
                    panic!(
                        "seed {seed} step {step}: {op:?} {wide} of {x:#x} in {a:?} and {y:#x} in {b:?} has no side {side}"
                    );
                };
                // Of one number with itself both are what is known.
                if i != j {
                    pool[j] = (y, b);
                }
                assert!(
                    b.contains(y),
                    "seed {seed} step {step}: {op:?} {wide} {side} leaves {y:#x} out of {b:?}"
                );
                ("comparison", (x, a))
            }
            6 => {
                let bits = random.of(&[8, 16, 32]);
                let low = x & u64::MAX >> (64 - bits);
                match random.below(3) {
                    0 => ("zero extension", (low, a.zero_extend(bits))),
                    1 => {
                        let signed = (x << (64 - bits)) as i64 >> (64 - bits);
                        ("sign extension", (signed as u64, a.sign_extend(bits)))
                    }
                    _ => {
                        let bits = bits.max(16);
                        ("swap", (x.swap_bytes() >> (64 - bits), a.swap_bytes(bits)))
                    }
                }
            }
            _ => {
                let step = random.of(&[Step::Hull, Step::Leap, Step::Far]);
                ("join", (x, join(&a, &b, step, &corners)))
            }
        };
        assert!(
            set.contains(number),
            "seed {seed} step {step}: {what} (wide: {wide}) of {x:#x} in {a:?} and {y:#x} in {b:?} is {set:?} without {number:#x}"
        );
        pool[i] = (number, set);
    }
}

#[test]
fn random_steps_are_sound() {
    walk(0x9e37_79b9_7f4a_7c15, 200_000);
}

#[test]
#[ignore = "cargo xtask test --deep"]
fn four_hundred_million_random_steps_are_sound() {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                walk(
                    0x9e37_79b9_7f4a_7c15 + 2 * thread + 1,
                    408_000_000 / threads,
                )
            });
        }
    });
}
