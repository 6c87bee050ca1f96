//! What is said of launches is said of programs that there are.

use super::*;

#[test]
fn launches_are_chosen_for_programs_that_there_are() {
    let said = |all: &[(&str, &str)], names: &[&str]| {
        let wish = |(name, text): &(&str, &str)| (name.to_string(), text.parse().unwrap());
        let choose: Vec<(String, Wish)> = all.iter().map(wish).collect();
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
