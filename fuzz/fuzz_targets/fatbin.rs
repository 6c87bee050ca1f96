//! Any bytes as a container of CUDA code: it comes from an application, which owes us nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbpf_fatbin::{Cubin, choose, cubin_len, entries, fatbin_len, sniff};

fuzz_target!(|bytes: &[u8]| {
    // Answers of every kind are fine; a panic is not.
    let _ = (sniff(bytes), fatbin_len(bytes), cubin_len(bytes));
    let _ = Cubin::parse(bytes);
    if let Ok(entries) = entries(bytes) {
        let _ = choose(&entries, (9, 0));
        for entry in &entries {
            if let Ok(payload) = entry.payload() {
                let _ = Cubin::parse(&payload);
            }
        }
    }
});
