//! Bytes of a cache entry that the disk, or somebody else, has changed.

use warpbpf_fuzz::Target;

use crate::Recipe;
use crate::entry::{Entry, seal};

#[test]
fn cache_entry() {
    let recipe = Recipe {
        text: ".version 8.0",
        capability: (9, 0),
        options: &[],
        driver: "1",
    };
    let key = recipe.key();
    let entry = |label: &str, warnings: &[&str], code: &[u8]| {
        let entry = Entry {
            label: label.into(),
            warnings: warnings.iter().map(|line| (*line).to_owned()).collect(),
            code: code.to_vec(),
        };
        entry.encode(&key)
    };
    let seeds = vec![
        entry(
            "vec_add",
            &["(C7510) serialized", "(C7508)"],
            b"\x7fELF\x02\x01code",
        ),
        entry("", &[], &[]),
        entry("a\u{e4}", &["", "x"], &[0; 300]),
    ];
    Target::new("cache-entry", seeds).run(|bytes| {
        let as_it_is = Entry::decode(bytes, &key);
        // Whoever changes an entry can make its digest right, too.
        let mut sealed = bytes.to_vec();
        seal(&mut sealed);
        let decoded = Entry::decode(&sealed, &key);
        if let Ok(entry) = &decoded {
            let size = entry.label.len() + entry.code.len();
            assert!(size + entry.warnings.iter().map(String::len).sum::<usize>() <= bytes.len());
        }
        if as_it_is.is_ok() {
            assert_eq!(as_it_is, decoded);
        }
    });
}
