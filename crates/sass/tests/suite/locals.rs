//! The application whose accesses are counted in machine code by the numbers of its source: the
//! compiler makes one instruction of each of them, in no other form.

use std::collections::BTreeMap;

use crate::common::{disassemble, nvcc, workspace};

/// Of each kernel, how often the accesses of its threads stand in it. Guards are left out, and what
/// an address is made of.
const EXPECTED: [(&str, &[(&str, usize)]); 3] = [
    (
        "indexed",
        &[
            ("LDL", 1),
            ("LDL.64", 1),
            ("LDL.U8", 1),
            ("STG.E.64", 1),
            ("STL", 1),
            ("STL.64", 1),
            ("STL.U8", 1),
        ],
    ),
    (
        "widths",
        &[
            ("LDG.E.64", 1),
            ("STG.E", 1),
            ("STG.E.128", 1),
            ("STG.E.64", 1),
            ("STG.E.U16", 1),
            ("STG.E.U8", 1),
        ],
    ),
    (
        "fetches",
        &[
            ("CCTL.E.PF1", 1),
            ("CCTL.E.PF2", 1),
            ("LDG.E.64", 1),
            ("STG.E.64", 1),
        ],
    ),
];

/// What accesses memory: plainly, or by the caches' own instruction.
const ACCESSES: [&str; 8] = ["LD", "ST", "LDL", "STL", "LDG", "STG", "CCTL", "CALL"];

#[test]
fn each_access_of_the_source_is_one_instruction() {
    for arch in [80, 90] {
        let source = workspace().join("tests/apps/locals.cu");
        let cubin = nvcc(&source, &format!("sm_{arch}"));
        let code = disassemble(&format!("locals.{arch}"), &cubin);
        for (kernel, expected) in EXPECTED {
            let named = |section: &str| {
                section.starts_with(&format!(".text._Z7{kernel}"))
                    || section.starts_with(&format!(".text._Z6{kernel}"))
            };
            let (_, lines) = code.iter().find(|(name, _)| named(name)).expect(kernel);
            let words = lines.iter().filter_map(|line| {
                line.text
                    .split_whitespace()
                    .find(|word| !word.starts_with('@'))
            });
            let mut found: BTreeMap<&str, usize> = BTreeMap::new();
            for word in words {
                let (operation, _) = word.split_once('.').unwrap_or((word, ""));
                if ACCESSES.contains(&operation) {
                    *found.entry(word).or_default() += 1;
                }
            }
            let expected: BTreeMap<&str, usize> = expected.iter().copied().collect();
            assert_eq!(found, expected, "{kernel} for sm_{arch}");
        }
    }
}
