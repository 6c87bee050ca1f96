//! The hash functions that fragments call, as PTX text: probing has loops that would bloat every call site. Their
//! names carry the layout, so that one module can hold several and equal ones are one.
//!
//! The algorithm is [`HashLayout`]'s. No lane waits for another: each loop is bounded.

use std::fmt::Write;

use warpbpf_abi::layout::HashLayout;
use warpbpf_abi::maps::{BPF_EXIST, BPF_NOEXIST, E2BIG, EBUSY, EEXIST, EINVAL, ENOENT};

use crate::ir::HashOp;

/// How often an insert that finds no node looks at its slot again: nodes are scarce only while many lanes insert the
/// same key, and then one of them publishes it.
const NODE_RETRIES: u32 = 32;
/// Most words of the bitmap of free nodes that one search looks at.
const FREE_SEARCH: u64 = 64;

/// Name and number of parameters of a hash function.
pub fn hash_name(op: HashOp, l: &HashLayout) -> String {
    let what = match op {
        HashOp::Lookup => "lookup",
        HashOp::Update => "update",
        HashOp::Delete => "delete",
    };
    format!(
        "wbpf_hash_{what}_k{}_v{}_n{}",
        l.key_size, l.value_size, l.max_entries
    )
}

/// Text of a hash function. All parameters and the result are `.b64`; [`HashOp`] says which.
pub fn hash_function(op: HashOp, l: &HashLayout) -> String {
    let keys = l.key_stride() / 8;
    let values = if op == HashOp::Update {
        l.value_stride() / 8
    } else {
        0
    };
    let first_key = if op == HashOp::Update { 2 } else { 1 };
    let mut f = Text::default();
    let params: Vec<String> = (0..first_key + keys + values)
        .map(|i| format!(".param .b64 wbpf_a{i}"))
        .collect();
    f.raw(&format!(
        ".func (.param .b64 wbpf_r) {}({})",
        hash_name(op, l),
        params.join(", ")
    ));
    f.raw("{");
    f.line(".reg .pred %wbpf_p<1>;");
    f.line(".reg .b32 %wbpf_w<8>;");
    f.line(".reg .b64 %wbpf_base, %wbpf_flags, %wbpf_h, %wbpf_tag, %wbpf_slot, %wbpf_s, %wbpf_node, %wbpf_t<2>, %wbpf_res;");
    f.line(&format!(".reg .b64 %wbpf_k<{}>;", keys.max(1)));
    f.line("ld.param.b64 %wbpf_base, [wbpf_a0];");
    if op == HashOp::Update {
        f.line("ld.param.b64 %wbpf_flags, [wbpf_a1];");
    }
    for i in 0..keys {
        f.line(&format!(
            "ld.param.b64 %wbpf_k{i}, [wbpf_a{}];",
            first_key + i
        ));
    }
    if op == HashOp::Update {
        f.line(&format!("mov.b64 %wbpf_res, {EINVAL};"));
        f.line(&format!("setp.gt.u64 %wbpf_p0, %wbpf_flags, {BPF_EXIST};"));
        f.line("@%wbpf_p0 bra $wbpf_done;");
        // The node that this call has taken and not published, plus one; 0 while it has none.
        f.line("mov.b32 %wbpf_w2, 0;");
        f.line(&format!("mov.b32 %wbpf_w3, {NODE_RETRIES};"));
    }
    hash_of_key(&mut f, l, keys);
    f.line(&format!("mov.b32 %wbpf_w1, {};", HashLayout::PROBES));
    f.label("$wbpf_probe");
    f.line("mad.wide.u32 %wbpf_slot, %wbpf_w0, 8, %wbpf_base;");
    f.label("$wbpf_read");
    f.line(&format!(
        "ld.acquire.gpu.global.u64 %wbpf_s, [%wbpf_slot+{}];",
        HashLayout::SLOTS
    ));
    f.line("setp.eq.s64 %wbpf_p0, %wbpf_s, 0;");
    f.line("@%wbpf_p0 bra $wbpf_empty;");
    f.label("$wbpf_check");
    compare(&mut f, l, keys);
    f.label("$wbpf_next");
    f.line("add.s32 %wbpf_w0, %wbpf_w0, 1;");
    f.line(&format!("and.b32 %wbpf_w0, %wbpf_w0, {};", l.slots() - 1));
    f.line("add.s32 %wbpf_w1, %wbpf_w1, -1;");
    f.line("setp.ne.s32 %wbpf_p0, %wbpf_w1, 0;");
    f.line("@%wbpf_p0 bra $wbpf_probe;");
    match op {
        HashOp::Lookup => lookup_ends(&mut f, l),
        HashOp::Delete => delete_ends(&mut f),
        HashOp::Update => update_ends(&mut f, l, keys, values, first_key),
    }
    f.label("$wbpf_done");
    f.line("st.param.b64 [wbpf_r], %wbpf_res;");
    f.line("ret;");
    f.raw("}");
    f.0
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn raw(&mut self, text: &str) {
        self.0.push_str(text);
        self.0.push('\n');
    }
    fn line(&mut self, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "\t{text}");
    }
    fn label(&mut self, name: &str) {
        let _ = writeln!(self.0, "{name}:");
    }
}

