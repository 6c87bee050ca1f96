//! What is said of programs by name, before any application comes.

use warpbpf_abi::choice::ChoiceRequest;

use crate::error::Error;

/// What is said of programs by name is said of some that there are, and of none twice.
pub(crate) fn check_choose(
    choose: &[(String, ChoiceRequest)],
    names: &[&str],
) -> Result<(), Error> {
    let wrong = |program: &str, what| Error::Choose {
        program: program.to_owned(),
        what,
    };
    if let Some((program, _)) = choose.iter().find(|(of, _)| !names.contains(&of.as_str())) {
        let there: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let there = match there.is_empty() {
            true => "none".to_owned(),
            false => there.join(", "),
        };
        let what = format!("no program has that name; there is {there}");
        return Err(wrong(program, what));
    }
    match ChoiceRequest::said_twice(choose) {
        Some((program, key)) => {
            let what = format!("`{}` is said of it twice: say it once", key.word());
            Err(wrong(program, what))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_are_chosen_for_programs_that_there_are() {
        let said = |all: &[(&str, &str)], names: &[&str]| {
            let request = |(name, text): &(&str, &str)| (name.to_string(), text.parse().unwrap());
            let choose: Vec<(String, ChoiceRequest)> = all.iter().map(request).collect();
            check_choose(&choose, names).map_err(|error| error.to_string())
        };
        let names = ["enter", "leave"];
        assert_eq!(said(&[], &[]), Ok(()));
        let all = [
            ("enter", "every=2"),
            ("leave", "every=2"),
            ("enter", "after=1"),
        ];
        assert_eq!(said(&all, &names), Ok(()));
        for (all, names, message) in [
            (
                &[("enters", "every=2")][..],
                &names[..],
                "launches are chosen for program `enters`: no program has that name; there is `enter`, `leave`",
            ),
            (
                &[("enter", "every=2")],
                &[],
                "launches are chosen for program `enter`: no program has that name; there is none",
            ),
            (
                &[("leave", "every=2"), ("leave", "after=1,every=3")],
                &names,
                "launches are chosen for program `leave`: `every` is said of it twice: say it once",
            ),
        ] {
            assert_eq!(said(all, names), Err(message.to_owned()));
        }
    }
}
