//! What a caller says of the target.

use crate::btf::Btf;

/// How an object is loaded.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LoadOptions<'a> {
    /// The types that CO-RE relocations are resolved against, by name. Without one the object's own
    /// types count as they are: nothing moves, and all that the object declares exists.
    pub target_btf: Option<&'a Btf>,
    /// Why the types of where the programs will run cannot be had. Then the object's own say
    /// nothing either: a program that reaches a relocation against a target is refused with this.
    pub no_target: Option<&'a str>,
}