/// `%wbpf_tag` becomes the tag in the upper half, `%wbpf_w0` the first slot.
fn hash_of_key(f: &mut Text, l: &HashLayout, keys: u64) {
    f.line(&format!("mov.b64 %wbpf_h, {};", l.key_size));
    for i in 0..keys {
        f.line(&format!("xor.b64 %wbpf_h, %wbpf_h, %wbpf_k{i};"));
        f.line(&format!(
            "mul.lo.s64 %wbpf_h, %wbpf_h, {:#x};",
            HashLayout::MULTIPLIER
        ));
        f.line("shr.u64 %wbpf_t0, %wbpf_h, 32;");
        f.line("xor.b64 %wbpf_h, %wbpf_h, %wbpf_t0;");
    }
    f.line("and.b64 %wbpf_tag, %wbpf_h, 0xffffffff00000000;");
    f.line("cvt.u32.u64 %wbpf_w0, %wbpf_h;");
    f.line(&format!("and.b32 %wbpf_w0, %wbpf_w0, {};", l.slots() - 1));
}

/// Goes to `$wbpf_found` with the node's address in `%wbpf_node` if the slot value `%wbpf_s` holds the key, else to
/// `$wbpf_next`.
fn compare(f: &mut Text, l: &HashLayout, keys: u64) {
    f.line(&format!(
        "setp.eq.s64 %wbpf_p0, %wbpf_s, {:#x};",
        HashLayout::DELETED
    ));
    f.line("@%wbpf_p0 bra $wbpf_next;");
    f.line("and.b64 %wbpf_t0, %wbpf_s, 0xffffffff00000000;");
    f.line("setp.ne.s64 %wbpf_p0, %wbpf_t0, %wbpf_tag;");
    f.line("@%wbpf_p0 bra $wbpf_next;");
    f.line("and.b64 %wbpf_t0, %wbpf_s, 0xffffffff;");
    f.line("add.s64 %wbpf_t0, %wbpf_t0, -1;");
    f.line(&format!(
        "mad.lo.s64 %wbpf_node, %wbpf_t0, {}, %wbpf_base;",
        l.node_stride()
    ));
    // A published node never changes its key, and the slot was read with acquire: a plain load is enough.
    for i in 0..keys {
        f.line(&format!(
            "ld.global.u64 %wbpf_t0, [%wbpf_node+{}];",
            l.nodes_at() + i * 8
        ));
        f.line(&format!("setp.ne.s64 %wbpf_p0, %wbpf_t0, %wbpf_k{i};"));
        f.line("@%wbpf_p0 bra $wbpf_next;");
    }
    f.line("bra $wbpf_found;");
}

fn lookup_ends(f: &mut Text, l: &HashLayout) {
    f.label("$wbpf_empty");
    f.line("mov.b64 %wbpf_res, 0;");
    f.line("bra $wbpf_done;");
    f.label("$wbpf_found");
    f.line(&format!(
        "add.s64 %wbpf_res, %wbpf_node, {};",
        l.nodes_at() + l.key_stride()
    ));
}

