//! Keys and values of a table as words: where they are among the parameters, and how they are
//! stored.

use warpbpf_abi::layout::{HashLayout, HostedLayout, LruLayout};

use super::text::Text;
use crate::ir::{HashOp, Table};

/// Words of a table's keys and values, and where they are among the parameters.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) key_size: u32,
    pub(super) value_size: u32,
    pub(super) max_entries: u32,
    pub(super) copies: u32,
}

impl Shape {
    pub(super) fn new(table: &Table) -> Shape {
        match *table {
            Table::Hash(HashLayout {
                max_entries,
                key_size,
                value_size,
                copies,
                dense: _,
            })
            | Table::Lru(LruLayout {
                max_entries,
                key_size,
                value_size,
                copies,
            }) => Shape {
                key_size,
                value_size,
                max_entries,
                copies,
            },
            Table::Hosted(HostedLayout {
                max_entries,
                key_size,
                value_size,
            }) => Shape {
                key_size,
                value_size,
                max_entries,
                copies: 1,
            },
        }
    }
    pub(super) fn keys(&self) -> u64 {
        u64::from(self.key_size.div_ceil(8))
    }
    pub(super) fn values(&self) -> u64 {
        u64::from(self.value_size.div_ceil(8))
    }
    /// Number of the first parameter that holds a word of the key: the base comes first, and the
    /// flags of an update.
    pub(super) fn first_key(op: HashOp) -> u64 {
        match op {
            HashOp::Lookup | HashOp::Delete => 1,
            HashOp::Update => 2,
        }
    }
    pub(super) fn parameters(&self, op: HashOp) -> u64 {
        let values = match op {
            HashOp::Lookup | HashOp::Delete => 0,
            HashOp::Update => self.values(),
        };
        Shape::first_key(op) + self.keys() + values
    }
}

/// `%wbpf_copy` becomes the offset of this SM's copy of a value. A number beyond the copies gets
/// the last one.
pub(super) fn own_copy(f: &mut Text, shape: &Shape, stride: u64) {
    if shape.copies > 1 {
        f.code(&format!(
            "mov.u32 %wbpf_w4, %smid;
            min.u32 %wbpf_w4, %wbpf_w4, {};
            mul.wide.u32 %wbpf_copy, %wbpf_w4, {stride};",
            shape.copies - 1
        ));
    }
}

/// Stores the value's words to `%wbpf_t0`.
pub(super) fn store_value(f: &mut Text, shape: &Shape) {
    let first = Shape::first_key(HashOp::Update) + shape.keys();
    for i in 0..shape.values() {
        f.code(&format!(
            "ld.param.b64 %wbpf_t1, [wbpf_a{}];
            st.relaxed.gpu.global.u64 [%wbpf_t0+{}], %wbpf_t1;",
            first + i,
            i * 8
        ));
    }
}

/// Stores the key's words from `%wbpf_node` on.
pub(super) fn store_key(f: &mut Text, shape: &Shape) {
    for i in 0..shape.keys() {
        f.code(&format!(
            "st.relaxed.gpu.global.u64 [%wbpf_node+{}], %wbpf_k{i};",
            i * 8
        ));
    }
}
