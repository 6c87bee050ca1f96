//! The commands that documents show: each is run, and its output compared with what stands there.
//!
//! A fenced block whose first line begins with `$ ` is a session of a terminal: what follows a
//! command, up to the next one, is what it prints, both streams as they come. `…` stands for any
//! part of a line, or as a line of its own for any number of lines. A command without output is
//! only run. What a fence says besides:
//!
//! - `status=N`: the exit status of the last command.
//! - `times`: numbers, bars and the count of rows that are alike may be others.
//! - `unordered`: the application and the tool write as they come, so lines are compared sorted.
//! - `not-run`: a test does not have what it needs; a line above says what that is.
//! - a file's name, as "c hello.bpf.c": the block is written to that file.
//!
//! The blocks of a page share a folder, in which the applications of the examples lie by their
//! names. With `WARPBPF_BLESS=1` what is printed replaces what the page shows, where they differ.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::run::{Bench, Case, Told};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Compilers of BPF, the first that is there.
const CLANG: &[&str] = &[
    "clang", "clang-22", "clang-21", "clang-20", "clang-19", "clang-18",
];
const PATIENCE: Duration = Duration::from_secs(60);

macro_rules! pages {
    ($($page:literal),* $(,)?) => {
        &[$((concat!("documents: ", $page), |bench| page(bench, $page))),*]
    };
}

/// Name of the case, and what runs it.
type Page = (&'static str, fn(&Bench) -> Told);

const PAGES: &[Page] = pages![
    "README.md",
    "docs/guide/cpu-and-gpu.md",
    "docs/guide/first-steps.md",
    "docs/guide/own-program.md",
    "docs/script.md",
    "docs/tools.md",
    "examples/README.md",
    "examples/divergence/README.md",
    "examples/kernelretsnoop/README.md",
    "examples/launchcount/README.md",
    "examples/launchlate/README.md",
    "examples/memtraffic/README.md",
    "examples/threadhist/README.md",
];

pub fn cases() -> Vec<Case> {
    let case = |(name, check): &Page| Case {
        name,
        check: *check,
    };
    PAGES.iter().map(case).collect()
}

/// What may be another way in each run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Differs {
    times: bool,
    unordered: bool,
}

/// What a page shows.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    /// A command, the lines that it prints, its exit status, and the line of the page.
    Command {
        line: usize,
        command: String,
        output: Vec<String>,
        status: i32,
        differs: Differs,
    },
    /// A file.
    File { name: String, text: String },
}

fn page(bench: &Bench, name: &str) -> Told {
    if !bench.soft {
        return Ok("skipped: documents are tried on the soft GPU".to_owned());
    }
    let path = Path::new(ROOT).join(name);
    let Ok(text) = std::fs::read_to_string(&path) else {
        return Ok("skipped: the documents are not here".to_owned());
    };
    let folder = prepared(bench)?;
    let (mut commands, mut other) = (0, Vec::new());
    for shown in shown(&text) {
        match shown {
            Shown::File { name, text } => {
                let path = folder.join("here").join(name);
                std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
            }
            Shown::Command {
                line,
                command,
                output,
                status,
                differs,
            } => {
                commands += 1;
                let (ended, text) = run(bench, &folder, &command)?;
                let here = || format!("{name}:{line}: `{command}`");
                if ended != Some(status) {
                    return Err(format!(
                        "{}: status {ended:?}, not {status}:\n{text}",
                        here()
                    ));
                }
                match compare(&output, &text, differs) {
                    Ok(()) => {}
                    Err(_) if std::env::var_os("WARPBPF_BLESS").is_some() => {
                        let first = line + command.lines().count() - 1;
                        other.push((first..first + output.len(), text));
                    }
                    Err(why) => return Err(format!("{}: {why}", here())),
                }
            }
        }
    }
    if !other.is_empty() {
        std::fs::write(&path, blessed(&text, &other)).map_err(|e| format!("{name}: {e}"))?;
    }
    match commands {
        0 => Err("it shows no command".to_owned()),
        count => Ok(format!("{count} commands")),
    }
}

