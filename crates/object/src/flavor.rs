//! Names of types with and without their flavor.

/// `task` of `task___old`: what follows three underscores tells variants of one type apart in the
/// program only.
pub(crate) fn essential(name: &str) -> &str {
    let bytes = name.as_bytes();
    // A flavor has something before and after the underscores, neither of which is one more.
    let at = (1..bytes.len().saturating_sub(3))
        .rev()
        .find(|&at| &bytes[at..at + 3] == b"___" && bytes[at - 1] != b'_' && bytes[at + 3] != b'_');
    at.map_or(name, |at| &name[..at])
}

#[cfg(test)]
mod tests {
    use super::essential;

    #[test]
    fn a_flavor_is_no_part_of_the_name() {
        for (name, expected) in [
            ("task", "task"),
            ("task___old", "task"),
            ("task___old___er", "task___old"),
            ("___old", "___old"),
            ("task___", "task___"),
            ("task____old", "task____old"),
            ("a___b", "a"),
            ("", ""),
            ("a", "a"),
        ] {
            assert_eq!(essential(name), expected, "{name}");
        }
    }
}
