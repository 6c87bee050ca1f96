//! Programs at accesses of memory, as a function that Compute Sanitizer calls: what it is told stands in for what a splicer sees in a kernel's
//! PTX.
//!
//! The same function is called at all accesses of a space, so selectors are looked at while it runs. Lanes that come together are taken
//! after that, since one that was left out may not be the leader.
//!
//! The same function can be called by a splice, which finds loads and stores of global memory alone, and has no value to show.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use warpbpf_abi::access::{Kind, Space};
use warpbpf_abi::attach::{Scope, When};
use warpbpf_abi::context::Capture;
use warpbpf_abi::names::GROUP_MASK;

use crate::middle::needs_mask;
use crate::program::Programs;
use crate::scope::{not_first, not_leader};
use crate::tools::{not_here, refused};
use crate::{Attachment, PatchError};

/// What the function gets behind the two parameters that all have.
pub(crate) const PARAMETERS: &str =
    ", .param .b64 wbpf_ptr, .param .b32 wbpf_size, .param .b32 wbpf_flags, .param .b64 wbpf_data";

/// Kinds of access that are told apart.
const KINDS: [Kind; 4] = [Kind::Load, Kind::Store, Kind::Atomic, Kind::Prefetch];
/// Spaces of which accesses are told.
pub const SPACES: [Space; 3] = [Space::Global, Space::Shared, Space::Local];

/// `flags`: reads, writes; both are an atomic.
const READ_WRITE: u32 = 3;
/// An atomic for the whole system, or one whose result nobody wants.
const ATOMIC: u32 = 4 | 0x100;
const PREFETCH: u32 = 8;

/// An attachment wants accesses of this space.
pub(crate) fn wants(attachment: &Attachment<'_>, space: Space) -> bool {
    let spaces = &attachment.select.spaces;
    spaces.is_empty() || spaces.contains(&space)
}

pub(crate) fn check(attachment: &Attachment<'_>) -> Result<(), PatchError> {
    let select = attachment.select;
    if select.when == When::After {
        return refused("`when=after`", "use `when=before`");
    }
    if let Some(kind) = select.kinds.iter().find(|kind| !KINDS.contains(kind)) {
        let advice = "use `load`, `store`, `atomic` (reductions are among them) or `prefetch`";
        return refused(&format!("`kind={}`", kind.word()), advice);
    }
    // An access whose instruction leaves the space open is told of as one of the space that it is of.
    let told = |space: &Space| SPACES.contains(space) || *space == Space::Generic;
    let none = !select.spaces.is_empty() && !select.spaces.iter().any(|s| SPACES.contains(s));
    if let Some(space) = select.spaces.iter().find(|space| none || !told(space)) {
        let advice = "use `global`, `shared` or `local`, one of which each access is of, whatever its instruction says";
        return refused(&format!("`space={}`", space.word()), advice);
    }
    for (given, what) in [
        (!select.caches.is_empty(), "`cache=`"),
        (select.op.is_some(), "`op=`"),
        (select.at.is_some(), "`at=`"),
        (select.functions.is_some(), "`func=`"),
    ] {
        if given {
            return refused(what, "do without it");
        }
    }
    for capture in &attachment.fragment.captures {
        match capture {
            Capture::Address
            | Capture::Bytes
            | Capture::Kind
            | Capture::Space
            | Capture::Value(_)
            | Capture::ValueBytes => {}
            other => not_here(*other)?,
        }
    }
    Ok(())
}

/// What a splice does not find, or has not, a program must not ask for.
pub(crate) fn check_spliced(attachment: &Attachment<'_>) -> Result<(), PatchError> {
    check(attachment)?;
    let select = attachment.select;
    if select.spaces.as_slice() != [Space::Global] {
        return refused(
            "an access of every space",
            "say `space=global`, whose instructions are found",
        );
    }
    let found = |kind: &Kind| matches!(kind, Kind::Load | Kind::Store);
    if select.kinds.is_empty() || !select.kinds.iter().all(found) {
        return refused(
            "an access of every kind",
            "say `kind=load`, `kind=store` or `kind=load+store`, whose instructions are found",
        );
    }
    let value = |capture: &&Capture| matches!(capture, Capture::Value(_) | Capture::ValueBytes);
    match attachment.fragment.captures.iter().find(value) {
        Some(capture) => not_here(*capture),
        None => Ok(()),
    }
}

/// The code of all attachments that want the space.
pub(crate) fn code(
    space: Space,
    attachments: &[Attachment<'_>],
    programs: &Programs<'_>,
) -> String {
    let mut out = String::from(
        "\t.reg .b32 %wbpf_size, %wbpf_flags, %wbpf_kind, %wbpf_t;\n\t.reg .pred %wbpf_q;\n",
    );
    out.push_str(
        "\tld.param.b32 %wbpf_size, [wbpf_size];\n\tld.param.b32 %wbpf_flags, [wbpf_flags];\n",
    );
    kind(&mut out);
    let wanted = attachments.iter().filter(|a| wants(a, space));
    for (number, attachment) in wanted.enumerate() {
        one(number, space, attachment, programs, &mut out);
    }
    out
}

/// `%wbpf_kind` by the flags.
fn kind(out: &mut String) {
    const {
        assert!(
            Kind::Load as u32 == 1 && Kind::Store as u32 == 2 && Kind::Atomic as u32 == READ_WRITE
        )
    };
    let mut put = |text: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "\t{text}");
    };
    put(format_args!(
        "and.b32 %wbpf_kind, %wbpf_flags, {READ_WRITE};"
    ));
    let other = Kind::Other as u32;
    put(format_args!("setp.eq.u32 %wbpf_q, %wbpf_kind, 0;"));
    put(format_args!(
        "selp.b32 %wbpf_kind, {other}, %wbpf_kind, %wbpf_q;"
    ));
    for (flag, kind) in [(ATOMIC, Kind::Atomic), (PREFETCH, Kind::Prefetch)] {
        put(format_args!("and.b32 %wbpf_t, %wbpf_flags, {flag};"));
        put(format_args!("setp.ne.u32 %wbpf_q, %wbpf_t, 0;"));
        let kind = kind as u32;
        put(format_args!(
            "selp.b32 %wbpf_kind, {kind}, %wbpf_kind, %wbpf_q;"
        ));
    }
}

