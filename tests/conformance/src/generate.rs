//! Programs that are likely to verify and to go wrong in an engine: every instruction, over
//! registers whose kind the generator keeps track of, in control flow that ends.
//!
//! It knows less than the verifier, on purpose: it never decides what is safe, it only avoids most
//! of what is not. What it makes is a flat list of instructions, so that everything behind it
//! (mutation, minimising) knows nothing of how a program came to be.
//!
//! Conventions of the programs: `r6` holds the pointer that the function was given and is never
//! written again; pointers to map values live in `r7` for the few instructions after their null
//! check.

mod calls;
mod data;
mod flow;
mod state;

use warpbpf_ebpf::{Code, Reg};

use crate::rng::Rng;
use crate::test::{Contents, Input, MapSpec, Test};

use state::{Area, Generator, Role};

/// A generated program and how it may be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Generated {
    /// The program.
    pub test: Test,
    /// What threads do to maps depends on their order: one thread at a time.
    pub alone: bool,
}

/// A program from random numbers.
pub fn generate(rng: &mut Rng) -> Generated {
    // Three in four programs have no maps, and then every thread is for itself.
    let (maps, alone) = match rng.below(8) {
        0 => (vec![array(rng)], true),
        1 => (vec![hash(rng), array(rng)], true),
        2 => (vec![array(rng), hash(rng)], false),
        _ => (Vec::new(), false),
    };
    let memory = rng.pick(&[16u32, 24, 32, 61, 64, 96]);
    let mut generator = Generator::new(rng, &maps, alone);
    // Most of these are refused, so they are few; what is not refused is worth it.
    generator.daring = generator.rng.one_in(4);
    let own = Area {
        base: Reg::R1,
        low: 0,
        high: memory as i16,
        align: 16,
    };
    let callees = generator.rng.below(4);
    generator.plan_functions(callees);
    generator.function(Role::Entry, Some(own));
    let insns = generator.finish();
    let test = Test {
        code: Code::new(insns),
        memory,
        maps,
    };
    Generated { test, alone }
}

fn array(rng: &mut Rng) -> MapSpec {
    MapSpec::Array {
        value_size: rng.pick(&[8, 16, 20, 32]),
        max_entries: rng.pick(&[1, 3, 4, 8]),
    }
}

fn hash(rng: &mut Rng) -> MapSpec {
    MapSpec::Hash {
        key_size: rng.pick(&[4, 8, 12]),
        value_size: rng.pick(&[8, 16, 24]),
        max_entries: rng.pick(&[2, 5, 16]),
    }
}

/// What `threads` threads begin with: corners in their memory, something in the maps.
pub fn input(rng: &mut Rng, test: &Test, threads: usize) -> Input {
    let mut memory = |_| {
        let words = (0..test.memory.div_ceil(8)).flat_map(|_| rng.number().to_le_bytes());
        let mut bytes: Vec<u8> = words.collect();
        bytes.truncate(test.memory as usize);
        bytes
    };
    let threads = (0..threads).map(&mut memory).collect();
    let contents = |spec: &MapSpec| {
        let n_keys = match spec {
            MapSpec::Array { max_entries, .. } => *max_entries,
            MapSpec::Hash { .. } => 1,
        };
        let mut contents = Contents::new();
        for key in 0..n_keys {
            let mut bytes = key.to_le_bytes().to_vec();
            bytes.resize(spec.key_size() as usize, 0);
            let value = (0..spec.value_size()).map(|_| rng.bits() as u8).collect();
            contents.insert(bytes, value);
        }
        contents
    };
    let maps = test.maps.iter().map(contents).collect();
    Input { threads, maps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbpf_ebpf::{decode, encode};

    #[test]
    fn programs_encode_and_are_reproducible() {
        for index in 0..500 {
            let one = generate(&mut Rng::new(7, index));
            assert_eq!(one, generate(&mut Rng::new(7, index)));
            let bytes = encode(&one.test.code).expect("a program within the format's ranges");
            assert_eq!(decode(&bytes), Ok(one.test.code));
        }
    }

    #[test]
    fn inputs_fit_the_program() {
        let mut rng = Rng::new(1, 1);
        let test = Test {
            code: Code::default(),
            memory: 13,
            maps: vec![hash(&mut rng), array(&mut rng)],
        };
        let input = input(&mut rng, &test, 3);
        assert!(input.threads.iter().all(|memory| memory.len() == 13));
        for (spec, contents) in test.maps.iter().zip(&input.maps) {
            for (key, value) in contents {
                assert_eq!(key.len(), spec.key_size() as usize);
                assert_eq!(value.len(), spec.value_size() as usize);
            }
        }
    }
}
