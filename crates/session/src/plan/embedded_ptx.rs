//! Embedded PTX: a cubin that was compiled with line information, as Triton does, holds the text
//! that it was assembled from. The text of a JIT output may be known, too. Either stands for the
//! machine code only if all that the machine code says of its kernels agrees with the text.

use std::collections::HashMap;

use warpbpf_fatbin::{Cubin, CubinError, Kernel, Param, embedded_ptx};
use warpbpf_ptx::ast::Function;
use warpbpf_ptx::{PtxError, index, type_size};

/// Why a text does not stand for machine code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EmbeddedError {
    #[error("{0}")]
    Cubin(CubinError),
    #[error("the PTX in its line information is not what it was made from: {0}")]
    Inside(Difference),
    #[error("the PTX that is known of it is not what it was made from: {0}")]
    Known(Difference),
    /// Whoever made the machine code has no text of it.
    #[error("{why}")]
    NotKnown { why: String },
}

/// Where a text and machine code differ.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Difference {
    #[error("it is {texts} texts, linked into one file")]
    Linked { texts: usize },
    #[error("{0}")]
    Ptx(PtxError),
    #[error("it is for `{target}`, and the machine code was compiled from `compute_{arch}`")]
    Target { target: String, arch: u32 },
    #[error("it has no kernel `{kernel}`")]
    NoKernel { kernel: String },
    #[error("`{kernel}` has other {what} there")]
    Kernel { kernel: String, what: &'static str },
}

/// The text that is in a cubin; `Ok(None)` if it has none.
///
/// # Errors
/// Why it does not stand for the machine code.
pub(crate) fn of(cubin: &[u8]) -> Result<Option<String>, EmbeddedError> {
    let Some(text) = embedded_ptx(cubin) else {
        return Ok(None);
    };
    let machine_code = Cubin::parse(cubin).map_err(EmbeddedError::Cubin)?;
    agrees(&text, &machine_code).map_err(EmbeddedError::Inside)?;
    Ok(Some(text))
}

/// A text that the cubin is said to be made from may stand for it.
///
/// # Errors
/// Why not.
pub(crate) fn stands_for(text: &str, cubin: &[u8]) -> Result<(), EmbeddedError> {
    let machine_code = Cubin::parse(cubin).map_err(EmbeddedError::Cubin)?;
    agrees(text, &machine_code).map_err(EmbeddedError::Known)
}

fn agrees(text: &str, machine_code: &Cubin) -> Result<(), Difference> {
    let texts = text
        .lines()
        .filter(|line| line.trim_start().starts_with(".version"));
    match texts.count() {
        1 => {}
        texts => return Err(Difference::Linked { texts }),
    }
    let module = index(text).map_err(Difference::Ptx)?;
    let target = module.targets.first().copied().unwrap_or("no target");
    let number: String = target.chars().filter(char::is_ascii_digit).collect();
    if let Some(arch) = machine_code.virtual_arch
        && arch.to_string() != number
    {
        let target = target.to_owned();
        return Err(Difference::Target { target, arch });
    }
    let entries = module.functions.iter();
    let entries = entries.filter(|f| f.is_entry && f.body.is_some());
    let entries: HashMap<&str, &Function<'_>> = entries.map(|f| (f.name, f)).collect();
    for kernel in &machine_code.kernels {
        let there = entries.get(kernel.name.as_str());
        let name = || kernel.name.clone();
        let there = there.ok_or_else(|| Difference::NoKernel { kernel: name() })?;
        same_kernel(there, kernel).map_err(|what| Difference::Kernel {
            kernel: name(),
            what,
        })?;
    }
    Ok(())
}

/// What is not the same.
fn same_kernel(text: &Function<'_>, kernel: &Kernel) -> Result<(), &'static str> {
    let (params, bytes) = layout(text);
    if params != kernel.params || bytes != kernel.param_bytes {
        return Err("parameters");
    }
    let bound = bound(&text.directives);
    match bound.is_none() || kernel.max_threads.is_none() || bound == kernel.max_threads {
        true => Ok(()),
        false => Err("bounds of its blocks"),
    }
}

/// Parameters as they lie in their buffer, and its bytes.
fn layout(function: &Function<'_>) -> (Vec<Param>, u32) {
    let mut end = 0;
    let params = function.params.iter().map(|param| {
        let offset = u64::from(end).next_multiple_of(param.align.max(1)) as u32;
        // A text may say anything; what does not fit is no kernel's, and is compared as such.
        let elements = param.array.unwrap_or(1) as u32;
        let size = (type_size(param.ty).unwrap_or(0) as u32).saturating_mul(elements);
        end = offset.saturating_add(size);
        Param { offset, size }
    });
    let params = params.collect();
    (params, end)
}

/// `.maxntid` or `.reqntid`, with ones for what is not said.
fn bound(directives: &[&str]) -> Option<[u32; 3]> {
    let numbers = directives.iter().find_map(|directive| {
        let directive = directive.trim();
        let numbers = [".maxntid", ".reqntid"].map(|name| directive.strip_prefix(name));
        numbers.into_iter().flatten().next()
    })?;
    let mut bound = [1; 3];
    for (to, number) in bound.iter_mut().zip(numbers.split(',')) {
        *to = number.trim().parse().ok()?;
    }
    Some(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ".version 8.7\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 global_smem[];\n\
        .visible .entry add_kernel(\n.param .u64 .ptr .global .align 1 p0,\n.param .u32 p1,\n.param .align 8 .b8 p2[16]\n)\n\
        .reqntid 128\n{\nret;\n}\n";

    fn cubin() -> Cubin {
        let param = |offset, size| Param { offset, size };
        Cubin {
            arch: 90,
            virtual_arch: Some(90),
            kernels: vec![Kernel {
                name: "add_kernel".into(),
                params: vec![param(0, 8), param(8, 4), param(16, 16)],
                param_bytes: 32,
                max_threads: Some([128, 1, 1]),
                ..Kernel::default()
            }],
        }
    }

    #[test]
    fn a_text_stands_for_machine_code_that_agrees() {
        assert_eq!(agrees(TEXT, &cubin()), Ok(()));
        let but = |change: fn(&mut Cubin)| {
            let mut cubin = cubin();
            change(&mut cubin);
            agrees(TEXT, &cubin).unwrap_err().to_string()
        };
        assert_eq!(
            but(|c| c.virtual_arch = Some(80)),
            "it is for `sm_90a`, and the machine code was compiled from `compute_80`"
        );
        assert_eq!(
            but(|c| c.kernels[0].name = "other".into()),
            "it has no kernel `other`"
        );
        assert_eq!(
            but(|c| c.kernels[0].params[1].size = 8),
            "`add_kernel` has other parameters there"
        );
        assert_eq!(
            but(|c| c.kernels[0].param_bytes = 40),
            "`add_kernel` has other parameters there"
        );
        assert_eq!(
            but(|c| c.kernels[0].max_threads = Some([256, 1, 1])),
            "`add_kernel` has other bounds of its blocks there"
        );
        let two = format!("{TEXT}{TEXT}");
        assert_eq!(
            agrees(&two, &cubin()).unwrap_err().to_string(),
            "it is 2 texts, linked into one file"
        );
    }

    #[test]
    fn what_is_no_cubin_has_no_text() {
        assert_eq!(of(b"\x7fELF"), Ok(None));
        assert_eq!(of(&[]), Ok(None));
        assert!(stands_for(TEXT, b"\x7fELF").is_err());
    }
}