fn one(
    number: usize,
    space: Space,
    attachment: &Attachment<'_>,
    programs: &Programs<'_>,
    out: &mut String,
) {
    let other = format!("wbpf_other_{number}");
    let mut code = String::from("{\n");
    let mut put = |text: std::fmt::Arguments<'_>| {
        // As above.
        let _ = writeln!(code, "\t{text}");
    };
    let select = attachment.select;
    if !select.kinds.is_empty() {
        put(format_args!(".reg .pred %wbpf_r;"));
        for (at, kind) in select.kinds.iter().enumerate() {
            let kind = *kind as u32;
            match at {
                0 => put(format_args!("setp.eq.u32 %wbpf_q, %wbpf_kind, {kind};")),
                _ => put(format_args!(
                    "setp.eq.or.u32 %wbpf_q, %wbpf_kind, {kind}, %wbpf_q;"
                )),
            }
        }
        put(format_args!("not.pred %wbpf_r, %wbpf_q;"));
        put(format_args!("@%wbpf_r bra {other};"));
    }
    if let Some(bytes) = &select.bytes {
        let (first, last) = (bytes.start(), bytes.end());
        put(format_args!("setp.lt.u32 %wbpf_q, %wbpf_size, {first};"));
        put(format_args!(
            "setp.gt.or.u32 %wbpf_q, %wbpf_size, {last}, %wbpf_q;"
        ));
        put(format_args!("@%wbpf_q bra {other};"));
    }
    if needs_mask(attachment) {
        put(format_args!(".reg .b32 {GROUP_MASK};"));
        put(format_args!("activemask.b32 {GROUP_MASK};"));
    }
    let elect = match attachment.scope {
        Scope::Thread => None,
        Scope::Warp => Some(not_leader()),
        Scope::Block => Some(not_first()),
    };
    if let Some(elect) = elect {
        put(format_args!(".reg .pred %wbpf_p;"));
        put(format_args!(".reg .b32 %wbpf_a, %wbpf_b;"));
        let elect = elect.trim();
        put(format_args!("{elect}"));
        put(format_args!("@%wbpf_p bra {other};"));
    }
    capture(&attachment.fragment.captures, space, &mut code);
    programs.write(attachment.fragment, false, &mut code);
    out.push_str(&code);
    out.push_str("}\n");
    // Outside of the braces, where all lanes come together.
    let _ = writeln!(out, "{other}:");
}

/// Declares and fills the registers that a program reads.
fn capture(captures: &BTreeSet<Capture>, space: Space, out: &mut String) {
    let mut put = |text: std::fmt::Arguments<'_>| {
        // As above.
        let _ = writeln!(out, "\t{text}");
    };
    let values = captures.iter().any(|c| matches!(c, Capture::Value(_)));
    if values {
        put(format_args!(".reg .b64 %wbpf_at;"));
        put(format_args!("ld.param.b64 %wbpf_at, [wbpf_data];"));
    }
    for capture in captures {
        let register = capture.register();
        put(format_args!(".reg .b{} {register};", capture.bits()));
        match capture {
            Capture::Address => put(format_args!("ld.param.b64 {register}, [wbpf_ptr];")),
            Capture::Bytes => put(format_args!("mov.b32 {register}, %wbpf_size;")),
            Capture::Kind => put(format_args!("mov.b32 {register}, %wbpf_kind;")),
            Capture::Space => put(format_args!("mov.b32 {register}, {};", space as u32)),
            Capture::ValueBytes => {
                let store = Kind::Store as u32;
                put(format_args!("setp.eq.u32 %wbpf_q, %wbpf_kind, {store};"));
                put(format_args!("selp.b32 {register}, %wbpf_size, 0, %wbpf_q;"));
            }
            // Only of a store, and at most 16 bytes.
            Capture::Value(word) => {
                put(format_args!("mov.b64 {register}, 0;"));
                let loads: &[(u32, u32, u32)] = match word {
                    0 => &[(1, 8, 0), (2, 16, 0), (4, 32, 0), (8, 64, 0), (16, 64, 0)],
                    1 => &[(16, 64, 8)],
                    _ => &[],
                };
                for (size, bits, offset) in loads {
                    let store = Kind::Store as u32;
                    put(format_args!("setp.eq.u32 %wbpf_q, %wbpf_kind, {store};"));
                    put(format_args!(
                        "setp.eq.and.u32 %wbpf_q, %wbpf_size, {size}, %wbpf_q;"
                    ));
                    put(format_args!(
                        "setp.ne.and.u64 %wbpf_q, %wbpf_at, 0, %wbpf_q;"
                    ));
                    put(format_args!(
                        "@%wbpf_q ld.u{bits} {register}, [%wbpf_at+{offset}];"
                    ));
                }
            }
            // `check` lets no other through.
            _ => {}
        }
    }
}
