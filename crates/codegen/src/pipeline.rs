//! The passes, in order, and what runs them.

use warpbpf_ebpf::Code;
use warpbpf_verify::{Facts, Subject, Verified};

use crate::error::CodegenError;
use crate::fragment::{Env, Fragment};
use crate::ir::Func;
use crate::{
    emit, from_ebpf, guard_loops, guard_products, lower, opt_atomics, opt_blocks, opt_copy,
    opt_counts, opt_dce, opt_fold, opt_gvn, opt_stores, opt_tallies, opt_together,
};

/// A pass over the whole fragment.
pub(crate) type Pass = (&'static str, fn(&mut Func, &Env));

/// First PTX version with `activemask`.
const MIN_PTX: (u32, u32) = (6, 2);
/// First target with scoped memory operations.
const MIN_SM: u32 = 70;

/// Compiles a program for one site.
///
/// # Errors
/// [`CodegenError`]: the module is too old, the environment lacks a map or the printk ring, or a
/// program asks for more than a device function can take.
pub fn compile<P: Subject>(program: &Verified<P>, env: &Env) -> Result<Fragment, CodegenError> {
    compile_code(program.program().code(), program.facts(), env)
}

/// The IR as text after each pass, or only after the pass `after` (one of [`pass_names`]); when the
/// program cannot be compiled, the reason.
pub fn dump_ir<P: Subject>(program: &Verified<P>, env: &Env, after: Option<&str>) -> String {
    dump_code(program.program().code(), program.facts(), env, after)
}

/// Names of the stages that [`dump_ir`] can show, in order.
pub fn pass_names() -> Vec<&'static str> {
    std::iter::once("from_ebpf")
        .chain(PASSES.iter().map(|(name, _)| *name))
        .collect()
}

/// The passes between `from_ebpf` and `emit`, in order.
pub(crate) const PASSES: &[Pass] = &[
    ("opt_copy", |f, _| opt_copy::run(f)),
    ("opt_fold", |f, _| opt_fold::run(f)),
    ("opt_dce", |f, _| opt_dce::run(f)),
    ("opt_blocks", |f, _| opt_blocks::run(f)),
    ("opt_gvn", |f, _| opt_gvn::run(f)),
    ("opt_fold.2", |f, _| opt_fold::run(f)),
    ("opt_copy.2", |f, _| opt_copy::run(f)),
    ("opt_blocks.2", |f, _| opt_blocks::run(f)),
    ("opt_gvn.2", |f, _| opt_gvn::run(f)),
    ("opt_dce.2", |f, _| opt_dce::run(f)),
    ("opt_counts", |f, _| opt_counts::run(f)),
    ("opt_atomics", |f, _| opt_atomics::run(f)),
    ("opt_stores", |f, _| opt_stores::run(f)),
    ("opt_fold.3", |f, _| opt_fold::run(f)),
    ("opt_dce.3", |f, _| opt_dce::run(f)),
    ("opt_tallies", opt_tallies::run),
    ("opt_together", opt_together::run),
    ("guard_loops", |f, _| guard_loops::run(f)),
    ("guard_products", |f, _| guard_products::run(f)),
    ("lower", |f, _| lower::run(f)),
    ("opt_gvn.3", |f, _| opt_gvn::run(f)),
    ("opt_dce.4", |f, _| opt_dce::run(f)),
];

pub(crate) fn compile_code(
    code: &Code,
    facts: &Facts,
    env: &Env,
) -> Result<Fragment, CodegenError> {
    check_target(env)?;
    let mut func = from_ebpf::run(code, facts, env)?;
    for (_, pass) in PASSES {
        pass(&mut func, env);
    }
    Ok(emit::run(&func, env))
}

fn dump_code(code: &Code, facts: &Facts, env: &Env, after: Option<&str>) -> String {
    let mut func = match from_ebpf::run(code, facts, env) {
        Ok(func) => func,
        Err(error) => return format!("{error}\n"),
    };
    let mut text = String::new();
    let mut show = |name: &str, func: &Func| {
        if after.is_none_or(|wanted| wanted == name) {
            text.push_str(&format!("; after {name}\n{func}"));
        }
    };
    show("from_ebpf", &func);
    for (name, pass) in PASSES {
        pass(&mut func, env);
        show(name, &func);
    }
    text
}

fn check_target(env: &Env) -> Result<(), CodegenError> {
    if env.target.sm < MIN_SM {
        return Err(CodegenError::TargetTooOld { sm: env.target.sm });
    }
    if env.target.ptx < MIN_PTX {
        let (major, minor) = env.target.ptx;
        return Err(CodegenError::PtxTooOld { major, minor });
    }
    Ok(())
}
