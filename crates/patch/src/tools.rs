//! Programs as a function for machine code that has no PTX: `ptxas --compile-as-tools-patch` makes
//! of it what `warpbpf-sass` puts into a kernel.
//!
//! Such a function stands in a kernel that it knows nothing of. It has no constants and no
//! parameters of the kernel, so addresses are written into it ([`crate::bake`]) or read where its
//! own parameter points, and what only the kernel could tell is refused by name.

use warpbpf_abi::access::Space;
use warpbpf_abi::attach::Site;
use warpbpf_abi::layout::launch;
use warpbpf_abi::names::{LAUNCH_PARAM, TABLE};

use crate::attachment::{Attachment, Options};
use crate::error::PatchError;
use crate::launch_args::{LaunchArgs, is_launch_arg, launch_arg_words};
use crate::program::Programs;
use crate::scope::{SiteCode, ends_thread};
use crate::tools_code::NOBODY;
use crate::tools_event::{self, Event};
use crate::tools_place;
use crate::tools_refused::{not_here, refused};

/// Where a function is called, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Caller {
    /// A kernel's entry or exit, by code that `warpbpf-sass` puts there. The argument is always an
    /// address.
    Splice(Site),
    /// What Compute Sanitizer tells of. All kernels of a module call it; the argument is 0 in those
    /// that are not meant.
    Sanitizer(Event),
    /// Each load and store of global memory whose instruction says that it is one, by code that
    /// `warpbpf-sass` puts there. The argument is always an address.
    SpliceAccess,
}

impl Caller {
    /// The kind of site.
    pub fn site(self) -> Site {
        match self {
            Caller::Splice(site) => site,
            Caller::Sanitizer(event) => event.site(),
            Caller::SpliceAccess => Site::Mem,
        }
    }

    /// Lanes that are together in the function may wait for each other. Not where `warpbpf-sass`
    /// calls it: a kernel's own barriers count the lanes that come there.
    pub fn meets(self) -> bool {
        matches!(self, Caller::Sanitizer(_))
    }
}

/// A PTX module with one function: `.visible .func (.param .b32) NAME(.param .b64 userdata, .param
/// .b64 pc)`, which runs the attachments of the caller's site and returns 0. One in the middle of a
/// kernel has more parameters, by the kind of event there.
///
/// Fragments that read the slot table by name get addresses by [`crate::bake`]; those that were
/// made for [`warpbpf_codegen::SlotSpace::Table`] read it where `userdata` points, so that one text
/// serves all kernels. `target` is the operand of `.target`, `version` that of `.version`.
///
/// Launch arguments ([`launch_arg_words`]) are a third parameter of a function that a splice calls,
/// in the form of a kernel's hidden one. Compute Sanitizer gives one argument alone, so for it the
/// launch arguments stand in the table, from byte `args_at` on.
///
/// # Errors
/// [`PatchError::MachineCode`]: an attachment asks for what only the kernel's own PTX has.
pub fn tools_function(
    name: &str,
    target: (&str, u32),
    version: (u32, u32),
    (caller, args_at): (Caller, u64),
    attachments: &[Attachment<'_>],
) -> Result<String, PatchError> {
    let site = caller.site();
    let args = match caller {
        Caller::Splice(_) | Caller::SpliceAccess => LaunchArgs::Parameter,
        Caller::Sanitizer(_) => LaunchArgs::Table(args_at),
    };
    for attachment in attachments {
        check(caller, attachment)?;
    }
    let fragments = || attachments.iter().map(|a| a.fragment);
    let programs = Programs::of(fragments(), &Options::default());
    let functions: std::collections::BTreeMap<&String, &String> =
        fragments().flat_map(|f| &f.functions).collect();
    let (arch, number) = target;
    let (major, minor) = version;
    let mut text = format!(".version {major}.{minor}\n.target {arch}\n.address_size 64\n");
    for function in functions.values() {
        text.push('\n');
        text.push_str(function);
    }
    let middle = match caller {
        Caller::Sanitizer(event) if event.site().is_in_middle() => Some(event),
        // Whoever finds an access in machine code gives what Compute Sanitizer would.
        Caller::SpliceAccess => Some(Event::Access(Space::Global)),
        Caller::Splice(_) | Caller::Sanitizer(_) => None,
    };
    let code = match middle {
        Some(event) => tools_place::code(event, args, attachments, &programs),
        None => SiteCode::of(site, attachments).text_alone(number, args, &programs),
    };
    let may_be_none = matches!(caller, Caller::Sanitizer(_));
    let mut table = String::new();
    if may_be_none || code.contains(TABLE) {
        table = format!("\t.reg .b64 {TABLE};\n\tld.param.b64 {TABLE}, [wbpf_userdata];\n");
    }
    let mut end = String::new();
    if may_be_none {
        table.push_str(&format!(
            "\t.reg .pred %wbpf_none;\n\tsetp.eq.u64 %wbpf_none, {TABLE}, 0;\n\t@%wbpf_none bra {NOBODY};\n"
        ));
        end = format!("{NOBODY}:\n");
    }
    let mut more = middle.map(tools_place::parameters).unwrap_or_default();
    let words = launch_arg_words(site, attachments);
    if args == LaunchArgs::Parameter && words != 0 {
        let bytes = launch::param_size(words & 1 << (launch::PARAM_CHOSEN / 8) != 0);
        more.push_str(&format!(", .param .align 8 .b8 {LAUNCH_PARAM}[{bytes}]"));
    }
    text.push_str(&format!(
        "\n.visible .func (.param .b32 wbpf_result) {name}(.param .b64 wbpf_userdata, .param .b64 wbpf_pc{more})\n{{\n{table}{code}{end}\tst.param.b32 [wbpf_result], 0;\n\tret;\n}}\n"
    ));
    Ok(text)
}

fn check(caller: Caller, attachment: &Attachment<'_>) -> Result<(), PatchError> {
    let site = caller.site();
    if attachment.site != site {
        return refused(
            &format!("a program at `{}`", attachment.site.word()),
            "use `entry` or `exit`",
        );
    }
    match caller {
        Caller::Sanitizer(event) if event.site().is_in_middle() => {
            tools_event::check(event.site(), attachment)?;
        }
        Caller::SpliceAccess => tools_place::check_spliced(attachment)?,
        Caller::Splice(_) | Caller::Sanitizer(_) => at_end(site, attachment)?,
    }
    if attachment.fragment.block_cells > 0 {
        return refused(
            "an aggregate over a block (`bpf_gpu_block_sum` and its like)",
            "add to a value of a map",
        );
    }
    if ends_thread(attachment.fragment) {
        return refused("helper 507 (it ends the thread)", "do without it");
    }
    Ok(())
}

fn at_end(site: Site, attachment: &Attachment<'_>) -> Result<(), PatchError> {
    if !matches!(site, Site::Entry | Site::Exit) {
        return refused(
            &format!("a program at `{}`", site.word()),
            "use `entry` or `exit`",
        );
    }
    let captures = attachment.fragment.captures.iter();
    match captures.copied().find(|capture| !is_launch_arg(*capture)) {
        Some(capture) => not_here(capture),
        None => Ok(()),
    }
}
