//! `warpbpf compile`: what a program becomes, stage by stage.

use serde_json::json;
use warpbpf_codegen::{Env, Input, SlotSpace, Target, compile, dump_ir, pass_names};
use warpbpf_driver::DeviceInfo;
use warpbpf_session::{Session, probe_text};

use crate::flags::{CompileFlags, Emit};
use crate::programs::linux::Split;
use crate::term::error::CliError;
use crate::term::output::say;

/// PTX version that every target we show code for understands.
const PTX_VERSION: (u32, u32) = (8, 0);
/// Multiprocessors assumed where no device is asked: an H200's.
const SMS: u32 = 132;

/// Prints one stage of each program.
pub fn run(flags: &CompileFlags) -> Result<u8, CliError> {
    if let Some(pass) = flags.after.as_deref().filter(|_| flags.emit != Emit::Ir) {
        return Err(CliError::Other(format!(
            "`--after {pass}` is a pass over the intermediate representation; add `--emit ir`"
        )));
    }
    let address = |digits: &String| {
        let number = u64::from_str_radix(digits.trim_start_matches("0x"), 16);
        number.map_err(|_| CliError::Other(format!("`{digits}` is not a hexadecimal address")))
    };
    let slots: Vec<u64> = (flags.slots.iter().map(address)).collect::<Result<_, _>>()?;
    let loaded = Split::bring(&flags.object)?.loaded;
    let sm = sm_number(&flags.target)?;
    let info = DeviceInfo {
        name: String::new(),
        capability: (sm / 10, sm % 10),
        sms: SMS,
        driver_version: 13000,
    };
    let options = warpbpf_session::Options {
        out_of_line: flags.out_of_line,
        ..flags.program.options()
    };
    let session =
        Session::new(&loaded.bytes, &options, &info).map_err(|error| loaded.rejected(error))?;
    if let Some([kernel, file]) = flags.show_splice.as_deref() {
        return super::splice::run(flags, &session, info.capability, [kernel, file]);
    }
    let wanted = |name: &str| flags.program_name.as_deref().is_none_or(|n| n == name);
    let mut shown = Vec::new();
    for program in session.programs().iter().filter(|p| wanted(p.name())) {
        let env = Env {
            target: Target {
                ptx: PTX_VERSION,
                sm,
            },
            site: program.spec.site,
            scope: program.spec.scope,
            kernel_id: 0,
            maps: session.bindings(),
            printk: session.printk_binding(),
            slots: SlotSpace::Const,
            input: Input::Context,
            // A function for machine code cannot reach a kernel's registers.
            keep_sums: session.keeps_sums(program.spec.site) && flags.emit != Emit::Probe,
            meets: flags.emit != Emit::Probe,
            // Names are those of a kernel, and here is none.
            args: Vec::new(),
        };
        let code = match flags.emit {
            Emit::Ebpf => warpbpf_ebpf::listing(&program.verified.program().code),
            Emit::Ir => match flags.after.as_deref() {
                Some("all") => dump_ir(&program.verified, &env, None),
                Some(pass) if !pass_names().contains(&pass) => {
                    let names = pass_names().join(", ");
                    return Err(CliError::Other(format!(
                        "there is no pass `{pass}`; there are {names}, and `all`"
                    )));
                }
                pass => dump_ir(
                    &program.verified,
                    &env,
                    pass.or(pass_names().last().copied()),
                ),
            },
            Emit::Ptx => {
                let fragment = compile(&program.verified, &env).map_err(|e| loaded.refused(e))?;
                fragment.functions.values().cloned().collect::<String>() + &fragment.body
            }
            Emit::Probe => {
                let fragment = compile(&program.verified, &env).map_err(|e| loaded.refused(e))?;
                let target = (flags.target.as_str(), sm);
                probe_text(program, &fragment, target, PTX_VERSION, &slots)
                    .map_err(|e| loaded.refused(e))?
            }
        };
        shown.push((program.name(), program.section(), code));
    }
    if shown.is_empty() {
        let names: Vec<&str> = session
            .programs()
            .iter()
            .map(warpbpf_session::PlannedProgram::name)
            .collect();
        return Err(CliError::Other(format!(
            "no such program; the object has {}",
            names.join(", ")
        )));
    }
    if flags.json {
        let rows: Vec<_> =
            shown.iter().map(|(name, section, code)| json!({ "program": name, "section": section, "code": code })).collect();
        say(&format!("{}\n", json!(rows)));
    } else {
        for (name, section, code) in shown {
            say(&format!("// {name} ({section})\n{code}\n"));
        }
    }
    Ok(0)
}

/// `sm_90a` → 90.
///
/// # Errors
/// Says what a target looks like.
pub fn sm_number(target: &str) -> Result<u32, CliError> {
    target
        .strip_prefix("sm_")
        .and_then(|n| n.trim_end_matches(char::is_alphabetic).parse().ok())
        .ok_or_else(|| {
            CliError::Other(format!(
                "`{target}` is not a target; write `sm_90` or the like"
            ))
        })
}
