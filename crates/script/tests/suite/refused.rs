//! `filetests/script/errors.txt`: lines with `>` are a script, what follows is what is said of it.

use crate::{check, compile, folder};

#[test]
fn what_is_wrong_is_shown_in_the_script() {
    let path = folder().join("errors.txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut scripts: Vec<Vec<&str>> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line.strip_prefix('>') {
            Some(line) => {
                let line = line.strip_prefix(' ').unwrap_or(line);
                match scripts.last_mut().filter(|_| inside) {
                    Some(script) => script.push(line),
                    None => scripts.push(vec![line]),
                }
                inside = true;
            }
            None => inside = false,
        }
    }
    let mut expected = String::new();
    for script in scripts {
        for line in &script {
            expected += format!("> {line}").trim_end();
            expected.push('\n');
        }
        let source = script.join("\n");
        let errors = compile(&source).expect_err(&source);
        for error in errors {
            let shown = error.render("script", &source, false);
            let lines = shown.lines().map(str::trim_end);
            expected += &lines.collect::<Vec<_>>().join("\n");
            expected.push('\n');
        }
        expected.push('\n');
    }
    check(&path, &expected);
}