/// The page with other lines at these places, which are in their order.
fn blessed(page: &str, other: &[(std::ops::Range<usize>, String)]) -> String {
    let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
    for (place, text) in other.iter().rev() {
        let printed = text.lines().map(str::trim_end).filter(of_any_machine);
        lines.splice(place.clone(), printed.map(without_pid));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// `[pid …]` in place of a number that is another one in each run.
fn without_pid(line: &str) -> String {
    match line
        .split_once("[pid ")
        .and_then(|(before, rest)| Some((before, rest.split_once(']')?)))
    {
        Some((before, (_, behind))) => format!("{before}[pid …]{behind}"),
        None => line.to_owned(),
    }
}

/// Where there is a GPU nobody says that there is none.
fn of_any_machine(line: &&str) -> bool {
    !line.starts_with("warpbpf: no GPU here: ")
}

/// A folder with `bin`, which is searched for commands, and `here`, where they are run.
fn prepared(bench: &Bench) -> Result<PathBuf, String> {
    let folder = bench.scratch("document");
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let (bin, here) = (folder.join("bin"), folder.join("here"));
    for made in [&bin, &here] {
        std::fs::create_dir_all(made).map_err(failed)?;
    }
    let link = |from: PathBuf, to: PathBuf| match std::os::unix::fs::symlink(from, to) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(failed(error)),
        _ => Ok(()),
    };
    link(bench.folder.join("warpbpf"), bin.join("warpbpf"))?;
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let find = |name: &&&str| {
        let mut folders = std::env::split_paths(&paths);
        folders.any(|folder| folder.join(name).exists())
    };
    if let Some(clang) = CLANG.iter().find(find) {
        let mut folders = std::env::split_paths(&paths);
        let there = folders.find(|folder| folder.join(clang).exists());
        link(there.unwrap_or_default().join(clang), bin.join("clang"))?;
    }
    link(Path::new(ROOT).join("include"), here.join("include"))?;
    link(bench.folder.join("objects"), here.join("objects"))?;
    let apps = std::fs::read_dir(bench.folder.join("apps")).map_err(failed)?;
    for app in apps.flatten() {
        let name = app.file_name().to_string_lossy().into_owned();
        // A report calls an application by its file, so this is no symbolic link.
        if let Some(short) = name.strip_suffix("-shared") {
            std::fs::copy(app.path(), here.join(short)).map_err(failed)?;
        }
    }
    // As a person has them who stands beside a page of the examples.
    for example in std::fs::read_dir(Path::new(ROOT).join("examples")).map_err(failed)? {
        let example = example.map_err(failed)?.path();
        for file in std::fs::read_dir(&example).into_iter().flatten().flatten() {
            if file.path().extension().is_some_and(|end| end == "c") {
                std::fs::copy(file.path(), here.join(file.file_name())).map_err(failed)?;
            }
        }
    }
    Ok(folder)
}

/// Runs a command: its exit status, and what it prints.
fn run(bench: &Bench, folder: &Path, command: &str) -> Result<(Option<i32>, String), String> {
    let (read, write) = std::io::pipe().map_err(|e| e.to_string())?;
    let again = write.try_clone().map_err(|e| e.to_string())?;
    let mut paths = vec![folder.join("bin")];
    paths.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    let paths = std::env::join_paths(paths).map_err(|e| e.to_string())?;
    let mut shell = std::process::Command::new("timeout");
    shell
        .arg(PATIENCE.as_secs().to_string())
        .args(["bash", "-c", command])
        .current_dir(folder.join("here"))
        .env("PATH", paths)
        .env("WARPBPF_SOFT_DIR", bench.folder.join("soft"))
        .env("HOME", folder)
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .stdout(write)
        .stderr(again);
    let mut child = shell.spawn().map_err(|e| format!("bash: {e}"))?;
    // Its ends of the pipe.
    drop(shell);
    let text = std::io::read_to_string(read).map_err(|e| e.to_string())?;
    // Compilers write down where a source lies.
    let text = text.replace(&format!("{}/", folder.join("here").display()), "");
    let ended = child.wait().map_err(|e| e.to_string())?;
    Ok((ended.code(), text))
}

fn compare(expected: &[String], text: &str, differs: Differs) -> Result<(), String> {
    let lines = text.lines().map(str::trim_end).filter(of_any_machine);
    let expected = expected.iter().map(|line| line.trim_end());
    let seen = |lines: &mut dyn Iterator<Item = &str>| -> Vec<String> {
        let mut seen: Vec<String> = lines
            .map(|line| match differs.times {
                true => form(line),
                false => line.to_owned(),
            })
            .collect();
        if differs.times {
            seen.dedup();
        }
        if differs.unordered {
            seen.sort();
        }
        seen
    };
    let (shown, printed) = (seen(&mut expected.clone()), seen(&mut lines.into_iter()));
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    let printed: Vec<&str> = printed.iter().map(String::as_str).collect();
    match shown.is_empty() || fits(&shown, &printed) {
        true => Ok(()),
        false => Err(format!(
            "it prints\n{text}and the page shows\n{}\n",
            expected.collect::<Vec<_>>().join("\n")
        )),
    }
}

/// A line without numbers, bars and blanks.
fn form(line: &str) -> String {
    let mut form = String::new();
    let mut in_number = false;
    for sign in line.chars() {
        // `1.5ms` may be `15µs` or `1s`.
        let of_number =
            in_number && matches!(sign, '.' | ',' | 'K' | 'M' | 'G' | 'T' | 'n' | 'µ' | 'm');
        match sign {
            '@' | '█' | '▉'..='▏' => {}
            ' ' => {}
            _ if sign.is_ascii_digit() && !in_number => form.push('0'),
            _ if sign.is_ascii_digit() || of_number => {}
            sign => form.push(sign),
        }
        in_number = sign.is_ascii_digit() || of_number;
    }
    form
}

/// The lines are those that are expected, in which `…` stands for anything.
fn fits(expected: &[&str], lines: &[&str]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((&"…", rest)) => (0..=lines.len()).any(|skipped| fits(rest, &lines[skipped..])),
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, behind)| line_fits(first, line) && fits(rest, behind)),
    }
}

