//! Makes a failing program as small as it gets: a person is to read it.

use warpbpf_ebpf::{Code, Pc};

use crate::test::{Input, Test};

/// What still fails, with fewer threads, fewer instructions and more zeros. `fails` is asked about
/// each attempt; it answers for the same kind of failure only.
pub fn minimise(
    test: &Test,
    input: &Input,
    mut fails: impl FnMut(&Test, &Input) -> bool,
) -> (Test, Input) {
    let (mut test, mut input) = (test.clone(), input.clone());
    for thread in 0..input.threads.len() {
        let one = Input {
            threads: vec![input.threads[thread].clone()],
            maps: input.maps.clone(),
        };
        if fails(&test, &one) {
            input = one;
            break;
        }
    }
    let mut size = test.code.insns().len();
    loop {
        let before = test.code.insns().len();
        // Large pieces first: most of a program has nothing to do with its failure.
        size = size.min(before);
        while size > 0 {
            let mut at = 0;
            while at < test.code.insns().len() {
                let end = (at + size).min(test.code.insns().len());
                let smaller = Test {
                    code: without(&test.code, at..end),
                    ..test.clone()
                };
                if fails(&smaller, &input) {
                    test = smaller;
                } else {
                    at = end;
                }
            }
            size /= 2;
        }
        if test.code.insns().len() == before {
            break;
        }
        size = 4;
    }
    for thread in 0..input.threads.len() {
        for byte in 0..input.threads[thread].len() {
            let mut simpler = input.clone();
            simpler.threads[thread][byte] = 0;
            if simpler != input && fails(&test, &simpler) {
                input = simpler;
            }
        }
    }
    (test, input)
}

/// The code without some of its instructions. What jumped into them goes to what follows.
fn without(code: &Code, removed: std::ops::Range<usize>) -> Code {
    let moved = |pc: Pc| {
        let at = pc.index();
        Pc(if at < removed.start {
            at
        } else if at < removed.end {
            removed.start
        } else {
            at - removed.len()
        } as u32)
    };
    let insns = code.insns().iter().enumerate();
    let kept = insns.filter(|(at, _)| !removed.contains(at));
    Code::new(kept.map(|(_, insn)| insn.retargeted(moved)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbpf_ebpf::{assemble, listing};

    #[test]
    fn only_what_matters_is_left() {
        let asm = "r0 = 1\nr2 = 5\nif r2 == 5 goto +1\nr3 = 4\nr0 *= 7\nr4 = 2\nexit\n";
        let test = Test {
            code: assemble(asm).expect("a program"),
            memory: 4,
            maps: Vec::new(),
        };
        let input = Input {
            threads: vec![vec![1, 2, 3, 4], vec![5, 6, 7, 8]],
            maps: Vec::new(),
        };
        let (small, left) = minimise(&test, &input, |test, input| {
            listing(&test.code).contains("r0 *= 7") && input.threads.iter().any(|t| t[1] == 6)
        });
        assert_eq!(listing(&small.code), "    0: r0 *= 7\n");
        assert_eq!(left.threads, [[0, 6, 0, 0]]);
    }

    #[test]
    fn jumps_follow_what_they_jumped_to() {
        let code = assemble("if r1 == 0 goto +2\nr2 = 1\nr3 = 1\nexit\n").expect("a program");
        let small = without(&code, 1..2);
        assert_eq!(
            small,
            assemble("if r1 == 0 goto +1\nr3 = 1\nexit\n").expect("a program")
        );
        // A jump past the end stays in range of what can be said of it.
        let small = without(&code, 3..4);
        assert_eq!(small.insns().len(), 3);
    }
}
