//! LRU_HASH and LRU_PERCPU_HASH on the device: see [`LruLayout`].

use warpbpf_abi::layout::LruLayout;
use warpbpf_abi::maps::{BPF_EXIST, BPF_NOEXIST, EBUSY, EEXIST, ENOENT, ENOMEM};

use super::shape::{Shape, own_copy, store_key, store_value};
use super::text::Text;
use crate::bitmap::Search;
use crate::ir::HashOp;

/// Everything behind the hash of the key, up to `$wbpf_done`.
pub fn body(f: &mut Text, op: HashOp, l: &LruLayout, shape: &Shape, evict: &str) {
    if op != HashOp::Delete {
        own_copy(f, shape, l.value_stride());
    }
    if op == HashOp::Update {
        // The node that this call has taken and not published, plus one; 0 while it has none. And
        // how many keys it may spare at its bucket's hand.
        f.code(&format!(
            "mov.b32 %wbpf_w2, 0;
            mov.b32 %wbpf_w11, {};",
            LruLayout::WAYS * LruLayout::TOUCHED
        ));
    }
    find(f, op, l, shape);
    match op {
        HashOp::Lookup => lookup_ends(f, l, shape),
        HashOp::Delete => delete_ends(f, l),
        HashOp::Update => update_ends(f, l, shape, evict),
    }
}

/// `to` becomes the address of the node whose number plus one is in `low`.
pub fn node_of(f: &mut Text, l: &LruLayout, to: &str, low: &str) {
    f.code(&format!(
        "mad.lo.s64 {to}, {low}, {}, %wbpf_base;
        add.s64 {to}, {to}, {};",
        l.node_stride(),
        l.nodes_at() as i64 - l.node_stride() as i64
    ));
}

