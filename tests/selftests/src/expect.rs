//! What a selftest expects of the kernel, read from the BTF tags that `bpf_misc.h` puts on its
//! function.

use warpbpf_object::{Btf, Type};

/// What the kernel does with a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It loads for a privileged user, and for others as far as the test says.
    Accepts,
    /// It is refused for everybody. The texts are what the log must hold.
    Refuses(Vec<String>),
    /// It loads for a privileged user; for others it is refused, because it tells them a kernel
    /// address or what was on the stack before. warpbpf has no privileged mode: it always protects
    /// both.
    Leaks(String),
}

/// The expectation of one program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expectation {
    /// What the kernel does.
    pub verdict: Verdict,
    /// Part of another test, not one by itself.
    pub auxiliary: bool,
    /// Only meant for processors that are not x86-64.
    pub other_arch: bool,
    /// `BPF_F_*` flags by name or number, `!` in front of cleared ones.
    pub flags: Vec<String>,
}

/// What the kernel says to the unprivileged where a program would tell them something that is not
/// theirs.
const LEAKS: &[&str] = &[
    "leaks addr",
    "leaking pointer",
    "pointer comparison",
    "pointer arithmetic prohibited",
    "pointer arithmetic with",
    "pointer += pointer prohibited",
    "pointer -= pointer prohibited",
    "pointer prohibited",
    "attempt to corrupt spilled",
    "corrupted spill memory",
    "invalid read from stack",
    "invalid indirect read from stack",
    "partial copy",
    "sign-extension part of pointer",
];

/// The message is about something that the program would tell.
pub fn speaks_of_leak(message: &str) -> bool {
    LEAKS.iter().any(|leak| message.contains(leak))
}

/// The expectation of the program with this function name.
pub fn of(btf: &Btf, program: &str) -> Expectation {
    let function = btf
        .find(program)
        .find(|(_, ty)| matches!(ty, Type::Func { .. }))
        .map(|(id, _)| id);
    let tags = btf.types().filter_map(|(_, ty)| match ty {
        Type::DeclTag {
            name,
            target,
            component: None,
        } if Some(*target) == function => Some(name.as_str()),
        _ => None,
    });
    from_tags(tags)
}

/// Without a tag that says otherwise the kernel accepts, as in the kernel's own `test_loader.c`.
pub fn from_tags<'a>(tags: impl Iterator<Item = &'a str>) -> Expectation {
    let mut refused = false;
    let mut refused_unprivileged = false;
    let mut messages = Vec::new();
    let mut messages_unprivileged = Vec::new();
    let mut architectures = Vec::new();
    let mut auxiliary = false;
    let mut flags = Vec::new();
    for tag in tags {
        let Some(tag) = tag.strip_prefix("comment:test_") else {
            continue;
        };
        let (key, value) = tag.split_once('=').unwrap_or((tag, ""));
        // Messages are numbered, so that the same one can be given twice: `3=text`.
        let text = || {
            value
                .split_once('=')
                .map_or(value, |(_, text)| text)
                .to_owned()
        };
        match key {
            "expect_failure" => refused = true,
            "expect_failure_unpriv" => refused_unprivileged = true,
            "expect_msg" => messages.push(text()),
            "expect_msg_unpriv" => messages_unprivileged.push(text()),
            "auxiliary" | "auxiliary_unpriv" => auxiliary = true,
            "arch" => architectures.push(value.to_owned()),
            "prog_flags" => flags.push(value.to_owned()),
            _ => {}
        }
    }
    let leak = messages_unprivileged
        .iter()
        .find(|message| speaks_of_leak(message));
    let verdict = match (refused, leak) {
        (true, _) => Verdict::Refuses(messages),
        (false, Some(leak)) if refused_unprivileged => Verdict::Leaks(leak.clone()),
        (false, _) => Verdict::Accepts,
    };
    Expectation {
        verdict,
        auxiliary,
        other_arch: !architectures.is_empty() && !architectures.iter().any(|a| a == "X86_64"),
        flags,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(tags: &[&str]) -> Expectation {
        from_tags(tags.iter().copied())
    }

    #[test]
    fn no_tag_means_accepted() {
        let expectation = parse(&[]);
        assert_eq!(expectation.verdict, Verdict::Accepts);
        assert!(!expectation.auxiliary && !expectation.other_arch);
    }

    #[test]
    fn a_refusal_has_its_messages_without_their_numbers() {
        let expectation = parse(&[
            "comment:test_description=a=b",
            "comment:test_expect_failure",
            "comment:test_expect_msg=3=R1 = invalid",
            "comment:test_expect_msg=4=second",
        ]);
        assert_eq!(
            expectation.verdict,
            Verdict::Refuses(vec!["R1 = invalid".to_owned(), "second".to_owned()])
        );
    }

    #[test]
    fn only_leaks_count_of_what_the_unprivileged_are_refused() {
        let leak = parse(&[
            "comment:test_expect_success",
            "comment:test_expect_failure_unpriv",
            "comment:test_expect_msg_unpriv=0=R0 leaks addr as return value",
        ]);
        assert_eq!(
            leak.verdict,
            Verdict::Leaks("R0 leaks addr as return value".to_owned())
        );
        let privilege = parse(&[
            "comment:test_expect_success",
            "comment:test_expect_failure_unpriv",
            "comment:test_expect_msg_unpriv=0=function calls to other bpf functions are allowed for CAP_BPF and CAP_SYS_ADMIN",
        ]);
        assert_eq!(privilege.verdict, Verdict::Accepts);
    }

    #[test]
    fn flags_architectures_and_parts_of_other_tests_are_seen() {
        let expectation = parse(&[
            "comment:test_auxiliary",
            "comment:test_arch=ARM64",
            "comment:test_prog_flags=BPF_F_ANY_ALIGNMENT",
            "comment:other=1",
            "comment:test_prog_flags=!BPF_F_STRICT_ALIGNMENT",
        ]);
        assert!(expectation.auxiliary && expectation.other_arch);
        assert_eq!(
            expectation.flags,
            ["BPF_F_ANY_ALIGNMENT", "!BPF_F_STRICT_ALIGNMENT"]
        );
        assert!(!parse(&["comment:test_arch=ARM64", "comment:test_arch=X86_64"]).other_arch);
    }
}
