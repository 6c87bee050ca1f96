//! Edits land where they say, in the order they were made, and nowhere else.

use proptest::prelude::*;
use warpbpf_ptx::{SpliceError, Splices};

#[test]
fn inserts_keep_their_order_around_a_replacement() {
    let mut edits = Splices::new();
    edits.insert(3, "1");
    edits.replace(3..5, "XY");
    edits.insert(3, "2");
    edits.insert(5, "3");
    edits.insert(0, "<");
    edits.insert(7, ">");
    edits.delete(6..7);
    assert_eq!(edits.apply("abcdefg").as_deref(), Ok("<abc12XY3f>"));
    assert_eq!(edits.len(), 7);
    assert!(!edits.is_empty());
}

#[test]
fn appended_edits_come_after() {
    let (mut first, mut second) = (Splices::new(), Splices::new());
    first.insert(1, "1");
    second.insert(1, "2");
    first.append(second);
    assert_eq!(first.apply("ab").as_deref(), Ok("a12b"));
}

#[test]
fn a_part_is_cut_out_with_its_edits() {
    let mut edits = Splices::new();
    edits.insert(2, "<");
    edits.replace(3..4, "D");
    edits.insert(5, ">");
    assert_eq!(edits.apply_to("abcdefg", 2..5).as_deref(), Ok("<cDe>"));
    let outside = edits.apply_to("abcdefg", 3..5).unwrap_err();
    assert_eq!(
        outside,
        SpliceError::OutOfRange {
            start: 2,
            end: 2,
            length: 2
        }
    );
}

#[test]
fn edits_that_do_not_fit() {
    let error = |make: &dyn Fn(&mut Splices)| {
        let mut edits = Splices::new();
        make(&mut edits);
        edits.apply("aéz").unwrap_err().to_string()
    };
    assert_eq!(
        error(&|e| e.insert(5, "")),
        "edit of bytes `5..5` does not lie in a text of `4` bytes"
    );
    assert_eq!(
        error(&|e| e.delete(2..9)),
        "edit of bytes `2..9` does not lie in a text of `4` bytes"
    );
    #[expect(clippy::reversed_empty_ranges, reason = "the mistake that is tested")]
    let reversed = 3..1;
    assert_eq!(
        error(&|e| e.delete(reversed.clone())),
        "edit of bytes `3..1` does not lie in a text of `4` bytes"
    );
    assert_eq!(
        error(&|e| e.insert(2, "")),
        "edit at byte `2` would split a character"
    );
    assert_eq!(
        error(&|e| e.delete(0..2)),
        "edit at byte `2` would split a character"
    );
    let overlap = "edit of bytes `3..4` overlaps the edit of bytes `1..4`";
    assert_eq!(
        error(&|e| {
            e.delete(3..4);
            e.delete(1..4)
        }),
        overlap
    );
    let inside = "edit of bytes `1..1` overlaps the edit of bytes `0..3`";
    assert_eq!(
        error(&|e| {
            e.insert(1, "x");
            e.delete(0..3)
        }),
        inside
    );
    assert!(
        error(&|e| {
            e.delete(1..3);
            e.replace(1..3, "x")
        })
        .contains("overlaps")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_edit_changes_nothing(text in "\\PC{0,80}") {
        prop_assert_eq!(Splices::new().apply(&text), Ok(text));
    }

    /// Disjoint edits, made in any order, are what cutting the text at them and joining the pieces
    /// gives.
    #[test]
    fn edits_are_the_pieces_joined(
        pieces in prop::collection::vec(("[a-z]{0,6}", "[a-z]{1,5}", "[A-Z]{0,6}"), 0..8),
        rotation in 0usize..8,
    ) {
        let (mut text, mut expected, mut edits) = (String::new(), String::new(), Vec::new());
        for (kept, old, new) in &pieces {
            text += kept;
            expected += kept;
            edits.push((text.len()..text.len() + old.len(), new.clone()));
            text += old;
            expected += new;
        }
        if !edits.is_empty() {
            let by = rotation % edits.len();
            edits.rotate_left(by);
        }
        let mut splices = Splices::new();
        for (span, new) in edits {
            splices.replace(span, new);
        }
        prop_assert_eq!(splices.apply(&text), Ok(expected));
    }
}
