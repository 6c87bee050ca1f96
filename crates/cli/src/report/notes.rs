//! Notes of many kernels and processes as a person reads them: each text once, and of those that
//! differ in names and numbers alone a few.

/// Notes of one form that are shown whole.
const SHOWN: usize = 3;

/// The notes to show, in the order in which each form came first.
pub fn alike(notes: &[String]) -> Vec<String> {
    // Texts of one form, each with how often it came.
    let mut forms: Vec<(String, Vec<(&str, usize)>)> = Vec::new();
    for note in notes {
        let form = form(note);
        let at = forms.iter().position(|(known, _)| *known == form);
        let at = at.unwrap_or_else(|| {
            forms.push((form, Vec::new()));
            forms.len() - 1
        });
        let texts = &mut forms[at].1;
        match texts.iter_mut().find(|(text, _)| text == note) {
            Some((_, times)) => *times += 1,
            None => texts.push((note, 1)),
        }
    }
    let mut shown = Vec::new();
    for (_, texts) in forms {
        for (text, times) in texts.iter().take(SHOWN) {
            shown.push(match times {
                1 => (*text).to_owned(),
                times => format!("{text} ({times} times)"),
            });
        }
        match texts.len().saturating_sub(SHOWN) {
            0 => {}
            1 => shown.push("and one more like this (`--json` has all)".to_owned()),
            more => shown.push(format!("and {more} more like these (`--json` has all)")),
        }
    }
    shown
}

/// The text without names in backquotes and without numbers.
fn form(note: &str) -> String {
    let mut form = String::new();
    let mut quoted = false;
    for sign in note.chars() {
        match sign {
            '`' => quoted = !quoted,
            _ if quoted => {}
            sign if sign.is_ascii_digit() => {
                if !form.ends_with('0') {
                    form.push('0');
                }
            }
            sign => form.push(sign),
        }
    }
    form
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(notes: &[&str]) -> Vec<String> {
        let notes: Vec<String> = notes.iter().map(|note| (*note).to_owned()).collect();
        alike(&notes)
    }

    #[test]
    fn a_text_that_comes_again_is_shown_once() {
        assert_eq!(
            shown(&["kernel `a`: 7", "another", "kernel `a`: 7"]),
            ["kernel `a`: 7 (2 times)", "another"]
        );
    }

    #[test]
    fn of_many_of_one_form_a_few_are_shown() {
        let notes: Vec<String> = (0..60)
            .map(|number| format!("kernel `k{number}`: registers {} → 255", number % 7))
            .collect();
        let mut expected: Vec<String> = notes[..3].to_vec();
        expected.push("and 57 more like these (`--json` has all)".to_owned());
        assert_eq!(alike(&notes), expected);
        assert_eq!(
            shown(&["a `1`", "a `2`", "a `3`", "a `4`"]).last().unwrap(),
            "and one more like this (`--json` has all)"
        );
    }

    #[test]
    fn different_notes_stay_as_they_are() {
        assert_eq!(shown(&["one", "two 1", "three"]), ["one", "two 1", "three"]);
    }
}
