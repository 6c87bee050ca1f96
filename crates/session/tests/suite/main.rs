//! What a session decides about images, without a GPU: programs by clang, code by `ptxas`.

#![allow(
    clippy::disallowed_methods,
    reason = "the test's own files, which nobody closes"
)]

mod listing;
mod machine;
mod prepare;
