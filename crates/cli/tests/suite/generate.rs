//! What shells and `man` are given.

use crate::common::Folder;

#[test]
fn each_shell_gets_the_verbs() {
    let folder = Folder::new("completions");
    for (shell, line) in [
        (
            "bash",
            "complete -F _warpbpf -o nosort -o bashdefault -o default warpbpf",
        ),
        ("zsh", "#compdef warpbpf"),
        ("fish", "complete -c warpbpf"),
    ] {
        let output = folder.output(&format!("completions {shell}"));
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success());
        assert!(script.contains(line), "{shell}: {script}");
        for verb in ["attach", "run", "slots", "timeline"] {
            assert!(script.contains(verb), "{shell} does not know `{verb}`");
        }
    }
}

#[test]
fn each_verb_has_a_page() {
    let folder = Folder::new("man");
    let place = folder.0.join("new/man1");
    let output = folder.output(&format!("man {}", place.display()));
    assert!(output.status.success());
    assert_eq!((output.stdout, output.stderr), (Vec::new(), Vec::new()));
    let page = std::fs::read_to_string(place.join("warpbpf-run.1")).unwrap();
    assert!(page.contains(".SH SYNOPSIS"), "{page}");
    assert!(page.contains("\\-\\-budget"), "{page}");
    let main = std::fs::read_to_string(place.join("warpbpf.1")).unwrap();
    assert!(main.contains("warpbpf\\-attach(1)"), "{main}");
}

#[test]
fn a_place_that_is_none_is_named() {
    let folder = Folder::new("no-man");
    folder.write("file", b"");
    let place = folder.0.join("file/man1");
    let output = folder.output(&format!("man {}", place.display()));
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = format!(
        "warpbpf: manual pages cannot be written to `{}`: Not a directory (os error 20)\n",
        place.display()
    );
    assert_eq!(said, expected);
}
