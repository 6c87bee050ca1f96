//! Any bytes as instructions: the decoder and the verifier answer, and bytes and code are the same thing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbpf_abi::attach::Site;
use warpbpf_ebpf::{decode, encode};
use warpbpf_verify::{Platform, verify};

fuzz_target!(|bytes: &[u8]| {
    let Ok(code) = decode(bytes) else {
        return;
    };
    if let Ok(bytes) = encode(&code) {
        assert_eq!(decode(&bytes).as_ref(), Ok(&code));
    }
    let mut platform = Platform::new(Site::Entry).with_memory(64);
    // Time goes to many inputs, not to one.
    platform.effort = 20_000;
    // Either answer is an answer.
    let _ = verify(&code, &[], &platform);
});
