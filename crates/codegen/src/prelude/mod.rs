//! The map functions that fragments call, as PTX text: their loops would bloat every call site.
//! Their names carry the layout, so that one module can hold several and equal ones are one.
//!
//! The algorithms are those of `warpbpf_abi::layout`. No lane waits for another: each loop is
//! bounded.

mod dense;
mod evict;
mod hash;
mod hosted;
mod lru;
mod nap;
mod room;
mod shape;
mod text;

use warpbpf_abi::layout::HASH_MULTIPLIER;
use warpbpf_abi::maps::{BPF_EXIST, EINVAL};

use crate::fragment::Target;
use crate::ir::{HashOp, Table};
pub(crate) use nap::{can_nap, nap};
use room::Maps;
use shape::Shape;
pub(crate) use text::Text;

/// Name of a hash function: for the map in `slot`, or for any of this layout.
pub fn hash_name(op: HashOp, table: &Table, slot: Option<u32>) -> String {
    let what = match op {
        HashOp::Lookup => "lookup",
        HashOp::Update => "update",
        HashOp::Delete => "delete",
    };
    let kind = match table {
        Table::Hash(layout) if layout.dense => "dense",
        Table::Hash(_) => "hash",
        Table::Lru(_) => "lru",
        Table::Hosted(_) => "hosted",
    };
    let shape = Shape::new(table);
    let copies = match shape.copies {
        1 => String::new(),
        n => format!("_c{n}"),
    };
    let one = match (knows_map(op, table), slot) {
        (true, Some(slot)) => format!("_s{slot}"),
        _ => String::new(),
    };
    format!(
        "wbpf_{kind}_{what}_k{}_v{}_n{}{copies}{one}",
        shape.key_size, shape.value_size, shape.max_entries
    )
}

/// The function is another one where it is for one map: lanes need not be told apart by theirs, to
/// count keys together.
fn knows_map(op: HashOp, table: &Table) -> bool {
    matches!(
        (op, table),
        (HashOp::Update | HashOp::Delete, Table::Hash(_))
    )
}

/// Text of a hash function for a module of this kind, and of those that only it calls. All
/// parameters and the result are `.b64`; [`HashOp`] says which.
pub fn hash_function(op: HashOp, table: &Table, slot: Option<u32>, target: Target) -> String {
    let ptx = target.ptx;
    let name = hash_name(op, table, slot);
    let maps = match slot {
        Some(_) => Maps::One,
        None => Maps::Several,
    };
    let shape = Shape::new(table);
    let mut f = Text::default();
    if let (HashOp::Update, Table::Lru(layout)) = (op, table) {
        evict::evict(&mut f, layout, &evict::evict_name(&name));
        f.raw("");
    }
    let params: Vec<String> = (0..shape.parameters(op))
        .map(|i| format!(".param .b64 wbpf_a{i}"))
        .collect();
    f.raw(&format!(
        ".func (.param .b64 wbpf_r) {name}({})",
        params.join(", ")
    ));
    f.raw("{");
    arguments(&mut f, op, &shape);
    match table {
        Table::Hash(layout) if layout.dense => dense::body(&mut f, op, layout, maps, target),
        Table::Hash(layout) => hash::body(&mut f, op, layout, &shape, maps, ptx),
        Table::Hosted(layout) => hosted::body(&mut f, op, layout, &shape, ptx),
        Table::Lru(layout) => lru::body(&mut f, op, layout, &shape, &evict::evict_name(&name)),
    }
    f.code(
        "$wbpf_done:
        st.param.b64 [wbpf_r], %wbpf_res;
        ret;",
    );
    f.raw("}");
    f.finish()
}

/// Declares the registers that all have, reads base, flags and key, and hashes the key into
/// `%wbpf_h`.
fn arguments(f: &mut Text, op: HashOp, shape: &Shape) {
    let (keys, first_key) = (shape.keys(), Shape::first_key(op));
    f.code(&format!(
        ".reg .pred %wbpf_p<4>;
        .reg .b32 %wbpf_w<13>;
        .reg .b64 %wbpf_base, %wbpf_flags, %wbpf_h, %wbpf_tag, %wbpf_slot, %wbpf_s, %wbpf_node, %wbpf_copy, %wbpf_res;
        .reg .b64 %wbpf_t<4>, %wbpf_k<{keys}>;
        ld.param.b64 %wbpf_base, [wbpf_a0];"
    ));
    if op == HashOp::Update {
        f.code(&format!(
            "ld.param.b64 %wbpf_flags, [wbpf_a1];
            mov.b64 %wbpf_res, {EINVAL};
            setp.gt.u64 %wbpf_p0, %wbpf_flags, {BPF_EXIST};
            @%wbpf_p0 bra $wbpf_done;"
        ));
    }
    f.code(&format!("mov.b64 %wbpf_h, {};", shape.key_size));
    for i in 0..keys {
        f.code(&format!(
            "ld.param.b64 %wbpf_k{i}, [wbpf_a{}];
            xor.b64 %wbpf_h, %wbpf_h, %wbpf_k{i};",
            first_key + i
        ));
        mix(f);
    }
    mix(f);
}

fn mix(f: &mut Text) {
    f.code(&format!(
        "mul.lo.s64 %wbpf_h, %wbpf_h, {HASH_MULTIPLIER:#x};
        shr.u64 %wbpf_t0, %wbpf_h, 32;
        xor.b64 %wbpf_h, %wbpf_h, %wbpf_t0;"
    ));
}
