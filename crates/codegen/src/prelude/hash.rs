//! HASH and PERCPU_HASH on the device: see [`HashLayout`].

use warpbpf_abi::layout::HashLayout;
use warpbpf_abi::maps::{BPF_EXIST, BPF_NOEXIST, E2BIG, EBUSY, EEXIST, ENOENT};

use super::text::Text;
use super::{Shape, own_copy, store_key, store_value};
use crate::ir::HashOp;

/// How often an insert that finds no node looks at its slot again: nodes are scarce only while many lanes insert the
/// same key, and then one of them publishes it.
pub const NODE_RETRIES: u32 = 32;
/// Most words of the bitmap of free nodes that one search looks at.
const FREE_SEARCH: u64 = 64;

/// Everything behind the hash of the key, up to `$wbpf_done`.
pub fn body(f: &mut Text, op: HashOp, l: &HashLayout, shape: &Shape) {
    if op != HashOp::Delete {
        own_copy(f, shape, l.value_stride());
    }
    if op == HashOp::Update {
        // The node that this call has taken and not published, as in a slot's word; 0 while it has none.
        f.code(&format!(
            "mov.b32 %wbpf_w2, 0;
            mov.b32 %wbpf_w3, {NODE_RETRIES};"
        ));
    }
    probe(f, op, l, shape);
    match op {
        HashOp::Lookup => lookup_ends(f, l, shape),
        HashOp::Delete => delete_ends(f),
        HashOp::Update => update_ends(f, l, shape),
    }
}

