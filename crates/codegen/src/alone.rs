//! Map functions in which no lane waits for another: where lanes do something together, each is a
//! group by itself.
//!
//! The functions are written for lanes that meet, which is most of what makes them fast. They are
//! right for any lanes that may be together, so also for a warp of one lane, and all that says so
//! are the instructions below. Which lane it is stays what it is: that only chooses where a search
//! begins.

/// Behind a function's name.
const SUFFIX: &str = "_alone";

/// The function's name and text, if lanes meet in it: what it is without that.
pub fn alone(name: String, text: String) -> (String, String) {
    let mut changed = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match instruction(line.trim()) {
            Some(instruction) if instruction.is_empty() => {}
            Some(instruction) => changed += &format!("\t{instruction}\n"),
            None => changed += line,
        }
    }
    if changed == text {
        return (name, text);
    }
    let alone = format!("{name}{SUFFIX}");
    let text = changed.replacen(&format!("{name}("), &format!("{alone}("), 1);
    (alone, text)
}

/// What an instruction by which lanes meet does in a warp of one lane, which is its first.
fn instruction(line: &str) -> Option<String> {
    let (name, operands) = line.strip_suffix(';')?.split_once(' ')?;
    let mut operands = operands.split(", ");
    let mut next = || operands.next().unwrap_or_default();
    Some(match name {
        "activemask.b32" => format!("mov.b32 {}, 1;", next()),
        "mov.u32" => match (next(), next()) {
            (result, "%lanemask_lt" | "%lanemask_gt") => format!("mov.b32 {result}, 0;"),
            _ => return None,
        },
        // Result, value, mask: the lanes of the mask with that value.
        "match.any.sync.b64" => {
            let (result, _, mask) = (next(), next(), next());
            format!("mov.b32 {result}, {mask};")
        }
        "vote.sync.ballot.b32" => {
            let (result, holds, mask) = (next(), next(), next());
            format!("selp.b32 {result}, {mask}, 0, {holds};")
        }
        // Whatever lane of the group it is asked for.
        "shfl.sync.idx.b32" => {
            let (result, value) = (next(), next());
            format!("mov.b32 {result}, {value};")
        }
        "bar.warp.sync" => String::new(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_one_waits_for_nobody() {
        let function = |name: &str, body: &[&str]| {
            let lines: String = body.iter().map(|line| format!("\t{line}\n")).collect();
            format!(".func (.param .b64 wbpf_r) {name}(.param .b64 wbpf_a0)\n{{\n{lines}}}\n")
        };
        let together = [
            "activemask.b32 %a;",
            "mov.u32 %f, %lanemask_lt;",
            "mov.u32 %g, %lanemask_gt;",
            "mov.u32 %h, %laneid;",
            "match.any.sync.b64 %b, %v, %a;",
            "vote.sync.ballot.b32 %c, %p, %b;",
            "shfl.sync.idx.b32 %d, %e, %l, 31, %c;",
            "bar.warp.sync %c;",
            "@%p bra $wbpf_f;",
        ];
        let apart = [
            "mov.b32 %a, 1;",
            "mov.b32 %f, 0;",
            "mov.b32 %g, 0;",
            "mov.u32 %h, %laneid;",
            "mov.b32 %b, %a;",
            "selp.b32 %c, %b, 0, %p;",
            "mov.b32 %d, %e;",
            "@%p bra $wbpf_f;",
        ];
        assert_eq!(
            alone("wbpf_f".into(), function("wbpf_f", &together)),
            ("wbpf_f_alone".into(), function("wbpf_f_alone", &apart))
        );
        let plain = function("wbpf_g", &["add.s32 %a, %a, 1;"]);
        assert_eq!(
            alone("wbpf_g".into(), plain.clone()),
            ("wbpf_g".into(), plain)
        );
    }
}