fn line_fits(expected: &str, line: &str) -> bool {
    match expected.split_once('…') {
        None => expected == line,
        Some((before, behind)) => line.strip_prefix(before).is_some_and(|rest| {
            let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.into_iter().any(|at| line_fits(behind, &rest[at..]))
        }),
    }
}

/// What a page shows, in its order.
fn shown(text: &str) -> Vec<Shown> {
    let mut all = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else {
            continue;
        };
        let block: Vec<(usize, &str)> = lines
            .by_ref()
            .take_while(|(_, line)| !line.starts_with("```"))
            .collect();
        let words: Vec<&str> = info.split_whitespace().collect();
        if words.contains(&"not-run") {
            continue;
        }
        if let [_, name] = words.as_slice()
            && name.contains('.')
        {
            let text: String = block.iter().map(|(_, line)| format!("{line}\n")).collect();
            all.push(Shown::File {
                name: (*name).to_owned(),
                text,
            });
            continue;
        }
        if !block
            .first()
            .is_some_and(|(_, line)| line.starts_with("$ "))
        {
            continue;
        }
        let first = all.len();
        for (at, line) in block {
            match (line.strip_prefix("$ "), all.last_mut()) {
                (
                    None,
                    Some(Shown::Command {
                        command, output, ..
                    }),
                ) if all_of(command, output) => {
                    command.push('\n');
                    command.push_str(line);
                }
                (None, Some(Shown::Command { output, .. })) => output.push(line.to_owned()),
                (Some(command), _) => all.push(Shown::Command {
                    line: at + 1,
                    command: command.to_owned(),
                    output: Vec::new(),
                    status: 0,
                    differs: Differs {
                        times: words.contains(&"times"),
                        unordered: words.contains(&"unordered"),
                    },
                }),
                (None, _) => {}
            }
        }
        let said = words.iter().find_map(|word| word.strip_prefix("status="));
        if let (Some(said), Some(Shown::Command { status, .. })) = (said, all[first..].last_mut()) {
            *status = said.parse().unwrap_or(-1);
        }
    }
    all
}

