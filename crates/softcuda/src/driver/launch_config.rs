//! What a program says of a launch beside its kernel and parameters.

use crate::objects::handle::Handle;

/// `CUlaunchConfig`
#[repr(C)]
pub struct LaunchConfig {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads per block.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared: u32,
    /// Stream.
    pub stream: Handle,
    attributes: *const LaunchAttribute,
    n_attributes: u32,
}

/// `CUlaunchAttribute`
#[repr(C)]
pub struct LaunchAttribute {
    id: u32,
    padding: u32,
    /// A union of 64 bytes.
    value: [u32; 16],
}

/// The launch attributes that mean something here.
pub(crate) struct Attributes {
    pub cluster: [u32; 3],
    pub cooperative: bool,
}

impl LaunchConfig {
    /// # Safety
    /// The configuration's attributes must be as many as it says.
    pub(crate) unsafe fn attributes(&self) -> Attributes {
        /// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`, `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`
        const COOPERATIVE: u32 = 2;
        const CLUSTER_DIMENSION: u32 = 4;
        let mut found = Attributes {
            cluster: [1; 3],
            cooperative: false,
        };
        if self.attributes.is_null() {
            return found;
        }
        for at in 0..self.n_attributes as usize {
            // SAFETY: `at` is below the number that the caller vouches for.
            let attribute = unsafe { &*self.attributes.add(at) };
            match attribute.id {
                COOPERATIVE => found.cooperative = attribute.value[0] != 0,
                CLUSTER_DIMENSION => {
                    found.cluster = [0, 1, 2].map(|axis| attribute.value[axis]);
                }
                // Priorities, access policies, events: no influence on results.
                _ => {}
            }
        }
        found
    }
}
