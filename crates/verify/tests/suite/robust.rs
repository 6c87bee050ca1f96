//! No program makes the verifier panic or run away: valid ones with bytes changed, and noise.

use proptest::prelude::*;
use warpbpf_ebpf::{Code, decode, encode};
use warpbpf_verify::verify;

use crate::common::{code, lookup, maps, platform};

fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        format!("{}r1 = *(u64 *)(r0 + 0)\nr1 += 1\n*(u64 *)(r0 + 0) = r1\nr0 = 0\nexit", lookup(0)),
        "r1 = map[1]\nr2 = 16\nr3 = 0\ncall 131\nif r0 == 0 goto out\n*(u64 *)(r0 + 8) = 7\nr1 = r0\nr2 = 0\ncall 132\nout:\nr0 = 0\nexit".to_owned(),
        "r6 = r1\nr1 = 3\ncall f\nr0 = *(u32 *)(r6 + 48)\nexit\nf:\nr0 = r1\nagain:\nr0 += 1\nif r0 < 20 goto again\n*(u64 *)(r10 - 8) = r0\nlock *(u64 *)(r10 - 8) += r0\nexit".to_owned(),
        "*(u64 *)(r10 - 16) = 0\nr1 = 9\nr2 = subprog[f]\nr3 = r10\nr3 += -16\nr4 = 0\ncall 181\nr1 = map[0]\nr2 = subprog[g]\nr3 = 0\nr4 = 0\ncall 164\nr0 = 0\nexit\nf:\nr3 = *(u64 *)(r2 + 0)\nr3 += r1\n*(u64 *)(r2 + 0) = r3\nr0 = 0\nif r3 < 20 goto out\nr0 = 1\nout:\nexit\ng:\nr0 = *(u32 *)(r2 + 0)\nr0 &= 1\n*(u64 *)(r3 + 0) = r0\nexit".to_owned(),
        "r2 = 0\nr3 = 50\nr1 = r10\nr1 += -8\ncall kfunc[1]\nr7 = 0\nagain:\nr1 = r10\nr1 += -8\ncall kfunc[2]\nif r0 == 0 goto done\nr6 = *(u32 *)(r0 + 0)\nr7 += r6\ngoto again\ndone:\nr1 = r10\nr1 += -8\ncall kfunc[3]\nr0 = r7\nexit".to_owned(),
        "r6 = 0\nagain:\nmay_goto out\nr6 += 1\ncall f\nif r6 < 40 goto again\nout:\nr0 = 0\nexit\nf:\nr0 = 0\nround:\nmay_goto end\nr0 += 1\ngoto round\nend:\nexit".to_owned(),
        "r1 = map[3][0] + 0\nr2 = 12\nr3 = 1\nr4 = 2\ncall 6\nr0 = 0\nexit".to_owned(),
    ];
    texts
        .iter()
        .map(|text| encode(&code(text)).unwrap_or_else(|e| panic!("{e}")))
        .collect()
}

/// Proves what decodes; whatever the answer, its texts must come out.
fn survive(bytes: &[u8]) {
    let Ok(code) = decode(bytes) else { return };
    survive_code(code);
}

fn survive_code(code: Code) {
    let mut platform = platform();
    platform.effort = 20_000;
    match verify(code, &maps(), &platform) {
        Ok(verified) => assert!(verified.facts().cost <= platform.budget),
        Err(rejection) => {
            assert!(!rejection.to_string().is_empty() && !rejection.render().is_empty());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn changed_programs_are_judged(
        seed in prop::sample::select(seeds()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = seed;
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        survive(&bytes);
    }

    #[test]
    fn changed_registers_and_opcodes_are_judged(
        seed in prop::sample::select(seeds()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0u8..2, 0u8..0xb0), 1..6),
    ) {
        // Only opcode and register bytes: these mostly still decode.
        let mut bytes = seed;
        for (slot, field, value) in changes {
            let slot = slot.index(bytes.len() / 8);
            bytes[slot * 8 + usize::from(field)] = value;
        }
        survive(&bytes);
    }

    #[test]
    fn cut_and_joined_programs_are_judged(
        a in prop::sample::select(seeds()),
        b in prop::sample::select(seeds()),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = a[..cut.index(a.len() / 8) * 8].to_vec();
        bytes.extend(b);
        survive(&bytes);
    }
}