fn delete_ends(f: &mut Text) {
    f.label("$wbpf_empty");
    f.line(&format!("mov.b64 %wbpf_res, {ENOENT};"));
    f.line("bra $wbpf_done;");
    f.label("$wbpf_found");
    f.line(&format!("mov.b64 %wbpf_t1, {:#x};", HashLayout::DELETED));
    f.line(&format!(
        "atom.acq_rel.gpu.global.cas.b64 %wbpf_t0, [%wbpf_slot+{}], %wbpf_s, %wbpf_t1;",
        HashLayout::SLOTS
    ));
    f.line("setp.ne.s64 %wbpf_p0, %wbpf_t0, %wbpf_s;");
    // A slot with a key only ever changes to deleted: somebody else deleted it just now.
    f.line("@%wbpf_p0 bra $wbpf_empty;");
    f.line(&format!(
        "red.relaxed.gpu.global.add.u32 [%wbpf_base+{}], -1;",
        HashLayout::LIVE
    ));
    f.line("mov.b64 %wbpf_res, 0;");
}

fn update_ends(f: &mut Text, l: &HashLayout, keys: u64, values: u64, first_key: u64) {
    let value_param = first_key + keys;
    // All probes used: a key that must exist does not, any other has no place.
    f.line(&format!("setp.eq.s64 %wbpf_p0, %wbpf_flags, {BPF_EXIST};"));
    f.line(&format!("mov.b64 %wbpf_res, {ENOENT};"));
    f.line("@%wbpf_p0 bra $wbpf_release;");
    f.label("$wbpf_busy");
    f.line(&format!("mov.b64 %wbpf_res, {EBUSY};"));
    f.line(&format!(
        "red.relaxed.gpu.global.add.u64 [%wbpf_base+{}], 1;",
        HashLayout::COUNT_BUSY
    ));
    f.line("bra $wbpf_release;");

    f.label("$wbpf_empty");
    f.line(&format!("setp.eq.s64 %wbpf_p0, %wbpf_flags, {BPF_EXIST};"));
    f.line(&format!("mov.b64 %wbpf_res, {ENOENT};"));
    f.line("@%wbpf_p0 bra $wbpf_release;");
    f.line("setp.ne.s32 %wbpf_p0, %wbpf_w2, 0;");
    f.line("@%wbpf_p0 bra $wbpf_publish;");
    claim(f, l);
    fill(f, l, keys, values, value_param);
    f.label("$wbpf_publish");
    f.line("cvt.u64.u32 %wbpf_t0, %wbpf_w2;");
    f.line("or.b64 %wbpf_t0, %wbpf_t0, %wbpf_tag;");
    f.line("mov.b64 %wbpf_t1, 0;");
    // acq_rel: releases the node to whoever finds the slot, acquires the other's node if another was first.
    f.line(&format!(
        "atom.acq_rel.gpu.global.cas.b64 %wbpf_s, [%wbpf_slot+{}], %wbpf_t1, %wbpf_t0;",
        HashLayout::SLOTS
    ));
    f.line("setp.ne.s64 %wbpf_p0, %wbpf_s, 0;");
    f.line("@%wbpf_p0 bra $wbpf_check;");
    // Published, so the node is no longer ours to give back.
    f.line("mov.b32 %wbpf_w2, 0;");
    f.line("mov.b64 %wbpf_res, 0;");
    f.line(&format!(
        "atom.relaxed.gpu.global.add.u32 %wbpf_w4, [%wbpf_base+{}], 1;",
        HashLayout::LIVE
    ));
    f.line(&format!(
        "setp.lt.s32 %wbpf_p0, %wbpf_w4, {};",
        l.max_entries
    ));
    f.line("@%wbpf_p0 bra $wbpf_done;");
    // Too many at once: this key goes again. Whoever deleted it meanwhile has uncounted it.
    f.line(&format!("mov.b64 %wbpf_t1, {:#x};", HashLayout::DELETED));
    f.line(&format!(
        "atom.acq_rel.gpu.global.cas.b64 %wbpf_s, [%wbpf_slot+{}], %wbpf_t0, %wbpf_t1;",
        HashLayout::SLOTS
    ));
    f.line("setp.ne.s64 %wbpf_p0, %wbpf_s, %wbpf_t0;");
    f.line("@%wbpf_p0 bra $wbpf_done;");
    f.line(&format!(
        "red.relaxed.gpu.global.add.u32 [%wbpf_base+{}], -1;",
        HashLayout::LIVE
    ));
    f.label("$wbpf_full");
    f.line(&format!(
        "red.relaxed.gpu.global.add.u64 [%wbpf_base+{}], 1;",
        HashLayout::COUNT_FULL
    ));
    f.line(&format!("mov.b64 %wbpf_res, {E2BIG};"));
    f.line("bra $wbpf_done;");

    f.label("$wbpf_found");
    f.line(&format!(
        "setp.eq.s64 %wbpf_p0, %wbpf_flags, {BPF_NOEXIST};"
    ));
    f.line(&format!("mov.b64 %wbpf_res, {EEXIST};"));
    f.line("@%wbpf_p0 bra $wbpf_release;");
    for i in 0..values {
        f.line(&format!(
            "ld.param.b64 %wbpf_t0, [wbpf_a{}];",
            value_param + i
        ));
        f.line(&format!(
            "st.relaxed.gpu.global.u64 [%wbpf_node+{}], %wbpf_t0;",
            l.nodes_at() + l.key_stride() + i * 8
        ));
    }
    f.line("mov.b64 %wbpf_res, 0;");
    release(f, l);
}

