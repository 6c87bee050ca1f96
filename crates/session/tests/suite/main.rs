//! What a session decides about images, without a GPU: programs by clang, code by `ptxas`.

mod listing;
mod machine;
mod prepare;
