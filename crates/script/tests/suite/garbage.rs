//! Whatever the text is, it is compiled or refused, and what is said of it can be shown.

use crate::{compile, folder};

/// The same for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        // Knuth's constants of MMIX.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most.max(1)
    }
}

fn tried(source: &str) {
    match compile(source) {
        Ok(compiled) if compiled.object.is_empty() => {}
        Ok(compiled) => {
            warpbpf_object::load(&compiled.object).unwrap_or_else(|e| panic!("{source}: {e}"));
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                assert!(error.render("script", source, false).starts_with("error: "));
            }
        }
    }
}

#[test]
fn any_text_is_compiled_or_refused() {
    let mut scripts: Vec<Vec<char>> = Vec::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|end| end == "wt" || end == "txt")
        {
            let text = std::fs::read_to_string(path).unwrap();
            scripts.extend(text.split("\n\n").map(|part| part.chars().collect()));
        }
    }
    const SIGNS: &[char] = &[
        '{', '}', '(', ')', '[', ']', '/', '"', '@', '$', ';', ',', ':', '%', '\\', '\n', 'ä', '9',
        '-', '!', '?', '=', '.', '\0',
    ];
    let mut chance = Chance(1);
    for _ in 0..4000 {
        let mut text = scripts[chance.below(scripts.len())].clone();
        for _ in 0..=chance.below(4) {
            let at = chance.below(text.len());
            let to = (at + chance.below(12)).min(text.len());
            match chance.below(4) {
                0 => drop(text.drain(at..to)),
                1 => text.insert(at, SIGNS[chance.below(SIGNS.len())]),
                2 => {
                    let part = text[at..to].to_vec();
                    let other = chance.below(text.len());
                    text.splice(other..other, part);
                }
                _ if at < text.len() => text[at] = SIGNS[chance.below(SIGNS.len())],
                _ => {}
            }
        }
        // Lines of the file of refusals begin so.
        let text: String = text.into_iter().collect();
        tried(text.trim_start_matches("> "));
    }
}

#[test]
fn what_is_nested_without_end_is_refused() {
    let refused = |source: String| {
        let errors = compile(&source).unwrap_err();
        let said = errors[0].problem.to_string();
        assert!(
            said.ends_with("expressions or blocks stand in each other"),
            "{said}"
        );
    };
    let many = 100_000;
    refused(format!("gpu:entry:* {{ @ = sum({}1", "(".repeat(many)));
    refused(format!(
        "gpu:entry:* {{ @ = sum({}1",
        "-".repeat(many).replace("--", "- ")
    ));
    refused(format!("gpu:entry:* {{ @ = sum({}1)", "1 + ".repeat(many)));
    refused(format!(
        "gpu:entry:* {{ @ = sum({}1)",
        "1 ? 2 : ".repeat(many)
    ));
    refused(format!("gpu:entry:* {{ {}", "if (1) { ".repeat(many)));
    refused(format!(
        "gpu:entry:* {{ if (1) {{ }} {}",
        "else if (1) { } ".repeat(many)
    ));
    refused(format!("gpu:entry:* {{ @ = sum({}", "@[".repeat(many)));
}

#[test]
fn copies_without_end_are_refused() {
    for body in ["", "@ = count()"] {
        let source = format!(
            "gpu:entry:* {{ {}{body}{} }}",
            "unroll (100) { ".repeat(8),
            " }".repeat(8)
        );
        let errors = compile(&source).unwrap_err();
        assert_eq!(
            errors[0].problem.to_string(),
            "the program for `gpu:entry:*` has more than 30000 instructions"
        );
    }
}
