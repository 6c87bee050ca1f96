//! Calls with all that they are given: of a kernel, and of a function of the program.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

use crate::objects::module::Function;

/// A function of the program, and what it is called with.
#[derive(Clone, Copy)]
pub(crate) struct HostCall {
    pub function: unsafe extern "C" fn(*mut c_void),
    /// An address.
    pub data: usize,
}

/// The value of a launch attribute: a union of 64 bytes.
pub(crate) type AttributeValue = [u64; 8];

/// A launch, complete.
#[derive(Clone)]
pub(crate) struct KernelCall {
    pub function: Arc<Function>,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub shared: u32,
    pub cooperative: bool,
    /// Attributes of a node that mean nothing here, for who asks.
    pub attributes: BTreeMap<u32, AttributeValue>,
    pub values: Arc<Values>,
}

/// Parameters, and a list of pointers to them as a program gives and gets it.
pub(crate) struct Values {
    pub block: Box<[u8]>,
    /// Addresses in `block`.
    pub pointers: Box<[usize]>,
}

impl Values {
    pub(crate) fn new(function: &Function, block: Vec<u8>) -> Values {
        let block = block.into_boxed_slice();
        let start = block.as_ptr() as usize;
        let params = function.kernel.params().iter();
        let pointers = params.map(|param| start + param.offset).collect();
        Values { block, pointers }
    }
}
