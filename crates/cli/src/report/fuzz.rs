//! A saved report that somebody else has written.

use warpbpf_fuzz::{Bounds, Target};

use crate::report::model::{Report, VERSION};
use crate::report::render;

#[test]
fn reports() {
    let seeds = crate::report::render::tests::reports();
    let seeds = seeds
        .iter()
        .map(|report| serde_json::to_vec(report).expect("JSON"));
    let words: &[&[u8]] = &[
        b"null",
        b"18446744073709551615",
        b"-9223372036854775808",
        b"1e308",
        b"[[[[[[",
        b"\"\\u001b[31m\"",
        b"{}",
    ];
    let bounds = Bounds {
        bytes: 32 << 20,
        per_byte: 4096,
        ..Bounds::default()
    };
    Target::new("reports", seeds.collect())
        .words(words)
        .bounds(bounds)
        .run(|bytes| {
            let Ok(report) = serde_json::from_slice::<Report>(bytes) else {
                return;
            };
            for rows in [0, 20] {
                let text = render::report(&report, rows);
                // Nothing of another's reaches a terminal as a command.
                assert!(!text.contains('\u{1b}'), "an escape sequence");
            }
            let _ = render::report(&report.per_device(), usize::MAX);
            let again = serde_json::to_vec(&report).expect("what was read is written");
            let again = serde_json::from_slice::<Report>(&again).expect("and read again");
            assert_eq!(again.version, report.version);
            let _ = VERSION;
        });
}
