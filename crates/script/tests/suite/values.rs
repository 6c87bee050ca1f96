//! Numbers as they are written, what blocks of the tool compute, and what maps of several devices
//! are together.

use std::collections::BTreeMap;

use warpbpf_script::host::{World, execute};
use warpbpf_script::results::{Part, Results};
use warpbpf_script::typed::{Request, Type};
use warpbpf_script::{json, show};

use crate::compile;

/// Runs a script of blocks of the tool, and gives what it prints.
fn printed(source: &str) -> String {
    struct Here<'s>(&'s [Request], String);
    impl World for Here<'_> {
        fn now(&mut self) -> u64 {
            5_000
        }
        fn start(&mut self) -> u64 {
            1_000
        }
        fn read(&mut self, _: usize, key: &[u64]) -> i64 {
            key.iter().sum::<u64>() as i64 + 100
        }
        fn request(&mut self, request: usize, values: &[u64]) {
            match &self.0[request] {
                Request::Print(format) => {
                    self.1 += &format.fill(values, &|_, number| format!("<{number}>"));
                }
                other => self.1 += &format!("{other:?}\n"),
            }
        }
    }
    let compiled = compile(source).unwrap();
    let mut here = Here(&compiled.script.requests, String::new());
    for block in &compiled.script.blocks {
        assert!(execute(&block.code, &mut here));
    }
    here.1
}

#[test]
fn numbers_have_the_forms_of_bpftrace() {
    let source =
        "BEGIN { printf(\"%d %d %d %d %x %d\", 1e6, 1_000, 0x1F, 10ms, 0xffffffffffffffff, 007) }";
    assert_eq!(
        printed(source),
        "1000000 1000 31 10000000 ffffffffffffffff 7"
    );
}

#[test]
fn operators_have_the_precedence_of_c() {
    for (text, value) in [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 4 - 3", 3),
        ("7 / 2 * 2 + 7 % 4", 9),
        ("-7 / 2", -3),
        ("1 << 3 | 1", 9),
        ("6 & 3 == 3", 0),
        ("1 ^ 3", 2),
        ("~0", -1),
        ("!5 + !0", 1),
        ("1 < 2 && 2 > 3 || 4 != 5", 1),
        ("0 ? 1 : 0 ? 2 : 3", 3),
        ("-16 >> 2", -4),
    ] {
        // The same when it is computed in advance, and when it is not.
        let source =
            format!("BEGIN {{ printf(\"%d\", {text}); $z = 0; printf(\" %d\", ({text}) + $z) }}");
        assert_eq!(printed(&source), format!("{value} {value}"), "{text}");
    }
}

#[test]
fn blocks_of_the_tool_are_executed() {
    let source = "
        gpu:entry:* { @n = count(); @k[block] = count() }
        BEGIN {
            $i = 0; $sum = 0;
            while (1) { $i++; if ($i > 10) { break } if ($i % 2) { continue } $sum += $i }
            for ($j : 0..3) { $sum += 100 }
            unroll (2) { $sum -= 1 }
            printf(\"%d %d %d %s\\n\", $sum, @k[7], elapsed, \"end\");
            print(@n, 3); $j = 4; print(@k[$j]); print($i--); print(--$i); clear(@k);
        }
        interval:ms:10 /0/ { exit() }
        END { if (@n > 5) { return } exit() }";
    assert_eq!(
        printed(source),
        "328 107 4000 <0>\nShow { map: 0, top: Some(3) }\n@k[4]: 104\n11\n9\nClear(1)\n"
    );
}

#[test]
fn what_several_devices_have_is_put_together() {
    let source = "gpu:entry:* { @n[kernel] = count(); @min = min(lane); @max[sm] = max(lane - 5); @h[kernel] = hist(lane); @s = stats(lane) }";
    let compiled = compile(source).unwrap();
    let (script, layout) = (&compiled.script, &compiled.layout);
    let names = |ty, number: u64| match ty {
        Type::Kernel => Part::Name(format!("k{}", number % 2)),
        _ => Part::Number(number as i64),
    };
    let words = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    let mut results = Results::new(script);
    let mut add = |map, key: &[u64], value: &[u64]| {
        results.add(script, layout, map, (&words(key), &words(value)), &names);
    };
    // Kernels 1 and 3 have one name.
    add(0, &[1], &[5]);
    add(0, &[3], &[6]);
    add(0, &[2], &[1]);
    let smallest = |number: i64| !(number as u64 ^ 1 << 63);
    let largest = |number: i64| number as u64 ^ 1 << 63;
    add(1, &[0], &[0, 0]);
    add(1, &[0], &[2, smallest(4)]);
    add(1, &[0], &[1, smallest(-3)]);
    add(2, &[7], &[largest(-5)]);
    add(2, &[7], &[largest(-9)]);
    add(3, &[1, 3], &[4]);
    add(3, &[3, 3], &[1]);
    add(3, &[1, 1], &[1]);
    add(4, &[0], &[3, 12]);
    add(4, &[0], &[1, 8]);
    add(layout.lost, &[4], &[9]);
    let text = |map: usize| show::text(&script.maps[map], &results.maps[map], None, 60);
    assert_eq!(text(0), "@n[k0]: 1\n@n[k1]: 11\n");
    assert_eq!(text(1), "@min: -3\n");
    assert_eq!(text(2), "@max[7]: -5\n");
    assert_eq!(
        text(3),
        "@h[k1]:
[0]                     1 |@@@@@@                          |
[1]                     0 |                                |
[2, 4)                  5 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
"
    );
    assert_eq!(text(4), "@s: count 4, average 5, total 20\n");
    assert_eq!(results.lost, [0, 0, 0, 0, 9, 0]);
    let as_json = |map: usize| json::map(&script.maps[map], &results.maps[map], None).to_string();
    assert_eq!(
        as_json(0),
        r#"{"type":"map","data":{"@n":{"k0":1,"k1":11}}}"#
    );
    assert_eq!(as_json(1), r#"{"type":"map","data":{"@min":-3}}"#);
    assert_eq!(
        as_json(3),
        r#"{"type":"hist","data":{"@h":{"k1":[{"min":0,"max":0,"count":1},{"min":1,"max":1,"count":0},{"min":2,"max":3,"count":5}]}}}"#
    );
    assert_eq!(
        as_json(4),
        r#"{"type":"stats","data":{"@s":{"count":4,"average":5,"total":20}}}"#
    );
    // What came since a moment.
    let before: BTreeMap<_, _> = results.maps[0].clone();
    assert!(results.since(0, &before, false).is_empty());
    results.add(script, layout, 0, (&words(&[2]), &words(&[4])), &names);
    let fresh = results.since(0, &before, false);
    assert_eq!(show::text(&script.maps[0], &fresh, None, 80), "@n[k0]: 4\n");
    let fresh = results.since(0, &before, true);
    assert_eq!(
        show::text(&script.maps[0], &fresh, None, 80),
        "@n[k1]: 0\n@n[k0]: 4\n"
    );
}