/// A command goes on in the next line: a quote is open, or the line ends with `\`.
fn all_of(command: &str, output: &[String]) -> bool {
    let mut quote = None;
    let mut signs = command.chars();
    while let Some(sign) = signs.next() {
        match (quote, sign) {
            (None, '\\') => drop(signs.next()),
            (None, '\'' | '"') => quote = Some(sign),
            (Some(open), sign) if open == sign => quote = None,
            _ => {}
        }
    }
    output.is_empty() && (quote.is_some() || command.ends_with('\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_and_files_are_found() {
        let page = "text\n```c a.c\nint x;\n```\n```\n$ one 'a\nb' \\\n  c\nout\n$ two\n```\n```\nno session\n```\n``` status=3\n$ three\n```\n``` not-run\n$ four\n```\n";
        let command = |line, command: &str, output: &[&str], status| Shown::Command {
            line,
            command: command.to_owned(),
            output: output.iter().map(|line| (*line).to_owned()).collect(),
            status,
            differs: Differs::default(),
        };
        let file = Shown::File {
            name: "a.c".to_owned(),
            text: "int x;\n".to_owned(),
        };
        assert_eq!(
            shown(page),
            [
                file,
                command(6, "one 'a\nb' \\\n  c", &["out"], 0),
                command(10, "two", &[], 0),
                command(16, "three", &[], 3),
            ]
        );
    }

    #[test]
    fn a_page_gets_what_is_printed() {
        let page = "```\n$ one\nold\nolder\n$ two\n```\n";
        let other = [
            (2..4, "new\n".to_owned()),
            (5..5, "more \n[pid 7] on\n".to_owned()),
        ];
        assert_eq!(
            blessed(page, &other),
            "```\n$ one\nnew\n$ two\nmore\n[pid …] on\n```\n"
        );
    }

    const TIMES: Differs = Differs {
        times: true,
        unordered: false,
    };

    #[test]
    fn lines_may_come_in_another_order() {
        let shown = ["a".to_owned(), "b".to_owned()];
        let unordered = Differs {
            times: false,
            unordered: true,
        };
        assert_eq!(compare(&shown, "b\na\n", unordered), Ok(()));
        assert!(compare(&shown, "b\na\n", Differs::default()).is_err());
        assert!(compare(&shown, "b\nb\n", unordered).is_err());
    }

    #[test]
    fn times_may_be_others() {
        let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
        let shown = "@us:\n[16, 32)    1 |@@  |\n[512, 1K)  3 |@   |\n";
        let other = "@us:\n[8, 16)   11 |@@@@@|\n";
        assert_eq!(compare(&lines(shown), other, TIMES), Ok(()));
        assert!(compare(&lines(shown), other, Differs::default()).is_err());
        assert!(compare(&lines(shown), "@ms:\n[8, 16)  1 ||\n", TIMES).is_err());
        let row = "gemm  1,024  3.5 µs  3.5µs  91%";
        let other = "gemm  7  12 µs  12.1ms  100%\n";
        assert_eq!(compare(&lines(row), other, TIMES), Ok(()));
    }

    #[test]
    fn dots_stand_for_anything() {
        assert!(fits(&["a … c", "…", "z"], &["a b c", "x", "y", "z"]));
        assert!(fits(&["…", "z"], &["z"]));
        assert!(fits(&["[pid …] on"], &["[pid 7] on"]));
        assert!(!fits(&["a … c"], &["a b d"]));
        assert!(!fits(&["a"], &["a", "b"]));
        assert!(!fits(&["a", "…", "z"], &["a", "y"]));
    }
}