/// Reads the key's bucket into `%wbpf_v0` to `%wbpf_v7`. Goes to `$wbpf_found` with the node's
/// address in `%wbpf_node`, the slot's value in `%wbpf_s`, its place in `%wbpf_w1` and the node's
/// mark in `%wbpf_u`; else to `$wbpf_absent`, or when this has been tried often enough to
/// `$wbpf_busy`.
fn find(f: &mut Text, op: HashOp, l: &LruLayout, shape: &Shape) {
    f.code(&format!(
        ".reg .b64 %wbpf_v<8>, %wbpf_u, %wbpf_x;
        and.b64 %wbpf_tag, %wbpf_h, {:#x};
        cvt.u32.u64 %wbpf_w0, %wbpf_h;
        and.b32 %wbpf_w0, %wbpf_w0, {};
        mad.wide.u32 %wbpf_slot, %wbpf_w0, {}, %wbpf_base;
        add.s64 %wbpf_slot, %wbpf_slot, {};
        mov.b32 %wbpf_w10, {};
        bra $wbpf_scan;
        $wbpf_again:
        add.s32 %wbpf_w10, %wbpf_w10, -1;
        setp.eq.s32 %wbpf_p0, %wbpf_w10, 0;
        @%wbpf_p0 bra $wbpf_busy;
        $wbpf_scan:
        mov.b32 %wbpf_w0, 0;",
        !((1u64 << LruLayout::TAG_SHIFT) - 1),
        l.buckets() - 1,
        LruLayout::BUCKET,
        LruLayout::SLOTS,
        LruLayout::TRIES
    ));
    for i in (0..LruLayout::WAYS).step_by(2) {
        f.code(&format!(
            "ld.acquire.gpu.global.v2.u64 {{%wbpf_v{i}, %wbpf_v{}}}, [%wbpf_slot+{}];",
            i + 1,
            i * 8
        ));
    }
    // Those with our tag go into the mask `%wbpf_w0`, the first of them into `%wbpf_s`.
    for i in (0..LruLayout::WAYS).rev() {
        f.code(&format!(
            "xor.b64 %wbpf_t0, %wbpf_v{i}, %wbpf_tag;
            setp.lt.u64 %wbpf_p0, %wbpf_t0, {:#x};
            @%wbpf_p0 or.b32 %wbpf_w0, %wbpf_w0, {};
            @%wbpf_p0 mov.b64 %wbpf_s, %wbpf_v{i};
            @%wbpf_p0 mov.b32 %wbpf_w1, {i};",
            1u64 << LruLayout::TAG_SHIFT,
            1 << i
        ));
    }
    f.code(&format!(
        "setp.eq.s32 %wbpf_p0, %wbpf_w0, 0;
        @%wbpf_p0 bra $wbpf_absent;
        $wbpf_check:
        and.b64 %wbpf_t0, %wbpf_s, {:#x};
        setp.eq.s64 %wbpf_p0, %wbpf_t0, 0;
        @%wbpf_p0 bra $wbpf_reject;",
        LruLayout::NODE_MASK
    ));
    node_of(f, l, "%wbpf_node", "%wbpf_t0");
    // Where the slot is read again, the key must have been read before: acquire.
    let twice = op != HashOp::Lookup || shape.keys() > 1;
    let order = if twice { "acquire" } else { "relaxed" };
    f.code(&format!(
        "ld.{order}.gpu.global.v2.u64 {{%wbpf_u, %wbpf_x}}, [%wbpf_node];
        setp.ne.s64 %wbpf_p0, %wbpf_x, %wbpf_k0;
        @%wbpf_p0 bra $wbpf_other;"
    ));
    for i in 1..shape.keys() {
        f.code(&format!(
            "ld.acquire.gpu.global.u64 %wbpf_x, [%wbpf_node+{}];
            setp.ne.s64 %wbpf_p0, %wbpf_x, %wbpf_k{i};
            @%wbpf_p0 bra $wbpf_other;",
            LruLayout::KEY + i * 8
        ));
    }
    if twice {
        same(f);
    }
    // Another key with the same tag, if the slot is as it was; then the next with this tag.
    f.code(
        "bra $wbpf_found;
        $wbpf_other:",
    );
    same(f);
    f.code(
        "$wbpf_reject:
        mov.b32 %wbpf_w3, 1;
        shl.b32 %wbpf_w3, %wbpf_w3, %wbpf_w1;
        xor.b32 %wbpf_w0, %wbpf_w0, %wbpf_w3;
        setp.eq.s32 %wbpf_p0, %wbpf_w0, 0;
        @%wbpf_p0 bra $wbpf_absent;",
    );
    for i in (0..LruLayout::WAYS).rev() {
        f.code(&format!(
            "and.b32 %wbpf_w3, %wbpf_w0, {};
            setp.ne.s32 %wbpf_p0, %wbpf_w3, 0;
            @%wbpf_p0 mov.b64 %wbpf_s, %wbpf_v{i};
            @%wbpf_p0 mov.b32 %wbpf_w1, {i};",
            1 << i
        ));
    }
    f.code("bra $wbpf_check;");
}

/// To `$wbpf_again` if slot `%wbpf_w1` is no longer `%wbpf_s`.
fn same(f: &mut Text) {
    f.code(
        "mad.wide.u32 %wbpf_t0, %wbpf_w1, 8, %wbpf_slot;
        ld.acquire.gpu.global.u64 %wbpf_t0, [%wbpf_t0];
        setp.ne.s64 %wbpf_p0, %wbpf_t0, %wbpf_s;
        @%wbpf_p0 bra $wbpf_again;",
    );
}

/// Marks the node as used, if it is not.
fn mark(f: &mut Text) {
    f.code(&format!(
        "setp.ne.s64 %wbpf_p0, %wbpf_u, {touched};
        @%wbpf_p0 st.relaxed.gpu.global.u64 [%wbpf_node+{}], {touched};",
        LruLayout::USED,
        touched = LruLayout::TOUCHED
    ));
}

/// `%wbpf_t0` becomes the address of the value that this lane uses.
fn value_address(f: &mut Text, l: &LruLayout, shape: &Shape) {
    f.code(&format!(
        "add.s64 %wbpf_t0, %wbpf_node, {};",
        LruLayout::KEY + l.key_stride()
    ));
    if shape.copies > 1 {
        f.code("add.s64 %wbpf_t0, %wbpf_t0, %wbpf_copy;");
    }
}

fn lookup_ends(f: &mut Text, l: &LruLayout, shape: &Shape) {
    f.code(&format!(
        "$wbpf_busy:
        red.relaxed.gpu.global.add.u64 [%wbpf_base+{}], 1;
        $wbpf_absent:
        mov.b64 %wbpf_res, 0;
        bra $wbpf_done;
        $wbpf_found:",
        LruLayout::COUNT_BUSY
    ));
    mark(f);
    value_address(f, l, shape);
    f.code("mov.b64 %wbpf_res, %wbpf_t0;");
}

/// Frees the node whose number plus one is in `%wbpf_w2`.
fn free(f: &mut Text, l: &LruLayout) {
    f.code(&format!(
        "add.s32 %wbpf_w2, %wbpf_w2, -1;
        shr.u32 %wbpf_w4, %wbpf_w2, 5;
        and.b32 %wbpf_w5, %wbpf_w2, 31;
        mov.b32 %wbpf_w6, 1;
        shl.b32 %wbpf_w6, %wbpf_w6, %wbpf_w5;
        not.b32 %wbpf_w6, %wbpf_w6;
        mad.wide.u32 %wbpf_t0, %wbpf_w4, 4, %wbpf_base;
        add.s64 %wbpf_t0, %wbpf_t0, {};
        red.release.gpu.global.and.b32 [%wbpf_t0], %wbpf_w6;",
        l.taken_at()
    ));
}

/// Counts one key less.
fn uncount(f: &mut Text) {
    f.code(&format!(
        "red.relaxed.gpu.global.add.u32 [%wbpf_base+{}], -1;",
        LruLayout::LIVE
    ));
}

fn busy(f: &mut Text) {
    f.code(&format!(
        "$wbpf_busy:
        mov.b64 %wbpf_res, {EBUSY};
        red.relaxed.gpu.global.add.u64 [%wbpf_base+{}], 1;",
        LruLayout::COUNT_BUSY
    ));
}

fn delete_ends(f: &mut Text, l: &LruLayout) {
    busy(f);
    f.code(&format!(
        "bra $wbpf_done;
        $wbpf_absent:
        mov.b64 %wbpf_res, {ENOENT};
        bra $wbpf_done;
        $wbpf_found:
        mad.wide.u32 %wbpf_t0, %wbpf_w1, 8, %wbpf_slot;
        and.b64 %wbpf_t1, %wbpf_s, {:#x};
        atom.acq_rel.gpu.global.cas.b64 %wbpf_t2, [%wbpf_t0], %wbpf_s, %wbpf_t1;
        setp.ne.s64 %wbpf_p0, %wbpf_t2, %wbpf_s;
        @%wbpf_p0 bra $wbpf_again;
        cvt.u32.u64 %wbpf_w2, %wbpf_s;
        and.b32 %wbpf_w2, %wbpf_w2, {:#x};",
        LruLayout::LAP_MASK,
        LruLayout::NODE_MASK
    ));
    uncount(f);
    free(f, l);
    f.code("mov.b64 %wbpf_res, 0;");
}

fn update_ends(f: &mut Text, l: &LruLayout, shape: &Shape, evict: &str) {
    busy(f);
    f.code(&format!(
        "bra $wbpf_release;
        $wbpf_absent:
        setp.eq.s64 %wbpf_p0, %wbpf_flags, {BPF_EXIST};
        mov.b64 %wbpf_res, {ENOENT};
        @%wbpf_p0 bra $wbpf_release;"
    ));
    hand(f, l);
    // What is written now takes no old node's place.
    f.code(
        "$wbpf_insert:
        mov.b32 %wbpf_w7, 0;
        setp.ne.s32 %wbpf_p0, %wbpf_w2, 0;
        @%wbpf_p0 bra $wbpf_publish;",
    );
    take(f, l, evict);
    fill(f, l, shape);
    if shape.copies == 1 {
        f.code(
            "setp.ne.s32 %wbpf_p0, %wbpf_w7, 0;
            @%wbpf_p0 bra $wbpf_swap;",
        );
    }
    publish(f, l, evict);
    found(f, l, shape);
    f.code(
        "$wbpf_release:
        setp.eq.s32 %wbpf_p0, %wbpf_w2, 0;
        @%wbpf_p0 bra $wbpf_done;",
    );
    free(f, l);
}

/// Finds the bucket's hand and decides what it does. Goes on at `$wbpf_insert` with the slot's
/// address in `%wbpf_t2` and its value in `%wbpf_s`.
fn hand(f: &mut Text, l: &LruLayout) {
    let (lap, one) = (LruLayout::LAP_MASK, 1u64 << LruLayout::LAP_SHIFT);
    // `%wbpf_w5`: the slots whose lap is that of the first; the others' must be one less, and
    // behind them.
    f.code(&format!(
        "and.b64 %wbpf_t0, %wbpf_v0, {lap:#x};
        sub.s64 %wbpf_t1, %wbpf_t0, {one:#x};
        and.b64 %wbpf_t1, %wbpf_t1, {lap:#x};
        mov.b32 %wbpf_w5, 1;"
    ));
    for i in 1..LruLayout::WAYS {
        f.code(&format!(
            "and.b64 %wbpf_t2, %wbpf_v{i}, {lap:#x};
            setp.eq.s64 %wbpf_p0, %wbpf_t2, %wbpf_t0;
            setp.eq.s64 %wbpf_p1, %wbpf_t2, %wbpf_t1;
            @%wbpf_p0 or.b32 %wbpf_w5, %wbpf_w5, {};
            or.pred %wbpf_p0, %wbpf_p0, %wbpf_p1;
            @!%wbpf_p0 bra $wbpf_again;",
            1 << i
        ));
    }
    f.code(&format!(
        "add.s32 %wbpf_w6, %wbpf_w5, 1;
        and.b32 %wbpf_w6, %wbpf_w6, %wbpf_w5;
        setp.ne.s32 %wbpf_p0, %wbpf_w6, 0;
        @%wbpf_p0 bra $wbpf_again;
        popc.b32 %wbpf_w6, %wbpf_w5;
        and.b32 %wbpf_w6, %wbpf_w6, {};
        mov.b32 %wbpf_w5, 0;",
        LruLayout::WAYS - 1
    ));
    // `%wbpf_w5` is 1 if some slot is empty.
    for i in 0..LruLayout::WAYS {
        f.code(&format!(
            "setp.eq.s32 %wbpf_p0, %wbpf_w6, {i};
            @%wbpf_p0 mov.b64 %wbpf_s, %wbpf_v{i};
            and.b64 %wbpf_t0, %wbpf_v{i}, {mask:#x};
            setp.eq.s64 %wbpf_p0, %wbpf_t0, 0;
            @%wbpf_p0 mov.b32 %wbpf_w5, 1;",
            mask = LruLayout::NODE_MASK
        ));
    }
    f.code(&format!(
        "mad.wide.u32 %wbpf_t2, %wbpf_w6, 8, %wbpf_slot;
        and.b64 %wbpf_t0, %wbpf_s, {:#x};
        setp.eq.s64 %wbpf_p0, %wbpf_t0, 0;
        @%wbpf_p0 bra $wbpf_insert;
        setp.ne.s32 %wbpf_p0, %wbpf_w5, 0;
        @%wbpf_p0 bra $wbpf_pass;
        setp.eq.s32 %wbpf_p0, %wbpf_w11, 0;
        @%wbpf_p0 bra $wbpf_insert;",
        LruLayout::NODE_MASK
    ));
    node_of(f, l, "%wbpf_t1", "%wbpf_t0");
    f.code(&format!(
        "ld.relaxed.gpu.global.u64 %wbpf_u, [%wbpf_t1+{used}];
        setp.eq.s64 %wbpf_p0, %wbpf_u, 0;
        @%wbpf_p0 bra $wbpf_insert;
        add.s64 %wbpf_u, %wbpf_u, -1;
        st.relaxed.gpu.global.u64 [%wbpf_t1+{used}], %wbpf_u;
        add.s32 %wbpf_w11, %wbpf_w11, -1;
        $wbpf_pass:
        add.s64 %wbpf_t0, %wbpf_s, {one:#x};
        and.b64 %wbpf_t0, %wbpf_t0, {lap:#x};
        and.b64 %wbpf_t1, %wbpf_s, {:#x};
        or.b64 %wbpf_t0, %wbpf_t0, %wbpf_t1;
        atom.relaxed.gpu.global.cas.b64 %wbpf_t1, [%wbpf_t2], %wbpf_s, %wbpf_t0;
        bra $wbpf_again;",
        !lap,
        used = LruLayout::USED
    ));
}

/// Takes a node; `%wbpf_w2` becomes its number plus one. Drops a key if there is no free one where
/// it looks.
fn take(f: &mut Text, l: &LruLayout, evict: &str) {
    let words = l.taken_words();
    let search = Search {
        at: l.taken_at(),
        words,
        most: LruLayout::FREE_SEARCH.into(),
        set_is_free: false,
        node: "%wbpf_w2",
        word: "%wbpf_w4",
        bit: "%wbpf_w6",
        old: "%wbpf_w9",
        left: "%wbpf_w5",
        address: "%wbpf_t0",
        found: "$wbpf_took",
    };
    f.code("$wbpf_take:");
    f.code(&search.text());
    f.code(
        "mov.b32 %wbpf_w2, 0;
        mov.b64 %wbpf_t0, 0;",
    );
    call_evict(f, evict, "%wbpf_t0");
    f.code(
        "setp.eq.s64 %wbpf_p0, %wbpf_t0, 0;
        @%wbpf_p0 bra $wbpf_full;
        cvt.u32.u64 %wbpf_w2, %wbpf_t0;",
    );
    uncount(f);
    f.code(
        "bra $wbpf_fill;
        $wbpf_took:
        add.s32 %wbpf_w2, %wbpf_w2, 1;",
    );
}

/// `%wbpf_t0` becomes what it gives.
fn call_evict(f: &mut Text, evict: &str, spare: &str) {
    f.code(&format!(
        "{{
        .param .b64 wbpf_c0;
        .param .b64 wbpf_c1;
        .param .b64 wbpf_v;
        st.param.b64 [wbpf_c0], %wbpf_base;
        st.param.b64 [wbpf_c1], {spare};
        call (wbpf_v), {evict}, (wbpf_c0, wbpf_c1);
        ld.param.b64 %wbpf_t0, [wbpf_v];
        }}"
    ));
}

/// Writes key and value into the node taken. Others may still be reading the key that was there
/// before: the fence stands between the slot that no longer shows it and what is written now.
fn fill(f: &mut Text, l: &LruLayout, shape: &Shape) {
    f.code("$wbpf_fill:\ncvt.u64.u32 %wbpf_t0, %wbpf_w2;");
    node_of(f, l, "%wbpf_node", "%wbpf_t0");
    f.code(&format!(
        "fence.acq_rel.gpu;
        setp.ne.s32 %wbpf_p0, %wbpf_w7, 0;
        selp.b64 %wbpf_t0, {}, {}, %wbpf_p0;
        st.relaxed.gpu.global.u64 [%wbpf_node+{}], %wbpf_t0;
        add.s64 %wbpf_node, %wbpf_node, {};",
        LruLayout::TOUCHED,
        LruLayout::NEW,
        LruLayout::USED,
        LruLayout::KEY
    ));
    store_key(f, shape);
    f.code(&format!(
        "add.s64 %wbpf_t0, %wbpf_node, {};",
        l.key_stride()
    ));
    if shape.copies > 1 {
        f.code(&format!(
            "mov.b64 %wbpf_t1, %wbpf_t0;
            mov.b32 %wbpf_w8, {};
            $wbpf_zero:
        .pragma \"nounroll\";
            st.relaxed.gpu.global.u64 [%wbpf_t1], 0;
            add.s64 %wbpf_t1, %wbpf_t1, 8;
            add.s32 %wbpf_w8, %wbpf_w8, -1;
            setp.ne.s32 %wbpf_p0, %wbpf_w8, 0;
            @%wbpf_p0 bra $wbpf_zero;
            add.s64 %wbpf_t0, %wbpf_t0, %wbpf_copy;",
            shape.values() * u64::from(shape.copies)
        ));
    }
    store_value(f, shape);
}

/// Puts the node into the slot at the hand, if that is as it was, and drops a key if there are too
/// many.
fn publish(f: &mut Text, l: &LruLayout, evict: &str) {
    let (lap, one) = (LruLayout::LAP_MASK, 1u64 << LruLayout::LAP_SHIFT);
    let mask = LruLayout::NODE_MASK;
    f.code(&format!(
        "$wbpf_publish:
        add.s64 %wbpf_t3, %wbpf_s, {one:#x};
        and.b64 %wbpf_t3, %wbpf_t3, {lap:#x};
        or.b64 %wbpf_t3, %wbpf_t3, %wbpf_tag;
        cvt.u64.u32 %wbpf_t1, %wbpf_w2;
        or.b64 %wbpf_t3, %wbpf_t3, %wbpf_t1;
        atom.acq_rel.gpu.global.cas.b64 %wbpf_t0, [%wbpf_t2], %wbpf_s, %wbpf_t3;
        setp.ne.s64 %wbpf_p0, %wbpf_t0, %wbpf_s;
        @%wbpf_p0 bra $wbpf_again;
        mov.b64 %wbpf_res, 0;
        cvt.u32.u64 %wbpf_w2, %wbpf_s;
        and.b32 %wbpf_w2, %wbpf_w2, {mask:#x};
        setp.ne.s32 %wbpf_p0, %wbpf_w2, 0;
        @%wbpf_p0 bra $wbpf_release;
        atom.relaxed.gpu.global.add.u32 %wbpf_w4, [%wbpf_base+{}], 1;
        setp.lt.s32 %wbpf_p0, %wbpf_w4, {};
        @%wbpf_p0 bra $wbpf_done;",
        LruLayout::LIVE,
        l.max_entries
    ));
    call_evict(f, evict, "%wbpf_t2");
    uncount(f);
    // The node that is free now, or 0.
    f.code(&format!(
        "cvt.u32.u64 %wbpf_w2, %wbpf_t0;
        setp.ne.s32 %wbpf_p0, %wbpf_w2, 0;
        @%wbpf_p0 bra $wbpf_release;
        and.b64 %wbpf_t1, %wbpf_t3, {lap:#x};
        atom.acq_rel.gpu.global.cas.b64 %wbpf_t0, [%wbpf_t2], %wbpf_t3, %wbpf_t1;
        setp.eq.s64 %wbpf_p0, %wbpf_t0, %wbpf_t3;
        cvt.u32.u64 %wbpf_w2, %wbpf_t3;
        and.b32 %wbpf_w2, %wbpf_w2, {mask:#x};
        @%wbpf_p0 bra $wbpf_full;
        red.relaxed.gpu.global.add.u32 [%wbpf_base+{}], 1;
        bra $wbpf_done;
        $wbpf_full:
        mov.b64 %wbpf_res, {ENOMEM};
        red.relaxed.gpu.global.add.u64 [%wbpf_base+{}], 1;
        bra $wbpf_release;",
        LruLayout::LIVE,
        LruLayout::COUNT_FULL
    ));
}

fn found(f: &mut Text, l: &LruLayout, shape: &Shape) {
    f.code(&format!(
        "$wbpf_found:
        setp.eq.s64 %wbpf_p0, %wbpf_flags, {BPF_NOEXIST};
        mov.b64 %wbpf_res, {EEXIST};
        @%wbpf_p0 bra $wbpf_release;"
    ));
    if shape.copies > 1 {
        mark(f);
        value_address(f, l, shape);
        store_value(f, shape);
        f.code("mov.b64 %wbpf_res, 0;");
        return;
    }
    // A lane that was overtaken by another overwrite or a delete is done; if the hand came by, it
    // looks again.
    f.code(&format!(
        "mov.b32 %wbpf_w7, 1;
        setp.eq.s32 %wbpf_p0, %wbpf_w2, 0;
        @%wbpf_p0 bra $wbpf_take;
        $wbpf_swap:
        mad.wide.u32 %wbpf_t2, %wbpf_w1, 8, %wbpf_slot;
        and.b64 %wbpf_t1, %wbpf_s, {:#x};
        cvt.u64.u32 %wbpf_t0, %wbpf_w2;
        or.b64 %wbpf_t1, %wbpf_t1, %wbpf_t0;
        atom.acq_rel.gpu.global.cas.b64 %wbpf_t0, [%wbpf_t2], %wbpf_s, %wbpf_t1;
        xor.b64 %wbpf_t1, %wbpf_t0, %wbpf_s;
        and.b64 %wbpf_t1, %wbpf_t1, {:#x};
        setp.ne.s64 %wbpf_p0, %wbpf_t1, 0;
        @%wbpf_p0 bra $wbpf_again;
        mov.b64 %wbpf_res, 0;
        setp.ne.s64 %wbpf_p0, %wbpf_t0, %wbpf_s;
        @%wbpf_p0 bra $wbpf_release;
        cvt.u32.u64 %wbpf_w2, %wbpf_s;
        and.b32 %wbpf_w2, %wbpf_w2, {:#x};",
        !LruLayout::NODE_MASK,
        LruLayout::LAP_MASK,
        LruLayout::NODE_MASK
    ));
}
