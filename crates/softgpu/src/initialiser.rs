//! Initialisers of module-scope variables as bytes (PTX ISA, "Initializers").

use warpbpf_ptx::ast::Variable;
use warpbpf_ptx::constant::{Constant, Initialiser, Strides, initialiser};
use warpbpf_ptx::type_size;

use crate::load_error::InitialiserError;

/// Bytes of a variable; an open first dimension has as many elements as the initialiser.
pub(crate) fn size(variable: &Variable<'_>) -> Option<u64> {
    if variable.dims.first() != Some(&0) {
        return variable.size().map(|n| n.max(1));
    }
    let element = variable.dims[1..]
        .iter()
        .try_fold(type_size(variable.ty)?, |n, &d| n.checked_mul(d))?;
    match initialiser(variable.init?, &|_| None) {
        Ok(Initialiser::List(list)) => element.checked_mul(list.len() as u64),
        _ => None,
    }
}

/// Evaluates `text` into `bytes`, which are as long as the variable and zero. `resolve` gives the
/// addresses of symbols.
pub(crate) fn evaluate<'a>(
    variable: &Variable<'a>,
    text: &'a str,
    strides: Strides<'_>,
    resolve: &mut dyn FnMut(&'a str) -> Option<u64>,
    bytes: &mut [u8],
) -> Result<(), InitialiserError> {
    let value = initialiser(text, strides).map_err(InitialiserError::Constant)?;
    let (ty, lanes) = match variable.ty.split_once('.') {
        Some((lanes, ty)) => (
            ty,
            lanes.trim_start_matches('v').parse::<u64>().unwrap_or(1),
        ),
        None => (variable.ty, 1),
    };
    let element = type_size(ty).ok_or_else(|| InitialiserError::Type { ty: ty.to_owned() })?;
    let element = element as usize;
    let mut dims = variable.dims.clone();
    if lanes > 1 {
        dims.push(lanes);
    }
    if let (Some(first @ 0), Initialiser::List(list)) = (dims.first_mut(), &value) {
        *first = list.len() as u64;
    }
    place(&value, &dims, ty, element, resolve, bytes)
}

fn place<'a>(
    value: &Initialiser<'a>,
    dims: &[u64],
    ty: &str,
    element: usize,
    resolve: &mut dyn FnMut(&'a str) -> Option<u64>,
    bytes: &mut [u8],
) -> Result<(), InitialiserError> {
    let value = match value {
        Initialiser::Value(value) => value,
        Initialiser::List(list) => {
            let (stride, inner) = match dims {
                [_, inner @ ..] => (
                    inner
                        .iter()
                        .fold(element, |n, &dim| n.saturating_mul(dim as usize)),
                    inner,
                ),
                [] => (element, dims),
            };
            for (i, item) in list.iter().enumerate() {
                let part = bytes
                    .get_mut(i.saturating_mul(stride)..)
                    .filter(|part| part.len() >= element);
                let part = part.ok_or(InitialiserError::Elements { elements: i })?;
                place(item, inner, ty, element, resolve, part)?;
            }
            return Ok(());
        }
    };
    let is_float = matches!(ty, "f16" | "bf16" | "f32" | "f64");
    let raw = match *value {
        Constant::Signed(_) | Constant::Unsigned(_) if is_float => {
            return Err(InitialiserError::Integer { ty: ty.to_owned() });
        }
        Constant::F32(_) | Constant::F64(_) if !is_float => {
            return Err(InitialiserError::Float { ty: ty.to_owned() });
        }
        Constant::Signed(n) => n as u64,
        Constant::Unsigned(n) => n,
        Constant::F32(bits) if ty == "f64" => f64::from(f32::from_bits(bits)).to_bits(),
        Constant::F32(bits) => u64::from(bits),
        Constant::F64(n) if ty == "f32" => u64::from((n as f32).to_bits()),
        Constant::F64(n) => n.to_bits(),
        Constant::Address(address) => {
            let base = resolve(address.name);
            let base = base.ok_or_else(|| InitialiserError::Address {
                name: address.name.to_owned(),
            })?;
            let value = base.wrapping_add_signed(address.offset);
            address.mask.map_or(value, |mask| {
                (value & mask) >> mask.trailing_zeros().min(63)
            })
        }
    };
    let part = bytes.get_mut(..element).ok_or(InitialiserError::Size)?;
    part.copy_from_slice(&raw.to_le_bytes()[..element.min(8)]);
    Ok(())
}
