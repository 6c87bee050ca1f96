//! Any bytes as instructions: the decoder and the verifier answer, and bytes and code are the same
//! thing.

use warpbpf_abi::attach::Site;
use warpbpf_ebpf::{assemble, decode, encode};
use warpbpf_fuzz::{Bounds, Target};

use crate::platform::Platform;
use crate::verified::verify;

#[test]
fn instructions() {
    let texts = [
        "r0 = 0\nexit",
        "r2 = *(u64 *)(r1 + 0)\nif r2 > 7 goto +1\nr2 += 1\nr0 = r2\nexit",
        "*(u64 *)(r10 - 8) = r1\nr1 = *(u64 *)(r10 - 8)\ncall 5\nr0 &= 63\nexit",
        "r0 = 0\nr1 = 10\nr0 += r1\nr1 -= 1\nif r1 != 0 goto -3\nexit",
    ];
    let seeds = texts.iter().map(|text| {
        let code = assemble(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        encode(&code).expect("it was assembled")
    });
    // Time goes to many inputs, not to one.
    let mut platform = Platform::new(Site::Entry).with_memory(64);
    platform.effort = 20_000;
    let words: &[&[u8]] = &[
        &[0x95, 0, 0, 0, 0, 0, 0, 0],
        &[0x85, 0, 0, 0, 5, 0, 0, 0],
        &[0x18, 0x11, 0, 0, 0, 0, 0, 0],
        &[0x85, 0x10, 0, 0, 0xff, 0xff, 0xff, 0xff],
    ];
    let bounds = Bounds {
        bytes: 256 << 20,
        ..Bounds::default()
    };
    let target = Target::new("instructions", seeds.collect());
    target.words(words).bounds(bounds).run(|bytes| {
        let Ok(code) = decode(bytes) else { return };
        if let Ok(bytes) = encode(&code) {
            assert_eq!(decode(&bytes).as_ref(), Ok(&code));
        }
        // Either answer is an answer.
        let _ = verify(&code, &[], &platform);
    });
}
