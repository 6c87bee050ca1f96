//! Files that are written from the `abi` tables, so that what people read and programs include is
//! what the code does.

use crate::shell::{self, Failure, failure, root};
use crate::{cuda_header, header, helpers};

/// One of them.
pub struct Generated {
    /// Where it is, from the root on.
    pub path: &'static str,
    /// Makes all of it.
    pub text: fn() -> String,
}

const ALL: [Generated; 3] = [header::FILE, cuda_header::FILE, helpers::FILE];

/// Writes all of them.
pub fn write() -> Result<(), Failure> {
    let mut all = ALL.iter();
    all.try_for_each(|file| shell::write(&root().join(file.path), (file.text)()))
}

/// Fails if one is not what the tables say.
pub fn check() -> Result<(), Failure> {
    for file in &ALL {
        if shell::read(&root().join(file.path))? != (file.text)() {
            return failure(format!(
                "`{}` is out of date: run `cargo xtask codegen`",
                file.path
            ));
        }
    }
    Ok(())
}