/// Takes a node; `%wbpf_w2` becomes its number plus one.
fn claim(f: &mut Text, l: &HashLayout) {
    f.line(&format!(
        "ld.relaxed.gpu.global.u32 %wbpf_w4, [%wbpf_base+{}];",
        HashLayout::LIVE
    ));
    f.line(&format!(
        "setp.lt.s32 %wbpf_p0, %wbpf_w4, {};",
        l.max_entries
    ));
    f.line("@%wbpf_p0 bra $wbpf_fresh;");
    // As many keys as may be were counted, which happens after they are published. If this slot is still empty, this
    // key is not among them.
    f.line("fence.acq_rel.gpu;");
    f.line(&format!(
        "ld.acquire.gpu.global.u64 %wbpf_s, [%wbpf_slot+{}];",
        HashLayout::SLOTS
    ));
    f.line("setp.eq.s64 %wbpf_p0, %wbpf_s, 0;");
    f.line("@%wbpf_p0 bra $wbpf_full;");
    f.line("bra $wbpf_check;");

    f.label("$wbpf_fresh");
    // Looking first keeps the counter from running away, and wrapping, in a map that is out of nodes.
    f.line(&format!(
        "ld.relaxed.gpu.global.u32 %wbpf_w4, [%wbpf_base+{}];",
        HashLayout::NEXT_NODE
    ));
    f.line(&format!("setp.ge.u32 %wbpf_p0, %wbpf_w4, {};", l.nodes()));
    f.line("@%wbpf_p0 bra $wbpf_search;");
    f.line(&format!(
        "atom.relaxed.gpu.global.add.u32 %wbpf_w4, [%wbpf_base+{}], 1;",
        HashLayout::NEXT_NODE
    ));
    f.line("add.s32 %wbpf_w2, %wbpf_w4, 1;");
    f.line(&format!("setp.lt.u32 %wbpf_p0, %wbpf_w4, {};", l.nodes()));
    f.line("@%wbpf_p0 bra $wbpf_fill;");
    search_free(f, l);
    f.line("mov.b32 %wbpf_w2, 0;");
    f.line("add.s32 %wbpf_w3, %wbpf_w3, -1;");
    f.line("setp.ne.s32 %wbpf_p0, %wbpf_w3, 0;");
    f.line("@%wbpf_p0 bra $wbpf_read;");
    f.line("bra $wbpf_busy;");
}

