//! One of the objects that are linked.

use crate::btf::Btf;
use crate::btf_ext::BtfExt;
use crate::elf::Elf;
use crate::error::ObjectError;
use crate::link::error::LinkError;
use crate::sections;

/// One object, read.
pub(super) struct Input<'a> {
    pub(super) name: &'a str,
    pub(super) elf: Elf<'a>,
    pub(super) btf: Option<Btf>,
    pub(super) ext: BtfExt,
}

impl Input<'_> {
    /// It is at fault.
    pub(super) fn fault(&self, error: ObjectError) -> LinkError {
        LinkError::Object {
            object: self.name.to_owned(),
            error: Box::new(error),
        }
    }

    /// It says what cannot be.
    pub(super) fn damaged(&self, detail: impl Into<String>) -> LinkError {
        self.fault(ObjectError::Damaged {
            detail: detail.into(),
        })
    }
}

/// Reads an object; messages call it `name`.
pub(super) fn read<'a>(name: &'a str, bytes: &'a [u8]) -> Result<Input<'a>, LinkError> {
    let fault = |error| LinkError::Object {
        object: name.to_owned(),
        error: Box::new(error),
    };
    let elf = Elf::parse(bytes).map_err(fault)?;
    sections::refuse_sections(&elf).map_err(fault)?;
    let (btf, ext) = sections::types(&elf).map_err(fault)?;
    Ok(Input {
        name,
        elf,
        btf,
        ext,
    })
}
