//! What somebody probably meant by a name that does not exist: the one name that differs from it in
//! few letters.

use alloc::vec::Vec;

/// The name among `names` that `word` is a misspelling of: it differs in at most a third of its
/// letters, two at least where it has four or more, and no other name is as near.
pub fn nearest<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let mut best: Option<(usize, &'n str)> = None;
    let mut several = false;
    for name in names {
        let distance = distance(word, name);
        match best {
            Some((least, other)) if distance > least || name == other => {}
            Some((least, _)) if distance == least => several = true,
            _ => (best, several) = (Some((distance, name)), false),
        }
    }
    let (distance, name) = best?;
    let letters = name.chars().count();
    let most = if letters < 4 { 1 } else { (letters / 3).max(2) };
    (!several && distance > 0 && distance <= most).then_some(name)
}

/// Letters to add, drop or replace, or neighbours to exchange.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // Rows for the first letters of `a`: the one before the last, the last, and this one.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = alloc::vec![i];
        for j in 1..=b.len() {
            let same = a[i - 1] == b[j - 1];
            let mut least = (last[j - 1] + usize::from(!same))
                .min(last[j] + 1)
                .min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = core::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_near_name_is_found_and_others_are_not() {
        let places = ["entry", "exit", "mem", "barrier", "func", "funcret"];
        let found = |word| nearest(word, places);
        assert_eq!(found("enrty"), Some("entry"));
        assert_eq!(found("entri"), Some("entry"));
        assert_eq!(found("ext"), Some("exit"));
        assert_eq!(found("barier"), Some("barrier"));
        assert_eq!(found("men"), Some("mem"));
        assert_eq!(found("funcrte"), Some("funcret"));
        // Itself is no misspelling, and what is far from all is none.
        assert_eq!(found("entry"), None);
        assert_eq!(found("launch"), None);
        assert_eq!(found(""), None);
        // Two that are equally near.
        assert_eq!(
            nearest("map_p_elem", ["map_pop_elem", "map_put_elem"]),
            None
        );
    }
}
