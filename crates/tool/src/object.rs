//! The program that is put into kernels: an object file, in bytes and parsed.

use std::path::Path;
use std::sync::Arc;

use warpbpf_object::{Btf, LoadOptions};

use crate::error::Error;

/// A BPF object that is ready to be sent to applications.
#[derive(Debug, Clone)]
pub struct Object {
    name: String,
    bytes: Arc<[u8]>,
    parsed: Arc<warpbpf_object::Object>,
}

impl Object {
    /// Reads an object file.
    ///
    /// # Errors
    /// [`Error::Read`], or [`Error::Object`] with what is wrong in it.
    pub fn open(path: impl AsRef<Path>) -> Result<Object, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| Error::Read {
            path: name.clone(),
            source,
        })?;
        Object::from_bytes(&name, bytes)
    }

    /// Takes the bytes of an object file; `name` is what messages call it.
    ///
    /// # Errors
    /// [`Error::Object`] with what is wrong in it.
    pub fn from_bytes(name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<Object, Error> {
        let bytes = bytes.into();
        let loaded = warpbpf_object::load_with(&bytes, &LoadOptions::default());
        let parsed = loaded.map_err(|source| Error::Object {
            name: name.to_owned(),
            source: Box::new(source),
        })?;
        Ok(Object {
            name: name.to_owned(),
            bytes,
            parsed: Arc::new(parsed),
        })
    }

    /// Takes an object file that was parsed already, with whatever options.
    pub fn from_parsed(
        name: &str,
        bytes: impl Into<Arc<[u8]>>,
        parsed: warpbpf_object::Object,
    ) -> Object {
        Object {
            name: name.to_owned(),
            bytes: bytes.into(),
            parsed: Arc::new(parsed),
        }
    }

    /// The same object with other values in its global variables: `("limit", "3")`,
    /// `("config.size[0]", "0x40")`.
    ///
    /// # Errors
    /// [`Error::Set`]: no such variable, or the value does not fit its type.
    pub fn with_variables(&self, values: &[(&str, &str)]) -> Result<Object, Error> {
        let bytes = warpbpf_object::set_variables(&self.bytes, values);
        let bytes = bytes.map_err(|source| Error::Set {
            name: self.name.clone(),
            source: Box::new(source),
        })?;
        Object::from_bytes(&self.name, bytes)
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its programs, maps and types.
    pub fn parsed(&self) -> &warpbpf_object::Object {
        &self.parsed
    }

    /// Its types, if it was compiled with `-g`.
    #[doc(hidden)]
    pub fn btf(&self) -> Option<&Btf> {
        self.parsed.btf.as_ref()
    }
}
