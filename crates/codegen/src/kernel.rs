//! A PTX module of our own: programs that are kernels by themselves, with nothing of an application
//! around them.

use std::collections::BTreeMap;
use std::fmt::Write;

use warpbpf_abi::names;

use crate::error::CodegenError;
use crate::fragment::{Env, Fragment, Input};

/// A kernel of a module: its name and what each of its threads runs.
#[derive(Debug, Clone, Copy)]
pub struct Kernel<'a> {
    name: &'a str,
    fragment: &'a Fragment,
}

impl<'a> Kernel<'a> {
    /// `name` of the `.entry` is a PTX identifier that no other kernel of the module has, without
    /// our prefix. The program is compiled for the scope `thread`: nobody elects a lane here.
    ///
    /// # Errors
    /// [`CodegenError::NoLaunchRecord`]: the program has cells there.
    pub fn new(name: &'a str, fragment: &'a Fragment) -> Result<Kernel<'a>, CodegenError> {
        match fragment.block_cells {
            0 => Ok(Kernel { name, fragment }),
            cells => Err(CodegenError::NoLaunchRecord {
                kernel: name.to_owned(),
                cells,
            }),
        }
    }
}

/// A whole module with kernels that take no parameters. `target` is the operand of `.target`, such
/// as `sm_90a`.
///
/// Before a launch the slot table must be filled: [`slot_count`] addresses of 8 bytes in the
/// variable [`warpbpf_abi::names::SLOTS`].
pub fn module(target: &str, env: &Env, kernels: &[Kernel<'_>]) -> String {
    let (major, minor) = env.target.ptx;
    let space = env.slots.word();
    let mut text = format!(
        ".version {major}.{minor}\n.target {target}\n.address_size 64\n\n.visible .{space} .align 8 .b64 {}[{}];\n",
        names::SLOTS,
        slot_count(env, kernels),
    );
    let functions: BTreeMap<&String, &String> =
        kernels.iter().flat_map(|k| &k.fragment.functions).collect();
    for function in functions.values() {
        text.push('\n');
        text.push_str(function);
    }
    for Kernel { name, fragment } in kernels {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n.visible .entry {name}()\n{{\n");
        if fragment.uses_group_mask {
            let mask = names::GROUP_MASK;
            let _ = write!(
                text,
                "\t.reg .b32 {mask};\n{}",
                crate::opaque::group_mask(mask)
            );
        }
        // A kernel of ours has no site and no parameters of its own.
        for capture in &fragment.captures {
            let (name, bits) = (capture.register(), capture.bits());
            let _ = write!(text, "\t.reg .b{bits} {name};\n\tmov.b{bits} {name}, 0;\n");
        }
        text.push_str(&fragment.body);
        text.push_str("\tret;\n}\n");
    }
    text
}

/// [`module`] with one kernel.
///
/// # Errors
/// As of [`Kernel::new`].
pub fn kernel(
    name: &str,
    target: &str,
    fragment: &Fragment,
    env: &Env,
) -> Result<String, CodegenError> {
    Ok(module(target, env, &[Kernel::new(name, fragment)?]))
}

/// Entries of the slot table: as many as the environment names and the kernels read.
pub fn slot_count(env: &Env, kernels: &[Kernel<'_>]) -> u32 {
    let maps = env.maps.iter().chain(&env.printk).map(|b| b.slot);
    let input = match env.input {
        Input::Context => None,
        Input::Memory { slot, .. } => Some(slot),
    };
    let read = kernels
        .iter()
        .flat_map(|k| k.fragment.slots.iter().copied());
    maps.chain(input)
        .chain(read)
        .max()
        .map_or(1, |last| last + 1)
}
