//! A kernel after decoding: its functions and what they share.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::joins::Joins;
use crate::op::{Inst, Place};

/// Paths of source files by number.
pub(crate) type Files = HashMap<u32, String>;

/// The code of a kernel and of every function it can reach.
#[derive(Debug)]
pub(crate) struct Program {
    /// The entry is function 0.
    pub functions: Vec<Function>,
    /// Values of the constant rows.
    pub constants: Vec<u64>,
    /// Index in `functions` by the module's function number.
    pub by_module_index: HashMap<u32, u32>,
    /// Where dynamic shared memory starts, counted from the start of the block's shared memory.
    pub dynamic_shared_base: u32,
    /// `.file` paths by index.
    pub files: Arc<Files>,
    /// Reads `%envreg`: grids of cooperative groups find their workspace there.
    pub environment: bool,
    /// Estimated registers per thread.
    pub registers: u32,
}

impl Program {
    /// Bytes of shared memory that a block of the kernel needs, without what system software has.
    pub(crate) fn shared_bytes(&self, dynamic: u32) -> u32 {
        (self.dynamic_shared_base - crate::limits::RESERVED_SHARED).saturating_add(dynamic)
    }

    /// Source file and line of an instruction.
    pub(crate) fn source(&self, function: u32, pc: u32) -> Option<(String, u32)> {
        let locations = &self.functions[function as usize].locations;
        let before = locations.partition_point(|&(from, ..)| from <= pc);
        let (_, file, line) = *locations.get(before.checked_sub(1)?)?;
        let path = self.files.get(&file)?;
        // The compiler marks what it made up itself with line 0.
        (line > 0).then(|| (path.clone(), line))
    }
}

/// One decoded function.
#[derive(Debug)]
pub(crate) struct Function {
    pub name: String,
    pub code: Vec<Inst>,
    /// `.loc`: from this instruction on, file and line.
    pub locations: Vec<(u32, u32, u32)>,
    /// Rows a frame needs.
    pub rows: u32,
    /// Bytes of local memory a frame needs: `.local` variables and `.param` variables.
    pub frame: u32,
    pub params: Vec<Place>,
    pub returns: Vec<Place>,
    /// Known when lanes first go different ways.
    pub joins: OnceLock<Joins>,
}

impl Function {
    pub(crate) fn joins(&self) -> &Joins {
        self.joins.get_or_init(|| Joins::new(&self.code))
    }
}
