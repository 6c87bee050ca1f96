//! Programs in the middle of a kernel, as a function that is called there: its parameters stand in
//! for what a splicer sees in a kernel's PTX.
//!
//! The same function is called at all places of an event, so selectors are looked at while it runs.
//! Lanes that come together are taken after that, since one that was left out may not be the
//! leader.
//!
//! The same function can be called by a splice, which finds loads and stores of global memory
//! alone, and has no value to show.

use std::fmt::Write as _;

use warpbpf_abi::access::{Kind, Space};
use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::context::Capture;
use warpbpf_abi::names::GROUP_MASK;
use warpbpf_codegen::group_mask;

use crate::attachment::Attachment;
use crate::error::PatchError;
use crate::launch_args::LaunchArgs;
use crate::launch_bits::LaunchBits;
use crate::middle::needs_mask;
use crate::program::Programs;
use crate::scope::{not_first, not_leader};
use crate::tools_code::Code;
use crate::tools_event::{self, Event};
use crate::tools_refused::{not_here, refused};
use crate::{tools_access, tools_barrier};

/// The parameters behind those that all functions have, as their list is written.
pub(crate) fn parameters(event: Event) -> String {
    let all = event.parameters().iter();
    all.map(|(name, bits)| format!(", .param .b{bits} wbpf_{name}"))
        .collect()
}

/// What a splice does not find, or has not, a program must not ask for.
pub(crate) fn check_spliced(attachment: &Attachment<'_>) -> Result<(), PatchError> {
    tools_event::check(Site::Mem, attachment)?;
    if attachment.choice.is_some() {
        return refused(
            "a choice of launches at accesses, where programs choose different ones,",
            "choose the same for all of them",
        );
    }
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
    let found = |capture: &&Capture| {
        !matches!(
            capture,
            Capture::Address | Capture::Bytes | Capture::Kind | Capture::Space
        )
    };
    match attachment.fragment.captures.iter().find(found) {
        Some(capture) => not_here(*capture),
        None => Ok(()),
    }
}

/// The code of all attachments that want the event.
pub(crate) fn code(
    event: Event,
    args: LaunchArgs,
    attachments: &[Attachment<'_>],
    programs: &Programs<'_>,
) -> String {
    let mut out = Code::default();
    for (name, bits) in event.parameters() {
        out.read(name, *bits);
    }
    out.put(format_args!(".reg .pred %wbpf_q;"));
    match event.site() {
        Site::Mem => tools_access::begin(event, &mut out),
        _ => tools_barrier::begin(event, &mut out),
    }
    let wanted = || attachments.iter().filter(|a| event.may_pass(a.select));
    let chosen = LaunchBits::of(wanted().map(|a| a.choice));
    if !chosen.is_empty() {
        for (ty, name) in LaunchBits::registers() {
            out.put(format_args!(".reg .{ty} {name};"));
        }
        out.0.push_str(&chosen.read(args, None));
    }
    for (number, attachment) in wanted().enumerate() {
        let event = (event, args, &chosen);
        one(number, event, attachment, programs, &mut out);
    }
    out.0
}

fn one(
    number: usize,
    (event, args, chosen): (Event, LaunchArgs, &LaunchBits),
    attachment: &Attachment<'_>,
    programs: &Programs<'_>,
    out: &mut Code,
) {
    let other = format!("wbpf_other_{number}");
    out.0.push_str("{\n");
    out.0
        .push_str(&chosen.test(attachment.choice, false, &other));
    match event.site() {
        Site::Mem => tools_access::choose(event, attachment.select, &other, out),
        _ => tools_barrier::choose(event, attachment.select, &other, out),
    }
    if needs_mask(attachment) {
        out.put(format_args!(".reg .b32 {GROUP_MASK};"));
        out.0.push_str(&group_mask(GROUP_MASK));
    }
    let elect = match attachment.scope {
        Scope::Thread => None,
        Scope::Warp => Some(not_leader()),
        Scope::Block => Some(not_first()),
    };
    if let Some(elect) = elect {
        out.put(format_args!(".reg .pred %wbpf_p;"));
        out.put(format_args!(".reg .b32 %wbpf_a, %wbpf_b;"));
        let elect = elect.trim();
        out.put(format_args!("{elect}"));
        out.put(format_args!("@%wbpf_p bra {other};"));
    }
    for capture in &attachment.fragment.captures {
        let register = capture.register();
        out.put(format_args!(".reg .b{} {register};", capture.bits()));
        if let Some(load) = args.capture(*capture, &register) {
            out.put(format_args!("{load}"));
            continue;
        }
        match event.site() {
            Site::Mem => tools_access::capture(event, *capture, &register, out),
            _ => tools_barrier::capture(event, *capture, &register, out),
        }
    }
    programs.write(attachment.fragment, false, &mut out.0);
    out.0.push_str("}\n");
    // Outside of the braces, where all lanes come together.
    let _ = writeln!(out.0, "{other}:");
}
