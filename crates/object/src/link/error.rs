//! Why objects cannot be linked.

use crate::error::ObjectError;

/// Why objects cannot be linked. The objects are at fault in all cases.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkError {
    /// No objects at all.
    #[error("there is nothing to link; name at least one object")]
    Nothing,
    /// One of the objects cannot be read.
    #[error("`{object}`: {error}")]
    Object {
        /// Its name.
        object: String,
        /// What is wrong.
        error: Box<ObjectError>,
    },
    /// A function, variable or map that no object defines.
    #[error("`{object}` uses `{symbol}`, which no object defines; link the one that does")]
    Undefined {
        /// The name.
        symbol: String,
        /// The object that wants it.
        object: String,
    },
    /// Two objects define the same function or variable.
    #[error(
        "`{symbol}` is defined in `{first}` and in `{second}`; make one of them `static`, `__weak` or `extern`"
    )]
    Duplicate {
        /// The name.
        symbol: String,
        /// The first object.
        first: String,
        /// The second.
        second: String,
    },
    /// Two objects define or declare the same map with other attributes.
    #[error("map `{map}`: `{attribute}` is {difference}; share one definition")]
    MapConflict {
        /// Name of the map.
        map: String,
        /// The attribute, as in the definition.
        attribute: String,
        /// Who says what.
        difference: Box<Difference>,
    },
    /// Declarations and definitions of one function or variable have different types.
    #[error("`{symbol}` is {difference}; declare it in a header that both include")]
    TypeConflict {
        /// The name.
        symbol: String,
        /// Who says what.
        difference: Box<Difference>,
    },
    /// One object takes a function or variable from another, and they cannot be compared.
    #[error(
        "`{user}` takes `{symbol}` from `{definer}`, and `{untyped}` has no type information, so nothing shows that both mean the same; compile both with `-g`"
    )]
    Untyped {
        /// The name.
        symbol: String,
        /// The object that declares it.
        user: String,
        /// The object whose definition is taken.
        definer: String,
        /// The one of the two that has no types, the user if both.
        untyped: String,
    },
    /// Two objects have different licences or version numbers.
    #[error("section `{section}` is {difference}; a linked object has one")]
    Section {
        /// `license` or `version`.
        section: &'static str,
        /// Who says what.
        difference: Box<Difference>,
    },
    /// More than the format can hold.
    #[error("the linked object would be too large: {what}; link fewer objects")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
    },
}

/// What two objects say of the same thing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{first_value} in `{first}` and {second_value} in `{second}`")]
pub struct Difference {
    /// The first object.
    pub first: String,
    /// What it says.
    pub first_value: String,
    /// The second object.
    pub second: String,
    /// What it says.
    pub second_value: String,
}
