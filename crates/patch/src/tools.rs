//! Programs as a function for machine code that has no PTX: `ptxas --compile-as-tools-patch` makes of it what `warpbpf-sass` puts into
//! a kernel.
//!
//! Such a function stands in a kernel that it knows nothing of. It has no constants and no parameters of the kernel, so addresses
//! are written into it ([`crate::bake`]) or read where its own parameter points, and what only the kernel could tell is refused by name.

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::context::Capture;
use warpbpf_abi::names::TABLE;

use crate::program::Programs;
use crate::scope::{SiteCode, ends_thread};
use crate::{Attachment, Options, PatchError};

/// A PTX module with one function: `.visible .func (.param .b32) NAME(.param .b64 userdata, .param .b64 pc)`, which runs the
/// attachments of `site` and returns 0.
///
/// Fragments that read the slot table by name get addresses by [`crate::bake`]; those that were made for [`warpbpf_codegen::SlotSpace::Table`] read it where
/// `userdata` points, so that one text serves all kernels. `target` is the operand of `.target`, `version` that of `.version`.
///
/// # Errors
/// [`PatchError::MachineCode`]: an attachment asks for what only the kernel's own PTX has.
pub fn tools_function(
    name: &str,
    target: (&str, u32),
    version: (u32, u32),
    site: Site,
    attachments: &[Attachment<'_>],
) -> Result<String, PatchError> {
    for attachment in attachments {
        check(site, attachment)?;
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
    let code = SiteCode::of(site, attachments).text_alone(number, &programs);
    let table = match code.contains(TABLE) {
        true => format!("\t.reg .b64 {TABLE};\n\tld.param.b64 {TABLE}, [wbpf_userdata];\n"),
        false => String::new(),
    };
    text.push_str(&format!(
        "\n.visible .func (.param .b32 wbpf_result) {name}(.param .b64 wbpf_userdata, .param .b64 wbpf_pc)\n{{\n{table}{code}\tst.param.b32 [wbpf_result], 0;\n\tret;\n}}\n"
    ));
    Ok(text)
}

fn check(site: Site, attachment: &Attachment<'_>) -> Result<(), PatchError> {
    let refused = |what: &str, advice: &str| {
        Err(PatchError::MachineCode {
            what: what.to_owned(),
            advice: advice.to_owned(),
        })
    };
    if attachment.site != site || !matches!(site, Site::Entry | Site::Exit) {
        return refused(
            &format!("a program at `{}`", attachment.site.word()),
            "use `entry` or `exit`",
        );
    }
    if site == Site::Exit && attachment.scope != Scope::Thread {
        return refused(
            &format!("`{}` scope at exit", attachment.scope.word()),
            "use `thread` scope, since arrivals are counted in a parameter that the kernel does not have",
        );
    }
    if let Some(capture) = attachment.fragment.captures.first() {
        let what = match capture {
            Capture::Arg(position) => format!("`args[{position}]`"),
            Capture::ArgCount => "`arg_count`".to_owned(),
            Capture::Launch => "`launch_id`".to_owned(),
            other => format!("the context field behind `{}`", other.register()),
        };
        return refused(&what, "do without it");
    }
    if ends_thread(attachment.fragment) {
        return refused("helper 507 (it ends the thread)", "do without it");
    }
    Ok(())
}
