//! A module to be patched many times: its symbols are collected once, so that instrumenting every
//! kernel of a large module takes time in proportion to the module and not to its square.

use warpbpf_ptx::ast::Module;

use crate::attachment::{Attachment, Options};
use crate::body::Symbols;
use crate::clone::clone_of;
use crate::closure::{Closure, Method};
use crate::error::PatchError;
use crate::list::{SiteList, sites_of};
use crate::slice::slice_of;
use crate::variant::Variant;

/// A module and what is known of it.
pub struct Patcher<'m, 'a> {
    symbols: Symbols<'m, 'a>,
}

impl<'m, 'a> Patcher<'m, 'a> {
    /// Collects the module's symbols.
    pub fn new(module: &'m Module<'a>) -> Patcher<'m, 'a> {
        Patcher {
            symbols: Symbols::new(module),
        }
    }

    /// As [`crate::method`].
    ///
    /// # Errors
    /// No such kernel, or a text that cannot be read.
    pub fn method(&self, kernel: &str) -> Result<Method, PatchError> {
        Ok(Closure::of(&self.symbols, kernel)?.method)
    }

    /// As [`crate::list_sites`].
    ///
    /// # Errors
    /// As there.
    pub fn list_sites(&self, kernel: &str) -> Result<SiteList, PatchError> {
        sites_of(&self.symbols, kernel)
    }

    /// As [`crate::slice()`].
    ///
    /// # Errors
    /// As there.
    pub fn slice(
        &self,
        kernel: &str,
        attachments: &[Attachment<'_>],
        options: &Options,
    ) -> Result<(String, Variant), PatchError> {
        slice_of(&self.symbols, kernel, attachments, options)
    }

    /// As [`crate::clone_in_module`].
    ///
    /// # Errors
    /// As there.
    pub fn clone_in_module(
        &self,
        requests: &[(&str, Vec<Attachment<'_>>)],
        options: &Options,
    ) -> Result<(String, Vec<Variant>), PatchError> {
        clone_of(&self.symbols, requests, options)
    }
}
