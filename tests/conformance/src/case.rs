//! The file format of bpf_conformance: sections that begin with `-- name`, of which `asm`, `mem`
//! and `result` count.

use warpbpf_ebpf::{AsmError, Code, assemble_ubpf};

/// A case of the suite.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// The program.
    pub code: Code,
    /// What `r1` points to; `r2` is its length.
    pub memory: Vec<u8>,
    /// Expected `r0`.
    pub result: u64,
}

/// A file that is no case.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CaseError {
    /// A section that every case has is missing.
    #[error("there is no section `-- {section}`: add it")]
    NoSection {
        /// Its name.
        section: &'static str,
    },
    /// A word that is no hexadecimal number.
    #[error("`{word}` in section `-- {section}` is not a hexadecimal number that fits: correct it")]
    Number {
        /// The section.
        section: &'static str,
        /// The word.
        word: String,
    },
    /// Not one result.
    #[error("section `-- result` holds {count} numbers: give one")]
    Results {
        /// How many.
        count: usize,
    },
    /// The program does not assemble.
    #[error("the program does not assemble: {}", .errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Assembler {
        /// One per line at fault.
        errors: Vec<AsmError>,
    },
}

/// Reads a case. Sections that describe how other runners are to treat it (`no register offset`,
/// `raw`) are skipped.
///
/// # Errors
/// [`CaseError`] says which section is at fault.
pub fn parse(text: &str) -> Result<Case, CaseError> {
    let asm = section(text, "asm").ok_or(CaseError::NoSection { section: "asm" })?;
    let result = section(text, "result").ok_or(CaseError::NoSection { section: "result" })?;
    let results = numbers("result", &result)?;
    let &[result] = results.as_slice() else {
        return Err(CaseError::Results {
            count: results.len(),
        });
    };
    let memory = section(text, "mem").unwrap_or_default();
    let byte = |n: u64| {
        u8::try_from(n).map_err(|_| CaseError::Number {
            section: "mem",
            word: format!("{n:x}"),
        })
    };
    let memory = numbers("mem", &memory)?
        .into_iter()
        .map(byte)
        .collect::<Result<_, _>>()?;
    let code = assemble_ubpf(&asm).map_err(|errors| CaseError::Assembler { errors })?;
    Ok(Case {
        code,
        memory,
        result,
    })
}

/// Lines of all sections with this name, or `None` if there is none.
fn section(text: &str, wanted: &str) -> Option<String> {
    let (mut current, mut found) = (None, None::<String>);
    for line in text.lines() {
        match line.strip_prefix("-- ") {
            Some(name) => {
                current = Some(name.trim());
                if current == Some(wanted) {
                    found.get_or_insert_default();
                }
            }
            None if current == Some(wanted) => {
                let lines = found.get_or_insert_default();
                lines.push_str(line);
                lines.push('\n');
            }
            None => {}
        }
    }
    found
}

fn numbers(section: &'static str, text: &str) -> Result<Vec<u64>, CaseError> {
    let words = text.lines().flat_map(|line| {
        line.split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace()
    });
    words
        .map(|word| {
            u64::from_str_radix(word.trim_start_matches("0x"), 16).map_err(|_| CaseError::Number {
                section,
                word: word.to_owned(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_comments_and_numbers() {
        let text = "# who\n-- asm\nmov %r0, 1 # one\nexit\n-- mem\n01 ff # two bytes\n0x10\n-- result\n0xffffffffffffffff\n-- raw\n0\n";
        let case = parse(text).expect("a case");
        assert_eq!(case.code.insns().len(), 2);
        assert_eq!(case.memory, [1, 0xff, 0x10]);
        assert_eq!(case.result, u64::MAX);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let message = |text: &str| parse(text).expect_err("no case").to_string();
        assert_eq!(
            message("-- result\n0\n"),
            "there is no section `-- asm`: add it"
        );
        assert_eq!(
            message("-- asm\nexit\n"),
            "there is no section `-- result`: add it"
        );
        assert_eq!(
            message("-- asm\nexit\n-- result\n0 1\n"),
            "section `-- result` holds 2 numbers: give one"
        );
        assert_eq!(
            message("-- asm\nexit\n-- result\nyes\n"),
            "`yes` in section `-- result` is not a hexadecimal number that fits: correct it"
        );
        assert_eq!(
            message("-- asm\nexit\n-- result\n0\n-- mem\n100\n"),
            "`100` in section `-- mem` is not a hexadecimal number that fits: correct it"
        );
        assert!(
            message("-- asm\nfly\n-- result\n0\n").starts_with("the program does not assemble: ")
        );
    }
}