/// Looks for a node that was given back, from a word on that lanes choose differently. Falls through without one.
fn search_free(f: &mut Text, l: &HashLayout) {
    let words = l.free_words();
    f.label("$wbpf_search");
    f.line("mov.u32 %wbpf_w4, %clock;");
    f.line("mov.u32 %wbpf_w5, %laneid;");
    f.line("add.s32 %wbpf_w4, %wbpf_w4, %wbpf_w5;");
    f.line(&format!("rem.u32 %wbpf_w4, %wbpf_w4, {words};"));
    f.line(&format!("mov.b32 %wbpf_w5, {};", words.min(FREE_SEARCH)));
    f.label("$wbpf_word");
    f.line("mad.wide.u32 %wbpf_t0, %wbpf_w4, 4, %wbpf_base;");
    f.line(&format!(
        "ld.relaxed.gpu.global.u32 %wbpf_w6, [%wbpf_t0+{}];",
        l.free_at()
    ));
    f.line("setp.eq.s32 %wbpf_p0, %wbpf_w6, 0;");
    f.line("@%wbpf_p0 bra $wbpf_skip;");
    // The highest free node of the word.
    f.line("clz.b32 %wbpf_w6, %wbpf_w6;");
    f.line("mov.b32 %wbpf_w2, 31;");
    f.line("sub.s32 %wbpf_w2, %wbpf_w2, %wbpf_w6;");
    f.line("mov.b32 %wbpf_w6, 1;");
    f.line("shl.b32 %wbpf_w6, %wbpf_w6, %wbpf_w2;");
    f.line("not.b32 %wbpf_w7, %wbpf_w6;");
    f.line(&format!(
        "atom.acquire.gpu.global.and.b32 %wbpf_w7, [%wbpf_t0+{}], %wbpf_w7;",
        l.free_at()
    ));
    f.line("and.b32 %wbpf_w7, %wbpf_w7, %wbpf_w6;");
    f.line("mad.lo.s32 %wbpf_w2, %wbpf_w4, 32, %wbpf_w2;");
    f.line("add.s32 %wbpf_w2, %wbpf_w2, 1;");
    f.line("setp.ne.s32 %wbpf_p0, %wbpf_w7, 0;");
    f.line("@%wbpf_p0 bra $wbpf_fill;");
    f.label("$wbpf_skip");
    f.line("add.s32 %wbpf_w4, %wbpf_w4, 1;");
    f.line(&format!("setp.eq.s32 %wbpf_p0, %wbpf_w4, {words};"));
    f.line("selp.b32 %wbpf_w4, 0, %wbpf_w4, %wbpf_p0;");
    f.line("add.s32 %wbpf_w5, %wbpf_w5, -1;");
    f.line("setp.ne.s32 %wbpf_p0, %wbpf_w5, 0;");
    f.line("@%wbpf_p0 bra $wbpf_word;");
}

/// Writes key and value into the node taken.
fn fill(f: &mut Text, l: &HashLayout, keys: u64, values: u64, value_param: u64) {
    f.label("$wbpf_fill");
    node_address(f, l);
    for i in 0..keys {
        f.line(&format!(
            "st.relaxed.gpu.global.u64 [%wbpf_node+{}], %wbpf_k{i};",
            l.nodes_at() + i * 8
        ));
    }
    for i in 0..values {
        f.line(&format!(
            "ld.param.b64 %wbpf_t0, [wbpf_a{}];",
            value_param + i
        ));
        f.line(&format!(
            "st.relaxed.gpu.global.u64 [%wbpf_node+{}], %wbpf_t0;",
            l.nodes_at() + l.key_stride() + i * 8
        ));
    }
}

/// `%wbpf_node` becomes the address of node `%wbpf_w2` - 1, less `nodes_at`.
fn node_address(f: &mut Text, l: &HashLayout) {
    f.line("cvt.u64.u32 %wbpf_node, %wbpf_w2;");
    f.line("add.s64 %wbpf_node, %wbpf_node, -1;");
    f.line(&format!(
        "mad.lo.s64 %wbpf_node, %wbpf_node, {}, %wbpf_base;",
        l.node_stride()
    ));
}

/// Gives back a node that was not published.
fn release(f: &mut Text, l: &HashLayout) {
    f.label("$wbpf_release");
    f.line("setp.eq.s32 %wbpf_p0, %wbpf_w2, 0;");
    f.line("@%wbpf_p0 bra $wbpf_done;");
    f.line("add.s32 %wbpf_w2, %wbpf_w2, -1;");
    f.line("shr.u32 %wbpf_w4, %wbpf_w2, 5;");
    f.line("and.b32 %wbpf_w5, %wbpf_w2, 31;");
    f.line("mov.b32 %wbpf_w6, 1;");
    f.line("shl.b32 %wbpf_w6, %wbpf_w6, %wbpf_w5;");
    f.line("mad.wide.u32 %wbpf_t0, %wbpf_w4, 4, %wbpf_base;");
    f.line(&format!(
        "red.release.gpu.global.or.b32 [%wbpf_t0+{}], %wbpf_w6;",
        l.free_at()
    ));
}
