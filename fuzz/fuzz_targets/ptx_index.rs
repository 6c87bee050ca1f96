//! Any text as PTX: what the index says of it is where it says, in order, and the text stays what it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbpf_ptx::{Splices, index, parse_body};

fuzz_target!(|text: &str| {
    assert_eq!(Splices::new().apply(text).as_deref(), Ok(text));
    let Ok(module) = index(text) else {
        return;
    };
    for function in &module.functions {
        assert_eq!(&text[function.name_span.clone()], function.name);
        let Ok(statements) = parse_body(&module, function) else {
            continue;
        };
        let mut at = function.body.clone().map_or(0, |body| body.start);
        for statement in &statements {
            assert!(at <= statement.span.start, "statements overlap");
            at = statement.span.end;
        }
    }
});
