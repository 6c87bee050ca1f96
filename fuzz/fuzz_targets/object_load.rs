//! Any bytes as an object file: a loader that panics takes the tool with it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbpf_abi::attach::Site;
use warpbpf_verify::{Platform, verify};

fuzz_target!(|bytes: &[u8]| {
    let Ok(object) = warpbpf_object::load(bytes) else {
        return;
    };
    let mut platform = Platform::new(Site::Entry).with_allow_modify(true);
    // Time goes to many inputs, not to one.
    platform.effort = 20_000;
    for program in &object.programs {
        // Either answer is an answer.
        let _ = verify(program, &object.maps, &platform);
    }
});