/// Goes from slot to slot. To `$wbpf_found` with the key's address in `%wbpf_node`, to `$wbpf_absent` at a slot where the
/// key would have to be inserted; falls through when all probes are used. The slot's address is in `%wbpf_slot`, its word
/// in `%wbpf_s`.
fn probe(f: &mut Text, op: HashOp, l: &HashLayout, shape: &Shape) {
    f.code(&format!(
        ".reg .b64 %wbpf_want, %wbpf_x;
        and.b64 %wbpf_tag, %wbpf_h, 0xffffffff00000000;
        or.b64 %wbpf_want, %wbpf_tag, {:#x};
        cvt.u32.u64 %wbpf_w0, %wbpf_h;
        and.b32 %wbpf_w0, %wbpf_w0, {mask};
        mov.b32 %wbpf_w1, {};
        $wbpf_probe:
        .pragma \"nounroll\";
        mad.wide.u32 %wbpf_slot, %wbpf_w0, {}, %wbpf_base;
        add.s64 %wbpf_slot, %wbpf_slot, {};",
        HashLayout::HOME,
        HashLayout::PROBES,
        l.slot_stride(),
        HashLayout::SLOTS,
        mask = l.slots() - 1
    ));
    if op == HashOp::Update {
        f.code("$wbpf_read:");
    }
    if l.homes() {
        home(f, shape);
    } else {
        f.code(
            "ld.acquire.gpu.global.u64 %wbpf_s, [%wbpf_slot];
            setp.eq.s64 %wbpf_p0, %wbpf_s, 0;
            @%wbpf_p0 bra $wbpf_absent;",
        );
    }
    // `%wbpf_t0` becomes the lower half if the tag is ours, else more than that.
    f.code(
        "xor.b64 %wbpf_t0, %wbpf_s, %wbpf_tag;
        setp.ge.u64 %wbpf_p0, %wbpf_t0, 0xffffffff;
        @%wbpf_p0 bra $wbpf_next;",
    );
    if l.homes() {
        f.code(&format!(
            "setp.eq.s64 %wbpf_p0, %wbpf_t0, {};
            @%wbpf_p0 bra $wbpf_absent;",
            HashLayout::CLAIMED
        ));
    }
    f.code(&format!(
        "mad.lo.s64 %wbpf_node, %wbpf_t0, {}, %wbpf_base;
        add.s64 %wbpf_node, %wbpf_node, {};",
        l.node_stride(),
        l.nodes_at() as i64 - (HashLayout::FIRST_NODE * l.node_stride()) as i64
    ));
    // A published node never changes its key, and the slot was read with acquire: plain loads are enough.
    for i in 0..shape.keys() {
        f.code(&format!(
            "ld.global.u64 %wbpf_t0, [%wbpf_node+{}];
            setp.ne.s64 %wbpf_p0, %wbpf_t0, %wbpf_k{i};
            @%wbpf_p0 bra $wbpf_next;",
            i * 8
        ));
    }
    f.code(&format!(
        "bra $wbpf_found;
        $wbpf_next:
        add.s32 %wbpf_w0, %wbpf_w0, 1;
        and.b32 %wbpf_w0, %wbpf_w0, {};
        add.s32 %wbpf_w1, %wbpf_w1, -1;
        setp.ne.s32 %wbpf_p0, %wbpf_w1, 0;
        @%wbpf_p0 bra $wbpf_probe;",
        l.slots() - 1
    ));
}

/// Reads a slot with the first word of its home, and looks whether the key is in the home.
fn home(f: &mut Text, shape: &Shape) {
    // The key's word may be read before the slot's, so it may be from before the home was filled: zero then. So one
    // that is the key's and not zero is right, and zero is read again.
    f.code(
        "ld.acquire.gpu.global.v2.u64 {%wbpf_s, %wbpf_x}, [%wbpf_slot];
        setp.eq.s64 %wbpf_p0, %wbpf_s, 0;
        @%wbpf_p0 bra $wbpf_absent;
        setp.ne.s64 %wbpf_p0, %wbpf_s, %wbpf_want;
        @%wbpf_p0 bra $wbpf_pool;
        setp.ne.s64 %wbpf_p0, %wbpf_x, 0;
        @%wbpf_p0 bra $wbpf_known;
        ld.global.u64 %wbpf_x, [%wbpf_slot+8];
        $wbpf_known:
        setp.ne.s64 %wbpf_p0, %wbpf_x, %wbpf_k0;
        @%wbpf_p0 bra $wbpf_next;",
    );
    for i in 1..shape.keys() {
        f.code(&format!(
            "ld.global.u64 %wbpf_x, [%wbpf_slot+{}];
            setp.ne.s64 %wbpf_p0, %wbpf_x, %wbpf_k{i};
            @%wbpf_p0 bra $wbpf_next;",
            8 + i * 8
        ));
    }
    f.code(
        "add.s64 %wbpf_node, %wbpf_slot, 8;
        bra $wbpf_found;
        $wbpf_pool:",
    );
}

/// `%wbpf_t0` becomes the address of the value that this lane uses.
fn value_address(f: &mut Text, l: &HashLayout, shape: &Shape) {
    f.code(&format!(
        "add.s64 %wbpf_t0, %wbpf_node, {};",
        l.key_stride()
    ));
    if shape.copies > 1 {
        f.code("add.s64 %wbpf_t0, %wbpf_t0, %wbpf_copy;");
    }
}

fn lookup_ends(f: &mut Text, l: &HashLayout, shape: &Shape) {
    f.code(
        "$wbpf_absent:
        mov.b64 %wbpf_res, 0;
        bra $wbpf_done;
        $wbpf_found:",
    );
    value_address(f, l, shape);
    f.code("mov.b64 %wbpf_res, %wbpf_t0;");
}

fn delete_ends(f: &mut Text) {
    // A slot with a key changes to one with the same key, or to deleted.
    f.code(&format!(
        "$wbpf_absent:
        mov.b64 %wbpf_res, {ENOENT};
        bra $wbpf_done;
        $wbpf_found:
        mov.b64 %wbpf_t1, {deleted:#x};
        atom.relaxed.gpu.global.exch.b64 %wbpf_t0, [%wbpf_slot], %wbpf_t1;
        setp.eq.s64 %wbpf_p0, %wbpf_t0, {deleted:#x};
        @%wbpf_p0 bra $wbpf_absent;",
        deleted = HashLayout::DELETED
    ));
    own_shard(f);
    f.code(&format!(
        "red.relaxed.gpu.global.add.u32 [%wbpf_t2+{}], -1;
        mov.b64 %wbpf_res, 0;",
        HashLayout::USED
    ));
}

/// `%wbpf_w4` becomes the number of this SM's shard, `%wbpf_t2` its address.
fn own_shard(f: &mut Text) {
    f.code(&format!(
        "mov.u32 %wbpf_w4, %smid;
        and.b32 %wbpf_w4, %wbpf_w4, {};",
        HashLayout::SHARDS - 1
    ));
    shard(f);
}

/// `%wbpf_t2` becomes the address of shard `%wbpf_w4`.
fn shard(f: &mut Text) {
    f.code(&format!(
        "mad.wide.u32 %wbpf_t2, %wbpf_w4, {}, %wbpf_base;
        add.s64 %wbpf_t2, %wbpf_t2, {};",
        HashLayout::CONTROL_STRIDE,
        HashLayout::CONTROL
    ));
}

/// `%wbpf_w5` becomes the quota of shard `%wbpf_w4`.
fn quota(f: &mut Text, l: &HashLayout) {
    let (each, more) = (
        l.max_entries / HashLayout::SHARDS,
        l.max_entries % HashLayout::SHARDS,
    );
    f.code(&format!(
        "setp.lt.u32 %wbpf_p0, %wbpf_w4, {more};
        selp.b32 %wbpf_w5, {}, {each}, %wbpf_p0;",
        each + 1
    ));
}

/// `inside` for each shard, from the own one on; falls through behind the last. It may branch to `next`.
fn each_shard(f: &mut Text, head: &str, next: &str, inside: impl FnOnce(&mut Text)) {
    own_shard(f);
    f.code(&format!(
        "mov.b32 %wbpf_w6, {};
        {head}:
        .pragma \"nounroll\";",
        HashLayout::SHARDS
    ));
    inside(f);
    f.code(&format!(
        "{next}:
        add.s32 %wbpf_w4, %wbpf_w4, 1;
        and.b32 %wbpf_w4, %wbpf_w4, {};",
        HashLayout::SHARDS - 1
    ));
    shard(f);
    f.code(&format!(
        "add.s32 %wbpf_w6, %wbpf_w6, -1;
        setp.ne.s32 %wbpf_p0, %wbpf_w6, 0;
        @%wbpf_p0 bra {head};"
    ));
}

fn update_ends(f: &mut Text, l: &HashLayout, shape: &Shape) {
    // All probes used: a key that must exist does not, any other has no place.
    f.code(&format!(
        "setp.eq.s64 %wbpf_p0, %wbpf_flags, {BPF_EXIST};
        mov.b64 %wbpf_res, {ENOENT};
        @%wbpf_p0 bra $wbpf_release;
        $wbpf_busy:
        mov.b64 %wbpf_res, {EBUSY};
        red.relaxed.gpu.global.add.u64 [%wbpf_base+{}], 1;
        bra $wbpf_release;
        $wbpf_full:
        mov.b64 %wbpf_res, {E2BIG};
        red.relaxed.gpu.global.add.u64 [%wbpf_base+{}], 1;
        bra $wbpf_release;
        $wbpf_absent:
        setp.eq.s64 %wbpf_p0, %wbpf_flags, {BPF_EXIST};
        mov.b64 %wbpf_res, {ENOENT};
        @%wbpf_p0 bra $wbpf_release;",
        HashLayout::COUNT_BUSY,
        HashLayout::COUNT_FULL
    ));
    // Whether what is written now takes an old node's place.
    if l.swaps() {
        f.code("mov.b32 %wbpf_w7, 0;");
    }
    f.code(
        "setp.ne.s32 %wbpf_p0, %wbpf_w2, 0;
        @%wbpf_p0 bra $wbpf_publish;",
    );
    look_for_room(f, l);
    if l.homes() {
        claim(f, l, shape);
    }
    f.code("$wbpf_take:");
    take(f, l);
    fill(f, l, shape);
    publish(f, l);
    count(f, l);
    found(f, l, shape);
    release(f, l, shape);
}

/// Goes on at `$wbpf_room` if some shard has room. Else as many keys as may be were counted, which happens after they
/// are published: if this slot is as it was, this key is not among them.
fn look_for_room(f: &mut Text, l: &HashLayout) {
    each_shard(f, "$wbpf_look", "$wbpf_looked", |f| {
        quota(f, l);
        f.code(&format!(
            "ld.relaxed.gpu.global.u32 %wbpf_w8, [%wbpf_t2+{}];
            setp.lt.s32 %wbpf_p0, %wbpf_w8, %wbpf_w5;
            @%wbpf_p0 bra $wbpf_room;",
            HashLayout::USED
        ));
    });
    f.code(
        "fence.acq_rel.gpu;
        ld.acquire.gpu.global.u64 %wbpf_t0, [%wbpf_slot];
        setp.eq.s64 %wbpf_p0, %wbpf_t0, %wbpf_s;
        @%wbpf_p0 bra $wbpf_full;
        bra $wbpf_read;
        $wbpf_room:",
    );
}

/// If the slot is empty, claims and fills its home, and publishes it. Goes on at `$wbpf_take` if it was claimed before.
fn claim(f: &mut Text, l: &HashLayout, shape: &Shape) {
    f.code(&format!(
        "setp.ne.s64 %wbpf_p0, %wbpf_s, 0;
        @%wbpf_p0 bra $wbpf_take;
        or.b64 %wbpf_s, %wbpf_tag, {};
        mov.b64 %wbpf_t1, 0;
        atom.relaxed.gpu.global.cas.b64 %wbpf_t0, [%wbpf_slot], %wbpf_t1, %wbpf_s;
        setp.ne.s64 %wbpf_p0, %wbpf_t0, 0;
        @%wbpf_p0 bra $wbpf_read;
        add.s64 %wbpf_node, %wbpf_slot, 8;",
        HashLayout::CLAIMED
    ));
    store_key(f, shape);
    value_address(f, l, shape);
    store_value(f, shape);
    // Who published a node of the pool here meanwhile did not wait for us; the home is lost.
    f.code(
        "atom.release.gpu.global.cas.b64 %wbpf_t0, [%wbpf_slot], %wbpf_s, %wbpf_want;
        setp.ne.s64 %wbpf_p0, %wbpf_t0, %wbpf_s;
        @%wbpf_p0 bra $wbpf_read;
        bra $wbpf_count;",
    );
}

/// Takes a node of the pool; `%wbpf_w2` becomes what stands for it in a word.
fn take(f: &mut Text, l: &HashLayout) {
    each_shard(f, "$wbpf_fresh", "$wbpf_empty", |f| {
        // Looking first keeps the counter from running away, and wrapping, in a map that is out of nodes.
        f.code(&format!(
            "ld.relaxed.gpu.global.u32 %wbpf_w8, [%wbpf_t2+{next}];
            setp.ge.u32 %wbpf_p0, %wbpf_w8, {nodes};
            @%wbpf_p0 bra $wbpf_empty;
            atom.relaxed.gpu.global.add.u32 %wbpf_w8, [%wbpf_t2+{next}], 1;
            mad.lo.s32 %wbpf_w2, %wbpf_w4, {nodes}, %wbpf_w8;
            add.s32 %wbpf_w2, %wbpf_w2, {};
            setp.lt.u32 %wbpf_p0, %wbpf_w8, {nodes};
            @%wbpf_p0 bra $wbpf_fill;",
            HashLayout::FIRST_NODE,
            next = HashLayout::NEXT_NODE,
            nodes = l.shard_nodes()
        ));
    });
    search_free(f, l);
    f.code(
        "mov.b32 %wbpf_w2, 0;
        add.s32 %wbpf_w3, %wbpf_w3, -1;
        setp.ne.s32 %wbpf_p0, %wbpf_w3, 0;
        @%wbpf_p0 bra $wbpf_read;
        bra $wbpf_busy;",
    );
}

/// Looks for a node that was given back, from a word on that lanes choose differently. Falls through without one.
fn search_free(f: &mut Text, l: &HashLayout) {
    let words = l.free_words();
    f.code(&format!(
        "mov.u32 %wbpf_w4, %clock;
        mov.u32 %wbpf_w5, %laneid;
        add.s32 %wbpf_w4, %wbpf_w4, %wbpf_w5;
        rem.u32 %wbpf_w4, %wbpf_w4, {words};
        mov.b32 %wbpf_w6, {};
        $wbpf_word:
        .pragma \"nounroll\";
        mad.wide.u32 %wbpf_t0, %wbpf_w4, 4, %wbpf_base;
        add.s64 %wbpf_t0, %wbpf_t0, {};
        ld.relaxed.gpu.global.u32 %wbpf_w8, [%wbpf_t0];
        setp.eq.s32 %wbpf_p0, %wbpf_w8, 0;
        @%wbpf_p0 bra $wbpf_skip;
        clz.b32 %wbpf_w8, %wbpf_w8;
        mov.b32 %wbpf_w2, 31;
        sub.s32 %wbpf_w2, %wbpf_w2, %wbpf_w8;
        mov.b32 %wbpf_w8, 1;
        shl.b32 %wbpf_w8, %wbpf_w8, %wbpf_w2;
        not.b32 %wbpf_w9, %wbpf_w8;
        atom.acquire.gpu.global.and.b32 %wbpf_w9, [%wbpf_t0], %wbpf_w9;
        and.b32 %wbpf_w9, %wbpf_w9, %wbpf_w8;
        mad.lo.s32 %wbpf_w2, %wbpf_w4, 32, %wbpf_w2;
        add.s32 %wbpf_w2, %wbpf_w2, {};
        setp.ne.s32 %wbpf_p0, %wbpf_w9, 0;
        @%wbpf_p0 bra $wbpf_fill;
        $wbpf_skip:
        add.s32 %wbpf_w4, %wbpf_w4, 1;
        setp.eq.s32 %wbpf_p0, %wbpf_w4, {words};
        selp.b32 %wbpf_w4, 0, %wbpf_w4, %wbpf_p0;
        add.s32 %wbpf_w6, %wbpf_w6, -1;
        setp.ne.s32 %wbpf_p0, %wbpf_w6, 0;
        @%wbpf_p0 bra $wbpf_word;",
        words.min(FREE_SEARCH),
        l.free_at(),
        HashLayout::FIRST_NODE
    ));
}

/// `%wbpf_node` becomes the address of the node that `%wbpf_w2` stands for.
fn node_address(f: &mut Text, l: &HashLayout) {
    f.code(&format!(
        "cvt.u64.u32 %wbpf_node, %wbpf_w2;
        mad.lo.s64 %wbpf_node, %wbpf_node, {}, %wbpf_base;
        add.s64 %wbpf_node, %wbpf_node, {};",
        l.node_stride(),
        l.nodes_at() as i64 - (HashLayout::FIRST_NODE * l.node_stride()) as i64
    ));
}

/// Writes key and value into the node taken. Copies of other SMs are zero in a free node.
fn fill(f: &mut Text, l: &HashLayout, shape: &Shape) {
    f.code("$wbpf_fill:");
    node_address(f, l);
    store_key(f, shape);
    value_address(f, l, shape);
    store_value(f, shape);
}

/// Puts the node into the slot, if that is as it was.
fn publish(f: &mut Text, l: &HashLayout) {
    f.code(
        "$wbpf_publish:
        cvt.u64.u32 %wbpf_t1, %wbpf_w2;
        or.b64 %wbpf_t1, %wbpf_t1, %wbpf_tag;
        atom.release.gpu.global.cas.b64 %wbpf_t0, [%wbpf_slot], %wbpf_s, %wbpf_t1;
        setp.ne.s64 %wbpf_p0, %wbpf_t0, %wbpf_s;",
    );
    if l.swaps() {
        f.code(
            "setp.ne.s32 %wbpf_p1, %wbpf_w7, 0;
            mov.b64 %wbpf_res, 0;
            @%wbpf_p1 bra $wbpf_swapped;",
        );
    }
    // Published, so the node is no longer ours to give back.
    f.code(
        "@%wbpf_p0 bra $wbpf_read;
        mov.b32 %wbpf_w2, 0;",
    );
}

/// Counts a key that was published just now; takes it back if there are too many.
fn count(f: &mut Text, l: &HashLayout) {
    // Without a look first: there was room just now, most likely in the own shard.
    f.code("$wbpf_count:\nmov.b64 %wbpf_res, 0;");
    each_shard(f, "$wbpf_charge", "$wbpf_charged", |f| {
        quota(f, l);
        f.code(&format!(
            "atom.relaxed.gpu.global.add.u32 %wbpf_w8, [%wbpf_t2+{used}], 1;
            setp.lt.s32 %wbpf_p0, %wbpf_w8, %wbpf_w5;
            @%wbpf_p0 bra $wbpf_done;
            red.relaxed.gpu.global.add.u32 [%wbpf_t2+{used}], -1;",
            used = HashLayout::USED
        ));
    });
    // Whoever deleted it meanwhile has given back what was not taken. The shard is the own one again.
    f.code(&format!(
        "mov.b64 %wbpf_t1, {deleted:#x};
        atom.relaxed.gpu.global.exch.b64 %wbpf_t0, [%wbpf_slot], %wbpf_t1;
        setp.ne.s64 %wbpf_p0, %wbpf_t0, {deleted:#x};
        @%wbpf_p0 bra $wbpf_full;
        red.relaxed.gpu.global.add.u32 [%wbpf_t2+{}], 1;
        bra $wbpf_done;",
        HashLayout::USED,
        deleted = HashLayout::DELETED
    ));
}

fn found(f: &mut Text, l: &HashLayout, shape: &Shape) {
    f.code(&format!(
        "$wbpf_found:
        setp.eq.s64 %wbpf_p0, %wbpf_flags, {BPF_NOEXIST};
        mov.b64 %wbpf_res, {EEXIST};
        @%wbpf_p0 bra $wbpf_release;"
    ));
    if l.swaps() {
        f.code(
            "mov.b32 %wbpf_w7, 1;
            setp.ne.s32 %wbpf_p0, %wbpf_w2, 0;
            @%wbpf_p0 bra $wbpf_publish;
            bra $wbpf_take;
            $wbpf_swapped:
            @!%wbpf_p0 bra $wbpf_done;",
        );
        return;
    }
    value_address(f, l, shape);
    store_value(f, shape);
    f.code("mov.b64 %wbpf_res, 0;");
}

/// Gives back a node that was not published.
fn release(f: &mut Text, l: &HashLayout, shape: &Shape) {
    f.code(
        "$wbpf_release:
        setp.eq.s32 %wbpf_p0, %wbpf_w2, 0;
        @%wbpf_p0 bra $wbpf_done;",
    );
    if shape.copies > 1 {
        node_address(f, l);
        value_address(f, l, shape);
        for i in 0..shape.values() {
            f.code(&format!(
                "st.relaxed.gpu.global.u64 [%wbpf_t0+{}], 0;",
                i * 8
            ));
        }
    }
    f.code(&format!(
        "add.s32 %wbpf_w2, %wbpf_w2, {};
        shr.u32 %wbpf_w4, %wbpf_w2, 5;
        and.b32 %wbpf_w5, %wbpf_w2, 31;
        mov.b32 %wbpf_w6, 1;
        shl.b32 %wbpf_w6, %wbpf_w6, %wbpf_w5;
        mad.wide.u32 %wbpf_t0, %wbpf_w4, 4, %wbpf_base;
        add.s64 %wbpf_t0, %wbpf_t0, {};
        red.release.gpu.global.or.b32 [%wbpf_t0], %wbpf_w6;",
        -(HashLayout::FIRST_NODE as i64),
        l.free_at()
    ));
}
