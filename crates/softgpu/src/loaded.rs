//! What a module holds after loading. What decoding finds out is kept here, so that it is found out
//! once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use warpbpf_ptx::ast;

use crate::device::Device;
use crate::program::{Files, Program};
use crate::variables::Variables;

/// What a module holds after loading; kernels keep it alive.
pub(crate) struct Inner {
    /// Borrows from `text`, see [`Inner::ast`].
    pub(crate) ast: ast::Module<'static>,
    pub(crate) text: Arc<str>,
    pub device: Arc<Device>,
    pub id: u32,
    pub variables: Variables,
    /// Function number by name: the one with a body where there are several. An alias has that of
    /// what it stands for.
    pub functions: HashMap<String, u32>,
    /// `.file` paths by index.
    pub files: Arc<Files>,
    /// Where lines begin, for who asks which one a place is on.
    pub(crate) lines: OnceLock<Box<[usize]>>,
    /// What is known of functions by number, see `decode/summary.rs`.
    pub summaries: Mutex<HashMap<u32, Arc<Summary>>>,
    pub(crate) programs: Mutex<Programs>,
}

/// Decoded kernels by number.
#[derive(Default)]
pub(crate) struct Programs {
    pub(crate) known: HashMap<u32, Arc<Program>>,
    pub(crate) instructions: usize,
}

impl Inner {
    /// The index of the text, for as long as the module is borrowed.
    pub(crate) fn ast(&self) -> &ast::Module<'_> {
        &self.ast
    }

    /// The line, from 1, that an offset of the text is on.
    pub(crate) fn line_of(&self, offset: usize) -> u32 {
        let lines = self.lines.get_or_init(|| {
            let newlines = self.text.bytes().enumerate().filter(|&(_, b)| b == b'\n');
            newlines.map(|(at, _)| at).collect()
        });
        lines.partition_point(|&newline| newline < offset) as u32 + 1
    }
}

/// One function.
#[derive(Debug)]
pub(crate) struct Summary {
    /// Module function numbers in the order in which they are named.
    pub(crate) callees: Vec<u32>,
    /// It calls through a pointer.
    pub(crate) calls_any: bool,
    pub(crate) placed: Vec<Placed>,
    pub(crate) frame: u32,
    pub(crate) registers: u32,
}

/// A shared variable, in the order in which they are met.
#[derive(Debug)]
pub(super) struct Placed {
    /// Of a variable of the module, which is placed once.
    pub name: Option<String>,
    pub size: u64,
    pub align: u64,
}
