//! Writes known addresses into a slice's text in place of its slot table.
//!
//! A module that has any variable of its own costs about 0.2 µs at each launch of its kernels
//! (docs/measurements.md), as much as a small probe; an immediate costs nothing. The table stays in
//! the text until the addresses are known, so that the text itself depends on nothing but the
//! kernel and the programs.

use warpbpf_abi::names::SLOTS;

use crate::error::PatchError;

/// `slice` with the value of slot `k` taken from `slots[k]`.
///
/// # Errors
/// [`PatchError::Slots`] if the text reads a slot that `slots` lacks, or names the table in a form
/// that the code generator and the splicer do not write.
pub fn bake(slice: &str, slots: &[u64]) -> Result<String, PatchError> {
    let unreadable = |at: usize| {
        let line = slice[at..].lines().next().unwrap_or_default();
        PatchError::Slots {
            line: line.trim().to_owned(),
        }
    };
    let mut out = String::with_capacity(slice.len());
    let mut done = 0;
    while let Some(found) = slice[done..].find(SLOTS) {
        let name = done + found;
        let start = slice[..name]
            .rfind([';', '{', '}', '\n'])
            .map_or(0, |at| at + 1);
        let end = slice[name..]
            .find(';')
            .map_or(slice.len(), |at| name + at + 1);
        let statement = slice[start..end].trim_start();
        out.push_str(&slice[done..end - statement.len()]);
        if !statement.starts_with(".visible") {
            let (guard, register, offset) = read_of(statement).ok_or_else(|| unreadable(start))?;
            let value = offset
                .is_multiple_of(8)
                .then(|| slots.get(offset / 8))
                .flatten();
            let value = value.ok_or_else(|| unreadable(start))?;
            out.push_str(&format!("{guard}mov.b64 {register}, {value:#x};"));
        }
        done = end;
    }
    out.push_str(&slice[done..]);
    Ok(out)
}

/// `@p ld.const.u64 %r, [wbpf_slots+8];` → guard, register, offset.
fn read_of(statement: &str) -> Option<(&str, &str, usize)> {
    let at = statement.find("ld.")?;
    let (guard, read) = statement.split_at(at);
    let read = read
        .strip_prefix("ld.const.u64 ")
        .or_else(|| read.strip_prefix("ld.global.u64 "))?;
    let (register, address) = read.split_once(", [")?;
    let address = address.strip_prefix(SLOTS)?.strip_suffix("];")?;
    let offset = if address.is_empty() {
        0
    } else {
        address.strip_prefix('+')?.parse().ok()?
    };
    Some((guard, register, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_become_immediates_and_the_table_goes() {
        let text = "\n.visible .const .align 8 .b64 wbpf_slots[2];\n.entry k() {\n\tld.const.u64 %rd1, [wbpf_slots+8];\n\t@!%p ld.const.u64 %rd2, [wbpf_slots+0];\n\tret;\n}\n";
        assert_eq!(
            bake(text, &[16, 0x7f00]).unwrap(),
            "\n\n.entry k() {\n\tmov.b64 %rd1, 0x7f00;\n\t@!%p mov.b64 %rd2, 0x10;\n\tret;\n}\n"
        );
    }

    #[test]
    fn what_it_cannot_bake_is_named() {
        let missing = bake("\tld.const.u64 %a, [wbpf_slots+16];\n", &[1]).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "`ld.const.u64 %a, [wbpf_slots+16];` reads a slot that has no address; this is a bug in warpbpf"
        );
        assert!(bake("\tmov.u64 %a, wbpf_slots;\n", &[1]).is_err());
    }

    #[test]
    fn text_without_a_table_stays() {
        assert_eq!(
            bake(".entry k() { ret; }", &[]).unwrap(),
            ".entry k() { ret; }"
        );
    }
}
