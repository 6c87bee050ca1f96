//! What the compiler warns of in a kernel with programs and not in it without: `C75xx`, wgmma or
//! register allocation gone serial.
//!
//! Of texts only numbers are compared: the rest tells registers and lines, which differ. In a
//! module with clones the compiler speaks of both, the original and the clone, and mostly names the
//! function that it means.

/// The compiler may have something to say of such a text.
pub(crate) fn may_be_said_of(ptx: &str) -> bool {
    ptx.contains("wgmma.") || ptx.contains("setmaxnreg.")
}

/// The same code in a text that no cache of the driver has: of one that it finds there it says
/// nothing.
pub(crate) fn fresh(ptx: &str) -> String {
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default();
    format!("{ptx}\n// {} {}\n", std::process::id(), now.as_nanos())
}

/// The warnings of an instrumented slice whose numbers are not in the log of the same without
/// programs, which is only asked for if there are any.
pub(crate) fn of_slice(log: &str, before: impl FnOnce() -> String) -> Vec<String> {
    let warnings: Vec<(&str, &str)> = numbered(log).collect();
    if warnings.is_empty() {
        return Vec::new();
    }
    let before = before();
    once(
        warnings
            .into_iter()
            .filter(|(number, _)| !has(&before, number)),
    )
}

/// The warnings of a module with clones that concern the clone `entry` of the kernel `original`:
/// those that name it and have no like that names the original, and those that name no clone of
/// `all` and are not in the log of the module as it was, which is only asked for if there are such.
pub(crate) fn of_clone(
    log: &str,
    (entry, original): (&str, &str),
    all: &[String],
    before: impl FnOnce() -> String,
) -> Vec<String> {
    let quoted = |name: &str| format!("'{name}'");
    let (ours, its) = (quoted(entry), quoted(original));
    let others: Vec<String> = all.iter().map(|name| quoted(name)).collect();
    let (named, rest): (Vec<_>, Vec<_>) = numbered(log).partition(|(_, line)| line.contains(&ours));
    let like = |number: &str| numbered(log).any(|(n, line)| n == number && line.contains(&its));
    let mut new: Vec<(&str, &str)> = named.into_iter().filter(|(n, _)| !like(n)).collect();
    let rest: Vec<(&str, &str)> = rest
        .into_iter()
        .filter(|(_, line)| !others.iter().any(|other| line.contains(other)))
        .collect();
    if !rest.is_empty() {
        let before = before();
        new.extend(rest.into_iter().filter(|(number, _)| !has(&before, number)));
    }
    once(new.into_iter())
}

fn numbered(log: &str) -> impl Iterator<Item = (&str, &str)> {
    log.lines()
        .filter_map(|line| Some((number(line)?, line.trim())))
}

fn has(log: &str, wanted: &str) -> bool {
    numbered(log).any(|(number, _)| number == wanted)
}

fn once<'l>(warnings: impl Iterator<Item = (&'l str, &'l str)>) -> Vec<String> {
    let mut new: Vec<String> = Vec::new();
    for (_, line) in warnings {
        if !new.iter().any(|other| other == line) {
            new.push(line.to_owned());
        }
    }
    new
}

/// `C7510` in `ptxas info : (C7510) Potential Performance Loss: …`.
fn number(line: &str) -> Option<&str> {
    let number = line.get(line.find("(C75")? + 1..)?.split(')').next()?;
    let digits = number.get(1..)?;
    (digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit())).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: &str, what: &str) -> String {
        format!("ptxas info    : ({number}) Potential Performance Loss: {what}\n")
    }

    #[test]
    fn only_warnings_that_the_probe_brought_are_told() {
        let serial = line(
            "C7510",
            "wgmma.mma_async instructions are serialized in 'k'",
        );
        let setmax = line("C7508", "setmaxnreg ignored in 'k'");
        let log = format!("{serial}{setmax}{serial}info    : 12 registers (C12)\n");
        let new = |log: &str, before: &str| of_slice(log, || before.to_owned());
        assert_eq!(new(&log, ""), [serial.trim(), setmax.trim()]);
        assert_eq!(
            new(&log, &line("C7510", "in another function")),
            [setmax.trim()]
        );
        assert_eq!(new(&log, &log), [""; 0]);
        let not_asked = || panic!("a text without warnings needs no second compilation");
        assert_eq!(of_slice("warning (C75) (C75x1)\n(C75", not_asked), [""; 0]);
    }

    #[test]
    fn a_warning_of_a_clone_is_told_by_its_name() {
        let serial = |name: &str| {
            line(
                "C7510",
                &format!("wgmma.mma_async instructions are serialized in the function '{name}'"),
            )
        };
        let all = ["wbpf_a".to_owned(), "wbpf_b".to_owned()];
        let not_asked = || panic!("nothing is left to be compared");
        let of = |log: &str, kernel: &str| {
            of_clone(log, (&format!("wbpf_{kernel}"), kernel), &all, not_asked)
        };
        let log = serial("wbpf_a");
        assert_eq!(of(&log, "a"), [log.trim()]);
        assert_eq!(of(&log, "b"), [""; 0]);
        let both = serial("a") + &serial("wbpf_a") + &serial("wbpf_b");
        // The original's own is asked about, and is no news.
        let of = |log: &str, kernel: &str, before: &str| {
            let entry = format!("wbpf_{kernel}");
            of_clone(log, (&entry, kernel), &all, || before.to_owned())
        };
        assert_eq!(of(&both, "a", &serial("a")), [""; 0]);
        assert_eq!(of(&both, "b", &serial("a")), [serial("wbpf_b").trim()]);
    }

    #[test]
    fn a_warning_without_a_name_is_news_where_its_number_is() {
        let ignored = line(
            "C7508",
            "'setmaxnreg' ignored to maintain minimum register requirements.",
        );
        let of = |before: &str| {
            of_clone(&ignored, ("wbpf_k", "k"), &["wbpf_k".to_owned()], || {
                before.to_owned()
            })
        };
        assert_eq!(of(""), [ignored.trim()]);
        assert_eq!(of(&ignored), [""; 0]);
    }
}
