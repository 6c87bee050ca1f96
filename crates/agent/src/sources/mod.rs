//! Images and where their text comes from.

pub(crate) mod artefacts;
pub(crate) mod image;
pub(crate) mod images;
pub(crate) mod jit_outputs;
pub(crate) mod links;
pub(crate) mod preloaded;
pub(crate) mod vendor_check;
pub(crate) mod version;
