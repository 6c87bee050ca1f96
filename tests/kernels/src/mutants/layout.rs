//! Writes a text in ways that compilers do not, and that the ISA allows: several statements in a
//! line, comments that look like statements, any space.

use warpbpf_conformance::rng::Rng;

use warpbpf_conformance::lines::Text;

/// What stands in comments: whoever looks for statements with anything but a parser finds these.
const COMMENTS: &[&str] = &[
    "ld.global.u32 %r1, [%a0];",
    "@%p1 bra $L1;",
    "} ret; {",
    "{ // callseq 1, 0",
    "\"",
    "st.shared.u32 [%b1], %r1; /*",
    ".reg .b32 %r<99>;",
    "$L1:",
    "'",
];

/// The module with its statements in some layout.
pub fn lay_out(rng: &mut Rng, text: &Text) -> String {
    let joined = rng.pick(&[0, 2, 5]);
    let spaced = rng.one_in(3);
    let ending = rng.pick(&["\n", "\n", "\r\n", "\n\n", "\n\t"]);
    let comments = rng.one_in(2);
    text.written(|lines, out| {
        out.push_str(ending);
        for line in lines {
            out.push_str(&match spaced {
                true => space(rng, &line.0),
                false => line.0.clone(),
            });
            if comments && rng.one_in(4) {
                out.push_str(&comment(rng));
            }
            out.push_str(match joined > 0 && !rng.one_in(joined + 1) {
                true => rng.pick(&[" ", "", "\t", "  "]),
                false => ending,
            });
        }
        // What follows may not be taken into a comment.
        out.push('\n');
    })
}

fn comment(rng: &mut Rng) -> String {
    let text = rng.pick(COMMENTS);
    match rng.one_in(2) {
        true => format!(" // {text}\n"),
        // A comment in one line holds no other.
        false => format!(" /* {} */ ", text.replace("/*", "").replace("*/", "")),
    }
}

/// More space, where there may be some: around what separates operands and within brackets.
fn space(rng: &mut Rng, line: &str) -> String {
    if line.starts_with(".pragma") {
        return line.to_owned();
    }
    let mut out = String::with_capacity(line.len() * 2);
    for c in line.chars() {
        match c {
            ',' | ';' | '[' | ']' | '{' | '}' if rng.one_in(2) => {
                let (before, after) = rng.pick(&[
                    (" ", ""),
                    ("", " "),
                    (" \t", "  "),
                    ("", "\n"),
                    ("/**/", ""),
                ]);
                out.push_str(before);
                out.push(c);
                out.push_str(after);
            }
            _ => out.push(c),
        }
    }
    out
}
