//! What the tool has assembled for kernels of which there is only machine code; and what failed of
//! that, or behind it, for kernels that could have programs: it tells them from those that cannot.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::plan::kernel_error::KernelError;

/// Functions for machine code that `ptxas` has assembled: by their text, the cubin, or why there is
/// none.
#[derive(Debug, Clone, Default)]
pub struct Assembled(BTreeMap<String, Result<Arc<[u8]>, String>>);

impl Assembled {
    /// Takes in what became of a text.
    pub fn add(&mut self, text: String, cubin: Result<Vec<u8>, String>) {
        self.0.insert(text, cubin.map(Arc::from));
    }

    /// No text was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What became of a text, for a kernel that needs it; where the assembler failed, `unmade`
    /// keeps why.
    ///
    /// # Errors
    /// Why there is no cubin.
    pub(crate) fn get(&self, text: &str, unmade: &Unmade) -> Result<&Arc<[u8]>, KernelError> {
        let made = self.0.get(text).ok_or(KernelError::NotAssembled)?;
        made.as_ref().map_err(|said| {
            unmade.keep(said);
            KernelError::Assembler { said: said.clone() }
        })
    }
}

/// Why code of an image is missing that its kernels could have had: the first reason that came.
#[derive(Debug, Default)]
pub(crate) struct Unmade(OnceLock<String>);

impl Unmade {
    /// For whoever asks [`Unmade::why`].
    pub(crate) fn keep(&self, why: &str) {
        self.0.get_or_init(|| why.to_owned());
    }

    pub(crate) fn why(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}
